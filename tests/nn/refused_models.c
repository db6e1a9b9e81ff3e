/* Each rule about descriptions of models and their tensors refuses what breaks it, in its own words.
 *
 * Holds: docs/transformer.md; transformer.h, decoder.h and weights.h. */
#include <math.h>
#include <string.h>

#include "support/core/one_context.h"
#include "support/harness.h"
#include "support/nn/decoder_case.h"
#include "support/nn/run.h"

static const size_t too_many = (size_t)1 << 31;

/* ---- descriptions of models: refused before any tensor is asked for ---- */

static void refused_model(const clattn_transformer_desc *desc, clattn_status status, const char *words, int line)
{
    nn_store store = {0};
    const clattn_weight_source source = nn_source(&store);
    clattn_transformer *model = NULL;
    check_status(context, clattn_transformer_create(context, desc, &source, &model), STATUS_BIT(status), words,
                 __FILE__, line);
    check_message(context, words, __FILE__, line);
    assert_null(model);
}

/* A model whose encoder (decoder) is a copy `d` of `good` with one change. */
#define STACK_WRONG(which, good, change, words) \
    { \
        clattn_stack_desc d = good; \
        const clattn_transformer_desc desc = {.size = sizeof desc, .which = &d}; \
        change; \
        refused_model(&desc, CLATTN_ERROR_INVALID_LAYOUT, words, __LINE__); \
    }
#define ENCODER(change, words) STACK_WRONG(encoder, vectors, change, words)
#define TOKENS(change, words) STACK_WRONG(encoder, tokens, change, words)
#define FEATURES(change, words) STACK_WRONG(encoder, features, change, words)
#define DECODER(change, words) STACK_WRONG(decoder, vectors, change, words)

