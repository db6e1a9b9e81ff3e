/* Checks a multi-head attention's description and divides it into products and an attention. */
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "nn/mha/mha.h"
#include "ops/common/arrays.h"

#define SIZE_LIMIT ((size_t)1 << 31)

/* Replaces zeros by what they mean, and checks what the operators' own checks do not. */
static clattn_status complete(struct mha_problem *problem, const char **reason)
{
    clattn_mha_desc *desc = &problem->desc;
    size_t inner;
    REQUIRE(desc->direction == CLATTN_DIRECTION_FORWARD, CLATTN_ERROR_INVALID_ARGUMENT,
            "direction: only CLATTN_DIRECTION_FORWARD is known");
    REQUIRE(is_flag(desc->cross), CLATTN_ERROR_INVALID_ARGUMENT, "cross is neither 0 nor 1");
    REQUIRE(is_flag(desc->packed_weights), CLATTN_ERROR_INVALID_ARGUMENT, "packed_weights is neither 0 nor 1");
    REQUIRE(is_flag(desc->bias_in), CLATTN_ERROR_INVALID_ARGUMENT, "bias_in is neither 0 nor 1");
    REQUIRE(is_flag(desc->bias_out), CLATTN_ERROR_INVALID_ARGUMENT, "bias_out is neither 0 nor 1");
    REQUIRE(enum_within(desc->weights, CLATTN_WEIGHTS_OUTPUT_AVERAGE), CLATTN_ERROR_INVALID_ARGUMENT,
            "unknown weights");
    REQUIRE(is_flag(desc->short_mask), CLATTN_ERROR_INVALID_ARGUMENT, "short_mask is neither 0 nor 1");
    if (!desc->dtype)
        desc->dtype = CLATTN_DTYPE_F32;
    REQUIRE(dtype_is_storage(desc->dtype), CLATTN_ERROR_UNSUPPORTED,
            "inputs, weights and output are float32, float16 or bfloat16");
    REQUIRE(desc->d_model && desc->heads, CLATTN_ERROR_INVALID_LAYOUT, "d_model and heads are at least 1");
    if (!desc->kv_heads)
        desc->kv_heads = desc->heads;
    REQUIRE(desc->heads % desc->kv_heads == 0, CLATTN_ERROR_INVALID_LAYOUT, "heads is no multiple of kv_heads");
    REQUIRE(desc->head_size || desc->d_model % desc->heads == 0, CLATTN_ERROR_INVALID_LAYOUT,
            "d_model is no multiple of heads; give head_size");
    if (!desc->head_size)
        desc->head_size = desc->d_model / desc->heads;
    if (!desc->cross) {
        REQUIRE((!desc->d_context || desc->d_context == desc->d_model) &&
                    (!desc->d_context_value || desc->d_context_value == desc->d_model),
                CLATTN_ERROR_INVALID_LAYOUT, "self-attention has keys and values of d_model columns");
        desc->d_context_value = 0;
        desc->key_length = desc->query_length;
    }
    if (!desc->d_context)
        desc->d_context = desc->d_model;
    /* d_context_value stays as given: 0 says that the values have no array of their own. */
    problem->separate_values = desc->d_context_value != 0;
    problem->d_values = problem->separate_values ? desc->d_context_value : desc->d_context;
    REQUIRE(!desc->packed_weights || (desc->kv_heads == desc->heads && desc->d_context == desc->d_model &&
                                      problem->d_values == desc->d_model),
            CLATTN_ERROR_INVALID_LAYOUT,
            "packed weights need kv_heads = heads and d_context = d_context_value = d_model");
    REQUIRE(desc->batch < SIZE_LIMIT && desc->query_length < SIZE_LIMIT && desc->key_length < SIZE_LIMIT &&
                desc->d_model < SIZE_LIMIT && desc->d_context < SIZE_LIMIT && problem->d_values < SIZE_LIMIT &&
                size_mul(desc->heads, desc->head_size, &inner) && inner < SIZE_LIMIT / 4,
            CLATTN_ERROR_OVERFLOW, "a size is 2^31 or more");
    return CLATTN_SUCCESS;
}

/* Rows of `columns` elements, `stride` apart, `length` of them in each item of the batch. */
static clattn_layout rows_of(const clattn_mha_desc *desc, size_t length, size_t columns, size_t stride)
{
    clattn_layout layout = {.dtype = desc->dtype,
                            .rank = 3,
                            .extent = {desc->batch, length, columns},
                            .stride = {(int64_t)(length * stride), (int64_t)stride, 1}};
    return layout;
}

/* Heads within such rows: (batch, heads, length, size). */
static clattn_layout heads_of(const clattn_mha_desc *desc, size_t heads, size_t length, size_t stride)
{
    const size_t size = desc->head_size;
    clattn_layout layout = {.dtype = desc->dtype,
                            .rank = 4,
                            .extent = {desc->batch, heads, length, size},
                            .stride = {(int64_t)(length * stride), (int64_t)size, (int64_t)stride, 1}};
    return layout;
}

