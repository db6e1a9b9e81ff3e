/* Shared by neighbourhood attention's kernels: the description's macros, and windows, which say what keys a position
 * attends in one dimension.
 *
 * Position p of `length` belongs to the group of positions with the same p mod dilation, of which it is number t = p
 * div dilation.  window_low and window_high are the first and the last member that it attends, as distances from t
 * in members: key positions are p + distance * dilation. */
#ifndef CLATTN_CL_NEIGHBOURHOOD_NEIGHBOURHOOD_H
#define CLATTN_CL_NEIGHBOURHOOD_NEIGHBOURHOOD_H

#include "neighbourhood/args.h"
#include "lib/exp2.h"
#include "lib/fma.h"
#include "lib/storage.h"

#ifndef Q_TYPE
#define Q_TYPE F32
#endif
#ifndef K_TYPE
#define K_TYPE F32
#endif
#ifndef V_TYPE
#define V_TYPE F32
#endif
#ifndef O_TYPE
#define O_TYPE F32
#endif
#ifndef D_K
#define D_K 32
#endif
#ifndef D_V
#define D_V 32
#endif
#ifndef BIAS
#define BIAS 0
#endif
#ifndef LSE
#define LSE 0
#endif

/* Defines NAME(x, x_step, y, y_step), the product of two vectors of `size` elements of the types X and Y.  Two chains of sums shorten the
 * latency and reduce the rounding error.  Unrolled by compilers for GPUs, the addresses would not fit into registers. */
#define DEFINE_DOT_PRODUCT(NAME, X, Y, size) \
    static inline float NAME(const global ELEMENT(X) *x, long x_step, const global ELEMENT(Y) *y, long y_step) \
    { \
        float even = 0.0f, odd = 0.0f; \
        _Pragma("unroll 1") \
        for (int d = 0; d + 1 < (size); d += 2) { \
            even = FMA(LOAD(X, x, d * x_step), LOAD(Y, y, d * y_step), even); \
            odd = FMA(LOAD(X, x, (d + 1) * x_step), LOAD(Y, y, (d + 1) * y_step), odd); \
        } \
        if ((size) % 2 == 1) \
            even = FMA(LOAD(X, x, ((size) - 1) * x_step), LOAD(Y, y, ((size) - 1) * y_step), even); \
        return even + odd; \
    }

/* The number of members in the group of position p. */
static inline int group_length(int p, int length, int dilation)
{
    return (length - p % dilation + dilation - 1) / dilation;
}

static inline int window_low(int p, int length, int window, int dilation, int clip)
{
    const int t = p / dilation;
    if (clip)
        return -min(window / 2, t);
    return max(min(t - window / 2, group_length(p, length, dilation) - window), 0) - t;
}

static inline int window_high(int p, int length, int window, int dilation, int clip)
{
    if (clip)
        return min(window / 2, (length - 1 - p) / dilation);
    return window_low(p, length, window, dilation, 0) + window - 1;
}

/* The keys that a position attends: from the first to the last in each dimension, dilation_y and dilation_x apart. */
typedef struct key_window {
    int first_y, last_y, first_x, last_x;
} key_window;

static inline key_window find_keys(int y, int x, const neighbourhood_args *a)
{
    const key_window window = {
        y + window_low(y, a->height, a->window_y, a->dilation_y, a->clip) * a->dilation_y,
        y + window_high(y, a->height, a->window_y, a->dilation_y, a->clip) * a->dilation_y,
        x + window_low(x, a->width, a->window_x, a->dilation_x, a->clip) * a->dilation_x,
        x + window_high(x, a->width, a->window_x, a->dilation_x, a->clip) * a->dilation_x,
    };

    return window;
}

/* Where element (b, h, y, x, 0) lies. */
static inline long map5_at(const map5 *map, long b, long h, long y, long x)
{
    return map->offset + b * map->batch + h * map->head + y * map->row + x * map->col;
}

/* exp(s - the largest score so far, s among them).  What was summed before is to be multiplied by *rescale, which is 1 unless s is the
 * largest.  A score of NaN does not change *row_max, and makes the result NaN.  If every score so far is -inf, 0 is subtracted, which
 * makes no NaN. */
static inline float next_weight(float s, float *row_max, float *rescale)
{
    const float old = *row_max, largest = s > old ? s : old, safe = largest == -INFINITY ? 0.0f : largest;

    *row_max = largest;
    *rescale = largest > old ? exp2s((old - safe) * LOG2E) : 1.0f;
    return exp2s((s - safe) * LOG2E);
}

/* The bias of a key. */
static inline float bias_of(const global float *bias, long b, long h, long y, long x, const neighbourhood_args *a)
{
#if BIAS
    return bias[map5_at(&a->bias, b, h, y, x)];
#else
    return 0.0f;
#endif
}

#endif
