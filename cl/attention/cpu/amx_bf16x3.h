/* attention_cpu_amx's tile of keys where Q, K and V are not all bfloat16: what attention/cpu/amx_tile.h does, each
 * element in its terms (lib/bf16x3.h).  Elements of S and of O whose row of Q, row of K or column of V is beyond what
 * terms can hold are made of Q, K and V themselves, and only they.
 *
 *   KEY_TILE, GATHERED   as attention/cpu/amx.cl says */
#ifndef CLATTN_CL_ATTENTION_CPU_AMX_BF16X3_H
#define CLATTN_CL_ATTENTION_CPU_AMX_BF16X3_H

#include "attention/cpu/amx_keys.h"
#include "lib/bf16x3.h"

#if SPLIT_FLOATS

/* K and V^T as blocks (lib/bf16x3.h), in the order in which they are multiplied: of 32 keys and 32 columns, along the
 * columns, at KEY_TILES; of 32 columns of V and 32 keys, along a tile's keys, at VALUE_TILES.  Peaks are the greatest
 * magnitudes, as bits, of a key and of a column's gathered keys. */
typedef struct amx_keys {
    uint key[GATHERED / 32 * KEY_STEPS * BLOCK_WORDS];
    uint value[GATHERED / 32 * (VALUE_COLUMNS / 32) * BLOCK_WORDS];
    uint key_peak[GATHERED], value_peak[VALUE_COLUMNS];
    peaks key_peaks;
    bool value_beyond;                   /* a column is beyond what terms can hold */
} __attribute__((aligned(64))) amx_keys; /* as lines of the cache */

#define KEY_TILES(j) ((j) / 32 * KEY_STEPS * BLOCK_WORDS)
#define VALUE_TILES(c, j) \
    ((((j) / KEY_TILE * (VALUE_COLUMNS / 32) + (c) / 32) * (KEY_TILE / 32) + (j) % KEY_TILE / 32) * BLOCK_WORDS)

#define QUERY_WORDS (KEY_STEPS * TERMS * HALF_BLOCK * QUERY_VECTORS)      /* vectors of Q^T's splits, */
#define WEIGHT_WORDS (KEY_TILE / 32 * TERMS * HALF_BLOCK * QUERY_VECTORS) /* and of P^T's of a tile */

/* Stores the terms of two vectors in a row of a block, from word `w` on. */
INLINE void store_terms(uint *row, int w, floatv low, floatv high, int count)
{
    uintv term[TERMS];

    split(term, low, high, count);
#pragma unroll
    for (int n = 0; n < TERMS && n < count; n++)
        STORE_WHOLE(whole_uintv, row + n * 2 * TILE_WORDS + w, term[n]);
}

/* Keys start ... start + n - 1 of K. */
INLINE void gather_keys(amx_keys *keys, const global ELEMENT(K_TYPE) *key, int start, int n, const attention_item *item,
                        const attention_args *a, const optional_arrays *arrays)
{
    key_rows rows;
    find_key_rows(&rows, &a->key, start, n, item, a, arrays);
    keys->key_peaks = NO_PEAKS;
    for (int j = 0; j < n; j++) {
        const global ELEMENT(K_TYPE) *p = key + key_row(&rows, j);
        uint *row = keys->key + KEY_TILES(j) + j % 32 * AMX_WORDS;
        floatv peak = (floatv)(0.0f);

        for (int step = 0; step < KEY_STEPS; step++)
            for (int w = 0; w < HALF_BLOCK; w += LANES) {
                const int c = step * BLOCK_K + w;
                floatv low, high;
                LOAD_ROW(K_TYPE, low, p, c, 1, D_K - c, 0.0f);
                LOAD_ROW(K_TYPE, high, p, c + HALF_BLOCK, 1, D_K - c - HALF_BLOCK, 0.0f);
                peak = greater_magnitude(greater_magnitude(peak, low), high);
                store_terms(row + step * BLOCK_WORDS, w, low, high, TERMS_OF(K_TYPE));
            }
        keys->key_peak[j] = peak_of(peak);
        keys->key_peaks = with_peak(keys->key_peaks, keys->key_peak[j]);
    }
    for (int j = n; j < ROUND_UP(n, 32); j++)
        for (int step = 0; step < KEY_STEPS; step++)
            for (int w = 0; w < HALF_BLOCK; w += LANES)
                store_terms(keys->key + KEY_TILES(j) + j % 32 * AMX_WORDS + step * BLOCK_WORDS, w, (floatv)(0.0f),
                            (floatv)(0.0f), TERMS_OF(K_TYPE));
}

