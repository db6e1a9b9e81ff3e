/* Controls of models: encoders, decoders and generation give the same numbers in short launches, tell their progress, and can be
 * cancelled anywhere; a decoder's append can then be repeated.
 *
 * Holds: include/clattn/control.h. */
#include <stdlib.h>
#include <string.h>

#include "support/core/slow_clock.h"
#include "support/harness.h"
#include "support/nn/generate_case.h"
#include "support/nn/run.h"

static clattn_context *context;
static clattn_control *control;

static int begin(void **state)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_control_params controls = CLATTN_CONTROL_PARAMS_INIT;
    (void)state;
    params.get_proc = slow_clock_get_proc;
    context = new_context_with(&params);
    controls.max_launch_ms = 2;
    controls.cancellable = 1;
    assert_status(NULL, clattn_control_create(&controls, &control), CLATTN_SUCCESS);
    return 0;
}

static int end(void **state)
{
    (void)state;
    slow_clock_begin(NULL, NULL);
    clattn_control_release(&control);
    release_context(&context);
    return 0;
}

/* Notes the progress at each launch, which never falls, and cancels at one of them. */
typedef struct watch {
    size_t cancel_at; /* 0: never */
    double progress;
} watch;

static void look(size_t launch, void *user)
{
    watch *w = user;
    const double progress = clattn_control_progress(control);
    assert_true(progress >= w->progress && progress < 1);
    w->progress = progress;
    if (launch == w->cancel_at)
        clattn_control_cancel(control);
}

static void watch_from(watch *w, size_t cancel_at)
{
    *w = (watch){cancel_at, 0};
    slow_clock_begin(look, w);
}

/* The call was cancelled at launch `at`, and none followed. */
static void assert_cancelled(clattn_status status, size_t at)
{
    assert_status(context, status, CLATTN_ERROR_CANCELLED);
    assert_int_equal(slow_clock_launches(), at);
    clattn_control_reset(control);
}

/* ---- encoders ---- */

