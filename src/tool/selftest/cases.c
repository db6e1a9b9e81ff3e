/* The self-test's cases of softmax, attention, matrix products and multi-head attention.  Of 16-bit types there are few:
 * each type is another set of kernels to compile, and the arithmetic between loading and storing is float32's. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/bench/bench.h"
#include "tool/selftest/selftest.h"

typedef enum mask_sort { MASK_NONE, MASK_BOOLEAN, MASK_ADDED } mask_sort;

/* A mask of about a third "no" that covers one whole row; an added one also has numbers, small and huge. */
static int make_mask(host_array *mask, mask_sort sort, int32_t rank, const size_t *extent)
{
    if (sort == MASK_NONE)
        return TOOL_DONE;
    int status = host_allocate(sort == MASK_BOOLEAN ? CLATTN_DTYPE_BOOL : CLATTN_DTYPE_F32, rank, extent, "mask", mask);
    if (status != TOOL_DONE)
        return status;
    size_t keys = extent[rank - 1], count = element_count(&mask->tensor);
    for (size_t i = 0; i < count; i++) {
        bool attend = i / keys != 1 && (i * 7 + i / keys) % 3 != 0;
        float added = i / keys == 2 ? -FLT_MAX : 0.25f * (float)(i % 9) - 1.0f;
        if (sort == MASK_BOOLEAN)
            ((uint8_t *)mask->memory)[i] = attend;
        else
            ((float *)mask->memory)[i] = attend ? added : -INFINITY;
    }
    return TOOL_DONE;
}

static const struct attention_case {
    const char *name;
    clattn_dtype dtype;
    size_t batch, heads, kv_heads, queries, keys, d_k, d_v;
    bool causal;
    int32_t align;
    mask_sort mask;
    float limit;
    bool with_lse;
} attention_cases[] = {
    {"plain", CLATTN_DTYPE_F32, 1, 2, 2, 33, 47, 16, 16, false, 0, MASK_NONE, 1.0f, true},
    {"odd sizes, shared heads", CLATTN_DTYPE_F32, 2, 3, 1, 7, 13, 5, 3, false, 0, MASK_NONE, 1.0f, true},
    {"one query", CLATTN_DTYPE_F32, 1, 4, 2, 1, 100, 64, 64, false, 0, MASK_NONE, 1.0f, true},
    {"causal", CLATTN_DTYPE_F32, 1, 2, 1, 40, 9, 16, 16, true, CLATTN_ALIGNMENT_TOP_LEFT, MASK_NONE, 1.0f, true},
    {"causal, bottom right", CLATTN_DTYPE_F32, 1, 4, 2, 35, 19, 16, 16, true, CLATTN_ALIGNMENT_BOTTOM_RIGHT, MASK_NONE,
     1.0f, true},
    {"boolean mask", CLATTN_DTYPE_F32, 2, 2, 2, 17, 29, 16, 16, false, 0, MASK_BOOLEAN, 1.0f, true},
    {"added mask", CLATTN_DTYPE_F32, 2, 2, 1, 17, 29, 16, 16, true, CLATTN_ALIGNMENT_BOTTOM_RIGHT, MASK_ADDED, 1.0f,
     true},
    {"large scores", CLATTN_DTYPE_F32, 1, 1, 1, 20, 40, 64, 64, false, 0, MASK_NONE, 30.0f, true},
    {"float16, causal, bottom right", CLATTN_DTYPE_F16, 1, 4, 2, 47, 35, 20, 12, true, CLATTN_ALIGNMENT_BOTTOM_RIGHT,
     MASK_NONE, 1.0f, true},
    {"bfloat16, causal, bottom right", CLATTN_DTYPE_BF16, 1, 4, 2, 47, 35, 20, 12, true, CLATTN_ALIGNMENT_BOTTOM_RIGHT,
     MASK_NONE, 1.0f, true},
    {"float16, one query", CLATTN_DTYPE_F16, 1, 4, 2, 1, 100, 64, 64, false, 0, MASK_NONE, 1.0f, true},
    {"bfloat16, one query", CLATTN_DTYPE_BF16, 1, 4, 2, 1, 100, 64, 64, false, 0, MASK_NONE, 1.0f, true},
    {"float16, boolean mask", CLATTN_DTYPE_F16, 2, 2, 2, 17, 29, 16, 16, false, 0, MASK_BOOLEAN, 1.0f, true},
    {"bfloat16, boolean mask", CLATTN_DTYPE_BF16, 2, 2, 2, 17, 29, 16, 16, false, 0, MASK_BOOLEAN, 1.0f, true},
};

