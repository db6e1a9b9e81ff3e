/* The threads of 'clattn bench ring'.  Round 1 makes each rank's share, each further one calls it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text/opencl_check.h"
#include "tool/bench/ring.h"
#include "tool/cli/os_tool.h"

#define TIME_OUT 60.0 /* seconds, besides what a link takes */

/* ---- a rank's thread ---- */

static clattn_status create(ring_rank *self)
{
    const ring *r = self->ring;
    const clattn_group group = ring_port_group(&self->port);
    return clattn_group_attention_create(r->device->context, &group, &r->desc, &self->attention);
}

static clattn_status run(ring_rank *self)
{
    clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT;
    cl_event done = NULL;
    args.query = clattn_binding_buffer(self->query, 0);
    args.key = clattn_binding_buffer(self->key, 0);
    args.value = clattn_binding_buffer(self->value, 0);
    args.output = clattn_binding_buffer(self->output, 0);
    self->port.sent = 0;
    self->begin = os_seconds();
    clattn_status status = clattn_group_attention_run(self->attention, self->queue, &args, 0, NULL, &done);
    if (status != CLATTN_SUCCESS)
        return status;
    status = opencl_check("clWaitForEvents", clWaitForEvents(1, &done), self->message, sizeof self->message);
    self->end = os_seconds();
    self->busy += self->end - self->begin;
    clReleaseEvent(done);
    return status;
}

/* Waits for another round than *seen; false: there is none. */
static bool next_round(ring *r, size_t *seen)
{
    mtx_lock(&r->lock);
    while (!r->ended && r->round == *seen)
        cnd_wait(&r->changed, &r->lock);
    *seen = r->round;
    const bool more = !r->ended;
    mtx_unlock(&r->lock);
    return more;
}

static void finish_round(ring_rank *self, clattn_status status)
{
    ring *r = self->ring;
    mtx_lock(&r->lock);
    self->status = status;
    r->busy--;
    cnd_broadcast(&r->changed);
    mtx_unlock(&r->lock);
}

static int rank_main(void *user)
{
    ring_rank *self = user;
    size_t seen = 0;
    while (next_round(self->ring, &seen)) {
        const clattn_status status = seen == 1 ? create(self) : run(self);
        if (status != CLATTN_SUCCESS && self->message[0] == '\0')
            clattn_context_message(self->ring->device->context, self->message, sizeof self->message);
        finish_round(self, status);
    }
    clattn_group_attention_release(&self->attention);
    return 0;
}

/* ---- rounds ---- */

/* The first rank whose status is a failure, or NULL.  The lock is held. */
static const ring_rank *failed_rank(const ring *r)
{
    for (size_t i = r->first; i < r->end; i++)
        if (r->rank[i].status != CLATTN_SUCCESS)
            return &r->rank[i];
    return NULL;
}

/* Lets all ranks do a round.  The first failure is told at once: the other ranks wait for that rank until their time-out. */
static int do_round(ring *r)
{
    int status = TOOL_DONE;
    mtx_lock(&r->lock);
    r->busy = r->end - r->first;
    r->round++;
    cnd_broadcast(&r->changed);
    while (r->busy > 0) {
        cnd_wait(&r->changed, &r->lock);
        const ring_rank *failed = failed_rank(r);
        if (failed != NULL && status == TOOL_DONE) {
            char own[32];
            snprintf(own, sizeof own, "rank %zu: ", (size_t)(failed - r->rank));
            const char *text = failed->message[0] != '\0' ? failed->message : clattn_status_string(failed->status);
            const bool is_named = r->local == NULL || strncmp(text, own, strlen(own)) == 0;
            status = complain(TOOL_FAILED, "bench ring: %s%s", is_named ? "" : own, text);
        }
    }
    mtx_unlock(&r->lock);
    return status;
}

int ring_make(ring *r)
{
    return do_round(r);
}

