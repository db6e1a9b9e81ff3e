/* Trainers of a group: gradients are summed over ranks, each rank moves its share of the parameters, and all get all of them.
 *
 * A buffer of parameters is cut into pieces, and a piece into shares, one for each rank.  A rank adds the ranks' gradients of its share
 * in the order of their numbers, on the host, so that the sum has the same bits every time, and keeps moments of its share alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "base/size.h"
#include "base/strbuf.h"
#include "base/try.h"
#include "clattn/version.h"
#include "nn/train/trainer.h"
#include "ops/optimizer/optimizer.h"

#define PIECE ((size_t)1 << 20) /* numbers that are exchanged at once, about */
#define SHARE_MULTIPLE 16       /* numbers: shares begin at cache lines */

static const struct cl_table *table(const clattn_trainer *trainer)
{
    return &trainer->model->context->device.cl;
}

static struct report *report_of(const clattn_trainer *trainer)
{
    return &trainer->model->context->device.report;
}

static clattn_status no_memory(const clattn_trainer *trainer)
{
    return report_error(report_of(trainer), CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a trainer of a group");
}

/* ---- pieces ---- */

size_t piece_share(const struct piece *piece, int32_t rank, size_t *count)
{
    const size_t first = size_min((size_t)rank * piece->slice, piece->count);
    *count = size_min(piece->slice, piece->count - first);
    return first;
}

/* The most numbers by which ranks_slice lengthens an array that the ranks of the model sum. */
static size_t sums_padding(const clattn_trainer *trainer)
{
    const struct ranks *ranks = trainer->model->ranks;
    return ranks ? ranks_slice(ranks, 1) * (size_t)ranks->group.ranks : 0;
}

/* Cuts the buffers into pieces.  The last numbers of a buffer belong to the layers that are the first to have gradients, and the
 * pieces are exchanged in that order. */
static clattn_status cut(clattn_trainer *trainer)
{
    struct trainer_group *group = trainer->group;
    const size_t ranks = (size_t)group->ranks.group.ranks;
    const size_t slice = round_up(divide_up(PIECE, ranks), SHARE_MULTIPLE), most = slice * ranks;
    size_t left = 0;
    for (size_t i = 0; i < trainer->model->buffer_count; i++)
        left += divide_up(trainer->buffers[i].count, most);
    group->pieces = calloc(left + 1, sizeof *group->pieces);
    if (!group->pieces)
        return no_memory(trainer);
    group->piece_count = left;
    for (size_t i = 0; i < trainer->model->buffer_count; i++) {
        struct trained_buffer *buffer = &trainer->buffers[i];
        buffer->moments = 0;
        for (size_t first = 0; first < buffer->count; first += most) {
            struct piece *piece = &group->pieces[--left];
            size_t own;
            piece->buffer = i;
            piece->first = first;
            piece->count = size_min(most, buffer->count - first);
            piece->slice = round_up(divide_up(piece->count, ranks), SHARE_MULTIPLE);
            piece->moment = buffer->moments;
            piece_share(piece, group->ranks.group.rank, &own);
            buffer->moments += own;
        }
        buffer->moments = size_max(buffer->moments, 1); /* OpenCL has no buffers of no bytes */
    }
    const size_t room = most + sums_padding(trainer);
    group->out = malloc(room * sizeof *group->out);
    group->in = malloc(room * sizeof *group->in);
    return group->out && group->in ? CLATTN_SUCCESS : no_memory(trainer);
}

static clattn_adam_desc adam_desc(size_t count)
{
    const size_t one = 1;
    clattn_adam_desc desc = CLATTN_ADAM_DESC_INIT;
    desc.parameter = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, &count);
    desc.gradient = desc.first_moment = desc.second_moment = desc.parameter;
    desc.squares = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, &one);
    return desc;
}

