/* Enqueueing a graph: the arguments of operators, and the steps that are OpenCL's own commands. */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "nn/graph/graph.h"
#include "ops/attention/scores.h"

#define PATTERN 128 /* bytes: the longest that clEnqueueFillBuffer takes */

struct runner {
    const struct graph *graph;
    struct chain *chain;
    const struct graph_run *run;
};

static bool is_bound(const struct runner *r, int slot)
{
    return !binding_is_none(&r->run->bound[slot]);
}

/* The array's binding in this enqueue. */
static clattn_binding resolve(const struct runner *r, int index)
{
    const struct graph_array *array = &r->graph->arrays[index];
    clattn_binding binding = r->chain->workspace;
    switch (array->place) {
    case GRAPH_BOUND:
        return is_bound(r, array->slot) || !array->fallback ? r->run->bound[array->slot] : resolve(r, array->fallback);
    case GRAPH_FIXED: return array->fixed;
    case GRAPH_ARENA:
        binding.offset = (binding.offset + (int64_t)array->at) / (int64_t)clattn_dtype_size(array->dtype);
        return binding;
    default: return (clattn_binding){0};
    }
}

static clattn_binding bind(const struct runner *r, const struct graph_step *step, int operand)
{
    clattn_binding binding = resolve(r, step->operand[operand].array);
    /* An offset that wraps is negative, and refused. */
    binding.offset = (int64_t)((uint64_t)binding.offset + (uint64_t)step->operand[operand].offset);
    return binding;
}

static size_t number(const struct runner *r, enum graph_number which)
{
    if (which < GRAPH_NUMBERS)
        return r->run->number[which];
    const struct graph_multiple *multiple = &r->graph->multiples[which - GRAPH_NUMBERS];
    return multiple->factor * r->run->number[multiple->of];
}

static int64_t position(const struct runner *r, const struct graph_step *step)
{
    return step->position ? (int64_t)number(r, step->position) : 0;
}

static clattn_binding workspace(const struct runner *r, const struct graph_step *step)
{
    return resolve(r, step->workspace);
}

/* ---- operators ---- */

static clattn_status matmul(const struct runner *r, const struct graph_step *s, struct step *step)
{
    clattn_matmul_args args = CLATTN_MATMUL_ARGS_INIT;
    args.a = bind(r, s, MATMUL_A);
    args.b = bind(r, s, MATMUL_B);
    args.bias = bind(r, s, MATMUL_BIAS);
    args.c = bind(r, s, MATMUL_C);
    args.operand = bind(r, s, MATMUL_OPERAND);
    args.b_scale = bind(r, s, MATMUL_B_SCALE);
    args.gradients.c = bind(r, s, MATMUL_C_GRADIENT);
    args.gradients.a = bind(r, s, MATMUL_A_GRADIENT);
    args.gradients.b = bind(r, s, MATMUL_B_GRADIENT);
    args.gradients.bias = bind(r, s, MATMUL_BIAS_GRADIENT);
    args.gradients.operand = bind(r, s, MATMUL_OPERAND_GRADIENT);
    args.explicit_lengths = 1;
    args.batch = number(r, s->batch);
    args.m = number(r, s->length);
    args.workspace = workspace(r, s);
    args.prepack = s->prepacked ? CLATTN_PREPACK_PACKED : CLATTN_PREPACK_NONE;
    args.control = r->chain->control;
    return clattn_matmul_enqueue(s->plan, r->chain->queue, &args, step->wait_count, step->wait_list, step->event);
}

