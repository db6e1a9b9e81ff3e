/* The operating system's files, for the readers and the writer: the only part of src/io that calls it. */
#ifndef CLATTN_IO_OS_FILE_H
#define CLATTN_IO_OS_FILE_H

#include "io/common.h"

/* A regular file open for reading.  Initialise with OS_FILE_INIT; os_file_close accepts that. */
typedef struct os_file {
    int fd;
    size_t size;      /* when it was opened */
    const char *path; /* borrowed, for messages */
} os_file;

#define OS_FILE_INIT {-1, 0, NULL}

/* Opens `path` for reading and takes its size.  CLATTN_ERROR_IO for whatever is not a regular file (a pipe is
 * refused, never waited for), CLATTN_ERROR_OVERFLOW for one larger than the address space. */
clattn_status os_file_open(os_file *file, const char *path, clattn_io_error *error);

/* Reads exactly `bytes` bytes at `offset`. CLATTN_ERROR_IO also if the file has become shorter. */
clattn_status os_file_read(const os_file *file, size_t offset, void *target, size_t bytes, clattn_io_error *error);

/* Maps the first `file->size` bytes (not 0) read-only.  The mapping outlives the file's handle. */
clattn_status os_file_map(const os_file *file, const void **address, clattn_io_error *error);

/* Undoes os_file_map; NULL is accepted. */
void os_file_unmap(const void *address, size_t bytes);

void os_file_close(os_file *file);

/* One run of bytes to write. */
typedef struct os_part {
    const void *data;
    size_t bytes;
} os_part;

/* Makes the parts, one after the other, the contents of the file at `path`, as clattn_npy_write promises. */
clattn_status os_file_replace(const char *path, const os_part *parts, size_t count, clattn_io_error *error);

/* Removes the temporary files of this process's calls of os_file_replace.  It is for a signal handler that ends the process,
 * and calls nothing that a handler may not call.  On Windows, which removes them by itself, there is none. */
void os_file_remove_temporaries(void);

/* Does what aligned_alloc does for 64-byte alignment, for any number of bytes but 0.  os_free_aligned releases the
 * memory; it accepts NULL. */
void *os_alloc_aligned(size_t bytes);
void os_free_aligned(void *memory);

#endif
