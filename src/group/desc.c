/* Reads and checks the description of a group's attention. */
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "group/group.h"
#include "ops/common/arrays.h"

/* What the parts of an attention cannot have. */
static clattn_status refuse_features(const clattn_attention_desc *d, const char **reason)
{
    const clattn_status unsupported = CLATTN_ERROR_UNSUPPORTED;
    REQUIRE(!d->snippets.score_mod && !d->snippets.mask_mod && !d->snippets.score_mod_grad, unsupported,
            "a group's attention has no snippets");
    REQUIRE(layout_is_none(&d->lengths.query_starts) == layout_is_none(&d->lengths.key_starts) &&
                !d->lengths.longest_query,
            unsupported, "a group packs queries and keys, or neither, and has no lengths.longest_query");
    REQUIRE(layout_is_none(&d->lengths.query_starts) || (layout_is_none(&d->mask) && layout_is_none(&d->bias)),
            unsupported, "a group's packed sequences have no mask and no bias");
    REQUIRE(d->cache.kind == CLATTN_CACHE_KIND_PLAIN && layout_is_none(&d->cache.key_scale) &&
                layout_is_none(&d->cache.value_scale),
            unsupported, "a group's attention has no cache");
    REQUIRE(layout_is_none(&d->outputs.entropy) && layout_is_none(&d->outputs.scores), unsupported,
            "a group's attention has no entropy and no scores");
    REQUIRE(dtype_is_storage(d->query.dtype) && dtype_is_storage(d->key.dtype) && dtype_is_storage(d->value.dtype) &&
                dtype_is_storage(d->output.dtype),
            unsupported, "query, key, value and output are each float32, float16 or bfloat16");
    return CLATTN_SUCCESS;
}

/* Backward: the gradients that are read, and those that are computed. */
static clattn_status read_gradients(struct group_problem *p, const char **reason)
{
    clattn_status status;
    clattn_attention_desc *d = &p->attention;
    const clattn_status wrong = CLATTN_ERROR_INVALID_LAYOUT;
    const struct layout_rule all[] = {
        {&d->gradients.output, LAYOUT_OF("gradients.output"), LAYOUT_INPUT, 4, !p->backward},
        {&d->gradients.lse, LAYOUT_OF("gradients.lse"), LAYOUT_INPUT, 3, true},
        {&d->gradients.query, LAYOUT_OF("gradients.query"), LAYOUT_OUTPUT, 4, true},
        {&d->gradients.key, LAYOUT_OF("gradients.key"), LAYOUT_OUTPUT, 4, true},
        {&d->gradients.value, LAYOUT_OF("gradients.value"), LAYOUT_OUTPUT, 4, true},
        {&d->gradients.mask, LAYOUT_OF("gradients.mask"), LAYOUT_OUTPUT, d->mask.rank, true},
        {&d->gradients.bias, LAYOUT_OF("gradients.bias"), LAYOUT_OUTPUT, d->bias.rank, true},
        {&d->gradients.vector, LAYOUT_OF("gradients.vector"), LAYOUT_OUTPUT, 2, true},
        {&d->gradients.alibi, LAYOUT_OF("gradients.alibi"), LAYOUT_OUTPUT, d->scoring.alibi.rank, true},
        {&d->gradients.sinks, LAYOUT_OF("gradients.sinks"), LAYOUT_OUTPUT, 1, true},
    };
    bool any = false, result = false;
    TRY(layouts_read(all, COUNT_OF(all), "gradients have the dimensions of their arrays", reason));
    for (int i = 0; i < ATTENTION_GRADIENTS; i++) {
        const clattn_layout *gradient = attention_gradient_layout(d, i), *array = attention_differentiated(d, i);
        const bool there = !layout_is_none(gradient);
        const bool is_state = i == GRADIENT_LSE || i > GRADIENT_VALUE;
        any |= there;
        result |= there && i >= ATTENTION_INPUT_GRADIENTS;
        REQUIRE(!there ||
                    (gradient->rank == array->rank && !memcmp(gradient->extent, array->extent, sizeof array->extent)),
                wrong, "gradients have the extents of their arrays");
        REQUIRE(!there || gradient->dtype == CLATTN_DTYPE_F32 || (!is_state && dtype_is_storage(gradient->dtype)),
                wrong, "gradients are float32, or those of query, key, value and output float16 or bfloat16");
        REQUIRE(!there || array->dtype != CLATTN_DTYPE_BOOL, CLATTN_ERROR_INVALID_ARGUMENT,
                "a boolean mask has no derivative");
    }
    REQUIRE(p->backward || !any, CLATTN_ERROR_INVALID_ARGUMENT, "gradients are for CLATTN_DIRECTION_BACKWARD");
    REQUIRE(!p->backward || !layout_is_none(&d->outputs.lse), wrong, "backward reads outputs.lse, and there is none");
    REQUIRE(!p->backward || result, CLATTN_ERROR_INVALID_ARGUMENT, "no gradient is asked for");
fail:
    return status;
}

