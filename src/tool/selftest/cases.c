/* Small problems of every operator.  Each is there for the kernels that its plan builds; the library's self-check then runs
 * them with numbers of its own.  Of 16-bit types there are few: each type is another set of kernels to compile, and the
 * arithmetic between loading and storing is float32's. */
#include <stdbool.h>

#include "base/size.h"
#include "tool/selftest/selftest.h"

#define F32 CLATTN_DTYPE_F32
#define F16 CLATTN_DTYPE_F16
#define BF16 CLATTN_DTYPE_BF16

static clattn_layout layout(clattn_dtype dtype, int32_t rank, const size_t *extent)
{
    return clattn_layout_contiguous(dtype, rank, extent);
}

static clattn_layout vector(clattn_dtype dtype, size_t length)
{
    return layout(dtype, 1, &length);
}

static clattn_layout matrix(clattn_dtype dtype, size_t rows, size_t columns)
{
    return layout(dtype, 2, (size_t[]){rows, columns});
}

/* A flag of some operators' variants: the gradient. */
#define BACKWARD 0x100

static clattn_direction direction_of(const selftest_case *c)
{
    return c->variant & BACKWARD ? CLATTN_DIRECTION_BACKWARD : CLATTN_DIRECTION_FORWARD;
}

/* ---- attention: batch, heads, kv_heads, queries, keys, d_k, d_v; an added mask has a gradient, too ---- */

enum { CAUSAL = 1, BOTTOM_RIGHT = 2, BOOL_MASK = 4, ADDED_MASK = 8 };

static const selftest_case attention_cases[] = {
    {"plain", F32, {1, 2, 2, 33, 47, 16, 16}, 0},
    {"odd sizes, shared heads", F32, {2, 3, 1, 7, 13, 5, 3}, 0},
    {"one query", F32, {1, 4, 2, 1, 100, 64, 64}, 0},
    {"causal", F32, {1, 2, 1, 40, 9, 16, 16}, CAUSAL},
    {"causal, bottom right", F32, {1, 4, 2, 35, 19, 16, 16}, CAUSAL | BOTTOM_RIGHT},
    {"boolean mask", F32, {2, 2, 2, 17, 29, 16, 16}, BOOL_MASK},
    {"added mask", F32, {2, 2, 1, 17, 29, 16, 16}, CAUSAL | BOTTOM_RIGHT | ADDED_MASK},
    {"large heads", F32, {1, 1, 1, 20, 40, 64, 64}, 0},
    {"float16, causal, bottom right", F16, {1, 4, 2, 47, 35, 20, 12}, CAUSAL | BOTTOM_RIGHT},
    {"bfloat16, causal, bottom right", BF16, {1, 4, 2, 47, 35, 20, 12}, CAUSAL | BOTTOM_RIGHT},
    {"float16, one query", F16, {1, 4, 2, 1, 100, 64, 64}, 0},
    {"bfloat16, one query", BF16, {1, 4, 2, 1, 100, 64, 64}, 0},
    {"float16, boolean mask", F16, {2, 2, 2, 17, 29, 16, 16}, BOOL_MASK},
    {"bfloat16, boolean mask", BF16, {2, 2, 2, 17, 29, 16, 16}, BOOL_MASK},
};
static const selftest_case attention_backward_cases[] = {
    {"shared heads, causal, bottom right", F32, {1, 3, 1, 35, 19, 5, 3}, BACKWARD | CAUSAL | BOTTOM_RIGHT},
    {"float16, added mask", F16, {2, 2, 1, 17, 29, 16, 16}, BACKWARD | ADDED_MASK},
    {"bfloat16", BF16, {1, 4, 2, 47, 35, 20, 12}, BACKWARD},
};

