/* Steps of a tile of 32 x 32 sums (engine/x86/amx_sums.h) by AMX's tiles 4 and 5, of rows, and 6 and 7, of lanes.
 *
 *   AMX_STEP(LOAD_ROWS, LOAD_LANES)   adds the products of `words` pairs of bfloat16, at most 16, from number i on: those of
 *                                     row r < rows lie next to each other from p + r * stride on, those of lane j < 32 at
 *                                     q + j, `width` apart.  All these names are the caller's, and so are `amx` and `copy`;
 *                                     the last pair is half a pair unless `whole`
 *   ANY_ROWS, ANY_LANES               for LOAD_...: what does not fill a tile is copied to one in private memory whose rest
 *                                     is 0
 *   STREAMED_ROWS, WHOLE_LANES        all tiles are full, 32 rows and 16 words; the rows leave the level-1 cache to the
 *                                     lanes */
#ifndef CLATTN_CL_MATMUL_CPU_AMX_PRODUCTS_H
#define CLATTN_CL_MATMUL_CPU_AMX_PRODUCTS_H

#include "engine/x86/amx_sums.h"
#include "lib/bf16_pairs.h"

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

#define STREAMED_ROWS(t, p, rows) AMX_STREAM(amx, t, p, stride)
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

#endif
