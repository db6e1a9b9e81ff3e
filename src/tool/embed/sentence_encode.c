/* Texts to vectors: all texts are cut into tokens, then divided into batches of texts of similar length, and all
 * batches are enqueued before the first one is waited for. */
#include "tool/embed/sentence.h"

#include <stdlib.h>
#include <string.h>

#include "base/try.h"

#define BATCH_TOKENS 2048 /* of a plan: enough to keep a device busy, in a bounded memory */
#define LEAST_BUCKET 4    /* 16 tokens */
#define UNIT_TOKENS 256   /* of a batch, for each compute unit: enough to keep it busy */

/* A text and its tokens, ids[begin] … ids[begin + tokens − 1]. */
typedef struct item {
    size_t text, begin, tokens;
} item;

/* Items first … first + count − 1, whose rows of plan->length tokens begin at `offset` of the input. */
typedef struct batch {
    const sentence_plan *plan;
    size_t first, count, offset;
} batch;

typedef struct work {
    sentence_model *model;
    const sentence_text *texts;
    size_t count;
    item *items;  /* longest first */
    int32_t *ids; /* of all texts, one after the other */
    size_t id_count, id_capacity;
    batch *batches; /* at most one an item */
    size_t batch_count;
    int32_t *padded; /* the input: rows of all batches, zeros after a text's tokens */
    size_t padded_count;
    int32_t *lengths; /* tokens of each item */
    float *rows;      /* vectors in the order of items */
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

static bool append_ids(work *w, const wordpiece_ids *ids)
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
    for (size_t i = 0; i < w->count; i++) {
        const sentence_text *text = &w->texts[i];
        if (wordpiece_encode(model->tokenizer, text->text, text->bytes, model->most_tokens, &ids) != CLATTN_SUCCESS)
            TOOL_TRY(no_memory(w->count));
        w->items[i] = (item){i, w->id_count, ids.count};
        if (!append_ids(w, &ids))
            TOOL_TRY(no_memory(w->count));
        if (ids.total > ids.count && counts->cut++ == 0) {
            counts->first_cut = counts->texts;
            counts->first_cut_tokens = ids.total;
        }
        counts->texts++;
        counts->tokens += ids.count;
        counts->unknown += ids.unknown;
    }
fail:
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

/* A plan for batches of texts of the bucket, `wanted` of which are at hand: the plan that is there, if its batch is
 * large enough, or a new one in its place. */
static clattn_status plan_for(sentence_model *model, size_t bucket, size_t wanted, const sentence_plan **result)
{
    sentence_plan *plan = &model->plans[bucket];
    clattn_encoder_desc desc = CLATTN_ENCODER_DESC_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    size_t most = BATCH_TOKENS >> bucket, texts = 1;
    most = most == 0 ? 1 : most;
    while (texts < wanted && texts < most)
        texts *= 2;
    texts = texts < most ? texts : most;
    *result = plan;
    if (plan->plan != NULL && plan->batch >= texts)
        return CLATTN_SUCCESS;
    clattn_plan_release(&plan->plan);
    plan->batch = desc.batch = texts;
    plan->length = desc.length = (size_t)1 << bucket < model->most_tokens ? (size_t)1 << bucket : model->most_tokens;
    desc.pooling = model->pooling;
    desc.pooled_unit = 1;
    options.solver = model->solver;
    return clattn_encoder_plan_create(model->transformer, &desc, &options, &plan->plan);
}

/* How many of the next `count` items are a batch.  All of its rows are as long as its first, the longest, so texts that are
 * more than an eighth shorter wait for the next batch if this one keeps the device busy. */
static size_t batch_of(const work *w, size_t first, size_t count)
{
    const size_t longest = w->items[first].tokens, units = w->model->device->info.compute_units;
    const size_t enough = units < BATCH_TOKENS / UNIT_TOKENS ? units * UNIT_TOKENS : BATCH_TOKENS;
    size_t taken = 1;
    while (taken < count && (taken * longest < enough || w->items[first + taken].tokens >= longest - longest / 8))
        taken++;
    return taken;
}

/* Divides the items into batches, each of one bucket.  A bucket's plan is made for all of the bucket's items, or as many as a
 * plan takes, so that it is not replaced while batches refer to it. */
static clattn_status make_batches(work *w)
{
    for (size_t first = 0, count; first < w->count; first += count) {
        const sentence_plan *plan;
        size_t bucket = bucket_of(w->items[first].tokens);
        for (count = 1; first + count < w->count && bucket_of(w->items[first + count].tokens) == bucket;)
            count++;
        clattn_status status = plan_for(w->model, bucket, count, &plan);
        if (status != CLATTN_SUCCESS)
            return status;
        count = batch_of(w, first, count < plan->batch ? count : plan->batch);
        w->batches[w->batch_count++] = (batch){plan, first, count, w->padded_count};
        w->padded_count += count * plan->length;
    }
    return CLATTN_SUCCESS;
}

static void fill_batch(work *w, const batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        const item *each = &w->items[b->first + i];
        memcpy(w->padded + b->offset + i * b->plan->length, w->ids + each->begin, each->tokens * sizeof *w->ids);
        w->lengths[b->first + i] = (int32_t)each->tokens;
    }
}

