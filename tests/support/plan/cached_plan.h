/* Makes and runs one small plan and reports what the program cache did for it; shared by the tests of the cache. */
#ifndef TESTS_SUPPORT_PLAN_CACHED_PLAN_H
#define TESTS_SUPPORT_PLAN_CACHED_PLAN_H

#include "support/harness.h"

struct outcome {
    unsigned long long built, loaded, refused;
    bool has_folder; /* the disk cache is on */
};

/* Makes a context from `params` and an attention plan by the generic solver, whose head size, and so its program,
 * depends on `variant`, and runs it.  Fails the test if the result is wrong, if the enqueue compiled anything, or if a
 * cache that is off has no reason. */
struct outcome cached_plan(const clattn_context_params *params, int variant);

/* Fails the test unless cached_plan gives these counts. */
void cached_plan_gives(const clattn_context_params *params, int variant, unsigned long long built,
                       unsigned long long loaded, unsigned long long refused, const char *file, int line);
#define assert_programs(params, variant, built, loaded, refused) \
    cached_plan_gives((params), (variant), (built), (loaded), (refused), __FILE__, __LINE__)

/* A cmocka set-up: makes cache_folder a new folder, and cache_params those of a context that caches there. */
extern char cache_folder[FOLDER_SIZE];
extern clattn_context_params cache_params;
int empty_cache(void **state);

/* Returns the number of files in a folder, and the path of the last one unless `name` is NULL. */
int cached_files(const char *path, char name[FOLDER_SIZE]);

#endif
