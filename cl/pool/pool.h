/* Pooling over windows: the code that pool/cpu.cl and pool/generic.cl share.
 *
 *   y[n, c, i, j] = the largest, or the sum over the divisor, of x[n, c, p + k * rows.dilation, q + l * cols.dilation]
 *
 * with p = i * rows.stride - rows.before, q = j * cols.stride - cols.before, over those 0 <= k < rows.window, 0 <= l <
 * cols.window that lie in x.  Element (n, c, i, j) lies at offset + n*batch + c*head + i*row + j*col of x and of y.
 *
 * Parameter       meaning      allowed
 * X_TYPE, Y_TYPE  storage      F32, F16, BF16
 * Tested: F32, F16 and BF16 throughout and mixed. */
#ifndef CLATTN_CL_POOL_POOL_H
#define CLATTN_CL_POOL_POOL_H

#include "pool/args.h" /* first: it turns contraction off */
#include "lib/picture.h"
#include "lib/vector.h"

#ifndef X_TYPE
#define X_TYPE F32
#endif
#ifndef Y_TYPE
#define Y_TYPE F32
#endif

static inline picture_line pool_line_of(args_long number, int channel, const pool_args *a)
{
    picture_line line;

    picture_find_line(&line, number, channel, a->rows.target, a->channels, a->depth, &a->x, &a->y);
    return line;
}

/* The window of element i: its first element of x, which may be padding, and which of its elements lie in x. */
typedef struct pool_window {
    int first, begin, end;
    float divisor; /* how many elements an average counts along the axis */
} pool_window;

static inline pool_window pool_find(const pool_axis *axis, int i, const pool_args *a)
{
    pool_window w;
    int counted;

    w.first = i * axis->stride - axis->before;
    w.begin = w.first < 0 ? (axis->dilation - 1 - w.first) / axis->dilation : 0;
    w.end = min(axis->window, (axis->source - w.first + axis->dilation - 1) / axis->dilation);
    counted = a->padding_counts ? min(w.first + axis->window, axis->source + axis->after) - w.first : w.end - w.begin;
    w.divisor = (float)counted;
    return w;
}

/* What a window without elements gives. */
static inline float pool_nothing(const pool_args *a)
{
    return a->average ? 0.0f : -INFINITY;
}

/* NAME(x, y, a) combines two values of type T.  The largest of anything and NaN is NaN. */
#define DEFINE_COMBINE(NAME, T) \
    static inline T NAME(T x, T y, const pool_args *a) \
    { \
        if (a->average) \
            return x + y; \
        return select(x, y, (y > x) | (y != y)); \
    }

#endif
