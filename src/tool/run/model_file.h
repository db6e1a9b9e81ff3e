/* Readers of the small files beside a model's weights. */
#ifndef CLATTN_TOOL_RUN_MODEL_FILE_H
#define CLATTN_TOOL_RUN_MODEL_FILE_H

#include <stdbool.h>

#include <jansson.h>

#include <clattn/io.h>

typedef struct model_path {
    char text[4096];
} model_path;

/* Writes the path of a file in a model's folder; false if it is too long. */
bool model_path_in(const char *folder, const char *name, model_path *path);

/* Reads a regular file of at most `most` bytes and adds a NUL; the caller frees *text.
 * CLATTN_ERROR_IO; CLATTN_ERROR_UNSUPPORTED: larger; CLATTN_ERROR_OUT_OF_MEMORY. */
clattn_status model_file_read(const char *path, size_t most, char **text, size_t *bytes, clattn_io_error *error);

/* json_loadb; *no_memory tells whether it failed, or came to something else, because memory has run out. */
json_t *model_json(const char *text, size_t bytes, size_t flags, json_error_t *problem, bool *no_memory);

/* Reads and parses such a file; *root is a new reference.  Also CLATTN_ERROR_FORMAT: the file is not JSON, or an
 * object has a key twice. */
clattn_status model_file_json(const char *path, size_t most, json_t **root, clattn_io_error *error);

#endif
