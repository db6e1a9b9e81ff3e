/* Encoders, decoders, multi-head attention and feed-forward networks that refuse their arguments leave nothing on the
 * queue.
 *
 * Holds: of clattn_encoder_enqueue's contract, "After any other failure nothing". */
#include <string.h>

#include "support/harness.h"
#include "support/core/user_events.h"
#include "support/nn/decoder_case.h"
#include "support/nn/run.h"
#include "support/core/one_context.h"

enum { TEXTS = 3 };

/* Fails the test unless `call`, an enqueue on `queue` behind `user_event`, is refused with `expected` and leaves
 * nothing on the queue. */
#define assert_refused(of, call, expected) \
    do { \
        cl_event user_event = make_user_event(of); \
        const cl_uint wait_count = user_event ? 1 : 0; \
        const clattn_status refusal = (call); \
        const bool empty = !user_event || queue_is_empty(queue); \
        complete_user_event(user_event); \
        assert_status(of, refusal, expected); \
        assert_true(empty); \
    } while (0)

/* Masks that are one element too short are refused, and exact ones are taken. */
static void short_decoder_masks(void **state)
{
    enum { PROMPT = 3 };
    nn_world w = decoder_case_world(context, &decoder_cases[CASE_PAPER], TEXTS);
    clattn_decoder_desc desc = CLATTN_DECODER_DESC_INIT;
    static float logits[TEXTS * NN_VOCABULARY];
    int32_t tokens[TEXTS * PROMPT];
    (void)state;
    desc.logits = CLATTN_LOGITS_LAST;
    desc.length = PROMPT;
    desc.mask = clattn_layout_bhsd(CLATTN_DTYPE_BOOL, TEXTS, 1, PROMPT, LENGTH);
    desc.memory_mask = clattn_layout_contiguous(CLATTN_DTYPE_BOOL, 1, (const size_t[1]){MEMORY});
    nn_world_open(&w, &desc);
    uint8_t ones[TEXTS * PROMPT * LENGTH];
    memset(ones, 1, sizeof ones);
    cl_command_queue queue = new_queue(context, false);
    nn_world_begin(&w, queue, 1);
    clFinish(queue);
    for (size_t at = 0; at <= PROMPT; at += PROMPT) {
        const size_t length = at ? 1 : PROMPT, keys = at + length;
        /* The last query of the last item reads this many elements. */
        const size_t self = (TEXTS - 1) * PROMPT * LENGTH + (length - 1) * LENGTH + keys;
        cl_mem exact = nn_buffer(context, self, ones), memory = nn_buffer(context, MEMORY, ones);
        cl_mem shorter = nn_buffer(context, self - 1, ones), memory_shorter = nn_buffer(context, MEMORY - 1, ones);
        clattn_decoder_args args = CLATTN_DECODER_ARGS_INIT;
        for (size_t i = 0; i < TEXTS * length; i++)
            tokens[i] = w.ids[i / length * LENGTH + at + i % length];
        write_buffer(clattn_context_queue(context), w.tokens, 0, TEXTS * length * sizeof *tokens, tokens);
        args.input = clattn_binding_buffer(w.tokens, 0);
        args.logits = clattn_binding_buffer(w.logits, 0);
        args.length = length;
        args.mask = clattn_binding_buffer(shorter, 0);
        args.memory_mask = clattn_binding_buffer(memory, 0);
        assert_refused(context,
                       clattn_decoder_enqueue(w.state, queue, &args, wait_count, wait_count ? &user_event : NULL, NULL),
                       CLATTN_ERROR_BUFFER_TOO_SMALL);
        assert_message_has(context, "mask: elements 0 to");
        args.mask = clattn_binding_buffer(exact, 0);
        args.memory_mask = clattn_binding_buffer(memory_shorter, 0);
        assert_refused(context,
                       clattn_decoder_enqueue(w.state, queue, &args, wait_count, wait_count ? &user_event : NULL, NULL),
                       CLATTN_ERROR_BUFFER_TOO_SMALL);
        assert_message_has(context, "memory_mask: elements 0 to");
        args.memory_mask = clattn_binding_buffer(memory, 0);
        assert_status(context, clattn_decoder_enqueue(w.state, queue, &args, 0, NULL, NULL), CLATTN_SUCCESS);
        read_buffer(queue, w.logits, sizeof logits, logits);
        for (size_t s = 0; s < TEXTS; s++)
            nn_check_logits(logits + s * NN_VOCABULARY, w.expected + (s * LENGTH + keys - 1) * NN_VOCABULARY,
                            "with masks");
        clReleaseMemObject(exact);
        clReleaseMemObject(shorter);
        clReleaseMemObject(memory);
        clReleaseMemObject(memory_shorter);
    }
    nn_world_close(&w);
    clReleaseCommandQueue(queue);
}

