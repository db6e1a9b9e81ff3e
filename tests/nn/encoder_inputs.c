/* The inputs and outputs of encoders agree with the reference: features through convolutions, tokens with positions and
 * segments, pooling.
 *
 * Holds: docs/transformer.md, "Meaning". */
#include <math.h>
#include <stdlib.h>

#include "support/harness.h"
#include "support/nn/run.h"
#include "support/core/one_context.h"

static void features(void **state)
{
    static const struct {
        clattn_stack_desc stack;
        size_t batch, frames;
    } inputs[] = {
        /* Whisper's front end, and one without a table, with other kernels and one convolution more. */
        {{SHAPE(RELU), .layers = 1, PRE, .final_norm = 1, .input = CLATTN_STACK_INPUT_FEATURES, .features = 10,
          .positions = CLATTN_POSITIONS_TABLE, .position_count = 9, .convolutions = 2,
          .convolution = {{3, 1, 1, CLATTN_ACTIVATION_GELU}, {3, 2, 1, CLATTN_ACTIVATION_GELU}}},
         .batch = 1,
         .frames = 18},
        {{SHAPE(RELU), .layers = 1, POST, .input = CLATTN_STACK_INPUT_FEATURES, .features = 5, .convolutions = 3,
          .convolution = {{5, 2, 4, CLATTN_ACTIVATION_RELU}, {1, 1, 0, 0}, {4, 3, 2, CLATTN_ACTIVATION_SWISH}}},
         .batch = 2,
         .frames = 31},
    };
    const clattn_stack_desc vectors = {SHAPE(RELU), .layers = 2, POST};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const clattn_stack_desc *d = &inputs[i].stack;
        const size_t batch = inputs[i].batch, frames = inputs[i].frames;
        nn_store store = {.seed = 5};
        nn_store_add_stack(&store, "encoder", d);
        float *x = nn_floats(batch * frames * d->features, 3);
        const nn_encoder_run run = {.d = d, .store = &store, .desc = nn_encoder_desc(batch, frames), .input = x};
        assert_true(nn_encoder_apart(context, &run) < 1e-5);
        nn_store_clear(&store);
        free(x);
    }
    assert_int_equal(clattn_stack_positions(&inputs[0].stack, 18), 9);
    assert_int_equal(clattn_stack_positions(&inputs[1].stack, 31), 7);
    assert_int_equal(clattn_stack_positions(&vectors, 31), 31);
}

static void tokens(void **state)
{
    static const clattn_stack_desc stacks[] = {
        /* The paper's, BERT's and RoBERTa's. */
        {SHAPE(RELU), .layers = 1, POST, .input = CLATTN_STACK_INPUT_TOKENS, .vocabulary = 50, .scale_embeddings = 1,
         .positions = CLATTN_POSITIONS_SINUSOIDS},
        {SHAPE(GELU), .layers = 2, POST, .input = CLATTN_STACK_INPUT_TOKENS, .vocabulary = 50,
         .positions = CLATTN_POSITIONS_TABLE, .position_count = 12, .segments = 2, .input_norm = 1},
        {SHAPE(RELU), .layers = 1, PRE, .input = CLATTN_STACK_INPUT_TOKENS, .vocabulary = 50,
         .positions = CLATTN_POSITIONS_TABLE, .position_count = 14, .first_position = 2},
        {SHAPE(RELU), .layers = 1, PRE, .input = CLATTN_STACK_INPUT_TOKENS, .vocabulary = 50,
         .rotary = CLATTN_ROTARY_HALVES},
    };
    const size_t batch = 2, length = 11;
    const int32_t lengths[2] = {11, 4};
    int32_t ids[22], segments[22];
    (void)state;
    for (size_t i = 0; i < 22; i++) {
        ids[i] = (int32_t)(i * 31 % 50);
        segments[i] = i % 11 > 5;
    }
    for (size_t i = 0; i < COUNT_OF(stacks) * 2; i++) {
        const clattn_stack_desc *d = &stacks[i / 2];
        nn_store store = {.seed = 5};
        nn_store_add_stack(&store, "encoder", d);
        const nn_encoder_run run = {.d = d,
                                    .store = &store,
                                    .desc = nn_encoder_desc(batch, length),
                                    .input = ids,
                                    .lengths = lengths,
                                    .segments = d->segments && i % 2 ? segments : NULL};
        assert_true(nn_encoder_apart(context, &run) < 1e-5);
        nn_store_clear(&store);
    }
}

