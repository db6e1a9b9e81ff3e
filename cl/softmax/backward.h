/* The gradient of softmax along the rows of an array: what the kernels of backward_cpu.cl, backward_tile.cl and
 * backward_generic.cl share.
 *
 *   dx[r,c] = scale * y[r,c] * (dy[r,c] - sum_c y[r,c] * dy[r,c])
 *
 * Rows and their elements lie in y, dy, dx and mask as softmax/softmax.h says of x, mask and y.  Places that the mask excludes, and
 * columns from mask_columns on, give exactly +0 and are left out of the sum, whatever y and dy hold there.  dx may be y or dy
 * itself, laid out the same: an item overwrites only elements that it alone reads, after it has read them for the last time.
 *
 * Parameter                 meaning                                          allowed
 * Y_TYPE, DY_TYPE, DX_TYPE  storage                                          F32, F16, BF16
 * MASK, MASK_TYPE           as in softmax/softmax.h
 * Tested: MASK 0, BOOL, F32; Y_TYPE x DY_TYPE x DX_TYPE F32, F16, BF16.
 *
 * State is float.  Sums are compensated, so that 10^6 terms cost no accuracy; a sum with an infinity in it is what plain
 * addition gives. */
#ifndef CLATTN_CL_SOFTMAX_BACKWARD_H
#define CLATTN_CL_SOFTMAX_BACKWARD_H

#include "softmax/args.h"
#include "lib/compensated.h"
#include "lib/fma.h"
#include "lib/storage.h"

#ifndef Y_TYPE
#define Y_TYPE F32
#endif
#ifndef DY_TYPE
#define DY_TYPE F32
#endif
#ifndef DX_TYPE
#define DX_TYPE F32
#endif
#ifndef MASK
#define MASK 0
#endif
#ifndef MASK_TYPE
#define MASK_TYPE F32
#endif

#define MASK_SELECTS (MASK && IS_BOOL(MASK_TYPE)) /* 0: its values are added */

#define BACKWARD_PARAMETERS \
    const global ELEMENT(Y_TYPE) *y, const global ELEMENT(MASK_TYPE) *mask, const global ELEMENT(DY_TYPE) *dy, \
        global ELEMENT(DX_TYPE) *dx, softmax_backward_args a

/* Where a row begins in each array. */
typedef struct row_place {
    const global ELEMENT(Y_TYPE) *y;
    const global ELEMENT(MASK_TYPE) *mask;
    const global ELEMENT(DY_TYPE) *dy;
    global ELEMENT(DX_TYPE) *dx;
} row_place;

/* Sets `place` to row `row`; it is not returned, as softmax/softmax.h explains. */
static inline void find_row(row_place *place, args_long row, const global ELEMENT(Y_TYPE) *y,
                            const global ELEMENT(MASK_TYPE) *mask, const global ELEMENT(DY_TYPE) *dy,
                            global ELEMENT(DX_TYPE) *dx, const softmax_backward_args *a)
{
    place->y = y + a->y.offset;
    place->mask = MASK ? mask + a->mask.offset : mask;
    place->dy = dy + a->dy.offset;
    place->dx = dx + a->dx.offset;
#pragma unroll 1 /* or AMD's compiler spills scalar registers to the divisions */
    for (int n = 3; n >= 0; n--) {
        const args_long rest = row / a->extent[n], index = row - rest * a->extent[n];
        place->y += index * a->y.stride[n];
        place->dy += index * a->dy.stride[n];
        place->dx += index * a->dx.stride[n];
        if (MASK)
            place->mask += index * a->mask.stride[n];
        row = rest;
    }
}

static inline bool attends(const row_place *row, int c, const softmax_backward_args *a)
{
#if MASK
    if (c >= a->mask_columns)
        return false;
    const float m = LOAD(MASK_TYPE, row->mask, c * a->mask.col);
    return MASK_SELECTS ? m != 0.0f : m != -INFINITY;
#else
    return true;
#endif
}

/* Column c's term of the sum. */
static inline float term_of(const row_place *row, int c, const softmax_backward_args *a)
{
    return attends(row, c, a) ? LOAD(Y_TYPE, row->y, c * a->y.col) * LOAD(DY_TYPE, row->dy, c * a->dy.col) : 0.0f;
}

/* The scale comes last, so that a tiny one does not cost y its low bits. */
#define GRADIENT(y, dy, sum, a) ((y) * ((dy) - (sum)) * (a)->scale)

#endif
