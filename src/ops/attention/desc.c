/* Reading and checking what attention is asked for. */
#include <math.h>
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/attention/desc.h"

#define ARRAY(field) \
    {offsetof(clattn_attention_desc, field), offsetof(clattn_attention_args, field), #field, LAYOUT_WORDS(#field)}
const struct attention_array_type attention_arrays[ATTENTION_ARRAYS] = {
    [ATTENTION_MASK] = ARRAY(mask),
    [ATTENTION_BIAS] = ARRAY(bias),
    [ATTENTION_ALIBI] = ARRAY(scoring.alibi),
    [ATTENTION_SINKS] = ARRAY(scoring.sinks),
    [ATTENTION_VECTOR] = ARRAY(scoring.vector),
    [ATTENTION_QUERY_LENGTHS] = ARRAY(lengths.query),
    [ATTENTION_KEY_LENGTHS] = ARRAY(lengths.key),
    [ATTENTION_POSITIONS] = ARRAY(lengths.positions),
    [ATTENTION_QUERY_STARTS] = ARRAY(lengths.query_starts),
    [ATTENTION_KEY_STARTS] = ARRAY(lengths.key_starts),
    [ATTENTION_BLOCK_TABLE] = ARRAY(cache.block_table),
    [ATTENTION_KEY_SCALE] = ARRAY(cache.key_scale),
    [ATTENTION_VALUE_SCALE] = ARRAY(cache.value_scale),
    [ATTENTION_LSE] = ARRAY(outputs.lse),
    [ATTENTION_ENTROPY] = ARRAY(outputs.entropy),
    [ATTENTION_SCORES] = ARRAY(outputs.scores),
};

const struct attention_array_type attention_gradients[ATTENTION_GRADIENTS] = {
    [GRADIENT_OUTPUT] = ARRAY(gradients.output), [GRADIENT_LSE] = ARRAY(gradients.lse),
    [GRADIENT_QUERY] = ARRAY(gradients.query),   [GRADIENT_KEY] = ARRAY(gradients.key),
    [GRADIENT_VALUE] = ARRAY(gradients.value),   [GRADIENT_MASK] = ARRAY(gradients.mask),
    [GRADIENT_BIAS] = ARRAY(gradients.bias),     [GRADIENT_VECTOR] = ARRAY(gradients.vector),
    [GRADIENT_ALIBI] = ARRAY(gradients.alibi),   [GRADIENT_SINKS] = ARRAY(gradients.sinks),
};

static clattn_status fail(const char **reason, clattn_status status, const char *why)
{
    *reason = why;
    return status;
}

#define INVALID(why) return fail(reason, CLATTN_ERROR_INVALID_ARGUMENT, why)
#define LAYOUT(why) return fail(reason, CLATTN_ERROR_INVALID_LAYOUT, why)
#define UNSUPPORTED(why) return fail(reason, CLATTN_ERROR_UNSUPPORTED, why)

static clattn_status check_enums(const clattn_attention_desc *desc, const char **reason)
{
    if (!enum_within(desc->direction, CLATTN_DIRECTION_BACKWARD))
        INVALID("unknown direction");
    if (!is_flag(desc->causal))
        INVALID("causal is neither 0 nor 1");
    if (!is_flag(desc->short_mask))
        INVALID("short_mask is neither 0 nor 1");
    if (!enum_within(desc->alignment, CLATTN_ALIGNMENT_EXPLICIT))
        INVALID("unknown alignment");
    if (!is_flag(desc->scoring.explicit_scale))
        INVALID("scoring.explicit_scale is neither 0 nor 1");
    if (desc->scoring.explicit_scale && !isfinite(desc->scoring.scale))
        INVALID("scoring.scale is NaN or infinite");
    if (!enum_within(desc->scoring.kind, CLATTN_SCORE_ADDITIVE))
        INVALID("unknown scoring.kind");
    if (!(desc->scoring.softcap >= 0) || !isfinite(desc->scoring.softcap))
        INVALID("scoring.softcap is negative, NaN or infinite");
    if (!is_flag(desc->window.explicit_left) || !is_flag(desc->window.explicit_right))
        INVALID("window.explicit_left or window.explicit_right is neither 0 nor 1");
    if ((desc->window.explicit_left && desc->window.left < 0) ||
        (desc->window.explicit_right && desc->window.right < 0))
        INVALID("window.left or window.right is negative");
    if (!enum_within(desc->cache.kind, CLATTN_CACHE_KIND_PAGED))
        INVALID("unknown cache.kind");
    if (!enum_within(desc->outputs.scores_mode, CLATTN_SCORES_MODE_PROBABILITIES))
        INVALID("unknown outputs.scores_mode");
    if (!(desc->dropout.probability >= 0 && desc->dropout.probability < 1))
        INVALID("dropout.probability is not from 0 to below 1");
    if (!is_flag(desc->outputs.partial))
        INVALID("outputs.partial is neither 0 nor 1");
    if (desc->cache.reserved || desc->dropout.reserved)
        INVALID("reserved is not 0");
    return CLATTN_SUCCESS;
}

/* Notes a snippet and the digest of its text; false if it is too long. */
static bool read_snippet(const char *text, const char **kept, uint8_t digest[SHA256_BYTES])
{
    size_t length = text ? strnlen(text, CLATTN_SNIPPET_LIMIT) : 0;
    *kept = text;
    if (text && length < CLATTN_SNIPPET_LIMIT) {
        struct sha256 hash;
        sha256_init(&hash);
        sha256_update(&hash, text, length);
        sha256_final(&hash, digest);
    }
    return length < CLATTN_SNIPPET_LIMIT;
}

static clattn_status read_snippets(struct attention_problem *problem, const char **reason)
{
    clattn_attention_desc *desc = &problem->desc;
    static const char *const wrong[CLATTN_USER_BUFFERS] = {
        "snippets.buffer_dtype[0] is unknown, int4 or float64", "snippets.buffer_dtype[1] is unknown, int4 or float64",
        "snippets.buffer_dtype[2] is unknown, int4 or float64", "snippets.buffer_dtype[3] is unknown, int4 or float64"};
    bool none = !desc->snippets.score_mod && !desc->snippets.mask_mod;
    if (!read_snippet(desc->snippets.score_mod, &problem->score_mod, problem->score_mod_digest))
        INVALID("snippets.score_mod is longer than CLATTN_SNIPPET_LIMIT - 1 characters");
    if (!read_snippet(desc->snippets.mask_mod, &problem->mask_mod, problem->mask_mod_digest))
        INVALID("snippets.mask_mod is longer than CLATTN_SNIPPET_LIMIT - 1 characters");
    if (!read_snippet(desc->snippets.score_mod_grad, &problem->score_mod_grad, problem->score_mod_grad_digest))
        INVALID("snippets.score_mod_grad is longer than CLATTN_SNIPPET_LIMIT - 1 characters");
    if (desc->snippets.score_mod && !*desc->snippets.score_mod)
        INVALID("snippets.score_mod is empty");
    if (desc->snippets.mask_mod && !*desc->snippets.mask_mod)
        INVALID("snippets.mask_mod is empty");
    if (desc->snippets.score_mod_grad && !*desc->snippets.score_mod_grad)
        INVALID("snippets.score_mod_grad is empty");
    if (desc->snippets.score_mod_grad && !desc->snippets.score_mod)
        INVALID("snippets.score_mod_grad without snippets.score_mod");
    for (int i = 0; i < CLATTN_USER_BUFFERS; i++) {
        if (desc->snippets.buffer_dtype[i] == CLATTN_DTYPE_NONE)
            continue;
        if (none)
            INVALID("snippets.buffer_dtype without snippets.score_mod or snippets.mask_mod");
        if (!clattn_dtype_size((clattn_dtype)desc->snippets.buffer_dtype[i]) ||
            desc->snippets.buffer_dtype[i] == CLATTN_DTYPE_F64)
            INVALID(wrong[i]);
    }
    desc->snippets.score_mod = desc->snippets.mask_mod = desc->snippets.score_mod_grad = NULL;
    return CLATTN_SUCCESS;
}

static clattn_status check_layouts(struct attention_problem *problem, const char **reason)
{
    clattn_status status;
    clattn_attention_desc *desc = &problem->desc;
    const struct layout_rule all[] = {
        {&desc->query, LAYOUT_OF("query"), LAYOUT_INPUT, 0, false},
        {&desc->key, LAYOUT_OF("key"), LAYOUT_INPUT, 0, false},
        {&desc->value, LAYOUT_OF("value"), LAYOUT_INPUT, 0, false},
        {&desc->output, LAYOUT_OF("output"), LAYOUT_OUTPUT, 0, false},
    };
    TRY(layouts_read(all, sizeof all / sizeof all[0], NULL, reason));
    for (size_t i = 0; i < ATTENTION_ARRAYS; i++) {
        clattn_layout *layout = (clattn_layout *)((char *)desc + attention_arrays[i].layout);
        problem->has[i] = !layout_is_none(layout);
        if (problem->has[i])
            TRY(layout_check(layout, i >= ATTENTION_INPUT_ARRAYS ? LAYOUT_OUTPUT : LAYOUT_INPUT,
                             &attention_arrays[i].words, reason));
        layout_normalise(layout);
    }
fail:
    return status;
}

static clattn_status check_dtypes(struct attention_problem *problem, const char **reason)
{
    const clattn_attention_desc *desc = &problem->desc;
    const int32_t q = desc->query.dtype, k = desc->key.dtype, v = desc->value.dtype, o = desc->output.dtype;
    problem->is_double = q == CLATTN_DTYPE_F64;
    if (problem->is_double
            ? k != q || v != q || o != q
            : !dtype_is_storage(q) || !dtype_is_storage(o) || (!dtype_is_storage(k) && !dtype_is_quantised(k)) ||
                  (!dtype_is_storage(v) && !dtype_is_quantised(v)))
        UNSUPPORTED("query, key, value and output are float32, float16 or bfloat16, key and value also int8 or "
                    "int4, or all four float64");
    if (problem->has[ATTENTION_KEY_SCALE] != dtype_is_quantised(k) ||
        problem->has[ATTENTION_VALUE_SCALE] != dtype_is_quantised(v))
        INVALID("cache.key_scale and cache.value_scale come with int8 and int4 and with nothing else");
    return CLATTN_SUCCESS;
}

/* Batch, heads, lengths and sizes. */
static clattn_status check_sizes(struct attention_problem *problem, const char **reason)
{
    const clattn_attention_desc *desc = &problem->desc;
    const size_t *q = desc->query.extent, *k = desc->key.extent, *v = desc->value.extent, *o = desc->output.extent;
    bool paged = desc->cache.kind == CLATTN_CACHE_KIND_PAGED;
    if (desc->query.rank != 4 || desc->key.rank != 4 || desc->value.rank != 4 || desc->output.rank != 4)
        LAYOUT("query, key, value and output have 4 dimensions: batch, heads, length, size");
    if (q[0] != o[0] || k[0] != v[0])
        LAYOUT("query and output, key and value differ in batch");
    if (k[1] != v[1] || q[1] != o[1] || (q[1] && (!k[1] || q[1] % k[1])))
        LAYOUT("heads: key's and value's are equal, query's and output's are equal and a multiple of them");
    if (q[2] != o[2] || k[2] != v[2])
        LAYOUT("length: query and output are equal, key and value are equal");
    if (q[3] != k[3] || v[3] != o[3] || !q[3] || !v[3])
        LAYOUT("size: query and key are equal, value and output are equal, and none is 0");
    for (int i = 0; i < 4; i++)
        if (q[i] > LENGTH_LIMIT || k[i] > LENGTH_LIMIT || v[i] > LENGTH_LIMIT)
            return fail(reason, CLATTN_ERROR_OVERFLOW, "an extent is above 2^31 - 65537");
    problem->packed_queries = problem->has[ATTENTION_QUERY_STARTS];
    problem->packed_keys = problem->has[ATTENTION_KEY_STARTS];
    if ((problem->packed_queries && q[0] != 1) || (problem->packed_keys && k[0] != 1))
        LAYOUT("packed sequences have batch 1");
    if (problem->packed_keys && paged)
        INVALID("a paged cache has no lengths.key_starts");
    if (problem->packed_keys && desc->cache.kind == CLATTN_CACHE_KIND_RING)
        INVALID("a ring has no lengths.key_starts");
    if (paged != problem->has[ATTENTION_BLOCK_TABLE])
        INVALID("cache.block_table comes with CLATTN_CACHE_KIND_PAGED and with nothing else");
    problem->batch = problem->packed_queries
                         ? desc->lengths.query_starts.extent[0] - (desc->lengths.query_starts.extent[0] > 0)
                         : q[0];
    if (problem->batch > LENGTH_LIMIT)
        return fail(reason, CLATTN_ERROR_OVERFLOW, "lengths.query_starts names more than 2^31 - 65537 items");
    problem->heads = q[1];
    problem->kv_heads = k[1];
    problem->query_length = problem->packed_queries && desc->lengths.longest_query ? desc->lengths.longest_query : q[2];
    if (!problem->packed_queries && desc->lengths.longest_query)
        INVALID("lengths.longest_query without lengths.query_starts");
    if (problem->query_length > q[2])
        INVALID("lengths.longest_query is above S_q");
    problem->key_length = k[2];
    problem->d_k = q[3];
    problem->d_v = v[3];
    if (!paged && !problem->packed_keys && k[0] != problem->batch)
        LAYOUT("query and key differ in batch");
    if (paged) {
        if (desc->cache.block_table.rank != 2 || desc->cache.block_table.extent[0] != problem->batch)
            LAYOUT("cache.block_table is not (batch, blocks)");
        if (!k[0] || !k[2])
            LAYOUT("a paged cache without pages");
        problem->page_size = k[2];
        if (!size_mul(desc->cache.block_table.extent[1], k[2], &problem->key_length) ||
            problem->key_length > LENGTH_LIMIT)
            return fail(reason, CLATTN_ERROR_OVERFLOW, "a paged cache has more than 2^31 - 65537 keys an item");
    }
    return CLATTN_SUCCESS;
}

/* A mask or bias: aligned extents and strides. */
static clattn_status check_mask(const struct attention_problem *problem, const clattn_layout *mask,
                                size_t mask_extent[4], array4 *strides, const char **reason)
{
    const size_t whole[3] = {problem->batch, problem->heads, problem->query_length};
    const bool is_bias = mask == &problem->desc.bias;
    int64_t stride[4];
    if (!dtype_is_storage(mask->dtype) && !(problem->is_double && mask->dtype == CLATTN_DTYPE_F64) &&
        (mask->dtype != CLATTN_DTYPE_BOOL || is_bias))
        UNSUPPORTED(is_bias ? "bias is float32, float16 or bfloat16, or float64 as all others are"
                            : "mask is bool, float32, float16 or bfloat16, or float64 as all others are");
    if (mask->rank > 4)
        LAYOUT(is_bias ? "bias has more than 4 dimensions" : "mask has more than 4 dimensions");
    mask_align(mask, 4, mask_extent, stride);
    for (int i = 0; i < 3; i++)
        if (mask_extent[i] != 1 && mask_extent[i] != whole[i])
            LAYOUT(is_bias ? "bias: batch, heads and queries are each 1 or the query's"
                           : "mask: batch, heads and queries are each 1 or the query's");
    if (mask_extent[3] > problem->key_length && mask_extent[3] != 1)
        LAYOUT(is_bias ? "bias covers more keys than there are" : "mask covers more keys than there are");
    if (mask_extent[3] < problem->key_length && mask_extent[3] != 1 && !problem->desc.short_mask)
        LAYOUT(is_bias ? "bias has fewer keys than key, without short_mask"
                       : "mask has fewer keys than key, without short_mask");
    if (problem->desc.cache.kind == CLATTN_CACHE_KIND_RING && mask_extent[3] != 1)
        UNSUPPORTED(is_bias ? "a ring takes no bias with more than one key"
                            : "a ring takes no mask with more than one key");
    *strides = (array4){0, stride[0], stride[1], stride[2], stride[3]};
    return CLATTN_SUCCESS;
}

/* (batch or 1 if packed, heads, S_q) float32. */
static clattn_status check_row_result(const struct attention_problem *problem, const clattn_layout *layout,
                                      const char **reason)
{
    const size_t *q = problem->desc.query.extent;
    if (layout->dtype != CLATTN_DTYPE_F32)
        UNSUPPORTED(layout == &problem->desc.outputs.lse ? "outputs.lse is float32" : "outputs.entropy is float32");
    if (layout->rank != 3 || layout->extent[0] != q[0] || layout->extent[1] != q[1] || layout->extent[2] != q[2])
        LAYOUT(layout == &problem->desc.outputs.lse ? "outputs.lse is (batch, heads, S_q)"
                                                    : "outputs.entropy is (batch, heads, S_q)");
    return CLATTN_SUCCESS;
}

static clattn_status check_scores(const struct attention_problem *problem, const char **reason)
{
    const clattn_attention_desc *desc = &problem->desc;
    const size_t *extent = desc->outputs.scores.extent;
    if (problem->packed_queries || problem->packed_keys || desc->cache.kind == CLATTN_CACHE_KIND_RING)
        UNSUPPORTED("outputs.scores is not for packed sequences or a ring");
    if (!dtype_is_storage(desc->outputs.scores.dtype))
        UNSUPPORTED("outputs.scores is float32, float16 or bfloat16");
    if (desc->outputs.scores.rank != 4 || extent[0] != problem->batch || extent[1] != problem->heads ||
        extent[2] != problem->query_length || extent[3] != problem->key_length)
        LAYOUT("outputs.scores is (batch, heads, S_q, S_k)");
    return CLATTN_SUCCESS;
}

static clattn_status check_integers(const struct attention_problem *problem, const char **reason)
{
    static const struct {
        enum attention_array array;
        unsigned more; /* elements than items */
        const char *reason;
    } arrays[] = {
        {ATTENTION_QUERY_LENGTHS, 0, "lengths.query is (batch), int32 or int64"},
        {ATTENTION_KEY_LENGTHS, 0, "lengths.key is (batch), int32 or int64"},
        {ATTENTION_POSITIONS, 0, "lengths.positions is (batch), int32 or int64"},
        {ATTENTION_QUERY_STARTS, 1, "lengths.query_starts is (batch + 1), int32 or int64"},
        {ATTENTION_KEY_STARTS, 1, "lengths.key_starts is (batch + 1), int32 or int64"},
    };
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        const clattn_layout *layout = attention_layout(&problem->desc, arrays[i].array);
        if (problem->has[arrays[i].array] && (!dtype_is_integer(layout->dtype) || layout->rank != 1 ||
                                              layout->extent[0] != problem->batch + arrays[i].more))
            LAYOUT(arrays[i].reason);
    }
    if (problem->has[ATTENTION_BLOCK_TABLE] && !dtype_is_integer(problem->desc.cache.block_table.dtype))
        LAYOUT("cache.block_table is int32 or int64");
    if (problem->has[ATTENTION_POSITIONS] && problem->desc.alignment != CLATTN_ALIGNMENT_EXPLICIT)
        INVALID("lengths.positions without CLATTN_ALIGNMENT_EXPLICIT");
    return CLATTN_SUCCESS;
}

