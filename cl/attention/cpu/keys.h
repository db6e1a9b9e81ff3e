/* Where the rows of a tile of K, V and their scales lie, for attention_cpu and attention_cpu_decode.
 *
 * A ring's tile never crosses the ring's end, and a paged cache's rows are looked up in a table. */
#ifndef CLATTN_CL_ATTENTION_CPU_KEYS_H
#define CLATTN_CL_ATTENTION_CPU_KEYS_H

#include "attention/core.h"
#include "lib/rows.h"

#define TABLE GIVEN(PAGED)

/* How many keys from `start` on make a tile of at most `most`. */
INLINE int tile_length(int most, int start, int end, const attention_args *a)
{
    int n = min(most, end - start);
#if RING
    n = min(n, a->capacity - start % a->capacity);
#endif
    return n;
}

/* With a paged cache, rows[j]: where key start + j's row begins.  Page by page: LLVM makes a `freeze` of a quotient and
 * a remainder of the same number, which Oclgrind 21.10's check for uninitialised memory does not know. */
INLINE void find_rows(long *rows, const array4 *array, int start, int n, const attention_item *item,
                      const attention_args *a, const attention_side *side)
{
    for (int page = start / PAGE_SIZE, j = 0; j < n; page++) {
        const long row = attention_row(array, item, (long)page * PAGE_SIZE, a, side);
        const int end = min(n, (page + 1) * PAGE_SIZE - start);
        for (; j < end; j++)
            rows[j] = row + (start + j - page * PAGE_SIZE) * array->row;
    }
}

/* The scales of columns d ... d + LANES - 1 of a row that begins at `at`. */
#define LOAD_SCALES(TYPE, x, p, at, d, size, groups, col) \
    do { \
        if ((size) / (groups) % LANES == 0) { \
            x = (floatv)(LOAD(TYPE, p, (at) + (d) / ((size) / (groups)) * (col))); \
        } else { \
            float lane_[LANES]; \
            for (int c_ = 0; c_ < LANES; c_++) \
                lane_[c_] = LOAD(TYPE, p, (at) + min((d) + c_, (size) - 1) / ((size) / (groups)) * (col)); \
            x = VLOAD(0, lane_); \
        } \
    } while (0)

#define NOT_SCALED(x, at, d)
#if KEY_GROUPS
#define SCALE_KEY(x, at, d) \
    do { \
        floatv scale_; \
        LOAD_SCALES(KEY_SCALE_TYPE, scale_, side->key_scale, at, d, D_K, KEY_GROUPS, a->key_scale.col); \
        x *= scale_; \
    } while (0)
#else
#define SCALE_KEY NOT_SCALED
#endif
#if VALUE_GROUPS
#define SCALE_VALUE(x, at, d) \
    do { \
        floatv scale_; \
        LOAD_SCALES(VALUE_SCALE_TYPE, scale_, side->value_scale, at, d, D_V, VALUE_GROUPS, a->value_scale.col); \
        x *= scale_; \
    } while (0)
#else
#define SCALE_VALUE NOT_SCALED
#endif

#endif
