/* Normalisation's inside: the checked problem, the plan, and the table of solvers. */
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

clattn_status norm_problem_read(const void *desc, void *problem, const char **reason);

/* The operator's self-check; see plan_self_check. */
clattn_status norm_self_check(struct self_check *check);

#endif
