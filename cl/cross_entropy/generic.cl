/* Cross-entropy on every device: formula, arrays and storage as cross_entropy/cross_entropy.h says.
 *
 * NDRange: (rows, rounded up at will); an item owns a row and walks it three times.  Local memory: none.  Barriers: none.
 *
 * Needs OpenCL C 1.2.  Runs everywhere, with one exception: llvmpipe (Mesa 22.3) stops all loops of a work-item silently
 * after 65,535 iterations in total, and the host refuses what would need more; the other solvers then take it. */
#include "cross_entropy/cross_entropy.h"

kernel void cross_entropy_generic(ARRAYS, cross_entropy_args a)
{
    const args_long r = (args_long)global_id(&a.part, 0);
    if (r >= a.rows)
        return;

    row_place row;
    row_target target;
    find_row(&row, r, ARRAYS_GIVEN, &a);
    read_target(&target, &row, 0, &a);
    const float x_label = LOAD(X_TYPE, row.x, target.label * a.x.col);
    float row_max = -INFINITY, row_sum = 0.0f, lost = 0.0f, spread = 0.0f, spread_lost = 0.0f;
    const int columns = NEEDS_SUMS(&target) ? a.classes : 0;
    for (int c = 0; c < columns; c++) {
        const float s = LOAD(X_TYPE, row.x, c * a.x.col);
        row_max = s > row_max ? s : row_max;
    }
    for (int c = 0; c < columns; c++) {
        const float below = row_max - LOAD(X_TYPE, row.x, c * a.x.col);
        ADD(float, row_sum, lost, exp_of(-below));
        if (SMOOTHING)
            ADD_ANY(float, spread, spread_lost, a.share *below);
    }
    store_sums(&row, &target, x_label, row_max, row_sum, spread, &a);
#if GRADIENT
    const float inverse = 1.0f / row_sum;
    for (int c = 0; c < a.classes; c++) {
        const float term = exp_of(LOAD(X_TYPE, row.x, c * a.x.col) - row_max);
        const float found = c == target.label ? GRADIENT_OF_LABEL(term, inverse, target.weight, &a)
                                              : GRADIENT_OF(term, inverse, target.weight, &a);
        STORE(GRADIENT_TYPE, row.gradient, c * a.gradient.col, target.counts ? found : target.instead);
    }
#endif
}
