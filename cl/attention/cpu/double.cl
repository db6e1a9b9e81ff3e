/* Attention in float64 for CPU devices: queries across vector lanes, one work-item a work-group.
 *
 *   O[i,:] = sum_j keep_ij p_ij V[j,:] / sum_j p_ij,   p_ij = exp(s_ij - max_j s_ij),   s_ij: attention/core.h
 *   lse[i] = log sum_j exp(s_ij),   entropy[i] = -sum_j P_ij log P_ij;   keep_ij: 0 if dropout drops p_ij, else its scale
 *
 * The walk is attention/cpu/lanes.cl's: a work-item holds Q^T and O^T of its rows, and for each tile of keys it computes
 * S^T, what changes a score, the softmax and V^T P^T.  Unlike there, whatever changes a score is done a score at a time.
 *
 * Arrays, strides, macros: attention/core.h with DOUBLE, all of it except ADDITIVE; any strides and any alignment.
 *   DOUBLES         numbers in a vector: 2 4 8                                        (4)
 *   QUERY_VECTORS   vectors of rows in a work-item: 1 2                               (2)
 *   GROUPED         attention/cpu/block.h                                             (0)
 *   KEY_TILE        keys for each rescaling, a multiple of STEP                       (48)
 *   STEP            keys of a register tile of Q K^T, columns of one of P V           (6)
 * Tested: DOUBLES as a device has it; both QUERY_VECTORS; every feature; D_K and D_V 8, 129 and 130.
 *
 * NDRange and rows: attention/cpu/lanes.cl, with DOUBLES for LANES.  Private memory, in doubles: QUERY_VECTORS * DOUBLES *
 * (D_K + D_V + KEY_TILE), on the stack of the device's thread.  Local memory: none.  Barriers: none.
 *
 * A score that is not attended is -inf, p of it exactly +0; a row that attends nothing gives output +0 and lse -inf; NaN
 * or +inf in an attended score makes its row NaN.  V at a key that only some rows of a block attend takes part in the
 * others with weight +0.  Needs OpenCL C 1.2 and fp64. */
#ifndef DOUBLES
#define DOUBLES 4
#endif
#ifndef QUERY_VECTORS
#define QUERY_VECTORS 2
#endif
#define BLOCK (QUERY_VECTORS * DOUBLES)
#include "attention/cpu/block.h"

#ifndef KEY_TILE
#define KEY_TILE 48
#endif
#ifndef STEP
#define STEP 6
#endif
#if !DOUBLE || ADDITIVE
#error "dot products in double"
#endif
#if KEY_TILE % STEP != 0
#error "KEY_TILE must be a multiple of STEP"
#endif

typedef JOIN(double, DOUBLES) doublev;

/* Whether anything but causality and the window changes a score. */
#define CHANGED (SOFTCAP || MASK || BIAS || ALIBI || SCORE_MOD || MASK_MOD)
#define RANGED (CAUSAL || WINDOW)

typedef struct double_state {
    doublev row_max[QUERY_VECTORS], row_sum[QUERY_VECTORS], row_moment[QUERY_VECTORS];
} double_state;

INLINE void load_queries(doublev *q, const global double *query, const attention_block *block, const attention_args *a)
{
    const long start = attention_query_row(&a->query, &block->item, block->first);

    for (int v = 0; v < QUERY_VECTORS; v++)
        for (int d = 0; d < D_K; d++) {
            double lane[DOUBLES];
            for (int l = 0; l < DOUBLES; l++)
                lane[l] = query[start + LIVE_OFFSET(block, &a->query, v * DOUBLES + l) + d * a->query.col];
            q[d * QUERY_VECTORS + v] = JOIN(vload, DOUBLES)(0, lane);
        }
}

/* Where rows start ... start + n - 1 begin; those up to KEY_TILE repeat the last. */
INLINE void find_rows(long *rows, const array4 *array, int start, int n, const attention_block *block,
                      const attention_args *a, const optional_arrays *arrays)
{
    for (int j = 0; j < KEY_TILE; j++)
        rows[j] = attention_row(array, &block->item, start + min(j, n - 1), a, arrays);
}

