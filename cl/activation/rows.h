/* Activation functions over arrays: what activation/cpu.cl and activation/generic.cl share.
 *
 * Element c of row r lies, in x and in y with its own strides, at
 *   offset + i0*stride[0] + i1*stride[1] + i2*stride[2] + i3*stride[3] + c*col
 * with i the indices of r over extent[0..3].  y may be x itself, laid out the same: an item overwrites only elements that
 * it alone reads, after it has read them.
 *
 * Parameter       meaning                        allowed
 * X_TYPE, Y_TYPE  storage                        F32, F16, BF16
 * ACTIVATION      the function                   lib/activation.h
 * UNIT_STRIDE     the cols of x and y are 1      0, 1
 * LANES           vector width                   4, 8, 16
 * Tested: ACTIVATION x LANES 4, 16; UNIT_STRIDE; F32, F16 and BF16 throughout and mixed. */
#ifndef CLATTN_CL_ACTIVATION_ROWS_H
#define CLATTN_CL_ACTIVATION_ROWS_H

#include "activation/args.h" /* first: it turns contraction off */
#include "lib/activation.h"
#include "lib/gather.h"

#ifndef X_TYPE
#define X_TYPE F32
#endif
#ifndef Y_TYPE
#define Y_TYPE F32
#endif
#ifndef UNIT_STRIDE
#define UNIT_STRIDE 0
#endif

DEFINE_GATHER(gather_x, X_TYPE)
DEFINE_SCATTER(scatter_y, Y_TYPE)

/* Where a row begins in each array. */
typedef struct row_place {
    const global ELEMENT(X_TYPE) *x;
    global ELEMENT(Y_TYPE) *y;
} row_place;

static inline void find_row(row_place *place, args_long row, const global ELEMENT(X_TYPE) *x, global ELEMENT(Y_TYPE) *y,
                            const activation_args *a)
{
    place->x = x + a->x.offset;
    place->y = y + a->y.offset;
    for (int n = 3; n >= 0; n--) {
        const args_long rest = row / a->extent[n], index = row - rest * a->extent[n];
        place->x += index * a->x.stride[n];
        place->y += index * a->y.stride[n];
        row = rest;
    }
}

/* Stores the function of columns c to c + count - 1, of LANES columns if there are more. */
static inline void activate(const row_place *row, int c, int count, const activation_args *a)
{
    scatter_y(row->y, c, a->y.col, UNIT_STRIDE, count,
              ACTIVATE(gather_x(row->x, c, a->x.col, UNIT_STRIDE, count), a->alpha));
}

#endif
