#include <stdlib.h>

#include "support/harness.h"
#include "support/nn/pair.h"
#include "support/nn/run.h"

static int32_t *make_ids(size_t count, size_t step, size_t vocabulary)
{
    int32_t *ids = malloc(count * sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < count; i++)
        ids[i] = (int32_t)((i * step + 1) % vocabulary);
    return ids;
}

/* Runs the encoder into `out` and returns the reference's output for the same input. */
static double *encode(const nn_pair *p, clattn_transformer *model, cl_mem out)
{
    const clattn_stack_desc *d = p->desc->encoder;
    const bool tokens = d->input == CLATTN_STACK_INPUT_TOKENS;
    void *input = tokens ? (void *)make_ids(p->batch * p->input, 31, d->vocabulary)
                         : nn_floats(p->batch * p->input * d->features, 3);
    const nn_encoder_run run = {.d = d, .store = p->store, .desc = nn_encoder_desc(p->batch, p->input), .input = input};
    nn_encode(p->context, model, &run, out);
    double *expected = nn_encoder_expected(&run, 0);
    free(input);
    return expected;
}

/* Appends `row` tokens at a time and returns the logits of all, (batch, length, vocabulary). */
static float *decode(const nn_pair *p, clattn_decoder_state *state, cl_mem memory, size_t memory_length,
                     const int32_t *ids, size_t row)
{
    const size_t vocabulary = p->desc->decoder->vocabulary, bytes = p->batch * row * vocabulary * sizeof(float);
    clattn_decoder_begin_args begin = CLATTN_DECODER_BEGIN_ARGS_INIT;
    cl_command_queue queue = clattn_context_queue(p->context);
    float *all = malloc(p->batch * p->length * vocabulary * sizeof *all), *part = malloc(bytes);
    int32_t *tokens = malloc(p->batch * row * sizeof *tokens);
    assert_true(all && part && tokens);
    begin.items = p->batch;
    begin.memory = clattn_binding_buffer(memory, 0);
    begin.memory_length = memory_length;
    assert_status(p->context, clattn_decoder_begin(state, NULL, &begin, 0, NULL, NULL), CLATTN_SUCCESS);
    for (size_t at = 0; at < p->length; at += row) {
        clattn_decoder_args args = CLATTN_DECODER_ARGS_INIT;
        for (size_t i = 0; i < p->batch * row; i++)
            tokens[i] = ids[i / row * p->length + at + i % row];
        cl_mem in = nn_buffer(p->context, p->batch * row * sizeof *tokens, tokens);
        cl_mem out = nn_buffer(p->context, bytes, NULL);
        args.input = clattn_binding_buffer(in, 0);
        args.logits = clattn_binding_buffer(out, 0);
        args.length = row;
        assert_status(p->context, clattn_decoder_enqueue(state, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
        read_buffer(queue, out, bytes, part);
        for (size_t i = 0; i < p->batch * row * vocabulary; i++)
            all[(i / vocabulary / row * p->length + at + i / vocabulary % row) * vocabulary + i % vocabulary] = part[i];
        clReleaseMemObject(in);
        clReleaseMemObject(out);
    }
    free(tokens);
    free(part);
    return all;
}

void nn_pair_check(const nn_pair *p)
{
    const clattn_stack_desc *d = p->desc->decoder;
    const size_t rows = p->batch * p->length, positions = clattn_stack_positions(p->desc->encoder, p->input);
    clattn_decoder_desc desc = CLATTN_DECODER_DESC_INIT;
    clattn_transformer *model = NULL;
    clattn_decoder_state *state = NULL;
    clattn_plan *plan = NULL;
    int32_t *ids = make_ids(rows, 17, d->vocabulary);
    cl_mem memory = nn_buffer(p->context, p->batch * positions * p->desc->encoder->d_model * sizeof(float), NULL);
    assert_status(p->context, clattn_transformer_create(p->context, p->desc, p->source, &model), CLATTN_SUCCESS);
    double *encoded = encode(p, model, memory);
    const nn_reference r = {.store = p->store,
                            .name = "decoder",
                            .desc = d,
                            .batch = p->batch,
                            .length = p->length,
                            .memory = encoded,
                            .memory_length = positions};
    double *x = nn_reference_tokens(&r, ids, NULL);
    nn_reference_layers(&r, x);
    double *expected =
        nn_reference_linear(x, rows, d->d_model, nn_store_get(p->store, "decoder.tokens.weight"), d->vocabulary, NULL);
    desc.items = p->batch;
    desc.length = p->cached_only ? 1 : p->length;
    desc.cache_length = p->length;
    desc.memory_length = positions;
    desc.logits = CLATTN_LOGITS_ALL;
    assert_status(p->context, clattn_decoder_plan_create(model, &desc, NULL, &plan), CLATTN_SUCCESS);
    assert_status(p->context, clattn_decoder_state_create(plan, &state), CLATTN_SUCCESS);
    float *at_once = decode(p, state, memory, positions, ids, desc.length);
    float *one_by_one = decode(p, state, memory, positions, ids, 1);
    double *uncached = nn_doubles(at_once, rows * d->vocabulary);
    const double apart[] = {nn_difference(at_once, expected, rows, d->vocabulary, p->length, NULL),
                            nn_difference(one_by_one, expected, rows, d->vocabulary, p->length, NULL),
                            nn_difference(one_by_one, uncached, rows, d->vocabulary, p->length, NULL)};
    print_message("# at once %.2g, one by one %.2g, the two %.2g\n", apart[0], apart[1], apart[2]);
    for (size_t i = 0; i < 3; i++)
        assert_true(apart[i] < p->tolerance);
    clReleaseMemObject(memory);
    clattn_decoder_state_release(&state);
    clattn_plan_release(&plan);
    clattn_transformer_release(&model);
    free(ids);
    free(encoded);
    free(x);
    free(expected);
    free(at_once);
    free(one_by_one);
    free(uncached);
}