/* S^T of n keys, scaled. */
INLINE void scores_of(doublev *s, const doublev *q, const global double *key, const long *rows, int n,
                      const attention_args *a)
{
    const long col = a->key.col;

    for (int j = 0; j < n; j += STEP) {
        doublev sum[STEP][QUERY_VECTORS];
#pragma unroll
        for (int k = 0; k < STEP; k++)
#pragma unroll
            for (int v = 0; v < QUERY_VECTORS; v++)
                sum[k][v] = (doublev)(0.0);
        for (int d = 0; d < D_K; d++)
#pragma unroll
            for (int k = 0; k < STEP; k++) {
                const doublev x = (doublev)(key[rows[j + k] + d * col]);
#pragma unroll
                for (int v = 0; v < QUERY_VECTORS; v++)
                    sum[k][v] = FMA(q[d * QUERY_VECTORS + v], x, sum[k][v]);
            }
#pragma unroll
        for (int k = 0; k < STEP; k++)
#pragma unroll
            for (int v = 0; v < QUERY_VECTORS; v++)
                s[(j + k) * QUERY_VECTORS + v] = sum[k][v] * ATTENTION_SCALE(a);
    }
}

/* Whether causality and the window let all pairs of the tile pass. */
INLINE bool tile_inside(int start, int n, const attention_block *block, const attention_args *a)
{
    long first, unused, end;

    attention_key_range(&block->item, block->first + block->last, a, &first, &unused);
    attention_key_range(&block->item, block->first, a, &unused, &end);
    return start >= first && start + n <= end;
}

/* What changes the scores, and -inf for those that are not attended. */
INLINE void change_scores(doublev *s, int start, int n, const attention_block *block, const attention_args *a,
                          const optional_arrays *arrays)
{
    attention_item item = block->item;

    for (int j = 0; j < n; j++)
        for (int v = 0; v < QUERY_VECTORS; v++) {
            double lane[DOUBLES];
            JOIN(vstore, DOUBLES)(s[j * QUERY_VECTORS + v], 0, lane);
            for (int l = 0; l < DOUBLES; l++) {
                const int r = LIVE_ROW(block, v * DOUBLES + l);
                const long i = ROW_QUERY(block, r);
                item.h = ROW_HEAD(block, r);
                if (attention_excludes(&item, i, start + j, a, arrays))
                    lane[l] = -INFINITY;
                else
                    lane[l] = attention_biased(attention_capped(lane[l], a), &item, i, start + j, a, arrays);
            }
            s[j * QUERY_VECTORS + v] = JOIN(vload, DOUBLES)(0, lane);
        }
}

/* Turns S^T into P^T, and says what O^T is multiplied by before P V is added. */
INLINE void softmax_tile(doublev *s, int n, double_state *state, doublev *rescale)
{
    for (int v = 0; v < QUERY_VECTORS; v++) {
        const doublev old = state->row_max[v];
        doublev most = old, sum = (doublev)(0.0), moment = (doublev)(0.0);
        for (int j = 0; j < n; j++)
            most = LARGER_OF(most, s[j * QUERY_VECTORS + v]);
        const doublev finite_max = select(most, (doublev)(0.0), most == -INFINITY);
        for (int j = 0; j < n; j++) {
            const doublev x = s[j * QUERY_VECTORS + v] - finite_max;
            const doublev p = exp(x);
            s[j * QUERY_VECTORS + v] = p;
            sum += p;
#if ENTROPY
            moment += select(p * x, (doublev)(0.0), p == 0.0);
#endif
        }
        rescale[v] = exp(old - finite_max);
#if ENTROPY
        state->row_moment[v] =
            moment + select(rescale[v] * FMA(old - finite_max, state->row_sum[v], state->row_moment[v]), (doublev)(0.0),
                            state->row_sum[v] == 0.0);
#endif
        state->row_sum[v] = state->row_sum[v] * rescale[v] + sum;
        state->row_max[v] = most;
    }
}

#if DROPOUT
INLINE void drop_tile(doublev *s, int start, int n, const attention_block *block, const attention_args *a)
{
    attention_item item = block->item;

    for (int v = 0; v < QUERY_VECTORS; v++)
        for (int l = 0; l < DOUBLES; l++) {
            const int r = LIVE_ROW(block, v * DOUBLES + l);
            uint word[4];
            item.h = ROW_HEAD(block, r);
            for (int j = 0; j < n; j++) {
                if (j == 0 || (start + j) % 4 == 0)
                    vstore4(attention_words(&item, ROW_QUERY(block, r), (start + j) / 4, a), 0, word);
                if (word[(start + j) % 4] < a->dropout_threshold)
                    ((double *)&s[j * QUERY_VECTORS + v])[l] = 0.0;
            }
        }
}
#endif