static const clattn_stack_desc pooled_stack = {SHAPE(RELU), .layers = 1, POST};
static const int32_t pooled_lengths[3] = {5, 9, 1};

/* Runs an encoder on three items; returns its output, (3, 9, d_model), which the caller frees. */
static float *run_pooled(clattn_pooling pooling, int unit, float *pooled)
{
    nn_store store = {.seed = 5};
    float *x = nn_floats(3 * 9 * pooled_stack.d_model, 3);
    nn_store_add_stack(&store, "encoder", &pooled_stack);
    nn_encoder_run run = {.d = &pooled_stack,
                          .store = &store,
                          .desc = nn_encoder_desc(3, 9),
                          .input = x,
                          .lengths = pooled_lengths,
                          .pooled = pooling == CLATTN_POOLING_NONE ? NULL : pooled};
    run.desc.pooling = pooling;
    run.desc.pooled_unit = unit;
    float *y = nn_run_encoder(context, &run);
    nn_store_clear(&store);
    free(x);
    return y;
}

static void pooling(void **state)
{
    const size_t n = pooled_stack.d_model;
    (void)state;
    for (int i = 0; i < 4; i++) {
        float pooled[3 * 32];
        float *y = run_pooled(i / 2 ? CLATTN_POOLING_FIRST : CLATTN_POOLING_MEAN, i % 2, pooled);
        for (size_t b = 0; b < 3; b++) {
            double expected[32] = {0}, square = 0;
            const size_t rows = i / 2 ? 1 : (size_t)pooled_lengths[b];
            for (size_t c = 0; c < n; c++) {
                for (size_t row = 0; row < rows; row++)
                    expected[c] += y[(b * 9 + row) * n + c] / (double)rows;
                square += expected[c] * expected[c];
            }
            for (size_t c = 0; c < n; c++)
                assert_true(fabs(pooled[b * n + c] - expected[c] / (i % 2 ? sqrt(square) : 1)) < 2e-6);
        }
        free(y);
    }
}

/* On CPUs, where a layer's attention has a program that takes it. */
static void pooling_builds_no_program(void **state)
{
    clattn_device_info info = {.size = sizeof info};
    float pooled[3 * 32];
    (void)state;
    assert_status(context, clattn_context_device_info(context, &info), CLATTN_SUCCESS);
    if (!(info.type & CL_DEVICE_TYPE_CPU))
        return;
    free(run_pooled(CLATTN_POOLING_NONE, 0, pooled));
    const uint64_t built = programs_of(context).built;
    free(run_pooled(CLATTN_POOLING_MEAN, 0, pooled));
    assert_int_equal(programs_of(context).built, built);
}

/* An item without positions has a pooled vector and probabilities of zeros, whether its own length is 0, beside another
 * item or alone, or the enqueue's length is 0 for all. */
