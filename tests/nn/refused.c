/* Each rule about models' plans and the arguments of their calls refuses what breaks it, in its own words.
 *
 * Holds: docs/transformer.md; transformer.h and decoder.h. */
#include <math.h>
#include <string.h>

#include "support/core/one_context.h"
#include "support/harness.h"
#include "support/nn/decoder_case.h"
#include "support/nn/run.h"

static const size_t too_many = (size_t)1 << 31;

/* ---- plans and calls of a decoder ---- */

static void decoders(void **state)
{
    nn_world w;
    clattn_decoder_desc good = CLATTN_DECODER_DESC_INIT;
    clattn_plan *none = NULL;
    const char *const items = "items times beams is 1 to", *const length = "length is 1 to cache_length";
    const char *const beyond = "probabilities of a layer";
    (void)state;
    good.logits = CLATTN_LOGITS_LAST;
    good.length = 3;
    good.beams = 2;
    decoder_case_open(&w, context, &decoder_cases[CASE_PAPER], &good);
#define PLAN(change, words) \
    { \
        clattn_decoder_desc d = good; \
        change; \
        assert_status(context, clattn_decoder_plan_create(w.model, &d, NULL, &none), CLATTN_ERROR_INVALID_ARGUMENT); \
        assert_message_has(context, words); \
        assert_null(none); \
    }
    PLAN(d.items = 0, items)
    PLAN(d.items = 65537, items)
    PLAN(d.beams = 65537, items)
    PLAN((d.items = 32769, d.beams = 2), items)
    PLAN(d.length = 0, length)
    PLAN(d.cache_length = 2, length)
    PLAN(d.cache_length = too_many, length)
    PLAN(d.length = d.cache_length = too_many, length)
    PLAN(d.memory_length = 0, "memory_length is 1 to")
    PLAN(d.memory_length = too_many, "memory_length is 1 to")
    PLAN(d.logits = 9, "unknown logits")
    PLAN(d.prepack = 2, "prepack is not 0 or 1")
    PLAN(d.cache_dtype = CLATTN_DTYPE_I8, "cache_dtype is")
    PLAN(d.self_probabilities = 4, beyond)
    PLAN(d.cross_probabilities = 8, beyond)
    PLAN(d.mask = clattn_layout_bhsd(CLATTN_DTYPE_BOOL, 1, 1, 1, LENGTH), "a mask does not go together with beams")
    assert_status(context, clattn_decoder_plan_create(w.model, NULL, NULL, &none), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "desc is NULL, or its size is none that clattn_decoder_desc");
    assert_status(context, clattn_decoder_plan_create(w.model, &good, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "plan is NULL");
    assert_status(NULL, clattn_decoder_plan_create(NULL, &good, NULL, &none), CLATTN_ERROR_INVALID_ARGUMENT);
    const clattn_encoder_desc encoder = nn_encoder_desc(1, 3);
    assert_status(context, clattn_encoder_plan_create(w.model, &encoder, NULL, &none), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "the model has no encoder");
    assert_status(context, clattn_decoder_state_create(w.plan, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "state is NULL");

    /* A state that has not begun. */
    const clattn_decoder_args unset = CLATTN_DECODER_ARGS_INIT;
    const size_t parents[2] = {0, 0};
    assert_status(context, clattn_decoder_enqueue(w.state, NULL, &unset, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "wants a clattn_decoder_begin first");
    assert_status(context, clattn_decoder_truncate(w.state, 0), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "wants a clattn_decoder_begin first");
    assert_status(context, clattn_decoder_reorder(w.state, NULL, 1, parents, 0, NULL, NULL),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "wants a clattn_decoder_begin first");
    assert_status(NULL, clattn_decoder_enqueue(NULL, NULL, &unset, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);

    clattn_decoder_begin_args begin = CLATTN_DECODER_BEGIN_ARGS_INIT;
    begin.items = ITEMS;
    begin.memory = clattn_binding_buffer(w.memory_buffer, 0);
    begin.memory_length = MEMORY;
#define BEGIN(change, status, words) \
    { \
        clattn_decoder_begin_args a = begin; \
        change; \
        assert_status(context, clattn_decoder_begin(w.state, NULL, &a, 0, NULL, NULL), CLATTN_ERROR_##status); \
        assert_message_has(context, words); \
    }
    const int32_t negative[ITEMS] = {1, -1}, long_ones[ITEMS] = {MEMORY + 1, 1};
    BEGIN(a.size = 1, INVALID_STRUCT, "clattn_decoder_begin_args")
    BEGIN(a.items = 0, INVALID_ARGUMENT, "items is 0, not 1 to the plan's 2")
    BEGIN(a.items = 3, INVALID_ARGUMENT, "items is 3, not 1 to the plan's 2")
    BEGIN(a.beams = 3, INVALID_ARGUMENT, "beams is 3, neither 1 nor the plan's 2")
    BEGIN(a.memory = (clattn_binding){0}, INVALID_ARGUMENT, "no memory is bound")
    BEGIN(a.memory_length = 0, INVALID_ARGUMENT, "memory_length is 0, not 1 to the plan's 6")
    BEGIN(a.memory_length = MEMORY + 1, INVALID_ARGUMENT, "memory_length is 7, not 1 to the plan's 6")
    BEGIN(a.memory_lengths = negative, INVALID_ARGUMENT, "memory_lengths[1] is -1, not 0 to 6")
    BEGIN(a.memory_lengths = long_ones, INVALID_ARGUMENT, "memory_lengths[0] is 7, not 0 to 6")
    BEGIN(a.memory.offset = 1, BUFFER_TOO_SMALL, "memory: elements")
    nn_world_begin(&w, NULL, 1);
    BEGIN((a.memory = (clattn_binding){0}, a.items = 1), INVALID_ARGUMENT, "the state has none of so many items")
    BEGIN(a.memory = (clattn_binding){0}, INVALID_ARGUMENT, "or another length is given")

    clattn_decoder_args args = CLATTN_DECODER_ARGS_INIT;
    args.input = clattn_binding_buffer(w.tokens, 0);
    args.length = 3;
#define APPEND(change, words) \
    { \
        clattn_decoder_args a = args; \
        change; \
        assert_status(context, clattn_decoder_enqueue(w.state, NULL, &a, 0, NULL, NULL), \
                      CLATTN_ERROR_INVALID_ARGUMENT); \
        assert_message_has(context, words); \
    }
    APPEND(a.length = 0, "length is 0, not 1 to 3")
    APPEND(a.length = 4, "length is 4, not 1 to 3")
    APPEND(a.shift_right = 2, "shift_right is neither 0 nor 1")
    APPEND(a.lengths = negative, "lengths[1] is -1, not 0 to 3")
    APPEND(a.lengths = long_ones, "lengths[0] is 7, not 0 to 3")
    assert_status(context, clattn_decoder_reorder(w.state, NULL, 2, NULL, 0, NULL, NULL),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "parents is NULL, or beams is 2");
    assert_status(context, clattn_decoder_reorder(w.state, NULL, 0, parents, 0, NULL, NULL),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(context, clattn_decoder_reorder(w.state, NULL, 3, parents, 0, NULL, NULL),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(context, clattn_decoder_enqueue(w.state, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    APPEND(a.shift_right = 1, "shift_right: sequence 0 has tokens")
    for (int i = 0; i < 2; i++) /* 9 tokens are as many as the caches have room for */
        assert_status(context, clattn_decoder_enqueue(w.state, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    APPEND(a.length = 1, "sequence 0 would have 10 tokens, and its cache has room for 9")
    nn_world_begin(&w, NULL, 2);
    APPEND(a.length = 3, "length is 3, not 1 to 1")
    clFinish(clattn_context_queue(context));
    nn_world_close(&w);
}

/* A decoder of vectors without cross-attention, and one whose table of positions is shorter than its caches. */
static void other_decoders(void **state)
{
    const clattn_stack_desc vectors = {SHAPE(RELU), .layers = 1, PRE, .causal = 1};
    const clattn_transformer_desc desc = {.size = sizeof desc, .decoder = &vectors};
    clattn_decoder_desc good = CLATTN_DECODER_DESC_INIT;
    clattn_plan *plan = NULL, *none = NULL;
    clattn_decoder_state *decoding = NULL;
    nn_store store = {.seed = 3};
    nn_world w;
    (void)state;
    nn_store_add_stack(&store, "decoder", &vectors);
    clattn_transformer *model = nn_transformer(context, &desc, &store);
    good.items = good.length = 1;
    good.cache_length = 2;
#define OTHER(change, words) \
    { \
        clattn_decoder_desc d = good; \
        change; \
        assert_status(context, clattn_decoder_plan_create(model, &d, NULL, &none), CLATTN_ERROR_INVALID_ARGUMENT); \
        assert_message_has(context, words); \
    }
    OTHER(d.logits = CLATTN_LOGITS_ALL, "logits of a model without an output")
    OTHER(d.memory_length = 3, "memory_length is 1 to 2^30 with cross-attention, and 0 without")
    OTHER(d.cross_probabilities = 1, "cross_probabilities or memory_mask without")
    OTHER(d.memory_mask = clattn_layout_bhsd(CLATTN_DTYPE_BOOL, 1, 1, 1, 2),
          "cross_probabilities or memory_mask without")
    assert_status(context, clattn_decoder_plan_create(model, &good, NULL, &plan), CLATTN_SUCCESS);
    assert_status(context, clattn_decoder_state_create(plan, &decoding), CLATTN_SUCCESS);
    clattn_decoder_begin_args begin = CLATTN_DECODER_BEGIN_ARGS_INIT;
    const int32_t length = 1;
    begin.items = 1;
    begin.memory_length = 1;
    assert_status(context, clattn_decoder_begin(decoding, NULL, &begin, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "a memory's length without cross-attention");
    begin.memory_length = 0;
    begin.memory_lengths = &length;
    assert_status(context, clattn_decoder_begin(decoding, NULL, &begin, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    begin.memory_lengths = NULL;
    assert_status(context, clattn_decoder_begin(decoding, NULL, &begin, 0, NULL, NULL), CLATTN_SUCCESS);
    clattn_decoder_args args = CLATTN_DECODER_ARGS_INIT;
    args.length = args.shift_right = 1;
    assert_status(context, clattn_decoder_enqueue(decoding, NULL, &args, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "or the input is not tokens");
    clattn_decoder_state_release(&decoding);
    clattn_plan_release(&plan);
    clattn_transformer_release(&model);
    nn_store_clear(&store);

    clattn_decoder_desc longer = CLATTN_DECODER_DESC_INIT;
    longer.logits = CLATTN_LOGITS_LAST;
    longer.length = 1;
    longer.cache_length = LENGTH + 1; /* the table of positions has LENGTH rows */
    decoder_case_open(&w, context, &decoder_cases[CASE_WHISPER], &longer);
    nn_world_begin(&w, NULL, 1);
    args.input = clattn_binding_buffer(w.tokens, 0);
    args.shift_right = 0;
    for (int i = 0; i < LENGTH; i++)
        assert_status(context, clattn_decoder_enqueue(w.state, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    assert_status(context, clattn_decoder_enqueue(w.state, NULL, &args, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "sequence 0 would have 10 tokens, and the table of positions ends at 9");
    clFinish(clattn_context_queue(context));
    nn_world_close(&w);
}

/* ---- plans and calls of an encoder ---- */

static void encoders(void **state)
{
    clattn_stack_desc stack = {SHAPE(RELU),
                               .layers = 1,
                               PRE,
                               .input = CLATTN_STACK_INPUT_FEATURES,
                               .features = 5,
                               .convolutions = 1,
                               .positions = CLATTN_POSITIONS_TABLE,
                               .position_count = 4};
    const clattn_transformer_desc desc = {.size = sizeof desc, .encoder = &stack};
    const clattn_encoder_desc good = nn_encoder_desc(2, 6);
    const char *const sizes = "batch is 1 to 65536", *const pooling = "unknown pooling";
    clattn_plan *plan = NULL;
    nn_store store = {.seed = 3};
    (void)state;
    stack.convolution[0] = (clattn_convolution){3, 1, 0, CLATTN_ACTIVATION_RELU};
    nn_store_add_stack(&store, "encoder", &stack);
    clattn_transformer *model = nn_transformer(context, &desc, &store);
#define ENCODER_PLAN(change, words) \
    { \
        clattn_encoder_desc d = good; \
        change; \
        assert_status(context, clattn_encoder_plan_create(model, &d, NULL, &plan), CLATTN_ERROR_INVALID_ARGUMENT); \
        assert_message_has(context, words); \
        assert_null(plan); \
    }
    ENCODER_PLAN(d.batch = 0, sizes)
    ENCODER_PLAN(d.batch = 65537, sizes)
    ENCODER_PLAN(d.length = 0, sizes)
    ENCODER_PLAN(d.length = too_many, sizes)
    ENCODER_PLAN(d.pooling = 9, pooling)
    ENCODER_PLAN((d.pooling = CLATTN_POOLING_MEAN, d.pooled_unit = 2), pooling)
    ENCODER_PLAN(d.pooled_unit = 1, "pooled_unit without pooling")
    ENCODER_PLAN(d.prepack = 2, "prepack is not 0 or 1")
    ENCODER_PLAN(d.length = 2, "length is too short for the convolutions")
    ENCODER_PLAN(d.length = 7, "length is beyond the table of positions")
    clattn_decoder_desc decoder = CLATTN_DECODER_DESC_INIT;
    assert_status(context, clattn_decoder_plan_create(model, &decoder, NULL, &plan), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "the model has no decoder");
    assert_status(context, clattn_encoder_plan_create(model, &good, NULL, &plan), CLATTN_SUCCESS);
    cl_mem in = nn_buffer(context, 2 * 6 * 5 * sizeof(float), NULL);
    cl_mem out = nn_buffer(context, 2 * 4 * 32 * sizeof(float), NULL);
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    args.input = clattn_binding_buffer(in, 0);
    args.output = clattn_binding_buffer(out, 0);
    args.batch = 2;
    args.length = 6;
    args.explicit_lengths = 1;
#define ENCODE(change, words) \
    { \
        clattn_encoder_args a = args; \
        change; \
        assert_status(context, clattn_encoder_enqueue(plan, NULL, &a, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT); \
        assert_message_has(context, words); \
    }
    const int32_t negative[2] = {4, -1}, long_ones[2] = {5, 1};
    ENCODE(a.explicit_lengths = 2, "explicit_lengths is 2")
    ENCODE(a.reserved = 1, "reserved is 1")
    ENCODE(a.batch = 3, "batch 3 or length 6 is above the plan's 2, 6")
    ENCODE(a.length = 7, "batch 2 or length 7 is above the plan's 2, 6")
    ENCODE(a.lengths = negative, "lengths[1] is -1, not 0 to 4")
    ENCODE(a.lengths = long_ones, "lengths[0] is 5, not 0 to 4")
    ENCODE(a.pooled = a.output, "pooled")
    /* Nothing to do is done. */
    args.batch = 0;
    assert_status(context, clattn_encoder_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    args.batch = 1;
    args.length = 0;
    assert_status(context, clattn_encoder_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    clFinish(clattn_context_queue(context));
    clReleaseMemObject(in);
    clReleaseMemObject(out);
    clattn_plan_release(&plan);
    clattn_transformer_release(&model);
    nn_store_clear(&store);
}

/* ---- what answers NULL and small things ---- */

static void nothing_and_names(void **state)
{
    clattn_transformer_desc desc;
    clattn_stack_desc encoder, decoder;
    clattn_weight_source source = CLATTN_WEIGHT_SOURCE_INIT;
    char name[8] = "";
    (void)state;
    assert_int_equal(clattn_transformer_weight_bytes(NULL), 0);
    assert_int_equal(clattn_transformer_parameters(NULL), 0);
    assert_int_equal(clattn_decoder_state_bytes(NULL), 0);
    assert_int_equal(clattn_decoder_length(NULL, 0), 0);
    clattn_transformer_release(NULL);
    clattn_decoder_state_release(NULL);
    assert_int_equal(clattn_stack_positions(NULL, 3), 0);
    assert_int_equal(clattn_transformer_preset(99, &desc, &encoder, &decoder), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(clattn_transformer_preset(CLATTN_PRESET_PAPER_BASE, NULL, &encoder, &decoder),
                     CLATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(clattn_transformer_preset(CLATTN_PRESET_PAPER_BASE, &desc, NULL, &decoder),
                     CLATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(clattn_transformer_preset(CLATTN_PRESET_PAPER_BASE, &desc, &encoder, NULL),
                     CLATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(clattn_transformer_preset(CLATTN_PRESET_BERT_BASE, &desc, &encoder, &decoder), CLATTN_SUCCESS);
    assert_int_equal(encoder.layers, 12);
    assert_int_equal(encoder.d_model, 768);
    assert_null(desc.decoder);
    /* A name is cut to the room that there is, and its length is told. */
    assert_int_equal(clattn_weight_name(NULL, "a", name, sizeof name, NULL, NULL, NULL), 0);
    assert_int_equal(clattn_weight_name(&source, NULL, name, sizeof name, NULL, NULL, NULL), 0);
    assert_int_equal(clattn_weight_name(&source, "decoder.norm.bias", name, sizeof name, NULL, NULL, NULL), 17);
    assert_string_equal(name, "decoder");
    assert_int_equal(clattn_weight_name(&source, "decoder.norm.bias", NULL, 0, NULL, NULL, NULL), 17);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(decoders, open_context, close_context),
        cmocka_unit_test_setup_teardown(other_decoders, open_context, close_context),
        cmocka_unit_test_setup_teardown(encoders, open_context, close_context),
        cmocka_unit_test(nothing_and_names),
    };
    return RUN_TESTS("nn_refused", tests, argc, argv);
}
