/* Gradients of activation functions on CPU devices: formulas, arrays and parameters as activation/backward.h says.
 *
 * NDRange: (work-groups of 1 item); an item owns pieces / groups neighbouring pieces, its lanes neighbouring columns.
 * Local memory: none.  Barriers: none.  Needs OpenCL C 1.2.  activation_backward_generic takes over if a device limits
 * loops. */
#include "activation/backward.h"

GROUP_SIZE(1, 1, 1)
kernel void activation_backward_cpu(BACKWARD_PARAMETERS)
{
    if (a.walk.pieces == 0)
        return;

    args_long end;
    for (args_long piece = share_of_group(&a.walk.part, a.walk.pieces, &end); piece < end; piece++) {
        const args_long r = piece / a.walk.chunks;
        const int first = (int)(piece - r * a.walk.chunks) * a.walk.chunk;
        const int last = first + min(a.walk.columns - first, a.walk.chunk);
        backward_columns(r, first, last, LANES, x, y_gradient, x_gradient, &a);
    }
}
