/* Decoders: plans, and the checks and numbers of enqueues. */
#include <stdlib.h>
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "nn/stack/decoder.h"
#include "nn/stack/model_plan.h"
#include "ops/common/arrays.h"
#include "plan/job.h"
#include "plan/operator.h"

void clattn_decoder_desc_init(clattn_decoder_desc *desc)
{
    struct_init(desc, sizeof *desc);
}

void clattn_decoder_args_init(clattn_decoder_args *args)
{
    struct_init(args, sizeof *args);
}

void clattn_decoder_begin_args_init(clattn_decoder_begin_args *args)
{
    struct_init(args, sizeof *args);
}

/* ---- planning ---- */

static clattn_status check_desc(const clattn_transformer *model, const clattn_decoder_desc *desc, const char **reason)
{
    const clattn_stack_desc *d = &model->decoder.desc;
    const size_t most = MODEL_LENGTH_LIMIT;
    REQUIRE(is_flag(desc->prepack) && !desc->reserved, CLATTN_ERROR_INVALID_ARGUMENT,
            "prepack is not 0 or 1, or reserved is not 0");
    REQUIRE(desc->items && desc->items <= MODEL_BATCH_LIMIT && desc->beams <= MODEL_BATCH_LIMIT &&
                desc->items * desc->beams <= MODEL_BATCH_LIMIT,
            CLATTN_ERROR_INVALID_ARGUMENT, "items times beams is 1 to 65536");
    REQUIRE(desc->length && desc->length <= most && desc->cache_length >= desc->length && desc->cache_length <= most,
            CLATTN_ERROR_INVALID_ARGUMENT, "length is 1 to cache_length, and that at most 2^30");
    REQUIRE(d->cross ? desc->memory_length && desc->memory_length <= most : !desc->memory_length,
            CLATTN_ERROR_INVALID_ARGUMENT, "memory_length is 1 to 2^30 with cross-attention, and 0 without");
    REQUIRE(enum_within(desc->logits, CLATTN_LOGITS_ALL), CLATTN_ERROR_INVALID_ARGUMENT, "unknown logits");
    REQUIRE(!desc->logits || model->output, CLATTN_ERROR_INVALID_ARGUMENT, "logits of a model without an output");
    REQUIRE(dtype_is_storage(desc->cache_dtype), CLATTN_ERROR_INVALID_ARGUMENT,
            "cache_dtype is float32, float16 or bfloat16");
    REQUIRE(d->cross || (!desc->cross_probabilities && !desc->memory_mask.rank), CLATTN_ERROR_INVALID_ARGUMENT,
            "cross_probabilities or memory_mask without cross-attention");
    REQUIRE(d->layers >= 64 || !((desc->self_probabilities | desc->cross_probabilities) >> d->layers),
            CLATTN_ERROR_INVALID_ARGUMENT, "probabilities of a layer that the model does not have");
    REQUIRE(!desc->mask.rank || desc->beams == 1, CLATTN_ERROR_INVALID_ARGUMENT,
            "a mask does not go together with beams");
    return CLATTN_SUCCESS;
}

static void clear(clattn_plan *handle)
{
    struct decoder_plan *plan = (struct decoder_plan *)handle;
    for (int i = 0; i < DECODER_GRAPHS; i++)
        graph_clear(&plan->graph[i]);
    model_drop(plan->model);
}

static clattn_status make(clattn_plan *handle, const clattn_plan_options *options)
{
    clattn_status status;
    struct decoder_plan *plan = (struct decoder_plan *)handle;
    const clattn_stack_desc *d = &plan->model->decoder.desc;
    const clattn_dtype dtype = (clattn_dtype)plan->desc.cache_dtype;
    const struct graph *graphs[DECODER_GRAPHS];
    size_t count = 0;
    plan->sequences = plan->desc.items * plan->desc.beams;
    plan->self_cache = clattn_layout_bhsd(dtype, plan->sequences, d->kv_heads, plan->desc.cache_length, d->head_size);
    plan->cross_cache =
        clattn_layout_bhsd(dtype, plan->desc.items, d->kv_heads, plan->desc.memory_length, d->head_size);
    TRY(decoder_make_graphs(plan, options));
    for (int i = 0; i < DECODER_GRAPHS; i++)
        if (plan->graph[i].step_count)
            graphs[count++] = &plan->graph[i];
    status = model_plan_finish(&plan->base, graphs, count, "decoder");
fail:
    return status;
}

