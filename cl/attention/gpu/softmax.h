/* From a tile's products to its probabilities, and the rows' end.  `prob` holds an item's own scores where its own
 * probabilities go, so that between the two nothing has to stay in registers. */
#ifndef CLATTN_CL_ATTENTION_GPU_SOFTMAX_H
#define CLATTN_CL_ATTENTION_GPU_SOFTMAX_H

#include "attention/gpu/rows.h"

#define TILE_UNIT (RAW_SCORES ? a->scale : 1.0f) /* of the scores in `prob` */

/* What the rows that an item owns have come to: their maximum, which all items of a row share, and the item's share of
 * the sum and of the entropy's moment. */
typedef struct tile_state {
    float4 top[QUADS], sum[QUADS];
#if ENTROPY
    float4 moment[QUADS];
#endif
} tile_state;

#if MODIFIED
/* Everything that makes a score out of own scaled products, one by one. */
static inline void tile_modify(local float *prob, uint bits, const tile_rows *t, int x, int y, int k0,
                               const attention_args *a, const attention_side *side)
{
    for (int n = 0; n < ROWS; n++) {
        tile_row row;
        tile_find_row(&row, y * ROWS + n, t, a);
        for (int k = 0; k < KEYS; k++) {
            local float *s = prob + (k * ITEMS_X + x) * Q_STRIDE + y * ROWS + n;
            if (bits >> (k * ROWS + n) & 1)
                *s = attention_biased(attention_capped(*s, a), &row.item, row.i, k0 + OWN_KEY(x, k), a, side);
            else
                *s = -INFINITY;
        }
    }
}
#endif

/* Own products as scores into `prob`, -inf where a key is not attended; `highest` is the own maximum of each row. */
static inline void tile_scores(local float4 *prob, float4 products[KEYS][QUADS], float4 highest[QUADS], bool mixed,
                               uint bits, const tile_rows *t, int x, int y, int k0, const attention_args *a,
                               const attention_side *side)
{
#pragma unroll
    for (int r = 0; r < QUADS; r++)
        highest[r] = (float4)(-INFINITY);
#pragma unroll
    for (int k = 0; k < KEYS; k++) {
#pragma unroll
        for (int r = 0; r < QUADS; r++) {
            float4 s = RAW_SCORES ? products[k][r] : products[k][r] * a->scale;
            if (!MODIFIED && mixed)
                s = select((float4)(-INFINITY), s, tile_lanes(bits, k, r));
            prob[(k * ITEMS_X + x) * Q_QUADS + y * QUADS + r] = s;
            highest[r] = fmax(highest[r], s);
        }
    }
#if MODIFIED
    tile_modify((local float *)prob, bits, t, x, y, k0, a, side);
#pragma unroll
    for (int r = 0; r < QUADS; r++) {
        highest[r] = (float4)(-INFINITY);
        for (int k = 0; k < KEYS; k++)
            highest[r] = fmax(highest[r], prob[(k * ITEMS_X + x) * Q_QUADS + y * QUADS + r]);
    }
#endif
}

/* The maximum, or the sum, of all items of a row that are in one sub-group, in each of them. */
static inline float4 tile_highest(float4 v, int item, local float4 *stage)
{
#if SUB_GROUPS
    for (int distance = TOGETHER / 2; distance > 0; distance /= 2)
        v = fmax(v, sub_group_swap4(v, distance, item, stage));
#endif
    return v;
}

static inline float4 tile_sum(float4 v, int item, local float4 *stage)
{
#if SUB_GROUPS
    for (int distance = TOGETHER / 2; distance > 0; distance /= 2)
        v += sub_group_swap4(v, distance, item, stage);
#endif
    return v;
}

/* Own scores to probabilities; `parts` has the parts of the rows' maxima, or, where there is but one, `highest`.  The
 * rescaling goes into `factor`. */
