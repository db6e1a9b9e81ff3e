/* The checked problem and the plan of packing and unpacking images. */
#ifndef CLATTN_OPS_IMAGE_IMAGE_H
#define CLATTN_OPS_IMAGE_IMAGE_H

#include "clattn/image.h"
#include "image/args.h"
#include "plan/enqueue.h"

struct image_problem {
    clattn_image_desc desc; /* normalised; patch at least 1 */
    size_t height, width, channels;
    bool has_norm;
};

struct image_plan {
    clattn_plan base;
    struct image_problem problem;
    /* Set by the solver.  The plan's lock is held. */
    clattn_status (*launch)(const struct image_plan *plan, const struct image_problem *problem, struct chain *chain,
                            const clattn_image_args *args, image_args *kernel_args);
};

extern const struct solver image_cpu_solver, image_generic_solver;

clattn_status image_problem_read(const void *desc, void *problem, const char **reason);

/* The -D that all kernels of the problem have. */
void image_defines(const struct image_problem *problem, struct strbuf *options);

/* The bytes of workspace that solver cpu needs for the problem. */
size_t image_cpu_workspace(const struct image_problem *problem);

/* Copies the caller's args, checks all bindings and fills the kernel's arguments; their batch is 0 if there is
 * nothing to do. */
clattn_status image_args_read(clattn_context *context, const struct image_problem *problem,
                              const clattn_image_args *given, clattn_image_args *args, image_args *kernel_args);

/* The operator's self-check; see plan_self_check. */
clattn_status image_self_check(struct self_check *check);

#endif
