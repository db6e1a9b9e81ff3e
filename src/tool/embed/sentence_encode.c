/* Texts to vectors: tokens first, then batches of like length, all enqueued before the first is waited for.
 */
#include "tool/embed/sentence.h"

#include <stdlib.h>
#include <string.h>

#define BATCH_TOKENS 2048 /* of a plan: its memory, and what it takes to keep a device busy */
#define LEAST_BUCKET 4    /* 16 tokens */

typedef struct item {
    size_t text;  /* which */
    size_t begin; /* its tokens, in `ids` */
    size_t tokens;
} item;

typedef struct work {
    sentence_model *model;
    const sentence_text *texts;
    size_t count;
    item *items;  /* longest first */
    int32_t *ids; /* of all texts, one after the other */
    size_t id_count, id_capacity;
    int32_t *padded; /* as the device gets them: a batch's rows, of its class's length */
    int32_t *lengths;
    float *rows; /* vectors in the order of items */
    cl_mem input, output;
} work;

static int no_memory(size_t count)
{
    return complain(TOOL_FAILED, "out of memory for %zu texts", count);
}

/* The smallest i with `length` <= 2^i. */
static size_t bucket_of(size_t length)
{
    size_t bucket = LEAST_BUCKET;
    while (((size_t)1 << bucket) < length)
        bucket++;
    return bucket;
}

static bool keep(work *w, const wordpiece_ids *ids)
{
    if (w->id_capacity - w->id_count < ids->count) {
        size_t capacity = 2 * w->id_capacity + ids->count;
        int32_t *larger = realloc(w->ids, capacity * sizeof *larger);
        if (larger == NULL)
            return false;
        w->ids = larger;
        w->id_capacity = capacity;
    }
    memcpy(w->ids + w->id_count, ids->id, ids->count * sizeof *ids->id);
    w->id_count += ids->count;
    return true;
}

static int tokenize(work *w, sentence_counts *counts)
{
    const sentence_model *model = w->model;
    wordpiece_ids ids = {0};
    int status = TOOL_DONE;
    for (size_t i = 0; status == TOOL_DONE && i < w->count; i++) {
        clattn_status encoded =
            wordpiece_encode(model->tokenizer, w->texts[i].text, w->texts[i].bytes, model->most_tokens, &ids);
        if (encoded == CLATTN_SUCCESS)
            w->items[i] = (item){i, w->id_count, ids.count};
        if (encoded != CLATTN_SUCCESS || !keep(w, &ids)) {
            status = no_memory(w->count);
        } else {
            if (ids.whole > ids.count && counts->cut++ == 0) {
                counts->first_cut = counts->texts;
                counts->first_whole = ids.whole;
            }
            counts->texts++;
            counts->tokens += ids.count;
            counts->unknown += ids.unknown;
        }
    }
    wordpiece_ids_release(&ids);
    return status;
}

static int longer_first(const void *left, const void *right)
{
    const item *a = left, *b = right;
    if (a->tokens != b->tokens)
        return a->tokens < b->tokens ? 1 : -1;
    return a->text > b->text ? 1 : -1;
}

/* An encoder for texts of that class, `wanted` of which are at hand. */
static clattn_status plan_of(sentence_model *model, size_t bucket, size_t wanted, sentence_plan **result)
{
    sentence_plan *plan = &model->plans[bucket];
    clattn_encoder_desc desc = CLATTN_ENCODER_DESC_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    size_t most = BATCH_TOKENS >> bucket, batch = 1;
    most = most == 0 ? 1 : most;
    while (batch < wanted && batch < most)
        batch *= 2;
    batch = batch < most ? batch : most;
    *result = plan;
    if (plan->plan != NULL && plan->batch >= batch)
        return CLATTN_SUCCESS;
    clattn_plan_release(&plan->plan);
    plan->batch = desc.batch = batch;
    plan->length = desc.length = (size_t)1 << bucket < model->most_tokens ? (size_t)1 << bucket : model->most_tokens;
    desc.pooling = model->pooling;
    desc.pooled_unit = 1;
    options.solver = model->solver;
    return clattn_encoder_plan_create(model->transformer, &desc, &options, &plan->plan);
}

/* How many of the items from `first` on are one batch, at most the plan's: those of one class. */
static size_t batch_from(const work *w, size_t first, size_t bucket)
{
    size_t count = 0;
    while (first + count < w->count && bucket_of(w->items[first + count].tokens) == bucket)
        count++;
    return count;
}

