#include "ops/attention/scores.h"

#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/attention/launch.h"
#include "ops/common/arrays.h"
#include "plan/operator.h"
#include "program/defines.h"

struct weights_plan {
    clattn_plan base;
    struct attention_problem problem;
    clattn_layout weights;
    bool average;
};

/* Its plans are made and enqueued by the functions below. */
static const struct operator_type weights_operator = {
    .name = "attention weights",
    .bytes = {.plan = sizeof(struct weights_plan), .problem_offset = offsetof(struct weights_plan, problem)},
};

static clattn_status read_weights(const clattn_attention_desc *attention, const clattn_layout *weights, bool average,
                                  struct attention_problem *problem, const char **reason)
{
    clattn_status status;
    TRY(attention_problem_read(attention, problem, reason));
    TRY(layout_check(weights, LAYOUT_OUTPUT, LAYOUT_OF("weights"), reason));
    status = CLATTN_ERROR_INVALID_LAYOUT;
    *reason = "the weights are not (batch, heads or 1, S_q, S_k) float32, or there is no log-sum-exp";
    if (problem->has[ATTENTION_LSE] && weights->dtype == CLATTN_DTYPE_F32 && weights->rank == 4 &&
        weights->extent[0] == problem->batch && weights->extent[1] == (average ? 1 : problem->heads) &&
        weights->extent[2] == problem->query_length && weights->extent[3] == problem->key_length)
        status = CLATTN_SUCCESS;
fail:
    return status;
}

clattn_status attention_weights_supports(clattn_context *context, const clattn_attention_desc *attention,
                                         const clattn_layout *weights, bool average, const char **reason)
{
    struct attention_problem problem;
    clattn_status status = read_weights(attention, weights, average, &problem, reason);
    double items = average ? (double)problem.heads : 1;
    if (status == CLATTN_SUCCESS &&
        !capabilities_allow_loops(&context->device.caps, items * ((double)problem.d_k / 2 + 6))) {
        *reason = LOOPS_REASON;
        status = CLATTN_ERROR_UNSUPPORTED;
    }
    return status;
}

clattn_status attention_scores_add_kernel(clattn_plan *plan, const struct attention_problem *problem,
                                          const clattn_layout *weights, int32_t mode, bool average)
{
    const struct capabilities *caps = &plan->context->device.caps;
    const size_t local[3] = {capabilities_on_cpu(caps) ? 1 : size_min(64, caps->info.max_work_item[0]), 1, 1};
    const size_t groups[3] = {divide_up(problem->key_length, local[0]), problem->query_length,
                              problem->batch * weights->extent[1]};
    struct strbuf options = {0};
    attention_defines(problem, caps, &options);
    define_token(&options, "W_TYPE", storage_token(weights->dtype));
    define_int(&options, "SCORES_MODE", mode);
    define_int(&options, "AVERAGE", average);
    return plan_add_kernel(plan, "attention/scores.cl", &options, "attention_scores", ATTENTION_SCORES_POINTERS,
                           sizeof(attention_args), local, groups);
}

void attention_scores_groups(const struct plan_kernel *kernel, const attention_args *kernel_args, bool average,
                             size_t groups[3])
{
    groups[0] = divide_up((size_t)kernel_args->key_length, kernel->local[0]);
    groups[1] = (size_t)kernel_args->launch_queries;
    groups[2] = (size_t)kernel_args->batch * (average ? 1 : (size_t)kernel_args->launch_heads);
}

clattn_status attention_weights_plan_create(clattn_context *context, const clattn_attention_desc *attention,
                                            const clattn_layout *weights, bool average, clattn_plan **result)
{
    clattn_status status;
    struct attention_problem problem;
    const char *reason;
    clattn_plan *plan = NULL;
    *result = NULL;
    status = attention_weights_supports(context, attention, weights, average, &reason);
    if (status == CLATTN_SUCCESS)
        status = read_weights(attention, weights, average, &problem, &reason);
    if (status != CLATTN_SUCCESS)
        return report_error(&context->device.report, status, "attention weights: %s", reason);
    TRY(plan_new(context, &weights_operator, &plan));
    struct weights_plan *made = (struct weights_plan *)plan;
    made->problem = problem;
    made->weights = *weights;
    made->average = average;
    TRY(attention_scores_add_kernel(plan, &made->problem, weights, CLATTN_SCORES_MODE_PROBABILITIES, average));
    TRY(plan_warm(plan));
    plan_save(plan, false);
    plan->solver = "generic";
    *result = plan;
    return CLATTN_SUCCESS;
fail:
    clattn_plan_release(&plan);
    return status;
}

clattn_status attention_weights_enqueue(const clattn_plan *handle, const struct enqueue_call *call,
                                        const clattn_attention_args *given, const clattn_binding *weights)
{
    clattn_status status;
    TRY(plan_check(handle, &weights_operator));
    const struct weights_plan *plan = (const struct weights_plan *)handle;
    const struct attention_problem *problem = &plan->problem;
    clattn_attention_args args;
    attention_args kernel_args;
    TRY(attention_args_read(handle->context, problem, given, &args));
    const size_t extent[4] = {args.batch, plan->weights.extent[1], args.query_length, args.key_length};
    TRY(binding_check(handle->context, weights, &plan->weights, extent, BINDING_WRITE, "weights"));
    if (!args.batch || !problem->heads || !args.query_length || !args.key_length)
        return plan_enqueue_nothing(handle, call);

    const clattn_binding *bindings[ATTENTION_SCORES_POINTERS] = {&args.query, &args.key,
                                                                 [2 + ATTENTION_INPUTS] = &args.outputs.lse, weights};
    size_t groups[3];
    attention_input_bindings(problem, &args, &bindings[2]);
    attention_fill_args(problem, &args, &kernel_args);
    kernel_args.scores = array4_of(&plan->weights, weights->offset);
    attention_scores_groups(&handle->kernels[0], &kernel_args, plan->average, groups);
    status = plan_enqueue_kernel(handle, call, bindings, &kernel_args, groups);
fail:
    return status;
}
