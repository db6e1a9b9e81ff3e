/* Encoders against a reference of whole stacks in double precision: both places of the norm, both norms, all activations,
 * gates, grouped heads, rotary positions, lengths, masks, features through convolutions, tokens, pooling, probabilities;
 * the feed-forward block alone; weights' types and names; and what is refused, with the message that it is refused with.
 *
 * Holds: docs/transformer.md, "Meaning"; that a plan's memory does not grow with its layers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/api.h"
#include "support/nn_model.h"

static clattn_context *context;

static int set_up(void **state)
{
    (void)state;
    context = support_context();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    support_release(&context);
    return 0;
}

/* ---- helpers ---- */

static cl_mem buffer_of(size_t bytes, const void *data)
{
    return support_buffer(clattn_context_opencl_context(context), CL_MEM_READ_WRITE, bytes, data);
}

static clattn_weight_source source_of(nn_store *store)
{
    clattn_weight_source source = CLATTN_WEIGHT_SOURCE_INIT;
    source.lookup = nn_store_lookup;
    source.user = store;
    return source;
}

static clattn_transformer *model_of(const clattn_transformer_desc *desc, nn_store *store)
{
    clattn_transformer *model = NULL;
    const clattn_weight_source source = source_of(store);
    assert_status(context, clattn_transformer_create(context, desc, &source, &model), CLATTN_SUCCESS);
    return model;
}

static float *floats(size_t count, uint32_t seed)
{
    float *values = malloc((count ? count : 1) * sizeof *values);
    assert_non_null(values);
    support_fill(values, count, seed);
    return values;
}

/* The largest difference of values that count, relative to 1 and more; NaN is infinite. */
static double difference(const float *got, const double *expected, size_t rows, size_t columns, size_t item,
                         const int32_t *lengths)
{
    double largest = 0;
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns && (!lengths || r % item < (size_t)lengths[r / item]); c++) {
            const double apart = fabs(got[r * columns + c] - expected[r * columns + c]) /
                                 fmax(1, fabs(expected[r * columns + c]));
            largest = apart <= largest ? largest : isnan(apart) ? INFINITY : apart;
        }
    return largest;
}

/* ---- encoders of vectors ---- */

struct encoder_case {
    const char *name;
    clattn_stack_desc stack;
    size_t batch, length;
    bool tiny;             /* at level tiny too */
    int32_t lengths[4];    /* if the first is not 0, the items' own */
    size_t actual_length;  /* 0: length */
    bool masked;
    uint64_t probabilities;
};

#define SHAPE .size = sizeof(clattn_stack_desc), .d_model = 32, .heads = 4, .d_ff = 48
#define POST .norm_place = CLATTN_NORM_POST
#define PRE .norm_place = CLATTN_NORM_PRE

