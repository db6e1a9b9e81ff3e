/* Each rule about a description of attention refuses one that breaks it, with its own status and in its own words. */
#include <math.h>
#include <string.h>

#include "support/core/refusals.h"

#define FIELD(change, set, begins) NAMED(attention, problem.desc, change, set, begins)

/* The small problem: batch 1, 2 heads, 5 queries, 7 keys, sizes 8 and 6. */
enum { HEADS = 2, QUERIES = 5, KEYS = 7, D_K = 8, D_V = 6 };
static const size_t too_many = (size_t)1 << 31;

static clattn_layout floats(size_t batch, size_t heads, size_t length, size_t size)
{
    return clattn_layout_bhsd(CLATTN_DTYPE_F32, batch, heads, length, size);
}

static clattn_layout vector_of(clattn_dtype dtype, size_t count)
{
    return clattn_layout_contiguous(dtype, 1, &count);
}

static clattn_layout matrix_of(clattn_dtype dtype, size_t rows, size_t columns)
{
    return clattn_layout_contiguous(dtype, 2, (const size_t[]){rows, columns});
}

static void enums_and_flags(void **state)
{
    (void)state;
    FIELD(d.direction = 2, INVALID, "unknown direction")
    FIELD(d.short_mask = 2, INVALID, "short_mask is neither")
    FIELD(d.scoring.kind = 2, INVALID, "unknown scoring.kind")
    FIELD(d.cache.kind = 3, INVALID, "unknown cache.kind")
    FIELD(d.outputs.scores_mode = 4, INVALID, "unknown outputs.scores_mode")
    FIELD(d.window.explicit_left = 2, INVALID, "window.explicit_left or")
    FIELD(d.window.explicit_right = -1, INVALID, "window.explicit_left or")
    FIELD(d.cache.reserved = 1, INVALID, "reserved is not 0")
    FIELD(d.outputs.partial = 2, INVALID, "outputs.partial is neither 0 nor 1")
    FIELD(d.outputs.partial = 1, INVALID, "outputs.partial is for CLATTN_DIRECTION_BACKWARD")
    FIELD(d.dropout.reserved = 1, INVALID, "reserved is not 0")
}

static void numbers(void **state)
{
    (void)state;
    FIELD(d.scoring.softcap = -1, INVALID, "scoring.softcap is")
    FIELD(d.scoring.softcap = (float)NAN, INVALID, "scoring.softcap is")
    FIELD(d.scoring.softcap = (float)INFINITY, INVALID, "scoring.softcap is")
    FIELD((d.window.explicit_left = 1, d.window.left = -1), INVALID, "window.left or window.right is negative")
    FIELD((d.window.explicit_right = 1, d.window.right = -1), INVALID, "window.left or window.right is negative")
    FIELD(d.dropout.probability = 1, INVALID, "dropout.probability is not")
    FIELD(d.dropout.probability = -0.5f, INVALID, "dropout.probability is not")
    FIELD(d.dropout.probability = (float)NAN, INVALID, "dropout.probability is not")
}

static void snippets(void **state)
{
    const char *const text = "int mask_mod(int b, int h, int i, int j, user_data u) { return 1; }";
    static char longest[CLATTN_SNIPPET_LIMIT + 1];
    (void)state;
    memset(longest, ' ', CLATTN_SNIPPET_LIMIT);
    FIELD(d.snippets.score_mod = longest, INVALID, "snippets.score_mod is longer than")
    FIELD(d.snippets.mask_mod = longest, INVALID, "snippets.mask_mod is longer than")
    FIELD(d.snippets.score_mod_grad = longest, INVALID, "snippets.score_mod_grad is longer than")
    FIELD(d.snippets.score_mod_grad = text, INVALID, "snippets.score_mod_grad without snippets.score_mod")
    FIELD(d.snippets.buffer_dtype[0] = CLATTN_DTYPE_F32, INVALID, "snippets.buffer_dtype without")
    FIELD((d.snippets.mask_mod = text, d.snippets.buffer_dtype[3] = 99), INVALID, "snippets.buffer_dtype[3] is unknown")
    FIELD((d.snippets.mask_mod = text, d.snippets.buffer_dtype[1] = CLATTN_DTYPE_I4), INVALID,
          "snippets.buffer_dtype[1] is unknown, int4")
}

