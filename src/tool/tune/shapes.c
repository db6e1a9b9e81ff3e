/* The shapes that `clattn tune` measures, and their jobs. */
#include <stdio.h>
#include <string.h>

#include "tool/bench/bench.h"
#include "tool/tune/tune.h"

/* Solvers that have run on the hardware that they are for; others are measured only if the library chooses them. */
static const char *const attention_solvers[] = {"cpu", "cpu-bf16", "cpu-amx", "tile", "generic", NULL};
static const char *const matmul_solvers[] = {"cpu", "cpu-bf16", "cpu-amx", "tile", "generic", "clblast", NULL};
static const char *const row_solvers[] = {"cpu", "tile", "generic", NULL};

const tune_operator_info tune_operators[TUNE_OPERATORS] = {
    [TUNE_ATTENTION] = {"attention", 7, "B,HQ,HKV,SQ,SKV,D,DV", attention_solvers},
    [TUNE_MATMUL] = {"matmul", 3, "M,N,K", matmul_solvers},
    [TUNE_SOFTMAX] = {"softmax", 2, "R,C", row_solvers},
    [TUNE_LAYERNORM] = {"layernorm", 2, "R,C", row_solvers},
};

#define ATTENTION(...) \
    { \
        TUNE_ATTENTION, false, CLATTN_DTYPE_F32, \
        { \
            __VA_ARGS__ \
        } \
    }
#define CAUSAL(...) \
    { \
        TUNE_ATTENTION, true, CLATTN_DTYPE_F32, \
        { \
            __VA_ARGS__ \
        } \
    }
#define MATMUL(...) \
    { \
        TUNE_MATMUL, false, CLATTN_DTYPE_F32, \
        { \
            __VA_ARGS__ \
        } \
    }

const tune_shape tune_shapes[] = {
    /* sentence encoders, vision transformers, translation: 8 to 16 heads of 32 to 128 */
    ATTENTION(1, 12, 12, 128, 128, 32, 32),
    ATTENTION(1, 12, 12, 197, 197, 64, 64),
    ATTENTION(1, 8, 8, 512, 512, 64, 64),
    ATTENTION(1, 8, 8, 2048, 2048, 64, 64),
    ATTENTION(32, 8, 8, 64, 64, 64, 64),
    CAUSAL(1, 8, 8, 2048, 2048, 64, 64),
    CAUSAL(1, 8, 8, 1024, 1024, 128, 128),
    /* decoding, also with grouped heads */
    ATTENTION(1, 8, 8, 1, 4096, 128, 128),
    ATTENTION(1, 32, 8, 1, 4096, 128, 128),
    ATTENTION(1, 32, 8, 1, 32768, 128, 128),
    /* projections of the same models, of a sequence and of one token */
    MATMUL(128, 384, 384),
    MATMUL(512, 512, 512),
    MATMUL(2048, 512, 512),
    MATMUL(2048, 2048, 512),
    MATMUL(512, 3072, 768),
    MATMUL(1, 4096, 4096),
    MATMUL(4, 2048, 2048),
    MATMUL(16, 4096, 4096),
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

static clattn_status attention_job(tool_device *device, const tune_shape *shape, tool_job *job, int *filled)
{
    attention_request problem = {0};
    clattn_status status = CLATTN_SUCCESS;
    *filled = bench_attention_arrays(shape->size, shape->dtype, 1, 1.0f, &problem);
    problem.desc.causal = shape->causal;
    if (*filled == TOOL_DONE)
        *filled = attention_complete(&problem);
    if (*filled == TOOL_DONE)
        status = job_attention(device, &problem, NULL, job);
    attention_release(&problem);
    return status;
}

static clattn_status matmul_job(tool_device *device, const tune_shape *shape, tool_job *job, int *filled)
{
    matmul_request problem = {0};
    const size_t *s = shape->size;
    clattn_status status = CLATTN_SUCCESS;
    *filled = bench_array(&problem.x, "x", shape->dtype, 2, (size_t[]){s[0], s[2]}, 1, 1.0f);
    if (*filled == TOOL_DONE)
        *filled = bench_array(&problem.w, "w", shape->dtype, 2, (size_t[]){s[1], s[2]}, 2, 1.0f);
    if (*filled == TOOL_DONE)
        status = job_matmul(device, &problem, NULL, job);
    matmul_release(&problem);
    return status;
}

static clattn_status softmax_job(tool_device *device, const tune_shape *shape, tool_job *job, int *filled)
{
    softmax_request problem = {0};
    clattn_status status = CLATTN_SUCCESS;
    *filled = bench_array(&problem.x, "x", shape->dtype, 2, shape->size, 1, 4.0f);
    if (*filled == TOOL_DONE)
        status = job_softmax(device, &problem, NULL, job);
    softmax_release(&problem);
    return status;
}

static clattn_status layernorm_job(tool_device *device, const tune_shape *shape, tool_job *job, int *filled)
{
    norm_request problem = {.kind = CLATTN_NORM_KIND_LAYER};
    clattn_status status = CLATTN_SUCCESS;
    *filled = bench_array(&problem.x, "x", shape->dtype, 2, shape->size, 1, 4.0f);
    if (*filled == TOOL_DONE)
        *filled = bench_array(&problem.scale, "scale", shape->dtype, 1, &shape->size[1], 2, 1.0f);
    if (*filled == TOOL_DONE)
        *filled = bench_array(&problem.bias, "bias", shape->dtype, 1, &shape->size[1], 3, 1.0f);
    if (*filled == TOOL_DONE)
        status = job_norm(device, &problem, NULL, job);
    norm_release(&problem);
    return status;
}

clattn_status tune_job(tool_device *device, const tune_shape *shape, tool_job *job, bool *complained)
{
    static clattn_status (*const make[TUNE_OPERATORS])(tool_device *, const tune_shape *, tool_job *,
                                                       int *) = {attention_job, matmul_job, softmax_job, layernorm_job};
    int filled;
    clattn_status status = make[shape->operator_index](device, shape, job, &filled);
    *complained = filled != TOOL_DONE;
    return *complained ? CLATTN_ERROR_OUT_OF_MEMORY : status;
}
