/* attention_cpu_decode's tile of keys: the two products, columns across the lanes.
 *
 *   BLOCK, KEY_TILE, KEY_STEP, VALUE_STEP, UNIT_STRIDE, AHEAD   as attention/cpu/decode.cl says */
#ifndef CLATTN_CL_ATTENTION_CPU_DECODE_H
#define CLATTN_CL_ATTENTION_CPU_DECODE_H

#include "attention/cpu/block.h"
#include "attention/cpu/keys.h"
#include "lib/shuffle.h"
#include "lib/tanh.h"

#define K_VECTORS (ROUND_UP(D_K, LANES) / LANES)
#define V_VECTORS (ROUND_UP(D_V, LANES) / LANES)
#define TILE_VECTORS (KEY_TILE / LANES)

/* FIND_TILE and then, for each vector of keys, FIND_VECTOR say where the rows of an array and of its scales lie: key j + c's
 * at `rows` + ROW_AT(c) and at SCALES_AT(c).  A vector of keys lies in one page, or there is a table. */
#define BY_TABLE (TABLE && PAGE_SIZE % LANES != 0)
#if BY_TABLE
#define FIND_TILE(array, scale, GROUPS) \
    long row_at[KEY_TILE], scales[KEY_TILE]; \
    find_rows(row_at, &a->array, start, n, item, a, side); \
    if (GROUPS) \
    find_rows(scales, &a->scale, start, n, item, a, side)
#define FIND_VECTOR(TYPE, array, scale, GROUPS) const global ELEMENT(TYPE) *rows = array
#define ROW_AT(c) row_at[j + (c)]
#define SCALES_AT(c) scales[j + (c)]
#else
#define FIND_TILE(array, scale, GROUPS) const long step = a->array.row, scale_step = a->scale.row
#define FIND_VECTOR(TYPE, array, scale, GROUPS) \
    const long at_ = attention_row(&a->array, item, start + j, a, side), first = REST(TYPE, at_); \
    const global ELEMENT(TYPE) *rows = MOVED(TYPE, array, at_); \
    const long scale_row = GROUPS ? attention_row(&a->scale, item, start + j, a, side) : 0
#define ROW_AT(c) (first + (c) * step)
#define SCALES_AT(c) (scale_row + (c) * scale_step)
#endif

/* For each vector of keys FIND_AHEAD says how many bytes behind them the rows lie that come AHEAD keys later, in whatever
 * page, and ASK_AHEAD(c, v) asks for the memory of vector v of the c-th of those, a line of 64 bytes once.  Behind the last
 * key it may be none of the array's. */
#if AHEAD && UNIT_STRIDE && !BY_TABLE
#if TABLE
#define FIND_AHEAD(TYPE, array) \
    const int later_ = min(start + j + AHEAD, (item->keys - 1) & ~(LANES - 1)); \
    const size_t ahead = BYTES(TYPE, attention_row(&a->array, item, later_, a, side) - (at_ - first))
#else
#define FIND_AHEAD(TYPE, array) const size_t ahead = BYTES(TYPE, AHEAD * step)
#endif
#define ASK_AHEAD(TYPE, c, v) \
    do { \
        if (BYTES(TYPE, (v) * LANES) % 64 == 0) \
            PREFETCH((size_t)MOVED(TYPE, rows, (c) * step + (v) * LANES) + ahead); \
    } while (0)
#else
#define FIND_AHEAD(TYPE, array)
#define ASK_AHEAD(TYPE, c, v)
#endif

/* The sums of LANES vectors, begun with KEY_STEP of them as they come out of the registers, so that a quarter of the vectors
 * goes through memory: within each four lanes add_pair makes two sums of two vectors, add_four four of four out of two
 * such; sum_fours adds up the fours of lanes.  Lane l of the result is the sum of vector l. */
INLINE floatv add_pair(floatv x, floatv y)
{
    return pair_low(x, y) + pair_high(x, y);
}

INLINE floatv add_four(floatv x, floatv y)
{
    return four_low(x, y) + four_high(x, y);
}

#if LANES > 4
INLINE floatv add_fours(floatv x, floatv y)
{
    return even_fours(x, y) + odd_fours(x, y);
}
#endif

/* Four lanes a vector of x, LANES / 4 vectors, become the sums of LANES vectors. */
INLINE floatv sum_fours(const floatv *x)
{
#if LANES == 16
    const floatv low = add_fours(x[0], x[1]), high = add_fours(x[2], x[3]);
    return add_fours(low, high);
#elif LANES == 8
    return add_fours(x[0], x[1]);
#else
    return x[0];
#endif
}

