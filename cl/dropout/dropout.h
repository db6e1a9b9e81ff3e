/* Dropout: what dropout/cpu.cl and dropout/generic.cl share.
 *
 *   y = dropped(x), or residual + dropped(x);   dropped(x) = x * scale if the element is kept, otherwise +0
 *
 * Element c of row r lies, in each array with its own strides, at
 *   offset + i0*stride[0] + i1*stride[1] + i2*stride[2] + i3*stride[3] + c*col
 * with i the indices of r over extent[0..3].  Its place p = r*columns + c gives its word of the generator: word p % 4 of
 * philox((p / 4 % 2^30, p / 2^32, 0, offset), seed).  It is kept unless its word is below the threshold.
 *
 * y may be x or residual itself, laid out the same: an item overwrites only elements that it alone reads, after it has
 * read them.
 *
 * Parameter                      meaning                             allowed
 * X_TYPE, RESIDUAL_TYPE, Y_TYPE  storage                             F32, F16, BF16
 * RESIDUAL                       there is a residual                 0, 1
 * UNIT_STRIDE                    the cols of all arrays are 1        0, 1
 * LANES                          vector width                        4, 8, 16
 * Tested: RESIDUAL x UNIT_STRIDE x LANES 4, 16; F32, F16 and BF16 throughout and mixed. */
#ifndef CLATTN_CL_DROPOUT_DROPOUT_H
#define CLATTN_CL_DROPOUT_DROPOUT_H

#include "dropout/args.h" /* first: it turns contraction off */
#include "lib/gather.h"

#ifndef X_TYPE
#define X_TYPE F32
#endif
#ifndef RESIDUAL_TYPE
#define RESIDUAL_TYPE F32
#endif
#ifndef Y_TYPE
#define Y_TYPE F32
#endif
#ifndef RESIDUAL
#define RESIDUAL 0
#endif
#ifndef UNIT_STRIDE
#define UNIT_STRIDE 0
#endif

DEFINE_GATHER(gather_x, X_TYPE)
DEFINE_GATHER(gather_residual, RESIDUAL_TYPE)
DEFINE_SCATTER(scatter_y, Y_TYPE)

#define DROPOUT_PARAMETERS \
    const global ELEMENT(X_TYPE) *x, const global ELEMENT(RESIDUAL_TYPE) *residual, global ELEMENT(Y_TYPE) *y, \
        dropout_args a

/* A piece of a row: where the row begins in each array, its first element's place, the piece's columns. */
typedef struct row_piece {
    const global ELEMENT(X_TYPE) *x;
    const global ELEMENT(RESIDUAL_TYPE) *residual;
    global ELEMENT(Y_TYPE) *y;
    args_long place;
    int first, last;
} row_piece;

static inline void find_piece(row_piece *piece, args_long number, const global ELEMENT(X_TYPE) *x,
                              const global ELEMENT(RESIDUAL_TYPE) *residual, global ELEMENT(Y_TYPE) *y,
                              const dropout_args *a)
{
    args_long row = number / a->chunks;

    piece->first = (int)(number - row * a->chunks) * a->chunk;
    piece->last = piece->first + min(a->columns - piece->first, a->chunk);
    piece->place = row * a->columns;
    piece->x = x + a->x.offset;
    piece->residual = residual;
#if RESIDUAL
    piece->residual += a->residual.offset;
#endif
    piece->y = y + a->y.offset;
    for (int n = 3; n >= 0; n--) {
        const args_long rest = row / a->extent[n], index = row - rest * a->extent[n];
        piece->x += index * a->x.stride[n];
#if RESIDUAL
        piece->residual += index * a->residual.stride[n];
#endif
        piece->y += index * a->y.stride[n];
        row = rest;
    }
}

/* Stores columns c to c + count - 1, of LANES columns if there are more; a lane is a column's word. */
static inline void drop(const row_piece *piece, int c, int count, uintv word, const dropout_args *a)
{
    const floatv value = gather_x(piece->x, c, a->x.col, UNIT_STRIDE, count) * a->scale;
    floatv result = select(value, (floatv)(0.0f), word < (uintv)(a->threshold));
#if RESIDUAL
    result = gather_residual(piece->residual, c, a->residual.col, UNIT_STRIDE, count) + result;
#endif
    scatter_y(piece->y, c, a->y.col, UNIT_STRIDE, count, result);
}

#endif
