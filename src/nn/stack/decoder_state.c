/* A decoder's state: its caches, and the reordering of the sequences in them. */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "nn/stack/decoder.h"

static struct device *device_of(const clattn_decoder_state *state)
{
    return &state->plan->base.context->device;
}

static clattn_status give_buffer(clattn_decoder_state *state, const clattn_layout *layout, cl_mem *buffer)
{
    struct device *device = device_of(state);
    cl_int code;
    size_t bytes;
    if (!size_mul((size_t)layout->stride[0], layout->extent[0], &bytes) ||
        !size_mul(bytes, 2 * state->plan->model->decoder.desc.layers, &bytes) ||
        !size_mul(bytes, clattn_dtype_size(layout->dtype), &bytes))
        return report_error(&device->report, CLATTN_ERROR_OVERFLOW, "the cache overflows");
    *buffer = device->cl.clCreateBuffer(device->context, CL_MEM_READ_WRITE, bytes, NULL, &code);
    if (!*buffer)
        return report_opencl(&device->report, "clCreateBuffer", code);
    state->bytes += bytes;
    return CLATTN_SUCCESS;
}

static clattn_status allocate(clattn_decoder_state *state)
{
    clattn_status status;
    const struct decoder_plan *plan = state->plan;
    state->lengths = calloc(plan->sequences, sizeof *state->lengths);
    state->memory_lengths = calloc(plan->desc.items, sizeof *state->memory_lengths);
    state->scratch = calloc(plan->sequences, STATE_SCRATCH * sizeof *state->scratch);
    if (!state->lengths || !state->memory_lengths || !state->scratch)
        return report_error(&device_of(state)->report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a decoder's state");
    TRY(give_buffer(state, &plan->self_cache, &state->self[0]));
    if (plan->desc.beams > 1)
        TRY(give_buffer(state, &plan->self_cache, &state->self[1]));
    if (plan->model->decoder.desc.cross)
        TRY(give_buffer(state, &plan->cross_cache, &state->cross));
fail:
    return status;
}

clattn_status clattn_decoder_state_create(clattn_plan *plan, clattn_decoder_state **result)
{
    clattn_status status;
    if (result)
        *result = NULL;
    TRY(decoder_plan_check(plan));
    struct report *report = &plan->context->device.report;
    if (!result)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "state is NULL");
    clattn_decoder_state *state = calloc(1, sizeof *state);
    if (!state)
        return report_error(report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a decoder's state");
    state->plan = (struct decoder_plan *)plan;
    plan_retain(plan);
    status = allocate(state);
    if (status == CLATTN_SUCCESS)
        *result = state;
    else
        clattn_decoder_state_release(&state);
fail:
    return status;
}

void clattn_decoder_state_release(clattn_decoder_state **handle)
{
    if (!handle || !*handle)
        return;
    clattn_decoder_state *state = *handle;
    struct device *device = device_of(state);
    clattn_plan *plan = &state->plan->base;
    *handle = NULL;
    if (device_is_foreign(device))
        cl_table_disown(&device->cl);
    const cl_mem buffers[] = {state->self[0], state->self[1], state->cross};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        if (buffers[i])
            device->cl.clReleaseMemObject(buffers[i]);
    if (state->last)
        device->cl.clReleaseEvent(state->last);
    free(state->lengths);
    free(state->memory_lengths);
    free(state->scratch);
    free(state->waits);
    free(state);
    clattn_plan_release(&plan);
}

size_t clattn_decoder_state_bytes(const clattn_decoder_state *state)
{
    return state ? state->bytes : 0;
}

size_t clattn_decoder_length(const clattn_decoder_state *state, size_t sequence)
{
    return state && state->begun && sequence < state->items * state->beams ? (size_t)state->lengths[sequence] : 0;
}

void decoder_state_restart(clattn_decoder_state *state, size_t beams)
{
    state->beams = beams;
    memset(state->lengths, 0, state->plan->sequences * sizeof *state->lengths);
}

clattn_status clattn_decoder_truncate(clattn_decoder_state *state, size_t length)
{
    clattn_status status;
    TRY(decoder_state_check(state));
    if (!state->begun)
        return report_error(&device_of(state)->report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "the state wants a clattn_decoder_begin first");
    for (size_t i = 0; i < state->items * state->beams; i++)
        if ((size_t)state->lengths[i] > length)
            state->lengths[i] = (int32_t)length;
fail:
    return status;
}

/* ---- reordering ---- */

/* Copies sequence `from` of buffer `source` to sequence `to` of buffer `target`, all layers at once, as a region of
 * three dimensions: a row has the keys of one head, a slice has kv_heads rows, and there is a slice for the keys and
 * one for the values of each layer. */
static clattn_status copy_sequence(clattn_decoder_state *state, struct chain *chain, cl_mem source, cl_mem target,
                                   size_t from, size_t to, size_t length)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct decoder_plan *plan = state->plan;
    const clattn_layout *cache = &plan->self_cache;
    const struct cl_table *cl = &device_of(state)->cl;
    const size_t element = clattn_dtype_size(cache->dtype), heads = cache->extent[1];
    const size_t row = (size_t)cache->stride[1] * element, slice = (size_t)cache->stride[0] * plan->sequences * element;
    const size_t region[3] = {length * cache->extent[3] * element, heads, 2 * plan->model->decoder.desc.layers};
    const size_t from_origin[3] = {0, from * heads, 0}, to_origin[3] = {0, to * heads, 0};
    struct step step;
    if (!length)
        return CLATTN_SUCCESS;
    chain_step(chain, false, &step);
    TRY_CL(&device_of(state)->report, "clEnqueueCopyBufferRect",
           cl->clEnqueueCopyBufferRect(chain->queue, source, target, from_origin, to_origin, region, row, slice, row,
                                       slice, step.wait_count, step.wait_list, step.event));
    chain_stepped(chain, &step);
fail:
    return status;
}

