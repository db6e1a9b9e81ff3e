/* clattn bench encoder: encoder layers with random weights, made when the library asks for them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tool/bench/bench.h"
#include "tool/run/random.h"

#define MOST_LAYERS 1000

typedef struct encoder_options {
    const char *solver, *device;
    bool causal, pre_norm, gated, int8, explain, json;
    clattn_dtype dtype;
    clattn_activation activation;
    size_t shape[5], layers, repeat;
} encoder_options;

enum { BATCH, LENGTH, D_MODEL, HEADS, D_FF }; /* indices into the shape */

#define FIELD(name) offsetof(encoder_options, name)

static const option_row rows[] = {
    {"--shape", OPTION_SIZES, FIELD(shape), "B,S,D_MODEL,HEADS,D_FF",
     .help = "the sizes; default 1,512,512,8,2048, the paper's", .count = 5},
    {"--layers", OPTION_COUNT, FIELD(layers), "N", .help = "identical layers, each with weights of its own; default 1",
     .count = MOST_LAYERS},
    OPTION_ROW_CAUSAL(encoder_options),
    {"--pre-norm", OPTION_FLAG, FIELD(pre_norm), .help = "norms ahead of attention and feed-forward, not behind them"},
    {"--activation", OPTION_CHOICE, FIELD(activation), "NAME",
     .help = "of the feed-forward network: relu (default), gelu, gelu-tanh, silu or leaky-relu",
     .choices = bench_activations},
    {"--gated", OPTION_FLAG, FIELD(gated), .help = "a gated feed-forward network, of three matrices"},
    OPTION_ROW_DTYPE(encoder_options, "of weights and vectors"),
    {"--int8", OPTION_FLAG, FIELD(int8), .help = "matrices of int8 with a float32 scale for each row"},
    {"--explain", OPTION_FLAG, FIELD(explain), .help = "tell the plan's parts, too"},
    OPTION_ROW_SOLVER(encoder_options),
    OPTION_ROW_DEVICE(encoder_options),
    OPTION_ROW_REPEAT(encoder_options),
    OPTION_ROW_JSON(encoder_options),
    OPTION_ROW_END,
};

static const option_table table = {
    .command = "bench encoder",
    .summary =
        "Times encoder layers with random weights.  Counts the products and the attention, 2 operations for each\n"
        "multiplication with its addition.",
    .rows = rows,
};

/* The state from which weight requests of the library are answered. */
typedef struct weight_maker {
    const size_t *shape; /* the options' */
    host_array last;     /* the tensor that was handed out last; owned */
} weight_maker;

