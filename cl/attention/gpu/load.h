/* Copies Q, K and V from global memory, of any storage type, into local memory as floats.  What lies outside is 0 and is not
 * read.  Eight neighbouring items cover 8 columns of a row of Q or K, BLOCK items one row of V. */
#ifndef CLATTN_CL_ATTENTION_GPU_LOAD_H
#define CLATTN_CL_ATTENTION_GPU_LOAD_H

#include "attention/gpu/rows.h"

/* Where the rows of a tile's keys begin, which is looked up once for each tile if INDIRECT. */
typedef struct tile_places {
#if INDIRECT
    long key[TILE_K], value[TILE_K];
#if KEY_GROUPS
    long key_scale[TILE_K];
#endif
#if VALUE_GROUPS
    long value_scale[TILE_K];
#endif
#else
    int none; /* a struct has a member */
#endif
} tile_places;

#if INDIRECT
#define PLACE(WHICH, j) places->WHICH[(j) - k0]
#define SCALE_PLACE(WHICH, j) PLACE(WHICH, j)
#else
#define PLACE(WHICH, j) attention_row(&a->WHICH, &t->item, j, a, arrays)
#define SCALE_PLACE(WHICH, j) attention_row_of_head(&a->WHICH, &t->item, j, a, arrays)
#endif

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
        places->key[n] = attention_row(&a->key, &t->item, j, a, arrays);
        places->value[n] = attention_row(&a->value, &t->item, j, a, arrays);
#if KEY_GROUPS
        places->key_scale[n] = attention_row_of_head(&a->key_scale, &t->item, j, a, arrays);
#endif
#if VALUE_GROUPS
        places->value_scale[n] = attention_row_of_head(&a->value_scale, &t->item, j, a, arrays);
#endif
    }
#endif
}

/* Copies columns d0 .. d0 + CHUNK-1 of the tile's rows to to[d][row]. */
static inline void tile_stage_query(local float *to, const global ELEMENT(Q_TYPE) *query, uint item, int d0,
                                    const tile_rows *t, const attention_args *a)
{
    for (int m = 0; m < TILE_Q * 8 / ITEMS; m++) {
        const int r = (int)(item / 8) + m * (ITEMS / 8);
        tile_row row;
        tile_find_row(&row, r, t, a);
        const long at = attention_query_row(&a->query, &row.item, row.i);
        for (int n = 0; n < CHUNK; n += 8) {
            const int d = n + (int)(item % 8);
            float x = 0.0f;
            if (row.attends && d0 + d < D_K)
                x = LOAD(Q_TYPE, query, at + (d0 + d) * a->query.col);
            to[d * Q_STRIDE + r] = x;
        }
    }
}

/* Copies columns d0 .. d0 + CHUNK-1 of the keys from k0 on to to[d][key].  At most four of an item's rows at once, since
 * whether a row is inside takes two scalar registers on AMD's waves of 64. */
static inline void tile_stage_key(local float *to, const global ELEMENT(K_TYPE) *key, local const tile_places *places,
                                  uint item, int k0, int d0, const tile_rows *t, const attention_args *a,
                                  const optional_arrays *arrays)
{
#pragma unroll 4
    for (int m = 0; m < TILE_K * 8 / ITEMS; m++) {
        const int i = (int)(item / 8) + m * (ITEMS / 8), j = k0 + i;
        const bool inside = j >= t->begin && j < t->end;
        const long at = inside ? PLACE(key, j) : 0;
#if KEY_GROUPS
        const long scales = inside ? SCALE_PLACE(key_scale, j) : 0;
#endif
        for (int n = 0; n < CHUNK; n += 8) {
            const int d = n + (int)(item % 8);
            float x = 0.0f;
            if (inside && d0 + d < D_K) {
                x = LOAD(K_TYPE, key, at + (d0 + d) * a->key.col);
#if KEY_GROUPS
                x *= LOAD(KEY_SCALE_TYPE, arrays->key_scale, scales + (d0 + d) / KEY_GROUP * a->key_scale.col);
#endif
            }
            to[d * K_STRIDE + i] = x;
        }
    }
}

/* Copies VALUE_ROWS rows of V to to[row][column].  Row p of `prob` is key 4 * (p % ITEMS_X) + p / ITEMS_X % 4 + p / ITEMS_X / 4 *
 * BLOCK: the order in which the items' stores of probabilities go to different banks.  V is staged in that order. */
static inline void tile_stage_value(local float *to, const global ELEMENT(V_TYPE) *value,
                                    local const tile_places *places, uint item, int k0, int p0, const tile_rows *t,
                                    const attention_args *a, const optional_arrays *arrays)
{
    for (int n = 0; n < VALUE_ROWS * 4 / ITEMS_Y; n++) {
        const uint row = (item + n * ITEMS) / BLOCK, column = (item + n * ITEMS) % BLOCK;
        const uint p = p0 + row;
        const int j = k0 + (int)OWN_KEY(p % ITEMS_X, p / ITEMS_X);
        const bool inside = j >= t->begin && j < t->end;
        const long at = inside ? PLACE(value, j) : 0;
#if VALUE_GROUPS
        const long scales = inside ? SCALE_PLACE(value_scale, j) : 0;
#endif
        for (int c = 0; c < COLUMN_QUADS; c++) {
            const int e = (int)column + c * BLOCK;
            float x = 0.0f;
            if (inside && e < D_V) {
                x = LOAD(V_TYPE, value, at + e * a->value.col);
#if VALUE_GROUPS
                x *= LOAD(VALUE_SCALE_TYPE, arrays->value_scale, scales + e / VALUE_GROUP * a->value_scale.col);
#endif
            }
            to[row * VALUE_STRIDE + e] = x;
        }
    }
}

#endif