/* Gives a mask, a bias or a gradient all four dimensions. */
static void align(clattn_layout *mask)
{
    const clattn_layout given = *mask;
    if (layout_is_none(mask))
        return;
    mask->rank = 4;
    mask_align(&given, 4, mask->extent, mask->stride);
}

static clattn_status read_mask(const struct group_problem *p, const clattn_group *group, clattn_layout *mask,
                               clattn_layout *gradient, const char **reason)
{
    if (layout_is_none(mask))
        return CLATTN_SUCCESS;
    REQUIRE(mask->rank <= 4, CLATTN_ERROR_INVALID_LAYOUT, "mask and bias have at most 4 dimensions");
    align(mask);
    align(gradient);
    const size_t all[4] = {p->batch, p->heads, p->query_length, (size_t)group->ranks * p->key_length};
    for (int i = 0; i < 4; i++)
        REQUIRE(mask->extent[i] == 1 || mask->extent[i] == all[i], CLATTN_ERROR_INVALID_LAYOUT,
                "mask and bias are (batch or 1, heads or 1, S_q or 1, ranks * S_k or 1)");
    REQUIRE(p->mode != CLATTN_GROUP_MODE_HEADS || mask->extent[2] == 1, CLATTN_ERROR_UNSUPPORTED,
            "mask and bias are the same for all queries if ranks exchange heads");
    return CLATTN_SUCCESS;
}

