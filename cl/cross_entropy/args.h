/* What the cross-entropy kernels are told, shared by the host and OpenCL C; lib/array.h has the rules. */
#ifndef CLATTN_CL_CROSS_ENTROPY_ARGS_H
#define CLATTN_CL_CROSS_ENTROPY_ARGS_H

#include "lib/array.h"

/* The cross-entropy of `rows` = extent[0]*...*extent[3] rows of `classes` logits, the last extent fastest. */
typedef struct cross_entropy_args {
    launch_part part;
    array5 x, gradient;
    array5 labels, weights, loss, lse; /* an element a row: `col` is unused */
    args_long rows;                    /* 0: nothing to do, return at once */
    args_long ignored;                 /* the label that is not counted */
    int extent[4];
    int classes;
    float kept;  /* 1 - smoothing */
    float share; /* smoothing / classes */
    float scale;
} cross_entropy_args;

#endif
