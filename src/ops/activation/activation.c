/* The activation operator: planning in both directions, and enqueueing of the forward one. */
#include "ops/activation/activation.h"

#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/common/activation.h"
#include "ops/common/arrays.h"
#include "ops/common/simple_operator.h"
#include "program/defines.h"

#define ARRAYS 2          /* of the kernels */
#define BACKWARD_ARRAYS 3 /* of the backward kernels */

const struct solver *const activation_solvers[ACTIVATION_SOLVERS] = {
    &activation_cpu_solver,
    &activation_generic_solver,
};

size_t activation_groups(const struct activation_plan *plan, const activation_args *walk)
{
    return divide_up((size_t)walk->pieces, plan->pieces_per_group);
}

clattn_status activation_add_kernel(struct activation_plan *plan, struct activation_kernel forward,
                                    struct activation_kernel backward, uint32_t lanes, size_t items)
{
    const clattn_activation_desc *desc = &plan->problem.desc;
    const size_t local[3] = {items, 1, 1};
    struct strbuf options = {0};
    size_t groups[3] = {0, 1, 1};
    if (!plan->problem.empty) {
        const activation_backward_args a = activation_walk(&plan->problem, desc->x.extent[0], plan->chunk);
        groups[0] = activation_groups(plan, &a.walk);
    }
    define_token(&options, "X_TYPE", storage_token(desc->x.dtype));
    define_token(&options, "ACTIVATION", activation_name(desc->function));
    define_int(&options, "UNIT_STRIDE", plan->problem.unit_columns);
    define_int(&options, "LANES", lanes);
    if (desc->direction == CLATTN_DIRECTION_FORWARD) {
        define_token(&options, "Y_TYPE", storage_token(desc->y.dtype));
        return plan_add_kernel(&plan->base, forward.file, &options, forward.name, ARRAYS, sizeof(activation_args),
                               local, groups);
    }
    define_token(&options, "X_GRADIENT_TYPE", storage_token(desc->gradients.x.dtype));
    define_token(&options, "Y_GRADIENT_TYPE", storage_token(desc->gradients.y.dtype));
    return plan_add_kernel(&plan->base, backward.file, &options, backward.name, BACKWARD_ARRAYS,
                           sizeof(activation_backward_args), local, groups);
}

static clattn_status enqueue(const clattn_plan *handle, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct activation_plan *plan = (const struct activation_plan *)handle;
    const struct activation_problem *problem = call->problem;
    const clattn_activation_desc *desc = &problem->desc;
    struct report *report = &handle->context->device.report;
    clattn_activation_args args;
    activation_args walk = {0};
    size_t extent[CLATTN_MAX_RANK], groups[3] = {0, 1, 1};
    TRY(args_read(report, "clattn_activation_args", &args, sizeof args, sizeof args, given));
    TRY(args_check(report, "explicit_batch", args.explicit_batch, args.reserved));
    TRY(args_length(report, "batch", args.explicit_batch, &args.batch, desc->x.extent[0]));
    TRY(binding_absent(handle->context, &args.gradients.x, "gradients.x"));
    TRY(binding_absent(handle->context, &args.gradients.y, "gradients.y"));
    memcpy(extent, desc->x.extent, sizeof extent);
    extent[0] = args.batch;
    const struct bound_array arrays[ARRAYS] = {
        {&args.x, &desc->x, extent, BINDING_READ | BINDING_IN_PLACE, "x", true},
        {&args.y, &desc->y, extent, BINDING_WRITE | BINDING_IN_PLACE, "y", true},
    };
    if (!problem->empty && args.batch) {
        walk = activation_walk(problem, args.batch, plan->chunk).walk;
        walk.x.offset = args.x.offset;
        walk.y.offset = args.y.offset;
        groups[0] = activation_groups(plan, &walk);
    }
    status = simple_enqueue(handle, call, arrays, ARRAYS, (double)walk.pieces * walk.chunk, &walk, groups);
fail:
    return status;
}

static const struct layout_place layouts[] = {
    LAYOUT_PLACE(activation, x),
    LAYOUT_PLACE(activation, y),
    {NULL, 0},
};

static const struct operator_type activation_operator = {
    .name = "activation",
    .bytes = OPERATOR_BYTES(activation),
    .read = activation_problem_read,
    .enqueue = enqueue,
    .layouts = layouts,
    .solvers = activation_solvers,
    .solver_count = ACTIVATION_SOLVERS,
    .backward = &activation_backward_operator,
    .check = activation_self_check,
};

OPERATOR_CALLS(activation, clattn_activation_desc_init, clattn_activation_args_init, clattn_activation_supports,
               clattn_activation_plan_create, clattn_activation_enqueue, clattn_activation_prewarm,
               clattn_activation_run)
