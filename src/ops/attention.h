/* Attention's inside: the checked problem, the plan, and the table of solvers. */
#ifndef CLATTN_OPS_ATTENTION_H
#define CLATTN_OPS_ATTENTION_H

#include "clattn/attention.h"
#include "inc/args.h"
#include "plan/enqueue.h"

/* A description that has passed attention_problem_read: normalised, consistent, within the kernels' ranges.
 */
struct attention_problem {
    clattn_attention_desc desc;
    size_t batch, heads, kv_heads, query_length, key_length, d_k, d_v;
    float scale;
    bool has_mask, has_lse;
    size_t mask_extent[4]; /* batch, heads, queries, keys: each 1 or as above; keys also in between */
    array4 mask;           /* strides, 0 where the mask broadcasts */
};

struct attention_plan {
    clattn_plan base;
    struct attention_problem problem;
    /* Geometry, filled by the solver: work-groups for the given actual lengths. */
    void (*groups)(const struct attention_plan *plan, size_t batch, size_t query_length, size_t groups[3]);
    size_t queries_per_group; /* for groups_by_queries */
    size_t column_chunk;      /* the generic solver's */
};

/* Reads and checks a description; *reason is a static string when it fails. */
clattn_status attention_problem_read(const clattn_attention_desc *desc, struct attention_problem *problem,
                                     const char **reason);

/* The -D options that all of attention's kernels share. */
void attention_defines(const struct attention_problem *problem, const struct capabilities *caps,
                       struct strbuf *options);

/* Adds the plan's one kernel; `options` is taken over and cleared. */
clattn_status attention_add_kernel(struct attention_plan *plan, const char *file, const char *name,
                                   struct strbuf *options, const size_t local[3]);

/* (ceil(query_length / queries_per_group), heads, batch), for `groups`. */
void attention_groups_by_queries(const struct attention_plan *plan, size_t batch, size_t query_length,
                                 size_t groups[3]);

/* Fills what the kernels are told; `args` has passed attention_args_read. */
void attention_fill_args(const struct attention_problem *problem, const clattn_attention_args *args,
                         attention_args *kernel_args);

/* A copy of the caller's args with lengths filled in, all bindings checked. */
clattn_status attention_args_read(clattn_context *context, const struct attention_problem *problem,
                                  const clattn_attention_args *given, clattn_attention_args *args);

extern const struct solver attention_cpu_solver;
extern const struct solver attention_tile_solver;
extern const struct solver attention_generic_solver;

#endif
