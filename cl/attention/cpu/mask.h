/* attention_cpu: what is added to a tile's scores, and which of them do not count.
 *
 * s[j * QUERY_VECTORS + v] is the tile's S^T, key start + j, softcap applied.  What is not attended becomes -inf last of
 * all, so that nothing of it is left.  With the user's functions modify_each does all of it, and calls them for
 * attended pairs only; otherwise add_tile and mask_range do, a vector at a time. */
#ifndef CLATTN_CL_ATTENTION_CPU_MASK_H
#define CLATTN_CL_ATTENTION_CPU_MASK_H

#include "attention/cpu/lanes.h"
#include "attention/cpu/score.h"

#ifndef POSITIVE_SCALE
#define POSITIVE_SCALE 0
#endif

/* RAW_SCORES: with a positive scale the largest s is where the largest dot product is.  Scores then stay
 * dot products, and scale * log2(e) enters in the FMA that subtracts the maximum.  Whatever is added to a score
 * forbids it: the products that the FMA needs overflow for masks like -FLT_MAX. */
#define RAW_SCORES (POSITIVE_SCALE && !FLOAT_MASK && !BIAS && !ALIBI && !SOFTCAP && !SCORE_MOD)

/* ---- a mask's or bias's block of LANES keys for vector v, x[c] being key `from` + c ---- */

#define LOAD_BLOCK(TYPE, x, p, array, block, v, start, from, n, fill) \
    do { \
        const long at_ = ARRAY_START(array, block) + ((start) + (long)(from)) * (array)->col; \
        if (SAME_ROWS(array)) { \
            for (int c_ = 0; c_ < LANES; c_++) \
                x[c_] = (floatv)((from) + c_ < (n) ? LOAD(TYPE, p, at_ + c_ * (array)->col) : (fill)); \
        } else { \
            for (int r_ = 0; r_ < LANES; r_++) \
                LOAD_ROW(TYPE, x[r_], p, at_ + LIVE_OFFSET(block, array, (v) * LANES + r_), (array)->col, \
                         (n) - (from), fill); \
            transpose(x); \
        } \
    } while (0)

#if ALIBI && !USER_MODS
/* |base + place[lane]|, rounded once; a place is below BLOCK. */
INLINE floatv alibi_distance(long base, floatv place, intv query)
{
    if (base > -(1L << 23) && base < 1L << 23)
        return fabs(place + (float)base);
    const JOIN(long, LANES) exact = JOIN(convert_long, LANES)(query) + base;
    return fabs(JOIN(convert_float, LANES)(exact));
}
#endif

#if BOOL_MASK && !USER_MODS
#if LANES == 16
typedef int4 quads;
#define AS_QUADS as_int4
#elif LANES == 8
typedef int2 quads;
#define AS_QUADS as_int2
#else
typedef int quads;
#define AS_QUADS as_int
#endif

/* Which of keys `from` ... from + LANES - 1 the mask lets vector v's queries attend: byte c % 4 of word[c / 4] is key c's,
 * 0 where it does not.  Four keys are a word, so that a quarter of a transposition brings the queries across the lanes. */
INLINE void load_words(intv *word, const global uchar *mask, int v, int start, int from, int n,
                       const attention_block *block, const attention_args *a)
{
    const long at = ARRAY_START(&a->mask, block) + (start + (long)from) * a->mask.col, col = a->mask.col;
    intv swap[LANES / 4];
    quads row[LANES];

    if (n - from >= LANES && col == 1) {
#pragma unroll
        for (int r = 0; r < LANES; r++)
            row[r] = AS_QUADS(VLOAD(0, mask + at + LIVE_OFFSET(block, &a->mask, v * LANES + r)));
    } else {
        for (int r = 0; r < LANES; r++) {
            const global uchar *p = mask + at + LIVE_OFFSET(block, &a->mask, v * LANES + r);
            uchar byte[LANES];
            for (int c = 0; c < LANES; c++)
                byte[c] = from + c < n ? p[c * col] : 0;
            row[r] = AS_QUADS(VLOAD(0, byte));
        }
    }
#pragma unroll
    for (int i = 0; i < LANES / 4; i++)
        word[i] = (intv)(row[4 * i], row[4 * i + 1], row[4 * i + 2], row[4 * i + 3]);
#pragma unroll
    for (int pass = 2; pass < LOG2_LANES; pass++) {
#pragma unroll
        for (int i = 0; i < LANES / 8; i++) {
            swap[i] = (intv)(word[2 * i].even, word[2 * i + 1].even);
            swap[i + LANES / 8] = (intv)(word[2 * i].odd, word[2 * i + 1].odd);
        }
#pragma unroll
        for (int i = 0; i < LANES / 4; i++)
            word[i] = swap[i];
    }
}
#endif

