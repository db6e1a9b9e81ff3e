#include "inc/args.h"
#include "inc/storage.h"
#include "inc/vector.h"

#ifndef A_TYPE
#define A_TYPE F32
#endif
#ifndef B_TYPE
#define B_TYPE F32
#endif
#ifndef C_TYPE
#define C_TYPE F32
#endif
#ifndef BIAS_TYPE
#define BIAS_TYPE F32
#endif
#ifndef BIAS
#define BIAS 0
#endif
#ifndef LANES_ALONG_M
#define LANES_ALONG_M 0
#endif
#ifndef ROWS
#define ROWS 12
#endif
#ifndef LANE_VECTORS
#define LANE_VECTORS 2
#endif
#ifndef TILES
#define TILES 8
#endif
#ifndef DEPTH
#define DEPTH 256
#endif
#ifndef ROW_UNIT
#define ROW_UNIT 0
#endif
#ifndef PACK_DEPTH
#define PACK_DEPTH 256
#endif

#ifndef UNROLL
#define UNROLL 1
#endif
#define PANEL (LANES * LANE_VECTORS)
#define BLOCK (ROWS * TILES)

#if LANES_ALONG_M
#define ROW_TYPE B_TYPE
#define LANE_TYPE A_TYPE
#else
#define ROW_TYPE A_TYPE
#define LANE_TYPE B_TYPE
#endif

typedef struct side {
    long offset, batch, stride, k;
    int count;
} side;

static inline side lane_side(matmul_args a)
{
#if LANES_ALONG_M
    side s = { a.a.offset, a.a.batch, a.a.row, a.a.col, a.m };
#else
    side s = { a.b.offset, a.b.batch, a.b.col, a.b.row, a.n };
#endif
    return s;
}

static inline side row_side(matmul_args a)
{
#if LANES_ALONG_M
    side s = { a.b.offset, a.b.batch, a.b.col, a.b.row, a.n };
#else
    side s = { a.a.offset, a.a.batch, a.a.row, a.a.col, a.m };
#endif
    return s;
}

static inline void transpose(floatv *t)
{
    floatv u[LANES];

#pragma unroll
    for (int stage = 1; stage < LANES; stage *= 2) {
#pragma unroll
        for (int i = 0; i < LANES / 2; i++) {
            u[2 * i].even = t[i].lo;
            u[2 * i].odd = t[i + LANES / 2].lo;
            u[2 * i + 1].even = t[i].hi;
            u[2 * i + 1].odd = t[i + LANES / 2].hi;
        }
#pragma unroll
        for (int i = 0; i < LANES; i++)
            t[i] = u[i];
    }
}

kernel void matmul_pack(const global ELEMENT(LANE_TYPE) *source, global float *packed, matmul_args a)
{
    if (a.batch == 0)
        return;

    const side s = lane_side(a);
    const long panel = get_group_id(0);
    const long batch = get_group_id(2);
    const int from = (int)get_group_id(1) * PACK_DEPTH;
    const int to = min(a.k, from + PACK_DEPTH);
    const long panels = (s.count + PANEL - 1) / PANEL;

    for (int v = 0; v < LANE_VECTORS; v++) {
        const int first = (int)panel * PANEL + v * LANES;
        const int lanes = clamp(s.count - first, 0, LANES);
        const global ELEMENT(LANE_TYPE) *in = source + s.offset + batch * s.batch + first * s.stride;
        global float *out = packed + (batch * panels + panel) * a.k * PANEL + v * LANES;
        int k = from;

        if (lanes == LANES && s.stride == 1) {
            for (; k < to; k++)
                VSTORE(LOADV(LANE_TYPE, in, k * s.k), 0, out + (long)k * PANEL);
        } else if (lanes == LANES && s.k == 1) {
            for (; k + LANES <= to; k += LANES) {
                floatv t[LANES];

#pragma unroll
                for (int i = 0; i < LANES; i++)
                    t[i] = LOADV(LANE_TYPE, in, i * s.stride + k);
                transpose(t);
#pragma unroll
                for (int i = 0; i < LANES; i++)
                    VSTORE(t[i], 0, out + (long)(k + i) * PANEL);
            }
        }
        for (; k < to; k++)
            for (int i = 0; i < LANES; i++)
                out[(long)k * PANEL + i] = i < lanes ? LOAD(LANE_TYPE, in, i * s.stride + k * s.k) : 0.0f;
    }
}