static void short_encoder_mask(void **state)
{
    enum { BATCH = 2, FRAMES = 5 };
    static const clattn_stack_desc stack = {SHAPE(RELU), .layers = 1, POST};
    const size_t bytes = BATCH * FRAMES * stack.d_model * sizeof(float);
    const clattn_transformer_desc model = {.size = sizeof model, .encoder = &stack};
    clattn_encoder_desc desc = nn_encoder_desc(BATCH, FRAMES);
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    nn_store store = {.seed = 3};
    clattn_plan *plan = NULL;
    (void)state;
    nn_store_add_stack(&store, "encoder", &stack);
    clattn_transformer *transformer = nn_transformer(context, &model, &store);
    desc.mask = clattn_layout_contiguous(CLATTN_DTYPE_BOOL, 2, (const size_t[2]){FRAMES, FRAMES});
    assert_status(context, clattn_encoder_plan_create(transformer, &desc, NULL, &plan), CLATTN_SUCCESS);
    cl_command_queue queue = new_queue(context, false);
    cl_mem in = nn_buffer(context, bytes, NULL), out = nn_buffer(context, bytes, NULL);
    cl_mem exact = nn_buffer(context, FRAMES * FRAMES, NULL), shorter = nn_buffer(context, FRAMES * FRAMES - 1, NULL);
    args.input = clattn_binding_buffer(in, 0);
    args.output = clattn_binding_buffer(out, 0);
    args.mask = clattn_binding_buffer(shorter, 0);
    assert_refused(context,
                   clattn_encoder_enqueue(plan, queue, &args, wait_count, wait_count ? &user_event : NULL, NULL),
                   CLATTN_ERROR_BUFFER_TOO_SMALL);
    args.mask = clattn_binding_buffer(exact, 0);
    assert_status(context, clattn_encoder_enqueue(plan, queue, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    clFinish(queue);
    clReleaseMemObject(in);
    clReleaseMemObject(out);
    clReleaseMemObject(exact);
    clReleaseMemObject(shorter);
    clattn_plan_release(&plan);
    clattn_transformer_release(&transformer);
    clReleaseCommandQueue(queue);
    nn_store_clear(&store);
}

/* A mask is refused if it is too short or if the description has no layout for it. */
static void mha_masks(void **state)
{
    enum { BATCH = 2, LONG = 5, D = 16 };
    (void)state;
    cl_command_queue queue = new_queue(context, false);
    cl_mem all = nn_buffer(context, 3 * D * D * sizeof(float), NULL);
    cl_mem y = nn_buffer(context, BATCH * LONG * D * sizeof(float), NULL);
    cl_mem exact = nn_buffer(context, BATCH * LONG, NULL), shorter = nn_buffer(context, BATCH * LONG - 1, NULL);
    for (int masked = 0; masked < 2; masked++) {
        clattn_mha_desc desc = CLATTN_MHA_DESC_INIT;
        clattn_mha_args args = CLATTN_MHA_ARGS_INIT;
        clattn_plan *plan = NULL;
        desc.batch = BATCH;
        desc.query_length = LONG;
        desc.d_model = D;
        desc.heads = 2;
        desc.packed_weights = 1;
        if (masked)
            desc.mask = clattn_layout_bhsd(CLATTN_DTYPE_BOOL, BATCH, 1, 1, LONG);
        args.x = args.w_in = args.w_o = clattn_binding_buffer(all, 0);
        args.y = clattn_binding_buffer(y, 0);
        args.mask = clattn_binding_buffer(shorter, 0);
        assert_status(context, clattn_mha_plan_create(context, &desc, NULL, &plan), CLATTN_SUCCESS);
        assert_refused(context,
                       clattn_mha_enqueue(plan, queue, &args, wait_count, wait_count ? &user_event : NULL, NULL),
                       masked ? CLATTN_ERROR_BUFFER_TOO_SMALL : CLATTN_ERROR_INVALID_ARGUMENT);
        args.mask = masked ? clattn_binding_buffer(exact, 0) : (clattn_binding){0};
        assert_status(context, clattn_mha_enqueue(plan, queue, &args, 0, NULL, NULL), CLATTN_SUCCESS);
        clFinish(queue);
        clattn_plan_release(&plan);
    }
    clReleaseMemObject(all);
    clReleaseMemObject(y);
    clReleaseMemObject(exact);
    clReleaseMemObject(shorter);
    clReleaseCommandQueue(queue);
}

/* A result may be write-only to kernels, whichever solver computes it and adds its bias: CLBlast's sums lie in the workspace. */
static void write_only_result(void **state)
{
    enum { ROWS = 5, D = 16, F = 32 };
    clattn_context_params params;
    clattn_feed_forward_desc desc = CLATTN_FEED_FORWARD_DESC_INIT;
    clattn_feed_forward_args args = CLATTN_FEED_FORWARD_ARGS_INIT;
    clattn_plan *plan = NULL;
    (void)state;
    if (is_tiny()) /* a simulator compiles CLBlast for minutes */
        return;
    clattn_context_params_init(&params);
    params.clblast = CLATTN_CLBLAST_MODE_PREFER;
    clattn_context *own = new_context_with(&params);
    desc.rows = ROWS;
    desc.d_model = D;
    desc.d_ff = F;
    desc.activation = CLATTN_ACTIVATION_RELU;
    desc.bias_out = 1;
    assert_status(own, clattn_feed_forward_plan_create(own, &desc, NULL, &plan), CLATTN_SUCCESS);
    if (strstr(clattn_plan_solver(plan), "+clblast")) {
        cl_command_queue queue = new_queue(own, false);
        float numbers[F * D], result[ROWS * D];
        for (int i = 0; i < F * D; i++)
            numbers[i] = 0.5f;
        cl_mem all = nn_buffer(own, sizeof numbers, numbers);
        cl_mem y = new_buffer(clattn_context_opencl_context(own), CL_MEM_WRITE_ONLY, ROWS * D * sizeof(float), NULL);
        args.x = args.w_in = args.w_out = args.b_out = clattn_binding_buffer(all, 0);
        args.y = clattn_binding_buffer(y, 0);
        assert_status(own, clattn_feed_forward_enqueue(plan, queue, &args, 0, NULL, NULL), CLATTN_SUCCESS);
        read_buffer(queue, y, sizeof result, result);
        for (int i = 0; i < ROWS * D; i++)
            assert_true(result[i] == F * 0.5f * (D * 0.25f) + 0.5f);
        clReleaseMemObject(all);
        clReleaseMemObject(y);
        clReleaseCommandQueue(queue);
    } else {
        print_message("# no CLBlast here\n");
    }
    clattn_plan_release(&plan);
    release_context(&own);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(short_decoder_masks, open_context, close_context),
        cmocka_unit_test_setup_teardown(short_encoder_mask, open_context, close_context),
        cmocka_unit_test_setup_teardown(mha_masks, open_context, close_context),
        cmocka_unit_test_setup_teardown(write_only_result, open_context, close_context),
    };
    return RUN_TESTS("nn_refusals", tests, argc, argv);
}
