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

/* The axis of an input's heads, or -1: it has none, or one for all. */
static int32_t heads_axis(attention_input input, const clattn_layout *layout)
{
    int32_t axis = -1;
    switch (input) {
    case INPUT_QUERY:
    case INPUT_KEY:
    case INPUT_VALUE:
    case INPUT_KEY_SCALE:
    case INPUT_VALUE_SCALE: return 1;
    case INPUT_MASK:
    case INPUT_BIAS: axis = layout->rank - 3; break;
    case INPUT_ALIBI:
    case INPUT_SINKS: return layout->rank - 1;
    case INPUT_VECTOR: axis = layout->rank - 2; break;
    default: return -1;
    }
    return axis >= 0 && layout->extent[axis] > 1 ? axis : -1;
}

/* Makes the request that of a share; its results are contiguous. */
static attention_request part_of(const attention_request *request, const split_share *share)
{
    attention_request part = *request;
    const size_t queries = request->sizes.heads / request->sizes.kv_heads;
    for (attention_input i = 0; i < INPUT_USER; i++) {
        clattn_layout *layout = attention_input_layout(&part.desc, i);
        const int32_t axis = layout->dtype == CLATTN_DTYPE_NONE ? -1 : heads_axis(i, layout);
        const bool is_key = i == INPUT_KEY || i == INPUT_VALUE || i == INPUT_KEY_SCALE || i == INPUT_VALUE_SCALE;
        const size_t each = is_key ? 1 : queries;
        if (axis >= 0)
            cut(layout, attention_input_binding(&part.args, i), axis, share->first * each, share->count * each);
    }
    for (attention_result i = 0; i < RESULT_COUNT; i++) {
        clattn_layout *layout = attention_result_layout(&part.desc, i);
        if (!request->wants[i])
            continue;
        layout->extent[1] = share->count * queries;
        *layout = clattn_layout_contiguous(layout->dtype, layout->rank, layout->extent);
    }
    if (request->desc.dropout.probability > 0) { /* which depends on the head's number */
        part.args.whole.head = share->first * queries;
        part.args.whole.heads = request->sizes.heads;
    }
    return part;
}

static int plan_share(attention_split *s, split_share *share)
{
    const attention_request part = s->shares > 1 ? part_of(s->request, share) : *s->request;
    job_release(&share->job);
    if (share->count == 0)
        return TOOL_DONE;
    return attention_plan_check(s->options, &share->device,
                                job_attention(&share->device, &part, s->options->solver, &share->job));
}

/* ---- devices ---- */

/* How many indices a list as "0,1" has; 1: it is none. */
static size_t count_indices(const char *spec)
{
    size_t count = 1;
    for (const char *c = spec; c != NULL && *c != '\0'; c++) {
        if (*c == ',' && c > spec && c[-1] != ',' && c[1] != '\0')
            count++;
        else if (*c < '0' || *c > '9')
            return 1;
    }
    return count;
}

static int open_devices(attention_split *s, const char *spec)
{
    char one[32];
    int status = TOOL_DONE;
    if (s->shares == 1)
        return device_open(spec, &s->share[0].device);
    for (size_t i = 0; i < s->shares && status == TOOL_DONE; i++) {
        const size_t length = strcspn(spec, ",");
        if (length >= sizeof one)
            return complain(TOOL_BAD_INPUT, "attention: --device '%s' is not valid", s->options->device);
        memcpy(one, spec, length);
        one[length] = '\0';
        spec += length + (spec[length] == ',');
        status = device_open(one, &s->share[i].device);
    }
    return status;
}

/* Refuses what cannot be shared. */
static int check(const attention_split *s)
{
    const attention_request *r = s->request;
    const char *reason =
        r->score_mod != NULL || r->mask_mod != NULL ? "user functions, which see the head's number" : NULL;
    if (s->shares > SPLIT_MOST)
        return complain(TOOL_BAD_INPUT, "attention: --device has %zu devices, expected at most %d", s->shares,
                        SPLIT_MOST);
    if (reason != NULL)
        return complain(TOOL_BAD_INPUT, "attention: --device: several devices have no %s", reason);
    if (s->shares > r->sizes.kv_heads)
        return complain(TOOL_BAD_INPUT, "attention: --device has %zu devices, and there are %zu key heads to share",
                        s->shares, r->sizes.kv_heads);
    return TOOL_DONE;
}

/* Gives each share its heads, one behind the other. */
static void place(attention_split *s)
{
    size_t first = 0;
    for (size_t i = 0; i < s->shares; i++) {
        s->share[i].first = first;
        first += s->share[i].count;
    }
}

/* Measures a key head's time: the least of some runs after a first one. */
static int measure(split_share *share)
{
    int status = TOOL_DONE;
    for (int i = 0; i <= MEASURED && status == TOOL_DONE; i++) {
        const double begin = os_seconds();
        status = device_check(&share->device, job_run(&share->job), NULL);
        const double seconds = (os_seconds() - begin) / (double)share->count;
        if (i <= 1 || seconds < share->seconds)
            share->seconds = seconds;
    }
    return status;
}

