/* Keys and values of a part of the heads go to all ranks, which put them into the whole sequence's order; meanwhile they attend with the
 * part before.  Backward, each rank computes what its queries add to the gradients of all keys and values of the part, and sends it home
 * while it computes the next part. */
#include <stdlib.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "group/group.h"

/* Parcels: what a rank sends, in turn, and what all send; backward, its parts of all ranks' gradients, and all ranks' of its own. */
enum { OWN, OWN_TOO, RECEIVED, ADDED, SUMS };

/* Keys and values of a part of the heads: of a rank, and of all. */
static struct shards shards_of(const struct group_problem *p, size_t ranks)
{
    const struct shard arrays[2] = {{p->attention.key.dtype, p->kv_heads / ranks, p->key_length, p->d_k},
                                    {p->attention.value.dtype, p->kv_heads / ranks, p->key_length, p->d_v}};
    return shards_make(p, 2, arrays);
}

/* Their gradients, those that are there. */
static struct shards sums_of(const struct group_problem *p, size_t ranks)
{
    const clattn_layout *const gradients[2] = {&p->attention.gradients.key, &p->attention.gradients.value};
    struct shard arrays[2];
    size_t count = 0;
    for (size_t i = 0; i < 2; i++)
        if (!layout_is_none(gradients[i]))
            arrays[count++] =
                (struct shard){CLATTN_DTYPE_F32, p->kv_heads / ranks, p->key_length, gradients[i]->extent[3]};
    return shards_make(p, count, arrays);
}

clattn_status gather_reserve(clattn_group_attention *a)
{
    clattn_status status;
    const size_t ranks = (size_t)a->ranks.group.ranks;
    const struct shards s = shards_of(&a->problem, ranks), sums = sums_of(&a->problem, ranks);
    TRY(parcel_make(a, &a->parcel[OWN], s.bytes));
    TRY(parcel_make(a, &a->parcel[OWN_TOO], s.bytes));
    TRY(parcel_make(a, &a->parcel[RECEIVED], ranks * s.bytes));
    for (int i = 0; i < 2; i++)
        TRY(buffer_make(a, &a->whole[i], ranks * s.bytes));
    if (sums.count) {
        TRY(parcel_make(a, &a->parcel[ADDED], ranks * sums.bytes));
        TRY(parcel_make(a, &a->parcel[SUMS], ranks * sums.bytes));
        TRY(buffer_make(a, &a->partial, a->problem.pieces * ranks * sums.bytes));
    }
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

/* Makes the block's gradients those of queries, and those of all keys and values that piece `piece` of the queries adds. */
static void place_gradients(const struct run *r, size_t part, size_t piece, struct block *b)
{
    const struct group_problem *p = r->p;
    const clattn_attention_desc *d = &p->attention;
    const size_t ranks = (size_t)r->a->ranks.group.ranks, heads = p->heads / ranks;
    const struct shards sums = sums_of(p, ranks);
    const clattn_binding partial =
        clattn_binding_buffer(r->a->partial, (int64_t)(piece * ranks * sums.bytes / sizeof(float)));
    size_t i = 0;
    b->d_output_at = r->args.gradients.output;
    b->d_lse_at = r->args.gradients.lse;
    b->d_query_at = r->args.gradients.query;
    b->d_output = rows_of(p, &d->gradients.output, part * heads, heads, piece, &b->d_output_at);
    b->d_lse = rows_of(p, &d->gradients.lse, part * heads, heads, piece, &b->d_lse_at);
    b->d_query = rows_of(p, &d->gradients.query, part * heads, heads, piece, &b->d_query_at);
    if (!layout_is_none(&d->gradients.key)) {
        b->d_key_at = partial;
        b->d_key = shard_whole(r, &sums, i++, &b->d_key_at);
    }
    if (!layout_is_none(&d->gradients.value)) {
        b->d_value_at = partial;
        b->d_value = shard_whole(r, &sums, i, &b->d_value_at);
    }
}

/* Adds what a piece of the queries has added to what the first one has. */
static clattn_status add_gradient(struct run *r, size_t piece, const clattn_layout *gradient, clattn_binding at)
{
    const size_t ranks = (size_t)r->a->ranks.group.ranks;
    clattn_binding first = at;
    first.offset -= (int64_t)(piece * ranks * sums_of(r->p, ranks).bytes / sizeof(float));
    if (!piece || layout_is_none(gradient))
        return CLATTN_SUCCESS;
    return run_add(r, gradient, at, gradient, first, NULL);
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
                          .head = part * heads,
                          .first_query = start,
                          .query_row = i * rows,
                          .sinks = true};
        b.query = rows_of(p, &p->attention.query, part * heads, heads, i, &b.query_at);
        b.output = rows_of(p, &p->attention.output, part * heads, heads, i, &b.output_at);
        b.lse = rows_of(p, &p->attention.outputs.lse, part * heads, heads, i, &b.lse_at);
        b.key = shard_whole(r, s, 0, &b.key_at);
        b.value = shard_whole(r, s, 1, &b.value_at);
        if (p->backward)
            place_gradients(r, part, i, &b);
        TRY(run_attend(r, &b, ordered));
        TRY(add_gradient(r, i, &b.d_key, b.d_key_at));
        TRY(add_gradient(r, i, &b.d_value, b.d_value_at));
    }
    event_replace(a->context, &a->whole_read[part % 2], r->last);
    if (!r->dry)
        TRY_CL(&a->context->device.report, "clFlush", a->context->device.cl.clFlush(r->queue));
