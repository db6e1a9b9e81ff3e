#include "support/plan/cached_plan.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "support/attention/small.h"

char cache_folder[FOLDER_SIZE];
clattn_context_params cache_params;

int empty_cache(void **state)
{
    (void)state;
    new_folder(cache_folder);
    clattn_context_params_init(&cache_params);
    cache_params.cache_dir = cache_folder;
    cache_params.cache_mode = CLATTN_CACHE_MODE_ON;
    cache_params.save_mode = CLATTN_SAVE_MODE_RELEASE;
    return 0;
}

struct outcome cached_plan(const clattn_context_params *params, int variant)
{
    struct small_attention problem;
    clattn_plan_options options = {.size = sizeof options, .solver = "generic"};
    const size_t size = 4 * (size_t)(1 + variant);
    clattn_plan *plan = NULL;
    const char *reason = NULL;
    clattn_context *context = new_context_with(params);
    small_attention_prepare_sized(&problem, size, size);
    small_attention_buffers(&problem, clattn_context_opencl_context(context));
    assert_status(context, clattn_attention_plan_create(context, &problem.desc, &options, &plan), CLATTN_SUCCESS);
    const clattn_program_statistics made = programs_of(context);
    assert_status(context, clattn_attention_enqueue(plan, NULL, &problem.args, 0, NULL, NULL), CLATTN_SUCCESS);
    small_attention_check(&problem, clattn_context_queue(context));
    const clattn_program_statistics after = programs_of(context);
    assert_memory_equal(&made, &after, sizeof made); /* enqueue never compiles */

    struct outcome outcome = {.built = made.built, .loaded = made.loaded, .refused = made.refused};
    outcome.has_folder = clattn_context_cache_dir(context, &reason) != NULL;
    assert_true(outcome.has_folder || (reason && strlen(reason) > 4));
    small_attention_release(&problem);
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
