/* Reads and checks the description of an append. */
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/kv_append/kv_append.h"
#include "ops/rope/rope.h"

_Static_assert(sizeof(kv_append_args) == 24 + 7 * 40 + 2 * 16 + 16 + sizeof(rope_args) + 6 * 4,
               "kv_append_args has padding");

#define UNIT 8 /* columns of a work-item, unless a group determines them */

static clattn_status read_layouts(struct kv_append_problem *problem, const char **reason)
{
    clattn_kv_append_desc *desc = &problem->desc;
    const struct layout_rule all[] = {
        {&desc->key, LAYOUT_OF("key"), LAYOUT_INPUT, 4, false},
        {&desc->value, LAYOUT_OF("value"), LAYOUT_INPUT, 4, false},
        {&desc->key_cache, LAYOUT_OF("key_cache"), LAYOUT_OUTPUT, 4, false},
        {&desc->value_cache, LAYOUT_OF("value_cache"), LAYOUT_OUTPUT, 4, false},
        {&desc->key_scale, LAYOUT_OF("key_scale"), LAYOUT_OUTPUT, 4, true},
        {&desc->value_scale, LAYOUT_OF("value_scale"), LAYOUT_OUTPUT, 4, true},
        {&desc->block_table, LAYOUT_OF("block_table"), LAYOUT_INPUT, 2, true},
        {&desc->past_lengths, LAYOUT_OF("past_lengths"), LAYOUT_INPUT, 1, true},
        {&desc->new_lengths, LAYOUT_OF("new_lengths"), LAYOUT_INPUT, 1, true},
    };
    return layouts_read(all, COUNT_OF(all),
                        "keys, values, caches and scales have 4 dimensions, block_table 2, lengths 1", reason);
}

/* Whether each unit of an int4 cache is whole bytes, so that no two items write one byte. */
static bool has_even_rows(const clattn_layout *cache, size_t unit)
{
    return unit % 2 == 0 && cache->stride[3] == 1 && cache->stride[0] % 2 == 0 && cache->stride[1] % 2 == 0 &&
           cache->stride[2] % 2 == 0;
}

static clattn_status check_cache(struct kv_append_problem *problem, enum kv_which which, const char **reason)
{
    const clattn_kv_append_desc *desc = &problem->desc;
    const clattn_layout *rows = which == KV_KEY ? &desc->key : &desc->value;
    const clattn_layout *cache = which == KV_KEY ? &desc->key_cache : &desc->value_cache;
    const clattn_layout *scale = which == KV_KEY ? &desc->key_scale : &desc->value_scale;
    const size_t size = rows->extent[3];
    REQUIRE(dtype_is_storage(rows->dtype) && (dtype_is_storage(cache->dtype) || dtype_is_quantised(cache->dtype)),
            CLATTN_ERROR_UNSUPPORTED,
            "keys and values are float32, float16 or bfloat16, their caches also int8 or int4");
    REQUIRE(cache->extent[1] == rows->extent[1] && cache->extent[3] == size && size && cache->extent[2],
            CLATTN_ERROR_INVALID_LAYOUT,
            "caches have the heads and sizes of what is appended, at least one row, and no size is 0");
    problem->size[which] = size;
    problem->has_scale[which] = !layout_is_none(scale);
    REQUIRE(problem->has_scale[which] == dtype_is_quantised(cache->dtype), CLATTN_ERROR_INVALID_ARGUMENT,
            "key_scale and value_scale come with int8 and int4 caches and with nothing else");
    problem->unit[which] = size % UNIT ? size : UNIT;
    if (problem->unit[which] > 64)
        problem->unit[which] = 1;
    if (!problem->has_scale[which])
        return CLATTN_SUCCESS;
    REQUIRE(scale->dtype == CLATTN_DTYPE_F32 || scale->dtype == CLATTN_DTYPE_F16, CLATTN_ERROR_UNSUPPORTED,
            "key_scale and value_scale are float32 or float16");
    REQUIRE(!memcmp(scale->extent, cache->extent, 3 * sizeof *scale->extent) && scale->extent[3] &&
                size % scale->extent[3] == 0,
            CLATTN_ERROR_INVALID_LAYOUT,
            "scales have their cache's first three extents, and groups that divide the size");
    problem->unit[which] = size / scale->extent[3];
    REQUIRE(cache->dtype != CLATTN_DTYPE_I4 || has_even_rows(cache, problem->unit[which]), CLATTN_ERROR_UNSUPPORTED,
            "an int4 cache has groups of even size, columns side by side and even strides");
    return CLATTN_SUCCESS;
}