static clattn_status check_scales(const clattn_attention_desc *desc, const clattn_layout *scale, const char **reason)
{
    bool of_key = scale == &desc->cache.key_scale;
    const clattn_layout *array = of_key ? &desc->key : &desc->value;
    if (scale->dtype != CLATTN_DTYPE_F32 && scale->dtype != CLATTN_DTYPE_F16)
        UNSUPPORTED(of_key ? "cache.key_scale: float32 and float16 are taken"
                           : "cache.value_scale: float32 and float16 are taken");
    if (scale->rank != 4 || scale->extent[0] != array->extent[0] || scale->extent[1] != array->extent[1] ||
        scale->extent[2] != array->extent[2] || !scale->extent[3] || array->extent[3] % scale->extent[3])
        LAYOUT(of_key ? "cache.key_scale is indexed as key, with groups that divide d_k"
                      : "cache.value_scale is indexed as value, with groups that divide d_v");
    return CLATTN_SUCCESS;
}

static clattn_status check_per_head(const struct attention_problem *problem, const char **reason)
{
    const clattn_attention_desc *desc = &problem->desc;
    const clattn_layout *alibi = &desc->scoring.alibi, *sinks = &desc->scoring.sinks, *vector = &desc->scoring.vector;
    if (problem->has[ATTENTION_ALIBI] &&
        (alibi->dtype != CLATTN_DTYPE_F32 || alibi->rank > 2 || alibi->extent[alibi->rank - 1] != problem->heads ||
         (alibi->rank == 2 && alibi->extent[0] != 1 && alibi->extent[0] != problem->batch)))
        LAYOUT("scoring.alibi is (heads) or (batch or 1, heads) float32");
    if (problem->has[ATTENTION_SINKS] &&
        (sinks->dtype != CLATTN_DTYPE_F32 || sinks->rank != 1 || sinks->extent[0] != problem->heads))
        LAYOUT("scoring.sinks is (heads) float32");
    if (problem->has[ATTENTION_VECTOR] != (desc->scoring.kind == CLATTN_SCORE_ADDITIVE))
        INVALID("scoring.vector comes with CLATTN_SCORE_ADDITIVE and with nothing else");
    if (problem->has[ATTENTION_VECTOR] &&
        (vector->dtype != CLATTN_DTYPE_F32 || vector->rank != 2 || vector->extent[1] != problem->d_k ||
         (vector->extent[0] != 1 && vector->extent[0] != problem->heads)))
        LAYOUT("scoring.vector is (heads or 1, d_k) float32");
    return CLATTN_SUCCESS;
}

