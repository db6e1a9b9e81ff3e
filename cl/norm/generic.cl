/* LayerNorm and RMSNorm on every device: formula, arrays and storage types as norm/norm.h says.
 *
 * NDRange: (rows, rounded up at will); an item owns a row.  Local memory: none.  Barriers: none.
 *
 * Needs OpenCL C 1.2.  Runs everywhere, with one exception: llvmpipe (Mesa 22.3) stops all loops of a work-item silently
 * after 65,535 iterations in total, and the host refuses what would need more; norm_cpu and norm_tile then take it. */
#include "norm/norm.h"

kernel void norm_generic(NORM_PARAMETERS)
{
    const args_long r = (args_long)global_id(&a.part, 0);
    if (r >= a.rows)
        return;

    place row, at;
    first_row(&row, x, scale, bias, residual, y, sum, &a);
    move(&row, (int)r, a.row_extent, &a);
    float centre = 0.0f, deviations = 0.0f, squares = 0.0f, lost = 0.0f, lost_square = 0.0f;
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
            const float d = load_x(&at, c, &a) - centre;
            ADD(float, squares, lost_square, (d * d));
            ADD(float, deviations, lost, d);
        }
    }
    moments m;
    find_moments(&m, centre, deviations, squares, &a);
    for (int s = 0; s < a.segments; s++) {
        find_segment(&at, &row, s, &a);
        for (int c = 0; c < a.columns; c++)
            write_one(&at, c, load_x(&at, c, &a), &m, &a);
    }
    store_moments((int)r, &m, mean, inverse, &a);
}
