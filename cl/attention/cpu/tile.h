/* attention_cpu's tile of keys: where its rows of K and V lie, and the two products.
 *
 *   KEY_TILE, KEY_STEP, COLUMN_STEP, UNIT_STRIDE, PACK    as attention/cpu/lanes.cl says
 *
 * The register tiles read row j of a tile at `p + AT(rows, row, j)`: from a table with a paged cache that is not packed,
 * else `row` apart.  One that walks from row to row has it at `p + AT_TABLE(rows, j)`, p being moved on by AT_NEXT(row).
 * A ring's tile never crosses the ring's end. */
#ifndef CLATTN_CL_ATTENTION_CPU_TILE_H
#define CLATTN_CL_ATTENTION_CPU_TILE_H

#include "attention/cpu/keys.h"
#include "attention/cpu/lanes.h"
#include "lib/tanh.h"

#if !PAIRS

#ifndef PACK
#define PACK (!(UNIT_STRIDE && IS_F32(K_TYPE) && IS_F32(V_TYPE)))
#endif

#define COLUMN_REST (D_V % COLUMN_STEP)

/* What the register tiles read: the arrays themselves, or the packed tile. */
#if PACK
#define KEY_POINTER const float *
#define VALUE_POINTER const float *
#define LOAD_KEY(p, i) ((p)[i])
#define LOAD_VALUE(p, i) ((p)[i])
#else
#define KEY_POINTER const global ELEMENT(K_TYPE) *
#define VALUE_POINTER const global ELEMENT(V_TYPE) *
#define LOAD_KEY(p, i) LOAD(K_TYPE, p, i)
#define LOAD_VALUE(p, i) LOAD(V_TYPE, p, i)
#endif
#if TABLE && !PACK
#define AT(rows, row, j) ((rows)[j])
#define AT_TABLE(rows, j) ((rows)[j])
#define AT_NEXT(row) 0
#else
#define AT(rows, row, j) ((j) * (row))
#define AT_TABLE(rows, j) 0
#define AT_NEXT(row) (row)
#endif
#define PACK_ROW ROUND_UP((D_K > D_V ? D_K : D_V), LANES)

#if PACK
/* Whether neighbours in memory may be a column's neighbouring keys: vectors of them are then transposed. */
#define COLUMNS_LIE_APART (!UNIT_STRIDE && !TABLE)

/* Keys start ... start + n - 1 of K as floats, PACK_ROW apart. */
INLINE void pack_keys(float *tile, const global ELEMENT(K_TYPE) *key, int start, int n, const attention_item *item,
                      const attention_args *a, const optional_arrays *arrays)
{
    const long col = UNIT_STRIDE ? 1 : a->key.col;
    key_rows rows, scales;
    find_key_rows(&rows, &a->key, start, n, item, a, arrays);
    if (KEY_GROUPS)
        find_key_rows(&scales, &a->key_scale, start, n, item, a, arrays);
#if COLUMNS_LIE_APART && !KEY_GROUPS
    if (a->key.row == 1 && col != 1 && n >= LANES) {
        for (int d = 0; d < D_K; d += LANES)
            for (int step = 0; step < n; step += LANES) {
                const int j = min(step, n - LANES);
                floatv x[LANES];
                LOAD_TRANSPOSED(K_TYPE, x, key, key_row(&rows, j) + d * col, col, D_K - d);
                for (int k = 0; k < LANES; k++)
                    STORE_WHOLE(whole_floatv, tile + (j + k) * PACK_ROW + d, x[k]);
            }
        return;
    }
#endif
    for (int j = 0; j < n; j++) {
        const long at = key_row(&rows, j), scale_at = KEY_GROUPS ? key_row(&scales, j) : 0;
        for (int d = 0; d < D_K; d += LANES) {
            floatv x;
            LOAD_ROW(K_TYPE, x, key, at + d * col, col, D_K - d, 0.0f);
            x = scaled_key(x, scale_at, d, a, arrays);
            STORE_WHOLE(whole_floatv, tile + j * PACK_ROW + d, x);
        }
    }
}

