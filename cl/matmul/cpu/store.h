/* What the kernels that sum C in tiles of ROWS rows of LANE_VECTORS vectors share: how their operands are walked, and what
 * becomes of sums on the way to C.  LANES_ALONG_M, ROWS, LANE_VECTORS and PANEL, the lanes of a tile, are the kernel's
 * (matmul/cpu/packed.cl).
 *
 *   lane_side(a), row_side(a)       how the operand across lanes is walked, and the other one
 *   C_ROW_STEP(a), C_LANE_STEP(a)   strides of C from row to row, and from lane to lane
 *   finish(state, ..., c, a, at)    makes C's elements of sums and stores them; `at` says where they belong
 *   PLAIN_SUMS                      1: tiles may go to C as they were summed, by registers: nothing becomes of them that
 *                                   takes more code than a bias
 *   store_sums(acc, ..., c, a, at)  such a tile, of whole vectors
 *   store_late(late, rows, ..., c, a)   the next few rows of one that has ended, while the next one's products go on
 *   AMX                             1: tiles have many rows: loops over them are not unrolled */
#ifndef CLATTN_CL_MATMUL_CPU_STORE_H
#define CLATTN_CL_MATMUL_CPU_STORE_H

#include "matmul/cpu/product.h"
#include "matmul/epilogue.h"
#include "matmul/types.h"

#if LANES_ALONG_M
#define ROW_TYPE B_TYPE
#define LANE_TYPE A_TYPE
#else
#define ROW_TYPE A_TYPE
#define LANE_TYPE B_TYPE
#endif

#if BIAS
#define BIAS_PARAMETER const global ELEMENT(BIAS_TYPE) *bias,
#define BIAS_ARGUMENT bias,
#else
#define BIAS_PARAMETER
#define BIAS_ARGUMENT
#endif
#define C_ROW_STEP(a) (LANES_ALONG_M ? (a).c.col : (a).c.row)
#define C_LANE_STEP(a) (LANES_ALONG_M ? (a).c.row : (a).c.col)
#define PLAIN_SUMS (!LANES_ALONG_M && !B_SCALED && !ACTIVATED && !OPERAND)

/* How an operand is walked: element (index, k) lies at offset + b*batch + index*stride + k*k_stride. */
typedef struct side {
    long offset, batch, stride, k_stride;
    int count;
} side;

static inline side lane_side(const private matmul_args *a)
{
#if LANES_ALONG_M
    side s = {a->a.offset, a->a.batch, a->a.row, a->a.col, a->m};
#else
    side s = {a->b.offset, a->b.batch, a->b.col, a->b.row, a->n};
#endif
    return s;
}

static inline side row_side(const private matmul_args *a)
{
#if LANES_ALONG_M
    side s = {a->b.offset, a->b.batch, a->b.col, a->b.row, a->n};
#else
    side s = {a->a.offset, a->a.batch, a->a.row, a->a.col, a->m};
#endif
    return s;
}

/* Stores rows of C whose lanes are neighbours, each row at once: its vectors share cache lines, and rows a multiple of 4 KiB
 * apart share one set of the level-1 cache. */
static void store_rows(const private floatv *state, global ELEMENT(C_TYPE) *out, long row_step, int rows, int lanes)
{
    for (int r = 0; r < rows; r++)
#pragma unroll
        for (int v = 0; v < LANE_VECTORS; v++) {
            const private floatv *sums = state + r * LANE_VECTORS + v;

            if (lanes >= (v + 1) * LANES)
                STOREV(C_TYPE, out, r * row_step + v * LANES, *sums);
            else
                for (int j = 0; j < lanes - v * LANES; j++)
                    STORE(C_TYPE, out, r * row_step + v * LANES + j, ((const private float *)sums)[j]);
        }
}

/* Stores a square of up to LANES rows of one vector each, the vectors LANE_VECTORS apart in `state`: transposed where C runs
 * along the rows, else one by one. */