/* All four float64, or storage types; integers have scales. */
static void element_types(void **state)
{
    const char *const types = "query, key, value and output are float32", *const scales = "cache.key_scale and";
    (void)state;
    FIELD(d.query.dtype = CLATTN_DTYPE_F64, UNSUPPORTED, types)
    FIELD(d.query.dtype = d.key.dtype = CLATTN_DTYPE_F64, UNSUPPORTED, types)
    FIELD(d.query.dtype = d.key.dtype = d.value.dtype = CLATTN_DTYPE_F64, UNSUPPORTED, types)
    FIELD(d.query.dtype = CLATTN_DTYPE_I8, UNSUPPORTED, types)
    FIELD(d.output.dtype = CLATTN_DTYPE_I8, UNSUPPORTED, types)
    FIELD(d.key.dtype = CLATTN_DTYPE_BOOL, UNSUPPORTED, types)
    FIELD(d.value.dtype = CLATTN_DTYPE_I32, UNSUPPORTED, types)
    FIELD(d.key.dtype = CLATTN_DTYPE_I8, INVALID, scales)
    FIELD(d.value.dtype = CLATTN_DTYPE_I4, INVALID, scales)
    FIELD(d.cache.value_scale = d.value, INVALID, scales)
}

static void extents(void **state)
{
    const char *const ranks = "query, key, value and output have 4 dimensions", *const above = "an extent is above";
    (void)state;
    FIELD(d.query.rank = 3, LAYOUT, ranks)
    FIELD(d.key.rank = 3, LAYOUT, ranks)
    FIELD(d.value.rank = 3, LAYOUT, ranks)
    FIELD(d.output.rank = 3, LAYOUT, ranks)
    FIELD(d.value = floats(1, HEADS, KEYS, 0), LAYOUT, "size: query and key")
    FIELD((d.query = floats(1, HEADS, QUERIES, 0), d.key = floats(1, HEADS, KEYS, 0)), LAYOUT, "size: query and key")
    FIELD((d.value = floats(1, HEADS, KEYS, 0), d.output = floats(1, HEADS, QUERIES, 0)), LAYOUT, "size: query and key")
    FIELD((d.query = floats(1, HEADS, too_many, D_K), d.output = floats(1, HEADS, too_many, D_V)), TOO_BIG, above)
    FIELD((d.key = floats(1, HEADS, too_many, D_K), d.value = floats(1, HEADS, too_many, D_V)), TOO_BIG, above)
    FIELD((d.value = floats(1, 1, KEYS, too_many), d.output = floats(1, HEADS, QUERIES, too_many),
           d.key = floats(1, 1, KEYS, D_K)),
          TOO_BIG, above)
    FIELD((d.key = floats(2, HEADS, KEYS, D_K), d.value = floats(2, HEADS, KEYS, D_V)), LAYOUT,
          "query and key differ in batch")
}

static void packed_sequences(void **state)
{
    const clattn_layout two = vector_of(CLATTN_DTYPE_I32, 2);
    (void)state;
    FIELD((d.lengths.query_starts = two, d.query = floats(2, HEADS, QUERIES, D_K),
           d.output = floats(2, HEADS, QUERIES, D_V)),
          LAYOUT, "packed sequences have batch 1")
    FIELD((d.lengths.key_starts = two, d.key = floats(2, HEADS, KEYS, D_K), d.value = floats(2, HEADS, KEYS, D_V)),
          LAYOUT, "packed sequences have batch 1")
    FIELD((d.lengths.key_starts = two, d.cache.kind = CLATTN_CACHE_KIND_PAGED), INVALID, "a paged cache has no")
    FIELD((d.lengths.key_starts = two, d.cache.kind = CLATTN_CACHE_KIND_RING), INVALID, "a ring has no")
    FIELD(d.lengths.longest_query = 1, INVALID, "lengths.longest_query without")
    FIELD((d.lengths.query_starts = two, d.lengths.longest_query = QUERIES + 1), INVALID,
          "lengths.longest_query is above")
    FIELD((d.lengths.query_starts = two, d.lengths.query_starts.dtype = CLATTN_DTYPE_F32), LAYOUT,
          "lengths.query_starts is")
    FIELD((d.lengths.key = two, d.lengths.key.rank = 2, d.lengths.key.extent[1] = 1), LAYOUT, "lengths.key is (batch)")
    FIELD(d.lengths.positions = vector_of(CLATTN_DTYPE_I32, 1), INVALID, "lengths.positions without")
}