static bool ends_in(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* The shape that weights.h gives a tensor of that name. */
static int32_t weight_shape(const char *name, const size_t *shape, size_t extent[2])
{
    const size_t d_model = shape[D_MODEL], d_ff = shape[D_FF];
    const bool into = strstr(name, ".feed_forward.in.") != NULL || strstr(name, ".feed_forward.gate.") != NULL;
    extent[0] = into ? d_ff : d_model;
    extent[1] = ends_in(name, ".feed_forward.out.weight") ? d_ff : d_model;
    return ends_in(name, ".weight") && strstr(name, ".norm.") == NULL ? 2 : 1;
}

/* Makes a tensor of random numbers, which depend on its name alone, so that they are the same at each request.  A
 * matrix has a variance of one over its columns, so that vectors keep their size through a product. */
static clattn_status make_weight(void *user, const char *name, clattn_host_tensor *tensor, clattn_io_error *error)
{
    weight_maker *maker = user;
    size_t extent[2];
    const int32_t rank = weight_shape(name, maker->shape, extent);
    uint64_t seed = 0;
    for (const char *c = name; *c != '\0'; c++)
        seed = seed * 31 + (unsigned char)*c;
    *tensor = (clattn_host_tensor){0};
    host_release(&maker->last);
    const float limit = rank == 2 ? sqrtf(3.0f / (float)extent[1]) : 1.0f;
    if (random_array(&maker->last, name, CLATTN_DTYPE_F32, rank, extent, seed, limit) != TOOL_DONE ||
        random_make(&maker->last) != TOOL_DONE) {
        if (error != NULL)
            snprintf(error->message, sizeof error->message, "%s: out of memory", name);
        return CLATTN_ERROR_OUT_OF_MEMORY;
    }
    *tensor = maker->last.tensor;
    return CLATTN_SUCCESS;
}

JOB_ENQUEUE(encoder)

/* Makes the plan, and releases the model, of which the plan holds what it needs; *model receives the numbers for the
 * report. */
static clattn_status create_encoder(tool_job *job, const encoder_options *options, bench_model *model)
{
    clattn_stack_desc stack = CLATTN_STACK_DESC_INIT;
    clattn_transformer_desc desc = CLATTN_TRANSFORMER_DESC_INIT;
    clattn_encoder_desc encoder = CLATTN_ENCODER_DESC_INIT;
    clattn_weight_source source = CLATTN_WEIGHT_SOURCE_INIT;
    clattn_plan_options plan_options = job_options(options->solver);
    weight_maker maker = {.shape = options->shape};
    clattn_transformer *transformer = NULL;

    stack.layers = options->layers;
    stack.d_model = options->shape[D_MODEL];
    stack.heads = options->shape[HEADS];
    stack.d_ff = options->shape[D_FF];
    stack.activation = options->activation;
    stack.gated = options->gated;
    stack.norm_place = options->pre_norm ? CLATTN_NORM_PLACE_PRE : CLATTN_NORM_PLACE_POST;
    stack.causal = options->causal;
    desc.encoder = &stack;
    desc.dtype = option_dtypes[options->dtype];
    desc.weight_dtype = options->int8 ? CLATTN_DTYPE_I8 : desc.dtype;
    source.lookup = make_weight;
    source.user = &maker;
    encoder.batch = options->shape[BATCH];
    encoder.length = options->shape[LENGTH];
    clattn_status status = clattn_transformer_create(job->device->context, &desc, &source, &transformer);
    host_release(&maker.last);
    if (status == CLATTN_SUCCESS)
        status = clattn_encoder_plan_create(transformer, &encoder, &plan_options, &job->plan);
    model->layers = options->layers;
    model->parameters = clattn_transformer_parameters(transformer);
    model->weight_bytes = clattn_transformer_weight_bytes(transformer);
    clattn_transformer_release(&transformer);
    return status;
}

static clattn_status job_encoder(tool_device *device, const encoder_options *options, const host_array *x,
                                 tool_job *job, bench_model *model)
{
    clattn_encoder_args *args = &job->args.encoder;
    const clattn_layout y = host_layout(x);
    job_begin(job, device, enqueue_encoder, NULL);
    clattn_encoder_args_init(args);
    job->status = create_encoder(job, options, model);
    job_bind_input(job, x, &args->input);
    job_bind_output(job, 0, &y, &args->output);
    return job_finish(job);
}

static double flops_of(const encoder_options *options)
{
    const size_t *s = options->shape;
    const double batch = (double)s[BATCH], d_model = (double)s[D_MODEL], d_ff = (double)s[D_FF];
    const double pairs = bench_pairs(s[LENGTH], options->causal);
    const double matrices = 4.0 * d_model * d_model + (options->gated ? 3.0 : 2.0) * d_model * d_ff;
    return (double)options->layers * batch * (2.0 * (double)s[LENGTH] * matrices + 4.0 * pairs * d_model);
}

int bench_encoder(int argc, char **argv)
{
    encoder_options options = {.shape = {1, 512, 512, 8, 2048}, .layers = 1, .activation = CLATTN_ACTIVATION_RELU};
    tool_device device = {0};
    tool_job job = {0};
    host_array x = {0};
    const size_t *s = options.shape;
    int status = options_parse(&table, argc, argv, &options);
    if (status != TOOL_DONE)
        return status;
    if (s[D_MODEL] % s[HEADS] != 0)
        return complain(TOOL_BAD_INPUT, "bench encoder: D_MODEL %zu is not a multiple of HEADS %zu", s[D_MODEL],
                        s[HEADS]);
    bench_model model = {.explain = options.explain};
    TOOL_TRY(device_open(options.device, &device));
    TOOL_TRY(random_array(&x, "x", option_dtypes[options.dtype], 3, s, 1, 1.0f));
    TOOL_TRY(device_check(&device, job_encoder(&device, &options, &x, &job, &model), NULL));
    const bench_work work = {.flops = flops_of(&options),
                             .bytes = 2.0 * (double)x.tensor.bytes + (double)model.weight_bytes,
                             .dtype = option_dtypes[options.dtype],
                             .model = &model};
    TOOL_TRY(bench_finish(&job, "encoder", 5, s, &work, options.repeat, options.json));
fail:
    host_release(&x);
    device_close(&device);
    return status;
}
