/* attention_cpu_decode's tile of keys: the two products, columns across the lanes.
 *
 *   BLOCK, KEY_TILE, KEY_STEP, UNIT_STRIDE, PREFETCH_DISTANCE   as attention/cpu/decode.cl says */
#ifndef CLATTN_CL_ATTENTION_CPU_DECODE_H
#define CLATTN_CL_ATTENTION_CPU_DECODE_H

#include "attention/cpu/block.h"
#include "attention/cpu/decode_columns.h"
#include "attention/cpu/keys.h"
#include "lib/shuffle.h"
#include "lib/tanh.h"

#define K_VECTORS (ROUND_UP(D_K, LANES) / LANES)
#define V_VECTORS (ROUND_UP(D_V, LANES) / LANES)
#define TILE_VECTORS (KEY_TILE / LANES)
/* Vectors of a row that are taken at once. Compilers unroll the whole row of a loop that they are asked to unroll in part, and
 * take seconds for a long one, so it is a loop around an unrolled one. The last vectors, of which one may be short, stand
 * alone, so that the others are loaded without a question. */
#if D_K <= 32 * LANES && D_V <= 32 * LANES
#define K_STEP K_VECTORS
#define V_STEP V_VECTORS
#define K_LOOPED K_VECTORS
#define V_LOOPED V_VECTORS
#else
#define K_STEP 4
#define V_STEP 4
#define K_LOOPED ((K_VECTORS - 1) / K_STEP * K_STEP)
#define V_LOOPED ((V_VECTORS - 1) / V_STEP * V_STEP)
#endif
#define VALUE_STEP 4 /* keys that an accumulator takes in between its load and its store */

/* Whether each key's row is looked up: a vector of keys may cross from one page to another. Otherwise the rows of a
 * vector of keys are a step apart, in one page or in none. */
#define BY_TABLE (TABLE && PAGE_SIZE % LANES != 0)

/* Where the rows of a tile of keys, and of their scales, lie. */
typedef struct tile_rows {
#if BY_TABLE
    long row[KEY_TILE], scale[KEY_TILE];
#else
    long step, scale_step;
#endif
} tile_rows;

INLINE void find_tile(tile_rows *rows, const array4 *array, const array4 *scale, int groups, int start, int n,
                      const attention_item *item, const attention_args *a, const optional_arrays *arrays)
{
#if BY_TABLE
    find_rows(rows->row, array, start, n, item, a, arrays);
    if (groups)
        find_rows(rows->scale, scale, start, n, item, a, arrays);
#else
    rows->step = array->row;
    rows->scale_step = scale->row;
#endif
}

/* Where the row of the vector's first key begins, if the others follow it. */
INLINE long vector_row(const array4 *array, int key, const attention_item *item, const attention_args *a,
                       const optional_arrays *arrays)
{
    return BY_TABLE ? 0 : attention_row(array, item, key, a, arrays);
}

/* Where the row of key j of the tile begins, the c-th of a vector whose first row begins at `first`. */
INLINE long row_at(const tile_rows *rows, long first, int j, int c)
{
#if BY_TABLE
    return rows->row[j];
#else
    return first + c * rows->step;
#endif
}

INLINE long scale_at(const tile_rows *rows, long first, int j, int c)
{
#if BY_TABLE
    return rows->scale[j];
#else
    return first + c * rows->scale_step;
#endif
}

#define PREFETCHES (PREFETCH_DISTANCE && UNIT_STRIDE && !BY_TABLE)

/* How many elements behind the row at `at`, key `key`'s, the row lies that comes PREFETCH_DISTANCE keys later, in
 * whatever page. Behind the last key there may be no array any more. */
INLINE long prefetch_distance(const array4 *array, long at, int key, const attention_item *item,
                              const attention_args *a, const optional_arrays *arrays)
{
#if PREFETCHES && TABLE
    const int later = min(key + PREFETCH_DISTANCE, (item->keys - 1) & ~(LANES - 1));
    return attention_row(array, item, later, a, arrays) - at;
#else
    return PREFETCH_DISTANCE * array->row;
#endif
}

