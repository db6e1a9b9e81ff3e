/* Making the trainer of a group: its pieces, and what ranks compare before they begin. */
#include <stdio.h>
#include <stdlib.h>

#include "base/sha256.h"
#include "base/size.h"
#include "base/strbuf.h"
#include "base/try.h"
#include "clattn/version.h"
#include "nn/train/trainer.h"

#define PIECE ((size_t)1 << 20) /* numbers that are exchanged at once, about */
#define SHARE_MULTIPLE 16       /* numbers: shares begin at cache lines */

static clattn_status no_memory(const clattn_trainer *trainer)
{
    return report_error(&trainer->model->context->device.report, CLATTN_ERROR_OUT_OF_MEMORY,
                        "no memory for a trainer of a group");
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
    if (!staging_make(&group->host, &trainer->model->context->device, group->transfers, 2 * room * sizeof *group->out))
        return no_memory(trainer);
    group->out = group->host.memory;
    group->in = group->out + room;
    return CLATTN_SUCCESS;
}

clattn_adam_desc trainer_adam_desc(size_t count)
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
        const clattn_adam_desc desc = trainer_adam_desc(count);
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
    group->transfers = device->cl.clCreateCommandQueue(device->context, device->caps.device, 0, &code);
    if (!group->transfers) {
        status = report_opencl(&device->report, "clCreateCommandQueue", code);
        goto fail;
    }
    TRY(cut(trainer));
    status = prewarm(trainer);
fail:
    return status;
}

void trainer_group_clear(clattn_trainer *trainer)
{
    struct trainer_group *group = trainer->group;
    if (!group)
        return;
    staging_release(&group->host, &trainer->model->context->device, group->transfers);
    if (group->transfers)
        trainer->model->context->device.cl.clReleaseCommandQueue(group->transfers);
    free(group->pieces);
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
