/* Each rule about a description of the operators besides attention refuses one that breaks it, with its own status and in
 * its own words. */
#include <math.h>
#include <string.h>

#include "support/core/refusals.h"

static const size_t too_many = (size_t)1 << 31;
#define FLOATS(rank, ...) clattn_layout_contiguous(CLATTN_DTYPE_F32, rank, (const size_t[]){__VA_ARGS__})
#define INTEGERS(rank, ...) clattn_layout_contiguous(CLATTN_DTYPE_I32, rank, (const size_t[]){__VA_ARGS__})

/* The layout with another dtype. */
static clattn_layout typed(clattn_layout layout, clattn_dtype dtype)
{
    layout.dtype = dtype;
    return layout;
}

/* The layout without dimensions that take memory: each element is the first. */
static clattn_layout one_element(clattn_layout layout)
{
    memset(layout.stride, 0, sizeof layout.stride);
    return layout;
}

static void softmax(void **state)
{
    clattn_softmax_desc good = CLATTN_SOFTMAX_DESC_INIT;
    (void)state;
    good.x = good.y = FLOATS(2, 4, 6);
#define SOFTMAX(change, set, begins) NAMED(softmax, good, change, set, begins)
    SOFTMAX(d.mask = typed(d.x, CLATTN_DTYPE_F16), UNSUPPORTED, "the mask is neither bool nor float32")
    SOFTMAX(d.mask = FLOATS(3, 1, 4, 6), LAYOUT, "the mask has more dimensions")
    SOFTMAX(d.mask = FLOATS(2, 3, 6), LAYOUT, "each extent of the mask is 1 or x's")
    SOFTMAX((d.mask = FLOATS(1, 7), d.short_mask = 1), LAYOUT, "each extent of the mask is 1 or x's; its last may lie")
    SOFTMAX((d.mask = d.x, d.mask.rank = 9), LAYOUT, "mask: the layout's rank")
    SOFTMAX(d.x = d.y = FLOATS(2, 3, too_many), TOO_BIG, "the rows, or the columns")
    SOFTMAX(d.x = d.y = FLOATS(2, too_many, 3), TOO_BIG, "the rows, or the columns")
    SOFTMAX(d.x = typed(d.x, CLATTN_DTYPE_I32), UNSUPPORTED, "x and y are float32")
    SOFTMAX(d.y = typed(d.y, CLATTN_DTYPE_F64), UNSUPPORTED, "x and y are float32")
    SOFTMAX(d.direction = 2, INVALID, "unknown direction")
    SOFTMAX(d.gradients.y = d.y, INVALID, "gradients are for CLATTN_DIRECTION_BACKWARD")
    good.direction = CLATTN_DIRECTION_BACKWARD;
    SOFTMAX(d.gradients.x = d.gradients.y = d.y, INVALID, "x is for CLATTN_DIRECTION_FORWARD")
    good.gradients.x = good.gradients.y = good.x;
    memset(&good.x, 0, sizeof good.x);
    SOFTMAX(memset(&d.y, 0, sizeof d.y), LAYOUT, "y: the layout is missing")
    SOFTMAX(memset(&d.gradients.x, 0, sizeof d.y), LAYOUT, "gradients.x: the layout is missing")
    SOFTMAX(memset(&d.gradients.y, 0, sizeof d.y), LAYOUT, "gradients.y: the layout is missing")
    SOFTMAX(d.gradients.x.stride[0] = 0, LAYOUT, "gradients.x: the output layout's elements overlap")
    SOFTMAX(d.gradients.y.extent[1] = 5, LAYOUT, "y and the gradients differ in extents")
    SOFTMAX(d.gradients.x = typed(d.y, CLATTN_DTYPE_F64), UNSUPPORTED, "y and the gradients are float32")
}

static void norm(void **state)
{
    clattn_norm_desc good = CLATTN_NORM_DESC_INIT;
    (void)state;
    good.x = good.y = FLOATS(2, 4, 6);
#define NORM(change, set, begins) NAMED(norm, good, change, set, begins)
    NORM((d.scale = d.x, d.scale.rank = 9), LAYOUT, "scale: the layout's rank")
    NORM(d.residual = typed(d.x, CLATTN_DTYPE_I32), UNSUPPORTED, "scale, bias and residual are float32")
    NORM((d.residual = d.x, d.sum = FLOATS(2, 4, 5)), LAYOUT, "x and sum differ")
    NORM((d.residual = d.x, d.sum = FLOATS(3, 1, 4, 6)), LAYOUT, "x and sum differ")
    NORM((d.residual = d.x, d.sum = d.x, d.sum.stride[1] = 0), LAYOUT, "sum: the output layout's elements overlap")
    NORM((d.residual = d.x, d.sum = typed(d.x, CLATTN_DTYPE_F64)), UNSUPPORTED, "sum is float32")
    NORM(d.direction = 2, INVALID, "unknown direction")
    NORM(d.gradients.y = d.x, INVALID, "gradients are for CLATTN_DIRECTION_BACKWARD")
    good.direction = CLATTN_DIRECTION_BACKWARD;
    NORM(d.gradients.x = d.gradients.y = d.x, INVALID, "y, bias, mean, inv_std_dev and sum are for")
    memset(&good.y, 0, sizeof good.y);
    NORM(d.gradients.x = d.x, LAYOUT, "gradients.y: the layout is missing")
    good.gradients.y = good.x;
    NORM(d.gradients.sum = d.x, INVALID, "no gradient is asked for")
    good.gradients.x = good.x;
    NORM(memset(&d.x, 0, sizeof d.x), LAYOUT, "x: the layout is missing")
    NORM(d.gradients.x.stride[0] = 0, LAYOUT, "gradients.x: the output layout's elements overlap")
    NORM(d.gradients.y.extent[1] = 5, LAYOUT, "x and a gradient of x, y or sum differ")
    NORM(d.gradients.sum = typed(d.x, CLATTN_DTYPE_I32), UNSUPPORTED, "gradients are float32")
    NORM(d.gradients.scale = d.x, INVALID, "gradients.scale, and there is no scale")
    NORM((d.scale = FLOATS(1, 6), d.gradients.scale = d.x), LAYOUT, "scale and its gradient differ")
    NORM((d.gradients.bias = d.x, d.gradients.bias.rank = 9), LAYOUT, "gradients.bias: the layout's rank")
}