/* V^T of keys start ... start + n - 1. */
INLINE void gather_values(amx_keys *keys, const global ELEMENT(V_TYPE) *value, int start, int n,
                          const attention_item *item, const attention_args *a, const optional_arrays *arrays)
{
    floatv peak[VALUE_COLUMNS];

    key_rows rows;
    find_key_rows(&rows, &a->value, start, n, item, a, arrays);
    for (int c = 0; c < VALUE_COLUMNS; c++)
        peak[c] = (floatv)(0.0f);
    for (int block = 0; block < n; block += BLOCK_K)
        for (int d = 0; d < VALUE_COLUMNS; d += LANES)
            for (int w = 0; w < HALF_BLOCK; w += LANES) {
                uint *row = keys->value + VALUE_TILES(d, block) + d % 32 * AMX_WORDS;
                floatv x[2][LANES]; /* column d + c of LANES keys, and of those HALF_BLOCK on; 0 beyond n and D_V */

                for (int i = 0; i < 2; i++) {
                    const int j = block + w + i * HALF_BLOCK;
                    floatv square[LANES];

                    if (j + LANES <= n && d + LANES <= D_V) {
#pragma unroll
                        for (int l = 0; l < LANES; l++)
                            square[l] = LOADV(V_TYPE, value, key_row(&rows, j + l) + d);
                    } else {
                        for (int l = 0; l < LANES; l++)
                            LOAD_ROW(V_TYPE, square[l], value, key_row(&rows, min(j + l, n - 1)) + d, 1,
                                     j + l < n ? D_V - d : 0, 0.0f);
                    }
                    transpose(square);
#pragma unroll
                    for (int c = 0; c < LANES; c++)
                        x[i][c] = square[c];
                }
                for (int c = 0; c < LANES; c++) {
                    peak[d + c] = greater_magnitude(greater_magnitude(peak[d + c], x[0][c]), x[1][c]);
                    store_terms(row + c * AMX_WORDS, w, x[0][c], x[1][c], TERMS_OF(V_TYPE));
                }
            }
    keys->value_beyond = false;
    for (int c = 0; c < VALUE_COLUMNS; c++) {
        keys->value_peak[c] = peak_of(peak[c]);
        keys->value_beyond |= IS_BEYOND_ALONE(keys->value_peak[c]);
    }
}

/* Stores the terms of two vectors of lanes as row i, counted through all blocks. */
INLINE void store_lanes(floatv *word, int i, int v, floatv low, floatv high, int count)
{
    uintv term[TERMS];

    split(term, low, high, count);
#pragma unroll
    for (int n = 0; n < TERMS && n < count; n++)
        word[((i / HALF_BLOCK * TERMS + n) * HALF_BLOCK + i % HALF_BLOCK) * QUERY_VECTORS + v] = AS_FLOATV(term[n]);
}

/* Q^T's terms, and the greatest magnitude of each query, as bits. */
INLINE void split_queries(floatv *word, const floatv *q, uintv *peak)
{
    for (int v = 0; v < QUERY_VECTORS; v++) {
        floatv most = (floatv)(0.0f);

        for (int i = 0; i < KEY_STEPS * HALF_BLOCK; i++) {
            const int c = i / HALF_BLOCK * BLOCK_K + i % HALF_BLOCK;
            const floatv low = c < D_K ? q[c * QUERY_VECTORS + v] : (floatv)(0.0f);
            const floatv high = c + HALF_BLOCK < D_K ? q[(c + HALF_BLOCK) * QUERY_VECTORS + v] : (floatv)(0.0f);

            most = greater_magnitude(greater_magnitude(most, low), high);
            store_lanes(word, i, v, low, high, TERMS_OF(Q_TYPE));
        }
        peak[v] = AS_UINTV(most);
    }
}

/* sum[i * BLOCK + q] += the products of row i < 32 with query q in `steps` blocks from `row` and from `lane` on; `fresh`:
 * sum counts as 0. */
INLINE void add_products(amx_state *amx, float *sum, bool fresh, const uint *row, int row_parts, const uint *lane,
                         int lane_parts, int steps)
{
#define QUERY_TILE(term, which) (lane + (term) * HALF_BLOCK * BLOCK + (which) * AMX_WORDS)
    AMX_SUMS_BEGIN(amx, sum, BLOCK, 2 * AMX_ROWS, fresh);
    for (int i = 0; i < steps; i++, row += BLOCK_WORDS, lane += TERMS * HALF_BLOCK * BLOCK)
        ADD_PARTS(amx, row, row_parts, QUERY_TILE, lane_parts, BLOCK);
    AMX_SUMS_END(amx, sum, BLOCK, 2 * AMX_ROWS);
}

