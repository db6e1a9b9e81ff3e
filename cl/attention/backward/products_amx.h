/* attention_backward_cpu's products by AMX: what attention/backward/products.h does, of floats that are the sums of up to three bfloat16
 * (lib/bf16x3.h).
 *
 *   LANES, QUERY_VECTORS, KEY_TILE   as attention/backward/cpu.cl says; LANES is 8 or 16, BLOCK and KEY_TILE are multiples of 32
 *   X86_AMX                          1: by the instructions (engine/x86/amx.h)
 *
 * A matrix becomes blocks of 32 rows or lanes and 32 numbers of the sum, each of three times two AMX tiles of 16 x 16 words:
 *
 *   product             the sum goes along   rows of tiles           lanes of tiles
 *   S^T   = K Q^T       columns              keys, of K              queries, of Q (turned)
 *   dP^T  = V dO^T      columns              keys, of V              queries, of dO (turned)
 *   dV   += P^T dO      queries              keys, of P              columns, of dO
 *   dK   += dS^T Q      queries              keys, of dS             columns, of Q
 *   dQ^T += K^T dS^T    keys                 columns, of K (turned)  queries, of dS
 *
 * Q and dO are split once for a block of queries, K and V once for each order and tile of keys, P and dS once for both.  Where a tile's
 * and a block's greatest magnitudes are beyond what terms can hold (IS_BEYOND), their product is one of the floats themselves; of the
 * first two products only the rows of those keys are. */
#ifndef CLATTN_CL_ATTENTION_BACKWARD_PRODUCTS_AMX_H
#define CLATTN_CL_ATTENTION_BACKWARD_PRODUCTS_AMX_H

#include "attention/backward/products.h"
#include "engine/x86/amx_sums.h"
#include "lib/bf16x3.h"

#if SPLIT_FLOATS

#if BLOCK % 32 != 0 || KEY_TILE % 32 != 0
#error "AMX needs tiles of 32 keys and 32 queries"
#endif

typedef uint word;

/* A matrix: blocks along the terms of the sum, which are `count` terms of each number. */
typedef struct converted {
    const uint *blocks;
    const float *source; /* the floats, before */
    uint peak;           /* their greatest magnitude, as bits; of a NaN infinity */
    int count;
} converted;

#define WORDS(n) ((n) / 2 * TERMS)
#define COLUMN_WORDS(n) WORDS(n)

INLINE void begin_products(void)
{
    amx_state amx;
    AMX_BEGIN(&amx);
}

INLINE void end_products(void)
{
    amx_state amx;
    AMX_END(&amx);
}

/* ---- the order of numbers ---- */

/* Stores the terms of two vectors as a row of words in each of a block's tiles; returns the greatest magnitudes of them and `peak`. */
INLINE floatv store_terms(uint *to, floatv low, floatv high, floatv peak)
{
    uintv term[TERMS];

    split(term, low, high, TERMS);
#pragma unroll
    for (int n = 0; n < TERMS; n++)
        STORE_WHOLE(whole_uintv, to + n * 2 * TILE_WORDS, term[n]);
    return greater_magnitude(greater_magnitude(peak, low), high);
}

/* A block of 32 x 32 floats, whose rows are `width` apart, each in its terms.  `k_across`: the sum goes along the rows' columns,
 * else from row to row.  `as_rows`: what it does not go along are rows of tiles, else lanes.  Raises the lanes of `peak` to its magnitudes. */
ITEM_FUNCTION split_block(uint *block, floatv *peak, const float *x, int width, bool k_across, bool as_rows)
{
    const int i_step = k_across ? width : 1, k_step = k_across ? 1 : width;
    floatv most = *peak;

    for (int i = 0; i < BLOCK_K; i += LANES)
        for (int k = 0; k < HALF_BLOCK; k += LANES) {
            const float *from = x + i * i_step + k * k_step;
            uint *to = block + i / AMX_ROWS * TILE_WORDS +
                       (as_rows ? i % AMX_ROWS * AMX_WORDS + k : k * AMX_WORDS + i % AMX_ROWS);
            if (k_across == as_rows) {
                for (int l = 0; l < LANES; l++)
                    most = store_terms(to + l * AMX_WORDS, VLOAD(0, from + l * width),
                                       VLOAD(0, from + l * width + HALF_BLOCK * k_step), most);
                continue;
            }
            floatv low[LANES], high[LANES];
#pragma unroll
            for (int l = 0; l < LANES; l++) {
                low[l] = VLOAD(0, from + l * width);
                high[l] = VLOAD(0, from + l * width + HALF_BLOCK * k_step);
            }
            transpose(low);
            transpose(high);
#pragma unroll
            for (int l = 0; l < LANES; l++)
                most = store_terms(to + l * AMX_WORDS, low[l], high[l], most);
        }
    *peak = most;
}