/* The operator_type neither reads nor enqueues: a decoder's plans need a model and a state, and are begun and enqueued
 * by the functions below. */
static const struct operator_type decoder_type = {
    .name = "decoder", .bytes.plan = sizeof(struct decoder_plan), .make = make};

clattn_status decoder_plan_check(const clattn_plan *plan)
{
    return plan_check(plan, &decoder_type);
}

clattn_status clattn_decoder_plan_create(clattn_transformer *model, const clattn_decoder_desc *given,
                                         const clattn_plan_options *options, clattn_plan **result)
{
    clattn_status status;
    clattn_decoder_desc desc;
    clattn_plan_options own;
    clattn_plan *made = NULL;
    const char *reason;
    const struct model_plan_call call = {"decoder", model && model->has_decoder, given, &desc, sizeof desc, options,
                                         &own};
    TRY(model_plan_read(model, &call, result));
    layout_normalise(&desc.mask);
    layout_normalise(&desc.memory_mask);
    if (!desc.beams)
        desc.beams = 1;
    if (!desc.cache_dtype)
        desc.cache_dtype = model->dtype;
    status = check_desc(model, &desc, &reason);
    if (status != CLATTN_SUCCESS)
        return report_error(&model->context->device.report, status, "decoder: %s", reason);
    TRY(plan_new(model->context, &decoder_type, &made));
    struct decoder_plan *plan = (struct decoder_plan *)made;
    plan->desc = desc;
    plan->model = model;
    model_retain(model);
    made->clear = clear;
    return job_finish_plan(made, &own, result);
fail:
    clattn_plan_release(&made);
    return status;
}

/* ---- enqueueing on a state ---- */

static struct report *report_of(const clattn_decoder_state *state)
{
    return &state->plan->base.context->device.report;
}

clattn_status decoder_state_check(const clattn_decoder_state *state)
{
    if (!state)
        return report_error(NULL, CLATTN_ERROR_INVALID_ARGUMENT, "the state is NULL");
    return context_check(state->plan->base.context);
}

