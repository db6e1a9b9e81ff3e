/* attention_cpu's softmax: what a tile of scores does to a block's running state, and how a row ends. */
#ifndef CLATTN_CL_ATTENTION_CPU_SOFTMAX_H
#define CLATTN_CL_ATTENTION_CPU_SOFTMAX_H

#include "attention/cpu/mask.h"
#include "lib/philox_vector.h"

/* What the rows of a block have come to: lane l of vector v is row v * LANES + l. */
typedef struct softmax_state {
    floatv row_max[QUERY_VECTORS];    /* the largest score */
    floatv row_sum[QUERY_VECTORS];    /* of exp(s - row_max) */
    floatv row_moment[QUERY_VECTORS]; /* with ENTROPY: of p log2(p), p = exp(s - row_max) */
} softmax_state;

INLINE void begin_rows(softmax_state *state)
{
    for (int v = 0; v < QUERY_VECTORS; v++) {
        state->row_max[v] = (floatv)(-INFINITY);
        state->row_sum[v] = (floatv)(0.0f);
        state->row_moment[v] = (floatv)(0.0f);
    }
}

/* Raises `new_max` to the scores of keys j < n, four at a time, which wait for each other less.  It takes no NaN (the comparison
 * is false), and of four of which one is NaN perhaps none: it is the score's own subtraction that carries a NaN on. */
INLINE void find_row_max(floatv *new_max, const floatv *s, int n)
{
    int j = 0;

    for (; j + 4 <= n; j += 4)
#pragma unroll
        for (int v = 0; v < QUERY_VECTORS; v++) {
            const floatv *x = s + j * QUERY_VECTORS + v;
            const floatv first = LARGER_OF(x[0], x[QUERY_VECTORS]);
            const floatv last = LARGER_OF(x[2 * QUERY_VECTORS], x[3 * QUERY_VECTORS]);
            new_max[v] = LARGER_OF(new_max[v], LARGER_OF(first, last));
        }
    for (; j < n; j++)
#pragma unroll
        for (int v = 0; v < QUERY_VECTORS; v++)
            new_max[v] = LARGER_OF(new_max[v], s[j * QUERY_VECTORS + v]);
}

/* The state's maxima become `new_max`, which becomes what is subtracted from the scores; the accumulators are to be
 * multiplied by `rescale`. If all scores so far are -inf, 0 is subtracted: -inf - -inf would be a NaN. The maximum is
 * multiplied by `factor` before the subtraction and rounded there, once and for old and new alike, so that p and
 * rescale refer to exactly the same number. */
INLINE void raise_row_max(floatv *new_max, float factor, softmax_state *state, floatv *rescale)
{
#pragma unroll
    for (int v = 0; v < QUERY_VECTORS; v++) {
        const floatv old = state->row_max[v];
        const floatv finite_max = select(new_max[v], (floatv)(0.0f), new_max[v] == -INFINITY);
        const floatv down = RAW_SCORES ? old * factor - finite_max * factor : (old - finite_max) * LOG2E;
        rescale[v] = exp2v(down);
#if ENTROPY
        state->row_moment[v] = select(rescale[v] * FMA(down, state->row_sum[v], state->row_moment[v]), (floatv)(0.0f),
                                      state->row_sum[v] == 0.0f || rescale[v] == 0.0f);
#endif
        state->row_max[v] = new_max[v];
        new_max[v] = RAW_SCORES ? finite_max * factor : finite_max;
    }
}

/* log2(p) of a score. */
INLINE floatv exponent_of(floatv s, float factor, floatv new_max)
{
    return RAW_SCORES ? FMA(s, (floatv)(factor), -new_max) : (s - new_max) * LOG2E;
}

/* ENTROPY: the vector v of the state's row_moment takes in weights p, whose logarithms are x. */
INLINE void add_moment(softmax_state *state, int v, floatv p, floatv x)
{
#if ENTROPY
    state->row_moment[v] += select(p * x, (floatv)(0.0f), p == 0.0f);
#endif
}

/* S^T becomes P^T for keys j < n, which the state takes in; `new_max` is what raise_row_max has made of it. */
INLINE void weigh_tile(floatv *s, int n, float factor, const floatv *new_max, softmax_state *state,
                       const floatv *rescale)
{
    floatv total[QUERY_VECTORS];

#pragma unroll
    for (int v = 0; v < QUERY_VECTORS; v++)
        total[v] = (floatv)(0.0f);
    for (int j = 0; j < n; j++)
#pragma unroll
        for (int v = 0; v < QUERY_VECTORS; v++) {
            const floatv x = exponent_of(s[j * QUERY_VECTORS + v], factor, new_max[v]);
            const floatv p = exp2v(x);
            s[j * QUERY_VECTORS + v] = p;
            total[v] += p;
            add_moment(state, v, p, x);
        }
#pragma unroll
    for (int v = 0; v < QUERY_VECTORS; v++)
        state->row_sum[v] = FMA(state->row_sum[v], rescale[v], total[v]);
}