static void stacks(void **state)
{
    const clattn_stack_desc vectors = {SHAPE(RELU), .layers = 2}, tokens = {SHAPE(RELU), .layers = 2, NN_TOKENS};
    clattn_stack_desc features = {SHAPE(RELU), .layers = 2, .input = CLATTN_STACK_INPUT_FEATURES, .features = 5,
                                  .convolutions = 1};
    const char *const flag = "a flag (gated, explicit_epsilon", *const one = "layers, d_model, heads and d_ff are";
    const char *const tables = "a table of positions has", *const convolution = "a convolution has no kernel";
    const char *const sizes = "features have a number of columns", *const only = "segments and scale_embeddings are";
    (void)state;
    features.convolution[0] = (clattn_convolution){3, 1, 1, CLATTN_ACTIVATION_NONE};
    ENCODER(d.size = 1, "encoder: its size is none")
    ENCODER(d.activation = CLATTN_ACTIVATION_NONE, "activation is NONE or unknown")
    ENCODER(d.activation = 99, "activation is NONE or unknown")
    ENCODER(d.norm = 9, "unknown norm or norm_place")
    ENCODER(d.norm_place = 9, "unknown norm or norm_place")
    ENCODER(d.explicit_scale = 2, "explicit_scale is neither")
    ENCODER(d.rotary = 9, "unknown rotary")
    ENCODER(d.input = 9, "unknown input or positions")
    ENCODER(d.positions = 9, "unknown input or positions")
    ENCODER(d.without_bias = 64, "without_bias has a bit")
    ENCODER(d.gated = 2, flag)
    ENCODER(d.explicit_epsilon = 2, flag)
    ENCODER(d.final_norm = 2, flag)
    ENCODER(d.causal = 2, flag)
    ENCODER(d.cross = 2, flag)
    ENCODER(d.scale_embeddings = 2, flag)
    ENCODER(d.input_norm = 2, flag)
    ENCODER(d.epsilon = -1, "epsilon is negative or not finite")
    ENCODER(d.epsilon = (float)NAN, "epsilon is negative or not finite")
    ENCODER(d.layers = 0, one)
    ENCODER(d.d_model = 0, one)
    ENCODER(d.heads = 0, one)
    ENCODER(d.d_ff = 0, one)
    ENCODER(d.layers = 4097, "more than 4096 layers")
    ENCODER(d.kv_heads = 3, "heads is no multiple of kv_heads")
    ENCODER(d.heads = 5, "d_model is no multiple of heads")
    ENCODER((d.rotary = CLATTN_ROTARY_HALVES, d.rotary_size = 3), "rotary_size is odd")
    ENCODER((d.rotary = CLATTN_ROTARY_HALVES, d.rotary_size = 10), "rotary_size is odd")
    ENCODER(d.d_ff = too_many, "a size is 2^31 or more")
    ENCODER((d.heads = (1 << 20) + 1, d.head_size = 1 << 7), "heads * head_size is above 2^27")
    ENCODER(d.vocabulary = 9, "tokens have a vocabulary")
    ENCODER(d.segments = 2, only)
    ENCODER(d.scale_embeddings = 1, only)
    ENCODER(d.input_norm = 1, "input_norm is for tokens and pictures")
    ENCODER(d.features = 9, sizes)
    ENCODER(d.convolutions = 1, sizes)
    ENCODER(d.positions = CLATTN_POSITIONS_SINUSOIDS, "positions are added to tokens, features or pictures")
    ENCODER(d.position_count = 9, tables)
    ENCODER(d.first_position = 2, "first_position is for tokens")
    ENCODER(d.cross = 1, "encoder: an encoder has no cross-attention")
    TOKENS(d.vocabulary = 0, "tokens have a vocabulary")
    TOKENS(d.positions = CLATTN_POSITIONS_TABLE, tables)
    TOKENS(d.first_position = 2, "first_position is for tokens")
    TOKENS((d.positions = CLATTN_POSITIONS_TABLE, d.position_count = d.first_position = 9), "first_position is beyond")
    FEATURES(d.features = 0, sizes)
    FEATURES(d.convolutions = 0, sizes)
    FEATURES(d.positions = CLATTN_POSITIONS_SINUSOIDS, "sinusoids are computed for tokens")
    FEATURES((d.positions = CLATTN_POSITIONS_TABLE, d.position_count = 9, d.first_position = 2),
             "first_position is for tokens")
    FEATURES(d.convolutions = CLATTN_MAX_CONVOLUTIONS + 1, "too many convolutions")
    FEATURES(d.convolution[0].kernel = 0, convolution)
    FEATURES(d.convolution[0].kernel = 4097, convolution)
    FEATURES(d.convolution[0].stride = 0, convolution)
    FEATURES(d.convolution[0].stride = 4097, convolution)
    FEATURES(d.convolution[0].padding = 3, convolution)
    FEATURES(d.convolution[0].activation = 99, convolution)
    DECODER(d = features, "decoder: a decoder's input is tokens or vectors")
    DECODER(d.heads = 5, "decoder: d_model is no multiple of heads")
}

#define PICTURES(change, words) STACK_WRONG(encoder, pictures, change, words)
#define STAGES(change, words) \
    { \
        clattn_stack_desc last = merged, d = staged; \
        const clattn_transformer_desc desc = {.size = sizeof desc, .encoder = &d}; \
        d.next = &last; \
        change; \
        refused_model(&desc, CLATTN_ERROR_INVALID_LAYOUT, words, __LINE__); \
    }