clattn_status decoder_waits(clattn_decoder_state *state, struct enqueue_call *call)
{
    clattn_status status = CLATTN_SUCCESS;
    clattn_context *context = state->plan->base.context;
    const cl_uint given = call->wait_count;
    cl_command_queue_properties properties;
    if (!call->queue)
        call->queue = context->queue;
    if (!state->last)
        return CLATTN_SUCCESS;
    TRY_CL(&context->device.report, "clGetCommandQueueInfo",
           context->device.cl.clGetCommandQueueInfo(call->queue, CL_QUEUE_PROPERTIES, sizeof properties, &properties,
                                                    NULL));
    if (call->queue == state->queue && !(properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE))
        return CLATTN_SUCCESS;
    if (!given != !call->wait_list) /* chain_begin says what is wrong */
        return CLATTN_SUCCESS;
    if (given + 1 > state->waits_capacity) {
        cl_event *waits = realloc(state->waits, (given + 1) * sizeof(cl_event));
        if (!waits)
            return report_error(report_of(state), CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a wait list");
        state->waits = waits;
        state->waits_capacity = given + 1;
    }
    if (given)
        memcpy(state->waits, call->wait_list, given * sizeof(cl_event));
    state->waits[given] = state->last;
    call->wait_list = state->waits;
    call->wait_count = given + 1;
fail:
    return status;
}

clattn_status decoder_enqueued(clattn_decoder_state *state, cl_command_queue queue, clattn_status status, cl_event made,
                               cl_event *event)
{
    const struct cl_table *cl = &state->plan->base.context->device.cl;
    if (status == CLATTN_SUCCESS) {
        const cl_int code = event && made ? cl->clRetainEvent(made) : CL_SUCCESS;
        if (code != CL_SUCCESS) { /* all of it is enqueued nevertheless: what comes next has to wait for it */
            state->begun = false;
            status = report_opencl(report_of(state), "clRetainEvent", code);
        } else if (event) {
            *event = made;
        }
    } else if (status == CLATTN_ERROR_OPENCL || status == CLATTN_ERROR_OUT_OF_MEMORY) {
        /* A part of the failed enqueue may run, and may not have waited for the earlier work: the next enqueue waits
         * for both.  That takes two markers, since one with a wait list does not wait for the commands of an
         * out-of-order queue. */
        cl_event both[2] = {NULL, state->last};
        state->begun = false;
        if (cl->clEnqueueMarkerWithWaitList(queue, 0, NULL, &both[0]) != CL_SUCCESS)
            return status;
        made = both[0];
        if (state->last && cl->clEnqueueMarkerWithWaitList(queue, 2, both, &made) == CL_SUCCESS)
            cl->clReleaseEvent(both[0]);
    } else {
        return status;
    }
    if (state->last)
        cl->clReleaseEvent(state->last);
    state->last = made;
    state->queue = queue;
    return status;
}

static clattn_status run_graph(clattn_decoder_state *state, enum decoder_graph which, const struct enqueue_call *given,
                               const struct graph_run *run, const clattn_binding *workspace)
{
    clattn_status status;
    const struct decoder_plan *plan = state->plan;
    cl_event made = NULL;
    struct enqueue_call call = *given;
    call.event = &made;
    TRY(decoder_waits(state, &call));
    status = graph_enqueue(&plan->graph[which], &call, run, workspace);
    status = decoder_enqueued(state, call.queue, status, made, given->event);
fail:
    return status;
}

/* ---- a beginning ---- */

static clattn_status check_begin(const clattn_decoder_state *state, const clattn_decoder_begin_args *args)
{
    const struct decoder_plan *plan = state->plan;
    const bool cross = plan->model->decoder.desc.cross != 0, memory = !binding_is_none(&args->memory);
    struct report *report = report_of(state);
    if (!args->items || args->items > plan->desc.items)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "items is %zu, not 1 to the plan's %zu", args->items,
                            plan->desc.items);
    if (args->beams > 1 && args->beams != plan->desc.beams)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "beams is %zu, neither 1 nor the plan's %zu",
                            args->beams, plan->desc.beams);
    if (!cross && (args->memory_length || args->memory_lengths))
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "a memory's length without cross-attention");
    if (cross && !memory &&
        (!state->begun || args->items != state->items || args->memory_length || args->memory_lengths))
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "no memory is bound, and the state has none of so many items, or another length is given");
    if (memory && (!args->memory_length || args->memory_length > plan->desc.memory_length))
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "memory_length is %zu, not 1 to the plan's %zu",
                            args->memory_length, plan->desc.memory_length);
    for (size_t i = 0; args->memory_lengths && i < args->items; i++)
        if (args->memory_lengths[i] < 0 || (size_t)args->memory_lengths[i] > args->memory_length)
            return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "memory_lengths[%zu] is %d, not 0 to %zu", i,
                                (int)args->memory_lengths[i], args->memory_length);
    return CLATTN_SUCCESS;
}

static clattn_status check_begin_arrays(const clattn_decoder_state *state, const clattn_decoder_begin_args *args)
{
    const struct decoder_plan *plan = state->plan;
    const clattn_stack_desc *d = &plan->model->decoder.desc;
    const size_t all[3] = {plan->desc.items, plan->desc.memory_length, d->d_memory};
    const size_t used[3] = {args->items, args->memory_length, d->d_memory};
    const clattn_layout memory = clattn_layout_contiguous(plan->model->dtype, 3, all);
    const struct bound_array arrays[] = {
        {&args->memory, &memory, used, BINDING_READ | BINDING_OPTIONAL, "memory", d->cross != 0},
    };
    return model_bindings_check(plan->base.context, arrays, COUNT_OF(arrays), &args->workspace);
}

