/* One benchmark per operator.  Each fills random arrays, makes a job and times it. */
#include "tool/bench/bench.h"

typedef struct bench_options {
    const char *solver, *device;
    bool causal, bias, json, int8;
    int32_t dtype, operand;
    clattn_activation activation;
    size_t shape[7], repeat;
} bench_options;

#define FIELD(name) offsetof(bench_options, name)
#define SHAPE_ROW(numbers, text) \
    {"--shape", OPTION_SIZES, FIELD(shape), text, .help = "the sizes", .required = true, .count = numbers}
#define STORAGE_ROW OPTION_ROW_DTYPE(bench_options, "of every array")
#define COMMON_ROWS \
    OPTION_ROW_SOLVER(bench_options), OPTION_ROW_DEVICE(bench_options), OPTION_ROW_REPEAT(bench_options), \
        OPTION_ROW_JSON(bench_options), OPTION_ROW_END

const char *const bench_activations[] = {
    [CLATTN_ACTIVATION_NONE] = "none",         [CLATTN_ACTIVATION_RELU] = "relu",
    [CLATTN_ACTIVATION_GELU] = "gelu",         [CLATTN_ACTIVATION_GELU_TANH] = "gelu-tanh",
    [CLATTN_ACTIVATION_SWISH] = "silu",        [CLATTN_ACTIVATION_LEAKY_RELU] = "leaky-relu",
    [CLATTN_ACTIVATION_LEAKY_RELU + 1] = NULL,
};
static const char *const operand_choices[] = {"none", "add", "multiply", NULL};

static double bytes_of(const host_array *array)
{
    return (double)array->tensor.bytes;
}

/* A benchmark's state. */
typedef struct bench {
    bench_options options;
    clattn_dtype dtype; /* the one that the options say */
    tool_device device;
    tool_job job;
} bench;

/* Parses the options and opens the device. */
static int begin(bench *b, const option_table *table, int argc, char **argv)
{
    int status;
    TOOL_TRY(options_parse(table, argc, argv, &b->options));
    b->dtype = option_dtypes[b->options.dtype];
    status = device_open(b->options.device, &b->device);
fail:
    return status;
}

/* Times and reports the job that has just been made with status `made`. */
static int finish(bench *b, clattn_status made, const char *name, int32_t rank, double flops, double bytes)
{
    const bench_work work = {.flops = flops, .bytes = bytes, .dtype = b->dtype};
    int status = device_check(&b->device, made, NULL);
    if (status == TOOL_DONE)
        status = bench_finish(&b->job, name, rank, b->options.shape, &work, b->options.repeat, b->options.json);
    return status;
}

int bench_matmul(int argc, char **argv)
{
    static const option_row rows[] = {
        SHAPE_ROW(3, "M,N,K"),
        {"--bias", OPTION_FLAG, FIELD(bias), .help = "add a bias (N)"},
        {"--activation", OPTION_CHOICE, FIELD(activation), "NAME",
         .help = "relu, gelu, gelu-tanh, silu or leaky-relu of each sum", .choices = bench_activations},
        {"--operand", OPTION_CHOICE, FIELD(operand), "USE", .help = "an (M, N) array behind it: add or multiply",
         .choices = operand_choices},
        {"--int8", OPTION_FLAG, FIELD(int8), .help = "weights of int8 with a float32 scale for each of N"},
        STORAGE_ROW,
        COMMON_ROWS,
    };
    static const option_table table = {
        .command = "bench matmul",
        .summary = "Times a projection, (M, K) times the transpose of (N, K).  Counts 2 M N K operations.",
        .rows = rows,
    };
    bench b = {0};
    matmul_request request = {0};
    const size_t *s = b.options.shape;
    int status;
    TOOL_TRY(begin(&b, &table, argc, argv));
    bool int8 = b.options.int8;
    request.activation = b.options.activation;
    request.operand_use = b.options.operand == 2 ? CLATTN_MATMUL_OPERAND_USE_MULTIPLY : CLATTN_MATMUL_OPERAND_USE_ADD;
    TOOL_TRY(random_array(&request.x, "x", b.dtype, 2, (size_t[]){s[0], s[2]}, 1, 1.0f));
    TOOL_TRY(random_array(&request.w, "w", int8 ? CLATTN_DTYPE_I8 : b.dtype, 2, (size_t[]){s[1], s[2]}, 2,
                          int8 ? 127.0f : 1.0f));
    if (int8)
        TOOL_TRY(random_array(&request.w_scale, "w_scale", CLATTN_DTYPE_F32, 1, &s[1], 3, 0.01f));
    if (b.options.operand)
        TOOL_TRY(random_array(&request.operand, "operand", b.dtype, 2, s, 4, 1.0f));
    if (b.options.bias)
        TOOL_TRY(random_array(&request.bias, "bias", b.dtype, 1, &s[1], 5, 1.0f));
    double flops = 2.0 * (double)s[0] * (double)s[1] * (double)s[2];
    double bytes = bytes_of(&request.x) + bytes_of(&request.w) + bytes_of(&request.bias) + bytes_of(&request.w_scale) +
                   bytes_of(&request.operand) + (double)clattn_dtype_size(b.dtype) * (double)s[0] * (double)s[1];
    TOOL_TRY(finish(&b, job_matmul(&b.device, &request, b.options.solver, &b.job), "matmul", 3, flops, bytes));
fail:
    matmul_release(&request);
    device_close(&b.device);
    return status;
}