static void cross_entropy(void **state)
{
    clattn_cross_entropy_desc good = CLATTN_CROSS_ENTROPY_DESC_INIT;
    const char *const rows = "labels, row_weights, loss and lse have x's", *const above = "the rows, or the classes";
    (void)state;
    good.x = good.gradients.x = FLOATS(2, 4, 6);
    good.labels = INTEGERS(1, 4);
    good.loss = FLOATS(1, 4);
#define CROSS_ENTROPY(change, set, begins) NAMED(cross_entropy, good, change, set, begins)
    CROSS_ENTROPY(d.direction = CLATTN_DIRECTION_BACKWARD, INVALID, "direction: only")
    CROSS_ENTROPY(d.explicit_ignored = 2, INVALID, "explicit_ignored is neither 0 nor 1")
    CROSS_ENTROPY(d.smoothing = 1, INVALID, "smoothing is not 0 or more")
    CROSS_ENTROPY(d.smoothing = (float)NAN, INVALID, "smoothing is not 0 or more")
    CROSS_ENTROPY(d.reserved = 1, INVALID, "reserved is not 0")
    CROSS_ENTROPY(d.loss = d.gradients.x = (clattn_layout){0}, INVALID, "there is no output")
    CROSS_ENTROPY((d.row_weights = d.loss, d.gradients.x = (clattn_layout){0}), INVALID, "row_weights weigh")
    CROSS_ENTROPY(d.x = typed(d.x, CLATTN_DTYPE_I32), UNSUPPORTED, "x and gradients.x are float32")
    CROSS_ENTROPY(d.gradients.x = typed(d.x, CLATTN_DTYPE_F64), UNSUPPORTED, "x and gradients.x are float32")
    CROSS_ENTROPY(d.labels = typed(d.labels, CLATTN_DTYPE_F32), UNSUPPORTED, "labels are int32 or int64")
    CROSS_ENTROPY(d.lse = typed(d.loss, CLATTN_DTYPE_F16), UNSUPPORTED, "row_weights, loss and lse are float32")
    CROSS_ENTROPY(d.x = FLOATS(1, 4), LAYOUT, "x is (rows, classes)")
    CROSS_ENTROPY(d.x = d.gradients.x = FLOATS(2, 4, 0), LAYOUT, "there are no classes")
    CROSS_ENTROPY(d.gradients.x = FLOATS(2, 4, 5), LAYOUT, "x and gradients.x differ")
    CROSS_ENTROPY(d.gradients.x = FLOATS(3, 1, 4, 6), LAYOUT, "x and gradients.x differ")
    CROSS_ENTROPY(d.labels = INTEGERS(1, 5), LAYOUT, rows)
    CROSS_ENTROPY(d.row_weights = FLOATS(2, 4, 1), LAYOUT, rows)
    CROSS_ENTROPY(d.loss = FLOATS(1, 1), LAYOUT, rows)
    CROSS_ENTROPY(d.lse = FLOATS(1, 3), LAYOUT, rows)
    CROSS_ENTROPY((d.lse = d.loss, d.lse.rank = 9), LAYOUT, "lse: the layout's rank")
    CROSS_ENTROPY(d.gradients.x.stride[0] = 0, LAYOUT, "gradients.x: the output layout's elements overlap")
    CROSS_ENTROPY(d.x = d.gradients.x = FLOATS(2, 4, too_many), TOO_BIG, above)
    CROSS_ENTROPY(
        (d.x = d.gradients.x = FLOATS(2, too_many, 3), d.labels = INTEGERS(1, too_many), d.loss = FLOATS(1, too_many)),
        TOO_BIG, above)
}

static void pool(void **state)
{
    clattn_pool_desc good = CLATTN_POOL_DESC_INIT;
    const char *const padding = "a padding is negative, or more than half", *const above = "a stride, or what a window";
    (void)state;
    good.window[0] = good.window[1] = 2;
    good.x = FLOATS(4, 2, 3, 6, 8);
    good.y = FLOATS(4, 2, 3, 3, 4);
#define POOL(change, set, begins) NAMED(pool, good, change, set, begins)
    POOL(d.direction = 2, INVALID, "unknown direction")
    POOL(d.gradients.y = d.y, INVALID, "gradients are for CLATTN_DIRECTION_BACKWARD")
    POOL(d.kind = 2, INVALID, "unknown kind")
    POOL(d.ceil_mode = 2, INVALID, "ceil_mode is neither 0 nor 1")
    POOL(d.count_include_pad = 2, INVALID, "count_include_pad is neither 0 nor 1")
    POOL(d.count_include_pad = 1, INVALID, "count_include_pad is for averages")
    POOL(d.window[1] = 0, INVALID, "a window's height or width is below 1")
    POOL(d.stride[0] = -1, INVALID, "a stride or a dilation is negative")
    POOL(d.dilation[1] = -1, INVALID, "a stride or a dilation is negative")
    POOL((d.kind = CLATTN_POOL_KIND_AVERAGE, d.dilation[1] = 2), UNSUPPORTED, "an average with a dilation")
    POOL(d.padding[1] = -1, INVALID, padding)
    POOL(d.padding[3] = 2, INVALID, padding)
    POOL(d.dilation[0] = 1 << 29, TOO_BIG, above)
    POOL(d.stride[0] = 1 << 29, TOO_BIG, above)
    POOL(d.window[0] = d.window[1] = 1 << 16, TOO_BIG, "a window has more than 2^30 elements")
    POOL(d.x = FLOATS(3, 2, 3, 6), LAYOUT, "x and y are (batch, channels, height, width)")
    POOL(d.x = typed(d.x, CLATTN_DTYPE_I32), UNSUPPORTED, "x and y are float32")
    POOL(d.y = FLOATS(4, 2, 4, 3, 4), LAYOUT, "x (batch, channels, height, width) and y differ")
    POOL(d.window[1] = 9, LAYOUT, "x (batch, channels, height, width) with its padding")
    POOL(d.y = FLOATS(4, 2, 3, 3, 5), LAYOUT, "y's height or width is not the number of windows")
    POOL((d.x = one_element(FLOATS(4, too_many, 1, 6, 8)), d.y = FLOATS(4, too_many, 1, 3, 4)), TOO_BIG,
         "batch or channels are more than")
    good.direction = CLATTN_DIRECTION_BACKWARD;
    good.gradients.x = good.x;
    good.gradients.y = good.y;
    POOL(d.window[0] = 2, INVALID, "y is for CLATTN_DIRECTION_FORWARD")
    good.y = (clattn_layout){0};
    POOL(d.kind = CLATTN_POOL_KIND_AVERAGE, INVALID, "an average's gradient does not depend on x")
    POOL(d.x = FLOATS(4, 2, 3, 6, 9), LAYOUT, "x and gradients.x differ in extents")
    POOL(d.x = typed(d.x, CLATTN_DTYPE_I32), UNSUPPORTED, "x is float32")
    POOL(d.gradients.y = FLOATS(4, 2, 3, 3, 5), LAYOUT, "y's height or width is not the number of windows")
    POOL(d.gradients.x.stride[0] = 0, LAYOUT, "gradients.x: the output layout's elements overlap")
}

