/* One element of the score matrix on its own, for both kernels that write it out.
 *
 *   SCORES_MODE 0   W[b,h,i,j] = s_ij, the scaled score: for every key within the item's lengths, else +0
 *               1   the same after softcap
 *               2   after everything that is added; -inf where key j is not attended
 *               3   exp(s_ij - lse[b,h,i]); +0 where key j is not attended
 *   AVERAGE: W[b,i,j] = (sum over h = 0, 1, ... of the above) / heads
 *
 *   SCORES_MODE   0 1 2 3 (3)      AVERAGE  0 1 (0)      W_TYPE  F32 F16 BF16 (F32)
 *
 * If a row's lse is NaN, the probabilities of its attended keys are NaN, and so are the averages that they enter. */
#ifndef CLATTN_CL_ATTENTION_SCORE_ELEMENT_H
#define CLATTN_CL_ATTENTION_SCORE_ELEMENT_H

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

#define SCORES_PARAMETERS \
    const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key, \
        OPTIONAL_ARRAY_PARAMETERS const global float *lse, global ELEMENT(W_TYPE) *scores, attention_args a
#define SCORES_ARGUMENTS query, key, OPTIONAL_ARRAY_ARGUMENTS lse, scores, a

/* Whether key j is attended; a row beyond the item's queries attends nothing. */
static inline bool attends(const attention_item *item, int i, int j, const attention_args *a,
                           const optional_arrays *arrays)
{
    int begin, end;

    attention_keys(item, i, i, a, &begin, &end);
    return i < item->queries && j >= begin && j < end && !attention_excludes(item, i, j, a, arrays);
}

static inline float score_element(const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key, float row_lse,
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

#endif