/* Enqueues items first … first + count, whose padded rows begin at `offset`. */
static clattn_status enqueue(const work *w, const sentence_plan *plan, size_t first, size_t count, size_t offset)
{
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    args.input = clattn_binding_buffer(w->input, (int64_t)offset);
    args.pooled = clattn_binding_buffer(w->output, (int64_t)(first * w->model->stack.d_model));
    args.explicit_lengths = 1;
    args.batch = count;
    args.length = w->items[first].tokens;
    args.lengths = w->lengths + first;
    return clattn_encoder_enqueue(plan->plan, w->model->device->queue, &args, 0, NULL, NULL);
}

/* Goes through the batches: `run` false only lays their rows out and says how many there are. */
static clattn_status batches(work *w, bool run, size_t *padded)
{
    clattn_status status = CLATTN_SUCCESS;
    size_t offset = 0;
    for (size_t first = 0, count; status == CLATTN_SUCCESS && first < w->count; first += count) {
        sentence_plan *plan;
        size_t bucket = bucket_of(w->items[first].tokens);
        count = batch_from(w, first, bucket);
        status = plan_of(w->model, bucket, count, &plan);
        if (status != CLATTN_SUCCESS)
            break;
        count = count < plan->batch ? count : plan->batch;
        if (run)
            status = enqueue(w, plan, first, count, offset);
        for (size_t i = 0; !run && w->padded != NULL && i < count; i++) {
            const item *each = &w->items[first + i];
            memcpy(w->padded + offset + i * plan->length, w->ids + each->begin, each->tokens * sizeof *w->ids);
            w->lengths[first + i] = (int32_t)each->tokens;
        }
        offset += count * plan->length;
    }
    *padded = offset;
    return status;
}

static clattn_status compute(work *w, bool *host_memory)
{
    tool_device *device = w->model->device;
    const size_t bytes = w->count * w->model->stack.d_model * sizeof(float);
    clattn_host_tensor tensor = {.dtype = CLATTN_DTYPE_I32, .rank = 1};
    size_t padded;
    clattn_status status = batches(w, false, &padded);
    if (status != CLATTN_SUCCESS)
        return status;
    w->padded = calloc(padded, sizeof *w->padded);
    *host_memory = w->padded == NULL;
    if (*host_memory)
        return CLATTN_ERROR_OUT_OF_MEMORY;
    status = batches(w, false, &padded);
    tensor.extent[0] = padded;
    tensor.bytes = padded * sizeof *w->padded;
    tensor.data = w->padded;
    if (status == CLATTN_SUCCESS)
        status = device_upload(device, &tensor, &w->input);
    if (status == CLATTN_SUCCESS)
        status = device_output(device, bytes, &w->output);
    if (status == CLATTN_SUCCESS)
        status = batches(w, true, &padded);
    if (status == CLATTN_SUCCESS)
        status = device_download(device, w->output, bytes, w->rows);
    return status;
}

int sentence_encode(sentence_model *model, const sentence_text *texts, size_t count, float *vectors,
                    sentence_counts *counts)
{
    const size_t d_model = model->stack.d_model;
    work w = {.model = model, .texts = texts, .count = count};
    bool host_memory = false;
    if (count == 0)
        return TOOL_DONE;
    w.items = malloc(count * sizeof *w.items);
    w.lengths = malloc(count * sizeof *w.lengths);
    w.rows = malloc(count * d_model * sizeof *w.rows);
    int status;
    TOOL_TRY(w.items != NULL && w.lengths != NULL && w.rows != NULL ? tokenize(&w, counts) : no_memory(count));
    qsort(w.items, count, sizeof *w.items, longer_first);
    clattn_status computed = compute(&w, &host_memory);
    if (computed != CLATTN_SUCCESS)
        TOOL_TRY(host_memory ? no_memory(count) : device_failed(model->device, computed, NULL));
    for (size_t i = 0; i < count; i++)
        memcpy(vectors + w.items[i].text * d_model, w.rows + i * d_model, d_model * sizeof *vectors);
fail:
    if (w.input != NULL)
        clReleaseMemObject(w.input);
    if (w.output != NULL)
        clReleaseMemObject(w.output);
    free(w.items);
    free(w.ids);
    free(w.padded);
    free(w.lengths);
    free(w.rows);
    return status;
}