/* What the case asks for, complete. */
static int make_attention(const struct attention_case *c, attention_request *problem)
{
    const size_t shape[7] = {c->batch, c->heads, c->kv_heads, c->queries, c->keys, c->d_k, c->d_v};
    int status = bench_attention_arrays(shape, c->dtype, 11, c->limit, problem);
    problem->desc.causal = c->causal;
    problem->desc.alignment = c->align;
    problem->wants[RESULT_LSE] = c->with_lse;
    if (status == TOOL_DONE)
        status = make_mask(&problem->input[INPUT_MASK], c->mask, 2, (size_t[]){c->queries, c->keys});
    return status == TOOL_DONE ? attention_complete(problem) : status;
}

static void run_attention(tool_device *device, size_t index, const char *solver, const char **name, case_result *result)
{
    const struct attention_case *c = &attention_cases[index];
    attention_request problem;
    host_array results[RESULT_COUNT] = {0};
    tool_verdict verdicts[RESULT_COUNT] = {0};
    tool_job job = {.device = device};
    *name = c->name;
    int status = make_attention(c, &problem);
    for (attention_result i = RESULT_OUTPUT; i <= RESULT_LSE && status == TOOL_DONE; i++)
        if (problem.wants[i])
            status = attention_result_allocate(&problem, i, "result", &results[i]);
    if (status != TOOL_DONE) {
        selftest_no_memory(result);
    } else if (selftest_run(&job, job_attention(device, &problem, solver, &job), solver, results, RESULT_LSE + 1,
                            result)) {
        if (verify_attention(&problem, NULL, results, verdicts) != TOOL_DONE)
            selftest_no_memory(result);
        selftest_judge(result, &verdicts[RESULT_OUTPUT], "output");
        selftest_judge(result, &verdicts[RESULT_LSE], "log-sum-exp");
    }
    host_release(&results[RESULT_OUTPUT]);
    host_release(&results[RESULT_LSE]);
    attention_release(&problem);
}

static const struct softmax_case {
    const char *name;
    clattn_dtype dtype;
    size_t rows, columns;
    mask_sort mask;
    float limit, scale;
} softmax_cases[] = {
    {"one element", CLATTN_DTYPE_F32, 1, 1, MASK_NONE, 1.0f, 1.0f},
    {"short rows", CLATTN_DTYPE_F32, 5, 33, MASK_NONE, 4.0f, 1.0f},
    {"long rows", CLATTN_DTYPE_F32, 3, 5000, MASK_NONE, 4.0f, 0.5f},
    {"negative scale, large values", CLATTN_DTYPE_F32, 4, 100, MASK_NONE, 1e4f, -1.0f},
    {"boolean mask", CLATTN_DTYPE_F32, 6, 65, MASK_BOOLEAN, 4.0f, 1.0f},
    {"added mask", CLATTN_DTYPE_F32, 6, 65, MASK_ADDED, 4.0f, 1.0f},
    {"float16, long rows", CLATTN_DTYPE_F16, 3, 5000, MASK_NONE, 4.0f, 0.5f},
    {"bfloat16, long rows", CLATTN_DTYPE_BF16, 3, 5000, MASK_NONE, 4.0f, 0.5f},
    {"float16, boolean mask", CLATTN_DTYPE_F16, 6, 65, MASK_BOOLEAN, 4.0f, 1.0f},
    {"bfloat16, boolean mask", CLATTN_DTYPE_BF16, 6, 65, MASK_BOOLEAN, 4.0f, 1.0f},
};

static void run_softmax(tool_device *device, size_t index, const char *solver, const char **name, case_result *result)
{
    const struct softmax_case *c = &softmax_cases[index];
    const size_t extent[] = {c->rows, c->columns};
    softmax_request problem = {.scale = {c->scale != 1.0f, c->scale}};
    host_array output = {0};
    tool_verdict verdict = {0};
    tool_job job = {.device = device};
    *name = c->name;
    int status = bench_array(&problem.x, "x", c->dtype, 2, extent, 21, c->limit);
    if (status == TOOL_DONE)
        status = make_mask(&problem.mask, c->mask, 2, extent);
    if (status == TOOL_DONE)
        status = host_allocate(c->dtype, 2, extent, "output", &output);
    if (status != TOOL_DONE) {
        selftest_no_memory(result);
    } else if (selftest_run(&job, job_softmax(device, &problem, solver, &job), solver, &output, 1, result)) {
        if (verify_softmax(&problem, &output, &verdict) != TOOL_DONE)
            selftest_no_memory(result);
        selftest_judge(result, &verdict, "output");
    }
    host_release(&output);
    softmax_release(&problem);
}

