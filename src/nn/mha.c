/* Multi-head attention: planning and enqueueing its parts one after the other. */
#include "nn/mha.h"

#include <stdio.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/attention_weights.h"
#include "ops/matmul.h"
#include "plan/operator.h"

struct mha_plan {
    clattn_plan base;
    struct mha_problem problem;
    clattn_plan *projection[MHA_PROJECTIONS], *attention, *weights, *output;
    size_t
        part_workspace; /* bytes from the start of ours: where the parts have theirs, one after the other */
    char solver_names[64];
};

static clattn_status read_desc(const void *desc, void *problem, const char **reason)
{
    return mha_problem_read(desc, problem, reason);
}

static clattn_status supports(clattn_context *context, const void *data, const char **reason)
{
    const struct mha_problem *problem = data;
    clattn_status status;
    for (size_t i = 0; i < problem->projections; i++)
        TRY(clattn_matmul_supports(context, &problem->projection[i].desc, reason));
    TRY(clattn_attention_supports(context, &problem->attention, reason));
    if (problem->desc.weights)
        TRY(attention_weights_supports(context, &problem->attention, &problem->weights,
                                       problem->desc.weights == CLATTN_WEIGHTS_AVERAGE, reason));
    TRY(clattn_matmul_supports(context, &problem->output, reason));
fail:
    return status;
}

static void clear(clattn_plan *handle)
{
    struct mha_plan *plan = (struct mha_plan *)handle;
    for (size_t i = 0; i < MHA_PROJECTIONS; i++)
        clattn_plan_release(&plan->projection[i]);
    clattn_plan_release(&plan->attention);
    clattn_plan_release(&plan->weights);
    clattn_plan_release(&plan->output);
}

/* Counts a part's kernels and workspace into the whole. */
static void take_in(struct mha_plan *plan, const char *role, const clattn_plan *part, size_t *workspace)
{
    plan->base.launches += part->launches;
    *workspace = size_max(*workspace, part->workspace);
    strbuf_printf(&plan->base.explain, "%s: %s", role, clattn_plan_explain(part));
}

static clattn_status make(clattn_plan *handle, const clattn_plan_options *options)
{
    clattn_status status;
    struct mha_plan *plan = (struct mha_plan *)handle;
    const struct mha_problem *problem = &plan->problem;
    clattn_context *context = handle->context;
    size_t workspace = 0;
    handle->clear = clear;
    for (size_t i = 0; i < problem->projections; i++) {
        TRY(clattn_matmul_plan_create(context, &problem->projection[i].desc, NULL, &plan->projection[i]));
        take_in(plan, "projection", plan->projection[i], &workspace);
    }
    TRY(clattn_attention_plan_create(context, &problem->attention, options, &plan->attention));
    take_in(plan, "heads", plan->attention, &workspace);
    if (problem->desc.weights) {
        TRY(attention_weights_plan_create(context, &problem->attention, &problem->weights,
                                          problem->desc.weights == CLATTN_WEIGHTS_AVERAGE, &plan->weights));
        take_in(plan, "weights", plan->weights, &workspace);
    }
    TRY(clattn_matmul_plan_create(context, &problem->output, NULL, &plan->output));
    take_in(plan, "output", plan->output, &workspace);
    plan->part_workspace = problem->workspace * sizeof(float);
    if (!size_add(plan->part_workspace, workspace, &handle->workspace))
        return report_error(&context->device.report, CLATTN_ERROR_OVERFLOW, "mha: the workspace overflows");
    strbuf_printf(&handle->explain, "workspace of all %zu bytes\n", handle->workspace);
    if (handle->explain.failed)
        return report_error(&context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a plan");
    snprintf(plan->solver_names, sizeof plan->solver_names, "%s+%s+%s", plan->projection[0]->solver,
             plan->attention->solver, plan->output->solver);
    handle->solver = plan->solver_names;
fail:
    return status;
}

static const struct operator_class mha_class = {
    .name = "mha",
    .number = OPERATOR_MHA,
    .plan_bytes = sizeof(struct mha_plan),
    .problem_offset = offsetof(struct mha_plan, problem),
    .problem_bytes = sizeof(struct mha_problem),
    .desc_bytes = sizeof(clattn_mha_desc),
    .read = read_desc,
    .supports = supports,
    .make = make,
};

clattn_status clattn_mha_supports(clattn_context *context, const clattn_mha_desc *desc, const char **reason)
{
    return operator_supports(&mha_class, context, desc, reason);
}

clattn_status clattn_mha_plan_create(clattn_context *context, const clattn_mha_desc *desc,
                                     const clattn_plan_options *options, clattn_plan **plan)
{
    return operator_plan_create(&mha_class, context, desc, options, plan);
}

static clattn_status read_lengths(struct report *report, const clattn_mha_desc *desc, clattn_mha_args *args)
{
    if ((args->explicit_lengths != 0 && args->explicit_lengths != 1) || args->reserved != 0)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "explicit_lengths is neither 0 nor 1, or reserved not 0");
    if (!args->explicit_lengths) {
        args->batch = desc->batch;
        args->query_length = desc->query_length;
        args->key_length = desc->key_length;
    }
    if (!desc->cross)
        args->key_length = args->query_length;
    if (args->batch > desc->batch || args->query_length > desc->query_length ||
        args->key_length > desc->key_length)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "batch %zu, query length %zu or key length %zu is above the plan's %zu, %zu, %zu",
                            args->batch, args->query_length, args->key_length, desc->batch,
                            desc->query_length, desc->key_length);
    return CLATTN_SUCCESS;
}