static void empty_items(void **state)
{
    static const clattn_stack_desc stack = {SHAPE(RELU), .layers = 1, POST};
    enum { FRAMES = 5, MOST = 2 };
    static const struct {
        size_t batch, length; /* `length` is passed explicitly unless it is FRAMES */
        int32_t lengths[MOST];
        bool has_lengths;
    } ways[] = {
        {1, FRAMES, {0}, true}, {2, FRAMES, {4, 0}, true}, {2, FRAMES, {0, 0}, true},
        {1, 0, {0}, false},     {2, 0, {0}, false},        {1, FRAMES, {3}, true},
    };
    const size_t n = stack.d_model, shown = FRAMES * FRAMES * stack.heads;
    const clattn_transformer_desc desc = {.size = sizeof desc, .encoder = &stack};
    cl_command_queue queue = clattn_context_queue(context);
    float pooled[MOST * 32 + 1], probabilities[MOST * FRAMES * FRAMES * 4], *x = nn_floats(MOST * FRAMES * n, 3);
    nn_store store = {.seed = 5};
    (void)state;
    nn_store_add_stack(&store, "encoder", &stack);
    clattn_transformer *model = nn_transformer(context, &desc, &store);
    for (size_t i = 0; i < COUNT_OF(ways) * 8; i++) {
        const size_t way = i / 8, batch = ways[way].batch;
        const bool wants = i / 4 % 2;
        clattn_encoder_desc encoder = nn_encoder_desc(batch, FRAMES);
        clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
        clattn_plan *plan = NULL;
        cl_event event = NULL;
        encoder.pooling = i % 2 ? CLATTN_POOLING_FIRST : CLATTN_POOLING_MEAN;
        encoder.pooled_unit = i / 2 % 2;
        encoder.probabilities = wants;
        assert_status(context, clattn_encoder_plan_create(model, &encoder, NULL, &plan), CLATTN_SUCCESS);
        cl_mem in = nn_buffer(context, batch * FRAMES * n * sizeof *x, x);
        cl_mem out = nn_buffer(context, (batch * n + 1) * sizeof *x, NULL);
        cl_mem scores = nn_buffer(context, batch * shown * sizeof *x, NULL);
        args.input = clattn_binding_buffer(in, 0);
        args.lengths = ways[way].has_lengths ? ways[way].lengths : NULL;
        args.explicit_lengths = ways[way].length != FRAMES;
        args.batch = batch;
        args.length = ways[way].length;
        assert_status(context, clattn_encoder_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
        assert_message_has(context, "pooled: no buffer is bound");
        args.pooled = clattn_binding_buffer(out, 1);
        if (wants)
            args.probabilities = clattn_binding_buffer(scores, 0);
        assert_status(context, clattn_encoder_enqueue(plan, NULL, &args, 0, NULL, &event), CLATTN_SUCCESS);
        assert_non_null(event);
        assert_cl(clWaitForEvents(1, &event));
        clReleaseEvent(event);
        read_buffer(queue, out, (batch * n + 1) * sizeof *x, pooled);
        read_buffer(queue, scores, batch * shown * sizeof *x, probabilities);
        assert_true(isnan(pooled[0]));
        for (size_t b = 0; b < batch; b++) {
            const size_t length = ways[way].length ? (size_t)ways[way].lengths[b] : 0;
            for (size_t c = 0; c < n; c++)
                assert_true(length ? !isnan(pooled[1 + b * n + c]) : pooled[1 + b * n + c] == 0);
            for (size_t e = 0; e < shown; e++) {
                const float value = probabilities[b * shown + e];
                const bool attended = e / FRAMES % FRAMES < length && e % FRAMES < length;
                /* Nothing is written beyond the enqueue's length. */
                assert_true(!wants || !ways[way].length ? isnan(value) : attended ? value > 0 : value == 0);
            }
        }
        clReleaseMemObject(in);
        clReleaseMemObject(out);
        clReleaseMemObject(scores);
        clattn_plan_release(&plan);
    }
    clattn_transformer_release(&model);
    nn_store_clear(&store);
    free(x);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(features, open_context, close_context),
        cmocka_unit_test_setup_teardown(tokens, open_context, close_context),
        cmocka_unit_test_setup_teardown(pooling, open_context, close_context),
        cmocka_unit_test_setup_teardown(pooling_builds_no_program, open_context, close_context),
        cmocka_unit_test_setup_teardown(empty_items, open_context, close_context),
    };
    return RUN_TESTS("encoder_inputs", tests, argc, argv);
}
