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
    char *snippets; /* as attention_plan's, whose first members are these */
    /* The work-groups of the first two kernels. */
    void (*groups)(const struct attention_backward_plan *plan, const struct attention_problem *problem, int kernel,
                   const attention_args *a, size_t groups[3]);
    size_t chunk;                    /* generic: columns of a work-item */
    size_t items;                    /* generic, matrix, tile: rows, and keys, of a work-group */
    size_t splits;                   /* cpu: parts of the queries, each with sums of its own for dK and dV, */
    size_t lanes;                    /* whose rows are rounded up to a multiple of these floats; 0: there are no sums */
    double weight_unit;              /* the largest relative error of a rounded P or dS; 0: they stay float */
    size_t kernel[BACKWARD_KERNELS]; /* their numbers among the plan's */
};

/* Whether the problem asks for the gradient of anything in the workspace that is summed up. */
static inline bool backward_sums(const struct attention_problem *problem)
{
    return problem->gradient[GRADIENT_VECTOR] || problem->gradient[GRADIENT_ALIBI] || problem->gradient[GRADIENT_SINKS];
}

static inline bool backward_has_keys(const struct attention_problem *problem)
{
    return problem->gradient[GRADIENT_KEY] || problem->gradient[GRADIENT_VALUE];
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
bool backward_workspace(const struct attention_backward_plan *plan, const struct attention_problem *problem,
                        size_t *bytes);

/* The -D options of all kernels. */
void backward_define(const struct attention_backward_plan *plan, struct strbuf *options);

/* Adds a kernel; `options` is taken over and cleared. */
clattn_status backward_add_kernel(struct attention_backward_plan *plan, int which, const char *file, const char *name,
                                  struct strbuf *options, const size_t local[3]);

/* Adds the kernel of the rows and, if a gradient of keys or values is asked for, that of the keys; `options` is taken over and cleared. */
clattn_status backward_add_walks(struct attention_backward_plan *plan, const char *file, const char *rows,
                                 const char *keys, struct strbuf *options, const size_t local[3]);

/* The iterations of the work-item that adds up most rows, or pairs, in the kernels of backward_finish; a solver that calls it refuses
 * loops of that length. */
double backward_summed(const struct attention_problem *problem);

/* Adds the generic solver's kernels for what is summed up or paired, as far as the problem asks for it, and sets the workspace. */
clattn_status backward_finish(struct attention_backward_plan *plan);

/* All launches of one enqueue; `args` has passed attention_args_read. */
clattn_status backward_launch(const struct attention_backward_plan *plan, const struct attention_problem *problem,
                              struct chain *chain, const clattn_attention_args *args);

/* Compares the plan's kernels with gradients in double precision on a small problem of the same kind (plan_self_check). */
clattn_status backward_self_check(struct self_check *check);

extern const struct solver attention_backward_cpu_amx_solver;
extern const struct solver attention_backward_cpu_bf16_solver;
extern const struct solver attention_backward_cpu_solver;
extern const struct solver attention_backward_emulated_mma_solver;
extern const struct solver attention_backward_tile_solver;
extern const struct solver attention_backward_generic_solver;
extern const struct solver attention_backward_matrix_solver;

#endif