static void resize(void **state)
{
    clattn_resize_desc good = CLATTN_RESIZE_DESC_INIT;
    const size_t too_wide = ((size_t)1 << 28) + 1;
    (void)state;
    good.mode = CLATTN_RESIZE_MODE_BICUBIC;
    good.x = FLOATS(4, 2, 3, 5, 6);
    good.y = FLOATS(4, 2, 3, 7, 4);
#define RESIZE(change, set, begins) NAMED(resize, good, change, set, begins)
    RESIZE(d.direction = 1, INVALID, "direction: only")
    RESIZE(d.mode = 4, INVALID, "unknown mode")
    RESIZE(d.align_corners = 2, INVALID, "align_corners is neither 0 nor 1")
    RESIZE(d.antialias = 2, INVALID, "antialias is neither 0 nor 1")
    RESIZE(d.explicit_scale = 2, INVALID, "explicit_scale is neither 0 nor 1")
    RESIZE(d.explicit_cubic_a = 2, INVALID, "explicit_cubic_a is neither 0 nor 1")
    RESIZE(d.reserved = 1, INVALID, "reserved is not 0")
    RESIZE((d.mode = CLATTN_RESIZE_MODE_NEAREST, d.antialias = 1), INVALID, "align_corners and antialias are for")
    RESIZE(d.align_corners = d.antialias = 1, UNSUPPORTED, "align_corners with antialias")
    RESIZE((d.explicit_cubic_a = 1, d.cubic_a = (float)NAN), INVALID, "cubic_a is not within -4 to 4")
    RESIZE((d.explicit_scale = 1, d.scale[0] = 2), INVALID, "a scale is not finite, or")
    RESIZE((d.explicit_scale = 1, d.scale[0] = d.scale[1] = INFINITY), INVALID, "a scale is not finite, or")
    RESIZE((d.explicit_scale = 1, d.scale[0] = d.scale[1] = 0.5), LAYOUT, "y's height or width is more than")
    RESIZE(d.x = FLOATS(3, 2, 3, 5), LAYOUT, "x and y are (batch, channels, height, width)")
    RESIZE(d.x = typed(d.x, CLATTN_DTYPE_I32), UNSUPPORTED, "x and y are float32")
    RESIZE(d.y = FLOATS(4, 2, 4, 7, 4), LAYOUT, "x (batch, channels, height, width) and y differ")
    RESIZE(d.x = FLOATS(4, 2, 3, 0, 6), LAYOUT, "x (batch, channels, height, width) has no rows")
    RESIZE((d.x = one_element(FLOATS(4, too_many, 1, 5, 6)), d.y = FLOATS(4, too_many, 1, 7, 4)), TOO_BIG,
           "batch or channels")
    RESIZE(d.x = one_element(FLOATS(4, 2, 3, too_wide, 6)), TOO_BIG, "a height or a width is more than 2^28")
}

static void rope(void **state)
{
    clattn_rope_desc good = CLATTN_ROPE_DESC_INIT;
    const clattn_layout table = FLOATS(2, 9, 4), place = FLOATS(3, 2, 3, 4);
    const char *const tables = "cos and sin are (table, rotary size / 2)";
    (void)state;
    good.x = good.y = FLOATS(4, 2, 1, 3, 8);
#define ROPE(change, set, begins) NAMED(rope, good, change, set, begins)
    ROPE((d.cos = d.sin = table, d.cos.stride[0] = INT64_MAX), TOO_BIG, "cos: the layout reaches")
    ROPE((d.cos = d.sin = table, d.sin.stride[0] = INT64_MAX), TOO_BIG, "sin: the layout reaches")
    ROPE((d.cos = table, d.sin = place), LAYOUT, "cos and sin differ in extents")
    ROPE((d.cos = d.sin = table, d.sin.extent[0] = 8), LAYOUT, "cos and sin differ in extents")
    ROPE((d.cos = table, d.sin = typed(table, CLATTN_DTYPE_F16)), UNSUPPORTED, "cos and sin are float32")
    ROPE(d.cos = d.sin = FLOATS(1, 4), LAYOUT, tables)
    ROPE(d.cos = d.sin = FLOATS(2, 9, 3), LAYOUT, tables)
    ROPE(d.cos = d.sin = FLOATS(3, 3, 3, 4), LAYOUT, tables)
    ROPE(d.cos = d.sin = FLOATS(3, 1, 2, 4), LAYOUT, tables)
    ROPE(d.cos = d.sin = FLOATS(2, too_many, 4), TOO_BIG, "the table has more than")
    ROPE((d.positions = INTEGERS(2, 2, 3), d.positions.rank = 0), LAYOUT, "positions: the layout's rank")
    ROPE(d.positions = INTEGERS(1, 3), LAYOUT, "positions are (batch or 1, length)")
    ROPE(d.positions = INTEGERS(2, 2, 4), LAYOUT, "positions are (batch or 1, length)")
    ROPE(d.positions = INTEGERS(2, 3, 3), LAYOUT, "positions are (batch or 1, length)")
    ROPE((d.offsets = INTEGERS(1, 2), d.offsets.rank = 0), LAYOUT, "offsets: the layout's rank")
    ROPE(d.offsets = INTEGERS(2, 2, 1), LAYOUT, "positions are (batch or 1, length)")
    ROPE(d.offsets = INTEGERS(1, 3), LAYOUT, "positions are (batch or 1, length)")
    ROPE((d.cos = d.sin = place, d.positions = INTEGERS(2, 2, 3)), INVALID, "cos and sin of each element")
    ROPE((d.cos = d.sin = place, d.offsets = INTEGERS(1, 2)), INVALID, "cos and sin of each element")
    const char *const above = "batch times length, the heads or the head size";
    ROPE(d.x = d.y = FLOATS(4, 1, 1, too_many, 8), TOO_BIG, above)
    ROPE(d.x = d.y = FLOATS(4, 1, too_many, 1, 8), TOO_BIG, above)
    ROPE((d.x = d.y = FLOATS(4, 1, 1, 1, too_many), d.rotary_size = 8), TOO_BIG, above)
}