/* `rows` rows of `columns` floats; both are multiples of 32. */
INLINE converted split_all(uint *to, const float *x, int rows, const int columns, const bool k_across,
                           const bool as_rows, const int count)
{
    const int others = k_across ? rows : columns, ks = k_across ? columns : rows;
    uint *block = to;
    floatv peak = (floatv)(0.0f);

    for (int i = 0; i < others; i += BLOCK_K)
        for (int k = 0; k < ks; k += BLOCK_K, block += BLOCK_WORDS)
            split_block(block, &peak, x + (k_across ? i * columns + k : k * columns + i), columns, k_across, as_rows);
    return (converted){to, x, peak_of(peak), count};
}

/* Rows behind the first n become 0, up to a multiple of 32; returns how many there are then. */
INLINE int fill_rows(float *rows, const int width, int n)
{
    for (int at = n * width; at < ROUND_UP(n, BLOCK_K) * width; at += LANES)
        STORE_WHOLE(whole_floatv, rows + at, (floatv)(0.0f));
    return ROUND_UP(n, BLOCK_K);
}

INLINE converted block_along_columns(word *to, const operand *rows, const int width, const int count)
{
    return split_all(to, rows, BLOCK, width, true, false, count);
}

INLINE converted block_along_rows(word *to, const operand *rows, const int width, const int count)
{
    return split_all(to, rows, BLOCK, width, false, false, count);
}

INLINE converted keys_along_columns(word *to, operand *rows, const int width, int n, const int count)
{
    return split_all(to, rows, fill_rows(rows, width, n), width, true, true, count);
}

INLINE converted keys_along_rows(word *to, operand *rows, const int width, int n, const int count)
{
    return split_all(to, rows, fill_rows(rows, width, n), width, false, true, count);
}

INLINE converted along_queries(word *to, floatv *s, int n)
{
    return split_all(to, (const float *)s, fill_rows((float *)s, BLOCK, n), BLOCK, true, true, TERMS);
}

/* Lanes of queries along keys from rows of keys along queries.  A word of keys j and j + 16 is in both orders half of a word of queries
 * q and q + 16. */
INLINE converted along_keys(word *to, converted by_queries, const floatv *s, int n)
{
    const int blocks = BLOCK / BLOCK_K, steps = ROUND_UP(n, BLOCK_K) / BLOCK_K;
    for (int block = 0; block < blocks; block++)
        for (int step = 0; step < steps; step++)
            for (int tile = 0; tile < TERMS; tile++) {
                const uint *from = by_queries.blocks + (step * blocks + block) * BLOCK_WORDS + tile * 2 * TILE_WORDS;
                uint *lane = to + (block * steps + step) * BLOCK_WORDS + tile * 2 * TILE_WORDS;
                for (int i = 0; i < TILE_WORDS; i += LANES) {
                    const uintv x = *(const uintv *)(from + i), y = *(const uintv *)(from + TILE_WORDS + i);
                    *(uintv *)(lane + i) = (x & 0xffff) | y << 16;
                    *(uintv *)(lane + TILE_WORDS + i) = x >> 16 | (y & 0xffff0000);
                }
            }
    return (converted){to, (const float *)s, by_queries.peak, TERMS};
}

/* ---- the products of the floats themselves ---- */

/* What multiply_rows does, for the rows that are beyond what terms can hold. */
ITEM_FUNCTION multiply_floats(floatv *s, converted rows, converted block, int width, int size, int n)
{
    floatv column[(K_WIDTH > V_WIDTH ? K_WIDTH : V_WIDTH) * QUERY_VECTORS];

    for (int v = 0; v < QUERY_VECTORS; v++)
        for (int d = 0; d < width; d += LANES) {
            floatv x[LANES];
            for (int r = 0; r < LANES; r++)
                x[r] = VLOAD(0, block.source + (v * LANES + r) * width + d);
            transpose(x);
            for (int c = 0; c < LANES; c++)
                column[(d + c) * QUERY_VECTORS + v] = x[c];
        }
    for (int j = 0; j < n; j++) {
        const float *row = rows.source + j * width;
        floatv acc[QUERY_VECTORS], most = (floatv)(0.0f);
        for (int d = 0; d < width; d += LANES)
            most = greater_magnitude(most, VLOAD(0, row + d));
        const uint peak = peak_of(most);
        if (!IS_BEYOND(peak, block.peak))
            continue;
        for (int v = 0; v < QUERY_VECTORS; v++)
            acc[v] = (floatv)(0.0f);
        for (int d = 0; d < size; d++)
            for (int v = 0; v < QUERY_VECTORS; v++)
                acc[v] = FMA((floatv)(row[d]), column[d * QUERY_VECTORS + v], acc[v]);
        for (int v = 0; v < QUERY_VECTORS; v++)
            s[j * QUERY_VECTORS + v] = acc[v];
    }
}

