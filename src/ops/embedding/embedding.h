/* The embedding operator's inside: the checked problem and the plan. */
#ifndef CLATTN_OPS_EMBEDDING_EMBEDDING_H
#define CLATTN_OPS_EMBEDDING_EMBEDDING_H

#include "clattn/embedding.h"
#include "embedding/args.h"
#include "plan/enqueue.h"

struct embedding_problem {
    clattn_embedding_desc desc; /* normalised; scale filled in */
    embedding_args kernel;      /* what every enqueue has in common; batch 0 */
    bool empty;                 /* y has no elements */
    bool unit_columns;          /* y and the tables that are there have their columns next to each other */
    bool has_segments;
};

struct embedding_plan {
    clattn_plan base;
    struct embedding_problem problem;
    size_t places_per_group;
    bool whole_vectors; /* the size of a row is a multiple of the kernel's LANES */
};

clattn_status embedding_problem_read(const clattn_embedding_desc *desc, struct embedding_problem *problem,
                                     const char **reason);

/* A copy of the caller's args, all bindings checked; kernel_args->batch is 0 where there is nothing to do. */
clattn_status embedding_args_read(clattn_context *context, const struct embedding_problem *problem,
                                  const clattn_embedding_args *given, clattn_embedding_args *args,
                                  embedding_args *kernel_args);

/* For plan_self_check. */
clattn_status embedding_self_check(struct self_check *check);

#endif
