/* Attention with CLATTN_DIRECTION_BACKWARD: its plan, its workspace, and what its solvers share. */
#ifndef CLATTN_OPS_ATTENTION_BACKWARD_H
#define CLATTN_OPS_ATTENTION_BACKWARD_H

#include "ops/attention/launch.h"

/* The kernels of a plan, in the order in which they run; the last two only if they are needed. */
enum { BACKWARD_ROWS, BACKWARD_KEYS, BACKWARD_PAIRS, BACKWARD_SUM, BACKWARD_KERNELS };

/* The pointers that they take. */
#define BACKWARD_ROWS_POINTERS (3 + ATTENTION_INPUTS + 6)
#define BACKWARD_KEYS_POINTERS (3 + ATTENTION_INPUTS + 5)
#define BACKWARD_PAIRS_POINTERS (3 + ATTENTION_INPUTS + 4)
#define BACKWARD_SUM_POINTERS (ATTENTION_INPUTS + 2)

struct attention_backward_plan {
    clattn_plan base;
    struct attention_problem problem;
    char *snippets;                  /* as attention_plan's, whose first members are these */
    size_t chunk;                    /* columns of a work-item of the first two kernels */
    size_t items;                    /* rows, and keys, of a work-group of theirs */
    size_t kernel[BACKWARD_KERNELS]; /* their numbers among the plan's, NO_KERNEL for those that it does not have */
};

#define NO_KERNEL ((size_t)-1)

/* Whether the problem asks for the gradient of anything in the workspace that is summed up. */
static inline bool backward_sums(const struct attention_problem *problem)
{
    return problem->gradient[GRADIENT_VECTOR] || problem->gradient[GRADIENT_ALIBI] || problem->gradient[GRADIENT_SINKS];
}

static inline bool backward_has_pairs(const struct attention_problem *problem)
{
    return problem->gradient[GRADIENT_MASK] || problem->gradient[GRADIENT_BIAS];
}

/* Rows of the workspace's parts. */
static inline size_t backward_rows(const struct attention_problem *problem, size_t batch, size_t queries)
{
    return problem->packed_queries ? problem->heads * problem->desc.query.extent[2] : batch * problem->heads * queries;
}

/* Bytes that an enqueue of the problem needs; false on overflow. */
bool backward_workspace(const struct attention_problem *problem, size_t *bytes);

/* All launches of one enqueue; `args` has passed attention_args_read. */
clattn_status backward_launch(const struct attention_backward_plan *plan, const struct attention_problem *problem,
                              struct chain *chain, const clattn_attention_args *args);

extern const struct solver attention_backward_generic_solver;

#endif