static void pages(void **state)
{
    const clattn_layout table = matrix_of(CLATTN_DTYPE_I32, 1, 3);
    (void)state;
#define PAGED(change, set, begins) \
    FIELD((d.cache.kind = CLATTN_CACHE_KIND_PAGED, d.cache.block_table = table, change), set, begins)
    FIELD(d.cache.kind = CLATTN_CACHE_KIND_PAGED, INVALID, "cache.block_table comes with")
    FIELD(d.cache.block_table = table, INVALID, "cache.block_table comes with")
    PAGED(d.cache.block_table.rank = 1, LAYOUT, "cache.block_table is not (batch, blocks)")
    PAGED(d.cache.block_table.extent[0] = 2, LAYOUT, "cache.block_table is not (batch, blocks)")
    PAGED(d.cache.block_table.dtype = CLATTN_DTYPE_F32, LAYOUT, "cache.block_table is int32")
    PAGED((d.key = floats(0, HEADS, KEYS, D_K), d.value = floats(0, HEADS, KEYS, D_V)), LAYOUT,
          "a paged cache without pages")
    PAGED((d.key = floats(1, HEADS, 0, D_K), d.value = floats(1, HEADS, 0, D_V)), LAYOUT, "a paged cache without pages")
    PAGED(d.cache.block_table = matrix_of(CLATTN_DTYPE_I32, 1, too_many), TOO_BIG, "a paged cache has more than")
    PAGED((d.cache.block_table.extent[1] = (size_t)1 << 60, d.cache.block_table.stride[1] = 0,
           d.key = floats(1, HEADS, 1000, D_K), d.value = floats(1, HEADS, 1000, D_V)),
          TOO_BIG, "a paged cache has more than")
}

static void masks_and_biases(void **state)
{
    const clattn_layout mask = floats(1, HEADS, QUERIES, KEYS);
    const size_t five[5] = {1, 1, 1, 1, KEYS};
    (void)state;
    FIELD((d.mask = mask, d.mask.dtype = CLATTN_DTYPE_F64), UNSUPPORTED, "mask is bool, float32")
    FIELD((d.bias = mask, d.bias.dtype = CLATTN_DTYPE_BOOL), UNSUPPORTED, "bias is float32")
    FIELD((d.bias = mask, d.bias.dtype = CLATTN_DTYPE_F64), UNSUPPORTED, "bias is float32")
    FIELD(d.mask = clattn_layout_contiguous(CLATTN_DTYPE_F32, 5, five), LAYOUT, "mask has more than 4")
    FIELD(d.bias = clattn_layout_contiguous(CLATTN_DTYPE_F32, 5, five), LAYOUT, "bias has more than 4")
    FIELD((d.mask = mask, d.mask.extent[1] = HEADS + 1), LAYOUT, "mask: batch, heads and queries")
    FIELD((d.bias = mask, d.bias.extent[2] = QUERIES - 1), LAYOUT, "bias: batch, heads and queries")
    FIELD((d.cache.kind = CLATTN_CACHE_KIND_RING, d.mask = mask), UNSUPPORTED, "a ring takes no mask")
    FIELD((d.cache.kind = CLATTN_CACHE_KIND_RING, d.bias = mask), UNSUPPORTED, "a ring takes no bias")
}

static void results(void **state)
{
    const clattn_layout row = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (const size_t[]){1, HEADS, QUERIES});
    const clattn_layout scores = floats(1, HEADS, QUERIES, KEYS), two = vector_of(CLATTN_DTYPE_I32, 2);
    (void)state;
    FIELD((d.outputs.lse = row, d.outputs.lse.dtype = CLATTN_DTYPE_F16), UNSUPPORTED, "outputs.lse is float32")
    FIELD((d.outputs.entropy = row, d.outputs.entropy.dtype = CLATTN_DTYPE_F16), UNSUPPORTED,
          "outputs.entropy is float32")
    for (int i = 0; i < 3; i++) {
        FIELD((d.outputs.lse = row, d.outputs.lse.extent[i]--), LAYOUT, "outputs.lse is (batch")
        FIELD((d.outputs.entropy = row, d.outputs.entropy.extent[i]--), LAYOUT, "outputs.entropy is (batch")
    }
    FIELD((d.outputs.scores = scores, d.lengths.query_starts = two), UNSUPPORTED, "outputs.scores is not for packed")
    FIELD((d.outputs.scores = scores, d.lengths.key_starts = two), UNSUPPORTED, "outputs.scores is not for packed")
    FIELD((d.outputs.scores = scores, d.cache.kind = CLATTN_CACHE_KIND_RING), UNSUPPORTED,
          "outputs.scores is not for packed")
    FIELD((d.outputs.scores = scores, d.outputs.scores.dtype = CLATTN_DTYPE_F64), UNSUPPORTED,
          "outputs.scores is float32")
    FIELD((d.outputs.scores = scores, d.outputs.scores.rank = 3), LAYOUT, "outputs.scores is (batch, heads")
    for (int i = 0; i < 4; i++)
        FIELD((d.outputs.scores = scores, d.outputs.scores.extent[i]--), LAYOUT, "outputs.scores is (batch, heads")
}

