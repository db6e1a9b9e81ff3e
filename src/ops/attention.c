/* The attention operator: planning and enqueueing. */
#include "ops/attention.h"

#include <stdlib.h>

#include "base/size.h"
#include "base/try.h"

/* Best first. */
static const struct solver *const solvers[] = {
    &attention_cpu_solver,
    &attention_tile_solver,
    &attention_generic_solver,
};
#define SOLVERS (sizeof solvers / sizeof solvers[0])

clattn_status clattn_attention_supports(clattn_context *context, const clattn_attention_desc *desc,
                                        const char **reason)
{
    struct attention_problem problem;
    const char *why = "context is NULL";
    clattn_status status = CLATTN_ERROR_INVALID_ARGUMENT;
    if (context)
        status = attention_problem_read(desc, &problem, &why);
    if (status == CLATTN_SUCCESS)
        status = plan_supports(context, "attention", solvers, SOLVERS, &problem, &why);
    if (reason)
        *reason = status == CLATTN_SUCCESS ? NULL : why;
    return status;
}

static clattn_status make_plan(clattn_context *context, const struct attention_problem *problem,
                               const clattn_plan_options *options, clattn_plan **plan)
{
    clattn_status status;
    clattn_plan *made = NULL;
    TRY(plan_new(context, OPERATOR_ATTENTION, sizeof(struct attention_plan), &made));
    ((struct attention_plan *)made)->problem = *problem;
    TRY(plan_choose(made, "attention", solvers, SOLVERS, problem, options));
    *plan = made;
    return CLATTN_SUCCESS;
fail:
    clattn_plan_release(&made);
    return status;
}

clattn_status clattn_attention_plan_create(clattn_context *context, const clattn_attention_desc *desc,
                                           const clattn_plan_options *options, clattn_plan **plan)
{
    clattn_status status;
    struct attention_problem problem;
    clattn_plan_options own;
    const char *reason;
    if (plan)
        *plan = NULL;
    TRY(context_check(context));
    if (!plan)
        return report_error(&context->device.report, CLATTN_ERROR_INVALID_ARGUMENT, "plan is NULL");
    TRY(plan_options_read(context, options, &own));
    status = attention_problem_read(desc, &problem, &reason);
    if (status != CLATTN_SUCCESS)
        return report_error(&context->device.report, status, "attention: %s", reason);
    TRY(make_plan(context, &problem, &own, plan));
fail:
    return status;
}

void attention_groups_by_queries(const struct attention_plan *plan, size_t batch, size_t query_length,
                                 size_t groups[3])
{
    groups[0] = divide_up(query_length, plan->queries_per_group);
    groups[1] = plan->problem.heads;
    groups[2] = batch;
}

clattn_status attention_add_kernel(struct attention_plan *plan, const char *file, const char *name,
                                   struct strbuf *options, const size_t local[3])
{
    clattn_status status;
    char *text = strbuf_take(options);
    if (!text)
        return report_error(&plan->base.context->device.report, CLATTN_ERROR_OUT_OF_MEMORY,
                            "no memory for build options");
    cl_uint pointers = 4u + plan->problem.has_mask + plan->problem.has_lse;
    TRY(plan_add_kernel(&plan->base, file, text, name, pointers, sizeof(attention_args), local));
    plan->base.launches = 1;
fail:
    free(text);
    return status;
}

clattn_status clattn_attention_enqueue(clattn_plan *handle, cl_command_queue queue,
                                       const clattn_attention_args *given, cl_uint wait_count,
                                       const cl_event *wait_list, cl_event *event)
{
    clattn_status status;
    TRY(plan_check(handle, OPERATOR_ATTENTION));
    struct attention_plan *plan = (struct attention_plan *)handle;
    clattn_context *context = handle->context;
    const struct attention_problem *problem = &plan->problem;
    clattn_attention_args args;
    attention_args kernel_args;
    struct chain chain;
    TRY(attention_args_read(context, problem, given, &args));
    status = chain_begin(&chain, context, queue, wait_count, wait_list, event, handle->workspace, &args.workspace);
    if (status != CLATTN_SUCCESS)
        return chain_end(&chain, status, event);
    if (!args.batch || !problem->heads || !args.query_length)
        return chain_end(&chain, chain_marker(&chain), event);

    const clattn_binding *bindings[6] = {&args.query, &args.key, &args.value};
    size_t count = 3, groups[3];
    if (problem->has_mask)
        bindings[count++] = &args.mask;
    bindings[count++] = &args.output;
    if (problem->has_lse)
        bindings[count++] = &args.lse;
    attention_fill_args(problem, &args, &kernel_args);
    plan->groups(plan, args.batch, args.query_length, groups);
    mtx_lock(&handle->lock);
    status = chain_launch(&chain, &handle->kernels[0], bindings, &kernel_args, groups, true);
    mtx_unlock(&handle->lock);
    return chain_end(&chain, status, event);
fail:
    return status;
}

clattn_status clattn_attention_run(clattn_context *context, cl_command_queue queue,
                                   const clattn_attention_desc *desc, const clattn_attention_args *args,
                                   cl_uint wait_count, const cl_event *wait_list, cl_event *event)
{
    clattn_status status;
    struct attention_problem problem;
    const char *reason;
    clattn_plan *plan = NULL;
    TRY(context_check(context));
    status = attention_problem_read(desc, &problem, &reason);
    if (status != CLATTN_SUCCESS)
        return report_error(&context->device.report, status, "attention: %s", reason);
    plan = plan_cache_find(&context->plans, OPERATOR_ATTENTION, &problem.desc, sizeof problem.desc);
    if (!plan) {
        clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
        TRY(make_plan(context, &problem, &options, &plan));
        plan_cache_add(&context->plans, OPERATOR_ATTENTION, &problem.desc, sizeof problem.desc, plan);
    }
    TRY(clattn_attention_enqueue(plan, queue, args, wait_count, wait_list, event));
fail:
    clattn_plan_release(&plan);
    return status;
}
