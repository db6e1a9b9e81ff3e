/* Encoders of pictures agree with the reference: patches in every order and type, class token, registers, positions of another
 * grid, norms of heads, LayerScale, a projection of pooled vectors; presets have the published sizes; wrong pictures are refused
 * with both sizes.
 *
 * Holds: transformer.h, "How pictures become vectors"; vision.h; weights.h, the names of models of pictures. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/harness.h"
#include "support/nn/run.h"
#include "support/core/one_context.h"
#include "support/storage.h"

#define PICTURES(function) \
    SHAPE(function), PRE, .layers = 2, .final_norm = 1, .input = CLATTN_STACK_INPUT_PICTURES, \
        .positions = CLATTN_POSITIONS_TABLE

static const struct {
    clattn_stack_desc stack;
    size_t batch, height, width;
} models[] = {
    /* ViT's and DINOv2's kinds, in the grid of the table and in others, with antialiasing and without. */
    {{PICTURES(GELU), .position_count = 7, .patches = {3, 4, 4, 2, 3, 0, 0, 1, 0, 0}}, 2, 8, 12},
    {{PICTURES(GELU), .position_count = 7, .layer_scale = 1, .patches = {3, 4, 4, 2, 3, 0, 0, 1, 0, 0}}, 1, 16, 4},
    {{PICTURES(GELU), .position_count = 13, .layer_scale = 1, .patches = {1, 2, 3, 3, 4, 1, 0, 1, 0, 3}}, 2, 4, 9},
    {{PICTURES(GELU), .position_count = 35, .query_key_norm = 1, .patches = {2, 3, 2, 7, 5, 1, 0, 0, 0, 0}}, 3, 9, 8},
    /* Of CLIP's kind; and positions of the patches alone behind a class token and registers. */
    {{PICTURES(SWISH), .explicit_alpha = 1, .alpha = 1.702f, .position_count = 5, .input_norm = 1, .projection = 12,
      .patches = {3, 4, 4, 2, 2, 0, 1, 1, 0, 0}},
     2,
     8,
     8},
    {{PICTURES(GELU), .gated = 1, .kv_heads = 2, .query_key_norm = 1, .layer_scale = 1, .position_count = 4,
      .without_bias = CLATTN_WITHOUT_BIAS, .rotary = CLATTN_ROTARY_HALVES, .patches = {3, 4, 4, 2, 2, 0, 0, 1, 0, 2}},
     1,
     12,
     8},
    {{SHAPE(RELU), POST, .layers = 1, .input = CLATTN_STACK_INPUT_PICTURES, .norm = CLATTN_NORM_KIND_RMS,
      .query_key_norm = 1, .patches = {4, 1, 5, 0, 0, 0, 0, 0, 0, 1}},
     2,
     3,
     10},
};

static nn_encoder_run run_of(size_t i, nn_store *store, const float *picture)
{
    const clattn_stack_desc *d = &models[i].stack;
    nn_encoder_run run = {.d = d, .store = store, .desc = nn_encoder_desc(models[i].batch, 0), .input = picture};
    run.desc.picture =
        clattn_layout_nchw(CLATTN_DTYPE_F32, models[i].batch, d->patches.channels, models[i].height, models[i].width);
    return run;
}

static float *picture_of(size_t i)
{
    return nn_floats(models[i].batch * models[i].stack.patches.channels * models[i].height * models[i].width, 3);
}

static void vectors(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(models); i++) {
        nn_store store = {.seed = 5};
        float *picture = picture_of(i);
        nn_store_add_stack(&store, "encoder", &models[i].stack);
        const nn_encoder_run run = run_of(i, &store, picture);
        assert_true(nn_encoder_apart(context, &run) < 1e-5);
        nn_store_clear(&store);
        free(picture);
    }
}

