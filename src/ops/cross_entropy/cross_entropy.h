/* Cross-entropy's inside: the checked problem and the plan. */
#ifndef CLATTN_OPS_CROSS_ENTROPY_CROSS_ENTROPY_H
#define CLATTN_OPS_CROSS_ENTROPY_CROSS_ENTROPY_H

#include "clattn/cross_entropy.h"
#include "cross_entropy/args.h"
#include "ops/common/rows.h"

#define CROSS_ENTROPY_OUTER 4 /* dimensions before the row's own */

struct cross_entropy_problem {
    clattn_cross_entropy_desc desc; /* normalised */
    cross_entropy_args kernel;      /* what all enqueues have in common; rows of the description, offsets 0 */
    int first;                      /* which of the kernel's extents is the description's first dimension */
    bool unit_columns;              /* the columns of x and gradients.x are contiguous */
};

struct cross_entropy_plan {
    struct row_plan rows;
    struct cross_entropy_problem problem;
};

clattn_status cross_entropy_problem_read(const void *desc, void *problem, const char **reason);

/* Compares the plan's kernel with the reference on some rows (plan_self_check). */
clattn_status cross_entropy_self_check(struct self_check *check);

#endif
