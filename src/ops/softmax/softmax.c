/* The softmax operator: planning and enqueueing. */
#include "ops/softmax/softmax.h"

#include "base/size.h"
#include "base/try.h"
#include "plan/operator.h"

/* Best first. */
static const struct solver *const solvers[] = {
    &softmax_cpu_solver,     &softmax_sub_group_solver,          &softmax_tile_solver,
    &softmax_generic_solver, &softmax_emulated_sub_group_solver,
};

static clattn_status read_desc(const void *desc, void *problem, const char **reason)
{
    return softmax_problem_read(desc, problem, reason);
}

clattn_status softmax_add_kernel(struct softmax_plan *plan, const char *file, const char *name, struct strbuf *options,
                                 const size_t local[3])
{
    clattn_status status;
    TRY(plan_add_kernel(&plan->base, file, options, name, 2u + plan->problem.has_mask, sizeof(softmax_args), local));
    plan_kernel_largest(&plan->base.kernels[0],
                        (const size_t[3]){divide_up(softmax_rows(&plan->problem), plan->rows_per_group), 1, 1});
    plan->base.launches = 1;
fail:
    return status;
}

static clattn_status enqueue(const clattn_plan *handle, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct softmax_plan *plan = (const struct softmax_plan *)handle;
    const struct softmax_problem *problem = call->problem;
    clattn_softmax_args args;
    softmax_args kernel_args;
    TRY(softmax_args_read(handle->context, problem, given, &args, &kernel_args));
    if (!kernel_args.rows)
        return plan_enqueue_nothing(handle, call);
    const clattn_binding *bindings[3] = {&args.x};
    size_t count = 1;
    if (problem->has_mask)
        bindings[count++] = &args.mask;
    bindings[count] = &args.y;
    const size_t groups[3] = {divide_up((size_t)kernel_args.rows, plan->rows_per_group), 1, 1};
    status = plan_enqueue_kernel(handle, call, bindings, &kernel_args, groups);
fail:
    return status;
}

static void classify(const void *data, struct strbuf *text)
{
    const struct softmax_problem *problem = data;
    strbuf_printf(text, "r%zu-c%zu-%s-%s", class_length(softmax_rows(problem)), class_length(problem->columns),
                  clattn_dtype_name(problem->desc.x.dtype), problem->unit_columns ? "unit" : "strided");
    if (problem->has_mask)
        strbuf_printf(text, "-mask.%s", clattn_dtype_name(problem->desc.mask.dtype));
}

static const struct operator_type softmax_operator = {
    .name = "softmax",
    .plan_bytes = sizeof(struct softmax_plan),
    .problem_offset = offsetof(struct softmax_plan, problem),
    .problem_bytes = sizeof(struct softmax_problem),
    .desc_bytes = sizeof(clattn_softmax_desc),
    .read = read_desc,
    .enqueue = enqueue,
    .solvers = solvers,
    .solver_count = sizeof solvers / sizeof solvers[0],
    .check = softmax_self_check,
    .classify = classify,
};

OPERATOR_CALLS(softmax, clattn_softmax_desc_init, clattn_softmax_args_init, clattn_softmax_supports,
               clattn_softmax_plan_create, clattn_softmax_enqueue, clattn_softmax_prewarm, clattn_softmax_run)