/* Windows in grids that they fill and that they do not, shifted or not, with a table of distances or without; and stages. */
static void windows(void **state)
{
    static const clattn_stack_desc last = {PICTURES(GELU)};
    clattn_stack_desc stages[3];
    static const struct {
        clattn_windows windows;
        size_t stages, batch, rows, columns;
    } cases[] = {
        {{2, 3, 0, CLATTN_POSITION_BIAS_NONE, 0}, 1, 2, 4, 6},  {{2, 2, 1, CLATTN_POSITION_BIAS_NONE, 0}, 1, 1, 6, 4},
        {{3, 2, 1, CLATTN_POSITION_BIAS_TABLE, 0}, 1, 2, 7, 5}, {{4, 4, 1, CLATTN_POSITION_BIAS_TABLE, 0}, 1, 1, 4, 3},
        {{2, 2, 1, CLATTN_POSITION_BIAS_TABLE, 0}, 3, 2, 9, 6}, {{3, 3, 1, CLATTN_POSITION_BIAS_TABLE, 0}, 2, 1, 5, 8},
    };
    (void)state;
    for (size_t i = 0; i < 2 * COUNT_OF(cases); i++) {
        const size_t c = i / 2, count = cases[c].stages;
        nn_store store = {.seed = 5};
        float *picture = nn_floats(cases[c].batch * 3 * cases[c].rows * 2 * cases[c].columns * 2, 3);
        for (size_t stage = 0; stage < count; stage++) {
            stages[stage] = last;
            stages[stage].positions = CLATTN_POSITIONS_NONE;
            stages[stage].norm_place = i % 2 ? CLATTN_NORM_PLACE_POST : CLATTN_NORM_PLACE_PRE;
            stages[stage].windows = cases[c].windows;
            stages[stage].input = stage ? CLATTN_STACK_INPUT_MERGED : CLATTN_STACK_INPUT_PICTURES;
            stages[stage].d_model = 32 + 16 * stage;
            stages[stage].final_norm = stage + 1 == count;
            stages[stage].next = stage + 1 == count ? NULL : &stages[stage + 1];
        }
        stages[0].patches = (clattn_patches){.channels = 3, .height = 2, .width = 2};
        stages[0].input_norm = 1;
        nn_store_add_stack(&store, "encoder", stages);
        nn_encoder_run run = {
            .d = stages, .store = &store, .desc = nn_encoder_desc(cases[c].batch, 0), .input = picture};
        run.desc.picture =
            clattn_layout_nchw(CLATTN_DTYPE_F32, cases[c].batch, 3, 2 * cases[c].rows, 2 * cases[c].columns);
        assert_true(nn_encoder_apart(context, &run) < 1e-5);
        nn_store_clear(&store);
        free(picture);
    }
}

/* SAM's kind: a decomposed bias in windows and in whole layers, of any scale and type, and a neck. */
static void decomposed(void **state)
{
    static const struct {
        clattn_windows windows;
        size_t batch, rows, columns, neck;
        float scale;
        clattn_dtype dtype;
        double allowed;
    } cases[] = {
        {{2, 2, 0, CLATTN_POSITION_BIAS_DECOMPOSED, 2}, 2, 5, 3, 12, 0, CLATTN_DTYPE_F32, 1e-5},
        {{3, 1, 1, CLATTN_POSITION_BIAS_DECOMPOSED, 0}, 1, 5, 6, 0, 0, CLATTN_DTYPE_F32, 1e-5},
        {{1, 3, 0, CLATTN_POSITION_BIAS_DECOMPOSED, 3}, 1, 3, 5, 12, 0.5f, CLATTN_DTYPE_F32, 1e-5},
        {{2, 2, 0, CLATTN_POSITION_BIAS_DECOMPOSED, 1}, 2, 4, 4, 8, 0, CLATTN_DTYPE_F16, 0.02},
        {{2, 2, 0, CLATTN_POSITION_BIAS_NONE, 2}, 1, 4, 6, 8, 0, CLATTN_DTYPE_F32, 1e-5},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const size_t places = cases[i].rows * cases[i].columns, columns = cases[i].neck ? cases[i].neck : 32;
        const size_t count = cases[i].batch * places * columns;
        clattn_stack_desc d = {PICTURES(GELU),
                               .position_count = places,
                               .windows = cases[i].windows,
                               .neck = cases[i].neck,
                               .explicit_scale = cases[i].scale != 0,
                               .scale = cases[i].scale};
        nn_store store = {.seed = 5};
        float *picture = nn_floats(cases[i].batch * 2 * cases[i].rows * 3 * cases[i].columns * 2, 3);
        double apart = 0;
        d.final_norm = !cases[i].neck;
        d.patches = (clattn_patches){.channels = 2, .height = 3, .width = 2};
        d.patches.grid_rows = cases[i].rows;
        d.patches.grid_columns = cases[i].columns;
        nn_store_add_stack(&store, "encoder", &d);
        nn_encoder_run run = {.d = &d, .store = &store, .desc = nn_encoder_desc(cases[i].batch, 0), .input = picture};
        run.model.dtype = cases[i].dtype;
        run.desc.picture =
            clattn_layout_nchw(CLATTN_DTYPE_F32, cases[i].batch, 2, 3 * cases[i].rows, 2 * cases[i].columns);
        void *y = nn_run_encoder(context, &run);
        double *expected = nn_encoder_expected(&run, 0);
        for (size_t e = 0; e < count; e++) {
            const double got = storage_get(cases[i].dtype, (const char *)y + e * clattn_dtype_size(cases[i].dtype));
            apart = fmax(apart, fabs(got - expected[e]) / fmax(1, fabs(expected[e])));
        }
        assert_true(apart < cases[i].allowed);
        free(y);
        free(expected);
        free(picture);
        nn_store_clear(&store);
    }
}

