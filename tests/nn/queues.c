/* Encoders and decoders work on out-of-order queues and on several queues: what is enqueued on a state waits for what
 * was enqueued on it before, whatever the queue, and commands that the caller chains by events run in that order.
 *
 * Holds: docs/transformer.md, "Decoders"; decoder.h, "On an out-of-order queue, or when the queue changes"; and that an
 * enqueue does not wait for the device. */
#include <stdlib.h>
#include <string.h>

#include "support/harness.h"
#include "support/core/user_events.h"
#include "support/core/inject.h"
#include "support/nn/decoder_case.h"
#include "support/nn/run.h"
#include "support/core/one_context.h"

enum { TEXTS = 3, QUEUES = 2 };

/* All ids are on the device before the first append and all logits are read after the last one, so that nothing on the
 * host separates the appends. */
static void append_all(nn_world *w, cl_command_queue const *queues, bool events)
{
    static float logits[LENGTH * TEXTS * NN_VOCABULARY];
    int32_t tokens[LENGTH * TEXTS];
    cl_event last = NULL;
    for (size_t i = 0; i < LENGTH * TEXTS; i++)
        tokens[i] = w->ids[i % TEXTS * LENGTH + i / TEXTS];
    cl_mem ids = nn_buffer(context, sizeof tokens, tokens), out = nn_buffer(context, sizeof logits, NULL);
    nn_world_begin(w, queues[0], 1);
    for (size_t i = 0; i < LENGTH; i++) {
        clattn_decoder_args args = CLATTN_DECODER_ARGS_INIT;
        cl_event done = NULL;
        args.input = clattn_binding_buffer(ids, (int64_t)(i * TEXTS));
        args.logits = clattn_binding_buffer(out, (int64_t)(i * TEXTS * NN_VOCABULARY));
        args.length = 1;
        assert_status(context,
                      clattn_decoder_enqueue(w->state, queues[i % QUEUES], &args, last ? 1 : 0, last ? &last : NULL,
                                             events ? &done : NULL),
                      CLATTN_SUCCESS);
        /* OpenCL requires a flush if another queue's commands wait for these. */
        assert_cl(clFlush(queues[i % QUEUES]));
        if (last)
            clReleaseEvent(last);
        last = done;
    }
    for (size_t q = 0; q < QUEUES; q++)
        assert_cl(clFinish(queues[q]));
    if (last) {
        cl_int done;
        assert_cl(clGetEventInfo(last, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof done, &done, NULL));
        assert_int_equal(done, CL_COMPLETE);
        clReleaseEvent(last);
    }
    read_buffer(clattn_context_queue(context), out, sizeof logits, logits);
    for (size_t i = 0; i < LENGTH; i++)
        for (size_t s = 0; s < TEXTS; s++)
            nn_check_logits(logits + (i * TEXTS + s) * NN_VOCABULARY, w->expected + (s * LENGTH + i) * NN_VOCABULARY,
                            "a queue");
    clReleaseMemObject(ids);
    clReleaseMemObject(out);
}

static void decoders(void **state)
{
    static const int32_t memory_lengths[TEXTS] = {MEMORY, MEMORY - 2, 1};
    nn_world w = decoder_case_world(context, &decoder_cases[CASE_PAPER], TEXTS);
    clattn_decoder_desc desc = CLATTN_DECODER_DESC_INIT;
    cl_command_queue first = new_queue(context, false), second = new_queue(context, false),
                     loose = new_queue(context, true);
    (void)state;
    desc.logits = CLATTN_LOGITS_LAST;
    desc.length = 1;
    w.memory_lengths = memory_lengths;
    nn_world_open(&w, &desc);
    append_all(&w, (const cl_command_queue[QUEUES]){first, second}, false);
    if (loose) {
        append_all(&w, (const cl_command_queue[QUEUES]){loose, loose}, false);
        append_all(&w, (const cl_command_queue[QUEUES]){loose, loose}, true);
        append_all(&w, (const cl_command_queue[QUEUES]){loose, first}, false);
        clReleaseCommandQueue(loose);
    } else {
        print_message("# no queues out of order here\n");
    }
    nn_world_close(&w);
    clReleaseCommandQueue(first);
    clReleaseCommandQueue(second);
}

