/* The gradients of LayerNorm and RMSNorm by rows: what the kernels of norm/backward_cpu.cl, norm/backward_tile.cl and
 * norm/backward_generic.cl share.
 *
 *   d[r,e]  = x[r,e] - mean_e x[r,e]                        (RMS: x[r,e] itself)
 *   n[r,e]  = d[r,e] * factor[r],  factor[r] = 1 / sqrt(mean_e d[r,e]^2 + epsilon)
 *   g[r,e]  = dy[r,e] * scale[r,e]
 *   dx[r,e] = factor[r] * (g[r,e] - mean_e g[r,e] - n[r,e] * mean_e(g[r,e] * n[r,e])) + dsum[r,e]       (RMS: without mean_e g)
 *
 * With NORM_RESIDUAL x[r,e] + residual[r,e], rounded to float, stands for x[r,e].  Rows, segments and elements lie in the arrays
 * as norm/norm.h says; x is not broadcast where dx is in its place.  With has_statistics mean, drift and factor of row r are left in
 * the workspace at statistics + 3 * r, for norm/weights.cl.  Arrays that are absent are not touched.  dx may be any array that has
 * the same layout: an item overwrites only elements that it alone reads, after it has read them for the last time.
 *
 * Parameter                                     meaning                          allowed
 * X_TYPE, SCALE_TYPE, DY_TYPE, DSUM_TYPE,       storage                          F32, F16, BF16
 * DX_TYPE
 * NORM_RESIDUAL                                 whether there is a residual      0, 1
 * RESIDUAL_TYPE                                 its storage                      F32, F16, BF16
 * Tested: F32, F16 and BF16 in each.
 *
 * State is float.  Sums are compensated.  Mean, drift and factor are computed as in norm/norm.h. */
#ifndef CLATTN_CL_NORM_BACKWARD_H
#define CLATTN_CL_NORM_BACKWARD_H

#include "norm/args.h"
#include "lib/compensated.h"
#include "lib/fma.h"
#include "lib/storage.h"

#ifndef NORM_RESIDUAL
#define NORM_RESIDUAL 0
#endif
#ifndef X_TYPE
#define X_TYPE F32
#endif
#ifndef RESIDUAL_TYPE
#define RESIDUAL_TYPE F32
#endif
#ifndef SCALE_TYPE
#define SCALE_TYPE F32
#endif
#ifndef DY_TYPE
#define DY_TYPE F32
#endif
#ifndef DSUM_TYPE
#define DSUM_TYPE F32
#endif
#ifndef DX_TYPE
#define DX_TYPE F32
#endif

#define BACKWARD_PARAMETERS \
    const global ELEMENT(X_TYPE) *x, const global ELEMENT(RESIDUAL_TYPE) *residual, \
        const global ELEMENT(SCALE_TYPE) *scale, const global ELEMENT(DY_TYPE) *dy, \
        const global ELEMENT(DSUM_TYPE) *dsum, global ELEMENT(DX_TYPE) *dx, global float *workspace, \
        norm_backward_args a
#define BACKWARD_ARGUMENTS x, residual, scale, dy, dsum, dx, workspace, a

/* 0: the host promises that rows have one segment. */
#ifndef SEGMENTED
#define SEGMENTED 1
#endif

/* Where a row or a segment begins in each array. */
typedef struct place {
    const global ELEMENT(X_TYPE) *x;
    const global ELEMENT(RESIDUAL_TYPE) *residual;
    const global ELEMENT(SCALE_TYPE) *scale;
    const global ELEMENT(DY_TYPE) *dy;
    const global ELEMENT(DSUM_TYPE) *dsum;
    global ELEMENT(DX_TYPE) *dx;
} place;

/* Moves a place by `index` rows or segments. */
static inline void move(place *at, int index, const int *extent, const norm_backward_args *a)
{
#pragma unroll 1 /* the strides of all dimensions at once are more than AMD's compiler has registers for */
    for (int n = 3; n >= 0; n--) {
        const int rest = n ? index / extent[n] : 0;
        const args_long i = index - rest * extent[n];
        at->x += i * a->x.stride[n];
        at->residual += i * a->residual.stride[n];
        at->scale += i * a->scale.stride[n];
        at->dy += i * a->dy.stride[n];
        at->dsum += i * a->dsum.stride[n];
        at->dx += i * a->dx.stride[n];
        index = rest;
    }
}