/* A picture by pixels, with a border that is not read, gives the same bits as one by planes. */
static void orders(void **state)
{
    const clattn_stack_desc *d = &models[0].stack;
    const size_t batch = models[0].batch, channels = 3, height = models[0].height, width = models[0].width;
    const size_t all = batch * channels * height * width, wide = width + 1;
    nn_store store = {.seed = 5};
    float *picture = picture_of(0), *turned = nn_floats(batch * channels * (height + 1) * wide, 9);
    (void)state;
    nn_store_add_stack(&store, "encoder", d);
    nn_encoder_run run = run_of(0, &store, picture);
    const size_t bytes = batch * nn_encoder_positions(&run) * d->d_model * sizeof(float);
    float *planes = nn_run_encoder(context, &run);
    for (size_t e = 0; e < all; e++) {
        const size_t column = e % width, row = e / width % height, c = e / width / height % channels;
        turned[((e / width / height / channels * (height + 1) + row) * wide + column) * channels + c] = picture[e];
    }
    run.input = turned;
    run.desc.picture.stride[0] = (int64_t)((height + 1) * wide * channels);
    run.desc.picture.stride[1] = 1;
    run.desc.picture.stride[2] = (int64_t)(wide * channels);
    run.desc.picture.stride[3] = (int64_t)channels;
    float *pixels = nn_run_encoder(context, &run);
    assert_memory_equal(planes, pixels, bytes);
    free(planes);
    free(pixels);
    free(picture);
    free(turned);
    nn_store_clear(&store);
}

/* Pooled vectors are rows of the output, their means, and these times the projection. */
static void pooling(void **state)
{
    static const clattn_pooling poolings[] = {CLATTN_POOLING_FIRST, CLATTN_POOLING_LAST, CLATTN_POOLING_PATCHES};
    (void)state;
    for (size_t which = 0; which < 2 * COUNT_OF(poolings); which++) {
        const size_t model = which % 2 ? 4 : 2;
        const clattn_stack_desc *d = &models[model].stack;
        const size_t n = d->d_model, prefix = (size_t)d->patches.class_token + d->patches.registers;
        const clattn_pooling pooling = poolings[which / 2];
        float pooled[2 * 32], *picture = picture_of(model);
        nn_store store = {.seed = 5};
        nn_store_add_stack(&store, "encoder", d);
        nn_encoder_run run = run_of(model, &store, picture);
        const size_t rows = nn_encoder_positions(&run), columns = d->projection ? d->projection : n;
        run.desc.pooling = pooling;
        run.desc.pooled_unit = d->projection != 0;
        run.pooled = pooled;
        float *y = nn_run_encoder(context, &run);
        for (size_t b = 0; b < models[model].batch; b++) {
            const size_t first = pooling == CLATTN_POOLING_LAST    ? rows - 1
                                 : pooling == CLATTN_POOLING_FIRST ? 0
                                                                   : prefix;
            const size_t count = pooling == CLATTN_POOLING_PATCHES ? rows - prefix : 1;
            double mean[32] = {0}, square = 0, *expected = mean;
            for (size_t row = first; row < first + count; row++)
                for (size_t c = 0; c < n; c++)
                    mean[c] += y[(b * rows + row) * n + c] / (double)count;
            if (d->projection)
                expected =
                    nn_reference_linear(mean, 1, n, nn_store_get(&store, "encoder.projection.weight"), columns, NULL);
            for (size_t c = 0; c < columns; c++)
                square += expected[c] * expected[c];
            for (size_t c = 0; c < columns; c++)
                assert_true(fabs(pooled[b * columns + c] - expected[c] / (d->projection ? sqrt(square) : 1)) < 2e-6);
            if (d->projection)
                free(expected);
        }
        free(y);
        free(picture);
        nn_store_clear(&store);
    }
}

