/* The gradient of softmax: planning and enqueueing. */
#include <string.h>

#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/common/simple_operator.h"
#include "ops/softmax/softmax.h"
#include "plan/operator.h"
#include "program/defines.h"

#define ARRAYS 4 /* of the kernels */

static struct rows rows_of(const void *data)
{
    const struct softmax_backward_problem *problem = data;
    return (struct rows){.count = softmax_rows(&problem->shape),
                         .elements = problem->shape.columns,
                         .segments = 1,
                         .gathered = 3,
                         .unit_columns = problem->unit_columns,
                         .plain = false}; /* no kernel has rows across its lanes */
}

static void define(const clattn_plan *plan, enum row_solver solver, struct strbuf *options)
{
    const struct softmax_backward_problem *problem = operator_problem(plan);
    const clattn_softmax_desc *desc = &problem->desc;
    (void)solver;
    define_token(options, "Y_TYPE", storage_token(desc->y.dtype));
    define_token(options, "DY_TYPE", storage_token(desc->gradients.y.dtype));
    define_token(options, "DX_TYPE", storage_token(desc->gradients.x.dtype));
    define_int(options, "MASK", problem->shape.has_mask);
    if (problem->shape.has_mask)
        define_token(options, "MASK_TYPE", storage_token(desc->mask.dtype));
}

static const struct row_operator row_operator = {
    .rows = rows_of,
    .define = define,
    .kernels = {[ROW_CPU] = {"softmax/backward_cpu.cl", "softmax_backward_cpu"},
                [ROW_TILE] = {"softmax/backward_tile.cl", "softmax_backward_tile"},
                [ROW_GENERIC] = {"softmax/backward_generic.cl", "softmax_backward_generic"}},
    .arrays = ARRAYS,
    .args_bytes = sizeof(softmax_backward_args),
    .least_items = 1,
    .keep_step = 2,
};

/* What the kernel is told of a call; nothing to do unless it has rows. */
static void fill_args(const struct softmax_backward_problem *problem, const struct softmax_call *call,
                      softmax_backward_args *a)
{
    const struct softmax_shape *shape = &problem->shape;
    memset(a, 0, sizeof *a);
    a->y = problem->y;
    a->dy = problem->dy;
    a->dx = problem->dx;
    a->mask = shape->mask;
    a->y.offset = call->args.y.offset;
    a->dy.offset = call->args.gradients.y.offset;
    a->dx.offset = call->args.gradients.x.offset;
    a->mask.offset = call->args.mask.offset;
    a->columns = (int)shape->columns;
    a->mask_columns = call->mask_columns;
    a->scale = shape->scale;
    a->rows = softmax_call_rows(call, shape, a->extent, (array5 *const[]){&a->y, &a->dy, &a->dx, &a->mask}, ARRAYS);
}

static clattn_status enqueue(const clattn_plan *plan, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct softmax_backward_problem *problem = call->problem;
    const clattn_softmax_desc *desc = &problem->desc;
    struct softmax_call now;
    softmax_backward_args kernel_args;
    TRY(softmax_call_read(plan, desc, &problem->shape, given, &now));
    TRY(binding_absent(plan->context, &now.args.x, "x"));
    fill_args(problem, &now, &kernel_args);
    const struct bound_array arrays[ARRAYS] = {
        {&now.args.y, &desc->y, now.extent, BINDING_READ | BINDING_IN_PLACE, "y", true},
        {&now.args.mask, &now.mask, now.mask_extent, BINDING_READ, "mask", problem->shape.has_mask},
        {&now.args.gradients.y, &desc->gradients.y, now.extent, BINDING_READ | BINDING_IN_PLACE, "gradients.y", true},
        {&now.args.gradients.x, &desc->gradients.x, now.extent, BINDING_WRITE | BINDING_IN_PLACE, "gradients.x", true},
    };
    const size_t groups[3] = {row_groups(plan, (size_t)kernel_args.rows), 1, 1};
    const double elements = (double)kernel_args.rows * (double)problem->shape.columns;
    status = simple_enqueue(plan, call, arrays, ARRAYS, elements, &kernel_args, groups);
fail:
    return status;
}

static const struct layout_place layouts[] = {
    LAYOUT_PLACE(softmax, x),           LAYOUT_PLACE(softmax, y),           LAYOUT_PLACE(softmax, mask),
    LAYOUT_PLACE(softmax, gradients.x), LAYOUT_PLACE(softmax, gradients.y), {NULL, 0},
};

const struct operator_type softmax_backward_operator = {
    .name = "softmax backward",
    .bytes = {sizeof(struct softmax_backward_plan), offsetof(struct softmax_backward_plan, problem),
              sizeof(struct softmax_backward_problem), sizeof(clattn_softmax_desc),
              offsetof(clattn_softmax_args, control)},
    .read = softmax_backward_problem_read,
    .enqueue = enqueue,
    .layouts = layouts,
    .solvers = row_solvers,
    .solver_count = ROW_SOLVER_COUNT,
    .family = &row_operator,
    .check = softmax_backward_self_check,
};
