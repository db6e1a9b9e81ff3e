/* The on-disk cache is its user's alone: what others may have written, or what is no plain file, never reaches the driver, and
 * an unsafe or missing folder turns the cache off and changes nothing else. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/plan/cached_plan.h"

static void entries_are_private_and_reused(void **state)
{
    char entry[FOLDER_SIZE];
    struct stat about;
    (void)state;
    needs_saved_programs();
    assert_programs(&cache_params, 0, 1, 0, 0);
    assert_int_equal(cached_files(cache_folder, entry), 1); /* there is no temporary file beside it */
    assert_int_equal(lstat(entry, &about), 0);
    assert_true(S_ISREG(about.st_mode));
    assert_int_equal(about.st_mode & 0777, 0600);
    assert_programs(&cache_params, 0, 0, 1, 0);
    assert_programs(&cache_params, 1, 1, 0, 0); /* another specialisation has its own entry */
    assert_programs(&cache_params, 0, 0, 1, 0);
    assert_programs(&cache_params, 1, 0, 1, 0);
    assert_int_equal(cached_files(cache_folder, NULL), 2);
}

/* Anything in an entry's place that is not the user's plain file is not read, not followed, and does not hang the
 * library. */
static void strange_things_in_an_entrys_place_are_not_read(void **state)
{
    char entry[FOLDER_SIZE], target[FOLDER_SIZE];
    size_t bytes;
    (void)state;
    needs_saved_programs();
    assert_programs(&cache_params, 0, 1, 0, 0);
    assert_int_equal(cached_files(cache_folder, entry), 1);
    unsigned char *good = read_file(entry, &bytes);
    alarm(120);
    new_folder(target);
    strncat(target, "/target", sizeof target - strlen(target) - 1);
    write_file(target, good, bytes, 0600);
    for (int round = 0; round < 4; round++) {
        remove(entry);
        if (round == 0)
            assert_int_equal(symlink(target, entry), 0);
        else if (round == 1)
            assert_int_equal(mkfifo(entry, 0600), 0);
        else if (round == 2)
            assert_int_equal(mkdir(entry, 0700), 0);
        else
            assert_int_equal(symlink("/dev/zero", entry), 0);
        struct outcome outcome = cached_plan(&cache_params, 0);
        assert_int_equal(outcome.built, 1);
        assert_int_equal(outcome.loaded, 0);
    }
    remove(entry);
    write_file(entry, good, bytes, 0600);
    assert_int_equal(chmod(entry, 0666), 0); /* any user may have written the file */
    struct outcome outcome = cached_plan(&cache_params, 0);
    assert_int_equal(outcome.built, 1);
    assert_int_equal(outcome.loaded, 0);
    size_t still;
    unsigned char *kept = read_file(target, &still);
    assert_int_equal(still, bytes); /* the link's target has not been written */
    assert_memory_equal(kept, good, bytes);
    alarm(0);
    free(kept);
    free(good);
}

/* Fails the test unless the cache is off, the computation succeeded, and nothing was written to `path` (NULL: not
 * checked). */
static void expect_off(const char *path)
{
    struct outcome outcome = cached_plan(&cache_params, 0);
    assert_false(outcome.has_folder);
    assert_int_equal(outcome.built, 1);
    if (path)
        assert_int_equal(cached_files(path, NULL), 0);
}

static void unsafe_folders_turn_the_cache_off(void **state)
{
    char link[FOLDER_SIZE + 16];
    (void)state;
    needs_saved_programs();
    snprintf(link, sizeof link, "%s.link", cache_folder);
    assert_int_equal(symlink(cache_folder, link), 0);
    cache_params.cache_dir = link;
    expect_off(cache_folder);
    remove(link);
    cache_params.cache_dir = cache_folder;
    const mode_t writable[] = {0770, 0720, 0707, 0702, 0777, 01777};
    for (size_t i = 0; i < sizeof writable / sizeof *writable; i++) {
        assert_int_equal(chmod(cache_folder, writable[i]), 0);
        expect_off(cache_folder);
    }
    const mode_t readable[] = {0755, 0750, 0711}; /* others may read the folder */
    for (size_t i = 0; i < sizeof readable / sizeof *readable; i++) {
        assert_int_equal(chmod(cache_folder, readable[i]), 0);
        assert_true(cached_plan(&cache_params, 0).has_folder);
        char entry[FOLDER_SIZE];
        assert_int_equal(cached_files(cache_folder, entry), 1);
        remove(entry);
    }
    assert_int_equal(chmod(cache_folder, 0700), 0);
    if (geteuid() == 0) { /* only root can give the folder to another user */
        assert_int_equal(chown(cache_folder, 65534, 65534), 0);
        expect_off(cache_folder);
        assert_int_equal(chown(cache_folder, geteuid(), getegid()), 0);
    }
    cached_plan(&cache_params, 0);
    assert_int_equal(cached_files(cache_folder, NULL), 1); /* the folder works again */
}

