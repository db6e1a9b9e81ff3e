/* The gradient of an activation: enqueueing of the backward direction, which activation.c plans. */
#include <string.h>

#include "base/try.h"
#include "ops/activation/activation.h"
#include "ops/common/simple_operator.h"

#define ARRAYS 3 /* of the kernels */

static clattn_status enqueue(const clattn_plan *handle, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct activation_plan *plan = (const struct activation_plan *)handle;
    const struct activation_problem *problem = call->problem;
    const clattn_activation_desc *desc = &problem->desc;
    struct report *report = &handle->context->device.report;
    clattn_activation_args args;
    activation_backward_args a = {0};
    size_t extent[CLATTN_MAX_RANK], groups[3] = {0, 1, 1};
    TRY(args_read(report, "clattn_activation_args", &args, sizeof args, sizeof args, given));
    TRY(args_check(report, "explicit_batch", args.explicit_batch, args.reserved));
    TRY(args_length(report, "batch", args.explicit_batch, &args.batch, desc->x.extent[0]));
    TRY(binding_absent(handle->context, &args.y, "y"));
    memcpy(extent, desc->x.extent, sizeof extent);
    extent[0] = args.batch;
    const struct bound_array arrays[ARRAYS] = {
        {&args.x, &desc->x, extent, BINDING_READ, "x", true},
        {&args.gradients.y, &desc->gradients.y, extent, BINDING_READ | BINDING_IN_PLACE, "gradients.y", true},
        {&args.gradients.x, &desc->gradients.x, extent, BINDING_WRITE | BINDING_IN_PLACE, "gradients.x", true},
    };
    if (!problem->empty && args.batch) {
        a = activation_walk(problem, args.batch, plan->chunk);
        a.walk.x.offset = args.x.offset;
        a.walk.y.offset = args.gradients.x.offset;
        a.y_gradient.offset = args.gradients.y.offset;
        groups[0] = activation_groups(plan, &a.walk);
    }
    status = simple_enqueue(handle, call, arrays, ARRAYS, (double)a.walk.pieces * a.walk.chunk, &a, groups);
fail:
    return status;
}

static const struct layout_place layouts[] = {
    LAYOUT_PLACE(activation, x),
    LAYOUT_PLACE(activation, gradients.y),
    LAYOUT_PLACE(activation, gradients.x),
    {NULL, 0},
};

const struct operator_type activation_backward_operator = {
    .name = "activation backward",
    .bytes = OPERATOR_BYTES(activation),
    .read = activation_problem_read,
    .enqueue = enqueue,
    .layouts = layouts,
    .solvers = activation_solvers,
    .solver_count = ACTIVATION_SOLVERS,
    .check = activation_self_check,
};
