/* attention_cpu's block: queries across vector lanes, and their way in and out.
 *
 *   LANES, QUERY_VECTORS   inc/vector.h and attention_cpu.cl; BLOCK = LANES * QUERY_VECTORS rows */
#ifndef CLATTN_INC_CPU_LANES_H
#define CLATTN_INC_CPU_LANES_H

#define BLOCK (QUERY_VECTORS * LANES)

#include "inc/cpu_block.h"

/* Vector v's queries, counted from row 0's. */
INLINE intv block_queries(const attention_block *block, int v)
{
#if GROUPED
    return JOIN(vload, LANES)(v, block->query);
#else
    (void)block;
    return LANE_INDEX + v * LANES;
#endif
}

/* Q^T of the block, q[d * QUERY_VECTORS + v]; at least one row is live. */
INLINE void load_queries(floatv *q, const global ELEMENT(Q_TYPE) *query, const attention_block *block,
                         const attention_args *a)
{
    const long start = attention_query_row(&a->query, &block->item, block->first), col = a->query.col;

    for (int v = 0; v < QUERY_VECTORS; v++) {
        for (int d = 0; d < D_K; d += LANES) {
            floatv x[LANES];
            for (int r = 0; r < LANES; r++)
                LOAD_ROW(Q_TYPE, x[r], query, start + LIVE_OFFSET(block, &a->query, v * LANES + r) + d * col, col, D_K - d,
                         0.0f);
            transpose(x);
            for (int c = 0; c < LANES; c++)
                q[(d + c) * QUERY_VECTORS + v] = x[c];
        }
    }
}

/* O of the block from O^T, o[c * QUERY_VECTORS + v], each lane times its factor; lanes whose factor is 0 have attended
 * nothing and get +0 whatever the accumulator holds. */
INLINE void store_output(global ELEMENT(O_TYPE) *output, const floatv *o, const floatv *factor,
                         const attention_block *block, const attention_args *a)
{
    const long start = attention_result_row(&a->output, &block->item, block->first), col = a->output.col;

    for (int v = 0; v < QUERY_VECTORS; v++) {
        for (int d = 0; d < D_V; d += LANES) {
            floatv x[LANES];
            for (int c = 0; c < LANES; c++)
                x[c] = select(o[(d + c) * QUERY_VECTORS + v] * factor[v], (floatv)(0.0f), factor[v] == 0.0f);
            transpose(x);
            for (int r = 0; r < LANES && v * LANES + r < block->rows; r++) {
                const long at = start + ROW_OFFSET(block, &a->output, v * LANES + r) + d * col;
                if (D_V - d >= LANES && col == 1) {
                    STOREV(O_TYPE, output, at, x[r]);
                } else {
                    float lane[LANES];
                    VSTORE(x[r], 0, lane);
                    for (int c = 0; c < LANES && d + c < D_V; c++)
                        STORE(O_TYPE, output, at + c * col, lane[c]);
                }
            }
        }
    }
}

/* One number a row, x[v], into lse or entropy. */
INLINE void store_rows(global float *result, const floatv *x, const attention_block *block, const array4 *array)
{
    const long start = attention_result_row(array, &block->item, block->first);

    for (int v = 0; v < QUERY_VECTORS; v++) {
        float lane[LANES];
        VSTORE(x[v], 0, lane);
        for (int l = 0; l < LANES && v * LANES + l < block->rows; l++)
            result[start + ROW_OFFSET(block, array, v * LANES + l)] = lane[l];
    }
}

#endif
