/* Which queries and heads the rows of a work-group's tile are, and which keys they attend. */
#ifndef CLATTN_CL_ATTENTION_GPU_ROWS_H
#define CLATTN_CL_ATTENTION_GPU_ROWS_H

#include "attention/gpu/shape.h"

typedef struct tile_rows {
    attention_item item;    /* h: the head; with PACK_HEADS the first of its key/value head's */
    int first_row, rows;    /* the launch's first row here, and how many rows the launch has from there on */
    int begin, end;         /* lengths, causality and windows let some row attend these keys, */
    int all_begin, all_end; /* and all rows attend these */
    bool partial;           /* the tile has rows beyond the last one, which attend nothing and are not stored */
} tile_rows;

typedef struct tile_row {
    attention_item item;  /* with the row's own head */
    int i;                /* its query */
    bool stored, attends; /* it has an output; and it is within the item's length */
} tile_row;

/* The row's query.  Unsigned, since a quotient's sign takes registers that the loops need. */
static inline int tile_query(int row, const attention_args *a)
{
    return PACK_HEADS ? (int)((uint)row / (uint)a->group) : row;
}

/* mul24 because Oclgrind 21.10 does not know the `freeze` that LLVM makes of a quotient and a remainder of the same
 * numbers. */
static inline void tile_find_row(tile_row *row, int index, const tile_rows *t, const attention_args *a)
{
    const int number = t->first_row + index;
    row->item = t->item;
    row->i = tile_query(number, a);
    row->stored = index < t->rows;
#if PACK_HEADS
    row->item.h += number - mul24(row->i, a->group);
#endif
    row->stored = row->stored && row->i < t->item.rows;
    row->attends = row->stored && row->i < t->item.queries;
}

static inline void tile_find_rows(tile_rows *t, int tile, const attention_args *a, const optional_arrays *arrays)
{
    const int b = (int)group_id(&a->part, 2), h = (int)group_id(&a->part, 1) * (PACK_HEADS ? a->group : 1);
    int unused;

    attention_item_of(&t->item, b, h, a, arrays);
    t->first_row = tile * TILE_Q;
    t->rows = a->query_length * (PACK_HEADS ? a->group : 1) - t->first_row;
    t->begin = t->end = t->all_begin = t->all_end = 0;
    t->partial = true;
    const int first = tile_query(t->first_row, a);
    const int last = min(tile_query(t->first_row + min(TILE_Q, t->rows) - 1, a), t->item.queries - 1);
    if (first > last)
        return;
    attention_keys(&t->item, first, last, a, &t->begin, &t->end);
    attention_keys(&t->item, last, last, a, &t->all_begin, &unused);
    attention_keys(&t->item, first, first, a, &unused, &t->all_end);
    t->partial = t->rows < TILE_Q || tile_query(t->first_row + TILE_Q - 1, a) > last;
}

/* Where the results of a tile's item begin or, without PACK_HEADS, those of its head.  They are computed first and lie in local
 * memory, since what they are computed from would fill scalar registers to the end. */
typedef struct tile_results {
    long output, lse, entropy;
} tile_results;

static inline long tile_result_base(const array4 *array, const tile_rows *t)
{
    return array->offset + t->item.result * array->batch + (PACK_HEADS ? 0 : t->item.h * array->head) +
           t->item.query_row * array->row;
}

static inline long tile_result_row(const array4 *array, const tile_row *row)
{
    return (PACK_HEADS ? row->item.h * array->head : 0) + row->i * array->row;
}

static inline void tile_find_results(local tile_results *results, const tile_rows *t, const attention_args *a)
{
    results->output = tile_result_base(&a->output, t);
#if LSE
    results->lse = tile_result_base(&a->lse, t);
#endif
#if ENTROPY
    results->entropy = tile_result_base(&a->entropy, t);
#endif
}

/* Whether some row attends some but not all keys of the tile at k0. */
static inline bool tile_is_mixed(const tile_rows *t, int k0)
{
    return SELECTIVE || k0 < t->all_begin || k0 + TILE_K > t->all_end || (MODIFIED && t->partial);
}

/* The keys that lengths, causality and windows let each row of a tile attend. */
typedef struct tile_ranges {
    int begin[TILE_Q], end[TILE_Q];
} tile_ranges;

static inline void tile_find_range(local tile_ranges *ranges, int index, const tile_rows *t, const attention_args *a)
{
    tile_row row;
    int begin = 0, end = 0;
    tile_find_row(&row, index, t, a);
    if (row.attends)
        attention_keys(&row.item, row.i, row.i, a, &begin, &end);
    ranges->begin[index] = begin;
    ranges->end[index] = end;
}

/* Which of the item's own keys in the tile at k0 its own rows attend, as bits (shape.h). */
static inline uint tile_mask(const local tile_ranges *ranges, const tile_rows *t, int x, int y, int k0,
                             const attention_args *a, const optional_arrays *arrays)
{
    uint bits = 0;
/* Two rows at a time: each branch takes two scalar registers on AMD's waves of 64. */
#pragma unroll 2
    for (int n = 0; n < ROWS; n++) {
        const int begin = ranges->begin[y * ROWS + n], end = ranges->end[y * ROWS + n];
#if SELECTIVE
        tile_row row;
        tile_find_row(&row, y * ROWS + n, t, a);
#endif
        for (int k = 0; k < KEYS; k++) {
            const int j = k0 + OWN_KEY(x, k);
            bool attends = j >= begin && j < end;
#if SELECTIVE
            attends = attends && !attention_masked(&row.item, row.i, j, a, arrays);
#endif
            bits |= (uint)attends << (k * ROWS + n);
        }
    }
    return bits;
}

#if DROPOUT
/* Which of the item's own keys dropout keeps for its own rows, as bits. */
static inline uint tile_dropout(const tile_rows *t, int x, int y, int k0, const attention_args *a)
{
    uint bits = 0;
    for (int n = 0; n < ROWS; n++) {
        tile_row row;
        tile_find_row(&row, y * ROWS + n, t, a);
        for (int g = 0; g < KEYS / 4; g++) {
            const int4 keeps = attention_kept(&row.item, row.i, (k0 + OWN_KEY(x, 4 * g)) >> 2, a);
            bits |= (uint)(keeps.x | keeps.y << ROWS | keeps.z << 2 * ROWS | keeps.w << 3 * ROWS) << (4 * g * ROWS + n);
        }
    }
    return bits;
}
#endif

/* Whether `bits` has own key k, for the own rows 4*r .. 4*r + 3: all ones or zeros, as select takes it. */
static inline int4 tile_selected(uint bits, int k, int r)
{
    return ((int4)((int)(bits >> (k * ROWS + 4 * r))) & (int4)(1, 2, 4, 8)) != (int4)(0);
}

#endif
