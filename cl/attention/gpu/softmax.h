/* attention_tile's online softmax: turns a tile's products into scores and probabilities, and finishes rows.  An item's own
 * scores lie in `prob` where its own probabilities will, so that they do not have to stay in registers. */
#ifndef CLATTN_CL_ATTENTION_GPU_SOFTMAX_H
#define CLATTN_CL_ATTENTION_GPU_SOFTMAX_H

#include "attention/gpu/rows.h"

#define TILE_UNIT (RAW_SCORES ? a->scale : 1.0f) /* the unit of the scores in `prob` */

/* The running state of the rows that each item owns, by quads of rows: their maximum, the same for all items of a row, and what the
 * item's own keys have added to their sum.  In local memory, since it is used once a tile and registers are for the output. */
typedef struct tile_state {
    float4 row_max[QUADS][ITEMS], row_sum[QUADS][ITEMS];
#if ENTROPY
    float4 row_moment[QUADS][ITEMS]; /* the sum of p * (s - row_max) */
#endif
} tile_state;

#if MODIFIED
/* Softcap, score_mod, biases and masks, of one own score after the other. */
static inline void tile_modify(local float *prob, uint mask, const tile_rows *t, int x, int y, int k0,
                               const attention_args *a, const optional_arrays *arrays)
{
#pragma unroll 1
    for (int n = 0; n < ROWS; n++) {
        tile_row row;
        tile_find_row(&row, y * ROWS + n, t, a);
#pragma unroll 1
        for (int k = 0; k < KEYS; k++) {
            local float *s = prob + (k * ITEMS_X + x) * Q_STRIDE + y * ROWS + n;
            if (mask >> (k * ROWS + n) & 1)
                *s = attention_biased(attention_capped(*s, a), &row.item, row.i, k0 + OWN_KEY(x, k), a, arrays);
            else
                *s = -INFINITY;
        }
    }
}
#endif

/* Stores own products as scores in `prob`, -inf if a key is not attended; `own_max` is the maximum of the item's own keys for each row. */
static inline void tile_scores(local float4 *prob, float4 products[KEYS][QUADS], float4 own_max[QUADS], bool mixed,
                               uint mask, const tile_rows *t, int x, int y, int k0, const attention_args *a,
                               const optional_arrays *arrays)
{
#pragma unroll
    for (int r = 0; r < QUADS; r++)
        own_max[r] = (float4)(-INFINITY);
#pragma unroll
    for (int k = 0; k < KEYS; k++) {
#pragma unroll
        for (int r = 0; r < QUADS; r++) {
            float4 s = RAW_SCORES ? products[k][r] : products[k][r] * a->scale;
            if (!MODIFIED && mixed)
                s = select((float4)(-INFINITY), s, tile_selected(mask, k, r));
            prob[(k * ITEMS_X + x) * Q_QUADS + y * QUADS + r] = s;
            own_max[r] = fmax(own_max[r], s);
        }
    }
#if MODIFIED
    tile_modify((local float *)prob, mask, t, x, y, k0, a, arrays);
#pragma unroll
    for (int r = 0; r < QUADS; r++) {
        own_max[r] = (float4)(-INFINITY);
        for (int k = 0; k < KEYS; k++)
            own_max[r] = fmax(own_max[r], prob[(k * ITEMS_X + x) * Q_QUADS + y * QUADS + r]);
    }
#endif
}

/* The maximum, or the sum, over all items of a row that are in one sub-group; each of them gets it. */
static inline float4 tile_row_max(float4 v, int item, local float4 *stage)
{
#if SUB_GROUPS
    for (int distance = ROW_ITEMS / 2; distance > 0; distance /= 2)
        v = fmax(v, sub_group_swap4(v, distance, item, stage));
#endif
    return v;
}

static inline float4 tile_row_sum(float4 v, int item, local float4 *stage)
{
#if SUB_GROUPS
    for (int distance = ROW_ITEMS / 2; distance > 0; distance /= 2)
        v += sub_group_swap4(v, distance, item, stage);
#endif
    return v;
}

/* Turns own scores into probabilities.  `partials` has the partial maxima of the rows or, if there is but one, `own_max` has the
 * maximum.  The sums and the output so far are to be multiplied by `rescale`. */
