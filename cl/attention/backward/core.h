/* What the kernels of attention's backward direction share, beside attention/core.h.
 *
 *   P_ij  = factor_i * exp(s_ij - lse_i)      factor_i, near 1, takes back what rounding has done to lse_i; 1 with PARTIAL
 *   dP_ij = keep_ij * sum_c dO_ic V_jc        keep_ij: dropout's 0 or 1 / (1 - probability)
 *   dS_ij = P_ij * (dP_ij - delta_i)          delta_i = sum_c dO_ic O_ic - dlse_i
 *   G_ij  = dS_ij * score_mod_grad(capped_ij, b, h, i, j) * (1 - (capped_ij / softcap)^2), the derivative by the scaled score
 *
 * (Dao, Fu, Ermon, Rudra, Re 2022, appendix B.2, and what follows for score_mod, softcap, sinks and lse.)  A pair that is not
 * attended has none of them, and nothing of it is read.
 *
 * The workspace holds numbers of type `state` for each row of each head: delta, factor, the derivative by the row's sink, that by
 * the head's slope, and D_K of that by the head's vector.  The rows of a part lie as value_scale says, and part n begins n *
 * WORKSPACE_ROWS elements further.
 *
 * Members of attention_args that forward needs and backward does not have another meaning here:
 *   output        O for the first kernel, what it writes for others   scores        dO
 *   entropy       dlse                                               key_scale     dQ or dK
 *   value_scale   the workspace's rows                               block_table   what the kernels say
 *
 *   DO_TYPE, GRADIENT_LSE   the types of dO and whether there is dlse
 *   PARTIAL                 1: O and lse are of more keys than there are here
 *   SCORE_MOD_GRAD          1, if SCORE_MOD is: the user's derivative of score_mod (attention/user.h) */
#ifndef CLATTN_CL_ATTENTION_BACKWARD_CORE_H
#define CLATTN_CL_ATTENTION_BACKWARD_CORE_H

#include "attention/core.h"
#include "attention/pair.h"

#if SCORE_MOD && !SCORE_MOD_GRAD
#error "SCORE_MOD needs SCORE_MOD_GRAD"
#endif

#ifndef DO_TYPE
#define DO_TYPE F32
#endif
#ifndef GRADIENT_LSE
#define GRADIENT_LSE 0
#endif
#ifndef PARTIAL
#define PARTIAL 0
#endif
#ifndef DQ_TYPE
#define DQ_TYPE F32
#endif
#ifndef DK_TYPE
#define DK_TYPE F32
#endif
#ifndef DV_TYPE
#define DV_TYPE F32
#endif
#ifndef GRADIENT_QUERY
#define GRADIENT_QUERY 0
#endif
#ifndef GRADIENT_KEY
#define GRADIENT_KEY 0
#endif
#ifndef GRADIENT_VALUE
#define GRADIENT_VALUE 0
#endif

enum { PART_DELTA, PART_FACTOR, PART_SINK, PART_SLOPE, PART_VECTOR };

#define WORKSPACE_ROWS(a) ((a)->block_table.offset)

/* Where the number of a part for query i of the item is. */
static inline long attention_workspace_at(int part, const attention_item *item, long i, const attention_args *a)
{
    return part * WORKSPACE_ROWS(a) + attention_query_row(&a->value_scale, item, i);
}

/* The range of queries outside which none attends key j by causality and the window; empty where *first >= *end. */
static inline void attention_query_range(const attention_item *item, long j, const attention_args *a, long *first,
                                         long *end)
{
    *first = 0;
    *end = item->queries;
#if CAUSAL
    *first = max(*first, j - item->position);
#endif
#if WINDOW
    if (a->window_right != ATTENTION_UNBOUNDED)
        *first = max(*first, j - item->position - a->window_right);
    if (a->window_left != ATTENTION_UNBOUNDED)
        *end = min(*end, j - item->position + a->window_left + 1);
#endif
}

/* Whether query i of the item attends its key j, which lies within its lengths. */
static inline bool attention_attends(const attention_item *item, long i, long j, const attention_args *a,
                                     const optional_arrays *arrays)
{
#if MASK
    if (j >= a->mask_keys)
        return false;
#endif
#if BIAS
    if (j >= a->bias_keys)
        return false;
#endif
    return !attention_excludes(item, i, j, a, arrays);
}

/* Dropout's factor of a pair. */
static inline state attention_keep(const attention_item *item, long i, long j, const attention_args *a)
{
#if DROPOUT
    uint word[4];
    vstore4(attention_words(item, i, j >> 2, a), 0, word); /* attention/generic.cl says why */
    return word[j & 3] < a->dropout_threshold ? 0.0f : ATTENTION_DROPOUT_SCALE(a);
#else
    return 1.0f;
#endif
}

