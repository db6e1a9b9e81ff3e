/* LayerNorm and RMSNorm of rows, in place if the caller wants it: what the kernels of norm/cpu.cl, norm/tile.cl and
 * norm/generic.cl share.
 *
 *   d[r,e] = x[r,e] - mean_e x[r,e]      (RMS: x[r,e] itself)
 *   y[r,e] = d[r,e] / sqrt(mean_e d[r,e]^2 + epsilon) * scale[r,e] + bias[r,e]
 *
 * With NORM_RESIDUAL x[r,e] + residual[r,e], rounded to float, stands for x[r,e], and is what sum[r,e] becomes.
 *
 * Element e of a row is column c of segment s: normalised axes that do not lie next to each other are walked
 * segment by segment.  In x, y, scale, bias, residual and sum, each with its own strides, it lies at
 *   offset + sum_n i_n * stride[n] + sum_n j_n * stride[n] + c*col
 * with i the indices of r over row_extent[0..3] and j those of s over segment_extent[0..3], the last of each
 * fastest.  mean and inverse (the factor 1 / sqrt(..)) have one float for each r, at offset + sum_n i_n * stride[n].
 * Arrays that are absent, as has_... and NORM_RESIDUAL say, may be any buffers; the kernels do not touch them.  y and sum
 * may be x or residual itself, laid out the same: an item overwrites only elements that it alone reads, after it has read
 * them for the last time.
 *
 * Parameter                                meaning                         allowed
 * X_TYPE, Y_TYPE, SCALE_TYPE, BIAS_TYPE    storage                         F32, F16, BF16
 * NORM_RESIDUAL                            whether there is a residual     0, 1
 * RESIDUAL_TYPE, SUM_TYPE                  its storage, and sum's          F32, F16, BF16
 * UNIT_STRIDE                              the cols of x, y, residual and  0, 1
 *                                          sum are 1
 * Tested: F32, F16 and BF16 throughout, F16 to F32 with a BF16 scale, F32 to F16 with an F16 bias.
 *
 * State is float.  Sums are compensated.  Deviations are taken from the rounded mean; their own mean,
 * `drift`, is then subtracted too, and the variance is corrected by it.  So the result is free of the mean's rounding,
 * which is large if a row has a large offset.  A row with NaN or an infinity in it, or whose
 * sums overflow, is NaN. */
#ifndef CLATTN_CL_NORM_NORM_H
#define CLATTN_CL_NORM_NORM_H

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
#ifndef Y_TYPE
#define Y_TYPE F32
#endif
#ifndef SCALE_TYPE
#define SCALE_TYPE F32
#endif
#ifndef BIAS_TYPE
#define BIAS_TYPE F32
#endif

#ifndef RESIDUAL_TYPE
#define RESIDUAL_TYPE F32
#endif
#ifndef SUM_TYPE
#define SUM_TYPE F32
#endif

#ifndef UNIT_STRIDE
#define UNIT_STRIDE 0
#endif
#define COL(array) (UNIT_STRIDE ? 1 : (array).col)

/* 1: rows have one index, and no segments: row_extent[1..3] and segments are 1.  (norm/cpu_short.cl takes two indices and finds
 * its rows itself.) */
#ifndef PLAIN
#define PLAIN 0
#endif
#define LAST_DIMENSION (PLAIN ? 0 : 3)

#define NORM_PARAMETERS \
    const global ELEMENT(X_TYPE) *x, const global ELEMENT(SCALE_TYPE) *scale, const global ELEMENT(BIAS_TYPE) *bias, \
        const global ELEMENT(RESIDUAL_TYPE) *residual, global ELEMENT(Y_TYPE) *y, global ELEMENT(SUM_TYPE) *sum, \
        global float *mean, global float *inverse, norm_args a
#define NORM_ARGUMENTS x, scale, bias, residual, y, sum, mean, inverse, a

/* Where a row or a segment begins in each array that has columns. */
typedef struct place {
    const global ELEMENT(X_TYPE) *x;
    const global ELEMENT(SCALE_TYPE) *scale;
    const global ELEMENT(BIAS_TYPE) *bias;
    const global ELEMENT(RESIDUAL_TYPE) *residual;
    global ELEMENT(Y_TYPE) *y;
    global ELEMENT(SUM_TYPE) *sum;
} place;