static clattn_status begin(clattn_decoder_state *state, const struct enqueue_call *call,
                           const clattn_decoder_begin_args *args)
{
    clattn_status status;
    const struct decoder_plan *plan = state->plan;
    const bool memory = !binding_is_none(&args->memory);
    TRY(check_begin(state, args));
    TRY(check_begin_arrays(state, args));
    if (memory) {
        const clattn_binding bound[DECODER_SLOTS] = {
            [DECODER_MEMORY_ARRAY] = args->memory,
            [DECODER_CROSS_CACHE] = clattn_binding_buffer(state->cross, 0),
        };
        struct graph_run run = {.bound = bound};
        run.number[NUMBER_ONE] = 1;
        run.number[NUMBER_ITEMS] = args->items;
        run.number[NUMBER_MEMORY_LENGTH] = args->memory_length;
        status = run_graph(state, DECODER_MEMORY, call, &run, &args->workspace);
        if (status == CLATTN_ERROR_CANCELLED)
            state->begun = false; /* some of the cache is of the new memory */
        if (status != CLATTN_SUCCESS)
            goto fail;
        state->memory_length = args->memory_length;
        for (size_t i = 0; i < args->items; i++)
            state->memory_lengths[i] = args->memory_lengths ? args->memory_lengths[i] : (int32_t)args->memory_length;
    } else {
        TRY(plan_enqueue_nothing(&plan->base, call));
    }
    state->items = args->items;
    state->begun = true;
    decoder_state_restart(state, args->beams ? args->beams : 1);
fail:
    return status;
}

clattn_status clattn_decoder_begin(clattn_decoder_state *state, cl_command_queue queue,
                                   const clattn_decoder_begin_args *given, cl_uint wait_count,
                                   const cl_event *wait_list, cl_event *event)
{
    clattn_status status;
    clattn_decoder_begin_args args;
    struct enqueue_call call = {.queue = queue, .wait_count = wait_count, .wait_list = wait_list, .event = event};
    TRY(decoder_state_check(state));
    TRY(args_read(report_of(state), "clattn_decoder_begin_args", &args, sizeof args, sizeof args, given));
    call.control = args.control;
    TRY(control_enter(call.control, report_of(state)));
    status = control_leave(call.control, begin(state, &call, &args));
fail:
    return status;
}

/* ---- tokens ---- */

/* The lengths of an enqueue: before it, of its tokens, and after it. */
struct growth {
    enum decoder_graph which;
    size_t sequences, longest; /* longest: the longest sequence after the enqueue */
    int32_t *past, *fresh, *total, *last_row;
};

static clattn_status check_tokens(const clattn_decoder_state *state, const clattn_decoder_args *args,
                                  struct growth *growth)
{
    const struct decoder_plan *plan = state->plan;
    const clattn_stack_desc *d = &plan->model->decoder.desc;
    struct report *report = report_of(state);
    const size_t row = args->length == 1 ? 1 : plan->desc.length;
    if (!state->begun)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "the state wants a clattn_decoder_begin first");
    if (!args->length || args->length > plan->desc.length || (args->length > 1 && state->beams > 1))
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "length is %zu, not 1 to %zu", args->length,
                            state->beams > 1 ? (size_t)1 : plan->desc.length);
    if ((args->shift_right != 0 && args->shift_right != 1) ||
        (args->shift_right && d->input != CLATTN_STACK_INPUT_TOKENS))
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "shift_right is neither 0 nor 1, or the input is not tokens");
    growth->which = state->beams > 1 ? DECODER_BEAMS : args->length > 1 ? DECODER_MANY : DECODER_ONE;
    for (size_t i = 0; i < growth->sequences; i++) {
        const size_t past = (size_t)state->lengths[i];
        if (args->lengths && (args->lengths[i] < 0 || (size_t)args->lengths[i] > args->length))
            return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "lengths[%zu] is %d, not 0 to %zu", i,
                                (int)args->lengths[i], args->length);
        const size_t fresh = args->lengths ? (size_t)args->lengths[i] : args->length, total = past + fresh;
        if (args->shift_right && past)
            return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "shift_right: sequence %zu has tokens", i);
        if (total > plan->desc.cache_length)
            return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                                "sequence %zu would have %zu tokens, and its cache has room for %zu", i, total,
                                plan->desc.cache_length);
        if (d->positions == CLATTN_POSITIONS_TABLE && total + d->first_position > d->position_count)
            return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                                "sequence %zu would have %zu tokens, and the table of positions ends at %zu", i, total,
                                d->position_count - d->first_position);
        growth->past[i] = (int32_t)past;
        growth->fresh[i] = (int32_t)fresh;
        growth->total[i] = (int32_t)total;
        growth->last_row[i] = fresh ? (int32_t)(i * row + fresh - 1) : -1;
        growth->longest = size_max(growth->longest, total);
    }
    return CLATTN_SUCCESS;
}

