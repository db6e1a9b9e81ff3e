/* Encoders of vectors agree with a reference of whole stacks in double precision: both places of the norm, both norms,
 * all activations, gates, grouped heads, rotary positions, lengths, masks, probabilities.
 *
 * Holds: docs/transformer.md, "Meaning". */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/harness.h"
#include "support/nn/run.h"
#include "support/core/one_context.h"

struct encoder_case {
    const char *name;
    clattn_stack_desc stack;
    size_t batch, length;
    bool tiny;            /* runs at level tiny too */
    int32_t lengths[4];   /* if the first is not 0, the items' own */
    size_t actual_length; /* 0: length */
    clattn_dtype mask;    /* the mask's type; 0: no mask */
    uint64_t probabilities;
};

static const struct encoder_case cases[] = {
    {"post-norm", {SHAPE(RELU), .layers = 2, POST}, .batch = 2, .length = 7, .tiny = true},
    {"pre-norm, final norm", {SHAPE(RELU), .layers = 2, PRE, .final_norm = 1}, .batch = 2, .length = 7, .tiny = true},
    {"pre-norm without a final norm", {SHAPE(RELU), .layers = 2, PRE}, .batch = 1, .length = 9},
    {"post-norm with a final norm", {SHAPE(RELU), .layers = 1, POST, .final_norm = 1}, .batch = 1, .length = 9},
    {"GELU", {SHAPE(GELU), .layers = 2, POST}, .batch = 2, .length = 19},
    {"GELU by tanh", {SHAPE(GELU_TANH), .layers = 2, PRE}, .batch = 2, .length = 19},
    {"SiLU", {SHAPE(SWISH), .layers = 2, PRE, .final_norm = 1}, .batch = 2, .length = 19},
    {"LeakyReLU", {SHAPE(LEAKY_RELU), .layers = 2, POST}, .batch = 2, .length = 7, .tiny = true},
    {"LeakyReLU, alpha 0.2, gated",
     {SHAPE(LEAKY_RELU), .explicit_alpha = 1, .alpha = 0.2f, .layers = 1, PRE, .gated = 1},
     .batch = 2,
     .length = 19},
    {"ReLU, gated", {SHAPE(RELU), .layers = 1, POST, .gated = 1}, .batch = 2, .length = 19},
    {"SwiGLU, RMSNorm, no biases, rotary halves: as Llama",
     {SHAPE(SWISH), .layers = 2, PRE, .final_norm = 1, .gated = 1, .norm = CLATTN_NORM_KIND_RMS,
      .without_bias = CLATTN_WITHOUT_BIAS, .rotary = CLATTN_ROTARY_HALVES, .kv_heads = 2, .causal = 1},
     .batch = 2,
     .length = 19,
     .tiny = true},
    {"GeGLU, LayerNorm", {SHAPE(GELU), .layers = 2, POST, .gated = 1}, .batch = 2, .length = 19},
    {"RMSNorm, post", {SHAPE(RELU), .layers = 2, POST, .norm = CLATTN_NORM_KIND_RMS}, .batch = 2, .length = 19},
    {"rotary, interleaved, a part of the head",
     {SHAPE(RELU), .layers = 2, PRE, .rotary = CLATTN_ROTARY_INTERLEAVED, .rotary_size = 4, .rotary_base = 500},
     .batch = 2,
     .length = 19},
    {"a reach in all layers but the second, capped scores: as ModernBERT and Gemma 2",
     {SHAPE(RELU), .layers = 3, PRE, .reach = 4, .unlimited = 2, .softcap = 2},
     .batch = 2,
     .length = 19,
     .lengths = {19, 8}},
    {"one key-value head", {SHAPE(RELU), .layers = 2, POST, .kv_heads = 1}, .batch = 2, .length = 19},
    {"heads of their own size", {SHAPE(RELU), .layers = 2, POST, .head_size = 12}, .batch = 2, .length = 19},
    {"no key bias: as Whisper",
     {SHAPE(RELU), .layers = 2, PRE, .final_norm = 1, .without_bias = CLATTN_WITHOUT_KEY_BIAS},
     .batch = 2,
     .length = 19},
    {"no attention biases",
     {SHAPE(RELU), .layers = 2, POST, .without_bias = CLATTN_WITHOUT_ATTENTION_BIAS},
     .batch = 1,
     .length = 19},
    {"no feed-forward biases",
     {SHAPE(RELU), .layers = 2, POST, .without_bias = CLATTN_WITHOUT_FEED_FORWARD_BIAS},
     .batch = 1,
     .length = 19},
    {"no norm biases",
     {SHAPE(RELU), .layers = 2, POST, .without_bias = CLATTN_WITHOUT_NORM_BIAS},
     .batch = 1,
     .length = 19},
    {"an epsilon and a scale of its own",
     {SHAPE(RELU), .layers = 2, POST, .explicit_epsilon = 1, .epsilon = 0.1f, .explicit_scale = 1, .scale = 0.3f},
     .batch = 1,
     .length = 19},
    {"causal", {SHAPE(RELU), .layers = 2, POST, .causal = 1}, .batch = 2, .length = 19},
    {"lengths", {SHAPE(RELU), .layers = 2, POST}, .batch = 3, .length = 19, .lengths = {19, 1, 12}},
    {"lengths, an empty item",
     {SHAPE(RELU), .layers = 2, PRE, .final_norm = 1},
     .batch = 3,
     .length = 7,
     .tiny = true,
     .lengths = {3, 0, 7}},
    {"one item's length", {SHAPE(RELU), .layers = 2, POST}, .batch = 1, .length = 19, .lengths = {11}},
    {"shorter than planned", {SHAPE(RELU), .layers = 2, POST}, .batch = 2, .length = 19, .actual_length = 5},
    {"shorter than planned, one item", {SHAPE(RELU), .layers = 2, PRE}, .batch = 1, .length = 19, .actual_length = 5},
    {"one position", {SHAPE(RELU), .layers = 2, POST}, .batch = 3, .length = 1},
    {"a mask", {SHAPE(RELU), .layers = 2, POST}, .batch = 2, .length = 19, .mask = CLATTN_DTYPE_BOOL},
    {"a float mask", {SHAPE(RELU), .layers = 2, POST}, .batch = 2, .length = 19, .mask = CLATTN_DTYPE_F32},
    {"a mask, lengths and causality",
     {SHAPE(RELU), .layers = 2, PRE, .causal = 1},
     .batch = 2,
     .length = 19,
     .lengths = {19, 8},
     .mask = CLATTN_DTYPE_BOOL},
    {"probabilities of all layers",
     {SHAPE(RELU), .layers = 2, POST},
     .batch = 2,
     .length = 7,
     .tiny = true,
     .probabilities = 3},
    {"probabilities of the second, lengths",
     {SHAPE(RELU), .layers = 3, PRE, .final_norm = 1, .causal = 1},
     .batch = 2,
     .length = 19,
     .lengths = {19, 8},
     .probabilities = 2},
    {"as the paper's layer",
     {.size = sizeof(clattn_stack_desc),
      .layers = 1,
      .d_model = 512,
      .heads = 8,
      .d_ff = 2048,
      .activation = CLATTN_ACTIVATION_RELU},
     .batch = 1,
     .length = 67},
};

