/* Calls of the system fail while files are read and written by libclattn-io: the status is that of memory or of
 * files, there is a message, nothing stays open or allocated, a file that was to be replaced is the old one or the
 * new one, and a second attempt succeeds.
 *
 * Holds: io.h, "a function that fails"; the writer's "whole or not at all". */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/files.h"
#include "support/core/inject_run.h"

static const float values[6] = {1, 2, 3, 4, 5, 6};
static const size_t extent[2] = {2, 3};

/* Fails the test unless the status is success, or tells what failed. */
static void check(inject_failure how, clattn_status status, const clattn_io_error *error)
{
    if (status == CLATTN_SUCCESS)
        return;
    assert_non_null(inject_failed());
    assert_one_line(error);
    const char *const memory[] = {"malloc", "calloc", "realloc", "strdup", "posix_memalign", "realpath", "json_malloc"};
    bool of_memory = false;
    for (size_t i = 0; i < COUNT_OF(memory); i++)
        of_memory = of_memory || !strcmp(inject_failed(), memory[i]);
    /* A later call may be the one that is told of. */
    if (how.onward ? status != CLATTN_ERROR_OUT_OF_MEMORY && status != CLATTN_ERROR_IO
                   : status != (of_memory ? CLATTN_ERROR_OUT_OF_MEMORY : CLATTN_ERROR_IO))
        fail_msg("%s failed and gave %d: %s", inject_failed(), (int)status, error->message);
}

/* Replaces what a link points to. */
static void write_npy(void *what, inject_failure how)
{
    const char *path = store("target.npy", "old", 3), *link = path_to("link.npy");
    char contents[512];
    struct stat about;
    clattn_io_error error = {""};
    (void)what;
    unlink(link);
    assert_int_equal(symlink("target.npy", link), 0);
    assert_int_equal(chmod(path, 0640), 0);
    inject_begin_failure(how);
    clattn_status status = clattn_npy_write(link, CLATTN_DTYPE_F32, 2, extent, values, &error);
    inject_stop();
    check(how, status, &error);
    assert_int_equal(lstat(link, &about), 0);
    assert_true(S_ISLNK(about.st_mode));
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0640);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    const size_t bytes = fread(contents, 1, sizeof contents, file);
    fclose(file);
    if (status == CLATTN_SUCCESS)
        assert_true(bytes > sizeof values && !memcmp(contents + bytes - sizeof values, values, sizeof values));
    else
        assert_true(bytes == 3 && !memcmp(contents, "old", 3));
    assert_int_equal(clattn_npy_write(link, CLATTN_DTYPE_F32, 2, extent, values, &error), CLATTN_SUCCESS);
    inject_check_balance(how);
}

static void read_npy(void *what, inject_failure how)
{
    clattn_io_error error = {""};
    clattn_npy *npy = NULL;
    inject_begin_failure(how);
    clattn_status status = clattn_npy_create(what, &npy, &error);
    inject_stop();
    check(how, status, &error);
    assert_int_equal(npy != NULL, status == CLATTN_SUCCESS);
    if (!npy)
        assert_int_equal(clattn_npy_create(what, &npy, &error), CLATTN_SUCCESS);
    const clattn_host_tensor tensor = clattn_npy_tensor(npy);
    assert_memory_equal(tensor.data, values, sizeof values);
    clattn_npy_release(&npy);
    inject_check_balance(how);
}

static void read_safetensors(void *what, inject_failure how)
{
    clattn_io_error error = {""};
    clattn_safetensors *file = NULL;
    clattn_host_tensor tensor;
    inject_begin_failure(how);
    clattn_status status = clattn_safetensors_create(what, &file, &error);
    inject_stop();
    check(how, status, &error);
    assert_int_equal(file != NULL, status == CLATTN_SUCCESS);
    if (!file)
        assert_int_equal(clattn_safetensors_create(what, &file, &error), CLATTN_SUCCESS);
    assert_int_equal(clattn_safetensors_find(file, "b\"", &tensor, &error), CLATTN_SUCCESS);
    assert_memory_equal(tensor.data, values, sizeof values);
    clattn_safetensors_release(&file);
    inject_check_balance(how);
}

static void read_ctranslate2(void *what, inject_failure how)
{
    clattn_io_error error = {""};
    clattn_ctranslate2 *file = NULL;
    clattn_host_tensor tensor;
    inject_begin_failure(how);
    clattn_status status = clattn_ctranslate2_create(what, &file, &error);
    inject_stop();
    check(how, status, &error);
    assert_int_equal(file != NULL, status == CLATTN_SUCCESS);
    if (!file)
        assert_int_equal(clattn_ctranslate2_create(what, &file, &error), CLATTN_SUCCESS);
    assert_int_equal(clattn_ctranslate2_find(file, "x", &tensor, &error), CLATTN_SUCCESS);
    assert_memory_equal(tensor.data, values, sizeof values);
    clattn_ctranslate2_release(&file);
    inject_check_balance(how);
}

static void each(const char *name, void (*attempt)(void *, inject_failure), const char *path)
{
    inject_each(name, (inject_failure){.layer = INJECT_SYSTEM}, 1, attempt, (void *)(uintptr_t)path);
    inject_each(name, (inject_failure){.layer = INJECT_SYSTEM, .onward = true}, 1, attempt, (void *)(uintptr_t)path);
}

static void npy(void **state)
{
    clattn_io_error error;
    const char *path = path_to("values.npy");
    (void)state;
    each("writing .npy", write_npy, NULL);
    assert_int_equal(clattn_npy_write(path, CLATTN_DTYPE_F32, 2, extent, values, &error), CLATTN_SUCCESS);
    each("reading .npy", read_npy, path);
}

static void safetensors(void **state)
{
    static const char header[] = "{\"a\": {\"dtype\": \"F32\", \"shape\": [2, 3], \"data_offsets\": [0, 24]}, "
                                 "\"b\\\"\": {\"dtype\": \"F32\", \"shape\": [6], \"data_offsets\": [24, 48]}} ";
    image made = {{0}, 0};
    (void)state;
    add_number(&made, strlen(header), 8);
    add(&made, header, strlen(header));
    add(&made, values, sizeof values);
    add(&made, values, sizeof values);
    each("reading safetensors", read_safetensors, store("x.safetensors", made.bytes, made.size));
}

static void ctranslate2(void **state)
{
    image made = {{0}, 0};
    (void)state;
    add_number(&made, 6, 4); /* version */
    add_number(&made, 5, 2);
    add(&made, "Spec", 5);
    add_number(&made, 3, 4); /* revision */
    add_number(&made, 1, 4); /* variables */
    add_number(&made, 2, 2);
    add(&made, "x", 2);
    add_number(&made, 1, 1); /* rank */
    add_number(&made, 6, 4);
    add_number(&made, 0, 1); /* float32 */
    add_number(&made, sizeof values, 4);
    add(&made, values, sizeof values);
    add_number(&made, 0, 4); /* aliases */
    each("reading CTranslate2", read_ctranslate2, store("model.bin", made.bytes, made.size));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(npy),
        cmocka_unit_test(safetensors),
        cmocka_unit_test(ctranslate2),
    };
    return cmocka_run_group_tests_name("io_inject", tests, make_folder, remove_folder);
}
