/* Models whose matrices are int8 with a scale for each row agree with a reference that has rounded the same matrices to
 * integers by the documented rule and rounds nothing else.
 *
 * Holds: transformer.h, `weight_dtype`; docs/transformer.md, "Weights". */
#include <math.h>
#include <stdlib.h>

#include "support/harness.h"
#include "support/nn/decoder_case.h"
#include "support/nn/run.h"
#include "support/core/one_context.h"

/* Float32's rounding takes a tenth of this.  Scales of the smallest rows that are off by a sixteenth would take ten
 * times as much. */
#define TOLERANCE 1e-5

/* ---- encoders ---- */

enum { BATCH = 2, POSITIONS = 7, FRAMES = 13 };

static const struct encoder_case {
    const char *name;
    clattn_stack_desc stack;
    size_t length;
} encoders[] = {
    {"pre-norm, gated", {SHAPE(RELU), .layers = 2, PRE, .final_norm = 1, .gated = 1}, POSITIONS},
    /* Convolutions and the table of positions stay floats. */
    {"post-norm behind convolutions",
     {SHAPE(RELU), .layers = 1, POST, .input = CLATTN_STACK_INPUT_FEATURES, .features = 20, .convolutions = 1,
      .convolution = {{3, 2, 1, 0}}, .positions = CLATTN_POSITIONS_TABLE, .position_count = POSITIONS},
     FRAMES},
};

static void encode(const struct encoder_case *c)
{
    const clattn_stack_desc *d = &c->stack;
    const bool features = d->input == CLATTN_STACK_INPUT_FEATURES;
    nn_store store = {.seed = 5};
    float *x = nn_floats(BATCH * c->length * (features ? d->features : d->d_model), 3);
    nn_store_add_stack(&store, "encoder", d);
    nn_store_vary_rows(&store);
    const nn_encoder_run run = {.d = d,
                                .store = &store,
                                .desc = nn_encoder_desc(BATCH, c->length),
                                .input = x,
                                .model = {.weight_dtype = CLATTN_DTYPE_I8}};
    const double apart = nn_encoder_apart(context, &run);
    print_message("# %s: %.2g\n", c->name, apart);
    assert_true(apart < TOLERANCE);
    nn_store_clear(&store);
    free(x);
}

static void encoders_of_int8(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(encoders); i++)
        encode(&encoders[i]);
}

/* No integer is NaN: the scale of a row that contains NaN is NaN as well, so that its results are NaN. */
static void a_nan_is_not_rounded(void **state)
{
    const clattn_stack_desc *d = &encoders[0].stack;
    const size_t count = BATCH * POSITIONS * d->d_model, extent[2] = {d->d_model, d->d_ff};
    nn_store store = {.seed = 5};
    float *x = nn_floats(count, 3);
    (void)state;
    nn_store_add_stack(&store, "encoder", d);
    nn_store_add(&store, "encoder.layers.1.feed_forward.out.weight", 2, extent, 0.1f, 0)[3 * d->d_ff + 1] = NAN;
    const nn_encoder_run run = {.d = d,
                                .store = &store,
                                .desc = nn_encoder_desc(BATCH, POSITIONS),
                                .input = x,
                                .model = {.weight_dtype = CLATTN_DTYPE_I8}};
    float *y = nn_run_encoder(context, &run);
    for (size_t i = 0; i < count; i++) /* the norm behind the last layer spreads NaN over each position */
        assert_true(isnan(y[i]));
    nn_store_clear(&store);
    free(x);
    free(y);
}

/* ---- decoders ---- */