/* Elements `at` in our workspace. */
static clattn_binding within(const struct chain *chain, size_t at)
{
    clattn_binding binding = chain->workspace;
    binding.offset = binding.offset / (int64_t)sizeof(float) + (int64_t)at;
    return binding;
}

/* The parts' own share of our workspace. */
static clattn_binding part_workspace(const struct mha_plan *plan, const struct chain *chain)
{
    clattn_binding binding = chain->workspace;
    binding.offset += (int64_t)plan->part_workspace;
    return binding;
}

static const clattn_binding *source_of(const clattn_mha_args *args, enum mha_source source)
{
    return source == SOURCE_X ? &args->x : source == SOURCE_CONTEXT ? &args->context : &args->context_value;
}

static void weight_of(const clattn_mha_args *args, enum mha_weight weight, clattn_binding *w,
                      clattn_binding *b)
{
    switch (weight) {
    case WEIGHT_Q: *w = args->w_q, *b = args->b_q; break;
    case WEIGHT_K: *w = args->w_k, *b = args->b_k; break;
    case WEIGHT_V: *w = args->w_v, *b = args->b_v; break;
    case WEIGHT_IN: *w = args->w_in, *b = args->b_in; break;
    }
}

static clattn_status enqueue_projection(struct mha_plan *plan, struct chain *chain, size_t index,
                                        const clattn_mha_args *args)
{
    const struct mha_projection *projection = &plan->problem.projection[index];
    clattn_matmul_args product = CLATTN_MATMUL_ARGS_INIT;
    struct step step;
    product.a = *source_of(args, projection->source);
    weight_of(args, projection->weight, &product.b, &product.bias);
    product.b.offset += (int64_t)projection->weight_offset;
    product.bias.offset += (int64_t)projection->bias_offset;
    product.c = within(chain, projection->output);
    product.explicit_lengths = 1;
    product.batch = args->batch;
    product.m = projection->source == SOURCE_X ? args->query_length : args->key_length;
    product.workspace = part_workspace(plan, chain);
    chain_step(chain, false, &step);
    clattn_status status = clattn_matmul_enqueue(plan->projection[index], chain->queue, &product,
                                                 step.wait_count, step.wait_list, step.event);
    if (status == CLATTN_SUCCESS)
        chain_stepped(chain, &step);
    return status;
}

static clattn_status enqueue_attention(struct mha_plan *plan, struct chain *chain,
                                       const clattn_mha_args *args)
{
    clattn_status status;
    const struct mha_problem *problem = &plan->problem;
    clattn_attention_args heads = CLATTN_ATTENTION_ARGS_INIT;
    struct step step;
    heads.query = within(chain, problem->query);
    heads.key = within(chain, problem->key);
    heads.value = within(chain, problem->value);
    heads.mask = args->mask;
    heads.output = within(chain, problem->attended);
    if (problem->desc.weights)
        heads.lse = within(chain, problem->lse);
    heads.explicit_lengths = 1;
    heads.batch = args->batch;
    heads.query_length = args->query_length;
    heads.key_length = args->key_length;
    heads.position = args->position;
    heads.workspace = part_workspace(plan, chain);
    chain_step(chain, false, &step);
    TRY(clattn_attention_enqueue(plan->attention, chain->queue, &heads, step.wait_count, step.wait_list,
                                 step.event));
    chain_stepped(chain, &step);
    if (problem->desc.weights) {
        chain_step(chain, false, &step);
        TRY(attention_weights_enqueue(plan->weights, chain->queue, &heads, &args->weights, step.wait_count,
                                      step.wait_list, step.event));
        chain_stepped(chain, &step);
    }
fail:
    return status;
}

static clattn_matmul_args output_args(const struct mha_plan *plan, const struct chain *chain,
                                      const clattn_mha_args *args)
{
    clattn_matmul_args product = CLATTN_MATMUL_ARGS_INIT;
    product.a = within(chain, plan->problem.attended);
    product.b = args->w_o;
    product.bias = args->b_o;
    product.c = args->y;
    product.explicit_lengths = 1;
    product.batch = args->batch;
    product.m = args->query_length;
    product.workspace = part_workspace(plan, chain);
    return product;
}

