/* Encoders and decoders on queues that keep no order, and on several queues: what is enqueued on one state waits for what
 * was enqueued before, whatever the queue; what is chained by events by the caller is in order.
 *
 * Holds: docs/transformer.md, "Decoders"; decoder.h, "On an out-of-order queue, or when the queue changes". */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/api.h"
#include "support/nn_decode.h"
#include "support/nn_run.h"
#include "support/one_context.h"

/* NULL where the device has none out of order. */
static cl_command_queue make_queue(bool out_of_order)
{
    cl_int code;
    const cl_command_queue_properties properties = out_of_order ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0;
    cl_command_queue queue = clCreateCommandQueue(clattn_context_opencl_context(context),
                                                  clattn_context_opencl_device(context), properties, &code);
    if (!out_of_order)
        assert_int_equal(code, CL_SUCCESS);
    return code == CL_SUCCESS ? queue : NULL;
}

enum { ITEMS = 3, LENGTH = 9, MEMORY = 6, QUEUES = 2 };

static const clattn_stack_desc decoder = {
    SHAPE, NN_TOKENS, .layers = 2, .causal = 1, .cross = 1, .scaled = 1, .positions = CLATTN_POSITIONS_SINUSOIDS};

/* All tokens' ids are on the device before the first is read, and all logits are read when the last is done: nothing on
 * the host keeps the appends apart. */
static void append_all(nn_world *w, cl_command_queue const *queues, bool events)
{
    static float logits[LENGTH * ITEMS * NN_VOCABULARY];
    int32_t tokens[LENGTH * ITEMS];
    cl_event last = NULL;
    for (size_t i = 0; i < LENGTH * ITEMS; i++)
        tokens[i] = w->ids[i % ITEMS * LENGTH + i / ITEMS];
    cl_mem ids = nn_buffer(context, sizeof tokens, tokens), out = nn_buffer(context, sizeof logits, NULL);
    nn_world_begin(w, queues[0], 1);
    for (size_t i = 0; i < LENGTH; i++) {
        clattn_decoder_args args = CLATTN_DECODER_ARGS_INIT;
        cl_event done = NULL;
        args.input = clattn_binding_buffer(ids, (int64_t)(i * ITEMS));
        args.logits = clattn_binding_buffer(out, (int64_t)(i * ITEMS * NN_VOCABULARY));
        args.length = 1;
        assert_status(context, clattn_decoder_enqueue(w->state, queues[i % QUEUES], &args, last ? 1 : 0, last ? &last : NULL,
                                                      events ? &done : NULL), CLATTN_SUCCESS);
        /* OpenCL wants it where another queue's commands wait for these. */
        assert_int_equal(clFlush(queues[i % QUEUES]), CL_SUCCESS);
        if (last)
            clReleaseEvent(last);
        last = done;
    }
    for (size_t q = 0; q < QUEUES; q++)
        assert_int_equal(clFinish(queues[q]), CL_SUCCESS);
    if (last) {
        cl_int done;
        assert_int_equal(clGetEventInfo(last, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof done, &done, NULL), CL_SUCCESS);
        assert_int_equal(done, CL_COMPLETE);
        clReleaseEvent(last);
    }
    support_read(clattn_context_queue(context), out, sizeof logits, logits);
    for (size_t i = 0; i < LENGTH; i++)
        for (size_t s = 0; s < ITEMS; s++)
            nn_check_logits(logits + (i * ITEMS + s) * NN_VOCABULARY, w->expected + (s * LENGTH + i) * NN_VOCABULARY,
                            "a queue");
    clReleaseMemObject(ids);
    clReleaseMemObject(out);
}

