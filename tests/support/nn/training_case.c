#include "support/nn/training_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/array.h"
#include "support/device.h"

enum {
    VOCABULARY = TRAINING_VOCABULARY,
    SOURCES = TRAINING_SOURCES,
    BATCH = TRAINING_BATCH,
    SOURCE = TRAINING_SOURCE,
    FRAMES = TRAINING_FRAMES,
    FEATURES = TRAINING_FEATURES,
    TARGET = TRAINING_TARGET,
    LABELS = TRAINING_LABELS
};

#define TOKENS(size) .input = CLATTN_STACK_INPUT_TOKENS, .vocabulary = size
#define PAPER SHAPE(RELU), .layers = 2, .positions = CLATTN_POSITIONS_SINUSOIDS, .scale_embeddings = 1
#define TABLE SHAPE(GELU), .layers = 1, PRE, .final_norm = 1, .positions = CLATTN_POSITIONS_TABLE, .position_count = 9

const training_case training_cases[TRAINING_CASES] = {
    {"the paper's: post-norm, sinusoids, tied",
     {PAPER, TOKENS(SOURCES)},
     {PAPER, TOKENS(VOCABULARY), .causal = 1, .cross = 1},
     CLATTN_MODEL_OUTPUT_TIED,
     0.1f,
     false,
     CLATTN_DTYPE_F32},
    {"pre-norm, tables of positions, input norms, own output with bias",
     {TABLE, TOKENS(SOURCES), .input_norm = 1},
     {TABLE, TOKENS(VOCABULARY), .input_norm = 1, .causal = 1, .cross = 1},
     CLATTN_MODEL_OUTPUT_OWN,
     0,
     true,
     CLATTN_DTYPE_F32},
    {"a decoder alone: RMSNorm, gated, no biases, rotary, grouped heads, softcap, reach",
     {0},
     {SHAPE(SWISH), .layers = 2, PRE, .final_norm = 1, .norm = CLATTN_NORM_KIND_RMS, .gated = 1, .kv_heads = 2,
      .rotary = CLATTN_ROTARY_HALVES, .without_bias = CLATTN_WITHOUT_BIAS, .softcap = 2, .reach = 2, .causal = 1,
      TOKENS(VOCABULARY)},
     CLATTN_MODEL_OUTPUT_TIED,
     0,
     false,
     CLATTN_DTYPE_F32},
    {"Whisper's: convolutions of features, no biases of keys",
     {TABLE, .input = CLATTN_STACK_INPUT_FEATURES, .features = FEATURES, .without_bias = CLATTN_WITHOUT_KEY_BIAS,
      .convolutions = 2, .convolution = {{3, 1, 1, CLATTN_ACTIVATION_GELU}, {3, 2, 1, CLATTN_ACTIVATION_GELU}}},
     {TABLE, TOKENS(VOCABULARY), .without_bias = CLATTN_WITHOUT_KEY_BIAS, .causal = 1, .cross = 1},
     CLATTN_MODEL_OUTPUT_TIED,
     0,
     false,
     CLATTN_DTYPE_F32},
    {"convolutions whose windows leave frames out",
     {SHAPE(RELU), .layers = 1, .positions = CLATTN_POSITIONS_TABLE, .position_count = 9,
      .input = CLATTN_STACK_INPUT_FEATURES, .features = FEATURES, .convolutions = 2,
      .convolution = {{6, 1, 5, CLATTN_ACTIVATION_RELU}, {1, 3, 0, CLATTN_ACTIVATION_NONE}}},
     {PAPER, TOKENS(VOCABULARY), .causal = 1, .cross = 1},
     CLATTN_MODEL_OUTPUT_TIED,
     0,
     false,
     CLATTN_DTYPE_F32},
    {"segments, positions from 2 and 1 on, norms of heads",
     {SHAPE(GELU), .layers = 1, .positions = CLATTN_POSITIONS_TABLE, .position_count = 9, .first_position = 2,
      TOKENS(SOURCES), .segments = 2, .input_norm = 1},
     {SHAPE(SWISH), .layers = 1, PRE, .positions = CLATTN_POSITIONS_SINUSOIDS, .first_position = 1, TOKENS(VOCABULARY),
      .segments = 3, .query_key_norm = 1, .rotary = CLATTN_ROTARY_HALVES, .kv_heads = 2, .causal = 1, .cross = 1},
     CLATTN_MODEL_OUTPUT_TIED,
     0,
     false,
     CLATTN_DTYPE_F32},
};

clattn_transformer_desc training_model(const training_case *test)
{
    return (clattn_transformer_desc){.size = sizeof(clattn_transformer_desc),
                                     .encoder = test->encoder.layers ? &test->encoder : NULL,
                                     .decoder = &test->decoder,
                                     .output = test->output,
                                     .output_bias = test->bias,
                                     .dtype = test->dtype};
}

