/* Multi-head attention: plans and enqueues its products and its attention. */
#include "nn/mha/mha.h"

#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "nn/graph/graph.h"
#include "ops/common/arrays.h"
#include "ops/attention/scores.h"
#include "plan/operator.h"

struct mha_plan {
    clattn_plan base;
    struct mha_problem problem;
    struct graph graph;
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
    TRY(clattn_matmul_supports(context, &problem->output.desc, reason));
fail:
    return status;
}

static void clear(clattn_plan *handle)
{
    graph_clear(&((struct mha_plan *)handle)->graph);
}

/* The caller's array in that slot; operators get no binding of one that is absent. */
static struct graph_operand caller_array(struct graph *graph, const struct mha_problem *problem, enum mha_slot slot,
                                         size_t offset)
{
    return operand_at(graph_bound_array(graph, problem->desc.dtype, slot, 0), offset);
}

static clattn_status add_product(struct mha_plan *plan, const struct mha_product *p, enum graph_number length,
                                 struct graph_operand a, struct graph_operand c)
{
    struct graph_step step = {.op = GRAPH_MATMUL, .batch = NUMBER_BATCH, .length = length};
    step.operand[MATMUL_A] = a;
    step.operand[MATMUL_B] = caller_array(&plan->graph, &plan->problem, p->weight, p->weight_offset);
    step.operand[MATMUL_BIAS] = caller_array(&plan->graph, &plan->problem, p->bias, p->bias_offset);
    step.operand[MATMUL_C] = c;
    return graph_add_operator(&plan->graph, &step, &p->desc, NULL);
}

/* The attention, and the weights if they are an output. */
static clattn_status add_attention(struct mha_plan *plan, const struct graph_operand parts[MHA_PARTS],
                                   struct graph_operand attended, const clattn_plan_options *options)
{
    clattn_status status;
    const struct mha_problem *problem = &plan->problem;
    const clattn_mha_desc *d = &problem->desc;
    struct graph *graph = &plan->graph;
    struct graph_step step = {.op = GRAPH_ATTENTION,
                              .batch = NUMBER_BATCH,
                              .length = NUMBER_LENGTH,
                              .keys = NUMBER_KEYS,
                              .position = NUMBER_POSITION};
    struct graph_weights_desc weights;
    step.operand[HEADS_QUERY] = parts[MHA_QUERY];
    step.operand[HEADS_KEY] = parts[MHA_KEY];
    step.operand[HEADS_VALUE] = parts[MHA_VALUE];
    step.operand[HEADS_OUTPUT] = attended;
    step.operand[HEADS_MASK] = caller_array(graph, problem, SLOT_MASK, 0);
    if (d->weights)
        step.operand[HEADS_LSE] =
            operand_of(graph_arena_array(graph, CLATTN_DTYPE_F32, d->batch * d->heads * d->query_length));
    TRY(graph_add_operator(graph, &step, &problem->attention, options));
    if (!d->weights)
        return CLATTN_SUCCESS;
    step.op = GRAPH_WEIGHTS;
    step.operand[HEADS_WEIGHTS] = caller_array(graph, problem, SLOT_WEIGHTS, 0);
    struct_init(&weights, sizeof weights);
    weights.attention = problem->attention;
    weights.layout = problem->weights;
    weights.average = d->weights == CLATTN_WEIGHTS_OUTPUT_AVERAGE;
    status = graph_add_operator(graph, &step, &weights, NULL);
fail:
    return status;
}

