/* Ranks exchange their rows of all heads for all rows of some heads, attend or compute gradients, and exchange the results back. */
#include <stdlib.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "group/group.h"

enum { SENT, RECEIVED, RESULTS, RETURNED };
/* What is exchanged: forward the first three, and then output and lse; backward all that are there, and then the gradients. */
enum { QUERY, KEY, VALUE, OUTPUT, LSE, D_OUTPUT, D_LSE, ARRAYS };

/* The rank's own arrays that are exchanged: those that are read, or the results. */
struct items {
    size_t count;
    struct item {
        const clattn_layout *layout;
        clattn_binding at;
        clattn_layout *whole; /* of a block: the array of all rows */
        clattn_binding *whole_at;
    } item[ARRAYS];
};

static void add_item(struct items *items, const clattn_layout *layout, clattn_binding at, clattn_layout *whole,
                     clattn_binding *whole_at)
{
    if (!layout_is_none(layout))
        items->item[items->count++] = (struct item){layout, at, whole, whole_at};
}

static struct items inputs_of(const struct group_problem *p, const clattn_attention_args *args, struct block *b)
{
    const clattn_attention_desc *d = &p->attention;
    struct items items = {0};
    add_item(&items, &d->query, args->query, &b->query, &b->query_at);
    add_item(&items, &d->key, args->key, &b->key, &b->key_at);
    add_item(&items, &d->value, args->value, &b->value, &b->value_at);
    if (p->backward) {
        add_item(&items, &d->output, args->output, &b->output, &b->output_at);
        add_item(&items, &d->outputs.lse, args->outputs.lse, &b->lse, &b->lse_at);
        add_item(&items, &d->gradients.output, args->gradients.output, &b->d_output, &b->d_output_at);
        add_item(&items, &d->gradients.lse, args->gradients.lse, &b->d_lse, &b->d_lse_at);
    }
    return items;
}

static struct items results_of(const struct group_problem *p, const clattn_attention_args *args, struct block *b)
{
    const clattn_attention_desc *d = &p->attention;
    struct items items = {0};
    if (p->backward) {
        add_item(&items, &d->gradients.query, args->gradients.query, &b->d_query, &b->d_query_at);
        add_item(&items, &d->gradients.key, args->gradients.key, &b->d_key, &b->d_key_at);
        add_item(&items, &d->gradients.value, args->gradients.value, &b->d_value, &b->d_value_at);
    } else {
        add_item(&items, &d->output, args->output, &b->output, &b->output_at);
        add_item(&items, &d->outputs.lse, args->outputs.lse, &b->lse, &b->lse_at);
    }
    return items;
}

/* How they lie in parcels; an array without columns has one. */
static struct shards shards_of(const struct group_problem *p, size_t ranks, const struct items *items)
{
    struct shard arrays[ARRAYS];
    for (size_t i = 0; i < items->count; i++) {
        const clattn_layout *layout = items->item[i].layout;
        arrays[i] = (struct shard){layout->dtype, layout->extent[1] / ranks, layout->extent[2],
                                   layout->rank == 4 ? layout->extent[3] : 1};
    }
    return shards_make(p, items->count, arrays);
}

clattn_status heads_reserve(clattn_group_attention *a)
{
    clattn_status status;
    const clattn_attention_args none = {0};
    struct block b;
    const size_t ranks = (size_t)a->ranks.group.ranks;
    const struct items inputs = inputs_of(&a->problem, &none, &b), results = results_of(&a->problem, &none, &b);
    const size_t in = ranks * shards_of(&a->problem, ranks, &inputs).bytes;
    const size_t out = ranks * shards_of(&a->problem, ranks, &results).bytes;
    TRY(parcel_make(a, &a->parcel[SENT], in));
    TRY(parcel_make(a, &a->parcel[RECEIVED], in));
    TRY(buffer_make(a, &a->whole[0], in));
    if (results.count) {
        TRY(parcel_make(a, &a->parcel[RESULTS], out));
        TRY(parcel_make(a, &a->parcel[RETURNED], out));
        TRY(buffer_make(a, &a->whole[1], out));
    }
fail:
    return status;
}