/* Packs a tile of V likewise. */
INLINE void pack_values(float *tile, const global ELEMENT(V_TYPE) *value, int start, int n, const attention_item *item,
                        const attention_args *a, const optional_arrays *arrays)
{
    const long col = UNIT_STRIDE ? 1 : a->value.col;
    key_rows rows, scales;
    find_key_rows(&rows, &a->value, start, n, item, a, arrays);
    if (VALUE_GROUPS)
        find_key_rows(&scales, &a->value_scale, start, n, item, a, arrays);
#if COLUMNS_LIE_APART && !VALUE_GROUPS
    if (a->value.row == 1 && col != 1 && n >= LANES) {
        for (int d = 0; d < D_V; d += LANES)
            for (int step = 0; step < n; step += LANES) {
                const int j = min(step, n - LANES);
                floatv x[LANES];
                LOAD_TRANSPOSED(V_TYPE, x, value, key_row(&rows, j) + d * col, col, D_V - d);
                for (int k = 0; k < LANES; k++)
                    STORE_WHOLE(whole_floatv, tile + (j + k) * PACK_ROW + d, x[k]);
            }
        return;
    }
#endif
    for (int j = 0; j < n; j++) {
        const long at = key_row(&rows, j), scale_at = VALUE_GROUPS ? key_row(&scales, j) : 0;
        for (int d = 0; d < D_V; d += LANES) {
            floatv x;
            LOAD_ROW(V_TYPE, x, value, at + d * col, col, D_V - d, 0.0f);
            x = scaled_value(x, scale_at, d, a, arrays);
            STORE_WHOLE(whole_floatv, tile + j * PACK_ROW + d, x);
        }
    }
}
#endif

#if ADDITIVE
/* The additive score's vector for the heads of the rows: weight[d * QUERY_VECTORS + v]. */
INLINE void load_weights(floatv *weight, const attention_block *block, const attention_args *a,
                         const optional_arrays *arrays)
{
    for (int v = 0; v < QUERY_VECTORS; v++)
        for (int d = 0; d < D_K; d++) {
            float lane[LANES];
            for (int l = 0; l < LANES; l++)
                lane[l] =
                    arrays->vector[a->vector.offset + ROW_HEAD(block, LIVE_ROW(block, v * LANES + l)) * a->vector.row +
                                   d * a->vector.col];
            weight[d * QUERY_VECTORS + v] = VLOAD(0, lane);
        }
}

/* sum + weight * tanh(q + k) of `count` columns, a literal; the first column of the key's is at `at`. */
INLINE floatv add_terms(floatv sum, const int count, const floatv *q, const floatv *weight, KEY_POINTER key, long at,
                        long col)
{
    floatv x[TANH_MOST];

#pragma unroll
    for (int d = 0; d < count; d++)
        x[d] = q[d * QUERY_VECTORS] + LOAD_KEY(key, at + d * col);
    tanh_each(x, count);
#pragma unroll
    for (int d = 0; d < count; d++)
        sum = FMA(weight[d * QUERY_VECTORS], x[d], sum);
    return sum;
}

/* s[j * QUERY_VECTORS + v] = factor * sum_d weight * tanh(q + k), for keys j < n. */
INLINE void score_tile(floatv *s, const floatv *q, const floatv *weight, KEY_POINTER key, const long *rows, int n,
                       long row, long col, float factor)
{
    for (int j = 0; j < n; j++) {
        const long at = AT(rows, row, j);
        for (int v = 0; v < QUERY_VECTORS; v++) {
            floatv acc = (floatv)(0.0f);
            for (int d = 0; d + TANH_MOST <= D_K; d += TANH_MOST)
                acc = add_terms(acc, TANH_MOST, q + d * QUERY_VECTORS + v, weight + d * QUERY_VECTORS + v, key,
                                at + d * col, col);
            if (D_K % TANH_MOST != 0) {
                const int d = D_K - D_K % TANH_MOST;
                acc = add_terms(acc, D_K % TANH_MOST, q + d * QUERY_VECTORS + v, weight + d * QUERY_VECTORS + v, key,
                                at + d * col, col);
            }
            s[j * QUERY_VECTORS + v] = RAW_SCORES ? acc : acc * factor;
        }
    }
}
#else
/* S^T of a tile: s[j * QUERY_VECTORS + v] = factor * dot product, for keys j < n; the rows up to the next
 * multiple of KEY_STEP get copies of the last. */
INLINE void score_tile(floatv *s, const floatv *q, const floatv *weight, KEY_POINTER key, const long *rows, int n,
                       long row, long col, float factor)
{
    for (int j = 0; j < n; j += KEY_STEP) {
        floatv acc[KEY_STEP][QUERY_VECTORS];
        /* Pointers and one index for all: indices LLVM 15 adds four at a time in a vector and takes them apart again, nine
         * instructions on an Intel core's two ports for multiply-adds. */
        KEY_POINTER at[KEY_STEP];
#pragma unroll
        for (int r = 0; r < KEY_STEP; r++) {
            at[r] = key + AT(rows, row, min(j + r, n - 1));
#pragma unroll
            for (int v = 0; v < QUERY_VECTORS; v++)
                acc[r][v] = (floatv)(0.0f);
        }
        UNROLLED
        for (int d = 0; d < D_K; d++) {
#pragma unroll
            for (int r = 0; r < KEY_STEP; r++) {
                const floatv k = (floatv)(LOAD_KEY(at[r], d * col));
#pragma unroll
                for (int v = 0; v < QUERY_VECTORS; v++)
                    acc[r][v] = FMA(k, q[d * QUERY_VECTORS + v], acc[r][v]);
            }
        }
#pragma unroll
        for (int r = 0; r < KEY_STEP; r++)
#pragma unroll
            for (int v = 0; v < QUERY_VECTORS; v++)
                s[(j + r) * QUERY_VECTORS + v] = RAW_SCORES ? acc[r][v] : acc[r][v] * factor;
    }
}
#endif

