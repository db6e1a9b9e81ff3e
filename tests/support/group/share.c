#include "support/group/share.h"

#include <string.h>

#include "support/core/inject.h"
#include "support/device.h"
#include "support/harness.h"
#include "support/random.h"

enum { RANKS = OTHER_RANKS, HEADS = 2, ROWS = 10, SIZE = 5, RUNS = 2 };

/* Arrays lie one behind the other in one buffer; the results are the last. */
struct arrays {
    cl_mem buffer;
    size_t floats, results, starts;
};

static clattn_layout put(struct arrays *a, clattn_binding *at, int rank, const size_t *extent)
{
    const clattn_layout layout = clattn_layout_contiguous(CLATTN_DTYPE_F32, rank, extent);
    *at = clattn_binding_buffer(a->buffer, (int64_t)a->floats);
    a->floats += (size_t)layout.extent[0] * (size_t)layout.stride[0];
    return layout;
}

static void describe(const share_way *way, struct arrays *a, clattn_attention_desc *d, clattn_attention_args *args)
{
    const size_t rows[4] = {1, HEADS, ROWS, SIZE}, keys[2] = {1, RANKS * ROWS}, pairs[2] = {ROWS, RANKS * ROWS},
                 heads[1] = {HEADS}, starts[1] = {2};
    const bool has_mask = way->mode != CLATTN_GROUP_MODE_HEADS && !way->packed;
    clattn_attention_desc_init(d);
    clattn_attention_args_init(args);
    d->causal = 1;
    d->query = put(a, &args->query, 4, rows);
    d->key = put(a, &args->key, 4, rows);
    d->value = put(a, &args->value, 4, rows);
    if (way->packed) {
        a->starts = a->floats;
        d->lengths.query_starts = put(a, &args->lengths.query_starts, 1, starts);
        d->lengths.query_starts.dtype = CLATTN_DTYPE_I32;
        d->lengths.key_starts = d->lengths.query_starts;
        args->lengths.key_starts = args->lengths.query_starts;
    } else {
        d->bias = put(a, &args->bias, 2, keys);
    }
    if (has_mask)
        d->mask = put(a, &args->mask, 2, pairs);
    d->scoring.sinks = put(a, &args->scoring.sinks, 1, heads);
    if (way->backward) {
        d->direction = CLATTN_DIRECTION_BACKWARD;
        d->gradients.output = put(a, &args->gradients.output, 4, rows);
    } else {
        a->results = a->floats;
    }
    d->output = put(a, &args->output, 4, rows);
    d->outputs.lse = put(a, &args->outputs.lse, 3, rows);
    if (!way->backward)
        return;
    a->results = a->floats;
    d->gradients.query = put(a, &args->gradients.query, 4, rows);
    d->gradients.key = put(a, &args->gradients.key, 4, rows);
    d->gradients.value = put(a, &args->gradients.value, 4, rows);
    if (!way->packed)
        d->gradients.bias = put(a, &args->gradients.bias, 2, keys);
    if (has_mask)
        d->gradients.mask = put(a, &args->gradients.mask, 2, pairs);
    d->gradients.sinks = put(a, &args->gradients.sinks, 1, heads);
}

clattn_status share_run(clattn_context *context, const void *given, other_rank *other, float *results)
{
    const share_way *way = given;
    const int32_t starts[2] = {3, RANKS * ROWS - 3};
    static float data[OTHER_FLOATS];
    clattn_attention_desc own;
    clattn_attention_args args;
    clattn_group_attention_desc desc = CLATTN_GROUP_ATTENTION_DESC_INIT;
    clattn_group_attention *attention = NULL;
    cl_command_queue queue = clattn_context_queue(context);
    const clattn_group group = other_group(other);
    struct arrays a = {0};
    fill_floats(data, OTHER_FLOATS, 5);
    a.buffer = new_buffer(clattn_context_opencl_context(context), CL_MEM_READ_WRITE, sizeof data, NULL);
    describe(way, &a, &own, &args);
    if (way->packed)
        memcpy(data + a.starts, starts, sizeof starts);
    write_buffer(queue, a.buffer, 0, sizeof data, data);
    assert_true(a.floats <= OTHER_FLOATS);
    desc.mode = way->mode;
    desc.order = CLATTN_GROUP_ORDER_ZIGZAG;
    desc.attention = &own;
    clattn_status status = clattn_group_attention_create(context, &group, &desc, &attention);
    assert_true((status == CLATTN_SUCCESS) == (attention != NULL));
    for (int i = 0; i < RUNS && status == CLATTN_SUCCESS; i++) {
        cl_event event = NULL;
        const int before = other->started;
        status = clattn_group_attention_run(attention, NULL, &args, 0, NULL, &event);
        assert_true((status == CLATTN_SUCCESS) == (event != NULL));
        if (status != CLATTN_SUCCESS && other->started > before) { /* the other rank may wait for what is left of it */
            const int started = other->started;
            assert_int_equal(clattn_group_attention_run(attention, NULL, &args, 0, NULL, NULL), CLATTN_ERROR_GROUP);
            assert_int_equal(other->started, started);
        }
        if (event) {
            assert_cl(clWaitForEvents(1, &event));
            clReleaseEvent(event);
            inject_event_taken();
        }
    }
    clattn_group_attention_release(&attention);
    assert_int_equal(other->started, other->waited);
    clFinish(queue);
    if (status == CLATTN_SUCCESS) {
        read_buffer(queue, a.buffer, sizeof data, data);
        memset(results, 0, OTHER_FLOATS * sizeof *results);
        memcpy(results, data + a.results, (a.floats - a.results) * sizeof *data);
    }
    clReleaseMemObject(a.buffer);
    return status;
}
