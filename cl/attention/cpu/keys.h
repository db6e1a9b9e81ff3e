/* Where the rows of a tile of K, V and their scales lie, for all kernels of this folder.
 *
 *   KEYS_AT_ONCE   the most keys that one table of rows has (KEY_TILE)
 *
 * A ring's tile never crosses the ring's end, and a paged cache's rows are looked up in a table. */
#ifndef CLATTN_CL_ATTENTION_CPU_KEYS_H
#define CLATTN_CL_ATTENTION_CPU_KEYS_H

#include "attention/core.h"
#include "lib/rows.h"

#define TABLE GIVEN(PAGED)
#ifndef KEYS_AT_ONCE
#define KEYS_AT_ONCE KEY_TILE
#endif

/* How many keys from `start` on make a tile of at most `most`. */
INLINE int tile_length(int most, int start, int end, const attention_args *a)
{
    int n = min(most, end - start);
#if RING
    n = min(n, a->capacity - start % a->capacity);
#endif
    return n;
}

/* Sets rows[j] to where key start + j's row begins in a paged cache.  It goes page by page because LLVM makes a `freeze` of
 * a quotient and a remainder of the same number, which Oclgrind 21.10's check for uninitialised memory does not know. */
INLINE void find_rows(long *rows, const array4 *array, int start, int n, const attention_item *item,
                      const attention_args *a, const optional_arrays *arrays)
{
    for (int page = start / PAGE_SIZE, j = 0; j < n; page++) {
        const long row = attention_row(array, item, (long)page * PAGE_SIZE, a, arrays);
        const int end = min(n, (page + 1) * PAGE_SIZE - start);
        for (; j < end; j++)
            rows[j] = row + (start + j - page * PAGE_SIZE) * array->row;
    }
}

/* Where the rows of a tile of keys begin in an array. */
typedef struct key_rows {
#if TABLE
    long row[KEYS_AT_ONCE];
#else
    long first, step;
#endif
} key_rows;

INLINE void find_key_rows(key_rows *rows, const array4 *array, int start, int n, const attention_item *item,
                          const attention_args *a, const optional_arrays *arrays)
{
#if TABLE
    find_rows(rows->row, array, start, n, item, a, arrays);
#else
    rows->first = attention_row(array, item, start, a, arrays);
    rows->step = array->row;
#endif
}

/* Where row j of the tile begins. */
INLINE long key_row(const key_rows *rows, int j)
{
#if TABLE
    return rows->row[j];
#else
    return rows->first + j * rows->step;
#endif
}

/* The scales of LANES columns that are whole groups of 4 or of 8, from index i on. */
#if LANES == 16
#define SCALES_OF_4(TYPE, p, i, col) \
    (float16)((float4)(LOAD(TYPE, p, i)), (float4)(LOAD(TYPE, p, (i) + (col))), \
              (float4)(LOAD(TYPE, p, (i) + 2 * (col))), (float4)(LOAD(TYPE, p, (i) + 3 * (col))))
#define SCALES_OF_8(TYPE, p, i, col) (float16)((float8)(LOAD(TYPE, p, i)), (float8)(LOAD(TYPE, p, (i) + (col))))
#elif LANES == 8
#define SCALES_OF_4(TYPE, p, i, col) (float8)((float4)(LOAD(TYPE, p, i)), (float4)(LOAD(TYPE, p, (i) + (col))))
#define SCALES_OF_8(TYPE, p, i, col) (float8)(LOAD(TYPE, p, i))
#else
#define SCALES_OF_4(TYPE, p, i, col) (float4)(LOAD(TYPE, p, i))
#define SCALES_OF_8(TYPE, p, i, col) (float4)(LOAD(TYPE, p, i))
#endif

/* The scales of columns d ... d + LANES - 1 of a row that begins at `at`. */
#define LOAD_SCALES(TYPE, x, p, at, d, size, groups, col) \
    do { \
        if ((size) / (groups) % LANES == 0) { \
            x = (floatv)(LOAD(TYPE, p, (at) + (d) / ((size) / (groups)) * (col))); \
        } else if ((size) / (groups) == 4 && (size) - (d) >= LANES) { \
            x = SCALES_OF_4(TYPE, p, (at) + (d) / 4 * (col), col); \
        } else if ((size) / (groups) == 8 && (size) - (d) >= LANES) { \
            x = SCALES_OF_8(TYPE, p, (at) + (d) / 8 * (col), col); \
        } else { \
            float lane_[LANES]; \
            for (int c_ = 0; c_ < LANES; c_++) \
                lane_[c_] = LOAD(TYPE, p, (at) + min((d) + c_, (size) - 1) / ((size) / (groups)) * (col)); \
            x = VLOAD(0, lane_); \
        } \
    } while (0)

/* Columns d ... d + LANES - 1 of a key, times their scales if keys have any; the scales' row begins at `at`. */
INLINE floatv scaled_key(floatv x, long at, int d, const attention_args *a, const optional_arrays *arrays)
{
#if KEY_GROUPS
    floatv scale;
    LOAD_SCALES(KEY_SCALE_TYPE, scale, arrays->key_scale, at, d, D_K, KEY_GROUPS, a->key_scale.col);
    x *= scale;
#endif
    return x;
}

/* A value's elements, scaled. */
INLINE floatv scaled_value(floatv x, long at, int d, const attention_args *a, const optional_arrays *arrays)
{
#if VALUE_GROUPS
    floatv scale;
    LOAD_SCALES(VALUE_SCALE_TYPE, scale, arrays->value_scale, at, d, D_V, VALUE_GROUPS, a->value_scale.col);
    x *= scale;
#endif
    return x;
}

#endif