static void dropout(void **state)
{
    clattn_dropout_desc good = CLATTN_DROPOUT_DESC_INIT;
    (void)state;
    good.x = good.residual = good.y = FLOATS(2, 4, 6);
#define DROPOUT(change, set, begins) NAMED(dropout, good, change, set, begins)
    DROPOUT(d.direction = 2, INVALID, "unknown direction")
    DROPOUT(d.probability = 1, INVALID, "probability is not from 0 to below 1")
    DROPOUT(d.probability = NAN, INVALID, "probability is not from 0 to below 1")
    DROPOUT(d.residual = FLOATS(2, 1, 6), LAYOUT, "x, residual and y differ in extents")
    DROPOUT(d.residual = typed(d.x, CLATTN_DTYPE_F64), UNSUPPORTED, "x, residual, y and the gradients are float32")
    DROPOUT(d.x = d.residual = one_element(d.y = FLOATS(2, too_many, 3)), TOO_BIG, "an extent is more than")
    DROPOUT(d.gradients.y = d.y, INVALID, "gradients are for CLATTN_DIRECTION_BACKWARD")
    good.direction = CLATTN_DIRECTION_BACKWARD;
    good.gradients.x = good.gradients.y = good.x;
    DROPOUT(d.size = sizeof d, INVALID, "x, residual and y are for CLATTN_DIRECTION_FORWARD")
    good.x = good.residual = good.y = (clattn_layout){0};
    DROPOUT(d.gradients.y = FLOATS(2, 4, 5), LAYOUT, "the gradients differ in extents")
    DROPOUT(d.gradients.x.stride[0] = 0, LAYOUT, "gradients.x: the output layout's elements overlap")
}

static void embedding(void **state)
{
    clattn_embedding_desc good = CLATTN_EMBEDDING_DESC_INIT;
    const char *const tables = "table, position_table and segment_table are (rows, size)";
    const char *const indices = "ids are (batch, length), segments";
    (void)state;
    good.ids = INTEGERS(2, 2, 3);
    good.table = FLOATS(2, 9, 6);
    good.y = FLOATS(3, 2, 3, 6);
#define EMBEDDING(change, set, begins) NAMED(embedding, good, change, set, begins)
    EMBEDDING(d.table = FLOATS(1, 6), LAYOUT, tables)
    EMBEDDING(d.table = FLOATS(2, 9, 5), LAYOUT, tables)
    EMBEDDING(d.table = one_element(FLOATS(2, too_many, 6)), TOO_BIG, "a table has more than")
    EMBEDDING(d.ids = INTEGERS(1, 2), LAYOUT, indices)
    EMBEDDING(d.ids = INTEGERS(2, 1, 3), LAYOUT, indices)
    EMBEDDING(d.ids = INTEGERS(2, 2, 4), LAYOUT, indices)
    EMBEDDING((d.segments = INTEGERS(2, 3, 3), d.segment_table = d.table), LAYOUT, indices)
    EMBEDDING((d.segments = INTEGERS(2, 1, 3), d.segment_table = FLOATS(2, 2, 5)), LAYOUT, tables)
    EMBEDDING((d.positions = CLATTN_POSITIONS_SINUSOIDS, d.offsets = INTEGERS(2, 2, 1)), LAYOUT, indices)
    EMBEDDING((d.positions = CLATTN_POSITIONS_SINUSOIDS, d.table = FLOATS(2, 9, 5), d.y = FLOATS(3, 2, 3, 5)),
              UNSUPPORTED, "sinusoids of an odd size")
    EMBEDDING((d.positions = CLATTN_POSITIONS_SINUSOIDS, d.table = FLOATS(2, 9, 131074), d.y = FLOATS(3, 2, 3, 131074)),
              UNSUPPORTED, "sinusoids of an odd size")
    EMBEDDING((d.ids = INTEGERS(2, 2, too_many), d.y = FLOATS(3, 2, too_many, 6)), TOO_BIG, "batch times length")
    EMBEDDING((d.table = one_element(FLOATS(2, 9, too_many)), d.y = FLOATS(3, 2, 3, too_many)), TOO_BIG,
              "batch times length")
}