static void folders_that_cannot_be_used_turn_the_cache_off(void **state)
{
    char file[FOLDER_SIZE + 16], inside[FOLDER_SIZE + 32];
    (void)state;
    snprintf(file, sizeof file, "%s/file", cache_folder);
    write_file(file, "x", 1, 0600);
    const char *const places[] = {"/proc/clattn/cache", "relative/path", "", file, inside, "/dev/null"};
    snprintf(inside, sizeof inside, "%s/below", file);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        cache_params.cache_dir = places[i];
        expect_off(NULL);
    }
    assert_int_equal(access("relative", F_OK), -1);
    remove(file);
    /* The folder is read-only; root may write to it anyway, so that only the build is certain. */
    cache_params.cache_dir = cache_folder;
    assert_int_equal(chmod(cache_folder, 0500), 0);
    struct outcome outcome = cached_plan(&cache_params, 0);
    assert_int_equal(outcome.built, 1);
    assert_int_equal(chmod(cache_folder, 0700), 0);
    if (geteuid() != 0)
        assert_int_equal(cached_files(cache_folder, NULL), 0);
}

static void missing_folders_are_made_private(void **state)
{
    char path[FOLDER_SIZE + 16];
    struct stat about;
    (void)state;
    needs_saved_programs();
    const mode_t mask = umask(0);
    snprintf(path, sizeof path, "%s/a/b/c", cache_folder);
    cache_params.cache_dir = path;
    assert_programs(&cache_params, 0, 1, 0, 0);
    umask(mask);
    assert_programs(&cache_params, 0, 0, 1, 0);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0700);
}

static void the_environment_chooses_where_params_leave_a_choice(void **state)
{
    char below[FOLDER_SIZE + 32];
    (void)state;
    needs_saved_programs();
    saved_variable saved[] = {variable_save("CLATTN_CACHE"), variable_save("CLATTN_CACHE_DIR"),
                              variable_save("XDG_CACHE_HOME"), variable_save("HOME")};
    unsetenv("CLATTN_CACHE");
    unsetenv("CLATTN_CACHE_DIR");
    unsetenv("XDG_CACHE_HOME");
    cached_plan(NULL, 0); /* the driver's own cache may be below HOME: fill it while HOME is set */

    clattn_context_params_init(&cache_params);
    cache_params.save_mode = CLATTN_SAVE_MODE_RELEASE;
    unsetenv("HOME");
    assert_false(cached_plan(&cache_params, 0).has_folder);
    setenv("XDG_CACHE_HOME", "relative", 1); /* the XDG specification has relative paths ignored */
    assert_false(cached_plan(&cache_params, 0).has_folder);
    setenv("XDG_CACHE_HOME", cache_folder, 1);
    snprintf(below, sizeof below, "%s/clattn", cache_folder);
    assert_true(cached_plan(&cache_params, 0).has_folder);
    assert_int_equal(cached_files(below, NULL), 1);
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", cache_folder, 1);
    snprintf(below, sizeof below, "%s/.cache/clattn", cache_folder);
    assert_true(cached_plan(&cache_params, 0).has_folder);
    assert_int_equal(cached_files(below, NULL), 1);
    snprintf(below, sizeof below, "%s/own", cache_folder);
    setenv("CLATTN_CACHE_DIR", below, 1);
    assert_true(cached_plan(&cache_params, 0).has_folder);
    assert_int_equal(cached_files(below, NULL), 1);

    setenv("CLATTN_CACHE", "off", 1);
    assert_false(cached_plan(&cache_params, 1).has_folder);
    assert_int_equal(cached_files(below, NULL), 1);
    cache_params.cache_mode = CLATTN_CACHE_MODE_ON; /* the field wins over the variable */
    assert_true(cached_plan(&cache_params, 1).has_folder);
    assert_int_equal(cached_files(below, NULL), 2);
    unsetenv("CLATTN_CACHE");
    cache_params.cache_mode = CLATTN_CACHE_MODE_OFF;
    assert_false(cached_plan(&cache_params, 2).has_folder);
    assert_int_equal(cached_files(below, NULL), 2);
    for (size_t i = 0; i < COUNT_OF(saved); i++)
        variable_restore(&saved[i]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(entries_are_private_and_reused, empty_cache),
        cmocka_unit_test_setup(strange_things_in_an_entrys_place_are_not_read, empty_cache),
        cmocka_unit_test_setup(unsafe_folders_turn_the_cache_off, empty_cache),
        cmocka_unit_test_setup(folders_that_cannot_be_used_turn_the_cache_off, empty_cache),
        cmocka_unit_test_setup(missing_folders_are_made_private, empty_cache),
        cmocka_unit_test_setup(the_environment_chooses_where_params_leave_a_choice, empty_cache),
    };
    return RUN_TESTS("cache_private", tests, argc, argv);
}
