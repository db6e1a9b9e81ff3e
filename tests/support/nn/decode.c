#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/harness.h"
#include "support/nn/decode.h"
#include "support/nn/run.h"
#include "support/storage.h"

#define BITS 5 /* significant bits that both 16-bit types hold */

/* Returns the mask from item `item` on. */
static nn_mask mask_from(const nn_mask *m, size_t item)
{
    nn_mask mask = *m;
    if (m->batch > 1)
        mask.added += item * m->heads * m->queries * m->keys;
    return mask;
}

double *nn_world_logits(const nn_world *w, size_t batch, size_t length, const int32_t *ids, size_t item, bool naive,
                        double *self, double *cross)
{
    const size_t n = w->d->d_model, memory = w->memory_length * nn_d_memory(w->d);
    double *read = nn_doubles(w->memory + item * memory, batch * memory);
    const nn_reference r = {.store = &w->store,
                            .name = "decoder",
                            .desc = w->d,
                            .batch = batch,
                            .length = length,
                            .memory = read,
                            .memory_length = w->memory_length,
                            .memory_lengths = w->memory_lengths ? w->memory_lengths + item : NULL,
                            .mask = mask_from(&w->mask, item),
                            .memory_mask = mask_from(&w->memory_mask, item),
                            .dtype = naive ? w->dtype : 0,
                            .cache_dtype = naive ? w->cache_dtype : 0,
                            .self_probabilities = self,
                            .cross_probabilities = cross};
    double *x = nn_reference_tokens(&r, ids, NULL);
    nn_reference_layers(&r, x);
    double *logits = nn_reference_linear(x, batch * length, n, w->head, NN_VOCABULARY, NULL);
    free(x);
    free(read);
    return logits;
}

static cl_mem make_memory(nn_world *w)
{
    const size_t count = w->items * w->memory_length * nn_d_memory(w->d);
    const bool narrow = w->dtype == CLATTN_DTYPE_F16 || w->dtype == CLATTN_DTYPE_BF16;
    uint16_t *stored = malloc(count * sizeof *stored + 1);
    w->memory = malloc(count * sizeof *w->memory + 1);
    assert_non_null(stored);
    assert_non_null(w->memory);
    fill_floats(w->memory, count, 4);
    for (size_t i = 0; narrow && i < count; i++) {
        w->memory[i] = rintf(w->memory[i] * 16) / 16;
        storage_set(w->dtype, &stored[i], w->memory[i]);
    }
    cl_mem buffer = narrow ? nn_buffer(w->context, count * sizeof *stored, stored)
                           : nn_buffer(w->context, count * sizeof *w->memory, w->memory);
    free(stored);
    return buffer;
}

static void make_model(nn_world *w)
{
    const clattn_stack_desc *d = w->d;
    const bool integers = w->weight_dtype == CLATTN_DTYPE_I8;
    const clattn_transformer_desc model = {.size = sizeof model,
                                           .decoder = d,
                                           .output = w->output,
                                           .output_size = w->output_size,
                                           .dtype = w->dtype,
                                           .weight_dtype = w->weight_dtype};
    w->store = (nn_store){.seed = 9};
    nn_store_add_stack(&w->store, "decoder", d);
    if (w->output == CLATTN_MODEL_OUTPUT_OWN)
        nn_store_add(&w->store, "output.weight", 2,
                     (const size_t[2]){w->output_size ? w->output_size : NN_VOCABULARY, d->d_model}, 0.4f, 0);
    for (size_t i = 0; (w->dtype || (w->weight_dtype && !integers)) && i < nn_store_count(&w->store); i++)
        nn_store_round(&w->store, i, BITS);
    if (integers)
        nn_store_vary_rows(&w->store);
    w->head = nn_store_get(&w->store, w->output == CLATTN_MODEL_OUTPUT_OWN ? "output.weight" : "decoder.tokens.weight");
    w->model = nn_transformer(w->context, &model, &w->store);
    if (integers) /* the reference computes with the quantised weights */
        nn_store_quantise(&w->store);
}

/* Returns the plan's layout of a mask for `length` tokens in an enqueue. */
static clattn_layout mask_layout(const nn_world *w, const nn_mask *m, size_t length)
{
    return clattn_layout_bhsd(w->mask_dtype, m->batch, m->heads, m->queries > 1 ? length : 1, m->keys);
}

void nn_world_open(nn_world *w, clattn_decoder_desc *desc)
{
    const clattn_stack_desc *d = w->d;
    const size_t S = w->items * (desc->beams ? desc->beams : 1), L = w->length;
    const size_t probabilities = d->layers * S * d->heads * L;
    make_model(w);
    desc->items = w->items;
    desc->cache_length = desc->cache_length ? desc->cache_length : L;
    desc->memory_length = d->cross ? w->memory_length : 0;
    w->cache_dtype = desc->cache_dtype;
    w->mask_rows = desc->length;
    if (w->mask.added)
        desc->mask = mask_layout(w, &w->mask, desc->length);
    if (w->memory_mask.added)
        desc->memory_mask = mask_layout(w, &w->memory_mask, desc->length);
    assert_status(w->context, clattn_decoder_plan_create(w->model, desc, NULL, &w->plan), CLATTN_SUCCESS);
    assert_status(w->context, clattn_decoder_state_create(w->plan, &w->state), CLATTN_SUCCESS);
    assert_true(clattn_decoder_state_bytes(w->state) > 0);
    w->ids = malloc(w->items * L * sizeof *w->ids);
    assert_non_null(w->ids);
    for (size_t i = 0; i < w->items * L; i++)
        w->ids[i] = (int32_t)(i * 17 % NN_VOCABULARY);
    w->memory_buffer = make_memory(w);
    w->self_expected = calloc(probabilities * L, sizeof(double));
    w->cross_expected = calloc(probabilities * w->memory_length + 1, sizeof(double));
    w->expected = nn_world_logits(w, w->items, L, w->ids, 0, false, w->self_expected, w->cross_expected);
    w->tokens = nn_buffer(w->context, S * L * sizeof(int32_t), NULL);
    w->logits = nn_buffer(w->context, S * L * NN_VOCABULARY * sizeof(float), NULL);
    w->vectors = nn_buffer(w->context, S * L * d->d_model * sizeof(float), NULL);
    w->self = nn_buffer(w->context, probabilities * L * sizeof(float), NULL);
    w->cross = nn_buffer(w->context, (probabilities * w->memory_length + 1) * sizeof(float), NULL);
}