/* Sets the enqueue's numbers.  The length of a single sequence or memory is a number, those of several are arrays. */
static void count_tokens(const clattn_decoder_state *state, const clattn_decoder_args *args,
                         const struct growth *growth, struct graph_run *run)
{
    const struct decoder_plan *plan = state->plan;
    const size_t first = plan->model->decoder.desc.first_position;
    const bool beams = growth->which == DECODER_BEAMS, one = !beams && plan->desc.items == 1;
    run->number[NUMBER_ONE] = 1;
    run->number[NUMBER_BATCH] = growth->sequences;
    run->number[NUMBER_LENGTH] = one ? (size_t)growth->fresh[0] : args->length;
    run->number[NUMBER_SHIFTED] = args->length - 1;
    run->number[NUMBER_KEYS] = growth->longest;
    run->number[NUMBER_ITEMS] = state->items;
    run->number[NUMBER_ITEM_QUERIES] = beams ? state->beams : run->number[NUMBER_LENGTH];
    run->number[NUMBER_MEMORY_LENGTH] = plan->desc.items == 1 ? (size_t)state->memory_lengths[0] : state->memory_length;
    run->number[NUMBER_PAST] = (size_t)growth->past[0];
    run->number[NUMBER_POSITION] = one ? first + (size_t)growth->past[0] : first;
}

static clattn_status check_token_arrays(const clattn_decoder_state *state, const clattn_decoder_args *args,
                                        const struct growth *growth, const struct graph_run *run)
{
    const struct decoder_plan *plan = state->plan;
    const clattn_decoder_desc *p = &plan->desc;
    const clattn_stack_desc *d = &plan->model->decoder.desc;
    const clattn_dtype dtype = plan->model->dtype;
    const bool tokens = d->input == CLATTN_STACK_INPUT_TOKENS, many = growth->which == DECODER_MANY;
    const size_t s = growth->sequences, row = many ? p->length : 1, m = p->memory_length;
    const size_t used[3] = {s, args->length, d->d_model}, all[3] = {s, row, d->d_model};
    const size_t vocabulary = plan->model->output_size, logits_used[3] = {s, args->length, vocabulary},
                 logits_all[3] = {s, row, vocabulary}, last[2] = {s, vocabulary};
    const bool every = many && p->logits == CLATTN_LOGITS_ALL;
    const size_t self[5] = {(size_t)__builtin_popcountll(p->self_probabilities),
                            growth->which == DECODER_BEAMS ? plan->sequences : p->items, d->heads, row,
                            p->cache_length};
    const size_t cross[5] = {(size_t)__builtin_popcountll(p->cross_probabilities), self[1], d->heads, row, m};
    const size_t self_scores[4] = {s, d->heads, run->number[NUMBER_LENGTH], run->number[NUMBER_KEYS]};
    const size_t cross_scores[4] = {run->number[NUMBER_ITEMS], d->heads, run->number[NUMBER_ITEM_QUERIES],
                                    run->number[NUMBER_MEMORY_LENGTH]};
    size_t self_masked[4], cross_masked[4];
    const clattn_layout self_rows = decoder_mask(&p->mask, growth->which),
                        cross_rows = decoder_mask(&p->memory_mask, growth->which),
                        self_mask = mask_reach(&self_rows, self_scores, self_masked),
                        cross_mask = mask_reach(&cross_rows, cross_scores, cross_masked);
    const size_t self_used[5] = {self[0], s, d->heads, args->length, growth->longest};
    const size_t cross_used[5] = {cross[0], s, d->heads, args->length, state->memory_length};
    const clattn_layout input = clattn_layout_contiguous(tokens ? CLATTN_DTYPE_I32 : dtype, tokens ? 2 : 3, all);
    const clattn_layout segments = clattn_layout_contiguous(CLATTN_DTYPE_I32, 2, all);
    const clattn_layout output = clattn_layout_contiguous(dtype, 3, all);
    const clattn_layout logits = clattn_layout_contiguous(CLATTN_DTYPE_F32, every ? 3 : 2, every ? logits_all : last);
    const clattn_layout self_layout = clattn_layout_contiguous(CLATTN_DTYPE_F32, 5, self);
    const clattn_layout cross_layout = clattn_layout_contiguous(CLATTN_DTYPE_F32, 5, cross);
    const struct bound_array arrays[] = {
        {&args->input, &input, used, BINDING_READ | BINDING_IN_PLACE, "input", true},
        {&args->segments, &segments, used, BINDING_READ | BINDING_OPTIONAL, "segments", d->segments != 0},
        {&args->mask, &self_mask, self_masked, BINDING_READ, "mask", p->mask.rank != 0},
        {&args->memory_mask, &cross_mask, cross_masked, BINDING_READ, "memory_mask", p->memory_mask.rank != 0},
        {&args->output, &output, used, BINDING_READ_WRITE | BINDING_IN_PLACE | BINDING_OPTIONAL, "output", true},
        {&args->logits, &logits, every ? logits_used : last, BINDING_WRITE | BINDING_OPTIONAL, "logits",
         p->logits != 0},
        {&args->self_probabilities, &self_layout, self_used, BINDING_WRITE | BINDING_OPTIONAL, "self_probabilities",
         p->self_probabilities != 0},
        {&args->cross_probabilities, &cross_layout, cross_used, BINDING_WRITE | BINDING_OPTIONAL, "cross_probabilities",
         p->cross_probabilities != 0},
    };
    return model_bindings_check(plan->base.context, arrays, COUNT_OF(arrays), &args->workspace);
}

