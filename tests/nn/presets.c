/* Presets of published models have the published fields, the paper's base model agrees with the reference, and
 * Whisper's tensors load under the names that Hugging Face's files have.
 *
 * Holds: transformer.h, "Published models' shapes"; docs/transformer.md; weights.h, CLATTN_NAME_FORMAT_WHISPER; that
 * cached and uncached decoding agree. */
#include <stdio.h>
#include <string.h>

#include "support/harness.h"
#include "support/nn/pair.h"
#include "support/nn/run.h"
#include "support/core/one_context.h"

/* ---- fields ---- */

/* Compares a stack with sections 3.1 to 3.5 of "Attention Is All You Need" and a row of its table 3.  Zero is this
 * library's default. */
static void check_paper_stack(const clattn_stack_desc *d, size_t d_model, size_t heads, size_t d_ff, bool decoder)
{
    const size_t positions_and_segments = d->position_count + d->first_position + d->segments;
    assert_int_equal(d->layers, 6);
    assert_int_equal(d->d_model, d_model);
    assert_int_equal(d->heads, heads);
    assert_true(!d->kv_heads || d->kv_heads == heads);
    assert_int_equal(d->head_size ? d->head_size : d->d_model / d->heads, 64);
    assert_int_equal(d->d_ff, d_ff);
    assert_int_equal(d->activation, CLATTN_ACTIVATION_RELU);
    assert_false(d->gated);
    assert_int_equal(d->norm, CLATTN_NORM_KIND_LAYER);
    assert_int_equal(d->norm_place, CLATTN_NORM_PLACE_POST);
    assert_false(d->final_norm);
    assert_int_equal(d->without_bias, 0);
    assert_int_equal(d->causal, decoder);
    assert_int_equal(d->cross, decoder);
    assert_true(!d->d_memory || d->d_memory == d_model);
    assert_int_equal(d->explicit_scale, 0);
    assert_int_equal(d->rotary, CLATTN_ROTARY_NONE);
    assert_int_equal(d->input, CLATTN_STACK_INPUT_TOKENS);
    assert_int_equal(d->vocabulary, 0); /* the caller's */
    assert_int_equal(d->positions, CLATTN_POSITIONS_SINUSOIDS);
    assert_int_equal(positions_and_segments, 0);
    assert_true(d->scale_embeddings);
    assert_false(d->input_norm);
    assert_int_equal(d->convolutions + d->features, 0);
}

static void fields(void **state)
{
    static const struct {
        clattn_preset preset;
        size_t d_model, heads, d_ff;
    } papers[] = {{CLATTN_PRESET_PAPER_BASE, 512, 8, 2048}, {CLATTN_PRESET_PAPER_BIG, 1024, 16, 4096}};
    clattn_transformer_desc desc;
    clattn_stack_desc encoder, decoder;
    uint8_t mask[3] = {0, 1, 2};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(papers); i++) {
        assert_status(NULL, clattn_transformer_preset(papers[i].preset, &desc, &encoder, &decoder), CLATTN_SUCCESS);
        assert_ptr_equal(desc.encoder, &encoder);
        assert_ptr_equal(desc.decoder, &decoder);
        check_paper_stack(&encoder, papers[i].d_model, papers[i].heads, papers[i].d_ff, false);
        check_paper_stack(&decoder, papers[i].d_model, papers[i].heads, papers[i].d_ff, true);
        assert_int_equal(desc.output, CLATTN_MODEL_OUTPUT_TIED);
        assert_int_equal(desc.output_bias + (int)desc.output_size, 0);
    }
    assert_status(NULL, clattn_transformer_preset(CLATTN_PRESET_MINILM_L6, &desc, &encoder, &decoder), CLATTN_SUCCESS);
    assert_null(desc.decoder);
    assert_status(NULL, clattn_transformer_preset(CLATTN_PRESET_WHISPER_TINY_EN, &desc, &encoder, &decoder),
                  CLATTN_SUCCESS);
    assert_int_equal(clattn_stack_positions(&encoder, 3000), 1500);
    assert_status(NULL, clattn_transformer_preset((clattn_preset)99, &desc, &encoder, &decoder),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    clattn_mask_from_pytorch(mask, mask, 3);
    assert_int_equal(mask[0] * 100 + mask[1] * 10 + mask[2], 100);
}

/* ---- models ---- */

/* Gives a stack `layers` layers of a few columns. */
static void shrink(clattn_stack_desc *d, size_t layers)
{
    d->layers = layers;
    d->d_model = 32;
    d->heads = 4;
    d->d_ff = 48;
}

/* The paper's base model has its real size except for the vocabulary; simulators run a small one of the same
 * structure. */
static void paper(void **state)
{
    clattn_transformer_desc desc;
    clattn_stack_desc encoder, decoder;
    nn_store store = {.seed = 9};
    (void)state;
    assert_status(NULL, clattn_transformer_preset(CLATTN_PRESET_PAPER_BASE, &desc, &encoder, &decoder), CLATTN_SUCCESS);
    encoder.vocabulary = 29;
    decoder.vocabulary = 37;
    if (is_tiny()) {
        shrink(&encoder, 1);
        shrink(&decoder, 1);
    }
    nn_store_add_stack(&store, "encoder", &encoder);
    nn_store_add_stack(&store, "decoder", &decoder);
    const clattn_weight_source source = nn_source(&store);
    /* Sums of 512 products make logits of about 13, of which 1e-4 are some 60 roundings. */
    nn_pair_check(&(nn_pair){.context = context,
                             .desc = &desc,
                             .store = &store,
                             .source = &source,
                             .batch = 1,
                             .input = 5,
                             .length = 4,
                             .tolerance = 1e-4});
    nn_store_clear(&store);
}

