/* The operator of rotary position embedding: planning and enqueueing. */
#include "ops/rope/rope.h"

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/common/simple_operator.h"
#include "plan/operator.h"

#define ARRAYS 6 /* of the kernels */

/* Best first. */
static const struct solver *const solvers[] = {
    &rope_cpu_solver,
    &rope_generic_solver,
};

/* Work-groups of `items` for these places of a problem that is not empty. */
static size_t groups_of(const struct rope_plan *plan, const struct rope_problem *problem, size_t batch, size_t length,
                        size_t items)
{
    const rope_args *kernel = &problem->kernel;
    size_t places = batch * length;
    if (plan->places_per_group)
        return divide_up(places, plan->places_per_group);
    return places * divide_up((size_t)kernel->heads, (size_t)kernel->chunk) *
           divide_up((size_t)(kernel->size - kernel->pairs), items);
}

clattn_status rope_add_kernel(struct rope_plan *plan, const char *file, const char *name, struct strbuf *options,
                              const size_t local[3])
{
    const struct rope_problem *problem = &plan->problem;
    const size_t *extent = problem->desc.x.extent;
    const size_t groups[3] = {problem->empty ? 0 : groups_of(plan, problem, extent[0], extent[2], local[0]), 1, 1};
    return plan_add_kernel(&plan->base, file, options, name, ARRAYS, sizeof(rope_args), local, groups);
}

/* Puts the arrays of the direction where the description has their layouts; those of the other one are not bound. */
static clattn_status place_arrays(clattn_context *context, clattn_direction direction, clattn_rope_args *args)
{
    clattn_status status;
    if (direction == CLATTN_DIRECTION_FORWARD) {
        TRY(binding_absent(context, &args->gradients.x, "gradients.x"));
        TRY(binding_absent(context, &args->gradients.y, "gradients.y"));
        return CLATTN_SUCCESS;
    }
    TRY(binding_absent(context, &args->x, "x"));
    TRY(binding_absent(context, &args->y, "y"));
    args->x = args->gradients.y;
    args->y = args->gradients.x;
fail:
    return status;
}

/* A copy of the caller's args, and what they and the problem tell the kernel; its batch stays 0 if there is nothing to do. */
static clattn_status read_args(clattn_context *context, const struct rope_problem *problem, const void *given,
                               clattn_rope_args *args, rope_args *kernel_args)
{
    clattn_status status;
    struct report *report = &context->device.report;
    TRY(args_read(report, "clattn_rope_args", args, sizeof *args, sizeof *args, given));
    TRY(args_check(report, "explicit_lengths", args->explicit_lengths, args->reserved));
    TRY(args_length(report, "batch", args->explicit_lengths, &args->batch, problem->desc.x.extent[0]));
    TRY(args_length(report, "length", args->explicit_lengths, &args->length, problem->desc.x.extent[2]));
    *kernel_args = problem->kernel;
    TRY(place_arrays(context, problem->desc.direction, args));
    if (problem->empty || !args->batch || !args->length)
        return CLATTN_SUCCESS;
    kernel_args->x.offset = args->x.offset;
    kernel_args->y.offset = args->y.offset;
    kernel_args->cos.offset = args->cos.offset;
    kernel_args->sin.offset = args->sin.offset;
    kernel_args->positions_offset = args->positions.offset;
    kernel_args->offsets_offset = args->offsets.offset;
    kernel_args->position = args->position;
    kernel_args->batch = (int)args->batch;
    kernel_args->length = (int)args->length;
fail:
    return status;
}

/* What an enqueue reaches of an array's batch. */
static size_t batch_of(const clattn_layout *layout, size_t batch)
{
    return layout->extent[0] == 1 ? 1 : batch;
}

static clattn_status enqueue(const clattn_plan *handle, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct rope_plan *plan = (const struct rope_plan *)handle;
    const struct rope_problem *problem = call->problem;
    const clattn_rope_desc *desc = &problem->desc;
    clattn_rope_args args;
    rope_args kernel_args;
    TRY(read_args(handle->context, problem, given, &args, &kernel_args));
    const bool table = !layout_is_none(&desc->cos), backward = desc->direction == CLATTN_DIRECTION_BACKWARD;
    const size_t rows[4] = {args.batch, desc->x.extent[1], args.length, desc->x.extent[3]};
    const size_t places[2] = {batch_of(&desc->positions, args.batch), args.length};
    const size_t by_place[3] = {batch_of(&desc->cos, args.batch), args.length, desc->cos.extent[2]};
    const size_t *angles = desc->cos.rank == 3 ? by_place : desc->cos.extent;
    const struct bound_array arrays[ARRAYS] = {
        {&args.x, &desc->x, rows, BINDING_READ | BINDING_IN_PLACE, backward ? "gradients.y" : "x", true},
        {&args.cos, &desc->cos, angles, BINDING_READ, "cos", table},
        {&args.sin, &desc->sin, angles, BINDING_READ, "sin", table},
        {&args.positions, &desc->positions, places, BINDING_READ, "positions", !layout_is_none(&desc->positions)},
        {&args.offsets, &desc->offsets, rows, BINDING_READ, "offsets", !layout_is_none(&desc->offsets)},
        {&args.y, &desc->y, rows, BINDING_WRITE | BINDING_IN_PLACE, backward ? "gradients.x" : "y", true},
    };
    const size_t groups[3] = {
        kernel_args.batch ? groups_of(plan, problem, args.batch, args.length, handle->kernels[0].local[0]) : 0, 1, 1};
    const double elements = (double)rows[0] * (double)rows[1] * (double)rows[2] * (double)rows[3];
    status = simple_enqueue(handle, call, arrays, ARRAYS, elements, &kernel_args, groups);
fail:
    return status;
}

static const struct layout_place layouts[] = {
    LAYOUT_PLACE(rope, x),           LAYOUT_PLACE(rope, y),       LAYOUT_PLACE(rope, gradients.x),
    LAYOUT_PLACE(rope, gradients.y), LAYOUT_PLACE(rope, cos),     LAYOUT_PLACE(rope, sin),
    LAYOUT_PLACE(rope, positions),   LAYOUT_PLACE(rope, offsets), {NULL, 0},
};

#define ROPE_OPERATOR(title) \
    .name = (title), .bytes = OPERATOR_BYTES(rope), .read = rope_problem_read, .enqueue = enqueue, .layouts = layouts, \
    .solvers = solvers, .solver_count = COUNT_OF(solvers), .check = rope_self_check

/* Backward, the same kernels rotate the gradients by the opposite angles. */
static const struct operator_type backward_operator = {ROPE_OPERATOR("rope backward")};
static const struct operator_type rope_operator = {ROPE_OPERATOR("rope"), .backward = &backward_operator};

OPERATOR_CALLS(rope, clattn_rope_desc_init, clattn_rope_args_init, clattn_rope_supports, clattn_rope_plan_create,
               clattn_rope_enqueue, clattn_rope_prewarm, clattn_rope_run)
