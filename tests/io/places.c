/* What libclattn-io does where no plain file is: pipes, devices, folders and links are refused, written through or left alone, and
 * a written file appears complete or not at all. */
#define _GNU_SOURCE
#include "io/files.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void unopenable_things(void **state)
{
    (void)state;
    clattn_npy *npy;
    clattn_io_error error = {""};
    const char *fifo = path_to("fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_refusal(clattn_npy_create(fifo, &npy, &error), CLATTN_ERROR_IO, &error, "pipe or device", "fifo");
    assert_refusal(clattn_npy_create(test_folder, &npy, &error), CLATTN_ERROR_IO, &error, "folder", "folder");
    assert_refusal(clattn_npy_create("/dev/zero", &npy, &error), CLATTN_ERROR_IO, &error, "device", "device");
    assert_refusal(clattn_npy_create(path_to("none"), &npy, &error), CLATTN_ERROR_IO, &error, "No such", "none");
    assert_refusal(clattn_npy_create("", &npy, &error), CLATTN_ERROR_IO, &error, "No such", "empty path");
    assert_refusal(clattn_npy_create(path_to("a\nb\x1b"), &npy, &error), CLATTN_ERROR_IO, &error, "a?b?", "newline");
    assert_refusal(clattn_npy_create(NULL, &npy, &error), CLATTN_ERROR_INVALID_ARGUMENT, &error, "NULL", "NULL");
    assert_refusal(clattn_npy_create("x", NULL, &error), CLATTN_ERROR_INVALID_ARGUMENT, &error, "NULL", "NULL");
    assert_int_equal(clattn_npy_create("x", NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);

    char longest[3000];
    memset(longest, 'd', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    assert_refusal(clattn_npy_create(longest, &npy, &error), CLATTN_ERROR_IO, &error, "too long", "long name");

    clattn_npy_release(NULL);
    npy = NULL;
    clattn_npy_release(&npy);
    assert_int_equal(clattn_npy_tensor(NULL).dtype, CLATTN_DTYPE_NONE);
    unlink(fifo);
}

static size_t files_in_folder(void)
{
    size_t count = 0;
    DIR *stream = opendir(test_folder);
    assert_non_null(stream);
    while (readdir(stream) != NULL)
        count++;
    closedir(stream);
    return count;
}

static void write_replaces_whole_files(void **state)
{
    (void)state;
    const size_t one = 1, many = 50000;
    const float value = 2.0f;
    float *values = calloc(many, sizeof *values);
    clattn_io_error error = {""};
    struct stat info;
    const char *path = store("target.npy", "old", 3), *link = path_to("link.npy");
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(symlink("target.npy", link), 0);
    size_t files = files_in_folder();

    /* A write that fails half-way leaves the old file and nothing else. */
    struct rlimit limit, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 100000;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    clattn_status status = clattn_npy_write(path, CLATTN_DTYPE_F32, 1, &many, values, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, handler);
    assert_refusal(status, CLATTN_ERROR_IO, &error, "target.npy: cannot be written", "file size limit");
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_size, 3);
    assert_int_equal(files_in_folder(), files);

    /* Writing through a link replaces the file behind it, which keeps its permissions. */
    assert_int_equal(clattn_npy_write(link, CLATTN_DTYPE_F32, 1, &one, &value, &error), CLATTN_SUCCESS);
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
    assert_int_equal(info.st_size, 128 + 4);
    assert_int_equal(files_in_folder(), files);
    free(values);
}

static void write_failures(void **state)
{
    (void)state;
    const size_t one = 1, huge[2] = {SIZE_MAX / 2, 3};
    const float value = 2.0f;
    clattn_io_error error = {""};
    struct stat info;
    const char *path = path_to("never.npy");
    assert_refusal(clattn_npy_write(path_to("no/such/x.npy"), CLATTN_DTYPE_F32, 1, &one, &value, &error),
                   CLATTN_ERROR_IO, &error, "No such file", "missing folder");
    assert_refusal(clattn_npy_write(test_folder, CLATTN_DTYPE_F32, 1, &one, &value, &error), CLATTN_ERROR_IO, &error,
                   "directory", "folder");
    assert_refusal(clattn_npy_write("/dev/full", CLATTN_DTYPE_F32, 1, &one, &value, &error), CLATTN_ERROR_IO, &error,
                   "No space", "full device");
    assert_int_equal(clattn_npy_write("/dev/null", CLATTN_DTYPE_F32, 1, &one, &value, &error), CLATTN_SUCCESS);
    assert_int_equal(stat("/dev/null", &info), 0);
    assert_true(S_ISCHR(info.st_mode)); /* the device was written to and not replaced */

    const clattn_status bad = CLATTN_ERROR_INVALID_ARGUMENT;
    assert_int_equal(clattn_npy_write(NULL, CLATTN_DTYPE_F32, 1, &one, &value, &error), bad);
    assert_int_equal(clattn_npy_write(path, CLATTN_DTYPE_NONE, 1, &one, &value, &error), bad);
    assert_int_equal(clattn_npy_write(path, (clattn_dtype)99, 1, &one, &value, &error), bad);
    assert_int_equal(clattn_npy_write(path, CLATTN_DTYPE_F32, -1, &one, &value, &error), bad);
    assert_int_equal(clattn_npy_write(path, CLATTN_DTYPE_F32, CLATTN_MAX_RANK + 1, &one, &value, &error), bad);
    assert_int_equal(clattn_npy_write(path, CLATTN_DTYPE_F32, 1, NULL, &value, &error), bad);
    assert_int_equal(clattn_npy_write(path, CLATTN_DTYPE_F32, 1, &one, NULL, &error), bad);
    assert_int_equal(clattn_npy_write(path, CLATTN_DTYPE_F32, 2, huge, &value, &error), CLATTN_ERROR_OVERFLOW);
    assert_one_line(&error);
    assert_int_not_equal(stat(path, &info), 0);
    assert_int_equal(clattn_npy_write(path, CLATTN_DTYPE_F32, 0, NULL, &value, NULL), CLATTN_SUCCESS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unopenable_things),
        cmocka_unit_test(write_replaces_whole_files),
        cmocka_unit_test(write_failures),
    };
    return cmocka_run_group_tests_name("io_places", tests, make_folder, remove_folder);
}
