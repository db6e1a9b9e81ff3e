/* Brings Q, K and V from global memory, of any storage type, into local memory as floats: four columns of a row at a time into
 * registers, and from there into local memory when the products before have been computed.  What lies outside is 0 and is not
 * read.  Two neighbouring items load 8 columns of a row of Q or K, neighbouring items neighbouring columns of V. */
#ifndef CLATTN_CL_ATTENTION_GPU_LOAD_H
#define CLATTN_CL_ATTENTION_GPU_LOAD_H

#include "attention/gpu/rows.h"
#include "attention/gpu/stage.h"

/* Where the head's keys and values begin, how far apart columns are and, if INDIRECT, where the rows of a tile's keys begin,
 * which is looked up once for each tile.  In local memory, since compilers would keep all of it, and sums and multiples
 * besides, in registers for the loops' whole time. */
typedef struct tile_places {
    long key_head, value_head, query_col, key_col, value_col;
#if INDIRECT
    long key[TILE_K], value[TILE_K];
#if KEY_GROUPS
    long key_scale[TILE_K];
#endif
#if VALUE_GROUPS
    long value_scale[TILE_K];
#endif
#endif
} tile_places;

#if INDIRECT
#define PLACE(WHICH, j) places->WHICH[(j) - k0]
#define SCALE_PLACE(WHICH, j) PLACE(WHICH, j)
#else
#define PLACE(WHICH, j) (places->WHICH##_head + attention_row_of_head(&a->WHICH, &t->item, j, a, arrays))
#define SCALE_PLACE(WHICH, j) attention_row_of_head(&a->WHICH, &t->item, j, a, arrays)
#endif

static inline void tile_find_heads(local tile_places *places, const tile_rows *t, const attention_args *a)
{
    places->key_head = attention_head(&a->key, &t->item, a);
    places->value_head = attention_head(&a->value, &t->item, a);
    places->query_col = a->query.col;
    places->key_col = a->key.col;
    places->value_col = a->value.col;
}

/* Moves the scales in `arrays` to the tile's own head, so that one address is kept instead of two. */
static inline void tile_find_scales(optional_arrays *arrays, const tile_rows *t, const attention_args *a)
{
#if KEY_GROUPS
    arrays->key_scale += attention_head(&a->key_scale, &t->item, a);
#endif
#if VALUE_GROUPS
    arrays->value_scale += attention_head(&a->value_scale, &t->item, a);
#endif
}

static inline void tile_look_up(local tile_places *places, uint item, int k0, const tile_rows *t,
                                const attention_args *a, const optional_arrays *arrays)
{
#if INDIRECT
    for (int n = (int)item; n < TILE_K; n += ITEMS) {
        const int j = k0 + n;
        if (j < t->begin || j >= t->end)
            continue;
        places->key[n] = places->key_head + attention_row_of_head(&a->key, &t->item, j, a, arrays);
        places->value[n] = places->value_head + attention_row_of_head(&a->value, &t->item, j, a, arrays);
#if KEY_GROUPS
        places->key_scale[n] = attention_row_of_head(&a->key_scale, &t->item, j, a, arrays);
#endif
#if VALUE_GROUPS
        places->value_scale[n] = attention_row_of_head(&a->value_scale, &t->item, j, a, arrays);
#endif
    }
#endif
}

/* Loads of an item for VALUE_ROWS rows of V. */
#define VALUE_LOADS ((VALUE_HALF + ITEMS - 1) / ITEMS)

/* Whether tile_has_quads holds for all of the arrays that are float; of other types single elements are loaded. */
static inline bool tile_all_have_quads(const global void *query, const global void *key, const global void *value,
                                       const attention_args *a)
{
    return (!IS_F32(Q_TYPE) || tile_has_quads(query, &a->query)) && (!IS_F32(K_TYPE) || tile_has_quads(key, &a->key)) &&
           (!IS_F32(V_TYPE) || tile_has_quads(value, &a->value));
}

/* Where the rows begin that an item loads from; -1 for those outside. */
typedef struct tile_queries {
    long at[LOADS(TILE_Q)];
} tile_queries;

typedef struct tile_keys {
    long at[LOADS(TILE_K)];
#if KEY_GROUPS
    long scales[LOADS(TILE_K)];
#endif
} tile_keys;

static inline void tile_find_queries(tile_queries *rows, uint item, const tile_rows *t, const attention_args *a)
{
#pragma unroll
    for (int n = 0; n < LOADS(TILE_Q); n++) {
        tile_row row;
        tile_find_row(&row, tile_load_row(item, n, TILE_Q), t, a);
        rows->at[n] = row.attends ? attention_query_row(&a->query, &row.item, row.i) : -1;
    }
}