static clattn_status attention(const struct runner *r, const struct graph_step *s, struct step *step)
{
    clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT;
    args.query = bind(r, s, HEADS_QUERY);
    args.key = bind(r, s, HEADS_KEY);
    args.value = bind(r, s, HEADS_VALUE);
    args.mask = bind(r, s, HEADS_MASK);
    args.bias = bind(r, s, HEADS_BIAS);
    args.output = bind(r, s, HEADS_OUTPUT);
    args.outputs.lse = bind(r, s, HEADS_LSE);
    args.lengths.query = bind(r, s, HEADS_QUERY_LENGTHS);
    args.lengths.key = bind(r, s, HEADS_KEY_LENGTHS);
    args.lengths.positions = bind(r, s, HEADS_POSITIONS);
    args.gradients.output = bind(r, s, HEADS_OUTPUT_GRADIENT);
    args.gradients.query = bind(r, s, HEADS_QUERY_GRADIENT);
    args.gradients.key = bind(r, s, HEADS_KEY_GRADIENT);
    args.gradients.value = bind(r, s, HEADS_VALUE_GRADIENT);
    args.explicit_lengths = 1;
    args.batch = number(r, s->batch);
    args.query_length = number(r, s->length);
    args.key_length = number(r, s->keys);
    args.position = position(r, s);
    args.workspace = workspace(r, s);
    args.control = r->chain->control;
    if (s->op == GRAPH_WEIGHTS) {
        clattn_binding weights = bind(r, s, HEADS_WEIGHTS);
        const struct enqueue_call call = chain_call(r->chain, step);
        return attention_weights_enqueue(s->plan, &call, &args, &weights);
    }
    return clattn_attention_enqueue(s->plan, r->chain->queue, &args, step->wait_count, step->wait_list, step->event);
}

static clattn_status norm(const struct runner *r, const struct graph_step *s, struct step *step)
{
    clattn_norm_args args = CLATTN_NORM_ARGS_INIT;
    args.x = bind(r, s, NORM_X);
    args.y = bind(r, s, NORM_Y);
    args.scale = bind(r, s, NORM_SCALE);
    args.bias = bind(r, s, NORM_BIAS);
    args.gradients.y = bind(r, s, NORM_Y_GRADIENT);
    args.gradients.sum = bind(r, s, NORM_SUM_GRADIENT);
    args.gradients.x = bind(r, s, NORM_X_GRADIENT);
    args.gradients.scale = bind(r, s, NORM_SCALE_GRADIENT);
    args.gradients.bias = bind(r, s, NORM_BIAS_GRADIENT);
    args.explicit_batch = 1;
    args.batch = number(r, s->batch);
    args.workspace = workspace(r, s);
    args.control = r->chain->control;
    return clattn_norm_enqueue(s->plan, r->chain->queue, &args, step->wait_count, step->wait_list, step->event);
}

static clattn_status embedding(const struct runner *r, const struct graph_step *s, struct step *step)
{
    clattn_embedding_args args = CLATTN_EMBEDDING_ARGS_INIT;
    args.ids = bind(r, s, EMBEDDING_IDS);
    args.table = bind(r, s, EMBEDDING_TABLE);
    args.y = bind(r, s, EMBEDDING_Y);
    args.position_table = bind(r, s, EMBEDDING_POSITION_TABLE);
    args.offsets = bind(r, s, EMBEDDING_OFFSETS);
    args.segments = bind(r, s, EMBEDDING_SEGMENTS);
    args.segment_table = bind(r, s, EMBEDDING_SEGMENT_TABLE);
    args.gradients.table = bind(r, s, EMBEDDING_TABLE_GRADIENT);
    args.gradients.y = bind(r, s, EMBEDDING_Y_GRADIENT);
    args.workspace = workspace(r, s);
    args.explicit_lengths = 1;
    args.batch = number(r, s->batch);
    args.length = number(r, s->length);
    args.position = position(r, s);
    args.control = r->chain->control;
    return clattn_embedding_enqueue(s->plan, r->chain->queue, &args, step->wait_count, step->wait_list, step->event);
}

static clattn_status rope(const struct runner *r, const struct graph_step *s, struct step *step)
{
    clattn_rope_args args = CLATTN_ROPE_ARGS_INIT;
    args.x = bind(r, s, ROPE_X);
    args.y = bind(r, s, ROPE_Y);
    args.offsets = bind(r, s, ROPE_OFFSETS);
    args.cos = bind(r, s, ROPE_COS);
    args.sin = bind(r, s, ROPE_SIN);
    args.gradients.x = bind(r, s, ROPE_X_GRADIENT);
    args.gradients.y = bind(r, s, ROPE_Y_GRADIENT);
    args.explicit_lengths = 1;
    args.batch = number(r, s->batch);
    args.length = number(r, s->length);
    args.position = position(r, s);
    args.control = r->chain->control;
    return clattn_rope_enqueue(s->plan, r->chain->queue, &args, step->wait_count, step->wait_list, step->event);
}