/* Stores up to LANES rows of one vector each. */
static void store_square(const private floatv *state, global ELEMENT(C_TYPE) *out, long row_step,
                         long lane_step, int rows, int lanes)
{
    if (lane_step == 1 && lanes == LANES) {
        for (int i = 0; i < rows; i++)
            STOREV(C_TYPE, out, i * row_step, state[i * LANE_VECTORS]);
    } else if (row_step == 1 && rows == LANES) {
        floatv t[LANES];

#pragma unroll
        for (int i = 0; i < LANES; i++)
            t[i] = state[i * LANE_VECTORS];
        transpose(t);
#pragma unroll
        for (int i = 0; i < LANES; i++)
            if (i < lanes)
                STOREV(C_TYPE, out, i * lane_step, t[i]);
    } else {
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < lanes; j++)
                STORE(C_TYPE, out, i * row_step + j * lane_step,
                      ((const private float *)(state + i * LANE_VECTORS))[j]);
    }
}

kernel void matmul_cpu(const global ELEMENT(ROW_TYPE) *source, const global float *packed,
#if BIAS
                       const global ELEMENT(BIAS_TYPE) *bias,
#endif
                       global ELEMENT(C_TYPE) *c, matmul_args a)
{
    if (a.batch == 0)
        return;

    const side rows = row_side(a), lanes = lane_side(a);
    const long panel = get_group_id(0), batch = get_group_id(2);
    const long panels = (lanes.count + PANEL - 1) / PANEL;
    const int row0 = (int)get_group_id(1) * BLOCK;
    const int lane0 = (int)panel * PANEL;
    const int row_count = min(BLOCK, rows.count - row0);
    const int lane_count = min(PANEL, lanes.count - lane0);
    const long row_k = ROW_UNIT ? 1 : rows.k;
    const global ELEMENT(ROW_TYPE) *in = source + rows.offset + batch * rows.batch;
    const global float *side_panel = packed + ((lanes.batch ? batch * panels : 0) + panel) * a.k * PANEL;
    floatv state[BLOCK * LANE_VECTORS];

    for (int i = 0; i < (a.k ? 0 : BLOCK * LANE_VECTORS); i++)
        state[i] = (floatv)0.0f;
    for (int k0 = 0; k0 < a.k; k0 += DEPTH) {
        const int depth = min(DEPTH, a.k - k0);

        for (int t = 0; t < row_count; t += ROWS) {
            floatv acc[ROWS][LANE_VECTORS];
            const global ELEMENT(ROW_TYPE) *p[ROWS];
            const global float *q = side_panel + (long)k0 * PANEL;
            private floatv *sum = state + t * LANE_VECTORS;

#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                p[r] = in + min(row0 + t + r, rows.count - 1) * rows.stride + k0 * row_k;
#pragma unroll
                for (int v = 0; v < LANE_VECTORS; v++)
                    acc[r][v] = k0 ? sum[r * LANE_VECTORS + v] : (floatv)0.0f;
            }
#pragma unroll UNROLL
            for (int k = 0; k < depth; k++) {
                floatv y[LANE_VECTORS];

#pragma unroll
                for (int v = 0; v < LANE_VECTORS; v++)
                    y[v] = VLOAD(0, q + k * PANEL + v * LANES);
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    const floatv x = (floatv)LOAD(ROW_TYPE, p[r], k * row_k);

#pragma unroll
                    for (int v = 0; v < LANE_VECTORS; v++)
                        acc[r][v] = fma(x, y[v], acc[r][v]);
                }
            }
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int v = 0; v < LANE_VECTORS; v++)
                    sum[r * LANE_VECTORS + v] = acc[r][v];
        }
    }

    const long row_step = LANES_ALONG_M ? a.c.col : a.c.row;
    const long lane_step = LANES_ALONG_M ? a.c.row : a.c.col;
    global ELEMENT(C_TYPE) *out = c + a.c.offset + batch * a.c.batch + row0 * row_step + lane0 * lane_step;

#if BIAS
    const global ELEMENT(BIAS_TYPE) *add = bias + a.bias_offset + (LANES_ALONG_M ? row0 : lane0) * a.bias_col;

#if LANES_ALONG_M
    for (int r = 0; r < row_count; r++)
        for (int v = 0; v < LANE_VECTORS; v++)
            state[r * LANE_VECTORS + v] += (floatv)LOAD(BIAS_TYPE, add, r * a.bias_col);
#else
    for (int v = 0; v < LANE_VECTORS; v++) {
        float x[LANES];

        for (int i = 0; i < LANES; i++)
            x[i] = v * LANES + i < lane_count ? LOAD(BIAS_TYPE, add, (v * LANES + i) * a.bias_col) : 0.0f;
        for (int r = 0; r < row_count; r++)
            state[r * LANE_VECTORS + v] += VLOAD(0, x);
    }
#endif
#endif
    for (int r = 0; r < row_count; r += LANES)
        for (int v = 0; v < LANE_VECTORS; v++)
            store_square(state + r * LANE_VECTORS + v, out + r * row_step + v * LANES * lane_step, row_step,
                         lane_step, min(LANES, row_count - r), min(LANES, lane_count - v * LANES));
}