static void check_probabilities(const struct encoder_case *c, const nn_reference *r, cl_mem buffer, size_t length)
{
    const size_t P = c->length, h = c->stack.heads, layer = r->batch * h * length * length;
    float *got = malloc(c->stack.layers * c->batch * h * P * P * sizeof *got);
    size_t chosen = 0;
    read_buffer(clattn_context_queue(context), buffer,
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

static int plans_with_packed_weights;

/* The plan with weights packed in advance writes what the reference expects, and the same bits again and again. */
static void check_prepacked(const struct encoder_case *c, clattn_plan *plan, const clattn_encoder_args *args,
                            cl_mem out, const double *expected)
{
    const size_t n = c->stack.d_model, bytes = c->batch * c->length * n * sizeof(float);
    const size_t length = c->actual_length ? c->actual_length : c->length;
    float *first = malloc(bytes), *got = malloc(bytes);
    assert_non_null(first);
    assert_non_null(got);
    for (int round = 0; round < 2; round++) {
        cl_command_queue queue = clattn_context_queue(context);
        const unsigned char poison = 0xff;
        assert_cl(clEnqueueFillBuffer(queue, out, &poison, 1, 0, bytes, 0, NULL, NULL));
        assert_status(context, clattn_encoder_enqueue(plan, NULL, args, 0, NULL, NULL), CLATTN_SUCCESS);
        read_buffer(queue, out, bytes, round ? got : first);
    }
    for (size_t b = 0; b < c->batch; b++) {
        const size_t at = b * c->length * n, rows = c->lengths[0] ? (size_t)c->lengths[b] : length;
        assert_memory_equal(got + at, first + at, rows * n * sizeof *got);
        memmove(got + b * length * n, got + at, length * n * sizeof *got);
    }
    assert_true(nn_difference(got, expected, c->batch * length, n, length, c->lengths[0] ? c->lengths : NULL) < 1e-5);
    plans_with_packed_weights += strstr(clattn_plan_explain(plan), "weights packed in advance") != NULL;
    free(first);
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
    clattn_transformer *model = nn_transformer(context, &desc, &store);
    float *x = nn_floats(count, 77), *y = nn_floats(count, 78);
    double *expected = malloc((c->batch * length * n + 1) * sizeof *expected);
    float *mask = malloc((length * length + 1) * sizeof *mask);
    uint8_t *attended = malloc(length * length + 1);
    for (size_t b = 0; b < c->batch; b++)
        for (size_t i = 0; i < length * n; i++)
            expected[b * length * n + i] = x[b * c->length * n + i];
    for (size_t i = 0; i < length * length; i++) {
        attended[i] = i % 3 != 1 || i % (length + 1) == 0;
        mask[i] = !attended[i] ? -INFINITY : c->mask == CLATTN_DTYPE_F32 ? (float)(i % 7) - 3 : 0;
    }
    double *probabilities = calloc(d->layers * c->batch * d->heads * length * length, sizeof(double));
    nn_reference r = {.store = &store,
                      .name = "encoder",
                      .desc = d,
                      .batch = c->batch,
                      .length = length,
                      .lengths = c->lengths[0] ? c->lengths : NULL,
                      .mask = {c->mask ? mask : NULL, 1, 1, length, length},
                      .self_probabilities = probabilities};
    nn_reference_layers(&r, expected);

    clattn_encoder_desc encoder = CLATTN_ENCODER_DESC_INIT;
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    clattn_plan *plan = NULL, *prepacked = NULL;
    encoder.batch = c->batch;
    encoder.length = c->length;
    encoder.probabilities = c->probabilities;
    if (c->mask)
        encoder.mask = clattn_layout_contiguous(c->mask, 2, (const size_t[2]){length, length});
    assert_status(context, clattn_encoder_plan_create(model, &encoder, NULL, &plan), CLATTN_SUCCESS);
    encoder.prepack = 1;
    assert_status(context, clattn_encoder_plan_create(model, &encoder, NULL, &prepacked), CLATTN_SUCCESS);
    /* The plan works after the model has been released. */
    clattn_transformer_release(&model);
    assert_null(model);
    cl_mem in = nn_buffer(context, count * sizeof *x, x), out = nn_buffer(context, count * sizeof *y, NULL);
    cl_mem masked = c->mask == CLATTN_DTYPE_F32 ? nn_buffer(context, length * length * sizeof *mask, mask)
                                                : nn_buffer(context, length * length, attended);
    cl_mem scores = nn_buffer(context, d->layers * c->batch * d->heads * c->length * c->length * sizeof(float), NULL);
    args.input = clattn_binding_buffer(in, 0);
    args.output = clattn_binding_buffer(out, 0);
    if (c->mask)
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
    read_buffer(clattn_context_queue(context), out, count * sizeof *y, y);
    check_prepacked(c, prepacked, &args, out, expected);
    for (size_t b = 0; b < c->batch; b++)
        memmove(y + b * length * n, y + b * c->length * n, length * n * sizeof *y);
    const double apart = nn_difference(y, expected, c->batch * length, n, length, c->lengths[0] ? c->lengths : NULL);
    print_message("# %s: %.2g\n", c->name, apart);
    assert_true(apart < 1e-5);
    if (c->probabilities)
        check_probabilities(c, &r, scores, length);
    clReleaseMemObject(in);
    clReleaseMemObject(out);
    clReleaseMemObject(masked);
    clReleaseMemObject(scores);
    clattn_plan_release(&plan);
    clattn_plan_release(&prepacked);
    nn_store_clear(&store);
    free(x);
    free(y);
    free(mask);
    free(attended);
    free(expected);
    free(probabilities);
}

static void encoders(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        if (cases[i].tiny || !is_tiny())
            run_case(&cases[i]);
    /* Products of few rows pack none. */
    assert_true(plans_with_packed_weights > 0 || !device_is_cpu());
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(encoders, open_context, close_context),
    };
    return RUN_TESTS("encoder", tests, argc, argv);
}
