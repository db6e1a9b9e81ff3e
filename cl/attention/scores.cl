/* The score matrix written out, for people who want to look at it: a second kernel after an attention kernel, whose
 * log-sum-exp the probabilities need.
 *
 *   SCORES_MODE 0   W[b,h,i,j] = s_ij, the scaled score: for every key within the item's lengths, else +0
 *               1   the same after softcap
 *               2   after everything that is added; -inf where key j is not attended
 *               3   exp(s_ij - lse[b,h,i]); +0 where key j is not attended
 *   AVERAGE: W[b,i,j] = (sum over h = 0, 1, ... of the above) / heads
 *
 * Arrays, strides and macros: attention/core.h; not packed sequences, not a ring.  lse (float) with SCORES_MODE 3 only.
 * W (`a.scores`) lies at offset + b*batch + h*head + i*row + j*col, without h when averaged.  Besides:
 *   SCORES_MODE   0 1 2 3 (3)      AVERAGE  0 1 (0)      W_TYPE  F32 F16 BF16 (F32)
 *
 * NDRange: (a.key_length, a.launch_queries, a.batch * a.launch_heads, or a.batch when averaged), each rounded up at
 * will; any work-group.  An item owns one element of W.  Local memory: none.  Barriers: none.
 *
 * State is float, with DOUBLE double.  If a row's lse is NaN, the probabilities of its attended keys are NaN, and so are
 * the averages that they enter.  Probabilities are as exact as the float lse: if |lse| is near 10^4, half a unit in its
 * last place is a relative error of 2^-11.  Needs OpenCL C 1.2 and nothing else. */
#include "attention/core.h"
#include "attention/pair.h"

#ifndef SCORES_MODE
#define SCORES_MODE 3
#endif
#ifndef AVERAGE
#define AVERAGE 0
#endif
#ifndef W_TYPE
#define W_TYPE F32
#endif
#define PROBABILITIES (SCORES_MODE == 3)

/* Whether key j is attended; a row beyond the item's queries attends nothing. */
static inline bool attends(const attention_item *item, int i, int j, const attention_args *a,
                           const optional_arrays *arrays)
{
    int begin, end;

    attention_keys(item, i, i, a, &begin, &end);
    return i < item->queries && j >= begin && j < end && !attention_excludes(item, i, j, a, arrays);
}

static inline float element(const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key, float row_lse,
                            const attention_item *item, int i, int j, const attention_args *a,
                            const optional_arrays *arrays)
{
    if (SCORES_MODE < 2)
        if (i >= item->queries || j >= item->keys)
            return 0.0f;
    if (SCORES_MODE >= 2 && !attends(item, i, j, a, arrays))
        return PROBABILITIES ? 0.0f : -INFINITY;
    if (PROBABILITIES && (isnan(row_lse) || row_lse == -INFINITY))
        return isnan(row_lse) ? row_lse : 0.0f;
    state s = attention_pair(query, key, item, i, j, a, arrays);
    if (SCORES_MODE >= 1)
        s = attention_capped(s, a);
    if (SCORES_MODE >= 2)
        s = attention_biased(s, item, i, j, a, arrays);
    return PROBABILITIES ? (float)NATURAL_EXP(s - row_lse) : (float)s;
}

kernel void attention_scores(const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key,
                             OPTIONAL_ARRAY_PARAMETERS const global float *lse, global ELEMENT(W_TYPE) *scores,
                             attention_args a)
{
    const optional_arrays arrays = OPTIONAL_ARRAYS;
    if (attention_idle(&a, &arrays))
        return;

    const int heads = AVERAGE ? 1 : a.launch_heads;
    const int j = (int)get_global_id(0), row = (int)get_global_id(1), index = (int)get_global_id(2);
    const int launch_b = index / heads;
    if (j >= a.key_length || row >= a.launch_queries || launch_b >= a.batch)
        return;

    const int b = launch_b + a.first_batch, i = row + a.first_query;
    const int first = AVERAGE ? 0 : index - launch_b * heads + a.first_head;
    const int end = AVERAGE ? a.heads : first + 1;
    float total = 0.0f;
    for (int h = first; h < end; h++) {
        attention_item item;
        attention_item_of(&item, b, h, &a, &arrays);
        const float row_lse = PROBABILITIES ? lse[attention_result_row(&a.lse, &item, i)] : 0.0f;
        total += element(query, key, row_lse, &item, i, j, &a, &arrays);
    }
    STORE(W_TYPE, scores,
          a.scores.offset + b * a.scores.batch + first * a.scores.head + i * a.scores.row + j * a.scores.col,
          AVERAGE ? total / (float)a.heads : total);
}
