/* Gradients of pooling on every device and for every layout: formulas, arrays and storage types as pool/backward.h says.
 *
 * NDRange: (pieces * W), local (W); a piece is up to W neighbouring elements of a line, an item's own each.
 * Local memory: none.  Barriers: none.  Needs OpenCL C 1.2. */
#include "pool/backward.h"

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
            /* No branches: each would keep a mask in scalar registers, which spilled on gfx90a. */
            if ((isnan(other) & (!isnan(own) | earlier)) | (other > own) | (earlier & (other == own)))
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
    const int piece = (int)group_id(&a.part, 0), line = piece / tiles;
    const int e = (piece - line * tiles) * a.tile + (int)get_local_id(0), column = e / a.depth;
    if (e >= length)
        return;

    const pool_place at = pool_place_of(line, e - column * a.depth, &a);
    int first[2], last[2];
    float sum = 0.0f;
    if (!a.average)
        x += a.x.offset + at.n * a.x.batch + at.channel * a.x.head;
    y_gradient += a.y.offset + at.n * a.y.batch + at.channel * a.y.head;
    find_windows(&a.rows, at.row, &first[0], &last[0]);
    find_windows(&a.cols, column, &first[1], &last[1]);
    for (int i = first[0]; i <= last[0]; i++) {
        if (!window_has(&a.rows, i, at.row))
            continue;
        const pool_window rows = pool_find(&a.rows, i, &a);
        for (int j = first[1]; j <= last[1]; j++) {
            const pool_window columns = pool_find(&a.cols, j, &a);
            const float gradient = LOAD(Y_TYPE, y_gradient, i * a.y.row + j * a.y.col);
            if (a.average)
                sum += gradient / (rows.divisor * columns.divisor);
            else if (window_has(&a.cols, j, column) && is_largest(x, rows, columns, at.row, column, &a))
                sum += gradient;
        }
    }
    STORE(X_GRADIENT_TYPE, x_gradient,
          args.x_gradient.offset + at.n * args.x_gradient.batch + at.channel * args.x_gradient.head +
              at.row * args.x_gradient.row + column * args.x_gradient.col,
          sum);
}
