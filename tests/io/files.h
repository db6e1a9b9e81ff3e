/* Shared by the tests of libclattn-io: a folder, files made byte by byte, and checks that every broken file must
 * pass. */
#ifndef TESTS_IO_FILES_H
#define TESTS_IO_FILES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "clattn/io.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Group set-up and tear-down, which make the folder, in TMPDIR or the current folder, and remove it with its
 * contents. */
#define TEST_FOLDER 256
extern char test_folder[TEST_FOLDER];
int make_folder(void **state);
int remove_folder(void **state);

/* Returns a path in that folder; the last eight stay valid. */
const char *path_to(const char *name);

/* Writes a file there and returns its path. */
const char *store(const char *name, const void *data, size_t bytes);

/* The image of a file while it is made. */
typedef struct image {
    unsigned char bytes[4096];
    size_t size;
} image;

void add(image *to, const void *data, size_t bytes);
void add_number(image *to, uint64_t value, int bytes); /* little-endian */

/* Fails the test unless the message is one printable, terminated line. */
void assert_one_line(const clattn_io_error *error);

/* Fails the test unless the status is `wanted` and the message contains `part`; `what` names the case. */
void assert_refusal(clattn_status got, clattn_status wanted, const clattn_io_error *error, const char *part,
                    const char *what);

/* Opens a file that may be broken in any way; fails the test unless the result is a proper failure or is consistent
 * with the file's size. */
typedef void (*file_check)(const char *path, size_t file_size, bool *accepted);

/* Fails the test unless every shorter prefix of the file is refused, and the file with one more byte too. */
void check_truncation(const image *file, file_check check);

/* Runs `check` with every byte of the header set to every other value, at level tiny to every seventh. */
void check_corruption(const image *file, size_t header_bytes, file_check check);

#endif
