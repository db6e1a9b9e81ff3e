/* The self-test's cases of what stands between attentions: norms, rotation, activations. */
#include <math.h>

#include "tool/bench/bench.h"
#include "tool/selftest/selftest.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define COLUMNS 1100 /* the most of a case */

/* ---- norms ---- */

static const struct norm_case {
    const char *name;
    clattn_dtype dtype;
    size_t rows, columns;
    bool rms, scale, bias;
} norm_cases[] = {
    {"one column", CLATTN_DTYPE_F32, 3, 1, false, true, true},
    {"layer", CLATTN_DTYPE_F32, 5, 77, false, true, true},
    {"layer, long rows", CLATTN_DTYPE_F32, 4, 1100, false, true, true},
    {"layer, no weights", CLATTN_DTYPE_F32, 33, 64, false, false, false},
    {"RMS", CLATTN_DTYPE_F32, 7, 130, true, true, false},
    {"RMS, long rows", CLATTN_DTYPE_F32, 3, 1024, true, true, false},
    {"float16, layer", CLATTN_DTYPE_F16, 5, 77, false, true, true},
    {"bfloat16, layer", CLATTN_DTYPE_BF16, 5, 77, false, true, true},
    {"float16, RMS", CLATTN_DTYPE_F16, 7, 130, true, true, false},
    {"bfloat16, RMS", CLATTN_DTYPE_BF16, 7, 130, true, true, false},
};

static int make_norm(const struct norm_case *c, norm_request *problem, host_array outputs[2])
{
    const size_t extent[] = {c->rows, c->columns};
    *problem = (norm_request){.kind = c->rms ? CLATTN_NORM_KIND_RMS : CLATTN_NORM_KIND_LAYER, .inv_std_dev = true};
    int status = bench_array(&problem->x, "x", c->dtype, 2, extent, 51, 4.0f);
    if (status == TOOL_DONE && c->scale)
        status = bench_array(&problem->scale, "scale", c->dtype, 1, &c->columns, 52, 1.0f);
    if (status == TOOL_DONE && c->bias)
        status = bench_array(&problem->bias, "bias", c->dtype, 1, &c->columns, 53, 1.0f);
    if (status == TOOL_DONE)
        status = host_allocate(c->dtype, 2, extent, "output", &outputs[0]);
    if (status == TOOL_DONE)
        status = host_allocate(CLATTN_DTYPE_F32, 2, (size_t[]){c->rows, 1}, "inverse deviation", &outputs[1]);
    return status;
}

static void verify_norm(const struct norm_case *c, const norm_request *problem, const host_array outputs[2],
                        case_result *result)
{
    float_arrays inputs = {0};
    double exact[COLUMNS], magnitude[COLUMNS], factor;
    float plain[COLUMNS];
    tool_verdict y = {0}, inverse = {0};
    ref_norm_problem reference = {
        .extent = {1, 1, 1, (int64_t)c->rows, (int64_t)c->columns},
        .axes = 1,
        .rms = c->rms,
        .epsilon = 1e-5,
        .x = floats_of(&inputs, &problem->x),
        .scale = floats_of(&inputs, &problem->scale),
        .bias = floats_of(&inputs, &problem->bias),
        .stride = {0, 0, 0, (int64_t)c->columns, 1},
        .scale_stride = {0, 0, 0, 0, 1},
        .bias_stride = {0, 0, 0, 0, 1},
    };
    if (inputs.failed)
        selftest_no_memory(result);
    for (size_t row = 0; row < c->rows && !inputs.failed; row++) {
        ref_norm_row(&reference, (int64_t)row, exact, magnitude, NULL, &factor);
        ref_norm_naive_row(&reference, (int64_t)row, plain);
        for (size_t e = 0; e < c->columns; e++)
            verdict_add_stored(&y, c->dtype, result_element(&outputs[0], row * c->columns + e), exact[e],
                               (double)plain[e], magnitude[e]);
        verdict_add(&inverse, ((const float *)outputs[1].memory)[row], factor, (float)factor, factor);
    }
    floats_release(&inputs);
    selftest_judge(result, &y, "output");
    selftest_judge(result, &inverse, "inverse deviation");
}

static void run_norm(tool_device *device, size_t index, const char *solver, const char **name, case_result *result)
{
    const struct norm_case *c = &norm_cases[index];
    norm_request problem;
    host_array outputs[2] = {0};
    tool_job job = {.device = device};
    *name = c->name;
    if (make_norm(c, &problem, outputs) != TOOL_DONE)
        selftest_no_memory(result);
    else if (selftest_run(&job, job_norm(device, &problem, solver, &job), solver, outputs, 2, result))
        verify_norm(c, &problem, outputs, result);
    host_release(&outputs[0]);
    host_release(&outputs[1]);
    norm_release(&problem);
}

/* ---- rotation ---- */

enum { ROPE_X, ROPE_COS, ROPE_SIN };
#define ROPE_TABLE 32

static const struct rope_case {
    const char *name;
    size_t batch, heads, length, size, rotary;
    bool interleaved, table;
    int64_t position;
} rope_cases[] = {
    {"halves", 2, 3, 7, 64, 64, false, false, 0},
    {"interleaved, part of the head", 1, 5, 9, 50, 38, true, false, 17},
    {"far positions", 1, 2, 5, 128, 128, false, false, 1000000},
    {"given cosines and sines", 2, 2, 6, 20, 16, false, true, 11},
};

JOB_ENQUEUE(rope)

