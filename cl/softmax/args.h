/* What the softmax kernels are told, shared by the host and OpenCL C; lib/array.h has the rules. */
#ifndef CLATTN_CL_SOFTMAX_ARGS_H
#define CLATTN_CL_SOFTMAX_ARGS_H

#include "lib/array.h"

/* Softmax over `columns` for each of `rows` = extent[0]*...*extent[3] rows, the last one fastest. */
typedef struct softmax_args {
    launch_part part;
    array5 x, y, mask;
    args_long rows; /* 0: nothing to do, return at once */
    int extent[4];
    int columns;
    int mask_columns; /* columns that the mask covers; those beyond it are not attended */
    float scale;
    int reserved;
} softmax_args;

/* The gradient of softmax, of the same rows. */
typedef struct softmax_backward_args {
    launch_part part;
    array5 y, dy, dx, mask;
    args_long rows; /* 0: nothing to do, return at once */
    int extent[4];
    int columns, mask_columns; /* as in softmax_args */
    float scale;
    int reserved;
} softmax_backward_args;

#endif
