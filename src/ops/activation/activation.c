/* The activation operator: planning and enqueueing. */
#include "ops/activation/activation.h"

#include "base/size.h"
#include "base/try.h"
#include "ops/common/activation.h"
#include "ops/common/arrays.h"
#include "plan/operator.h"
#include "program/defines.h"

/* Best first. */
static const struct solver *const solvers[] = {
    &activation_cpu_solver,
    &activation_generic_solver,
};

static clattn_status read_desc(const void *desc, void *problem, const char **reason)
{
    return activation_problem_read(desc, problem, reason);
}

static size_t groups_of(const struct activation_plan *plan, const activation_args *walk)
{
    return divide_up((size_t)walk->pieces, plan->pieces_per_group);
}

clattn_status activation_add_kernel(struct activation_plan *plan, const char *file, const char *name, uint32_t lanes,
                                    const size_t local[3])
{
    clattn_status status;
    const clattn_activation_desc *desc = &plan->problem.desc;
    struct strbuf options = {0};
    define_token(&options, "X_TYPE", storage_token(desc->x.dtype));
    define_token(&options, "Y_TYPE", storage_token(desc->y.dtype));
    define_token(&options, "ACTIVATION", activation_name(desc->function));
    define_int(&options, "UNIT_STRIDE", plan->problem.unit_columns);
    define_int(&options, "LANES", lanes);
    TRY(plan_add_kernel(&plan->base, file, &options, name, 2, sizeof(activation_args), local));
    if (!plan->problem.empty) {
        activation_args walk = activation_walk(&plan->problem, desc->x.extent[0], plan->chunk);
        plan_kernel_largest(&plan->base.kernels[0], (const size_t[3]){groups_of(plan, &walk), 1, 1});
    }
    plan->base.launches = 1;
fail:
    return status;
}

static clattn_status enqueue(const clattn_plan *handle, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct activation_plan *plan = (const struct activation_plan *)handle;
    const struct activation_problem *problem = call->problem;
    clattn_activation_args args;
    size_t batch;
    TRY(activation_args_read(handle->context, problem, given, &args, &batch));
    if (!batch)
        return plan_enqueue_nothing(handle, call);
    activation_args walk = activation_walk(problem, batch, plan->chunk);
    walk.x.offset = args.x.offset;
    walk.y.offset = args.y.offset;
    const clattn_binding *bindings[2] = {&args.x, &args.y};
    const size_t groups[3] = {groups_of(plan, &walk), 1, 1};
    status = plan_enqueue_kernel(handle, call, bindings, &walk, groups);
fail:
    return status;
}

static const struct operator_type activation_operator = {
    .name = "activation",
    .plan_bytes = sizeof(struct activation_plan),
    .problem_offset = offsetof(struct activation_plan, problem),
    .problem_bytes = sizeof(struct activation_problem),
    .desc_bytes = sizeof(clattn_activation_desc),
    .read = read_desc,
    .enqueue = enqueue,
    .check = activation_self_check,
    .solvers = solvers,
    .solver_count = sizeof solvers / sizeof solvers[0],
};

OPERATOR_CALLS(activation, clattn_activation_desc_init, clattn_activation_args_init, clattn_activation_supports,
               clattn_activation_plan_create, clattn_activation_enqueue, clattn_activation_prewarm,
               clattn_activation_run)
