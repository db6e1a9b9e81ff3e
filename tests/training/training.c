/* Training: losses as the reference has them, gradients as its differences do, updates, and what is the same in every bit.
 *
 * Holds: training.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/device.h"
#include "support/nn/run.h"
#include "support/suite.h"

enum { VOCABULARY = 23, SOURCES = 19, BATCH = 3, SOURCE = 6, TARGET = 5, IGNORED = -100 };

#define TOKENS(size) .input = CLATTN_STACK_INPUT_TOKENS, .vocabulary = size

typedef struct training_case {
    const char *name;
    clattn_stack_desc encoder, decoder; /* no layers: there is no encoder */
    clattn_model_output output;
    float smoothing;
    bool bias; /* of the output */
} training_case;

#define PAPER SHAPE(RELU), .layers = 2, .positions = CLATTN_POSITIONS_SINUSOIDS, .scale_embeddings = 1
#define TABLE SHAPE(GELU), .layers = 1, PRE, .final_norm = 1, .positions = CLATTN_POSITIONS_TABLE, .position_count = 9

static const training_case cases[] = {
    {"the paper's: post-norm, sinusoids, tied",
     {PAPER, TOKENS(SOURCES)},
     {PAPER, TOKENS(VOCABULARY), .causal = 1, .cross = 1},
     CLATTN_MODEL_OUTPUT_TIED,
     0.1f,
     false},
    {"pre-norm, tables of positions, input norms, own output with bias",
     {TABLE, TOKENS(SOURCES), .input_norm = 1},
     {TABLE, TOKENS(VOCABULARY), .input_norm = 1, .causal = 1, .cross = 1},
     CLATTN_MODEL_OUTPUT_OWN,
     0,
     true},
    {"a decoder alone: RMSNorm, gated, no biases, rotary, grouped heads, softcap, reach",
     {0},
     {SHAPE(SWISH), .layers = 2, PRE, .final_norm = 1, .norm = CLATTN_NORM_KIND_RMS, .gated = 1, .kv_heads = 2,
      .rotary = CLATTN_ROTARY_HALVES, .without_bias = CLATTN_WITHOUT_BIAS, .softcap = 2, .reach = 2, .causal = 1,
      TOKENS(VOCABULARY)},
     CLATTN_MODEL_OUTPUT_TIED,
     0,
     false},
};

/* ---- a model with its batch ---- */

typedef struct world {
    const training_case *test;
    bool has_encoder;
    nn_store store;
    clattn_transformer *model;
    clattn_trainer *trainer;
    clattn_training_desc desc;
    int32_t source[BATCH * SOURCE], target[BATCH * TARGET], labels[BATCH * TARGET];
    int32_t source_lengths[BATCH], target_lengths[BATCH];
    float losses[BATCH * TARGET];
} world;

static void open_world(world *w, const training_case *test)
{
    static const int32_t sources[BATCH] = {SOURCE, 2, 4}, targets[BATCH] = {3, TARGET, 4};
    const size_t output[2] = {VOCABULARY, test->decoder.d_model};
    memset(w, 0, sizeof *w);
    w->test = test;
    w->has_encoder = test->encoder.layers != 0;
    w->store.seed = 7;
    if (w->has_encoder)
        nn_store_add_stack(&w->store, "encoder", &test->encoder);
    nn_store_add_stack(&w->store, "decoder", &test->decoder);
    if (test->output == CLATTN_MODEL_OUTPUT_OWN)
        nn_store_add(&w->store, "output.weight", 2, output, 0.4f, 0);
    if (test->bias)
        nn_store_add(&w->store, "output.bias", 1, output, 0.4f, 0);
    const clattn_transformer_desc desc = {.size = sizeof desc,
                                          .encoder = w->has_encoder ? &test->encoder : NULL,
                                          .decoder = &test->decoder,
                                          .output = test->output,
                                          .output_bias = test->bias};
    w->model = nn_transformer(device_context(), &desc, &w->store);
    assert_status(device_context(), clattn_trainer_create(w->model, &w->trainer), CLATTN_SUCCESS);
    clattn_training_desc_init(&w->desc);
    w->desc.batch = BATCH;
    w->desc.source_length = w->has_encoder ? SOURCE : 0;
    w->desc.target_length = TARGET;
    w->desc.label_smoothing = test->smoothing;
    memcpy(w->source_lengths, sources, sizeof sources);
    memcpy(w->target_lengths, targets, sizeof targets);
    for (int32_t i = 0; i < BATCH * SOURCE; i++)
        w->source[i] = i * 7 % SOURCES;
    for (int32_t i = 0; i < BATCH * TARGET; i++) {
        w->target[i] = i * 5 % VOCABULARY;
        w->labels[i] = i % TARGET < w->target_lengths[i / TARGET] ? (i * 11 + 3) % VOCABULARY : IGNORED;
    }
}

