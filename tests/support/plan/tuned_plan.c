#include "support/plan/tuned_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tuned tuned;

int tuned_start(void **state)
{
    (void)state;
    new_folder(tuned.folder);
    clattn_context_params_init(&tuned.params);
    tuned.params.cache_dir = tuned.folder;
    tuned.params.cache_mode = CLATTN_CACHE_MODE_ON;
    tuned.params.log_level = CLATTN_LOG_LEVEL_NONE;
    tuned.context = new_context_with(&tuned.params);
    clattn_matmul_desc_init(&tuned.desc);
    tuned.desc.a = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){TUNED_M, TUNED_K});
    tuned.desc.b = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){TUNED_K, TUNED_N});
    tuned.desc.c = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){TUNED_M, TUNED_N});
    return 0;
}

int tuned_stop(void **state)
{
    (void)state;
    release_context(&tuned.context);
    return 0;
}

clattn_status tuned_make(clattn_context *in, const char *solver, const char *tuning, clattn_plan **plan)
{
    clattn_plan_options options = {.size = sizeof options, .solver = solver, .tuning = tuning};
    return clattn_matmul_plan_create(in, &tuned.desc, &options, plan);
}

clattn_plan *tuned_plan(clattn_context *in, const char *solver, const char *tuning)
{
    clattn_plan *plan = NULL;
    assert_status(in, tuned_make(in, solver, tuning, &plan), CLATTN_SUCCESS);
    return plan;
}

void tuned_check(clattn_context *in, clattn_plan *plan)
{
    float a[TUNED_M * TUNED_K], b[TUNED_K * TUNED_N], c[TUNED_M * TUNED_N];
    clattn_matmul_args args = CLATTN_MATMUL_ARGS_INIT;
    cl_context opencl = clattn_context_opencl_context(in);
    fill_floats(a, TUNED_M * TUNED_K, 1);
    fill_floats(b, TUNED_K * TUNED_N, 2);
    cl_mem buffers[3] = {new_buffer(opencl, CL_MEM_READ_ONLY, sizeof a, a),
                         new_buffer(opencl, CL_MEM_READ_ONLY, sizeof b, b),
                         new_buffer(opencl, CL_MEM_READ_WRITE, sizeof c, NULL)};
    args.a = clattn_binding_buffer(buffers[0], 0);
    args.b = clattn_binding_buffer(buffers[1], 0);
    args.c = clattn_binding_buffer(buffers[2], 0);
    assert_status(in, clattn_matmul_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    read_buffer(clattn_context_queue(in), buffers[2], sizeof c, c);
    for (int i = 0; i < TUNED_M; i++)
        for (int j = 0; j < TUNED_N; j++) {
            double sum = 0;
            for (int k = 0; k < TUNED_K; k++)
                sum += (double)a[i * TUNED_K + k] * b[k * TUNED_N + j];
            if (!(sum - c[i * TUNED_N + j] < 1e-5 && c[i * TUNED_N + j] - sum < 1e-5))
                fail_msg("c[%d, %d] is %g, not %g\n%s", i, j, c[i * TUNED_N + j], sum, clattn_plan_explain(plan));
        }
    for (int i = 0; i < 3; i++)
        clReleaseMemObject(buffers[i]);
}

bool tuned_says(const clattn_plan *plan, const char *part)
{
    return strstr(clattn_plan_explain(plan), part) != NULL;
}

char *tuned_export(clattn_context *in)
{
    size_t bytes = 0, again = 0;
    assert_status(in, clattn_wisdom_export(in, NULL, 0, &bytes), CLATTN_SUCCESS);
    char *text = calloc(1, bytes + 1);
    assert_non_null(text);
    assert_status(in, clattn_wisdom_export(in, text, bytes, &again), CLATTN_SUCCESS);
    assert_int_equal(bytes, again);
    assert_int_equal(strlen(text), bytes);
    return text;
}

clattn_status tuned_import(clattn_context *in, const char *text)
{
    return clattn_wisdom_import(in, text, strlen(text), NULL);
}

char *tuned_exchanged(const char *text, const char *old, const char *new)
{
    const char *at = strstr(text, old);
    if (!at)
        fail_msg("\"%s\" is not in %s", old, text);
    char *result = calloc(1, strlen(text) + strlen(new) + 1);
    assert_non_null(result);
    sprintf(result, "%.*s%s%s", (int)(at - text), text, new, at + strlen(old));
    return result;
}

char *tuned_learnt(clattn_context *in)
{
    clattn_plan *plan = tuned_plan(in, "cpu", "tiles=1");
    assert_says(plan, "geometry by the caller:", true);
    assert_says(plan, " tiles=1", true);
    char *before = tuned_export(in);
    assert_null(strstr(before, clattn_wisdom_key(plan)));
    free(before);
    assert_status(in, clattn_wisdom_learn(plan, 0, 1234567), CLATTN_SUCCESS);
    char *after = tuned_export(in);
    assert_non_null(strstr(after, clattn_wisdom_key(plan)));
    clattn_plan_release(&plan);
    return after;
}

void tuned_file(char path[FOLDER_SIZE + 8])
{
    snprintf(path, FOLDER_SIZE + 8, "%s/wisdom", tuned.folder);
}

bool tuned_serves(const clattn_context_params *with)
{
    clattn_context *other = new_context_with(with);
    clattn_plan *plan = tuned_plan(other, NULL, NULL);
    bool wise = tuned_says(plan, "geometry by wisdom:");
    tuned_check(other, plan);
    clattn_plan_release(&plan);
    release_context(&other);
    return wise;
}
