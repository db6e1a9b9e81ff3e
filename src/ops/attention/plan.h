/* An attention's plan: its geometry and kernels, and the table of solvers. */
#ifndef CLATTN_OPS_ATTENTION_PLAN_H
#define CLATTN_OPS_ATTENTION_PLAN_H

#include "ops/attention/desc.h"
#include "plan/enqueue.h"

/* What a work-item of the kernel for scores writes. */
struct scores_tile {
    size_t queries, keys; /* with keys across a work-group's items: those of the group */
};

struct attention_plan {
    clattn_plan base;
    struct attention_problem problem;
    char *snippets; /* the texts that the problem's pointers to snippets point to */
    /* Geometry, filled by the solver: the work-groups of kernel_args' batch, heads and queries. */
    void (*groups)(const struct attention_plan *plan, const attention_args *kernel_args, size_t groups[3]);
    size_t queries_per_group; /* for attention_groups_by_queries */
    size_t rows_per_group;    /* cpu and tile: queries, or those of all heads of a group */
    size_t heads_per_group;   /* cpu: heads, or key heads, that a work-group interleaves */
    size_t key_tile;          /* keys for each rescaling; 0: at most as many as the self-check has anyway */
    double weight_unit;       /* the largest relative error of a rounded probability; 0: they stay float */
    size_t column_chunk;      /* generic: output columns of a work-item */
    size_t splits;            /* pieces of the keys, each with a partial result of its own; 0 or 1: not split */
    bool by_lanes;            /* a solver for CPU devices: so are the scores, if they can */
    struct scores_tile scores_tile;
    bool lends_lse; /* the rows' log-sum-exp lies in the workspace: only the scores need it */
};

/* Whether one program serves causal plans, plans with a window and plans with neither: on CPUs, where a launch says what a
 * window has on either side, and causality is a window without keys on the right. */
static inline bool attention_range_by_launch(const struct capabilities *caps)
{
    return capabilities_on_cpu(caps);
}

/* The -D options that all of attention's kernels share (attention/core.h). */
void attention_defines(const struct attention_problem *problem, const struct capabilities *caps,
                       struct strbuf *options);

/* Forgets the geometry of a solver that was tried before and failed. */
static inline void attention_begin_geometry(struct attention_plan *plan)
{
    plan->splits = 1;
    plan->key_tile = plan->column_chunk = 0;
    plan->weight_unit = 0;
    plan->by_lanes = false;
}

/* (ceil(queries / queries_per_group), heads, batch): a value for `groups`. */
void attention_groups_by_queries(const struct attention_plan *plan, const attention_args *kernel_args,
                                 size_t groups[3]);

/* Does the same for work-groups that take rows_per_group rows of one key/value head. */
void attention_groups_by_key_heads(const struct attention_plan *plan, const attention_args *kernel_args,
                                   size_t groups[3]);

/* Work-groups that compute all of the problem unsplit; `groups` of the plan is set. */
size_t attention_group_count(const struct attention_plan *plan);

/* Into how many splits the keys are best cut if `groups` work-groups compute all of the problem unsplit and at least
 * `wanted` should run: more than 1 when few queries are decoded. */
size_t attention_splits(const struct attention_problem *problem, size_t groups, size_t wanted);

/* Adds the plan's kernel, the merging one if keys are split, and the one for the scores if they are asked for; `options`
 * is taken over and cleared. */
clattn_status attention_add_kernel(struct attention_plan *plan, const char *file, const char *name,
                                   struct strbuf *options, const size_t local[3]);

/* Bytes that an enqueue of the problem needs; false on overflow. */
bool attention_workspace(const struct attention_plan *plan, const struct attention_problem *problem, size_t *bytes);

/* Compares the plan's kernels with the reference on a small problem of the same kind (plan_self_check). */
clattn_status attention_self_check(struct self_check *check);

/* The keys of the self-check's problem, at least. */
size_t attention_check_keys(const struct attention_problem *problem);

/* Copies the snippets, which are the caller's until then, into the plan, and compiles them alone. */
clattn_status attention_take_snippets(clattn_plan *plan);
clattn_status attention_check_snippets(clattn_plan *plan);

extern const struct operator_type attention_backward_operator; /* ops/attention/backward */

extern const struct solver attention_cpu_amx_solver;
extern const struct solver attention_cpu_bf16_solver;
extern const struct solver attention_emulated_mma_solver;
extern const struct solver attention_matrix_solver;
extern const struct solver attention_cpu_solver;
extern const struct solver attention_decode_solver;
extern const struct solver attention_sub_group_solver;
extern const struct solver attention_emulated_sub_group_solver;
extern const struct solver attention_tile_solver;
extern const struct solver attention_generic_solver;

#endif