static void kv_append(void **state)
{
    clattn_kv_append_desc good = CLATTN_KV_APPEND_DESC_INIT;
    const char *const caches = "caches have the heads and sizes", *const differ = "keys and values, and their caches";
    const char *const lengths = "block_table is (batch, blocks)", *const groups = "scales have their cache's";
    const char *const types = "keys and values are float32", *const even = "an int4 cache has groups of even size";
    (void)state;
    good.key = FLOATS(4, 2, 3, 4, 8);
    good.value = FLOATS(4, 2, 3, 4, 6);
    good.key_cache = FLOATS(4, 2, 3, 9, 8);
    good.value_cache = FLOATS(4, 2, 3, 9, 6);
#define APPEND(change, set, begins) NAMED(kv_append, good, change, set, begins)
    APPEND(d.key = typed(d.key, CLATTN_DTYPE_F64), UNSUPPORTED, types)
    APPEND(d.value_cache = typed(d.value_cache, CLATTN_DTYPE_BOOL), UNSUPPORTED, types)
    APPEND(d.key_cache = FLOATS(4, 2, 2, 9, 8), LAYOUT, caches)
    APPEND(d.key_cache = FLOATS(4, 2, 3, 9, 7), LAYOUT, caches)
    APPEND(d.key_cache = FLOATS(4, 2, 3, 0, 8), LAYOUT, caches)
    APPEND((d.key = FLOATS(4, 2, 3, 4, 0), d.key_cache = FLOATS(4, 2, 3, 9, 0)), LAYOUT, caches)
    APPEND(d.key_scale = FLOATS(4, 2, 3, 9, 2), INVALID, "key_scale and value_scale come with")
#define INT4(change, set, begins) \
    APPEND((d.key_cache = typed(d.key_cache, CLATTN_DTYPE_I4), d.key_scale = FLOATS(4, 2, 3, 9, 2), change), set, \
           begins)
    INT4(d.key_scale = typed(d.key_scale, CLATTN_DTYPE_BF16), UNSUPPORTED, "key_scale and value_scale are float32")
    INT4(d.key_scale = FLOATS(4, 2, 3, 8, 2), LAYOUT, groups)
    INT4(d.key_scale = FLOATS(4, 2, 3, 9, 0), LAYOUT, groups)
    INT4(d.key_scale = FLOATS(4, 2, 3, 9, 3), LAYOUT, groups)
    INT4(d.key_scale = FLOATS(4, 2, 3, 9, 8), UNSUPPORTED, even)
    INT4((d.key_cache.stride[3] = 2, d.key_cache.stride[2] = 16, d.key_cache.stride[1] = 144,
          d.key_cache.stride[0] = 432),
         UNSUPPORTED, even)
    INT4(d.key_cache.stride[0] = 217, UNSUPPORTED, even)
    INT4((d.key_cache.stride[0] = 1000, d.key_cache.stride[1] = 73), UNSUPPORTED, even)
    INT4((d.key_cache.stride[0] = 1000, d.key_cache.stride[1] = 100, d.key_cache.stride[2] = 9), UNSUPPORTED, even)
    APPEND(d.value = FLOATS(4, 2, 3, 5, 6), LAYOUT, differ)
    APPEND(d.value_cache = FLOATS(4, 2, 3, 8, 6), LAYOUT, differ)
    APPEND((d.key_cache = FLOATS(4, 3, 3, 9, 8), d.value_cache = FLOATS(4, 3, 3, 9, 6)), LAYOUT, differ)
    APPEND((d.key = one_element(FLOATS(4, 2, 3, too_many, 8)), d.value = one_element(FLOATS(4, 2, 3, too_many, 6))),
           TOO_BIG, "an extent is above")
    APPEND((d.key_cache = FLOATS(4, 2, 3, too_many, 8), d.value_cache = FLOATS(4, 2, 3, too_many, 6)), TOO_BIG,
           "an extent is above")
    APPEND((d.value = one_element(FLOATS(4, 2, 3, 4, too_many)), d.value_cache = FLOATS(4, 2, 3, 9, too_many)), TOO_BIG,
           "an extent is above")
    APPEND((d.cache = CLATTN_CACHE_KIND_PAGED, d.block_table = one_element(INTEGERS(2, 2, too_many))), TOO_BIG,
           "an extent is above")
    APPEND(d.cache = CLATTN_CACHE_KIND_PAGED, INVALID, "block_table comes with")
    APPEND(d.block_table = INTEGERS(2, 2, 2), INVALID, "block_table comes with")
    APPEND((d.cache = CLATTN_CACHE_KIND_PAGED, d.block_table = INTEGERS(2, 3, 2)), LAYOUT, lengths)
    APPEND(d.past_lengths = INTEGERS(1, 3), LAYOUT, lengths)
    APPEND(d.past_lengths = FLOATS(1, 2), LAYOUT, lengths)
    APPEND(d.new_lengths = INTEGERS(1, 1), LAYOUT, lengths)
    APPEND((d.rotate = 1, d.rotary_size = 3), INVALID, "the rotary size is odd")
}

static void merge(void **state)
{
    clattn_merge_desc good = CLATTN_MERGE_DESC_INIT;
    const char *const differ = "extents of partials", *const types = "partials, log-sum-exps and sinks are float32";
    (void)state;
    good.partial = FLOATS(5, 3, 1, 2, 4, 6);
    good.partial_lse = FLOATS(4, 3, 1, 2, 4);
    good.output = FLOATS(4, 1, 2, 4, 6);
#define MERGE(change, set, begins) NAMED(merge, good, change, set, begins)
    MERGE(d.direction = 1, INVALID, "direction: only")
    MERGE(d.reserved = 1, INVALID, "reserved is not 0")
    MERGE(d.partial = typed(d.partial, CLATTN_DTYPE_F16), UNSUPPORTED, types)
    MERGE(d.partial_lse = typed(d.partial_lse, CLATTN_DTYPE_F16), UNSUPPORTED, types)
    MERGE(d.sinks = typed(FLOATS(1, 2), CLATTN_DTYPE_F16), UNSUPPORTED, types)
    MERGE(d.lse = typed(FLOATS(3, 1, 2, 4), CLATTN_DTYPE_F16), UNSUPPORTED, types)
    MERGE(d.output = typed(d.output, CLATTN_DTYPE_F64), UNSUPPORTED, "the output is float32")
    MERGE(d.partial_lse = FLOATS(4, 3, 1, 2, 5), LAYOUT, differ)
    MERGE(d.output = FLOATS(4, 1, 2, 4, 5), LAYOUT, differ)
    MERGE(d.lse = FLOATS(3, 1, 2, 5), LAYOUT, differ)
    MERGE(d.sinks = FLOATS(1, 3), LAYOUT, differ)
    MERGE((d.partial = FLOATS(5, 3, 1, 2, 4, 0), d.output = FLOATS(4, 1, 2, 4, 0)), LAYOUT, differ)
    MERGE((d.partial = one_element(FLOATS(5, 3, 1, 2, 4, too_many)), d.output = FLOATS(4, 1, 2, 4, too_many)), TOO_BIG,
          "an extent is above")
}

