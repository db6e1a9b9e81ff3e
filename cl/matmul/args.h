/* What the kernels of matrix products are told, shared by the host and OpenCL C; lib/array.h has the rules. */
#ifndef CLATTN_CL_MATMUL_ARGS_H
#define CLATTN_CL_MATMUL_ARGS_H

#include "lib/activation_kind.h"
#include "lib/array.h"

/* Matrix product: C[b] = A[b] (m x k) B[b] (k x n) + bias.  `head` is unused (0).  Kernels that do nothing more than this to
 * a sum, MATMUL_EPILOGUE 0, are told no more. */
#ifndef MATMUL_EPILOGUE
#define MATMUL_EPILOGUE 0
#endif
typedef struct matmul_args {
    launch_part part;
    array4 a, b, c; /* (batch, -, row, col) */
    args_long bias_offset, bias_col;
    args_long packed_offset; /* where the workspace starts, in floats: packed panels, or the sums of matmul_bias */
    int batch;               /* 0: nothing to do, return at once */
    int m, n, k;
#if MATMUL_EPILOGUE || !defined(ARGS_ON_DEVICE)
    array4 operand; /* as c; a broadcast dimension has stride 0 */
    args_long scale_offset, scale_col;
    float alpha;
    /* With OPTIONAL (matmul/epilogue.h): */
    int has_bias, has_operand;
    int activation; /* an ACTIVATION_... */
    int item_rows;  /* streamed rows that an item of skinny.cl owns */
    int reserved;   /* 0 */
#endif
} matmul_args;

/* The elements between a product and its gradients (matmul/backward.cl): extent[0] * extent[1] rows, the last fastest, of
 * `columns` elements, each cut into `chunks` pieces of `chunk` neighbouring columns (the last may be shorter); all of that
 * `summed` times.  Strides of the arrays: `batch` from one time to the next, `head` and `row` along extent[0] and extent[1],
 * `col` along the columns. */
typedef struct matmul_backward_args {
    launch_part part;
    array4 sums, c_gradient, operand, operand_gradient;
    args_long pieces; /* extent[0] * extent[1] * chunks; 0: nothing to do, return at once */
    int extent[2];
    int columns, chunk, chunks, summed;
    float alpha;
    int reserved; /* 0 */
} matmul_backward_args;

#endif