fail:
    return status;
}

/* Copies what the rank adds to a part's gradients to a parcel, rank by rank. */
static clattn_status cut(struct run *r, cl_event *packed)
{
    const struct shards sums = sums_of(r->p, (size_t)r->a->ranks.group.ranks);
    const clattn_status status = shards_cut(r, &sums, r->a->partial, r->a->parcel[ADDED].buffer);
    event_replace(r->a->context, packed, r->last);
    return status;
}

/* Sums up what all ranks add to the gradients of the rank's own keys and values of a part. */
static clattn_status sum_up(struct run *r, size_t part, cl_event packed)
{
    clattn_status status = CLATTN_SUCCESS;
    clattn_group_attention *a = r->a;
    const struct shards sums = sums_of(r->p, (size_t)a->ranks.group.ranks);
    const clattn_layout *const gradients[2] = {&r->p->attention.gradients.key, &r->p->attention.gradients.value};
    const clattn_binding at[2] = {r->args.gradients.key, r->args.gradients.value};
    if (sums.count)
        TRY(group_sum(r, &a->parcel[ADDED], &a->parcel[SUMS], sums.bytes, packed));
    for (size_t i = 0, n = 0; n < sums.count; i++) {
        if (layout_is_none(gradients[i]))
            continue;
        clattn_binding from_at = clattn_binding_buffer(a->parcel[SUMS].buffer, 0), to_at = at[i];
        const clattn_layout from = shard_local(r->p, &sums, n++, &from_at);
        const clattn_layout to = part_of(gradients[i], part, from.extent[1], &to_at);
        TRY(run_give(r, &from, from_at, &to, to_at));
    }
    event_replace(a->context, &a->parcel[SUMS].read, r->last);
fail:
    return status;
}

clattn_status gather_run(struct run *r)
{
    clattn_status status;
    clattn_group_attention *a = r->a;
    const size_t parts = (size_t)a->ranks.group.ranks;
    const struct shards s = shards_of(r->p, parts);
    cl_event start = NULL, ordered = NULL, packed = NULL;
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
        if (part > 0) /* while this part's are computed */
            TRY(sum_up(r, part - 1, packed));
        TRY(cut(r, &packed));
    }
    status = sum_up(r, parts - 1, packed);
fail:
    (void)group_swap_finish(r, requests);
    event_replace(a->context, &start, NULL);
    event_replace(a->context, &ordered, NULL);
    event_replace(a->context, &packed, NULL);
    free(requests);
    return status;
}
