/* attention_cpu's softmax: what a tile of scores does to a block's running state, and how a row ends. */
#ifndef CLATTN_CL_ATTENTION_CPU_SOFTMAX_H
#define CLATTN_CL_ATTENTION_CPU_SOFTMAX_H

#include "attention/cpu/lanes.h"

/* ENTROPY: adds what the tile contributes to sum exp(s - highest) * (s - highest); x is that in units of log 2. */
#if ENTROPY
#define ADD_MOMENT(moment, p, x) (moment) += select((p) * (x), (floatv)(0.0f), (p) == 0.0f)
#else
#define ADD_MOMENT(moment, p, x)
#endif

/* Raises `top` to the scores of keys j < n, four at a time, which wait for each other less.  It takes no NaN (the comparison
 * is false), and of four of which one is NaN perhaps none: it is the score's own subtraction that carries a NaN on. */
INLINE void find_highest(floatv *top, const floatv *s, int n)
{
    int j = 0;

    for (; j + 4 <= n; j += 4)
#pragma unroll
        for (int v = 0; v < QUERY_VECTORS; v++) {
            const floatv *x = s + j * QUERY_VECTORS + v;
            const floatv first = LARGER_OF(x[0], x[QUERY_VECTORS]);
            const floatv last = LARGER_OF(x[2 * QUERY_VECTORS], x[3 * QUERY_VECTORS]);
            top[v] = LARGER_OF(top[v], LARGER_OF(first, last));
        }
    for (; j < n; j++)
#pragma unroll
        for (int v = 0; v < QUERY_VECTORS; v++)
            top[v] = LARGER_OF(top[v], s[j * QUERY_VECTORS + v]);
}

/* `highest` becomes `top`, which becomes what is subtracted from the scores; `shrink` tells what the accumulators are to
 * be multiplied by.  Where all scores so far are -inf, 0 is subtracted: -inf - -inf would be a NaN.  The maximum is
 * multiplied by `factor` before the subtraction and rounded there, once and for old and new alike, so that p and shrink
 * refer to exactly the same number.  `moment`, with ENTROPY, is sum p * log2(p). */
INLINE void raise_highest(floatv *top, float factor, floatv *highest, const floatv *sum, floatv *moment, floatv *shrink)
{
#pragma unroll
    for (int v = 0; v < QUERY_VECTORS; v++) {
        const floatv safe = select(top[v], (floatv)(0.0f), top[v] == -INFINITY);
        const floatv down = RAW_SCORES ? highest[v] * factor - safe * factor : (highest[v] - safe) * LOG2E;
        shrink[v] = exp2v(down);
#if ENTROPY
        moment[v] =
            select(shrink[v] * FMA(down, sum[v], moment[v]), (floatv)(0.0f), sum[v] == 0.0f || shrink[v] == 0.0f);
#endif
        highest[v] = top[v];
        top[v] = RAW_SCORES ? safe * factor : safe;
    }
}

/* log2(p) of a score. */
INLINE floatv exponent_of(floatv s, float factor, floatv top)
{
    return RAW_SCORES ? FMA(s, (floatv)(factor), -top) : (s - top) * LOG2E;
}

/* S^T becomes P^T for keys j < n, which `sum` takes in; `top` is what raise_highest has made of it. */
INLINE void weigh_tile(floatv *s, int n, float factor, const floatv *top, floatv *sum, floatv *moment,
                       const floatv *shrink)
{
    floatv total[QUERY_VECTORS];

#pragma unroll
    for (int v = 0; v < QUERY_VECTORS; v++)
        total[v] = (floatv)(0.0f);
    for (int j = 0; j < n; j++)
#pragma unroll
        for (int v = 0; v < QUERY_VECTORS; v++) {
            const floatv x = exponent_of(s[j * QUERY_VECTORS + v], factor, top[v]);
            const floatv p = exp2v(x);
            s[j * QUERY_VECTORS + v] = p;
            total[v] += p;
            ADD_MOMENT(moment[v], p, x);
        }
#pragma unroll
    for (int v = 0; v < QUERY_VECTORS; v++)
        sum[v] = FMA(sum[v], shrink[v], total[v]);
}

/* S^T becomes P^T for keys j < n, which `highest` and `sum` take in. */
INLINE void softmax_tile(floatv *s, int n, float factor, floatv *highest, floatv *sum, floatv *moment, floatv *shrink)
{
    floatv top[QUERY_VECTORS];

#pragma unroll
    for (int v = 0; v < QUERY_VECTORS; v++)
        top[v] = highest[v];
    find_highest(top, s, n);
    raise_highest(top, factor, highest, sum, moment, shrink);
    weigh_tile(s, n, factor, top, sum, moment, shrink);
}