/* Texts are appended in pieces of several tokens and token by token, which other kernels multiply. */
static void decode(const decoder_case *c)
{
    static float logits[ITEMS * 4 * NN_VOCABULARY];
    nn_world w = decoder_case_world(context, c, ITEMS);
    clattn_decoder_desc desc = CLATTN_DECODER_DESC_INIT;
    desc.length = 4;
    desc.logits = CLATTN_LOGITS_ALL;
    w.memory_lengths = decoder_case_memory_lengths;
    w.weight_dtype = CLATTN_DTYPE_I8;
    nn_world_open(&w, &desc);
    nn_world_begin(&w, NULL, 1);
    for (size_t i = 0, some; i < LENGTH; i += some) {
        some = i < 4 ? 4 : 1;
        nn_world_append(&w, ITEMS, w.ids, LENGTH, (const size_t[]){i, i}, some, NULL, some, logits, some);
        for (size_t row = 0; row < ITEMS * some; row++)
            nn_check_logits(logits + row * NN_VOCABULARY,
                            w.expected + (row / some * LENGTH + i + row % some) * NN_VOCABULARY, c->name);
    }
    nn_world_close(&w);
}

/* Llama's logits come from an output matrix, which is int8 too, the paper's from the embedding, which is not. */
static void decoders_of_int8(void **state)
{
    (void)state;
    decode(&decoder_cases[CASE_LLAMA]);
    if (!is_tiny())
        decode(&decoder_cases[CASE_PAPER]);
}

/* ---- bytes ---- */

static size_t bytes_of(const clattn_stack_desc *d, int32_t output, clattn_dtype dtype, clattn_dtype weight_dtype)
{
    const clattn_transformer_desc desc = {
        .size = sizeof desc, .decoder = d, .output = output, .dtype = dtype, .weight_dtype = weight_dtype};
    nn_store store = {0};
    nn_store_add_stack(&store, "decoder", d);
    nn_store_add(&store, "output.weight", 2, (const size_t[2]){d->vocabulary, d->d_model}, 1, 0);
    clattn_transformer *model = nn_transformer(context, &desc, &store);
    const size_t bytes = clattn_transformer_weight_bytes(model);
    clattn_transformer_release(&model);
    nn_store_clear(&store);
    return bytes;
}

/* A matrix takes a byte for each element and a scale for each row; everything else has the model's dtype.  The sizes
 * are such that nothing is padded. */
static void what_is_int8(void **state)
{
    static const clattn_stack_desc d = {.size = sizeof d,
                                        .d_model = 64,
                                        .heads = 4,
                                        .d_ff = 128,
                                        .activation = CLATTN_ACTIVATION_RELU,
                                        .layers = 1,
                                        .causal = 1,
                                        .norm = CLATTN_NORM_KIND_RMS,
                                        .without_bias = CLATTN_WITHOUT_BIAS,
                                        .input = CLATTN_STACK_INPUT_TOKENS,
                                        .vocabulary = 128,
                                        .positions = CLATTN_POSITIONS_TABLE,
                                        .position_count = 16};
    const size_t n = d.d_model, rest = (d.vocabulary + d.position_count + 2) * n; /* tables and two norms */
    const size_t rows = 5 * n + d.d_ff, matrices = 4 * n * n + 2 * n * d.d_ff;
    (void)state;
    assert_int_equal(bytes_of(&d, CLATTN_MODEL_OUTPUT_TIED, 0, 0), 4 * (rest + matrices));
    assert_int_equal(bytes_of(&d, CLATTN_MODEL_OUTPUT_TIED, 0, CLATTN_DTYPE_I8), 4 * rest + matrices + 4 * rows);
    assert_int_equal(bytes_of(&d, CLATTN_MODEL_OUTPUT_TIED, CLATTN_DTYPE_F16, CLATTN_DTYPE_I8),
                     2 * rest + matrices + 4 * rows);
    assert_int_equal(bytes_of(&d, CLATTN_MODEL_OUTPUT_OWN, 0, CLATTN_DTYPE_I8),
                     4 * rest + matrices + 4 * rows + d.vocabulary * (n + 4));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(encoders_of_int8, open_context, close_context),
        cmocka_unit_test_setup_teardown(a_nan_is_not_rounded, open_context, close_context),
        cmocka_unit_test_setup_teardown(decoders_of_int8, open_context, close_context),
        cmocka_unit_test_setup_teardown(what_is_int8, open_context, close_context),
    };
    return RUN_TESTS("nn_int8", tests, argc, argv);
}