static clattn_status plan_attention(clattn_context *context, const selftest_case *c, const clattn_plan_options *options,
                                    clattn_plan **plan)
{
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    const size_t *n = c->size;
    desc.query = clattn_layout_bhsd(c->dtype, n[0], n[1], n[3], n[5]);
    desc.key = clattn_layout_bhsd(c->dtype, n[0], n[2], n[4], n[5]);
    desc.value = clattn_layout_bhsd(c->dtype, n[0], n[2], n[4], n[6]);
    desc.output = clattn_layout_bhsd(c->dtype, n[0], n[1], n[3], n[6]);
    desc.outputs.lse = layout(F32, 3, (size_t[]){n[0], n[1], n[3]});
    desc.causal = (c->variant & CAUSAL) != 0;
    desc.alignment = c->variant & BOTTOM_RIGHT ? CLATTN_ALIGNMENT_BOTTOM_RIGHT : CLATTN_ALIGNMENT_TOP_LEFT;
    if (c->variant & (BOOL_MASK | ADDED_MASK))
        desc.mask = matrix(c->variant & BOOL_MASK ? CLATTN_DTYPE_BOOL : F32, n[3], n[4]);
    desc.direction = direction_of(c);
    if (c->variant & BACKWARD) {
        desc.gradients.output = desc.output;
        desc.gradients.query = desc.query;
        desc.gradients.key = desc.key;
        desc.gradients.value = desc.value;
        if (c->variant & ADDED_MASK)
            desc.gradients.mask = desc.mask;
    }
    return clattn_attention_plan_create(context, &desc, options, plan);
}

/* ---- softmax: rows, columns ---- */

static const selftest_case softmax_cases[] = {
    {"one element", F32, {1, 1}, 0},
    {"short rows", F32, {5, 33}, 0},
    {"long rows", F32, {3, 5000}, 0},
    {"boolean mask", F32, {6, 65}, BOOL_MASK},
    {"added mask", F32, {6, 65}, ADDED_MASK},
    {"float16, long rows", F16, {3, 5000}, 0},
    {"bfloat16, long rows", BF16, {3, 5000}, 0},
    {"float16, boolean mask", F16, {6, 65}, BOOL_MASK},
    {"bfloat16, boolean mask", BF16, {6, 65}, BOOL_MASK},
    {"gradient, short rows", F32, {5, 33}, BACKWARD},
    {"gradient, long rows", F32, {3, 5000}, BACKWARD},
};

static clattn_status plan_softmax(clattn_context *context, const selftest_case *c, const clattn_plan_options *options,
                                  clattn_plan **plan)
{
    clattn_softmax_desc desc = CLATTN_SOFTMAX_DESC_INIT;
    desc.direction = direction_of(c);
    desc.y = matrix(c->dtype, c->size[0], c->size[1]);
    if (c->variant & BACKWARD)
        desc.gradients.x = desc.gradients.y = desc.y;
    else
        desc.x = desc.y;
    if (c->variant & (BOOL_MASK | ADDED_MASK))
        desc.mask = matrix(c->variant & BOOL_MASK ? CLATTN_DTYPE_BOOL : F32, c->size[0], c->size[1]);
    return clattn_softmax_plan_create(context, &desc, options, plan);
}

/* ---- matmul: m, n, k; the variant tells whether there is a bias, and whether gradients ---- */

static const selftest_case matmul_cases[] = {
    {"one element", F32, {1, 1, 1}, false},
    {"odd sizes", F32, {5, 7, 3}, true},
    {"one row", F32, {1, 130, 70}, true},
    {"primes", F32, {67, 101, 53}, true},
    {"whole tiles", F32, {64, 128, 96}, false},
    {"float16, one row", F16, {1, 130, 70}, true},
    {"bfloat16, one row", BF16, {1, 130, 70}, true},
    {"float16, primes", F16, {67, 101, 53}, true},
    {"bfloat16, primes", BF16, {67, 101, 53}, true},
    {"float16, whole tiles", F16, {64, 128, 96}, false},
    {"bfloat16, whole tiles", BF16, {64, 128, 96}, false},
    {"gradients", F32, {67, 101, 53}, BACKWARD},
};

/* B lies as a layer's weights do: (n, k). */
static clattn_status plan_matmul(clattn_context *context, const selftest_case *c, const clattn_plan_options *options,
                                 clattn_plan **plan)
{
    clattn_matmul_desc desc = CLATTN_MATMUL_DESC_INIT;
    const size_t m = c->size[0], n = c->size[1], k = c->size[2];
    desc.a = matrix(c->dtype, m, k);
    desc.b = matrix(c->dtype, k, n);
    desc.b.stride[0] = 1;
    desc.b.stride[1] = (int64_t)k;
    desc.c = matrix(c->dtype, m, n);
    if (c->variant)
        desc.bias = vector(c->dtype, n);
    if (c->variant & BACKWARD) {
        desc.direction = direction_of(c);
        desc.activation = CLATTN_ACTIVATION_GELU;
        desc.gradients.a = desc.a;
        desc.gradients.b = desc.b;
        desc.gradients.bias = desc.bias;
        desc.gradients.c = desc.c;
        desc.c = (clattn_layout){0};
    }
    return clattn_matmul_plan_create(context, &desc, options, plan);
}

