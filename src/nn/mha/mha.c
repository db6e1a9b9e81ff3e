/* Multi-head attention: plans and enqueues its products and its attention. */
#include "nn/mha/mha.h"

#include <stdio.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/attention/scores.h"
#include "ops/matmul/matmul.h"
#include "plan/operator.h"

struct mha_plan {
    clattn_plan base;
    struct mha_problem problem;
    clattn_plan *projection[MHA_PROJECTIONS], *attention, *weights, *output;
    size_t part_workspace; /* bytes from the start of the workspace to the operators' own workspace, which they share */
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
                                       problem->desc.weights == CLATTN_WEIGHTS_OUTPUT_AVERAGE, reason));
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

/* Adds an operator's launches, workspace and explain text to the plan's. */
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
                                          problem->desc.weights == CLATTN_WEIGHTS_OUTPUT_AVERAGE, &plan->weights));
        take_in(plan, "weights", plan->weights, &workspace);
    }
    TRY(clattn_matmul_plan_create(context, &problem->output, NULL, &plan->output));
    take_in(plan, "output", plan->output, &workspace);
    plan->part_workspace = problem->workspace;
    if (!size_add(plan->part_workspace, workspace, &handle->workspace))
        return report_error(&context->device.report, CLATTN_ERROR_OVERFLOW, "mha: the workspace overflows");
    strbuf_printf(&handle->explain, "workspace of all %zu bytes\n", handle->workspace);
    plan_explain_workspace(handle);
    if (handle->explain.failed)
        return report_error(&context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a plan");
    snprintf(plan->solver_names, sizeof plan->solver_names, "%s+%s+%s", plan->projection[0]->solver,
             plan->attention->solver, plan->output->solver);
    handle->solver = plan->solver_names;
fail:
    return status;
}

static clattn_status read_lengths(struct report *report, const clattn_mha_desc *desc, clattn_mha_args *args)
{
    clattn_status status = args_check(report, "explicit_lengths", args->explicit_lengths, args->reserved);
    if (status != CLATTN_SUCCESS)
        return status;
    if (!args->explicit_lengths) {
        args->batch = desc->batch;
        args->query_length = desc->query_length;
        args->key_length = desc->key_length;
    }
    if (!desc->cross)
        args->key_length = args->query_length;
    if (args->batch > desc->batch || args->query_length > desc->query_length || args->key_length > desc->key_length)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "batch %zu, query length %zu or key length %zu is above the plan's %zu, %zu, %zu",
                            args->batch, args->query_length, args->key_length, desc->batch, desc->query_length,
                            desc->key_length);
    return CLATTN_SUCCESS;
}

/* The array that lies `at` bytes into the workspace, whose offset is in bytes. */
static clattn_binding within(const struct chain *chain, clattn_dtype dtype, size_t at)
{
    clattn_binding binding = chain->workspace;
    binding.offset = (binding.offset + (int64_t)at) / (int64_t)clattn_dtype_size((clattn_dtype)dtype);
    return binding;
}

/* The part of the workspace that the operators use as theirs. */
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

/* The rows of each item of a source in this enqueue. */
static size_t rows_of_source(const clattn_mha_args *args, enum mha_source source)
{
    return source == SOURCE_X ? args->query_length : args->key_length;
}

static void bind_weight(const clattn_mha_args *args, const struct mha_projection *projection, clattn_binding *weight,
                        clattn_binding *bias)
{
    switch (projection->weight) {
    case WEIGHT_Q: *weight = args->w_q, *bias = args->b_q; break;
    case WEIGHT_K: *weight = args->w_k, *bias = args->b_k; break;
    case WEIGHT_V: *weight = args->w_v, *bias = args->b_v; break;
    case WEIGHT_IN: *weight = args->w_in, *bias = args->b_in; break;
    }
    /* An offset that wraps is negative, and refused. */
    weight->offset = (int64_t)((uint64_t)weight->offset + projection->weight_offset);
    bias->offset = (int64_t)((uint64_t)bias->offset + projection->bias_offset);
}

/* Notes an operator's enqueue; one that failed may have enqueued some of its kernels. */
static clattn_status part_enqueued(struct chain *chain, struct step *step, clattn_status status)
{
    if (status == CLATTN_SUCCESS)
        chain_stepped(chain, step);
    else
        chain_failed(chain, step);
    return status;
}

