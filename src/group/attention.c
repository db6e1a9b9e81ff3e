/* A rank's share of an attention: making it, comparing ranks' descriptions, calling it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/strbuf.h"
#include "base/try.h"
#include "clattn/version.h"
#include "group/group.h"
#include "plan/enqueue.h"

#define POSITION_LIMIT ((int64_t)1 << 62)

void clattn_group_attention_desc_init(clattn_group_attention_desc *desc)
{
    struct_init(desc, sizeof *desc);
}

static clattn_status run_blocks(struct run *r)
{
    switch (r->p->mode) {
    case CLATTN_GROUP_MODE_GATHER: return gather_run(r);
    case CLATTN_GROUP_MODE_HEADS: return heads_run(r);
    default: return r->p->backward ? ring_backward_run(r) : ring_run(r);
    }
}

static clattn_status run_mode(struct run *r)
{
    clattn_status status;
    TRY(scores_begin(r));
    TRY(run_blocks(r));
    status = scores_give(r);
fail:
    return status;
}

static clattn_status reserve(clattn_group_attention *a)
{
    switch (a->problem.mode) {
    case CLATTN_GROUP_MODE_GATHER: return gather_reserve(a);
    case CLATTN_GROUP_MODE_HEADS: return heads_reserve(a);
    default: return a->problem.backward ? ring_backward_reserve(a) : ring_reserve(a);
    }
}

/* ---- what ranks agree about ---- */

static void tell_layout(struct strbuf *text, const char *name, const clattn_layout *layout)
{
    strbuf_printf(text, "%s=", name);
    if (layout_is_none(layout))
        strbuf_printf(text, "none");
    else
        strbuf_printf(text, "%s", clattn_dtype_name(layout->dtype));
    for (int i = 0; i < layout->rank; i++)
        strbuf_printf(text, "%c%zu", i ? 'x' : ' ', layout->extent[i]);
    strbuf_printf(text, "\n");
}

static void tell(const clattn_group_attention *a, struct strbuf *text)
{
    static const char *const modes[] = {"ring", "gather", "heads"}, *const orders[] = {"straight", "zigzag"};
    static const char *const alignments[] = {"top left", "bottom right", "explicit"};
    const struct group_problem *p = &a->problem;
    const clattn_attention_desc *d = &p->attention;
    strbuf_printf(text, "version=%s\nranks=%d\nmode=%s\norder=%s\n", clattn_version_string(), (int)a->ranks.group.ranks,
                  modes[p->mode], orders[p->order]);
    tell_layout(text, "query", &d->query);
    tell_layout(text, "key", &d->key);
    tell_layout(text, "value", &d->value);
    tell_layout(text, "output", &d->output);
    tell_layout(text, "mask", &d->mask);
    tell_layout(text, "bias", &d->bias);
    tell_layout(text, "alibi", &d->scoring.alibi);
    tell_layout(text, "vector", &d->scoring.vector);
    tell_layout(text, "sinks", &d->scoring.sinks);
    tell_layout(text, "lse", &d->outputs.lse);
    tell_layout(text, "lengths.query", &d->lengths.query);
    tell_layout(text, "lengths.key", &d->lengths.key);
    tell_layout(text, "lengths.positions", &d->lengths.positions);
    tell_layout(text, "lengths.query_starts", &d->lengths.query_starts);
    tell_layout(text, "lengths.key_starts", &d->lengths.key_starts);
    for (int i = 0; i < ATTENTION_GRADIENTS; i++)
        tell_layout(text, attention_gradients[i].name, attention_gradient_layout(d, i));
    strbuf_printf(text, "direction=%d\ncausal=%d\nalignment=%s\nscore=%d\nsoftcap=%.9g\n", (int)d->direction,
                  (int)d->causal, alignments[d->alignment], (int)d->scoring.kind, (double)d->scoring.softcap);
    if (d->dropout.probability > 0)
        strbuf_printf(text, "dropout=%.9g\n", (double)d->dropout.probability);
    if (d->scoring.explicit_scale)
        strbuf_printf(text, "scale=%.9g\n", (double)d->scoring.scale);
    if (d->window.explicit_left)
        strbuf_printf(text, "left=%lld\n", (long long)d->window.left);
    if (d->window.explicit_right)
        strbuf_printf(text, "right=%lld\n", (long long)d->window.right);
}

