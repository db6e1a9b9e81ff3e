#include "clattn/layout.h"

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"

static const struct {
    const char *name;
    size_t bits;
} dtypes[] = {
    [CLATTN_DTYPE_NONE] = {"none", 0},      [CLATTN_DTYPE_F32] = {"float32", 32}, [CLATTN_DTYPE_F16] = {"float16", 16},
    [CLATTN_DTYPE_BF16] = {"bfloat16", 16}, [CLATTN_DTYPE_F64] = {"float64", 64}, [CLATTN_DTYPE_BOOL] = {"bool", 8},
    [CLATTN_DTYPE_I32] = {"int32", 32},     [CLATTN_DTYPE_I64] = {"int64", 64},   [CLATTN_DTYPE_U8] = {"uint8", 8},
    [CLATTN_DTYPE_I8] = {"int8", 8},        [CLATTN_DTYPE_I4] = {"int4", 4},
};

size_t clattn_dtype_size(clattn_dtype dtype)
{
    return clattn_dtype_bits(dtype) / 8;
}

size_t clattn_dtype_bits(clattn_dtype dtype)
{
    return (size_t)dtype < COUNT_OF(dtypes) ? dtypes[dtype].bits : 0;
}

const char *clattn_dtype_name(clattn_dtype dtype)
{
    return (size_t)dtype < COUNT_OF(dtypes) ? dtypes[dtype].name : "unknown";
}

clattn_layout clattn_layout_contiguous(clattn_dtype dtype, int32_t rank, const size_t *extent)
{
    clattn_layout layout = {0};
    if (rank < 1 || rank > CLATTN_MAX_RANK || !extent)
        return layout;
    layout.dtype = dtype;
    layout.rank = rank;
    uint64_t stride = 1; /* wraps on overflow: layout_check then finds extents that no memory holds */
    for (int32_t i = rank - 1; i >= 0; i--) {
        layout.extent[i] = extent[i];
        layout.stride[i] = (int64_t)stride;
        stride *= extent[i];
    }
    return layout;
}

clattn_layout clattn_layout_bhsd(clattn_dtype dtype, size_t batch, size_t heads, size_t length, size_t size)
{
    const size_t extent[4] = {batch, heads, length, size};
    return clattn_layout_contiguous(dtype, 4, extent);
}

clattn_layout clattn_layout_bshd(clattn_dtype dtype, size_t batch, size_t heads, size_t length, size_t size)
{
    clattn_layout layout = clattn_layout_bhsd(dtype, batch, length, heads, size);
    int64_t stride = layout.stride[1];
    layout.extent[1] = heads;
    layout.stride[1] = layout.stride[2];
    layout.extent[2] = length;
    layout.stride[2] = stride;
    return layout;
}

clattn_layout clattn_layout_nchw(clattn_dtype dtype, size_t batch, size_t channels, size_t height, size_t width)
{
    const size_t extent[4] = {batch, channels, height, width};
    return clattn_layout_contiguous(dtype, 4, extent);
}

clattn_layout clattn_layout_nhwc(clattn_dtype dtype, size_t batch, size_t channels, size_t height, size_t width)
{
    const size_t extent[4] = {batch, height, width, channels};
    const clattn_layout memory = clattn_layout_contiguous(dtype, 4, extent);
    clattn_layout layout = clattn_layout_nchw(dtype, batch, channels, height, width);
    layout.stride[1] = memory.stride[3];
    layout.stride[2] = memory.stride[1];
    layout.stride[3] = memory.stride[2];
    return layout;
}

clattn_binding clattn_binding_buffer(cl_mem buffer, int64_t offset)
{
    clattn_binding binding = {.kind = CLATTN_BINDING_KIND_BUFFER, .buffer = buffer, .offset = offset};
    return binding;
}

clattn_binding clattn_binding_svm(void *pointer, int64_t offset)
{
    clattn_binding binding = {.kind = CLATTN_BINDING_KIND_SVM, .svm = pointer, .offset = offset};
    return binding;
}

clattn_binding clattn_binding_image(cl_mem image)
{
    clattn_binding binding = {.kind = CLATTN_BINDING_KIND_IMAGE, .buffer = image};
    return binding;
}

bool layout_is_none(const clattn_layout *layout)
{
    return layout->dtype == CLATTN_DTYPE_NONE;
}