static clattn_status enqueue_projection(const struct mha_plan *plan, struct chain *chain, size_t index,
                                        const clattn_mha_args *args)
{
    const struct mha_projection *projection = &plan->problem.projection[index];
    clattn_matmul_args product = CLATTN_MATMUL_ARGS_INIT;
    struct step step;
    product.a = *source_of(args, projection->source);
    bind_weight(args, projection, &product.b, &product.bias);
    product.c = within(chain, plan->problem.desc.dtype, projection->output);
    product.explicit_lengths = 1;
    product.batch = args->batch;
    product.m = rows_of_source(args, projection->source);
    product.workspace = part_workspace(plan, chain);
    chain_step(chain, false, &step);
    return part_enqueued(chain, &step,
                         clattn_matmul_enqueue(plan->projection[index], chain->queue, &product, step.wait_count,
                                               step.wait_list, step.event));
}

static clattn_status enqueue_attention(const struct mha_plan *plan, struct chain *chain, const clattn_mha_args *args)
{
    clattn_status status;
    const struct mha_problem *problem = &plan->problem;
    const clattn_dtype dtype = problem->desc.dtype;
    clattn_attention_args heads = CLATTN_ATTENTION_ARGS_INIT;
    struct step step;
    heads.query = within(chain, dtype, problem->query);
    heads.key = within(chain, dtype, problem->key);
    heads.value = within(chain, dtype, problem->value);
    heads.mask = args->mask;
    heads.output = within(chain, dtype, problem->attended);
    if (problem->desc.weights)
        heads.outputs.lse = within(chain, CLATTN_DTYPE_F32, problem->lse);
    heads.explicit_lengths = 1;
    heads.batch = args->batch;
    heads.query_length = args->query_length;
    heads.key_length = args->key_length;
    heads.position = args->position;
    heads.workspace = part_workspace(plan, chain);
    chain_step(chain, false, &step);
    TRY(part_enqueued(
        chain, &step,
        clattn_attention_enqueue(plan->attention, chain->queue, &heads, step.wait_count, step.wait_list, step.event)));
    if (problem->desc.weights) {
        chain_step(chain, false, &step);
        const struct enqueue_call call = chain_call(chain, &step);
        TRY(part_enqueued(chain, &step, attention_weights_enqueue(plan->weights, &call, &heads, &args->weights)));
    }
fail:
    return status;
}

/* Checks the arrays that a projection reads from the caller: rows, weight and bias. */
static clattn_status check_projection(clattn_context *context, const struct mha_projection *projection,
                                      const clattn_mha_args *args)
{
    static const char *const sources[] = {"x", "context", "context_value"};
    static const char *const weights[] = {"w_in", "w_q", "w_k", "w_v"};
    static const char *const biases[] = {"b_in", "b_q", "b_k", "b_v"};
    clattn_status status = CLATTN_SUCCESS;
    const clattn_matmul_desc *desc = &projection->desc;
    const size_t rows[3] = {args->batch, rows_of_source(args, projection->source), desc->a.extent[2]};
    clattn_binding weight, bias;
    if (!rows[1])
        return CLATTN_SUCCESS;
    bind_weight(args, projection, &weight, &bias);
    TRY(binding_check(context, source_of(args, projection->source), &desc->a, rows, BINDING_READ,
                      sources[projection->source]));
    TRY(binding_check(context, &weight, &desc->b, desc->b.extent, BINDING_READ, weights[projection->weight]));
    if (desc->bias.rank)
        TRY(binding_check(context, &bias, &desc->bias, desc->bias.extent, BINDING_READ, biases[projection->weight]));
fail:
    return status;
}

/* The attention checks the mask too, but only after the projections have been enqueued. */
static clattn_status check_mask(const struct mha_plan *plan, const clattn_mha_args *args)
{
    const clattn_mha_desc *desc = &plan->problem.desc;
    const size_t size[4] = {args->batch, desc->heads, args->query_length, args->key_length};
    size_t reach[4];
    const clattn_layout mask = mask_reach(&desc->mask, size, reach);
    if (!desc->mask.rank)
        return CLATTN_SUCCESS;
    return binding_check(plan->base.context, &args->mask, &mask, reach, BINDING_READ, "mask");
}

static clattn_status check_outputs(const struct mha_plan *plan, const clattn_mha_args *args)
{
    clattn_status status = CLATTN_SUCCESS;
    clattn_context *context = plan->base.context;
    const clattn_matmul_desc *desc = &plan->problem.output;
    const size_t y[3] = {args->batch, args->query_length, plan->problem.desc.d_model};
    const size_t weights[4] = {args->batch, plan->problem.weights.extent[1], args->query_length, args->key_length};
    TRY(binding_check(context, &args->w_o, &desc->b, desc->b.extent, BINDING_READ, "w_o"));
    if (desc->bias.rank)
        TRY(binding_check(context, &args->b_o, &desc->bias, desc->bias.extent, BINDING_READ, "b_o"));
    TRY(binding_check(context, &args->y, &desc->c, y, access_of_output(plan->output), "y"));
    if (plan->problem.desc.weights)
        TRY(binding_check(context, &args->weights, &plan->problem.weights, weights, BINDING_WRITE, "weights"));
fail:
    return status;
}

