/* Texts to vectors: all texts are cut into tokens, then divided into batches of texts of similar length.  One device has all
 * batches enqueued before the first one is waited for; of several each takes one after the other. */
#include "tool/embed/sentence.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/try.h"

#define BATCH_TOKENS 2048 /* of a plan: enough to keep a device busy, in a bounded memory */
#define LEAST_BUCKET 4    /* 16 tokens */
#define UNIT_TOKENS 256   /* of a batch, for each compute unit: enough to keep it busy */

/* A text and its tokens, ids[begin] … ids[begin + tokens − 1]. */
typedef struct item {
    size_t text, begin, tokens;
} item;

/* Items first … first + count − 1, whose rows of as many tokens as the bucket's plans have begin at `offset` of the input. */
typedef struct batch {
    size_t bucket, first, count, offset;
} batch;

typedef struct work {
    sentence_model *model;
    const sentence_text *texts;
    size_t count;
    item *items;  /* longest first */
    int32_t *ids; /* of all texts, one after the other */
    size_t id_count, id_capacity;
    batch *batches; /* at most one an item */
    double *sizes;  /* of batches, in tokens */
    size_t batch_count;
    int32_t *padded; /* the input: rows of all batches, zeros after a text's tokens */
    size_t padded_count;
    int32_t *lengths;                           /* tokens of each item */
    float *rows;                                /* vectors in the order of items */
    cl_mem input[POOL_MOST], output[POOL_MOST]; /* of devices that have had a batch */
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

/* The tokens of a row that the plans of a bucket take. */
static size_t length_of(const sentence_model *model, size_t bucket)
{
    return size_min((size_t)1 << bucket, model->most_tokens);
}

/* Sees that the plans of a bucket take its `wanted` texts, or as many as a plan takes. */
static void need_batch(sentence_model *model, size_t bucket, size_t wanted)
{
    const size_t most = size_max(BATCH_TOKENS >> bucket, 1);
    size_t texts = 1;
    while (texts < wanted && texts < most)
        texts *= 2;
    model->batch[bucket] = size_max(model->batch[bucket], size_min(texts, most));
}

/* Sees that the device has the plan of a bucket. */
static clattn_status make_plan(sentence_model *model, sentence_device *on, size_t bucket)
{
    clattn_encoder_desc desc = CLATTN_ENCODER_DESC_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    if (on->batch[bucket] == model->batch[bucket])
        return CLATTN_SUCCESS;
    clattn_plan_release(&on->plans[bucket]);
    on->batch[bucket] = desc.batch = model->batch[bucket];
    desc.length = length_of(model, bucket);
    desc.pooling = model->pooling;
    desc.pooled_unit = 1;
    options.solver = model->solver;
    return clattn_encoder_plan_create(on->transformer, &desc, &options, &on->plans[bucket]);
}

/* How many of the next `count` items are a batch.  All of its rows are as long as its first, the longest, so texts that are
 * more than an eighth shorter wait for the next batch if this one keeps the device busy. */
static size_t batch_of(const work *w, size_t first, size_t count)
{
    const size_t longest = w->items[first].tokens, units = w->model->on[0].device->info.compute_units;
    const size_t enough = units < BATCH_TOKENS / UNIT_TOKENS ? units * UNIT_TOKENS : BATCH_TOKENS;
    size_t taken = 1;
    while (taken < count && (taken * longest < enough || w->items[first + taken].tokens >= longest - longest / 8))
        taken++;
    return taken;
}

/* Divides the items into batches, each of one bucket.  A bucket's plans are for all of its items, or as many as a plan takes, so that
 * they are not replaced while batches refer to them. */
static void make_batches(work *w)
{
    for (size_t first = 0, count; first < w->count; first += count) {
        const size_t bucket = bucket_of(w->items[first].tokens);
        for (count = 1; first + count < w->count && bucket_of(w->items[first + count].tokens) == bucket;)
            count++;
        need_batch(w->model, bucket, count);
        count = batch_of(w, first, size_min(count, w->model->batch[bucket]));
        w->sizes[w->batch_count] = (double)(count * w->items[first].tokens);
        w->batches[w->batch_count++] = (batch){bucket, first, count, w->padded_count};
        w->padded_count += count * length_of(w->model, bucket);
    }
}

static void fill_batch(work *w, const batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        const item *each = &w->items[b->first + i];
        memcpy(w->padded + b->offset + i * length_of(w->model, b->bucket), w->ids + each->begin,
               each->tokens * sizeof *w->ids);
        w->lengths[b->first + i] = (int32_t)each->tokens;
    }
}