/* S^T becomes P^T for keys j < n, which the state takes in. */
INLINE void softmax_tile(floatv *s, int n, float factor, softmax_state *state, floatv *rescale)
{
    floatv new_max[QUERY_VECTORS];

#pragma unroll
    for (int v = 0; v < QUERY_VECTORS; v++)
        new_max[v] = state->row_max[v];
    find_row_max(new_max, s, n);
    raise_row_max(new_max, factor, state, rescale);
    weigh_tile(s, n, factor, new_max, state, rescale);
}

/* Rows beyond the item's length have attended nothing, whatever their lanes computed. */
INLINE void forget_dead_rows(softmax_state *state, const attention_block *block)
{
    if (block->live == block->rows)
        return;
    for (int v = 0; v < QUERY_VECTORS; v++) {
        const intv dead = LANE_INDEX + v * LANES >= block->live;
        state->row_max[v] = select(state->row_max[v], (floatv)(-INFINITY), dead);
        state->row_sum[v] = select(state->row_sum[v], (floatv)(0.0f), dead);
    }
}

/* What the accumulators are multiplied by at last, and the rows' log-sum-exp and entropy; the vector form of
 * attention_finish and attention_entropy. */
INLINE void finish_rows(floatv *multiplier, floatv *lse, floatv *entropy, const softmax_state *state, float factor,
                        const attention_block *block, const attention_args *a, const optional_arrays *arrays)
{
    for (int v = 0; v < QUERY_VECTORS; v++) {
        const floatv own = RAW_SCORES ? state->row_max[v] * factor * LN2 : state->row_max[v];
        floatv new_max = own;
        floatv total = state->row_sum[v];
#if SINKS && !SPLIT
        float lane[LANES];
        for (int l = 0; l < LANES; l++)
            lane[l] =
                arrays->sinks[a->sinks.offset + ROW_HEAD(block, min(v * LANES + l, block->rows - 1)) * a->sinks.stride];
        const floatv sink = VLOAD(0, lane);
        new_max = select(own, sink, sink > own);
        const floatv finite_max = select(new_max, (floatv)(0.0f), new_max == -INFINITY);
        const floatv share = select(exp2v((own - finite_max) * LOG2E), (floatv)(0.0f), state->row_sum[v] == 0.0f);
        total = total * share + exp2v((sink - finite_max) * LOG2E);
        multiplier[v] = select(share / total, (floatv)(0.0f), total == 0.0f);
#else
        multiplier[v] = select(1.0f / total, (floatv)(0.0f), total == 0.0f);
#endif
#if ENTROPY
        const floatv plogp = state->row_sum[v] * (log(total) + (new_max - own)) - state->row_moment[v] * LN2;
        entropy[v] = select(multiplier[v] * plogp, (floatv)(0.0f), state->row_sum[v] == 0.0f);
#endif
#if DROPOUT
        multiplier[v] *= a->dropout_scale;
#endif
#if LSE
        lse[v] = select(new_max + log(total), (floatv)(-INFINITY), total == 0.0f);
#endif
    }
}

/* Stores what a block has come to.  `fresh`: its rows have attended nothing, and o is not there yet. */
INLINE void finish_block(global ELEMENT(O_TYPE) *output, global float *lse, global float *entropy, floatv *o,
                         bool fresh, softmax_state *state, float factor, const attention_block *block,
                         const attention_args *a, const optional_arrays *arrays)
{
    floatv multiplier[QUERY_VECTORS], row_lse[QUERY_VECTORS], row_entropy[QUERY_VECTORS];

    if (fresh)
        for (int c = 0; c < D_V * QUERY_VECTORS; c++)
            o[c] = (floatv)(0.0f);
    forget_dead_rows(state, block);
    finish_rows(multiplier, row_lse, row_entropy, state, factor, block, a, arrays);
    store_output(output, o, multiplier, block, a);
#if LSE
    store_rows(lse, row_lse, block, &a->lse);
#endif
#if ENTROPY
    store_rows(entropy, row_entropy, block, &a->entropy);
#endif
}

#if DROPOUT
/* Drops probabilities of keys start ... start + n - 1; the vector form of attention_kept. */
INLINE void drop_tile(floatv *p, int start, int n, const attention_block *block, const attention_args *a)
{
    const uint2 key = (uint2)((uint)a->dropout_seed, (uint)(a->dropout_seed >> 32));

    for (int v = 0; v < QUERY_VECTORS; v++) {
        const uintv query =
            JOIN(convert_uint, LANES)(block_queries(block, v)) + (uint)(block->first + block->item.past_queries);
#if GROUPED
        const uintv head = JOIN(convert_uint, LANES)(JOIN(vload, LANES)(v, block->head));
#else
        const uintv head = (uintv)(0);
#endif
        for (int four = start / 4; four * 4 < start + n; four++) {
            uintv word[4] = {(uintv)((uint)four + (uint)block->item.past_keys / 4), query,
                             head +
                                 ((uint)block->item.b * (uint)a->whole_heads + (uint)(a->first_head + block->item.h)),
                             (uintv)(a->dropout_offset)};
            philoxv(word, key);
            for (int w = 0; w < 4; w++) {
                const int j = four * 4 + w - start;
                if (j >= 0 && j < n)
                    p[j * QUERY_VECTORS + v] =
                        select(p[j * QUERY_VECTORS + v], (floatv)(0.0f), word[w] < (uintv)(a->dropout_threshold));
            }
        }
    }
}
#endif

#endif
