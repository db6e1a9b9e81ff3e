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
};

clattn_status image_problem_read(const void *desc, void *problem, const char **reason);

/* Copies the caller's args, checks all bindings and fills the kernel's arguments; their batch is 0 if there is
 * nothing to do. */
clattn_status image_args_read(clattn_context *context, const struct image_problem *problem,
                              const clattn_image_args *given, clattn_image_args *args, image_args *kernel_args);

/* The operator's self-check; see plan_self_check. */
clattn_status image_self_check(struct self_check *check);

#endif