/* Adds the products of keys and queries.  add_values adds those of columns of V and weights. */
INLINE void add_scores(amx_state *amx, float *sum, bool fresh, const uint *row, const uint *lane, int steps)
{
    add_products(amx, sum, fresh, row, TERMS_OF(K_TYPE), lane, TERMS_OF(Q_TYPE), steps);
}

INLINE void add_values(amx_state *amx, float *sum, bool fresh, const uint *row, const uint *lane, int steps)
{
    add_products(amx, sum, fresh, row, TERMS_OF(V_TYPE), lane, TERMS, steps);
}

/* S^T of keys start ... start + n - 1, of which the first one is number `first` of `keys`, where key and query are beyond
 * terms. */
static void exact_scores(const amx_call *call, floatv *s, int first, int start, int n, const uintv *query_peak,
                         const attention_block *block)
{
    const attention_args *a = call->a;
    floatv q[D_K * QUERY_VECTORS];
    const long first_row = attention_query_row(&a->query, &block->item, block->first);
    bool loaded = false;

    for (int j = 0; j < n; j++)
        for (int v = 0; v < QUERY_VECTORS; v++) {
            const uintv x = (uintv)(call->keys->key_peak[first + j]), y = query_peak[v];
            const intv beyond = IS_BEYOND(x, y);
            const global ELEMENT(K_TYPE) *row =
                call->key + attention_row(&a->key, &block->item, start + j, a, call->arrays);
            floatv sum = (floatv)(0.0f);

            if (!any(beyond))
                continue;
            for (int r = 0; r < BLOCK && !loaded; r++)
                for (int c = 0; c < D_K; c++)
                    ((float *)q)[c * BLOCK + r] =
                        LOAD(Q_TYPE, call->query, first_row + LIVE_OFFSET(block, &a->query, r) + c * a->query.col);
            loaded = true;
            for (int c = 0; c < D_K; c++)
                sum = FMA((floatv)(LOAD(K_TYPE, row, c)), q[c * QUERY_VECTORS + v], sum);
            s[j * QUERY_VECTORS + v] = select(s[j * QUERY_VECTORS + v], sum, beyond);
        }
}

/* O^T's columns beyond what terms can hold with n keys from `start` on, whose weights are p, to `sum`. */
static void exact_columns(const amx_call *call, floatv *sum, const floatv *o, bool fresh, const floatv *p, int start,
                          int n, const attention_item *item)
{
    const attention_args *a = call->a;
    for (int c = 0; c < D_V; c++)
        for (int v = 0; v < QUERY_VECTORS && IS_BEYOND_ALONE(call->keys->value_peak[c]); v++) {
            floatv x = fresh ? (floatv)(0.0f) : o[c * QUERY_VECTORS + v];

            for (int j = 0; j < n; j++)
                x = FMA(
                    (floatv)(LOAD(V_TYPE, call->value, attention_row(&a->value, item, start + j, a, call->arrays) + c)),
                    p[j * QUERY_VECTORS + v], x);
            sum[c * QUERY_VECTORS + v] = x;
        }
}

#define KEY_OF(i) ((i) / HALF_BLOCK * BLOCK_K + (i) % HALF_BLOCK) /* the lower one of pair i's keys */

#if DROPOUT
/* The terms of weights p of n keys, which become 0 behind them up to a multiple of 32. */
INLINE void split_weights(floatv *word, floatv *p, int n)
{
    for (int i = n * QUERY_VECTORS; i < ROUND_UP(n, 32) * QUERY_VECTORS; i++)
        p[i] = (floatv)(0.0f);
    for (int i = 0; i < ROUND_UP(n, 32) / 2; i++)
        for (int v = 0; v < QUERY_VECTORS; v++)
            store_lanes(word, i, v, p[KEY_OF(i) * QUERY_VECTORS + v], p[(KEY_OF(i) + HALF_BLOCK) * QUERY_VECTORS + v],
                        TERMS);
}
#else
/* Pair i's weights, which stay in the scores' place as well. */
#define LOW_KEY(i) KEY_OF(i)
#define HIGH_KEY(i) (KEY_OF(i) + HALF_BLOCK)
#define STORE_WEIGHTS(word, s, i, v, p, r) \
    do { \
        store_lanes(word, i, v, p, r, TERMS); \
        s[LOW_KEY(i) * QUERY_VECTORS + (v)] = p; \
        s[HIGH_KEY(i) * QUERY_VECTORS + (v)] = r; \
    } while (0)
#endif

#endif
#endif
