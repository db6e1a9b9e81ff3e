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

/* The gradient of x, of the same rows and segments. */
typedef struct norm_backward_args {
    launch_part part;
    array5 x, residual, scale, dy, dsum, dx; /* x, residual and scale are forward's */
    args_long rows;                          /* 0: nothing to do, return at once */
    args_long statistics;                    /* offset of the first row's in the workspace: three floats a row */
    int row_extent[4], segment_extent[4];
    int segments, columns;
    int has_scale, has_dsum, has_dx, has_statistics;
    int centred; /* as in norm_args */
    float epsilon;
} norm_backward_args;

/* An array in a sum: the dimensions that are kept and those that are summed, of each the last one fastest. */
typedef struct norm_weights_array {
    args_long offset, kept[5], summed[5];
} norm_weights_array;

/* The gradient of scale or bias: `outputs` sums of `terms` terms.  Each block of NORM_BLOCK terms has a partial sum. */
typedef struct norm_weights_args {
    launch_part part;
    norm_weights_array x, residual, dy, statistics, weight;
    args_long outputs; /* 0: nothing to do, return at once */
    args_long terms, blocks;
    args_long partials; /* offset of the partial sums in the workspace: (blocks, outputs) */
    int kept_extent[5], summed_extent[5];
    int of_scale; /* 0: of bias, for which x, residual and statistics do not count */
    int reserved;
} norm_weights_args;

#define NORM_BLOCK 256

#endif