static clattn_status read_sizes(struct group_problem *p, const clattn_group *group, const char **reason)
{
    const clattn_attention_desc *d = &p->attention;
    const size_t *q = d->query.extent, *k = d->key.extent, *v = d->value.extent, *o = d->output.extent;
    const clattn_status wrong = CLATTN_ERROR_INVALID_LAYOUT;
    size_t whole;
    REQUIRE(q[0] == k[0] && k[0] == v[0] && q[0] == o[0] && q[1] == o[1] && q[2] == o[2] && k[1] == v[1] &&
                k[2] == v[2] && q[3] == k[3] && v[3] == o[3],
            wrong,
            "query is (batch, heads, S_q, d_k), key (batch, kv_heads, S_k, d_k), value and output have d_v: the "
            "extents disagree");
    REQUIRE(q[0] && q[1] && q[2] && q[3] && k[1] && k[2] && v[3], wrong, "an extent is 0");
    REQUIRE(q[1] % k[1] == 0, wrong, "heads is no multiple of kv_heads");
    REQUIRE(size_mul(size_max(q[2], k[2]), (size_t)group->ranks, &whole) && whole <= LENGTH_LIMIT,
            CLATTN_ERROR_OVERFLOW, "the whole sequence is above 2^31 - 65537");
    /* No array of all ranks, counted in bytes and with what stands beside it, comes near overflowing. */
    REQUIRE(size_mul(whole, q[0], &whole) && size_mul(whole, q[1], &whole) &&
                size_mul(whole, size_max(q[3], v[3]), &whole) && whole <= SIZE_MAX / 256,
            CLATTN_ERROR_OVERFLOW, "the arrays of all ranks overflow");
    const clattn_layout *const lengths[] = {&d->lengths.query, &d->lengths.key, &d->lengths.positions};
    const clattn_layout *starts = &d->lengths.query_starts;
    p->packed = !layout_is_none(starts);
    REQUIRE(!p->packed ||
                (starts->extent[0] > 1 && starts->extent[0] == d->lengths.key_starts.extent[0] &&
                 dtype_is_integer(starts->dtype) && dtype_is_integer(d->lengths.key_starts.dtype) && q[0] == 1),
            wrong, "lengths.query_starts and lengths.key_starts are (items + 1), int32 or int64, and batch is 1");
    const size_t items = p->packed ? starts->extent[0] - 1 : q[0];
    for (size_t i = 0; i < COUNT_OF(lengths); i++)
        REQUIRE(layout_is_none(lengths[i]) || (dtype_is_integer(lengths[i]->dtype) && lengths[i]->extent[0] == items),
                wrong, "lengths.query, lengths.key and lengths.positions are (batch), int32 or int64");
    const clattn_layout *lse = &d->outputs.lse, *vector = &d->scoring.vector, *alibi = &d->scoring.alibi;
    REQUIRE(layout_is_none(lse) || !memcmp(lse->extent, q, 3 * sizeof *q), wrong, "outputs.lse is (batch, heads, S_q)");
    REQUIRE(layout_is_none(vector) || vector->extent[0] == q[1] || vector->extent[0] == 1, wrong,
            "scoring.vector is (heads or 1, d_k)");
    REQUIRE(layout_is_none(&d->scoring.sinks) || d->scoring.sinks.extent[0] == q[1], wrong, "scoring.sinks is (heads)");
    REQUIRE(layout_is_none(alibi) || (alibi->rank == 1 && alibi->extent[0] == q[1]) ||
                (alibi->rank == 2 && alibi->extent[1] == q[1] && (alibi->extent[0] == items || alibi->extent[0] == 1)),
            wrong, "scoring.alibi is (heads) or (batch or 1, heads)");
    p->batch = q[0];
    p->heads = q[1];
    p->query_length = q[2];
    p->d_k = q[3];
    p->kv_heads = k[1];
    p->key_length = k[2];
    p->d_v = v[3];
    p->pieces = p->order == CLATTN_GROUP_ORDER_ZIGZAG ? 2 : 1;
    REQUIRE(q[2] % p->pieces == 0 && k[2] % p->pieces == 0, CLATTN_ERROR_INVALID_LAYOUT,
            "S_q and S_k are even in zigzag order");
    REQUIRE(d->dropout.probability == 0 || p->mode != CLATTN_GROUP_MODE_RING ||
                (!p->packed && k[2] % (4 * p->pieces) == 0),
            CLATTN_ERROR_UNSUPPORTED,
            "with dropout a ring's keys are no packed sequences, and 4 divides how many are in a piece");
    REQUIRE(p->mode == CLATTN_GROUP_MODE_RING || p->kv_heads % (size_t)group->ranks == 0, CLATTN_ERROR_UNSUPPORTED,
            "ranks divides kv_heads if heads are gathered or exchanged");
    return CLATTN_SUCCESS;
}