/* Sees that the device has the input and a place for the vectors. */
static clattn_status make_buffers(work *w, size_t device)
{
    tool_device *to = w->model->on[device].device;
    const clattn_host_tensor tensor = {.data = w->padded,
                                       .bytes = w->padded_count * sizeof *w->padded,
                                       .dtype = CLATTN_DTYPE_I32,
                                       .rank = 1,
                                       .extent = {w->padded_count}};
    clattn_status status = CLATTN_SUCCESS;
    if (w->output[device] != NULL)
        return status;
    TRY(device_upload(to, &tensor, &w->input[device]));
    TRY(device_output(to, w->count * w->model->stack.d_model * sizeof *w->rows, &w->output[device]));
fail:
    return status;
}

static clattn_status enqueue_batch(const work *w, size_t device, const batch *b)
{
    const sentence_device *on = &w->model->on[device];
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    args.input = clattn_binding_buffer(w->input[device], (int64_t)b->offset);
    args.pooled = clattn_binding_buffer(w->output[device], (int64_t)(b->first * w->model->stack.d_model));
    args.explicit_lengths = 1;
    args.batch = b->count;
    args.length = w->items[b->first].tokens;
    args.lengths = w->lengths + b->first;
    return clattn_encoder_enqueue(on->plans[b->bucket], on->device->queue, &args, 0, NULL, NULL);
}

/* Waits for the vectors of `count` items. */
static clattn_status read_rows(const work *w, size_t device, size_t first, size_t count)
{
    const size_t row = w->model->stack.d_model * sizeof *w->rows;
    const cl_command_queue queue = w->model->on[device].device->queue;
    return device_opencl_check(w->model->on[device].device, "clEnqueueReadBuffer",
                               clEnqueueReadBuffer(queue, w->output[device], CL_TRUE, first * row, count * row,
                                                   (char *)w->rows + first * row, 0, NULL, NULL));
}

static int prepare(void *user, size_t device, size_t part)
{
    work *w = user;
    sentence_device *on = &w->model->on[device];
    clattn_status status;
    TRY(make_plan(w->model, on, w->batches[part].bucket));
    TRY(make_buffers(w, device));
fail:
    return device_check(on->device, status, NULL);
}

static int run(void *user, size_t device, size_t part)
{
    const work *w = user;
    const batch *b = &w->batches[part];
    clattn_status status;
    TRY(enqueue_batch(w, device, b));
    if (w->model->pool->count > 1)
        status = read_rows(w, device, b->first, b->count);
fail:
    return device_check(w->model->on[device].device, status, NULL);
}

static int compute(work *w)
{
    make_batches(w);
    w->padded = calloc(w->padded_count, sizeof *w->padded);
    if (w->padded == NULL)
        return no_memory(w->count);
    for (size_t i = 0; i < w->batch_count; i++)
        fill_batch(w, &w->batches[i]);
    const pool_work parts = {.prepare = prepare, .run = run, .user = w, .size = w->sizes, .parts = w->batch_count};
    int status = pool_run(w->model->pool, &parts);
    if (status == TOOL_DONE && w->model->pool->count == 1)
        status = device_check(w->model->on[0].device, read_rows(w, 0, 0, w->count), NULL);
    return status;
}

static void release_work(work *w)
{
    for (size_t i = 0; i < POOL_MOST; i++) {
        if (w->input[i] != NULL)
            clReleaseMemObject(w->input[i]);
        if (w->output[i] != NULL)
            clReleaseMemObject(w->output[i]);
    }
    free(w->items);
    free(w->ids);
    free(w->batches);
    free(w->sizes);
    free(w->padded);
    free(w->lengths);
    free(w->rows);
}

int sentence_encode(sentence_model *model, const sentence_text *texts, size_t count, float *vectors,
                    sentence_counts *counts)
{
    const size_t d_model = model->stack.d_model;
    work w = {.model = model, .texts = texts, .count = count};
    if (count == 0)
        return TOOL_DONE;
    w.items = malloc(count * sizeof *w.items);
    w.batches = malloc(count * sizeof *w.batches);
    w.sizes = malloc(count * sizeof *w.sizes);
    w.lengths = malloc(count * sizeof *w.lengths);
    w.rows = malloc(count * d_model * sizeof *w.rows);
    int status = TOOL_DONE;
    if (w.items == NULL || w.batches == NULL || w.sizes == NULL || w.lengths == NULL || w.rows == NULL)
        TOOL_TRY(no_memory(count));
    TOOL_TRY(tokenize(&w, counts));
    qsort(w.items, count, sizeof *w.items, longer_first);
    TOOL_TRY(compute(&w));
    for (size_t i = 0; i < count; i++)
        memcpy(vectors + w.items[i].text * d_model, w.rows + i * d_model, d_model * sizeof *vectors);
fail:
    release_work(&w);
    return status;
}
