/* The pooling operator: planning and enqueueing. */
#include "ops/pool/pool.h"

#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/common/simple_operator.h"
#include "plan/operator.h"
#include "program/defines.h"

#define ARRAYS 2 /* of the kernels */

/* Best first. */
static const struct solver *const solvers[] = {
    &pool_cpu_solver,
    &pool_generic_solver,
};

/* Sets what the kernel is told of the first `batch` items of a problem that is not empty.  Returns the number of work-groups. */
static size_t shape(const struct pool_plan *plan, const struct pool_problem *problem, size_t batch, pool_args *args)
{
    *args = problem->kernel;
    plan->shape(plan, problem, batch, args);
    const size_t channels = (size_t)args->channels, depth = (size_t)args->depth;
    args->lines = (int64_t)pool_lines_of(args, batch);
    args->pieces =
        (int64_t)((depth == 1 ? 1 : divide_up(channels, depth)) * divide_up((size_t)args->lines, (size_t)args->band) *
                  divide_up((size_t)args->cols.target * depth, (size_t)args->tile));
    return (size_t)args->pieces;
}

clattn_status pool_add_kernel(struct pool_plan *plan, const char *file, const char *name, uint32_t lanes)
{
    const clattn_pool_desc *desc = &plan->problem.desc;
    const size_t local[3] = {plan->items, 1, 1};
    struct strbuf options = {0};
    size_t groups[3] = {0, 1, 1};
    pool_args args;
    if (!plan->problem.empty)
        groups[0] = shape(plan, &plan->problem, desc->x.extent[0], &args);
    define_token(&options, "X_TYPE", storage_token(desc->x.dtype));
    define_token(&options, "Y_TYPE", storage_token(desc->y.dtype));
    define_int(&options, "LANES", lanes);
    return plan_add_kernel(&plan->base, file, &options, name, ARRAYS, sizeof(pool_args), local, groups);
}

static clattn_status enqueue(const clattn_plan *handle, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct pool_plan *plan = (const struct pool_plan *)handle;
    const struct pool_problem *problem = call->problem;
    const clattn_pool_desc *desc = &problem->desc;
    struct report *report = &handle->context->device.report;
    clattn_pool_args args;
    pool_args kernel_args = {0};
    TRY(args_read(report, "clattn_pool_args", &args, sizeof args, sizeof args, given));
    TRY(args_check(report, "explicit_batch", args.explicit_batch, args.reserved));
    TRY(args_length(report, "batch", args.explicit_batch, &args.batch, desc->x.extent[0]));
    TRY(binding_absent(handle->context, &args.gradients.x, "gradients.x"));
    TRY(binding_absent(handle->context, &args.gradients.y, "gradients.y"));
    const size_t from[4] = {args.batch, desc->x.extent[1], desc->x.extent[2], desc->x.extent[3]};
    const size_t to[4] = {args.batch, desc->y.extent[1], desc->y.extent[2], desc->y.extent[3]};
    const struct bound_array arrays[ARRAYS] = {
        {&args.x, &desc->x, from, BINDING_READ, "x", true},
        {&args.y, &desc->y, to, BINDING_WRITE, "y", true},
    };
    size_t groups[3] = {0, 1, 1};
    if (!problem->empty && args.batch) {
        groups[0] = shape(plan, problem, args.batch, &kernel_args);
        kernel_args.x.offset = args.x.offset;
        kernel_args.y.offset = args.y.offset;
    }
    const double outputs = (double)args.batch * (double)to[1] * (double)to[2] * (double)to[3];
    const double elements = outputs * (double)desc->window[0] * (double)desc->window[1];
    status = simple_enqueue(handle, call, arrays, ARRAYS, elements, &kernel_args, groups);
fail:
    return status;
}

static const struct layout_place layouts[] = {
    LAYOUT_PLACE(pool, x),
    LAYOUT_PLACE(pool, y),
    {NULL, 0},
};

static const struct operator_type pool_operator = {
    .name = "pool",
    .bytes = OPERATOR_BYTES(pool),
    .read = pool_problem_read,
    .enqueue = enqueue,
    .layouts = layouts,
    .solvers = solvers,
    .solver_count = COUNT_OF(solvers),
    .backward = &pool_backward_operator,
    .check = pool_self_check,
};

OPERATOR_CALLS(pool, clattn_pool_desc_init, clattn_pool_args_init, clattn_pool_supports, clattn_pool_plan_create,
               clattn_pool_enqueue, clattn_pool_prewarm, clattn_pool_run)
