/* OpenCL calls fail while a Transformer's weights are loaded, while its plans and states are made, and while it
 * encodes, decodes and generates: the answer is a status that names the call, every reference comes back, and the
 * context works again.
 *
 * Holds: transformer.h, decoder.h and generate.h, "after a failure". */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/harness.h"
#include "support/core/inject.h"
#include "support/core/inject_run.h"
#include "support/nn/decode.h"
#include "support/nn/run.h"

enum { ITEMS = 2, LENGTH = 5, MEMORY = 3, BEAMS = 2 };

static const clattn_stack_desc encoder = {SHAPE(RELU), .layers = 1, POST};
static const clattn_stack_desc decoder = {SHAPE(RELU), NN_TOKENS,  .layers = 1,
                                          .causal = 1, .cross = 1, .positions = CLATTN_POSITIONS_SINUSOIDS};

static const char *failed_call(void)
{
    return inject_failed() ? inject_failed() : "nothing";
}

static void assert_close(const float *got, const double *expected, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!(fabs(got[i] - expected[i]) <= 1e-5 * fmax(1, fabs(expected[i]))))
            fail_msg("%s failed, the status was success, and %.9g should be %.9g", failed_call(), got[i], expected[i]);
}

/* ---- encoders ---- */

static clattn_status use_encoder(clattn_context *context)
{
    const size_t count = ITEMS * LENGTH * encoder.d_model;
    const clattn_transformer_desc model = {.size = sizeof model, .encoder = &encoder};
    clattn_encoder_desc desc = nn_encoder_desc(ITEMS, LENGTH);
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    cl_command_queue queue = clattn_context_queue(context);
    clattn_transformer *transformer = NULL;
    clattn_plan *plan = NULL;
    nn_store store = {.seed = 6};
    nn_store_add_stack(&store, "encoder", &encoder);
    const clattn_weight_source source = nn_source(&store);
    const nn_reference r = {.store = &store, .name = "encoder", .desc = &encoder, .batch = ITEMS, .length = LENGTH};
    float *x = nn_floats(count, 8), *y = nn_floats(count, 9);
    double *expected = nn_doubles(x, count);
    cl_mem in = nn_buffer(context, count * sizeof *x, x), out = nn_buffer(context, count * sizeof *y, NULL);
    cl_mem weights = nn_buffer(context, ITEMS * encoder.heads * LENGTH * LENGTH * sizeof *y, NULL);
    nn_reference_layers(&r, expected);
    desc.probabilities = 1;
    clattn_status status = clattn_transformer_create(context, &model, &source, &transformer);
    assert_true((status == CLATTN_SUCCESS) == (transformer != NULL));
    if (status == CLATTN_SUCCESS)
        status = clattn_encoder_plan_create(transformer, &desc, NULL, &plan);
    assert_true((status == CLATTN_SUCCESS) == (plan != NULL));
    args.input = clattn_binding_buffer(in, 0);
    args.output = clattn_binding_buffer(out, 0);
    for (int round = 0; round < 2 && status == CLATTN_SUCCESS; round++) {
        cl_event event = NULL;
        args.probabilities = round ? clattn_binding_buffer(weights, 0) : args.probabilities;
        status = clattn_encoder_enqueue(plan, NULL, &args, 0, NULL, &event);
        assert_true((status == CLATTN_SUCCESS) == (event != NULL));
        if (event) {
            assert_cl(clWaitForEvents(1, &event));
            clReleaseEvent(event);
            inject_event_taken();
            read_buffer(queue, out, count * sizeof *y, y);
            assert_close(y, expected, count);
        }
    }
    clFinish(queue);
    clattn_plan_release(&plan);
    clattn_transformer_release(&transformer);
    clReleaseMemObject(in);
    clReleaseMemObject(out);
    clReleaseMemObject(weights);
    nn_store_clear(&store);
    free(x);
    free(y);
    free(expected);
    return status;
}