/* s[r * KEY_TILE + j] = scale * score of row r and key start + j, for j < n; what is beyond, up to the next multiple of
 * LANES, repeats the last key. */
INLINE void score_keys(floatv *s, const floatv *q, const floatv *weight, const global ELEMENT(K_TYPE) *key, int start,
                       int n, const attention_item *item, const attention_args *a, const attention_side *side)
{
    const long col = UNIT_STRIDE ? 1 : a->key.col;
    FIND_TILE(key, key_scale, KEY_GROUPS);

    for (int j = 0; j < n; j += LANES) {
        floatv part[BLOCK][LANES / 4];
#if KEY_STEP == 2
        floatv pair[BLOCK];
#endif
        FIND_VECTOR(K_TYPE, key, key_scale, KEY_GROUPS);
        FIND_AHEAD(K_TYPE, key);
        for (int c = 0; c < LANES; c += KEY_STEP) {
            floatv acc[KEY_STEP][BLOCK];
#pragma unroll
            for (int v = 0; v < K_VECTORS; v++)
#pragma unroll
                for (int k = 0; k < KEY_STEP; k++) {
                    const int at = min(c + k, n - 1 - j);
                    floatv x;
                    ASK_AHEAD(K_TYPE, at, v);
                    LOAD_ROW(K_TYPE, x, rows, ROW_AT(at) + v * LANES * col, col, D_K - v * LANES, 0.0f);
                    SCALE_KEY(x, SCALES_AT(at), v * LANES);
#pragma unroll
                    for (int r = 0; r < BLOCK; r++)
#if ADDITIVE
                        if (v == 0)
                            acc[k][r] = weight[r * K_VECTORS] * tanhv(q[r * K_VECTORS] + x);
                        else
                            acc[k][r] = FMA(weight[r * K_VECTORS + v], tanhv(q[r * K_VECTORS + v] + x), acc[k][r]);
#else
                        if (v == 0)
                            acc[k][r] = q[r * K_VECTORS] * x;
                        else
                            acc[k][r] = FMA(q[r * K_VECTORS + v], x, acc[k][r]);
#endif
                }
#pragma unroll
            for (int r = 0; r < BLOCK; r++) {
#if KEY_STEP == 4
                const floatv first = add_pair(acc[0][r], acc[1][r]), second = add_pair(acc[2][r], acc[3][r]);
                part[r][c >> 2] = add_four(first, second);
#else
                const floatv second = add_pair(acc[0][r], acc[1][r]);
                if ((c & 2) == 0)
                    pair[r] = second;
                else
                    part[r][c >> 2] = add_four(pair[r], second);
#endif
            }
        }
#pragma unroll
        for (int r = 0; r < BLOCK; r++)
            s[r * TILE_VECTORS + j / LANES] = sum_fours(part[r]) * a->scale;
    }
}

/* O += P V for `count` keys from j + c on, a literal. */
#define ADD_VALUES(count) \
    do { \
        _Pragma("unroll") \
        for (int v = 0; v < V_VECTORS; v++) { \
            floatv x[count]; \
            _Pragma("unroll") \
            for (int k = 0; k < (count); k++) { \
                ASK_AHEAD(V_TYPE, c + k, v); \
                LOAD_ROW(V_TYPE, x[k], rows, ROW_AT(c + k) + v * LANES * col, col, D_V - v * LANES, 0.0f); \
                SCALE_VALUE(x[k], SCALES_AT(c + k), v *LANES); \
            } \
            _Pragma("unroll") \
            for (int r = 0; r < BLOCK; r++) { \
                floatv acc = o[r * V_VECTORS + v]; \
                _Pragma("unroll") \
                for (int k = 0; k < (count); k++) \
                    acc = FMA((floatv)(p[r * KEY_TILE + j + c + k]), x[k], acc); \
                o[r * V_VECTORS + v] = acc; \
            } \
        } \
    } while (0)

/* O += P V. */
INLINE void add_values(floatv *o, const float *p, const global ELEMENT(V_TYPE) *value, int start, int n,
                       const attention_item *item, const attention_args *a, const attention_side *side)
{
    const long col = UNIT_STRIDE ? 1 : a->value.col;
    FIND_TILE(value, value_scale, VALUE_GROUPS);

    for (int j = 0; j < n; j += LANES) {
        FIND_VECTOR(V_TYPE, value, value_scale, VALUE_GROUPS);
        FIND_AHEAD(V_TYPE, value);
        if (n - j >= LANES)
            for (int c = 0; c < LANES; c += VALUE_STEP)
                ADD_VALUES(VALUE_STEP);
        else
            for (int c = 0; c < n - j; c++)
                ADD_VALUES(1);
    }
}

#endif
