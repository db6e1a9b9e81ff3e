/* Matrix engines: one 16 x 16 x 16 product of 16-bit elements, C += A B, added up in float32, by a sub-group (a warp, a
 * wavefront).
 *
 * Each of its MATRIX_LANES work-items holds a part of each matrix, its *fragment*: MATRIX_A and MATRIX_B words of two
 * elements (the one with the even number in the lower half), MATRIX_C floats.  The engine decides which part; its file says so by
 * functions of lane and number, with the source, and everything else follows from these.
 *
 *   MATRIX_ENGINE     file      instruction                                    lanes   A, B words   C floats
 *   1 MATRIX_MMA      mma.h     NVIDIA mma.sync.m16n8k16, twice                32      4, 4         8
 *   2 MATRIX_WMMA     matrix.h  AMD v_wmma_f32_16x16x16 (gfx11)                32      8, 8         8
 *   3 MATRIX_MFMA     matrix.h  AMD v_mfma_f32_16x16x16 (gfx90a, gfx94x)       64      2, 2         4
 *   4 MATRIX_DPAS8    dpas.h    Intel dpas, sub-groups of 8, four times        8       16, 16       32
 *   5 MATRIX_DPAS16   dpas.h    Intel dpas, sub-groups of 16, twice            16      8, 8         16
 *
 *   MATRIX_BF16       1: bfloat16, 0: float16
 *   MATRIX_EMULATED   1: plain OpenCL C stands in for the instruction, and for what else only that GPU has, by an
 *                     exchange through local memory: the whole kernel then runs anywhere, fragments, indices and all,
 *                     and only the instruction is left unproven.  0: the kernel runs on that GPU alone
 *
 * NVIDIA's instructions have run on a GPU (an H100, driver 580.159), AMD's and Intel's on none.
 *
 * A matrix lies in local memory as a *tile*: rows of `width` 16-bit elements, a multiple of 8 that the compiler knows.
 * Element (row, column) is number MATRIX_AT(row, column, width): eight neighbouring columns, 16 bytes, stay neighbours,
 * and change places within their row (a swizzle), so that 16 bytes of each of eight rows come from different banks.  That is
 * for widths of 16, 32 and multiples of 64; a width that is an odd multiple of 8 needs no swizzle.  A tile begins at a
 * multiple of 16 bytes.
 *
 *   matrix_load_a(&f, tile, width, row, k, lane)                A[i][x] is tile (row + i, k + x)
 *   matrix_load_a_transposed(&f, tile, width, k, row, lane)     A[i][x] is tile (k + x, row + i)
 *   matrix_load_b(&f, tile, width, column, k, lane)             B[x][j] is tile (column + j, k + x)
 *   matrix_load_b_transposed(&f, tile, width, k, column, lane)  B[x][j] is tile (k + x, column + j)
 *   matrix_c_row(lane, n), matrix_c_column(lane, n)   where in C the lane's float number n stands
 *   matrix_multiply(c, a, A, b, B, lane, scratch)     c[i * B + j] += a[i] b[j] for i < A, j < B, both constants
 *   matrix_pack(x, y)                                 two floats rounded to the 16-bit type, x in the lower half
 *   matrix_chain(&f, c, lane, scratch)                C, rounded, as an operand of the next product, without a tile:
 *                     with MATRIX_CHAIN_A f is a matrix_a and A[i][x] = C[i][x], otherwise a matrix_b and B[x][j] = C[x][j]
 *   matrix_swap(x, distance, lane, scratch)           x of the lane `distance` (a power of two) away by exclusive or
 *   matrix_exp2(x)                                    2^x of x <= 1, as lib/exp2.h has it; MATRIX_MMA alone
 *   MATRIX_FORGET(x)                                  at the head of a loop: what is computed from the int x is computed in the
 *                     loop, and does not take registers from before it; MATRIX_MMA alone
 *   matrix_lane(), matrix_sub_group()                 this item's lane, and the number of its sub-group
 *
 * row, column and k are multiples of 16.  All items of a sub-group call the loads and matrix_multiply alike; with
 * MATRIX_EMULATED all items of the work-group call the functions that take `scratch`, since these have barriers.  Each
 * sub-group has a `scratch` of its own in local memory: MATRIX_SCRATCH(A, B) words, 0 without MATRIX_EMULATED.
 *
 * The launch: work-groups of MATRIX_LANES x sub-groups x 1 items.  The kernel has the attribute MATRIX_SUB_GROUP, which pins
 * the size where a compiler chooses it.
 *
 * Tested: each engine emulated, both types, all loads, by tests/ops/matrix.c; MATRIX_MMA on a GPU, by tests/ops/matmul_matrix.c
 * and tests/ops/attention/matrix.c. */
