/* How the kernels that sum C in tiles of ROWS rows of LANE_VECTORS vectors walk their operands and store their sums.
 * LANES_ALONG_M, ROWS, LANE_VECTORS and PANEL, the lanes of a tile, are the kernel's (matmul/cpu/packed.cl).
 *
 *   C_ROW_STEP(a), C_LANE_STEP(a)     strides of C from row to row, and from lane to lane
 *   finish(sums, to, at)              turns sums into elements of C (matmul/epilogue.h) and stores them at `at`
 *   PLAIN_SUMS                        1: sums become elements of C by adding a bias at most, and along lanes, so that
 *                                     store_sums may store them from registers unless HAS_ACTIVATION or HAS_OPERAND
 *   store_sums(acc, to, at)           stores a tile of whole vectors from registers
 *   store_deferred(rows, n, to)       stores the next n of the rows that a finished tile has left, while the processor
 *                                     multiplies the next tile */
#ifndef CLATTN_CL_MATMUL_CPU_STORE_H
#define CLATTN_CL_MATMUL_CPU_STORE_H

#include "matmul/cpu/operands.h"
#include "matmul/cpu/product.h"
#include "matmul/epilogue.h"
#include "matmul/types.h"

#define C_ROW_STEP(a) (LANES_ALONG_M ? (a).c.col : (a).c.row)
#define C_LANE_STEP(a) (LANES_ALONG_M ? (a).c.row : (a).c.col)
#define PLAIN_SUMS (!LANES_ALONG_M && !B_SCALED && (OPTIONAL ? OPERAND != 2 : !OPERAND && !ACTIVATED))

/* A part of C: `rows` rows from `row` on times `lanes` lanes from `lane` on. */
typedef struct place {
    long batch;
    int row, rows, lane, lanes;
} place;

/* C, and what is done to sums on their way to C; its members are in the order of {args, c, EPILOGUE_ARGUMENTS}. */
typedef struct destination {
    const private matmul_args *args;
    global ELEMENT(C_TYPE) *c;
#if BIAS
    const global ELEMENT(BIAS_TYPE) *bias;
#endif
#if B_SCALED
    const global float *b_scale;
#endif
#if OPERAND
    const global ELEMENT(OPERAND_TYPE) *operand;
#endif
} destination;

/* Stores rows of C whose lanes are neighbours, one whole row after the other: a row's vectors share cache lines, and rows a
 * multiple of 4 KiB apart share one set of the level-1 cache. */
static void store_rows(const private floatv *sums, global ELEMENT(C_TYPE) *out, long row_step, int rows, int lanes)
{
    for (int r = 0; r < rows; r++)
#pragma unroll
        for (int v = 0; v < LANE_VECTORS; v++) {
            const private floatv *vector = sums + r * LANE_VECTORS + v;

            if (lanes >= (v + 1) * LANES)
                STOREV(C_TYPE, out, r * row_step + v * LANES, *vector);
            else
                for (int j = 0; j < lanes - v * LANES; j++)
                    STORE(C_TYPE, out, r * row_step + v * LANES + j, ((const private float *)vector)[j]);
        }
}

/* Stores a square of up to LANES rows of one vector each, the vectors LANE_VECTORS apart in `sums`: transposed if C's rows
 * are neighbours, else one by one. */
static void store_square(const private floatv *sums, global ELEMENT(C_TYPE) *out, long row_step, long lane_step,
                         int rows, int lanes)
{
    if (row_step == 1 && rows == LANES) {
        floatv t[LANES];

#pragma unroll
        for (int i = 0; i < LANES; i++)
            t[i] = sums[i * LANE_VECTORS];
        transpose(t);
#pragma unroll
        for (int i = 0; i < LANES; i++)
            if (i < lanes)
                STOREV(C_TYPE, out, i * lane_step, t[i]);
    } else {
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < lanes; j++)
                STORE(C_TYPE, out, i * row_step + j * lane_step, ((const private float *)(sums + i * LANE_VECTORS))[j]);
    }
}

