/* Decoders agree with the same reference as encoders: whole texts at once, token by token, in pieces of different
 * lengths, with cross-attention and without, with each sequence's own length, with beams and reordering.
 *
 * Holds: docs/transformer.md, "Decoders"; that cached and uncached decoding agree, and that the memory is read by a
 * beginning and never again. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/harness.h"
#include "support/nn/decoder_case.h"
#include "support/nn/run.h"
#include "support/core/one_context.h"

#define VOCABULARY NN_VOCABULARY

/* All tokens are appended at once; logits, vectors and probabilities are read. */
static void at_once(const decoder_case *c, int32_t prepack)
{
    nn_world w;
    clattn_decoder_desc desc = CLATTN_DECODER_DESC_INIT;
    clattn_decoder_args args = CLATTN_DECODER_ARGS_INIT;
    const size_t layers = c->stack.layers, heads = c->stack.heads;
    static float logits[ITEMS * LENGTH * VOCABULARY], self[2 * ITEMS * 4 * LENGTH * LENGTH],
        cross[2 * ITEMS * 4 * LENGTH * MEMORY];
    desc.length = LENGTH;
    desc.prepack = prepack;
    desc.logits = CLATTN_LOGITS_ALL;
    desc.self_probabilities = (1u << layers) - 1;
    desc.cross_probabilities = c->stack.cross ? desc.self_probabilities : 0;
    decoder_case_open(&w, context, c, &desc);
    nn_world_begin(&w, NULL, 1);
    cl_mem ids = nn_buffer(context, ITEMS * LENGTH * sizeof *w.ids, w.ids);
    args.input = clattn_binding_buffer(ids, 0);
    args.logits = clattn_binding_buffer(w.logits, 0);
    args.output = clattn_binding_buffer(w.vectors, 0);
    args.self_probabilities = clattn_binding_buffer(w.self, 0);
    if (c->stack.cross)
        args.cross_probabilities = clattn_binding_buffer(w.cross, 0);
    args.length = LENGTH;
    assert_status(context, clattn_decoder_enqueue(w.state, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    assert_int_equal(clattn_decoder_length(w.state, 1), LENGTH);
    read_buffer(clattn_context_queue(context), w.logits, sizeof logits, logits);
    for (size_t row = 0; row < ITEMS * LENGTH; row++)
        nn_check_logits(logits + row * VOCABULARY, w.expected + row * VOCABULARY, c->name);
    read_buffer(clattn_context_queue(context), w.self, layers * ITEMS * heads * LENGTH * LENGTH * sizeof(float), self);
    for (size_t i = 0; i < layers * ITEMS * heads * LENGTH * LENGTH; i++)
        assert_true(fabs(self[i] - w.self_expected[i]) < 1e-5);
    if (c->stack.cross) {
        read_buffer(clattn_context_queue(context), w.cross, layers * ITEMS * heads * LENGTH * MEMORY * sizeof(float),
                    cross);
        for (size_t i = 0; i < layers * ITEMS * heads * LENGTH * MEMORY; i++)
            assert_true(fabs(cross[i] - w.cross_expected[i]) < 1e-5);
    }
    /* The cache has no room for one more token until a truncation has dropped one. */
    args.length = 1;
    assert_status(context, clattn_decoder_enqueue(w.state, NULL, &args, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "room for 9");
    assert_status(context, clattn_decoder_truncate(w.state, LENGTH - 1), CLATTN_SUCCESS);
    nn_world_append(&w, ITEMS, w.ids, LENGTH, (const size_t[]){LENGTH - 1, LENGTH - 1}, 1, NULL, 1, logits, 1);
    for (size_t s = 0; s < ITEMS; s++)
        nn_check_logits(logits + s * VOCABULARY, w.expected + (s * LENGTH + LENGTH - 1) * VOCABULARY,
                        "behind a truncation");
    clReleaseMemObject(ids);
    nn_world_close(&w);
}

/* Fills the memory's buffer with NaN: the application may reuse it once the beginning has made keys and values of
 * it. */
static void spoil_memory(nn_world *w)
{
    const clattn_stack_desc *d = w->d;
    const float nan = NAN;
    const size_t bytes = ITEMS * MEMORY * (d->d_memory ? d->d_memory : d->d_model) * sizeof nan;
    assert_cl(clEnqueueFillBuffer(clattn_context_queue(context), w->memory_buffer, &nan, sizeof nan, 0, bytes, 0, NULL,
                                  NULL));
}

/* Begins again with the memory that the state already has. */
static void begin_again(nn_world *w)
{
    clattn_decoder_begin_args args = CLATTN_DECODER_BEGIN_ARGS_INIT;
    args.items = ITEMS;
    assert_status(context, clattn_decoder_begin(w->state, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
}

/* Weights are packed in advance if that was asked for, and, with one solver for all of its products, once for enqueues of one
 * token and of many; those of the memory's keys and values are another's. */
static void check_packed(const nn_world *w, int32_t prepack)
{
    const char *text = clattn_plan_explain(w->plan), *at = text;
    int graphs = 0;
    while ((at = strstr(at, "weights packed in advance"))) {
        graphs++;
        at++;
    }
    if (!prepack || !device_is_cpu())
        assert_int_equal(graphs, 0);
    else if (strstr(text, "amx"))
        assert_true(graphs > 0);
    else
        assert_int_equal(graphs, 1 + (w->d->cross != 0));
}

/* Texts are appended token by token, in unequal pieces, and shifted right. */
static void in_pieces(const decoder_case *c, int32_t prepack)
{
    static float logits[ITEMS * LENGTH * VOCABULARY];
    nn_world w;
    clattn_decoder_desc desc = CLATTN_DECODER_DESC_INIT;
    desc.length = 4;
    desc.prepack = prepack;
    desc.logits = CLATTN_LOGITS_LAST;
    decoder_case_open(&w, context, c, &desc);
    check_packed(&w, prepack);
    nn_world_begin(&w, NULL, 1);
    spoil_memory(&w);
    for (size_t i = 0; i < LENGTH; i++) {
        nn_world_append(&w, ITEMS, w.ids, LENGTH, (const size_t[]){i, i}, 1, NULL, 1, logits, 1);
        for (size_t s = 0; s < ITEMS; s++)
            nn_check_logits(logits + s * VOCABULARY, w.expected + (s * LENGTH + i) * VOCABULARY, "token by token");
    }
    begin_again(&w);
    size_t at[ITEMS] = {0};
    static const int32_t pieces[][ITEMS] = {{4, 1}, {2, 3}, {0, 4}, {3, 1}};
    for (size_t p = 0; p < COUNT_OF(pieces); p++) {
        nn_world_append(&w, ITEMS, w.ids, LENGTH, at, 4, pieces[p], 4, logits, 1);
        for (size_t s = 0; s < ITEMS; s++) {
            at[s] += (size_t)pieces[p][s];
            assert_int_equal(clattn_decoder_length(w.state, s), at[s]);
            if (pieces[p][s])
                nn_check_logits(logits + s * VOCABULARY, w.expected + (s * LENGTH + at[s] - 1) * VOCABULARY,
                                "in pieces");
        }
    }
    /* Outputs that are shifted right behind a start token give the logits of the unshifted text. */
    clattn_decoder_args args = CLATTN_DECODER_ARGS_INIT;
    int32_t outputs[ITEMS * 4] = {0};
    begin_again(&w);
    for (size_t s = 0; s < ITEMS; s++)
        memcpy(outputs + s * 4, w.ids + s * LENGTH + 1, 3 * sizeof *outputs);
    cl_mem shifted = nn_buffer(context, sizeof outputs, outputs);
    args.input = clattn_binding_buffer(shifted, 0);
    args.logits = clattn_binding_buffer(w.logits, 0);
    args.length = 4;
    args.shift_right = 1;
    args.start_token = w.ids[0];
    assert_status(context, clattn_decoder_enqueue(w.state, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    read_buffer(clattn_context_queue(context), w.logits, ITEMS * VOCABULARY * sizeof(float), logits);
    nn_check_logits(logits, w.expected + 3 * VOCABULARY, "shifted right");
    assert_status(context, clattn_decoder_enqueue(w.state, NULL, &args, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "shift_right: sequence 0 has tokens");
    clReleaseMemObject(shifted);
    nn_world_close(&w);
}

/* Three beams, each with a text of its own, are exchanged between appends. */
static void beams(const decoder_case *c, int32_t prepack)
{
    static const size_t orders[][CASE_SEQUENCES] = {
        {0, 0, 0, 1, 1, 1}, {0, 1, 2, 3, 4, 5}, {2, 1, 2, 3, 4, 3}, {1, 0, 0, 5, 3, 4}};
    static const size_t wrong[CASE_SEQUENCES] = {0, 1, 3, 3, 4, 5};
    nn_world w;
    clattn_decoder_desc desc = CLATTN_DECODER_DESC_INIT;
    desc.length = 4;
    desc.beams = CASE_BEAMS;
    desc.prepack = prepack;
    desc.logits = CLATTN_LOGITS_LAST;
    decoder_case_open(&w, context, c, &desc);
    decoder_case_beams(&w, 3, orders, COUNT_OF(orders), "beams");
    assert_status(context, clattn_decoder_reorder(w.state, NULL, CASE_BEAMS, wrong, 0, NULL, NULL),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "parents[2] is 3, which is not of item 0");
    nn_world_close(&w);
}

static void decoders(void **state)
{
    (void)state;
    for (size_t i = 0; i < DECODER_CASES; i++) {
        if (is_tiny() && !decoder_cases[i].tiny)
            continue;
        for (int32_t prepack = 0; prepack < 2; prepack++) {
            at_once(&decoder_cases[i], prepack);
            in_pieces(&decoder_cases[i], prepack);
            beams(&decoder_cases[i], prepack);
        }
        print_message("# %s\n", decoder_cases[i].name);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(decoders, open_context, close_context),
    };
    return RUN_TESTS("decoder", tests, argc, argv);
}
