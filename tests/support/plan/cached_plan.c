#include "support/plan/cached_plan.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

enum { HEADS = 1, QUERIES = 3, KEYS = 4, SIZE = 4, SIZES = 4 };

char cache_folder[FOLDER_SIZE];
clattn_context_params cache_params;

int empty_cache(void **state)
{
    (void)state;
    new_folder(cache_folder);
    clattn_context_params_init(&cache_params);
    cache_params.cache_dir = cache_folder;
    cache_params.cache_mode = CLATTN_CACHE_MODE_ON;
    return 0;
}

struct outcome cached_plan(const clattn_context_params *params, int variant)
{
    float q[HEADS * QUERIES * SIZE * SIZES], k[HEADS * KEYS * SIZE * SIZES], v[HEADS * KEYS * SIZE * SIZES];
    float expected[HEADS * QUERIES * SIZE * SIZES], got[HEADS * QUERIES * SIZE * SIZES];
    const size_t size = (size_t)(SIZE * (1 + variant));
    assert_true(variant >= 0 && variant < SIZES);
    fill_floats(q, sizeof q / sizeof *q, 11);
    fill_floats(k, sizeof k / sizeof *k, 12);
    fill_floats(v, sizeof v / sizeof *v, 13);
    expected_attention(HEADS, QUERIES, KEYS, size, size, false, q, k, v, expected);

    clattn_context *context = new_context_with(params);
    cl_context opencl = clattn_context_opencl_context(context);
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    clattn_program_statistics made = {.size = sizeof made}, after = {.size = sizeof after};
    clattn_plan *plan = NULL;
    const char *reason = NULL;
    desc.query = desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, HEADS, QUERIES, size);
    desc.key = desc.value = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, HEADS, KEYS, size);
    options.solver = "generic";
    assert_status(context, clattn_attention_plan_create(context, &desc, &options, &plan), CLATTN_SUCCESS);
    assert_status(context, clattn_context_program_statistics(context, &made), CLATTN_SUCCESS);
    cl_mem query = new_buffer(opencl, CL_MEM_READ_ONLY, sizeof q, q);
    cl_mem key = new_buffer(opencl, CL_MEM_READ_ONLY, sizeof k, k);
    cl_mem value = new_buffer(opencl, CL_MEM_READ_ONLY, sizeof v, v);
    cl_mem output = new_buffer(opencl, CL_MEM_WRITE_ONLY, sizeof got, NULL);
    args.query = clattn_binding_buffer(query, 0);
    args.key = clattn_binding_buffer(key, 0);
    args.value = clattn_binding_buffer(value, 0);
    args.output = clattn_binding_buffer(output, 0);
    assert_status(context, clattn_attention_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    read_buffer(clattn_context_queue(context), output, sizeof got, got);
    assert_true(largest_difference(got, expected, HEADS * QUERIES * size) <= 2e-6);
    assert_status(context, clattn_context_program_statistics(context, &after), CLATTN_SUCCESS);
    assert_memory_equal(&made, &after, sizeof made); /* enqueue never compiles */

    struct outcome outcome = {.built = made.built, .loaded = made.loaded, .refused = made.refused};
    outcome.has_folder = clattn_context_cache_dir(context, &reason) != NULL;
    assert_true(outcome.has_folder || (reason && strlen(reason) > 4));
    clReleaseMemObject(query);
    clReleaseMemObject(key);
    clReleaseMemObject(value);
    clReleaseMemObject(output);
    clattn_plan_release(&plan);
    release_context(&context);
    return outcome;
}

void cached_plan_gives(const clattn_context_params *params, int variant, unsigned long long built,
                       unsigned long long loaded, unsigned long long refused, const char *file, int line)
{
    struct outcome outcome = cached_plan(params, variant);
    if (outcome.built == built && outcome.loaded == loaded && outcome.refused == refused)
        return;
    print_error("programs: built %llu, loaded %llu, refused %llu; expected %llu, %llu, %llu\n", outcome.built,
                outcome.loaded, outcome.refused, built, loaded, refused);
    _fail(file, line);
}

int cached_files(const char *path, char name[FOLDER_SIZE])
{
    int count = 0;
    DIR *stream = opendir(path);
    assert_non_null(stream);
    for (struct dirent *entry = readdir(stream); entry; entry = readdir(stream))
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..")) {
            count++;
            if (name)
                snprintf(name, FOLDER_SIZE, "%.*s/%.256s", FOLDER_SIZE - 300, path, entry->d_name);
        }
    closedir(stream);
    return count;
}