/* Prefetches `bytes` behind element i of p, unless an earlier vector of the row has prefetched the same line: v is the
 * vector's number in its row. */
#if PREFETCHES
#define PREFETCH_VECTOR(TYPE, p, i, v, bytes) \
    do { \
        if (BYTES(TYPE, (v) * LANES) % 64 == 0) \
            PREFETCH((size_t)MOVED(TYPE, p, i) + (bytes)); \
    } while (0)
#else
#define PREFETCH_VECTOR(TYPE, p, i, v, bytes)
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

/* Where the rows of a vector of keys begin, for score_vector. */
typedef struct score_rows {
    const global ELEMENT(K_TYPE) *rows;
    long first, scales;
    size_t ahead; /* bytes from a row to the one that is prefetched with it */
    int last;     /* of the vector's keys that count */
} score_rows;

/* acc[k][r] += vector v's part of the score of row r and key j + c + k, for KEY_STEP keys. */
INLINE void score_vector(floatv (*acc)[BLOCK], const int v, const floatv *q, const floatv *weight, const score_rows *at,
                         const tile_rows *tile, int j, int c, const attention_args *a, const optional_arrays *arrays)
{
    const long col = UNIT_STRIDE ? 1 : a->key.col;
#pragma unroll
    for (int k = 0; k < KEY_STEP; k++) {
        const int i = min(c + k, at->last);
        floatv x;
        PREFETCH_VECTOR(K_TYPE, at->rows, i * tile->step + v * LANES, v, at->ahead);
        LOAD_ROW(K_TYPE, x, at->rows, row_at(tile, at->first, j + i, i) + v * LANES * col, col, D_K - v * LANES, 0.0f);
        x = scaled_key(x, KEY_GROUPS ? scale_at(tile, at->scales, j + i, i) : 0, v * LANES, a, arrays);
#pragma unroll
        for (int r = 0; r < BLOCK; r++)
#if ADDITIVE
            acc[k][r] = FMA(weight[r * K_VECTORS + v], tanhv(q[r * K_VECTORS + v] + x), acc[k][r]);
#else
            acc[k][r] = FMA(q[r * K_VECTORS + v], x, acc[k][r]);
#endif
    }
}

/* s[r * KEY_TILE + j] = scale * score of row r and key start + j, for j < n; what is beyond, up to the next multiple of
 * LANES, is anything. */
