/* Reading and checking what is to be appended, and where. */
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/kv_append/kv_append.h"
#include "ops/rope/rope.h"

_Static_assert(sizeof(kv_append_args) == 7 * 40 + 2 * 16 + 16 + sizeof(rope_args) + 6 * 4,
               "kv_append_args has padding");

#define UNIT 8 /* columns of a work-item where no group says it */

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
    return layouts_read(all, sizeof all / sizeof all[0],
                        "keys, values, caches and scales have 4 dimensions, block_table 2, lengths 1", reason);
}

/* Neighbours share a byte: an item must own whole ones. */
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
    size_t size = rows->extent[3];
    *reason = "keys and values are float32, float16 or bfloat16, their caches also int8 or int4";
    if (!dtype_is_storage(rows->dtype) || (!dtype_is_storage(cache->dtype) && !dtype_is_quantised(cache->dtype)))
        return CLATTN_ERROR_UNSUPPORTED;
    *reason = "caches have the heads and sizes of what is appended, at least one row, and no size is 0";
    if (cache->extent[1] != rows->extent[1] || cache->extent[3] != size || !size || !cache->extent[2])
        return CLATTN_ERROR_INVALID_LAYOUT;
    problem->size[which] = size;
    problem->has_scale[which] = !layout_is_none(scale);
    *reason = "key_scale and value_scale come with int8 and int4 caches and with nothing else";
    if (problem->has_scale[which] != dtype_is_quantised(cache->dtype))
        return CLATTN_ERROR_INVALID_ARGUMENT;
    problem->unit[which] = size % UNIT ? size : UNIT;
    if (problem->unit[which] > 64)
        problem->unit[which] = 1;
    if (!problem->has_scale[which])
        return CLATTN_SUCCESS;
    *reason = "key_scale and value_scale are float32 or float16";
    if (scale->dtype != CLATTN_DTYPE_F32 && scale->dtype != CLATTN_DTYPE_F16)
        return CLATTN_ERROR_UNSUPPORTED;
    *reason = "scales have their cache's first three extents, and groups that divide the size";
    if (memcmp(scale->extent, cache->extent, 3 * sizeof *scale->extent) || !scale->extent[3] || size % scale->extent[3])
        return CLATTN_ERROR_INVALID_LAYOUT;
    problem->unit[which] = size / scale->extent[3];
    *reason = "an int4 cache has groups of even size, columns side by side and even strides";
    if (cache->dtype == CLATTN_DTYPE_I4 && !has_even_rows(cache, problem->unit[which]))
        return CLATTN_ERROR_UNSUPPORTED;
    return CLATTN_SUCCESS;
}

static clattn_status check_sizes(struct kv_append_problem *problem, const char **reason)
{
    clattn_status status = CLATTN_SUCCESS;
    const clattn_kv_append_desc *desc = &problem->desc;
    const size_t *k = desc->key.extent, *v = desc->value.extent, *cache = desc->key_cache.extent;
    bool paged = desc->cache == CLATTN_CACHE_KIND_PAGED;
    TRY(check_cache(problem, KV_KEY, reason));
    TRY(check_cache(problem, KV_VALUE, reason));
    *reason = "keys and values, and their caches, differ in batch, heads or length";
    if (memcmp(k, v, 3 * sizeof *k) || memcmp(cache, desc->value_cache.extent, 3 * sizeof *k) ||
        (!paged && cache[0] != k[0]))
        return CLATTN_ERROR_INVALID_LAYOUT;
    *reason = "an extent is above 2^31 - 65537";
    for (int i = 0; i < 4; i++)
        if (k[i] > LENGTH_LIMIT || v[i] > LENGTH_LIMIT || cache[i] > LENGTH_LIMIT ||
            desc->block_table.extent[1] > LENGTH_LIMIT)
            return CLATTN_ERROR_OVERFLOW;
    *reason = "block_table comes with CLATTN_CACHE_KIND_PAGED and with nothing else";
    if (paged != !layout_is_none(&desc->block_table))
        return CLATTN_ERROR_INVALID_ARGUMENT;
    problem->has_past = !layout_is_none(&desc->past_lengths);
    problem->has_new = !layout_is_none(&desc->new_lengths);
    *reason = "block_table is (batch, blocks), lengths are (batch), int32 or int64";
    if ((paged && (desc->block_table.extent[0] != k[0] || !dtype_is_integer(desc->block_table.dtype))) ||
        (problem->has_past && (desc->past_lengths.extent[0] != k[0] || !dtype_is_integer(desc->past_lengths.dtype))) ||
        (problem->has_new && (desc->new_lengths.extent[0] != k[0] || !dtype_is_integer(desc->new_lengths.dtype))))
        return CLATTN_ERROR_INVALID_LAYOUT;
    problem->batch = k[0];
    problem->heads = k[1];
    problem->length = k[2];
fail:
    return status;
}