void nn_world_close(nn_world *w)
{
    const cl_mem buffers[] = {w->memory_buffer, w->tokens, w->logits, w->vectors, w->self, w->cross};
    for (size_t i = 0; i < COUNT_OF(buffers); i++)
        clReleaseMemObject(buffers[i]);
    clattn_decoder_state_release(&w->state);
    clattn_plan_release(&w->plan);
    clattn_transformer_release(&w->model);
    nn_store_clear(&w->store);
    free(w->ids);
    free(w->memory);
    free(w->expected);
    free(w->self_expected);
    free(w->cross_expected);
}

void nn_world_begin(nn_world *w, cl_command_queue queue, size_t beams)
{
    clattn_decoder_begin_args args = CLATTN_DECODER_BEGIN_ARGS_INIT;
    args.items = w->items;
    args.beams = beams;
    if (w->d->cross) {
        args.memory = clattn_binding_buffer(w->memory_buffer, 0);
        args.memory_length = w->memory_length;
        args.memory_lengths = w->memory_lengths;
    }
    assert_status(w->context, clattn_decoder_begin(w->state, queue, &args, 0, NULL, NULL), CLATTN_SUCCESS);
}

/* Binds the mask's rows of the appended tokens; the other rows are NaN or true. */
static cl_mem bind_mask(const nn_world *w, const nn_mask *m, const size_t *at, const int32_t *lengths, size_t length,
                        clattn_binding *binding)
{
    const size_t rows = m->queries > 1 ? w->mask_rows : 1, all = m->batch * m->heads * rows;
    if (!m->added)
        return NULL;
    float *added = malloc(all * m->keys * sizeof *added);
    uint8_t *attended = malloc(all * m->keys);
    assert_non_null(added);
    assert_non_null(attended);
    for (size_t i = 0; i < all * m->keys; i++) {
        const size_t row = i / m->keys % rows, item = i / m->keys / rows / m->heads,
                     head = i / m->keys / rows % m->heads;
        const size_t fresh = lengths ? (size_t)lengths[item] : length, query = m->queries > 1 ? at[item] + row : 0;
        added[i] = m->queries == 1 || row < fresh
                       ? m->added[((item * m->heads + head) * m->queries + query) * m->keys + i % m->keys]
                       : NAN;
        attended[i] = added[i] != -INFINITY;
    }
    cl_mem buffer = w->mask_dtype == CLATTN_DTYPE_BOOL ? nn_buffer(w->context, all * m->keys, attended)
                                                       : nn_buffer(w->context, all * m->keys * sizeof *added, added);
    *binding = clattn_binding_buffer(buffer, 0);
    free(added);
    free(attended);
    return buffer;
}

void nn_world_append(nn_world *w, size_t sequences, const int32_t *ids, size_t stride, const size_t *at, size_t length,
                     const int32_t *lengths, size_t row, float *logits, size_t logit_rows)
{
    cl_command_queue queue = clattn_context_queue(w->context);
    clattn_decoder_args args = CLATTN_DECODER_ARGS_INIT;
    int32_t *tokens = calloc(sequences * row, sizeof *tokens);
    assert_non_null(tokens);
    for (size_t s = 0; s < sequences; s++)
        for (size_t i = 0; i < (lengths ? (size_t)lengths[s] : length); i++)
            tokens[s * row + i] = ids[s * stride + at[s] + i];
    assert_cl(
        clEnqueueWriteBuffer(queue, w->tokens, CL_TRUE, 0, sequences * row * sizeof *tokens, tokens, 0, NULL, NULL));
    free(tokens);
    args.input = clattn_binding_buffer(w->tokens, 0);
    args.logits = clattn_binding_buffer(w->logits, 0);
    args.length = length;
    args.lengths = lengths;
    cl_mem masks[] = {bind_mask(w, &w->mask, at, lengths, length, &args.mask),
                      bind_mask(w, &w->memory_mask, at, lengths, length, &args.memory_mask)};
    assert_status(w->context, clattn_decoder_enqueue(w->state, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    read_buffer(queue, w->logits, sequences * logit_rows * NN_VOCABULARY * sizeof(float), logits);
    for (size_t i = 0; i < 2; i++)
        if (masks[i])
            clReleaseMemObject(masks[i]);
}

void nn_check_logits(const float *got, const double *expected, const char *what)
{
    double apart = 0;
    for (size_t v = 0; v < NN_VOCABULARY; v++)
        apart = fmax(apart, isnan(got[v]) ? INFINITY : fabs(got[v] - expected[v]) / fmax(1, fabs(expected[v])));
    if (!(apart < 1e-5))
        print_error("%s: %.3g apart\n", what, apart);
    assert_true(apart < 1e-5);
}
