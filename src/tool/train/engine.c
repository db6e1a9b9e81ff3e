#include "tool/train/engine.h"

#include <stdlib.h>

#include "base/size.h"
#include "tool/cli/os_tool.h"

#define IGNORED (-100) /* the label of padding */

static int check(const train_engine *e, clattn_status status)
{
    return device_check(e->device, status, "train");
}

/* ---- the model ---- */

static int open_slot(train_engine *e, train_slot *slot)
{
    const size_t bytes = e->elements * sizeof(int32_t);
    cl_mem *const buffers[] = {&slot->source, &slot->target, &slot->labels, &slot->losses};
    int status = TOOL_DONE;
    for (size_t i = 0; i < 4; i++)
        TOOL_TRY(check(e, device_output(e->device, bytes, buffers[i])));
    slot->host = malloc(5 * bytes);
    slot->read = malloc(bytes);
    if (slot->host == NULL || slot->read == NULL)
        status = complain(TOOL_FAILED, "train: no memory for a batch of %zu pieces", e->elements);
fail:
    return status;
}

static int make_model(train_engine *e, const clattn_weight_source *source)
{
    clattn_transformer_desc desc;
    clattn_stack_desc encoder, decoder;
    clattn_context *context = e->device->context;
    const clattn_group *group = world_row(e->world);
    int status;
    text_shape_describe(e->shape, &desc, &encoder, &decoder);
    desc.dtype = e->dtype;
    TOOL_TRY(check(e, group != NULL ? clattn_group_transformer_create(context, group, &desc, source, &e->model)
                                    : clattn_transformer_create(context, &desc, source, &e->model)));
    for (size_t i = 0; i < TRAIN_FLIGHT; i++)
        TOOL_TRY(open_slot(e, &e->slot[i]));
fail:
    return status;
}

int train_engine_open(train_engine *e, const clattn_weight_source *source)
{
    const clattn_group *group = world_column(e->world);
    int status;
    TOOL_TRY(world_agree(e->world, make_model(e, source)));
    const clattn_status made = group != NULL ? clattn_group_trainer_create(e->model, group, &e->trainer)
                                             : clattn_trainer_create(e->model, &e->trainer);
    status = world_agree(e->world, check(e, made));
fail:
    return status;
}

static void release_buffer(cl_mem *buffer)
{
    if (*buffer != NULL)
        clReleaseMemObject(*buffer);
    *buffer = NULL;
}

void train_engine_close(train_engine *e)
{
    if (e->flying > 0) /* an error: what is under way still writes to the slots */
        clFinish(e->device->queue);
    for (size_t i = 0; i < TRAIN_FLIGHT; i++) {
        train_slot *slot = &e->slot[i];
        release_buffer(&slot->source);
        release_buffer(&slot->target);
        release_buffer(&slot->labels);
        release_buffer(&slot->losses);
        free(slot->host);
        free(slot->read);
        if (slot->event != NULL)
            clReleaseEvent(slot->event);
        *slot = (train_slot){0};
    }
    for (size_t i = 0; i < e->plans; i++)
        clattn_plan_release(&e->plan[i].plan);
    release_buffer(&e->workspace);
    clattn_trainer_release(&e->trainer);
    clattn_transformer_release(&e->model);
    e->plans = e->flying = 0;
}

/* ---- plans ---- */

/* Makes the workspace, which all plans share because the queue runs one after the other, large enough for `plan`. */
static int grow_workspace(train_engine *e, const clattn_plan *plan)
{
    const size_t bytes = clattn_plan_workspace_size(plan);
    if (bytes <= e->workspace_bytes)
        return TOOL_DONE;
    release_buffer(&e->workspace); /* what is under way keeps it for as long as it needs it */
    e->workspace_bytes = 0;
    const int status = check(e, device_output(e->device, bytes, &e->workspace));
    if (status == TOOL_DONE)
        e->workspace_bytes = bytes;
    return status;
}

static int find_plan(train_engine *e, const train_batch *batch, bool evaluation, const train_plan **found)
{
    int status = TOOL_DONE;
    for (size_t i = 0; i < e->plans; i++) {
        *found = &e->plan[i];
        if ((*found)->length == batch->length && (*found)->rows == batch->rows && (*found)->evaluation == evaluation)
            return status;
    }
    const double before = os_seconds();
    clattn_training_desc desc = CLATTN_TRAINING_DESC_INIT;
    train_plan *made = &e->plan[e->plans];
    desc.batch = batch->rows;
    desc.source_length = e->shape->kind == TEXT_KIND_TRANSLATION ? batch->length : 0;
    desc.target_length = batch->length;
    desc.label_smoothing = evaluation ? 0 : e->label_smoothing;
    desc.dropout = evaluation ? 0 : e->dropout;
    desc.recompute = e->recompute && !evaluation;
    desc.evaluation = evaluation;
    *made = (train_plan){.length = batch->length, .rows = batch->rows, .evaluation = evaluation};
    TOOL_TRY(check(e, clattn_training_plan_create(e->trainer, &desc, NULL, &made->plan)));
    e->plans++;
    TOOL_TRY(grow_workspace(e, made->plan));
    *found = made;
    e->compiling += os_seconds() - before;
fail:
    return status;
}