int ring_run(ring *r, double *seconds)
{
    double all[RING_MOST_RANKS];
    int status;
    TOOL_TRY(do_round(r));
    double begin = r->rank[r->first].begin, end = r->rank[r->first].end;
    for (size_t i = r->first + 1; i < r->end; i++) {
        begin = fmin(begin, r->rank[i].begin);
        end = fmax(end, r->rank[i].end);
    }
    *seconds = end - begin;
    TOOL_TRY(world_gather(r->world, &(double){*seconds}, all, sizeof all[0]));
    for (int32_t i = 0; i < r->world->ranks; i++)
        *seconds = fmax(*seconds, all[i]);
fail:
    return status;
}

int ring_counts(ring *r, ring_count counts[RING_MOST_RANKS])
{
    for (size_t i = r->first; i < r->end; i++) {
        const ring_rank *rank = &r->rank[i];
        counts[i] = (ring_count){rank->busy, rank->port.waited, rank->port.sent};
    }
    const ring_count own = counts[r->first];
    return world_gather(r->world, &own, counts, sizeof own);
}

void ring_forget(ring *r)
{
    for (size_t i = r->first; i < r->end; i++)
        r->rank[i].port.waited = r->rank[i].busy = 0.0;
}

/* ---- arrays ---- */

size_t ring_row(const ring *r, size_t rank, size_t rows, size_t row)
{
    const size_t half = rows / 2;
    if (r->order == CLATTN_GROUP_ORDER_STRAIGHT)
        return rank * rows + row;
    return row < half ? rank * half + row : (2 * r->ranks - 1 - rank) * half + (row - half);
}

/* Uploads a rank's rows of an array (batch, heads, length, columns). */
static int upload_part(ring *r, size_t rank, const host_array *whole, cl_mem *buffer)
{
    const clattn_host_tensor *from = &whole->tensor;
    const size_t *e = from->extent, rows = e[2] / r->ranks, bytes = e[3] * clattn_dtype_size(from->dtype);
    host_array part = {0};
    int status;
    TOOL_TRY(host_allocate(from->dtype, 4, (const size_t[]){e[0], e[1], rows, e[3]}, whole->name, &part));
    for (size_t i = 0; i < e[0] * e[1]; i++)
        for (size_t row = 0; row < rows; row++)
            memcpy((char *)part.memory + (i * rows + row) * bytes,
                   (const char *)from->data + (i * e[2] + ring_row(r, rank, rows, row)) * bytes, bytes);
    status = device_check(r->device, device_upload(r->device, &part.tensor, buffer), NULL);
fail:
    host_release(&part);
    return status;
}

/* The layout of a rank's rows. */
static clattn_layout part_layout(const ring *r, clattn_layout whole)
{
    return clattn_layout_bhsd(whole.dtype, whole.extent[0], whole.extent[1], whole.extent[2] / r->ranks,
                              whole.extent[3]);
}

static size_t layout_bytes(const clattn_layout *layout)
{
    const size_t *e = layout->extent;
    return clattn_dtype_size(layout->dtype) * e[0] * e[1] * e[2] * e[3];
}

static int make_arrays(ring *r, size_t rank, const attention_request *whole)
{
    ring_rank *self = &r->rank[rank];
    cl_int code = CL_SUCCESS;
    int status;
    self->queue = clCreateCommandQueue(clattn_context_opencl_context(r->device->context),
                                       clattn_context_opencl_device(r->device->context), 0, &code);
    TOOL_TRY(device_check(r->device, device_opencl_check(r->device, "clCreateCommandQueue", code), NULL));
    TOOL_TRY(upload_part(r, rank, &whole->input[INPUT_QUERY], &self->query));
    TOOL_TRY(upload_part(r, rank, &whole->input[INPUT_KEY], &self->key));
    TOOL_TRY(upload_part(r, rank, &whole->input[INPUT_VALUE], &self->value));
    const size_t bytes = layout_bytes(&r->attention.output);
    status = device_check(r->device, device_output(r->device, bytes, &self->output), NULL);
fail:
    return status;
}

int ring_read(ring *r, size_t rank, host_array *output)
{
    const cl_mem from = r->rank[rank].output;
    return device_check(r->device, device_download(r->device, from, output->tensor.bytes, output->memory), NULL);
}