static clattn_status enqueue_batch(const work *w, const batch *b)
{
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    args.input = clattn_binding_buffer(w->input, (int64_t)b->offset);
    args.pooled = clattn_binding_buffer(w->output, (int64_t)(b->first * w->model->stack.d_model));
    args.explicit_lengths = 1;
    args.batch = b->count;
    args.length = w->items[b->first].tokens;
    args.lengths = w->lengths + b->first;
    return clattn_encoder_enqueue(b->plan->plan, w->model->device->queue, &args, 0, NULL, NULL);
}

/* *host_memory: whether it was the host's memory that ran out. */
static clattn_status compute(work *w, bool *host_memory)
{
    tool_device *device = w->model->device;
    const size_t bytes = w->count * w->model->stack.d_model * sizeof(float);
    clattn_status status = CLATTN_SUCCESS;
    TRY(make_batches(w));
    w->padded = calloc(w->padded_count, sizeof *w->padded);
    *host_memory = w->padded == NULL;
    if (*host_memory)
        return CLATTN_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < w->batch_count; i++)
        fill_batch(w, &w->batches[i]);
    const clattn_host_tensor tensor = {.data = w->padded,
                                       .bytes = w->padded_count * sizeof *w->padded,
                                       .dtype = CLATTN_DTYPE_I32,
                                       .rank = 1,
                                       .extent = {w->padded_count}};
    TRY(device_upload(device, &tensor, &w->input));
    TRY(device_output(device, bytes, &w->output));
    for (size_t i = 0; i < w->batch_count; i++)
        TRY(enqueue_batch(w, &w->batches[i]));
    TRY(device_download(device, w->output, bytes, w->rows));
fail:
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
    w.batches = malloc(count * sizeof *w.batches);
    w.lengths = malloc(count * sizeof *w.lengths);
    w.rows = malloc(count * d_model * sizeof *w.rows);
    int status = TOOL_DONE;
    if (w.items == NULL || w.batches == NULL || w.lengths == NULL || w.rows == NULL)
        TOOL_TRY(no_memory(count));
    TOOL_TRY(tokenize(&w, counts));
    qsort(w.items, count, sizeof *w.items, longer_first);
    clattn_status computed = compute(&w, &host_memory);
    if (computed != CLATTN_SUCCESS)
        TOOL_TRY(host_memory ? no_memory(count) : device_check(model->device, computed, NULL));
    for (size_t i = 0; i < count; i++)
        memcpy(vectors + w.items[i].text * d_model, w.rows + i * d_model, d_model * sizeof *vectors);
fail:
    if (w.input != NULL)
        clReleaseMemObject(w.input);
    if (w.output != NULL)
        clReleaseMemObject(w.output);
    free(w.items);
    free(w.ids);
    free(w.batches);
    free(w.padded);
    free(w.lengths);
    free(w.rows);
    return status;
}