/* ---- mha: batch, queries, keys (0: self-attention with packed weights), d_model, d_context, heads ---- */

enum { MHA_WEIGHTS = 3, MHA_BIAS = 4, MHA_CAUSAL = 8 }; /* the lowest bits are a clattn_weights_output */

static const selftest_case mha_cases[] = {
    {"self-attention", F32, {2, 9, 0, 24, 24, 3}, CLATTN_WEIGHTS_OUTPUT_PER_HEAD | MHA_BIAS},
    {"self-attention, causal, no bias", F32, {1, 13, 0, 20, 20, 4}, CLATTN_WEIGHTS_OUTPUT_NONE | MHA_CAUSAL},
    {"cross-attention, mean weights", F32, {2, 7, 11, 16, 12, 2}, CLATTN_WEIGHTS_OUTPUT_AVERAGE | MHA_BIAS},
    {"float16, self-attention", F16, {2, 9, 0, 24, 24, 3}, CLATTN_WEIGHTS_OUTPUT_PER_HEAD | MHA_BIAS},
    {"bfloat16, self-attention", BF16, {2, 9, 0, 24, 24, 3}, CLATTN_WEIGHTS_OUTPUT_PER_HEAD | MHA_BIAS},
    {"float16, cross-attention", F16, {2, 9, 11, 16, 12, 2}, CLATTN_WEIGHTS_OUTPUT_AVERAGE | MHA_BIAS},
    {"bfloat16, cross-attention", BF16, {2, 9, 11, 16, 12, 2}, CLATTN_WEIGHTS_OUTPUT_AVERAGE | MHA_BIAS},
};

static clattn_status plan_mha(clattn_context *context, const selftest_case *c, const clattn_plan_options *options,
                              clattn_plan **plan)
{
    clattn_mha_desc desc = CLATTN_MHA_DESC_INIT;
    desc.dtype = c->dtype;
    desc.cross = c->size[2] != 0;
    desc.packed_weights = !desc.cross;
    desc.bias_in = desc.bias_out = (c->variant & MHA_BIAS) != 0;
    desc.causal = (c->variant & MHA_CAUSAL) != 0;
    desc.weights = (clattn_weights_output)(c->variant & MHA_WEIGHTS);
    desc.batch = c->size[0];
    desc.query_length = c->size[1];
    desc.key_length = c->size[2];
    desc.d_model = c->size[3];
    desc.d_context = c->size[4];
    desc.heads = c->size[5];
    if (desc.cross)
        desc.mask = matrix(CLATTN_DTYPE_BOOL, c->size[1], c->size[2]);
    return clattn_mha_plan_create(context, &desc, options, plan);
}

/* ---- merge: parts, heads, queries, columns; the variant tells whether there are sinks ---- */

static const selftest_case merge_cases[] = {
    {"one part", F32, {1, 2, 3, 20}, false},
    {"seven parts", F32, {7, 3, 5, 64}, false},
    {"with sinks", F32, {4, 4, 3, 130}, true},
};

static clattn_status plan_merge(clattn_context *context, const selftest_case *c, const clattn_plan_options *options,
                                clattn_plan **plan)
{
    clattn_merge_desc desc = CLATTN_MERGE_DESC_INIT;
    const size_t extent[5] = {c->size[0], 1, c->size[1], c->size[2], c->size[3]};
    desc.partial = layout(F32, 5, extent);
    desc.partial_lse = layout(F32, 4, extent);
    desc.output = layout(c->dtype, 4, extent + 1);
    desc.lse = layout(F32, 3, extent + 1);
    if (c->variant)
        desc.sinks = vector(F32, c->size[1]);
    return clattn_merge_plan_create(context, &desc, options, plan);
}

/* ---- adam and square_sum: elements; adam's variant tells what there is besides ---- */

enum { STORED = 1, SQUARES = 2 };

static const selftest_case adam_cases[] = {
    {"parameters", F32, {1000}, 0},
    {"clipped", F32, {1000}, SQUARES},
    {"clipped, stored", F16, {1000}, SQUARES | STORED},
    {"stored", BF16, {1000}, STORED},
};

static clattn_status plan_adam(clattn_context *context, const selftest_case *c, const clattn_plan_options *options,
                               clattn_plan **plan)
{
    clattn_adam_desc desc = CLATTN_ADAM_DESC_INIT;
    desc.parameter = desc.first_moment = desc.second_moment = vector(F32, c->size[0]);
    desc.gradient = vector(c->dtype, c->size[0]);
    if (c->variant & STORED)
        desc.stored = vector(c->dtype, c->size[0]);
    if (c->variant & SQUARES)
        desc.squares = vector(F32, 1);
    return clattn_adam_plan_create(context, &desc, options, plan);
}

