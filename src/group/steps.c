/* The steps that the modes are made of: attention to a block, copies, and memory that ranks exchange. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "clattn/activation.h"
#include "clattn/dropout.h"
#include "group/group.h"

void event_replace(const clattn_context *context, cl_event *event, cl_event by)
{
    const struct cl_table *cl = &context->device.cl;
    if (by && cl->clRetainEvent(by) != CL_SUCCESS) {
        cl->clWaitForEvents(1, &by);
        by = NULL;
    }
    if (*event)
        cl->clReleaseEvent(*event);
    *event = by;
}

void run_stepped(struct run *r, cl_event made)
{
    if (!made)
        return;
    event_replace(r->a->context, &r->last, NULL);
    r->last = made;
}

/* Collects what is no NULL. */
static cl_uint wait_list(cl_event list[2], cl_event first, cl_event second)
{
    cl_uint count = 0;
    if (first)
        list[count++] = first;
    if (second)
        list[count++] = second;
    return count;
}

/* ---- kernels ---- */

clattn_status run_attend(struct run *r, const struct block *b, cl_event ready)
{
    clattn_status status;
    clattn_context *context = r->a->context;
    clattn_attention_desc d = r->p->attention;
    clattn_attention_args args = r->args;
    cl_event list[2], made = NULL;
    const size_t ranks = (size_t)r->a->ranks.group.ranks;
    d.short_mask = 0;
    d.query = b->query;
    d.key = b->key;
    d.value = b->value;
    d.output = b->output;
    d.outputs.lse = b->lse;
    d.outputs.partial = b->partial;
    d.gradients.output = b->d_output;
    d.gradients.lse = b->d_lse;
    d.gradients.query = b->d_query;
    d.gradients.key = b->d_key;
    d.gradients.value = b->d_value;
    scores_take(r, b, &d, &args);
    args.query = b->query_at;
    args.key = b->key_at;
    args.value = b->value_at;
    args.output = b->output_at;
    args.outputs.lse = b->lse_at;
    args.gradients.output = b->d_output_at;
    args.gradients.lse = b->d_lse_at;
    args.gradients.query = b->d_query_at;
    args.gradients.key = b->d_key_at;
    args.gradients.value = b->d_value_at;
    args.whole.query = b->first_query;
    args.whole.key = b->first_key;
    args.whole.head = b->head;
    args.whole.query_length = ranks * r->p->query_length;
    args.whole.key_length = ranks * r->p->key_length;
    args.whole.heads = r->p->heads;
    if (r->dry) {
        TRY(clattn_attention_prewarm(context, &d));
    } else {
        const cl_uint count = wait_list(list, r->last, ready);
        TRY(clattn_attention_run(context, r->queue, &d, &args, count, list, &made));
        run_stepped(r, made);
    }
    status = scores_add(r, b, &d, &args);
fail:
    return status;
}

clattn_status run_fill(struct run *r, cl_mem buffer, float value, size_t first, size_t count)
{
    clattn_status status = CLATTN_SUCCESS;
    struct device *device = &r->a->context->device;
    cl_event made = NULL;
    if (r->dry)
        return status;
    TRY_CL(&device->report, "clEnqueueFillBuffer",
           device->cl.clEnqueueFillBuffer(r->queue, buffer, &value, sizeof value, first * sizeof value,
                                          count * sizeof value, 1, &r->last, &made));
    run_stepped(r, made);
fail:
    return status;
}

clattn_layout floats(size_t count)
{
    return clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, &count);
}

clattn_status run_add(struct run *r, const clattn_layout *x, clattn_binding x_at, const clattn_layout *y,
                      clattn_binding y_at, cl_event ready)
{
    clattn_context *context = r->a->context;
    clattn_dropout_desc desc = CLATTN_DROPOUT_DESC_INIT;
    clattn_dropout_args args = CLATTN_DROPOUT_ARGS_INIT;
    cl_event list[2], made = NULL;
    desc.x = *x;
    desc.residual = desc.y = *y;
    args.x = x_at;
    args.residual = args.y = y_at;
    if (r->dry)
        return clattn_dropout_prewarm(context, &desc);
    const cl_uint waits = wait_list(list, r->last, ready);
    const clattn_status status = clattn_dropout_run(context, r->queue, &desc, &args, waits, list, &made);
    run_stepped(r, made);
    return status;
}

clattn_status run_copy(struct run *r, cl_command_queue queue, const clattn_layout *from, clattn_binding from_at,
                       const clattn_layout *to, clattn_binding to_at, cl_event ready, cl_event *event)
{
    clattn_activation_desc desc = CLATTN_ACTIVATION_DESC_INIT;
    clattn_activation_args args = CLATTN_ACTIVATION_ARGS_INIT;
    desc.x = *from;
    desc.y = *to;
    args.x = from_at;
    args.y = to_at;
    if (r->dry)
        return clattn_activation_prewarm(r->a->context, &desc);
    return clattn_activation_run(r->a->context, queue, &desc, &args, ready != NULL, ready ? &ready : NULL, event);
}

clattn_status run_give(struct run *r, const clattn_layout *from, clattn_binding from_at, const clattn_layout *to,
                       clattn_binding to_at)
{
    cl_event made = NULL;
    const clattn_status status = run_copy(r, r->queue, from, from_at, to, to_at, r->last, &made);
    run_stepped(r, made);
    return status;
}