size_t layout_elements(const clattn_layout *layout)
{
    size_t count = 1;
    for (int32_t i = 0; i < layout->rank; i++)
        count *= layout->extent[i];
    return count;
}

void layout_normalise(clattn_layout *layout)
{
    clattn_layout clean = {0};
    if (layout->dtype != CLATTN_DTYPE_NONE && layout->rank >= 1 && layout->rank <= CLATTN_MAX_RANK) {
        clean.dtype = layout->dtype;
        clean.rank = layout->rank;
        for (int32_t i = 0; i < layout->rank; i++) {
            clean.extent[i] = layout->extent[i];
            clean.stride[i] = layout->stride[i];
        }
        *layout = clean;
    } else if (layout->dtype == CLATTN_DTYPE_NONE) {
        *layout = clean;
    }
}

clattn_status layouts_read(const struct layout_rule *rules, size_t count, const char *ranks, const char **reason)
{
    for (size_t i = 0; i < count; i++) {
        clattn_layout *layout = rules[i].layout;
        if (!rules[i].optional || !layout_is_none(layout)) {
            clattn_status status = layout_check(layout, rules[i].use, rules[i].words, reason);
            if (status != CLATTN_SUCCESS)
                return status;
            *reason = ranks;
            if (rules[i].rank && layout->rank != rules[i].rank)
                return CLATTN_ERROR_INVALID_LAYOUT;
        }
        layout_normalise(layout);
    }
    return CLATTN_SUCCESS;
}

bool layout_reach(const clattn_layout *layout, const size_t *extent, int64_t offset, int64_t *lowest, int64_t *highest)
{
    int64_t low = offset, high = offset;
    for (int32_t i = 0; i < layout->rank; i++) {
        int64_t span;
        if (extent[i] == 0 || extent[i] > INT64_MAX || !int64_mul((int64_t)extent[i] - 1, layout->stride[i], &span) ||
            !(span < 0 ? int64_add(low, span, &low) : int64_add(high, span, &high)))
            return false;
    }
    *lowest = low;
    *highest = high;
    return true;
}

/* Whether no two elements share an address.  The test is sufficient, not necessary: the dimensions nest, that is,
 * each stride is larger than what the smaller ones span together. */
static bool nests(const clattn_layout *layout)
{
    uint64_t stride[CLATTN_MAX_RANK], span[CLATTN_MAX_RANK];
    int count = 0;
    for (int32_t i = 0; i < layout->rank; i++) {
        if (layout->extent[i] <= 1)
            continue;
        uint64_t magnitude = layout->stride[i] < 0 ? -(uint64_t)layout->stride[i] : (uint64_t)layout->stride[i];
        int at = count++;
        for (; at > 0 && stride[at - 1] > magnitude; at--) {
            stride[at] = stride[at - 1];
            span[at] = span[at - 1];
        }
        stride[at] = magnitude;
        span[at] = magnitude * (layout->extent[i] - 1);
    }
    uint64_t covered = 0;
    for (int i = 0; i < count; i++) {
        if (stride[i] <= covered)
            return false;
        covered += span[i];
    }
    return true;
}

clattn_status layout_check(const clattn_layout *layout, enum layout_use use, const struct layout_words *words,
                           const char **reason)
{
    int64_t lowest, highest;
    size_t count = 1, bytes, element = divide_up(clattn_dtype_bits(layout->dtype), 8);
    REQUIRE(element, CLATTN_ERROR_INVALID_LAYOUT, layout_is_none(layout) ? words->missing : words->dtype);
    REQUIRE(layout->rank >= 1 && layout->rank <= CLATTN_MAX_RANK, CLATTN_ERROR_INVALID_LAYOUT, words->rank);
    for (int32_t i = 0; i < layout->rank; i++)
        if (layout->extent[i] == 0)
            return CLATTN_SUCCESS;
    for (int32_t i = 0; i < layout->rank; i++)
        REQUIRE(size_mul(count, layout->extent[i], &count), CLATTN_ERROR_OVERFLOW, words->extents);
    REQUIRE(size_mul(count, element, &bytes) && layout_reach(layout, layout->extent, 0, &lowest, &highest) &&
                highest <= INT64_MAX / 8 && lowest >= INT64_MIN / 8,
            CLATTN_ERROR_OVERFLOW, words->reach);
    REQUIRE(use != LAYOUT_OUTPUT || nests(layout), CLATTN_ERROR_INVALID_LAYOUT, words->overlap);
    return CLATTN_SUCCESS;
}
