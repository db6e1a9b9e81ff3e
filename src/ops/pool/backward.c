/* The gradient of pooling, by one solver: planning and enqueueing of the backward direction. */
#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/common/simple_operator.h"
#include "ops/pool/pool.h"
#include "program/defines.h"

#define ARRAYS 3 /* of the kernel */

static bool needs_x(const struct pool_problem *problem)
{
    return problem->desc.kind == CLATTN_POOL_KIND_MAX;
}

/* The most windows that have an element of x among theirs, and the elements that an item may read for each. */
static double windows_of(const struct pool_problem *problem)
{
    double windows = 1;
    for (int i = 0; i < 2; i++) {
        const double covered = ((double)problem->desc.window[i] - 1) * problem->desc.dilation[i];
        windows *= fmin(covered / problem->desc.stride[i] + 1, (double)problem->desc.gradients.y.extent[2 + i]);
    }
    return windows;
}
static double reads_of(const struct pool_problem *problem)
{
    return needs_x(problem) ? (double)problem->desc.window[0] * problem->desc.window[1] : 1;
}

static const char *refuse(const struct offer *offer)
{
    return refuse_loops(offer->caps, windows_of(offer->problem) * (2 + reads_of(offer->problem)) + 8);
}

/* Sets what the kernel is told of the first `batch` items of a problem that is not empty.  Returns the number of work-groups. */
static size_t shape(const struct pool_plan *plan, const struct pool_problem *problem, size_t batch,
                    pool_backward_args *args)
{
    pool_args *a = &args->forward;
    *a = problem->kernel;
    args->x_gradient = array4_of(&problem->desc.gradients.x, 0);
    a->depth = problem->joined ? a->channels : 1;
    a->tile = (int)plan->items;
    a->band = 1;
    a->lines = (int64_t)(batch * (size_t)a->rows.source * (problem->joined ? 1 : (size_t)a->channels));
    a->pieces = a->lines * (int64_t)divide_up((size_t)a->cols.source * (size_t)a->depth, plan->items);
    return (size_t)a->pieces;
}

static clattn_status prepare(clattn_plan *base)
{
    struct pool_plan *plan = (struct pool_plan *)base;
    const struct capabilities *caps = &base->context->device.caps;
    const clattn_pool_desc *desc = &plan->problem.desc;
    struct strbuf options = {0};
    size_t groups[3] = {0, 1, 1};
    pool_backward_args args;
    plan->items = pool_items_of(caps);
    const size_t local[3] = {plan->items, 1, 1};
    if (!plan->problem.empty)
        groups[0] = shape(plan, &plan->problem, desc->gradients.x.extent[0], &args);
    define_token(&options, "X_TYPE", storage_token(desc->x.dtype));
    define_token(&options, "Y_TYPE", storage_token(desc->gradients.y.dtype));
    define_token(&options, "X_GRADIENT_TYPE", storage_token(desc->gradients.x.dtype));
    return plan_add_kernel(base, "pool/backward_generic.cl", &options, "pool_backward_generic", ARRAYS,
                           sizeof(pool_backward_args), local, groups);
}

static clattn_status enqueue(const clattn_plan *handle, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct pool_plan *plan = (const struct pool_plan *)handle;
    const struct pool_problem *problem = call->problem;
    const clattn_pool_desc *desc = &problem->desc;
    struct report *report = &handle->context->device.report;
    clattn_pool_args args;
    pool_backward_args kernel_args = {0};
    TRY(args_read(report, "clattn_pool_args", &args, sizeof args, sizeof args, given));
    TRY(args_check(report, "explicit_batch", args.explicit_batch, args.reserved));
    const size_t *x_extent = desc->gradients.x.extent, *y_extent = desc->gradients.y.extent;
    TRY(args_length(report, "batch", args.explicit_batch, &args.batch, x_extent[0]));
    TRY(binding_absent(handle->context, &args.y, "y"));
    const size_t from[4] = {args.batch, x_extent[1], x_extent[2], x_extent[3]};
    const size_t to[4] = {args.batch, y_extent[1], y_extent[2], y_extent[3]};
    const struct bound_array arrays[ARRAYS] = {
        {&args.x, &desc->x, from, BINDING_READ, "x", needs_x(problem)},
        {&args.gradients.y, &desc->gradients.y, to, BINDING_READ, "gradients.y", true},
        {&args.gradients.x, &desc->gradients.x, from, BINDING_WRITE, "gradients.x", true},
    };
    size_t groups[3] = {0, 1, 1};
    if (!problem->empty && args.batch) {
        groups[0] = shape(plan, problem, args.batch, &kernel_args);
        kernel_args.forward.x.offset = args.x.offset;
        kernel_args.forward.y.offset = args.gradients.y.offset;
        kernel_args.x_gradient.offset = args.gradients.x.offset;
    }
    const double outputs = (double)args.batch * (double)from[1] * (double)from[2] * (double)from[3];
    const double elements = outputs * windows_of(problem) * reads_of(problem);
    status = simple_enqueue(handle, call, arrays, ARRAYS, elements, &kernel_args, groups);
fail:
    return status;
}

static const struct layout_place layouts[] = {
    LAYOUT_PLACE(pool, x),
    LAYOUT_PLACE(pool, gradients.y),
    LAYOUT_PLACE(pool, gradients.x),
    {NULL, 0},
};

static const struct solver generic_solver = {.name = "generic", .refuse = refuse, .prepare = prepare};
static const struct solver *const solvers[] = {&generic_solver};

const struct operator_type pool_backward_operator = {
    .name = "pool backward",
    .bytes = OPERATOR_BYTES(pool),
    .read = pool_problem_read,
    .enqueue = enqueue,
    .layouts = layouts,
    .solvers = solvers,
    .solver_count = COUNT_OF(solvers),
    .check = pool_self_check,
};
