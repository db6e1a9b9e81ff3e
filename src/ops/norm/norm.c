/* The normalisation operator: planning and enqueueing. */
#include "ops/norm/norm.h"

#include "base/size.h"
#include "base/try.h"
#include "plan/operator.h"

/* Best first. */
static const struct solver *const solvers[] = {
    &norm_cpu_solver, &norm_sub_group_solver, &norm_tile_solver, &norm_generic_solver, &norm_emulated_sub_group_solver,
};

static clattn_status read_desc(const void *desc, void *problem, const char **reason)
{
    return norm_problem_read(desc, problem, reason);
}

clattn_status norm_add_kernel(struct norm_plan *plan, const char *file, const char *name, struct strbuf *options,
                              const size_t local[3])
{
    clattn_status status;
    bool residual = plan->problem.has_residual;
    TRY(plan_add_kernel(&plan->base, file, options, name, residual ? 8 : 6,
                        residual ? sizeof(norm_args) : offsetof(norm_args, residual), local));
    plan_kernel_largest(&plan->base.kernels[0],
                        (const size_t[3]){divide_up(plan->problem.rows, plan->rows_per_group), 1, 1});
    plan->base.launches = 1;
fail:
    return status;
}

static clattn_status enqueue(const clattn_plan *handle, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct norm_plan *plan = (const struct norm_plan *)handle;
    const struct norm_problem *problem = call->problem;
    const norm_args *walk = &problem->walk;
    clattn_norm_args args;
    norm_args kernel_args;
    TRY(norm_args_read(handle->context, problem, given, &args, &kernel_args));
    if (!kernel_args.rows)
        return plan_enqueue_nothing(handle, call);
    /* In the place of an array that is not there, one that the kernel has anyway. */
    const clattn_binding *bindings[8] = {
        &args.x,        walk->has_scale ? &args.scale : &args.x, walk->has_bias ? &args.bias : &args.x,
        &args.y,        walk->has_mean ? &args.mean : &args.y,   walk->has_inverse ? &args.inv_std_dev : &args.y,
        &args.residual, walk->has_sum ? &args.sum : &args.y,
    };
    const size_t groups[3] = {divide_up((size_t)kernel_args.rows, plan->rows_per_group), 1, 1};
    status = plan_enqueue_kernel(handle, call, bindings, &kernel_args, groups);
fail:
    return status;
}

static void classify(const void *data, struct strbuf *text)
{
    const struct norm_problem *problem = data;
    const clattn_norm_desc *desc = &problem->desc;
    strbuf_printf(text, "%s-r%zu-c%zu-%s-%s-%s", desc->kind == CLATTN_NORM_KIND_LAYER ? "layer" : "rms",
                  class_length(problem->rows), class_length(problem->elements), clattn_dtype_name(desc->x.dtype),
                  clattn_dtype_name(desc->y.dtype), problem->unit_columns ? "unit" : "strided");
    strbuf_printf(text, "-f%d%d%d%d", problem->walk.has_scale != 0, problem->walk.has_bias != 0,
                  problem->walk.has_mean != 0, problem->walk.has_inverse != 0);
    if (problem->has_residual)
        strbuf_printf(text, "-residual.%s", clattn_dtype_name(desc->residual.dtype));
    if (problem->walk.has_sum)
        strbuf_printf(text, "-sum.%s", clattn_dtype_name(desc->sum.dtype));
}

static const struct operator_type norm_operator = {
    .name = "norm",
    .plan_bytes = sizeof(struct norm_plan),
    .problem_offset = offsetof(struct norm_plan, problem),
    .problem_bytes = sizeof(struct norm_problem),
    .desc_bytes = sizeof(clattn_norm_desc),
    .read = read_desc,
    .enqueue = enqueue,
    .check = norm_self_check,
    .classify = classify,
    .solvers = solvers,
    .solver_count = sizeof solvers / sizeof solvers[0],
};

OPERATOR_CALLS(norm, clattn_norm_desc_init, clattn_norm_args_init, clattn_norm_supports, clattn_norm_plan_create,
               clattn_norm_enqueue, clattn_norm_prewarm, clattn_norm_run)