static const selftest_case square_sum_cases[] = {
    {"one block", F32, {1000}, 0},
    {"blocks", F32, {50000}, 0},
    {"float16", F16, {50000}, 0},
    {"bfloat16", BF16, {50000}, 0},
};

static clattn_status plan_square_sum(clattn_context *context, const selftest_case *c,
                                     const clattn_plan_options *options, clattn_plan **plan)
{
    clattn_square_sum_desc desc = CLATTN_SQUARE_SUM_DESC_INIT;
    desc.x = vector(c->dtype, c->size[0]);
    desc.result = vector(F32, 1);
    return clattn_square_sum_plan_create(context, &desc, options, plan);
}

/* ---- kv_append: heads, length, capacity, size, groups of int8 (0: float32) ---- */

enum { RING = 1, ROTATE = 2 };

static const selftest_case kv_append_cases[] = {
    {"one key", F32, {3, 1, 9, 64, 0}, 0},
    {"rotated", F32, {2, 6, 9, 40, 0}, ROTATE},
    {"round a ring", F32, {2, 7, 5, 24, 0}, RING | ROTATE},
    {"int8", F32, {2, 5, 9, 64, 2}, 0},
    {"int8, rotated", F32, {1, 5, 9, 48, 3}, RING | ROTATE},
};

static clattn_status plan_kv_append(clattn_context *context, const selftest_case *c, const clattn_plan_options *options,
                                    clattn_plan **plan)
{
    clattn_kv_append_desc desc = CLATTN_KV_APPEND_DESC_INIT;
    const size_t heads = c->size[0], capacity = c->size[2], size = c->size[3], groups = c->size[4];
    desc.cache = c->variant & RING ? CLATTN_CACHE_KIND_RING : CLATTN_CACHE_KIND_PLAIN;
    desc.rotate = (c->variant & ROTATE) != 0;
    desc.key = desc.value = clattn_layout_bhsd(c->dtype, 1, heads, c->size[1], size);
    desc.key_cache = desc.value_cache =
        clattn_layout_bhsd(groups ? CLATTN_DTYPE_I8 : c->dtype, 1, heads, capacity, size);
    if (groups)
        desc.key_scale = desc.value_scale = clattn_layout_bhsd(F32, 1, heads, capacity, groups);
    return clattn_kv_append_plan_create(context, &desc, options, plan);
}

/* ---- neighbourhood: heads, kv_heads, height, width, d_k, d_v, window; with CLIPPED windows are clipped at the edge, and there
 * is a bias ---- */

#define CLIPPED 1

static const selftest_case neighbourhood_cases[] = {
    {"3 by 3", F32, {2, 2, 7, 11, 16, 16, 3}, 0},
    {"shared heads", F32, {4, 2, 9, 13, 20, 12, 5}, 0},
    {"clipped, with a bias", F32, {1, 1, 8, 17, 3, 3, 7}, CLIPPED},
};
static const selftest_case neighbourhood_backward_cases[] = {
    {"3 by 3", F32, {2, 2, 7, 11, 16, 16, 3}, BACKWARD},
    {"shared heads, clipped, with a bias", F32, {4, 2, 7, 11, 20, 12, 3}, BACKWARD | CLIPPED},
};

static clattn_status plan_neighbourhood(clattn_context *context, const selftest_case *c,
                                        const clattn_plan_options *options, clattn_plan **plan)
{
    clattn_neighbourhood_desc desc = CLATTN_NEIGHBOURHOOD_DESC_INIT;
    const size_t *n = c->size;
    desc.query = layout(c->dtype, 5, (size_t[]){1, n[0], n[2], n[3], n[4]});
    desc.key = layout(c->dtype, 5, (size_t[]){1, n[1], n[2], n[3], n[4]});
    desc.value = layout(c->dtype, 5, (size_t[]){1, n[1], n[2], n[3], n[5]});
    desc.window[0] = desc.window[1] = (int32_t)n[6];
    desc.edge = c->variant & CLIPPED ? CLATTN_EDGE_CLIP : CLATTN_EDGE_SHIFT;
    if (c->variant & CLIPPED)
        desc.bias = layout(F32, 4, (size_t[]){1, 1, n[2], n[3]});
    desc.direction = direction_of(c);
    const clattn_layout output = layout(c->dtype, 5, (size_t[]){1, n[0], n[2], n[3], n[5]});
    if (c->variant & BACKWARD) {
        desc.gradients.output = output;
        desc.gradients.query = desc.query;
        desc.gradients.key = desc.key;
        desc.gradients.value = desc.value;
        desc.gradients.bias = desc.bias;
    } else {
        desc.output = output;
        desc.lse = layout(F32, 4, (size_t[]){1, n[0], n[2], n[3]});
    }
    return clattn_neighbourhood_plan_create(context, &desc, options, plan);
}

