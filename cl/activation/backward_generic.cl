/* Gradients of activation functions on every device: formulas, arrays and parameters as activation/backward.h says.
 *
 * NDRange: (pieces * W), local (W); a work-group owns a piece of chunk columns, a multiple of W * LANES, and item l its
 * vectors l, l + W, ...: items that run together touch neighbouring memory.
 * Local memory: none.  Barriers: none.  Needs OpenCL C 1.2. */
#include "activation/backward.h"

kernel void activation_backward_generic(BACKWARD_PARAMETERS)
{
    if (a.walk.pieces == 0)
        return;

    const args_long piece = (args_long)group_id(&a.walk.part, 0), r = piece / a.walk.chunks;
    const int first = (int)(piece - r * a.walk.chunks) * a.walk.chunk;
    const int last = first + min(a.walk.columns - first, a.walk.chunk);
    backward_columns(r, first + (int)get_local_id(0) * LANES, last, (int)get_local_size(0) * LANES, x, y_gradient,
                     x_gradient, &a);
}
