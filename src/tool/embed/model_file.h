/* The small files that lie beside a model's weights. */
#ifndef CLATTN_TOOL_EMBED_MODEL_FILE_H
#define CLATTN_TOOL_EMBED_MODEL_FILE_H

#include <jansson.h>

#include <clattn/io.h>

/* The whole file, a regular one of at most `most` bytes, with a NUL after it, to be freed.
 * CLATTN_ERROR_IO; CLATTN_ERROR_UNSUPPORTED: larger; CLATTN_ERROR_OUT_OF_MEMORY. */
clattn_status model_file_read(const char *path, size_t most, char **text, size_t *bytes, clattn_io_error *error);

/* The same, parsed: a new reference.  CLATTN_ERROR_FORMAT also: not JSON, or a key twice in an object. */
clattn_status model_file_json(const char *path, size_t most, json_t **root, clattn_io_error *error);

#endif