/* The last position of an item is its own length's, and an item without positions has zeros. */
static void last_of_lengths(void **state)
{
    static const clattn_stack_desc stack = {SHAPE(RELU), .layers = 1, PRE, .causal = 1};
    static const int32_t lengths[3] = {5, 0, 1};
    const size_t n = stack.d_model;
    float pooled[3 * 32], *x = nn_floats(3 * 6 * n, 3);
    nn_store store = {.seed = 5};
    (void)state;
    nn_store_add_stack(&store, "encoder", &stack);
    nn_encoder_run run = {
        .d = &stack, .store = &store, .desc = nn_encoder_desc(3, 6), .input = x, .lengths = lengths, .pooled = pooled};
    run.desc.pooling = CLATTN_POOLING_LAST;
    float *y = nn_run_encoder(context, &run);
    for (size_t b = 0; b < 3; b++)
        for (size_t c = 0; c < n; c++)
            assert_true(fabs(pooled[b * n + c] - (lengths[b] ? y[(b * 6 + (size_t)lengths[b] - 1) * n + c] : 0)) <
                        1e-6);
    free(x);
    free(y);
    nn_store_clear(&store);
}

/* Heads whose number does not divide d_model, or exceeds it, pool all columns. */
static void pooling_of_any_heads(void **state)
{
    static const clattn_stack_desc stacks[] = {{.size = sizeof(clattn_stack_desc),
                                                .layers = 1,
                                                .d_model = 10,
                                                .heads = 4,
                                                .head_size = 4,
                                                .d_ff = 8,
                                                .activation = CLATTN_ACTIVATION_RELU},
                                               {.size = sizeof(clattn_stack_desc),
                                                .layers = 1,
                                                .d_model = 3,
                                                .heads = 8,
                                                .head_size = 4,
                                                .d_ff = 8,
                                                .activation = CLATTN_ACTIVATION_RELU}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(stacks); i++) {
        const size_t n = stacks[i].d_model;
        float pooled[2 * 10], *x = nn_floats(2 * 5 * n, 3);
        nn_store store = {.seed = 5};
        nn_store_add_stack(&store, "encoder", &stacks[i]);
        nn_encoder_run run = {
            .d = &stacks[i], .store = &store, .desc = nn_encoder_desc(2, 5), .input = x, .pooled = pooled};
        run.desc.pooling = CLATTN_POOLING_MEAN;
        float *y = nn_run_encoder(context, &run);
        for (size_t e = 0; e < 2 * n; e++) {
            double mean = 0;
            for (size_t row = 0; row < 5; row++)
                mean += y[(e / n * 5 + row) * n + e % n] / 5.0;
            assert_true(fabs(pooled[e] - mean) < 2e-6);
        }
        free(x);
        free(y);
        nn_store_clear(&store);
    }
}

/* LayerScale's vectors by a source that forgets a tensor when it is asked for the next, and as a share of a tensor. */
static void scales(void **state)
{
    static const clattn_name_rule rules[] = {{"encoder.layers.{n}.self.scale", "scales.{n}[0/2]"},
                                             {"encoder.layers.{n}.feed_forward.scale", "scales.{n}[1/2]"}};
    const clattn_stack_desc *d = &models[1].stack;
    const size_t n = d->d_model, both = 2 * n;
    nn_store store = {.seed = 5};
    float *picture = picture_of(1);
    (void)state;
    nn_store_add_stack(&store, "encoder", d);
    for (size_t i = 0; i < nn_store_count(&store); i++)
        nn_store_round(&store, i, 8);
    nn_encoder_run run = run_of(1, &store, picture);
    store.dtype = CLATTN_DTYPE_BF16;
    assert_true(nn_encoder_apart(context, &run) < 1e-5);
    store.dtype = CLATTN_DTYPE_F32;
    for (size_t layer = 0; layer < d->layers; layer++) {
        char name[16];
        snprintf(name, sizeof name, "scales.%zu", layer);
        float *values = nn_store_add(&store, name, 1, &both, 1, 0);
        memcpy(values, nn_store_get(&store, "encoder.layers.%zu.self.scale", layer), n * sizeof *values);
        memcpy(values + n, nn_store_get(&store, "encoder.layers.%zu.feed_forward.scale", layer), n * sizeof *values);
    }
    clattn_weight_source source = nn_source(&store);
    source.rules = rules;
    source.rule_count = COUNT_OF(rules);
    run.source = &source;
    assert_true(nn_encoder_apart(context, &run) < 1e-5);
    nn_store_clear(&store);
    free(picture);
}

