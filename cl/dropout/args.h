/* What the dropout kernels are told, shared by the host and OpenCL C; lib/array.h has the rules. */
#ifndef CLATTN_CL_DROPOUT_ARGS_H
#define CLATTN_CL_DROPOUT_ARGS_H

#include "lib/array.h"

/* extent[0] * .. * extent[3] rows, the last fastest, of `columns` elements, each cut into `chunks` pieces of `chunk`
 * neighbouring columns (the last may be shorter).  Rows and columns are in C order: element c of row r has the place
 * r*columns + c among all. */
typedef struct dropout_args {
    launch_part part;
    array5 x, residual, y;
    args_ulong seed;
    args_long pieces; /* rows * chunks; 0: nothing to do, return at once */
    int extent[4];
    int columns, chunk, chunks;
    args_uint offset, threshold; /* words below the threshold drop their elements */
    float scale;                 /* 1 / (1 - probability) */
} dropout_args;

#endif
