/* What the tests of libclattn-io share: a folder of their own, files made byte by byte, and the checks that
 * every broken file must pass. */
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

/* Group set-up and tear-down: the folder is made, in TMPDIR or the current one, and removed with what is in it. */
#define TEST_FOLDER 256
extern char test_folder[TEST_FOLDER];
int make_folder(void **state);
int remove_folder(void **state);

/* A path in that folder; eight are valid at a time. */
const char *path_to(const char *name);

/* Writes a file there and returns its path. */
const char *store(const char *name, const void *data, size_t bytes);

/* A file's image under construction. */
typedef struct image {
    unsigned char bytes[4096];
    size_t size;
} image;

void add(image *to, const void *data, size_t bytes);
void add_number(image *to, uint64_t value, int bytes); /* little-endian */

/* The message is one printable, terminated line. */
void assert_one_line(const clattn_io_error *error);

/* The status is `wanted` and the message has `part`; `what` names the case. */
void assert_refusal(clattn_status got, clattn_status wanted, const clattn_io_error *error, const char *part,
                    const char *what);

/* Opens a file that may be broken in any way: fails the test unless there is a clean failure, or a result
 * that is consistent with the file's size. */
typedef void (*file_check)(const char *path, size_t file_size, bool *accepted);

/* Every shorter prefix of the file is refused, and so is the file with one byte more. */
void check_truncation(const image *file, file_check check);

/* Every value of every byte of the header passes `check`. */
void check_corruption(const image *file, size_t header_bytes, file_check check);

#endif
