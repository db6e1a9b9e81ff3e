/* attention_cpu's tile of keys where Q, K and V are bfloat16 and are multiplied two by two: what attention/cpu/tile.h does
 * otherwise.
 *
 *   KEY_TILE, KEY_STEP, COLUMN_STEP   as attention/cpu/lanes.cl says
 *
 * Q^T and P^T are pairs (attention/cpu/bf16_pairs.h).  K is read as it lies, 32 bits at a time; V's rows are zipped, two by two, into
 * `scratch`. */
#ifndef CLATTN_CL_ATTENTION_CPU_TILE_BF16_H
#define CLATTN_CL_ATTENTION_CPU_TILE_BF16_H

#include "attention/cpu/bf16_pairs.h"
#include "attention/cpu/keys.h"
#include "attention/cpu/lanes.h"

#if PAIRS

#define COLUMN_REST (D_V % COLUMN_STEP)
#define VALUE_ROW ROUND_UP(D_V, LANES)

#define SCRATCH_TYPE uintv
#define SCRATCH (HALF(KEY_TILE) * VALUE_ROW / LANES)

/* The products of columns 2c and 2c + 1, or of 2c alone, of KEY_STEP keys. */
INLINE void add_pairs(floatv acc[KEY_STEP][QUERY_VECTORS], const floatv *q, const global ushort *key,
                      const long at[KEY_STEP], int c, int whole)
{
#pragma unroll
    for (int r = 0; r < KEY_STEP; r++) {
        const uintv k = (uintv)pair_at(key + at[r] + 2 * c, 1, whole);
#pragma unroll
        for (int v = 0; v < QUERY_VECTORS; v++)
            acc[r][v] = dot2(acc[r][v], k, AS_UINTV(q[c * QUERY_VECTORS + v]));
    }
}

/* S^T of a tile, as attention/cpu/tile.h's score_tile. */
INLINE void scores_of(floatv *s, const floatv *q, const floatv *weight, const global ushort *key, SCRATCH_TYPE *scratch,
                      int start, int n, float factor, const attention_item *item, const attention_args *a,
                      const optional_arrays *arrays)
{
    key_rows rows;
    find_key_rows(&rows, &a->key, start, n, item, a, arrays);
    for (int j = 0; j < n; j += KEY_STEP) {
        floatv acc[KEY_STEP][QUERY_VECTORS];
        long at[KEY_STEP];
#pragma unroll
        for (int r = 0; r < KEY_STEP; r++) {
            at[r] = key_row(&rows, min(j + r, n - 1));
#pragma unroll
            for (int v = 0; v < QUERY_VECTORS; v++)
                acc[r][v] = (floatv)(0.0f);
        }
        for (int c = 0; c < D_K / 2; c++)
            add_pairs(acc, q, key, at, c, 1);
        if (D_K % 2)
            add_pairs(acc, q, key, at, D_K / 2, 0);
#pragma unroll
        for (int r = 0; r < KEY_STEP; r++)
#pragma unroll
            for (int v = 0; v < QUERY_VECTORS; v++)
                s[(j + r) * QUERY_VECTORS + v] = RAW_SCORES ? acc[r][v] : acc[r][v] * factor;
    }
}

/* Rows 2i and 2i + 1 of keys start ... start + n - 1, zipped; behind an odd n's last row is 0. */
INLINE void zip_values(uintv *scratch, const global ushort *value, int start, int n, const attention_item *item,
                       const attention_args *a, const optional_arrays *arrays)
{
    key_rows rows;
    find_key_rows(&rows, &a->value, start, n, item, a, arrays);
    for (int i = 0; i < HALF(n); i++) {
        const global ushort *even = value + key_row(&rows, 2 * i);
        const global ushort *odd = value + key_row(&rows, min(2 * i + 1, n - 1));

#pragma unroll
        for (int d = 0; d < VALUE_ROW; d += LANES)
            scratch[(i * VALUE_ROW + d) / LANES] = zipped_values(even, odd, 2 * i + 1 < n, d);
    }
}

/* O^T = rescale * O^T + V^T P^T for `columns` <= COLUMN_STEP columns of V, a literal, and `count` pairs of keys. */
INLINE void value_columns(floatv *o, const int columns, const floatv *p, const uint *value, int count,
                          const floatv *rescale, bool fresh)
{
    floatv acc[COLUMN_STEP][QUERY_VECTORS];

    begin_columns(acc, o, columns, rescale, fresh);
    for (int i = 0; i < count; i++)
#pragma unroll
        for (int c = 0; c < columns; c++) {
            const uintv x = (uintv)(value[i * VALUE_ROW + c]);
#pragma unroll
            for (int v = 0; v < QUERY_VECTORS; v++)
                acc[c][v] = dot2(acc[c][v], x, AS_UINTV(p[i * QUERY_VECTORS + v]));
        }
    end_columns(o, acc, columns);
}

/* O^T = rescale * O^T + V^T P^T; P becomes pairs. */
INLINE void add_values(floatv *o, floatv *p, const floatv *rescale, const global ushort *value, SCRATCH_TYPE *scratch,
                       int start, int n, bool fresh, const attention_item *item, const attention_args *a,
                       const optional_arrays *arrays)
{
    zip_values(scratch, value, start, n, item, a, arrays);
    pair_weights(p, n, HALF(n));
    for (int c = 0; c + COLUMN_STEP <= D_V; c += COLUMN_STEP)
        value_columns(o + c * QUERY_VECTORS, COLUMN_STEP, p, (const uint *)scratch + c, HALF(n), rescale, fresh);
#if COLUMN_REST > 0
    const int rest = D_V - COLUMN_REST;
    value_columns(o + rest * QUERY_VECTORS, COLUMN_REST, p, (const uint *)scratch + rest, HALF(n), rescale, fresh);
#endif
}

#endif
#endif
