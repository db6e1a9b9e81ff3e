/* A tile of 32 x 32 sums by AMX: four tiles of sums, two of rows, two of lanes.
 *
 *   AMX_PRODUCTS(NAME, ROW_SPACE, LOAD_ROWS, LANE_SPACE, LOAD_LANES)   defines
 *   NAME(amx, copy, sum, width, p, stride, rows, q, steps, even)
 *       sum[i * width + j] += the products of row i, of `rows`, with lane j < 32, in `steps` pairs of bfloat16, the last one
 *       half a pair unless `even`.  Row i's pairs lie next to each other from p + i * stride on, lane j's at q + j, width
 *       apart.
 *       Of sums 16 or 32 rows are written.
 *   ANY_ROWS, ANY_LANES       for LOAD_...: what does not fill a tile is copied to one in private memory whose rest is 0
 *   WHOLE_ROWS, WHOLE_LANES   all tiles are full: 16 rows more than the last one is read */
#ifndef CLATTN_INC_AMX_PRODUCTS_H
#define CLATTN_INC_AMX_PRODUCTS_H

#include "inc/pairs.h"
#include "matrix/x86_amx.h"

typedef struct amx_copy {
    uint word[AMX_ROWS * AMX_WORDS];
} amx_copy;

/* `rows` rows of `words` pairs, the last one half a pair unless `whole`. */
INLINE void copy_rows(amx_copy *copy, const global ushort *p, long stride, int rows, int words, int whole)
{
    for (int i = 0; i < AMX_ROWS; i++)
#pragma unroll
        for (int w = 0; w < AMX_WORDS; w++)
            copy->word[i * AMX_WORDS + w] =
                i < rows && w < words ? pair_at(p + i * stride + 2 * w, 1, whole || w < words - 1) : 0;
}

INLINE void copy_lanes(amx_copy *copy, const global uint *p, int width, int words)
{
    for (int x = 0; x < AMX_ROWS; x++)
#pragma unroll
        for (int j = 0; j < AMX_WORDS; j++)
            copy->word[x * AMX_WORDS + j] = x < words ? p[x * width + j] : 0;
}

#define WHOLE_ROWS(t, p, rows) AMX_LOAD_WORDS(amx, t, (const uint *)(p), stride / 2)
#define ANY_ROWS(t, p, rows) \
    do { \
        if ((rows) >= AMX_ROWS && words == AMX_WORDS && whole) { \
            AMX_LOAD(amx, t, p, stride); \
        } else { \
            copy_rows(copy, p, stride, rows, words, whole); \
            AMX_LOAD_WORDS(amx, t, copy->word, AMX_WORDS); \
        } \
    } while (0)
#define WHOLE_LANES(t, p) AMX_LOAD_WORDS(amx, t, p, width)
#define ANY_LANES(t, p) \
    do { \
        if (words == AMX_WORDS) { \
            AMX_LOAD_WORDS(amx, t, p, width); \
        } else { \
            copy_lanes(copy, p, width, words); \
            AMX_LOAD_WORDS(amx, t, copy->word, AMX_WORDS); \
        } \
    } while (0)

#define AMX_PRODUCTS(NAME, ROW_SPACE, LOAD_ROWS, LANE_SPACE, LOAD_LANES) \
    INLINE void NAME(amx_state *amx, amx_copy *copy, float *sum, int width, const ROW_SPACE ushort *p, long stride, int rows, \
                     const LANE_SPACE uint *q, int steps, int even) \
    { \
        float *const more = sum + AMX_ROWS * width; \
        AMX_LOAD_SUMS(amx, 0, sum, width); \
        AMX_LOAD_SUMS(amx, 1, sum + AMX_WORDS, width); \
        if (rows > AMX_ROWS) { \
            AMX_LOAD_SUMS(amx, 2, more, width); \
            AMX_LOAD_SUMS(amx, 3, more + AMX_WORDS, width); \
        } \
        for (int i = 0; i < steps; i += AMX_WORDS) { \
            const int words = min(AMX_WORDS, steps - i), whole = even || i + words < steps; \
            (void)whole; \
            LOAD_ROWS(4, p + 2 * i, rows); \
            LOAD_LANES(6, q + i * width); \
            LOAD_LANES(7, q + i * width + AMX_WORDS); \
            AMX_DOT(amx, 0, 4, 6); \
            AMX_DOT(amx, 1, 4, 7); \
            if (rows > AMX_ROWS) { \
                LOAD_ROWS(5, p + AMX_ROWS * stride + 2 * i, rows - AMX_ROWS); \
                AMX_DOT(amx, 2, 5, 6); \
                AMX_DOT(amx, 3, 5, 7); \
            } \
        } \
        AMX_STORE_SUMS(amx, 0, sum, width); \
        AMX_STORE_SUMS(amx, 1, sum + AMX_WORDS, width); \
        if (rows > AMX_ROWS) { \
            AMX_STORE_SUMS(amx, 2, more, width); \
            AMX_STORE_SUMS(amx, 3, more + AMX_WORDS, width); \
        } \
    }

#define STREAMED_ROWS(t, p, rows) AMX_STREAM(amx, t, p, stride)
#define AMX_STEP(LOAD_ROWS, LOAD_LANES) \
    do { \
        LOAD_ROWS(4, p + 2 * i, rows); \
        LOAD_LANES(6, q + i * width); \
        LOAD_LANES(7, q + i * width + AMX_WORDS); \
        AMX_DOT(amx, 0, 4, 6); \
        AMX_DOT(amx, 1, 4, 7); \
        if (rows > AMX_ROWS) { \
            LOAD_ROWS(5, p + AMX_ROWS * stride + 2 * i, rows - AMX_ROWS); \
            AMX_DOT(amx, 2, 5, 6); \
            AMX_DOT(amx, 3, 5, 7); \
        } \
    } while (0)

/* The tiles of sums before the first step and after the last: 0 where `fresh`. */
INLINE void amx_sums_begin(amx_state *amx, const float *sum, int width, int rows, int fresh)
{
    const float *const more = sum + AMX_ROWS * width;

    if (fresh) {
        AMX_ZERO(amx, 0);
        AMX_ZERO(amx, 1);
        AMX_ZERO(amx, 2);
        AMX_ZERO(amx, 3);
    } else {
        AMX_LOAD_SUMS(amx, 0, sum, width);
        AMX_LOAD_SUMS(amx, 1, sum + AMX_WORDS, width);
        if (rows > AMX_ROWS) {
            AMX_LOAD_SUMS(amx, 2, more, width);
            AMX_LOAD_SUMS(amx, 3, more + AMX_WORDS, width);
        }
    }
}

INLINE void amx_sums_end(amx_state *amx, float *sum, int width, int rows)
{
    float *const more = sum + AMX_ROWS * width;

    AMX_STORE_SUMS(amx, 0, sum, width);
    AMX_STORE_SUMS(amx, 1, sum + AMX_WORDS, width);
    if (rows > AMX_ROWS) {
        AMX_STORE_SUMS(amx, 2, more, width);
        AMX_STORE_SUMS(amx, 3, more + AMX_WORDS, width);
    }
}

#endif