static inline void tile_softmax(local float4 *prob, const local float4 *partials, const float4 own_max[QUADS],
                                local tile_state *state, float4 rescale[QUADS], uint keeps, int x, int y,
                                const attention_args *a)
{
    /* Subtracted first: the maximum times log2(e) alone would overflow for masks like -FLT_MAX, and lose the score's
     * low bits on devices that do not fuse. */
    const float exponent = TILE_UNIT * LOG2E;
    const int item = y * ITEMS_X + x;
#pragma unroll
    for (int r = 0; r < QUADS; r++) {
        const float4 before = state->row_max[r][item];
        float4 m = before;
        if (PARTIALS == 1)
            m = fmax(m, own_max[r]);
        else
#pragma unroll 4
            for (int other = 0; other < PARTIALS; other++)
                m = fmax(m, partials[other * Q_QUADS + y * QUADS + r]);
        /* While nothing has been attended the maximum is -inf, and 0 stands in for it: -inf - -inf is NaN. */
        const float4 subtracted = select(m, (float4)(0.0f), m == (float4)(-INFINITY));
        const float4 change = before - subtracted;
        float4 sum = (float4)(0.0f);
        rescale[r] = exp2v(change * exponent);
#if ENTROPY
        /* Moved to the new maximum: each term exp(s - m) * (s - m). */
        float4 moment = FMA(state->row_sum[r][item], change * TILE_UNIT, state->row_moment[r][item]) * rescale[r];
        moment = select(moment, (float4)(0.0f), rescale[r] == (float4)(0.0f));
#endif
#pragma unroll 2
        for (int k = 0; k < KEYS; k++) {
            local float4 *own = &prob[(k * ITEMS_X + x) * Q_QUADS + y * QUADS + r];
            const float4 below = *own - subtracted;
            float4 p = exp2v(below * exponent);
            sum += p;
#if ENTROPY
            moment += select(p * (below * TILE_UNIT), (float4)(0.0f), p == (float4)(0.0f));
#endif
#if DROPOUT
            p = select((float4)(0.0f), p, tile_selected(keeps, k, r));
#endif
            *own = p;
        }
        state->row_max[r][item] = m;
        state->row_sum[r][item] = FMA(state->row_sum[r][item], rescale[r], sum);
#if ENTROPY
        state->row_moment[r][item] = moment;
#endif
    }
}

/* Puts what tile_finish needs of the rows into local memory: partial sums into `stage`, maxima and partial moments into
 * `prob`. */
static inline void tile_publish_rows(local float4 *stage, local float4 *prob, const local tile_state *state, int x,
                                     int y)
{
    const int item = y * ITEMS_X + x, partial = x / ROW_ITEMS;
    const bool first = partial * ROW_ITEMS == x;
#pragma unroll
    for (int r = 0; r < QUADS; r++) {
        const float4 sum = tile_row_sum(state->row_sum[r][item], item, stage + VALUE_HALF);
        if (first)
            stage[PARTIALS_AT + partial * Q_QUADS + y * QUADS + r] = sum;
        if (x == 0)
            prob[y * QUADS + r] = state->row_max[r][item];
#if ENTROPY
        const float4 moment = tile_row_sum(state->row_moment[r][item], item, stage + VALUE_HALF);
        if (first)
            prob[(1 + partial) * Q_QUADS + y * QUADS + r] = moment;
#endif
    }
}

/* Finishes row `item` of the tile: stores its log-sum-exp and entropy, and puts the factor of its output into stage[item]. */
static inline void tile_finish(local float *stage, const local float *prob, const local tile_results *results,
                               uint item, const tile_rows *t, global float *lse, global float *entropy,
                               const attention_args *a, const optional_arrays *arrays)
{
    tile_row row;
    tile_find_row(&row, (int)item, t, a);
    float row_max = prob[item] * TILE_UNIT, row_sum = 0.0f, total;
    for (int x = 0; x < PARTIALS; x++)
        row_sum += stage[4 * PARTIALS_AT + x * Q_STRIDE + item];
#if ENTROPY
    float moment = 0.0f;
    for (int x = 0; x < PARTIALS; x++)
        moment += prob[(1 + x) * Q_STRIDE + item];
#endif
    if (!row.attends || row_sum == 0.0f) {
        row_max = -INFINITY;
        row_sum = 0.0f;
    }
    stage[item] = attention_finish(row_max, row_sum, &row.item, a, arrays, &total);
    if (!row.stored)
        return;
#if LSE
    lse[results->lse + tile_result_row(&a->lse, &row)] = total;
#endif
#if ENTROPY
    entropy[results->entropy + tile_result_row(&a->entropy, &row)] =
        attention_entropy(row_max, row_sum, moment, &row.item, a, arrays);
#endif
}

#endif