static clattn_status check_optional(struct attention_problem *problem, const char **reason)
{
    clattn_status status = CLATTN_SUCCESS;
    const clattn_attention_desc *desc = &problem->desc;
    TRY(check_integers(problem, reason));
    TRY(check_per_head(problem, reason));
    if (problem->has[ATTENTION_MASK])
        TRY(check_mask(problem, &desc->mask, problem->mask_extent, &problem->mask, reason));
    if (problem->has[ATTENTION_BIAS])
        TRY(check_mask(problem, &desc->bias, problem->bias_extent, &problem->bias, reason));
    if (problem->has[ATTENTION_KEY_SCALE])
        TRY(check_scales(desc, &desc->cache.key_scale, reason));
    if (problem->has[ATTENTION_VALUE_SCALE])
        TRY(check_scales(desc, &desc->cache.value_scale, reason));
    if (problem->has[ATTENTION_LSE])
        TRY(check_row_result(problem, &desc->outputs.lse, reason));
    if (problem->has[ATTENTION_ENTROPY])
        TRY(check_row_result(problem, &desc->outputs.entropy, reason));
    if (problem->has[ATTENTION_SCORES])
        TRY(check_scores(problem, reason));
fail:
    return status;
}

/* ---- gradients ---- */

const clattn_layout *attention_differentiated(const clattn_attention_desc *desc, enum attention_gradient gradient)
{
    switch (gradient) {
    case GRADIENT_OUTPUT: return &desc->output;
    case GRADIENT_LSE: return &desc->outputs.lse;
    case GRADIENT_QUERY: return &desc->query;
    case GRADIENT_KEY: return &desc->key;
    case GRADIENT_VALUE: return &desc->value;
    case GRADIENT_MASK: return &desc->mask;
    case GRADIENT_BIAS: return &desc->bias;
    case GRADIENT_VECTOR: return &desc->scoring.vector;
    case GRADIENT_ALIBI: return &desc->scoring.alibi;
    default: return &desc->scoring.sinks;
    }
}