/* ---- batches ---- */

/* Writes the batch to the slot's host memory: sources, targets and labels, and the lengths of both. */
static void fill(const train_engine *e, const train_items *items, const train_batch *batch, train_slot *slot)
{
    int32_t *source = slot->host, *target = source + e->elements, *labels = target + e->elements;
    int32_t *source_lengths = labels + e->elements, *target_lengths = source_lengths + e->elements;
    const size_t length = batch->length;
    for (size_t row = 0; row < batch->rows; row++) {
        const train_item none = {0};
        const train_item *item = row < batch->count ? &items->item[batch->item[row]] : &none;
        const int32_t *id = items->ids.id + item->first;
        source_lengths[row] = (int32_t)item->source;
        target_lengths[row] = (int32_t)item->target;
        for (size_t i = 0; i < length; i++) {
            const size_t at = row * length + i;
            const bool counts = i < item->target;
            source[at] = i < item->source ? id[i] : VOCABULARY_PAD;
            target[at] = counts ? id[item->source + i] : VOCABULARY_PAD;
            labels[at] = counts ? id[item->source + i + 1] : IGNORED;
        }
    }
    slot->elements = batch->rows * length;
    slot->label_count = batch->labels;
}

static int copy(train_engine *e, cl_mem to, const int32_t *from, size_t count)
{
    const cl_int code =
        clEnqueueWriteBuffer(e->device->queue, to, CL_FALSE, 0, count * sizeof *from, from, 0, NULL, NULL);
    return check(e, device_opencl_check(e->device, "clEnqueueWriteBuffer", code));
}

int train_engine_enqueue(train_engine *e, const train_items *items, const train_batch *batch, const train_pass *pass)
{
    train_slot *slot = &e->slot[e->next];
    const train_plan *plan;
    clattn_training_args args = CLATTN_TRAINING_ARGS_INIT;
    const bool translation = e->shape->kind == TEXT_KIND_TRANSLATION;
    int status;
    TOOL_TRY(find_plan(e, batch, pass->evaluation, &plan));
    fill(e, items, batch, slot);
    e->flying++;
    if (translation)
        TOOL_TRY(copy(e, slot->source, slot->host, slot->elements));
    TOOL_TRY(copy(e, slot->target, slot->host + e->elements, slot->elements));
    TOOL_TRY(copy(e, slot->labels, slot->host + 2 * e->elements, slot->elements));
    args.source = clattn_binding_buffer(translation ? slot->source : NULL, 0);
    args.target = clattn_binding_buffer(slot->target, 0);
    args.labels = clattn_binding_buffer(slot->labels, 0);
    args.losses = clattn_binding_buffer(slot->losses, 0);
    args.source_lengths = translation ? slot->host + 3 * e->elements : NULL;
    args.target_lengths = slot->host + 4 * e->elements;
    args.explicit_scale = 1;
    args.scale = pass->scale;
    args.accumulate = pass->accumulate;
    args.seed = pass->seed;
    args.workspace = clattn_binding_buffer(e->workspace, 0);
    TOOL_TRY(check(e, clattn_training_enqueue(plan->plan, e->device->queue, &args, 0, NULL, NULL)));
    const cl_int code = clEnqueueReadBuffer(e->device->queue, slot->losses, CL_FALSE, 0,
                                            slot->elements * sizeof *slot->read, slot->read, 0, NULL, &slot->event);
    TOOL_TRY(check(e, device_opencl_check(e->device, "clEnqueueReadBuffer", code)));
    clFlush(e->device->queue);
    e->next = (e->next + 1) % TRAIN_FLIGHT;
fail:
    return status;
}

int train_engine_collect(train_engine *e, train_losses *losses)
{
    train_slot *slot = &e->slot[(e->next + TRAIN_FLIGHT - e->flying) % TRAIN_FLIGHT];
    *losses = (train_losses){.labels = slot->label_count};
    const int status = check(e, device_wait(e->device, slot->event));
    clReleaseEvent(slot->event);
    slot->event = NULL;
    e->flying--;
    for (size_t i = 0; i < slot->elements && status == TOOL_DONE; i++)
        losses->sum += (double)slot->read[i];
    return status;
}

int train_engine_update(train_engine *e, const clattn_update_args *args)
{
    return check(e, clattn_trainer_update(e->trainer, e->device->queue, args, 0, NULL, NULL));
}
