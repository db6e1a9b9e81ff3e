/* Normalisation's inside: the checked problems and the plans of both directions, and what the directions share. */
#ifndef CLATTN_OPS_NORM_NORM_H
#define CLATTN_OPS_NORM_NORM_H

#include "clattn/norm.h"
#include "norm/args.h"
#include "ops/common/rows.h"

#define NORM_DIMENSIONS 4 /* of a row's index and of a segment's, together */

struct norm_problem {
    clattn_norm_desc desc; /* normalised; axes and epsilon filled in */
    /* Rows and segments as the kernels walk them; offsets 0, flags set for what the description has. */
    norm_args walk;
    size_t rows, elements; /* `elements` of a row; both 0 if x has no elements */
    bool has_residual;
    bool unit_columns; /* of x, y and, if present, residual and sum */
};

struct norm_plan {
    struct row_plan rows;
    struct norm_problem problem;
};

struct norm_backward_problem {
    clattn_norm_desc desc; /* as above */
    norm_backward_args walk;
    size_t rows, elements; /* as above */
    bool has_residual;
    bool unit_columns; /* of all arrays that are present and that forward does not broadcast */
};

/* The kernels of backward's plans: those behind the first only if they sum gradients, with a last one for each gradient. */
enum { NORM_ROWS, NORM_TERMS, NORM_SUM, NORM_KERNELS = NORM_SUM + 2 };

struct norm_backward_plan {
    struct row_plan rows;
    struct norm_backward_problem problem;
    size_t chunk, items; /* outputs of an item of norm/weights.cl, items of its work-groups */
};

clattn_status norm_problem_read(const void *desc, void *problem, const char **reason);
clattn_status norm_backward_problem_read(const void *desc, void *problem, const char **reason);

/* ---- the walk along rows ---- */

/* An array's layout, with x's dimensions, and what the kernels are told of it. */
struct norm_walk_array {
    const clattn_layout *layout;
    array5 *array;
};

struct norm_walk {
    const struct norm_walk_array *arrays; /* x first; behind six that have columns, those with one element a row */
    size_t count;
    int *row_extent, *segment_extent, *segments, *columns;
};

/* Lays out how the kernels walk the description's rows, of which x has some. */
void norm_lay_out(const clattn_norm_desc *desc, const struct norm_walk *walk);

/* ---- the sums of backward ---- */

enum norm_weight { NORM_SCALE, NORM_BIAS, NORM_WEIGHTS };

/* The layout of the gradient of scale or bias. */
const clattn_layout *norm_weight_gradient(const struct norm_backward_problem *problem, enum norm_weight weight);

/* What the kernels are told of a gradient's sums, except offsets; `batch` is the extent of the first axis. */
void norm_weights_fill(const struct norm_backward_problem *problem, enum norm_weight weight, size_t batch,
                       norm_weights_args *a);

/* Backward's workspace: the floats of the rows' statistics, and behind them the partial sums of one gradient. */
size_t norm_statistics_floats(const struct norm_backward_problem *problem);
size_t norm_workspace_bytes(const struct norm_backward_problem *problem);

/* ---- backward ---- */

/* Norm's operator with CLATTN_DIRECTION_BACKWARD. */
extern const struct operator_type norm_backward_operator;

/* The operators' self-checks; see plan_self_check. */
clattn_status norm_self_check(struct self_check *check);
clattn_status norm_backward_self_check(struct self_check *check);

#endif