/* What is written to the caller's outputs, and what should not be bound at all, is checked before anything is
 * enqueued; the rest by the parts. */
static clattn_status check_outputs(struct mha_plan *plan, const struct chain *chain,
                                   const clattn_mha_args *args)
{
    clattn_status status = CLATTN_SUCCESS;
    clattn_context *context = plan->base.context;
    const clattn_mha_desc *desc = &plan->problem.desc;
    clattn_matmul_args product = output_args(plan, chain, args), checked;
    const struct {
        const clattn_binding *binding;
        const char *name;
        bool wanted;
    } optional[] = {
        {&args->context, "context", desc->cross},
        {&args->context_value, "context_value", plan->problem.separate_values},
        {&args->w_in, "w_in", desc->packed_weights},
        {&args->b_in, "b_in", desc->packed_weights && desc->bias_in},
        {&args->w_q, "w_q", !desc->packed_weights},
        {&args->w_k, "w_k", !desc->packed_weights},
        {&args->w_v, "w_v", !desc->packed_weights},
        {&args->b_q, "b_q", !desc->packed_weights && desc->bias_in},
        {&args->b_k, "b_k", !desc->packed_weights && desc->bias_in},
        {&args->b_v, "b_v", !desc->packed_weights && desc->bias_in},
        {&args->b_o, "b_o", desc->bias_out},
        {&args->weights, "weights", desc->weights != CLATTN_WEIGHTS_NONE},
    };
    for (size_t i = 0; i < sizeof optional / sizeof optional[0]; i++)
        if (!optional[i].wanted)
            TRY(binding_absent(context, optional[i].binding, optional[i].name));
    TRY(matmul_args_read(context, &((struct matmul_plan *)plan->output)->problem, &product, &checked));
    if (desc->weights) {
        const size_t extent[4] = {args->batch, plan->problem.weights.extent[1], args->query_length,
                                  args->key_length};
        TRY(binding_check(context, &args->weights, &plan->problem.weights, extent, BINDING_WRITE, "weights"));
    }
fail:
    return status;
}

static clattn_status enqueue_output(struct mha_plan *plan, struct chain *chain, const clattn_mha_args *args)
{
    clattn_matmul_args product = output_args(plan, chain, args);
    struct step step;
    chain_step(chain, true, &step);
    clattn_status status = clattn_matmul_enqueue(plan->output, chain->queue, &product, step.wait_count,
                                                 step.wait_list, step.event);
    if (status == CLATTN_SUCCESS)
        chain_stepped(chain, &step);
    return status;
}

static clattn_status enqueue_all(struct mha_plan *plan, struct chain *chain, const clattn_mha_args *args)
{
    clattn_status status;
    TRY(check_outputs(plan, chain, args));
    for (size_t i = 0; i < plan->problem.projections; i++)
        TRY(enqueue_projection(plan, chain, i, args));
    TRY(enqueue_attention(plan, chain, args));
    TRY(enqueue_output(plan, chain, args));
fail:
    return status;
}

clattn_status clattn_mha_enqueue(clattn_plan *handle, cl_command_queue queue, const clattn_mha_args *given,
                                 cl_uint wait_count, const cl_event *wait_list, cl_event *event)
{
    clattn_status status;
    TRY(plan_check(handle, OPERATOR_MHA));
    struct mha_plan *plan = (struct mha_plan *)handle;
    struct report *report = &handle->context->device.report;
    clattn_mha_args args;
    struct chain chain;
    status = struct_read(&args, sizeof args, sizeof args, given);
    if (status != CLATTN_SUCCESS)
        return report_error(report, status,
                            "args is NULL, or its size is none that clattn_mha_args ever had");
    TRY(read_lengths(report, &plan->problem.desc, &args));
    bool empty = !args.batch || !args.query_length;
    status = chain_begin(&chain, handle->context, queue, wait_count, wait_list, event,
                         empty ? 0 : handle->workspace, &args.workspace);
    if (status != CLATTN_SUCCESS)
        return chain_end(&chain, status, event);
    status = empty ? chain_marker(&chain) : enqueue_all(plan, &chain, &args);
    return chain_end(&chain, status, event);
fail:
    return status;
}

clattn_status clattn_mha_prewarm(clattn_context *context, const clattn_mha_desc *desc)
{
    return operator_prewarm(&mha_class, context, desc);
}

clattn_status clattn_mha_run(clattn_context *context, cl_command_queue queue, const clattn_mha_desc *desc,
                             const clattn_mha_args *args, cl_uint wait_count, const cl_event *wait_list,
                             cl_event *event)
{
    clattn_status status;
    clattn_plan *plan;
    TRY(operator_plan_find(&mha_class, context, desc, &plan));
    status = clattn_mha_enqueue(plan, queue, args, wait_count, wait_list, event);
    clattn_plan_release(&plan);
fail:
    return status;
}
