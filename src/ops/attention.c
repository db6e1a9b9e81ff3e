/* The attention operator: planning and enqueueing. */
#include "ops/attention.h"

#include <stdlib.h>

#include "base/size.h"
#include "base/try.h"
#include "plan/operator.h"

/* Best first. */
static const struct solver *const solvers[] = {
    &attention_cpu_solver,
    &attention_tile_solver,
    &attention_generic_solver,
};

static clattn_status read_desc(const void *desc, void *problem, const char **reason)
{
    return attention_problem_read(desc, problem, reason);
}

static const struct operator_class attention_class = {
    .name = "attention",
    .number = OPERATOR_ATTENTION,
    .plan_bytes = sizeof(struct attention_plan),
    .problem_offset = offsetof(struct attention_plan, problem),
    .problem_bytes = sizeof(struct attention_problem),
    .desc_bytes = sizeof(clattn_attention_desc),
    .read = read_desc,
    .solvers = solvers,
    .solver_count = sizeof solvers / sizeof solvers[0],
};

clattn_status clattn_attention_supports(clattn_context *context, const clattn_attention_desc *desc,
                                        const char **reason)
{
    return operator_supports(&attention_class, context, desc, reason);
}

clattn_status clattn_attention_plan_create(clattn_context *context, const clattn_attention_desc *desc,
                                           const clattn_plan_options *options, clattn_plan **plan)
{
    return operator_plan_create(&attention_class, context, desc, options, plan);
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
    cl_uint pointers = 4u + plan->problem.has_mask + plan->problem.has_lse;
    size_t groups[3];
    TRY(plan_add_kernel(&plan->base, file, options, name, pointers, sizeof(attention_args), local));
    plan->groups(plan, plan->problem.batch, plan->problem.query_length, groups);
    plan_kernel_largest(&plan->base.kernels[0], groups);
    plan->base.launches = 1;
fail:
    return status;
}

clattn_status clattn_attention_enqueue(clattn_plan *handle, cl_command_queue queue,
                                       const clattn_attention_args *given, cl_uint wait_count,
                                       const cl_event *wait_list, cl_event *event)
{
    clattn_status status;
    TRY(plan_check(handle, OPERATOR_ATTENTION));
    struct attention_plan *plan = (struct attention_plan *)handle;
    const struct attention_problem *problem = &plan->problem;
    clattn_attention_args args;
    attention_args kernel_args;
    struct chain chain;
    TRY(attention_args_read(handle->context, problem, given, &args));
    bool empty = !args.batch || !problem->heads || !args.query_length;
    status = chain_begin(&chain, handle->context, queue, wait_count, wait_list, event,
                         empty ? 0 : handle->workspace, &args.workspace);
    if (status != CLATTN_SUCCESS)
        return chain_end(&chain, status, event);
    if (empty)
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

clattn_status clattn_attention_prewarm(clattn_context *context, const clattn_attention_desc *desc)
{
    return operator_prewarm(&attention_class, context, desc);
}

clattn_status clattn_attention_run(clattn_context *context, cl_command_queue queue,
                                   const clattn_attention_desc *desc, const clattn_attention_args *args,
                                   cl_uint wait_count, const cl_event *wait_list, cl_event *event)
{
    clattn_status status;
    clattn_plan *plan;
    TRY(operator_plan_find(&attention_class, context, desc, &plan));
    status = clattn_attention_enqueue(plan, queue, args, wait_count, wait_list, event);
    clattn_plan_release(&plan);
fail:
    return status;
}