static void verify_rope(const struct rope_case *c, const probe *p, case_result *result)
{
    double exact[COLUMNS], magnitude[COLUMNS];
    tool_verdict verdict = {0};
    const float *x = p->in[ROPE_X].memory, *y = p->out[0].memory;
    for (size_t row = 0; row < c->batch * c->heads * c->length; row++) {
        int64_t position = c->position + (int64_t)(row % c->length), pairs = (int64_t)c->rotary / 2;
        ref_rope_problem reference = {
            .size = (int64_t)c->size,
            .rotary = (int64_t)c->rotary,
            .interleaved = c->interleaved,
            .base = 10000,
            .cosines = c->table ? (const float *)p->in[ROPE_COS].memory + position * pairs : NULL,
            .sines = c->table ? (const float *)p->in[ROPE_SIN].memory + position * pairs : NULL,
        };
        ref_rope_row(&reference, x + row * c->size, position, exact, magnitude);
        for (size_t d = 0; d < c->size; d++)
            verdict_add(&verdict, y[row * c->size + d], exact[d], (float)exact[d], magnitude[d]);
    }
    selftest_judge(result, &verdict, "output");
}

static void run_rope(tool_device *device, size_t index, const char *solver, const char **name, case_result *result)
{
    const struct rope_case *c = &rope_cases[index];
    clattn_rope_desc desc = CLATTN_ROPE_DESC_INIT;
    clattn_plan_options options = job_options(solver);
    probe p = {0};
    *name = c->name;
    probe_input(&p, ROPE_X, 4, (size_t[]){c->batch, c->heads, c->length, c->size}, 2.0f);
    for (size_t i = ROPE_COS; i <= ROPE_SIN && c->table; i++)
        probe_input(&p, i, 2, (size_t[]){ROPE_TABLE, c->rotary / 2}, 1.0f);
    desc.pairing = c->interleaved ? CLATTN_ROPE_PAIRING_INTERLEAVED : CLATTN_ROPE_PAIRING_HALVES;
    desc.rotary_size = c->rotary;
    desc.x = desc.y = probe_layout(&p, ROPE_X);
    desc.cos = probe_layout(&p, ROPE_COS);
    desc.sin = probe_layout(&p, ROPE_SIN);
    probe_output(&p, 0, &desc.y);
    if (probe_ready(&p, result)) {
        clattn_rope_args *args = &p.job.args.rope;
        job_begin(&p.job, device, enqueue_rope);
        clattn_rope_args_init(args);
        args->position = c->position;
        clattn_status status = clattn_rope_plan_create(device->context, &desc, &options, &p.job.plan);
        status = probe_bind_input(&p, status, ROPE_X, &args->x);
        status = probe_bind_input(&p, status, ROPE_COS, &args->cos);
        status = probe_bind_input(&p, status, ROPE_SIN, &args->sin);
        status = probe_bind_output(&p, status, 0, &args->y);
        if (selftest_run(&p.job, job_finish(&p.job, status), solver, p.out, 1, result))
            verify_rope(c, &p, result);
    }
    probe_release(&p);
}

/* ---- activations ---- */

static const struct activation_case {
    const char *name;
    size_t rows, columns;
    int32_t function;
    float alpha;
} activation_cases[] = {
    {"ReLU", 3, 37, CLATTN_ACTIVATION_RELU, 1},
    {"GELU", 5, 203, CLATTN_ACTIVATION_GELU, 1},
    {"GELU by tanh", 5, 203, CLATTN_ACTIVATION_GELU_TANH, 1},
    {"Swish", 5, 203, CLATTN_ACTIVATION_SWISH, 1},
    {"Swish, negative alpha", 1, 130, CLATTN_ACTIVATION_SWISH, -1.75f},
};

JOB_ENQUEUE(activation)

static void run_activation(tool_device *device, size_t index, const char *solver, const char **name,
                           case_result *result)
{
    const struct activation_case *c = &activation_cases[index];
    clattn_activation_desc desc = CLATTN_ACTIVATION_DESC_INIT;
    clattn_plan_options options = job_options(solver);
    probe p = {0};
    *name = c->name;
    probe_input(&p, 0, 2, (size_t[]){c->rows, c->columns}, 12.0f);
    desc.function = c->function;
    desc.explicit_alpha = 1;
    desc.alpha = c->alpha;
    desc.x = desc.y = probe_layout(&p, 0);
    probe_output(&p, 0, &desc.y);
    if (probe_ready(&p, result)) {
        clattn_activation_args *args = &p.job.args.activation;
        job_begin(&p.job, device, enqueue_activation);
        clattn_activation_args_init(args);
        clattn_status status = clattn_activation_plan_create(device->context, &desc, &options, &p.job.plan);
        status = probe_bind_input(&p, status, 0, &args->x);
        status = probe_bind_output(&p, status, 0, &args->y);
        if (selftest_run(&p.job, job_finish(&p.job, status), solver, p.out, 1, result)) {
            tool_verdict verdict = {0};
            for (size_t i = 0; i < c->rows * c->columns; i++) {
                double exact = ref_activate(c->function, (double)c->alpha, ((const float *)p.in[0].memory)[i]);
                verdict_add(&verdict, ((const float *)p.out[0].memory)[i], exact, (float)exact, fabs(exact));
            }
            selftest_judge(result, &verdict, "output");
        }
    }
    probe_release(&p);
}

static const char *const norm_solvers[] = {"cpu", "sub-group", "tile", "generic", NULL};
static const char *const row_solvers[] = {"cpu", "generic", NULL};

const selftest_operator selftest_norm = {"norm", norm_solvers, COUNT(norm_cases), run_norm};
const selftest_operator selftest_rope = {"rope", row_solvers, COUNT(rope_cases), run_rope};
const selftest_operator selftest_activation = {"activation", row_solvers, COUNT(activation_cases), run_activation};
