/* Gradients of pooling: what pool/backward_cpu.cl and pool/backward_generic.cl share; windows are those of pool/pool.h.
 *
 *   average   x_gradient[n, c, r, s] = the sum of y_gradient[n, c, i, j] / divisor over the windows (i, j) that have (r, s)
 *   max       the same without a divisor over those windows whose first largest element is x[n, c, r, s]
 *
 * The first NaN of a window, if it has one, counts as its largest.  Element (n, c, r, s) lies at offset + n*batch + c*head +
 * r*row + s*col of x and of x_gradient.  An item gathers, in the order of windows, so nothing is added atomically; where no
 * window is, it stores 0.
 *
 * Parameter                         meaning                          allowed
 * X_TYPE, Y_TYPE, X_GRADIENT_TYPE   storage; Y_TYPE of y_gradient    F32, F16, BF16
 * Tested: F32, F16 and BF16 throughout and mixed. */
#ifndef CLATTN_CL_POOL_BACKWARD_H
#define CLATTN_CL_POOL_BACKWARD_H

#include "pool/pool.h"

#ifndef X_GRADIENT_TYPE
#define X_GRADIENT_TYPE F32
#endif

/* Sets *first and *last to the windows that may have element `at` of x among theirs: none if *last < *first. */
static inline void find_windows(const pool_axis *axis, int at, int *first, int *last)
{
    const int place = at + axis->before, beyond = place - (axis->window - 1) * axis->dilation;

    *first = beyond > 0 ? (beyond - 1) / axis->stride + 1 : 0;
    *last = min(place / axis->stride, axis->target - 1);
}

/* Whether dilation does not skip element `at` in window i, which is one of find_windows. */
static inline bool window_has(const pool_axis *axis, int i, int at)
{
    const int distance = at + axis->before - i * axis->stride;

    return distance / axis->dilation * axis->dilation == distance;
}

/* Where a line lies: batch item, channel and row of x. */
typedef struct pool_place {
    args_long n;
    int channel, row;
} pool_place;

/* The line of that number, whose first channel is `channel` if it has several. */
static inline pool_place pool_place_of(args_long line, int channel, const pool_args *a)
{
    const int counted = a->depth == 1 ? a->channels : 1; /* channels that lines are counted through */
    const args_long plane = line / a->rows.source, n = plane / counted;
    const pool_place place = {n, channel + (int)(plane - n * counted), (int)(line - plane * a->rows.source)};

    return place;
}

#endif
