/* Softmax's inside: the checked problem, the plan, and the table of solvers. */
#ifndef CLATTN_OPS_SOFTMAX_SOFTMAX_H
#define CLATTN_OPS_SOFTMAX_SOFTMAX_H

#include "clattn/softmax.h"
#include "ops/common/rows.h"
#include "softmax/args.h"

#define SOFTMAX_OUTER 4 /* dimensions before the row's own */

struct softmax_problem {
    clattn_softmax_desc desc;    /* normalised */
    size_t outer[SOFTMAX_OUTER]; /* extents; 1 for dimensions that x lacks */
    size_t columns;
    int first;         /* which of `outer` is the description's first dimension; SOFTMAX_OUTER: none */
    array5 x, y, mask; /* strides; offsets 0 */
    bool has_mask;
    size_t mask_extent[CLATTN_MAX_RANK]; /* aligned with x's dimensions */
    float scale;
    bool unit_columns; /* x's and y's columns are contiguous */
};

struct softmax_plan {
    struct row_plan rows;
    struct softmax_problem problem;
};

clattn_status softmax_problem_read(const void *desc, void *problem, const char **reason);

/* All rows of the problem. */
size_t softmax_rows(const struct softmax_problem *problem);

/* Compares the plan's kernel with the reference on some rows (plan_self_check). */
clattn_status softmax_self_check(struct self_check *check);

#endif
