/* Kernel arguments, shared by the host and OpenCL C.
 *
 * Every kernel takes its buffers first and then exactly one of these structs by value.  All strides
 * and offsets are in elements of the array that they belong to.  A struct holds its 64-bit members
 * first and is a multiple of 8 bytes long, so that it has no padding on any compiler (rusticl counts
 * a struct's size without tail padding); the host asserts each size.
 *
 * A kernel that is launched with `batch` (softmax and norm: `rows`) equal to 0 returns at once: making a plan
 * runs each kernel so, because some platforms compile at the first launch only. */
#ifndef CLATTN_CL_LIB_ARGS_H
#define CLATTN_CL_LIB_ARGS_H

#if defined(__OPENCL_VERSION__) || defined(__OPENCL_C_VERSION__)
/* What is to be fused is written fma.  Contraction by the compiler would round a product in one place and not in
 * another where they must agree. */
#pragma OPENCL FP_CONTRACT OFF
#define ARGS_ON_DEVICE
typedef long args_long;
typedef ulong args_ulong;
typedef uint args_uint;
/* The size of a kernel's work-groups, which every launch gives as well.  Not for PoCL: before its version 6 it aborts the
 * process if it is asked for a binary with such a kernel in it while that runs. */
#ifdef POCL_DEVICE_ADDRESS_BITS
#define GROUP_SIZE(x, y, z)
#else
#define GROUP_SIZE(x, y, z) __attribute__((reqd_work_group_size(x, y, z)))
#endif
#else
#include <stdint.h>
typedef int64_t args_long;
typedef uint64_t args_ulong;
typedef uint32_t args_uint;
#endif

/* Where one array starts and how it is walked: element (b, h, i, j) of a (batch, heads, length, size)
 * array lies at offset + b*batch + h*head + i*row + j*col. */
typedef struct array4 {
    args_long offset, batch, head, row, col;
} array4;

/* Element i of a one-dimensional array lies at offset + i*stride. */
typedef struct array1 {
    args_long offset, stride;
} array1;

/* Positions lie within 2^42 of 0, so that a window which is wider ends nowhere. */
#define ATTENTION_UNBOUNDED ((args_long)1 << 44)

/* Attention: attention/core.h says what each member means to a kernel. */
typedef struct attention_args {
    array4 query, key, value, output; /* key and value of a paged cache: `batch` is the page's stride */
    array4 mask, bias;                /* (b, h, i, j); a broadcast dimension has stride 0 */
    array4 lse, entropy;              /* (b, h, i); col unused */
    array4 scores;                    /* (b, h, i, j); head 0 when averaged */
    array4 key_scale, value_scale;    /* (b, h, j, group) */
    array4 vector;                    /* (-, h, -, d) */
    array4 alibi, block_table;        /* (b, h), (b, block): the block's stride is `col` */
    array1 sinks;                     /* (h) */
    array1 query_lengths, key_lengths, positions, query_starts, key_starts; /* (b) */
    args_long user_offset[4];
    args_long cancel_offset;
    args_long position;                  /* key position of query 0, but for ALIGN_BOTTOM_RIGHT */
    args_long window_left, window_right; /* ATTENTION_UNBOUNDED: no end */
    args_long dropout_seed;
    args_long scale_bits;                     /* of `scale` as a double, for DOUBLE */
    int batch;                                /* items of this launch; 0: nothing to do, return at once */
    int heads;                                /* query heads, of all launches */
    int group;                                /* query heads for each key/value head */
    int query_length, key_length;             /* the most that an item has */
    int mask_keys, bias_keys;                 /* keys that they cover; those beyond are not attended */
    int first_batch, first_head, first_query; /* of this launch */
    int launch_heads, launch_queries;         /* of this launch */
    int capacity;                             /* rows of a ring or of packed keys; pages of a paged cache */
    int packed_queries;                       /* rows of packed queries */
    args_uint dropout_offset;
    args_uint dropout_threshold; /* a word below it drops */
    float dropout_scale;         /* 1 / (1 - dropout) */
    float scale;
    float softcap;
    float user_scalar[4];
    float dropout; /* the probability, for DOUBLE */
    int splits;    /* parts of each item's keys; the launch's `batch` is items * splits, part by part */
    int items;     /* batch items, with `splits` */
} attention_args;

/* Matrix product: C[b] = A[b] (m x k) B[b] (k x n) + bias.  `head` is unused (0).  Kernels that do nothing more than this to
 * a sum, MATMUL_EPILOGUE 0, are told no more. */
#ifndef MATMUL_EPILOGUE
#define MATMUL_EPILOGUE 0
#endif
typedef struct matmul_args {
    array4 a, b, c; /* (batch, -, row, col) */
    args_long bias_offset, bias_col;
    args_long packed_offset; /* where matmul_cpu's packed panels start in the workspace, in floats */
    int batch;               /* 0: nothing to do, return at once */
    int m, n, k;
#if MATMUL_EPILOGUE || !defined(ARGS_ON_DEVICE)
    array4 operand; /* as c; a broadcast dimension has stride 0 */
    args_long scale_offset, scale_col;
    float alpha;
    int reserved;
#endif
} matmul_args;

/* Softmax over `columns` for each of `rows` = extent[0]*...*extent[3] rows, the last one fastest. */
typedef struct array5 {
    args_long offset, stride[4], col;
} array5;
typedef array5 softmax_array;

typedef struct softmax_args {
    softmax_array x, y, mask;
    args_long rows; /* 0: nothing to do, return at once */
    int extent[4];
    int columns;
    int mask_columns; /* columns that the mask covers; those beyond it are not attended */
    float scale;
    int reserved;
} softmax_args;

/* With NORM_RESIDUAL 1 there is more: x + residual in x's place, and that as an output. */
#ifndef NORM_RESIDUAL
#define NORM_RESIDUAL 0
#endif
/* Normalisation of `rows` rows, each of `segments` segments of `columns` elements.  A row's index counts through
 * row_extent, a segment's through segment_extent, the last of each fastest; both go with the same four strides, since a
 * dimension belongs to one of them and is 1 in the other. */
typedef struct norm_args {
    array5 x, y, scale, bias; /* scale and bias broadcast by stride 0 */
    array5 mean, inverse;     /* one element a row; col unused */
    args_long rows;           /* 0: nothing to do, return at once */
    int row_extent[4], segment_extent[4];
    int segments, columns;
    int has_scale, has_bias, has_mean, has_inverse;
    int centred; /* LayerNorm; 0: RMSNorm, whose deviations are from 0 */
    float epsilon;
#if NORM_RESIDUAL || !defined(ARGS_ON_DEVICE)
    array5 residual, sum; /* residual broadcasts by stride 0 */
    int has_sum, reserved;
#endif
} norm_args;

#endif