static void decoders(void **state)
{
    static const int32_t memory_lengths[ITEMS] = {MEMORY, MEMORY - 2, 1};
    nn_world w = {.context = context, .d = &decoder, .output = CLATTN_OUTPUT_TIED, .items = ITEMS, .length = LENGTH,
                  .memory_length = MEMORY, .memory_lengths = memory_lengths};
    clattn_decoder_desc desc = CLATTN_DECODER_DESC_INIT;
    cl_command_queue first = make_queue(false), second = make_queue(false), loose = make_queue(true);
    (void)state;
    desc.logits = CLATTN_LOGITS_LAST;
    desc.length = 1;
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

/* Sequences are exchanged between appends, out of order. */
static void reordering(void **state)
{
    enum { BEAMS = 2, S = ITEMS * BEAMS, ROUNDS = 4 };
    static const size_t spread[S] = {0, 0, 1, 1, 2, 2}, swapped[S] = {1, 0, 3, 2, 5, 4};
    static float logits[S * NN_VOCABULARY];
    nn_world w = {.context = context, .d = &decoder, .output = CLATTN_OUTPUT_TIED, .items = ITEMS, .length = LENGTH,
                  .memory_length = MEMORY};
    clattn_decoder_desc desc = CLATTN_DECODER_DESC_INIT;
    int32_t texts[S][LENGTH], other[S][LENGTH], rows[(ROUNDS + 1) * S];
    cl_command_queue queue = make_queue(true);
    (void)state;
    if (!queue)
        skip();
    desc.logits = CLATTN_LOGITS_LAST;
    desc.length = 1;
    desc.beams = BEAMS;
    nn_world_open(&w, &desc);
    /* A first token of each item, then of each sequence its own, sequences changing places before each. */
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
            assert_status(context, clattn_decoder_reorder(w.state, queue, BEAMS, round ? swapped : spread, 0, NULL, NULL),
                          CLATTN_SUCCESS);
    }
    support_read(queue, w.logits, sizeof logits, logits);
    for (size_t s = 0; s < S; s++) {
        double *expected = nn_world_logits(&w, 1, ROUNDS + 1, texts[s], s / BEAMS, false, NULL, NULL);
        nn_check_logits(logits + s * NN_VOCABULARY, expected + ROUNDS * NN_VOCABULARY, "reordered");
        free(expected);
    }
    clReleaseMemObject(ids);
    nn_world_close(&w);
    clReleaseCommandQueue(queue);
}

/* An encoder three times one behind the other, chained by the caller's events alone. */
static void encoders(void **state)
{
    enum { BATCH = 2, FRAMES = 11, TIMES = 3 };
    static const clattn_stack_desc stack = {SHAPE, .layers = 2, POST};
    const size_t count = BATCH * FRAMES * stack.d_model;
    const clattn_transformer_desc model = {.size = sizeof model, .encoder = &stack};
    const clattn_encoder_desc desc = nn_encoder_desc(BATCH, FRAMES);
    nn_store store = {.seed = 3};
    cl_mem buffers[TIMES + 1];
    cl_command_queue queue = make_queue(true);
    cl_event last = NULL;
    clattn_plan *plan = NULL;
    (void)state;
    if (!queue)
        skip();
    nn_store_add_stack(&store, "encoder", &stack);
    clattn_transformer *transformer = nn_transformer(context, &model, &store);
    assert_status(context, clattn_encoder_plan_create(transformer, &desc, NULL, &plan), CLATTN_SUCCESS);
    float *x = nn_floats(count, 12), *y = nn_floats(count, 13);
    double *expected = nn_doubles(x, count);
    const nn_reference r = {.store = &store, .name = "encoder", .desc = &stack, .batch = BATCH, .length = FRAMES};
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
    assert_int_equal(clWaitForEvents(1, &last), CL_SUCCESS);
    clReleaseEvent(last);
    support_read(queue, buffers[TIMES], count * sizeof *y, y);
    assert_true(nn_difference(y, expected, BATCH * FRAMES, stack.d_model, FRAMES, NULL) < 2e-5);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(decoders, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reordering, set_up, tear_down),
        cmocka_unit_test_setup_teardown(encoders, set_up, tear_down),
    };
    return SUPPORT_RUN("nn_queues", tests);
}