static clattn_status check_gradient(struct attention_problem *problem, enum attention_gradient gradient,
                                    const char **reason)
{
    clattn_status status;
    clattn_layout *layout = (clattn_layout *)((char *)&problem->desc + attention_gradients[gradient].layout);
    const clattn_layout *array = attention_differentiated(&problem->desc, gradient);
    const bool is_operand = gradient == GRADIENT_OUTPUT || (gradient >= GRADIENT_QUERY && gradient <= GRADIENT_VALUE);
    const bool is_pair = gradient == GRADIENT_MASK || gradient == GRADIENT_BIAS;
    const bool is_wide = problem->is_double && (is_operand || is_pair);
    problem->gradient[gradient] = !layout_is_none(layout);
    if (!problem->gradient[gradient]) {
        layout_normalise(layout);
        return CLATTN_SUCCESS;
    }
    TRY(layout_check(layout, gradient < ATTENTION_INPUT_GRADIENTS ? LAYOUT_INPUT : LAYOUT_OUTPUT,
                     &attention_gradients[gradient].words, reason));
    layout_normalise(layout);
    if (layout->rank != array->rank || memcmp(layout->extent, array->extent, sizeof layout->extent) != 0)
        LAYOUT("a gradient has other extents than its array");
    if (is_wide ? layout->dtype != CLATTN_DTYPE_F64
                : layout->dtype != CLATTN_DTYPE_F32 && !(is_operand && dtype_is_storage(layout->dtype)))
        UNSUPPORTED(
            "gradients are float32, those of query, key, value and output also float16 or bfloat16, and float64 "
            "if these are");
    if (gradient == GRADIENT_MASK && array->dtype == CLATTN_DTYPE_BOOL)
        INVALID("gradients.mask: a boolean mask has no derivative");
fail:
    return status;
}