int bench_softmax(int argc, char **argv)
{
    static const option_row rows[] = {SHAPE_ROW(2, "R,C"), STORAGE_ROW, COMMON_ROWS};
    static const option_table table = {
        .command = "bench softmax",
        .summary = "Times softmax over the last dimension of (R, C).  Counts 5 R C operations: scale, maximum, "
                   "difference, sum, quotient.",
        .rows = rows,
    };
    bench b = {0};
    softmax_request request = {0};
    const size_t *s = b.options.shape;
    int status;
    TOOL_TRY(begin(&b, &table, argc, argv));
    TOOL_TRY(random_array(&request.x, "x", b.dtype, 2, s, 1, 4.0f));
    TOOL_TRY(finish(&b, job_softmax(&b.device, &request, b.options.solver, &b.job), "softmax", 2,
                    5.0 * (double)s[0] * (double)s[1], 2.0 * bytes_of(&request.x)));
fail:
    softmax_release(&request);
    device_close(&b.device);
    return status;
}

int bench_layernorm(int argc, char **argv)
{
    static const option_row rows[] = {SHAPE_ROW(2, "R,C"), STORAGE_ROW, COMMON_ROWS};
    static const option_table table = {
        .command = "bench layernorm",
        .summary =
            "Times LayerNorm with scale and bias over the last dimension of (R, C).  Counts 7 R C operations: sum, "
            "difference,\nsquare and its sum, quotient, scale, bias.",
        .rows = rows,
    };
    bench b = {0};
    norm_request request = {0};
    const size_t *s = b.options.shape;
    int status;
    TOOL_TRY(begin(&b, &table, argc, argv));
    TOOL_TRY(random_array(&request.x, "x", b.dtype, 2, s, 1, 4.0f));
    TOOL_TRY(random_array(&request.scale, "scale", b.dtype, 1, &s[1], 2, 1.0f));
    TOOL_TRY(random_array(&request.bias, "bias", b.dtype, 1, &s[1], 3, 1.0f));
    double bytes = 2.0 * bytes_of(&request.x) + bytes_of(&request.scale) + bytes_of(&request.bias);
    TOOL_TRY(finish(&b, job_norm(&b.device, &request, b.options.solver, &b.job), "layernorm", 2,
                    7.0 * (double)s[0] * (double)s[1], bytes));
fail:
    norm_release(&request);
    device_close(&b.device);
    return status;
}

int bench_mha_arrays(const char *command, const size_t s[4], clattn_dtype dtype, mha_request *request)
{
    const size_t d = s[2];
    const float limit = 0.1f;
    int status;
    if (d % s[3] != 0)
        return complain(TOOL_BAD_INPUT, "%s: D_MODEL %zu is not a multiple of H %zu", command, d, s[3]);
    request->heads = s[3];
    request->inner = d;
    TOOL_TRY(random_array(&request->x, "x", dtype, 3, s, 1, 1.0f));
    TOOL_TRY(random_array(&request->w_in, "in_proj_weight", dtype, 2, (size_t[]){3 * d, d}, 2, limit));
    TOOL_TRY(random_array(&request->b_in, "in_proj_bias", dtype, 1, (size_t[]){3 * d}, 3, limit));
    TOOL_TRY(random_array(&request->w_o, "out_proj.weight", dtype, 2, (size_t[]){d, d}, 4, limit));
    TOOL_TRY(random_array(&request->b_o, "out_proj.bias", dtype, 1, &d, 5, limit));
fail:
    return status;
}

int bench_mha(int argc, char **argv)
{
    static const option_row rows[] = {
        SHAPE_ROW(4, "B,S,D_MODEL,H"),
        OPTION_ROW_CAUSAL(bench_options),
        STORAGE_ROW,
        COMMON_ROWS,
    };
    static const option_table table = {
        .command = "bench mha",
        .summary = "Times multi-head self-attention with biases: four projections and the attention between them.",
        .rows = rows,
    };
    bench b = {0};
    mha_request request = {0};
    const size_t *s = b.options.shape;
    int status;
    TOOL_TRY(begin(&b, &table, argc, argv));
    TOOL_TRY(bench_mha_arrays("bench mha", s, b.dtype, &request));
    request.causal = b.options.causal;
    double tokens = (double)s[0] * (double)s[1], d = (double)s[2];
    double flops = 8.0 * tokens * d * d + 4.0 * (double)s[0] * bench_pairs(s[1], b.options.causal) * d;
    double bytes = 2.0 * bytes_of(&request.x) + bytes_of(&request.w_in) + bytes_of(&request.b_in) +
                   bytes_of(&request.w_o) + bytes_of(&request.b_o);
    TOOL_TRY(finish(&b, job_mha(&b.device, &request, b.options.solver, &b.job), "mha", 4, flops, bytes));
fail:
    mha_release(&request);
    device_close(&b.device);
    return status;
}
