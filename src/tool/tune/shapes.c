/* The shapes that `clattn tune` measures, and their jobs. */
#include <stdio.h>
#include <string.h>

#include "tool/bench/bench.h"
#include "tool/tune/tune.h"

/* Solvers that have run on the hardware that they are for; others are measured only if the library chooses them. */
static const char *const attention_solvers[] = {"cpu", "cpu-bf16", "cpu-amx", "tile", "generic", NULL};
static const char *const matmul_solvers[] = {"cpu", "cpu-bf16", "cpu-amx", "tile", "generic", "clblast", NULL};
static const char *const row_solvers[] = {"cpu", "tile", "generic", NULL};

const tune_shape tune_shapes[] = {
    /* sentence encoders, vision transformers, translation: 8 to 16 heads of 32 to 128 */
    {TUNE_ATTENTION, false, CLATTN_DTYPE_F32, {1, 12, 12, 128, 128, 32, 32}},
    {TUNE_ATTENTION, false, CLATTN_DTYPE_F32, {1, 12, 12, 197, 197, 64, 64}},
    {TUNE_ATTENTION, false, CLATTN_DTYPE_F32, {1, 8, 8, 512, 512, 64, 64}},
    {TUNE_ATTENTION, false, CLATTN_DTYPE_F32, {1, 8, 8, 2048, 2048, 64, 64}},
    {TUNE_ATTENTION, false, CLATTN_DTYPE_F32, {32, 8, 8, 64, 64, 64, 64}},
    {TUNE_ATTENTION, true, CLATTN_DTYPE_F32, {1, 8, 8, 2048, 2048, 64, 64}},
    {TUNE_ATTENTION, true, CLATTN_DTYPE_F32, {1, 8, 8, 1024, 1024, 128, 128}},
    /* decoding, also with grouped heads */
    {TUNE_ATTENTION, false, CLATTN_DTYPE_F32, {1, 8, 8, 1, 4096, 128, 128}},
    {TUNE_ATTENTION, false, CLATTN_DTYPE_F32, {1, 32, 8, 1, 4096, 128, 128}},
    {TUNE_ATTENTION, false, CLATTN_DTYPE_F32, {1, 32, 8, 1, 32768, 128, 128}},
    /* projections of the same models, of a sequence and of one token */
    {TUNE_MATMUL, false, CLATTN_DTYPE_F32, {128, 384, 384}},
    {TUNE_MATMUL, false, CLATTN_DTYPE_F32, {512, 512, 512}},
    {TUNE_MATMUL, false, CLATTN_DTYPE_F32, {2048, 512, 512}},
    {TUNE_MATMUL, false, CLATTN_DTYPE_F32, {2048, 2048, 512}},
    {TUNE_MATMUL, false, CLATTN_DTYPE_F32, {512, 3072, 768}},
    {TUNE_MATMUL, false, CLATTN_DTYPE_F32, {1, 4096, 4096}},
    {TUNE_MATMUL, false, CLATTN_DTYPE_F32, {4, 2048, 2048}},
    {TUNE_MATMUL, false, CLATTN_DTYPE_F32, {16, 4096, 4096}},
    {TUNE_SOFTMAX, false, CLATTN_DTYPE_F32, {4096, 1024}},
    {TUNE_LAYERNORM, false, CLATTN_DTYPE_F32, {4096, 512}},
};
const size_t tune_shape_count = sizeof tune_shapes / sizeof tune_shapes[0];

void tune_shape_name(const tune_shape *shape, char name[TUNE_NAME])
{
    const tune_operator_info *info = &tune_operators[shape->operator_index];
    int put = snprintf(name, TUNE_NAME, "%s ", info->name);
    for (size_t i = 0; i < info->sizes; i++)
        put += snprintf(name + put, TUNE_NAME - (size_t)put, "%s%zu", i > 0 ? "," : "", shape->size[i]);
    snprintf(name + put, TUNE_NAME - (size_t)put, "%s%s%s", shape->causal ? " causal" : "",
             shape->dtype == CLATTN_DTYPE_F32 ? "" : " ",
             shape->dtype == CLATTN_DTYPE_F32 ? "" : clattn_dtype_name(shape->dtype));
}

static int attention_job(tool_device *device, const tune_shape *shape, tool_job *job, clattn_status *made)
{
    attention_request problem = {0};
    int status;
    TOOL_TRY(bench_attention_arrays(shape->size, shape->dtype, &problem));
    problem.desc.causal = shape->causal;
    TOOL_TRY(attention_complete(&problem));
    *made = job_attention(device, &problem, NULL, job);
fail:
    attention_release(&problem);
    return status;
}

static int matmul_job(tool_device *device, const tune_shape *shape, tool_job *job, clattn_status *made)
{
    matmul_request problem = {0};
    const size_t *s = shape->size;
    int status;
    TOOL_TRY(random_array(&problem.x, "x", shape->dtype, 2, (size_t[]){s[0], s[2]}, 1, 1.0f));
    TOOL_TRY(random_array(&problem.w, "w", shape->dtype, 2, (size_t[]){s[1], s[2]}, 2, 1.0f));
    *made = job_matmul(device, &problem, NULL, job);
fail:
    matmul_release(&problem);
    return status;
}

static int softmax_job(tool_device *device, const tune_shape *shape, tool_job *job, clattn_status *made)
{
    softmax_request problem = {0};
    int status;
    TOOL_TRY(random_array(&problem.x, "x", shape->dtype, 2, shape->size, 1, 4.0f));
    *made = job_softmax(device, &problem, NULL, job);
fail:
    softmax_release(&problem);
    return status;
}

static int layernorm_job(tool_device *device, const tune_shape *shape, tool_job *job, clattn_status *made)
{
    norm_request problem = {0};
    int status;
    TOOL_TRY(random_array(&problem.x, "x", shape->dtype, 2, shape->size, 1, 4.0f));
    TOOL_TRY(random_array(&problem.scale, "scale", shape->dtype, 1, &shape->size[1], 2, 1.0f));
    TOOL_TRY(random_array(&problem.bias, "bias", shape->dtype, 1, &shape->size[1], 3, 1.0f));
    *made = job_norm(device, &problem, NULL, job);
fail:
    norm_release(&problem);
    return status;
}

const tune_operator_info tune_operators[TUNE_OPERATORS] = {
    [TUNE_ATTENTION] = {"attention", 7, "B,HQ,HKV,SQ,SKV,D,DV", attention_solvers, attention_job},
    [TUNE_MATMUL] = {"matmul", 3, "M,N,K", matmul_solvers, matmul_job},
    [TUNE_SOFTMAX] = {"softmax", 2, "R,C", row_solvers, softmax_job},
    [TUNE_LAYERNORM] = {"layernorm", 2, "R,C", row_solvers, layernorm_job},
};