/* Appends `length` tokens, 1 or the plan's, of each item's text from `at` on behind `user_event`; `logits` tells
 * whether their logits are computed. */
static clattn_status append_some(nn_world *w, cl_command_queue queue, size_t at, size_t length, bool logits,
                                 cl_mem workspace, cl_event user_event, cl_event *event)
{
    clattn_decoder_args args = CLATTN_DECODER_ARGS_INIT;
    int32_t tokens[TEXTS * LENGTH] = {0};
    for (size_t i = 0; i < TEXTS * length; i++)
        tokens[i] = w->ids[i / length * LENGTH + at + i % length];
    write_buffer(clattn_context_queue(w->context), w->tokens, at * TEXTS * sizeof *tokens,
                 TEXTS * length * sizeof *tokens, tokens);
    args.input = clattn_binding_buffer(w->tokens, (int64_t)(at * TEXTS));
    args.logits = logits ? clattn_binding_buffer(w->logits, 0) : args.logits;
    args.workspace = clattn_binding_buffer(workspace, 0);
    args.length = length;
    const clattn_status status =
        clattn_decoder_enqueue(w->state, queue, &args, user_event ? 1 : 0, user_event ? &user_event : NULL, event);
    clFlush(queue);
    return status;
}

static void check_row(nn_world *w, size_t at, const char *what)
{
    static float logits[TEXTS * NN_VOCABULARY];
    read_buffer(clattn_context_queue(w->context), w->logits, sizeof logits, logits);
    for (size_t s = 0; s < TEXTS; s++)
        nn_check_logits(logits + s * NN_VOCABULARY, w->expected + (s * LENGTH + at) * NN_VOCABULARY, what);
}

/* A prompt without logits also ends with an event and is ordered before what another queue appends. */
static void without_logits(void **state)
{
    enum { PROMPT = 3 };
    nn_world w = decoder_case_world(context, &decoder_cases[CASE_PAPER], TEXTS);
    clattn_decoder_desc desc = CLATTN_DECODER_DESC_INIT;
    cl_command_queue first = new_queue(context, false), second = new_queue(context, false);
    cl_event prompt = NULL, next = NULL, user_event;
    (void)state;
    desc.logits = CLATTN_LOGITS_LAST;
    desc.length = PROMPT;
    nn_world_open(&w, &desc);
    nn_world_begin(&w, first, 1);
    clFinish(first);
    user_event = make_user_event(context);
    const clattn_status status = append_some(&w, first, 0, PROMPT, false, NULL, user_event, &prompt);
    const clattn_status status_next = append_some(&w, second, PROMPT, 1, true, NULL, NULL, &next);
    const bool waited = !user_event || event_waits(next);
    complete_user_event(user_event);
    assert_status(context, status, CLATTN_SUCCESS);
    assert_status(context, status_next, CLATTN_SUCCESS);
    assert_non_null(prompt);
    assert_true(waited);
    assert_cl(clWaitForEvents(1, &next));
    check_row(&w, PROMPT, "behind a prompt without logits");
    clReleaseEvent(prompt);
    clReleaseEvent(next);
    nn_world_close(&w);
    clReleaseCommandQueue(first);
    clReleaseCommandQueue(second);
}

/* An enqueue on the second queue fails at its first OpenCL call `call`.  The next enqueue waits for the one before the
 * failure, and for the commands of the failed one if it has `begun` any. */