static clattn_status add_all(struct mha_plan *plan, const clattn_plan_options *options)
{
    clattn_status status;
    const struct mha_problem *problem = &plan->problem;
    const clattn_mha_desc *d = &problem->desc;
    struct graph *graph = &plan->graph;
    const size_t rows = d->batch * d->query_length, first_key = d->cross ? 0 : problem->inner;
    const int queries = graph_arena_array(graph, d->dtype, rows * problem->query_stride);
    const int keys =
        d->cross ? graph_arena_array(graph, d->dtype, d->batch * d->key_length * problem->kv_stride) : queries;
    const struct graph_operand parts[MHA_PARTS] = {[MHA_QUERY] = operand_of(queries),
                                                   [MHA_KEY] = operand_at(keys, first_key),
                                                   [MHA_VALUE] = operand_at(keys, first_key + problem->inner_kv)};
    const struct graph_operand attended = operand_of(graph_arena_array(graph, d->dtype, rows * problem->inner));
    for (size_t i = 0; i < problem->projections; i++) {
        const struct mha_product *p = &problem->projection[i];
        TRY(add_product(plan, p, p->source == SLOT_X ? NUMBER_LENGTH : NUMBER_KEYS,
                        caller_array(graph, problem, p->source, 0), parts[p->part]));
    }
    TRY(add_attention(plan, parts, attended, options));
    TRY(add_product(plan, &problem->output, NUMBER_LENGTH, attended, caller_array(graph, problem, SLOT_Y, 0)));
    status = graph_finish(graph);
fail:
    return status;
}

/* Describes a graph of projections, attention, perhaps its weights, and the output. */
static void explain(struct mha_plan *plan)
{
    const struct graph *graph = &plan->graph;
    const size_t attention = plan->problem.projections, output = graph->step_count - 1;
    for (size_t i = 0; i < graph->step_count; i++)
        strbuf_printf(&plan->base.explain, "%s: %s",
                      i < attention    ? "projection"
                      : i == attention ? "heads"
                      : i == output    ? "output"
                                       : "weights",
                      clattn_plan_explain(graph->steps[i].plan));
    strbuf_printf(&plan->base.explain, "workspace of all %zu bytes\n", plan->base.workspace);
    plan_explain_workspace(&plan->base);
    snprintf(plan->solver_names, sizeof plan->solver_names, "%s+%s+%s", graph->steps[0].plan->solver,
             graph->steps[attention].plan->solver, graph->steps[output].plan->solver);
}

