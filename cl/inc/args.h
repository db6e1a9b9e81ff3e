/* Kernel arguments, shared by the host and OpenCL C.
 *
 * Every kernel takes its buffers first and then exactly one of these structs by value.  All strides
 * and offsets are in elements of the array that they belong to.  A struct holds its 64-bit members
 * first and is a multiple of 8 bytes long, so that it has no padding on any compiler (rusticl counts
 * a struct's size without tail padding); the host asserts each size.
 *
 * A kernel that is launched with `batch` (softmax: `rows`) equal to 0 returns at once: making a plan
 * runs each kernel so, because some platforms compile at the first launch only. */
#ifndef CLATTN_INC_ARGS_H
#define CLATTN_INC_ARGS_H

#if defined(__OPENCL_VERSION__) || defined(__OPENCL_C_VERSION__)
/* What is to be fused is written fma.  Contraction by the compiler would round a product in one place and not in
 * another where they must agree. */
#pragma OPENCL FP_CONTRACT OFF
typedef long args_long;
#else
#include <stdint.h>
typedef int64_t args_long;
#endif

/* Where one array starts and how it is walked: element (b, h, i, j) of a (batch, heads, length, size)
 * array lies at offset + b*batch + h*head + i*row + j*col. */
typedef struct array4 {
    args_long offset, batch, head, row, col;
} array4;

/* Attention: O[b,h,i,:] = sum_j softmax_j(scale * Q[b,h,i,:].K[b,h/group,j,:] + mask) V[b,h/group,j,:] */
typedef struct attention_args {
    array4 query, key, value, output;
    array4 mask;             /* (b, h, i, j); a broadcast dimension has stride 0 */
    array4 lse;              /* (b, h, i); col unused */
    array4 weights;          /* (b, h, i, j), written by attention_weights only; head 0 when averaged */
    args_long position;      /* causal: query i attends key j when j <= i + position */
    int batch;               /* 0: nothing to do, return at once */
    int heads;               /* query heads */
    int group;               /* query heads for each key/value head */
    int query_length, key_length;
    int mask_keys;           /* keys that the mask covers; those beyond it are not attended */
    float scale;
    int reserved;
} attention_args;

/* Matrix product: C[b] = A[b] (m x k) B[b] (k x n) + bias.  `head` is unused (0). */
typedef struct matmul_args {
    array4 a, b, c;          /* (batch, -, row, col) */
    args_long bias_offset, bias_col;
    args_long packed_offset; /* where matmul_cpu's packed panels start in the workspace, in floats */
    int batch;               /* 0: nothing to do, return at once */
    int m, n, k;
} matmul_args;

/* Softmax over `columns` for each of `rows` = extent[0]*...*extent[3] rows, the last one fastest. */
typedef struct softmax_array {
    args_long offset, stride[4], col;
} softmax_array;

typedef struct softmax_args {
    softmax_array x, y, mask;
    args_long rows;          /* 0: nothing to do, return at once */
    int extent[4];
    int columns;
    int mask_columns;        /* columns that the mask covers; those beyond it are not attended */
    float scale;
    int reserved;
} softmax_args;

#endif
