/* attention_cpu: what is added to a tile's scores, and which of them do not count.
 *
 * s[j * QUERY_VECTORS + v] is the tile's S^T, key start + j, softcap applied.  What is not attended becomes -inf last of all, so that
 * nothing of it is left.  With the user's functions all of it is done by keep_each, which calls them for attended
 * pairs only; else by add_tile and sees_tile, a vector at a time. */
#ifndef CLATTN_INC_CPU_KEEP_H
#define CLATTN_INC_CPU_KEEP_H

#include "inc/cpu_lanes.h"
#include "inc/cpu_score.h"

/* ---- a mask's or bias's block of LANES keys for vector v, x[c] being key `from` + c ---- */

#define LOAD_BLOCK(TYPE, x, p, array, v, from, n, fill) \
    do { \
        const long at_ = ARRAY_START(array, block) + (start + (long)(from)) * (array)->col; \
        if (SAME_ROWS(array)) { \
            for (int c_ = 0; c_ < LANES; c_++) \
                x[c_] = (floatv)((from) + c_ < (n) ? LOAD(TYPE, p, at_ + c_ * (array)->col) : (fill)); \
        } else { \
            for (int r_ = 0; r_ < LANES; r_++) \
                LOAD_ROW(TYPE, x[r_], p, at_ + LIVE_OFFSET(block, array, (v) * LANES + r_), (array)->col, (n) - (from), \
                         fill); \
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

#if ADDED && !USER_MODS
/* Bias, ALiBi and mask of keys start ... start + n - 1; `open`: the mask lets all of them pass. */
INLINE void add_tile(floatv *s, bool open, int start, int n, const attention_block *block, const attention_args *a,
                     const attention_side *side)
{
#if ALIBI
    floatv slope[QUERY_VECTORS], place[QUERY_VECTORS];
    for (int v = 0; v < QUERY_VECTORS; v++) {
        float lane[LANES];
        for (int l = 0; l < LANES; l++)
            lane[l] = side->alibi[a->alibi.offset + block->item.b * a->alibi.batch
                                  + ROW_HEAD(block, LIVE_ROW(block, v * LANES + l)) * a->alibi.head];
        slope[v] = VLOAD(0, lane);
        place[v] = JOIN(convert_float, LANES)(block_queries(block, v));
    }
#endif
    for (int from = 0; from < n; from += LANES)
        for (int v = 0; v < QUERY_VECTORS; v++) {
#if MASK
            floatv mask[LANES];
            if (!open)
                LOAD_BLOCK(MASK_TYPE, mask, side->mask, &a->mask, v, from, n, MASK_EXCLUDED);
#endif
#if BIAS
            floatv bias[LANES];
            LOAD_BLOCK(BIAS_TYPE, bias, side->bias, &a->bias, v, from, n, -INFINITY);
#endif
            for (int c = 0; c < LANES && from + c < n; c++) {
                floatv *score = s + (from + c) * QUERY_VECTORS + v;
                floatv x = *score;
#if BIAS
                x += bias[c];
#endif
#if ALIBI
                x -= slope[v] * alibi_distance(block->first + block->item.position - (start + from + c), place[v],
                                               block_queries(block, v));
#endif
#if FLOAT_MASK
                x += mask[c];
#endif
#if BIAS
                x = select(x, (floatv)(-INFINITY), bias[c] == -INFINITY);
#endif
#if MASK
                if (!open)
                    x = select(x, (floatv)(-INFINITY), mask[c] == MASK_EXCLUDED);
#endif
                *score = x;
            }
        }
}
#endif

/* ---- causality and window ---- */

#if SIDED
/* Key j of the tile lies at j + edge from query 0 of the block, and query i attends distances i - left ... i + right. */
typedef struct tile_sides {
    bool crossed;  /* some pair of the tile is not attended */
    int low, high; /* query i attends j if j + low <= i <= j + high */
} tile_sides;

#define FAR (1L << 40 << 2)

INLINE tile_sides sides_of(int start, int n, const attention_block *block, const attention_args *a)
{
    const long edge = start - (block->first + block->item.position);
    long left = FAR, right = CAUSAL ? 0 : FAR;
#if WINDOW
    if (a->window_left != ATTENTION_UNBOUNDED)
        left = a->window_left;
    if (a->window_right != ATTENTION_UNBOUNDED)
        right = min(right, a->window_right);
#endif
    tile_sides sides;
    sides.crossed = edge + n - 1 > right || edge < block->last - left;
    sides.low = (int)clamp(edge - right, -(1L << 30), 1L << 30);
    sides.high = (int)clamp(edge + left, -(1L << 30), 1L << 30);
    return sides;
}

INLINE void sees_tile(floatv *s, tile_sides sides, int n, const attention_block *block)
{
    intv query[QUERY_VECTORS];
    for (int v = 0; v < QUERY_VECTORS; v++)
        query[v] = block_queries(block, v);
    for (int j = 0; j < n; j++)
        for (int v = 0; v < QUERY_VECTORS; v++) {
            floatv *score = s + j * QUERY_VECTORS + v;
            intv out = query[v] < j + sides.low;
#if WINDOW
            out |= query[v] > j + sides.high;
#endif
            *score = select(*score, (floatv)(-INFINITY), out);
        }
}
#endif

#if USER_MODS
/* Everything after softcap.  `inside`: causality and window let all pairs of the tile pass. */
INLINE void keep_each(floatv *s, bool inside, int start, int n, const attention_block *block, const attention_args *a,
                      const attention_side *side)
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
                    const float x = attention_biased(lane[l], &item, i, start + j, a, side);
#if MASK_MOD
                    const bool kept = mask_mod(item.b, item.h, (int)i, start + j, attention_user(&item, a, side)) != 0;
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
                if (attention_excludes(&item, i, start + j, a, side))
                    lane[l] = -INFINITY;
                else
                    lane[l] = attention_biased(lane[l], &item, i, start + j, a, side);
            }
            s[j * QUERY_VECTORS + v] = VLOAD(0, lane);
        }
}
#endif

#endif