static const struct encoder_case cases[] = {
    {"post-norm", {SHAPE, .layers = 2, POST},
     .batch = 2, .length = 7, .tiny = true},
    {"pre-norm, final norm", {SHAPE, .layers = 2, PRE, .final_norm = 1},
     .batch = 2, .length = 7, .tiny = true},
    {"pre-norm without a final norm", {SHAPE, .layers = 2, PRE},
     .batch = 1, .length = 9},
    {"post-norm with a final norm", {SHAPE, .layers = 1, POST, .final_norm = 1},
     .batch = 1, .length = 9},
    {"GELU", {SHAPE, .layers = 2, POST, .activation = CLATTN_ACTIVATION_GELU},
     .batch = 2, .length = 19},
    {"GELU by tanh", {SHAPE, .layers = 2, PRE, .activation = CLATTN_ACTIVATION_GELU_TANH},
     .batch = 2, .length = 19},
    {"SiLU", {SHAPE, .layers = 2, PRE, .final_norm = 1, .activation = CLATTN_ACTIVATION_SWISH},
     .batch = 2, .length = 19},
    {"ReLU, gated", {SHAPE, .layers = 1, POST, .gated = 1},
     .batch = 2, .length = 19},
    {"SwiGLU, RMSNorm, no biases, rotary halves: as Llama",
     {SHAPE, .layers = 2, PRE, .final_norm = 1, .activation = CLATTN_ACTIVATION_SWISH, .gated = 1, .norm = CLATTN_NORM_RMS,
      .without_bias = CLATTN_WITHOUT_BIAS, .rotary = CLATTN_ROTARY_HALVES, .kv_heads = 2, .causal = 1},
     .batch = 2, .length = 19, .tiny = true},
    {"GeGLU, LayerNorm", {SHAPE, .layers = 2, POST, .activation = CLATTN_ACTIVATION_GELU, .gated = 1},
     .batch = 2, .length = 19},
    {"RMSNorm, post", {SHAPE, .layers = 2, POST, .norm = CLATTN_NORM_RMS},
     .batch = 2, .length = 19},
    {"rotary, interleaved, a part of the head",
     {SHAPE, .layers = 2, PRE, .rotary = CLATTN_ROTARY_INTERLEAVED, .rotary_size = 4, .rotary_base = 500},
     .batch = 2, .length = 19},
    {"one key-value head", {SHAPE, .layers = 2, POST, .kv_heads = 1},
     .batch = 2, .length = 19},
    {"heads of their own size", {SHAPE, .layers = 2, POST, .head_size = 12},
     .batch = 2, .length = 19},
    {"no key bias: as Whisper",
     {SHAPE, .layers = 2, PRE, .final_norm = 1, .without_bias = CLATTN_WITHOUT_KEY_BIAS},
     .batch = 2, .length = 19},
    {"no attention biases", {SHAPE, .layers = 2, POST, .without_bias = CLATTN_WITHOUT_ATTENTION_BIAS},
     .batch = 1, .length = 19},
    {"no feed-forward biases", {SHAPE, .layers = 2, POST, .without_bias = CLATTN_WITHOUT_FEED_FORWARD_BIAS},
     .batch = 1, .length = 19},
    {"no norm biases", {SHAPE, .layers = 2, POST, .without_bias = CLATTN_WITHOUT_NORM_BIAS},
     .batch = 1, .length = 19},
    {"an epsilon and a scale of its own",
     {SHAPE, .layers = 2, POST, .explicit_epsilon = 1, .epsilon = 0.1f, .scale_mode = CLATTN_SCALE_EXPLICIT, .scale = 0.3f},
     .batch = 1, .length = 19},
    {"causal", {SHAPE, .layers = 2, POST, .causal = 1},
     .batch = 2, .length = 19},
    {"lengths", {SHAPE, .layers = 2, POST},
     .batch = 3, .length = 19, .lengths = {19, 1, 12}},
    {"lengths, an empty item", {SHAPE, .layers = 2, PRE, .final_norm = 1},
     .batch = 3, .length = 7, .tiny = true, .lengths = {3, 0, 7}},
    {"one item's length", {SHAPE, .layers = 2, POST},
     .batch = 1, .length = 19, .lengths = {11}},
    {"shorter than planned", {SHAPE, .layers = 2, POST},
     .batch = 2, .length = 19, .actual_length = 5},
    {"shorter than planned, one item", {SHAPE, .layers = 2, PRE},
     .batch = 1, .length = 19, .actual_length = 5},
    {"one position", {SHAPE, .layers = 2, POST},
     .batch = 3, .length = 1},
    {"a mask", {SHAPE, .layers = 2, POST},
     .batch = 2, .length = 19, .masked = true},
    {"a mask, lengths and causality", {SHAPE, .layers = 2, PRE, .causal = 1},
     .batch = 2, .length = 19, .lengths = {19, 8}, .masked = true},
    {"probabilities of all layers", {SHAPE, .layers = 2, POST},
     .batch = 2, .length = 7, .tiny = true, .probabilities = 3},
    {"probabilities of the second, lengths", {SHAPE, .layers = 3, PRE, .final_norm = 1, .causal = 1},
     .batch = 2, .length = 19,
     .lengths = {19, 8}, .probabilities = 2},
    {"as the paper's layer", {.size = sizeof(clattn_stack_desc), .layers = 1, .d_model = 512, .heads = 8, .d_ff = 2048},
     .batch = 1, .length = 67},
};

static void check_probabilities(const struct encoder_case *c, const nn_reference *r, cl_mem buffer, size_t length)
{
    const size_t P = c->length, h = c->stack.heads, layer = r->batch * h * length * length;
    float *got = malloc(c->stack.layers * c->batch * h * P * P * sizeof *got);
    size_t chosen = 0;
    support_read(clattn_context_queue(context), buffer,
                 (size_t)__builtin_popcountll(c->probabilities) * c->batch * h * P * P * sizeof *got, got);
    for (size_t l = 0; l < c->stack.layers; l++) {
        if (!(c->probabilities >> l & 1))
            continue;
        for (size_t b = 0; b < r->batch; b++)
            for (size_t i = 0; i < h * length * length; i++) {
                const size_t head = i / (length * length), row = i / length % length, column = i % length;
                const float value = got[(((chosen * c->batch + b) * h + head) * P + row) * P + column];
                const double expected = r->self_probabilities[l * layer + b * h * length * length + i];
                if (!c->lengths[0] || row < (size_t)c->lengths[b])
                    assert_true(fabs(value - expected) < 1e-5);
            }
        chosen++;
    }
    free(got);
}

