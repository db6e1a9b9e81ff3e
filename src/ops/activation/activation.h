/* The activation operator's inside: the checked problem, the plan, and the table of solvers. */
#ifndef CLATTN_OPS_ACTIVATION_ACTIVATION_H
#define CLATTN_OPS_ACTIVATION_ACTIVATION_H

#include "clattn/activation.h"
#include "activation/args.h"
#include "plan/enqueue.h"
#include "plan/operator.h"

struct activation_problem {
    clattn_activation_desc desc; /* normalised; alpha filled in */
    bool empty;                  /* x has no elements */
    bool unit_columns;           /* activation_walk's columns are contiguous in all arrays */
    int columns;                 /* activation_walk's, for the whole batch */
};

struct activation_plan {
    clattn_plan base;
    struct activation_problem problem;
    int chunk;               /* columns of a piece */
    size_t pieces_per_group; /* 1 by the generic solver */
};

clattn_status activation_problem_read(const void *desc, void *problem, const char **reason);

/* How the kernels of the problem's direction walk the first `batch` items of a problem that is not empty: rows and
 * columns, in pieces of `chunk` columns.  Forward takes `walk` alone. */
activation_backward_args activation_walk(const struct activation_problem *problem, size_t batch, int chunk);

/* The work-groups of that walk. */
size_t activation_groups(const struct activation_plan *plan, const activation_args *walk);

/* A kernel of a solver: the file and its one function. */
struct activation_kernel {
    const char *file, *name;
};

/* Makes the kernel for the problem's direction the plan's only one: vectors of `lanes` columns, groups of `items`. */
clattn_status activation_add_kernel(struct activation_plan *plan, struct activation_kernel forward,
                                    struct activation_kernel backward, uint32_t lanes, size_t items);

/* The operator's self-check, in both directions; see plan_self_check. */
clattn_status activation_self_check(struct self_check *check);

/* The operator with CLATTN_DIRECTION_BACKWARD. */
extern const struct operator_type activation_backward_operator;

/* Both directions have these solvers, best first. */
#define ACTIVATION_SOLVERS 2
extern const struct solver *const activation_solvers[ACTIVATION_SOLVERS];
extern const struct solver activation_cpu_solver;
extern const struct solver activation_generic_solver;

#endif