/* Gives each head to the device that would be done with it first. */
static void deal(attention_split *s)
{
    for (size_t i = 0; i < s->shares; i++)
        s->share[i].count = 0;
    for (size_t head = 0; head < s->request->sizes.kv_heads; head++) {
        split_share *best = &s->share[0];
        for (size_t i = 1; i < s->shares; i++) {
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
    const size_t heads = request->sizes.kv_heads;
    int status = TOOL_DONE;
    *s = (attention_split){.options = options, .request = request, .shares = count_indices(options->device)};
    if (s->shares > 1)
        TOOL_TRY(check(s));
    TOOL_TRY(open_devices(s, options->device));
    for (size_t i = 0; i < s->shares; i++)
        s->share[i].count = heads * (i + 1) / s->shares - heads * i / s->shares;
    if (s->shares == 1)
        s->share[0].count = 1; /* the whole, which may have no heads */
    place(s);
    for (size_t i = 0; i < s->shares; i++)
        TOOL_TRY(plan_share(s, &s->share[i]));
    if (s->shares == 1)
        return status;
    for (size_t i = 0; i < s->shares; i++)
        TOOL_TRY(measure(&s->share[i]));
    deal(s);
    for (size_t i = 0; i < s->shares; i++)
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

void split_close(attention_split *s)
{
    for (size_t i = 0; i < SPLIT_MOST; i++) {
        job_release(&s->share[i].job);
        device_close(&s->share[i].device);
    }
}

/* ---- running ---- */

static int run_all(void *user)
{
    attention_split *s = user;
    cl_event done[SPLIT_MOST] = {NULL};
    int status = TOOL_DONE;
    for (size_t i = 0; i < s->shares; i++) {
        split_share *share = &s->share[i];
        if (share->count == 0)
            continue;
        TOOL_TRY(device_check(&share->device, share->job.enqueue(&share->job, &done[i]), NULL));
        TOOL_TRY(device_check(&share->device,
                              device_opencl_check(&share->device, "clFlush", clFlush(share->device.queue)), NULL));
    }
fail:
    for (size_t i = 0; i < s->shares; i++) {
        if (done[i] == NULL)
            continue;
        const int waited = device_check(&s->share[i].device, device_wait(&s->share[i].device, done[i]), NULL);
        clReleaseEvent(done[i]);
        if (status == TOOL_DONE)
            status = waited;
    }
    return status;
}

/* Copies a share's contiguous array `from` into the whole one, whose layout is `to`. */
static void merge(const split_share *share, size_t queries, const clattn_layout *to, const char *from, char *memory)
{
    const size_t element = clattn_dtype_size(to->dtype), heads = share->count * queries;
    const size_t rows = to->extent[2], columns = to->rank > 3 ? to->extent[3] : 1;
    for (size_t b = 0; b < to->extent[0]; b++)
        for (size_t h = 0; h < heads; h++)
            for (size_t row = 0; row < rows; row++)
                for (size_t column = 0; column < columns; column++, from += element) {
                    const int64_t at =
                        (int64_t)b * to->stride[0] + (int64_t)(share->first * queries + h) * to->stride[1] +
                        (int64_t)row * to->stride[2] + (to->rank > 3 ? (int64_t)column * to->stride[3] : 0);
                    memcpy(memory + (size_t)at * element, from, element);
                }
}

static int read_share(const attention_split *s, split_share *share, const host_array results[RESULT_COUNT])
{
    const size_t queries = s->request->sizes.heads / s->request->sizes.kv_heads;
    int status = TOOL_DONE;
    for (attention_result i = 0; i < RESULT_COUNT && status == TOOL_DONE; i++) {
        if (!s->request->wants[i] || share->count == 0)
            continue;
        char *part = malloc(share->job.outputs[i].bytes + 1);
        if (part == NULL)
            return complain(TOOL_FAILED, "attention: no memory for a device's results");
        status = device_check(&share->device, job_read(&share->job, i, part), NULL);
        if (status == TOOL_DONE)
            merge(share, queries, attention_result_layout((clattn_attention_desc *)(uintptr_t)&s->request->desc, i),
                  part, results[i].memory);
        free(part);
    }
    return status;
}

int split_compute(attention_split *s, const host_array results[RESULT_COUNT], timing *times)
{
    const size_t repeat = s->options->repeat;
    const timing_rule rule = {.repeat = repeat > 0 ? repeat : 1, .warm_up = repeat > 0};
    int status;
    if (s->shares == 1)
        return job_compute(&s->share[0].job, repeat, "attention", results, times);
    TOOL_TRY(timing_measure(&rule, "attention", run_all, s, times));
    for (size_t i = 0; i < s->shares; i++)
        TOOL_TRY(read_share(s, &s->share[i], results));
fail:
    return status;
}
