/* Gradients by a ring.  Keys and values go round as they do forward, and the gradients of those that a rank has attended to follow them,
 * a step behind: in step s a rank computes what its queries add to the gradients of the keys of the rank s before it, receives what the
 * ranks before it have added, and adds its own.  After the last step they go home. */
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "group/group.h"

enum { KEYS, KEYS_TOO, SUMS, SUMS_TOO }; /* parcels: keys and values, and their gradients, in turn */

/* Floats in `partial`: the sum of gradients of queries; the same of one block; those of keys and values that the rank adds; the same of
 * one block. */
struct places {
    size_t query_sum, query, own, key, value, all;
};

static struct places places_of(const struct group_problem *p)
{
    const size_t queries = p->batch * p->heads * p->query_length * p->d_k;
    const size_t keys = p->batch * p->kv_heads * (p->key_length / p->pieces);
    struct places at = {.query = round_up(queries, 16)};
    at.own = at.query + round_up(queries / p->pieces, 16);
    at.key = at.own + ring_shards(p, true).bytes / sizeof(float);
    at.value = at.key + round_up(keys * p->d_k, 16);
    at.all = at.value + keys * p->d_v;
    return at;
}

clattn_status ring_backward_reserve(clattn_group_attention *a)
{
    clattn_status status;
    const struct group_problem *p = &a->problem;
    for (int i = KEYS; i <= SUMS_TOO; i++)
        TRY(parcel_make(a, &a->parcel[i], ring_shards(p, i >= SUMS).bytes));
    status = buffer_make(a, &a->partial, places_of(p).all * sizeof(float));
fail:
    return status;
}

/* Adds what piece `i` of the queries and piece `k` of the keys of one rank make together. */
static clattn_status add_block(struct run *r, size_t i, size_t k, size_t key_start, bool sinks,
                               const struct parcel *parcel, cl_event ready)
{
    clattn_status status;
    const struct group_problem *p = r->p;
    const clattn_attention_desc *d = &p->attention;
    const struct shards s = ring_shards(p, false), sums = ring_shards(p, true);
    const struct places at = places_of(p);
    const cl_mem partial = r->a->partial;
    const size_t rows = p->query_length / p->pieces, keys = p->key_length / p->pieces;
    const size_t query_floats = p->batch * p->heads * rows * p->d_k;
    const size_t key_floats = p->batch * p->kv_heads * keys * p->d_k;
    const size_t value_floats = p->batch * p->kv_heads * keys * p->d_v;
    clattn_layout local;
    struct block b = {.partial = true,
                      .sinks = sinks,
                      .query_at = r->args.query,
                      .key_at = clattn_binding_buffer(parcel->buffer, 0),
                      .value_at = clattn_binding_buffer(parcel->buffer, 0),
                      .output_at = r->args.output,
                      .lse_at = r->args.outputs.lse,
                      .d_output_at = r->args.gradients.output,
                      .d_lse_at = r->args.gradients.lse,
                      .d_query = clattn_layout_bhsd(CLATTN_DTYPE_F32, p->batch, p->heads, rows, p->d_k),
                      .d_key = clattn_layout_bhsd(CLATTN_DTYPE_F32, p->batch, p->kv_heads, keys, p->d_k),
                      .d_value = clattn_layout_bhsd(CLATTN_DTYPE_F32, p->batch, p->kv_heads, keys, p->d_v),
                      .d_query_at = clattn_binding_buffer(partial, (int64_t)at.query),
                      .d_key_at = clattn_binding_buffer(partial, (int64_t)at.key),
                      .d_value_at = clattn_binding_buffer(partial, (int64_t)at.value)};
    b.query = rows_of(p, &d->query, 0, p->heads, i, &b.query_at);
    b.output = rows_of(p, &d->output, 0, p->heads, i, &b.output_at);
    b.lse = rows_of(p, &d->outputs.lse, 0, p->heads, i, &b.lse_at);
    b.d_output = rows_of(p, &d->gradients.output, 0, p->heads, i, &b.d_output_at);
    b.d_lse = rows_of(p, &d->gradients.lse, 0, p->heads, i, &b.d_lse_at);
    local = shard_local(p, &s, 0, &b.key_at);
    b.key = rows_of(p, &local, 0, p->kv_heads, k, &b.key_at);
    local = shard_local(p, &s, 1, &b.value_at);
    b.value = rows_of(p, &local, 0, p->kv_heads, k, &b.value_at);
    ring_place(r, i, key_start, &b);
    TRY(run_attend(r, &b, ready));
    TRY(run_add(r, &b.d_query, b.d_query_at, &b.d_query,
                clattn_binding_buffer(partial, (int64_t)(at.query_sum + i * query_floats)), NULL));
    TRY(run_add(r, &b.d_key, b.d_key_at, &b.d_key, clattn_binding_buffer(partial, (int64_t)(at.own + k * key_floats)),
                NULL));
    status = run_add(r, &b.d_value, b.d_value_at, &b.d_value,
                     clattn_binding_buffer(partial, (int64_t)(at.own + sums.at[1] / sizeof(float) + k * value_floats)),
                     NULL);
fail:
    return status;
}