/* Whether the lengths are absent, or integers for each item. */
static bool are_lengths(const clattn_layout *lengths, size_t batch)
{
    return layout_is_none(lengths) || (lengths->extent[0] == batch && dtype_is_integer(lengths->dtype));
}

static clattn_status check_sizes(struct kv_append_problem *problem, const char **reason)
{
    clattn_status status;
    const clattn_kv_append_desc *desc = &problem->desc;
    const size_t *k = desc->key.extent, *v = desc->value.extent, *cache = desc->key_cache.extent;
    problem->is_paged = desc->cache == CLATTN_CACHE_KIND_PAGED;
    problem->has_past = !layout_is_none(&desc->past_lengths);
    problem->has_new = !layout_is_none(&desc->new_lengths);
    TRY(check_cache(problem, KV_KEY, reason));
    TRY(check_cache(problem, KV_VALUE, reason));
    REQUIRE(!memcmp(k, v, 3 * sizeof *k) && !memcmp(cache, desc->value_cache.extent, 3 * sizeof *k) &&
                (problem->is_paged || cache[0] == k[0]),
            CLATTN_ERROR_INVALID_LAYOUT, "keys and values, and their caches, differ in batch, heads or length");
    for (int i = 0; i < 4; i++)
        REQUIRE(k[i] <= LENGTH_LIMIT && v[i] <= LENGTH_LIMIT && cache[i] <= LENGTH_LIMIT &&
                    desc->block_table.extent[1] <= LENGTH_LIMIT,
                CLATTN_ERROR_OVERFLOW, "an extent is above 2^31 - 65537");
    REQUIRE(problem->is_paged == !layout_is_none(&desc->block_table), CLATTN_ERROR_INVALID_ARGUMENT,
            "block_table comes with CLATTN_CACHE_KIND_PAGED and with nothing else");
    REQUIRE(are_lengths(&desc->block_table, k[0]) && are_lengths(&desc->past_lengths, k[0]) &&
                are_lengths(&desc->new_lengths, k[0]),
            CLATTN_ERROR_INVALID_LAYOUT, "block_table is (batch, blocks), lengths are (batch), int32 or int64");
    problem->batch = k[0];
    problem->heads = k[1];
    problem->length = k[2];
fail:
    return status;
}

/* The angles and pairs are those of rotary embedding as an operator. */
static clattn_status read_rotation(struct kv_append_problem *problem, const char **reason)
{
    clattn_status status;
    clattn_kv_append_desc *desc = &problem->desc;
    clattn_rope_desc rope = CLATTN_ROPE_DESC_INIT;
    struct rope_problem read;
    if (!desc->rotate) {
        desc->pairing = 0;
        desc->base = 0;
        desc->rotary_size = 0;
        return CLATTN_SUCCESS;
    }
    rope.pairing = desc->pairing;
    rope.base = desc->base;
    rope.rotary_size = desc->rotary_size;
    rope.x = desc->key;
    rope.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, desc->key.extent);
    TRY(rope_problem_read(&rope, &read, reason));
    problem->rope = read.kernel;
    desc->base = read.desc.base;
    desc->rotary_size = read.desc.rotary_size;
fail:
    return status;
}

clattn_status kv_append_problem_read(const void *given, void *result, const char **reason)
{
    clattn_status status;
    struct kv_append_problem *problem = result;
    clattn_kv_append_desc *desc = &problem->desc;
    memset(problem, 0, sizeof *problem);
    *reason = "desc is NULL, or its size is none that clattn_kv_append_desc ever had";
    TRY(struct_read(desc, sizeof *desc, sizeof *desc, given));
    REQUIRE(desc->direction == CLATTN_DIRECTION_FORWARD, CLATTN_ERROR_INVALID_ARGUMENT,
            "direction: only CLATTN_DIRECTION_FORWARD is known");
    REQUIRE(enum_within(desc->cache, CLATTN_CACHE_KIND_PAGED), CLATTN_ERROR_INVALID_ARGUMENT, "unknown cache");
    REQUIRE(is_flag(desc->rotate), CLATTN_ERROR_INVALID_ARGUMENT, "rotate is neither 0 nor 1");
    REQUIRE(desc->reserved == 0, CLATTN_ERROR_INVALID_ARGUMENT, "reserved is not 0");
    TRY(read_layouts(problem, reason));
    TRY(check_sizes(problem, reason));
    TRY(read_rotation(problem, reason));
fail:
    return status;
}