static clattn_status check_parents(const clattn_decoder_state *state, size_t beams, const size_t *parents)
{
    const struct decoder_plan *plan = state->plan;
    struct report *report = &device_of(state)->report;
    if (!state->begun)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "the state wants a clattn_decoder_begin first");
    if (!parents || !beams || (beams > 1 && beams != plan->desc.beams))
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "parents is NULL, or beams is %zu, neither 1 nor the plan's %zu", beams, plan->desc.beams);
    for (size_t i = 0; i < state->items * beams; i++)
        if (parents[i] >= state->items * state->beams || parents[i] / state->beams != i / beams)
            return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "parents[%zu] is %zu, which is not of item %zu",
                                i, parents[i], i / beams);
    return CLATTN_SUCCESS;
}

/* If most sequences stay, those that move are copied to the other buffer and back; otherwise all are copied to the
 * other buffer, which becomes the current one. */
static clattn_status move(clattn_decoder_state *state, struct chain *chain, size_t count, const size_t *parents)
{
    clattn_status status = CLATTN_SUCCESS;
    const cl_mem here = state->self[state->current], there = state->self[1 - state->current];
    size_t moved = 0;
    for (size_t i = 0; i < count; i++)
        moved += parents[i] != i;
    const bool all = 2 * moved > count;
    for (size_t i = 0; i < count && moved; i++)
        if (all || parents[i] != i)
            TRY(copy_sequence(state, chain, here, there, parents[i], i, (size_t)state->lengths[parents[i]]));
    for (size_t i = 0; i < count && !all; i++)
        if (parents[i] != i)
            TRY(copy_sequence(state, chain, there, here, i, i, (size_t)state->lengths[parents[i]]));
    if (all)
        state->current = 1 - state->current;
fail:
    return status;
}

clattn_status clattn_decoder_reorder(clattn_decoder_state *state, cl_command_queue queue, size_t beams,
                                     const size_t *parents, cl_uint wait_count, const cl_event *wait_list,
                                     cl_event *event)
{
    clattn_status status;
    struct chain chain;
    cl_event made = NULL;
    struct enqueue_call call = {.queue = queue, .wait_count = wait_count, .wait_list = wait_list, .event = &made};
    TRY(decoder_state_check(state));
    TRY(check_parents(state, beams, parents));
    TRY(decoder_waits(state, &call));
    const size_t count = state->items * beams;
    status = chain_begin(&chain, state->plan->base.context, &call, NULL);
    if (status == CLATTN_SUCCESS && state->self[1])
        status = move(state, &chain, count, parents);
    /* The marker's event is the caller's and the state's. */
    if (status == CLATTN_SUCCESS)
        status = chain_mark(&chain);
    status = chain_end(&chain, status);
    TRY(decoder_enqueued(state, call.queue, status, made, event));
    for (size_t i = 0; i < count; i++)
        state->scratch[i] = state->lengths[parents[i]];
    memcpy(state->lengths, state->scratch, count * sizeof *state->lengths);
    state->beams = beams;
fail:
    return status;
}
