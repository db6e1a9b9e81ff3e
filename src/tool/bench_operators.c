/* One benchmark an operator.  Each fills random arrays, makes a job and hands it to bench_finish. */
#include "bench.h"

typedef struct bench_options {
    const char *solver, *device;
    bool causal, bias, json;
    int32_t align, dtype;
    size_t shape[7], repeat;
} bench_options;

#define FIELD(name) offsetof(bench_options, name)
#define SHAPE_ROW(numbers, text)                                                      \
    {                                                                                 \
        "--shape", OPTION_SIZES, FIELD(shape), text, "the sizes", true, numbers, NULL \
    }
#define COMMON_ROWS                                                                                      \
    OPTION_ROW_DTYPE(bench_options), OPTION_ROW_SOLVER(bench_options), OPTION_ROW_DEVICE(bench_options), \
        OPTION_ROW_REPEAT(bench_options), OPTION_ROW_JSON(bench_options), OPTION_ROW_END

static double bytes_of(const host_array *array)
{
    return (double)array->tensor.bytes;
}

/* Parses, and opens the device; OPTIONS_RUN in *outcome means that both are done. */
static int begin(const option_table *table, int argc, char **argv, bench_options *options,
                 tool_device *device, bool *go_on)
{
    option_outcome outcome = options_parse(table, argc, argv, options);
    *go_on = false;
    if (outcome != OPTIONS_RUN)
        return outcome == OPTIONS_DONE ? TOOL_DONE : TOOL_BAD_INPUT;
    int status = device_open(options->device, device);
    *go_on = status == TOOL_DONE;
    return status;
}

int bench_matmul(int argc, char **argv)
{
    static const option_row rows[] = {
        SHAPE_ROW(3, "M,N,K"),
        {"--bias", OPTION_FLAG, FIELD(bias), NULL, "add a bias (N)", false, 0, NULL},
        COMMON_ROWS,
    };
    static const option_table table = {
        .command = "bench matmul",
        .summary = "Times a projection, (M, K) times the transpose of (N, K).  Counts 2 M N K operations.",
        .rows = rows,
    };
    bench_options options = {0};
    matmul_problem problem = {0};
    tool_device device = {0};
    tool_job job = {0};
    bool go_on;
    int status = begin(&table, argc, argv, &options, &device, &go_on);
    if (!go_on)
        return status;

    const size_t *s = options.shape;
    status = bench_array(&problem.x, "x", 2, (size_t[]){s[0], s[2]}, 1, 1.0f);
    if (status == TOOL_DONE)
        status = bench_array(&problem.w, "w", 2, (size_t[]){s[1], s[2]}, 2, 1.0f);
    if (status == TOOL_DONE && options.bias)
        status = bench_array(&problem.bias, "bias", 1, (size_t[]){s[1]}, 3, 1.0f);
    if (status == TOOL_DONE) {
        bench_work work = {
            .flops = 2.0 * (double)s[0] * (double)s[1] * (double)s[2],
            .bytes = bytes_of(&problem.x) + bytes_of(&problem.w) + bytes_of(&problem.bias) +
                     4.0 * (double)s[0] * (double)s[1],
        };
        clattn_status made = job_matmul(&device, &problem, options.solver, &job);
        status = bench_finish(&device, made, &job, "matmul", 3, s, &work, options.repeat, options.json);
    }
    matmul_release(&problem);
    device_close(&device);
    return status;
}

int bench_softmax(int argc, char **argv)
{
    static const option_row rows[] = {SHAPE_ROW(2, "R,C"), COMMON_ROWS};
    static const option_table table = {
        .command = "bench softmax",
        .summary =
            "Times softmax over the last dimension of (R, C).  Counts 5 R C operations: scale, maximum, "
            "difference, sum, quotient.",
        .rows = rows,
    };
    bench_options options = {0};
    softmax_problem problem = {0};
    tool_device device = {0};
    tool_job job = {0};
    bool go_on;
    int status = begin(&table, argc, argv, &options, &device, &go_on);
    if (!go_on)
        return status;

    status = bench_array(&problem.x, "x", 2, options.shape, 1, 4.0f);
    if (status == TOOL_DONE) {
        bench_work work = {
            .flops = 5.0 * (double)options.shape[0] * (double)options.shape[1],
            .bytes = 2.0 * bytes_of(&problem.x),
        };
        clattn_status made = job_softmax(&device, &problem, options.solver, &job);
        status = bench_finish(&device, made, &job, "softmax", 2, options.shape, &work, options.repeat,
                              options.json);
    }
    softmax_release(&problem);
    device_close(&device);
    return status;
}