/* The derivative of s_ij by the scaled score, from that after softcap. */
static inline state attention_slope(state capped, const attention_item *item, long i, long j, const attention_args *a,
                                    const optional_arrays *arrays)
{
    state slope = 1.0f;
#if SOFTCAP
    const state share = capped / a->softcap;
    slope = STATE_FMA(-share, share, (state)1.0f);
#endif
#if SCORE_MOD_GRAD
    slope *= score_mod_grad((float)capped, item->b, item->h, (int)i, (int)j, attention_user(item, a, arrays));
#endif
    return slope;
}

/* exp(s_ij - lse_i), from the scaled score; *slope is the derivative of s_ij by that, or 0 if s_ij is -inf. */
static inline state attention_weight_of(state score, state row_lse, const attention_item *item, long i, long j,
                                        const attention_args *a, const optional_arrays *arrays, state *slope)
{
    const state capped = attention_capped(score, a);
    const state s = attention_biased(capped, item, i, j, a, arrays);
    *slope = s == -INFINITY ? 0.0f : attention_slope(capped, item, i, j, a, arrays);
    return NATURAL_EXP(s - row_lse);
}

/* The same, from Q and K. */
static inline state attention_weight(const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key,
                                     state row_lse, const attention_item *item, long i, long j, const attention_args *a,
                                     const optional_arrays *arrays, state *slope)
{
    return attention_weight_of(attention_pair(query, key, item, i, j, a, arrays), row_lse, item, i, j, a, arrays,
                               slope);
}

/* x, but +0 for -0.  Not x + 0.0f, of which Mesa 22.3 leaves x. */
static inline state attention_unsigned_zero(state x)
{
    return x == 0.0f ? (state)0.0f : x;
}

/* sum_c dO_ic V_jc */
static inline state attention_output_gradient(const global ELEMENT(DO_TYPE) *d_output,
                                              const global ELEMENT(V_TYPE) *value, const attention_item *item, long i,
                                              long j, const attention_args *a, const optional_arrays *arrays)
{
    const long from = attention_query_row(&a->scores, item, i), row = attention_row(&a->value, item, j, a, arrays);
    state even = 0.0f, odd = 0.0f;
#pragma unroll 1
    for (int c = 0; c + 1 < D_V; c += 2) {
        even = STATE_FMA(LOAD(DO_TYPE, d_output, from + c * a->scores.col), LOAD(V_TYPE, value, row + c * a->value.col),
                         even);
        odd = STATE_FMA(LOAD(DO_TYPE, d_output, from + (c + 1) * a->scores.col),
                        LOAD(V_TYPE, value, row + (c + 1) * a->value.col), odd);
    }
    if (D_V % 2 == 1)
        even = STATE_FMA(LOAD(DO_TYPE, d_output, from + (D_V - 1) * a->scores.col),
                         LOAD(V_TYPE, value, row + (D_V - 1) * a->value.col), even);
    return even + odd;
}

/* delta_i of a row whose log-sum-exp is `row_lse`; `attends`: it attends some key that is here, and not nothing or a sink alone. */
static inline state attention_delta(const global ELEMENT(O_TYPE) *output, const global ELEMENT(DO_TYPE) *d_output,
                                    const global float *d_lse, state row_lse, bool attends, const attention_item *item,
                                    long i, const attention_args *a)
{
    const long from = attention_query_row(&a->scores, item, i), to = attention_query_row(&a->output, item, i);
    state delta = 0.0f;
    if (row_lse == -INFINITY)
        return delta;
    for (int c = 0; c < D_V && (attends || PARTIAL); c++) /* O is 0 where a sink alone is attended */
        delta = STATE_FMA(LOAD(DO_TYPE, d_output, from + c * a->scores.col),
                          LOAD(O_TYPE, output, to + c * a->output.col), delta);
#if GRADIENT_LSE
    delta -= d_lse[attention_query_row(&a->entropy, item, i)];
#endif
    return delta;
}

/* The weight of the row's sink, 0 without one. */
static inline state attention_sink(state row_lse, const attention_item *item, const attention_args *a,
                                   const optional_arrays *arrays)
{
#if SINKS
    if (row_lse != -INFINITY)
        return NATURAL_EXP((state)arrays->sinks[a->sinks.offset + item->h * a->sinks.stride] - row_lse);
#endif
    return 0.0f;
}

/* A row's factor, from the sum of the weights of its keys and its sink, or of a part of them; 0: it attends nothing. */
static inline state attention_factor(state sum, state row_lse)
{
#if PARTIAL
    return row_lse == -INFINITY ? 0.0f : 1.0f;
#else
    return sum == 0.0f ? 0.0f : (state)1.0f / sum;
#endif
}

/* Stores the row's numbers, whose parts lie from `at` on, `step` apart; `slopes`: what its keys add to the gradient of the head's
 * slope, but for the factor. */
static inline void attention_store_row(global state *work, long at, long step, state delta, state factor, state sink,
                                       state slopes)
{
    work[at + PART_DELTA * step] = delta;
    work[at + PART_FACTOR * step] = factor;
    work[at + PART_SINK * step] = factor == 0.0f ? 0.0f : -sink * factor * delta;
    work[at + PART_SLOPE * step] = factor == 0.0f ? 0.0f : slopes * factor;
}

#endif