static void matmul(void **state)
{
    clattn_matmul_desc good = CLATTN_MATMUL_DESC_INIT;
    const char *const types = "a, b, c and bias are each", *const ranks = "a, b and c have 2 dimensions";
    const char *const sizes = "a is (m, k), b is (k, n)", *const batches = "batch: a's and c's",
                      *const scale = "b_scale is";
    (void)state;
    good.a = FLOATS(2, 4, 6);
    good.b = FLOATS(2, 6, 5);
    good.c = FLOATS(2, 4, 5);
#define MATMUL(change, set, begins) NAMED(matmul, good, change, set, begins)
    MATMUL(d.a = typed(d.a, CLATTN_DTYPE_I8), UNSUPPORTED, types)
    MATMUL(d.b = typed(d.b, CLATTN_DTYPE_I32), UNSUPPORTED, types)
    MATMUL(d.c = typed(d.c, CLATTN_DTYPE_F64), UNSUPPORTED, types)
    MATMUL(d.bias = INTEGERS(1, 5), UNSUPPORTED, types)
    MATMUL(d.a = FLOATS(4, 1, 1, 4, 6), LAYOUT, ranks)
    MATMUL(d.b = FLOATS(1, 6), LAYOUT, ranks)
    MATMUL(d.b = FLOATS(4, 1, 1, 6, 5), LAYOUT, ranks)
    MATMUL(d.c = FLOATS(1, 5), LAYOUT, ranks)
    MATMUL(d.c = FLOATS(4, 1, 1, 4, 5), LAYOUT, ranks)
    MATMUL(d.a = FLOATS(2, 3, 6), LAYOUT, sizes)
    MATMUL(d.a = FLOATS(2, 4, 5), LAYOUT, sizes)
    MATMUL(d.b = FLOATS(2, 6, 4), LAYOUT, sizes)
    MATMUL(d.a = FLOATS(3, 2, 4, 6), LAYOUT, batches)
    MATMUL(d.b = FLOATS(3, 2, 6, 5), LAYOUT, batches)
    MATMUL(d.bias = FLOATS(2, 1, 5), LAYOUT, "bias is not (n)")
    MATMUL((d.operand = typed(d.c, CLATTN_DTYPE_I32)), UNSUPPORTED, "operand is float32")
    MATMUL(d.operand = FLOATS(1, 5), LAYOUT, "operand is (m, n)")
    MATMUL(d.operand = FLOATS(3, 2, 4, 5), LAYOUT, "operand is (m, n)")
#define INT8(change, set, begins) \
    MATMUL((d.b = typed(d.b, CLATTN_DTYPE_I8), d.b_scale = FLOATS(1, 5), change), set, begins)
    INT8(d.b_scale.rank = 9, LAYOUT, "b_scale: the layout's rank")
    INT8(d.b_scale = FLOATS(2, 1, 5), LAYOUT, scale)
    INT8(d.b_scale = FLOATS(1, 6), LAYOUT, scale)
    INT8(d.b_scale = typed(d.b_scale, CLATTN_DTYPE_F16), LAYOUT, scale)
    const char *const above = "an extent is above";
    MATMUL((d.a = one_element(FLOATS(3, too_many, 4, 6)), d.c = FLOATS(3, too_many, 4, 5)), TOO_BIG, above)
    MATMUL((d.a = one_element(FLOATS(2, too_many, 6)), d.c = FLOATS(2, too_many, 5)), TOO_BIG, above)
    MATMUL((d.a = FLOATS(2, 4, too_many), d.b = FLOATS(2, too_many, 5)), TOO_BIG, above)
    MATMUL((d.b = one_element(FLOATS(2, 6, too_many)), d.c = FLOATS(2, 4, too_many)), TOO_BIG, above)
}

static void mha(void **state)
{
    clattn_mha_desc good = CLATTN_MHA_DESC_INIT;
    const char *const columns = "self-attention has keys", *const packed = "packed weights need";
    (void)state;
    good.batch = 1;
    good.query_length = 4;
    good.d_model = 8;
    good.heads = 2;
#define MHA(change, set, begins) NAMED(mha, good, change, set, begins)
    MHA(d.bias_in = 2, INVALID, "bias_in is neither")
    MHA(d.bias_out = -1, INVALID, "bias_out is neither")
    MHA(d.d_context = 9, LAYOUT, columns)
    MHA(d.d_context_value = 9, LAYOUT, columns)
    MHA((d.cross = d.packed_weights = 1, d.key_length = 3, d.d_context = 6), LAYOUT, packed)
    MHA((d.cross = d.packed_weights = 1, d.key_length = 3, d.d_context_value = 6), LAYOUT, packed)
    MHA(d.batch = too_many, TOO_BIG, "a size is 2^31 or more")
    MHA((d.cross = 1, d.key_length = too_many), TOO_BIG, "a size is 2^31 or more")
    MHA((d.cross = 1, d.key_length = 3, d.d_context = too_many), TOO_BIG, "a size is 2^31 or more")
    MHA((d.cross = 1, d.key_length = 3, d.d_context_value = too_many), TOO_BIG, "a size is 2^31 or more")
    MHA(d.head_size = SIZE_MAX, TOO_BIG, "a size is 2^31 or more")
    MHA(d.head_size = (size_t)1 << 28, TOO_BIG, "a size is 2^31 or more")
    MHA((d.batch = too_many - 1, d.query_length = too_many - 1), TOO_BIG, "the workspace overflows")
    MHA((d.cross = 1, d.batch = too_many - 1, d.key_length = too_many - 1), TOO_BIG, "the workspace overflows")
    /* Self-attention may say what it has anyway. */
    clattn_mha_desc same = good;
    same.d_context = same.d_context_value = good.d_model;
    assert_status(context, clattn_mha_supports(context, &same, NULL), CLATTN_SUCCESS);
}