static void close_world(world *w)
{
    clattn_trainer_release(&w->trainer);
    clattn_transformer_release(&w->model);
    nn_store_clear(&w->store);
}

static clattn_binding ids(const int32_t *values, size_t count)
{
    return clattn_binding_buffer(nn_buffer(device_context(), count * sizeof *values, values), 0);
}

static void release(clattn_binding *binding)
{
    if (binding->buffer)
        clReleaseMemObject(binding->buffer);
}

/* Runs items first ... first + desc.batch - 1, and reads their losses. */
static void step(world *w, size_t first, bool accumulate, uint64_t seed)
{
    clattn_training_args args = CLATTN_TRAINING_ARGS_INIT;
    clattn_plan *plan = NULL;
    const size_t rows = w->desc.batch * TARGET;
    args.source = w->has_encoder ? ids(w->source + first * SOURCE, w->desc.batch * SOURCE) : (clattn_binding){0};
    args.target = ids(w->target + first * TARGET, rows);
    args.labels = ids(w->labels + first * TARGET, rows);
    args.losses = clattn_binding_buffer(nn_buffer(device_context(), rows * sizeof(float), NULL), 0);
    args.source_lengths = w->has_encoder ? w->source_lengths + first : NULL;
    args.target_lengths = w->target_lengths + first;
    args.explicit_scale = 1;
    args.scale = 0.125f;
    args.accumulate = accumulate;
    args.seed = seed;
    assert_status(device_context(), clattn_training_plan_create(w->trainer, &w->desc, NULL, &plan), CLATTN_SUCCESS);
    assert_status(device_context(), clattn_training_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    assert_cl(clEnqueueReadBuffer(clattn_context_queue(device_context()), args.losses.buffer, CL_TRUE, 0,
                                  rows * sizeof(float), w->losses + first * TARGET, 0, NULL, NULL));
    clattn_plan_release(&plan);
    release(&args.source);
    release(&args.target);
    release(&args.labels);
    release(&args.losses);
}

static clattn_parameter parameter(const world *w, size_t index, size_t *count)
{
    clattn_parameter p = CLATTN_PARAMETER_INIT;
    assert_status(device_context(), clattn_trainer_parameter(w->trainer, index, &p), CLATTN_SUCCESS);
    *count = p.layout.extent[0] * (p.layout.rank == 2 ? p.layout.extent[1] : 1);
    return p;
}

/* The values at a binding, which the caller frees. */
static float *read_back(clattn_binding at, size_t count)
{
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    assert_cl(clEnqueueReadBuffer(clattn_context_queue(device_context()), at.buffer, CL_TRUE,
                                  (size_t)at.offset * sizeof *values, count * sizeof *values, values, 0, NULL, NULL));
    return values;
}

/* All gradients one after the other, which the caller frees. */
static float *gradients(const world *w, size_t *count)
{
    float *all = NULL;
    *count = 0;
    for (size_t i = 0; i < clattn_trainer_parameter_count(w->trainer); i++) {
        size_t own;
        const clattn_parameter p = parameter(w, i, &own);
        float *values = read_back(p.gradient, own);
        all = realloc(all, (*count + own) * sizeof *all);
        assert_non_null(all);
        memcpy(all + *count, values, own * sizeof *all);
        *count += own;
        free(values);
    }
    return all;
}

/* ---- the reference ---- */

static nn_reference reference_of(const world *w, const char *name, const clattn_stack_desc *desc, size_t length,
                                 const int32_t *lengths)
{
    return (nn_reference){
        .store = &w->store, .name = name, .desc = desc, .batch = BATCH, .length = length, .lengths = lengths};
}

static double loss_of(const double *logits, int32_t label, double smoothing)
{
    double largest = -INFINITY, sum = 0, all = 0;
    if (label == IGNORED)
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

/* The losses of the store's weights; returns their sum. */
static double expected(const world *w, double *losses)
{
    const training_case *t = w->test;
    nn_reference d = reference_of(w, "decoder", &t->decoder, TARGET, w->target_lengths);
    double *memory = NULL, sum = 0;
    if (w->has_encoder) {
        const nn_reference e = reference_of(w, "encoder", &t->encoder, SOURCE, w->source_lengths);
        memory = nn_reference_tokens(&e, w->source, NULL);
        nn_reference_layers(&e, memory);
        d.memory = memory;
        d.memory_length = SOURCE;
        d.memory_lengths = w->source_lengths;
    }
    double *x = nn_reference_tokens(&d, w->target, NULL);
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

/* ---- losses and gradients ---- */

/* The losses are the reference's, and along a direction for each tensor the gradient is the reference's difference. */
static void agrees(const void *test, const char *solver)
{
    world w;
    double losses[BATCH * TARGET], unused[BATCH * TARGET];
    (void)solver;
    open_world(&w, test);
    step(&w, 0, false, 0);
    expected(&w, losses);
    for (size_t i = 0; i < BATCH * TARGET; i++)
        assert_true(fabs((double)w.losses[i] - losses[i]) <= 1e-5 * (1 + losses[i]));
    for (size_t i = 0; i < clattn_trainer_parameter_count(w.trainer); i++) {
        size_t count;
        const clattn_parameter p = parameter(&w, i, &count);
        float *gradient = read_back(p.gradient, count), *value = read_back(p.value, count),
              *directions = nn_floats(count, 3);
        float *weight = (float *)(uintptr_t)nn_store_get(&w.store, "%s", p.name);
        double along = 0, size = 0;
        assert_memory_equal(value, weight, count * sizeof *weight);
        /* The two points are floats, so that their difference is known exactly. */
        for (size_t n = 0; n < count; n++) {
            const float up = value[n] + directions[n] * 0x1p-14f, down = value[n] - directions[n] * 0x1p-14f;
            along += (double)gradient[n] * ((double)up - (double)down);
            size += fabs((double)gradient[n] * ((double)up - (double)down));
            weight[n] = up;
        }
        double apart = expected(&w, unused);
        for (size_t n = 0; n < count; n++)
            weight[n] = value[n] - directions[n] * 0x1p-14f;
        apart = (apart - expected(&w, unused)) * 0.125;
        memcpy(weight, value, count * sizeof *weight);
        if (!(fabs(along - apart) <= 1e-3 * size + 1e-9))
            fail_msg("%s: %.9g along a direction, and the losses differ by %.9g, of terms of %.3g", p.name, along,
                     apart, size);
        free(gradient);
        free(value);
        free(directions);
    }
    close_world(&w);
}

/* Layers that are done again give the same bits, with dropout, too; a step repeated does; and other seeds do not. */
static void same_bits(const void *test, const char *solver)
{
    world w;
    size_t count;
    (void)solver;
    open_world(&w, test);
    for (int dropout = 0; dropout < 2; dropout++) {
        w.desc.dropout = 0.3f * (float)dropout;
        w.desc.recompute = 0;
        step(&w, 0, false, 5);
        float *kept = gradients(&w, &count);
        for (int i = 0; i < 2; i++) {
            w.desc.recompute = i;
            step(&w, 0, false, 5);
            float *again = gradients(&w, &count);
            assert_memory_equal(kept, again, count * sizeof *kept);
            free(again);
        }
        step(&w, 0, false, 6);
        float *other = gradients(&w, &count);
        assert_true((memcmp(kept, other, count * sizeof *kept) != 0) == (dropout == 1));
        free(other);
        free(kept);
    }
    close_world(&w);
}

/* An item's losses do not depend on its place in the batch. */
static void places(const void *test, const char *solver)
{
    world w;
    float losses[BATCH * TARGET];
    (void)solver;
    open_world(&w, test);
    step(&w, 0, false, 0);
    memcpy(losses, w.losses, sizeof losses);
    const world old = w;
    for (size_t i = 0; i < BATCH; i++) {
        const size_t to = (i + 1) % BATCH;
        memcpy(w.source + to * SOURCE, old.source + i * SOURCE, SOURCE * sizeof *w.source);
        memcpy(w.target + to * TARGET, old.target + i * TARGET, TARGET * sizeof *w.target);
        memcpy(w.labels + to * TARGET, old.labels + i * TARGET, TARGET * sizeof *w.labels);
        w.source_lengths[to] = old.source_lengths[i];
        w.target_lengths[to] = old.target_lengths[i];
    }
    step(&w, 0, false, 0);
    for (size_t i = 0; i < BATCH; i++)
        assert_memory_equal(w.losses + (i + 1) % BATCH * TARGET, losses + i * TARGET, TARGET * sizeof *losses);
    close_world(&w);
}

static clattn_update_args update_args(int64_t number)
{
    clattn_update_args args = CLATTN_UPDATE_ARGS_INIT;
    args.learning_rate = 0.01;
    args.weight_decay = 0.1;
    args.clip_norm = 0.5;
    args.step = number;
    return args;
}

/* Parts of a batch have the losses of the whole, whose gradients are the sum of theirs. */
static void parts(const void *test, const char *solver)
{
    world w;
    size_t count;
    float whole_losses[BATCH * TARGET], largest = 0;
    double squares = 0;
    (void)solver;
    open_world(&w, test);
    step(&w, 0, false, 0);
    memcpy(whole_losses, w.losses, sizeof whole_losses);
    float *whole = gradients(&w, &count);
    w.desc.batch = 1;
    for (size_t i = 0; i < BATCH; i++)
        step(&w, i, i > 0, 0);
    for (size_t i = 0; i < BATCH * TARGET; i++)
        assert_true(fabsf(whole_losses[i] - w.losses[i]) <= 2e-6f * (1 + whole_losses[i]));
    float *sum = gradients(&w, &count);
    for (size_t i = 0; i < count; i++)
        largest = fmaxf(largest, fabsf(whole[i]));
    for (size_t i = 0; i < count; i++)
        assert_true(fabsf(whole[i] - sum[i]) <= 2e-6f * largest);
    for (size_t i = 0; i < count; i++)
        squares += (double)sum[i] * (double)sum[i];
    free(whole);
    free(sum);
    /* Nothing else is in their sum of squares: the update is not dropped, and moves numbers by the rate, as a first one does. */
    const clattn_update_args args = update_args(1);
    size_t own;
    const clattn_parameter p = parameter(&w, 1, &own);
    float *before = read_back(p.value, own), *gradient = read_back(p.gradient, own);
    assert_status(device_context(), clattn_trainer_update(w.trainer, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    float *after = read_back(p.value, own), *found = read_back(clattn_trainer_squares(w.trainer), 1);
    assert_true(fabs(*found - squares) <= 1e-5 * squares);
    free(found);
    for (size_t i = 0; i < own; i++)
        if (fabsf(gradient[i]) > 1e-3f * largest)
            assert_true(fabsf(fabsf(after[i] - before[i] * (1 - 0.001f)) - 0.01f) < 1e-4f);
    free(before);
    free(after);
    free(gradient);
    close_world(&w);
}

/* Evaluation has a step's losses, drops nothing, and leaves the gradients alone. */
static void evaluation(const void *test, const char *solver)
{
    world w;
    size_t count;
    float losses[BATCH * TARGET];
    (void)solver;
    open_world(&w, test);
    step(&w, 0, false, 0);
    memcpy(losses, w.losses, sizeof losses);
    float *before = gradients(&w, &count);
    w.desc.evaluation = 1;
    w.desc.dropout = 0.5f;
    step(&w, 0, false, 9);
    assert_memory_equal(losses, w.losses, sizeof losses);
    float *after = gradients(&w, &count);
    assert_memory_equal(before, after, count * sizeof *before);
    free(before);
    free(after);
    close_world(&w);
}

/* The dropped model's gradient is that of its own losses: along the gradient they fall as it says. */
static void dropout(const void *test, const char *solver)
{
    world w;
    size_t count;
    float before[BATCH * TARGET];
    double size = 0, fall = 0;
    (void)solver;
    open_world(&w, test);
    w.desc.dropout = 0.4f;
    step(&w, 0, false, 11);
    memcpy(before, w.losses, sizeof before);
    float *all = gradients(&w, &count);
    for (size_t i = 0; i < count; i++)
        size += (double)all[i] * (double)all[i];
    free(all);
    const double rate = 0.01 / size;
    for (size_t i = 0; i < clattn_trainer_parameter_count(w.trainer); i++) {
        const clattn_parameter p = parameter(&w, i, &count);
        float *gradient = read_back(p.gradient, count), *value = read_back(p.value, count);
        for (size_t n = 0; n < count; n++)
            value[n] -= (float)rate * gradient[n];
        assert_cl(clEnqueueWriteBuffer(clattn_context_queue(device_context()), p.value.buffer, CL_TRUE,
                                       (size_t)p.value.offset * sizeof *value, count * sizeof *value, value, 0, NULL,
                                       NULL));
        free(gradient);
        free(value);
    }
    step(&w, 0, false, 11);
    for (size_t i = 0; i < BATCH * TARGET; i++)
        fall += 0.125 * ((double)before[i] - (double)w.losses[i]);
    print_message("# the losses fall by %.4g, the gradient says %.4g\n", fall, rate * size);
    assert_true(fabs(fall - rate * size) < 0.1 * rate * size);
    close_world(&w);
}

/* ---- updates ---- */

/* Two updates are AdamW's, of gradients that are clipped together. */
static void updates(const void *test, const char *solver)
{
    world w;
    size_t count;
    double *first[2] = {NULL, NULL};
    (void)solver;
    open_world(&w, test);
    for (int number = 1; number <= 2; number++) {
        double squares = 0;
        step(&w, 0, false, 0);
        float *all = gradients(&w, &count);
        for (size_t i = 0; i < count; i++)
            squares += (double)all[i] * (double)all[i];
        const double clip = fmin(1, 0.5 / (sqrt(squares) + 1e-6));
        const clattn_update_args args = update_args(number);
        size_t at = 0;
        float *old[128];
        const size_t parameters = clattn_trainer_parameter_count(w.trainer);
        assert_true(parameters <= COUNT_OF(old));
        for (size_t i = 0; i < parameters; i++) {
            size_t own;
            const clattn_parameter p = parameter(&w, i, &own);
            old[i] = read_back(p.value, own);
        }
        assert_status(device_context(), clattn_trainer_update(w.trainer, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
        for (int m = 0; m < 2 && number == 1; m++)
            first[m] = nn_zeros(count);
        for (size_t i = 0; i < parameters; i++) {
            size_t own;
            const clattn_parameter p = parameter(&w, i, &own);
            float *value = read_back(p.value, own);
            for (size_t n = 0; n < own; n++, at++) {
                const double g = clip * (double)all[at];
                first[0][at] = 0.9 * first[0][at] + 0.1 * g;
                first[1][at] = 0.999 * first[1][at] + 0.001 * g * g;
                const double mean = first[0][at] / (1 - pow(0.9, number));
                const double deviation = sqrt(first[1][at] / (1 - pow(0.999, number))) + 1e-8;
                const double moved = (double)old[i][n] * (1 - 0.01 * 0.1) - 0.01 * mean / deviation;
                assert_true(fabs((double)value[n] - moved) <= 2e-6 * (fabs((double)old[i][n]) + 0.01) ||
                            fabs(g) < 1e-6); /* epsilon counts there, and rounding */
            }
            free(value);
            free(old[i]);
        }
        free(all);
    }
    free(first[0]);
    free(first[1]);
    close_world(&w);
}

/* A gradient that is not finite changes nothing. */
static void broken_step(const void *test, const char *solver)
{
    world w;
    size_t count, own;
    const clattn_update_args args = update_args(1);
    const float broken = NAN;
    (void)solver;
    open_world(&w, test);
    step(&w, 0, false, 0);
    clattn_parameter p = parameter(&w, 3, &own);
    assert_cl(clEnqueueWriteBuffer(clattn_context_queue(device_context()), p.gradient.buffer, CL_TRUE,
                                   (size_t)p.gradient.offset * sizeof(float), sizeof broken, &broken, 0, NULL, NULL));
    assert_status(device_context(), clattn_trainer_update(w.trainer, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    float *squares = read_back(clattn_trainer_squares(w.trainer), 1);
    assert_true(isnan(*squares));
    free(squares);
    for (size_t i = 0; i < clattn_trainer_parameter_count(w.trainer); i++) {
        p = parameter(&w, i, &count);
        float *value = read_back(p.value, count), *moment = read_back(p.first_moment, count);
        assert_memory_equal(value, nn_store_get(&w.store, "%s", p.name), count * sizeof *value);
        for (size_t n = 0; n < count; n++)
            assert_true(moment[n] == 0);
        free(value);
        free(moment);
    }
    close_world(&w);
}

/* Thirty steps learn the batch by heart. */
static void learns(const void *test, const char *solver)
{
    world w;
    double before = 0, after = 0;
    (void)solver;
    open_world(&w, test);
    for (int number = 1; number <= 30; number++) {
        clattn_update_args args = update_args(number);
        args.weight_decay = 0;
        step(&w, 0, false, 0);
        for (size_t i = 0; i < BATCH * TARGET && number == 1; i++)
            before += (double)w.losses[i];
        assert_status(device_context(), clattn_trainer_update(w.trainer, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    }
    step(&w, 0, false, 0);
    for (size_t i = 0; i < BATCH * TARGET; i++)
        after += (double)w.losses[i];
    print_message("# the losses' sum: %.3f, then %.3f\n", before, after);
    assert_true(after < 0.5 * before);
    close_world(&w);
}

/* ---- what is refused ---- */

static void refuses_model(const clattn_stack_desc *decoder, clattn_dtype dtype, clattn_model_output output,
                          const char *reason)
{
    nn_store store = {.seed = 3};
    clattn_trainer *trainer = (clattn_trainer *)&store;
    const clattn_transformer_desc desc = {.size = sizeof desc, .decoder = decoder, .output = output, .dtype = dtype};
    nn_store_add_stack(&store, "decoder", decoder);
    clattn_transformer *model = nn_transformer(device_context(), &desc, &store);
    assert_status(device_context(), clattn_trainer_create(model, &trainer), CLATTN_ERROR_UNSUPPORTED);
    assert_null(trainer);
    assert_message_has(device_context(), reason);
    clattn_transformer_release(&model);
    nn_store_clear(&store);
}

static void refuses_models(void **state)
{
    static const clattn_stack_desc plain = {SHAPE(RELU), .layers = 1, TOKENS(VOCABULARY)};
    clattn_stack_desc d = plain;
    clattn_trainer *trainer = NULL;
    (void)state;
    refuses_model(&plain, CLATTN_DTYPE_F16, CLATTN_MODEL_OUTPUT_TIED, "not both float32");
    d.layer_scale = 1;
    refuses_model(&d, CLATTN_DTYPE_F32, CLATTN_MODEL_OUTPUT_TIED, "layer_scale");
    d = plain;
    d.segments = 2;
    refuses_model(&d, CLATTN_DTYPE_F32, CLATTN_MODEL_OUTPUT_TIED, "segments");
    d = plain;
    d.without_bias = CLATTN_WITHOUT_KEY_BIAS;
    refuses_model(&d, CLATTN_DTYPE_F32, CLATTN_MODEL_OUTPUT_TIED, "biases of some");
    assert_int_equal(clattn_trainer_create(NULL, &trainer), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(clattn_trainer_parameter_count(NULL), 0);
    assert_int_equal(clattn_trainer_bytes(NULL), 0);
    assert_null(clattn_trainer_squares(NULL).buffer);
    clattn_trainer_release(NULL);
    clattn_trainer_release(&trainer);
}

static void refuses_desc(const world *w, const clattn_training_desc *desc, const char *reason)
{
    clattn_plan *plan = NULL;
    assert_status(device_context(), clattn_training_plan_create(w->trainer, desc, NULL, &plan),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    assert_null(plan);
    assert_message_has(device_context(), reason);
}

static void refusals(const void *test, const char *solver)
{
    world w;
    clattn_plan *plan = (clattn_plan *)&w;
    clattn_training_desc d;
    clattn_training_args args = CLATTN_TRAINING_ARGS_INIT;
    clattn_parameter p = CLATTN_PARAMETER_INIT;
    (void)solver;
    open_world(&w, test);
#define REFUSES(change, reason) \
    d = w.desc; \
    change; \
    refuses_desc(&w, &d, reason)
    REFUSES(d.batch = 0, "batch");
    REFUSES(d.source_length = w.has_encoder ? 0 : 4, "source_length");
    REFUSES(d.target_length = 0, "target_length");
    REFUSES(d.label_smoothing = 1, "label_smoothing");
    REFUSES(d.dropout = -0.1f, "dropout");
    REFUSES(d.dropout = NAN, "dropout");
    REFUSES(d.recompute = 2, "recompute");
#undef REFUSES
    assert_int_equal(clattn_training_plan_create(NULL, &w.desc, NULL, &plan), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_null(plan);
    assert_status(device_context(), clattn_training_plan_create(w.trainer, &w.desc, NULL, &plan), CLATTN_SUCCESS);
    args.source = w.has_encoder ? ids(w.source, BATCH * SOURCE) : (clattn_binding){0};
    args.target = ids(w.target, BATCH * TARGET);
    args.labels = ids(w.labels, BATCH * TARGET);
    assert_status(device_context(), clattn_training_enqueue(plan, NULL, &args, 0, NULL, NULL),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(device_context(), "losses");
    args.losses = ids(w.labels, BATCH * TARGET - 1);
    assert_status(device_context(), clattn_training_enqueue(plan, NULL, &args, 0, NULL, NULL),
                  CLATTN_ERROR_BUFFER_TOO_SMALL);
    release(&args.losses);
    args.losses = ids(w.labels, BATCH * TARGET);
    w.target_lengths[1] = TARGET + 1;
    args.target_lengths = w.target_lengths;
    assert_status(device_context(), clattn_training_enqueue(plan, NULL, &args, 0, NULL, NULL),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(device_context(), "target_lengths[1] is 6, not 0 to 5");
    assert_status(device_context(), clattn_trainer_parameter(w.trainer, 1000, &p), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(device_context(), clattn_trainer_parameter(w.trainer, 0, NULL), CLATTN_ERROR_INVALID_STRUCT);
    assert_status(device_context(), clattn_trainer_update(w.trainer, NULL, NULL, 0, NULL, NULL),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    const clattn_update_args none = update_args(0);
    assert_status(device_context(), clattn_trainer_update(w.trainer, NULL, &none, 0, NULL, NULL),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    clattn_plan_release(&plan);
    release(&args.source);
    release(&args.target);
    release(&args.labels);
    release(&args.losses);
    close_world(&w);
}

int main(int argc, char **argv)
{
    static const struct {
        case_check check;
        const char *name;
        bool everywhere; /* in simulators, too */
    } checks[] = {{agrees, "losses and gradients", true},
                  {updates, "updates", true},
                  {refusals, "refusals", true},
                  {same_bits, "the same bits", false},
                  {places, "an item's place", false},
                  {parts, "parts of a batch", false},
                  {evaluation, "evaluation", false},
                  {dropout, "dropout", false},
                  {broken_step, "a gradient that is NaN", false},
                  {learns, "thirty steps", false}};
    for (size_t n = 0; n < COUNT_OF(checks); n++)
        for (size_t i = 0; i < COUNT_OF(cases) && (checks[n].everywhere || !is_tiny()); i++)
            suite_add_case(checks[n].check, &cases[i], "", "%s: %s", checks[n].name, cases[i].name);
    suite_add(refuses_models, "models that cannot be trained");
    return suite_run("training", argc, argv);
}