/* Two stages with windows, shifts and tables of distances, which have arrays of their own on the device. */
static clattn_status use_pictures(clattn_context *context)
{
    enum { SIDE = 5, PATCHES = 9, COLUMNS = 48 };
    clattn_stack_desc stages[2] = {{SHAPE(RELU), PRE, .layers = 2, .input = CLATTN_STACK_INPUT_PICTURES,
                                    .layer_scale = 1, .patches = {.channels = 3, .height = 2, .width = 2},
                                    .windows = {2, 2, 1, CLATTN_POSITION_BIAS_TABLE, 0}}};
    const clattn_transformer_desc model = {.size = sizeof model, .encoder = stages};
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    clattn_transformer *transformer = NULL;
    clattn_plan *plan = NULL;
    nn_store store = {.seed = 6};
    const size_t count = ITEMS * PATCHES * COLUMNS, pixels = ITEMS * 3 * 2 * SIDE * 2 * SIDE;
    float *x = nn_floats(pixels, 8), *y = nn_floats(count, 9);
    nn_encoder_run run = {.d = stages, .store = &store, .desc = nn_encoder_desc(ITEMS, 0), .input = x};
    stages[1] = stages[0];
    stages[0].next = &stages[1];
    stages[1].input = CLATTN_STACK_INPUT_MERGED;
    stages[1].patches = (clattn_patches){0};
    stages[1].d_model = COLUMNS;
    stages[1].final_norm = 1;
    run.desc.picture = clattn_layout_nchw(CLATTN_DTYPE_F32, ITEMS, 3, 2 * SIDE, 2 * SIDE);
    nn_store_add_stack(&store, "encoder", stages);
    const clattn_weight_source source = nn_source(&store);
    double *expected = nn_encoder_expected(&run, 0);
    cl_mem in = nn_buffer(context, pixels * sizeof *x, x), out = nn_buffer(context, count * sizeof *y, NULL);
    clattn_status status = clattn_transformer_create(context, &model, &source, &transformer);
    assert_true((status == CLATTN_SUCCESS) == (transformer != NULL));
    if (status == CLATTN_SUCCESS)
        status = clattn_encoder_plan_create(transformer, &run.desc, NULL, &plan);
    assert_true((status == CLATTN_SUCCESS) == (plan != NULL));
    args.input = clattn_binding_buffer(in, 0);
    args.output = clattn_binding_buffer(out, 0);
    if (status == CLATTN_SUCCESS)
        status = clattn_encoder_enqueue(plan, NULL, &args, 0, NULL, NULL);
    if (status == CLATTN_SUCCESS) {
        read_buffer(clattn_context_queue(context), out, count * sizeof *y, y);
        assert_close(y, expected, count);
    }
    clFinish(clattn_context_queue(context));
    clattn_plan_release(&plan);
    clattn_transformer_release(&transformer);
    clReleaseMemObject(in);
    clReleaseMemObject(out);
    nn_store_clear(&store);
    free(x);
    free(y);
    free(expected);
    return status;
}

/* ---- decoders ---- */

/* A decoder in use; nn_world has its reference but not its OpenCL objects. */
typedef struct decoding {
    nn_world w;
    clattn_context *context;
    clattn_transformer *transformer;
    clattn_plan *plan;
    clattn_decoder_state *state;
    cl_mem memory, ids, logits;
} decoding;

static clattn_status begin(decoding *d)
{
    clattn_decoder_begin_args args = CLATTN_DECODER_BEGIN_ARGS_INIT;
    args.items = ITEMS;
    args.beams = 1;
    args.memory = clattn_binding_buffer(d->memory, 0);
    args.memory_length = MEMORY;
    return clattn_decoder_begin(d->state, NULL, &args, 0, NULL, NULL);
}

/* Appends `length` tokens of w.ids from `at` on to `beams` sequences for each item, and compares the logits of the last
 * token. */
static clattn_status append(decoding *d, size_t at, size_t length, size_t beams)
{
    static float logits[ITEMS * BEAMS * NN_VOCABULARY];
    const size_t sequences = ITEMS * beams;
    cl_command_queue queue = clattn_context_queue(d->context);
    clattn_decoder_args args = CLATTN_DECODER_ARGS_INIT;
    int32_t ids[ITEMS * BEAMS * 2];
    for (size_t i = 0; i < sequences * length; i++)
        ids[i] = d->w.ids[i / length / beams * LENGTH + at + i % length];
    assert_cl(clEnqueueWriteBuffer(queue, d->ids, CL_TRUE, 0, sequences * length * sizeof *ids, ids, 0, NULL, NULL));
    args.input = clattn_binding_buffer(d->ids, 0);
    args.logits = clattn_binding_buffer(d->logits, 0);
    args.length = length;
    clattn_status status = clattn_decoder_enqueue(d->state, NULL, &args, 0, NULL, NULL);
    if (status != CLATTN_SUCCESS)
        return status;
    read_buffer(queue, d->logits, sequences * NN_VOCABULARY * sizeof *logits, logits);
    for (size_t s = 0; s < sequences; s++)
        assert_close(logits + s * NN_VOCABULARY, d->w.expected + (s / beams * LENGTH + at + length - 1) * NN_VOCABULARY,
                     NN_VOCABULARY);
    return CLATTN_SUCCESS;
}

static clattn_status generate(decoding *d)
{
    static const int32_t prompts[] = {3, 8, 21};
    static const size_t lengths[ITEMS] = {2, 1};
    int32_t tokens[ITEMS * 2];
    size_t counts[ITEMS];
    clattn_generate_desc how = CLATTN_GENERATE_DESC_INIT;
    clattn_generated generated = CLATTN_GENERATED_INIT;
    how.method = CLATTN_GENERATE_METHOD_BEAM;
    how.beams = BEAMS;
    how.max_tokens = 2;
    generated.tokens = tokens;
    generated.lengths = counts;
    clattn_status status = clattn_generate(d->state, NULL, &how, prompts, lengths, &generated);
    for (size_t i = 0; status == CLATTN_SUCCESS && i < ITEMS; i++)
        assert_int_equal(counts[i], 2);
    return status;
}

