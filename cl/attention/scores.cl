/* The score matrix written out, for people who want to look at it: a second kernel after an attention kernel, whose
 * log-sum-exp the probabilities need.  attention/score_element.h has the formula and its macros.
 *
 * Arrays, strides and macros: attention/core.h; not packed sequences, not a ring.  lse (float) with SCORES_MODE 3 only.
 * W (`a.scores`) lies at offset + b*batch + h*head + i*row + j*col, without h when averaged.
 *
 * NDRange: (a.key_length, a.query_length, a.batch * a.heads, or a.batch when averaged), each rounded up at
 * will; any work-group.  An item owns one element of W.  Local memory: none.  Barriers: none.
 *
 * State is float, with DOUBLE double.  Probabilities are as exact as the float lse: if |lse| is near 10^4, half a unit in its
 * last place is a relative error of 2^-11.  Needs OpenCL C 1.2 and nothing else.  On CPU devices attention/cpu/scores.cl
 * does the same, unless a row is too large for it or the state is double. */
#include "attention/core.h"
#include "attention/score_element.h"

kernel void attention_scores(SCORES_PARAMETERS)
{
    const optional_arrays arrays = OPTIONAL_ARRAYS;
    if (a.batch == 0)
        return;

    const int heads = AVERAGE ? 1 : a.heads;
    const int j = (int)global_id(&a.part, 0), i = (int)global_id(&a.part, 1), index = (int)global_id(&a.part, 2);
    const int b = index / heads;
    if (j >= a.key_length || i >= a.query_length || b >= a.batch)
        return;

    const int first = AVERAGE ? 0 : index - b * heads;
    const int end = AVERAGE ? a.heads : first + 1;
    float total = 0.0f;
    for (int h = first; h < end; h++) {
        attention_item item;
        attention_item_of(&item, b, h, &a, &arrays);
        const float row_lse = PROBABILITIES ? lse[attention_result_row(&a.lse, &item, i)] : 0.0f;
        total += score_element(query, key, row_lse, &item, i, j, &a, &arrays);
    }
    STORE(W_TYPE, scores,
          a.scores.offset + b * a.scores.batch + first * a.scores.head + i * a.scores.row + j * a.scores.col,
          AVERAGE ? total / (float)a.heads : total);
}
