/* Keys and values go round.  In step s a rank attends to those of the rank s before it, while it sends them on and receives the next
 * ones.  What it has so far is one partial result for each piece of its queries, with which each new one is merged. */
#include <math.h>
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "clattn/merge.h"
#include "group/group.h"

#define SLOTS 3 /* of a piece: what there is so far, a new partial, and both merged */

/* Floats of a partial output and of its log-sum-exps, which lie behind it. */
static size_t partial_floats(const struct group_problem *p)
{
    return p->batch * p->heads * (p->query_length / p->pieces) * p->d_v;
}

static size_t slot_floats(const struct group_problem *p)
{
    return partial_floats(p) + p->batch * p->heads * (p->query_length / p->pieces);
}

struct shards ring_shards(const struct group_problem *p, bool gradients)
{
    const clattn_attention_desc *d = &p->attention;
    const struct shard arrays[2] = {
        {gradients ? CLATTN_DTYPE_F32 : d->key.dtype, p->kv_heads, p->key_length, p->d_k},
        {gradients ? CLATTN_DTYPE_F32 : d->value.dtype, p->kv_heads, p->key_length, p->d_v}};
    return shards_make(p, 2, arrays);
}

clattn_status ring_reserve(clattn_group_attention *a)
{
    clattn_status status;
    const struct group_problem *p = &a->problem;
    for (int i = 0; i < (a->ranks.group.ranks > 1 ? 2 : 1); i++)
        TRY(parcel_make(a, &a->parcel[i], ring_shards(p, false).bytes));
    status = buffer_make(a, &a->partial, SLOTS * p->pieces * slot_floats(p) * sizeof(float));
fail:
    return status;
}

clattn_status ring_pack(struct run *r, const struct shards *s, struct parcel *parcel, cl_event *packed)
{
    clattn_status status = CLATTN_SUCCESS;
    const clattn_layout *const arrays[2] = {&r->p->attention.key, &r->p->attention.value};
    const clattn_binding at[2] = {r->args.key, r->args.value};
    for (size_t i = 0; i < 2; i++) {
        clattn_binding to_at = clattn_binding_buffer(parcel->buffer, 0);
        const clattn_layout to = shard_local(r->p, s, i, &to_at);
        TRY(run_copy(r, r->a->transfers, arrays[i], at[i], &to, to_at, r->last, i ? packed : NULL));
    }
    if (!r->dry)
        TRY_CL(&r->a->context->device.report, "clFlush", r->a->context->device.cl.clFlush(r->a->transfers));
fail:
    return status;
}

/* A piece of the rank's queries. */
struct piece {
    size_t needed, done; /* blocks that it attends, and has attended */
    int held;            /* the slot of what there is so far, or -1 */
};

static size_t query_start(const struct run *r, size_t piece)
{
    const clattn_group *group = &r->a->ranks.group;
    return piece_start(r->p, group, (size_t)group->rank, piece, r->p->query_length);
}

bool ring_needs(const struct run *r, size_t piece, size_t key_start)
{
    const struct group_problem *p = r->p;
    const int64_t first = run_position(r) + (int64_t)query_start(r, piece) - (int64_t)key_start;
    const int64_t last = first + (int64_t)(p->query_length / p->pieces) - 1;
    return attends(p, first, last, (int64_t)(p->key_length / p->pieces));
}

void ring_place(const struct run *r, size_t piece, size_t key_start, struct block *b)
{
    b->first_query = query_start(r, piece);
    b->first_key = key_start;
    b->query_row = piece * (r->p->query_length / r->p->pieces);
}

/* Slot `slot` of piece `i`: the element that its output begins with. */
static int64_t slot_at(const struct group_problem *p, size_t i, int slot)
{
    return (int64_t)((i * SLOTS + (size_t)slot) * slot_floats(p));
}