static void conv2d(void **state)
{
    clattn_conv2d_desc good = CLATTN_CONV2D_DESC_INIT;
    const size_t too_long = ((size_t)1 << 29) + 1;
    (void)state;
    good.x = FLOATS(4, 2, 6, 5, 7);
    good.weight = FLOATS(4, 4, 3, 3, 2);
    good.y = FLOATS(4, 2, 4, 3, 6);
    good.groups = 2;
#define CONV2D(change, set, begins) NAMED(conv2d, good, change, set, begins)
    CONV2D(d.groups = -1, INVALID, "groups is below 0")
    CONV2D(d.stride[1] = -1, INVALID, "a stride is not 0 to 2^29")
    CONV2D(d.stride[0] = (int32_t)too_long, INVALID, "a stride is not 0 to 2^29")
    CONV2D(d.dilation[0] = -1, INVALID, "a dilation is not 0 to 2^29")
    CONV2D(d.dilation[1] = (int32_t)too_long, INVALID, "a dilation is not 0 to 2^29")
    CONV2D(d.padding[2] = -1, INVALID, "a padding is not 0 to 2^29")
    CONV2D(d.padding[0] = (int32_t)too_long, INVALID, "a padding is not 0 to 2^29")
    CONV2D(d.x = FLOATS(3, 6, 5, 7), LAYOUT, "x, weight, operand and y have 4 dimensions")
    CONV2D(d.bias = FLOATS(2, 4, 1), LAYOUT, "x, weight, operand and y have 4 dimensions")
    CONV2D(d.x = typed(d.x, CLATTN_DTYPE_I32), UNSUPPORTED, "x, weight, bias, operand and y are each float32")
    CONV2D(d.bias = typed(FLOATS(1, 4), CLATTN_DTYPE_F64), UNSUPPORTED,
           "x, weight, bias, operand and y are each float32")
    CONV2D(d.x = one_element(FLOATS(4, 2, 6, 5, too_long)), TOO_BIG, "an extent is above 2^29")
    CONV2D(d.weight = one_element(FLOATS(4, 4, 3, too_long, 2)), TOO_BIG, "an extent is above 2^29")
    CONV2D(d.y = FLOATS(4, 2, 4, 3, too_long), TOO_BIG, "an extent is above 2^29")
    CONV2D(d.groups = 4, LAYOUT, "groups does not divide x's channels C and weight's O")
    CONV2D(d.groups = 3, LAYOUT, "groups does not divide x's channels C and weight's O")
    CONV2D(d.groups = 1, LAYOUT, "weight is not (O, C / groups, ...)")
    CONV2D(d.weight = FLOATS(4, 4, 3, 3, 0), LAYOUT, "weight's kernel height or width is 0")
    CONV2D(d.y = FLOATS(4, 1, 4, 3, 6), LAYOUT, "y is not (N, O, ...)")
    CONV2D(d.y = FLOATS(4, 2, 6, 3, 6), LAYOUT, "y is not (N, O, ...)")
    CONV2D(d.dilation[0] = 3, LAYOUT, "the kernel is higher than the padded picture")
    CONV2D(d.dilation[1] = 7, LAYOUT, "the kernel is wider than the padded picture")
    CONV2D(d.padding[2] = 1, LAYOUT, "y's height is not")
    CONV2D(d.stride[1] = 2, LAYOUT, "y's width is not")
    CONV2D(d.bias = FLOATS(1, 6), LAYOUT, "bias is not (O)")
    CONV2D(d.operand = FLOATS(4, 3, 4, 3, 6), LAYOUT, "operand is not (N or 1, O, H', W')")
    CONV2D(d.operand = FLOATS(4, 2, 4, 3, 1), LAYOUT, "operand is not (N or 1, O, H', W')")
    const size_t side = (size_t)1 << 15;
    CONV2D((d.x = one_element(FLOATS(4, 2, 6, side, side)), d.weight = one_element(FLOATS(4, 4, 3, side, side)),
            d.y = FLOATS(4, 2, 4, 1, 1)),
           TOO_BIG, "the kernel has more than 2^29 taps")
}

