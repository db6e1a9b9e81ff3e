#include "tool/attention/split.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "tool/cli/os_tool.h"

#define MEASURED 3 /* runs */

/* ---- parts ---- */

/* Makes a layout that of `count` of its elements along an axis, from `first` on. */
static void cut(clattn_layout *layout, clattn_binding *binding, int32_t axis, size_t first, size_t count)
{
    binding->offset += (int64_t)first * layout->stride[axis];
    layout->extent[axis] = count;
}

/* The axis of an input's heads; -1: it has none. */
static int32_t axis_of_heads(attention_input input, const clattn_layout *layout)
{
    switch (input) {
    case INPUT_QUERY:
    case INPUT_KEY:
    case INPUT_VALUE:
    case INPUT_KEY_SCALE:
    case INPUT_VALUE_SCALE: return 1;
    case INPUT_MASK:
    case INPUT_BIAS: return layout->rank - 3;
    case INPUT_ALIBI:
    case INPUT_SINKS: return layout->rank - 1;
    case INPUT_VECTOR: return layout->rank - 2;
    default: return -1;
    }
}

/* The axis of an input's items; -1: it has none.  Pages have those of their table. */
static int32_t axis_of_items(attention_input input, const clattn_layout *layout, bool paged)
{
    switch (input) {
    case INPUT_KEY:
    case INPUT_VALUE:
    case INPUT_KEY_SCALE:
    case INPUT_VALUE_SCALE: return paged ? -1 : 0;
    case INPUT_MASK:
    case INPUT_BIAS: return layout->rank - 4;
    case INPUT_ALIBI: return layout->rank - 2;
    case INPUT_QUERY:
    case INPUT_QUERY_LENGTHS:
    case INPUT_KEY_LENGTHS:
    case INPUT_POSITIONS:
    case INPUT_BLOCK_TABLE: return 0;
    default: return -1;
    }
}

/* How many query heads a key head has. */
static size_t group_of(const attention_request *request)
{
    return request->sizes.heads / size_max(request->sizes.kv_heads, 1);
}

/* Makes the request that of a share; its results are contiguous. */
static attention_request part_of(const attention_split *s, const split_share *share)
{
    attention_request part = *s->request;
    const size_t queries = s->of_items ? 1 : group_of(s->request);
    const bool paged = part.desc.cache.kind == CLATTN_CACHE_KIND_PAGED;
    for (attention_input i = 0; i < INPUT_USER; i++) {
        clattn_layout *layout = attention_input_layout(&part.desc, i);
        const int32_t axis = s->of_items ? axis_of_items(i, layout, paged) : axis_of_heads(i, layout);
        const bool is_key = i == INPUT_KEY || i == INPUT_VALUE || i == INPUT_KEY_SCALE || i == INPUT_VALUE_SCALE;
        const size_t each = is_key ? 1 : queries;
        /* An extent of 1 is the same for all. */
        if (layout->dtype != CLATTN_DTYPE_NONE && axis >= 0 && layout->extent[axis] > 1)
            cut(layout, attention_input_binding(&part.args, i), axis, share->first * each, share->count * each);
    }
    for (attention_result i = 0; i < RESULT_COUNT; i++) {
        clattn_layout *layout = attention_result_layout(&part.desc, i);
        if (!part.wants[i])
            continue;
        layout->extent[s->of_items ? 0 : 1] = share->count * queries;
        *layout = clattn_layout_contiguous(layout->dtype, layout->rank, layout->extent);
    }
    if (s->of_items)
        part.args.batch = share->count;
    if (part.desc.dropout.probability > 0) { /* which depends on the numbers of the item and the head */
        part.args.whole.batch = s->of_items ? share->first : 0;
        part.args.whole.head = s->of_items ? 0 : share->first * queries;
        part.args.whole.heads = part.sizes.heads;
    }
    return part;
}

static tool_device *device_of(attention_split *s, const split_share *share)
{
    return &s->pool.member[share - s->share].device;
}

