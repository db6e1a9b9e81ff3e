/* attention_tile's geometry: which items of a work-group own what, and how large its local arrays are.
 *
 * Parameter       meaning                                        allowed
 * TILE_Q          rows (queries) of a work-group                 multiple of 4 * ITEMS_Y, and of ITEMS / 8; at most ITEMS
 * TILE_K          keys of a tile                                 multiple of 4 * ITEMS_X, and of ITEMS / 8
 * ITEMS_X         work-items along keys and columns of V         power of two
 * ITEMS_Y         work-items along rows                          power of two
 * CHUNK           columns of Q and K staged at a time            multiple of 8, at most ITEMS
 * VALUE_ROWS      rows of V staged at a time                     divides TILE_K, multiple of ITEMS_Y / 4
 * PACK_HEADS      1: a row is one query head of a query, the     0, 1
 *                 heads of a key/value head being neighbours
 * SUB_GROUPS,     lib/sub_group.h: sub-groups by which rows      SUB_GROUP_SIZE divides ITEMS
 * SUB_GROUP_SIZE  are reduced
 * POSITIVE_SCALE  the scale is known to lie in [1e-30, 1e30]     0, 1
 *
 * Item (x, y) owns the rows y*ROWS .. y*ROWS + ROWS-1 of the tile throughout (ROWS = TILE_Q / ITEMS_Y), of the scores the
 * keys 4*x + 4*ITEMS_X*g + c, and of the output the columns of the same pattern (c < 4).  A float4 in a register always
 * holds one key or column for four rows.  Bit k*ROWS + n of a `bits` stands for own key k and own row n. */
#ifndef CLATTN_CL_ATTENTION_GPU_SHAPE_H
#define CLATTN_CL_ATTENTION_GPU_SHAPE_H

#include "attention/core.h"
#include "lib/sub_group.h"

#ifndef TILE_Q
#define TILE_Q 32
#endif
#ifndef TILE_K
#define TILE_K 32
#endif
#ifndef ITEMS_X
#define ITEMS_X 8
#endif
#ifndef ITEMS_Y
#define ITEMS_Y 8
#endif
#ifndef CHUNK
#define CHUNK 16
#endif
#ifndef VALUE_ROWS
#define VALUE_ROWS 8
#endif
#ifndef PACK_HEADS
#define PACK_HEADS 0
#endif
#ifndef POSITIVE_SCALE
#define POSITIVE_SCALE 0
#endif

#define ITEMS (ITEMS_X * ITEMS_Y)
#define ROWS (TILE_Q / ITEMS_Y)
#define QUADS (ROWS / 4) /* float4s of rows that an item owns */
#define KEYS (TILE_K / ITEMS_X)
#define BLOCK (4 * ITEMS_X) /* columns or keys that a row of items covers at once */
#define COLUMN_QUADS ((D_V + BLOCK - 1) / BLOCK)
#define COLUMNS (4 * COLUMN_QUADS)
#define VALUE_STRIDE (COLUMNS * ITEMS_X)
#define Q_STRIDE (TILE_Q + 4) /* floats from a column of Q, or a key's probabilities, to the next */
#define Q_QUADS (Q_STRIDE / 4)
#define K_STRIDE (TILE_K + 4)
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
/* The items of a row that are in one sub-group, and the partial results of a row's reductions, which meet in local memory. */
#define ROW_ITEMS (ITEMS_X < SUB_GROUP_SIZE ? ITEMS_X : SUB_GROUP_SIZE)
#define PARTIALS (ITEMS_X / ROW_ITEMS)
/* Where in `stage` these are, in float4s: behind what emulated sub-groups exchange. */
#define PARTIALS_AT (SUB_GROUPS == 4 ? ITEMS : 0)
#define STAGE_FLOATS LARGER(CHUNK *(K_STRIDE + Q_STRIDE), LARGER(VALUE_ROWS *VALUE_STRIDE, ITEMS_X *Q_STRIDE))

/* The tile's key that an item's own key k is. */
#define OWN_KEY(x, k) (4 * (x) + ((k) >> 2) * BLOCK + ((k) & 3))

/* Whether rows of K and V are looked up once for each tile instead of being computed where they are read. */
#define INDIRECT (RING || GIVEN(PAGED))
/* Whether single keys may be excluded, so that a tile has to be asked whether anything of it is attended. */
#define SELECTIVE (MASK || BIAS || MASK_MOD)
/* Whether a score is more than a scaled product. */
#define MODIFIED (SOFTCAP || SCORE_MOD || BIAS || ALIBI || FLOAT_MASK)
/* Scores stay unscaled and the scale enters in the exponent only, unless a negative scale would turn the maximum round
 * or something is added. */
#define RAW_SCORES (POSITIVE_SCALE && !MODIFIED)

#if DOUBLE
#error "this kernel's state is float"
#endif
#if LANES != 4
#error "this kernel works on float4: LANES must be 4"
#endif
#if (ITEMS_X & (ITEMS_X - 1)) || (ITEMS_Y & (ITEMS_Y - 1))
#error "ITEMS_X and ITEMS_Y must be powers of two"
#endif
#if TILE_Q % (4 * ITEMS_Y) || TILE_K % (4 * ITEMS_X) || ITEMS % 8 || ITEMS > 1024
#error "TILE_Q and TILE_K must be multiples of 4 items, ITEMS_X * ITEMS_Y one of 8"
#endif
#if (TILE_Q * 8) % ITEMS || (TILE_K * 8) % ITEMS || CHUNK % 8 || CHUNK > ITEMS || TILE_Q > ITEMS
#error "TILE_Q and TILE_K must be multiples of ITEMS / 8, CHUNK one of 8, CHUNK and TILE_Q at most ITEMS"
#endif
#if 4 * PARTIALS_AT + PARTIALS * Q_STRIDE > STAGE_FLOATS
#error "the parts of rows do not fit"
#endif
#if ITEMS % SUB_GROUP_SIZE
#error "a work-group must be made of whole sub-groups"
#endif
#if TILE_K % VALUE_ROWS || (VALUE_ROWS * 4) % ITEMS_Y
#error "VALUE_ROWS must divide TILE_K and be a multiple of ITEMS_Y / 4"
#endif
#if (TILE_Q / ITEMS_Y) * (TILE_K / ITEMS_X) > 32
#error "an item owns at most 32 scores"
#endif
#if PACK_HEADS && ADDITIVE
#error "additive scores have a vector for each head: no PACK_HEADS"
#endif

#endif