/* ---- conv2d: channels, outputs, height, width, kernel, groups, stride; the variant tells whether channels are neighbours in
 * memory, with a bias and ReLU ---- */

static const selftest_case conv2d_cases[] = {
    {"3 by 3", F32, {5, 66, 9, 13, 3, 1, 1}, false},
    {"NHWC, float16", F16, {5, 19, 9, 13, 3, 1, 2}, true},
    {"depthwise", F32, {19, 19, 9, 13, 3, 19, 1}, true},
};

static clattn_status plan_conv2d(clattn_context *context, const selftest_case *c, const clattn_plan_options *options,
                                 clattn_plan **plan)
{
    clattn_conv2d_desc desc = CLATTN_CONV2D_DESC_INIT;
    const size_t *n = c->size, height = (n[2] - n[4]) / n[6] + 1, width = (n[3] - n[4]) / n[6] + 1;
    desc.x = layout(c->dtype, 4, (size_t[]){1, n[0], n[2], n[3]});
    desc.weight = layout(c->dtype, 4, (size_t[]){n[1], n[0] / n[5], n[4], n[4]});
    desc.y = layout(c->dtype, 4, (size_t[]){1, n[1], height, width});
    desc.groups = (int32_t)n[5];
    desc.stride[0] = desc.stride[1] = (int32_t)n[6];
    if (c->variant) {
        desc.x.stride[1] = desc.y.stride[1] = 1;
        desc.x.stride[3] = (int64_t)n[0];
        desc.x.stride[2] = (int64_t)(n[0] * n[3]);
        desc.y.stride[3] = (int64_t)n[1];
        desc.y.stride[2] = (int64_t)(n[1] * width);
        desc.bias = layout(F32, 1, &n[1]);
        desc.activation = CLATTN_ACTIVATION_RELU;
    }
    return clattn_conv2d_plan_create(context, &desc, options, plan);
}

/* ---- norm: rows, columns ---- */

enum { RMS = 1, SCALE = 2, BIAS = 4 };

static const selftest_case norm_cases[] = {
    {"one column", F32, {3, 1}, SCALE | BIAS},
    {"layer", F32, {5, 77}, SCALE | BIAS},
    {"layer, long rows", F32, {4, 1100}, SCALE | BIAS},
    {"layer, no weights", F32, {33, 64}, 0},
    {"RMS", F32, {7, 130}, RMS | SCALE},
    {"RMS, long rows", F32, {3, 1024}, RMS | SCALE},
    {"float16, layer", F16, {5, 77}, SCALE | BIAS},
    {"bfloat16, layer", BF16, {5, 77}, SCALE | BIAS},
    {"float16, RMS", F16, {7, 130}, RMS | SCALE},
    {"bfloat16, RMS", BF16, {7, 130}, RMS | SCALE},
    {"gradients, layer", F32, {5, 77}, BACKWARD | SCALE | BIAS},
    {"gradients, layer, long rows", F32, {4, 1100}, BACKWARD | SCALE | BIAS},
    {"gradients, RMS", F32, {7, 130}, BACKWARD | RMS | SCALE},
};

static clattn_status plan_norm(clattn_context *context, const selftest_case *c, const clattn_plan_options *options,
                               clattn_plan **plan)
{
    clattn_norm_desc desc = CLATTN_NORM_DESC_INIT;
    desc.kind = c->variant & RMS ? CLATTN_NORM_KIND_RMS : CLATTN_NORM_KIND_LAYER;
    desc.direction = direction_of(c);
    desc.x = matrix(c->dtype, c->size[0], c->size[1]);
    if (c->variant & SCALE)
        desc.scale = vector(c->dtype, c->size[1]);
    if (c->variant & BACKWARD) {
        desc.gradients.x = desc.gradients.y = desc.x;
        desc.gradients.scale = desc.scale;
        if (c->variant & BIAS)
            desc.gradients.bias = desc.scale;
    } else {
        desc.y = desc.x;
        desc.inv_std_dev = matrix(F32, c->size[0], 1);
        if (c->variant & BIAS)
            desc.bias = desc.scale;
    }
    return clattn_norm_plan_create(context, &desc, options, plan);
}