#if ADDED && !USER_MODS
/* What LANES keys of one vector of queries get. */
typedef struct tile_addends {
    bool open; /* the mask lets all of them pass */
    long base; /* with ALIBI: how far row 0's query stands from the first key */
#if ALIBI
    floatv slope, place; /* place: the query's, from row 0's */
    intv query;
#endif
#if BOOL_MASK
    intv word[LANES / 4];
#elif MASK
    floatv mask[LANES];
#endif
#if BIAS
    floatv bias[LANES];
#endif
} tile_addends;

/* x, key c's scores, with its addends; what the mask or the bias excludes is -inf. */
INLINE floatv add_key(floatv x, int c, const tile_addends *t)
{
#if BIAS
    x += t->bias[c];
#endif
#if ALIBI
    x -= t->slope * alibi_distance(t->base - c, t->place, t->query);
#endif
#if FLOAT_MASK
    x += t->mask[c];
#endif
#if BIAS
    x = select(x, (floatv)(-INFINITY), t->bias[c] == -INFINITY);
#endif
#if BOOL_MASK
    if (!t->open)
        x = select(x, (floatv)(-INFINITY), (t->word[c >> 2] & (0xff << (c & 3) * 8)) == 0);
#elif MASK
    if (!t->open)
        x = select(x, (floatv)(-INFINITY), t->mask[c] == -INFINITY);
#endif
    return x;
}

/* Bias, ALiBi and mask of keys start ... start + n - 1; `open`: the mask lets all of them pass. */
INLINE void add_tile(floatv *s, bool open, int start, int n, const attention_block *block, const attention_args *a,
                     const optional_arrays *arrays)
{
    tile_addends t[QUERY_VECTORS];

    for (int v = 0; v < QUERY_VECTORS; v++) {
        t[v].open = open;
#if ALIBI
        float lane[LANES];
        for (int l = 0; l < LANES; l++)
            lane[l] = arrays->alibi[a->alibi.offset + block->item.b * a->alibi.row +
                                    ROW_HEAD(block, LIVE_ROW(block, v * LANES + l)) * a->alibi.col];
        t[v].slope = VLOAD(0, lane);
        t[v].query = block_queries(block, v);
        t[v].place = JOIN(convert_float, LANES)(t[v].query);
#endif
    }
    for (int from = 0; from < n; from += LANES)
        for (int v = 0; v < QUERY_VECTORS; v++) {
            floatv *score = s + from * QUERY_VECTORS + v;
            t[v].base = block->first + block->item.position - (start + from);
#if BOOL_MASK
            if (!open)
                load_words(t[v].word, arrays->mask, v, start, from, n, block, a);
#elif MASK
            if (!open)
                LOAD_BLOCK(MASK_TYPE, t[v].mask, arrays->mask, &a->mask, block, v, start, from, n, -INFINITY);
#endif
#if BIAS
            LOAD_BLOCK(BIAS_TYPE, t[v].bias, arrays->bias, &a->bias, block, v, start, from, n, -INFINITY);
#endif
            if (n - from >= LANES) {
#pragma unroll
                for (int c = 0; c < LANES; c++)
                    score[c * QUERY_VECTORS] = add_key(score[c * QUERY_VECTORS], c, &t[v]);
            } else {
                for (int c = 0; c < n - from; c++)
                    score[c * QUERY_VECTORS] = add_key(score[c * QUERY_VECTORS], c, &t[v]);
            }
        }
}
#endif

/* ---- causality and window ---- */

#if RANGED
/* Key j of the tile lies at j + edge from query 0 of the block, and query i attends distances i - left ... i + right. */
typedef struct tile_range {
    bool after, before; /* a key lies too far after a query of the block, or before it */
    int low, high;      /* query i attends j if j + low <= i <= j + high */
} tile_range;

