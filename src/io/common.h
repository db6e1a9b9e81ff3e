/* Shared by the readers and the writer: error lines, element types, the product of a shape. */
#ifndef CLATTN_IO_COMMON_H
#define CLATTN_IO_COMMON_H

#include <stdbool.h>

#include "base/printf_like.h"
#include "clattn/io.h"

/* Writes "PATH: what" to `error` (NULL is accepted) as one printable line and returns `status`.  A long path
 * is shortened from its front, so that the rest always fits. */
clattn_status io_fail(clattn_io_error *error, clattn_status status, const char *path, const char *format, ...)
    PRINTF_LIKE(4, 5);

/* An element type and its spelling in the two formats. */
typedef struct io_dtype {
    clattn_dtype dtype;      /* clattn_dtype; CLATTN_DTYPE_NONE for types that clattn has no use for */
    uint32_t size;           /* bytes */
    const char *npy;         /* NULL: the format lacks the type */
    const char *safetensors; /* NULL: the format lacks the type */
} io_dtype;

/* The type with that number or spelling; NULL if there is none. */
const io_dtype *io_dtype_find(clattn_dtype dtype);
const io_dtype *io_dtype_find_npy(const char *descr);
const io_dtype *io_dtype_find_safetensors(const char *name);

/* The bytes of `rank` extents of `size` (not 0) bytes an element; false if they are over INT64_MAX or
 * SIZE_MAX. A zero among the extents makes *bytes 0, but the others must fit all the same, as strides are
 * made of them. */
bool io_shape_bytes(size_t rank, const size_t *extent, size_t size, size_t *bytes);

#endif