static void pictures_and_stages(void **state)
{
    const clattn_stack_desc vectors = {SHAPE(RELU), .layers = 2};
    const clattn_stack_desc pictures = {
        SHAPE(RELU),
        .layers = 2,
        .input = CLATTN_STACK_INPUT_PICTURES,
        .positions = CLATTN_POSITIONS_TABLE,
        .position_count = 7,
        .patches = {.channels = 3, .height = 4, .width = 4, .grid_rows = 2, .grid_columns = 3, .class_token = 1}};
    const clattn_stack_desc staged = {SHAPE(RELU), .layers = 2, .input = CLATTN_STACK_INPUT_PICTURES,
                                      .patches = {.channels = 3, .height = 4, .width = 4},
                                      .windows = {.rows = 2, .columns = 2}};
    const clattn_stack_desc merged = {SHAPE(RELU), .layers = 2, .input = CLATTN_STACK_INPUT_MERGED};
    const clattn_restoration added = {CLATTN_RESTORATION_KIND_ADDED, 0, 1, 0};
    const char *const flags = "patches: antialias, without_bias or class_token", *const least = "patches: channels,";
    const char *const count = "patches: position_count is", *const grid = "patches: a table of positions has a grid";
    const char *const only = "patches are for pictures", *const plain = "windows are for pictures without class token";
    clattn_stack_desc chain[CLATTN_MAX_STAGES + 1];
    (void)state;
    ENCODER(d.patches.channels = 3, only)
    ENCODER(d.patches.registers = 1, only)
    ENCODER(d.windows.rows = d.windows.columns = 2, plain)
    ENCODER(d.query_key_norm = 2, "a flag (gated, explicit_epsilon")
    ENCODER(d.layer_scale = -1, "a flag (gated, explicit_epsilon")
    ENCODER(d.explicit_alpha = 2, "a flag (gated, explicit_epsilon")
    ENCODER(d.alpha = (float)INFINITY, "alpha is not finite")
    ENCODER(d.projection = too_many, "a size is 2^31 or more")
    ENCODER(d.input = CLATTN_STACK_INPUT_MERGED, "the inputs MERGED and CONTINUED are for stages")
    ENCODER(d.input = CLATTN_STACK_INPUT_CONTINUED, "the inputs MERGED and CONTINUED are for stages")
    ENCODER(d.next = &merged, "stages are for pictures")
    PICTURES(d.patches.antialias = 2, flags)
    PICTURES(d.patches.without_bias = 2, flags)
    PICTURES(d.patches.class_token = -1, flags)
    PICTURES(d.patches.reserved = 1, flags)
    PICTURES(d.patches.registers = 65537, "patches: a size is above 65536")
    PICTURES(d.patches.channels = 0, least)
    PICTURES(d.patches.height = 0, least)
    PICTURES((d.patches.channels = 1, d.patches.height = 32768, d.patches.width = 65536), least)
    PICTURES(d.patches.grid_rows = 0, grid)
    PICTURES((d.positions = CLATTN_POSITIONS_NONE, d.position_count = 0), grid)
    PICTURES(d.position_count = 8, count)
    PICTURES(d.patches.class_token = 0, count)
    PICTURES((d.positions = CLATTN_POSITIONS_SINUSOIDS, d.d_model = 36, d.heads = 1), "a table of positions has a")
    PICTURES((d.positions = CLATTN_POSITIONS_SINUSOIDS, d.d_model = 34, d.heads = 1),
             "sinusoids are computed for tokens")
    PICTURES((d.rotary = CLATTN_ROTARY_HALVES, d.rotary_size = 6), "rotary_size of pictures is a multiple of 4")
    PICTURES(d.rotary_centred = 1, "rotary_centred is for pictures whose patches are rotated")
    PICTURES(d.reach = 3, "reach is not for pictures")
    ENCODER((d.rotary = CLATTN_ROTARY_HALVES, d.rotary_centred = 1), "rotary_centred is for pictures")
    ENCODER(d.rotary_centred = 2, "a flag (gated, explicit_epsilon")
    ENCODER(d.reach = too_many, "a size is 2^31 or more")
    ENCODER(d.unlimited = 1, "unlimited is without reach")
    ENCODER((d.reach = 2, d.unlimited = (uint64_t)1 << d.layers), "unlimited is without reach, or has a layer")
    ENCODER(d.softcap = -1, "softcap is negative or not finite")
    ENCODER(d.softcap = (float)NAN, "softcap is negative or not finite")
    STAGES((d.softcap = 2, d.windows.position_bias = CLATTN_POSITION_BIAS_DECOMPOSED), "and no softcap")
    PICTURES(d.windows.rows = d.windows.columns = 2, plain)
    PICTURES(d.windows.rows = 2, "windows: one of rows and columns is 0")
    PICTURES(d.windows.rows = d.windows.columns = 65, "windows: one of rows and columns is 0, or a size is above 64")
    PICTURES(d.windows.shifted = 1, "windows: shifted, position_bias and whole are for")
    PICTURES(d.windows.whole = 1, "windows: shifted, position_bias and whole are for")
    PICTURES(d.neck = 4, "a neck is for pictures without class token")
    PICTURES((d.patches.class_token = 0, d.position_count = 6, d.final_norm = 1, d.neck = 4), "a neck is for pictures")
    PICTURES(d.windows.position_bias = 9, "windows: shifted is not 0, 1 or 2")
    PICTURES(d.next = &merged, "a stage that another one follows has no final_norm")
    STAGES(d.causal = 1, plain)
    STAGES(d.windows.whole = 4, "windows: whole has a layer that the stack does not have")
    STAGES((d.windows.whole = 1, d.windows.position_bias = CLATTN_POSITION_BIAS_TABLE), "windows: whole layers have no")
    STAGES((d.windows.whole = 1, d.windows.position_bias = CLATTN_POSITION_BIAS_DECOMPOSED), grid)
    STAGES((d.explicit_scale = 1, d.windows.position_bias = CLATTN_POSITION_BIAS_DECOMPOSED),
           "needs a scale whose inverse")
    STAGES((d.kv_heads = 2, d.windows.position_bias = CLATTN_POSITION_BIAS_DECOMPOSED), "needs a scale whose inverse")
    STAGES(d.neck = 4, "a neck is for pictures without class token")
    STAGES(d.rotary = CLATTN_ROTARY_HALVES, plain)
    STAGES(d.final_norm = 1, "a stage that another one follows has no final_norm")
    STAGES(d.projection = 4, "a stage that another one follows has no final_norm")
    STAGES(last.input = CLATTN_STACK_INPUT_VECTORS, "has the input CLATTN_STACK_INPUT_MERGED")
    STAGES((last.input = CLATTN_STACK_INPUT_CONTINUED, last.d_model = 64), "a stage that continues another one has its")
    STAGES((d.residual = 1, last.input = CLATTN_STACK_INPUT_CONTINUED), "residual is for encoders with a restoration")
    STAGES((last.positions = CLATTN_POSITIONS_TABLE, last.position_count = 6),
           "positions are added to tokens, features")
    STAGES((last.rotary = CLATTN_ROTARY_HALVES, last.windows = (clattn_windows){0}, last.rotary_size = 6),
           "rotary_size of pictures is a multiple of 4")
    ENCODER((d.rotary = CLATTN_ROTARY_HALVES, d.rotary_base = 1), "rotary_base is not finite and above 1")
    PICTURES((d.rotary = CLATTN_ROTARY_HALVES, d.rotary_base = (float)NAN), "rotary_base is not finite and above 1")
    STAGES(d.residual = 2, "residual is not 0, 1 or 3")
    STAGES((last.residual = 1, last.restoration = added), "restoration is for patches of 1 x 1")
    STAGES((d.patches.height = d.patches.width = 1, last.residual = 1, last.restoration = added),
           "stages of an encoder with a restoration continue one another")
    PICTURES(d.patches.border = 1, "patches: a border is without a table")
    PICTURES(d.patches.border = 65537, "patches: a size is above 65536")
    PICTURES(d.restoration.factor = 2, "restoration: factor and features are for a kind")
    PICTURES(d.restoration.kind = 9, "restoration: unknown kind")
    PICTURES((d.residual = 1, d.restoration = added, d.restoration.factor = 2), "the kind does not have this factor")
    PICTURES((d.residual = 1, d.restoration = added, d.restoration.features = 2),
             "restoration: features are 1 to 65536")
    PICTURES(d.restoration = added, "restoration is for a last stage with a residual")
    ENCODER(d.patches.border = 1, only)
    DECODER(d.residual = 1, "decoder: a projection is for")
    STAGES(last.norm = CLATTN_NORM_KIND_RMS, "stages differ in norm")
    STAGES(last.heads = 5, "d_model is no multiple of heads")
    STAGES(last.cross = 1, "an encoder has no cross-attention")
    STAGES(last.size = 1, "its size is none")
    DECODER(d.next = &merged, "decoder: a projection is for")
    DECODER(d = pictures, "decoder: a decoder's input is tokens or vectors")
    for (size_t i = 0; i <= CLATTN_MAX_STAGES; i++) {
        chain[i] = i ? merged : staged;
        chain[i].next = i < CLATTN_MAX_STAGES ? &chain[i + 1] : NULL;
    }
    STAGES(d.next = chain + 1, "more than CLATTN_MAX_STAGES stages")
}

