/* Pooling's inside: the checked problem, the plan, and the table of solvers. */
#ifndef CLATTN_OPS_POOL_POOL_H
#define CLATTN_OPS_POOL_POOL_H

#include "clattn/pool.h"
#include "pool/args.h"
#include "plan/enqueue.h"
#include "plan/operator.h"

struct pool_problem {
    clattn_pool_desc desc; /* normalised; strides and dilations filled in */
    pool_args kernel;      /* what every enqueue has in common; lines, pieces, depth, tile, band and share 0 */
    bool empty;            /* y has no elements */
    bool unit_channels;    /* channels are neighbours in all arrays */
    bool joined;           /* so are columns, with all their channels */
};

struct pool_plan {
    clattn_plan base;
    struct pool_problem problem;
    size_t items;            /* of a work-group */
    size_t pieces_per_group; /* backward; 1 by the generic solver */
    /* Sets depth, tile, band and share for the first `batch` items of a problem that is not empty. */
    void (*shape)(const struct pool_plan *plan, const struct pool_problem *problem, size_t batch, pool_args *args);
};

clattn_status pool_problem_read(const void *desc, void *problem, const char **reason);

/* Makes a kernel the plan's only one: vectors of `lanes` elements, work-groups of plan->items. */
clattn_status pool_add_kernel(struct pool_plan *plan, const char *file, const char *name, uint32_t lanes);

/* The items of a work-group of the generic kernels: a power of two. */
size_t pool_items_of(const struct capabilities *caps);

/* The lines of the first `batch` items, if depth is set. */
static inline size_t pool_lines_of(const pool_args *args, size_t batch)
{
    return batch * (size_t)args->rows.target * (args->depth == 1 ? (size_t)args->channels : 1);
}

/* The operator's self-check, in both directions; see plan_self_check. */
clattn_status pool_self_check(struct self_check *check);

/* The operator with CLATTN_DIRECTION_BACKWARD. */
extern const struct operator_type pool_backward_operator;

extern const struct solver pool_cpu_solver;
extern const struct solver pool_generic_solver;

#endif
