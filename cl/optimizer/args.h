/* What the kernels of the optimizer are told, shared by the host and OpenCL C; lib/array.h has the rules. */
#ifndef CLATTN_CL_OPTIMIZER_ARGS_H
#define CLATTN_CL_OPTIMIZER_ARGS_H

#include "lib/array.h"

typedef struct adam_args {
    launch_part part;
    args_long parameter, gradient, first_moment, second_moment, stored, squares; /* offsets */
    int count; /* elements; 0: nothing to do, return at once */
    int chunk; /* elements of a work-group */
    float gradient_scale, clip_norm;
    float decay;          /* what of the parameter is added to the gradient */
    float shrink;         /* what the parameter is multiplied by */
    float beta1, beta2;   /* what of the moments is kept, */
    float fresh1, fresh2; /* and what is added: 1 - beta1, 1 - beta2 */
    float root_scale;     /* 1 / sqrt(1 - beta2^step) */
    float epsilon;
    float step_size; /* learning_rate / (1 - beta1^step) */
    int unused;      /* 0 */
} adam_args;

/* Elements of which square_sum's first kernel makes one partial sum, and the columns that they are arranged in. */
#define SQUARE_BLOCK 16384
#define SQUARE_COLUMNS 64

typedef struct square_sum_args {
    launch_part part;
    args_long x, partials, result; /* offsets */
    int count;                     /* elements */
    int blocks;                    /* partial sums */
    int accumulate;                /* whether the result's old value is added */
    int results;                   /* 1; 0: nothing to do, return at once */
} square_sum_args;

#endif
