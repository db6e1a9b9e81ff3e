#include <stdio.h>
#include <string.h>

#include "io/os_file.h"

/* Magic, version, length and dictionary; five extents of 20 digits fit in with much to spare. */
#define HEADER_CAPACITY 256
#define PREFIX 10
#define ALIGNMENT 64

/* Version 1.0: the dictionary as NumPy prints it, then spaces and a newline up to a multiple of ALIGNMENT. */
static size_t make_header(char *header, const io_dtype *type, size_t rank, const size_t *extent)
{
    size_t used = PREFIX;
    used += (size_t)snprintf(header + used, HEADER_CAPACITY - used,
                             "{'descr': '%s', 'fortran_order': False, 'shape': (", type->npy);
    for (size_t i = 0; i < rank; i++)
        used += (size_t)snprintf(header + used, HEADER_CAPACITY - used, "%s%zu%s", i == 0 ? "" : " ", extent[i],
                                 i + 1 < rank || rank == 1 ? "," : "");
    used += (size_t)snprintf(header + used, HEADER_CAPACITY - used, "), }");
    while ((used + 1) % ALIGNMENT != 0)
        header[used++] = ' ';
    header[used++] = '\n';

    memcpy(header, "\x93NUMPY\x01\x00", 8);
    header[8] = (char)((used - PREFIX) & 0xff);
    header[9] = (char)((used - PREFIX) >> 8);
    return used;
}

clattn_status clattn_npy_write(const char *path, clattn_dtype dtype, int32_t rank, const size_t *extent,
                               const void *data, clattn_io_error *error)
{
    if (path == NULL)
        return io_fail(error, CLATTN_ERROR_INVALID_ARGUMENT, "npy file", "its path is NULL");
    const io_dtype *type = io_dtype_find(dtype);
    if (type == NULL)
        return io_fail(error, CLATTN_ERROR_INVALID_ARGUMENT, path, "dtype %d is none that can be written", (int)dtype);
    if (rank < 0 || rank > CLATTN_MAX_RANK || (rank > 0 && extent == NULL))
        return io_fail(error, CLATTN_ERROR_INVALID_ARGUMENT, path, "rank %d %s, expected 0 to %d extents", (int)rank,
                       extent == NULL ? "without extents" : "", CLATTN_MAX_RANK);
    size_t bytes;
    if (!io_shape_bytes((size_t)rank, extent, type->size, &bytes))
        return io_fail(error, CLATTN_ERROR_OVERFLOW, path, "the product of its extents overflows");
    if (bytes > 0 && data == NULL)
        return io_fail(error, CLATTN_ERROR_INVALID_ARGUMENT, path, "no data given, expected %zu bytes", bytes);

    char header[HEADER_CAPACITY];
    os_part parts[2] = {{header, make_header(header, type, (size_t)rank, extent)}, {data, bytes}};
    return os_file_replace(path, parts, 2, error);
}