#ifndef CLATTN_CL_ENGINE_FRAGMENT_H
#define CLATTN_CL_ENGINE_FRAGMENT_H

#include "lib/fma.h"
#include "lib/storage.h"

#define MATRIX_MMA 1
#define MATRIX_WMMA 2
#define MATRIX_MFMA 3
#define MATRIX_DPAS8 4
#define MATRIX_DPAS16 5

#ifndef MATRIX_ENGINE
#define MATRIX_ENGINE MATRIX_MMA
#endif
#ifndef MATRIX_BF16
#define MATRIX_BF16 1
#endif
#ifndef MATRIX_EMULATED
#define MATRIX_EMULATED 1
#endif

#if MATRIX_ENGINE < MATRIX_MMA || MATRIX_ENGINE > MATRIX_DPAS16
#error "MATRIX_ENGINE must be 1 to 5"
#endif
#if MATRIX_BF16 != 0 && MATRIX_BF16 != 1
#error "MATRIX_BF16 must be 0 or 1"
#endif
#if MATRIX_EMULATED != 0 && MATRIX_EMULATED != 1
#error "MATRIX_EMULATED must be 0 or 1"
#endif

#define MATRIX_SIDE 16

/* Before a loop whose counter must be gone: fragments are indexed by it.  Emulated, code that is small compiles sooner. */
#if MATRIX_EMULATED
#define MATRIX_UNROLL _Pragma("nounroll")
#else
#define MATRIX_UNROLL _Pragma("unroll")
#endif

/* How far the eights of columns of a row are moved: rows that share 128 bytes, the banks' width, are moved alike. */
#define MATRIX_SWIZZLE(row, width) \
    (((width) & 63) == 0 ? ((row) & 7) << 3 \
     : (width) == 32     ? ((row) >> 1 & 3) << 3 \
     : (width) == 16     ? ((row) >> 2 & 1) << 3 \
                         : 0)
#define MATRIX_AT(row, column, width) ((row) * (width) + ((column) ^ MATRIX_SWIZZLE(row, width)))

/* Parts of a tile, as they are loaded: elements from (row, column) on; the column a multiple of their number. */
static inline uint matrix_1(const local ushort *tile, int width, int row, int column)
{
    return tile[MATRIX_AT(row, column, width)];
}

static inline uint matrix_2(const local ushort *tile, int width, int row, int column)
{
    return *(const local uint *)(tile + MATRIX_AT(row, column, width));
}

static inline uint2 matrix_4(const local ushort *tile, int width, int row, int column)
{
    return *(const local uint2 *)(tile + MATRIX_AT(row, column, width));
}

static inline uint4 matrix_8(const local ushort *tile, int width, int row, int column)
{
    return *(const local uint4 *)(tile + MATRIX_AT(row, column, width));
}

/* A column's elements of two rows as a word. */
static inline uint matrix_down(const local ushort *tile, int width, int row, int column)
{
    return matrix_1(tile, width, row, column) | matrix_1(tile, width, row + 1, column) << 16;
}

static inline float matrix_value(uint bits)
{
#if MATRIX_BF16
    return as_float(bits << 16);
#else
    ushort element = (ushort)bits;
    return vload_half(0, (const half *)&element);
#endif
}

/* mma.h has an instruction for it. */
static inline uint matrix_pack_plainly(float x, float y)
{
#if MATRIX_BF16
    return (uint)bf16_bits(x) | (uint)bf16_bits(y) << 16;
#else
    ushort pair[2];
    vstore_half_rte(x, 0, (half *)pair);
    vstore_half_rte(y, 1, (half *)pair);
    return (uint)pair[0] | (uint)pair[1] << 16;
#endif
}

#if MATRIX_ENGINE == MATRIX_MMA
#define MATRIX_LANES 32
#define MATRIX_A 4
#define MATRIX_B 4
#elif MATRIX_ENGINE == MATRIX_WMMA
#define MATRIX_LANES 32
#define MATRIX_A 8
#define MATRIX_B 8
#elif MATRIX_ENGINE == MATRIX_MFMA
#define MATRIX_LANES 64
#define MATRIX_A 2
#define MATRIX_B 2
#elif MATRIX_ENGINE == MATRIX_DPAS8
#define MATRIX_LANES 8
#define MATRIX_A 16
#define MATRIX_B 16
#else
#define MATRIX_LANES 16
#define MATRIX_A 8
#define MATRIX_B 8
#endif
#define MATRIX_C (MATRIX_SIDE * MATRIX_SIDE / MATRIX_LANES)
#define MATRIX_CHAIN_A (MATRIX_ENGINE == MATRIX_MMA)