/* ---- pool: channels, height and width of x, window, stride; the variant is the kind ---- */

static const selftest_case pool_cases[] = {
    {"max", F32, {3, 9, 21, 3, 2}, CLATTN_POOL_KIND_MAX},
    {"average", F32, {20, 8, 10, 2, 2}, CLATTN_POOL_KIND_AVERAGE},
    {"float16, whole", F16, {5, 7, 7, 7, 7}, CLATTN_POOL_KIND_AVERAGE},
    {"gradient of max", F32, {3, 9, 21, 3, 2}, BACKWARD | CLATTN_POOL_KIND_MAX},
    {"gradient of average", F32, {20, 8, 10, 2, 2}, BACKWARD | CLATTN_POOL_KIND_AVERAGE},
};

static clattn_status plan_pool(clattn_context *context, const selftest_case *c, const clattn_plan_options *options,
                               clattn_plan **plan)
{
    clattn_pool_desc desc = CLATTN_POOL_DESC_INIT;
    const size_t *n = c->size;
    const clattn_layout x = layout(c->dtype, 4, (size_t[]){1, n[0], n[1], n[2]});
    const clattn_layout y =
        layout(c->dtype, 4, (size_t[]){1, n[0], (n[1] - n[3]) / n[4] + 1, (n[2] - n[3]) / n[4] + 1});
    desc.direction = direction_of(c);
    desc.kind = (clattn_pool_kind)(c->variant & ~BACKWARD);
    desc.window[0] = desc.window[1] = (int32_t)n[3];
    desc.stride[0] = desc.stride[1] = (int32_t)n[4];
    if (!(c->variant & BACKWARD) || desc.kind == CLATTN_POOL_KIND_MAX)
        desc.x = x;
    if (c->variant & BACKWARD) {
        desc.gradients.x = x;
        desc.gradients.y = y;
    } else {
        desc.y = y;
    }
    return clattn_pool_plan_create(context, &desc, options, plan);
}

/* ---- resize: channels, height and width of x, those of y; the variant is the mode, antialiased if it is bicubic ---- */

static const selftest_case resize_cases[] = {
    {"nearest", F32, {3, 7, 9, 12, 20}, CLATTN_RESIZE_MODE_NEAREST},
    {"bilinear", F32, {3, 7, 9, 14, 18}, CLATTN_RESIZE_MODE_BILINEAR},
    {"float16, bicubic, antialiased", F16, {2, 17, 33, 5, 13}, CLATTN_RESIZE_MODE_BICUBIC},
};

static clattn_status plan_resize(clattn_context *context, const selftest_case *c, const clattn_plan_options *options,
                                 clattn_plan **plan)
{
    clattn_resize_desc desc = CLATTN_RESIZE_DESC_INIT;
    const size_t *n = c->size;
    desc.mode = (clattn_resize_mode)c->variant;
    desc.antialias = desc.mode == CLATTN_RESIZE_MODE_BICUBIC;
    desc.x = layout(c->dtype, 4, (size_t[]){1, n[0], n[1], n[2]});
    desc.y = layout(c->dtype, 4, (size_t[]){1, n[0], n[3], n[4]});
    return clattn_resize_plan_create(context, &desc, options, plan);
}

/* ---- rope: batch, heads, length, size, rotary size ---- */

enum { INTERLEAVED = 1, TABLE = 2 };

static const selftest_case rope_cases[] = {
    {"halves", F32, {2, 3, 7, 64, 64}, 0},
    {"interleaved, part of the head", F32, {1, 5, 9, 50, 38}, INTERLEAVED},
    {"given cosines and sines", F32, {2, 2, 6, 20, 16}, TABLE},
    {"gradient", F32, {2, 3, 7, 64, 64}, BACKWARD},
};

