/* Resizing on every device and for every layout: formula, arrays and storage types as resize/resize.h says.
 *
 * NDRange: (pieces * W), local (W); a piece is up to W neighbouring elements of one line, and an item owns one of them.
 * Local memory: none.  Barriers: none.  Needs OpenCL C 1.2. */
#include "resize/resize.h"

kernel void resize_generic(const global ELEMENT(X_TYPE) *x, global ELEMENT(Y_TYPE) *y, resize_args a)
{
    if (a.pieces == 0)
        return;

    const int length = a.cols.target * a.depth, tiles = (length - 1) / a.tile + 1;
    const args_long piece = (args_long)group_id(&a.part, 0), line = piece / tiles;
    const int e = (int)(piece - line * tiles) * a.tile + (int)get_local_id(0), column = e / a.depth;
    const picture_line at = resize_line_of(line, e - column * a.depth, &a);
    if (e >= length)
        return;

    const resize_place at_row = resize_find(&a.rows, at.row, &a), at_column = resize_find(&a.cols, column, &a);
    const global ELEMENT(X_TYPE) *from = x + at.x;
    int row_begin, column_begin;
    const int row_end = resize_taps(&a.rows, at_row, &row_begin, &a);
    const int column_end = resize_taps(&a.cols, at_column, &column_begin, &a);
    float sum = 0.0f;
    for (int k = row_begin; k < row_end; k++) {
        const float v = resize_weight((at_row.distance + (float)k) * a.rows.shrink, &a);
        const args_long above = clamp(at_row.first + k, 0, a.rows.source - 1) * a.x.row;
        float sum_of_row = 0.0f;
        if (v == 0.0f)
            continue;
        for (int l = column_begin; l < column_end; l++) {
            const float w = resize_weight((at_column.distance + (float)l) * a.cols.shrink, &a);
            const args_long before = clamp(at_column.first + l, 0, a.cols.source - 1) * a.x.col;
            if (w != 0.0f)
                sum_of_row = FMA(w, LOAD(X_TYPE, from, above + before), sum_of_row);
        }
        sum = FMA(v, sum_of_row, sum);
    }
    sum *= resize_norm(&a.rows, at_row, &a) * resize_norm(&a.cols, at_column, &a);
    STORE(Y_TYPE, y, at.y + column * a.y.col, sum);
}