INLINE void score_keys(floatv *s, const floatv *q, const floatv *weight, const global ELEMENT(K_TYPE) *key, int start,
                       int n, const attention_item *item, const attention_args *a, const optional_arrays *arrays)
{
#if KEY_COLUMNS
    if (a->key.row == 1 && a->key.col != 1) {
        score_columns(s, q, key, attention_row(&a->key, item, start, a, arrays), n, a->key.col, a->scale);
        return;
    }
#endif
    tile_rows tile;

    find_tile(&tile, &a->key, &a->key_scale, KEY_GROUPS, start, n, item, a, arrays);
    for (int j = 0; j < n; j += LANES) {
        floatv part[BLOCK][LANES / 4];
#if KEY_STEP == 2
        floatv pair[BLOCK];
#endif
        const long row = vector_row(&a->key, start + j, item, a, arrays);
        score_rows at = {.rows = MOVED(K_TYPE, key, row), .first = REST(K_TYPE, row), .last = n - 1 - j};
        at.scales = KEY_GROUPS ? vector_row(&a->key_scale, start + j, item, a, arrays) : 0;
        at.ahead = BYTES(K_TYPE, prefetch_distance(&a->key, row - at.first, start + j, item, a, arrays));
        for (int c = 0; c < LANES; c += KEY_STEP) {
            floatv acc[KEY_STEP][BLOCK];
#pragma unroll
            for (int i = 0; i < KEY_STEP * BLOCK; i++)
                acc[i / BLOCK][i % BLOCK] = (floatv)(0.0f);
#pragma unroll 1
            for (int first = 0; first < K_LOOPED; first += K_STEP)
#pragma unroll
                for (int v = 0; v < K_STEP; v++)
                    score_vector(acc, first + v, q, weight, &at, &tile, j, c, a, arrays);
#pragma unroll
            for (int v = K_LOOPED; v < K_VECTORS; v++)
                score_vector(acc, v, q, weight, &at, &tile, j, c, a, arrays);
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

/* Where the rows of a vector of values begin, for add_keys. */
typedef struct value_rows {
    const global ELEMENT(V_TYPE) *rows;
    long first, scales;
    size_t ahead; /* bytes from a row to the one that is prefetched with it */
} value_rows;

/* Vector v of O += P V for `count` keys from j + c on, a literal. */
INLINE void add_vector(floatv *o, const int v, const float *p, const int count, const value_rows *at,
                       const tile_rows *tile, int j, int c, const attention_args *a, const optional_arrays *arrays)
{
    const long col = UNIT_STRIDE ? 1 : a->value.col;
    floatv x[VALUE_STEP];
#pragma unroll
    for (int k = 0; k < count; k++) {
        PREFETCH_VECTOR(V_TYPE, at->rows, (c + k) * tile->step + v * LANES, v, at->ahead);
        LOAD_ROW(V_TYPE, x[k], at->rows, row_at(tile, at->first, j + c + k, c + k) + v * LANES * col, col,
                 D_V - v * LANES, 0.0f);
        x[k] =
            scaled_value(x[k], VALUE_GROUPS ? scale_at(tile, at->scales, j + c + k, c + k) : 0, v * LANES, a, arrays);
    }
#pragma unroll
    for (int r = 0; r < BLOCK; r++) {
        floatv acc = o[r * V_VECTORS + v];
#pragma unroll
        for (int k = 0; k < count; k++)
            acc = FMA((floatv)(p[r * KEY_TILE + j + c + k]), x[k], acc);
        o[r * V_VECTORS + v] = acc;
    }
}

/* O += P V for such keys. */
INLINE void add_keys(floatv *o, const float *p, const int count, const value_rows *at, const tile_rows *tile, int j,
                     int c, const attention_args *a, const optional_arrays *arrays)
{
#pragma unroll 1
    for (int first = 0; first < V_LOOPED; first += V_STEP)
#pragma unroll
        for (int v = 0; v < V_STEP; v++)
            add_vector(o, first + v, p, count, at, tile, j, c, a, arrays);
#pragma unroll
    for (int v = V_LOOPED; v < V_VECTORS; v++)
        add_vector(o, v, p, count, at, tile, j, c, a, arrays);
}

/* O += P V. */
INLINE void add_values(floatv *o, const float *p, const global ELEMENT(V_TYPE) *value, int start, int n,
                       const attention_item *item, const attention_args *a, const optional_arrays *arrays)
{
#if VALUE_COLUMNS
    if (a->value.row == 1 && a->value.col != 1) {
        add_columns(o, p, value, attention_row(&a->value, item, start, a, arrays), n, a->value.col);
        return;
    }
#endif
    tile_rows tile;

    find_tile(&tile, &a->value, &a->value_scale, VALUE_GROUPS, start, n, item, a, arrays);
    for (int j = 0; j < n; j += LANES) {
        const long row = vector_row(&a->value, start + j, item, a, arrays);
        value_rows at = {.rows = MOVED(V_TYPE, value, row), .first = REST(V_TYPE, row)};
        at.scales = VALUE_GROUPS ? vector_row(&a->value_scale, start + j, item, a, arrays) : 0;
        at.ahead = BYTES(V_TYPE, prefetch_distance(&a->value, row - at.first, start + j, item, a, arrays));
        if (n - j >= LANES)
            for (int c = 0; c < LANES; c += VALUE_STEP)
                add_keys(o, p, VALUE_STEP, &at, &tile, j, c, a, arrays);
        else
            for (int c = 0; c < n - j; c++)
                add_keys(o, p, 1, &at, &tile, j, c, a, arrays);
    }
}

#endif