static clattn_status plan_rope(clattn_context *context, const selftest_case *c, const clattn_plan_options *options,
                               clattn_plan **plan)
{
    clattn_rope_desc desc = CLATTN_ROPE_DESC_INIT;
    desc.pairing = c->variant & INTERLEAVED ? CLATTN_ROPE_PAIRING_INTERLEAVED : CLATTN_ROPE_PAIRING_HALVES;
    desc.rotary_size = c->size[4];
    desc.direction = direction_of(c);
    if (c->variant & BACKWARD)
        desc.gradients.x = desc.gradients.y = layout(c->dtype, 4, c->size);
    else
        desc.x = desc.y = layout(c->dtype, 4, c->size);
    if (c->variant & TABLE)
        desc.cos = desc.sin = matrix(F32, 32, c->size[4] / 2);
    return clattn_rope_plan_create(context, &desc, options, plan);
}

/* ---- activation: rows, columns; the variant is the function ---- */

static const selftest_case activation_cases[] = {
    {"ReLU", F32, {3, 37}, CLATTN_ACTIVATION_RELU},
    {"GELU", F32, {5, 203}, CLATTN_ACTIVATION_GELU},
    {"GELU by tanh", F32, {5, 203}, CLATTN_ACTIVATION_GELU_TANH},
    {"Swish", F32, {5, 203}, CLATTN_ACTIVATION_SWISH},
    {"LeakyReLU", F32, {3, 37}, CLATTN_ACTIVATION_LEAKY_RELU},
    {"gradient of ReLU", F32, {3, 37}, BACKWARD | CLATTN_ACTIVATION_RELU},
    {"gradient of GELU", F32, {5, 203}, BACKWARD | CLATTN_ACTIVATION_GELU},
    {"gradient of GELU by tanh", F32, {5, 203}, BACKWARD | CLATTN_ACTIVATION_GELU_TANH},
    {"gradient of Swish", F32, {5, 203}, BACKWARD | CLATTN_ACTIVATION_SWISH},
};

static clattn_status plan_activation(clattn_context *context, const selftest_case *c,
                                     const clattn_plan_options *options, clattn_plan **plan)
{
    clattn_activation_desc desc = CLATTN_ACTIVATION_DESC_INIT;
    desc.direction = direction_of(c);
    desc.function = (clattn_activation)(c->variant & ~BACKWARD);
    desc.x = matrix(c->dtype, c->size[0], c->size[1]);
    if (c->variant & BACKWARD)
        desc.gradients.x = desc.gradients.y = desc.x;
    else
        desc.y = desc.x;
    return clattn_activation_plan_create(context, &desc, options, plan);
}

/* ---- dropout: rows, columns; the variant adds a residual ---- */

static const selftest_case dropout_cases[] = {
    {"alone", F32, {3, 37}, 0},
    {"behind a residual", F32, {5, 203}, 1},
    {"gradient", F32, {5, 203}, BACKWARD},
};

static clattn_status plan_dropout(clattn_context *context, const selftest_case *c, const clattn_plan_options *options,
                                  clattn_plan **plan)
{
    clattn_dropout_desc desc = CLATTN_DROPOUT_DESC_INIT;
    const clattn_layout array = matrix(c->dtype, c->size[0], c->size[1]);
    desc.direction = direction_of(c);
    desc.probability = 0.1f;
    if (c->variant & BACKWARD) {
        desc.gradients.x = desc.gradients.y = array;
    } else {
        desc.x = desc.y = array;
        if (c->variant)
            desc.residual = array;
    }
    return clattn_dropout_plan_create(context, &desc, options, plan);
}

/* ---- embedding: batch, length, rows, size; the variant is what is added for the position ---- */

static const selftest_case embedding_cases[] = {
    {"no positions", F32, {2, 5, 11, 24}, CLATTN_POSITIONS_NONE},
    {"sinusoids", F32, {1, 7, 11, 18}, CLATTN_POSITIONS_SINUSOIDS},
    {"float16, table of positions", F16, {2, 5, 11, 24}, CLATTN_POSITIONS_TABLE},
    {"gradient", F32, {2, 5, 11, 24}, BACKWARD},
};

static clattn_status plan_embedding(clattn_context *context, const selftest_case *c, const clattn_plan_options *options,
                                    clattn_plan **plan)
{
    clattn_embedding_desc desc = CLATTN_EMBEDDING_DESC_INIT;
    const size_t *n = c->size;
    desc.direction = direction_of(c);
    desc.positions = (clattn_positions)(c->variant & ~BACKWARD);
    desc.ids = matrix(CLATTN_DTYPE_I32, n[0], n[1]);
    *(c->variant & BACKWARD ? &desc.gradients.table : &desc.table) = matrix(c->dtype, n[2], n[3]);
    *(c->variant & BACKWARD ? &desc.gradients.y : &desc.y) = layout(c->dtype, 3, (size_t[]){n[0], n[1], n[3]});
    if (desc.positions == CLATTN_POSITIONS_TABLE)
        desc.position_table = matrix(c->dtype, 16, n[3]);
    return clattn_embedding_plan_create(context, &desc, options, plan);
}