static inline void tile_find_keys(tile_keys *rows, local const tile_places *places, uint item, int k0,
                                  const tile_rows *t, const attention_args *a, const optional_arrays *arrays)
{
#pragma unroll
    for (int n = 0; n < LOADS(TILE_K); n++) {
        const int j = k0 + tile_load_row(item, n, TILE_K);
        const bool inside = j >= t->begin && j < t->end;
        rows->at[n] = inside ? PLACE(key, j) : -1;
#if KEY_GROUPS
        rows->scales[n] = inside ? SCALE_PLACE(key_scale, j) : 0;
#endif
    }
}

/* The scales of LOAD_QUAD's columns. */
#define LOAD_SCALE(TYPE, p, at, move, d, width, group) LOAD(TYPE, p, (at) + min(d, (width) - 1) / (group) * (move))
#define LOAD_SCALES(TYPE, p, at, move, d, width, group) \
    (float4)(LOAD_SCALE(TYPE, p, at, move, d, width, group), LOAD_SCALE(TYPE, p, at, move, (d) + 1, width, group), \
             LOAD_SCALE(TYPE, p, at, move, (d) + 2, width, group), \
             LOAD_SCALE(TYPE, p, at, move, (d) + 3, width, group))

/* Loads the item's part of columns d0 .. d0 + CHUNK-1 of the queries. */
static inline __attribute__((always_inline)) void
tile_load_query(float4 next[LOADS(TILE_Q)], const global ELEMENT(Q_TYPE) *query, const tile_queries *rows,
                local const tile_places *places, uint item, int d0, bool quads)
{
#pragma unroll
    for (int n = 0; n < LOADS(TILE_Q); n++) {
        const int d = d0 + tile_load_column(item, n, TILE_Q);
        next[n] = (float4)(0.0f);
        if (rows->at[n] < 0 || d >= D_K)
            continue;
        LOAD_WHOLE_QUAD(Q_TYPE, next[n], query, rows->at[n], places->query_col, d, D_K, quads);
    }
}

/* Loads the item's part of those columns of the tile's keys. */
static inline __attribute__((always_inline)) void tile_load_key(float4 next[LOADS(TILE_K)],
                                                                const global ELEMENT(K_TYPE) *key,
                                                                const tile_keys *rows, local const tile_places *places,
                                                                uint item, int d0, bool quads, const attention_args *a,
                                                                const optional_arrays *arrays)
{
#pragma unroll
    for (int n = 0; n < LOADS(TILE_K); n++) {
        const int d = d0 + tile_load_column(item, n, TILE_K);
        next[n] = (float4)(0.0f);
        if (rows->at[n] < 0 || d >= D_K)
            continue;
        LOAD_WHOLE_QUAD(K_TYPE, next[n], key, rows->at[n], places->key_col, d, D_K, quads);
#if KEY_GROUPS
        next[n] *= LOAD_SCALES(KEY_SCALE_TYPE, arrays->key_scale, rows->scales[n], a->key_scale.col, d, D_K, KEY_GROUP);
#endif
    }
}

/* Loads the item's part of rows p0 .. p0 + VALUE_ROWS-1 of V.  Row p of `prob` is key 4 * (p % ITEMS_X) + p / ITEMS_X % 4 +
 * p / ITEMS_X / 4 * BLOCK: the order in which the items' stores of probabilities go to different banks.  V is staged in that
 * order. */
static inline __attribute__((always_inline)) void
tile_load_value(float4 next[VALUE_LOADS], const global ELEMENT(V_TYPE) *value, local const tile_places *places,
                uint item, int k0, int p0, bool quads, const tile_rows *t, const attention_args *a,
                const optional_arrays *arrays)
{
#pragma unroll
    for (int n = 0; n < VALUE_LOADS; n++) {
        const uint place = item + n * ITEMS, p = p0 + place / VALUE_QUADS;
        const int e = (int)(place % VALUE_QUADS) * 4, j = k0 + (int)OWN_KEY(p % ITEMS_X, p / ITEMS_X);
        next[n] = (float4)(0.0f);
        if (place >= VALUE_HALF || p >= TILE_K || j < t->begin || j >= t->end || e >= D_V)
            continue;
        const long at = PLACE(value, j);
        LOAD_WHOLE_QUAD(V_TYPE, next[n], value, at, places->value_col, e, D_V, quads);
#if VALUE_GROUPS
        next[n] *= LOAD_SCALES(VALUE_SCALE_TYPE, arrays->value_scale, SCALE_PLACE(value_scale, j), a->value_scale.col,
                               e, D_V, VALUE_GROUP);
#endif
    }
}

static inline void tile_put_value(local float4 *to, const float4 next[VALUE_LOADS], uint item)
{
#pragma unroll
    for (int n = 0; n < VALUE_LOADS; n++)
        if (item + n * ITEMS < VALUE_HALF)
            to[item + n * ITEMS] = next[n];
}

#endif
