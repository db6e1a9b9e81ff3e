/* Keys and values as a cache keeps them: quantised, in pages.  The command makes the cache from the arrays
 * that it is given, so that one command line shows what either costs in time and in accuracy.
 *
 *   quantised:  scale = max |x| of a group / 127 (int4: / 7), integer = round(x / scale), ties to even
 *   pages:      of page_size keys, `ceil(S_k / page_size)` for each item, in an order that is shuffled by a
 * fixed seed; what is left of a last page is filled with NaN, which no result may show */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tool/attention/array_order.h"
#include "tool/attention/request.h"
#include "base/size.h"
#include "tool/run/random.h"
#include "ref/attention.h"

/* An array that is copied into the cache. */
typedef struct cache_part {
    const void *data; /* NULL: a shape to plan for */
    clattn_layout from, to, scale;
    int64_t offset; /* of `from` */
    void *stored, *scales;
    int64_t columns, group;
} cache_part;

/* The offset of key j of item b in an array of the cache. */
static int64_t cache_row(const attention_request *request, const clattn_layout *to, int64_t b, int64_t h, int64_t j)
{
    int64_t page_size = (int64_t)request->page_size;
    const int32_t *table = request->input[INPUT_BLOCK_TABLE].tensor.data;
    if (page_size > 0) {
        b = table[b * (int64_t)request->desc.cache.block_table.extent[1] + j / page_size];
        j %= page_size;
    }
    return b * to->stride[0] + h * to->stride[1] + j * to->stride[2];
}

static void put_integer(void *data, clattn_dtype dtype, int64_t at, int value)
{
    if (dtype == CLATTN_DTYPE_I8) {
        ((int8_t *)data)[at] = (int8_t)value;
        return;
    }
    uint8_t *byte = (uint8_t *)data + at / 2;
    int shift = at % 2 * 4;
    *byte = (uint8_t)((*byte & ~(15 << shift)) | (value & 15) << shift);
}

/* A group with a NaN or an infinity becomes NaN, since integers cannot represent such an element. */
static void quantise_group(const cache_part *part, int64_t from, int64_t to, float *scale)
{
    int limit = part->to.dtype == CLATTN_DTYPE_I8 ? 127 : 7;
    double most = 0.0;
    for (int64_t d = 0; d < part->group; d++) {
        double size = fabs(ref_element(part->data, part->from.dtype, from + d * part->from.stride[3]));
        most = size > most || isnan(size) ? size : most;
    }
    *scale = isfinite(most) ? (float)(most / limit) : NAN;
    for (int64_t d = 0; d < part->group; d++) {
        double x = ref_element(part->data, part->from.dtype, from + d * part->from.stride[3]);
        double q = isfinite(most) && *scale > 0 ? rint(x / (double)*scale) : 0.0;
        put_integer(part->stored, part->to.dtype, to + d, (int)fmax(-limit, fmin(limit, q)));
    }
}

static void copy_row(const attention_request *request, const cache_part *part, int64_t b, int64_t h, int64_t j)
{
    int64_t from = part->offset + b * part->from.stride[0] + h * part->from.stride[1] + j * part->from.stride[2];
    int64_t to = cache_row(request, &part->to, b, h, j);
    if (part->scales != NULL) {
        float *scale = (float *)part->scales + cache_row(request, &part->scale, b, h, j);
        for (int64_t first = 0; first < part->columns; first += part->group)
            quantise_group(part, from + first * part->from.stride[3], to + first, scale++);
        return;
    }
    size_t bytes = clattn_dtype_size(part->from.dtype);
    for (int64_t d = 0; d < part->columns; d++)
        memcpy((char *)part->stored + (size_t)(to + d) * bytes,
               (const char *)part->data + (size_t)(from + d * part->from.stride[3]) * bytes, bytes);
}

/* Shuffles the pages, so that no test passes because they are in order. */
static int make_table(attention_request *request)
{
    host_array *table = &request->input[INPUT_BLOCK_TABLE];
    size_t blocks = divide_up(request->sizes.keys, request->page_size), pages;
    const size_t extent[2] = {request->sizes.batch, blocks};
    if (!size_mul(extent[0], blocks, &pages) || pages > INT32_MAX)
        return complain(TOOL_BAD_INPUT, "--page-size %zu: more than 2^31 - 1 pages", request->page_size);
    int status = host_allocate(CLATTN_DTYPE_I32, 2, extent, "--page-size", table);
    if (status != TOOL_DONE)
        return status;
    int32_t *entry = table->memory;
    uint64_t seed = 1;
    for (size_t i = 0; i < pages; i++) {
        size_t other = (size_t)(random_next(&seed) % (i + 1));
        entry[i] = entry[other];
        entry[other] = (int32_t)i;
    }
    request->desc.cache.kind = CLATTN_CACHE_KIND_PAGED;
    request->desc.short_mask = 1; /* the last page's rows beyond the keys have no mask */
    request->desc.cache.block_table = clattn_layout_contiguous(CLATTN_DTYPE_I32, 2, extent);
    return TOOL_DONE;
}