/* O^T = rescale * O^T + V^T P^T */
INLINE void add_values(doublev *o, const doublev *p, const doublev *rescale, const global double *value,
                       const long *rows, int n, const attention_args *a)
{
    for (int c = 0; c < D_V; c += STEP) {
        doublev sum[STEP][QUERY_VECTORS];
        long col[STEP];
#pragma unroll
        for (int k = 0; k < STEP; k++) {
            col[k] = min(c + k, D_V - 1) * a->value.col;
#pragma unroll
            for (int v = 0; v < QUERY_VECTORS; v++)
                sum[k][v] = o[(c + k) * QUERY_VECTORS + v] * rescale[v];
        }
        for (int j = 0; j < n; j++)
#pragma unroll
            for (int k = 0; k < STEP; k++) {
                const doublev x = (doublev)(value[rows[j] + col[k]]);
#pragma unroll
                for (int v = 0; v < QUERY_VECTORS; v++)
                    sum[k][v] = FMA(p[j * QUERY_VECTORS + v], x, sum[k][v]);
            }
#pragma unroll
        for (int k = 0; k < STEP; k++)
#pragma unroll
            for (int v = 0; v < QUERY_VECTORS; v++)
                o[(c + k) * QUERY_VECTORS + v] = sum[k][v];
    }
}

/* Output, lse and entropy of the block's rows. */
INLINE void finish_block(global double *output, global float *lse, global float *entropy, const doublev *o,
                         const double_state *state, const attention_block *block, const attention_args *a,
                         const optional_arrays *arrays)
{
    attention_item item = block->item;

    for (int r = 0; r < block->rows; r++) {
        const int v = r / DOUBLES, l = r % DOUBLES;
        const long i = ROW_QUERY(block, r);
        const bool live = r < block->live;
        const double row_max = live ? ((const double *)&state->row_max[v])[l] : -INFINITY;
        const double row_sum = live ? ((const double *)&state->row_sum[v])[l] : 0.0;
        double total;
        item.h = ROW_HEAD(block, r);
        const double factor = attention_finish(row_max, row_sum, &item, a, arrays, &total);
        const long at = attention_result_row(&a->output, &item, i);
        for (int c = 0; c < D_V; c++)
            output[at + c * a->output.col] =
                factor == 0.0 ? 0.0 : ((const double *)&o[c * QUERY_VECTORS + v])[l] * factor;
#if LSE
        lse[attention_result_row(&a->lse, &item, i)] = (float)total;
#endif
#if ENTROPY
        const double row_moment = live ? ((const double *)&state->row_moment[v])[l] : 0.0;
        entropy[attention_result_row(&a->entropy, &item, i)] =
            (float)attention_entropy(row_max, row_sum, row_moment, &item, a, arrays);
#endif
    }
}

ITEM_FUNCTION attend_block(ATTENTION_PARAMETERS, int batch, int head, int index)
{
    const optional_arrays arrays = OPTIONAL_ARRAYS;
    if (a.batch == 0)
        return;

    attention_block block;
    block_of(&block, batch, head, index, &a, &arrays);
    if (block.rows <= 0)
        return;

    doublev q[D_K * QUERY_VECTORS], o[ROUND_UP(D_V, STEP) * QUERY_VECTORS], s[KEY_TILE * QUERY_VECTORS];
    doublev rescale[QUERY_VECTORS];
    long rows[KEY_TILE];
    double_state state;
    int begin = 0, end = 0;
    for (int v = 0; v < QUERY_VECTORS; v++) {
        state.row_max[v] = (doublev)(-INFINITY);
        state.row_sum[v] = state.row_moment[v] = (doublev)(0.0);
    }
    for (int c = 0; c < ROUND_UP(D_V, STEP) * QUERY_VECTORS; c++)
        o[c] = (doublev)(0.0);
    if (block.live > 0) {
        attention_keys(&block.item, block.first, block.first + block.last, &a, &begin, &end);
        load_queries(q, query, &block, &a);
    }
    for (int start = begin; start < end; start += KEY_TILE) {
        const int n = min(KEY_TILE, end - start);
        find_rows(rows, &a.key, start, n, &block, &a, &arrays);
        scores_of(s, q, key, rows, n, &a);
        if (CHANGED || (RANGED && !tile_inside(start, n, &block, &a)))
            change_scores(s, start, n, &block, &a, &arrays);
        softmax_tile(s, n, &state, rescale);
#if DROPOUT
        drop_tile(s, start, n, &block, &a);
#endif
        find_rows(rows, &a.value, start, n, &block, &a, &arrays);
        add_values(o, s, rescale, value, rows, n, &a);
    }
    finish_block(output, lse, entropy, o, &state, &block, &a, &arrays);
}

GROUP_SIZE(1, 1, 1)
kernel void attention_cpu_double(ATTENTION_PARAMETERS)
{
    attend_block(ATTENTION_ARGUMENTS, (int)group_id(&a.part, 2), (int)group_id(&a.part, 1), last_group_first(&a.part));
}
