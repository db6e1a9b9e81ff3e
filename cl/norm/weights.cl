/* The gradients of LayerNorm's and RMSNorm's scale and bias, of which each is a sum over what it is broadcast to.
 *
 *   dscale[k] = sum_t dy[k,t] * (((x[k,t] - mean) - drift) * factor)          dbias[k] = sum_t dy[k,t]
 *
 * With NORM_RESIDUAL x[k,t] + residual[k,t], rounded to float, stands for x[k,t]; mean, drift and factor are what
 * norm/backward.h leaves in the workspace for the row that (k, t) is in.  Output k has the indices (k0 .. k4) over
 * kept_extent[0..4], term t has (t0 .. t4) over summed_extent[0..4], the last of each fastest, and (k, t) lies in each array at
 *   offset + sum_n k_n * kept[n] + sum_n t_n * summed[n]
 *
 *            terms 0 .. 255    256 .. 511            norm_weights: an item sums a block of NORM_BLOCK terms for CHUNK
 *   output 0 [ partial 0,0  ][ partial 1,0  ] ...      neighbouring outputs
 *   output 1 [ partial 0,1  ][ partial 1,1  ] ...    norm_weights_sum: an item adds up the blocks of one output
 *
 * Parameter                          meaning                                  allowed
 * X_TYPE, RESIDUAL_TYPE, DY_TYPE     storage                                  F32, F16, BF16
 * NORM_RESIDUAL                      whether there is a residual              0, 1
 * WEIGHT_TYPE                        storage of the gradient                  F32, F16, BF16
 * WIDE                               1: an item owns VECTORS vectors of       0, 1
 *                                    outputs along the last kept dimension;
 *                                    0: one output
 * LANES                              vector width, if WIDE                    4, 8, 16
 * Tested: WIDE 0, 1 x LANES 4, 16; all types.
 *
 * norm_weights: NDRange (chunks of outputs, rounded up at will; blocks).  norm_weights_sum: NDRange (outputs, rounded up at
 * will).  Local memory: none.  Barriers: none.  Eight terms are added plainly, and their sums with compensation, so that the
 * order of a sum depends on its number of terms alone.
 *
 * Needs OpenCL C 1.2. */
#include "norm/args.h"
#include "lib/compensated.h"
#include "lib/gather.h"

#ifndef WIDE
#define WIDE 0
#endif
#ifndef NORM_RESIDUAL
#define NORM_RESIDUAL 0
#endif
#ifndef X_TYPE
#define X_TYPE F32
#endif
#ifndef RESIDUAL_TYPE
#define RESIDUAL_TYPE F32
#endif
#ifndef DY_TYPE
#define DY_TYPE F32
#endif
#ifndef WEIGHT_TYPE
#define WEIGHT_TYPE F32
#endif

/* TAKE(TYPE, p, col, count): the next outputs' elements, of which there are `count`. */
#if WIDE
#define VECTORS 4
#define WIDTH LANES
#define NUMBERS floatv
DEFINE_GATHER(gather_x, X_TYPE)
DEFINE_GATHER(gather_residual, RESIDUAL_TYPE)
DEFINE_GATHER(gather_dy, DY_TYPE)
DEFINE_GATHER(gather_f32, F32)
DEFINE_SCATTER(scatter_f32, F32)
#define TAKE(name, TYPE, p, col, count) gather_##name(p, 0, col, (col) == 1, count)
#define PUT(p, count, v) scatter_f32(p, 0, 1, true, count, v)
#else
#define VECTORS 1
#define WIDTH 1
#define NUMBERS float
#define TAKE(name, TYPE, p, col, count) LOAD(TYPE, p, 0)
#define PUT(p, count, v) (*(p) = (v))
#endif
#define CHUNK (VECTORS * WIDTH)
#define RUN 8

/* Offsets of an element in the arrays. */
typedef struct place {
    args_long x, residual, dy, statistics;
} place;

static inline void move_kept(place *at, args_long index, const norm_weights_args *a)
{
#pragma unroll 1 /* or AMD's compiler spills scalar registers to the divisions */
    for (int n = 4; n >= 0; n--) {
        const args_long rest = index < a->kept_extent[n] ? 0 : index / a->kept_extent[n];
        const args_long i = index - rest * a->kept_extent[n];
        at->x += i * a->x.kept[n];
        at->residual += i * a->residual.kept[n];
        at->dy += i * a->dy.kept[n];
        at->statistics += i * a->statistics.kept[n];
        index = rest;
    }
}

static inline void move_summed(place *at, args_long index, const norm_weights_args *a)
{
#pragma unroll 1 /* or AMD's compiler spills scalar registers to the divisions */
    for (int n = 4; n >= 0; n--) {
        const args_long rest = index < a->summed_extent[n] ? 0 : index / a->summed_extent[n];
        const args_long i = index - rest * a->summed_extent[n];
        at->x += i * a->x.summed[n];
        at->residual += i * a->residual.summed[n];
        at->dy += i * a->dy.summed[n];
        at->statistics += i * a->statistics.summed[n];
        index = rest;
    }
}

