/* Keys and values of a part of the heads go to all ranks, which put them into the whole sequence's order; meanwhile they attend with the
 * part before. */
#include <stdlib.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "group/group.h"

enum { OWN, OWN_TOO, RECEIVED }; /* parcels: what a rank sends, in turn, and what all send */

/* Keys and values of a part of the heads: of a rank, and of all. */
static struct shards shards_of(const struct group_problem *p, size_t ranks)
{
    const struct shard arrays[2] = {{p->attention.key.dtype, p->kv_heads / ranks, p->key_length, p->d_k},
                                    {p->attention.value.dtype, p->kv_heads / ranks, p->key_length, p->d_v}};
    return shards_make(p, 2, arrays);
}

clattn_status gather_reserve(clattn_group_attention *a)
{
    clattn_status status;
    const size_t ranks = (size_t)a->ranks.group.ranks;
    const struct shards s = shards_of(&a->problem, ranks);
    TRY(parcel_make(a, &a->parcel[OWN], s.bytes));
    TRY(parcel_make(a, &a->parcel[OWN_TOO], s.bytes));
    TRY(parcel_make(a, &a->parcel[RECEIVED], ranks * s.bytes));
    for (int i = 0; i < 2; i++)
        TRY(buffer_make(a, &a->whole[i], ranks * s.bytes));
fail:
    return status;
}

/* Heads `part` of an array that has kv_heads. */
static clattn_layout part_of(const clattn_layout *array, size_t part, size_t heads, clattn_binding *at)
{
    clattn_layout taken = *array;
    taken.extent[1] = heads;
    at->offset += (int64_t)(part * heads) * array->stride[1];
    return taken;
}

/* Sends keys and values of a part. */
static clattn_status begin(struct run *r, const struct shards *s, size_t part, cl_event start, void **requests)
{
    clattn_status status;
    clattn_group_attention *a = r->a;
    struct parcel *own = &a->parcel[part % 2], *received = &a->parcel[RECEIVED];
    const clattn_layout *const arrays[2] = {&r->p->attention.key, &r->p->attention.value};
    const clattn_binding at[2] = {r->args.key, r->args.value};
    cl_event packed = NULL;
    for (size_t i = 0; i < 2; i++) {
        clattn_binding from_at = at[i], to_at = clattn_binding_buffer(own->buffer, 0);
        const clattn_layout from = part_of(arrays[i], part, s->array[i].heads, &from_at);
        const clattn_layout to = shard_local(r->p, s, i, &to_at);
        TRY(run_copy(r, a->transfers, &from, from_at, &to, to_at, start, i ? &packed : NULL));
    }
    TRY(parcel_fetch(r, own, packed));
    TRY(parcel_wait(r, received));
    status = group_swap_start(r, own, true, received, s->bytes, requests);
fail:
    event_replace(a->context, &packed, NULL);
    return status;
}

/* Receives those of all ranks, and puts them in order. */
static clattn_status finish(struct run *r, const struct shards *s, size_t part, void **requests, cl_event *ordered)
{
    clattn_status status;
    clattn_group_attention *a = r->a;
    struct parcel *received = &a->parcel[RECEIVED];
    TRY(group_swap_finish(r, requests));
    TRY(parcel_store(r, received));
    status = shards_order(r, s, received->buffer, a->whole[part % 2], a->whole_read[part % 2], ordered);
fail:
    return status;
}

static clattn_status attend(struct run *r, const struct shards *s, size_t part, cl_event ordered)
{
    clattn_status status = CLATTN_SUCCESS;
    clattn_group_attention *a = r->a;
    const struct group_problem *p = r->p;
    const size_t heads = p->heads / (size_t)a->ranks.group.ranks, rows = p->query_length / p->pieces;
    for (size_t i = 0; i < p->pieces; i++) {
        const size_t start = piece_start(p, &a->ranks.group, (size_t)a->ranks.group.rank, i, p->query_length);
        struct block b = {.query_at = r->args.query,
                          .output_at = r->args.output,
                          .lse_at = r->args.outputs.lse,
                          .key_at = clattn_binding_buffer(a->whole[part % 2], 0),
                          .value_at = clattn_binding_buffer(a->whole[part % 2], 0),
                          .position = run_position(r) + (int64_t)start,
                          .head = part * heads,
                          .query_row = i * rows,
                          .sinks = true};
        b.query = rows_of(p, &p->attention.query, part * heads, heads, i, &b.query_at);
        b.output = rows_of(p, &p->attention.output, part * heads, heads, i, &b.output_at);
        b.lse = rows_of(p, &p->attention.outputs.lse, part * heads, heads, i, &b.lse_at);
        b.key = shard_whole(r, s, 0, &b.key_at);
        b.value = shard_whole(r, s, 1, &b.value_at);
        TRY(run_attend(r, &b, ordered));
    }
    event_replace(a->context, &a->whole_read[part % 2], r->last);
    if (!r->dry)
        TRY_CL(&a->context->device.report, "clFlush", a->context->device.cl.clFlush(r->queue));
fail:
    return status;
}

clattn_status gather_run(struct run *r)
{
    clattn_status status;
    clattn_group_attention *a = r->a;
    const size_t parts = (size_t)a->ranks.group.ranks;
    const struct shards s = shards_of(r->p, parts);
    cl_event start = NULL, ordered = NULL;
    void **requests = calloc(parts, sizeof *requests);
    if (!requests)
        return report_error(&a->context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for exchanges");
    event_replace(a->context, &start, r->last);
    TRY(begin(r, &s, 0, start, requests));
    for (size_t part = 0; part < parts; part++) {
        event_replace(a->context, &ordered, NULL);
        TRY(finish(r, &s, part, requests, &ordered));
        /* What is sent is sent before kernels keep the device busy. */
        if (part + 1 < parts)
            TRY(begin(r, &s, part + 1, start, requests));
        TRY(attend(r, &s, part, ordered));
    }
fail:
    (void)group_swap_finish(r, requests);
    event_replace(a->context, &start, NULL);
    event_replace(a->context, &ordered, NULL);
    free(requests);
    return status;
}