static clattn_status decode(decoding *d)
{
    static const size_t spread[ITEMS * BEAMS] = {0, 0, 1, 1}, same[ITEMS * BEAMS] = {1, 0, 2, 2};
    clattn_status status = begin(d);
    if (status == CLATTN_SUCCESS)
        status = append(d, 0, 2, 1);
    if (status == CLATTN_SUCCESS)
        status = append(d, 2, 1, 1);
    if (status == CLATTN_SUCCESS)
        status = clattn_decoder_reorder(d->state, NULL, BEAMS, spread, 0, NULL, NULL);
    if (status == CLATTN_SUCCESS)
        status = append(d, 3, 1, BEAMS);
    if (status == CLATTN_SUCCESS)
        status = clattn_decoder_reorder(d->state, NULL, BEAMS, same, 0, NULL, NULL);
    if (status == CLATTN_SUCCESS)
        status = append(d, 4, 1, BEAMS);
    return status;
}

static clattn_status use_decoder(clattn_context *context)
{
    static int32_t ids[ITEMS * LENGTH] = {1, 18, 35, 15, 32, 12, 29, 9, 26, 6};
    const clattn_transformer_desc model = {
        .size = sizeof model, .decoder = &decoder, .output = CLATTN_MODEL_OUTPUT_TIED};
    const size_t count = ITEMS * MEMORY * decoder.d_model;
    decoding d = {.context = context,
                  .w = {.context = context,
                        .d = &decoder,
                        .output = CLATTN_MODEL_OUTPUT_TIED,
                        .items = ITEMS,
                        .length = LENGTH,
                        .memory_length = MEMORY,
                        .store = {.seed = 4},
                        .ids = ids}};
    clattn_decoder_desc desc = CLATTN_DECODER_DESC_INIT;
    nn_store_add_stack(&d.w.store, "decoder", &decoder);
    d.w.head = nn_store_get(&d.w.store, "decoder.tokens.weight");
    d.w.memory = nn_floats(count, 15);
    d.w.expected = nn_world_logits(&d.w, ITEMS, LENGTH, ids, 0, false, NULL, NULL);
    const clattn_weight_source source = nn_source(&d.w.store);
    d.memory = nn_buffer(context, count * sizeof(float), d.w.memory);
    d.ids = nn_buffer(context, ITEMS * BEAMS * 2 * sizeof(int32_t), NULL);
    d.logits = nn_buffer(context, ITEMS * BEAMS * NN_VOCABULARY * sizeof(float), NULL);
    desc.items = ITEMS;
    desc.beams = BEAMS;
    desc.length = 2;
    desc.cache_length = LENGTH;
    desc.memory_length = MEMORY;
    desc.logits = CLATTN_LOGITS_LAST;
    desc.prepack = 1;
    clattn_status status = clattn_transformer_create(context, &model, &source, &d.transformer);
    if (status == CLATTN_SUCCESS)
        status = clattn_decoder_plan_create(d.transformer, &desc, NULL, &d.plan);
    assert_true((status == CLATTN_SUCCESS) == (d.plan != NULL));
    if (status == CLATTN_SUCCESS)
        status = clattn_decoder_state_create(d.plan, &d.state);
    assert_true((status == CLATTN_SUCCESS) == (d.state != NULL));
    if (status == CLATTN_SUCCESS) {
        status = decode(&d);
        /* A state works again after a failure once it has been begun anew. */
        if (status != CLATTN_SUCCESS) {
            assert_non_null(inject_failed());
            inject_stop();
            assert_status(context, decode(&d), CLATTN_SUCCESS);
        } else {
            status = generate(&d);
        }
    }
    clFinish(clattn_context_queue(context));
    clattn_decoder_state_release(&d.state);
    clattn_plan_release(&d.plan);
    clattn_transformer_release(&d.transformer);
    clReleaseMemObject(d.memory);
    clReleaseMemObject(d.ids);
    clReleaseMemObject(d.logits);
    nn_store_clear(&d.w.store);
    free(d.w.memory);
    free(d.w.expected);
    return status;
}

/* Kernels come from a cache on the disk, so that an attempt is quick; core/inject.c lets their builds fail, which a context
 * remembers: what has one solver alone would not work again. */
static void run(clattn_status (*use)(clattn_context *), unsigned attempts)
{
    needs_saved_programs();
    inject_scenario scenario = inject_scenario_of(use, CLATTN_CACHE_MODE_ON);
    char folder[FOLDER_SIZE];
    new_folder(folder);
    scenario.params.cache_dir = folder;
    scenario.attempts = attempts;
    inject_run(&scenario);
}

static void encoders(void **state)
{
    (void)state;
    run(use_encoder, by_level(31, 101, 101, 101));
}

static void pictures(void **state)
{
    (void)state;
    run(use_pictures, by_level(31, 101, 101, 101));
}

static void decoders(void **state)
{
    (void)state;
    run(use_decoder, by_level(31, 101, 101, 101));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encoders),
        cmocka_unit_test(pictures),
        cmocka_unit_test(decoders),
    };
    return RUN_TESTS("nn_inject", tests, argc, argv);
}