static int plan_share(attention_split *s, split_share *share)
{
    tool_device *device = device_of(s, share);
    job_release(&share->job);
    if (share->count == 0)
        return TOOL_DONE;
    const attention_request part = s->pool.count > 1 ? part_of(s, share) : *s->request;
    return attention_plan_check(s->options, device, job_attention(device, &part, s->options->solver, &share->job));
}

/* ---- devices ---- */

/* What the devices share: key heads, or items if there are more of them.  Packed sequences have their items in rows. */
static size_t pieces_of(const attention_request *r, bool *of_items)
{
    *of_items = r->sizes.batch > r->sizes.kv_heads && !host_present(&r->input[INPUT_QUERY_STARTS]) &&
                !host_present(&r->input[INPUT_KEY_STARTS]);
    return *of_items ? r->sizes.batch : r->sizes.kv_heads;
}

/* Refuses what several devices cannot share. */
static int check(const attention_split *s, size_t pieces)
{
    const attention_request *r = s->request;
    const char *reason = NULL;
    if (r->score_mod != NULL || r->mask_mod != NULL)
        reason = "user functions, which see the head's number";
    else if (r->desc.dropout.probability > 0 && r->desc.cache.kind != CLATTN_CACHE_KIND_PLAIN)
        reason = "dropout with a ring or pages";
    if (reason != NULL)
        return complain(TOOL_BAD_INPUT, "attention: --device: several devices have no %s", reason);
    if (s->pool.count > pieces)
        return complain(TOOL_BAD_INPUT, "attention: --device has %zu devices, expected at most %zu, the number of %s",
                        s->pool.count, pieces, s->of_items ? "items" : "key heads");
    return TOOL_DONE;
}

/* Gives each share its pieces, one behind the other. */
static void place(attention_split *s)
{
    size_t first = 0;
    for (size_t i = 0; i < s->pool.count; i++) {
        s->share[i].first = first;
        first += s->share[i].count;
    }
}

/* Measures a piece's time: the least of some runs after a first one. */
static int measure(attention_split *s, split_share *share)
{
    int status = TOOL_DONE;
    for (int i = 0; i <= MEASURED && status == TOOL_DONE; i++) {
        const double begin = os_seconds();
        status = device_check(device_of(s, share), job_run(&share->job), NULL);
        const double seconds = (os_seconds() - begin) / (double)share->count;
        if (i <= 1 || seconds < share->seconds)
            share->seconds = seconds;
    }
    return status;
}

/* Gives each piece to the device that would be done with it first. */
static void deal(attention_split *s, size_t pieces)
{
    for (size_t i = 0; i < s->pool.count; i++)
        s->share[i].count = 0;
    for (size_t piece = 0; piece < pieces; piece++) {
        split_share *best = &s->share[0];
        for (size_t i = 1; i < s->pool.count; i++) {
            split_share *other = &s->share[i];
            if ((double)(other->count + 1) * other->seconds < (double)(best->count + 1) * best->seconds)
                best = other;
        }
        best->count++;
    }
    place(s);
}

int split_open(attention_split *s, const attention_options *options, const attention_request *request)
{
    int status;
    *s = (attention_split){.options = options, .request = request};
    TOOL_TRY(pool_open("attention", options->device, &s->pool));
    const size_t count = s->pool.count, pieces = pieces_of(request, &s->of_items);
    if (count == 1) {
        s->share[0].count = 1; /* the whole, which may have no heads */
        return plan_share(s, &s->share[0]);
    }
    TOOL_TRY(check(s, pieces));
    for (size_t i = 0; i < count; i++)
        s->share[i].count = pieces * (i + 1) / count - pieces * i / count;
    place(s);
    for (size_t i = 0; i < count; i++)
        TOOL_TRY(plan_share(s, &s->share[i]));
    for (size_t i = 0; i < count; i++)
        TOOL_TRY(measure(s, &s->share[i]));
    deal(s, pieces);
    for (size_t i = 0; i < count; i++)
        TOOL_TRY(plan_share(s, &s->share[i]));
fail:
    return status;
}

