/* One query's scaled score with one key, on its own: for kernels that own no tile. */
#ifndef CLATTN_CL_ATTENTION_PAIR_H
#define CLATTN_CL_ATTENTION_PAIR_H

#include "attention/core.h"

#if DOUBLE
#define STATE_FMA(a, b, c) fma((state)(a), (state)(b), c)
#else
#define STATE_FMA(a, b, c) FMA(a, b, c)
#endif

/* Term d of the score: x * y, or vector * tanh(x + y). */
#if ADDITIVE
#define PAIR_TERM(x, y, d, sum) \
    STATE_FMA(arrays->vector[a->vector.offset + item->h * a->vector.row + (d) * a->vector.col], \
              tanh((state)(x) + (y)), sum)
#define PAIR_KEY(scale, y) ((scale) * (y))
#else
#define PAIR_TERM(x, y, d, sum) STATE_FMA(x, y, sum)
#define PAIR_KEY(scale, y) (y)
#endif

/* Two chains, so that neither latency nor rounding doubles up; a group's scale enters once, in a dot product after
 * the sum. */
static inline state attention_pair(const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key,
                                   const attention_item *item, long i, long j, const attention_args *a,
                                   const optional_arrays *arrays)
{
    const long q = attention_query_row(&a->query, item, i);
    const long k = attention_row(&a->key, item, j, a, arrays);
    state total = 0.0f;
#if KEY_GROUPS
    const long scales = attention_row(&a->key_scale, item, j, a, arrays);
#endif

    for (int first = 0; first < D_K; first += KEY_GROUP) {
        state even = 0.0f;
        state odd = 0.0f;
#if KEY_GROUPS
        const state scale = LOAD(KEY_SCALE_TYPE, arrays->key_scale, scales + first / KEY_GROUP * a->key_scale.col);
#else
        const state scale = 1.0f;
#endif
#pragma unroll 1
        for (int d = first; d + 1 < first + KEY_GROUP; d += 2) {
            even = PAIR_TERM(LOAD(Q_TYPE, query, q + d * a->query.col),
                             PAIR_KEY(scale, LOAD(K_TYPE, key, k + d * a->key.col)), d, even);
            odd = PAIR_TERM(LOAD(Q_TYPE, query, q + (d + 1) * a->query.col),
                            PAIR_KEY(scale, LOAD(K_TYPE, key, k + (d + 1) * a->key.col)), d + 1, odd);
        }
        if (KEY_GROUP % 2 == 1) {
            const int d = first + KEY_GROUP - 1;
            even = PAIR_TERM(LOAD(Q_TYPE, query, q + d * a->query.col),
                             PAIR_KEY(scale, LOAD(K_TYPE, key, k + d * a->key.col)), d, even);
        }
        total += ADDITIVE || !KEY_GROUPS ? even + odd : scale * (even + odd);
    }
    return ATTENTION_SCALE(a) * total;
}

#endif
