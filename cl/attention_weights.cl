/* Attention probabilities written out, for people who want to look at them: a second pass after an attention
 * kernel that wrote its log-sum-exp.
 *
 *   W[b,h,i,j] = exp(scale * sum_d Q[b,h,i,d] K[b,g,j,d] (+ mask[b,h,i,j]) - lse[b,h,i]),   g = h / group
 *   AVERAGE:  W[b,i,j] = (sum over h = 0, 1, ... of the above) / heads
 *
 * Buffers, in the order of the arguments (an array4 `t` of attention_args places each; row is i, col is j
 * or d): query[b,h,i,d], key[b,g,j,d], [mask[b,h,i,j], j < mask_keys], lse[b,h,i] (float, natural
 * logarithm), weights at offset + b*batch + h*head + i*row + j*col, without h when averaged.
 *
 * Parameter       meaning                                            allowed
 * D_K             size of a query                                    1 and more
 * MASK, MASK_TYPE a mask is given; BOOL attends where true, others   0, 1; BOOL, F32, F16, BF16
 *                 are added and -inf selects as BOOL does
 * CAUSAL          query i attends key j <= i + position              0, 1
 * AVERAGE         the mean over the query heads                      0, 1
 * Q_TYPE, K_TYPE, W_TYPE  storage                                    F32, F16, BF16
 * Tested: every combination of MASK (BOOL, F32), CAUSAL and AVERAGE; D_K 1 to 128.
 *
 * NDRange: (key_length, query_length, batch * heads, or batch when averaged), each rounded up at will; any
 * work-group.  An item owns one element of W.  Local memory: none.  Barriers: none.
 *
 * State is float.  A key that is not attended gives exactly +0, whatever K holds there; so does a row with
 * lse -inf; a row with lse NaN is NaN throughout, and makes the average NaN.  The result is as exact as the
 * float lse: half a unit in its last place is a relative error of 2^-11 where |lse| is near 10^4.
 *
 * Needs OpenCL C 1.2 and nothing else. */
#include "inc/args.h"
#include "inc/storage.h"
#include "inc/exp2.h"

#ifndef Q_TYPE
#define Q_TYPE F32
#endif
#ifndef K_TYPE
#define K_TYPE F32
#endif
#ifndef W_TYPE
#define W_TYPE F32
#endif
#ifndef D_K
#define D_K 64
#endif
#ifndef MASK
#define MASK 0
#endif
#ifndef MASK_TYPE
#define MASK_TYPE F32
#endif
#ifndef CAUSAL
#define CAUSAL 0
#endif
#ifndef AVERAGE
#define AVERAGE 0
#endif

#if D_K < 1
#error "D_K must be positive"
#endif

#define SELECTS_BOOL 1
#define SELECTS_F32 0
#define SELECTS_F16 0
#define SELECTS_BF16 0
#define MASK_SELECTS (MASK && JOIN(SELECTS_, MASK_TYPE))

static inline float probability(const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key,
#if MASK
                                const global ELEMENT(MASK_TYPE) *mask,
#endif
                                const global float *lse, args_long b, args_long h, int i, int j,
                                const attention_args *a)
{
    const float sum = lse[a->lse.offset + b * a->lse.batch + h * a->lse.head + i * a->lse.row];
    bool attended = sum != -INFINITY;
    float added = 0.0f;

#if CAUSAL
    attended = attended && j <= i + a->position;
#endif
#if MASK
    attended = attended && j < a->mask_keys;
    if (attended) {
        const float m = LOAD(MASK_TYPE, mask, a->mask.offset + b * a->mask.batch + h * a->mask.head
                                                  + i * a->mask.row + j * a->mask.col);
        attended = MASK_SELECTS ? m != 0.0f : m != -INFINITY;
        added = MASK_SELECTS ? 0.0f : m;
    }
#endif
    if (!attended)
        return isnan(sum) ? sum : 0.0f;

    query += a->query.offset + b * a->query.batch + h * a->query.head + i * a->query.row;
    key += a->key.offset + b * a->key.batch + h / a->group * a->key.head + j * a->key.row;
    float even = 0.0f, odd = 0.0f;
    for (int d = 0; d + 1 < D_K; d += 2) {
        even = FMA(LOAD(Q_TYPE, query, d * a->query.col), LOAD(K_TYPE, key, d * a->key.col), even);
        odd = FMA(LOAD(Q_TYPE, query, (d + 1) * a->query.col), LOAD(K_TYPE, key, (d + 1) * a->key.col), odd);
    }
    if (D_K % 2 == 1)
        even = FMA(LOAD(Q_TYPE, query, (D_K - 1) * a->query.col), LOAD(K_TYPE, key, (D_K - 1) * a->key.col),
                   even);
    const float p = exp2s(((even + odd) * a->scale + added - sum) * LOG2E);
    return isnan(sum) ? sum : p;
}

kernel void attention_weights(const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key,
#if MASK
                              const global ELEMENT(MASK_TYPE) *mask,
#endif
                              const global float *lse, global ELEMENT(W_TYPE) *weights, attention_args a)
{
    if (a.batch == 0)
        return;

    const int heads = AVERAGE ? 1 : a.heads;
    const int j = (int)get_global_id(0), i = (int)get_global_id(1), item = (int)get_global_id(2);
    const int b = item / heads;
    if (j >= a.key_length || i >= a.query_length || b >= a.batch)
        return;

    const int first = item - b * heads, end = AVERAGE ? a.heads : first + 1;
    float total = 0.0f;
    for (int h = first; h < end; h++)
#if MASK
        total += probability(query, key, mask, lse, b, h, i, j, &a);
#else
        total += probability(query, key, lse, b, h, i, j, &a);
#endif
    STORE(W_TYPE, weights, a.weights.offset + b * a.weights.batch + first * a.weights.head
                               + i * a.weights.row + j * a.weights.col,
          AVERAGE ? total / (float)a.heads : total);
}
