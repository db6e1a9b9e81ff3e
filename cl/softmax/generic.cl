/* Softmax on every device: formula, arrays, storage and masks as softmax/softmax.h says.
 *
 * NDRange: (rows, rounded up at will); an item owns a row.  Local memory: none.  Barriers: none.
 *
 * Needs OpenCL C 1.2.  Runs everywhere, with one exception: llvmpipe (Mesa 22.3) stops all loops of a work-item silently
 * after 65,535 iterations in total, and the host refuses what would need more; softmax_cpu and softmax_tile then take it. */
#include "softmax/softmax.h"

kernel void softmax_generic(const global ELEMENT(X_TYPE) *x, const global ELEMENT(MASK_TYPE) *mask,
                            global ELEMENT(Y_TYPE) *y, softmax_args a)
{
    const args_long r = (args_long)global_id(&a.part, 0);
    if (r >= a.rows)
        return;

    row_place row;
    find_row(&row, r, x, mask, y, &a);
    float row_max = -INFINITY;
    for (int c = 0; c < a.columns; c++) {
        const float s = score(&row, c, -FLT_MAX, &a);
        row_max = s > row_max ? s : row_max;
    }
    const bool nothing = attends_nothing(row_max);
    row_max = nothing ? 0.0f : row_max;

    float row_sum = 0.0f, lost = 0.0f;
    for (int c = 0; c < a.columns; c++)
        ADD(float, row_sum, lost, exp_of(score(&row, c, -INFINITY, &a) - row_max));
    const float inverse = nothing ? 0.0f : 1.0f / row_sum;
    for (int c = 0; c < a.columns; c++)
        STORE(Y_TYPE, row.y, c * a.y.col, exp_of(score(&row, c, -INFINITY, &a) - row_max) * inverse);
}
