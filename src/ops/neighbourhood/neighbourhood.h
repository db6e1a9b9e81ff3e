/* The checked problem, the plan, and the table of solvers of neighbourhood attention. */
#ifndef CLATTN_OPS_NEIGHBOURHOOD_NEIGHBOURHOOD_H
#define CLATTN_OPS_NEIGHBOURHOOD_NEIGHBOURHOOD_H

#include "clattn/neighbourhood.h"
#include "neighbourhood/args.h"
#include "plan/enqueue.h"
#include "plan/operator.h"

/* A description that has passed neighbourhood_problem_read. */
struct neighbourhood_problem {
    clattn_neighbourhood_desc desc; /* normalised; dilations at least 1 */
    size_t batch, heads, kv_heads, query_height, query_width, height, width, d_k, d_v;
    size_t bias_batch, bias_heads; /* with a bias: each 1 or as above */
    float scale;
    bool has_bias, has_lse;
};

struct neighbourhood_plan {
    clattn_plan base;
    struct neighbourhood_problem problem;
    /* Forward: enqueues the kernels; `args` and its sizes have been checked, and `kernel_args` is filled. */
    clattn_status (*launch)(const struct neighbourhood_plan *plan, const struct neighbourhood_problem *problem,
                            struct chain *chain, const clattn_neighbourhood_args *args,
                            neighbourhood_args *kernel_args);
    /* The bytes of workspace that a problem takes; NULL without a workspace. */
    clattn_status (*workspace)(const struct neighbourhood_plan *plan, const struct neighbourhood_problem *problem,
                               size_t *bytes);
    /* Geometry, filled by the solver. */
    size_t lanes, rows, chunk;
};

clattn_status neighbourhood_problem_read(const void *desc, void *problem, const char **reason);

/* Copies the caller's args, fills in sizes and checks all bindings. */
clattn_status neighbourhood_args_read(clattn_context *context, const struct neighbourhood_problem *problem,
                                      const clattn_neighbourhood_args *given, clattn_neighbourhood_args *args);

/* Whether there are any queries. */
bool neighbourhood_has_queries(const struct neighbourhood_problem *problem, const clattn_neighbourhood_args *args);

/* Floating-point operations of a forward enqueue. */
double neighbourhood_work(const struct neighbourhood_problem *problem, const clattn_neighbourhood_args *args);

/* The strides of a layout and a binding's offset. */
map5 neighbourhood_map(const clattn_layout *layout, int64_t offset);

/* Fills the kernels' arguments, except those of the workspace. */
void neighbourhood_fill_args(const struct neighbourhood_problem *problem, const clattn_neighbourhood_args *args,
                             neighbourhood_args *kernel_args);

/* The -D options that all kernels share. */
void neighbourhood_defines(const struct neighbourhood_problem *problem, struct strbuf *options);

/* The most keys that a query attends in one dimension: those of the largest window. */
size_t neighbourhood_keys(const struct neighbourhood_problem *problem, int dimension);

/* The solvers' self-check; see plan_self_check. */
clattn_status neighbourhood_self_check(struct self_check *check);

/* The operator with CLATTN_DIRECTION_BACKWARD, and its self-check. */
extern const struct operator_type neighbourhood_backward_operator;
clattn_status neighbourhood_backward_self_check(struct self_check *check);

extern const struct solver neighbourhood_cpu_solver;
extern const struct solver neighbourhood_generic_solver;

#endif
