/* matmul_cpu's register tile where AMX multiplies: 32 rows of 32 lanes, four tiles of sums.
 *
 * What does not fill a tile, the last rows and the last k, is copied to one in private memory whose rest is 0. */
#ifndef CLATTN_INC_MATMUL_CPU_AMX_H
#define CLATTN_INC_MATMUL_CPU_AMX_H

#include "inc/pairs.h"
#include "matrix/x86_amx.h"

#define AMX_PANEL (2 * AMX_WORDS)

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

INLINE void copy_lanes(amx_copy *copy, const global uint *p, int words)
{
    for (int x = 0; x < AMX_ROWS; x++)
#pragma unroll
        for (int j = 0; j < AMX_WORDS; j++)
            copy->word[x * AMX_WORDS + j] = x < words ? p[x * AMX_PANEL + j] : 0;
}

/* Rows from p on, `stride` apart, of which there are `rows` (16 or more: all of a tile). */
#define LOAD_ROWS(t, p) \
    do { \
        if (rows_ >= AMX_ROWS && words == AMX_WORDS && whole) { \
            AMX_LOAD(amx, t, p, stride); \
        } else { \
            copy_rows(copy, p, stride, rows_, words, whole); \
            AMX_LOAD(amx, t, (const ushort *)copy->word, 2 * AMX_WORDS); \
        } \
    } while (0)
#define LOAD_LANES(t, p) \
    do { \
        if (words == AMX_WORDS) { \
            AMX_LOAD(amx, t, (const global ushort *)(p), 2 * AMX_PANEL); \
        } else { \
            copy_lanes(copy, p, words); \
            AMX_LOAD(amx, t, (const ushort *)copy->word, 2 * AMX_WORDS); \
        } \
    } while (0)

/* sum[i * AMX_PANEL + j] += the products of row i, of `rows`, with lane j in `steps` pairs, the last one half a pair unless
 * `even`. */
INLINE void amx_products(amx_state *amx, amx_copy *copy, float *sum, const global ushort *p, long stride, int rows,
                         const global uint *q, int steps, int even)
{
    AMX_LOAD_SUMS(amx, 0, sum, AMX_PANEL);
    AMX_LOAD_SUMS(amx, 1, sum + AMX_WORDS, AMX_PANEL);
    AMX_LOAD_SUMS(amx, 2, sum + AMX_ROWS * AMX_PANEL, AMX_PANEL);
    AMX_LOAD_SUMS(amx, 3, sum + AMX_ROWS * AMX_PANEL + AMX_WORDS, AMX_PANEL);
    for (int i = 0; i < steps; i += AMX_WORDS) {
        const int words = min(AMX_WORDS, steps - i), whole = even || i + words < steps;
        int rows_ = rows;

        LOAD_ROWS(4, p + 2 * i);
        LOAD_LANES(6, q + i * AMX_PANEL);
        LOAD_LANES(7, q + i * AMX_PANEL + AMX_WORDS);
        AMX_DOT(amx, 0, 4, 6);
        AMX_DOT(amx, 1, 4, 7);
        if (rows > AMX_ROWS) {
            rows_ = rows - AMX_ROWS;
            LOAD_ROWS(5, p + AMX_ROWS * stride + 2 * i);
            AMX_DOT(amx, 2, 5, 6);
            AMX_DOT(amx, 3, 5, 7);
        }
    }
    AMX_STORE_SUMS(amx, 0, sum, AMX_PANEL);
    AMX_STORE_SUMS(amx, 1, sum + AMX_WORDS, AMX_PANEL);
    AMX_STORE_SUMS(amx, 2, sum + AMX_ROWS * AMX_PANEL, AMX_PANEL);
    AMX_STORE_SUMS(amx, 3, sum + AMX_ROWS * AMX_PANEL + AMX_WORDS, AMX_PANEL);
}

#endif
