/* Models take weights of all types and names, refuse wrong ones with a message, and use the memory that they report.
 *
 * Holds: docs/transformer.md; that a plan's memory does not grow with its layers, and that its workspace is enough. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/harness.h"
#include "support/nn/decoder_case.h"
#include "support/nn/run.h"
#include "support/core/one_context.h"

enum { BEAMS = 3, PIECE = 4 }; /* of the decoder in decoder_memory */

/* ---- weights ---- */

/* Weights of 16 bits are taken from the source, kept on the device, or both.  test_nn_int8.c has int8 weights. */
static void weight_types(void **state)
{
    static const struct {
        clattn_dtype source, weight, dtype;
        double tolerance;
    } types[] = {
        {CLATTN_DTYPE_F16, 0, 0, 1e-5},
        {CLATTN_DTYPE_BF16, 0, 0, 1e-5},
        {CLATTN_DTYPE_F32, CLATTN_DTYPE_F16, 0, 4e-3},
        {CLATTN_DTYPE_F32, CLATTN_DTYPE_BF16, 0, 3e-2},
        {CLATTN_DTYPE_F16, CLATTN_DTYPE_F16, 0, 1e-5},
    };
    static const clattn_stack_desc stack = {SHAPE(RELU), .layers = 2, PRE, .final_norm = 1, .gated = 1};
    float *x = nn_floats(2 * 7 * stack.d_model, 3);
    (void)state;
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        nn_store store = {.seed = 5, .dtype = types[i].source};
        nn_store_add_stack(&store, "encoder", &stack);
        /* Both 16-bit types hold five significant bits exactly. */
        for (size_t t = 0; types[i].source != CLATTN_DTYPE_F32 && t < nn_store_count(&store); t++)
            nn_store_round(&store, t, 5);
        const nn_encoder_run run = {.d = &stack,
                                    .store = &store,
                                    .desc = nn_encoder_desc(2, 7),
                                    .input = x,
                                    .model = {.weight_dtype = types[i].weight, .dtype = types[i].dtype}};
        const double apart = nn_encoder_apart(context, &run);
        print_message("# %s as %s: %.2g\n", clattn_dtype_name(types[i].source), clattn_dtype_name(types[i].weight),
                      apart);
        assert_true(apart < types[i].tolerance);
        nn_store_clear(&store);
    }
    free(x);
}

/* GPT-2's Conv1D stores matrices as (in, out); one rule names the matrix and the bias. */
static void transposed_kinds(void **state)
{
    static const clattn_stack_desc stack = {SHAPE(RELU), .layers = 2, PRE, .final_norm = 1};
    static const clattn_name_rule rules[] = {{"encoder.layers.{n}.feed_forward.in.{kind}", "h.{n}.c_fc.{kind}^T"},
                                             {"encoder.layers.{n}.self.query.{kind}", "h.{n}.c_attn.{kind}^T[0/3]"},
                                             {"encoder.layers.{n}.self.key.{kind}", "h.{n}.c_attn.{kind}^T[1/3]"},
                                             {"encoder.layers.{n}.self.value.{kind}", "h.{n}.c_attn.{kind}^T[2/3]"}};
    static const char *const parts[3] = {"query", "key", "value"};
    const size_t n = stack.d_model;
    nn_store store = {.seed = 5};
    float *x = nn_floats(7 * n, 3);
    (void)state;
    nn_store_add_stack(&store, "encoder", &stack);
    for (size_t layer = 0; layer < stack.layers; layer++) {
        char name[64];
        snprintf(name, sizeof name, "h.%zu.c_fc.weight", layer);
        float *in = nn_store_add(&store, name, 2, (const size_t[2]){n, stack.d_ff}, 1, 0);
        snprintf(name, sizeof name, "h.%zu.c_fc.bias", layer);
        float *in_bias = nn_store_add(&store, name, 1, &stack.d_ff, 1, 0);
        snprintf(name, sizeof name, "h.%zu.c_attn.weight", layer);
        float *heads = nn_store_add(&store, name, 2, (const size_t[2]){n, 3 * n}, 1, 0);
        snprintf(name, sizeof name, "h.%zu.c_attn.bias", layer);
        float *heads_bias = nn_store_add(&store, name, 1, (const size_t[1]){3 * n}, 1, 0);
        const float *weight = nn_store_get(&store, "encoder.layers.%zu.feed_forward.in.weight", layer);
        memcpy(in_bias, nn_store_get(&store, "encoder.layers.%zu.feed_forward.in.bias", layer), stack.d_ff * sizeof *x);
        for (size_t i = 0; i < stack.d_ff * n; i++)
            in[i % n * stack.d_ff + i / n] = weight[i];
        for (size_t p = 0; p < 3; p++) {
            weight = nn_store_get(&store, "encoder.layers.%zu.self.%s.weight", layer, parts[p]);
            memcpy(heads_bias + p * n, nn_store_get(&store, "encoder.layers.%zu.self.%s.bias", layer, parts[p]),
                   n * sizeof *x);
            for (size_t i = 0; i < n * n; i++)
                heads[i % n * 3 * n + p * n + i / n] = weight[i];
        }
    }
    clattn_weight_source source = nn_source(&store);
    source.rules = rules;
    source.rule_count = COUNT_OF(rules);
    const nn_encoder_run run = {
        .d = &stack, .store = &store, .source = &source, .desc = nn_encoder_desc(1, 7), .input = x};
    assert_true(nn_encoder_apart(context, &run) < 1e-5);
    nn_store_clear(&store);
    free(x);
}

