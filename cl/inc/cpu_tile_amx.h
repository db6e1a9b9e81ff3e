/* attention_cpu's tile of keys where AMX multiplies bfloat16: S^T = K Q^T and O^T += V^T P^T, both by tiles of 32 rows and
 * 32 queries.
 *
 *   KEY_TILE   a multiple of 32, and so is BLOCK
 *
 * Q^T and P^T are pairs (inc/cpu_pairs.h) and have the layout that AMX wants of lanes; K has that of rows as it lies.  V^T
 * is made in `scratch`: rows zipped two by two, squares of them transposed.  Keys must not lie in pages. */
#ifndef CLATTN_INC_CPU_TILE_AMX_H
#define CLATTN_INC_CPU_TILE_AMX_H

#include "inc/amx_products.h"
#include "inc/cpu_pairs.h"

#if TABLE || KEY_TILE % 32 != 0 || QUERY_VECTORS * LANES % 32 != 0
#error "AMX needs tiles of 32 keys and 32 queries, and no pages"
#endif

#define PAIR_ROW (KEY_TILE / 2)

typedef struct amx_scratch {
    uint value[ROUND_UP(D_V, 32) * PAIR_ROW]; /* V^T: pair i of keys of column c at c * PAIR_ROW + i */
    amx_state amx;
    amx_copy copy;
} amx_scratch;
#define SCRATCH_TYPE amx_scratch
#define SCRATCH 1

AMX_PRODUCTS(key_products, global, ANY_ROWS, private, WHOLE_LANES)
AMX_PRODUCTS(value_products, private, WHOLE_ROWS, private, WHOLE_LANES)

/* S^T of a tile, as inc/cpu_tile.h's score_tile. */
INLINE void scores_of(floatv *s, const floatv *q, const floatv *weight, const global ushort *key, SCRATCH_TYPE *scratch,
                      int start, int n, float factor, const attention_item *item, const attention_args *a,
                      const attention_side *side)
{
    const long row = a->key.row;
    key += attention_row(&a->key, item, start, a, side);
    for (int i = 0; i < ROUND_UP(n, 16) * QUERY_VECTORS; i++)
        s[i] = (floatv)(0.0f);
    for (int j = 0; j < n; j += 32)
        for (int l = 0; l < BLOCK; l += 32)
            key_products(&scratch->amx, &scratch->copy, (float *)s + j * BLOCK + l, BLOCK, key + j * row, row, n - j,
                         (const uint *)q + l, HALF(D_K), D_K % 2 == 0);
#if !RAW_SCORES
    for (int i = 0; i < n * QUERY_VECTORS; i++)
        s[i] *= factor;
#endif
}

/* V^T of keys start ... start + n - 1; pairs beyond them are 0, up to the next multiple of 16. */
INLINE void turn_values(uint *turned, const global ushort *value, int start, int n, const attention_item *item,
                        const attention_args *a, const attention_side *side)
{
    value += attention_row(&a->value, item, start, a, side);
    for (int i = 0; i < HALF(n); i += 16)
        for (int part = i; part < i + 16; part += LANES)
            for (int d = 0; d < ROUND_UP(D_V, 32); d += LANES) {
                floatv square[LANES];
                for (int l = 0; l < LANES; l++) {
                    const int j = 2 * (part + l);
                    square[l] = (floatv)(0.0f);
                    if (j < n && d < D_V)
                        square[l] = AS_FLOATV(zipped_values(value + j * a->value.row, value + min(j + 1, n - 1) * a->value.row,
                                                            j + 1 < n, d));
                }
                transpose(square);
                for (int c = 0; c < LANES; c++)
                    VSTORE(AS_UINTV(square[c]), 0, turned + (d + c) * PAIR_ROW + part);
            }
}

/* O^T = shrink * O^T + V^T P^T; P becomes pairs. */
INLINE void add_values(floatv *o, floatv *p, const floatv *shrink, const global ushort *value, SCRATCH_TYPE *scratch,
                       int start, int n, bool fresh, const attention_item *item, const attention_args *a,
                       const attention_side *side)
{
    const int steps = ROUND_UP(HALF(n), 16);
    turn_values(scratch->value, value, start, n, item, a, side);
    pair_weights(p, n, steps);
    for (int c = 0; c < ROUND_UP(D_V, 32); c++)
#pragma unroll
        for (int v = 0; v < QUERY_VECTORS; v++)
            if (fresh)
                o[c * QUERY_VECTORS + v] = (floatv)(0.0f);
            else
                o[c * QUERY_VECTORS + v] *= shrink[v];
    for (int c = 0; c < D_V; c += 32)
        for (int l = 0; l < BLOCK; l += 32)
            value_products(&scratch->amx, &scratch->copy, (float *)o + c * BLOCK + l, BLOCK,
                           (const ushort *)(scratch->value + c * PAIR_ROW), 2 * PAIR_ROW, 32, (const uint *)p + l, steps, 1);
}

#endif