/* Each rank compares its description with that of the rank before it.  A rank that refuses its own sends why. */
static clattn_status agree(clattn_group_attention *a, const char *refused)
{
    struct strbuf text = {0};
    char own[RANKS_AGREED] = "";
    if (refused)
        strbuf_printf(&text, "version=%s, which refuses: %s\n", clattn_version_string(), refused);
    else
        tell(a, &text);
    if (!text.failed)
        snprintf(own, sizeof own, "%s", text.text);
    strbuf_clear(&text);
    return ranks_agree(&a->ranks, own, refused != NULL);
}

/* ---- making and releasing ---- */

/* What other ranks need not wait for. */
static clattn_status prepare(clattn_group_attention *a)
{
    clattn_status status;
    struct device *device = &a->context->device;
    cl_int code;
    struct run r = {.a = a, .p = &a->problem, .dry = true};
    a->transfers = device->cl.clCreateCommandQueue(device->context, device->caps.device, 0, &code);
    if (!a->transfers) {
        status = report_opencl(&device->report, "clCreateCommandQueue", code);
        goto fail;
    }
    TRY(reserve(a));
    TRY(scores_reserve(a));
    TRY_CL(&device->report, "clFinish", device->cl.clFinish(a->transfers));
    status = run_mode(&r);
fail:
    return status;
}

static clattn_status make(clattn_group_attention *a, const clattn_group_attention_desc *desc)
{
    const char *reason = NULL;
    const clattn_status read = group_problem_read(&a->ranks.group, desc, &a->problem, &reason);
    clattn_status status = agree(a, read == CLATTN_SUCCESS ? NULL : reason);
    if (a->ranks.failed)
        return status;
    if (read != CLATTN_SUCCESS)
        status = report_error(&a->context->device.report, read, "group attention: %s", reason);
    if (status == CLATTN_SUCCESS)
        status = prepare(a);
    return ranks_all_ready(&a->ranks, status, "share");
}

clattn_status clattn_group_attention_create(clattn_context *context, const clattn_group *group,
                                            const clattn_group_attention_desc *desc, clattn_group_attention **result)
{
    clattn_status status;
    if (result)
        *result = NULL;
    TRY(context_check(context));
    struct report *report = &context->device.report;
    if (!result)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "attention is NULL");
    struct ranks ranks;
    TRY(ranks_read(&ranks, report, group));
    clattn_group_attention *a = calloc(1, sizeof *a);
    if (!a)
        return report_error(report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a group");
    context_retain(context);
    a->context = context;
    a->ranks = ranks;
    status = make(a, desc);
    if (status != CLATTN_SUCCESS)
        clattn_group_attention_release(&a);
    *result = a;
fail:
    return status;
}

static void forget_events(clattn_group_attention *a)
{
    for (int i = 0; i < MOST_PARCELS; i++) {
        event_replace(a->context, &a->parcel[i].read, NULL);
        event_replace(a->context, &a->parcel[i].written, NULL);
    }
    for (int i = 0; i < 2; i++)
        event_replace(a->context, &a->whole_read[i], NULL);
}

void clattn_group_attention_release(clattn_group_attention **attention)
{
    if (!attention || !*attention)
        return;
    clattn_group_attention *a = *attention;
    *attention = NULL;
    struct device *device = &a->context->device;
    if (device_is_foreign(device)) {
        cl_table_disown(&device->cl);
    } else {
        if (a->transfers) /* may read the host's memory */
            device->cl.clFinish(a->transfers);
        if (a->finished)
            device->cl.clWaitForEvents(1, &a->finished);
    }
    forget_events(a);
    event_replace(a->context, &a->finished, NULL);
    for (int i = 0; i < MOST_PARCELS; i++) {
        if (a->parcel[i].buffer)
            device->cl.clReleaseMemObject(a->parcel[i].buffer);
        staging_release(&a->parcel[i].host, device, a->transfers);
    }
    for (int i = 0; i < 2; i++)
        if (a->whole[i])
            device->cl.clReleaseMemObject(a->whole[i]);
    if (a->partial)
        device->cl.clReleaseMemObject(a->partial);
    if (a->score_parts)
        device->cl.clReleaseMemObject(a->score_parts);
    if (a->score_sums)
        device->cl.clReleaseMemObject(a->score_sums);
    if (a->transfers)
        device->cl.clReleaseCommandQueue(a->transfers);
    context_drop(a->context);
    free(a);
}