#if OPERAND
/* Combines what store_square will store with the operand's elements at the same places. */
static void combine_square(private floatv *sums, const global ELEMENT(OPERAND_TYPE) *in, long row_step, long lane_step,
                           int rows, int lanes)
{
    if (row_step == 1 && rows == LANES && lane_step != 1 && lanes > 0) {
        floatv t[LANES];

        for (int j = 0; j < LANES; j++)
            t[j] = LOADV(OPERAND_TYPE, in, min(j, lanes - 1) * lane_step);
        transpose(t);
#pragma unroll
        for (int i = 0; i < LANES; i++)
            sums[i * LANE_VECTORS] = WITH_OPERAND(sums[i * LANE_VECTORS], t[i]);
    } else {
        for (int i = 0; i < rows; i++) {
            floatv x;

            LOAD_ROW(OPERAND_TYPE, x, in, i * row_step, lane_step, lanes, 0.0f);
            sums[i * LANE_VECTORS] = WITH_OPERAND(sums[i * LANE_VECTORS], x);
        }
    }
}
#endif

#if BIAS && !LANES_ALONG_M
/* The bias of vector v of a tile's lanes. */
INLINE floatv lane_bias(destination to, place at, int v)
{
    floatv x;

    LOAD_ROW(BIAS_TYPE, x, to.bias, to.args->bias_offset + (at.lane + v * LANES) * to.args->bias_col, to.args->bias_col,
             at.lanes - v * LANES, 0.0f);
    return x;
}
#endif

#if B_SCALED
static void scale_sums(private floatv *sums, destination to, place at)
{
    const long offset = to.args->scale_offset, step = to.args->scale_col;

    for (int v = 0; v < LANE_VECTORS; v++) {
        floatv scale = (floatv)(0.0f);

#if !LANES_ALONG_M
        LOAD_ROW(F32, scale, to.b_scale, offset + (at.lane + v * LANES) * step, step, at.lanes - v * LANES, 0.0f);
#endif
        for (int r = 0; r < at.rows; r++) {
#if LANES_ALONG_M
            scale = (floatv)(to.b_scale[offset + (at.row + r) * step]);
#endif
            sums[r * LANE_VECTORS + v] *= scale;
        }
    }
}
#endif

#if BIAS
static void add_bias(private floatv *sums, destination to, place at)
{
#if LANES_ALONG_M
    for (int r = 0; r < at.rows; r++)
        for (int v = 0; v < LANE_VECTORS; v++)
            sums[r * LANE_VECTORS + v] +=
                (floatv)LOAD(BIAS_TYPE, to.bias, to.args->bias_offset + (at.row + r) * to.args->bias_col);
#else
    for (int v = 0; v < LANE_VECTORS; v++) {
        const floatv x = lane_bias(to, at, v);

        for (int r = 0; r < at.rows; r++)
            sums[r * LANE_VECTORS + v] += x;
    }
#endif
}
#endif

#if OPERAND
static void combine_with_operand(private floatv *sums, destination to, place at)
{
    const private array4 *layout = &to.args->operand;
    const long row_step = LANES_ALONG_M ? layout->col : layout->row;
    const long lane_step = LANES_ALONG_M ? layout->row : layout->col;
    const global ELEMENT(OPERAND_TYPE) *in =
        to.operand + layout->offset + at.batch * layout->batch + at.row * row_step + at.lane * lane_step;

    for (int r = 0; r < at.rows; r += LANES)
        for (int v = 0; v < LANE_VECTORS; v++)
            combine_square(sums + r * LANE_VECTORS + v, in + r * row_step + v * LANES * lane_step, row_step, lane_step,
                           min(LANES, at.rows - r), at.lanes - v * LANES);
}
#endif