static clattn_status append(const struct runner *r, const struct graph_step *s, struct step *step)
{
    clattn_kv_append_args args = CLATTN_KV_APPEND_ARGS_INIT;
    args.key = bind(r, s, APPEND_KEY);
    args.value = bind(r, s, APPEND_VALUE);
    args.key_cache = bind(r, s, APPEND_KEY_CACHE);
    args.value_cache = bind(r, s, APPEND_VALUE_CACHE);
    args.past_lengths = bind(r, s, APPEND_PAST_LENGTHS);
    args.new_lengths = bind(r, s, APPEND_NEW_LENGTHS);
    args.explicit_lengths = 1;
    args.batch = number(r, s->batch);
    args.length = number(r, s->length);
    args.past_length = s->operand[APPEND_PAST_LENGTHS].array ? 0 : position(r, s);
    args.control = r->chain->control;
    return clattn_kv_append_enqueue(s->plan, r->chain->queue, &args, step->wait_count, step->wait_list, step->event);
}

static clattn_status conv2d(const struct runner *r, const struct graph_step *s, struct step *step)
{
    clattn_conv2d_args args = CLATTN_CONV2D_ARGS_INIT;
    args.x = bind(r, s, CONV2D_X);
    args.weight = bind(r, s, CONV2D_WEIGHT);
    args.bias = bind(r, s, CONV2D_BIAS);
    args.operand = bind(r, s, CONV2D_OPERAND);
    args.y = bind(r, s, CONV2D_Y);
    args.explicit_batch = 1;
    args.batch = number(r, s->batch);
    args.workspace = workspace(r, s);
    args.control = r->chain->control;
    return clattn_conv2d_enqueue(s->plan, r->chain->queue, &args, step->wait_count, step->wait_list, step->event);
}

static clattn_status resize(const struct runner *r, const struct graph_step *s, struct step *step)
{
    clattn_resize_args args = CLATTN_RESIZE_ARGS_INIT;
    args.x = bind(r, s, MOVE_FROM);
    args.y = bind(r, s, MOVE_TO);
    args.explicit_batch = 1;
    args.batch = number(r, s->batch);
    args.control = r->chain->control;
    return clattn_resize_enqueue(s->plan, r->chain->queue, &args, step->wait_count, step->wait_list, step->event);
}

static clattn_status convert(const struct runner *r, const struct graph_step *s, struct step *step)
{
    clattn_activation_args args = CLATTN_ACTIVATION_ARGS_INIT;
    args.x = bind(r, s, MOVE_FROM);
    args.y = bind(r, s, MOVE_TO);
    args.gradients.x = bind(r, s, MOVE_FROM_GRADIENT);
    args.gradients.y = bind(r, s, MOVE_TO_GRADIENT);
    args.explicit_batch = 1;
    args.batch = number(r, s->batch);
    args.control = r->chain->control;
    return clattn_activation_enqueue(s->plan, r->chain->queue, &args, step->wait_count, step->wait_list, step->event);
}

static clattn_status loss(const struct runner *r, const struct graph_step *s, struct step *step)
{
    clattn_cross_entropy_args args = CLATTN_CROSS_ENTROPY_ARGS_INIT;
    args.x = bind(r, s, LOSS_LOGITS);
    args.labels = bind(r, s, LOSS_LABELS);
    args.loss = bind(r, s, LOSS_LOSSES);
    args.gradients.x = bind(r, s, LOSS_LOGITS_GRADIENT);
    args.explicit_scale = 1;
    args.scale = r->run->scale;
    args.explicit_batch = 1;
    args.batch = number(r, s->batch);
    args.control = r->chain->control;
    return clattn_cross_entropy_enqueue(s->plan, r->chain->queue, &args, step->wait_count, step->wait_list,
                                        step->event);
}

static clattn_status dropout(const struct runner *r, const struct graph_step *s, struct step *step)
{
    clattn_dropout_args args = CLATTN_DROPOUT_ARGS_INIT;
    args.x = bind(r, s, DROPOUT_X);
    args.residual = bind(r, s, DROPOUT_RESIDUAL);
    args.y = bind(r, s, DROPOUT_Y);
    args.gradients.x = bind(r, s, DROPOUT_X_GRADIENT);
    args.gradients.y = bind(r, s, DROPOUT_Y_GRADIENT);
    args.seed = r->run->seed;
    args.offset = s->mask;
    args.explicit_batch = 1;
    args.batch = number(r, s->batch);
    args.control = r->chain->control;
    return clattn_dropout_enqueue(s->plan, r->chain->queue, &args, step->wait_count, step->wait_list, step->event);
}