/* What the rank's queries add to the gradients of the keys and values of rank `of`, which the parcel has. */
static clattn_status add_own(struct run *r, size_t of, struct parcel *parcel, cl_event ready)
{
    clattn_status status;
    clattn_group_attention *a = r->a;
    TRY(run_fill(r, a->partial, 0, places_of(r->p).own, ring_shards(r->p, true).bytes / sizeof(float)));
    for (size_t i = 0; i < r->p->pieces; i++)
        for (size_t k = 0; k < r->p->pieces; k++) {
            const size_t start = piece_start(r->p, &a->ranks.group, of, k, r->p->key_length);
            /* A row's sink has a gradient once, also if the row attends nothing else. */
            const bool sinks =
                of == (size_t)a->ranks.group.rank && k == 0 && !layout_is_none(&r->p->attention.gradients.sinks);
            if (ring_needs(r, i, start) || sinks || r->dry)
                TRY(add_block(r, i, k, start, sinks, parcel, ready));
        }
    event_replace(a->context, &parcel->read, r->last);
    if (!r->dry)
        TRY_CL(&a->context->device.report, "clFlush", a->context->device.cl.clFlush(r->queue));
fail:
    return status;
}

/* Adds the rank's own to the sums in a parcel, which the ranks before have made; the first rank makes them. */
static clattn_status sum_up(struct run *r, struct parcel *sums, bool is_first)
{
    clattn_status status;
    clattn_group_attention *a = r->a;
    struct device *device = &a->context->device;
    const clattn_binding own = clattn_binding_buffer(a->partial, (int64_t)places_of(r->p).own);
    const clattn_binding to = clattn_binding_buffer(sums->buffer, 0);
    const clattn_layout all = floats(sums->bytes / sizeof(float));
    if (is_first)
        TRY(run_give(r, &all, own, &all, to));
    if (!is_first || r->dry)
        TRY(run_add(r, &all, own, &all, to, sums->written));
    event_replace(a->context, &sums->read, r->last);
    if (!r->dry)
        TRY_CL(&device->report, "clFlush", device->cl.clFlush(r->queue));
    status = CLATTN_SUCCESS;
fail:
    return status;
}

/* Sends sums on, once the device has them, and receives others. */
static clattn_status pass_sums(struct run *r, struct parcel *sums, struct parcel *next)
{
    clattn_status status;
    void *request = NULL;
    TRY(parcel_fetch(r, sums, sums->read));
    TRY(ring_pass(r, sums, next, &request));
    status = ring_receive(r, next, &request);
fail:
    return status;
}

/* Copies pieces one behind the other, (piece, batch, head, row, column), to one of the rank's own arrays, if it is there. */
static clattn_status give(struct run *r, size_t length, clattn_binding from, const clattn_layout *to, clattn_binding at)
{
    const struct group_problem *p = r->p;
    if (layout_is_none(to))
        return CLATTN_SUCCESS;
    const size_t rows = length / p->pieces, heads = to->extent[1], columns = to->extent[3];
    const clattn_layout pieces =
        clattn_layout_contiguous(CLATTN_DTYPE_F32, 5, (const size_t[5]){p->pieces, p->batch, heads, rows, columns});
    const clattn_layout own = {
        .dtype = to->dtype,
        .rank = 5,
        .extent = {p->pieces, p->batch, heads, rows, columns},
        .stride = {(int64_t)rows * to->stride[2], to->stride[0], to->stride[1], to->stride[2], to->stride[3]}};
    return run_give(r, &pieces, from, &own, at);
}

static clattn_status give_all(struct run *r, const struct parcel *home)
{
    clattn_status status;
    const clattn_attention_desc *d = &r->p->attention;
    const struct shards s = ring_shards(r->p, true);
    const clattn_binding values = clattn_binding_buffer(home->buffer, (int64_t)(s.at[1] / sizeof(float)));
    TRY(give(r, r->p->query_length, clattn_binding_buffer(r->a->partial, (int64_t)places_of(r->p).query_sum),
             &d->gradients.query, r->args.gradients.query));
    TRY(run_join(r, home->written));
    TRY(give(r, r->p->key_length, clattn_binding_buffer(home->buffer, 0), &d->gradients.key, r->args.gradients.key));
    status = give(r, r->p->key_length, values, &d->gradients.value, r->args.gradients.value);
fail:
    return status;
}

clattn_status ring_backward_run(struct run *r)
{
    clattn_status status;
    clattn_group_attention *a = r->a;
    const size_t rank = (size_t)a->ranks.group.rank, ranks = (size_t)a->ranks.group.ranks;
    const struct shards shards = ring_shards(r->p, false);
    struct parcel *sums = &a->parcel[SUMS], *next_sums = &a->parcel[SUMS_TOO];
    void *request = NULL;
    cl_event packed = NULL;
    TRY(run_fill(r, a->partial, 0, places_of(r->p).query_sum, places_of(r->p).query));
    TRY(ring_pack(r, &shards, &a->parcel[KEYS], &packed));
    if (ranks > 1)
        TRY(parcel_fetch(r, &a->parcel[KEYS], packed));
    for (size_t s = 0; s < ranks; s++) {
        struct parcel *keys = &a->parcel[KEYS + s % 2], *next = &a->parcel[KEYS + (s + 1) % 2];
        if (s + 1 < ranks)
            TRY(ring_pass(r, keys, next, &request));
        TRY(add_own(r, (rank + ranks - s) % ranks, keys, s ? keys->written : packed));
        if (s + 1 < ranks)
            TRY(ring_receive(r, next, &request));
        if (s > 0) { /* while this step's blocks are computed */
            struct parcel *sent = sums;
            TRY(pass_sums(r, sent, next_sums));
            sums = next_sums;
            next_sums = sent;
        }
        TRY(sum_up(r, sums, s == 0));
    }
    if (ranks > 1) {
        TRY(pass_sums(r, sums, next_sums));
        sums = next_sums;
    }
    status = give_all(r, sums);
fail:
    if (request) /* its memory goes */
        (void)group_finish(r, request);
    event_replace(a->context, &packed, NULL);
    return status;
}