static inline void tile_softmax(local float4 *prob, const local float4 *parts, const float4 highest[QUADS],
                                tile_state *state, float4 factor[QUADS], uint kept, int x, int y,
                                const attention_args *a)
{
    /* Subtracted first: the maximum times log2(e) alone would overflow for masks like -FLT_MAX, and lose the score's
     * low bits on devices that do not fuse. */
    const float exponent = TILE_UNIT * LOG2E;
#pragma unroll
    for (int r = 0; r < QUADS; r++) {
        float4 m = state->top[r];
        if (PARTS == 1)
            m = fmax(m, highest[r]);
        else
            for (int other = 0; other < PARTS; other++)
                m = fmax(m, parts[other * Q_QUADS + y * QUADS + r]);
        /* While nothing has been attended the maximum is -inf, and 0 stands in for it: -inf - -inf is NaN. */
        const float4 safe = select(m, (float4)(0.0f), m == (float4)(-INFINITY));
        const float4 change = state->top[r] - safe;
        float4 share = (float4)(0.0f);
        factor[r] = exp2v(change * exponent);
#if ENTROPY
        /* Moved to the new maximum: each term exp(s - m) * (s - m). */
        float4 moment = FMA(state->sum[r], change * TILE_UNIT, state->moment[r]) * factor[r];
        moment = select(moment, (float4)(0.0f), factor[r] == (float4)(0.0f));
#endif
        for (int k = 0; k < KEYS; k++) {
            local float4 *own = &prob[(k * ITEMS_X + x) * Q_QUADS + y * QUADS + r];
            const float4 below = *own - safe;
            float4 p = exp2v(below * exponent);
            share += p;
#if ENTROPY
            moment += select(p * (below * TILE_UNIT), (float4)(0.0f), p == (float4)(0.0f));
#endif
#if DROPOUT
            p = select((float4)(0.0f), p, tile_lanes(kept, k, r));
#endif
            *own = p;
        }
        state->top[r] = m;
        state->sum[r] = FMA(state->sum[r], factor[r], share);
#if ENTROPY
        state->moment[r] = moment;
#endif
    }
}

/* The parts of the rows' ends, for tile_finish: sums to `stage`, maxima and moments to `prob`. */
static inline void tile_share(local float4 *stage, local float4 *prob, const tile_state *state, int x, int y)
{
    const int item = y * ITEMS_X + x, part = x / TOGETHER;
    const bool first = part * TOGETHER == x;
#pragma unroll
    for (int r = 0; r < QUADS; r++) {
        const float4 sum = tile_sum(state->sum[r], item, stage);
        if (first)
            stage[PARTS_AT + part * Q_QUADS + y * QUADS + r] = sum;
        if (x == 0)
            prob[y * QUADS + r] = state->top[r];
#if ENTROPY
        const float4 moment = tile_sum(state->moment[r], item, stage);
        if (first)
            prob[(1 + part) * Q_QUADS + y * QUADS + r] = moment;
#endif
    }
}

/* Row `item` of the tile: its log-sum-exp and entropy, and into stage[item] what its output is multiplied by. */
static inline void tile_finish(local float *stage, const local float *prob, const local tile_results *results,
                               uint item, const tile_rows *t, ATTENTION_RESULT_PARAMETERS const attention_args *a,
                               const attention_side *side)
{
    tile_row row;
    tile_find_row(&row, (int)item, t, a);
    float highest = prob[item] * TILE_UNIT, sum = 0.0f, total;
    for (int x = 0; x < PARTS; x++)
        sum += stage[4 * PARTS_AT + x * Q_STRIDE + item];
#if ENTROPY
    float moment = 0.0f;
    for (int x = 0; x < PARTS; x++)
        moment += prob[(1 + x) * Q_STRIDE + item];
#endif
    if (!row.attends || sum == 0.0f) {
        highest = -INFINITY;
        sum = 0.0f;
    }
    stage[item] = attention_finish(highest, sum, &row.item, a, side, &total);
    if (!row.stored)
        return;
#if LSE
    lse[results->lse + tile_result_row(&a->lse, &row)] = total;
#endif
#if ENTROPY
    entropy[results->entropy + tile_result_row(&a->entropy, &row)] =
        attention_entropy(highest, sum, moment, &row.item, a, side);
#endif
}

#endif
