/* What makes scores beside queries and keys: masks, biases, vectors, slopes and sinks.  A block has its part of each.  Backward, what a
 * block makes of their gradients is copied to the caller's arrays if no other block makes anything of the same elements, and otherwise
 * added up; and sums that ranks share are summed up over the ranks, in their order. */
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "group/group.h"

#define ALIGNMENT 16 /* floats, of each gradient */

static const struct score_array {
    enum attention_gradient gradient;
    enum attention_array array;
} score_arrays[] = {{GRADIENT_MASK, ATTENTION_MASK},
                    {GRADIENT_BIAS, ATTENTION_BIAS},
                    {GRADIENT_VECTOR, ATTENTION_VECTOR},
                    {GRADIENT_ALIBI, ATTENTION_ALIBI},
                    {GRADIENT_SINKS, ATTENTION_SINKS}};

/* The part of an array, or of its gradient, that a block has. */
static void take(const struct block *b, enum attention_gradient of, clattn_layout *array, clattn_binding *at)
{
    const size_t first[4] = {0, b->head, b->query_row, b->first_key};
    const size_t extent[4] = {b->query.extent[0], b->query.extent[1], b->query.extent[2], b->key.extent[2]};
    const bool is_pair = of == GRADIENT_MASK || of == GRADIENT_BIAS; /* otherwise only heads are divided */
    const int heads = of == GRADIENT_ALIBI ? array->rank - 1 : 0;
    for (int i = 0; i < array->rank; i++) {
        const int dimension = is_pair ? i : 1;
        if (array->extent[i] == 1 || (!is_pair && i != heads))
            continue;
        array->extent[i] = extent[dimension];
        at->offset += (int64_t)first[dimension] * array->stride[i];
    }
}

/* Does so with the arrays of a block's description, and puts the gradients of its part one behind the other; returns how many floats
 * those have. */
static size_t take_all(const struct run *r, const struct block *b, clattn_attention_desc *d,
                       clattn_attention_args *args)
{
    size_t floats = 0;
    for (size_t n = 0; n < COUNT_OF(score_arrays); n++) {
        const struct score_array *a = &score_arrays[n];
        clattn_layout *array = (clattn_layout *)attention_layout(d, a->array);
        clattn_layout *gradient = (clattn_layout *)attention_gradient_layout(d, a->gradient);
        clattn_binding *array_at = (clattn_binding *)attention_binding(args, a->array);
        clattn_binding *gradient_at = (clattn_binding *)attention_gradient_binding(args, a->gradient);
        if (a->array == ATTENTION_SINKS && !b->sinks) {
            *array = *gradient = (clattn_layout){0};
            *array_at = *gradient_at = (clattn_binding){0};
        }
        take(b, a->gradient, array, array_at);
        if (layout_is_none(gradient))
            continue;
        *gradient = clattn_layout_contiguous(CLATTN_DTYPE_F32, array->rank, array->extent);
        *gradient_at = clattn_binding_buffer(r->a->score_parts, (int64_t)floats);
        floats += round_up(layout_elements(gradient), ALIGNMENT);
    }
    return floats;
}

void scores_take(const struct run *r, const struct block *b, clattn_attention_desc *d, clattn_attention_args *args)
{
    (void)take_all(r, b, d, args);
}

/* ---- sums ---- */

enum kind { COPIED, SUMMED, SHARED_SUM };

/* What becomes of a gradient: each rank has its own rows of a mask or bias, and a part of the sum of what is the same for all rows. */
static enum kind kind_of(const struct run *r, enum attention_gradient g)
{
    const struct group_problem *p = r->p;
    const size_t *extent = attention_gradient_layout(&p->attention, g)->extent;
    const bool is_ring = p->mode == CLATTN_GROUP_MODE_RING;
    if ((g != GRADIENT_MASK && g != GRADIENT_BIAS) || extent[2] == 1)
        return SHARED_SUM;
    return (is_ring ? extent[3] : extent[1]) == (is_ring ? (size_t)r->a->ranks.group.ranks * p->key_length : p->heads)
               ? COPIED
               : SUMMED;
}

/* The gradients of a kind, one behind the other: where the one before `end` ends. */
static size_t floats_of(const struct run *r, enum kind kind, enum attention_gradient end)
{
    size_t count = 0;
    for (size_t n = 0; n < COUNT_OF(score_arrays) && score_arrays[n].gradient < end; n++) {
        const clattn_layout *gradient = attention_gradient_layout(&r->p->attention, score_arrays[n].gradient);
        if (!layout_is_none(gradient) && kind_of(r, score_arrays[n].gradient) == kind)
            count += round_up(layout_elements(gradient), ALIGNMENT);
    }
    return count;
}

/* Where a gradient is put together. */
static clattn_layout sum_of(const struct run *r, enum attention_gradient g, clattn_binding *at)
{
    const clattn_layout *own = attention_gradient_layout(&r->p->attention, g);
    const enum kind kind = kind_of(r, g);
    *at = kind == COPIED ? *attention_gradient_binding(&r->args, g)
                         : clattn_binding_buffer(kind == SUMMED ? r->a->score_sums : r->a->parcel[SHARED].buffer,
                                                 (int64_t)floats_of(r, kind, g));
    return kind == COPIED ? *own : clattn_layout_contiguous(CLATTN_DTYPE_F32, own->rank, own->extent);
}