static void behind_a_failure(bool out_of_order, const char *call, bool begun)
{
    static const decoder_case alone = {
        .stack = {SHAPE(RELU), NN_TOKENS, .layers = 1, .causal = 1, .positions = CLATTN_POSITIONS_SINUSOIDS},
        .output = CLATTN_MODEL_OUTPUT_TIED};
    clattn_context_params params;
    clattn_context_params_init(&params);
    params.get_proc = inject_get_proc;
    params.clblast = CLATTN_CLBLAST_MODE_NEVER; /* CLBlast calls OpenCL without the table */
    inject_start(0, 0);
    clattn_context *own = new_context_with(&params);
    nn_world w = decoder_case_world(own, &alone, TEXTS);
    clattn_decoder_desc desc = CLATTN_DECODER_DESC_INIT;
    cl_command_queue first = new_queue(own, false), second = new_queue(own, out_of_order);
    cl_event before = make_user_event(own), within = make_user_event(own), next = NULL;
    if (!second) {
        print_message("# no queues out of order here\n");
        second = new_queue(own, false);
    }
    desc.logits = CLATTN_LOGITS_LAST;
    desc.length = 1;
    nn_world_open(&w, &desc);
    /* The test brings a workspace because looking for a free one takes OpenCL calls, more of them each time. */
    cl_mem workspace =
        new_buffer(clattn_context_opencl_context(own), CL_MEM_READ_WRITE, clattn_plan_workspace_size(w.plan), NULL);
    clattn_status failed = CLATTN_SUCCESS;
    for (unsigned long n = 1; n < 200 && (!inject_failed() || strcmp(inject_failed(), call)); n++) {
        inject_start(0, 0);
        clattn_decoder_state_release(&w.state);
        assert_status(own, clattn_decoder_state_create(w.plan, &w.state), CLATTN_SUCCESS);
        nn_world_begin(&w, first, 1);
        assert_status(own, append_some(&w, first, 0, 1, false, workspace, before, NULL), CLATTN_SUCCESS);
        nn_world_begin(&w, second, 1);
        inject_start(n, CL_OUT_OF_RESOURCES);
        failed = append_some(&w, second, 0, 1, false, workspace, within, NULL);
    }
    inject_start(0, 0);
    nn_world_begin(&w, second, 1);
    const clattn_status status = append_some(&w, second, 0, 1, true, workspace, NULL, &next);
    complete_user_event(begun ? before : within);
    const bool waited = is_tiny() || event_waits(next);
    complete_user_event(begun ? within : before);
    assert_status(own, failed, CLATTN_ERROR_OUT_OF_MEMORY);
    assert_status(own, status, CLATTN_SUCCESS);
    assert_true(waited);
    assert_cl(clWaitForEvents(1, &next));
    inject_event_taken();
    check_row(&w, 0, "behind a failure");
    clReleaseMemObject(workspace);
    clReleaseEvent(next);
    nn_world_close(&w);
    clReleaseCommandQueue(first);
    clReleaseCommandQueue(second);
    release_context(&own);
}

static void failures(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        behind_a_failure(i, "clEnqueueFillBuffer", false);
        behind_a_failure(i, "clEnqueueNDRangeKernel", true);
    }
}