static clattn_status attend(struct run *r, size_t i, int slot, size_t key_piece, size_t key_start,
                            const struct parcel *parcel, cl_event ready)
{
    const struct group_problem *p = r->p;
    const size_t rows = p->query_length / p->pieces;
    const struct shards s = ring_shards(p, false);
    clattn_layout local;
    struct block b = {.query_at = r->args.query,
                      .key_at = clattn_binding_buffer(parcel->buffer, 0),
                      .value_at = clattn_binding_buffer(parcel->buffer, 0),
                      .output = clattn_layout_bhsd(CLATTN_DTYPE_F32, p->batch, p->heads, rows, p->d_v),
                      .lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (const size_t[3]){p->batch, p->heads, rows}),
                      .output_at = clattn_binding_buffer(r->a->partial, slot_at(p, i, slot)),
                      .lse_at = clattn_binding_buffer(r->a->partial, slot_at(p, i, slot) + (int64_t)partial_floats(p))};
    b.query = rows_of(p, &p->attention.query, 0, p->heads, i, &b.query_at);
    local = shard_local(p, &s, 0, &b.key_at);
    b.key = rows_of(p, &local, 0, p->kv_heads, key_piece, &b.key_at);
    local = shard_local(p, &s, 1, &b.value_at);
    b.value = rows_of(p, &local, 0, p->kv_heads, key_piece, &b.value_at);
    ring_place(r, i, key_start, &b);
    return run_attend(r, &b, ready);
}

/* Merges what is in slots `first` and `second`, of which `first` may be -1, into slot `to`, or into the output if that is -1. */
static clattn_status merge(struct run *r, size_t i, int first, int second, int to)
{
    const struct group_problem *p = r->p;
    clattn_context *context = r->a->context;
    const size_t rows = p->query_length / p->pieces, count = first < 0 ? 1 : 2;
    const int64_t from = slot_at(p, i, first < 0 ? second : first), lse = (int64_t)partial_floats(p);
    clattn_merge_desc desc = CLATTN_MERGE_DESC_INIT;
    clattn_merge_args args = CLATTN_MERGE_ARGS_INIT;
    cl_event made = NULL;
    desc.partial =
        clattn_layout_contiguous(CLATTN_DTYPE_F32, 5, (const size_t[5]){count, p->batch, p->heads, rows, p->d_v});
    desc.partial_lse =
        clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, (const size_t[4]){count, p->batch, p->heads, rows});
    if (count == 2)
        desc.partial.stride[0] = desc.partial_lse.stride[0] = slot_at(p, i, second) - from;
    args.partial = clattn_binding_buffer(r->a->partial, from);
    args.partial_lse = clattn_binding_buffer(r->a->partial, from + lse);
    if (to < 0) {
        args.output = r->args.output;
        args.lse = r->args.outputs.lse;
        args.sinks = r->args.scoring.sinks;
        desc.output = rows_of(p, &p->attention.output, 0, p->heads, i, &args.output);
        desc.lse = rows_of(p, &p->attention.outputs.lse, 0, p->heads, i, &args.lse);
        desc.sinks = p->attention.scoring.sinks;
    } else {
        desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, p->batch, p->heads, rows, p->d_v);
        desc.lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (const size_t[3]){p->batch, p->heads, rows});
        args.output = clattn_binding_buffer(r->a->partial, slot_at(p, i, to));
        args.lse = clattn_binding_buffer(r->a->partial, slot_at(p, i, to) + lse);
    }
    if (r->dry)
        return clattn_merge_prewarm(context, &desc);
    const clattn_status status = clattn_merge_run(context, r->queue, &desc, &args, 1, &r->last, &made);
    run_stepped(r, made);
    return status;
}

/* Attends to one piece of keys, and merges. */
static clattn_status add_block(struct run *r, size_t i, struct piece *piece, size_t key_piece, size_t key_start,
                               const struct parcel *parcel, cl_event ready)
{
    clattn_status status;
    const int slot = (piece->held + 1) % SLOTS, other = (piece->held + 2) % SLOTS;
    TRY(attend(r, i, slot, key_piece, key_start, parcel, ready));
    piece->done++;
    if (piece->done == piece->needed || r->dry)
        TRY(merge(r, i, piece->held, slot, -1));
    if (piece->done < piece->needed && piece->held >= 0)
        TRY(merge(r, i, piece->held, slot, other));
    piece->held = piece->held < 0 ? slot : other;
fail:
    return status;
}

