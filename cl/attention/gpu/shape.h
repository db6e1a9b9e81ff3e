/* attention_tile's geometry: which items of a work-group own what, and how large its local arrays are.
 *
 * Parameter       meaning                                        allowed
 * TILE_Q          rows (queries) of a work-group                 multiple of 4 * ITEMS_Y, at most ITEMS
 * TILE_K          keys of a tile                                 multiple of 4 * ITEMS_X
 * ITEMS_X         work-items along keys and columns of V         power of two
 * ITEMS_Y         work-items along rows                          power of two
 * CHUNK           columns of Q and K staged at a time            multiple of 8, at most ITEMS
 * VALUE_ROWS      rows of V staged at a time                     divides TILE_K
 * WHOLE_QUERY     1: Q lies in local memory as a whole for       0, 1
 *                 all tiles; 0: it is staged anew with each
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
#define CHUNK 8
#endif
#ifndef VALUE_ROWS
#define VALUE_ROWS 8
#endif
#ifndef WHOLE_QUERY
#define WHOLE_QUERY 0
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
#define VALUE_QUADS (COLUMN_QUADS * ITEMS_X) /* float4s of a row of V in `stage` */
#define Q_STRIDE (TILE_Q + 4)                /* floats from a column of Q, or a key's probabilities, to the next */
#define Q_QUADS (Q_STRIDE / 4)
#define K_STRIDE (TILE_K + 4)
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
/* The items of a row that are in one sub-group, and the partial results of a row's reductions, which meet in local memory. */
#define ROW_ITEMS (ITEMS_X < SUB_GROUP_SIZE ? ITEMS_X : SUB_GROUP_SIZE)
#define PARTIALS (ITEMS_X / ROW_ITEMS)
/* `stage` has two halves of K, then two of Q unless all of it lies elsewhere, each of a chunk; or two halves of V, each of
 * VALUE_ROWS rows.  Behind the first of V is what rows of items exchange, in float4s: what emulated sub-groups do, then the partial results. */
#define KEY_HALF (CHUNK * (K_STRIDE / 4))
#define QUERY_HALF (CHUNK * Q_QUADS)
#define QUERY_CHUNKS ((D_K + CHUNK - 1) / CHUNK)
#define VALUE_HALF (VALUE_ROWS * VALUE_QUADS)
#define PARTIALS_AT (VALUE_HALF + (SUB_GROUPS == 4 ? ITEMS : 0))
#define STAGE_QUADS \
    LARGER(2 * (KEY_HALF + (WHOLE_QUERY ? 0 : QUERY_HALF)), VALUE_HALF + LARGER(VALUE_HALF, ITEMS_X * Q_QUADS))

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
#if CHUNK % 8 || CHUNK > ITEMS || TILE_Q > ITEMS
#error "CHUNK must be a multiple of 8, CHUNK and TILE_Q at most ITEMS"
#endif
#if PARTIALS_AT + PARTIALS * Q_QUADS > STAGE_QUADS || VALUE_HALF * 4 < TILE_Q
#error "the parts of rows do not fit"
#endif
#if ITEMS % SUB_GROUP_SIZE
#error "a work-group must be made of whole sub-groups"
#endif
#if TILE_K % VALUE_ROWS
#error "VALUE_ROWS must divide TILE_K"
#endif
#if (TILE_Q / ITEMS_Y) * (TILE_K / ITEMS_X) > 32
#error "an item owns at most 32 scores"
#endif
#if PACK_HEADS && ADDITIVE
#error "additive scores have a vector for each head: no PACK_HEADS"
#endif

#endif
