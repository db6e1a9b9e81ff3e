/* What attention_cpu and attention_cpu_decode share of a score's way: softcap, where a block's mask and bias lie, and what
 * the mask does to a whole tile of keys. */
#ifndef CLATTN_CL_ATTENTION_CPU_SCORE_H
#define CLATTN_CL_ATTENTION_CPU_SCORE_H

#include "attention/cpu/block.h"
#include "lib/tanh.h"

#define USER_MODS (SCORE_MOD || MASK_MOD)
#define RANGED (CAUSAL || WINDOW)
#define ADDED (MASK || BIAS || ALIBI)

#if SOFTCAP
/* The inverse is a number of full precision for all but absurd caps. */
INLINE void cap_scores(floatv *s, int count, float cap)
{
    const bool plain = cap >= 1e-30f && cap <= 1e30f;
    const float inverse = 1.0f / cap;

    for (int j = 0; j < count; j++)
        s[j] = cap * tanhv(plain ? s[j] * inverse : s[j] / cap);
}
#endif

#define SAME_ROWS(array) ((array)->row == 0 && (!GROUPED || (array)->head == 0))
#define ARRAY_START(array, block) \
    ((array)->offset + (block)->item.b * (array)->batch + (block)->item.h * (array)->head + \
     (block)->first * (array)->row)

#define MASK_EXCLUDED (BOOL_MASK ? 0.0f : -INFINITY)

#if MASK
enum { TILE_CLOSED, TILE_MIXED, TILE_OPEN };

/* What a row of the mask says of `n` neighbouring keys from p on, as far as whole vectors go: whether it lets some
 * pass, whether all.  The keys that it has looked at are the result. */
#if BOOL_MASK
INLINE int scan_row(bool *some, bool *every, const global uchar *p, int n)
{
    char16 open = (char16)(0), closed = (char16)(0); /* a byte a key, however wide LANES is */
    int j = 0;

    for (; j + 16 <= n; j += 16) {
        const char16 x = vload16(0, (const global char *)(p + j));
        open |= x != (char16)(0);
        closed |= x == (char16)(0);
    }
    *some = *some || any(open);
    *every = *every && !any(closed);
    return j;
}
#else
INLINE int scan_row(bool *some, bool *every, const global ELEMENT(MASK_TYPE) *p, int n)
{
    intv open = (intv)(0);
    int j = 0;

    (void)every; /* false already */
    for (; j + LANES <= n; j += LANES)
        open |= LOADV(MASK_TYPE, p, j) != -INFINITY;
    *some = *some || any(open);
    return j;
}
#endif

/* Whether the mask lets none, some or all queries of the block attend keys start ... start + n - 1; a tile that a float
 * mask does not close is mixed, since it is added.  Ends at the first row that decides. */
INLINE int mask_class(const global ELEMENT(MASK_TYPE) *mask, int start, int n, const attention_block *block,
                      const attention_args *a)
{
    const long first = ARRAY_START(&a->mask, block) + start * a->mask.col;
    const int rows = SAME_ROWS(&a->mask) ? 1 : block->live;
    bool some = false, every = BOOL_MASK;

    for (int r = 0; r < rows; r++) {
        const long at = first + ROW_OFFSET(block, &a->mask, r);
        int j = a->mask.col == 1 ? scan_row(&some, &every, mask + at, n) : 0;

        for (; j < n; j++) {
            const bool out = LOAD(MASK_TYPE, mask, at + j * a->mask.col) == MASK_EXCLUDED;
            some = some || !out;
            every = every && !out;
        }
        if (some && !every)
            return TILE_MIXED;
    }
    return some ? TILE_OPEN : TILE_CLOSED;
}
#endif

#endif
