/* The activation operator's inside: the checked problem, the plan, and the table of solvers. */
#ifndef CLATTN_OPS_ACTIVATION_ACTIVATION_H
#define CLATTN_OPS_ACTIVATION_ACTIVATION_H

#include "clattn/activation.h"
#include "activation/args.h"
#include "plan/enqueue.h"

struct activation_problem {
    clattn_activation_desc desc; /* normalised; alpha filled in */
    bool empty;                  /* x has no elements */
    bool unit_columns;           /* activation_walk's columns are next to each other in x and in y */
    int columns;                 /* activation_walk's, of the whole batch */
};

struct activation_plan {
    clattn_plan base;
    struct activation_problem problem;
    int chunk;               /* columns of a piece */
    size_t pieces_per_group; /* generic: 1 */
};

clattn_status activation_problem_read(const clattn_activation_desc *desc, struct activation_problem *problem,
                                      const char **reason);

/* How the kernels walk the first `batch` elements of the first dimension: rows and columns of a problem that
 * is not empty, in pieces of `chunk` columns. */
activation_args activation_walk(const struct activation_problem *problem, size_t batch, int chunk);

/* A copy of the caller's args, all bindings checked; *batch is what there is to do. */
clattn_status activation_args_read(clattn_context *context, const struct activation_problem *problem,
                                   const clattn_activation_args *given, clattn_activation_args *args, size_t *batch);

/* Adds the plan's one kernel, with `lanes`. */
clattn_status activation_add_kernel(struct activation_plan *plan, const char *file, const char *name, uint32_t lanes,
                                    const size_t local[3]);

/* For plan_self_check. */
clattn_status activation_self_check(struct self_check *check);

extern const struct solver activation_cpu_solver;
extern const struct solver activation_generic_solver;

#endif