static void run_case(const struct encoder_case *c)
{
    const clattn_stack_desc *d = &c->stack;
    const size_t length = c->actual_length ? c->actual_length : c->length, n = d->d_model;
    const size_t count = c->batch * c->length * n;
    nn_store store = {0};
    nn_store_add_stack(&store, "encoder", d);
    const clattn_transformer_desc desc = {.size = sizeof desc, .encoder = d};
    clattn_transformer *model = model_of(&desc, &store);
    float *x = floats(count, 77), *y = floats(count, 78);
    double *expected = malloc((c->batch * length * n + 1) * sizeof *expected);
    uint8_t *mask = malloc(length * length + 1);
    for (size_t b = 0; b < c->batch; b++)
        for (size_t i = 0; i < length * n; i++)
            expected[b * length * n + i] = x[b * c->length * n + i];
    for (size_t i = 0; i < length * length; i++)
        mask[i] = i % 3 != 1 || i % (length + 1) == 0;
    double *probabilities = calloc(d->layers * c->batch * d->heads * length * length, sizeof(double));
    nn_reference r = {.store = &store, .name = "encoder", .desc = d, .batch = c->batch, .length = length,
                      .lengths = c->lengths[0] ? c->lengths : NULL, .mask = c->masked ? mask : NULL,
                      .self_probabilities = probabilities};
    nn_reference_layers(&r, expected);

    clattn_encoder_desc encoder = CLATTN_ENCODER_DESC_INIT;
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    clattn_plan *plan = NULL;
    encoder.batch = c->batch;
    encoder.length = c->length;
    encoder.probabilities = c->probabilities;
    if (c->masked)
        encoder.mask = clattn_layout_contiguous(CLATTN_BOOL, 2, (const size_t[2]){length, length});
    assert_status(context, clattn_encoder_plan_create(model, &encoder, NULL, &plan), CLATTN_SUCCESS);
    /* The plan keeps what it needs of the model. */
    clattn_transformer_release(&model);
    assert_null(model);
    cl_mem in = buffer_of(count * sizeof *x, x), out = buffer_of(count * sizeof *y, NULL);
    cl_mem masked = buffer_of(length * length, mask);
    cl_mem scores = buffer_of(d->layers * c->batch * d->heads * c->length * c->length * sizeof(float), NULL);
    args.input = clattn_binding_buffer(in, 0);
    args.output = clattn_binding_buffer(out, 0);
    if (c->masked)
        args.mask = clattn_binding_buffer(masked, 0);
    if (c->probabilities)
        args.probabilities = clattn_binding_buffer(scores, 0);
    args.lengths = c->lengths[0] ? c->lengths : NULL;
    if (c->actual_length) {
        args.explicit_lengths = 1;
        args.batch = c->batch;
        args.length = length;
    }
    assert_status(context, clattn_encoder_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    support_read(clattn_context_queue(context), out, count * sizeof *y, y);
    for (size_t b = 0; b < c->batch; b++)
        memmove(y + b * length * n, y + b * c->length * n, length * n * sizeof *y);
    const double apart = difference(y, expected, c->batch * length, n, length, c->lengths[0] ? c->lengths : NULL);
    print_message("# %s: %.2g\n", c->name, apart);
    assert_true(apart < 1e-5);
    if (c->probabilities)
        check_probabilities(c, &r, scores, length);
    clReleaseMemObject(in);
    clReleaseMemObject(out);
    clReleaseMemObject(masked);
    clReleaseMemObject(scores);
    clattn_plan_release(&plan);
    nn_store_clear(&store);
    free(x);
    free(y);
    free(mask);
    free(expected);
    free(probabilities);
}

static void encoders(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (cases[i].tiny || !support_tiny())
            run_case(&cases[i]);
}

/* ---- inputs ---- */

/* A model whose encoder is `d`, run over one input; the output, positions * d_model a sequence, to be freed. */
struct encoder_run {
    const clattn_stack_desc *d;
    nn_store *store;
    clattn_transformer_desc model;
    clattn_encoder_desc desc;
    const void *input;
    size_t input_bytes;
    const int32_t *segments, *lengths;
    float *pooled; /* NULL, or where they go */
};

static float *run_encoder(const struct encoder_run *run)
{
    const size_t positions = clattn_stack_positions(run->d, run->desc.length);
    const size_t count = run->desc.batch * positions * run->d->d_model;
    clattn_transformer_desc desc = run->model;
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    clattn_plan *plan = NULL;
    float *y = malloc(count * sizeof *y);
    desc.size = sizeof desc;
    desc.encoder = run->d;
    clattn_transformer *model = model_of(&desc, run->store);
    cl_mem in = buffer_of(run->input_bytes, run->input), out = buffer_of(count * sizeof *y, NULL);
    cl_mem pooled = buffer_of(run->desc.batch * run->d->d_model * sizeof *y, NULL);
    cl_mem segments = run->segments ? buffer_of(run->input_bytes, run->segments) : NULL;
    assert_status(context, clattn_encoder_plan_create(model, &run->desc, NULL, &plan), CLATTN_SUCCESS);
    args.input = clattn_binding_buffer(in, 0);
    args.output = clattn_binding_buffer(out, 0);
    if (run->pooled)
        args.pooled = clattn_binding_buffer(pooled, 0);
    if (segments)
        args.segments = clattn_binding_buffer(segments, 0);
    args.lengths = run->lengths;
    assert_status(context, clattn_encoder_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    support_read(clattn_context_queue(context), out, count * sizeof *y, y);
    if (run->pooled)
        support_read(clattn_context_queue(context), pooled, run->desc.batch * run->d->d_model * sizeof *y, run->pooled);
    clReleaseMemObject(in);
    clReleaseMemObject(out);
    clReleaseMemObject(pooled);
    if (segments)
        clReleaseMemObject(segments);
    clattn_plan_release(&plan);
    clattn_transformer_release(&model);
    return y;
}

static clattn_encoder_desc sizes(size_t batch, size_t length)
{
    clattn_encoder_desc desc = CLATTN_ENCODER_DESC_INIT;
    desc.batch = batch;
    desc.length = length;
    return desc;
}

static void features(void **state)
{
    static const struct {
        clattn_stack_desc stack;
        size_t batch, frames;
    } inputs[] = {
        /* Whisper's front end, and one without a table, with other kernels and one convolution more. */
        {{SHAPE, .layers = 1, PRE, .final_norm = 1, .input = CLATTN_INPUT_FEATURES, .features = 10,
          .positions = CLATTN_POSITIONS_TABLE, .position_count = 9, .convolutions = 2,
          .convolution = {{3, 1, 1, CLATTN_MATMUL_GELU}, {3, 2, 1, CLATTN_MATMUL_GELU}}}, .batch = 1, .frames = 18},
        {{SHAPE, .layers = 1, POST, .input = CLATTN_INPUT_FEATURES, .features = 5, .convolutions = 3,
          .convolution = {{5, 2, 4, CLATTN_MATMUL_RELU}, {1, 1, 0, 0}, {4, 3, 2, CLATTN_MATMUL_SWISH}}}, .batch = 2,
         .frames = 31},
    };
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const clattn_stack_desc *d = &inputs[i].stack;
        const size_t batch = inputs[i].batch, frames = inputs[i].frames, positions = clattn_stack_positions(d, frames);
        nn_store store = {.seed = 5};
        nn_store_add_stack(&store, "encoder", d);
        float *x = floats(batch * frames * d->features, 3);
        const struct encoder_run run = {.d = d, .store = &store, .desc = sizes(batch, frames), .input = x,
                                        .input_bytes = batch * frames * d->features * sizeof *x};
        float *y = run_encoder(&run);
        const nn_reference r = {.store = &store, .name = "encoder", .desc = d, .batch = batch, .length = positions};
        double *expected = nn_reference_convolutions(&r, frames, x);
        nn_reference_layers(&r, expected);
        assert_true(difference(y, expected, batch * positions, d->d_model, positions, NULL) < 1e-5);
        nn_store_clear(&store);
        free(x);
        free(y);
        free(expected);
    }
    assert_int_equal(clattn_stack_positions(&inputs[0].stack, 18), 9);
    assert_int_equal(clattn_stack_positions(&inputs[1].stack, 31), 7);
    assert_int_equal(clattn_stack_positions(&cases[0].stack, 31), 31);
}

static void tokens(void **state)
{
    static const clattn_stack_desc stacks[] = {
        /* The paper's, BERT's and RoBERTa's. */
        {SHAPE, .layers = 1, POST, .input = CLATTN_INPUT_TOKENS, .vocabulary = 50, .scaled = 1,
         .positions = CLATTN_POSITIONS_SINUSOIDS},
        {SHAPE, .layers = 2, POST, .input = CLATTN_INPUT_TOKENS, .vocabulary = 50, .positions = CLATTN_POSITIONS_TABLE,
         .position_count = 12, .segments = 2, .input_norm = 1, .activation = CLATTN_ACTIVATION_GELU},
        {SHAPE, .layers = 1, PRE, .input = CLATTN_INPUT_TOKENS, .vocabulary = 50, .positions = CLATTN_POSITIONS_TABLE,
         .position_count = 14, .first_position = 2},
        {SHAPE, .layers = 1, PRE, .input = CLATTN_INPUT_TOKENS, .vocabulary = 50, .rotary = CLATTN_ROTARY_HALVES},
    };
    const size_t batch = 2, length = 11;
    const int32_t lengths[2] = {11, 4};
    int32_t ids[22], segments[22];
    (void)state;
    for (size_t i = 0; i < 22; i++) {
        ids[i] = (int32_t)(i * 31 % 50);
        segments[i] = i % 11 > 5;
    }
    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0] * 2; i++) {
        const clattn_stack_desc *d = &stacks[i / 2];
        nn_store store = {.seed = 5};
        nn_store_add_stack(&store, "encoder", d);
        const struct encoder_run run = {.d = d, .store = &store, .desc = sizes(batch, length), .input = ids,
                                        .input_bytes = sizeof ids, .lengths = lengths,
                                        .segments = d->segments && i % 2 ? segments : NULL};
        float *y = run_encoder(&run);
        const nn_reference r = {.store = &store, .name = "encoder", .desc = d, .batch = batch, .length = length,
                                .lengths = lengths};
        double *expected = nn_reference_tokens(&r, ids, run.segments);
        nn_reference_layers(&r, expected);
        assert_true(difference(y, expected, batch * length, d->d_model, length, lengths) < 1e-5);
        nn_store_clear(&store);
        free(y);
        free(expected);
    }
}