static clattn_status check_gradients(struct attention_problem *problem, const char **reason)
{
    clattn_status status = CLATTN_SUCCESS;
    const clattn_attention_desc *desc = &problem->desc;
    bool written = false;
    if (!problem->has[ATTENTION_LSE])
        INVALID("outputs.lse: backward reads forward's log-sum-exp");
    if (problem->has[ATTENTION_ENTROPY] || problem->has[ATTENTION_SCORES])
        INVALID("outputs.entropy and outputs.scores are not for CLATTN_DIRECTION_BACKWARD");
    if (desc->cache.kind != CLATTN_CACHE_KIND_PLAIN || problem->has[ATTENTION_KEY_SCALE] ||
        problem->has[ATTENTION_VALUE_SCALE])
        UNSUPPORTED("there are no gradients of a ring, a paged cache, or integers");
    if (problem->score_mod && !problem->score_mod_grad)
        INVALID("snippets.score_mod_grad is missing: backward needs the derivative of snippets.score_mod");
    for (int i = 0; i < ATTENTION_GRADIENTS; i++) {
        TRY(check_gradient(problem, i, reason));
        written = written || (i >= ATTENTION_INPUT_GRADIENTS && problem->gradient[i]);
    }
    if (!problem->gradient[GRADIENT_OUTPUT])
        INVALID("gradients.output is missing");
    if (!written)
        INVALID("no gradient is asked for");
fail:
    return status;
}