/* Attends to the keys of rank `of`, which the parcel has. */
static clattn_status attend_to(struct run *r, struct piece *pieces, size_t of, struct parcel *parcel, cl_event ready)
{
    clattn_status status = CLATTN_SUCCESS;
    clattn_group_attention *a = r->a;
    for (size_t i = 0; i < r->p->pieces; i++)
        for (size_t k = 0; k < r->p->pieces; k++) {
            const size_t start = piece_start(r->p, &a->ranks.group, of, k, r->p->key_length);
            const bool is_first = of == (size_t)a->ranks.group.rank && k == 0;
            /* Queries that attend nothing attend one piece, so that the result is what that gives. */
            if (ring_needs(r, i, start) || (is_first && !pieces[i].needed) || r->dry) {
                pieces[i].needed = size_max(pieces[i].needed, 1);
                TRY(add_block(r, i, &pieces[i], k, start, parcel, ready));
            }
        }
    event_replace(a->context, &parcel->read, r->last);
    if (!r->dry)
        TRY_CL(&a->context->device.report, "clFlush", a->context->device.cl.clFlush(r->queue));
fail:
    return status;
}

clattn_status ring_pass(struct run *r, const struct parcel *parcel, struct parcel *next, void **request)
{
    clattn_status status;
    const int32_t rank = r->a->ranks.group.rank, ranks = r->a->ranks.group.ranks;
    TRY(parcel_wait(r, next));
    const clattn_group_exchange exchange = {.send = parcel->host.memory,
                                            .send_bytes = parcel->bytes,
                                            .to = (rank + 1) % ranks,
                                            .from = (rank + ranks - 1) % ranks,
                                            .receive = next->host.memory,
                                            .receive_bytes = next->bytes};
    status = group_start(r, &exchange, request);
fail:
    return status;
}

clattn_status ring_receive(struct run *r, struct parcel *next, void **request)
{
    clattn_status status;
    void *given = *request;
    *request = NULL;
    TRY(group_finish(r, given));
    status = parcel_store(r, next);
fail:
    return status;
}

clattn_status ring_run(struct run *r)
{
    clattn_status status;
    clattn_group_attention *a = r->a;
    const size_t rank = (size_t)a->ranks.group.rank, ranks = (size_t)a->ranks.group.ranks;
    struct piece pieces[MOST_PIECES] = {{0}};
    void *request = NULL;
    cl_event packed = NULL;
    for (size_t i = 0; i < r->p->pieces; i++) {
        pieces[i].held = -1;
        for (size_t s = 0; s < ranks; s++)
            for (size_t k = 0; k < r->p->pieces; k++)
                pieces[i].needed +=
                    r->dry || ring_needs(r, i, piece_start(r->p, &a->ranks.group, s, k, r->p->key_length));
    }
    const struct shards shards = ring_shards(r->p, false);
    if (r->p->packed) /* rows that no item owns are as if they had attended nothing */
        TRY(run_fill(r, a->partial, -INFINITY, 0, SLOTS * r->p->pieces * slot_floats(r->p)));
    TRY(ring_pack(r, &shards, &a->parcel[0], &packed));
    if (ranks > 1)
        TRY(parcel_fetch(r, &a->parcel[0], packed));
    for (size_t s = 0; s < ranks; s++) {
        struct parcel *parcel = &a->parcel[s % 2], *next = &a->parcel[(s + 1) % 2];
        /* What is sent is sent before kernels keep the device busy. */
        if (s + 1 < ranks)
            TRY(ring_pass(r, parcel, next, &request));
        TRY(attend_to(r, pieces, (rank + ranks - s) % ranks, parcel, s ? parcel->written : packed));
        if (s + 1 < ranks)
            TRY(ring_receive(r, next, &request));
    }
fail:
    if (request) /* its memory goes */
        (void)group_finish(r, request);
    event_replace(a->context, &packed, NULL);
    return status;
}
