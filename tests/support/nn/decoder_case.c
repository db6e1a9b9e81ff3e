#include <stdlib.h>
#include <string.h>

#include "support/harness.h"
#include "support/nn/decoder_case.h"

#define SHAPE(function) \
    .size = sizeof(clattn_stack_desc), NN_TOKENS, .d_model = 32, .heads = 4, .d_ff = 48, \
    .activation = CLATTN_ACTIVATION_##function, .causal = 1

const decoder_case decoder_cases[DECODER_CASES] = {
    [CASE_PAPER] = {"the paper's: post-norm, cross, sinusoids, tied",
                    {SHAPE(RELU), .layers = 2, .cross = 1, .scale_embeddings = 1,
                     .positions = CLATTN_POSITIONS_SINUSOIDS},
                    CLATTN_MODEL_OUTPUT_TIED,
                    true},
    [CASE_WHISPER] = {"Whisper's: pre-norm, cross, table, no key bias",
                      {SHAPE(GELU), .layers = 2, .cross = 1, .norm_place = CLATTN_NORM_PLACE_PRE, .final_norm = 1,
                       .positions = CLATTN_POSITIONS_TABLE, .position_count = LENGTH,
                       .without_bias = CLATTN_WITHOUT_KEY_BIAS},
                      CLATTN_MODEL_OUTPUT_TIED,
                      false},
    [CASE_LLAMA] = {"Qwen's: no cross, rotary, RMSNorm, norms of heads, SwiGLU, grouped heads, own output",
                    {SHAPE(SWISH), .layers = 2, .norm_place = CLATTN_NORM_PLACE_PRE, .final_norm = 1,
                     .query_key_norm = 1, .explicit_alpha = 1, .alpha = 1.7f, .norm = CLATTN_NORM_KIND_RMS, .gated = 1,
                     .rotary = CLATTN_ROTARY_HALVES, .kv_heads = 2, .without_bias = CLATTN_WITHOUT_BIAS},
                    CLATTN_MODEL_OUTPUT_OWN,
                    true},
    [CASE_OTHER_MEMORY] = {"GPT-2's with a memory of another size, LayerScale, LeakyReLU, interleaved rotation",
                           {SHAPE(LEAKY_RELU), .layers = 1, .cross = 1, .d_memory = 20,
                            .norm_place = CLATTN_NORM_PLACE_PRE, .layer_scale = 1, .rotary = CLATTN_ROTARY_INTERLEAVED,
                            .rotary_size = 4},
                           CLATTN_MODEL_OUTPUT_TIED,
                           false},
    [CASE_GEMMA] = {"Gemma 2's: capped scores, every second layer reaches three tokens back",
                    {SHAPE(GELU_TANH), .layers = 2, .norm_place = CLATTN_NORM_PLACE_PRE, .final_norm = 1,
                     .norm = CLATTN_NORM_KIND_RMS, .gated = 1, .rotary = CLATTN_ROTARY_HALVES, .kv_heads = 2,
                     .without_bias = CLATTN_WITHOUT_BIAS, .softcap = 1.5f, .reach = 3, .unlimited = 2},
                    CLATTN_MODEL_OUTPUT_TIED,
                    false},
};

const int32_t decoder_case_memory_lengths[ITEMS] = {MEMORY, MEMORY - 2};

nn_world decoder_case_world(clattn_context *context, const decoder_case *c, size_t items)
{
    return (nn_world){.context = context,
                      .d = &c->stack,
                      .output = c->output,
                      .items = items,
                      .length = LENGTH,
                      .memory_length = MEMORY};
}

void decoder_case_open(nn_world *w, clattn_context *context, const decoder_case *c, clattn_decoder_desc *desc)
{
    *w = decoder_case_world(context, c, ITEMS);
    w->memory_lengths = decoder_case_memory_lengths;
    nn_world_open(w, desc);
}

void decoder_case_beams(nn_world *w, size_t first, const size_t orders[][CASE_SEQUENCES], size_t rounds,
                        const char *what)
{
    static float logits[CASE_SEQUENCES * NN_VOCABULARY];
    int32_t texts[CASE_SEQUENCES][LENGTH], other[CASE_SEQUENCES][LENGTH];
    nn_world_begin(w, NULL, 1);
    nn_world_append(w, ITEMS, w->ids, LENGTH, (const size_t[ITEMS]){0}, first, NULL, w->mask_rows, logits, 1);
    memcpy(texts, w->ids, ITEMS * sizeof *texts);
    for (size_t round = 0; round < rounds; round++) {
        const size_t length = first + round, at[CASE_SEQUENCES] = {length, length, length, length, length, length};
        assert_status(w->context, clattn_decoder_reorder(w->state, NULL, CASE_BEAMS, orders[round], 0, NULL, NULL),
                      CLATTN_SUCCESS);
        for (size_t s = 0; s < CASE_SEQUENCES; s++) {
            memcpy(other[s], texts[orders[round][s]], sizeof other[s]);
            other[s][length] = (int32_t)((s * 7 + round * 5) % NN_VOCABULARY);
        }
        memcpy(texts, other, sizeof texts);
        nn_world_append(w, CASE_SEQUENCES, texts[0], LENGTH, at, 1, NULL, 1, logits, 1);
        for (size_t s = 0; s < CASE_SEQUENCES; s++) {
            double *expected = nn_world_logits(w, 1, length + 1, texts[s], s / CASE_BEAMS, false, NULL, NULL);
            nn_check_logits(logits + s * NN_VOCABULARY, expected + length * NN_VOCABULARY, what);
            free(expected);
        }
    }
}
