/* What the kernel of products' gradients is told, shared by the host and OpenCL C; lib/array.h has the rules. */
#ifndef CLATTN_CL_MATMUL_BACKWARD_ARGS_H
#define CLATTN_CL_MATMUL_BACKWARD_ARGS_H

#include "lib/array.h"

/* extent[0] * extent[1] rows, the last fastest, of `columns` elements, each cut into `chunks` pieces of `chunk` neighbouring
 * columns (the last may be shorter); all of that `summed` times.  Strides of the arrays: `batch` from one time to the next,
 * `head` and `row` along extent[0] and extent[1], `col` along the columns. */
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