/* O^T = rescale * O^T + V^T P^T for `columns` <= COLUMN_STEP columns of V, a literal, and keys j < n; `fresh`: O^T is not
 * there yet and counts as 0. */
INLINE void value_columns(floatv *o, const int columns, const floatv *p, VALUE_POINTER value, const long *rows, int n,
                          long row, long col, const floatv *rescale, bool fresh)
{
    floatv acc[COLUMN_STEP][QUERY_VECTORS];

    begin_columns(acc, o, columns, rescale, fresh);
    UNROLLED
    for (int j = 0; j < n; j++, p += QUERY_VECTORS, value += AT_NEXT(row)) {
        VALUE_POINTER at = value + AT_TABLE(rows, j);

#pragma unroll
        for (int c = 0; c < columns; c++) {
            const floatv x = (floatv)(LOAD_VALUE(at, c * col));
#pragma unroll
            for (int v = 0; v < QUERY_VECTORS; v++)
                acc[c][v] = FMA(x, p[v], acc[c][v]);
        }
    }
    end_columns(o, acc, columns);
}

/* ---- both products of keys start ... start + n - 1, by whatever way their rows are reached ---- */

/* Room for a packed tile, or for the table of its rows. */
#if PACK
#define SCRATCH_TYPE floatv
#define SCRATCH (KEY_TILE * PACK_ROW / LANES)
#elif TABLE
#define SCRATCH_TYPE long
#define SCRATCH KEY_TILE
#else
#define SCRATCH_TYPE long
#define SCRATCH 1
#endif

/* S^T; `weight` counts with ADDITIVE only. */
INLINE void scores_of(floatv *s, const floatv *q, const floatv *weight, const global ELEMENT(K_TYPE) *key,
                      SCRATCH_TYPE *scratch, int start, int n, float factor, const attention_item *item,
                      const attention_args *a, const optional_arrays *arrays)
{
#if PACK
    pack_keys((float *)scratch, key, start, n, item, a, arrays);
    score_tile(s, q, weight, (const float *)scratch, 0, n, PACK_ROW, 1, factor);
#else
    const long col = UNIT_STRIDE ? 1 : a->key.col;
#if TABLE
    find_rows(scratch, &a->key, start, n, item, a, arrays);
#else
    key += attention_row(&a->key, item, start, a, arrays);
#endif
    score_tile(s, q, weight, key, scratch, n, a->key.row, col, factor);
#endif
}

/* O^T = rescale * O^T + V^T P^T; `fresh` as above. */
INLINE void add_values(floatv *o, const floatv *p, const floatv *rescale, const global ELEMENT(V_TYPE) *value,
                       SCRATCH_TYPE *scratch, int start, int n, bool fresh, const attention_item *item,
                       const attention_args *a, const optional_arrays *arrays)
{
#if PACK
    const long *rows = 0;
    const long row = PACK_ROW, col = 1;
    const float *values = (const float *)scratch;
    pack_values((float *)scratch, value, start, n, item, a, arrays);
#else
    const long *rows = scratch;
    const long row = a->value.row, col = UNIT_STRIDE ? 1 : a->value.col;
    const global ELEMENT(V_TYPE) *values = value;
#if TABLE
    find_rows(scratch, &a->value, start, n, item, a, arrays);
#else
    values += attention_row(&a->value, item, start, a, arrays);
#endif
#endif
    for (int c = 0; c + COLUMN_STEP <= D_V; c += COLUMN_STEP)
        value_columns(o + c * QUERY_VECTORS, COLUMN_STEP, p, values + c * col, rows, n, row, col, rescale, fresh);
#if COLUMN_REST > 0
    const int rest = D_V - COLUMN_REST;
    value_columns(o + rest * QUERY_VECTORS, COLUMN_REST, p, values + rest * col, rows, n, row, col, rescale, fresh);
#endif
}

#endif
#endif
