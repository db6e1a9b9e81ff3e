/* Presets of models of pictures have the published sizes, their tensors the names that files have, and wrong pictures and weights
 * are refused with both sizes.
 *
 * Holds: vision.h; weights.h, the names of models of pictures; transformer.h, clattn_encoder_desc.picture. */
#include <stdio.h>
#include <stdlib.h>

#include "support/harness.h"
#include "support/nn/run.h"
#include "support/core/one_context.h"

static const clattn_stack_desc vit = {
    SHAPE(GELU),
    PRE,
    .layers = 2,
    .final_norm = 1,
    .input = CLATTN_STACK_INPUT_PICTURES,
    .positions = CLATTN_POSITIONS_TABLE,
    .position_count = 7,
    .patches = {.channels = 3, .height = 4, .width = 4, .grid_rows = 2, .grid_columns = 3, .class_token = 1}};

/* ---- presets ---- */

static size_t parameters_of(clattn_vision model)
{
    clattn_transformer_desc desc;
    clattn_stack_desc stages[CLATTN_VISION_STAGES], d;
    assert_status(NULL, clattn_vision_preset(model, &desc, stages, NULL), CLATTN_SUCCESS);
    assert_ptr_equal(desc.encoder, stages);
    d = stages[0];
    const size_t n = d.d_model, p = d.patches.channels * d.patches.height * d.patches.width;
    const size_t feed_forward = (d.gated ? 3 : 2) * n * d.d_ff + (d.gated ? 2 : 1) * d.d_ff + n;
    const size_t biases = d.without_bias & CLATTN_WITHOUT_KEY_BIAS ? 3 : 4;
    const size_t layer = 4 * n * n + biases * n + feed_forward + 4 * n + (d.layer_scale ? 2 * n : 0);
    const size_t input = p ? n * p + (d.patches.without_bias ? 0 : n) + n + d.patches.registers * n : d.vocabulary * n;
    return input + d.position_count * n + (d.input_norm ? 2 * n : 0) + d.layers * layer + 2 * n + d.projection * n;
}

static size_t convolved(size_t out, size_t in)
{
    return out * in * 9 + out;
}

/* One convolution of n channels, or three. */
static size_t residual(size_t n, size_t count)
{
    return count == 1 ? convolved(n, n) : convolved(n / 4, n) + n / 4 * (n / 4) + n / 4 + convolved(n, n / 4);
}

static size_t parameters_of_swinir(clattn_vision model)
{
    clattn_transformer_desc desc;
    clattn_stack_desc stages[CLATTN_VISION_STAGES];
    assert_status(NULL, clattn_vision_preset(model, &desc, stages, NULL), CLATTN_SUCCESS);
    const clattn_stack_desc *d = stages, *last = d;
    const size_t n = d->d_model, window = 2 * d->windows.rows - 1;
    const size_t layer = 4 * (n * n + n) + 2 * n * d->d_ff + d->d_ff + n + 4 * n + d->heads * window * window;
    size_t count = convolved(n, 3) + 4 * n; /* norms of the first and the last stage */
    for (; last->next; last = last->next)
        count += last->layers * layer + residual(n, last->residual);
    const clattn_restoration *r = &last->restoration;
    const size_t features = r->features ? r->features : n;
    count += last->layers * layer + 2 * residual(n, last->residual);
    switch ((int)r->kind) {
    case CLATTN_RESTORATION_KIND_SHUFFLE:
        count += convolved(features, n) + 2 * convolved(4 * features, features);
        break;
    case CLATTN_RESTORATION_KIND_NEAREST: count += convolved(features, n) + 3 * convolved(features, features); break;
    case CLATTN_RESTORATION_KIND_SHUFFLE_ONCE: return count + convolved(3 * r->factor * r->factor, n);
    default: break;
    }
    return count + convolved(3, features);
}

/* The numbers of parameters that the authors' code has, as the PyPI package spandrel 0.4.2 has it. */
static void presets_of_swinir(void **state)
{
    (void)state;
    assert_int_equal(parameters_of_swinir(CLATTN_VISION_SWINIR_CLASSICAL), 11900199);
    assert_int_equal(parameters_of_swinir(CLATTN_VISION_SWINIR_LIGHTWEIGHT), 929628);
    assert_int_equal(parameters_of_swinir(CLATTN_VISION_SWINIR_REAL), 11715559);
    assert_int_equal(parameters_of_swinir(CLATTN_VISION_SWINIR_REAL_LARGE), 28013059);
    assert_int_equal(parameters_of_swinir(CLATTN_VISION_SWINIR_DENOISE), 11504163);
    assert_int_equal(parameters_of_swinir(CLATTN_VISION_SWINIR_JPEG), 11492067);
}