static clattn_status make(clattn_plan *handle, const clattn_plan_options *options)
{
    clattn_status status;
    struct mha_plan *plan = (struct mha_plan *)handle;
    handle->clear = clear;
    TRY(graph_begin(&plan->graph, handle->context));
    TRY(add_all(plan, options));
    handle->workspace = plan->graph.arena;
    handle->launches = plan->graph.launches;
    handle->solver = plan->solver_names;
    explain(plan);
    if (handle->explain.failed)
        return report_error(&handle->context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a plan");
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

/* ---- enqueueing ---- */

/* The caller's arrays by slot, for bindings_absent and for messages. */
static void list_arrays(const struct mha_problem *problem, const clattn_mha_args *args, struct bound_array *arrays)
{
    const clattn_mha_desc *d = &problem->desc;
    const bool packed = d->packed_weights, bias = d->bias_in;
    const struct bound_array all[MHA_SLOTS] = {
        [SLOT_X] = {&args->x, .name = "x", .present = true},
        [SLOT_CONTEXT] = {&args->context, .name = "context", .present = d->cross},
        [SLOT_CONTEXT_VALUE] = {&args->context_value, .name = "context_value", .present = problem->separate_values},
        [SLOT_W_IN] = {&args->w_in, .name = "w_in", .present = packed},
        [SLOT_B_IN] = {&args->b_in, .name = "b_in", .present = packed && bias},
        [SLOT_W_Q] = {&args->w_q, .name = "w_q", .present = !packed},
        [SLOT_W_K] = {&args->w_k, .name = "w_k", .present = !packed},
        [SLOT_W_V] = {&args->w_v, .name = "w_v", .present = !packed},
        [SLOT_B_Q] = {&args->b_q, .name = "b_q", .present = !packed && bias},
        [SLOT_B_K] = {&args->b_k, .name = "b_k", .present = !packed && bias},
        [SLOT_B_V] = {&args->b_v, .name = "b_v", .present = !packed && bias},
        [SLOT_W_O] = {&args->w_o, .name = "w_o", .present = true},
        [SLOT_B_O] = {&args->b_o, .name = "b_o", .present = d->bias_out},
        [SLOT_MASK] = {&args->mask, .name = "mask", .present = d->mask.rank != 0},
        [SLOT_Y] = {&args->y, .name = "y", .present = true},
        [SLOT_WEIGHTS] = {&args->weights, .name = "weights", .present = d->weights != CLATTN_WEIGHTS_OUTPUT_NONE},
    };
    memcpy(arrays, all, sizeof all);
}

/* Adds an array, if it is there, from element `offset` on. */
static void add(struct bound_list *list, const struct bound_array *array, size_t offset, const clattn_layout *layout,
                const size_t *extent, enum binding_access access)
{
    clattn_binding binding = *array->binding;
    /* An offset that wraps is negative, and refused. */
    binding.offset = (int64_t)((uint64_t)binding.offset + offset);
    if (array->present)
        bound_add(list, &binding, layout, extent, access, array->name);
}

/* Adds the weight and the bias that a product reads. */
static void add_weight(struct bound_list *list, const struct mha_product *p, const struct bound_array *arrays)
{
    add(list, &arrays[p->weight], p->weight_offset, &p->desc.b, p->desc.b.extent, BINDING_READ);
    add(list, &arrays[p->bias], p->bias_offset, &p->desc.bias, p->desc.bias.extent, BINDING_READ);
}

/* Checks all bindings before anything is enqueued. */
static clattn_status check_bindings(const struct mha_plan *plan, const clattn_mha_args *args,
                                    const struct bound_array *arrays)
{
    clattn_status status;
    clattn_context *context = plan->base.context;
    const struct mha_problem *problem = &plan->problem;
    const clattn_mha_desc *d = &problem->desc;
    const size_t y[3] = {args->batch, args->query_length, d->d_model};
    const size_t scores[4] = {args->batch, d->heads, args->query_length, args->key_length};
    const size_t weights[4] = {args->batch, problem->weights.extent[1], args->query_length, args->key_length};
    size_t masked[4];
    const clattn_layout mask = mask_reach(&d->mask, scores, masked);
    struct bound_list list;
    list.count = 0;
    TRY(bindings_absent(context, arrays + 1, MHA_SLOTS - 1));
    for (size_t i = 0; i < problem->projections; i++) {
        const struct mha_product *p = &problem->projection[i];
        const size_t length = p->source == SLOT_X ? args->query_length : args->key_length;
        const size_t rows[3] = {args->batch, length, p->desc.a.extent[2]};
        if (!length)
            continue;
        add(&list, &arrays[p->source], 0, &p->desc.a, rows, BINDING_READ);
        add_weight(&list, p, arrays);
    }
    add(&list, &arrays[SLOT_MASK], 0, &mask, masked, BINDING_READ);
    add_weight(&list, &problem->output, arrays);
    add(&list, &arrays[SLOT_Y], 0, &problem->output.desc.c, y, BINDING_WRITE);
    add(&list, &arrays[SLOT_WEIGHTS], 0, &problem->weights, weights, BINDING_WRITE);
    TRY(bindings_check(context, list.array, list.count));
fail:
    return status;
}

static clattn_status enqueue(const clattn_plan *handle, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct mha_plan *plan = (const struct mha_plan *)handle;
    struct report *report = &handle->context->device.report;
    struct bound_array arrays[MHA_SLOTS];
    clattn_binding bound[MHA_SLOTS] = {0};
    clattn_mha_args args;
    TRY(args_read(report, "clattn_mha_args", &args, sizeof args, sizeof args, given));
    TRY(read_lengths(report, &plan->problem.desc, &args));
    if (!args.batch || !args.query_length)
        return plan_enqueue_nothing(handle, call);
    list_arrays(&plan->problem, &args, arrays);
    TRY(check_bindings(plan, &args, arrays));
    for (int slot = 1; slot < MHA_SLOTS; slot++)
        bound[slot] = *arrays[slot].binding;
    const struct graph_run run = {.bound = bound,
                                  .number = {[NUMBER_ONE] = 1,
                                             [NUMBER_BATCH] = args.batch,
                                             [NUMBER_LENGTH] = args.query_length,
                                             [NUMBER_KEYS] = args.key_length,
                                             [NUMBER_POSITION] = (size_t)args.position}};
    status = graph_enqueue(&plan->graph, call, &run, &args.workspace);
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