/* Enqueues an operator; one that fails may have enqueued some of its kernels. */
static clattn_status enqueue_part(const struct runner *r, const struct graph_step *s, bool last)
{
    struct step step;
    clattn_status status;
    chain_step(r->chain, last, &step);
    switch (s->op) {
    case GRAPH_MATMUL: status = matmul(r, s, &step); break;
    case GRAPH_ATTENTION:
    case GRAPH_WEIGHTS: status = attention(r, s, &step); break;
    case GRAPH_NORM: status = norm(r, s, &step); break;
    case GRAPH_EMBEDDING: status = embedding(r, s, &step); break;
    case GRAPH_ROPE: status = rope(r, s, &step); break;
    case GRAPH_APPEND: status = append(r, s, &step); break;
    case GRAPH_CONV2D: status = conv2d(r, s, &step); break;
    case GRAPH_RESIZE: status = resize(r, s, &step); break;
    case GRAPH_CONVERT: status = convert(r, s, &step); break;
    case GRAPH_DROPOUT: status = dropout(r, s, &step); break;
    case GRAPH_LOSS: status = loss(r, s, &step); break;
    default: status = CLATTN_ERROR_INTERNAL; break;
    }
    if (status == CLATTN_SUCCESS)
        chain_stepped(r->chain, &step);
    else
        chain_failed(r->chain, &step);
    return status;
}

/* ---- commands ---- */

static clattn_status fill(const struct runner *r, cl_mem buffer, const void *pattern, size_t pattern_bytes,
                          size_t offset, size_t bytes)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct cl_table *cl = &r->chain->context->device.cl;
    struct step step;
    if (!bytes)
        return CLATTN_SUCCESS;
    chain_step(r->chain, false, &step);
    TRY_CL(&r->chain->context->device.report, "clEnqueueFillBuffer",
           cl->clEnqueueFillBuffer(r->chain->queue, buffer, pattern, pattern_bytes, offset, bytes, step.wait_count,
                                   step.wait_list, step.event));
    chain_stepped(r->chain, &step);
fail:
    return status;
}

/* Fills copy their pattern when they are enqueued, so that, unlike with a write, no host memory has to stay. */
static clattn_status integers(const struct runner *r, const struct graph_step *s)
{
    clattn_status status = CLATTN_SUCCESS;
    const clattn_binding to = bind(r, s, MOVE_TO);
    const int32_t *values = r->run->integers[s->integers];
    const size_t count = number(r, s->batch), at_once = PATTERN / sizeof *values;
    int32_t pattern[PATTERN / sizeof *values];
    for (size_t i = 0; i < count; i += at_once) {
        memset(pattern, 0, sizeof pattern);
        memcpy(pattern, values + i, size_min(at_once, count - i) * sizeof *values);
        TRY(fill(r, to.buffer, pattern, sizeof pattern, ((size_t)to.offset + i) * sizeof *values, sizeof pattern));
    }
fail:
    return status;
}

static clattn_status pad(const struct runner *r, const struct graph_step *s)
{
    static const unsigned char zeros[4];
    clattn_status status = CLATTN_SUCCESS;
    const clattn_binding to = bind(r, s, MOVE_TO);
    const size_t element = clattn_dtype_size(r->graph->arrays[s->operand[MOVE_TO].array].dtype);
    const size_t start = (size_t)to.offset * element, edge = s->rows * s->row_bytes;
    for (size_t i = 0; i < number(r, s->batch); i++) {
        const size_t item = start + i * s->to_item;
        TRY(fill(r, to.buffer, zeros, element, item, edge));
        TRY(fill(r, to.buffer, zeros, element, item + edge + number(r, s->length) * s->row_bytes, edge));
    }
fail:
    return status;
}

static clattn_status fill_rows(const struct runner *r, const struct graph_step *s)
{
    const clattn_binding to = bind(r, s, MOVE_TO);
    const size_t element = clattn_dtype_size(r->graph->arrays[s->operand[MOVE_TO].array].dtype);
    const int32_t value = s->integers ? r->run->integers[s->integers][0] : 0;
    return fill(r, to.buffer, &value, element, (size_t)to.offset * element, s->rows * s->row_bytes);
}