static void pooling(void **state)
{
    static const clattn_stack_desc stack = {SHAPE, .layers = 1, POST};
    const int32_t lengths[3] = {5, 9, 1};
    const size_t n = stack.d_model;
    (void)state;
    for (int i = 0; i < 4; i++) {
        nn_store store = {.seed = 5};
        float pooled[3 * 32], *x = floats(3 * 9 * n, 3);
        nn_store_add_stack(&store, "encoder", &stack);
        struct encoder_run run = {.d = &stack, .store = &store, .desc = sizes(3, 9), .input = x,
                                  .input_bytes = 3 * 9 * n * sizeof *x, .lengths = lengths, .pooled = pooled};
        run.desc.pooling = i / 2 ? CLATTN_POOLING_FIRST : CLATTN_POOLING_MEAN;
        run.desc.pooled_unit = i % 2;
        float *y = run_encoder(&run);
        for (size_t b = 0; b < 3; b++) {
            double expected[32] = {0}, square = 0;
            const size_t rows = i / 2 ? 1 : (size_t)lengths[b];
            for (size_t c = 0; c < n; c++) {
                for (size_t row = 0; row < rows; row++)
                    expected[c] += y[(b * 9 + row) * n + c] / (double)rows;
                square += expected[c] * expected[c];
            }
            for (size_t c = 0; c < n; c++)
                assert_true(fabs(pooled[b * n + c] - expected[c] / (i % 2 ? sqrt(square) : 1)) < 2e-6);
        }
        nn_store_clear(&store);
        free(x);
        free(y);
    }
}

