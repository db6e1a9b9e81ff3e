/* What the activation kernels are told, shared by the host and OpenCL C; lib/array.h has the rules. */
#ifndef CLATTN_CL_ACTIVATION_ARGS_H
#define CLATTN_CL_ACTIVATION_ARGS_H

#include "lib/array.h"

/* extent[0] * .. * extent[3] rows, the last fastest, of `columns` elements, each cut into `chunks` pieces of `chunk`
 * neighbouring columns (the last may be shorter). */
typedef struct activation_args {
    launch_part part;
    array5 x, y;
    args_long pieces; /* rows * chunks; 0: nothing to do, return at once */
    int extent[4];
    int columns, chunk, chunks;
    float alpha;
} activation_args;

/* The arrays of backward: walk.y is the gradient of x, which the kernels write. */
typedef struct activation_backward_args {
    activation_args walk;
    array5 y_gradient;
} activation_backward_args;

#endif
