/* Gradients of activation functions over arrays: what activation/backward_cpu.cl and activation/backward_generic.cl
 * share.
 *
 *   x_gradient = f'(x) * y_gradient, with f' as activation/slope.h says
 *
 * The three arrays lie as x and y do in activation/rows.h.  x_gradient may be y_gradient itself, laid out the same: an
 * item overwrites only elements that it alone reads, after it has read them.
 *
 * Parameter                            meaning                        allowed
 * X_TYPE, X_GRADIENT_TYPE, Y_GRADIENT_TYPE   storage                  F32, F16, BF16
 * ACTIVATION                           the function                   lib/activation.h
 * UNIT_STRIDE                          the cols of all three are 1    0, 1
 * LANES                                vector width                   4, 8, 16
 * Tested: ACTIVATION x LANES 4, 16; UNIT_STRIDE; F32, F16 and BF16 throughout and mixed. */
#ifndef CLATTN_CL_ACTIVATION_BACKWARD_H
#define CLATTN_CL_ACTIVATION_BACKWARD_H

#include "activation/args.h" /* first: it turns contraction off */
#include "activation/slope.h"
#include "lib/gather.h"

#ifndef X_TYPE
#define X_TYPE F32
#endif
#ifndef X_GRADIENT_TYPE
#define X_GRADIENT_TYPE F32
#endif
#ifndef Y_GRADIENT_TYPE
#define Y_GRADIENT_TYPE F32
#endif
#ifndef UNIT_STRIDE
#define UNIT_STRIDE 0
#endif

DEFINE_GATHER(gather_x, X_TYPE)
DEFINE_GATHER(gather_y_gradient, Y_GRADIENT_TYPE)
DEFINE_SCATTER(scatter_x_gradient, X_GRADIENT_TYPE)

#define BACKWARD_PARAMETERS \
    const global ELEMENT(X_TYPE) *x, const global ELEMENT(Y_GRADIENT_TYPE) *y_gradient, \
        global ELEMENT(X_GRADIENT_TYPE) *x_gradient, activation_backward_args a

/* Stores the gradients of the columns of one row from `first` up to `last` that are this item's: LANES from each
 * `step`-th on. */
static inline void backward_columns(args_long row, int first, int last, int step, const global ELEMENT(X_TYPE) *x,
                                    const global ELEMENT(Y_GRADIENT_TYPE) *y_gradient,
                                    global ELEMENT(X_GRADIENT_TYPE) *x_gradient, const activation_backward_args *a)
{
    x += a->walk.x.offset;
    y_gradient += a->y_gradient.offset;
    x_gradient += a->walk.y.offset;
    for (int n = 3; n >= 0; n--) {
        const args_long rest = row / a->walk.extent[n], index = row - rest * a->walk.extent[n];
        x += index * a->walk.x.stride[n];
        y_gradient += index * a->y_gradient.stride[n];
        x_gradient += index * a->walk.y.stride[n];
        row = rest;
    }
    for (int c = first; c < last; c += step) {
        const floatv slope = SLOPE(gather_x(x, c, a->walk.x.col, UNIT_STRIDE, last - c), a->walk.alpha);
        const floatv gradient = gather_y_gradient(y_gradient, c, a->y_gradient.col, UNIT_STRIDE, last - c);
        scatter_x_gradient(x_gradient, c, a->walk.y.col, UNIT_STRIDE, last - c, slope * gradient);
    }
}

#endif