/* ---- weights ---- */

/* 16-bit weights in the source, on the device, and all three; and int8. */
static void weight_types(void **state)
{
    static const struct {
        int32_t source, weight, dtype;
        double tolerance;
    } types[] = {
        {CLATTN_F16, 0, 0, 1e-5},        {CLATTN_BF16, 0, 0, 1e-5},     {CLATTN_F32, CLATTN_F16, 0, 4e-3},
        {CLATTN_F32, CLATTN_BF16, 0, 3e-2}, {CLATTN_F16, CLATTN_F16, 0, 1e-5}, {CLATTN_F32, CLATTN_I8, 0, 0.1},
    };
    static const clattn_stack_desc stack = {SHAPE, .layers = 2, PRE, .final_norm = 1, .gated = 1};
    const size_t n = stack.d_model, count = 2 * 7 * n;
    float *x = floats(count, 3);
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        nn_store store = {.seed = 5, .dtype = types[i].source};
        nn_store_add_stack(&store, "encoder", &stack);
        /* What both 16-bit types hold exactly: five significant bits. */
        for (size_t t = 0; types[i].source != CLATTN_F32 && t < nn_store_count(&store); t++)
            nn_store_round(&store, t, 5);
        const struct encoder_run run = {.d = &stack, .store = &store, .desc = sizes(2, 7), .input = x,
                                        .input_bytes = count * sizeof *x,
                                        .model = {.weight_dtype = types[i].weight, .dtype = types[i].dtype}};
        float *y = run_encoder(&run);
        const nn_reference r = {.store = &store, .name = "encoder", .desc = &stack, .batch = 2, .length = 7};
        double *expected = nn_doubles(x, count);
        nn_reference_layers(&r, expected);
        const double apart = difference(y, expected, 14, n, 7, NULL);
        print_message("# %s as %s: %.2g\n", clattn_dtype_name((clattn_dtype)types[i].source),
                      clattn_dtype_name((clattn_dtype)types[i].weight), apart);
        assert_true(apart < types[i].tolerance);
        nn_store_clear(&store);
        free(y);
        free(expected);
    }
    free(x);
}

