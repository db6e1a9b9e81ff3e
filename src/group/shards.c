/* Where arrays lie that ranks exchange: in parcels, rank by rank, and whole, in the sequence's order. */
#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "group/group.h"

#define ALIGNMENT 64 /* bytes, of each array */

clattn_layout rows_of(const struct group_problem *p, const clattn_layout *array, size_t head, size_t heads,
                      size_t piece, clattn_binding *at)
{
    clattn_layout part = *array;
    if (layout_is_none(array))
        return part;
    part.extent[1] = heads;
    part.extent[2] = array->extent[2] / p->pieces;
    at->offset += (int64_t)head * array->stride[1] + (int64_t)(piece * part.extent[2]) * array->stride[2];
    return part;
}

struct shards shards_make(const struct group_problem *p, size_t count, const struct shard *arrays)
{
    struct shards s = {.count = count};
    for (size_t i = 0; i < count; i++) {
        const struct shard *a = &arrays[i];
        s.array[i] = *a;
        s.at[i] = s.bytes;
        s.bytes += round_up(p->batch * a->heads * a->length * a->columns * clattn_dtype_size(a->dtype), ALIGNMENT);
    }
    return s;
}

/* Byte `at` as an element of array `i`. */
static int64_t element(const struct shards *s, size_t i, size_t at)
{
    return (int64_t)(at / clattn_dtype_size(s->array[i].dtype));
}

clattn_layout shard_local(const struct group_problem *p, const struct shards *s, size_t i, clattn_binding *at)
{
    const struct shard *a = &s->array[i];
    at->offset += element(s, i, s->at[i]);
    return clattn_layout_bhsd(a->dtype, p->batch, a->heads, a->length, a->columns);
}

clattn_layout shard_parcel(const struct run *r, const struct shards *s, size_t i, size_t piece, size_t pieces,
                           clattn_binding *at)
{
    const struct shard *a = &s->array[i];
    const size_t rows = a->length / pieces;
    at->offset += element(s, i, s->at[i]) + (int64_t)(piece * rows * a->columns);
    return (clattn_layout){.dtype = a->dtype,
                           .rank = 5,
                           .extent = {(size_t)r->a->ranks.group.ranks, r->p->batch, a->heads, rows, a->columns},
                           .stride = {element(s, i, s->bytes), (int64_t)(a->heads * a->length * a->columns),
                                      (int64_t)(a->length * a->columns), (int64_t)a->columns, 1}};
}

clattn_layout shard_whole(const struct run *r, const struct shards *s, size_t i, clattn_binding *at)
{
    const struct shard *a = &s->array[i];
    const size_t ranks = (size_t)r->a->ranks.group.ranks;
    at->offset += element(s, i, ranks * s->at[i]);
    return clattn_layout_bhsd(a->dtype, r->p->batch, a->heads, ranks * a->length, a->columns);
}

/* The whole array `i` as (rank, batch, head, row, column): the rows of piece `piece` of each rank. */
static clattn_layout whole_by_ranks(const struct run *r, const struct shards *s, size_t i, size_t piece,
                                    clattn_binding *at)
{
    const clattn_layout whole = shard_whole(r, s, i, at);
    const size_t ranks = (size_t)r->a->ranks.group.ranks, rows = s->array[i].length / r->p->pieces;
    const int64_t next = (int64_t)rows * whole.stride[2];
    if (piece) /* the last rank's comes first */
        at->offset += (2 * (int64_t)ranks - 1) * next;
    return (clattn_layout){.dtype = whole.dtype,
                           .rank = 5,
                           .extent = {ranks, whole.extent[0], whole.extent[1], rows, whole.extent[3]},
                           .stride = {piece ? -next : next, whole.stride[0], whole.stride[1], whole.stride[2], 1}};
}

clattn_status shards_order(struct run *r, const struct shards *s, cl_mem parcel, cl_mem whole, cl_event ready,
                           cl_event *event)
{
    clattn_status status = CLATTN_SUCCESS;
    const size_t pieces = r->p->pieces;
    for (size_t n = 0; n < s->count * pieces; n++) {
        const size_t i = n / pieces, piece = n % pieces;
        clattn_binding parcel_at = clattn_binding_buffer(parcel, 0), whole_at = clattn_binding_buffer(whole, 0);
        const clattn_layout apart = shard_parcel(r, s, i, piece, pieces, &parcel_at);
        const clattn_layout joined = whole_by_ranks(r, s, i, piece, &whole_at);
        TRY(run_copy(r, r->a->transfers, &apart, parcel_at, &joined, whole_at, ready,
                     n + 1 == s->count * pieces ? event : NULL));
    }
    if (!r->dry) /* the other queue will wait for them */
        TRY_CL(&r->a->context->device.report, "clFlush", r->a->context->device.cl.clFlush(r->a->transfers));
fail:
    return status;
}

clattn_status shards_cut(struct run *r, const struct shards *s, cl_mem whole, cl_mem parcel)
{
    clattn_status status = CLATTN_SUCCESS;
    const size_t pieces = r->p->pieces;
    for (size_t n = 0; n < s->count * pieces; n++) {
        const size_t i = n / pieces, piece = n % pieces;
        clattn_binding parcel_at = clattn_binding_buffer(parcel, 0), whole_at = clattn_binding_buffer(whole, 0);
        const clattn_layout apart = shard_parcel(r, s, i, piece, pieces, &parcel_at);
        const clattn_layout joined = whole_by_ranks(r, s, i, piece, &whole_at);
        TRY(run_give(r, &joined, whole_at, &apart, parcel_at));
    }
    if (!r->dry) /* the other queue will wait for them */
        TRY_CL(&r->a->context->device.report, "clFlush", r->a->context->device.cl.clFlush(r->queue));
fail:
    return status;
}
