/* The dropout operator: planning and enqueueing, in both directions. */
#include "ops/dropout/dropout.h"

#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/common/simple_operator.h"
#include "program/defines.h"

const struct solver *const dropout_solvers[DROPOUT_SOLVERS] = {
    &dropout_cpu_solver,
    &dropout_generic_solver,
};

static size_t groups_of(const struct dropout_plan *plan, const dropout_args *a)
{
    return divide_up((size_t)a->pieces, plan->pieces_per_group);
}

clattn_status dropout_add_kernel(struct dropout_plan *plan, const char *file, const char *name, uint32_t lanes,
                                 size_t items)
{
    const clattn_dropout_desc *desc = &plan->problem.desc;
    const size_t local[3] = {items, 1, 1};
    struct strbuf options = {0};
    size_t groups[3] = {0, 1, 1};
    if (!plan->problem.empty) {
        const dropout_args a = dropout_walk(&plan->problem, dropout_input(desc)->extent[0], plan->chunk);
        groups[0] = groups_of(plan, &a);
    }
    define_token(&options, "X_TYPE", storage_token(dropout_input(desc)->dtype));
    define_token(&options, "RESIDUAL_TYPE", storage_token(desc->residual.dtype));
    define_token(&options, "Y_TYPE", storage_token(dropout_output(desc)->dtype));
    define_int(&options, "RESIDUAL", !layout_is_none(&desc->residual));
    define_int(&options, "UNIT_STRIDE", plan->problem.unit_columns);
    define_int(&options, "LANES", lanes);
    return plan_add_kernel(&plan->base, file, &options, name, DROPOUT_ARRAYS, sizeof(dropout_args), local, groups);
}

clattn_status dropout_read_args(const clattn_plan *plan, const struct dropout_problem *problem, const void *given,
                                clattn_dropout_args *args)
{
    clattn_status status;
    struct report *report = &plan->context->device.report;
    TRY(args_read(report, "clattn_dropout_args", args, sizeof *args, sizeof *args, given));
    TRY(args_check(report, "explicit_batch", args->explicit_batch, 0));
    TRY(args_length(report, "batch", args->explicit_batch, &args->batch, dropout_input(&problem->desc)->extent[0]));
fail:
    return status;
}

clattn_status dropout_enqueue(const clattn_plan *handle, const struct enqueue_call *call,
                              const struct bound_array *arrays, const clattn_dropout_args *args)
{
    const struct dropout_plan *plan = (const struct dropout_plan *)handle;
    const struct dropout_problem *problem = call->problem;
    dropout_args a = {0};
    size_t groups[3] = {0, 1, 1};
    if (!problem->empty && args->batch) {
        a = dropout_walk(problem, args->batch, plan->chunk);
        a.x.offset = arrays[0].binding->offset;
        a.residual.offset = arrays[1].binding->offset;
        a.y.offset = arrays[2].binding->offset;
        a.seed = args->seed;
        a.offset = args->offset;
        groups[0] = groups_of(plan, &a);
    }
    return simple_enqueue(handle, call, arrays, DROPOUT_ARRAYS, (double)a.pieces * a.chunk, &a, groups);
}

static clattn_status enqueue(const clattn_plan *handle, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct dropout_problem *problem = call->problem;
    const clattn_dropout_desc *desc = &problem->desc;
    clattn_dropout_args args;
    size_t extent[CLATTN_MAX_RANK];
    TRY(dropout_read_args(handle, problem, given, &args));
    TRY(binding_absent(handle->context, &args.gradients.x, "gradients.x"));
    TRY(binding_absent(handle->context, &args.gradients.y, "gradients.y"));
    memcpy(extent, desc->x.extent, sizeof extent);
    extent[0] = args.batch;
    const struct bound_array arrays[DROPOUT_ARRAYS] = {
        {&args.x, &desc->x, extent, BINDING_READ | BINDING_IN_PLACE, "x", true},
        {&args.residual, &desc->residual, extent, BINDING_READ | BINDING_IN_PLACE, "residual",
         !layout_is_none(&desc->residual)},
        {&args.y, &desc->y, extent, BINDING_WRITE | BINDING_IN_PLACE, "y", true},
    };
    status = dropout_enqueue(handle, call, arrays, &args);
fail:
    return status;
}

static const struct layout_place layouts[] = {
    LAYOUT_PLACE(dropout, x),
    LAYOUT_PLACE(dropout, residual),
    LAYOUT_PLACE(dropout, y),
    {NULL, 0},
};

static const struct operator_type dropout_operator = {
    .name = "dropout",
    .bytes = OPERATOR_BYTES(dropout),
    .read = dropout_problem_read,
    .enqueue = enqueue,
    .layouts = layouts,
    .solvers = dropout_solvers,
    .solver_count = DROPOUT_SOLVERS,
    .backward = &dropout_backward_operator,
    .check = dropout_self_check,
};

OPERATOR_CALLS(dropout, clattn_dropout_desc_init, clattn_dropout_args_init, clattn_dropout_supports,
               clattn_dropout_plan_create, clattn_dropout_enqueue, clattn_dropout_prewarm, clattn_dropout_run)