#define FAR (1L << 40 << 2)

INLINE tile_range range_of(int start, int n, const attention_block *block, const attention_args *a)
{
    const long edge = start - (block->first + block->item.position);
    long left = FAR, right = CAUSAL ? 0 : FAR;
#if WINDOW
    if (a->window_left != ATTENTION_UNBOUNDED)
        left = a->window_left;
    if (a->window_right != ATTENTION_UNBOUNDED)
        right = min(right, a->window_right);
#endif
    tile_range range;
    range.after = edge + n - 1 > right;
    range.before = edge < block->last - left;
    range.low = (int)clamp(edge - right, -(1L << 30), 1L << 30);
    range.high = (int)clamp(edge + left, -(1L << 30), 1L << 30);
    return range;
}

INLINE void mask_range(floatv *s, tile_range range, int n, const attention_block *block)
{
    intv query[QUERY_VECTORS];
    for (int v = 0; v < QUERY_VECTORS; v++)
        query[v] = block_queries(block, v);
    if (range.after)
        for (int j = 0; j < n; j++)
            for (int v = 0; v < QUERY_VECTORS; v++) {
                floatv *score = s + j * QUERY_VECTORS + v;
                *score = select(*score, (floatv)(-INFINITY), query[v] < j + range.low);
            }
    if (range.before)
        for (int j = 0; j < n; j++)
            for (int v = 0; v < QUERY_VECTORS; v++) {
                floatv *score = s + j * QUERY_VECTORS + v;
                *score = select(*score, (floatv)(-INFINITY), query[v] > j + range.high);
            }
}
#endif

#if USER_MODS
/* Everything after softcap.  `inside`: causality and window let all pairs of the tile pass. */
INLINE void modify_each(floatv *s, bool inside, int start, int n, const attention_block *block, const attention_args *a,
                        const optional_arrays *arrays)
{
    attention_item item = block->item;

    for (int j = 0; j < n; j++)
        for (int v = 0; v < QUERY_VECTORS; v++) {
            float lane[LANES];
            VSTORE(s[j * QUERY_VECTORS + v], 0, lane);
#if !MASK && !BIAS
            /* No branch but the user's: a loop that the compiler can put across the lanes. */
            if (inside) {
                for (int l = 0; l < LANES; l++) {
                    const int r = LIVE_ROW(block, v * LANES + l);
                    item.h = ROW_HEAD(block, r);
                    const long i = ROW_QUERY(block, r);
                    const float x = attention_biased(lane[l], &item, i, start + j, a, arrays);
#if MASK_MOD
                    const bool kept =
                        mask_mod(item.b, item.h, (int)i, start + j, attention_user(&item, a, arrays)) != 0;
                    lane[l] = kept ? x : -INFINITY;
#else
                    lane[l] = x;
#endif
                }
                s[j * QUERY_VECTORS + v] = VLOAD(0, lane);
                continue;
            }
#endif
            for (int l = 0; l < LANES; l++) {
                const int r = LIVE_ROW(block, v * LANES + l);
                item.h = ROW_HEAD(block, r);
                const long i = ROW_QUERY(block, r);
                if (attention_excludes(&item, i, start + j, a, arrays))
                    lane[l] = -INFINITY;
                else
                    lane[l] = attention_biased(lane[l], &item, i, start + j, a, arrays);
            }
            s[j * QUERY_VECTORS + v] = VLOAD(0, lane);
        }
}
#endif

/* Turns products into the scores that the softmax takes.  A tile that the mask closes has been left out before. */
INLINE void modify_tile(floatv *s, bool open, int start, int n, const attention_block *block, const attention_args *a,
                        const optional_arrays *arrays)
{
#if SOFTCAP
    cap_scores(s, n * QUERY_VECTORS, a->softcap);
#endif
#if RANGED
    const tile_range range = range_of(start, n, block, a);
    const bool inside = !range.after && !range.before;
#else
    const bool inside = true;
#endif
#if USER_MODS
    modify_each(s, inside, start, n, block, a, arrays);
#else
#if ADDED
    if (!open || BIAS || ALIBI)
        add_tile(s, open, start, n, block, a, arrays);
#endif
#if RANGED
    if (!inside)
        mask_range(s, range, n, block);
#endif
#endif
}

#endif
