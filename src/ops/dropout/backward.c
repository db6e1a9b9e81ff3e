/* The gradient of dropout: enqueueing of the backward direction, which dropout.c plans. */
#include <string.h>

#include "base/try.h"
#include "ops/dropout/dropout.h"

static clattn_status enqueue(const clattn_plan *handle, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct dropout_problem *problem = call->problem;
    const clattn_dropout_desc *desc = &problem->desc;
    clattn_dropout_args args;
    size_t extent[CLATTN_MAX_RANK];
    TRY(dropout_read_args(handle, problem, given, &args));
    TRY(binding_absent(handle->context, &args.x, "x"));
    TRY(binding_absent(handle->context, &args.y, "y"));
    memcpy(extent, desc->gradients.y.extent, sizeof extent);
    extent[0] = args.batch;
    const struct bound_array arrays[DROPOUT_ARRAYS] = {
        {&args.gradients.y, &desc->gradients.y, extent, BINDING_READ | BINDING_IN_PLACE, "gradients.y", true},
        {&args.residual, &desc->residual, extent, BINDING_READ, "residual", false},
        {&args.gradients.x, &desc->gradients.x, extent, BINDING_WRITE | BINDING_IN_PLACE, "gradients.x", true},
    };
    status = dropout_enqueue(handle, call, arrays, &args);
fail:
    return status;
}

static const struct layout_place layouts[] = {
    LAYOUT_PLACE(dropout, gradients.y),
    LAYOUT_PLACE(dropout, gradients.x),
    {NULL, 0},
};

const struct operator_type dropout_backward_operator = {
    .name = "dropout backward",
    .bytes = OPERATOR_BYTES(dropout),
    .read = dropout_problem_read,
    .enqueue = enqueue,
    .layouts = layouts,
    .solvers = dropout_solvers,
    .solver_count = DROPOUT_SOLVERS,
    .check = dropout_self_check,
};
