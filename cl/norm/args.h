/* What the kernels of LayerNorm and RMSNorm are told, shared by the host and OpenCL C; lib/array.h has the rules. */
#ifndef CLATTN_CL_NORM_ARGS_H
#define CLATTN_CL_NORM_ARGS_H

#include "lib/array.h"

/* Normalisation of `rows` rows, each of `segments` segments of `columns` elements.  A row's index counts through
 * row_extent, a segment's through segment_extent, the last of each fastest; both go with the same four strides, since a
 * dimension belongs to one of them and is 1 in the other. */
typedef struct norm_args {
    launch_part part;
    array5 x, y, scale, bias, residual, sum; /* scale, bias and residual broadcast by stride 0 */
    array5 mean, inverse;                    /* one element a row; col unused */
    args_long rows;                          /* 0: nothing to do, return at once */
    int row_extent[4], segment_extent[4];
    int segments, columns;
    int has_scale, has_bias, has_mean, has_inverse, has_sum;
    int centred; /* 1: LayerNorm; 0: RMSNorm, whose deviations are from 0 */
    float epsilon;
    int reserved;
} norm_args;

#endif
