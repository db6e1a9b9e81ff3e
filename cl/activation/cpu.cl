/* Activation functions on CPU devices: formulas, arrays and parameters as activation/rows.h says.
 *
 * NDRange: (work-groups of 1 item); an item owns pieces / groups neighbouring pieces, its lanes neighbouring columns.
 * Local memory: none.  Barriers: none.  Needs OpenCL C 1.2.  activation_generic takes over if a device limits loops. */
#include "activation/rows.h"

GROUP_SIZE(1, 1, 1)
kernel void activation_cpu(const global ELEMENT(X_TYPE) *x, global ELEMENT(Y_TYPE) *y, activation_args a)
{
    if (a.pieces == 0)
        return;

    args_long end;
    for (args_long piece = share_of_group(&a.part, a.pieces, &end); piece < end; piece++) {
        const args_long r = piece / a.chunks;
        const int first = (int)(piece - r * a.chunks) * a.chunk, last = first + min(a.columns - first, a.chunk);
        row_place row;
        find_row(&row, r, x, y, &a);
        for (int c = first; c < last; c += LANES)
            activate(&row, c, last - c, &a);
    }
}
