/* The two products of attention_tile, from local memory into an item's registers. */
#ifndef CLATTN_CL_ATTENTION_GPU_PRODUCT_H
#define CLATTN_CL_ATTENTION_GPU_PRODUCT_H

#include "attention/gpu/shape.h"
#include "lib/tanh.h"

/* The four components of a float4 of neighbouring keys or columns, each times an item's rows. */
static inline void tile_add_products(float4 to[4][QUADS], const float4 rows[QUADS], float4 b)
{
#pragma unroll
    for (int r = 0; r < QUADS; r++) {
        to[0][r] = FMA(rows[r], b.xxxx, to[0][r]);
        to[1][r] = FMA(rows[r], b.yyyy, to[1][r]);
        to[2][r] = FMA(rows[r], b.zzzz, to[2][r]);
        to[3][r] = FMA(rows[r], b.wwww, to[3][r]);
    }
}

/* to[4g + c][r] += a[k][r] * b[k][g*ITEMS_X].c for each k < depth and g < groups; strides in float4s.  a begins at the item's
 * own rows and b at its own columns. */
static inline __attribute__((always_inline)) void tile_multiply(float4 (*to)[QUADS], const local float4 *a,
                                                                int a_stride, const local float4 *b, int b_stride,
                                                                int depth, int groups)
{
#pragma unroll 8
    for (int k = 0; k < depth; k++) {
        float4 rows[QUADS];
#pragma unroll
        for (int r = 0; r < QUADS; r++)
            rows[r] = a[k * a_stride + r];
#pragma unroll
        for (int g = 0; g < groups; g++)
            tile_add_products(&to[4 * g], rows, b[k * b_stride + g * ITEMS_X]);
    }
}

#if ADDITIVE
/* s[4g + c][r] += weight[k] * tanh(query[k][y*QUADS + r] + key[k][x + g*ITEMS_X].c).  Only the loops over
 * registers are unrolled: a tanh is dozens of instructions. */
static inline void tile_add_tanh(float4 s[KEYS][QUADS], const local float4 *query, const local float4 *key,
                                 const local float *weight, int x, int y)
{
#pragma unroll 1
    for (int k = 0; k < CHUNK; k++) {
        const local float *keys = (const local float *)(key + k * (K_STRIDE / 4) + x);
#pragma unroll
        for (int c = 0; c < KEYS; c++) {
#pragma unroll
            for (int r = 0; r < QUADS; r++) {
                const float4 sum = query[k * Q_QUADS + y * QUADS + r] + keys[(c >> 2) * BLOCK + (c & 3)];
                s[c][r] = FMA((float4)(weight[k]), tanhv(sum), s[c][r]);
            }
        }
    }
}
#endif

#endif