/* ---- names ---- */

/* Names in the state dict of Hugging Face's WhisperForConditionalGeneration: of the encoder and the decoder, of their
 * layers, of an attention.  The rest of a name, ".weight" or ".bias", is the same as here. */
typedef struct pair {
    const char *ours, *theirs;
} pair;
static const pair stack_names[] = {{"convolutions.0", "conv1"},
                                   {"convolutions.1", "conv2"},
                                   {"tokens", "embed_tokens"},
                                   {"positions", "embed_positions"},
                                   {"norm", "layer_norm"}};
static const pair layer_names[] = {{"self.norm", "self_attn_layer_norm"},
                                   {"cross.norm", "encoder_attn_layer_norm"},
                                   {"feed_forward.in", "fc1"},
                                   {"feed_forward.out", "fc2"},
                                   {"feed_forward.norm", "final_layer_norm"},
                                   {"self.query", "self_attn.q_proj"},
                                   {"self.key", "self_attn.k_proj"},
                                   {"self.value", "self_attn.v_proj"},
                                   {"self.output", "self_attn.out_proj"},
                                   {"cross.query", "encoder_attn.q_proj"},
                                   {"cross.key", "encoder_attn.k_proj"},
                                   {"cross.value", "encoder_attn.v_proj"},
                                   {"cross.output", "encoder_attn.out_proj"}};

static void hugging_face_name(const char *ours, char theirs[96])
{
    unsigned layer = 0;
    int read = 0;
    char stack[8], part[64];
    const char *kind = strrchr(ours, '.');
    const bool of_layer = sscanf(ours, "%7[a-z].layers.%u.%n", stack, &layer, &read) == 2 && read;
    if (!of_layer)
        assert_int_equal(sscanf(ours, "%7[a-z].%n", stack, &read), 1);
    snprintf(part, sizeof part, "%.*s", (int)(kind - ours) - read, ours + read);
    const pair *names = of_layer ? layer_names : stack_names;
    const size_t count = of_layer ? sizeof layer_names / sizeof *names : sizeof stack_names / sizeof *names;
    size_t i = 0;
    while (i < count && strcmp(names[i].ours, part))
        i++;
    assert_true(i < count);
    if (of_layer)
        snprintf(theirs, 96, "model.%s.layers.%u.%s%s", stack, layer, names[i].theirs, kind);
    else
        snprintf(theirs, 96, "model.%s.%s%s", stack, names[i].theirs, kind);
}

/* A small Whisper loads from tensors with Hugging Face's names, and a missing one is named. */
static void whisper(void **state)
{
    clattn_transformer_desc desc;
    clattn_stack_desc encoder, decoder;
    clattn_transformer *model = NULL;
    nn_store store = {.seed = 5}, file = {.seed = 5};
    nn_store *const stores[] = {&store, &file};
    char name[96];
    (void)state;
    assert_status(NULL, clattn_transformer_preset(CLATTN_PRESET_WHISPER_TINY_EN, &desc, &encoder, &decoder),
                  CLATTN_SUCCESS);
    shrink(&encoder, 2);
    shrink(&decoder, 2);
    encoder.features = 10;
    encoder.position_count = 9;
    decoder.position_count = 7;
    decoder.vocabulary = 37;
    for (size_t i = 0; i < 2; i++) {
        nn_store_add_stack(stores[i], "encoder", &encoder);
        nn_store_add_stack(stores[i], "decoder", &decoder);
    }
    for (size_t i = 0; i < nn_store_count(&file); i++) {
        hugging_face_name(nn_store_name(&file, i), name);
        nn_store_rename(&file, i, name);
    }
    clattn_weight_source source = nn_source(&file);
    source.format = CLATTN_NAME_FORMAT_WHISPER;
    nn_pair_check(&(nn_pair){.context = context,
                             .desc = &desc,
                             .store = &store,
                             .source = &source,
                             .batch = 1,
                             .input = 18,
                             .length = 3,
                             .cached_only = true,
                             .tolerance = 1e-5});
    for (size_t i = 0; i < nn_store_count(&file); i++) {
        char message[256];
        hugging_face_name(nn_store_name(&store, i), name);
        nn_store_rename(&file, i, "another");
        assert_status(context, clattn_transformer_create(context, &desc, &source, &model), CLATTN_ERROR_FORMAT);
        snprintf(message, sizeof message, "no tensor %s (%s)", name, nn_store_name(&store, i));
        assert_message_has(context, message);
        nn_store_rename(&file, i, name);
    }
    /* output.weight belongs to models whose output is not tied; files also contain it if it is tied. */
    assert_int_equal(clattn_weight_name(&source, "output.weight", name, sizeof name, NULL, NULL, NULL), 15);
    assert_string_equal(name, "proj_out.weight");
    nn_store_clear(&store);
    nn_store_clear(&file);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields),
        cmocka_unit_test_setup_teardown(paper, open_context, close_context),
        cmocka_unit_test_setup_teardown(whisper, open_context, close_context),
    };
    return RUN_TESTS("presets", tests, argc, argv);
}