clattn_status group_problem_read(const clattn_group *group, const clattn_group_attention_desc *given,
                                 struct group_problem *p, const char **reason)
{
    clattn_status status;
    clattn_group_attention_desc desc;
    clattn_attention_desc *d = &p->attention;
    memset(p, 0, sizeof *p);
    *reason = "desc is NULL, or its size is none that clattn_group_attention_desc ever had";
    TRY(struct_read(&desc, sizeof desc, sizeof desc, given));
    REQUIRE(enum_within(desc.mode, CLATTN_GROUP_MODE_HEADS), CLATTN_ERROR_INVALID_ARGUMENT, "unknown mode");
    REQUIRE(enum_within(desc.order, CLATTN_GROUP_ORDER_ZIGZAG), CLATTN_ERROR_INVALID_ARGUMENT, "unknown order");
    *reason = "attention is NULL, or its size is none that clattn_attention_desc ever had";
    TRY(struct_read(d, sizeof *d, sizeof *d, desc.attention));
    p->mode = desc.mode;
    p->order = desc.order;
    REQUIRE(enum_within(d->direction, CLATTN_DIRECTION_BACKWARD), CLATTN_ERROR_INVALID_ARGUMENT, "unknown direction");
    REQUIRE(is_flag(d->short_mask), CLATTN_ERROR_INVALID_ARGUMENT, "short_mask is neither 0 nor 1");
    REQUIRE(!d->outputs.partial, CLATTN_ERROR_INVALID_ARGUMENT, "outputs.partial is not 0");
    REQUIRE(enum_within(d->alignment, CLATTN_ALIGNMENT_EXPLICIT), CLATTN_ERROR_INVALID_ARGUMENT, "unknown alignment");
    const struct layout_rule all[] = {
        {&d->query, LAYOUT_OF("query"), LAYOUT_INPUT, 4, false},
        {&d->key, LAYOUT_OF("key"), LAYOUT_INPUT, 4, false},
        {&d->value, LAYOUT_OF("value"), LAYOUT_INPUT, 4, false},
        {&d->output, LAYOUT_OF("output"), LAYOUT_OUTPUT, 4, false},
        {&d->outputs.lse, LAYOUT_OF("outputs.lse"), LAYOUT_OUTPUT, 3, true},
        {&d->mask, LAYOUT_OF("mask"), LAYOUT_INPUT, 0, true},
        {&d->bias, LAYOUT_OF("bias"), LAYOUT_INPUT, 0, true},
        {&d->scoring.vector, LAYOUT_OF("scoring.vector"), LAYOUT_INPUT, 2, true},
        {&d->scoring.alibi, LAYOUT_OF("scoring.alibi"), LAYOUT_INPUT, 0, true},
        {&d->scoring.sinks, LAYOUT_OF("scoring.sinks"), LAYOUT_INPUT, 1, true},
        {&d->lengths.query, LAYOUT_OF("lengths.query"), LAYOUT_INPUT, 1, true},
        {&d->lengths.key, LAYOUT_OF("lengths.key"), LAYOUT_INPUT, 1, true},
        {&d->lengths.positions, LAYOUT_OF("lengths.positions"), LAYOUT_INPUT, 1, true},
        {&d->lengths.query_starts, LAYOUT_OF("lengths.query_starts"), LAYOUT_INPUT, 1, true},
        {&d->lengths.key_starts, LAYOUT_OF("lengths.key_starts"), LAYOUT_INPUT, 1, true},
    };
    TRY(layouts_read(all, COUNT_OF(all), "query, key, value and output have 4 dimensions, outputs.lse 3", reason));
    p->backward = d->direction == CLATTN_DIRECTION_BACKWARD;
    TRY(refuse_features(d, reason));
    TRY(read_gradients(p, reason));
    TRY(read_sizes(p, group, reason));
    TRY(read_mask(p, group, &d->mask, &d->gradients.mask, reason));
    status = read_mask(p, group, &d->bias, &d->gradients.bias, reason);
fail:
    return status;
}

size_t piece_start(const struct group_problem *p, const clattn_group *group, size_t rank, size_t piece, size_t length)
{
    return (piece ? 2 * (size_t)group->ranks - 1 - rank : rank) * (length / p->pieces);
}

int64_t run_position(const struct run *r)
{
    const struct group_problem *p = r->p;
    switch (p->attention.alignment) {
    case CLATTN_ALIGNMENT_BOTTOM_RIGHT:
        return ((int64_t)p->key_length - (int64_t)p->query_length) * (int64_t)r->a->ranks.group.ranks;
    case CLATTN_ALIGNMENT_EXPLICIT: return r->args.position;
    default: return 0;
    }
}

bool attends(const struct group_problem *p, int64_t first, int64_t last, int64_t keys)
{
    const clattn_attention_desc *d = &p->attention;
    if (p->packed || !layout_is_none(&d->lengths.positions) ||
        (d->alignment == CLATTN_ALIGNMENT_BOTTOM_RIGHT &&
         (!layout_is_none(&d->lengths.query) || !layout_is_none(&d->lengths.key))))
        return true;
    if (d->causal && last < 0)
        return false;
    /* A window's ends are far from overflow: lengths are below 2^31. */
    if (d->window.explicit_right && d->window.right < -last)
        return false;
    return !d->window.explicit_left || d->window.left >= first - (keys - 1);
}