/* One term of WIDTH outputs, v vectors along the last kept dimension from `at` on. */
static inline NUMBERS term(const place *at, args_long v, int count, const global ELEMENT(X_TYPE) *x,
                           const global ELEMENT(RESIDUAL_TYPE) *residual, const global ELEMENT(DY_TYPE) *dy,
                           const global float *workspace, const norm_weights_args *a)
{
    const args_long i = v * WIDTH;
    NUMBERS g = TAKE(dy, DY_TYPE, dy + at->dy + i * a->dy.kept[4], a->dy.kept[4], count);

    if (a->of_scale) {
        const global float *statistics = workspace + at->statistics + i * a->statistics.kept[4];
        NUMBERS n = TAKE(x, X_TYPE, x + at->x + i * a->x.kept[4], a->x.kept[4], count);
        if (NORM_RESIDUAL)
            n += TAKE(residual, RESIDUAL_TYPE, residual + at->residual + i * a->residual.kept[4], a->residual.kept[4],
                      count);
        n -= TAKE(f32, F32, statistics, a->statistics.kept[4], count);
        n -= TAKE(f32, F32, statistics + 1, a->statistics.kept[4], count);
        g *= n * TAKE(f32, F32, statistics + 2, a->statistics.kept[4], count);
    }
    return g;
}

ITEM_FUNCTION sum_block(const global ELEMENT(X_TYPE) *x, const global ELEMENT(RESIDUAL_TYPE) *residual,
                        const global ELEMENT(DY_TYPE) *dy, global float *workspace, norm_weights_args a, args_long k,
                        int count, args_long block)
{
    const args_long end = min(a.terms, (block + 1) * NORM_BLOCK);
    NUMBERS sum[VECTORS], lost[VECTORS];
    place first;
    first.x = a.x.offset;
    first.residual = a.residual.offset;
    first.dy = a.dy.offset;
    first.statistics = a.statistics.offset;
    move_kept(&first, k, &a);
    for (int v = 0; v < VECTORS; v++)
        sum[v] = lost[v] = (NUMBERS)(0.0f);
    for (args_long t = block * NORM_BLOCK; t < end;) {
        const args_long stop = min(end, t + RUN);
        NUMBERS run[VECTORS];
#pragma unroll
        for (int v = 0; v < VECTORS; v++)
            run[v] = (NUMBERS)(0.0f);
        for (; t < stop; t++) {
            place at = first;
            move_summed(&at, t, &a);
#pragma unroll
            for (int v = 0; v < VECTORS; v++)
                run[v] += term(&at, v, count - v * WIDTH, x, residual, dy, workspace, &a);
        }
#pragma unroll
        for (int v = 0; v < VECTORS; v++)
            ADD_ANY(NUMBERS, sum[v], lost[v], run[v]);
    }
    for (int v = 0; v < VECTORS; v++)
        PUT(workspace + a.partials + block * a.outputs + k + v * WIDTH, count - v * WIDTH, sum[v]);
}

kernel void norm_weights(const global ELEMENT(X_TYPE) *x, const global ELEMENT(RESIDUAL_TYPE) *residual,
                         const global ELEMENT(DY_TYPE) *dy, global float *workspace, norm_weights_args a)
{
    if (a.outputs == 0)
        return;

    const int last = a.kept_extent[4], chunks = (last + CHUNK - 1) / CHUNK;
    const args_long item = (args_long)global_id(&a.part, 0), outer = item / chunks;
    const int c = (int)(item - outer * chunks) * CHUNK;
    const args_long k = outer * last + c;
    if (k < a.outputs)
        sum_block(x, residual, dy, workspace, a, k, min(last - c, CHUNK), (args_long)group_id(&a.part, 1));
}

kernel void norm_weights_sum(const global float *workspace, global ELEMENT(WEIGHT_TYPE) *weight, norm_weights_args a)
{
    const args_long k = (args_long)global_id(&a.part, 0);
    if (k >= a.outputs)
        return;

    float sum = 0.0f, lost = 0.0f;
    for (args_long block = 0; block < a.blocks; block++)
        ADD_ANY(float, sum, lost, workspace[a.partials + block * a.outputs + k]);
    args_long at = a.weight.offset, index = k;
    for (int n = 4; n >= 0; n--) {
        const args_long rest = index < a.kept_extent[n] ? 0 : index / a.kept_extent[n];
        at += (index - rest * a.kept_extent[n]) * a.weight.kept[n];
        index = rest;
    }
    STORE(WEIGHT_TYPE, weight, at, sum);
}