/* Sequences are exchanged between appends on an out-of-order queue. */
static void reordering(void **state)
{
    enum { BEAMS = 2, S = TEXTS * BEAMS, ROUNDS = 4 };
    static const size_t spread[S] = {0, 0, 1, 1, 2, 2}, swapped[S] = {1, 0, 3, 2, 5, 4};
    static float logits[S * NN_VOCABULARY];
    nn_world w = decoder_case_world(context, &decoder_cases[CASE_PAPER], TEXTS);
    clattn_decoder_desc desc = CLATTN_DECODER_DESC_INIT;
    int32_t texts[S][LENGTH], other[S][LENGTH], rows[(ROUNDS + 1) * S];
    cl_command_queue queue = new_queue(context, true);
    (void)state;
    if (!queue)
        skip();
    desc.logits = CLATTN_LOGITS_LAST;
    desc.length = 1;
    desc.beams = BEAMS;
    nn_world_open(&w, &desc);
    /* Each item has a first token, then each sequence has its own; sequences change places before each of these. */
    for (size_t s = 0; s < S; s++)
        texts[s][0] = rows[s / BEAMS] = (int32_t)(s / BEAMS * 3 + 1);
    for (size_t round = 1; round <= ROUNDS; round++) {
        memcpy(other, texts, sizeof other);
        for (size_t s = 0; s < S; s++) {
            memcpy(texts[s], other[round == 1 ? s : swapped[s]], sizeof texts[s]);
            texts[s][round] = rows[round * S + s] = (int32_t)((s * 7 + round * 5) % NN_VOCABULARY);
        }
    }
    cl_mem ids = nn_buffer(context, sizeof rows, rows);
    nn_world_begin(&w, queue, 1);
    for (size_t round = 0; round <= ROUNDS; round++) {
        clattn_decoder_args args = CLATTN_DECODER_ARGS_INIT;
        args.input = clattn_binding_buffer(ids, (int64_t)(round * S));
        args.logits = round == ROUNDS ? clattn_binding_buffer(w.logits, 0) : args.logits;
        args.length = 1;
        assert_status(context, clattn_decoder_enqueue(w.state, queue, &args, 0, NULL, NULL), CLATTN_SUCCESS);
        if (round < ROUNDS)
            assert_status(context,
                          clattn_decoder_reorder(w.state, queue, BEAMS, round ? swapped : spread, 0, NULL, NULL),
                          CLATTN_SUCCESS);
    }
    read_buffer(queue, w.logits, sizeof logits, logits);
    for (size_t s = 0; s < S; s++) {
        double *expected = nn_world_logits(&w, 1, ROUNDS + 1, texts[s], s / BEAMS, false, NULL, NULL);
        nn_check_logits(logits + s * NN_VOCABULARY, expected + ROUNDS * NN_VOCABULARY, "reordered");
        free(expected);
    }
    clReleaseMemObject(ids);
    nn_world_close(&w);
    clReleaseCommandQueue(queue);
}

enum { BATCH = 2, FRAMES = 11 };
static const clattn_stack_desc encoder = {SHAPE(RELU), .layers = 2, POST};

/* An encoder's enqueue returns before the events that it waits for are complete: the host does not wait for the device
 * between layers, and the caller may then change the arguments. */
static void encoder_behind_a_gate(void **state)
{
    static const int32_t lengths[BATCH] = {FRAMES, 4};
    const size_t count = BATCH * FRAMES * encoder.d_model;
    const clattn_transformer_desc model = {.size = sizeof model, .encoder = &encoder};
    const clattn_encoder_desc desc = nn_encoder_desc(BATCH, FRAMES);
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    nn_store store = {.seed = 3};
    cl_command_queue queue = new_queue(context, false);
    cl_event done = NULL;
    clattn_plan *plan = NULL;
    int32_t given[BATCH];
    (void)state;
    nn_store_add_stack(&store, "encoder", &encoder);
    clattn_transformer *transformer = nn_transformer(context, &model, &store);
    assert_status(context, clattn_encoder_plan_create(transformer, &desc, NULL, &plan), CLATTN_SUCCESS);
    float *x = nn_floats(count, 12), *y = nn_floats(count, 13);
    double *expected = nn_doubles(x, count);
    const nn_reference r = {
        .store = &store, .name = "encoder", .desc = &encoder, .batch = BATCH, .length = FRAMES, .lengths = lengths};
    cl_event user_event = make_user_event(context);
    cl_mem in = nn_buffer(context, count * sizeof *x, user_event ? NULL : x),
           out = nn_buffer(context, count * sizeof *y, NULL);
    nn_reference_layers(&r, expected);
    args.input = clattn_binding_buffer(in, 0);
    args.output = clattn_binding_buffer(out, 0);
    args.lengths = given;
    memcpy(given, lengths, sizeof given);
    alarm(120); /* an enqueue that waits for the device would hang on the user event */
    const clattn_status status =
        clattn_encoder_enqueue(plan, queue, &args, user_event ? 1 : 0, user_event ? &user_event : NULL, &done);
    clFlush(queue);
    memset(given, 0, sizeof given);
    cl_int written = CL_SUCCESS;
    if (user_event)
        written =
            clEnqueueWriteBuffer(clattn_context_queue(context), in, CL_TRUE, 0, count * sizeof *x, x, 0, NULL, NULL);
    if (user_event && written == CL_SUCCESS)
        written = clFinish(clattn_context_queue(context)); /* as write_buffer, which asserts before the gate opens */
    const bool waited = !user_event || event_waits(done);
    complete_user_event(user_event);
    alarm(0);
    assert_status(context, status, CLATTN_SUCCESS);
    assert_cl(written);
    assert_true(waited);
    assert_cl(clWaitForEvents(1, &done));
    clReleaseEvent(done);
    read_buffer(queue, out, count * sizeof *y, y);
    assert_true(nn_difference(y, expected, BATCH * FRAMES, encoder.d_model, FRAMES, lengths) < 1e-5);
    clReleaseMemObject(in);
    clReleaseMemObject(out);
    clattn_plan_release(&plan);
    clattn_transformer_release(&transformer);
    clReleaseCommandQueue(queue);
    nn_store_clear(&store);
    free(x);
    free(y);
    free(expected);
}