/* What add_columns does. */
ITEM_FUNCTION add_float_columns(floatv *sum, const float *rows, int width, int size, const floatv *s, int n)
{
    for (int c = 0; c < size; c++) {
        floatv acc[QUERY_VECTORS];
        for (int v = 0; v < QUERY_VECTORS; v++)
            acc[v] = sum[c * QUERY_VECTORS + v];
        for (int j = 0; j < n; j++)
            for (int v = 0; v < QUERY_VECTORS; v++)
                acc[v] = FMA((floatv)(rows[j * width + c]), s[j * QUERY_VECTORS + v], acc[v]);
        for (int v = 0; v < QUERY_VECTORS; v++)
            sum[c * QUERY_VECTORS + v] = acc[v];
    }
}

/* What add_rows does. */
ITEM_FUNCTION add_float_rows(global float *to, int step, const float *p, const float *x, int width, int n, int live)
{
    for (int j = 0; j < n; j++)
        for (int c = 0; c < width; c += 32) {
            floatv acc[32 / LANES];
            for (int i = 0; i < 32 / LANES; i++)
                acc[i] = VLOAD(i, to + j * step + c);
            for (int q = 0; q < live; q++)
                for (int i = 0; i < 32 / LANES; i++)
                    acc[i] = FMA((floatv)(p[j * BLOCK + q]), VLOAD(i, x + q * width + c), acc[i]);
            for (int i = 0; i < 32 / LANES; i++)
                STORE_WHOLE(global whole_floatv, to + j * step + c + i * LANES, acc[i]);
        }
}

/* ---- the products ---- */

/* 32 x 32 sums at `sum`, whose rows are `width` floats apart, of `steps` blocks of rows and of lanes; `fresh`: the sums count as 0
 * before. */
ITEM_FUNCTION add_blocks(float *sum, int width, bool fresh, const uint *row, int row_count, const uint *lane,
                         int lane_count, int steps)
{
#define LANE_TILE(term, which) (lane + ((term) * 2 + (which)) * TILE_WORDS)
    amx_state amx;

    AMX_SUMS_BEGIN(&amx, sum, width, 2 * AMX_ROWS, fresh);
    for (int i = 0; i < steps; i++, row += BLOCK_WORDS, lane += BLOCK_WORDS)
        ADD_PARTS(&amx, row, row_count, LANE_TILE, lane_count, AMX_WORDS);
    AMX_SUMS_END(&amx, sum, width, 2 * AMX_ROWS);
}

/* s[j * QUERY_VECTORS + v] = the products of row j with the block's rows, over columns; for j < n, of `size` columns, filled up to
 * `width`.  Up to the next multiple of 32 there are others' products, or 0. */
INLINE void multiply_rows(floatv *s, converted rows, const int width, const int size, converted block, int n)
{
    const int steps = width / BLOCK_K;

    for (int q = 0; q < BLOCK; q += 32)
        for (int j = 0; j < n; j += 32)
            add_blocks((float *)s + j * BLOCK + q, BLOCK, true, rows.blocks + j / 32 * steps * BLOCK_WORDS, rows.count,
                       block.blocks + q / 32 * steps * BLOCK_WORDS, block.count, steps);
    if (IS_BEYOND(rows.peak, block.peak))
        multiply_floats(s, rows, block, width, size, n);
}

/* sum[c * QUERY_VECTORS + v] += the products of column c of the n keys' rows with their weights, over keys; for c < size, filled up
 * to `width`. */
INLINE void add_columns(floatv *sum, converted rows, const int width, const int size, converted weights, int n)
{
    const int steps = ROUND_UP(n, BLOCK_K) / BLOCK_K;

    if (IS_BEYOND(rows.peak, weights.peak)) {
        add_float_columns(sum, rows.source, width, size, (const floatv *)weights.source, n);
        return;
    }
    for (int q = 0; q < BLOCK; q += 32)
        for (int c = 0; c < width; c += 32)
            add_blocks((float *)sum + c * BLOCK + q, BLOCK, false, rows.blocks + c / 32 * steps * BLOCK_WORDS,
                       rows.count, weights.blocks + q / 32 * steps * BLOCK_WORDS, weights.count, steps);
}

/* to[j * step + c] += the products of key j's weights with column c of the block's rows, over the first `live` queries; for j < n
 * and `width` columns. */
INLINE void add_rows(global float *to, int step, converted weights, converted rows, const int width, int n, int live)
{
    const int steps = BLOCK / BLOCK_K;
    float sum[32 * 32] __attribute__((aligned(64)));

    if (IS_BEYOND(weights.peak, rows.peak)) {
        add_float_rows(to, step, weights.source, rows.source, width, n, live);
        return;
    }
    for (int j = 0; j < n; j += 32)
        for (int c = 0; c < width; c += 32) {
            add_blocks(sum, 32, true, weights.blocks + j / 32 * steps * BLOCK_WORDS, weights.count,
                       rows.blocks + c / 32 * steps * BLOCK_WORDS, rows.count, ROUND_UP(live, BLOCK_K) / BLOCK_K);
            for (int r = 0; r < min(32, n - j); r++)
                for (int i = 0; i < 32; i += LANES) {
                    *(global whole_floatv *)(to + (j + r) * step + c + i) += *(const floatv *)(sum + r * 32 + i);
                }
        }
}

#endif
#endif