/* The rotation's angles and pairs are those of the operator of its own. */
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

clattn_status kv_append_problem_read(const clattn_kv_append_desc *given, struct kv_append_problem *problem,
                                     const char **reason)
{
    clattn_status status;
    clattn_kv_append_desc *desc = &problem->desc;
    memset(problem, 0, sizeof *problem);
    *reason = "desc is NULL, or its size is none that clattn_kv_append_desc ever had";
    TRY(struct_read(desc, sizeof *desc, sizeof *desc, given));
    *reason = "direction: only CLATTN_DIRECTION_FORWARD is known";
    if (desc->direction != CLATTN_DIRECTION_FORWARD)
        return CLATTN_ERROR_INVALID_ARGUMENT;
    *reason = "unknown cache";
    if (!enum_within(desc->cache, CLATTN_CACHE_KIND_PAGED))
        return CLATTN_ERROR_INVALID_ARGUMENT;
    *reason = "rotate is neither 0 nor 1";
    if (desc->rotate != 0 && desc->rotate != 1)
        return CLATTN_ERROR_INVALID_ARGUMENT;
    *reason = "reserved is not 0";
    if (desc->reserved != 0)
        return CLATTN_ERROR_INVALID_ARGUMENT;
    TRY(read_layouts(problem, reason));
    TRY(check_sizes(problem, reason));
    TRY(read_rotation(problem, reason));
fail:
    return status;
}

/* ---- an enqueue's arguments ---- */

static clattn_status check_optional(clattn_context *context, const clattn_binding *binding, const clattn_layout *layout,
                                    const size_t *extent, enum binding_access access, const char *name)
{
    if (layout_is_none(layout))
        return binding_absent(context, binding, name);
    return binding_check(context, binding, layout, extent, access, name);
}

static clattn_status check_bindings(clattn_context *context, const struct kv_append_problem *problem,
                                    const clattn_kv_append_args *args)
{
    clattn_status status;
    const clattn_kv_append_desc *desc = &problem->desc;
    const size_t rows[3] = {args->batch, problem->heads, args->length};
    const size_t k[4] = {rows[0], rows[1], rows[2], problem->size[KV_KEY]};
    const size_t v[4] = {rows[0], rows[1], rows[2], problem->size[KV_VALUE]};
    const size_t table[2] = {args->batch, desc->block_table.extent[1]};
    TRY(binding_check(context, &args->key, &desc->key, k, BINDING_READ, "key"));
    TRY(binding_check(context, &args->value, &desc->value, v, BINDING_READ, "value"));
    TRY(binding_check(context, &args->key_cache, &desc->key_cache, desc->key_cache.extent, BINDING_WRITE, "key_cache"));
    TRY(binding_check(context, &args->value_cache, &desc->value_cache, desc->value_cache.extent, BINDING_WRITE,
                      "value_cache"));
    /* What has been stored is read again: the integers are those of the rounded scale. */
    TRY(check_optional(context, &args->key_scale, &desc->key_scale, desc->key_scale.extent, BINDING_READ_WRITE,
                       "key_scale"));
    TRY(check_optional(context, &args->value_scale, &desc->value_scale, desc->value_scale.extent, BINDING_READ_WRITE,
                       "value_scale"));
    TRY(check_optional(context, &args->block_table, &desc->block_table, table, BINDING_READ, "block_table"));
    TRY(check_optional(context, &args->past_lengths, &desc->past_lengths, rows, BINDING_READ, "past_lengths"));
    TRY(check_optional(context, &args->new_lengths, &desc->new_lengths, rows, BINDING_READ, "new_lengths"));
fail:
    return status;
}

