/* Encoders and decoders whose activations, weights and caches are float16 or bfloat16 keep the rule of numerics.md
 * against the reference in double precision.  The naive computation is the same reference with every array between two
 * operators rounded.
 *
 * Holds: docs/transformer.md, "Meaning" and "Decoders", for the three dtypes of a model. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/harness.h"
#include "support/nn/decoder_case.h"
#include "support/nn/judge.h"
#include "support/nn/run.h"
#include "support/core/one_context.h"
#include "support/storage.h"

static const char *name_of(clattn_dtype dtype)
{
    return dtype ? clattn_dtype_name(dtype) : "default";
}

/* ---- encoders ---- */

enum { BATCH = 2, LONGEST = 21 };

static const struct encoder_case {
    const char *name;
    clattn_stack_desc stack;
    bool tiny;
} encoders[] = {
    {"post-norm", {SHAPE(RELU), .layers = 2, POST}, true},
    {"pre-norm, gated, rotary, grouped heads, RMSNorm, causal",
     {SHAPE(SWISH), .layers = 3, PRE, .final_norm = 1, .norm = CLATTN_NORM_KIND_RMS, .gated = 1,
      .rotary = CLATTN_ROTARY_HALVES, .kv_heads = 2, .causal = 1, .without_bias = CLATTN_WITHOUT_BIAS},
     false},
    {"tokens of BERT's kind",
     {SHAPE(GELU), NN_TOKENS, .layers = 2, POST, .positions = CLATTN_POSITIONS_TABLE, .position_count = LONGEST,
      .segments = 2, .input_norm = 1},
     false},
    {"behind convolutions, as Whisper's",
     {SHAPE(GELU), .layers = 2, PRE, .final_norm = 1, .input = CLATTN_STACK_INPUT_FEATURES, .features = 10,
      .positions = CLATTN_POSITIONS_TABLE, .position_count = (LONGEST + 1) / 2, .convolutions = 2,
      .convolution = {{3, 1, 1, CLATTN_ACTIVATION_GELU}, {3, 2, 1, CLATTN_ACTIVATION_GELU}}},
     false},
};

/* Judges the unit vectors of items' means; `expected` and `naive` are the vectors of all positions. */
static void judge_pooled(const nn_encoder_run *run, size_t positions, const double *naive, const double *expected,
                         nn_judgement *j)
{
    const size_t row = run->d->d_model;
    for (size_t b = 0; b < BATCH; b++) {
        double sum[2][64] = {{0}}, square[2] = {0, 0};
        for (size_t c = 0; c < row; c++) {
            for (size_t p = 0; p < (size_t)run->lengths[b]; p++) {
                sum[0][c] += expected[(b * positions + p) * row + c];
                sum[1][c] += naive[(b * positions + p) * row + c];
            }
            square[0] += sum[0][c] * sum[0][c];
            square[1] += sum[1][c] * sum[1][c];
        }
        for (size_t c = 0; c < row; c++)
            nn_judge(j, CLATTN_DTYPE_F32, run->pooled[b * row + c], sum[1][c] / sqrt(square[1]),
                     sum[0][c] / sqrt(square[0]));
    }
}

static void encode(const struct encoder_case *c, clattn_dtype dtype, clattn_dtype weight_dtype)
{
    const clattn_stack_desc *d = &c->stack;
    const size_t positions = clattn_stack_positions(d, LONGEST), row = d->d_model;
    const size_t count = BATCH * LONGEST * (d->features ? d->features : row);
    const int32_t lengths[BATCH] = {(int32_t)positions, 8};
    float pooled[BATCH * 64];
    char what[160];
    nn_judgement j = {0}, of_pooled = {0};
    nn_store store = {.seed = 5};
    int32_t ids[BATCH * LONGEST];
    float *x = nn_floats(count, 7);
    uint16_t *stored = malloc(count * sizeof *stored);
    nn_store_add_stack(&store, "encoder", d);
    for (size_t i = 0; i < nn_store_count(&store); i++)
        nn_store_round(&store, i, 5);
    for (size_t i = 0; i < count; i++) {
        x[i] = rintf(x[i] * 32) / 32;
        storage_set(dtype, &stored[i], x[i]);
    }
    for (size_t i = 0; i < BATCH * LONGEST; i++)
        ids[i] = (int32_t)(i * 11 % NN_VOCABULARY);
    const bool tokens = d->input == CLATTN_STACK_INPUT_TOKENS;
    nn_encoder_run run = {.d = d,
                          .store = &store,
                          .desc = nn_encoder_desc(BATCH, LONGEST),
                          .input = tokens ? (const void *)ids : stored,
                          .lengths = lengths,
                          .model = {.dtype = dtype, .weight_dtype = weight_dtype},
                          .pooled = pooled};
    run.desc.pooling = CLATTN_POOLING_MEAN;
    run.desc.pooled_unit = 1;
    uint16_t *output = nn_run_encoder(context, &run);
    run.input = tokens ? (const void *)ids : x;
    double *expected = nn_encoder_expected(&run, 0), *naive = nn_encoder_expected(&run, dtype);
    for (size_t i = 0; i < BATCH * positions * row; i++)
        if (i / row % positions < (size_t)lengths[i / row / positions])
            nn_judge(&j, dtype, storage_get(dtype, &output[i]), naive[i], expected[i]);
    snprintf(what, sizeof what, "%s, %s, weights %s", c->name, name_of(dtype), name_of(weight_dtype));
    nn_judgement_assert(&j, what);
    judge_pooled(&run, positions, naive, expected, &of_pooled);
    strcat(what, ", pooled");
    nn_judgement_assert(&of_pooled, what);
    nn_store_clear(&store);
    free(x);
    free(stored);
    free(output);
    free(expected);
    free(naive);
}