static void models(void **state)
{
    const clattn_stack_desc tokens = {SHAPE(RELU), .layers = 2, NN_TOKENS}, vectors = {SHAPE(RELU), .layers = 2};
    const clattn_stack_desc reader = {SHAPE(RELU), .layers = 2, NN_TOKENS, .cross = 1, .d_memory = 20};
    const clattn_transformer_desc good = {.size = sizeof good, .decoder = &tokens, .output = CLATTN_MODEL_OUTPUT_TIED};
    nn_store store = {0};
    clattn_transformer *model = (clattn_transformer *)(void *)&store; /* must be NULL afterwards */
    (void)state;
#define MODEL(change, status, words) \
    { \
        clattn_transformer_desc d = good; \
        change; \
        refused_model(&d, CLATTN_ERROR_##status, words, __LINE__); \
    }
    refused_model(NULL, CLATTN_ERROR_INVALID_ARGUMENT, "transformer: desc is NULL", __LINE__);
    MODEL(d.size = 1, INVALID_STRUCT, "transformer: desc is NULL, or its size")
    MODEL(d.dtype = CLATTN_DTYPE_F64, UNSUPPORTED, "dtype is float32")
    MODEL(d.weight_dtype = CLATTN_DTYPE_I4, UNSUPPORTED, "weight_dtype is float32")
    MODEL(d.decoder = NULL, INVALID_ARGUMENT, "neither an encoder nor a decoder")
    MODEL((d.encoder = &vectors, d.decoder = &reader), INVALID_LAYOUT, "decoder: d_memory is not the encoder's")
    const clattn_stack_desc picture = {SHAPE(RELU),
                                       .layers = 1,
                                       .input = CLATTN_STACK_INPUT_PICTURES,
                                       .patches = {.channels = 1, .height = 1, .width = 1},
                                       .residual = 1,
                                       .restoration = {CLATTN_RESTORATION_KIND_ADDED, 0, 1, 0}};
    MODEL((d.encoder = &picture, d.decoder = &reader), INVALID_LAYOUT, "an encoder whose output is a picture")
    MODEL(d.output = 9, INVALID_ARGUMENT, "unknown output")
    MODEL(d.output_bias = 2, INVALID_ARGUMENT, "unknown output")
    MODEL((d.encoder = &vectors, d.decoder = NULL), INVALID_ARGUMENT, "an output without a decoder")
    MODEL(d.output_bias = 1, INVALID_ARGUMENT, "output_bias is for an own output")
    MODEL(d.decoder = &vectors, INVALID_LAYOUT, "a tied output is as large")
    MODEL(d.output_size = 5, INVALID_LAYOUT, "a tied output is as large")
    MODEL((d.decoder = &vectors, d.output = CLATTN_MODEL_OUTPUT_OWN), INVALID_LAYOUT, "output_size is 0 or 2^31")
    MODEL((d.output = CLATTN_MODEL_OUTPUT_OWN, d.output_size = too_many), INVALID_LAYOUT, "output_size is 0 or 2^31")
#define SOURCE(change) \
    { \
        clattn_weight_source s = nn_source(&store); \
        change; \
        assert_status(context, clattn_transformer_create(context, &good, &s, &model), CLATTN_ERROR_INVALID_ARGUMENT); \
        assert_message_has(context, "source: no lookup"); \
        assert_null(model); \
    }
    SOURCE(s.lookup = NULL)
    SOURCE(s.rule_count = 1)
    SOURCE(s.reserved = 1)
    SOURCE(s.format = 99)
    clattn_weight_source source = nn_source(&store);
    assert_status(context, clattn_transformer_create(context, &good, &source, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "transformer is NULL");
    assert_status(NULL, clattn_transformer_create(NULL, &good, &source, &model), CLATTN_ERROR_INVALID_ARGUMENT);
}

/* ---- tensors ---- */

static struct {
    const char *name; /* of the tensor that is changed */
    clattn_host_tensor changed;
    clattn_status status;
    const char *message;
} broken;

/* Looks a tensor up in the store, or delivers the broken one. */
static clattn_status broken_lookup(void *user, const char *name, clattn_host_tensor *tensor, clattn_io_error *error)
{
    clattn_status status = nn_store_lookup(user, name, tensor, error);
    if (status != CLATTN_SUCCESS || strcmp(name, broken.name) != 0)
        return status;
    *tensor = broken.changed;
    snprintf(error->message, sizeof error->message, "%s", broken.message ? broken.message : "");
    return broken.status;
}

/* A tensor of the wrong type, rank or number of bytes is refused, and so is a name that is too long; the words of a lookup
 * that fails are the model's. */
static void tensors(void **state)
{
    static const clattn_stack_desc stack = {SHAPE(RELU), .layers = 1};
    static const clattn_name_rule pad[] = {{"encoder.layers.{n}.self.query.{kind}",
                                            "a234567890123456789012345678901234567890123456789012345678901234567890"
                                            "b234567890123456789012345678901234567890123456789012345678901234567890"
                                            "c234567890123456789012345678901234567890123456789012345678901234567890"
                                            "d234567890123456789012345678901234567890123456789012345678901234567890"
                                            "{kind}"}};
    const clattn_transformer_desc desc = {.size = sizeof desc, .encoder = &stack};
    clattn_transformer *model = NULL;
    nn_store store = {0};
    (void)state;
    nn_store_add_stack(&store, "encoder", &stack);
    clattn_weight_source source = nn_source(&store);
    source.lookup = broken_lookup;
    broken.name = "encoder.layers.0.self.norm.bias";
    clattn_host_tensor good;
    clattn_io_error error = {0};
    assert_int_equal(nn_store_lookup(&store, broken.name, &good, &error), CLATTN_SUCCESS);
#define TENSOR(change, answer, words, expected, says) \
    { \
        clattn_host_tensor t = good; \
        change; \
        broken.changed = t; \
        broken.status = answer; \
        broken.message = words; \
        assert_status(context, clattn_transformer_create(context, &desc, &source, &model), CLATTN_ERROR_##expected); \
        assert_message_has(context, says); \
        assert_null(model); \
    }
    TENSOR(t.dtype = CLATTN_DTYPE_F64, CLATTN_SUCCESS, NULL, FORMAT, "float64")
    TENSOR(t.rank = 0, CLATTN_SUCCESS, NULL, FORMAT, "is float32 scalar")
    TENSOR(t.extent[0]++, CLATTN_SUCCESS, NULL, FORMAT, "is float32 33, not 32")
    TENSOR(t.data = NULL, CLATTN_SUCCESS, NULL, FORMAT, "bytes, not those of")
    TENSOR(t.bytes--, CLATTN_SUCCESS, NULL, FORMAT, "has 127 bytes, not those of")
    TENSOR(t.bytes = 0, CLATTN_ERROR_IO, "the disk is gone", IO, "encoder.layers.0.self.norm.bias: the disk is gone")
    TENSOR(t.bytes = 0, CLATTN_ERROR_IO, NULL, IO, "encoder.layers.0.self.norm.bias: not readable")
    source.rules = pad;
    source.rule_count = 1;
    TENSOR(t.rank = 1, CLATTN_SUCCESS, NULL, INVALID_ARGUMENT, "encoder.layers.0.self.query.weight: its name is longer")
    nn_store_clear(&store);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(stacks, open_context, close_context),
        cmocka_unit_test_setup_teardown(pictures_and_stages, open_context, close_context),
        cmocka_unit_test_setup_teardown(models, open_context, close_context),
        cmocka_unit_test_setup_teardown(tensors, open_context, close_context),
    };
    return RUN_TESTS("nn_refused_models", tests, argc, argv);
}