/* ---- calling ---- */

static clattn_status read_args(clattn_group_attention *a, const clattn_attention_args *given,
                               clattn_attention_args *args)
{
    clattn_status status;
    struct report *report = &a->context->device.report;
    TRY(args_read(report, "clattn_attention_args", args, sizeof *args, sizeof *args, given));
    if (args->explicit_lengths || args->reserved || args->control || !binding_is_none(&args->workspace))
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "a group's attention takes no lengths, no workspace and no control");
    if (args->whole.query || args->whole.key || args->whole.head || args->whole.query_length ||
        args->whole.key_length || args->whole.heads)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "whole: a group says itself what its parts are");
    if (args->position > POSITION_LIMIT || args->position < -POSITION_LIMIT)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "position is %lld, expected at most 2^62 in size",
                            (long long)args->position);
fail:
    return status;
}

/* What is enqueued for another context or device would be this object's latest call. */
static clattn_status check_queue(clattn_context *context, cl_command_queue queue)
{
    clattn_status status = CLATTN_SUCCESS;
    struct device *device = &context->device;
    cl_context owner;
    cl_device_id id;
    TRY_CL(&device->report, "clGetCommandQueueInfo",
           device->cl.clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof owner, &owner, NULL));
    TRY_CL(&device->report, "clGetCommandQueueInfo",
           device->cl.clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof id, &id, NULL));
    if (owner != device->context || id != device->caps.device)
        status = report_error(&device->report, CLATTN_ERROR_WRONG_CONTEXT,
                              "the queue is of another OpenCL context or device");
fail:
    return status;
}

/* Begins with an event that follows the caller's wait list and this object's latest call. */
static clattn_status begin(struct run *r, cl_uint wait_count, const cl_event *wait_list)
{
    clattn_status status;
    struct device *device = &r->a->context->device;
    cl_event *list = NULL;
    if (!wait_count != !wait_list)
        return report_error(&device->report, CLATTN_ERROR_INVALID_ARGUMENT, "the wait list and its length disagree");
    TRY(check_queue(r->a->context, r->queue));
    list = malloc(((size_t)wait_count + 1) * sizeof(cl_event));
    if (!list) {
        status = report_error(&device->report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a wait list");
        goto fail;
    }
    if (wait_count)
        memcpy(list, wait_list, wait_count * sizeof *list);
    if (r->a->finished)
        list[wait_count++] = r->a->finished;
    TRY_CL(&device->report, "clEnqueueMarkerWithWaitList",
           device->cl.clEnqueueMarkerWithWaitList(r->queue, wait_count, wait_count ? list : NULL, &r->last));
    TRY_CL(&device->report, "clFlush", device->cl.clFlush(r->queue));
fail:
    free(list);
    return status;
}

clattn_status clattn_group_attention_run(clattn_group_attention *a, cl_command_queue queue,
                                         const clattn_attention_args *args, cl_uint wait_count,
                                         const cl_event *wait_list, cl_event *event)
{
    clattn_status status;
    if (event)
        *event = NULL;
    if (!a)
        return report_error(NULL, CLATTN_ERROR_INVALID_ARGUMENT, "attention is NULL");
    TRY(context_check(a->context));
    struct device *device = &a->context->device;
    struct run r = {.a = a, .p = &a->problem, .queue = queue ? queue : a->context->queue};
    TRY(ranks_check(&a->ranks));
    TRY(read_args(a, args, &r.args));
    const size_t started = a->ranks.started;
    status = begin(&r, wait_count, wait_list);
    if (r.last) { /* which follows all that these events do */
        forget_events(a);
        if (status == CLATTN_SUCCESS)
            status = run_mode(&r);
        event_replace(a->context, &a->finished, r.last);
    }
    if (status == CLATTN_SUCCESS) {
        const cl_int code = device->cl.clFlush(r.queue);
        if (code != CL_SUCCESS)
            status = report_opencl(&device->report, "clFlush", code);
    }
    /* Others may wait for exchanges of this call, and would take another call's for them. */
    if (status != CLATTN_SUCCESS && a->ranks.started != started)
        a->ranks.failed = true;
    if (event && status == CLATTN_SUCCESS) {
        *event = r.last;
        r.last = NULL;
    }
    event_replace(a->context, &r.last, NULL);
fail:
    return status;
}