/* ---- what is refused ---- */

static void refusals(void **state)
{
    static const clattn_stack_desc stack = {SHAPE(RELU), .layers = 2, POST};
    static const clattn_name_rule none[] = {{"encoder.layers.{n}.self.norm.bias", NULL}};
    static const clattn_name_rule other[] = {{"encoder.layers.{n}.self.key.{kind}", "h.{n}.{kind}^T[1/3]"}};
    const clattn_transformer_desc desc = {.size = sizeof desc, .encoder = &stack};
    clattn_transformer *model = NULL;
    clattn_plan *plan = NULL;
    nn_store store = {0};
    char name[64];
    size_t share, shares;
    int32_t transposed;
    (void)state;
    nn_store_add_stack(&store, "encoder", &stack);
    clattn_weight_source source = nn_source(&store);
    nn_store_remove(&store, "encoder.layers.1.feed_forward.in.weight");
    assert_status(context, clattn_transformer_create(context, &desc, &source, &model), CLATTN_ERROR_FORMAT);
    assert_null(model);
    assert_message_has(context,
                       "no tensor encoder.layers.1.feed_forward.in.weight (encoder.layers.1.feed_forward.in.weight)"
                       ", which should be 48 x 32");
    nn_store_add(&store, "encoder.layers.1.feed_forward.in.weight", 2, (const size_t[2]){32, 48}, 1, 0);
    assert_status(context, clattn_transformer_create(context, &desc, &source, &model), CLATTN_ERROR_FORMAT);
    assert_message_has(context, "is float32 32 x 48, not 48 x 32");
    /* A description that the tensors contradict is refused before its memory is allocated. */
    clattn_stack_desc huge = stack;
    const clattn_transformer_desc of_huge = {.size = sizeof desc, .encoder = &huge};
    huge.layers = 1024;
    huge.d_ff = (size_t)1 << 28;
    assert_status(context, clattn_transformer_create(context, &of_huge, &source, &model), CLATTN_ERROR_FORMAT);
    assert_message_has(context, "encoder.layers.0.feed_forward.in.weight) is float32 48 x 32, not 268435456 x 32");
    source.prefix = "bert.";
    assert_status(context, clattn_transformer_create(context, &desc, &source, &model), CLATTN_ERROR_FORMAT);
    assert_message_has(context, "no tensor bert.encoder.layers.0.self.query.weight (");
    source.prefix = NULL;
    source.rules = none;
    source.rule_count = 1;
    assert_status(context, clattn_transformer_create(context, &desc, &source, &model), CLATTN_ERROR_FORMAT);
    assert_int_equal(
        clattn_weight_name(&source, "encoder.layers.1.self.norm.bias", name, sizeof name, NULL, NULL, NULL), 0);
    source.rules = other;
    source.prefix = "x.";
    assert_int_equal(
        clattn_weight_name(&source, "encoder.layers.12.self.key.bias", name, sizeof name, &share, &shares, &transposed),
        strlen("x.h.12.bias"));
    assert_string_equal(name, "x.h.12.bias");
    assert_int_equal(share * 100 + shares * 10 + (size_t)transposed, 131);
    source.rule_count = 0;
    source.prefix = NULL;
    source.format = CLATTN_NAME_FORMAT_PYTORCH_TRANSFORMER;
    clattn_weight_name(&source, "decoder.layers.3.cross.value.weight", name, sizeof name, &share, &shares, NULL);
    assert_string_equal(name, "decoder.layers.3.multihead_attn.in_proj_weight");
    assert_int_equal(share * 10 + shares, 23);
    source.format = CLATTN_NAME_FORMAT_BERT;
    clattn_weight_name(&source, "encoder.layers.11.self.norm.weight", name, sizeof name, NULL, NULL, NULL);
    assert_string_equal(name, "encoder.layer.11.attention.output.LayerNorm.weight");
    source.format = CLATTN_NAME_FORMAT_WHISPER_CTRANSLATE2;
    clattn_weight_name(&source, "decoder.layers.0.cross.norm.bias", name, sizeof name, NULL, NULL, NULL);
    assert_string_equal(name, "decoder/layer_0/attention/layer_norm/beta");

    clattn_stack_desc wrong = stack;
    clattn_transformer_desc of_wrong = {.size = sizeof desc, .encoder = &wrong};
    source = nn_source(&store);
    wrong.heads = 5;
    assert_status(context, clattn_transformer_create(context, &of_wrong, &source, &model), CLATTN_ERROR_INVALID_LAYOUT);
    assert_message_has(context, "encoder: d_model is no multiple of heads");
    wrong = stack;
    wrong.cross = 1;
    assert_status(context, clattn_transformer_create(context, &of_wrong, &source, &model), CLATTN_ERROR_INVALID_LAYOUT);
    wrong = stack;
    wrong.positions = CLATTN_POSITIONS_TABLE;
    assert_status(context, clattn_transformer_create(context, &of_wrong, &source, &model), CLATTN_ERROR_INVALID_LAYOUT);
    assert_status(context, clattn_transformer_create(context, &desc, NULL, &model), CLATTN_ERROR_INVALID_ARGUMENT);

    nn_store_add(&store, "encoder.layers.1.feed_forward.in.weight", 2, (const size_t[2]){48, 32}, 1, 0);
    model = nn_transformer(context, &desc, &store);
    clattn_encoder_desc encoder = nn_encoder_desc(2, 7);
    encoder.probabilities = 4;
    assert_status(context, clattn_encoder_plan_create(model, &encoder, NULL, &plan), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "probabilities of a layer that the model does not have");
    encoder = nn_encoder_desc(0, 7);
    assert_status(context, clattn_encoder_plan_create(model, &encoder, NULL, &plan), CLATTN_ERROR_INVALID_ARGUMENT);
    encoder = nn_encoder_desc(2, 7);
    assert_status(context, clattn_encoder_plan_create(model, &encoder, NULL, &plan), CLATTN_SUCCESS);
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    cl_mem small = nn_buffer(context, 2 * 7 * 32 * sizeof(float) - 4, NULL);
    cl_mem right = nn_buffer(context, 2 * 7 * 32 * sizeof(float), NULL);
    const int32_t lengths[2] = {7, 8};
    args.input = clattn_binding_buffer(right, 0);
    assert_status(context, clattn_encoder_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "output: no buffer is bound");
    args.output = clattn_binding_buffer(small, 0);
    assert_status(context, clattn_encoder_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_ERROR_BUFFER_TOO_SMALL);
    args.output = clattn_binding_buffer(right, 0);
    args.pooled = clattn_binding_buffer(small, 0);
    assert_status(context, clattn_encoder_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    args.pooled = (clattn_binding){0};
    args.lengths = lengths;
    assert_status(context, clattn_encoder_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "lengths[1] is 8, not 0 to 7");
    clReleaseMemObject(small);
    clReleaseMemObject(right);
    clattn_plan_release(&plan);
    clattn_transformer_release(&model);
    nn_store_clear(&store);
}

/* ---- memory ---- */

/* A workspace of `size` bytes between two bands. */
enum { BAND = 128, POISON = 0xa5 };
typedef struct banded {
    cl_mem buffer;
    size_t size;
} banded;

static banded banded_make(size_t size)
{
    return (banded){nn_buffer(context, size + 2 * BAND, NULL), size};
}

static clattn_binding banded_binding(const banded *b)
{
    const uint8_t poison = POISON;
    assert_cl(clEnqueueFillBuffer(clattn_context_queue(context), b->buffer, &poison, 1, 0, b->size + 2 * BAND, 0, NULL,
                                  NULL));
    return clattn_binding_buffer(b->buffer, BAND);
}

/* Fails the test unless some of the first `peak` bytes and none of the others have been written. */
static void banded_check(const banded *b, size_t peak)
{
    uint8_t *bytes = malloc(b->size + 2 * BAND);
    size_t inside = 0, outside = 0;
    assert_non_null(bytes);
    read_buffer(clattn_context_queue(context), b->buffer, b->size + 2 * BAND, bytes);
    for (size_t i = 0; i < b->size + 2 * BAND; i++)
        *(i >= BAND && i < BAND + peak ? &inside : &outside) += bytes[i] != POISON;
    assert_true(inside > 0);
    assert_int_equal(outside, 0);
    free(bytes);
}

/* Reads the peaks of the graphs' activations from explain and returns their number. */
static size_t explained_peaks(const clattn_plan *plan, size_t *peaks, size_t room)
{
    size_t count = 0;
    for (const char *at = clattn_plan_explain(plan); (at = strstr(at, "activations of ")); at++) {
        assert_true(count < room);
        assert_int_equal(sscanf(at, "activations of %zu bytes at the peak", &peaks[count++]), 1);
    }
    return count;
}

/* An encoder writes only within a workspace of the size that the plan gives, and a smaller one is refused. */
static void encode_in_bands(clattn_plan *plan, size_t floats)
{
    const size_t size = clattn_plan_workspace_size(plan);
    const banded b = banded_make(size);
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    cl_mem in = nn_buffer(context, floats * sizeof(float), NULL),
           out = nn_buffer(context, floats * sizeof(float), NULL);
    cl_mem exact = nn_buffer(context, size, NULL), shorter = nn_buffer(context, size - 1, NULL);
    args.input = clattn_binding_buffer(in, 0);
    args.output = clattn_binding_buffer(out, 0);
    args.workspace = banded_binding(&b);
    assert_status(context, clattn_encoder_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    banded_check(&b, size);
    args.workspace = clattn_binding_buffer(exact, 0);
    assert_status(context, clattn_encoder_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    args.workspace = clattn_binding_buffer(shorter, 0);
    assert_status(context, clattn_encoder_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_ERROR_BUFFER_TOO_SMALL);
    clFinish(clattn_context_queue(context));
    const cl_mem buffers[] = {b.buffer, in, out, exact, shorter};
    for (size_t i = 0; i < COUNT_OF(buffers); i++)
        clReleaseMemObject(buffers[i]);
}

/* A plan's memory is that of one layer, whatever their number, and explain says it. */
static void memory(void **state)
{
    size_t workspace[3] = {0};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        const clattn_stack_desc stack = {SHAPE(RELU), .layers = i + 2, PRE, .final_norm = 1};
        const clattn_transformer_desc desc = {.size = sizeof desc, .encoder = &stack};
        clattn_encoder_desc encoder = nn_encoder_desc(2, 7);
        clattn_plan *plan = NULL;
        nn_store store = {0};
        char line[64];
        nn_store_add_stack(&store, "encoder", &stack);
        clattn_transformer *model = nn_transformer(context, &desc, &store);
        /* What the paper counts: 4 d² + 2 d d_ff, biases and norms. */
        assert_int_equal(clattn_transformer_parameters(model),
                         stack.layers * (4 * 32 * 32 + 2 * 32 * 48 + 5 * 32 + 48 + 4 * 32) + 2 * 32);
        assert_true(clattn_transformer_weight_bytes(model) >= 4 * clattn_transformer_parameters(model));
        assert_status(context, clattn_encoder_plan_create(model, &encoder, NULL, &plan), CLATTN_SUCCESS);
        workspace[i] = clattn_plan_workspace_size(plan);
        snprintf(line, sizeof line, "activations of %zu bytes at the peak", workspace[i]);
        assert_non_null(strstr(clattn_plan_explain(plan), line));
        assert_true(clattn_plan_launch_count(plan) >= 7 * stack.layers + 1);
        if (i == 0)
            encode_in_bands(plan, 2 * 7 * stack.d_model);
        clattn_plan_release(&plan);
        clattn_transformer_release(&model);
        nn_store_clear(&store);
    }
    assert_true(workspace[0] > 0);
    assert_int_equal(workspace[0], workspace[1]);
    assert_int_equal(workspace[0], workspace[2]);
}

/* Every kind of enqueue that a decoder has stays within the activations that explain says of it. */
static void decode_in_bands(nn_world *w, const size_t *peaks)
{
    enum { MANY, ONE, EACH_BEAM, OF_MEMORY };
    static const size_t spread[ITEMS * BEAMS] = {0, 0, 0, 1, 1, 1};
    const banded b = banded_make(clattn_plan_workspace_size(w->plan));
    cl_mem shorter = nn_buffer(context, peaks[MANY] - 1, NULL);
    const int32_t tokens[ITEMS * PIECE] = {3, 1, 4, 1, 5, 9};
    clattn_decoder_begin_args begin = CLATTN_DECODER_BEGIN_ARGS_INIT;
    clattn_decoder_args args = CLATTN_DECODER_ARGS_INIT;
    assert_cl(clEnqueueWriteBuffer(clattn_context_queue(context), w->tokens, CL_TRUE, 0, sizeof tokens, tokens, 0, NULL,
                                   NULL));
    begin.items = ITEMS;
    begin.memory = clattn_binding_buffer(w->memory_buffer, 0);
    begin.memory_length = MEMORY;
    begin.workspace = banded_binding(&b);
    assert_status(context, clattn_decoder_begin(w->state, NULL, &begin, 0, NULL, NULL), CLATTN_SUCCESS);
    banded_check(&b, peaks[OF_MEMORY]);
    args.input = clattn_binding_buffer(w->tokens, 0);
    args.logits = clattn_binding_buffer(w->logits, 0);
    args.length = PIECE;
    args.workspace = clattn_binding_buffer(shorter, 0);
    assert_status(context, clattn_decoder_enqueue(w->state, NULL, &args, 0, NULL, NULL), CLATTN_ERROR_BUFFER_TOO_SMALL);
    for (int which = MANY; which <= EACH_BEAM; which++) {
        args.length = which == MANY ? PIECE : 1;
        if (which == EACH_BEAM)
            assert_status(context, clattn_decoder_reorder(w->state, NULL, BEAMS, spread, 0, NULL, NULL),
                          CLATTN_SUCCESS);
        args.workspace = banded_binding(&b);
        assert_status(context, clattn_decoder_enqueue(w->state, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
        banded_check(&b, peaks[which]);
    }
    clReleaseMemObject(shorter);
    clReleaseMemObject(b.buffer);
}

/* A decoder's workspace is as large as its largest graph needs and does not grow with its layers; its state, the
 * caches, does. */
static void decoder_memory(void **state)
{
    size_t workspace[2];
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        decoder_case c = decoder_cases[CASE_PAPER];
        clattn_decoder_desc desc = CLATTN_DECODER_DESC_INIT;
        size_t peaks[4], largest = 0;
        nn_world w;
        c.stack.layers = i + 1;
        desc.length = PIECE;
        desc.beams = BEAMS;
        desc.logits = CLATTN_LOGITS_LAST;
        decoder_case_open(&w, context, &c, &desc);
        workspace[i] = clattn_plan_workspace_size(w.plan);
        assert_int_equal(explained_peaks(w.plan, peaks, 4), 4);
        for (size_t g = 0; g < 4; g++)
            largest = peaks[g] > largest ? peaks[g] : largest;
        assert_int_equal(workspace[i], largest);
        /* Keys and values of all sequences are stored twice, because sequences change places, and those of the memories
         * once. */
        assert_int_equal(clattn_decoder_state_bytes(w.state), 2 * c.stack.layers * c.stack.d_model * sizeof(float) *
                                                                  (2 * ITEMS * BEAMS * LENGTH + ITEMS * MEMORY));
        if (i == 0)
            decode_in_bands(&w, peaks);
        nn_world_close(&w);
    }
    assert_int_equal(workspace[0], workspace[1]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(weight_types, open_context, close_context),
        cmocka_unit_test_setup_teardown(transposed_kinds, open_context, close_context),
        cmocka_unit_test_setup_teardown(refusals, open_context, close_context),
        cmocka_unit_test_setup_teardown(memory, open_context, close_context),
        cmocka_unit_test_setup_teardown(decoder_memory, open_context, close_context),
    };
    return RUN_TESTS("transformer", tests, argc, argv);
}