/* ---- all together ---- */

/* A wait lasts until the others have done what the link makes them wait for. */
static uint32_t time_out(const ring *r, const attention_request *whole, const ring_link *link)
{
    const clattn_attention_desc *d = &whole->desc;
    const double bytes = (double)layout_bytes(&d->query) + (double)layout_bytes(&d->key) +
                         (double)layout_bytes(&d->value) + (double)layout_bytes(&d->output);
    const double seconds = TIME_OUT + bytes * link->seconds_per_byte + 4.0 * (double)r->ranks * link->latency;
    return seconds < 1e6 ? (uint32_t)(seconds * 1e3) : 1000000000;
}

static int start_threads(ring *r)
{
    for (size_t i = r->first; i < r->end; i++) {
        r->rank[i].started = thrd_create(&r->rank[i].thread, rank_main, &r->rank[i]) == thrd_success;
        if (!r->rank[i].started)
            return complain(TOOL_FAILED, "bench ring: rank %zu: no thread could be started", i);
    }
    return TOOL_DONE;
}

/* Makes the rank's group, which is the processes' if there are several. */
static int make_group(ring *r, size_t rank)
{
    clattn_group *group = &r->rank[rank].port.inner;
    if (r->local == NULL)
        *group = *world_group(r->world);
    else if (clattn_group_local_rank(r->local, (int32_t)rank, group) != CLATTN_SUCCESS)
        return complain(TOOL_FAILED, "bench ring: rank %zu: no group", rank);
    return TOOL_DONE;
}

int ring_open(ring *r, const attention_request *whole, clattn_group_mode mode, clattn_group_order order,
              const ring_link *link)
{
    const bool processes = world_group(r->world) != NULL;
    int status;
    r->order = order;
    r->first = processes ? (size_t)r->world->rank : 0;
    r->end = processes ? r->first + 1 : r->ranks;
    r->attention = whole->desc;
    r->attention.query = part_layout(r, whole->desc.query);
    r->attention.key = part_layout(r, whole->desc.key);
    r->attention.value = part_layout(r, whole->desc.value);
    r->attention.output = part_layout(r, whole->desc.output);
    clattn_group_attention_desc_init(&r->desc);
    r->desc.mode = mode;
    r->desc.order = order;
    r->desc.attention = &r->attention;
    r->has_lock = mtx_init(&r->lock, mtx_plain) == thrd_success;
    r->has_changed = cnd_init(&r->changed) == thrd_success;
    if (!r->has_lock || !r->has_changed ||
        (!processes &&
         clattn_group_local_create((int32_t)r->ranks, time_out(r, whole, link), &r->local) != CLATTN_SUCCESS))
        return complain(TOOL_FAILED, "bench ring: out of memory for %zu ranks", r->ranks);
    for (size_t i = r->first; i < r->end; i++) {
        r->rank[i].ring = r;
        r->rank[i].port.link = *link;
        TOOL_TRY(make_group(r, i));
        TOOL_TRY(make_arrays(r, i, whole));
    }
    status = start_threads(r);
fail:
    return status;
}

void ring_close(ring *r)
{
    if (r->has_lock && r->has_changed) {
        mtx_lock(&r->lock);
        r->ended = true;
        cnd_broadcast(&r->changed);
        mtx_unlock(&r->lock);
    }
    for (size_t i = 0; i < r->ranks; i++) {
        ring_rank *self = &r->rank[i];
        if (self->started)
            thrd_join(self->thread, NULL);
    }
    for (size_t i = 0; i < r->ranks; i++) {
        ring_rank *self = &r->rank[i];
        const cl_mem buffers[] = {self->query, self->key, self->value, self->output};
        for (int n = 0; n < 4; n++)
            if (buffers[n] != NULL)
                clReleaseMemObject(buffers[n]);
        if (self->queue != NULL)
            clReleaseCommandQueue(self->queue);
    }
    clattn_group_local_release(&r->local);
    if (r->has_changed)
        cnd_destroy(&r->changed);
    if (r->has_lock)
        mtx_destroy(&r->lock);
    *r = (ring){0};
}