split_share *split_first(attention_split *s)
{
    size_t i = 0;
    while (s->share[i].count == 0)
        i++;
    return &s->share[i];
}

void split_report(const attention_split *s, tool_report *report)
{
    size_t pieces[POOL_MOST];
    for (size_t i = 0; i < s->pool.count; i++)
        pieces[i] = s->share[i].count;
    if (s->pool.count > 1)
        pool_report_numbers(&s->pool, report, s->of_items ? "items" : "heads", pieces);
}

void split_close(attention_split *s)
{
    for (size_t i = 0; i < POOL_MOST; i++)
        job_release(&s->share[i].job);
    pool_close(&s->pool);
}

/* ---- running ---- */

static int run_all(void *user)
{
    attention_split *s = user;
    cl_event done[POOL_MOST] = {NULL};
    int status = TOOL_DONE;
    for (size_t i = 0; i < s->pool.count; i++) {
        const split_share *share = &s->share[i];
        tool_device *device = &s->pool.member[i].device;
        if (share->count == 0)
            continue;
        TOOL_TRY(device_check(device, share->job.enqueue(&share->job, &done[i]), NULL));
        TOOL_TRY(device_check(device, device_opencl_check(device, "clFlush", clFlush(device->queue)), NULL));
    }
fail:
    for (size_t i = 0; i < s->pool.count; i++) {
        tool_device *device = &s->pool.member[i].device;
        if (done[i] == NULL)
            continue;
        const int waited = device_check(device, device_wait(device, done[i]), NULL);
        clReleaseEvent(done[i]);
        if (status == TOOL_DONE)
            status = waited;
    }
    return status;
}

/* Copies a part's contiguous array `from` to item `item` and head `head` of the whole one. */
static void merge(const clattn_layout *part, const char *from, size_t item, size_t head, const clattn_layout *to,
                  char *memory)
{
    const size_t element = clattn_dtype_size(to->dtype), columns = to->rank > 3 ? to->extent[3] : 1;
    for (size_t b = 0; b < part->extent[0]; b++)
        for (size_t h = 0; h < part->extent[1]; h++)
            for (size_t row = 0; row < to->extent[2]; row++)
                for (size_t column = 0; column < columns; column++, from += element) {
                    const int64_t at = (int64_t)(item + b) * to->stride[0] + (int64_t)(head + h) * to->stride[1] +
                                       (int64_t)row * to->stride[2] +
                                       (to->rank > 3 ? (int64_t)column * to->stride[3] : 0);
                    memcpy(memory + (size_t)at * element, from, element);
                }
}

static int read_share(attention_split *s, split_share *share, const host_array results[RESULT_COUNT])
{
    const size_t item = s->of_items ? share->first : 0, head = s->of_items ? 0 : share->first * group_of(s->request);
    clattn_attention_desc whole = s->request->desc;
    int status = TOOL_DONE;
    for (attention_result i = 0; i < RESULT_COUNT && status == TOOL_DONE; i++) {
        if (!s->request->wants[i] || share->count == 0)
            continue;
        char *part = malloc(share->job.outputs[i].bytes + 1);
        if (part == NULL)
            return complain(TOOL_FAILED, "attention: no memory for a device's results");
        status = device_check(device_of(s, share), job_read(&share->job, i, part), NULL);
        if (status == TOOL_DONE)
            merge(attention_result_layout(&share->job.desc.attention, i), part, item, head,
                  attention_result_layout(&whole, i), results[i].memory);
        free(part);
    }
    return status;
}

int split_compute(attention_split *s, const host_array results[RESULT_COUNT], timing *times)
{
    const size_t repeat = s->options->repeat;
    const timing_rule rule = {.repeat = repeat > 0 ? repeat : 1, .warm_up = repeat > 0};
    int status;
    if (s->pool.count == 1)
        return job_compute(&s->share[0].job, repeat, "attention", results, times);
    TOOL_TRY(timing_measure(&rule, "attention", run_all, s, times));
    for (size_t i = 0; i < s->pool.count; i++)
        TOOL_TRY(read_share(s, &s->share[i], results));
fail:
    return status;
}
