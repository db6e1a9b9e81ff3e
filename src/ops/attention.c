/* The attention operator: planning and enqueueing. */
#include "ops/attention.h"

#include <stdlib.h>

#include "base/try.h"
#include "plan/operator.h"

/* Best first. */
static const struct solver *const solvers[] = {
    &attention_cpu_bf16_solver,
    &attention_cpu_solver,
    &attention_tile_solver,
    &attention_generic_solver,
};

static clattn_status read_desc(const void *desc, void *problem, const char **reason)
{
    return attention_problem_read(desc, problem, reason);
}

static clattn_status enqueue(clattn_plan *handle, cl_command_queue queue, const void *given,
                             cl_uint wait_count, const cl_event *wait_list, cl_event *event)
{
    clattn_status status;
    struct attention_plan *plan = (struct attention_plan *)handle;
    clattn_attention_args args;
    struct chain chain;
    TRY(attention_args_read(handle->context, &plan->problem, given, &args));
    if (!args.batch || !plan->problem.heads || !args.query_length)
        return plan_enqueue_nothing(handle, queue, wait_count, wait_list, event);
    status = chain_begin(&chain, handle->context, queue, wait_count, wait_list, event, handle->workspace,
                         &args.workspace);
    if (status == CLATTN_SUCCESS) {
        mtx_lock(&handle->lock);
        status = attention_launch(plan, &chain, &args);
        mtx_unlock(&handle->lock);
    }
    return chain_end(&chain, status, event);
fail:
    return status;
}

static const struct operator_class attention_class = {
    .name = "attention",
    .number = OPERATOR_ATTENTION,
    .plan_bytes = sizeof(struct attention_plan),
    .problem_offset = offsetof(struct attention_plan, problem),
    .problem_bytes = sizeof(struct attention_problem),
    .desc_bytes = ATTENTION_DESC_BYTES,
    .read = read_desc,
    .enqueue = enqueue,
    .solvers = solvers,
    .solver_count = sizeof solvers / sizeof solvers[0],
    .check = attention_self_check,
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

clattn_status clattn_attention_enqueue(clattn_plan *plan, cl_command_queue queue,
                                       const clattn_attention_args *args, cl_uint wait_count,
                                       const cl_event *wait_list, cl_event *event)
{
    return operator_enqueue(&attention_class, plan, queue, args, wait_count, wait_list, event);
}

clattn_status clattn_attention_prewarm(clattn_context *context, const clattn_attention_desc *desc)
{
    return operator_prewarm(&attention_class, context, desc);
}

clattn_status clattn_attention_run(clattn_context *context, cl_command_queue queue,
                                   const clattn_attention_desc *desc, const clattn_attention_args *args,
                                   cl_uint wait_count, const cl_event *wait_list, cl_event *event)
{
    return operator_run(&attention_class, context, queue, desc, args, wait_count, wait_list, event);
}