/* An encoder runs three times in a chain that only the caller's events order. */
static void encoders(void **state)
{
    enum { TIMES = 3 };
    const size_t count = BATCH * FRAMES * encoder.d_model;
    const clattn_transformer_desc model = {.size = sizeof model, .encoder = &encoder};
    const clattn_encoder_desc desc = nn_encoder_desc(BATCH, FRAMES);
    nn_store store = {.seed = 3};
    cl_mem buffers[TIMES + 1];
    cl_command_queue queue = new_queue(context, true);
    cl_event last = NULL;
    clattn_plan *plan = NULL;
    (void)state;
    if (!queue)
        skip();
    nn_store_add_stack(&store, "encoder", &encoder);
    clattn_transformer *transformer = nn_transformer(context, &model, &store);
    assert_status(context, clattn_encoder_plan_create(transformer, &desc, NULL, &plan), CLATTN_SUCCESS);
    float *x = nn_floats(count, 12), *y = nn_floats(count, 13);
    double *expected = nn_doubles(x, count);
    const nn_reference r = {.store = &store, .name = "encoder", .desc = &encoder, .batch = BATCH, .length = FRAMES};
    for (size_t i = 0; i <= TIMES; i++)
        buffers[i] = nn_buffer(context, count * sizeof *x, i ? NULL : x);
    for (size_t i = 0; i < TIMES; i++) {
        clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
        cl_event done = NULL;
        args.input = clattn_binding_buffer(buffers[i], 0);
        args.output = clattn_binding_buffer(buffers[i + 1], 0);
        assert_status(context, clattn_encoder_enqueue(plan, queue, &args, last ? 1 : 0, last ? &last : NULL, &done),
                      CLATTN_SUCCESS);
        if (last)
            clReleaseEvent(last);
        last = done;
        nn_reference_layers(&r, expected);
    }
    assert_cl(clWaitForEvents(1, &last));
    clReleaseEvent(last);
    read_buffer(queue, buffers[TIMES], count * sizeof *y, y);
    assert_true(nn_difference(y, expected, BATCH * FRAMES, encoder.d_model, FRAMES, NULL) < 2e-5);
    for (size_t i = 0; i <= TIMES; i++)
        clReleaseMemObject(buffers[i]);
    clattn_plan_release(&plan);
    clattn_transformer_release(&transformer);
    clReleaseCommandQueue(queue);
    nn_store_clear(&store);
    free(x);
    free(y);
    free(expected);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(decoders, open_context, close_context),
        cmocka_unit_test_setup_teardown(without_logits, open_context, close_context),
        cmocka_unit_test_setup_teardown(failures, open_context, close_context),
        cmocka_unit_test_setup_teardown(reordering, open_context, close_context),
        cmocka_unit_test_setup_teardown(encoder_behind_a_gate, open_context, close_context),
        cmocka_unit_test_setup_teardown(encoders, open_context, close_context),
    };
    return RUN_TESTS("nn_queues", tests, argc, argv);
}
