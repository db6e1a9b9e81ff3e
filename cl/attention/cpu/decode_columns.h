/* attention_cpu_decode's tile of keys, if a column's keys are neighbours in memory, and not a key's columns: both products then
 * have keys across the lanes.
 *
 *   K column d   [ j0 .. j15 | j16 .. j31 | ... ]   s += q_d K_d
 *   V column d   [ j0 .. j15 | j16 .. j31 | ... ]   LANES columns' sums of p V_d become LANES elements of O
 *
 *   BLOCK, KEY_TILE   as attention/cpu/decode.cl says */
#ifndef CLATTN_CL_ATTENTION_CPU_DECODE_COLUMNS_H
#define CLATTN_CL_ATTENTION_CPU_DECODE_COLUMNS_H

#include "attention/cpu/block.h"
#include "attention/cpu/keys.h"

/* Whether a plan's keys or values may lie so: known when it runs, by a row stride of 1. */
#define KEY_COLUMNS (!UNIT_STRIDE && !TABLE && !KEY_GROUPS && !ADDITIVE)
#define VALUE_COLUMNS (!UNIT_STRIDE && !TABLE && !VALUE_GROUPS)
#define SCORE_VECTORS \
    (BLOCK == 1 ? 16 : BLOCK == 2 ? 8 : BLOCK <= 4 ? 4 : 2) /* of keys, whose sums stay in registers */

#if KEY_COLUMNS
/* Scores of SCORE_VECTORS vectors of keys, of which `left` keys count: a literal for all. */
INLINE void score_key_vectors(floatv *s, const float *q, const global ELEMENT(K_TYPE) *key, long at, const int left,
                              long col, float scale)
{
    floatv acc[SCORE_VECTORS][BLOCK];
#pragma unroll
    for (int v = 0; v < SCORE_VECTORS; v++)
#pragma unroll
        for (int r = 0; r < BLOCK; r++)
            acc[v][r] = (floatv)(0.0f);
    for (int d = 0; d < D_K; d++) {
#pragma unroll
        for (int v = 0; v < SCORE_VECTORS; v++) {
            floatv x;
            LOAD_ROW(K_TYPE, x, key, at + d * col + v * LANES, 1, left - v * LANES, 0.0f);
#pragma unroll
            for (int r = 0; r < BLOCK; r++)
                acc[v][r] = FMA((floatv)(q[r * ROUND_UP(D_K, LANES) + d]), x, acc[v][r]);
        }
    }
#pragma unroll
    for (int v = 0; v < SCORE_VECTORS; v++)
#pragma unroll
        for (int r = 0; r < BLOCK; r++)
            if (v * LANES < left)
                s[r * (KEY_TILE / LANES) + v] = acc[v][r] * scale;
}

/* score_keys of attention/cpu/decode.h; the tile's first key is the element at `at`. */
INLINE void score_columns(floatv *s, const floatv *q, const global ELEMENT(K_TYPE) *key, long at, int n, long col,
                          float scale)
{
    const int step = SCORE_VECTORS * LANES;
    for (int j = 0; j < n; j += step)
        if (n - j >= step)
            score_key_vectors(s + j / LANES, (const float *)q, key, at + j, step, col, scale);
        else
            score_key_vectors(s + j / LANES, (const float *)q, key, at + j, n - j, col, scale);
}
#endif

#if VALUE_COLUMNS
/* add_values of attention/cpu/decode.h.  Weights behind key n - 1, up to a whole vector, are 0. */
INLINE void add_columns(floatv *o, const float *p, const global ELEMENT(V_TYPE) *value, long at, int n, long col)
{
    const int whole = n & ~(LANES - 1);
    for (int d = 0; d < D_V; d += LANES) {
        floatv sums[BLOCK][LANES];
        for (int c = 0; c < LANES; c++) {
            const long column = at + min(d + c, D_V - 1) * col;
            floatv acc[BLOCK], x;
#pragma unroll
            for (int r = 0; r < BLOCK; r++)
                acc[r] = (floatv)(0.0f);
            for (int j = 0; j < whole; j += LANES) {
                LOAD_ROW(V_TYPE, x, value, column + j, 1, LANES, 0.0f);
#pragma unroll
                for (int r = 0; r < BLOCK; r++)
                    acc[r] = FMA(VLOAD(0, p + r * KEY_TILE + j), x, acc[r]);
            }
            if (whole < n) {
                LOAD_ROW(V_TYPE, x, value, column + whole, 1, n - whole, 0.0f);
#pragma unroll
                for (int r = 0; r < BLOCK; r++)
                    acc[r] = FMA(VLOAD(0, p + r * KEY_TILE + whole), x, acc[r]);
            }
#pragma unroll
            for (int r = 0; r < BLOCK; r++)
                sums[r][c] = acc[r];
        }
#pragma unroll
        for (int r = 0; r < BLOCK; r++)
            o[(r * ROUND_UP(D_V, LANES) + d) / LANES] += sum_each(sums[r]);
    }
}
#endif

#endif
