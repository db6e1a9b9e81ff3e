/* Encoders of pictures agree with the reference: patches in every order and type, class token, registers, positions of another
 * grid, norms of heads, LayerScale, pooling, a projection of pooled vectors.
 *
 * Holds: transformer.h, "How pictures become vectors". */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/harness.h"
#include "support/nn/run.h"
#include "support/core/one_context.h"

#define PICTURES(function) \
    SHAPE(function), PRE, .layers = 2, .final_norm = 1, .input = CLATTN_STACK_INPUT_PICTURES, \
        .positions = CLATTN_POSITIONS_TABLE

static const struct {
    clattn_stack_desc stack;
    size_t batch, height, width;
} models[] = {
    /* ViT's and DINOv2's kinds, in the grid of the table and in others, with antialiasing and without. */
    {{PICTURES(GELU), .position_count = 7, .patches = {3, 4, 4, 2, 3, 0, 0, 1, 0, 0, 0}}, 2, 8, 12},
    {{PICTURES(GELU), .position_count = 7, .layer_scale = 1, .patches = {3, 4, 4, 2, 3, 0, 0, 1, 0, 0, 0}}, 1, 16, 4},
    {{PICTURES(GELU), .position_count = 13, .layer_scale = 1, .patches = {1, 2, 3, 3, 4, 1, 0, 1, 0, 3, 0}}, 2, 4, 9},
    {{PICTURES(GELU), .position_count = 35, .query_key_norm = 1, .patches = {2, 3, 2, 7, 5, 1, 0, 0, 0, 0, 0}},
     3,
     9,
     8},
    /* Of CLIP's kind; and positions of the patches alone behind a class token and registers. */
    {{PICTURES(SWISH), .explicit_alpha = 1, .alpha = 1.702f, .position_count = 5, .input_norm = 1, .projection = 12,
      .patches = {3, 4, 4, 2, 2, 0, 1, 1, 0, 0, 0}},
     2,
     8,
     8},
    {{PICTURES(GELU), .gated = 1, .kv_heads = 2, .query_key_norm = 1, .layer_scale = 1, .position_count = 4,
      .without_bias = CLATTN_WITHOUT_BIAS, .rotary = CLATTN_ROTARY_HALVES,
      .patches = {3, 4, 4, 2, 2, 0, 0, 1, 0, 2, 0}},
     1,
     12,
     8},
    {{SHAPE(RELU), POST, .layers = 1, .input = CLATTN_STACK_INPUT_PICTURES, .norm = CLATTN_NORM_KIND_RMS,
      .query_key_norm = 1, .patches = {4, 1, 5, 0, 0, 0, 0, 0, 0, 1, 0}},
     2,
     3,
     10},
    /* Positions that are computed: DINOv3's kind, with a part of the head, and sinusoids behind a class token. */
    {{SHAPE(GELU), PRE, .layers = 2, .final_norm = 1, .input = CLATTN_STACK_INPUT_PICTURES, .layer_scale = 1,
      .rotary = CLATTN_ROTARY_HALVES, .rotary_base = 100, .rotary_centred = 1, .without_bias = CLATTN_WITHOUT_KEY_BIAS,
      .patches = {.channels = 3, .height = 4, .width = 4, .class_token = 1, .registers = 4}},
     2,
     12,
     20},
    {{SHAPE(GELU), PRE, .layers = 1, .input = CLATTN_STACK_INPUT_PICTURES, .kv_heads = 2,
      .rotary = CLATTN_ROTARY_INTERLEAVED, .rotary_size = 4, .softcap = 1.5f,
      .patches = {.channels = 1, .height = 3, .width = 2}},
     1,
     9,
     10},
    {{SHAPE(GELU), PRE, .layers = 1, .input = CLATTN_STACK_INPUT_PICTURES, .positions = CLATTN_POSITIONS_SINUSOIDS,
      .patches = {.channels = 3, .height = 4, .width = 4, .border = 1, .class_token = 1}},
     2,
     8,
     12},
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
        char name[32];
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
        nn_store_add_stack(&store, "encoder", &models[types[t].model].stack);
        nn_encoder_run run = run_of(types[t].model, &store, picture);
        run.model.dtype = types[t].dtype;
        run.model.weight_dtype = types[t].weights;
        assert_true(nn_encoder_apart(context, &run) < types[t].allowed);
        free(picture);
        nn_store_clear(&store);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(vectors, open_context, close_context),
        cmocka_unit_test_setup_teardown(orders, open_context, close_context),
        cmocka_unit_test_setup_teardown(pooling, open_context, close_context),
        cmocka_unit_test_setup_teardown(last_of_lengths, open_context, close_context),
        cmocka_unit_test_setup_teardown(pooling_of_any_heads, open_context, close_context),
        cmocka_unit_test_setup_teardown(scales, open_context, close_context),
        cmocka_unit_test_setup_teardown(storage, open_context, close_context),
    };
    return RUN_TESTS("pictures", tests, argc, argv);
}
