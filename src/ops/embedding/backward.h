/* The gradient of an embedding's table: the checked problem and the plan. */
#ifndef CLATTN_OPS_EMBEDDING_BACKWARD_H
#define CLATTN_OPS_EMBEDDING_BACKWARD_H

#include "clattn/embedding.h"
#include "embedding/args.h"
#include "plan/enqueue.h"
#include "plan/operator.h"

struct embedding_backward_problem {
    clattn_embedding_desc desc;     /* normalised; scale filled in */
    embedding_backward_args kernel; /* what all enqueues have in common; rows 0 */
    size_t places;                  /* batch * length */
    bool empty;                     /* the table has no elements */
    bool unit_columns;              /* both gradients have contiguous columns */
};

struct embedding_backward_plan {
    clattn_plan base;
    struct embedding_backward_problem problem;
};

/* The operator with CLATTN_DIRECTION_BACKWARD. */
extern const struct operator_type embedding_backward_operator;

/* The operator's self-check; see plan_self_check. */
clattn_status embedding_backward_self_check(struct self_check *check);

#endif