/* rows (.., in) times a weight stored (out, in). */
static clattn_matmul_desc linear(clattn_layout rows, clattn_layout result, bool bias)
{
    clattn_matmul_desc desc;
    const size_t in = rows.extent[2], out = result.extent[2];
    clattn_matmul_desc_init(&desc);
    desc.a = rows;
    desc.b = (clattn_layout){.dtype = rows.dtype, .rank = 2, .extent = {in, out}, .stride = {1, (int64_t)in}};
    desc.c = result;
    if (bias)
        desc.bias = clattn_layout_contiguous(rows.dtype, 1, &out);
    return desc;
}

/* Whether the sizes in bytes of a few such arrays, in the workspace, can be added without overflowing. */
static bool fits(const clattn_mha_desc *desc, size_t length, size_t columns)
{
    size_t elements;
    return size_mul(desc->batch, length, &elements) && size_mul(elements, columns, &elements) &&
           elements < SIZE_MAX / 32;
}

/* Adds the product of `length` rows of `source`, `in` wide, that makes `out` columns of rows `stride` apart. */
static void add(struct mha_problem *problem, enum mha_part part, enum mha_slot source, size_t length, size_t in,
                size_t out, size_t stride)
{
    const clattn_mha_desc *d = &problem->desc;
    const bool packed = d->packed_weights;
    problem->projection[problem->projections++] = (struct mha_product){
        .desc = linear(rows_of(d, length, in, in), rows_of(d, length, out, stride), d->bias_in),
        .part = part,
        .source = source,
        .weight = packed ? SLOT_W_IN : (enum mha_slot)(SLOT_W_Q + part),
        .bias = packed ? SLOT_B_IN : (enum mha_slot)(SLOT_B_Q + part),
        .weight_offset = packed ? part * problem->inner * d->d_model : 0,
        .bias_offset = packed ? part * problem->inner : 0,
    };
}

/* As few products as possible: one for queries, keys and values if they have one input and packed weights, and so on.
 * */
static void compose_projections(struct mha_problem *problem)
{
    const clattn_mha_desc *d = &problem->desc;
    const enum mha_slot keys = d->cross ? SLOT_CONTEXT : SLOT_X;
    const enum mha_slot values = problem->separate_values ? SLOT_CONTEXT_VALUE : keys;
    const size_t query_stride = problem->query_stride, kv_stride = problem->kv_stride;
    if (d->packed_weights && !d->cross) {
        add(problem, MHA_QUERY, SLOT_X, d->query_length, d->d_model, 3 * problem->inner, query_stride);
        return;
    }
    add(problem, MHA_QUERY, SLOT_X, d->query_length, d->d_model, problem->inner, query_stride);
    if (d->packed_weights && !problem->separate_values) {
        add(problem, MHA_KEY, keys, d->key_length, d->d_context, 2 * problem->inner_kv, kv_stride);
        return;
    }
    add(problem, MHA_KEY, keys, d->key_length, d->d_context, problem->inner_kv, kv_stride);
    add(problem, MHA_VALUE, values, d->key_length, problem->d_values, problem->inner_kv, kv_stride);
}

static void compose_attention(struct mha_problem *problem)
{
    const clattn_mha_desc *d = &problem->desc;
    clattn_attention_desc *a = &problem->attention;
    clattn_attention_desc_init(a);
    a->causal = d->causal;
    a->alignment = d->alignment;
    a->scoring.explicit_scale = d->explicit_scale;
    a->scoring.scale = d->scale;
    a->mask = d->mask;
    a->short_mask = d->short_mask;
    a->query = heads_of(d, d->heads, d->query_length, problem->query_stride);
    a->key = a->value = heads_of(d, d->kv_heads, d->key_length, problem->kv_stride);
    a->output = heads_of(d, d->heads, d->query_length, problem->inner);
    if (d->weights) {
        const size_t lse[3] = {d->batch, d->heads, d->query_length};
        a->outputs.lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, lse);
        problem->weights =
            clattn_layout_bhsd(CLATTN_DTYPE_F32, d->batch, d->weights == CLATTN_WEIGHTS_OUTPUT_AVERAGE ? 1 : d->heads,
                               d->query_length, d->key_length);
    }
}

clattn_status mha_problem_read(const clattn_mha_desc *given, struct mha_problem *problem, const char **reason)
{
    clattn_status status;
    clattn_mha_desc *d = &problem->desc;
    memset(problem, 0, sizeof *problem);
    *reason = "desc is NULL, or its size is none that clattn_mha_desc ever had";
    TRY(struct_read(d, sizeof *d, sizeof *d, given));
    TRY(complete(problem, reason));
    layout_normalise(&d->mask);
    problem->inner = d->heads * d->head_size;
    problem->inner_kv = d->kv_heads * d->head_size;
    /* Self-attention stores a token's queries, keys and values side by side, so that one product can write them. */
    problem->query_stride = d->cross ? problem->inner : problem->inner + 2 * problem->inner_kv;
    problem->kv_stride = d->cross ? 2 * problem->inner_kv : problem->query_stride;
    REQUIRE(fits(d, d->query_length, problem->query_stride) && fits(d, d->key_length, problem->kv_stride),
            CLATTN_ERROR_OVERFLOW, "the workspace overflows");
    compose_projections(problem);
    compose_attention(problem);
    problem->output.desc = linear(rows_of(d, d->query_length, problem->inner, problem->inner),
                                  rows_of(d, d->query_length, d->d_model, d->d_model), d->bias_out);
    problem->output.weight = SLOT_W_O;
    problem->output.bias = SLOT_B_O;
fail:
    return status;
}