void training_open(training_world *w, const training_case *test)
{
    static const int32_t sources[BATCH] = {SOURCE, 2, 4}, targets[BATCH] = {3, TARGET, 4};
    const size_t output[2] = {VOCABULARY, test->decoder.d_model};
    memset(w, 0, sizeof *w);
    w->test = test;
    w->has_encoder = test->encoder.layers != 0;
    w->has_features = test->encoder.features != 0;
    w->store.seed = 7;
    if (w->has_encoder)
        nn_store_add_stack(&w->store, "encoder", &test->encoder);
    nn_store_add_stack(&w->store, "decoder", &test->decoder);
    if (test->output == CLATTN_MODEL_OUTPUT_OWN)
        nn_store_add(&w->store, "output.weight", 2, output, 0.4f, 0);
    if (test->bias)
        nn_store_add(&w->store, "output.bias", 1, output, 0.4f, 0);
    const clattn_transformer_desc desc = training_model(test);
    w->model = nn_transformer(device_context(), &desc, &w->store);
    assert_status(device_context(), clattn_trainer_create(w->model, &w->trainer), CLATTN_SUCCESS);
    clattn_training_desc_init(&w->desc);
    w->desc.batch = BATCH;
    w->desc.source_length = w->has_features ? FRAMES : w->has_encoder ? SOURCE : 0;
    w->desc.target_length = TARGET;
    w->desc.label_smoothing = test->smoothing;
    memcpy(w->source_lengths, sources, sizeof sources);
    memcpy(w->target_lengths, targets, sizeof targets);
    for (int32_t i = 0; i < BATCH * SOURCE; i++) {
        w->source[i] = i * 7 % SOURCES;
        w->source_segments[i] = i / 2 % 2;
    }
    for (int32_t i = 0; i < BATCH * FRAMES * FEATURES; i++)
        w->features[i] = (float)(i * 13 % 29 - 14) / 16;
    for (int32_t i = 0; i < BATCH * TARGET; i++) {
        w->target[i] = i * 5 % VOCABULARY;
        w->target_segments[i] = i / 3 % 3;
        w->labels[i] = i % TARGET < w->target_lengths[i / TARGET] ? (i * 11 + 3) % VOCABULARY : TRAINING_IGNORED;
    }
}

void training_close(training_world *w)
{
    clattn_trainer_release(&w->trainer);
    clattn_transformer_release(&w->model);
    nn_store_clear(&w->store);
}

static clattn_binding bind(const void *values, size_t bytes)
{
    return clattn_binding_buffer(nn_buffer(device_context(), bytes, values), 0);
}

clattn_training_args training_bind(const training_world *w, size_t first)
{
    clattn_training_args args = CLATTN_TRAINING_ARGS_INIT;
    const size_t sources = w->desc.batch * SOURCE, rows = w->desc.batch * TARGET, frames = FRAMES * FEATURES;
    if (w->has_features)
        args.source = bind(w->features + first * frames, w->desc.batch * frames * sizeof *w->features);
    else if (w->has_encoder)
        args.source = bind(w->source + first * SOURCE, sources * sizeof *w->source);
    if (w->test->encoder.segments)
        args.source_segments = bind(w->source_segments + first * SOURCE, sources * sizeof *w->source);
    if (w->test->decoder.segments)
        args.target_segments = bind(w->target_segments + first * TARGET, rows * sizeof *w->target);
    args.target = bind(w->target + first * TARGET, rows * sizeof *w->target);
    args.labels = bind(w->labels + first * TARGET, rows * sizeof *w->labels);
    args.losses = bind(NULL, rows * sizeof *w->losses);
    args.source_lengths = w->has_encoder ? w->source_lengths + first : NULL;
    args.target_lengths = w->target_lengths + first;
    return args;
}

void training_unbind(clattn_training_args *args)
{
    clattn_binding *const bound[] = {&args->source,          &args->source_segments, &args->target,
                                     &args->target_segments, &args->labels,          &args->losses};
    for (size_t i = 0; i < COUNT_OF(bound); i++)
        if (bound[i]->buffer)
            clReleaseMemObject(bound[i]->buffer);
}