/* Checks all bindings before anything is enqueued. */
static clattn_status check_bindings(const struct mha_plan *plan, const clattn_mha_args *args)
{
    clattn_status status = CLATTN_SUCCESS;
    clattn_context *context = plan->base.context;
    const clattn_mha_desc *desc = &plan->problem.desc;
    const struct bound_array optional[] = {
        {&args->context, .name = "context", .present = desc->cross},
        {&args->context_value, .name = "context_value", .present = plan->problem.separate_values},
        {&args->w_in, .name = "w_in", .present = desc->packed_weights},
        {&args->b_in, .name = "b_in", .present = desc->packed_weights && desc->bias_in},
        {&args->w_q, .name = "w_q", .present = !desc->packed_weights},
        {&args->w_k, .name = "w_k", .present = !desc->packed_weights},
        {&args->w_v, .name = "w_v", .present = !desc->packed_weights},
        {&args->b_q, .name = "b_q", .present = !desc->packed_weights && desc->bias_in},
        {&args->b_k, .name = "b_k", .present = !desc->packed_weights && desc->bias_in},
        {&args->b_v, .name = "b_v", .present = !desc->packed_weights && desc->bias_in},
        {&args->b_o, .name = "b_o", .present = desc->bias_out},
        {&args->mask, .name = "mask", .present = desc->mask.rank != 0},
        {&args->weights, .name = "weights", .present = desc->weights != CLATTN_WEIGHTS_OUTPUT_NONE},
    };
    TRY(bindings_absent(context, optional, COUNT_OF(optional)));
    for (size_t i = 0; i < plan->problem.projections; i++)
        TRY(check_projection(context, &plan->problem.projection[i], args));
    TRY(check_mask(plan, args));
    TRY(check_outputs(plan, args));
fail:
    return status;
}

static clattn_status enqueue_output(const struct mha_plan *plan, struct chain *chain, const clattn_mha_args *args)
{
    clattn_matmul_args product = CLATTN_MATMUL_ARGS_INIT;
    struct step step;
    product.a = within(chain, plan->problem.desc.dtype, plan->problem.attended);
    product.b = args->w_o;
    product.bias = args->b_o;
    product.c = args->y;
    product.explicit_lengths = 1;
    product.batch = args->batch;
    product.m = args->query_length;
    product.workspace = part_workspace(plan, chain);
    chain_step(chain, true, &step);
    return part_enqueued(
        chain, &step,
        clattn_matmul_enqueue(plan->output, chain->queue, &product, step.wait_count, step.wait_list, step.event));
}

static clattn_status enqueue_all(const struct mha_plan *plan, struct chain *chain, const clattn_mha_args *args)
{
    clattn_status status;
    for (size_t i = 0; i < plan->problem.projections; i++)
        TRY(enqueue_projection(plan, chain, i, args));
    TRY(enqueue_attention(plan, chain, args));
    TRY(enqueue_output(plan, chain, args));
fail:
    return status;
}

static clattn_status enqueue(const clattn_plan *handle, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct mha_plan *plan = (const struct mha_plan *)handle;
    struct report *report = &handle->context->device.report;
    clattn_mha_args args;
    struct chain chain;
    TRY(args_read(report, "clattn_mha_args", &args, sizeof args, sizeof args, given));
    TRY(read_lengths(report, &plan->problem.desc, &args));
    if (!args.batch || !args.query_length)
        return plan_enqueue_nothing(handle, call);
    TRY(check_bindings(plan, &args));
    status = chain_begin(&chain, handle->context, call, &args.workspace);
    if (status == CLATTN_SUCCESS)
        status = enqueue_all(plan, &chain, &args);
    return chain_end(&chain, status);
fail:
    return status;
}

static const struct operator_type mha_operator = {
    .name = "mha",
    .bytes = OPERATOR_BYTES(mha),
    .read = read_desc,
    .enqueue = enqueue,
    .supports = supports,
    .make = make,
};

OPERATOR_CALLS(mha, clattn_mha_desc_init, clattn_mha_args_init, clattn_mha_supports, clattn_mha_plan_create,
               clattn_mha_enqueue, clattn_mha_prewarm, clattn_mha_run)