/* Allocates an array of the cache and fills it with NaN.  If `given`, which is to be cached, has no data, the array is only
 * described: a shape to plan for or, as `given`, random numbers, `unit` times as large. */
static int make_room(const host_array *given, float unit, const clattn_layout *layout, host_array *array)
{
    if (given->tensor.data == NULL)
        return random_array(array, given->name, layout->dtype, 4, layout->extent, given->seed, given->limit * unit);
    int status = host_allocate(layout->dtype, 4, layout->extent, given->name, array);
    if (status == TOOL_DONE)
        memset(array->memory, 0xff, array->tensor.bytes);
    return status;
}

static int store(attention_request *request, attention_input input, attention_input scale_input)
{
    const attention_sizes *sizes = &request->sizes;
    const clattn_attention_desc *desc = &request->desc;
    clattn_layout *layout = attention_input_layout(&request->desc, input);
    clattn_binding *binding = attention_input_binding(&request->args, input);
    const host_array *given = attention_source(request, input);
    const float most = request->kv_dtype == CLATTN_DTYPE_I8   ? 127.0f
                       : request->kv_dtype == CLATTN_DTYPE_I4 ? 7.0f
                                                              : 1.0f;
    host_array stored, scales = {0};
    cache_part part = {
        .data = given->tensor.data, .from = *layout, .offset = binding->offset, .columns = (int64_t)layout->extent[3]};
    size_t group = request->kv_group > 0 ? request->kv_group : layout->extent[3];
    size_t extent[4] = {layout->extent[0], layout->extent[1], layout->extent[2], layout->extent[3]};
    if (request->page_size > 0) {
        extent[0] = desc->cache.block_table.extent[0] * desc->cache.block_table.extent[1];
        extent[2] = request->page_size;
    }
    part.group = (int64_t)group;
    part.to =
        clattn_layout_contiguous(request->kv_dtype != CLATTN_DTYPE_NONE ? request->kv_dtype : layout->dtype, 4, extent);
    int status;
    TOOL_TRY(make_room(given, most, &part.to, &stored));
    if (request->kv_dtype != CLATTN_DTYPE_NONE) {
        extent[3] /= group;
        part.scale = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, extent);
        TOOL_TRY(make_room(given, 1.0f / most, &part.scale, &scales));
    }
    part.stored = stored.memory;
    part.scales = scales.memory;
    for (int64_t b = 0; b < (int64_t)layout->extent[0] && part.data != NULL; b++)
        for (int64_t h = 0; h < (int64_t)sizes->kv_heads; h++)
            for (int64_t j = 0; j < (int64_t)sizes->keys; j++)
                copy_row(request, &part, b, h, j);
fail:
    if (!request->fused)
        host_release(&request->input[input]);
    request->input[input] = stored;
    request->input[scale_input] = scales;
    *layout = part.to;
    *attention_input_layout(&request->desc, scale_input) = part.scale;
    binding->offset = 0;
    return status;
}

static int check_group(const attention_request *request, attention_input input, size_t columns)
{
    size_t group = request->kv_group;
    if (request->kv_dtype == CLATTN_DTYPE_NONE || group == 0 || columns % group == 0)
        return TOOL_DONE;
    return complain(TOOL_BAD_INPUT, "--kv-group %zu: expected a divisor of %zu, the head size of %s", group, columns,
                    attention_source(request, input)->name);
}

int attention_complete_cache(attention_request *request)
{
    if (request->page_size == 0 && request->kv_dtype == CLATTN_DTYPE_NONE)
        return TOOL_DONE;
    int status;
    TOOL_TRY(check_group(request, INPUT_KEY, request->sizes.d_k));
    TOOL_TRY(check_group(request, INPUT_VALUE, request->sizes.d_v));
    /* A cache without keys has no pages, and is planned as one that is not paged. */
    if (request->page_size > 0 && request->sizes.keys > 0 && request->sizes.batch > 0)
        TOOL_TRY(make_table(request));
    else
        request->page_size = 0;
    if (request->page_size > 0 || request->kv_dtype != CLATTN_DTYPE_NONE) {
        TOOL_TRY(store(request, INPUT_KEY, INPUT_KEY_SCALE));
        TOOL_TRY(store(request, INPUT_VALUE, INPUT_VALUE_SCALE));
    }
fail:
    return status;
}
