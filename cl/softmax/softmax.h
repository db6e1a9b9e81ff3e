/* Softmax along the rows of an array, in place if the caller wants it: what the kernels of cpu.cl, cpu_short.cl, tile.cl and
 * generic.cl share.
 *
 *   y[r,c] = exp(s[r,c] - max_c s[r,c]) / sum_c exp(s[r,c] - max_c s[r,c]),   s = scale * x (+ mask)
 *
 * Row r has the indices (i0, i1, i2, i3) over extent[0..3], the last one fastest; element c of it lies, in
 * each of x, mask and y with its own strides, at
 *   offset + i0*stride[0] + i1*stride[1] + i2*stride[2] + i3*stride[3] + c*col
 * Columns from mask_columns on are not attended (with MASK).  y may be x itself, laid out the same: an item overwrites only
 * elements that it alone reads, after it has read them for the last time.
 *
 * Parameter       meaning                                          allowed
 * X_TYPE, Y_TYPE  storage                                          F32, F16, BF16
 * MASK            1: there is a mask; 0: the parameter is unused   0, 1
 * MASK_TYPE       its storage; BOOL attends where true, others     BOOL, F32, F16, BF16
 *                 are added and -inf selects as BOOL does
 * Tested: MASK 0, BOOL, F32; X_TYPE x Y_TYPE F32, F16, BF16.
 *
 * State is float.  Sums are compensated, so that 10^6 terms cost no accuracy.  A column that is not attended has s = -inf and
 * gives exactly +0, whatever x holds there; a row with nothing attended is +0 throughout.  A row that attends -inf only, NaN
 * or +inf becomes NaN, also in columns that are not attended.  Finite masks, however low, exclude nothing: the maximum is
 * subtracted before anything is multiplied. */
#ifndef CLATTN_CL_SOFTMAX_SOFTMAX_H
#define CLATTN_CL_SOFTMAX_SOFTMAX_H

#include "softmax/args.h"
#include "lib/compensated.h"
#include "lib/exp.h"
#include "lib/storage.h"

#ifndef X_TYPE
#define X_TYPE F32
#endif
#ifndef Y_TYPE
#define Y_TYPE F32
#endif
#ifndef MASK
#define MASK 0
#endif
#ifndef MASK_TYPE
#define MASK_TYPE F32
#endif

#define MASK_SELECTS (MASK && IS_BOOL(MASK_TYPE)) /* 0: its values are added */

/* Where a row begins in each array. */
typedef struct row_place {
    const global ELEMENT(X_TYPE) *x;
    const global ELEMENT(MASK_TYPE) *mask;
    global ELEMENT(Y_TYPE) *y;
} row_place;

/* Sets `place` to row `row`.  Structs are not returned: Oclgrind 21.10 does not know what LLVM makes of functions that do
 * (llvm.experimental.noalias.scope.decl). */
static inline void find_row(row_place *place, args_long row, const global ELEMENT(X_TYPE) *x,
                            const global ELEMENT(MASK_TYPE) *mask, global ELEMENT(Y_TYPE) *y, const softmax_args *a)
{
    place->x = x + a->x.offset;
    place->mask = MASK ? mask + a->mask.offset : mask;
    place->y = y + a->y.offset;
    for (int n = 3; n >= 0; n--) {
        const args_long rest = row / a->extent[n], index = row - rest * a->extent[n];
        place->x += index * a->x.stride[n];
        place->y += index * a->y.stride[n];
        if (MASK)
            place->mask += index * a->mask.stride[n];
        row = rest;
    }
}

/* s of column c: -inf if it is not attended, and otherwise, with a mask, at least `lowest`.  The maximum takes scores with
 * lowest = -FLT_MAX, so that it is -inf only if nothing is attended; the terms take them with -inf, as they are. */
static inline float score(const row_place *row, int c, float lowest, const softmax_args *a)
{
#if MASK
    if (c >= a->mask_columns)
        return -INFINITY;
    const float m = LOAD(MASK_TYPE, row->mask, c * a->mask.col);
    const bool attended = MASK_SELECTS ? m != 0.0f : m != -INFINITY;
    float s = LOAD(X_TYPE, row->x, c * a->x.col) * a->scale;
    s = MASK_SELECTS ? s : s + m;
    return !attended ? -INFINITY : lowest > s ? lowest : s;
#else
    return LOAD(X_TYPE, row->x, c * a->x.col) * a->scale;
#endif
}

/* Whether a row with this maximum attends nothing: its terms and its output are then 0. */
static inline bool attends_nothing(float row_max)
{
    return MASK && row_max == -INFINITY;
}

#endif