/* ---- what is refused ---- */

static void refusals(void **state)
{
    static const clattn_stack_desc stack = {SHAPE, .layers = 2, POST};
    static const clattn_name_rule none[] = {{"encoder.layers.{n}.self.norm.bias", NULL}};
    static const clattn_name_rule other[] = {{"encoder.layers.{n}.self.key.{kind}", "h.{n}.{kind}^T[1/3]"}};
    const clattn_transformer_desc desc = {.size = sizeof desc, .encoder = &stack};
    clattn_transformer *model = NULL;
    clattn_plan *plan = NULL;
    nn_store store = {0};
    char name[64];
    size_t share, shares;
    int32_t transposed;
    (void)state;
    nn_store_add_stack(&store, "encoder", &stack);
    clattn_weight_source source = source_of(&store);
    nn_store_remove(&store, "encoder.layers.1.feed_forward.in.weight");
    assert_status(context, clattn_transformer_create(context, &desc, &source, &model), CLATTN_ERROR_FORMAT);
    assert_null(model);
    assert_message_has(context, "no tensor encoder.layers.1.feed_forward.in.weight (encoder.layers.1.feed_forward.in.weight), "
                                "which should be 48 x 32");
    nn_store_add(&store, "encoder.layers.1.feed_forward.in.weight", 2, (const size_t[2]){32, 48}, 1, 0);
    assert_status(context, clattn_transformer_create(context, &desc, &source, &model), CLATTN_ERROR_FORMAT);
    assert_message_has(context, "is float32 32 x 48, not 48 x 32");
    source.prefix = "bert.";
    assert_status(context, clattn_transformer_create(context, &desc, &source, &model), CLATTN_ERROR_FORMAT);
    assert_message_has(context, "no tensor bert.encoder.layers.0.self.query.weight (");
    source.prefix = NULL;
    source.rules = none;
    source.rule_count = 1;
    assert_status(context, clattn_transformer_create(context, &desc, &source, &model), CLATTN_ERROR_FORMAT);
    assert_int_equal(clattn_weight_name(&source, "encoder.layers.1.self.norm.bias", name, sizeof name, NULL, NULL, NULL), 0);
    source.rules = other;
    source.prefix = "x.";
    assert_int_equal(clattn_weight_name(&source, "encoder.layers.12.self.key.bias", name, sizeof name, &share, &shares,
                                        &transposed), strlen("x.h.12.bias"));
    assert_string_equal(name, "x.h.12.bias");
    assert_int_equal(share * 100 + shares * 10 + (size_t)transposed, 131);
    source.rule_count = 0;
    source.prefix = NULL;
    source.format = CLATTN_NAMES_PYTORCH_TRANSFORMER;
    clattn_weight_name(&source, "decoder.layers.3.cross.value.weight", name, sizeof name, &share, &shares, NULL);
    assert_string_equal(name, "decoder.layers.3.multihead_attn.in_proj_weight");
    assert_int_equal(share * 10 + shares, 23);
    source.format = CLATTN_NAMES_BERT;
    clattn_weight_name(&source, "encoder.layers.11.self.norm.weight", name, sizeof name, NULL, NULL, NULL);
    assert_string_equal(name, "encoder.layer.11.attention.output.LayerNorm.weight");
    source.format = CLATTN_NAMES_WHISPER_CTRANSLATE2;
    clattn_weight_name(&source, "decoder.layers.0.cross.norm.bias", name, sizeof name, NULL, NULL, NULL);
    assert_string_equal(name, "decoder/layer_0/attention/layer_norm/beta");

    clattn_stack_desc wrong = stack;
    clattn_transformer_desc of_wrong = {.size = sizeof desc, .encoder = &wrong};
    source = source_of(&store);
    wrong.heads = 5;
    assert_status(context, clattn_transformer_create(context, &of_wrong, &source, &model), CLATTN_ERROR_INVALID_LAYOUT);
    assert_message_has(context, "encoder: d_model is no multiple of heads");
    wrong = stack;
    wrong.cross = 1;
    assert_status(context, clattn_transformer_create(context, &of_wrong, &source, &model), CLATTN_ERROR_INVALID_LAYOUT);
    wrong = stack;
    wrong.positions = CLATTN_POSITIONS_TABLE;
    assert_status(context, clattn_transformer_create(context, &of_wrong, &source, &model), CLATTN_ERROR_INVALID_LAYOUT);
    assert_status(context, clattn_transformer_create(context, &desc, NULL, &model), CLATTN_ERROR_INVALID_ARGUMENT);

    nn_store_add(&store, "encoder.layers.1.feed_forward.in.weight", 2, (const size_t[2]){48, 32}, 1, 0);
    model = model_of(&desc, &store);
    clattn_encoder_desc encoder = sizes(2, 7);
    encoder.probabilities = 4;
    assert_status(context, clattn_encoder_plan_create(model, &encoder, NULL, &plan), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "probabilities of a layer that is not there");
    encoder = sizes(0, 7);
    assert_status(context, clattn_encoder_plan_create(model, &encoder, NULL, &plan), CLATTN_ERROR_INVALID_ARGUMENT);
    encoder = sizes(2, 7);
    assert_status(context, clattn_encoder_plan_create(model, &encoder, NULL, &plan), CLATTN_SUCCESS);
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    cl_mem small = buffer_of(2 * 7 * 32 * sizeof(float) - 4, NULL), right = buffer_of(2 * 7 * 32 * sizeof(float), NULL);
    const int32_t lengths[2] = {7, 8};
    args.input = clattn_binding_buffer(right, 0);
    assert_status(context, clattn_encoder_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "output: nothing is bound");
    args.output = clattn_binding_buffer(small, 0);
    assert_status(context, clattn_encoder_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_ERROR_BUFFER_TOO_SMALL);
    args.output = clattn_binding_buffer(right, 0);
    args.pooled = clattn_binding_buffer(small, 0);
    assert_status(context, clattn_encoder_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    args.pooled = (clattn_binding){0};
    args.lengths = lengths;
    assert_status(context, clattn_encoder_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "lengths[1] is 8, not 0 to 7");
    clReleaseMemObject(small);
    clReleaseMemObject(right);
    clattn_plan_release(&plan);
    clattn_transformer_release(&model);
    nn_store_clear(&store);
}

/* A plan's memory is that of one layer, whatever their number, and explain says it. */
static void memory(void **state)
{
    size_t workspace[3] = {0};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        const clattn_stack_desc stack = {SHAPE, .layers = i + 2, PRE, .final_norm = 1};
        const clattn_transformer_desc desc = {.size = sizeof desc, .encoder = &stack};
        clattn_encoder_desc encoder = sizes(2, 7);
        clattn_plan *plan = NULL;
        nn_store store = {0};
        char line[64];
        nn_store_add_stack(&store, "encoder", &stack);
        clattn_transformer *model = model_of(&desc, &store);
        /* What the paper counts: 4 d² + 2 d d_ff, biases and norms. */
        assert_int_equal(clattn_transformer_parameters(model),
                         stack.layers * (4 * 32 * 32 + 2 * 32 * 48 + 5 * 32 + 48 + 4 * 32) + 2 * 32);
        assert_true(clattn_transformer_weight_bytes(model) >= 4 * clattn_transformer_parameters(model));
        assert_status(context, clattn_encoder_plan_create(model, &encoder, NULL, &plan), CLATTN_SUCCESS);
        workspace[i] = clattn_plan_workspace_size(plan);
        snprintf(line, sizeof line, "activations of %zu bytes at the peak", workspace[i]);
        assert_non_null(strstr(clattn_plan_explain(plan), line));
        assert_true(clattn_plan_kernel_count(plan) >= 7 * stack.layers + 1);
        clattn_plan_release(&plan);
        clattn_transformer_release(&model);
        nn_store_clear(&store);
    }
    assert_true(workspace[0] > 0);
    assert_int_equal(workspace[0], workspace[1]);
    assert_int_equal(workspace[0], workspace[2]);
}