static void store_square(const private floatv *state, global ELEMENT(C_TYPE) *out, long row_step, long lane_step,
                         int rows, int lanes)
{
    if (row_step == 1 && rows == LANES) {
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

#if OPERAND
/* What store_square stores, combined with the operand's elements at the same places. */
static void use_square(private floatv *state, const global ELEMENT(OPERAND_TYPE) *in, long row_step, long lane_step,
                       int rows, int lanes)
{
    if (row_step == 1 && rows == LANES && lane_step != 1 && lanes > 0) {
        floatv t[LANES];

        for (int j = 0; j < LANES; j++)
            t[j] = LOADV(OPERAND_TYPE, in, min(j, lanes - 1) * lane_step);
        transpose(t);
#pragma unroll
        for (int i = 0; i < LANES; i++)
            state[i * LANE_VECTORS] = WITH_OPERAND(state[i * LANE_VECTORS], t[i]);
    } else {
        for (int i = 0; i < rows; i++) {
            floatv x;

            LOAD_ROW(OPERAND_TYPE, x, in, i * row_step, lane_step, lanes, 0.0f);
            state[i * LANE_VECTORS] = WITH_OPERAND(state[i * LANE_VECTORS], x);
        }
    }
}
#endif

/* Where an item, or one of its tiles, stands in C: its first row and lane, and how many there are. */
typedef struct place {
    long batch;
    int row, rows, lane, lanes;
} place;

#if BIAS && !LANES_ALONG_M
INLINE floatv lane_bias(const global ELEMENT(BIAS_TYPE) *bias, const private matmul_args *a, place at, int v)
{
    floatv x;

    LOAD_ROW(BIAS_TYPE, x, bias, a->bias_offset + (at.lane + v * LANES) * a->bias_col, a->bias_col,
             at.lanes - v * LANES, 0.0f);
    return x;
}
#endif

/* Makes C's elements of the sums in `state`, LANE_VECTORS vectors a row, and stores them. */
static void finish(private floatv *state, BIAS_PARAMETER EPILOGUE_PARAMETERS global ELEMENT(C_TYPE) *c,
                   const private matmul_args *a, place at)
{
#if B_SCALED
    for (int v = 0; v < LANE_VECTORS; v++) {
        const int lane = v * LANES;
        floatv factor = (floatv)(0.0f);

#if !LANES_ALONG_M
        LOAD_ROW(F32, factor, b_scale, a->scale_offset + (at.lane + lane) * a->scale_col, a->scale_col, at.lanes - lane,
                 0.0f);
#endif
        for (int r = 0; r < at.rows; r++) {
#if LANES_ALONG_M
            factor = (floatv)(b_scale[a->scale_offset + (at.row + r) * a->scale_col]);
#endif
            state[r * LANE_VECTORS + v] *= factor;
        }
    }
#endif
#if BIAS && LANES_ALONG_M
    for (int r = 0; r < at.rows; r++)
        for (int v = 0; v < LANE_VECTORS; v++)
            state[r * LANE_VECTORS + v] += (floatv)LOAD(BIAS_TYPE, bias, a->bias_offset + (at.row + r) * a->bias_col);
#elif BIAS
    for (int v = 0; v < LANE_VECTORS; v++) {
        const floatv x = lane_bias(bias, a, at, v);

        for (int r = 0; r < at.rows; r++)
            state[r * LANE_VECTORS + v] += x;
    }
#endif
#if ACTIVATED
    for (int i = 0; i < at.rows * LANE_VECTORS; i++)
        state[i] = ACTIVATED_SUM(state[i], *a);
#endif
#if OPERAND
    const long operand_row = LANES_ALONG_M ? a->operand.col : a->operand.row;
    const long operand_lane = LANES_ALONG_M ? a->operand.row : a->operand.col;
    const global ELEMENT(OPERAND_TYPE) *other =
        operand + a->operand.offset + at.batch * a->operand.batch + at.row * operand_row + at.lane * operand_lane;

    for (int r = 0; r < at.rows; r += LANES)
        for (int v = 0; v < LANE_VECTORS; v++)
            use_square(state + r * LANE_VECTORS + v, other + r * operand_row + v * LANES * operand_lane, operand_row,
                       operand_lane, min(LANES, at.rows - r), at.lanes - v * LANES);
#endif
    const long row_step = C_ROW_STEP(*a), lane_step = C_LANE_STEP(*a);
    global ELEMENT(C_TYPE) *out = c + a->c.offset + at.batch * a->c.batch + at.row * row_step + at.lane * lane_step;

    if (lane_step == 1)
        store_rows(state, out, row_step, at.rows, at.lanes);
    else
        for (int r = 0; r < at.rows; r += LANES)
            for (int v = 0; v < LANE_VECTORS; v++)
                store_square(state + r * LANE_VECTORS + v, out + r * row_step + v * LANES * lane_step, row_step,
                             lane_step, min(LANES, at.rows - r), min(LANES, at.lanes - v * LANES));
}

#if PLAIN_SUMS
/* A tile of whole vectors, from where its products were summed. */
INLINE void store_sums(const private floatv acc[ROWS][LANE_VECTORS], BIAS_PARAMETER global ELEMENT(C_TYPE) *c,
                       const private matmul_args *a, place at)
{
    global ELEMENT(C_TYPE) *out = c + a->c.offset + at.batch * a->c.batch + at.row * a->c.row + at.lane;
#if BIAS
    floatv add[LANE_VECTORS];

#pragma unroll
    for (int v = 0; v < LANE_VECTORS; v++)
        add[v] = lane_bias(bias, a, at, v);
#endif
#if !AMX
#pragma unroll
#endif
    for (int r = 0; r < (AMX ? at.rows : ROWS); r++)
        if (r < at.rows) {
#pragma unroll
            for (int v = 0; v < LANE_VECTORS; v++)
#if BIAS
                STOREV(C_TYPE, out, r * a->c.row + v * LANES, acc[r][v] + add[v]);
#else
                STORE_SUMS(C_TYPE, out, r * a->c.row + v * LANES, acc[r][v]);
#endif
        }
}
#endif

/* What a tile leaves to the next one's steps: rows of sums that are not in C yet, where lanes are neighbours there. */
typedef struct late_rows {
  private
    floatv (*sum)[LANE_VECTORS];
    place at;
} late_rows;

INLINE void store_late(late_rows *late, int rows, BIAS_PARAMETER EPILOGUE_PARAMETERS global ELEMENT(C_TYPE) *c,
                       const private matmul_args *a)
{
    place at = late->at;

    at.rows = min(at.rows, rows);
    if (at.rows <= 0)
        return;
#if PLAIN_SUMS
    if (at.lanes == PANEL)
        store_sums(late->sum, BIAS_ARGUMENT c, a, at);
    else
#endif
        finish((private floatv *)late->sum, BIAS_ARGUMENT EPILOGUE_ARGUMENTS c, a, at);
    late->sum += at.rows;
    late->at.row += at.rows;
    late->at.rows -= at.rows;
}

#endif
