/* Gradients of pooling on every device and for every layout; windows are those of pool/pool.h.
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
 * Tested: F32, F16 and BF16 throughout and mixed.
 *
 * NDRange: (pieces * W), local (W); a piece is up to W neighbouring elements of a line, an item's own each.
 * Local memory: none.  Barriers: none.  Needs OpenCL C 1.2. */
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

/* Whether (row, column) is the first of the largest elements of a window of the picture x. */
static inline bool is_largest(const global ELEMENT(X_TYPE) *x, pool_window rows, pool_window columns, int row,
                              int column, const pool_args *a)
{
    const float own = LOAD(X_TYPE, x, row * a->x.row + column * a->x.col);

    for (int k = rows.begin; k < rows.end; k++)
        for (int l = columns.begin; l < columns.end; l++) {
            const int r = rows.first + k * a->rows.dilation, c = columns.first + l * a->cols.dilation;
            const float other = LOAD(X_TYPE, x, r * a->x.row + c * a->x.col);
            const bool earlier = r < row || (r == row && c < column);
            if (isnan(other) ? !isnan(own) || earlier : other > own || (earlier && other == own))
                return false;
        }
    return true;
}

kernel void pool_backward_generic(const global ELEMENT(X_TYPE) *x, const global ELEMENT(Y_TYPE) *y_gradient,
                                  global ELEMENT(X_GRADIENT_TYPE) *x_gradient, pool_backward_args args)
{
    const pool_args a = args.forward;
    if (a.pieces == 0)
        return;

    const int length = a.cols.source * a.depth, tiles = (length - 1) / a.tile + 1;
    const args_long piece = (args_long)group_id(&a.part, 0), line = piece / tiles;
    const int e = (int)(piece - line * tiles) * a.tile + (int)get_local_id(0), column = e / a.depth;
    if (e >= length)
        return;

    const int counted = a.depth == 1 ? a.channels : 1; /* channels that lines are counted through */
    const args_long plane = line / a.rows.source, n = plane / counted;
    const int row = (int)(line - plane * a.rows.source);
    const int channel = (int)(plane - n * counted) + e - column * a.depth;
    int first[2], last[2];
    float sum = 0.0f;
    if (!a.average)
        x += a.x.offset + n * a.x.batch + channel * a.x.head;
    y_gradient += a.y.offset + n * a.y.batch + channel * a.y.head;
    find_windows(&a.rows, row, &first[0], &last[0]);
    find_windows(&a.cols, column, &first[1], &last[1]);
    for (int i = first[0]; i <= last[0]; i++) {
        const pool_window rows = pool_find(&a.rows, i, &a);
        for (int j = first[1]; j <= last[1] && window_has(&a.rows, i, row); j++) {
            const pool_window columns = pool_find(&a.cols, j, &a);
            const float gradient = LOAD(Y_TYPE, y_gradient, i * a.y.row + j * a.y.col);
            if (a.average)
                sum += gradient / (rows.divisor * columns.divisor);
            else if (window_has(&a.cols, j, column) && is_largest(x, rows, columns, row, column, &a))
                sum += gradient;
        }
    }
    STORE(X_GRADIENT_TYPE, x_gradient,
          args.x_gradient.offset + n * args.x_gradient.batch + channel * args.x_gradient.head +
              row * args.x_gradient.row + column * args.x_gradient.col,
          sum);
}