/* What does not count must not tell two equal descriptions apart. */
static void normalise(struct attention_problem *problem)
{
    clattn_attention_desc *desc = &problem->desc;
    if (!desc->scoring.explicit_scale)
        desc->scoring.scale = 0;
    if (!desc->window.explicit_left)
        desc->window.left = -1;
    if (!desc->window.explicit_right)
        desc->window.right = -1;
    if (!desc->causal && !attention_windowed(desc) && !problem->has[ATTENTION_ALIBI] &&
        !attention_has_snippet(problem) && !problem->has[ATTENTION_POSITIONS])
        desc->alignment = CLATTN_ALIGNMENT_TOP_LEFT;
    if (!problem->has[ATTENTION_SCORES])
        desc->outputs.scores_mode = 0;
}

/* Everything but direction and gradients. */
static clattn_status read_forward(const void *desc, struct attention_problem *problem, const char **reason)
{
    clattn_status status;
    memset(problem, 0, sizeof *problem);
    *reason = "desc is NULL, or its size is none that clattn_attention_desc ever had";
    TRY(struct_read(&problem->desc, sizeof problem->desc, sizeof problem->desc, desc));
    TRY(check_enums(&problem->desc, reason));
    TRY(read_snippets(problem, reason));
    TRY(check_layouts(problem, reason));
    TRY(check_dtypes(problem, reason));
    TRY(check_sizes(problem, reason));
    TRY(check_optional(problem, reason));
    problem->exact_scale = problem->desc.scoring.explicit_scale                  ? (double)problem->desc.scoring.scale
                           : problem->desc.scoring.kind == CLATTN_SCORE_ADDITIVE ? 1.0
                                                                                 : 1.0 / sqrt((double)problem->d_k);
    problem->scale = (float)problem->exact_scale;
    normalise(problem);
fail:
    return status;
}