static const struct matmul_case {
    const char *name;
    clattn_dtype dtype;
    size_t m, n, k;
    bool bias;
} matmul_cases[] = {
    {"one element", CLATTN_DTYPE_F32, 1, 1, 1, false},
    {"odd sizes", CLATTN_DTYPE_F32, 5, 7, 3, true},
    {"one row", CLATTN_DTYPE_F32, 1, 130, 70, true},
    {"primes", CLATTN_DTYPE_F32, 67, 101, 53, true},
    {"whole tiles", CLATTN_DTYPE_F32, 64, 128, 96, false},
    {"float16, one row", CLATTN_DTYPE_F16, 1, 130, 70, true},
    {"bfloat16, one row", CLATTN_DTYPE_BF16, 1, 130, 70, true},
    {"float16, primes", CLATTN_DTYPE_F16, 67, 101, 53, true},
    {"bfloat16, primes", CLATTN_DTYPE_BF16, 67, 101, 53, true},
    {"float16, whole tiles", CLATTN_DTYPE_F16, 64, 128, 96, false},
    {"bfloat16, whole tiles", CLATTN_DTYPE_BF16, 64, 128, 96, false},
};

static void run_matmul(tool_device *device, size_t index, const char *solver, const char **name, case_result *result)
{
    const struct matmul_case *c = &matmul_cases[index];
    matmul_request problem = {0};
    host_array output = {0};
    tool_verdict verdict = {0};
    tool_job job = {.device = device};
    *name = c->name;
    int status = bench_array(&problem.x, "x", c->dtype, 2, (size_t[]){c->m, c->k}, 31, 1.0f);
    if (status == TOOL_DONE)
        status = bench_array(&problem.w, "w", c->dtype, 2, (size_t[]){c->n, c->k}, 32, 1.0f);
    if (status == TOOL_DONE && c->bias)
        status = bench_array(&problem.bias, "bias", c->dtype, 1, (size_t[]){c->n}, 33, 1.0f);
    if (status == TOOL_DONE)
        status = host_allocate(c->dtype, 2, (size_t[]){c->m, c->n}, "output", &output);
    if (status != TOOL_DONE) {
        selftest_no_memory(result);
    } else if (selftest_run(&job, job_matmul(device, &problem, solver, &job), solver, &output, 1, result)) {
        if (verify_matmul(&problem, &output, &verdict) != TOOL_DONE)
            selftest_no_memory(result);
        selftest_judge(result, &verdict, "output");
    }
    host_release(&output);
    matmul_release(&problem);
}

static const struct mha_case {
    const char *name;
    clattn_dtype dtype;
    size_t batch, queries, keys, d_model, d_context, heads; /* keys 0: self-attention, packed weights */
    bool bias, causal;
    mask_sort mask;
    int32_t weights;
} mha_cases[] = {
    {"self-attention", CLATTN_DTYPE_F32, 2, 9, 0, 24, 24, 3, true, false, MASK_NONE, CLATTN_WEIGHTS_OUTPUT_PER_HEAD},
    {"self-attention, causal, no bias", CLATTN_DTYPE_F32, 1, 13, 0, 20, 20, 4, false, true, MASK_NONE,
     CLATTN_WEIGHTS_OUTPUT_NONE},
    {"cross-attention, mean weights", CLATTN_DTYPE_F32, 2, 7, 11, 16, 12, 2, true, false, MASK_BOOLEAN,
     CLATTN_WEIGHTS_OUTPUT_AVERAGE},
    {"float16, self-attention", CLATTN_DTYPE_F16, 2, 9, 0, 24, 24, 3, true, false, MASK_NONE,
     CLATTN_WEIGHTS_OUTPUT_PER_HEAD},
    {"bfloat16, self-attention", CLATTN_DTYPE_BF16, 2, 9, 0, 24, 24, 3, true, false, MASK_NONE,
     CLATTN_WEIGHTS_OUTPUT_PER_HEAD},
    {"float16, cross-attention", CLATTN_DTYPE_F16, 2, 9, 11, 16, 12, 2, true, false, MASK_BOOLEAN,
     CLATTN_WEIGHTS_OUTPUT_AVERAGE},
    {"bfloat16, cross-attention", CLATTN_DTYPE_BF16, 2, 9, 11, 16, 12, 2, true, false, MASK_BOOLEAN,
     CLATTN_WEIGHTS_OUTPUT_AVERAGE},
};