/* Makes the plans of updates; most pieces have the same one. */
static clattn_status prewarm(const clattn_trainer *trainer)
{
    const struct trainer_group *group = trainer->group;
    clattn_status status = CLATTN_SUCCESS;
    for (size_t i = 0; i < group->piece_count; i++) {
        size_t count;
        piece_share(&group->pieces[i], group->ranks.group.rank, &count);
        const clattn_adam_desc desc = adam_desc(count);
        if (count)
            TRY(clattn_adam_prewarm(trainer->model->context, &desc));
    }
fail:
    return status;
}

clattn_status trainer_group_make(clattn_trainer *trainer, const struct ranks *ranks)
{
    clattn_status status;
    cl_int code;
    struct device *device = &trainer->model->context->device;
    struct trainer_group *group = calloc(1, sizeof *group);
    if (!group)
        return no_memory(trainer);
    trainer->group = group;
    group->ranks = *ranks;
    TRY(cut(trainer));
    group->transfers = device->cl.clCreateCommandQueue(device->context, device->caps.device, 0, &code);
    if (!group->transfers) {
        status = report_opencl(&device->report, "clCreateCommandQueue", code);
        goto fail;
    }
    status = prewarm(trainer);
fail:
    return status;
}

static void release_event(const clattn_trainer *trainer, cl_event *event)
{
    if (*event)
        table(trainer)->clReleaseEvent(*event);
    *event = NULL;
}

void trainer_group_clear(clattn_trainer *trainer)
{
    struct trainer_group *group = trainer->group;
    if (!group)
        return;
    if (group->transfers)
        table(trainer)->clReleaseCommandQueue(group->transfers);
    free(group->pieces);
    free(group->out);
    free(group->in);
    free(group);
    trainer->group = NULL;
}

/* ---- what ranks agree about ---- */