/* Rows beyond the item's length have attended nothing, whatever their lanes computed. */
INLINE void forget_dead_rows(floatv *highest, floatv *sum, const attention_block *block)
{
    if (block->live == block->rows)
        return;
    for (int v = 0; v < QUERY_VECTORS; v++) {
        const intv dead = LANE_INDEX + v * LANES >= block->live;
        highest[v] = select(highest[v], (floatv)(-INFINITY), dead);
        sum[v] = select(sum[v], (floatv)(0.0f), dead);
    }
}

/* What the accumulators are multiplied by at last, and the rows' log-sum-exp and entropy; the vector form of
 * attention_finish and attention_entropy. */
INLINE void finish_rows(floatv *factor, floatv *lse, floatv *entropy, const floatv *highest, const floatv *sum,
                        const floatv *moment, float scale, const attention_block *block, const attention_args *a,
                        const attention_side *side)
{
    for (int v = 0; v < QUERY_VECTORS; v++) {
        const floatv own = RAW_SCORES ? highest[v] * scale * LN2 : highest[v];
        floatv top = own;
        floatv total = sum[v];
#if SINKS && !SPLIT
        float lane[LANES];
        for (int l = 0; l < LANES; l++)
            lane[l] =
                side->sinks[a->sinks.offset + ROW_HEAD(block, min(v * LANES + l, block->rows - 1)) * a->sinks.stride];
        const floatv sink = VLOAD(0, lane);
        top = select(own, sink, sink > own);
        const floatv safe = select(top, (floatv)(0.0f), top == -INFINITY);
        const floatv share = select(exp2v((own - safe) * LOG2E), (floatv)(0.0f), sum[v] == 0.0f);
        total = total * share + exp2v((sink - safe) * LOG2E);
        factor[v] = select(share / total, (floatv)(0.0f), total == 0.0f);
#else
        factor[v] = select(1.0f / total, (floatv)(0.0f), total == 0.0f);
#endif
#if ENTROPY
        const floatv plogp = sum[v] * (log(total) + (top - own)) - moment[v] * LN2;
        entropy[v] = select(factor[v] * plogp, (floatv)(0.0f), sum[v] == 0.0f);
#endif
#if DROPOUT
        factor[v] *= a->dropout_scale;
#endif
#if LSE
        lse[v] = select(top + log(total), (floatv)(-INFINITY), total == 0.0f);
#endif
    }
}

#if DROPOUT
typedef JOIN(ulong, LANES) ulongv;

/* lib/philox.h's philox for LANES counters at a time. */
INLINE void philoxv(uintv *c, uint2 key)
{
    for (int round = 0; round < 10; round++) {
        const ulongv p = JOIN(convert_ulong, LANES)(c[0]) * 0xD2511F53u,
                     q = JOIN(convert_ulong, LANES)(c[2]) * 0xCD9E8D57u;
        const uintv low0 = JOIN(convert_uint, LANES)(p & 0xffffffffu),
                    low1 = JOIN(convert_uint, LANES)(q & 0xffffffffu);
        const uintv high0 = JOIN(convert_uint, LANES)(p >> 32), high1 = JOIN(convert_uint, LANES)(q >> 32);
        c[0] = high1 ^ c[1] ^ key.x;
        c[1] = low1;
        c[2] = high0 ^ c[3] ^ key.y;
        c[3] = low0;
        key += (uint2)(0x9E3779B9u, 0xBB67AE85u);
    }
}

/* Drops probabilities of keys start ... start + n - 1; the vector form of attention_keeps. */
INLINE void drop_tile(floatv *p, int start, int n, const attention_block *block, const attention_args *a)
{
    const uint2 key = (uint2)((uint)a->dropout_seed, (uint)(a->dropout_seed >> 32));

    for (int v = 0; v < QUERY_VECTORS; v++) {
        const uintv query = JOIN(convert_uint, LANES)(block_queries(block, v)) + (uint)block->first;
#if GROUPED
        const uintv head = JOIN(convert_uint, LANES)(JOIN(vload, LANES)(v, block->head));
#else
        const uintv head = (uintv)(0);
#endif
        for (int four = start / 4; four * 4 < start + n; four++) {
            uintv word[4] = {(uintv)((uint)four), query, head + (uint)(block->item.b * a->heads + block->item.h),
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
