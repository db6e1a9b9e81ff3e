/* Softmax's inside: the checked problems and the plans of both directions, and what the directions share. */
#ifndef CLATTN_OPS_SOFTMAX_SOFTMAX_H
#define CLATTN_OPS_SOFTMAX_SOFTMAX_H

#include "clattn/softmax.h"
#include "ops/common/rows.h"
#include "softmax/args.h"

#define SOFTMAX_OUTER 4 /* dimensions before the row's own */

/* The rows of a description, of either direction. */
struct softmax_shape {
    int rank;
    size_t outer[SOFTMAX_OUTER]; /* extents; 1 for dimensions that the arrays lack */
    size_t columns;
    int first; /* which of `outer` is the description's first dimension; SOFTMAX_OUTER: none */
    bool has_mask;
    array5 mask;                         /* strides; offset 0 */
    size_t mask_extent[CLATTN_MAX_RANK]; /* aligned with the rows' dimensions */
    float scale;
};

struct softmax_problem {
    clattn_softmax_desc desc; /* normalised */
    struct softmax_shape shape;
    array5 x, y;       /* strides; offsets 0 */
    bool unit_columns; /* x's and y's columns are contiguous */
};

struct softmax_plan {
    struct row_plan rows;
    struct softmax_problem problem;
};

struct softmax_backward_problem {
    clattn_softmax_desc desc; /* normalised; x is none */
    struct softmax_shape shape;
    array5 y, dy, dx;  /* strides; offsets 0 */
    bool unit_columns; /* their columns are contiguous */
};

struct softmax_backward_plan {
    struct row_plan rows;
    struct softmax_backward_problem problem;
};

clattn_status softmax_problem_read(const void *desc, void *problem, const char **reason);
clattn_status softmax_backward_problem_read(const void *desc, void *problem, const char **reason);

/* Reads what a description says of its rows, which are those of the layout `rows`: scale and mask. */
clattn_status softmax_shape_read(clattn_softmax_desc *desc, const clattn_layout *rows, struct softmax_shape *shape,
                                 const char **reason);

/* The strides of the layout's elements as the kernels take them. */
array5 softmax_strides(const clattn_layout *layout);

/* All rows of the shape. */
size_t softmax_rows(const struct softmax_shape *shape);

/* One call's arguments, and how much of its arrays the call reaches. */
struct softmax_call {
    clattn_softmax_args args;
    size_t extent[CLATTN_MAX_RANK], mask_extent[CLATTN_MAX_RANK]; /* of the arrays, of the mask */
    clattn_layout mask;                                           /* aligned with the rows' dimensions */
    int mask_columns;                                             /* for the kernels */
};

/* Reads and checks the arguments of an enqueue. */
clattn_status softmax_call_read(const clattn_plan *plan, const clattn_softmax_desc *desc,
                                const struct softmax_shape *shape, const void *args, struct softmax_call *call);

/* Sets extent[] to what the kernels walk, and joins dimensions that are one in every array, so that as many rows as possible
 * are one stride apart.  Returns the number of rows; 0: there is nothing to do. */
args_long softmax_call_rows(const struct softmax_call *call, const struct softmax_shape *shape,
                            int extent[SOFTMAX_OUTER], array5 *const *arrays, size_t count);

/* softmax's operator with CLATTN_DIRECTION_BACKWARD. */
extern const struct operator_type softmax_backward_operator;

/* Compare the plan's kernel with the reference on some rows (plan_self_check). */
clattn_status softmax_self_check(struct self_check *check);
clattn_status softmax_backward_self_check(struct self_check *check);

#endif