static void encoders_of_16_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(encoders); i++) {
        if (is_tiny() && !encoders[i].tiny)
            continue;
        encode(&encoders[i], CLATTN_DTYPE_F16, 0);
        encode(&encoders[i], CLATTN_DTYPE_BF16, 0);
        if (!is_tiny() && i == 0) {
            encode(&encoders[i], CLATTN_DTYPE_F16, CLATTN_DTYPE_F32);
            encode(&encoders[i], CLATTN_DTYPE_BF16, CLATTN_DTYPE_F16);
            encode(&encoders[i], CLATTN_DTYPE_F16, CLATTN_DTYPE_I8);
        }
    }
}

/* ---- decoders ---- */

/* Appends the texts in pieces of four tokens as far as `pieces` and the rest token by token. */
static void decode_text(nn_world *w, size_t pieces, const double *naive, nn_judgement *j)
{
    static float logits[ITEMS * 4 * NN_VOCABULARY];
    nn_world_begin(w, NULL, 1);
    for (size_t i = 0, some; i < LENGTH; i += some) {
        some = i < pieces ? 4 : 1;
        nn_world_append(w, ITEMS, w->ids, LENGTH, (const size_t[]){i, i}, some, NULL, some, logits, some);
        for (size_t n = 0; n < ITEMS * some * NN_VOCABULARY; n++) {
            const size_t row = n / NN_VOCABULARY;
            const size_t place = (row / some * LENGTH + i + row % some) * NN_VOCABULARY + n % NN_VOCABULARY;
            nn_judge(j, CLATTN_DTYPE_F32, logits[n], naive[place], w->expected[place]);
        }
    }
}

/* Texts are appended in pieces of several tokens and then token by token; cached results agree with uncached ones
 * within the rule. */
static void decode(const decoder_case *c, clattn_dtype dtype, clattn_dtype cache_dtype, int32_t prepack)
{
    nn_world w = decoder_case_world(context, c, ITEMS);
    clattn_decoder_desc desc = CLATTN_DECODER_DESC_INIT;
    nn_judgement pieces = {0}, single = {0};
    char what[160];
    desc.length = 4;
    desc.logits = CLATTN_LOGITS_ALL;
    desc.cache_dtype = cache_dtype;
    desc.prepack = prepack;
    w.memory_lengths = decoder_case_memory_lengths;
    w.dtype = dtype;
    w.weight_dtype = dtype ? 0 : CLATTN_DTYPE_BF16;
    nn_world_open(&w, &desc);
    double *naive = nn_world_logits(&w, ITEMS, LENGTH, w.ids, 0, true, NULL, NULL);
    decode_text(&w, 8, naive, &pieces);
    decode_text(&w, 0, naive, &single);
    snprintf(what, sizeof what, "%s, %s, cache %s, in pieces", c->name, name_of(dtype), name_of(cache_dtype));
    nn_judgement_assert(&pieces, what);
    snprintf(what, sizeof what, "%s, %s, cache %s, token by token", c->name, name_of(dtype), name_of(cache_dtype));
    nn_judgement_assert(&single, what);
    free(naive);
    nn_world_close(&w);
}

static void decoders_of_16_bits(void **state)
{
    (void)state;
    decode(&decoder_cases[CASE_PAPER], CLATTN_DTYPE_F16, 0, 0);
    decode(&decoder_cases[CASE_LLAMA], CLATTN_DTYPE_BF16, 0, 1);
    if (is_tiny())
        return;
    decode(&decoder_cases[CASE_PAPER], CLATTN_DTYPE_F16, 0, 1);
    decode(&decoder_cases[CASE_PAPER], CLATTN_DTYPE_BF16, 0, 0);
}

/* A cache has another type than the model, narrower or wider. */
static void caches_of_another_type(void **state)
{
    (void)state;
    decode(&decoder_cases[CASE_PAPER], 0, CLATTN_DTYPE_F16, 0);
    decode(&decoder_cases[CASE_LLAMA], 0, CLATTN_DTYPE_BF16, 0);
    if (is_tiny())
        return;
    decode(&decoder_cases[CASE_PAPER], CLATTN_DTYPE_F16, CLATTN_DTYPE_F32, 0);
    decode(&decoder_cases[CASE_LLAMA], CLATTN_DTYPE_BF16, CLATTN_DTYPE_F16, 0);
}

/* The bytes of a state are those of its caches. */
static void narrow_caches_are_smaller(void **state)
{
    static const int32_t dtypes[] = {CLATTN_DTYPE_F32, CLATTN_DTYPE_F16, CLATTN_DTYPE_BF16};
    size_t bytes[3];
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        nn_world w = decoder_case_world(context, &decoder_cases[CASE_PAPER], ITEMS);
        clattn_decoder_desc desc = CLATTN_DECODER_DESC_INIT;
        desc.length = 4;
        desc.cache_dtype = dtypes[i];
        nn_world_open(&w, &desc);
        bytes[i] = clattn_decoder_state_bytes(w.state);
        nn_world_close(&w);
    }
    assert_int_equal(bytes[0], 2 * bytes[1]);
    assert_int_equal(bytes[1], bytes[2]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(encoders_of_16_bits, open_context, close_context),
        cmocka_unit_test_setup_teardown(decoders_of_16_bits, open_context, close_context),
        cmocka_unit_test_setup_teardown(caches_of_another_type, open_context, close_context),
        cmocka_unit_test_setup_teardown(narrow_caches_are_smaller, open_context, close_context),
    };
    return RUN_TESTS("nn_storage", tests, argc, argv);
}
