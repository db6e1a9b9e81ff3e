/* The gradient of pooling: its solvers, planning and enqueueing of the backward direction. */
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

/* Sets what the kernel is told of the first `batch` items of a problem that is not empty.  Returns the number of work-groups. */
static size_t shape(const struct pool_plan *plan, const struct pool_problem *problem, size_t batch,
                    pool_backward_args *args)
{
    pool_args *a = &args->forward;
    *a = problem->kernel;
    args->x_gradient = array4_of(&problem->desc.gradients.x, 0);
    plan->shape(plan, problem, batch, a);
    const size_t channels = (size_t)a->channels, depth = (size_t)a->depth;
    a->lines = (int64_t)(batch * (size_t)a->rows.source * (depth == 1 ? channels : 1));
    a->pieces = a->lines * (int64_t)((depth == 1 ? 1 : divide_up(channels, depth)) *
                                     divide_up((size_t)a->cols.source * depth, (size_t)a->tile));
    return divide_up((size_t)a->pieces, plan->pieces_per_group);
}

static clattn_status add_kernel(struct pool_plan *plan, const char *file, const char *name, uint32_t lanes)
{
    const clattn_pool_desc *desc = &plan->problem.desc;
    const size_t local[3] = {plan->items, 1, 1};
    struct strbuf options = {0};
    size_t groups[3] = {0, 1, 1};
    pool_backward_args args;
    if (!plan->problem.empty)
        groups[0] = shape(plan, &plan->problem, desc->gradients.x.extent[0], &args);
    define_token(&options, "X_TYPE", storage_token(desc->x.dtype));
    define_token(&options, "Y_TYPE", storage_token(desc->gradients.y.dtype));
    define_token(&options, "X_GRADIENT_TYPE", storage_token(desc->gradients.x.dtype));
    define_int(&options, "LANES", lanes);
    return plan_add_kernel(&plan->base, file, &options, name, ARRAYS, sizeof(pool_backward_args), local, groups);
}

/* ---- on CPU devices: one work-item a work-group walks rows with whole vectors ---- */

/* A work-group of so many elements is worth its launch. */
#define GROUP_ELEMENTS 8192

/* A window of max with more elements is looked through in vain: the generic solver stops at the first that is larger. */
#define LARGE_WINDOW 256

static void shape_rows(const struct pool_plan *plan, const struct pool_problem *problem, size_t batch, pool_args *args)
{
    const size_t lanes = plan->base.context->device.caps.lanes, channels = (size_t)args->channels;
    const bool deep = problem->unit_channels && channels >= lanes;
    (void)batch;
    args->depth = deep ? (int)size_min(POOL_BLOCK * lanes, round_up(channels, lanes)) : 1;
    args->tile = (int)size_min((size_t)(POOL_ROW / args->depth), (size_t)args->cols.source) * args->depth;
    args->band = 1;
}

/* The most loop iterations of a work-item with one piece. */
static double iterations(const struct capabilities *caps, const struct pool_problem *problem)
{
    const double lanes = caps->lanes, width = (double)problem->desc.window[1];
    const double windows = windows_of(problem) * (POOL_ROW + width);
    return windows * (2 * lanes * reads_of(problem) + width * (1 + lanes)) + 2 * POOL_ROW + lanes;
}

static const char *refuse_rows(const struct offer *offer)
{
    const struct pool_problem *problem = offer->problem;
    if (!offer->forced && reads_of(problem) > LARGE_WINDOW)
        return "windows of max with more than 256 elements belong to other solvers";
    if (!problem->empty && !capabilities_allow_loops(offer->caps, iterations(offer->caps, problem)))
        return LOOPS_REASON;
    return refuse_all_but_cpu(offer);
}

static clattn_status prepare_rows(clattn_plan *base)
{
    struct pool_plan *plan = (struct pool_plan *)base;
    const struct capabilities *caps = &base->context->device.caps;
    pool_args args = plan->problem.kernel;
    plan->items = 1;
    plan->shape = shape_rows;
    shape_rows(plan, &plan->problem, 1, &args);
    plan->pieces_per_group = args.tile ? size_max(1, GROUP_ELEMENTS / (size_t)args.tile) : 1;
    while (plan->pieces_per_group > 1 &&
           !capabilities_allow_loops(caps, (double)plan->pieces_per_group * iterations(caps, &plan->problem)))
        plan->pieces_per_group /= 2;
    return add_kernel(plan, "pool/backward_cpu.cl", "pool_backward_cpu", caps->lanes);
}

/* ---- on every device: a work-item an element ---- */

static const char *refuse(const struct offer *offer)
{
    return refuse_loops(offer->caps, windows_of(offer->problem) * (2 + reads_of(offer->problem)) + 8);
}

static void shape_elements(const struct pool_plan *plan, const struct pool_problem *problem, size_t batch,
                           pool_args *args)
{
    (void)batch;
    args->depth = problem->joined ? args->channels : 1;
    args->tile = (int)plan->items;
    args->band = 1;
}

static clattn_status prepare(clattn_plan *base)
{
    struct pool_plan *plan = (struct pool_plan *)base;
    plan->items = pool_items_of(&base->context->device.caps);
    plan->shape = shape_elements;
    plan->pieces_per_group = 1;
    return add_kernel(plan, "pool/backward_generic.cl", "pool_backward_generic", 4);
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

static const struct solver cpu_solver = {.name = "cpu", .refuse = refuse_rows, .prepare = prepare_rows};
static const struct solver generic_solver = {.name = "generic", .refuse = refuse, .prepare = prepare};
static const struct solver *const solvers[] = {&cpu_solver, &generic_solver};

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