/* One of the rank's own arrays as (rank, batch, head, row, column): the heads that each rank gets. */
static clattn_layout by_ranks(const clattn_layout *array, size_t ranks)
{
    const size_t heads = array->extent[1] / ranks;
    const bool is_matrix = array->rank == 4;
    return (clattn_layout){
        .dtype = array->dtype,
        .rank = 5,
        .extent = {ranks, array->extent[0], heads, array->extent[2], is_matrix ? array->extent[3] : 1},
        .stride = {(int64_t)heads * array->stride[1], array->stride[0], array->stride[1], array->stride[2],
                   is_matrix ? array->stride[3] : 1}};
}

static clattn_status send_inputs(struct run *r, const struct items *items, const struct shards *s, cl_event *ordered)
{
    clattn_status status;
    clattn_group_attention *a = r->a;
    cl_event packed = NULL;
    for (size_t i = 0; i < items->count; i++) {
        clattn_binding to_at = clattn_binding_buffer(a->parcel[SENT].buffer, 0);
        const clattn_layout from = by_ranks(items->item[i].layout, (size_t)a->ranks.group.ranks);
        const clattn_layout to = shard_parcel(r, s, i, 0, 1, &to_at);
        TRY(run_copy(r, a->transfers, &from, items->item[i].at, &to, to_at, r->last,
                     i + 1 == items->count ? &packed : NULL));
    }
    TRY(group_swap(r, &a->parcel[SENT], false, &a->parcel[RECEIVED], s->bytes, packed));
    status = shards_order(r, s, a->parcel[RECEIVED].buffer, a->whole[0], NULL, ordered);
fail:
    event_replace(a->context, &packed, NULL);
    return status;
}

/* Makes the block's arrays those of all rows, which lie in `whole`. */
static void place(const struct run *r, const struct items *items, const struct shards *s, cl_mem whole)
{
    for (size_t i = 0; i < items->count; i++) {
        const struct item *item = &items->item[i];
        *item->whole_at = clattn_binding_buffer(whole, 0);
        *item->whole = shard_whole(r, s, i, item->whole_at);
        if (item->layout->rank == 3) {
            item->whole->rank = 3;
            item->whole->extent[3] = 0;
            item->whole->stride[3] = 0;
        }
    }
}

static clattn_status return_results(struct run *r, const struct items *items, const struct shards *s)
{
    clattn_status status;
    clattn_group_attention *a = r->a;
    struct parcel *returned = &a->parcel[RETURNED];
    TRY(shards_cut(r, s, a->whole[1], a->parcel[RESULTS].buffer));
    TRY(group_swap(r, &a->parcel[RESULTS], false, returned, s->bytes, r->last));
    TRY(run_join(r, returned->written));
    for (size_t i = 0; i < items->count; i++) {
        clattn_binding from_at = clattn_binding_buffer(returned->buffer, 0);
        const clattn_layout from = shard_parcel(r, s, i, 0, 1, &from_at);
        const clattn_layout to = by_ranks(items->item[i].layout, (size_t)a->ranks.group.ranks);
        TRY(run_give(r, &from, from_at, &to, items->item[i].at));
    }
fail:
    return status;
}

clattn_status heads_run(struct run *r)
{
    clattn_status status;
    clattn_group_attention *a = r->a;
    const size_t ranks = (size_t)a->ranks.group.ranks, rank = (size_t)a->ranks.group.rank;
    struct block b = {.head = rank * (r->p->heads / ranks), .sinks = true};
    const struct items inputs = inputs_of(r->p, &r->args, &b), results = results_of(r->p, &r->args, &b);
    const struct shards in = shards_of(r->p, ranks, &inputs), out = shards_of(r->p, ranks, &results);
    cl_event ordered = NULL;
    TRY(send_inputs(r, &inputs, &in, &ordered));
    place(r, &inputs, &in, a->whole[0]);
    place(r, &results, &out, a->whole[1]);
    TRY(run_attend(r, &b, ordered));
    if (results.count)
        TRY(return_results(r, &results, &out));
fail:
    event_replace(a->context, &ordered, NULL);
    return status;
}