static void encoders(void **state)
{
    enum { BATCH = 2, ROWS = 7, ELEMENTS = BATCH * ROWS * 32 };
    static const clattn_stack_desc d = {SHAPE(RELU), .layers = 2, POST};
    static float plain[ELEMENTS], cut[ELEMENTS];
    clattn_transformer_desc desc = CLATTN_TRANSFORMER_DESC_INIT;
    clattn_encoder_desc encoder = nn_encoder_desc(BATCH, ROWS);
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    clattn_plan *plan;
    nn_store store = {.seed = 1};
    watch w;
    (void)state;
    nn_store_add_stack(&store, "encoder", &d);
    desc.encoder = &d;
    clattn_transformer *model = nn_transformer(context, &desc, &store);
    float *input = nn_floats(ELEMENTS, 3);
    args.input = clattn_binding_buffer(nn_buffer(context, sizeof plain, input), 0);
    args.output = clattn_binding_buffer(nn_buffer(context, sizeof plain, NULL), 0);
    assert_status(context, clattn_encoder_plan_create(model, &encoder, NULL, &plan), CLATTN_SUCCESS);
    slow_clock_begin(NULL, NULL);
    assert_status(context, clattn_encoder_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    const size_t whole = slow_clock_launches();
    read_buffer(clattn_context_queue(context), args.output.buffer, sizeof plain, plain);

    args.control = control;
    watch_from(&w, 0);
    assert_status(context, clattn_encoder_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    const size_t launches = slow_clock_launches();
    assert_true(launches > whole);
    assert_true(w.progress > 0.5 && clattn_control_progress(control) == 1);
    read_buffer(clattn_context_queue(context), args.output.buffer, sizeof cut, cut);
    assert_memory_equal(plain, cut, sizeof plain);

    for (size_t at = 1; at <= launches; at += launches / 3) {
        cl_event event = NULL;
        watch_from(&w, at);
        assert_cancelled(clattn_encoder_enqueue(plan, NULL, &args, 0, NULL, &event), at);
        assert_null(event);
    }
    watch_from(&w, 0);
    assert_status(context, clattn_encoder_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    read_buffer(clattn_context_queue(context), args.output.buffer, sizeof cut, cut);
    assert_memory_equal(plain, cut, sizeof plain);
    device_release_buffer(args.input.buffer);
    device_release_buffer(args.output.buffer);
    clattn_plan_release(&plan);
    clattn_transformer_release(&model);
    nn_store_clear(&store);
    free(input);
}

/* ---- decoders ---- */

static clattn_decoder_args one_token(nn_world *w, size_t at)
{
    clattn_decoder_args args = CLATTN_DECODER_ARGS_INIT;
    int32_t tokens[ITEMS];
    for (size_t i = 0; i < ITEMS; i++)
        tokens[i] = w->ids[i * LENGTH + at];
    write_buffer(clattn_context_queue(context), w->tokens, 0, sizeof tokens, tokens);
    args.input = clattn_binding_buffer(w->tokens, 0);
    args.logits = clattn_binding_buffer(w->logits, 0);
    args.length = 1;
    args.control = control;
    return args;
}

/* Each append is cancelled, later each time, and then repeated. */
static void decoders(void **state)
{
    enum { APPENDS = 4 };
    static float logits[ITEMS * NN_VOCABULARY];
    nn_world world;
    clattn_decoder_desc desc = CLATTN_DECODER_DESC_INIT;
    watch w;
    (void)state;
    desc.logits = CLATTN_LOGITS_LAST;
    desc.length = 1;
    decoder_case_open(&world, context, &decoder_cases[CASE_PAPER], &desc);
    nn_world_begin(&world, NULL, 1);
    for (size_t i = 0; i < APPENDS; i++) {
        const clattn_decoder_args args = one_token(&world, i);
        watch_from(&w, 1 + 5 * i);
        assert_cancelled(clattn_decoder_enqueue(world.state, NULL, &args, 0, NULL, NULL), 1 + 5 * i);
        watch_from(&w, 0);
        assert_status(context, clattn_decoder_enqueue(world.state, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
        read_buffer(clattn_context_queue(context), world.logits, sizeof logits, logits);
        for (size_t s = 0; s < ITEMS; s++)
            nn_check_logits(logits + s * NN_VOCABULARY, world.expected + (s * LENGTH + i) * NN_VOCABULARY,
                            "after a cancelled append");
    }

    clattn_decoder_begin_args again = CLATTN_DECODER_BEGIN_ARGS_INIT;
    again.items = ITEMS;
    again.memory = clattn_binding_buffer(world.memory_buffer, 0);
    again.memory_length = MEMORY;
    again.memory_lengths = world.memory_lengths;
    again.control = control;
    watch_from(&w, 1);
    assert_cancelled(clattn_decoder_begin(world.state, NULL, &again, 0, NULL, NULL), 1);
    const clattn_decoder_args args = one_token(&world, 0);
    assert_status(context, clattn_decoder_enqueue(world.state, NULL, &args, 0, NULL, NULL),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "wants a clattn_decoder_begin");
    watch_from(&w, 0);
    assert_status(context, clattn_decoder_begin(world.state, NULL, &again, 0, NULL, NULL), CLATTN_SUCCESS);
    watch_from(&w, 0);
    assert_status(context, clattn_decoder_enqueue(world.state, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    nn_world_close(&world);
}

/* ---- generation ---- */

static void generation(void **state)
{
    nn_world world = generating_world(context, ITEMS, 0);
    clattn_generate_desc how = CLATTN_GENERATE_DESC_INIT;
    int32_t plain[ITEMS * MOST], cut[ITEMS * MOST];
    size_t lengths[ITEMS];
    float scores[ITEMS], each[ITEMS * MOST];
    watch w;
    (void)state;
    how.max_tokens = MOST;
    nn_world_begin(&world, NULL, 1);
    generate(&world, &how, plain, lengths, scores, each);

    how.control = control;
    watch_from(&w, 0);
    generate(&world, &how, cut, lengths, scores, each);
    const size_t launches = slow_clock_launches();
    assert_memory_equal(plain, cut, sizeof plain);
    assert_true(w.progress > 0.5 && clattn_control_progress(control) == 1);

    clattn_generated results = results_of(cut, lengths, scores, each);
    for (size_t at = 1; at <= launches; at += launches / 2) {
        watch_from(&w, at);
        assert_cancelled(clattn_generate(world.state, NULL, &how, prompts, prompt_lengths, &results), at);
        watch_from(&w, 0);
        assert_status(context, clattn_generate(world.state, NULL, &how, prompts, prompt_lengths, &results),
                      CLATTN_ERROR_INVALID_ARGUMENT);
        nn_world_begin(&world, NULL, 1);
    }
    watch_from(&w, 0);
    generate(&world, &how, cut, lengths, scores, each);
    assert_memory_equal(plain, cut, sizeof plain);
    nn_world_close(&world);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(encoders, begin, end),
        cmocka_unit_test_setup_teardown(decoders, begin, end),
        cmocka_unit_test_setup_teardown(generation, begin, end),
    };
    return RUN_TESTS("control of models", tests, argc, argv);
}