static clattn_status enqueue(clattn_decoder_state *state, const struct enqueue_call *call,
                             const clattn_decoder_args *args)
{
    clattn_status status;
    const struct decoder_plan *plan = state->plan;
    struct growth growth = {.sequences = state->items * state->beams,
                            .past = state->scratch,
                            .fresh = state->scratch + plan->sequences,
                            .total = state->scratch + 2 * plan->sequences,
                            .last_row = state->scratch + 3 * plan->sequences};
    TRY(check_tokens(state, args, &growth));
    const clattn_binding bound[DECODER_SLOTS] = {
        [DECODER_INPUT] = args->input,
        [DECODER_IDS] = args->shift_right ? (clattn_binding){0} : args->input,
        [DECODER_SEGMENTS] = args->segments,
        [DECODER_MASK] = args->mask,
        [DECODER_MEMORY_MASK] = args->memory_mask,
        [DECODER_OUTPUT] = args->output,
        [DECODER_LOGITS] = args->logits,
        [DECODER_SELF_PROBABILITIES] = args->self_probabilities,
        [DECODER_CROSS_PROBABILITIES] = args->cross_probabilities,
        [DECODER_SELF_CACHE] = clattn_binding_buffer(state->self[state->current], 0),
        [DECODER_CROSS_CACHE] = clattn_binding_buffer(state->cross, 0),
    };
    const int32_t *const integers[DECODER_INTEGERS] = {
        [DECODER_PAST_LENGTHS] = growth.past,
        [DECODER_NEW_LENGTHS] = growth.fresh,
        [DECODER_TOTAL_LENGTHS] = growth.total,
        [DECODER_LAST_ROWS] = growth.last_row,
        [DECODER_MEMORY_LENGTHS] = state->memory_lengths,
        [DECODER_START_TOKEN] = &args->start_token,
    };
    struct graph_run run = {.bound = bound, .integers = integers};
    count_tokens(state, args, &growth, &run);
    TRY(check_token_arrays(state, args, &growth, &run));
    if (!run.number[NUMBER_LENGTH])
        return plan_enqueue_nothing(&state->plan->base, call);
    TRY(run_graph(state, growth.which, call, &run, &args->workspace));
    memcpy(state->lengths, growth.total, growth.sequences * sizeof *state->lengths);
fail:
    return status;
}

clattn_status clattn_decoder_enqueue(clattn_decoder_state *state, cl_command_queue queue,
                                     const clattn_decoder_args *given, cl_uint wait_count, const cl_event *wait_list,
                                     cl_event *event)
{
    clattn_status status;
    clattn_decoder_args args;
    struct enqueue_call call = {.queue = queue, .wait_count = wait_count, .wait_list = wait_list, .event = event};
    TRY(decoder_state_check(state));
    TRY(args_read(report_of(state), "clattn_decoder_args", &args, sizeof args, sizeof args, given));
    call.control = args.control;
    TRY(control_enter(call.control, report_of(state)));
    status = control_leave(call.control, enqueue(state, &call, &args));
fail:
    return status;
}
