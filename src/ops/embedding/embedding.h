/* The embedding operator's inside: the checked problem and the plan. */
#ifndef CLATTN_OPS_EMBEDDING_EMBEDDING_H
#define CLATTN_OPS_EMBEDDING_EMBEDDING_H

#include "clattn/embedding.h"
#include "embedding/args.h"
#include "plan/enqueue.h"

struct embedding_problem {
    clattn_embedding_desc desc; /* normalised; scale filled in */
    embedding_args kernel;      /* what all enqueues have in common; batch 0 */
    bool empty;                 /* y has no elements */
    bool unit_columns;          /* y and the tables that are present have contiguous columns */
    bool has_segments;
};

struct embedding_plan {
    clattn_plan base;
    struct embedding_problem problem;
    size_t places_per_group;
    bool whole_vectors; /* the size of a row is a multiple of the kernel's LANES */
};

/* What is wrong with the part that a table, or a gradient, of `rows` rows is; NULL: nothing. */
const char *embedding_check_part(const clattn_embedding_desc *desc, size_t rows);

clattn_status embedding_problem_read(const void *desc, void *problem, const char **reason);

/* The operator's self-check; see plan_self_check. */
clattn_status embedding_self_check(struct self_check *check);

#endif