static void neighbourhood(void **state)
{
    clattn_neighbourhood_desc good = CLATTN_NEIGHBOURHOOD_DESC_INIT;
    const char *const agree = "query and output, and key and value, agree", *const bias = "the bias is not (batch or 1";
    const char *const size = "size: query and key are equal", *const above = "an extent is above 2^29";
    const size_t too_long = ((size_t)1 << 29) + 1;
    (void)state;
    good.query = good.output = FLOATS(5, 2, 4, 5, 6, 8);
    good.key = good.value = FLOATS(5, 2, 2, 5, 6, 8);
    good.window[0] = good.window[1] = 3;
#define NEIGHBOURHOOD(change, set, begins) NAMED(neighbourhood, good, change, set, begins)
    NEIGHBOURHOOD(d.dilation[0] = -1, INVALID, "a dilation is not 1 to 32767")
    NEIGHBOURHOOD(d.dilation[1] = 32768, INVALID, "a dilation is not 1 to 32767")
    NEIGHBOURHOOD(d.window[0] = 4, INVALID, "a window is not odd")
    NEIGHBOURHOOD(d.window[1] = 32769, INVALID, "a window is not odd")
    NEIGHBOURHOOD(d.key = d.value = FLOATS(5, 1, 2, 5, 6, 8), LAYOUT, agree)
    NEIGHBOURHOOD(d.value = FLOATS(5, 2, 2, 5, 7, 8), LAYOUT, agree)
    NEIGHBOURHOOD(d.output = FLOATS(5, 2, 4, 4, 6, 8), LAYOUT, agree)
    NEIGHBOURHOOD(d.key = d.value = FLOATS(5, 2, 3, 5, 6, 8), LAYOUT, "query's heads are no multiple")
    NEIGHBOURHOOD(d.key = d.value = FLOATS(5, 2, 0, 5, 6, 8), LAYOUT, "query's heads are no multiple")
    NEIGHBOURHOOD(d.query = FLOATS(5, 2, 4, 5, 6, 7), LAYOUT, size)
    NEIGHBOURHOOD(d.output = FLOATS(5, 2, 4, 5, 6, 7), LAYOUT, size)
    NEIGHBOURHOOD((d.query = FLOATS(5, 2, 4, 5, 6, 0), d.key = FLOATS(5, 2, 2, 5, 6, 0)), LAYOUT, size)
    NEIGHBOURHOOD((d.output = FLOATS(5, 2, 4, 5, 6, 0), d.value = FLOATS(5, 2, 2, 5, 6, 0)), LAYOUT, size)
    NEIGHBOURHOOD(d.query = d.output = FLOATS(5, 2, 4, 6, 6, 8), LAYOUT, "there are more rows or columns")
    NEIGHBOURHOOD(d.query = d.output = FLOATS(5, 2, 4, 5, 7, 8), LAYOUT, "there are more rows or columns")
    NEIGHBOURHOOD(
        (d.query = d.output = FLOATS(5, 2, too_long, 5, 6, 8), d.key = d.value = one_element(FLOATS(5, 2, 1, 5, 6, 8))),
        TOO_BIG, above)
    NEIGHBOURHOOD(d.key = d.value = one_element(FLOATS(5, 2, 2, too_long, 6, 8)), TOO_BIG, above)
    NEIGHBOURHOOD((d.value = one_element(FLOATS(5, 2, 2, 5, 6, too_long)), d.output = FLOATS(5, 2, 4, 5, 6, too_long)),
                  TOO_BIG, above)
    NEIGHBOURHOOD(d.bias = FLOATS(4, 3, 4, 5, 6), LAYOUT, bias)
    NEIGHBOURHOOD(d.bias = FLOATS(4, 2, 3, 5, 6), LAYOUT, bias)
    NEIGHBOURHOOD(d.bias = FLOATS(4, 2, 4, 4, 6), LAYOUT, bias)
    NEIGHBOURHOOD(d.bias = FLOATS(4, 2, 4, 5, 5), LAYOUT, bias)
    NEIGHBOURHOOD(d.lse = FLOATS(4, 2, 4, 5, 5), LAYOUT, "lse is not (batch, heads")
    NEIGHBOURHOOD(d.lse = typed(FLOATS(4, 2, 4, 5, 6), CLATTN_DTYPE_F16), UNSUPPORTED,
                  "query, key, value and output are")
    NEIGHBOURHOOD(d.window[0] = 7, LAYOUT, "with CLATTN_EDGE_SHIFT a window times")
    NEIGHBOURHOOD(d.dilation[1] = 3, LAYOUT, "with CLATTN_EDGE_SHIFT a window times")
}

static void image(void **state)
{
    clattn_image_desc good = CLATTN_IMAGE_DESC_INIT;
    const char *const array = "the array is not (height, width", *const norms = "the norm is neither (height, width)";
    const size_t too_wide = ((size_t)1 << 29) + 1;
    (void)state;
    good.operation = CLATTN_IMAGE_OPERATION_PACK;
    good.array = FLOATS(3, 5, 6, 3);
#define IMAGE(change, set, begins) NAMED(image, good, change, set, begins)
    IMAGE(d.operation = 7, INVALID, "unknown operation")
    IMAGE(d.patch = 2, INVALID, "patch is not odd")
    IMAGE((d.operation = CLATTN_IMAGE_OPERATION_UNPACK, d.norm = FLOATS(2, 5, 6)), INVALID, "unpack has neither")
    IMAGE(d.transfer = 2, INVALID, "unknown transfer function")
    IMAGE(d.alpha = -1, INVALID, "unknown kind of alpha")
    IMAGE(d.array = typed(d.array, CLATTN_DTYPE_I8), UNSUPPORTED, "the array is none of")
    IMAGE(d.array = FLOATS(2, 5, 6), LAYOUT, array)
    IMAGE(d.array = FLOATS(3, 5, 6, 0), LAYOUT, array)
    IMAGE(d.array = FLOATS(3, 5, 6, 5), LAYOUT, array)
    IMAGE((d.patch = 3, d.array = FLOATS(3, 5, 6, 10)), LAYOUT, array)
    IMAGE(d.array = FLOATS(3, too_wide, 6, 3), TOO_BIG, "height or width is above")
    IMAGE(d.array = FLOATS(3, 5, too_wide, 3), TOO_BIG, "height or width is above")
    IMAGE((d.norm = FLOATS(2, 5, 6), d.norm.stride[1] = 0), LAYOUT, "norm: the output layout's elements overlap")
    IMAGE(d.norm = typed(FLOATS(2, 5, 6), CLATTN_DTYPE_F16), UNSUPPORTED, "the norm is not float32")
    IMAGE(d.norm = FLOATS(1, 5), LAYOUT, norms)
    IMAGE(d.norm = FLOATS(4, 5, 6, 3, 1), LAYOUT, norms)
    IMAGE(d.norm = FLOATS(2, 4, 6), LAYOUT, norms)
    IMAGE(d.norm = FLOATS(2, 5, 5), LAYOUT, norms)
    IMAGE(d.norm = FLOATS(3, 5, 6, 2), LAYOUT, norms)
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(softmax, open_context, close_context),
        cmocka_unit_test_setup_teardown(norm, open_context, close_context),
        cmocka_unit_test_setup_teardown(cross_entropy, open_context, close_context),
        cmocka_unit_test_setup_teardown(pool, open_context, close_context),
        cmocka_unit_test_setup_teardown(resize, open_context, close_context),
        cmocka_unit_test_setup_teardown(rope, open_context, close_context),
        cmocka_unit_test_setup_teardown(dropout, open_context, close_context),
        cmocka_unit_test_setup_teardown(embedding, open_context, close_context),
        cmocka_unit_test_setup_teardown(kv_append, open_context, close_context),
        cmocka_unit_test_setup_teardown(merge, open_context, close_context),
        cmocka_unit_test_setup_teardown(matmul, open_context, close_context),
        cmocka_unit_test_setup_teardown(mha, open_context, close_context),
        cmocka_unit_test_setup_teardown(conv2d, open_context, close_context),
        cmocka_unit_test_setup_teardown(neighbourhood, open_context, close_context),
        cmocka_unit_test_setup_teardown(image, open_context, close_context),
    };
    return RUN_TESTS("errors of operators", tests, argc, argv);
}