/* x, context and weights of a case. */
static int make_mha(const struct mha_case *c, mha_request *problem)
{
    const size_t d = c->d_model;
    const float limit = 0.5f;
    *problem = (mha_request){.heads = c->heads, .inner = d, .causal = c->causal, .weights = c->weights};
    int status = bench_array(&problem->x, "x", c->dtype, 3, (size_t[]){c->batch, c->queries, d}, 41, 1.0f);
    if (c->keys == 0) {
        if (status == TOOL_DONE)
            status = bench_array(&problem->w_in, "w_in", c->dtype, 2, (size_t[]){3 * d, d}, 42, limit);
    } else {
        if (status == TOOL_DONE)
            status = bench_array(&problem->context, "context", c->dtype, 3, (size_t[]){c->batch, c->keys, c->d_context},
                                 43, 1.0f);
        if (status == TOOL_DONE)
            status = bench_array(&problem->w_q, "w_q", c->dtype, 2, (size_t[]){d, d}, 44, limit);
        if (status == TOOL_DONE)
            status = bench_array(&problem->w_k, "w_k", c->dtype, 2, (size_t[]){d, c->d_context}, 45, limit);
        if (status == TOOL_DONE)
            status = bench_array(&problem->w_v, "w_v", c->dtype, 2, (size_t[]){d, c->d_context}, 46, limit);
    }
    if (status == TOOL_DONE)
        status = bench_array(&problem->w_o, "w_o", c->dtype, 2, (size_t[]){d, d}, 47, limit);
    if (status == TOOL_DONE && c->bias)
        status = bench_array(&problem->b_in, "b_in", c->dtype, 1, (size_t[]){3 * d}, 48, limit);
    if (status == TOOL_DONE && c->bias)
        status = bench_array(&problem->b_o, "b_o", c->dtype, 1, (size_t[]){d}, 49, limit);
    return status == TOOL_DONE ? make_mask(&problem->mask, c->mask, 2, (size_t[]){c->queries, mha_key_length(problem)})
                               : status;
}

static void run_mha(tool_device *device, size_t index, const char *solver, const char **name, case_result *result)
{
    const struct mha_case *c = &mha_cases[index];
    mha_request problem;
    host_array outputs[2] = {0}, *output = &outputs[0], *weights = &outputs[1];
    tool_verdict verdict = {0}, weights_verdict = {0};
    tool_job job = {.device = device};
    *name = c->name;
    int status = make_mha(c, &problem);
    size_t keys = status == TOOL_DONE ? mha_key_length(&problem) : 0;
    if (status == TOOL_DONE)
        status = host_allocate(c->dtype, 3, problem.x.tensor.extent, "output", output);
    if (status == TOOL_DONE && c->weights != CLATTN_WEIGHTS_OUTPUT_NONE)
        status = host_allocate(
            CLATTN_DTYPE_F32, 4,
            (size_t[]){c->batch, c->weights == CLATTN_WEIGHTS_OUTPUT_AVERAGE ? 1 : c->heads, c->queries, keys},
            "weights", weights);
    if (status != TOOL_DONE) {
        selftest_no_memory(result);
    } else if (selftest_run(&job, job_mha(device, &problem, solver, &job), solver, outputs, 2, result)) {
        if (verify_mha(&problem, output, weights, &verdict, &weights_verdict) != TOOL_DONE)
            selftest_no_memory(result);
        selftest_judge(result, &verdict, "output");
        selftest_judge(result, &weights_verdict, "weights");
    }
    host_release(output);
    host_release(weights);
    mha_release(&problem);
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define ENGINE_SOLVERS "cpu-amx", "cpu-bf16", "matrix" /* of 16-bit types, and cpu-amx of float32 */

static const char *const attention_solvers[] = {ENGINE_SOLVERS, "cpu", "sub-group", "tile", "generic", NULL};
static const char *const softmax_solvers[] = {"cpu", "sub-group", "tile", "generic", NULL};
static const char *const matmul_solvers[] = {"clblast", ENGINE_SOLVERS, "cpu", "tile", "generic", NULL};
static const char *const mha_solvers[] = {ENGINE_SOLVERS, "cpu", "tile", "generic", NULL};

static const selftest_operator softmax = {"softmax", softmax_solvers, COUNT(softmax_cases), run_softmax};
static const selftest_operator attention = {"attention", attention_solvers, COUNT(attention_cases), run_attention};
static const selftest_operator matmul = {"matmul", matmul_solvers, COUNT(matmul_cases), run_matmul};
static const selftest_operator mha = {"mha", mha_solvers, COUNT(mha_cases), run_mha};

const selftest_operator *const selftest_operators[] = {
    &softmax,
    &attention,
    &matmul,
    &mha,
    &selftest_merge,
    &selftest_kv_append,
    &selftest_neighbourhood,
    &selftest_norm,
    &selftest_rope,
    &selftest_activation,
};
const size_t selftest_operator_count = COUNT(selftest_operators);