static void presets(void **state)
{
    clattn_transformer_desc desc;
    clattn_stack_desc encoder, decoder;
    uint8_t mask[3] = {0, 1, 2};
    (void)state;
    assert_status(NULL, clattn_transformer_preset(CLATTN_PRESET_PAPER_BASE, &desc, &encoder, &decoder), CLATTN_SUCCESS);
    assert_ptr_equal(desc.encoder, &encoder);
    assert_ptr_equal(desc.decoder, &decoder);
    assert_int_equal(encoder.layers * 1000000 + encoder.d_model * 100 + encoder.heads, 6051208);
    assert_int_equal(decoder.d_ff, 2048);
    assert_true(decoder.causal && decoder.cross && decoder.scaled && desc.output == CLATTN_OUTPUT_TIED);
    assert_status(NULL, clattn_transformer_preset(CLATTN_PRESET_MINILM_L6, &desc, &encoder, &decoder), CLATTN_SUCCESS);
    assert_null(desc.decoder);
    assert_status(NULL, clattn_transformer_preset(CLATTN_PRESET_WHISPER_TINY_EN, &desc, &encoder, &decoder), CLATTN_SUCCESS);
    assert_int_equal(clattn_stack_positions(&encoder, 3000), 1500);
    assert_status(NULL, clattn_transformer_preset((clattn_preset)99, &desc, &encoder, &decoder),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    clattn_mask_from_pytorch(mask, mask, 3);
    assert_int_equal(mask[0] * 100 + mask[1] * 10 + mask[2], 100);
}

/* ---- the feed-forward block alone ---- */

static void feed_forward(void **state)
{
    enum { ROWS = 9, D = 20, F = 28 };
    (void)state;
    for (int i = 0; i < 8; i++) {
        clattn_feed_forward_desc desc = CLATTN_FEED_FORWARD_DESC_INIT;
        clattn_feed_forward_args args = CLATTN_FEED_FORWARD_ARGS_INIT;
        float x[ROWS * D], w_in[F * D], gate[F * D], w_out[D * F], b_in[F], b_gate[F], b_out[D], y[ROWS * D];
        desc.activation = i % 4;
        desc.gated = i / 4;
        desc.bias_in = desc.bias_out = i % 2;
        desc.residual = i / 2 % 2;
        desc.rows = ROWS;
        desc.d_model = D;
        desc.d_ff = F;
        const struct {
            float *values;
            size_t count;
            clattn_binding *binding;
            bool there;
        } arrays[] = {{x, ROWS * D, &args.x, true},           {w_in, F * D, &args.w_in, true},
                      {gate, F * D, &args.w_gate, i / 4},     {w_out, D * F, &args.w_out, true},
                      {b_in, F, &args.b_in, i % 2},           {b_gate, F, &args.b_gate, i / 4 && i % 2},
                      {b_out, D, &args.b_out, i % 2},         {y, ROWS * D, &args.y, true}};
        cl_mem buffers[8];
        for (uint32_t a = 0; a < 8; a++) {
            support_fill(arrays[a].values, arrays[a].count, 10 + a);
            buffers[a] = buffer_of(arrays[a].count * sizeof(float), arrays[a].values);
            if (arrays[a].there)
                *arrays[a].binding = clattn_binding_buffer(buffers[a], 0);
        }
        assert_status(context, clattn_feed_forward_supports(context, &desc, NULL), CLATTN_SUCCESS);
        assert_status(context, clattn_feed_forward_run(context, NULL, &desc, &args, 0, NULL, NULL), CLATTN_SUCCESS);
        support_read(clattn_context_queue(context), buffers[7], sizeof y, y);
        double *doubles = nn_doubles(x, ROWS * D);
        double *h = nn_reference_linear(doubles, ROWS, D, w_in, F, i % 2 ? b_in : NULL);
        double *g = nn_reference_linear(doubles, ROWS, D, gate, F, i % 2 ? b_gate : NULL);
        for (size_t k = 0; k < ROWS * F; k++)
            h[k] = i / 4 ? h[k] * nn_activate(desc.activation, g[k]) : nn_activate(desc.activation, h[k]);
        double *expected = nn_reference_linear(h, ROWS, F, w_out, D, i % 2 ? b_out : NULL);
        for (size_t k = 0; k < ROWS * D && desc.residual; k++)
            expected[k] += doubles[k];
        assert_true(difference(y, expected, ROWS, D, ROWS, NULL) < 1e-5);
        for (size_t a = 0; a < 8; a++)
            clReleaseMemObject(buffers[a]);
        free(doubles);
        free(h);
        free(g);
        free(expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(encoders, set_up, tear_down),
        cmocka_unit_test_setup_teardown(features, set_up, tear_down),
        cmocka_unit_test_setup_teardown(tokens, set_up, tear_down),
        cmocka_unit_test_setup_teardown(pooling, set_up, tear_down),
        cmocka_unit_test_setup_teardown(weight_types, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refusals, set_up, tear_down),
        cmocka_unit_test_setup_teardown(memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(presets, set_up, tear_down),
        cmocka_unit_test_setup_teardown(feed_forward, set_up, tear_down),
    };
    return SUPPORT_RUN("transformer", tests);
}