typedef struct matrix_a {
    uint word[MATRIX_A];
} matrix_a;

typedef struct matrix_b {
    uint word[MATRIX_B];
} matrix_b;

typedef struct matrix_c {
    float sum[MATRIX_C];
} matrix_c;

#if MATRIX_EMULATED
#define MATRIX_SCRATCH(A, B) (((A) + (B)) * (MATRIX_SIDE * MATRIX_SIDE / 2))
#else
#define MATRIX_SCRATCH(A, B) 0
#endif

#if MATRIX_EMULATED
static inline float matrix_swap(float x, int distance, int lane, local uint *scratch)
{
    scratch[lane] = as_uint(x);
    barrier(CLK_LOCAL_MEM_FENCE);
    x = as_float(scratch[lane ^ distance]);
    barrier(CLK_LOCAL_MEM_FENCE);
    return x;
}
#endif

#if MATRIX_EMULATED || MATRIX_ENGINE < MATRIX_DPAS8
#define MATRIX_SUB_GROUP

/* Sub-groups are made of items in the order of their local numbers. */
static inline int matrix_lane(void)
{
    return get_local_id(0);
}

static inline int matrix_sub_group(void)
{
    return get_local_id(1);
}
#else
#pragma OPENCL EXTENSION cl_intel_subgroups : enable
#define MATRIX_SUB_GROUP __attribute__((intel_reqd_sub_group_size(MATRIX_LANES)))

static inline int matrix_lane(void)
{
    return get_sub_group_local_id();
}

static inline int matrix_sub_group(void)
{
    return get_sub_group_id();
}
#endif

/* Each defines matrix_pack, matrix_[abc]_row, _column or _k, the loads, matrix_chain; and what is on that GPU alone:
 * matrix_one, c += a b, and matrix_swap. */
#include "engine/nvidia/mma.h"
#include "engine/amd/matrix.h"
#include "engine/intel/dpas.h"

#if MATRIX_EMULATED
/* The sub-group's fragments become dense matrices in its scratch memory, from which each item takes what its own floats need.  FMA and
 * not fma: products of 16 bits are exact, and Mesa 22.3's fma of a product that is -0 and of +0 is -0. */
static inline void matrix_multiply(matrix_c *c, const matrix_a *a, int a_count, const matrix_b *b, int b_count,
                                   int lane, local uint *scratch)
{
    local ushort *of_a = (local ushort *)scratch, *of_b = of_a + a_count * MATRIX_SIDE * MATRIX_SIDE;

    for (int i = 0; i < a_count; i++)
        for (int n = 0; n < 2 * MATRIX_A; n++)
            if (MATRIX_OWNS(lane, n))
                of_a[(i * MATRIX_SIDE + matrix_a_row(lane, n)) * MATRIX_SIDE + matrix_a_k(lane, n)] =
                    (ushort)(a[i].word[n >> 1] >> (n & 1) * 16);
    for (int j = 0; j < b_count; j++)
        for (int n = 0; n < 2 * MATRIX_B; n++)
            if (MATRIX_OWNS(lane, n))
                of_b[(j * MATRIX_SIDE + matrix_b_column(lane, n)) * MATRIX_SIDE + matrix_b_k(lane, n)] =
                    (ushort)(b[j].word[n >> 1] >> (n & 1) * 16);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < a_count; i++)
        for (int j = 0; j < b_count; j++)
            for (int n = 0; n < MATRIX_C; n++) {
                const local ushort *row = of_a + (i * MATRIX_SIDE + matrix_c_row(lane, n)) * MATRIX_SIDE;
                const local ushort *column = of_b + (j * MATRIX_SIDE + matrix_c_column(lane, n)) * MATRIX_SIDE;
                float sum = c[i * b_count + j].sum[n];

                for (int k = 0; k < MATRIX_SIDE; k++)
                    sum = FMA(matrix_value(row[k]), matrix_value(column[k]), sum);
                c[i * b_count + j].sum[n] = sum;
            }
    barrier(CLK_LOCAL_MEM_FENCE);
}
#else
static inline void matrix_multiply(matrix_c *c, const matrix_a *a, int a_count, const matrix_b *b, int b_count,
                                   int lane, local uint *scratch)
{
    MATRIX_UNROLL
    for (int i = 0; i < a_count; i++)
        MATRIX_UNROLL
    for (int j = 0; j < b_count; j++)
        matrix_one(&c[i * b_count + j], &a[i], &b[j]);
}
#endif

#endif