/* Bytes of the part of the shared sums that a rank makes. */
static size_t shared_bytes(const struct run *r)
{
    const size_t floats = floats_of(r, SHARED_SUM, ATTENTION_GRADIENTS);
    return round_up(divide_up(floats, (size_t)r->a->ranks.group.ranks), ALIGNMENT) * sizeof(float);
}

clattn_status scores_reserve(clattn_group_attention *a)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct group_problem *p = &a->problem;
    const struct run r = {.a = a, .p = p};
    const size_t ranks = (size_t)a->ranks.group.ranks, parts = p->mode == CLATTN_GROUP_MODE_RING ? 1 : ranks;
    const size_t rows = p->query_length / p->pieces, shared = ranks * shared_bytes(&r);
    const size_t keys = p->mode == CLATTN_GROUP_MODE_RING ? p->key_length / p->pieces : ranks * p->key_length;
    const size_t summed = floats_of(&r, SUMMED, ATTENTION_GRADIENTS) * sizeof(float);
    const struct block largest = {
        .query = clattn_layout_bhsd(CLATTN_DTYPE_F32, p->batch, p->heads / parts, rows, p->d_k),
        .key = clattn_layout_bhsd(CLATTN_DTYPE_F32, p->batch, p->kv_heads / parts, keys, p->d_k),
        .sinks = true};
    clattn_attention_desc d = p->attention;
    clattn_attention_args args = {0};
    const size_t count = take_all(&r, &largest, &d, &args);
    if (count)
        TRY(buffer_make(a, &a->score_parts, count * sizeof(float)));
    if (summed)
        TRY(buffer_make(a, &a->score_sums, summed));
    if (shared) {
        TRY(parcel_make(a, &a->parcel[SHARED], shared));
        TRY(parcel_make(a, &a->parcel[SHARED_TOO], shared));
    }
fail:
    return status;
}

clattn_status scores_begin(struct run *r)
{
    clattn_status status = CLATTN_SUCCESS;
    const clattn_binding zeros = clattn_binding_buffer(r->a->score_parts, 0);
    if (r->a->score_parts)
        TRY(run_fill(r, r->a->score_parts, 0, 0, 1));
    for (size_t n = 0; n < COUNT_OF(score_arrays); n++) {
        const enum attention_gradient g = score_arrays[n].gradient;
        if (layout_is_none(attention_gradient_layout(&r->p->attention, g)))
            continue;
        clattn_binding at;
        const clattn_layout sum = sum_of(r, g, &at);
        clattn_layout zero = sum;
        memset(zero.stride, 0, sizeof zero.stride);
        TRY(run_give(r, &zero, zeros, &sum, at));
    }
fail:
    return status;
}

clattn_status scores_add(struct run *r, const struct block *b, const clattn_attention_desc *d,
                         const clattn_attention_args *args)
{
    clattn_status status = CLATTN_SUCCESS;
    for (size_t n = 0; n < COUNT_OF(score_arrays); n++) {
        const enum attention_gradient g = score_arrays[n].gradient;
        const clattn_layout *part = attention_gradient_layout(d, g);
        const clattn_binding part_at = *attention_gradient_binding(args, g);
        if (layout_is_none(part))
            continue;
        clattn_binding at;
        clattn_layout sum = sum_of(r, g, &at);
        take(b, g, &sum, &at);
        if (kind_of(r, g) == COPIED)
            TRY(run_give(r, part, part_at, &sum, at));
        else
            TRY(run_add(r, part, part_at, &sum, at, NULL));
    }
fail:
    return status;
}

/* Makes the shared sums those of all ranks. */
static clattn_status share(struct run *r)
{
    clattn_status status = CLATTN_SUCCESS;
    struct device *device = &r->a->context->device;
    struct parcel *all = &r->a->parcel[SHARED], *sums = &r->a->parcel[SHARED_TOO];
    const size_t bytes = shared_bytes(r);
    if (!bytes)
        return status;
    if (!r->dry) /* the other queue will wait for them */
        TRY_CL(&device->report, "clFlush", device->cl.clFlush(r->queue));
    TRY(group_sum(r, all, sums, bytes, r->last));
    if (!r->dry)
        TRY_CL(&device->report, "clFlush", device->cl.clFlush(r->queue));
    TRY(group_swap(r, sums, true, all, bytes, r->last));
    status = run_join(r, all->written);
fail:
    return status;
}

clattn_status scores_give(struct run *r)
{
    clattn_status status;
    TRY(share(r));
    for (size_t n = 0; n < COUNT_OF(score_arrays); n++) {
        const enum attention_gradient g = score_arrays[n].gradient;
        const clattn_layout *own = attention_gradient_layout(&r->p->attention, g);
        if (layout_is_none(own) || kind_of(r, g) == COPIED)
            continue;
        clattn_binding at;
        const clattn_layout sum = sum_of(r, g, &at);
        TRY(run_give(r, &sum, at, own, *attention_gradient_binding(&r->args, g)));
    }
fail:
    return status;
}
