/* attention_cpu's block: queries across vector lanes, and their way in and out.
 *
 *   LANES, QUERY_VECTORS   lib/vector.h and attention/cpu/lanes.cl; BLOCK = LANES * QUERY_VECTORS rows
 *   PREFETCHES             1: the compiler has __builtin_prefetch (0)
 *   PAIRS                  as attention/cpu/lanes.cl says (0) */
#ifndef CLATTN_CL_ATTENTION_CPU_LANES_H
#define CLATTN_CL_ATTENTION_CPU_LANES_H

#define BLOCK (QUERY_VECTORS * LANES)
#ifndef PREFETCHES
#define PREFETCHES 0
#endif
#ifndef PAIRS
#define PAIRS 0
#endif

#include "attention/cpu/block.h"

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

/* Sums to come of `columns` columns of O^T, a literal: rescale * O^T, or 0 of one that is `fresh`; and their way back. */
INLINE void begin_columns(floatv (*acc)[QUERY_VECTORS], const floatv *o, const int columns, const floatv *rescale,
                          bool fresh)
{
#pragma unroll
    for (int c = 0; c < columns; c++)
#pragma unroll
        for (int v = 0; v < QUERY_VECTORS; v++)
            if (fresh)
                acc[c][v] = (floatv)(0.0f);
            else
                acc[c][v] = o[c * QUERY_VECTORS + v] * rescale[v];
}

INLINE void end_columns(floatv *o, floatv (*acc)[QUERY_VECTORS], const int columns)
{
#pragma unroll
    for (int c = 0; c < columns; c++)
#pragma unroll
        for (int v = 0; v < QUERY_VECTORS; v++)
            o[c * QUERY_VECTORS + v] = acc[c][v];
}

/* Rows of `size` columns go in steps of LANES columns; where that is no multiple, but more, the last step ends with the row and
 * takes some of the step before again.  Of 5 to 32 steps a row is moved at once, by way of private memory: memory is then walked
 * in its own order. */
#define STEPS(size) (ROUND_UP(size, LANES) / LANES)
#define STEP_AT(size, step) ((size) < LANES ? (step) * LANES : min((step) * LANES, (size) - LANES))
#define WIDE(size) (STEPS(size) > 4 && STEPS(size) <= 32)

/* Prefetches the row of Q that begins at `row`. */
INLINE void prefetch_query(const global ELEMENT(Q_TYPE) *query, long row)
{
#if PREFETCHES
    const size_t at = (size_t)MOVED(Q_TYPE, query, row);
    for (int byte = 0; byte < BYTES(Q_TYPE, D_K); byte += 64)
        PREFETCH(at + byte);
#endif
}

/* Vector v of Q^T from rows of neighbouring columns; prefetches the next vector's rows. */
INLINE void load_wide(floatv *q, const int v, const global ELEMENT(Q_TYPE) *query, long start,
                      const attention_block *block, const array4 *array)
{
    floatv x[WIDE(D_K) ? STEPS(D_K) : 1][LANES];

    for (int r = 0; r < LANES; r++) {
        const global ELEMENT(Q_TYPE) *row = query + start + LIVE_OFFSET(block, array, v * LANES + r);
#pragma unroll
        for (int step = 0; step < STEPS(D_K); step++)
            x[step][r] = LOADV(Q_TYPE, row, STEP_AT(D_K, step));
        if (v + 1 < QUERY_VECTORS)
            prefetch_query(query, start + LIVE_OFFSET(block, array, (v + 1) * LANES + r));
    }
    for (int step = 0; step < STEPS(D_K); step++) {
        transpose(x[step]);
        for (int c = 0; c < LANES; c++)
            q[(STEP_AT(D_K, step) + c) * QUERY_VECTORS + v] = x[step][c];
    }
}

/* Q^T of the block, q[d * QUERY_VECTORS + v]; at least one row is live.  With PAIRS the column behind an odd D_K is 0. */
INLINE void load_queries(floatv *q, const global ELEMENT(Q_TYPE) *query, const attention_block *block,
                         const attention_args *a)
{
    const long start = attention_query_row(&a->query, &block->item, block->first), col = a->query.col;

    for (int v = 0; v < QUERY_VECTORS; v++) {
        if (PAIRS && D_K % 2 != 0)
            q[D_K * QUERY_VECTORS + v] = (floatv)(0.0f);
        if (WIDE(D_K) && col == 1) {
            load_wide(q, v, query, start, block, &a->query);
            continue;
        }
        for (int step = 0; step < STEPS(D_K); step++) {
            const int d = STEP_AT(D_K, step);
            floatv x[LANES];
            for (int r = 0; r < LANES; r++)
                LOAD_ROW(Q_TYPE, x[r], query, start + LIVE_OFFSET(block, &a->query, v * LANES + r) + d * col, col,
                         D_K - d, 0.0f);
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
        floatv x[WIDE(D_V) ? STEPS(D_V) : 1][LANES];
        for (int step = 0; step < STEPS(D_V); step++) {
            floatv *part = x[WIDE(D_V) ? step : 0];
            const int d = STEP_AT(D_V, step);
            for (int c = 0; c < LANES; c++)
                part[c] = (floatv)(0.0f);
            for (int c = 0; c < min(LANES, D_V); c++)
                part[c] = select(o[(d + c) * QUERY_VECTORS + v] * factor[v], (floatv)(0.0f), factor[v] == 0.0f);
            transpose(part);
            for (int r = 0; !WIDE(D_V) && r < LANES && v * LANES + r < block->rows; r++)
                STORE_ROW(O_TYPE, output, start + ROW_OFFSET(block, &a->output, v * LANES + r) + d * col, col, D_V - d,
                          part[r]);
        }
        for (int r = 0; WIDE(D_V) && r < LANES && v * LANES + r < block->rows; r++) {
            const long row = start + ROW_OFFSET(block, &a->output, v * LANES + r);
#pragma unroll
            for (int step = 0; step < STEPS(D_V); step++)
                STORE_ROW(O_TYPE, output, row + STEP_AT(D_V, step) * col, col, D_V - STEP_AT(D_V, step), x[step][r]);
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