/* Sets `row` to where row r begins; places are not returned, as norm/norm.h explains. */
static inline void find_row(place *row, int r, const global ELEMENT(X_TYPE) *x,
                            const global ELEMENT(RESIDUAL_TYPE) *residual, const global ELEMENT(SCALE_TYPE) *scale,
                            const global ELEMENT(DY_TYPE) *dy, const global ELEMENT(DSUM_TYPE) *dsum,
                            global ELEMENT(DX_TYPE) *dx, const norm_backward_args *a)
{
    row->x = x + a->x.offset;
    row->residual = residual + a->residual.offset;
    row->scale = scale + a->scale.offset;
    row->dy = dy + a->dy.offset;
    row->dsum = dsum + a->dsum.offset;
    row->dx = dx + a->dx.offset;
    move(row, r, a->row_extent, a);
}

/* Where segment s of a row begins. */
static inline void find_segment(place *at, const place *row, int s, const norm_backward_args *a)
{
    *at = *row;
    if (SEGMENTED && a->segments > 1)
        move(at, s, a->segment_extent, a);
}

/* Column c of a segment: what is normalised, and g. */
static inline float load_x(const place *at, args_long c, const norm_backward_args *a)
{
    const float x = LOAD(X_TYPE, at->x, c * a->x.col);
    return NORM_RESIDUAL ? x + LOAD(RESIDUAL_TYPE, at->residual, c * a->residual.col) : x;
}

static inline float load_g(const place *at, args_long c, const norm_backward_args *a)
{
    const float dy = LOAD(DY_TYPE, at->dy, c * a->dy.col);
    return a->has_scale ? dy * LOAD(SCALE_TYPE, at->scale, c * a->scale.col) : dy;
}

/* A row's statistics; the means of RMSNorm are 0. */
typedef struct moments {
    float mean;    /* rounded */
    float drift;   /* the mean of x - mean */
    float factor;  /* 1 / sqrt(variance + epsilon) */
    float mean_g;  /* of g */
    float mean_gn; /* of g * n */
} moments;

/* The sums of d = x - mean, d * d, g and g * d, for d that is not yet free of its drift. */
static inline void find_moments(moments *m, float mean, float deviations, float squares, float sum_g, float sum_gd,
                                const norm_backward_args *a)
{
    const float count = (float)a->segments * (float)a->columns;
    m->mean = mean;
    m->drift = a->centred ? deviations / count : 0.0f;
    const float corrected = FMA(-deviations, m->drift, squares);
    const float variance = corrected < 0.0f ? 0.0f : corrected / count;
    /* After an overflow the compensated sum may be inf or NaN: the row becomes NaN. */
    m->factor = squares <= FLT_MAX ? 1.0f / sqrt(variance + a->epsilon) : NAN;
    m->mean_g = a->centred ? sum_g / count : 0.0f;
    /* An infinite sum of g times a drift of 0 would be NaN. */
    m->mean_gn = (fabs(sum_g) <= FLT_MAX ? FMA(-m->drift, sum_g, sum_gd) : sum_gd) * m->factor / count;
}

/* n from x, and dx, without dsum, from g and n: floats or vectors of them. */
#define NORMALISED(x, m) ((((x) - (m)->mean) - (m)->drift) * (m)->factor)
#define GRADIENT(g, n, m) ((((g) - (m)->mean_g) - (n) * (m)->mean_gn) * (m)->factor)

static inline void write_one(const place *at, args_long c, const moments *m, const norm_backward_args *a)
{
    const float n = NORMALISED(load_x(at, c, a), m);
    float v = GRADIENT(load_g(at, c, a), n, m);
    if (a->has_dsum)
        v += LOAD(DSUM_TYPE, at->dsum, c * a->dsum.col);
    STORE(DX_TYPE, at->dx, c * a->dx.col, v);
}

static inline void store_statistics(args_long r, const moments *m, global float *workspace, const norm_backward_args *a)
{
    if (a->has_statistics) {
        workspace[a->statistics + 3 * r] = m->mean;
        workspace[a->statistics + 3 * r + 1] = m->drift;
        workspace[a->statistics + 3 * r + 2] = m->factor;
    }
}

#endif