/* The numbers of parameters that transformers counts for these models, without mask token, pooler and logit scale. */
static void presets(void **state)
{
    clattn_transformer_desc desc;
    clattn_stack_desc d[CLATTN_VISION_STAGES];
    clattn_name_format format;
    (void)state;
    assert_int_equal(parameters_of(CLATTN_VISION_VIT_BASE_16), 85798656);
    assert_int_equal(parameters_of(CLATTN_VISION_VIT_LARGE_16), 303301632);
    assert_int_equal(parameters_of(CLATTN_VISION_DINOV2_SMALL_14), 22056192);
    assert_int_equal(parameters_of(CLATTN_VISION_DINOV2_GIANT_14), 1136479232);
    assert_int_equal(parameters_of(CLATTN_VISION_DINOV3_SMALL_16), 21596160);
    assert_int_equal(parameters_of(CLATTN_VISION_DINOV3_BASE_16), 85659648);
    assert_int_equal(parameters_of(CLATTN_VISION_DINOV3_LARGE_16), 303128576);
    assert_int_equal(parameters_of(CLATTN_VISION_CLIP_BASE_32) + parameters_of(CLATTN_VISION_CLIP_BASE_32_TEXT),
                     151277312);
    assert_int_equal(parameters_of(CLATTN_VISION_CLIP_LARGE_14) + parameters_of(CLATTN_VISION_CLIP_LARGE_14_TEXT),
                     427616512);
    assert_status(NULL, clattn_vision_preset(CLATTN_VISION_CLIP_BASE_16_TEXT, &desc, d, &format), CLATTN_SUCCESS);
    assert_int_equal(format, CLATTN_NAME_FORMAT_CLIP_TEXT);
    assert_status(NULL, clattn_vision_preset((clattn_vision)99, &desc, d, &format), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(NULL, clattn_vision_preset(CLATTN_VISION_VIT_TINY_16, NULL, d, &format),
                  CLATTN_ERROR_INVALID_ARGUMENT);
}

/* What files call the tensors, one of each kind. */
static void names(void **state)
{
    static const struct {
        clattn_name_format format;
        const char *canonical, *name;
        size_t share, shares;
    } expected[] = {
        {CLATTN_NAME_FORMAT_VIT, "encoder.class.weight", "embeddings.cls_token", 0, 1},
        {CLATTN_NAME_FORMAT_VIT, "encoder.patches.bias", "embeddings.patch_embeddings.projection.bias", 0, 1},
        {CLATTN_NAME_FORMAT_VIT, "encoder.layers.11.self.key.weight", "encoder.layer.11.attention.attention.key.weight",
         0, 1},
        {CLATTN_NAME_FORMAT_VIT, "encoder.layers.2.feed_forward.norm.bias", "encoder.layer.2.layernorm_after.bias", 0,
         1},
        {CLATTN_NAME_FORMAT_DINOV2, "encoder.registers.weight", "embeddings.register_tokens", 0, 1},
        {CLATTN_NAME_FORMAT_DINOV2, "encoder.layers.3.self.scale", "encoder.layer.3.layer_scale1.lambda1", 0, 1},
        {CLATTN_NAME_FORMAT_DINOV2, "encoder.layers.3.feed_forward.in.weight", "encoder.layer.3.mlp.fc1.weight", 0, 1},
        {CLATTN_NAME_FORMAT_DINOV2_GATED, "encoder.layers.3.feed_forward.gate.bias",
         "encoder.layer.3.mlp.weights_in.bias", 0, 2},
        {CLATTN_NAME_FORMAT_DINOV2_GATED, "encoder.layers.3.feed_forward.in.bias",
         "encoder.layer.3.mlp.weights_in.bias", 1, 2},
        {CLATTN_NAME_FORMAT_CLIP_VISION, "encoder.input_norm.weight", "vision_model.pre_layrnorm.weight", 0, 1},
        {CLATTN_NAME_FORMAT_CLIP_VISION, "encoder.projection.weight", "visual_projection.weight", 0, 1},
        {CLATTN_NAME_FORMAT_CLIP_TEXT, "encoder.layers.0.self.output.bias",
         "text_model.encoder.layers.0.self_attn.out_proj.bias", 0, 1},
        {CLATTN_NAME_FORMAT_TIMM_VIT, "encoder.layers.7.self.value.bias", "blocks.7.attn.qkv.bias", 2, 3},
        {CLATTN_NAME_FORMAT_TIMM_VIT, "encoder.layers.7.self.query_norm.weight", "blocks.7.attn.q_norm.weight", 0, 1},
        {CLATTN_NAME_FORMAT_SWIN, "encoder.layers.1.self.position_bias",
         "encoder.layers.0.blocks.1.attention.self.relative_position_bias_table", 0, 1},
        {CLATTN_NAME_FORMAT_SWIN, "encoder.stages.2.layers.5.self.norm.weight",
         "encoder.layers.2.blocks.5.layernorm_before.weight", 0, 1},
        {CLATTN_NAME_FORMAT_SWIN, "encoder.stages.1.merge.weight", "encoder.layers.1.downsample.reduction.weight", 0,
         1},
        {CLATTN_NAME_FORMAT_SWIN, "encoder.stages.3.norm.bias", "layernorm.bias", 0, 1},
        {CLATTN_NAME_FORMAT_SAM, "encoder.layers.4.self.position_columns", "vision_encoder.layers.4.attn.rel_pos_w", 0,
         1},
        {CLATTN_NAME_FORMAT_SAM, "encoder.neck.out_norm.bias", "vision_encoder.neck.layer_norm2.bias", 0, 1},
        {CLATTN_NAME_FORMAT_TIMM_SWIN, "encoder.merge.norm.bias", "layers.1.downsample.norm.bias", 0, 1},
        {CLATTN_NAME_FORMAT_TIMM_SWIN, "encoder.stages.9.merge.weight", "layers.10.downsample.reduction.weight", 0, 1},
        {CLATTN_NAME_FORMAT_TIMM_SWIN, "encoder.stages.2.layers.17.self.key.weight",
         "layers.2.blocks.17.attn.qkv.weight", 1, 3},
        {CLATTN_NAME_FORMAT_DINOV3, "encoder.layers.5.feed_forward.gate.weight", "layer.5.mlp.gate_proj.weight", 0, 1},
        {CLATTN_NAME_FORMAT_DINOV3, "encoder.layers.5.self.output.bias", "layer.5.attention.o_proj.bias", 0, 1},
        {CLATTN_NAME_FORMAT_SWINIR, "encoder.layers.1.self.value.bias",
         "layers.0.residual_group.blocks.1.attn.qkv.bias", 2, 3},
        {CLATTN_NAME_FORMAT_SWINIR, "encoder.stages.3.residual.bias", "layers.3.conv.bias", 0, 1},
        {CLATTN_NAME_FORMAT_SWINIR, "encoder.stages.3.residual.2.bias", "layers.3.conv.4.bias", 0, 1},
        {CLATTN_NAME_FORMAT_SWINIR, "encoder.stages.5.norm.weight", "norm.weight", 0, 1},
        {CLATTN_NAME_FORMAT_SWINIR, "encoder.restoration.body.1.weight", "conv_after_body.2.weight", 0, 1},
        {CLATTN_NAME_FORMAT_SWINIR, "encoder.restoration.shuffle.1.weight", "upsample.2.weight", 0, 1},
        {CLATTN_NAME_FORMAT_SWINIR, "encoder.restoration.nearest.1.bias", "conv_up2.bias", 0, 1},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(expected); i++) {
        clattn_weight_source source = CLATTN_WEIGHT_SOURCE_INIT;
        char name[96];
        size_t share, shares;
        source.format = expected[i].format;
        clattn_weight_name(&source, expected[i].canonical, name, sizeof name, &share, &shares, NULL);
        assert_string_equal(name, expected[i].name);
        assert_int_equal(share * 10 + shares, expected[i].share * 10 + expected[i].shares);
    }
}

/* ---- refusals ---- */

static void assert_refused(clattn_transformer *model, const clattn_encoder_desc *desc, const char *message)
{
    char text[512];
    clattn_plan *plan;
    assert_status(context, clattn_encoder_plan_create(model, desc, NULL, &plan), CLATTN_ERROR_INVALID_ARGUMENT);
    clattn_context_message(context, text, sizeof text);
    assert_string_equal(text, message);
}

/* Lengths do not go with the mean over patches, nor with the length of pictures. */
static void wrong_lengths(clattn_transformer *model)
{
    const int32_t lengths[2] = {3, 4};
    clattn_encoder_desc desc = nn_encoder_desc(2, 0);
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    clattn_plan *plan;
    desc.picture = clattn_layout_nchw(CLATTN_DTYPE_F32, 2, 3, 8, 12);
    desc.pooling = CLATTN_POOLING_PATCHES;
    assert_status(context, clattn_encoder_plan_create(model, &desc, NULL, &plan), CLATTN_SUCCESS);
    args.lengths = lengths;
    assert_status(context, clattn_encoder_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "lengths are not for windows, stages, a neck, a restoration or CLATTN_POOLING_PATCHES");
    args.lengths = NULL;
    args.explicit_lengths = 1;
    args.length = 6;
    assert_status(context, clattn_encoder_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "length is 6, which must be 0 for pictures");
    args.length = 0;
    args.batch = 3;
    assert_status(context, clattn_encoder_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "batch 3 is above the plan's 2");
    clattn_plan_release(&plan);
}

static void wrong_pictures(void **state)
{
    const clattn_stack_desc *d = &vit;
    const clattn_stack_desc tokens = {SHAPE(RELU), POST, .layers = 1};
    clattn_transformer_desc desc = CLATTN_TRANSFORMER_DESC_INIT;
    nn_store store = {.seed = 5}, other = {.seed = 5};
    (void)state;
    nn_store_add_stack(&store, "encoder", d);
    nn_store_add_stack(&other, "encoder", &tokens);
    desc.encoder = d;
    clattn_transformer *model = nn_transformer(context, &desc, &store);
    desc.encoder = &tokens;
    clattn_transformer *vectors = nn_transformer(context, &desc, &other);
    clattn_encoder_desc given = nn_encoder_desc(2, 0);
    assert_refused(model, &given,
                   "encoder: picture is (batch, channels, height, width) of float32, float16 or bfloat16");
    given.picture = clattn_layout_nchw(CLATTN_DTYPE_F32, 2, 3, 9, 12);
    assert_refused(model, &given, "encoder: a picture of height 9 and width 12 cannot be cut into patches of 4 x 4");
    given.picture = clattn_layout_nchw(CLATTN_DTYPE_F32, 2, 3, 8, 0);
    assert_refused(model, &given, "encoder: a picture of height 8 and width 0 cannot be cut into patches of 4 x 4");
    given.picture = clattn_layout_nchw(CLATTN_DTYPE_F32, 2, 4, 8, 12);
    assert_refused(model, &given, "encoder: picture is 2 x 4 x 8 x 12, not of batch 2 and 3 channels");
    given.picture = clattn_layout_nchw(CLATTN_DTYPE_F32, 2, 3, (size_t)4 << 30, (size_t)4 << 30);
    assert_refused(model, &given, "encoder: batch is 1 to 65536, and length 1 to 2^30");
    given.picture = clattn_layout_nchw(CLATTN_DTYPE_F32, 2, 3, 8, 12);
    given.length = 6;
    assert_refused(model, &given, "encoder: length is 6, which must be 0 for pictures");
    assert_refused(vectors, &given, "encoder: a picture, which the model does not take");
    wrong_lengths(model);
    given = nn_encoder_desc(2, 6);
    given.pooling = CLATTN_POOLING_PATCHES;
    assert_refused(vectors, &given, "encoder: CLATTN_POOLING_PATCHES is for pictures");
    clattn_transformer_release(&model);
    clattn_transformer_release(&vectors);
    nn_store_clear(&store);
    nn_store_clear(&other);
}

/* The picture that a restoration makes is described, and has its size; others have none. */
static void wrong_restored(void **state)
{
    static const clattn_stack_desc d = {SHAPE(GELU),
                                        PRE,
                                        .layers = 1,
                                        .input = CLATTN_STACK_INPUT_PICTURES,
                                        .patches = {.channels = 3, .height = 1, .width = 1, .border = 1},
                                        .residual = 1,
                                        .restoration = {CLATTN_RESTORATION_KIND_SHUFFLE_ONCE, 0, 2, 0}};
    clattn_transformer_desc desc = CLATTN_TRANSFORMER_DESC_INIT;
    nn_store store = {.seed = 5}, other = {.seed = 5};
    (void)state;
    nn_store_add_stack(&store, "encoder", &d);
    nn_store_add_restoration(&store, "encoder", &d, 3);
    nn_store_add_stack(&other, "encoder", &vit);
    desc.encoder = &d;
    clattn_transformer *model = nn_transformer(context, &desc, &store);
    desc.encoder = &vit;
    clattn_transformer *plain = nn_transformer(context, &desc, &other);
    clattn_encoder_desc given = nn_encoder_desc(1, 0);
    given.picture = clattn_layout_nchw(CLATTN_DTYPE_F32, 1, 3, 8, 12);
    assert_refused(model, &given,
                   "encoder: restored is (batch, channels, height, width) of float32, float16 or bfloat16");
    given.restored = clattn_layout_nchw(CLATTN_DTYPE_F32, 1, 3, 16, 23);
    assert_refused(model, &given,
                   "encoder: restored is 1 x 3 x 16 x 23, not 2 times as high and wide as the picture, 1 x 3 x 8 x 12");
    given.restored = clattn_layout_nchw(CLATTN_DTYPE_F32, 1, 3, 16, 24);
    assert_refused(plain, &given, "encoder: restored is for models with a restoration");
    given.pooling = CLATTN_POOLING_MEAN;
    assert_refused(model, &given, "encoder: pooling is for encoders without a neck or restoration");
    clattn_plan *plan;
    given.pooling = CLATTN_POOLING_NONE;
    given.restored.stride[3] = 0;
    assert_status(context, clattn_encoder_plan_create(model, &given, NULL, &plan), CLATTN_ERROR_INVALID_LAYOUT);
    assert_message_has(context, "restored: the output layout's elements overlap");
    clattn_transformer_release(&model);
    clattn_transformer_release(&plain);
    nn_store_clear(&store);
    nn_store_clear(&other);
}

/* Windows whose tables would not fit are refused before these are made. */
static void too_many_windows(void **state)
{
    static const clattn_stack_desc d = {SHAPE(GELU),
                                        PRE,
                                        .layers = 2,
                                        .input = CLATTN_STACK_INPUT_PICTURES,
                                        .patches = {.channels = 1, .height = 1, .width = 1},
                                        .windows = {64, 64, 1, CLATTN_POSITION_BIAS_NONE, 0}};
    clattn_transformer_desc desc = CLATTN_TRANSFORMER_DESC_INIT;
    clattn_encoder_desc given = nn_encoder_desc(200, 0);
    clattn_plan *plan;
    nn_store store = {.seed = 5};
    (void)state;
    nn_store_add_stack(&store, "encoder", &d);
    desc.encoder = &d;
    clattn_transformer *model = nn_transformer(context, &desc, &store);
    given.picture = clattn_layout_nchw(CLATTN_DTYPE_F32, 200, 1, 65, 65);
    assert_status(context, clattn_encoder_plan_create(model, &given, NULL, &plan), CLATTN_ERROR_OVERFLOW);
    assert_message_has(context, "the mask of 800 shifted windows of 64 x 64 patches is above 2^31 bytes");
    given.batch = 1;
    given.picture = clattn_layout_nchw(CLATTN_DTYPE_F32, 1, 1, 1, (size_t)1 << 24);
    assert_status(context, clattn_encoder_plan_create(model, &given, NULL, &plan), CLATTN_ERROR_OVERFLOW);
    assert_message_has(context, "1 pictures of 1073741824 places each, filled up, have more than 2^26");
    clattn_transformer_release(&model);
    nn_store_clear(&store);
}

/* A model tells which tensors it has read, by the file's names; shares of one count once. */
static void read_names(void **state)
{
    static const clattn_name_rule rules[] = {{"encoder.layers.{n}.self.query.{kind}", "qkv.{n}.{kind}[0/3]"},
                                             {"encoder.layers.{n}.self.key.{kind}", "qkv.{n}.{kind}[1/3]"},
                                             {"encoder.layers.{n}.self.value.{kind}", "qkv.{n}.{kind}[2/3]"}};
    const size_t weight[2] = {96, 32}, bias = 96;
    clattn_transformer *model;
    clattn_transformer_desc desc = CLATTN_TRANSFORMER_DESC_INIT;
    nn_store store = {.seed = 5};
    (void)state;
    nn_store_add_stack(&store, "encoder", &vit);
    for (int layer = 0; layer < 2; layer++) {
        char name[24];
        snprintf(name, sizeof name, "qkv.%d.weight", layer);
        nn_store_add(&store, name, 2, weight, 1, 0);
        snprintf(name, sizeof name, "qkv.%d.bias", layer);
        nn_store_add(&store, name, 1, &bias, 1, 0);
    }
    clattn_weight_source source = nn_source(&store);
    source.rules = rules;
    source.rule_count = COUNT_OF(rules);
    desc.encoder = &vit;
    assert_status(context, clattn_transformer_create(context, &desc, &source, &model), CLATTN_SUCCESS);
    assert_int_equal(clattn_transformer_has_read(model, "qkv.1.weight"), 1);
    assert_int_equal(clattn_transformer_has_read(model, "encoder.patches.bias"), 1);
    assert_int_equal(clattn_transformer_has_read(model, "encoder.layers.0.self.query.weight"), 0);
    assert_int_equal(clattn_transformer_has_read(model, "qkv.1"), 0);
    assert_int_equal(clattn_transformer_has_read(model, ""), 0);
    assert_int_equal(clattn_transformer_has_read(model, NULL), 0);
    assert_int_equal(clattn_transformer_has_read(NULL, "qkv.1.weight"), 0);
    clattn_transformer_release(&model);
    nn_store_clear(&store);
}

/* The weights of another model: the tensor is named as the file does and canonically, with both shapes. */
static void wrong_weights(void **state)
{
    static const clattn_name_rule rules[] = {{"encoder.patches.{kind}", "patch_embed.proj.{kind}"}};
    char text[512];
    const size_t extent[4] = {32, 3, 8, 8};
    clattn_transformer *model;
    clattn_transformer_desc desc = CLATTN_TRANSFORMER_DESC_INIT;
    nn_store store = {.seed = 5};
    (void)state;
    nn_store_add_stack(&store, "encoder", &vit);
    nn_store_add(&store, "patch_embed.proj.weight", 4, extent, 1, 0);
    clattn_weight_source source = nn_source(&store);
    source.rules = rules;
    source.rule_count = 1;
    desc.encoder = &vit;
    assert_status(context, clattn_transformer_create(context, &desc, &source, &model), CLATTN_ERROR_FORMAT);
    clattn_context_message(context, text, sizeof text);
    assert_string_equal(text,
                        "the model's tensor patch_embed.proj.weight (encoder.patches.weight) is float32 32 x 3 x 8 x "
                        "8, not 32 x 3 x 4 x 4");
    /* Extents whose product alone is right are refused; further ones of 1 are not. */
    source.rule_count = 0;
    nn_store_add(&store, "encoder.norm.bias", 2, (const size_t[2]){2, 16}, 1, 0);
    assert_status(context, clattn_transformer_create(context, &desc, &source, &model), CLATTN_ERROR_FORMAT);
    assert_message_has(context, "(encoder.norm.bias) is float32 2 x 16, not 32");
    nn_store_add(&store, "encoder.norm.bias", 2, (const size_t[2]){1, 32}, 1, 0);
    nn_store_add(&store, "encoder.positions.weight", 3, (const size_t[3]){7, 1, 32}, 1, 0);
    assert_status(context, clattn_transformer_create(context, &desc, &source, &model), CLATTN_ERROR_FORMAT);
    nn_store_add(&store, "encoder.positions.weight", 3, (const size_t[3]){1, 7, 32}, 1, 0);
    assert_status(context, clattn_transformer_create(context, &desc, &source, &model), CLATTN_SUCCESS);
    clattn_transformer_release(&model);
    nn_store_clear(&store);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets),
        cmocka_unit_test(presets_of_swinir),
        cmocka_unit_test(names),
        cmocka_unit_test_setup_teardown(read_names, open_context, close_context),
        cmocka_unit_test_setup_teardown(too_many_windows, open_context, close_context),
        cmocka_unit_test_setup_teardown(wrong_restored, open_context, close_context),
        cmocka_unit_test_setup_teardown(wrong_pictures, open_context, close_context),
        cmocka_unit_test_setup_teardown(wrong_weights, open_context, close_context),
    };
    return RUN_TESTS("pictures_names", tests, argc, argv);
}