static void scales(void **state)
{
    const clattn_layout of_key = floats(1, HEADS, KEYS, 2), of_value = floats(1, HEADS, KEYS, 3);
    (void)state;
#define INTEGERS(change, set, begins) \
    FIELD((d.key.dtype = d.value.dtype = CLATTN_DTYPE_I8, d.cache.key_scale = of_key, d.cache.value_scale = of_value, \
           change), \
          set, begins)
    INTEGERS(d.cache.key_scale.dtype = CLATTN_DTYPE_BF16, UNSUPPORTED, "cache.key_scale: float32")
    INTEGERS(d.cache.value_scale.dtype = CLATTN_DTYPE_F64, UNSUPPORTED, "cache.value_scale: float32")
    INTEGERS(d.cache.key_scale.rank = 3, LAYOUT, "cache.key_scale is indexed")
    for (int i = 0; i < 3; i++)
        INTEGERS(d.cache.key_scale.extent[i]++, LAYOUT, "cache.key_scale is indexed")
    INTEGERS(d.cache.key_scale.extent[3] = 3, LAYOUT, "cache.key_scale is indexed") /* 8 = 3 times nothing */
    INTEGERS(d.cache.value_scale.extent[3] = 0, LAYOUT, "cache.value_scale is indexed")
}

static void arrays_of_heads(void **state)
{
    const clattn_layout heads = vector_of(CLATTN_DTYPE_F32, HEADS), vector = matrix_of(CLATTN_DTYPE_F32, HEADS, D_K);
    const char *const alibi = "scoring.alibi is", *const sinks = "scoring.sinks is",
                      *const of_score = "scoring.vector is";
    (void)state;
    FIELD((d.scoring.alibi = heads, d.scoring.alibi.dtype = CLATTN_DTYPE_F16), LAYOUT, alibi)
    FIELD(d.scoring.alibi = vector_of(CLATTN_DTYPE_F32, HEADS + 1), LAYOUT, alibi)
    FIELD(d.scoring.alibi = floats(1, 1, 1, HEADS), LAYOUT, alibi)
    FIELD(d.scoring.alibi = matrix_of(CLATTN_DTYPE_F32, 2, HEADS), LAYOUT, alibi)
    FIELD((d.scoring.sinks = heads, d.scoring.sinks.dtype = CLATTN_DTYPE_F16), LAYOUT, sinks)
    FIELD(d.scoring.sinks = vector_of(CLATTN_DTYPE_F32, HEADS + 1), LAYOUT, sinks)
    FIELD(d.scoring.sinks = matrix_of(CLATTN_DTYPE_F32, HEADS, 1), LAYOUT, sinks)
    FIELD(d.scoring.kind = CLATTN_SCORE_ADDITIVE, INVALID, "scoring.vector comes with")
    FIELD(d.scoring.vector = vector, INVALID, "scoring.vector comes with")
#define ADDITIVE(change) \
    FIELD((d.scoring.kind = CLATTN_SCORE_ADDITIVE, d.scoring.vector = vector, change), LAYOUT, of_score)
    ADDITIVE(d.scoring.vector.dtype = CLATTN_DTYPE_F16)
    ADDITIVE(d.scoring.vector = vector_of(CLATTN_DTYPE_F32, D_K))
    ADDITIVE(d.scoring.vector.extent[1] = D_K - 1)
    ADDITIVE(d.scoring.vector.extent[0] = HEADS + 1)
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(enums_and_flags, refusals_start, refusals_stop),
        cmocka_unit_test_setup_teardown(numbers, refusals_start, refusals_stop),
        cmocka_unit_test_setup_teardown(snippets, refusals_start, refusals_stop),
        cmocka_unit_test_setup_teardown(element_types, refusals_start, refusals_stop),
        cmocka_unit_test_setup_teardown(extents, refusals_start, refusals_stop),
        cmocka_unit_test_setup_teardown(packed_sequences, refusals_start, refusals_stop),
        cmocka_unit_test_setup_teardown(pages, refusals_start, refusals_stop),
        cmocka_unit_test_setup_teardown(masks_and_biases, refusals_start, refusals_stop),
        cmocka_unit_test_setup_teardown(results, refusals_start, refusals_stop),
        cmocka_unit_test_setup_teardown(scales, refusals_start, refusals_stop),
        cmocka_unit_test_setup_teardown(arrays_of_heads, refusals_start, refusals_stop),
    };
    return RUN_TESTS("errors of attention", tests, argc, argv);
}
