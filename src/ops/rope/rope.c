/* The operator of rotary position embedding: planning and enqueueing. */
#include "ops/rope/rope.h"

#include "base/size.h"
#include "base/try.h"
#include "plan/operator.h"

/* Best first. */
static const struct solver *const solvers[] = {
    &rope_cpu_solver,
    &rope_generic_solver,
};

static clattn_status read_desc(const void *desc, void *problem, const char **reason)
{
    return rope_problem_read(desc, problem, reason);
}

static size_t groups_of(const struct rope_plan *plan, const struct rope_problem *problem, size_t batch, size_t length)
{
    const rope_args *kernel = &problem->kernel;
    size_t places = batch * length;
    if (plan->places_per_group)
        return divide_up(places, plan->places_per_group);
    return places * divide_up((size_t)kernel->heads, (size_t)kernel->chunk) *
           divide_up((size_t)(kernel->size - kernel->pairs), plan->base.kernels[0].local[0]);
}

clattn_status rope_add_kernel(struct rope_plan *plan, const char *file, const char *name, struct strbuf *options,
                              const size_t local[3])
{
    clattn_status status;
    const size_t *extent = plan->problem.desc.x.extent;
    TRY(plan_add_kernel(&plan->base, file, options, name, 6, sizeof(rope_args), local));
    if (!plan->problem.empty)
        plan_kernel_largest(&plan->base.kernels[0],
                            (const size_t[3]){groups_of(plan, &plan->problem, extent[0], extent[2]), 1, 1});
    plan->base.launches = 1;
fail:
    return status;
}

static clattn_status enqueue(const clattn_plan *handle, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct rope_plan *plan = (const struct rope_plan *)handle;
    const struct rope_problem *problem = call->problem;
    clattn_rope_args args;
    rope_args kernel_args;
    TRY(rope_args_read(handle->context, problem, given, &args, &kernel_args));
    if (!kernel_args.batch)
        return plan_enqueue_nothing(handle, call);
    /* In the place of an array that is not there, one that the kernel has anyway. */
    bool computed = kernel_args.table == ROPE_COMPUTED;
    const clattn_binding *bindings[6] = {
        &args.x,
        computed ? &args.x : &args.cos,
        computed ? &args.x : &args.sin,
        kernel_args.has_positions ? &args.positions : &args.x,
        kernel_args.has_offsets ? &args.offsets : &args.x,
        &args.y,
    };
    const size_t groups[3] = {groups_of(plan, problem, (size_t)kernel_args.batch, (size_t)kernel_args.length), 1, 1};
    status = plan_enqueue_kernel(handle, call, bindings, &kernel_args, groups);
fail:
    return status;
}

static const struct operator_type rope_operator = {
    .name = "rope",
    .plan_bytes = sizeof(struct rope_plan),
    .problem_offset = offsetof(struct rope_plan, problem),
    .problem_bytes = sizeof(struct rope_problem),
    .desc_bytes = sizeof(clattn_rope_desc),
    .read = read_desc,
    .enqueue = enqueue,
    .check = rope_self_check,
    .solvers = solvers,
    .solver_count = sizeof solvers / sizeof solvers[0],
};

OPERATOR_CALLS(rope, clattn_rope_desc_init, clattn_rope_args_init, clattn_rope_supports, clattn_rope_plan_create,
               clattn_rope_enqueue, clattn_rope_prewarm, clattn_rope_run)
