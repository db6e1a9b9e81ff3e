/* Activation functions on every device: formulas, arrays and parameters as activation/rows.h says.
 *
 * NDRange: (pieces * W), local (W); a work-group owns a piece of chunk columns, a multiple of W * LANES, and item l its
 * vectors l, l + W, ...: items that run together touch neighbouring memory.
 * Local memory: none.  Barriers: none.  Needs OpenCL C 1.2. */
#include "activation/rows.h"

kernel void activation_generic(const global ELEMENT(X_TYPE) *x, global ELEMENT(Y_TYPE) *y, activation_args a)
{
    if (a.pieces == 0)
        return;

    const args_long piece = (args_long)group_id(&a.part, 0), r = piece / a.chunks;
    const int first = (int)(piece - r * a.chunks) * a.chunk, last = first + min(a.columns - first, a.chunk);
    const int step = (int)get_local_size(0) * LANES;
    row_place row;
    find_row(&row, r, x, y, &a);
    for (int c = first + (int)get_local_id(0) * LANES; c < last; c += step)
        activate(&row, c, last - c, &a);
}