static clattn_status copy(const struct runner *r, const struct graph_step *s)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct cl_table *cl = &r->chain->context->device.cl;
    const clattn_binding to = bind(r, s, MOVE_TO), from = bind(r, s, MOVE_FROM);
    const size_t element = clattn_dtype_size(r->graph->arrays[s->operand[MOVE_TO].array].dtype);
    const size_t bytes = number(r, s->length) * s->row_bytes;
    for (size_t i = 0; i < number(r, s->batch) && bytes; i++) {
        struct step step;
        chain_step(r->chain, false, &step);
        TRY_CL(&r->chain->context->device.report, "clEnqueueCopyBuffer",
               cl->clEnqueueCopyBuffer(
                   r->chain->queue, from.buffer, to.buffer, (size_t)from.offset * element + i * s->from_item,
                   (size_t)to.offset * element + i * s->to_item, bytes, step.wait_count, step.wait_list, step.event));
        chain_stepped(r->chain, &step);
    }
fail:
    return status;
}

static clattn_status exchange(const struct runner *r, const struct graph_step *s)
{
    const size_t items = number(r, s->batch), rows = number(r, s->length);
    const clattn_binding to = bind(r, s, MOVE_TO);
    return graph_exchange(r->graph, r->chain, s, &to,
                          items && rows ? (items - 1) * s->to_item + rows * s->row_bytes : 0);
}

static bool wanted(const struct runner *r, const struct graph_step *s)
{
    return !s->condition || is_bound(r, abs(s->condition)) == (s->condition > 0);
}

/* Checks all arrays that are going to be exchanged, before other ranks wait for any. */
static clattn_status check_exchanges(const struct runner *r, size_t end)
{
    clattn_status status = CLATTN_SUCCESS;
    for (size_t i = r->run->first; i < end && r->graph->ranks; i++) {
        const struct graph_step *s = &r->graph->steps[i];
        if ((s->op != GRAPH_ALL_REDUCE && s->op != GRAPH_ALL_GATHER) || !wanted(r, s))
            continue;
        const clattn_binding to = bind(r, s, MOVE_TO);
        TRY(graph_exchange_check(r->graph, &to));
    }
fail:
    return status;
}

static clattn_status enqueue_steps(const struct graph *graph, struct chain *chain, const struct graph_run *run)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct runner r = {graph, chain, run};
    size_t mark = 0;
    size_t end = run->end ? run->end : graph->step_count;
    while (end > run->first && !wanted(&r, &graph->steps[end - 1]))
        end--;
    TRY(check_exchanges(&r, end));
    for (size_t i = run->first; i < end; i++) {
        const struct graph_step *s = &graph->steps[i];
        if (!wanted(&r, s))
            continue;
        const struct control_range range = control_step(chain->control, i - run->first, end - run->first);
        switch (s->op) {
        case GRAPH_INTEGERS: TRY(integers(&r, s)); break;
        case GRAPH_PAD: TRY(pad(&r, s)); break;
        case GRAPH_FILL: TRY(fill_rows(&r, s)); break;
        case GRAPH_COPY: TRY(copy(&r, s)); break;
        case GRAPH_ALL_REDUCE:
        case GRAPH_ALL_GATHER: TRY(exchange(&r, s)); break;
        default: TRY(enqueue_part(&r, s, i + 1 == end)); break;
        }
        control_restore(chain->control, range);
        for (; mark < run->mark_count && run->marks[mark].step <= i; mark++)
            TRY(chain_tell(chain, run->marks[mark].event));
    }
fail:
    return status;
}

clattn_status graph_enqueue(const struct graph *graph, const struct enqueue_call *given, const struct graph_run *run,
                            const clattn_binding *workspace)
{
    clattn_status status;
    struct chain chain;
    struct enqueue_call call = *given;
    const size_t started = graph->ranks ? graph->ranks->started : 0;
    if (graph->ranks)
        TRY(ranks_check(graph->ranks));
    call.workspace = graph->arena;
    status = chain_begin(&chain, graph->context, &call, workspace);
    if (status == CLATTN_SUCCESS)
        status = enqueue_steps(graph, &chain, run);
    /* OpenCL's own commands are given no event on an in-order queue: if one is the last, a marker has the event. */
    if (status == CLATTN_SUCCESS && !chain.last)
        status = chain_mark(&chain);
    status = chain_end(&chain, status);
    /* Another call's exchanges would meet those of this one that other ranks still wait for. */
    if (graph->ranks && status != CLATTN_SUCCESS && graph->ranks->started != started)
        graph->ranks->failed = true;
fail:
    return status;
}