/* Turns the sums of `at`, LANE_VECTORS vectors a row, into elements of C and stores them; overwrites the sums. */
static void finish(private floatv *sums, destination to, place at)
{
    const private matmul_args *a = to.args;
    const long row_step = C_ROW_STEP(*a), lane_step = C_LANE_STEP(*a);
    global ELEMENT(C_TYPE) *out = to.c + a->c.offset + at.batch * a->c.batch + at.row * row_step + at.lane * lane_step;

#if B_SCALED
    scale_sums(sums, to, at);
#endif
#if BIAS
    if (HAS_BIAS(*a))
        add_bias(sums, to, at);
#endif
#if ACTIVATED || OPTIONAL
    if (HAS_ACTIVATION(*a))
        for (int i = 0; i < at.rows * LANE_VECTORS; i++)
            sums[i] = ACTIVATED_SUM(sums[i], *a);
#endif
#if OPERAND
    if (HAS_OPERAND(*a))
        combine_with_operand(sums, to, at);
#endif
    if (lane_step == 1)
        store_rows(sums, out, row_step, at.rows, at.lanes);
    else
        for (int r = 0; r < at.rows; r += LANES)
            for (int v = 0; v < LANE_VECTORS; v++)
                store_square(sums + r * LANE_VECTORS + v, out + r * row_step + v * LANES * lane_step, row_step,
                             lane_step, min(LANES, at.rows - r), min(LANES, at.lanes - v * LANES));
}

#if PLAIN_SUMS
/* What is added to each row of a tile; without a bias 0. */
INLINE void load_bias(floatv add[LANE_VECTORS], destination to, place at)
{
#pragma unroll
    for (int v = 0; v < LANE_VECTORS; v++) {
        add[v] = (floatv)(0.0f);
#if BIAS
        if (HAS_BIAS(*to.args))
            add[v] = lane_bias(to, at, v);
#endif
    }
}

INLINE void store_row(const private floatv *sums, const private floatv *add, global ELEMENT(C_TYPE) *out)
{
#pragma unroll
    for (int v = 0; v < LANE_VECTORS; v++)
#if BIAS
        STOREV(C_TYPE, out, v * LANES, sums[v] + add[v]);
#else
        STORE_SUMS(C_TYPE, out, v * LANES, sums[v]);
#endif
}

INLINE global ELEMENT(C_TYPE) *first_of_c(destination to, place at)
{
    return to.c + to.args->c.offset + at.batch * to.args->c.batch + at.row * to.args->c.row + at.lane;
}

/* Stores a tile from registers, so that every row's address is computed in an unrolled loop. */
INLINE void store_sums(const private floatv acc[ROWS][LANE_VECTORS], destination to, place at)
{
    global ELEMENT(C_TYPE) *out = first_of_c(to, at);
    floatv add[LANE_VECTORS];

    load_bias(add, to, at);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (r < at.rows)
            store_row(acc[r], add, out + r * to.args->c.row);
}
#endif

/* Rows of sums that are not in C yet; C's lanes are neighbours. */
typedef struct deferred_rows {
  private
    floatv *sums;
    place at;
} deferred_rows;

/* Not with OPTIONAL. */
INLINE void store_deferred(deferred_rows *deferred, int rows, destination to)
{
    place at = deferred->at;

    at.rows = min(at.rows, rows);
    if (at.rows <= 0)
        return;
#if PLAIN_SUMS
    if (at.lanes == PANEL) {
        global ELEMENT(C_TYPE) *out = first_of_c(to, at);
        floatv add[LANE_VECTORS];

        load_bias(add, to, at);
        for (int r = 0; r < at.rows; r++)
            store_row(deferred->sums + r * LANE_VECTORS, add, out + r * to.args->c.row);
    } else
#endif
        finish(deferred->sums, to, at);
    deferred->sums += at.rows * LANE_VECTORS;
    deferred->at.row += at.rows;
    deferred->at.rows -= at.rows;
}

#endif