/* Activations of 16 bits, with weights of 16 and of 8. */
static void storage(void **state)
{
    static const struct {
        size_t model;
        clattn_dtype dtype, weights;
        double allowed;
    } types[] = {{2, CLATTN_DTYPE_F16, CLATTN_DTYPE_F16, 0.02},
                 {2, CLATTN_DTYPE_BF16, CLATTN_DTYPE_BF16, 0.12},
                 {0, CLATTN_DTYPE_F32, CLATTN_DTYPE_I8, 1e-5}};
    (void)state;
    for (size_t t = 0; t < COUNT_OF(types); t++) {
        nn_store store = {.seed = 5};
        float *picture = picture_of(types[t].model);
        double apart = 0;
        nn_store_add_stack(&store, "encoder", &models[types[t].model].stack);
        nn_encoder_run run = run_of(types[t].model, &store, picture);
        run.model.dtype = types[t].dtype;
        run.model.weight_dtype = types[t].weights;
        void *y = nn_run_encoder(context, &run);
        double *expected = nn_encoder_expected(&run, 0);
        const size_t count =
            models[types[t].model].batch * nn_encoder_positions(&run) * models[types[t].model].stack.d_model;
        for (size_t i = 0; i < count; i++)
            apart =
                fmax(apart, fabs(storage_get(types[t].dtype, (const char *)y + i * clattn_dtype_size(types[t].dtype)) -
                                 expected[i]) /
                                fmax(1, fabs(expected[i])));
        assert_true(apart < types[t].allowed);
        free(y);
        free(expected);
        free(picture);
        nn_store_clear(&store);
    }
}

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
    const size_t layer = 4 * (n * n + n) + feed_forward + 4 * n + (d.layer_scale ? 2 * n : 0);
    const size_t input = p ? n * p + (d.patches.without_bias ? 0 : n) + n : d.vocabulary * n;
    return input + d.position_count * n + (d.input_norm ? 2 * n : 0) + d.layers * layer + 2 * n + d.projection * n;
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
    assert_message_has(context, "lengths are not for windows, stages or CLATTN_POOLING_PATCHES");
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
    const clattn_stack_desc *d = &models[0].stack;
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
    assert_refused(model, &given, "encoder: a picture of 9 x 12 pixels cannot be cut into patches of 4 x 4");
    given.picture = clattn_layout_nchw(CLATTN_DTYPE_F32, 2, 3, 8, 0);
    assert_refused(model, &given, "encoder: a picture of 8 x 0 pixels cannot be cut into patches of 4 x 4");
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
    nn_store_add_stack(&store, "encoder", &models[0].stack);
    nn_store_add(&store, "patch_embed.proj.weight", 4, extent, 1, 0);
    clattn_weight_source source = nn_source(&store);
    source.rules = rules;
    source.rule_count = 1;
    desc.encoder = &models[0].stack;
    assert_status(context, clattn_transformer_create(context, &desc, &source, &model), CLATTN_ERROR_FORMAT);
    clattn_context_message(context, text, sizeof text);
    assert_string_equal(text,
                        "the model's tensor patch_embed.proj.weight (encoder.patches.weight) is float32 32 x 3 x 8 x "
                        "8, not 32 x 3 x 4 x 4");
    nn_store_clear(&store);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(vectors, open_context, close_context),
        cmocka_unit_test_setup_teardown(windows, open_context, close_context),
        cmocka_unit_test_setup_teardown(decomposed, open_context, close_context),
        cmocka_unit_test_setup_teardown(orders, open_context, close_context),
        cmocka_unit_test_setup_teardown(pooling, open_context, close_context),
        cmocka_unit_test_setup_teardown(last_of_lengths, open_context, close_context),
        cmocka_unit_test_setup_teardown(pooling_of_any_heads, open_context, close_context),
        cmocka_unit_test_setup_teardown(scales, open_context, close_context),
        cmocka_unit_test_setup_teardown(names, open_context, close_context),
        cmocka_unit_test_setup_teardown(storage, open_context, close_context),
        cmocka_unit_test_setup_teardown(presets, open_context, close_context),
        cmocka_unit_test_setup_teardown(wrong_pictures, open_context, close_context),
        cmocka_unit_test_setup_teardown(wrong_weights, open_context, close_context),
    };
    return RUN_TESTS("pictures", tests, argc, argv);
}