void training_step(training_world *w, size_t first, bool accumulate, uint64_t seed)
{
    clattn_training_args args = training_bind(w, first);
    clattn_plan *plan = NULL;
    args.explicit_scale = 1;
    args.scale = 0.125f;
    args.accumulate = accumulate;
    args.seed = seed;
    assert_status(device_context(), clattn_training_plan_create(w->trainer, &w->desc, NULL, &plan), CLATTN_SUCCESS);
    assert_status(device_context(), clattn_training_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    assert_cl(clEnqueueReadBuffer(clattn_context_queue(device_context()), args.losses.buffer, CL_TRUE, 0,
                                  w->desc.batch * TARGET * sizeof(float), w->losses + first * TARGET, 0, NULL, NULL));
    clattn_plan_release(&plan);
    training_unbind(&args);
}

clattn_parameter training_parameter(const training_world *w, size_t index, size_t *count)
{
    clattn_parameter p = CLATTN_PARAMETER_INIT;
    assert_status(device_context(), clattn_trainer_parameter(w->trainer, index, &p), CLATTN_SUCCESS);
    *count = array_count(p.layout.rank, p.layout.extent);
    return p;
}

float *training_read(clattn_binding at, size_t count)
{
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    assert_cl(clEnqueueReadBuffer(clattn_context_queue(device_context()), at.buffer, CL_TRUE,
                                  (size_t)at.offset * sizeof *values, count * sizeof *values, values, 0, NULL, NULL));
    return values;
}

float *training_read_ordered(const clattn_parameter *p, clattn_binding at)
{
    const clattn_layout *layout = &p->layout;
    const size_t count = array_count(layout->rank, layout->extent);
    float *values = training_read(at, count), *ordered = nn_floats(count, 0);
    size_t index[CLATTN_MAX_RANK] = {0}, e = 0;
    do {
        int64_t place = 0;
        for (int axis = 0; axis < layout->rank; axis++)
            place += (int64_t)index[axis] * layout->stride[axis];
        ordered[e++] = values[place];
    } while (array_next(layout->rank, layout->extent, index));
    free(values);
    return ordered;
}

static float *read_all(const training_world *w, bool gradients, size_t *count)
{
    float *all = NULL;
    *count = 0;
    for (size_t i = 0; i < clattn_trainer_parameter_count(w->trainer); i++) {
        size_t own;
        const clattn_parameter p = training_parameter(w, i, &own);
        float *values = training_read(gradients ? p.gradient : p.value, own);
        all = realloc(all, (*count + own) * sizeof *all);
        assert_non_null(all);
        memcpy(all + *count, values, own * sizeof *all);
        *count += own;
        free(values);
    }
    return all;
}

float *training_values(const training_world *w, size_t *count)
{
    return read_all(w, false, count);
}

float *training_gradients(const training_world *w, size_t *count)
{
    return read_all(w, true, count);
}

/* ---- the reference ---- */

static nn_reference reference_of(const training_world *w, const char *name, const clattn_stack_desc *desc,
                                 size_t length, const int32_t *lengths)
{
    return (nn_reference){
        .store = &w->store, .name = name, .desc = desc, .batch = BATCH, .length = length, .lengths = lengths};
}

static double loss_of(const double *logits, int32_t label, double smoothing)
{
    double largest = -INFINITY, sum = 0, all = 0;
    if (label == TRAINING_IGNORED)
        return 0;
    for (size_t c = 0; c < VOCABULARY; c++)
        largest = fmax(largest, logits[c]);
    for (size_t c = 0; c < VOCABULARY; c++) {
        sum += exp(logits[c] - largest);
        all += logits[c];
    }
    const double lse = largest + log(sum);
    return (1 - smoothing) * (lse - logits[label]) + smoothing * (lse - all / VOCABULARY);
}

double training_expected(const training_world *w, double *losses)
{
    const training_case *t = w->test;
    nn_reference d = reference_of(w, "decoder", &t->decoder, TARGET, w->target_lengths);
    double *memory = NULL, sum = 0;
    if (w->has_encoder) {
        const nn_reference e = reference_of(w, "encoder", &t->encoder, SOURCE, w->source_lengths);
        memory = w->has_features ? nn_reference_convolutions(&e, FRAMES, w->features)
                                 : nn_reference_tokens(&e, w->source, w->source_segments);
        nn_reference_layers(&e, memory);
        d.memory = memory;
        d.memory_length = SOURCE;
        d.memory_lengths = w->source_lengths;
    }
    double *x = nn_reference_tokens(&d, w->target, w->target_segments);
    nn_reference_layers(&d, x);
    const char *matrix = t->output == CLATTN_MODEL_OUTPUT_OWN ? "output.weight" : "decoder.tokens.weight";
    double *logits = nn_reference_linear(x, BATCH * TARGET, t->decoder.d_model, nn_store_get(&w->store, matrix),
                                         VOCABULARY, t->bias ? nn_store_get(&w->store, "output.bias") : NULL);
    for (size_t i = 0; i < BATCH * TARGET; i++) {
        losses[i] = loss_of(logits + i * VOCABULARY, w->labels[i], (double)t->smoothing);
        sum += losses[i];
    }
    free(memory);
    free(x);
    free(logits);
    return sum;
}
