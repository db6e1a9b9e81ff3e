/* The dropout operator's inside: the checked problem, the plan, and the table of solvers. */
#ifndef CLATTN_OPS_DROPOUT_DROPOUT_H
#define CLATTN_OPS_DROPOUT_DROPOUT_H

#include "clattn/dropout.h"
#include "dropout/args.h"
#include "plan/enqueue.h"
#include "plan/operator.h"

/* Backward is forward without a residual, of gradients.y in place of x and gradients.x in place of y. */
struct dropout_problem {
    clattn_dropout_desc desc; /* normalised */
    bool empty;               /* there are no elements */
    bool unit_columns;        /* dropout_walk's columns are contiguous in all arrays */
    int columns;              /* dropout_walk's, for the whole batch */
};

struct dropout_plan {
    clattn_plan base;
    struct dropout_problem problem;
    int chunk;               /* columns of a piece */
    size_t pieces_per_group; /* 1 by the generic solver */
};

/* The array that the direction drops elements of, and the one that it writes, with x's extents. */
static inline const clattn_layout *dropout_input(const clattn_dropout_desc *desc)
{
    return desc->direction == CLATTN_DIRECTION_BACKWARD ? &desc->gradients.y : &desc->x;
}
static inline const clattn_layout *dropout_output(const clattn_dropout_desc *desc)
{
    return desc->direction == CLATTN_DIRECTION_BACKWARD ? &desc->gradients.x : &desc->y;
}

clattn_status dropout_problem_read(const void *desc, void *problem, const char **reason);

/* How the kernels walk the first `batch` items of a problem that is not empty, in pieces of `chunk` columns. */
dropout_args dropout_walk(const struct dropout_problem *problem, size_t batch, int chunk);

/* Makes a kernel the plan's only one: vectors of `lanes` columns, groups of `items`. */
clattn_status dropout_add_kernel(struct dropout_plan *plan, const char *file, const char *name, uint32_t lanes,
                                 size_t items);

/* Enqueues the plan for the first args->batch items of its three arrays, in the order of the kernels' parameters. */
clattn_status dropout_enqueue(const clattn_plan *plan, const struct enqueue_call *call,
                              const struct bound_array *arrays, const clattn_dropout_args *args);
#define DROPOUT_ARRAYS 3

/* Reads and checks what the arguments of both directions have besides arrays; args->batch is then the extent that counts. */
clattn_status dropout_read_args(const clattn_plan *plan, const struct dropout_problem *problem, const void *given,
                                clattn_dropout_args *args);

/* The operator's self-check, in both directions; see plan_self_check. */
clattn_status dropout_self_check(struct self_check *check);

/* The operator with CLATTN_DIRECTION_BACKWARD. */
extern const struct operator_type dropout_backward_operator;

/* Both directions have these solvers, best first. */
#define DROPOUT_SOLVERS 2
extern const struct solver *const dropout_solvers[DROPOUT_SOLVERS];
extern const struct solver dropout_cpu_solver;
extern const struct solver dropout_generic_solver;

#endif
