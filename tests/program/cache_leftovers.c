/* Opening the cache's folder removes what processes that were killed a day ago left there, and nothing else. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "program/binary_cache.h"
#include "support/check.h"

static void old_temporary_files_are_removed(void **state)
{
    static const struct {
        const char *name;
        int hours; /* since it was changed */
        bool stays;
    } files[] = {
        {".0123456789abcdef.tmp", 25, false},
        {".fedcba9876543210.tmp", 23, true},
        {".0123456789abcdef0.tmp", 25, true},
        {".0123456789abcde.tmp", 25, true},
        {".0123456789ABCDEF.tmp", 25, true},
        {"0123456789abcdef.tmp", 25, true},
        {"wisdom", 25, true},
        {"mine.tmp", 25, true},
    };
    const char *temporary = getenv("TMPDIR");
    char folder[256], path[384];
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    struct binary_cache opened;
    (void)state;
    snprintf(folder, sizeof folder, "%s/clattn-entry-XXXXXX", temporary ? temporary : "/tmp");
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        const struct timespec then = {.tv_sec = time(NULL) - files[i].hours * 3600}, times[] = {then, then};
        snprintf(path, sizeof path, "%s/%s", folder, files[i].name);
        int file = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
        assert_true(file >= 0 && futimens(file, times) == 0 && close(file) == 0);
    }
    params.cache_mode = CLATTN_CACHE_MODE_ON;
    params.cache_dir = folder;
    assert_int_equal(binary_cache_open(&opened, NULL, &params), CLATTN_SUCCESS);
    assert_true(opened.folder >= 0);
    binary_cache_close(&opened);
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i].name);
        if ((unlink(path) == 0) != files[i].stays)
            fail_msg("%s of %d hours ago %s", files[i].name, files[i].hours,
                     files[i].stays ? "is gone" : "is still there");
    }
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(old_temporary_files_are_removed)};
    return cmocka_run_group_tests_name("cache_leftovers", tests, NULL, NULL);
}