clattn_status attention_problem_read(const void *desc, void *result, const char **reason)
{
    clattn_status status;
    struct attention_problem *problem = result;
    TRY(read_forward(desc, problem, reason));
    for (int i = 0; i < ATTENTION_GRADIENTS; i++)
        if (!layout_is_none(attention_gradient_layout(&problem->desc, i)))
            INVALID("gradients are for CLATTN_DIRECTION_BACKWARD");
    if (problem->desc.outputs.partial)
        INVALID("outputs.partial is for CLATTN_DIRECTION_BACKWARD");
    memset(&problem->desc.gradients, 0, sizeof problem->desc.gradients);
    problem->score_mod_grad = NULL; /* it may be there for backward, and is no difference */
    memset(problem->score_mod_grad_digest, 0, sizeof problem->score_mod_grad_digest);
fail:
    return status;
}

clattn_status attention_backward_problem_read(const void *desc, void *result, const char **reason)
{
    clattn_status status;
    struct attention_problem *problem = result;
    TRY(read_forward(desc, problem, reason));
    problem->backward = true;
    status = check_gradients(problem, reason);
fail:
    return status;
}

const char *attention_refuse(const struct capabilities *caps, const struct attention_problem *problem)
{
    if (problem->is_double && !caps->info.has_fp64)
        return "the device has no float64";
    return NULL;
}

const char *attention_refuse_tiles(const struct capabilities *caps)
{
    return (caps->quirks & QUIRK_TILES_BREAK) && capabilities_on_cpu(caps)
               ? "this driver's compiler breaks attention's kernels for work-groups"
               : NULL;
}