clattn_status run_join(struct run *r, cl_event other)
{
    clattn_status status = CLATTN_SUCCESS;
    struct device *device = &r->a->context->device;
    const cl_event both[2] = {r->last, other};
    cl_event made = NULL;
    if (other)
        TRY_CL(&device->report, "clEnqueueMarkerWithWaitList",
               device->cl.clEnqueueMarkerWithWaitList(r->queue, 2, both, &made));
    run_stepped(r, made);
fail:
    return status;
}

/* ---- memory ---- */

clattn_status buffer_make(clattn_group_attention *a, cl_mem *buffer, size_t bytes)
{
    clattn_status status = CLATTN_SUCCESS;
    struct device *device = &a->context->device;
    const unsigned char zero = 0;
    cl_int code;
    *buffer = device->cl.clCreateBuffer(device->context, CL_MEM_READ_WRITE, bytes, NULL, &code);
    if (!*buffer)
        return report_opencl(&device->report, "clCreateBuffer", code);
    TRY_CL(&device->report, "clEnqueueFillBuffer",
           device->cl.clEnqueueFillBuffer(a->transfers, *buffer, &zero, sizeof zero, 0, bytes, 0, NULL, NULL));
fail:
    return status;
}

clattn_status parcel_make(clattn_group_attention *a, struct parcel *parcel, size_t bytes)
{
    parcel->bytes = bytes;
    if (!staging_make(&parcel->host, &a->context->device, a->transfers, bytes))
        return report_error(&a->context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for an exchange");
    return buffer_make(a, &parcel->buffer, bytes);
}

clattn_status parcel_fetch(struct run *r, struct parcel *parcel, cl_event ready)
{
    clattn_status status = CLATTN_SUCCESS;
    struct device *device = &r->a->context->device;
    if (r->dry)
        return status;
    TRY(parcel_wait(r, parcel));
    TRY_CL(&device->report, "clEnqueueReadBuffer",
           device->cl.clEnqueueReadBuffer(r->a->transfers, parcel->buffer, CL_TRUE, 0, parcel->bytes,
                                          parcel->host.memory, ready != NULL, ready ? &ready : NULL, NULL));
fail:
    return status;
}

clattn_status parcel_store(struct run *r, struct parcel *parcel)
{
    clattn_status status = CLATTN_SUCCESS;
    clattn_group_attention *a = r->a;
    struct device *device = &a->context->device;
    if (r->dry)
        return status;
    event_replace(a->context, &parcel->written, NULL);
    TRY_CL(&device->report, "clEnqueueWriteBuffer",
           device->cl.clEnqueueWriteBuffer(a->transfers, parcel->buffer, CL_FALSE, 0, parcel->bytes,
                                           parcel->host.memory, parcel->read != NULL,
                                           parcel->read ? &parcel->read : NULL, &parcel->written));
    TRY_CL(&device->report, "clFlush", device->cl.clFlush(a->transfers));
fail:
    return status;
}

clattn_status parcel_wait(struct run *r, struct parcel *parcel)
{
    clattn_status status = CLATTN_SUCCESS;
    struct device *device = &r->a->context->device;
    if (parcel->written)
        TRY_CL(&device->report, "clWaitForEvents", device->cl.clWaitForEvents(1, &parcel->written));
    event_replace(r->a->context, &parcel->written, NULL);
fail:
    return status;
}

/* ---- exchanges ---- */

clattn_status group_start(const struct run *r, const clattn_group_exchange *exchange, void **request)
{
    *request = NULL;
    return r->dry ? CLATTN_SUCCESS : ranks_start(&r->a->ranks, exchange, request);
}

clattn_status group_finish(const struct run *r, void *request)
{
    return r->dry ? CLATTN_SUCCESS : ranks_finish(&r->a->ranks, request);
}

clattn_status group_swap_start(const struct run *r, const struct parcel *out, bool shared, struct parcel *in,
                               size_t bytes, void **requests)
{
    return r->dry ? CLATTN_SUCCESS
                  : ranks_swap_start(&r->a->ranks, out->host.memory, shared, in->host.memory, bytes, requests);
}

clattn_status group_swap_finish(const struct run *r, void **requests)
{
    return r->dry ? CLATTN_SUCCESS : ranks_swap_finish(&r->a->ranks, requests);
}

clattn_status group_swap(struct run *r, struct parcel *out, bool shared, struct parcel *in, size_t bytes,
                         cl_event packed)
{
    clattn_status status;
    void **requests = calloc((size_t)r->a->ranks.group.ranks, sizeof *requests);
    if (!requests)
        return report_error(&r->a->context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for exchanges");
    TRY(parcel_fetch(r, out, packed));
    TRY(parcel_wait(r, in));
    TRY(group_swap_start(r, out, shared, in, bytes, requests));
    TRY(group_swap_finish(r, requests));
    status = parcel_store(r, in);
fail:
    free(requests);
    return status;
}

clattn_status group_sum(struct run *r, struct parcel *out, struct parcel *in, size_t bytes, cl_event packed)
{
    clattn_status status;
    const size_t count = bytes / sizeof(float);
    const clattn_layout part = floats(count);
    TRY(group_swap(r, out, false, in, bytes, packed));
    TRY(run_join(r, in->written));
    for (size_t i = 1; i < (size_t)r->a->ranks.group.ranks; i++)
        TRY(run_add(r, &part, clattn_binding_buffer(in->buffer, (int64_t)(i * count)), &part,
                    clattn_binding_buffer(in->buffer, 0), NULL));
    event_replace(r->a->context, &in->read, r->last);
fail:
    return status;
}
