/* The gradient of softmax on every device: formula, arrays, storage and masks as softmax/backward.h says.
 *
 * NDRange: (rows, rounded up at will); an item owns a row.  Local memory: none.  Barriers: none.
 *
 * Needs OpenCL C 1.2.  Runs everywhere, with one exception: llvmpipe (Mesa 22.3) stops all loops of a work-item silently
 * after 65,535 iterations in total, and the host refuses what would need more; softmax_backward_cpu and softmax_backward_tile
 * then take it. */
#include "softmax/backward.h"

kernel void softmax_backward_generic(BACKWARD_PARAMETERS)
{
    const args_long r = (args_long)global_id(&a.part, 0);
    if (r >= a.rows)
        return;

    row_place row;
    find_row(&row, r, y, mask, dy, dx, &a);
    float sum = 0.0f, lost = 0.0f;
    for (int c = 0; c < a.columns; c++)
        ADD_ANY(float, sum, lost, term_of(&row, c, &a));
    for (int c = 0; c < a.columns; c++) {
        const float g = GRADIENT(LOAD(Y_TYPE, row.y, c * a.y.col), LOAD(DY_TYPE, row.dy, c * a.dy.col), sum, &a);
        STORE(DX_TYPE, row.dx, c * a.dx.col, attends(&row, c, &a) ? g : 0.0f);
    }
}