/* Adds a buffer's weights to a digest.  What is between them is nobody's. */
static clattn_status digest_buffer(const clattn_transformer *model, cl_command_queue queue, size_t index,
                                   struct sha256 *hash)
{
    clattn_status status = CLATTN_SUCCESS;
    struct device *device = &model->context->device;
    unsigned char *copy = NULL;
    size_t size;
    TRY_CL(&device->report, "clGetMemObjectInfo",
           device->cl.clGetMemObjectInfo(model->buffers[index], CL_MEM_SIZE, sizeof size, &size, NULL));
    copy = malloc(size);
    if (!copy)
        return report_error(&device->report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a digest of parameters");
    TRY_CL(&device->report, "clEnqueueReadBuffer",
           device->cl.clEnqueueReadBuffer(queue, model->buffers[index], CL_TRUE, 0, size, copy, 0, NULL, NULL));
    for (size_t i = 1; i < model->weight_count; i++) {
        const struct weight *weight = &model->weights[i];
        if (weight->buffer == index)
            sha256_update(hash, copy + weight->at, weight->rows * weight->columns * clattn_dtype_size(weight->dtype));
    }
fail:
    free(copy);
    return status;
}

/* A digest of the parameters, in hexadecimal. */
static clattn_status digest(const clattn_transformer *model, char hex[2 * 8 + 1])
{
    clattn_status status = CLATTN_SUCCESS;
    struct device *device = &model->context->device;
    struct sha256 hash;
    uint8_t bytes[SHA256_BYTES];
    cl_int code;
    cl_command_queue queue = device->cl.clCreateCommandQueue(device->context, device->caps.device, 0, &code);
    if (!queue)
        return report_opencl(&device->report, "clCreateCommandQueue", code);
    sha256_init(&hash);
    for (size_t i = 0; i < model->buffer_count; i++)
        TRY(digest_buffer(model, queue, i, &hash));
    sha256_final(&hash, bytes);
    for (int i = 0; i < 8; i++)
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
fail:
    device->cl.clReleaseCommandQueue(queue);
    return status;
}

static clattn_status agree(struct ranks *ranks, const clattn_transformer *model, clattn_status checked)
{
    clattn_status status = checked;
    struct strbuf text = {0};
    char own[RANKS_AGREED] = "", values[17] = "";
    if (status == CLATTN_SUCCESS)
        status = digest(model, values);
    strbuf_printf(&text, "version=%s\nranks=%d\n", clattn_version_string(), (int)ranks->group.ranks);
    if (status != CLATTN_SUCCESS)
        strbuf_printf(&text, "a model that it refuses: %s\n", clattn_status_string(status));
    else
        strbuf_printf(&text, "parameters=%zu of %s in %zu buffers\nvalues=%s\n", model->parameters,
                      clattn_dtype_name(model->dtype), model->buffer_count, values);
    if (!text.failed)
        snprintf(own, sizeof own, "%s", text.text);
    strbuf_clear(&text);
    const clattn_status agreed = ranks_agree(ranks, own, status != CLATTN_SUCCESS);
    return status != CLATTN_SUCCESS ? status : agreed;
}

clattn_status clattn_group_trainer_create(clattn_transformer *model, const clattn_group *group, clattn_trainer **result)
{
    clattn_status status;
    struct ranks ranks;
    clattn_trainer *trainer = NULL;
    if (result)
        *result = NULL;
    if (!model || !result)
        return report_error(model ? &model->context->device.report : NULL, CLATTN_ERROR_INVALID_ARGUMENT,
                            "the transformer or trainer is NULL");
    TRY(context_check(model->context));
    TRY(ranks_read(&ranks, &model->context->device.report, group));
    status = agree(&ranks, model, trainer_check(model));
    if (ranks.failed)
        goto fail;
    if (status == CLATTN_SUCCESS)
        status = trainer_make(model, &ranks, &trainer);
    status = ranks_all_ready(&ranks, status, "trainer");
    if (status == CLATTN_SUCCESS)
        *result = trainer;
    else
        clattn_trainer_release(&trainer);
fail:
    return status;
}

/* ---- updates ---- */

/* An event behind all that the caller's queue has, and the wait list. */
static clattn_status mark(const clattn_trainer *trainer, const struct enqueue_call *given, cl_event *event)
{
    struct chain chain;
    struct enqueue_call call = *given;
    *event = NULL;
    call.event = event;
    clattn_status status = chain_begin(&chain, trainer->model->context, &call, NULL);
    if (status == CLATTN_SUCCESS)
        status = chain_mark(&chain);
    TRY(chain_end(&chain, status));
    TRY_CL(report_of(trainer), "clFlush", table(trainer)->clFlush(chain.queue));
fail:
    if (status != CLATTN_SUCCESS)
        release_event(trainer, event);
    return status;
}

/* Copies `count` numbers of a buffer, from number `first` on, to the host after `ready`, which may be NULL.  Blocks, for
 * rusticl of Mesa 22.3 lets no command wait for one of another queue. */
static clattn_status fetch(const clattn_trainer *trainer, cl_mem buffer, size_t first, size_t count, float *to,
                           cl_event ready)
{
    clattn_status status = CLATTN_SUCCESS;
    if (ready)
        TRY_CL(report_of(trainer), "clWaitForEvents", table(trainer)->clWaitForEvents(1, &ready));
    if (count)
        TRY_CL(report_of(trainer), "clEnqueueReadBuffer",
               table(trainer)->clEnqueueReadBuffer(trainer->group->transfers, buffer, CL_TRUE, first * sizeof *to,
                                                   count * sizeof *to, to, 0, NULL, NULL));
fail:
    return status;
}

/* A blocking write says that `from` was copied, and may go even if finishing fails, not that other queues see it: finishing does. */
static clattn_status store(const clattn_trainer *trainer, cl_mem buffer, size_t first, size_t count, const float *from)
{
    clattn_status status = CLATTN_SUCCESS;
    cl_command_queue queue = trainer->group->transfers;
    if (!count)
        return status;
    TRY_CL(report_of(trainer), "clEnqueueWriteBuffer",
           table(trainer)->clEnqueueWriteBuffer(queue, buffer, CL_TRUE, first * sizeof *from, count * sizeof *from,
                                                from, 0, NULL, NULL));
    TRY_CL(report_of(trainer), "clFinish", table(trainer)->clFinish(queue));
fail:
    return status;
}

static void add(float *restrict sum, const float *restrict x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sum[i] += x[i];
}

/* Sums a share of gradients over the ranks that have the model together: each has a part of those of weights that all of them have. */
static clattn_status reduce_shared(const clattn_trainer *trainer, size_t count)
{
    struct trainer_group *group = trainer->group;
    struct ranks *ranks = trainer->model->ranks;
    const size_t slice = ranks_slice(ranks, count), padded = slice * (size_t)ranks->group.ranks;
    memset(group->in + count, 0, (padded - count) * sizeof *group->in);
    return ranks_sum(ranks, CLATTN_DTYPE_F32, group->in, group->out, slice);
}

/* Sums the ranks' gradients of this rank's share of a piece, and adds the squares of the sums. */
static clattn_status reduce(clattn_trainer *trainer, const struct piece *piece, cl_event ready, double *squares)
{
    clattn_status status;
    struct trainer_group *group = trainer->group;
    const clattn_transformer *model = trainer->model;
    const bool shared = model->ranks && piece->buffer >= model->own_buffers;
    cl_mem gradient = trainer->buffers[piece->buffer].gradient;
    const int32_t ranks = group->ranks.group.ranks;
    const size_t padded = piece->slice * (size_t)ranks;
    size_t count;
    const size_t share = piece_share(piece, group->ranks.group.rank, &count);
    TRY(fetch(trainer, gradient, piece->first, piece->count, group->out, ready));
    memset(group->out + piece->count, 0, (padded - piece->count) * sizeof *group->out);
    TRY(ranks_swap(&group->ranks, group->out, false, group->in, piece->slice * sizeof *group->in));
    for (int32_t i = 1; i < ranks; i++)
        add(group->in, group->in + (size_t)i * piece->slice, count);
    if (shared && count)
        TRY(reduce_shared(trainer, count));
    for (size_t i = 0; i < count && !(shared && model_rank(model)); i++) /* of shared ones once */
        *squares += (double)group->in[i] * (double)group->in[i];
    status = store(trainer, gradient, piece->first + share, count, group->in);
fail:
    return status;
}

/* Sums a number of each rank in their order. */
static clattn_status sum_numbers(const clattn_trainer *trainer, struct ranks *ranks, double *number)
{
    clattn_status status;
    const size_t count = (size_t)ranks->group.ranks;
    double *parts = malloc(count * sizeof *parts);
    if (!parts)
        return no_memory(trainer);
    TRY(ranks_swap(ranks, number, true, parts, sizeof *number));
    *number = 0;
    for (size_t i = 0; i < count; i++)
        *number += parts[i];
fail:
    free(parts);
    return status;
}

/* Sums the squares of all ranks' shares where updates look for them. */
static clattn_status share_squares(clattn_trainer *trainer, double own)
{
    clattn_status status;
    TRY(sum_numbers(trainer, &trainer->group->ranks, &own));
    if (trainer->model->ranks)
        TRY(sum_numbers(trainer, trainer->model->ranks, &own));
    const float squares = (float)own;
    status = store(trainer, trainer->squares, 0, 1, &squares);
fail:
    return status;
}

/* Moves the parameters of this rank's share. */
static clattn_status move_share(clattn_trainer *trainer, struct piece *piece, cl_command_queue queue,
                                const clattn_update_args *how)
{
    size_t count;
    const size_t share = piece_share(piece, trainer->group->ranks.group.rank, &count);
    const clattn_adam_desc desc = adam_desc(count);
    const clattn_adam_args args = trainer_adam_args(trainer, piece->buffer, piece->first + share, piece->moment, how);
    if (!count)
        return CLATTN_SUCCESS;
    return clattn_adam_run(trainer->model->context, queue, &desc, &args, 0, NULL, &piece->moved);
}

/* Gives all ranks the parameters of each other's shares. */
static clattn_status spread(clattn_trainer *trainer, struct piece *piece)
{
    clattn_status status;
    struct trainer_group *group = trainer->group;
    cl_mem value = trainer->buffers[piece->buffer].value;
    size_t count;
    const size_t share = piece_share(piece, group->ranks.group.rank, &count);
    if (group->ranks.group.ranks == 1) /* what is rounded next may lie on a queue that is out of order */
        return trainer_is_narrow(trainer) ? fetch(trainer, value, 0, 0, NULL, piece->moved) : CLATTN_SUCCESS;
    TRY(fetch(trainer, value, piece->first + share, count, group->out, piece->moved));
    memset(group->out + count, 0, (piece->slice - count) * sizeof *group->out);
    TRY(ranks_swap(&group->ranks, group->out, true, group->in, piece->slice * sizeof *group->in));
    status = store(trainer, value, piece->first, piece->count, group->in);
fail:
    return status;
}

/* Exchanges the gradients, each piece once it is ready and all behind `ready`, and then the parameters. */
static clattn_status exchange(clattn_trainer *trainer, cl_command_queue queue, const clattn_update_args *how,
                              cl_event ready)
{
    clattn_status status;
    struct trainer_group *group = trainer->group;
    double squares = 0;
    for (size_t i = 0; i < group->piece_count; i++) {
        const struct piece *piece = &group->pieces[i];
        TRY(reduce(trainer, piece, piece->ready && !how->changed_gradients ? piece->ready : ready, &squares));
    }
    TRY_CL(report_of(trainer), "clWaitForEvents", table(trainer)->clWaitForEvents(1, &ready));
    TRY(share_squares(trainer, squares));
    for (size_t i = 0; i < group->piece_count; i++)
        TRY(move_share(trainer, &group->pieces[i], queue, how));
    TRY_CL(report_of(trainer), "clFlush", table(trainer)->clFlush(queue));
    for (size_t i = 0; i < group->piece_count; i++)
        TRY(spread(trainer, &group->pieces[i]));
    for (size_t i = 0; i < trainer->model->buffer_count && trainer_is_narrow(trainer); i++)
        TRY(trainer_round(trainer, i, queue));
fail:
    return status;
}

clattn_status trainer_group_update(clattn_trainer *trainer, const struct enqueue_call *call,
                                   const clattn_update_args *how)
{
    clattn_status status;
    struct trainer_group *group = trainer->group;
    struct ranks *together = trainer->model->ranks;
    cl_command_queue queue = call->queue ? call->queue : trainer->model->context->queue;
    const struct enqueue_call last = {.queue = queue};
    cl_event ready = NULL;
    clattn_adam_args numbers = trainer_adam_args(trainer, 0, 0, 0, how);
    TRY(adam_read_numbers(report_of(trainer), true, &numbers)); /* a rank without a share of a piece runs no Adam */
    TRY(ranks_check(&group->ranks));
    if (together)
        TRY(ranks_check(together));
    TRY(mark(trainer, call, &ready));
    status = exchange(trainer, queue, how, ready);
    if (status == CLATTN_SUCCESS && call->event)
        status = mark(trainer, &last, call->event);
    /* Another call's exchanges would meet those of this one that other ranks still wait for. */
    group->ranks.failed |= status != CLATTN_SUCCESS;
    if (together)
        together->failed |= status != CLATTN_SUCCESS;
fail:
    for (size_t i = 0; i < group->piece_count; i++)
        release_event(trainer, &group->pieces[i].moved);
    trainer_forget_ready(trainer);
    release_event(trainer, &ready);
    return status;
}