/* Row 0.  Places are given by pointer, and never returned: rusticl (Mesa 22.3) does not copy a struct that is given by value, so
 * that a change of it would change the caller's, and Oclgrind 21.10 does not know what LLVM makes of functions that return
 * a struct (llvm.experimental.noalias.scope.decl). */
static inline void first_row(place *row, const global ELEMENT(X_TYPE) *x, const global ELEMENT(SCALE_TYPE) *scale,
                             const global ELEMENT(BIAS_TYPE) *bias, const global ELEMENT(RESIDUAL_TYPE) *residual,
                             global ELEMENT(Y_TYPE) *y, global ELEMENT(SUM_TYPE) *sum, const norm_args *a)
{
    row->x = x + a->x.offset;
    row->scale = scale + a->scale.offset;
    row->bias = bias + a->bias.offset;
    row->y = y + a->y.offset;
    row->residual = NORM_RESIDUAL ? residual + a->residual.offset : residual;
    row->sum = NORM_RESIDUAL ? sum + a->sum.offset : sum;
}

/* Moves a place by i along dimension n. */
static inline void move_along(place *at, int n, args_long i, const norm_args *a)
{
    at->x += i * a->x.stride[n];
    at->scale += i * a->scale.stride[n];
    at->bias += i * a->bias.stride[n];
    at->y += i * a->y.stride[n];
    if (NORM_RESIDUAL) {
        at->residual += i * a->residual.stride[n];
        at->sum += i * a->sum.stride[n];
    }
}

/* Moves a place by `index` rows or segments. */
static inline void move(place *at, int index, const int *extent, const norm_args *a)
{
    for (int n = LAST_DIMENSION; n >= 0; n--) {
        const int rest = n ? index / extent[n] : 0;
        move_along(at, n, index - rest * extent[n], a);
        index = rest;
    }
}

/* What is normalised: column c of a segment that begins at `at`. */
static inline float load_x(const place *at, args_long c, const norm_args *a)
{
    const float x = LOAD(X_TYPE, at->x, c * COL(a->x));
    return NORM_RESIDUAL ? x + LOAD(RESIDUAL_TYPE, at->residual, c * COL(a->residual)) : x;
}

/* Where segment s of a row begins. */
static inline void find_segment(place *at, const place *row, int s, const norm_args *a)
{
    *at = *row;
    if (a->segments > 1)
        move(at, s, a->segment_extent, a);
}

/* A row's statistics. */
typedef struct moments {
    float mean;   /* rounded; RMS: 0 */
    float drift;  /* the mean of x - mean */
    float factor; /* 1 / sqrt(variance + epsilon) */
} moments;

static inline void find_moments(moments *m, float mean, float deviations, float squares, const norm_args *a)
{
    const float count = (float)a->segments * (float)a->columns;
    m->mean = mean;
    m->drift = a->centred ? deviations / count : 0.0f;
    const float corrected = FMA(-deviations, m->drift, squares);
    const float variance = corrected < 0.0f ? 0.0f : corrected / count;

    /* After an overflow the compensated sum may be inf or NaN: the row becomes NaN. */
    m->factor = squares <= FLT_MAX ? 1.0f / sqrt(variance + a->epsilon) : NAN;
}

/* Where the row's element of mean or inverse lies. */
static inline args_long statistic_at(int row, const array5 *array, const norm_args *a)
{
    args_long at = array->offset;

    for (int n = LAST_DIMENSION; n >= 0; n--) {
        const int rest = n ? row / a->row_extent[n] : 0;
        at += (args_long)(row - rest * a->row_extent[n]) * array->stride[n];
        row = rest;
    }
    return at;
}

static inline void store_moments(int row, const moments *m, global float *mean, global float *inverse,
                                 const norm_args *a)
{
    if (a->has_mean)
        mean[statistic_at(row, &a->mean, a)] = m->mean + m->drift;
    if (a->has_inverse)
        inverse[statistic_at(row, &a->inverse, a)] = m->factor;
}

static inline void write_one(const place *at, args_long c, float v, const moments *m, const norm_args *a)
{
    if (NORM_RESIDUAL && a->has_sum)
        STORE(SUM_TYPE, at->sum, c * COL(a->sum), v);
    v = ((v - m->mean) - m->drift) * m->factor;
    if (a->has_scale)
        v *= LOAD(SCALE_TYPE, at->scale, c * a->scale.col);
    if (a->has_bias)
        v += LOAD(BIAS_TYPE, at->bias, c * a->bias.col);
    STORE(Y_TYPE, at->y, c * COL(a->y), v);
}

#endif