/* ---- cross-entropy: rows, classes; the variant is how many percent labels are smoothed by ---- */

static const selftest_case cross_entropy_cases[] = {
    {"short rows", F32, {37, 10}, 0},
    {"a vocabulary", F32, {3, 5000}, 10},
    {"float16, long rows", F16, {3, 5000}, 0},
    {"bfloat16, short rows, smoothed", BF16, {37, 10}, 10},
};

static clattn_status plan_cross_entropy(clattn_context *context, const selftest_case *c,
                                        const clattn_plan_options *options, clattn_plan **plan)
{
    clattn_cross_entropy_desc desc = CLATTN_CROSS_ENTROPY_DESC_INIT;
    desc.smoothing = (float)c->variant / 100;
    desc.x = desc.gradients.x = matrix(c->dtype, c->size[0], c->size[1]);
    desc.labels = layout(CLATTN_DTYPE_I32, 1, c->size);
    desc.loss = desc.lse = layout(F32, 1, c->size);
    return clattn_cross_entropy_plan_create(context, &desc, options, plan);
}

/* ---- image: height, width, channels, patch; the variant is which way data goes ---- */

static const selftest_case image_cases[] = {
    {"pack", F32, {6, 9, 3, 3}, CLATTN_IMAGE_OPERATION_PACK},
    {"unpack", F32, {6, 9, 3, 1}, CLATTN_IMAGE_OPERATION_UNPACK},
};

static clattn_status plan_image(clattn_context *context, const selftest_case *c, const clattn_plan_options *options,
                                clattn_plan **plan)
{
    clattn_image_desc desc = CLATTN_IMAGE_DESC_INIT;
    const size_t *n = c->size;
    desc.operation = (clattn_image_operation)c->variant;
    desc.patch = (int32_t)n[3];
    desc.array = layout(c->dtype, 3, (size_t[]){n[0], n[1], n[2] * n[3] * n[3]});
    return clattn_image_plan_create(context, &desc, options, plan);
}

#define ENGINE_SOLVERS "cpu-amx", "cpu-bf16", "matrix" /* of 16-bit types, and cpu-amx of float32 */

static const char *const attention_solvers[] = {ENGINE_SOLVERS, "cpu", "decode", "sub-group", "tile", "generic", NULL};
static const char *const attention_backward_solvers[] = {ENGINE_SOLVERS, "cpu", "tile", "generic", NULL};
static const char *const matmul_solvers[] = {"clblast", ENGINE_SOLVERS, "cpu", "tile", "generic", NULL};
static const char *const mha_solvers[] = {ENGINE_SOLVERS, "cpu", "tile", "generic", NULL};
static const char *const row_solvers[] = {"cpu", "sub-group", "tile", "generic", NULL};
static const char *const cpu_and_generic[] = {"cpu", "generic", NULL};
static const char *const generic[] = {"generic", NULL};

#define ROW(name, solvers) {#name, solvers, name##_cases, COUNT_OF(name##_cases), plan_##name}

const selftest_operator selftest_operators[] = {
    ROW(softmax, row_solvers),
    ROW(attention, attention_solvers),
    {"attention_backward", attention_backward_solvers, attention_backward_cases, COUNT_OF(attention_backward_cases),
     plan_attention}, /* which has other solvers than forward */
    ROW(matmul, matmul_solvers),
    ROW(mha, mha_solvers),
    ROW(merge, generic),
    ROW(kv_append, generic),
    ROW(neighbourhood, cpu_and_generic),
    {"neighbourhood_backward", generic, neighbourhood_backward_cases, COUNT_OF(neighbourhood_backward_cases),
     plan_neighbourhood}, /* which has fewer solvers than forward */
    ROW(conv2d, cpu_and_generic),
    ROW(norm, row_solvers),
    ROW(pool, cpu_and_generic),
    ROW(resize, cpu_and_generic),
    ROW(rope, cpu_and_generic),
    ROW(activation, cpu_and_generic),
    ROW(dropout, cpu_and_generic),
    ROW(embedding, generic),
    ROW(adam, generic),
    ROW(square_sum, generic),
    ROW(cross_entropy, row_solvers),
    ROW(image, cpu_and_generic),
};
const size_t selftest_operator_count = COUNT_OF(selftest_operators);
