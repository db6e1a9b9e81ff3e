/* The gradient of LayerNorm's and RMSNorm's x on every device: formula, arrays and storage types as norm/backward.h says.
 *
 * NDRange: (rows, rounded up at will); an item owns a row.  Local memory: none.  Barriers: none.
 *
 * Needs OpenCL C 1.2.  Runs everywhere, with one exception: llvmpipe (Mesa 22.3) stops all loops of a work-item silently
 * after 65,535 iterations in total, and the host refuses what would need more; norm_backward_cpu and norm_backward_tile then take
 * it. */
#include "norm/backward.h"

kernel void norm_backward_generic(BACKWARD_PARAMETERS)
{
    const args_long r = (args_long)global_id(&a.part, 0);
    if (r >= a.rows)
        return;

    place row, at;
    find_row(&row, (int)r, x, residual, scale, dy, dsum, dx, &a);
    float centre = 0.0f, deviations = 0.0f, squares = 0.0f, sum_g = 0.0f, sum_gd = 0.0f;
    float lost = 0.0f, lost_square = 0.0f, lost_g = 0.0f, lost_gd = 0.0f;
    for (int s = 0; a.centred && s < a.segments; s++) {
        find_segment(&at, &row, s, &a);
        for (int c = 0; c < a.columns; c++)
            ADD(float, centre, lost, load_x(&at, c, &a));
    }
    centre /= (float)a.segments * (float)a.columns;
    lost = 0.0f;
    for (int s = 0; s < a.segments; s++) {
        find_segment(&at, &row, s, &a);
        for (int c = 0; c < a.columns; c++) {
            const float d = load_x(&at, c, &a) - centre, g = load_g(&at, c, &a);
            ADD(float, squares, lost_square, (d * d));
            ADD(float, deviations, lost, d);
            ADD_ANY(float, sum_g, lost_g, g);
            ADD_ANY(float, sum_gd, lost_gd, (g * d));
        }
    }
    moments m;
    find_moments(&m, centre, deviations, squares, sum_g, sum_gd, &a);
    for (int s = 0; a.has_dx && s < a.segments; s++) {
        find_segment(&at, &row, s, &a);
        for (int c = 0; c < a.columns; c++)
            write_one(&at, c, &m, &a);
    }
    store_statistics(r, &m, workspace, &a);
}
