/* The checked problem, the plan, and the solvers of 2-D convolution. */
#ifndef CLATTN_OPS_CONV2D_CONV2D_H
#define CLATTN_OPS_CONV2D_CONV2D_H

#include "clattn/conv2d.h"
#include "conv2d/args.h"
#include "plan/enqueue.h"

/* A description that has passed conv2d_problem_read.  Of pairs, rows come first, then columns. */
struct conv2d_problem {
    clattn_conv2d_desc desc; /* normalised: groups, strides and dilations at least 1 */
    size_t batch, groups;
    size_t in_channels, out_channels; /* of a group */
    size_t in[2], out[2], kernel[2];
    bool has_bias, has_operand;
};

struct conv2d_plan {
    clattn_plan base;
    struct conv2d_problem problem;
    /* Enqueues the kernels; `args` and its batch have been checked, and `kernel_args` is filled. */
    clattn_status (*launch)(const struct conv2d_plan *plan, const struct conv2d_problem *problem, struct chain *chain,
                            const clattn_conv2d_args *args, conv2d_args *kernel_args);
    /* The bytes of workspace that a problem takes; NULL without a workspace. */
    clattn_status (*workspace)(const struct conv2d_plan *plan, const struct conv2d_problem *problem, size_t *bytes);
    /* Geometry, filled by the solver: floats of a vector, and output channels of a work-item. */
    size_t lanes, panel;
    size_t rows, tiles, halo; /* the macros of that name, on CPUs */
};

/* Whether each group has one input and one output channel. */
static inline bool conv2d_is_depthwise(const struct conv2d_problem *problem)
{
    return problem->in_channels == 1 && problem->out_channels == 1;
}

/* Whether y has no elements. */
static inline bool conv2d_is_empty(const struct conv2d_problem *problem, size_t batch)
{
    return !batch || !problem->out_channels || !problem->out[0] || !problem->out[1];
}

clattn_status conv2d_problem_read(const void *desc, void *problem, const char **reason);

/* Copies the caller's args, fills in the batch and checks all bindings. */
clattn_status conv2d_args_read(clattn_context *context, const struct conv2d_problem *problem,
                               const clattn_conv2d_args *given, clattn_conv2d_args *args);

/* Fills the kernels' arguments, except those of the workspace and of tiles. */
void conv2d_fill_args(const struct conv2d_problem *problem, const clattn_conv2d_args *args, conv2d_args *kernel_args);

/* The -D options that all kernels share.  An absent array has the type of y. */
void conv2d_defines(const struct conv2d_problem *problem, struct strbuf *options);

/* The solvers' self-check; see plan_self_check. */
clattn_status conv2d_self_check(struct self_check *check);

extern const struct solver conv2d_cpu_solver;
extern const struct solver conv2d_generic_solver;

#endif