clattn_status kv_append_args_read(clattn_context *context, const struct kv_append_problem *problem,
                                  const clattn_kv_append_args *given, clattn_kv_append_args *args)
{
    clattn_status status;
    struct report *report = &context->device.report;
    const clattn_kv_append_desc *desc = &problem->desc;
    TRY(args_read(report, "clattn_kv_append_args", args, sizeof *args, sizeof *args, given));
    TRY(args_check(report, "explicit_lengths", args->explicit_lengths, args->reserved));
    if (args->past_length < 0)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "past_length is negative");
    TRY(args_length(report, "batch", args->explicit_lengths, &args->batch, problem->batch));
    TRY(args_length(report, "length", args->explicit_lengths, &args->length, problem->length));
    if (desc->cache == CLATTN_CACHE_KIND_RING && !problem->has_past &&
        (args->past_length > (int64_t)LENGTH_LIMIT || (size_t)args->past_length + args->length > LENGTH_LIMIT))
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "a ring with %lld keys and %zu more would have had more than %zu",
                            (long long)args->past_length, args->length, LENGTH_LIMIT);
    if ((desc->key_cache.dtype == CLATTN_DTYPE_I4 && args->key_cache.offset % 2) ||
        (desc->value_cache.dtype == CLATTN_DTYPE_I4 && args->value_cache.offset % 2))
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "an int4 cache has an odd offset");
    if (!args->batch || !problem->heads || !args->length)
        return CLATTN_SUCCESS;
    status = check_bindings(context, problem, args);
fail:
    return status;
}

static int64_t limited(int64_t value)
{
    const int64_t limit = (int64_t)1 << 40;
    return value > limit ? limit : value < -limit ? -limit : value;
}

void kv_append_fill_args(const struct kv_append_problem *problem, const clattn_kv_append_args *args, kv_append_args *a)
{
    const clattn_kv_append_desc *desc = &problem->desc;
    memset(a, 0, sizeof *a);
    a->key = array4_of(&desc->key, args->key.offset);
    a->value = array4_of(&desc->value, args->value.offset);
    a->key_cache = array4_of(&desc->key_cache, args->key_cache.offset);
    a->value_cache = array4_of(&desc->value_cache, args->value_cache.offset);
    a->key_scale = array4_of(&desc->key_scale, args->key_scale.offset);
    a->value_scale = array4_of(&desc->value_scale, args->value_scale.offset);
    a->block_table = (array4){args->block_table.offset, desc->block_table.stride[0], 0, 0, desc->block_table.stride[1]};
    a->past_lengths = (array1){args->past_lengths.offset, desc->past_lengths.stride[0]};
    a->new_lengths = (array1){args->new_lengths.offset, desc->new_lengths.stride[0]};
    a->past_length = limited(args->past_length);
    a->position = limited(args->position);
    a->rope = problem->rope;
    a->batch = (int)args->batch;
    a->heads = (int)problem->heads;
    a->length = (int)args->length;
    a->capacity = (int)desc->key_cache.extent[2];
    a->pages = (int)desc->key_cache.extent[0];
    a->blocks = (int)desc->block_table.extent[1];
}
