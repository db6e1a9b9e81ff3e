#define _GNU_SOURCE
#include "io/files.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/suite.h"

char test_folder[TEST_FOLDER];

int make_folder(void **state)
{
    const char *parent = getenv("TMPDIR");
    (void)state;
    if (parent == NULL || *parent == '\0')
        parent = ".";
    int length = snprintf(test_folder, sizeof test_folder, "%s/clattn-test-io-XXXXXX", parent);
    return length < TEST_FOLDER && mkdtemp(test_folder) != NULL ? 0 : -1;
}

int remove_folder(void **state)
{
    (void)state;
    DIR *stream = opendir(test_folder);
    for (struct dirent *entry; stream != NULL && (entry = readdir(stream)) != NULL;)
        unlink(path_to(entry->d_name));
    if (stream != NULL)
        closedir(stream);
    return rmdir(test_folder);
}

const char *path_to(const char *name)
{
    static char paths[8][TEST_FOLDER + 256];
    static unsigned turn;
    char *path = paths[turn++ % COUNT_OF(paths)];
    snprintf(path, sizeof paths[0], "%s/%s", test_folder, name);
    return path;
}

const char *store(const char *name, const void *data, size_t bytes)
{
    const char *path = path_to(name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
    return path;
}

void add(image *to, const void *data, size_t bytes)
{
    assert_true(to->size + bytes <= sizeof to->bytes);
    memcpy(to->bytes + to->size, data, bytes);
    to->size += bytes;
}

void add_number(image *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)(value >> 8 * i);
        add(to, &byte, 1);
    }
}

void assert_one_line(const clattn_io_error *error)
{
    assert_non_null(memchr(error->message, '\0', sizeof error->message));
    assert_true(strlen(error->message) > 10);
    for (const char *c = error->message; *c != '\0'; c++)
        assert_true((unsigned char)*c >= 0x20);
}

void assert_refusal(clattn_status got, clattn_status wanted, const clattn_io_error *error, const char *part,
                    const char *what)
{
    if (got != wanted || strstr(error->message, part) == NULL)
        fail_msg("%s: status %d, expected %d; message '%s', expected '%s'", what, (int)got, (int)wanted,
                 got != CLATTN_SUCCESS ? error->message : "", part);
    assert_one_line(error);
}

static void overwrite(const char *path, size_t offset, unsigned char byte)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)offset, SEEK_SET), 0);
    assert_int_equal(fwrite(&byte, 1, 1, file), 1);
    assert_int_equal(fclose(file), 0);
}

void check_truncation(const image *file, file_check check)
{
    bool accepted;
    unsigned char longer[sizeof file->bytes + 1] = {0};
    memcpy(longer, file->bytes, file->size);
    check(store("whole", longer, file->size), file->size, &accepted);
    assert_true(accepted);
    for (size_t size = 0; size <= file->size + 1; size++)
        if (size != file->size) {
            check(store("short", longer, size), size, &accepted);
            if (accepted)
                fail_msg("%zu bytes of %zu were accepted", size, file->size);
        }
}

void check_corruption(const image *file, size_t header_bytes, file_check check)
{
    /* Sanitizers make opening a file ten times slower, and run at level tiny in the quick run. */
    const unsigned step = is_tiny() ? 7 : 1;
    size_t taken = 0, tried = 0;
    const char *path = store("corrupt", file->bytes, file->size);
    for (size_t at = 0; at < header_bytes; at++) {
        for (unsigned value = at % step; value < 256; value += step) {
            bool accepted;
            if (value == file->bytes[at])
                continue;
            overwrite(path, at, (unsigned char)value);
            check(path, file->size, &accepted);
            taken += accepted;
            tried++;
        }
        overwrite(path, at, file->bytes[at]);
    }
    print_message("           %zu of %zu corrupted headers are still consistent files\n", taken, tried);
}