int bench_layernorm(int argc, char **argv)
{
    static const option_row rows[] = {SHAPE_ROW(2, "R,C"), COMMON_ROWS};
    static const option_table table = {
        .command = "bench layernorm",
        .summary =
            "Times LayerNorm with scale and bias over the last dimension of (R, C).  Counts 7 R C operations: sum, "
            "difference,\nsquare and its sum, quotient, scale, bias.",
        .rows = rows,
    };
    bench_options options = {0};
    norm_problem problem = {.kind = CLATTN_NORM_LAYER};
    tool_device device = {0};
    tool_job job = {0};
    bool go_on;
    int status = begin(&table, argc, argv, &options, &device, &go_on);
    if (!go_on)
        return status;

    const size_t *s = options.shape;
    status = bench_array(&problem.x, "x", 2, s, 1, 4.0f);
    if (status == TOOL_DONE)
        status = bench_array(&problem.scale, "scale", 1, &s[1], 2, 1.0f);
    if (status == TOOL_DONE)
        status = bench_array(&problem.bias, "bias", 1, &s[1], 3, 1.0f);
    if (status == TOOL_DONE) {
        bench_work work = {
            .flops = 7.0 * (double)s[0] * (double)s[1],
            .bytes = 2.0 * bytes_of(&problem.x) + bytes_of(&problem.scale) + bytes_of(&problem.bias),
        };
        clattn_status made = job_norm(&device, &problem, options.solver, &job);
        status = bench_finish(&device, made, &job, "layernorm", 2, s, &work, options.repeat, options.json);
    }
    norm_release(&problem);
    device_close(&device);
    return status;
}

int bench_mha(int argc, char **argv)
{
    static const option_row rows[] = {
        SHAPE_ROW(4, "B,S,D_MODEL,H"),
        OPTION_ROW_CAUSAL(bench_options),
        COMMON_ROWS,
    };
    static const option_table table = {
        .command = "bench mha",
        .summary =
            "Times multi-head self-attention with biases: four projections and the attention between them.",
        .rows = rows,
    };
    bench_options options = {0};
    mha_problem problem = {0};
    tool_device device = {0};
    tool_job job = {0};
    bool go_on;
    int status = begin(&table, argc, argv, &options, &device, &go_on);
    if (!go_on)
        return status;

    const size_t *s = options.shape, d = s[2];
    problem.heads = s[3];
    problem.inner = d;
    problem.causal = options.causal;
    const float limit = 0.1f;
    status = bench_array(&problem.x, "x", 3, (size_t[]){s[0], s[1], d}, 1, 1.0f);
    if (status == TOOL_DONE)
        status = bench_array(&problem.w_in, "in_proj_weight", 2, (size_t[]){3 * d, d}, 2, limit);
    if (status == TOOL_DONE)
        status = bench_array(&problem.b_in, "in_proj_bias", 1, (size_t[]){3 * d}, 3, limit);
    if (status == TOOL_DONE)
        status = bench_array(&problem.w_o, "out_proj.weight", 2, (size_t[]){d, d}, 4, limit);
    if (status == TOOL_DONE)
        status = bench_array(&problem.b_o, "out_proj.bias", 1, (size_t[]){d}, 5, limit);
    if (status == TOOL_DONE && d % s[3] != 0)
        status = complain(TOOL_BAD_INPUT, "bench mha: D_MODEL %zu is not a multiple of H %zu", d, s[3]);
    if (status == TOOL_DONE) {
        double pairs = attention_pairs(s[1], s[1], options.causal, options.align);
        bench_work work = {
            .flops = 8.0 * (double)s[0] * (double)s[1] * (double)d * (double)d +
                     4.0 * (double)s[0] * pairs * (double)d,
            .bytes = 2.0 * bytes_of(&problem.x) + bytes_of(&problem.w_in) + bytes_of(&problem.b_in) +
                     bytes_of(&problem.w_o) + bytes_of(&problem.b_o),
        };
        clattn_status made = job_mha(&device, &problem, options.solver, &job);
        status = bench_finish(&device, made, &job, "mha", 4, s, &work, options.repeat, options.json);
    }
    mha_release(&problem);
    device_close(&device);
    return status;
}
