/* Shared by neighbourhood attention's kernels: the description's macros, and windows, which say what keys a position
 * attends in one dimension.
 *
 * Position p of `length` belongs to the group of positions with the same p mod dilation, of which it is number t = p
 * div dilation.  window_low and window_high are the first and the last member that it attends, as distances from t
 * in members: key positions are p + distance * dilation. */
#ifndef CLATTN_CL_NEIGHBOURHOOD_NEIGHBOURHOOD_H
#define CLATTN_CL_NEIGHBOURHOOD_NEIGHBOURHOOD_H

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

#endif
