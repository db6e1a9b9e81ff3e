/* attention_cpu_amx's tile of keys: K and V as AMX takes them, and the products S^T = K Q^T and O^T += V^T P^T, both by
 * tiles of 32 rows and 32 queries.
 *
 *   KEY_TILE, GATHERED   as attention/cpu/amx.cl says
 *
 * Q^T and P^T are pairs (attention/cpu/bf16_pairs.h) and have the layout that AMX wants of lanes.  What fills no tile is filled
 * with 0. */
#ifndef CLATTN_CL_ATTENTION_CPU_AMX_TILE_H
#define CLATTN_CL_ATTENTION_CPU_AMX_TILE_H

#include "attention/cpu/amx_keys.h"

#if !SPLIT_FLOATS

#define TILE (AMX_ROWS * AMX_WORDS)

/* K and V^T as tiles of 16 rows of 16 pairs, in the order in which they are multiplied: two for the products' 32 rows and
 * so on along the rows, V^T's KEY_TILE keys at a time.  Pair c of columns of key j is KEY_AT(j, c), pair i of keys of
 * column c is VALUE_AT(c, i). */
typedef struct amx_keys {
    uint key[GATHERED * KEY_STEPS * AMX_WORDS];
    uint value[GATHERED * VALUE_COLUMNS / 2];
} __attribute__((aligned(64))) amx_keys; /* as lines of the cache */

#define IN_TILES(row, word, steps) \
    ((((row) / 32 * (steps) + (word) / AMX_WORDS) * 2 + (row) / AMX_ROWS % 2) * TILE + (row) % AMX_ROWS * AMX_WORDS + \
     (word) % AMX_WORDS)
#define KEY_AT(j, c) IN_TILES(j, c, KEY_STEPS)
#define VALUE_AT(c, i) \
    ((i) / (KEY_TILE / 2) * (VALUE_COLUMNS * KEY_TILE / 2) + IN_TILES(c, (i) % (KEY_TILE / 2), KEY_TILE / 32))

#define KEY_TILES(j) KEY_AT(j, 0)
#define VALUE_TILES(c, j) VALUE_AT(c, (j) / 2)
#define QUERY_WORDS (KEY_STEPS * AMX_WORDS * QUERY_VECTORS) /* vectors of Q^T's pairs */

/* Keys start ... start + n - 1 of K. */
INLINE void gather_keys(amx_keys *keys, const global ushort *key, int start, int n, const attention_item *item,
                        const attention_args *a, const optional_arrays *arrays)
{
    uint *word = keys->key;

    key_rows rows;
    find_key_rows(&rows, &a->key, start, n, item, a, arrays);
    for (int j = 0; j < n; j++) {
        const global ushort *row = key + key_row(&rows, j);
        int c = 0;
        for (; c + LANES <= D_K / 2; c += LANES)
            STORE_WHOLE(whole_uintv, word + KEY_AT(j, c), pairs_of_row(row + 2 * c));
        for (; c < KEY_STEPS * AMX_WORDS; c++)
            word[KEY_AT(j, c)] = 2 * c < D_K ? pair_at(row + 2 * c, 1, 2 * c + 1 < D_K) : 0;
    }
    for (int j = n; j < ROUND_UP(n, 32); j++)
        for (int c = 0; c < KEY_STEPS * AMX_WORDS; c++)
            word[KEY_AT(j, c)] = 0;
}

/* V^T of keys start ... start + n - 1. */
INLINE void gather_values(amx_keys *keys, const global ushort *value, int start, int n, const attention_item *item,
                          const attention_args *a, const optional_arrays *arrays)
{
    key_rows rows;
    find_key_rows(&rows, &a->value, start, n, item, a, arrays);
    for (int i = 0; i < ROUND_UP(n, 32) / 2; i += LANES)
        for (int d = 0; d < VALUE_COLUMNS; d += LANES) {
            floatv square[LANES];
            if (2 * (i + LANES) <= n && d + LANES <= D_V) {
#pragma unroll
                for (int l = 0; l < LANES; l++)
                    square[l] = AS_FLOATV(zipped_values(value + key_row(&rows, 2 * (i + l)),
                                                        value + key_row(&rows, 2 * (i + l) + 1), 1, d));
            } else {
                for (int l = 0; l < LANES; l++) {
                    const int j = 2 * (i + l);
                    square[l] = (floatv)(0.0f);
                    if (j < n && d < D_V)
                        square[l] = AS_FLOATV(zipped_values(value + key_row(&rows, j),
                                                            value + key_row(&rows, min(j + 1, n - 1)), j + 1 < n, d));
                }
            }
            transpose(square);
#pragma unroll
            for (int c = 0; c < LANES; c++)
                STORE_WHOLE(whole_uintv, keys->value + VALUE_AT(d + c, i), AS_UINTV(square[c]));
        }
}

/* sum[i * BLOCK + q] += the products of row i < 32 with query q, in `steps` times 16 pairs; `fresh`: sum counts as 0.  The
 * rows are tiles from `row` on, two for each step; query q's pairs lie at lane + q, BLOCK apart. */
INLINE void add_products(amx_state *amx, float *sum, bool fresh, const uint *row, const uint *lane, int steps)
{
    AMX_SUMS_BEGIN(amx, sum, BLOCK, 2 * AMX_ROWS, fresh);
    for (int i = 0; i < steps; i++) {
        AMX_LOAD_WORDS(amx, 4, row + 2 * i * TILE, AMX_WORDS);
        AMX_LOAD_WORDS(amx, 6, lane + i * AMX_WORDS * BLOCK, BLOCK);
        AMX_DOT(amx, 0, 4, 6);
        AMX_LOAD_WORDS(amx, 7, lane + i * AMX_WORDS * BLOCK + AMX_WORDS, BLOCK);
        AMX_DOT(amx, 1, 4, 7);
        AMX_LOAD_WORDS(amx, 5, row + (2 * i + 1) * TILE, AMX_WORDS);
        AMX_DOT(amx, 2, 5, 6);
        AMX_DOT(amx, 3, 5, 7);
    }
    AMX_SUMS_END(amx, sum, BLOCK, 2 * AMX_ROWS);
}

/* Products of keys and queries, and of columns of V and weights, are added alike. */
#define add_scores add_products
#define add_values add_products

/* Weights of keys 2i and 2i + 1 as a pair, which may take the scores' place. */
#define LOW_KEY(i) (2 * (i))
#define HIGH_KEY(i) (2 * (i) + 1)
#define STORE_WEIGHTS(word, s, i, v, p, r) word[(i) * QUERY_VECTORS + (v)] = AS_FLOATV(weight_pairs(p, r))

#endif
#endif
