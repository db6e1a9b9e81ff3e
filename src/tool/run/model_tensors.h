/* What the names of a model's tensors tell. */
#ifndef CLATTN_TOOL_RUN_MODEL_TENSORS_H
#define CLATTN_TOOL_RUN_MODEL_TENSORS_H

#include <clattn/io.h>

/* Counts what the tensors of the file at `path` number, as layers: *count is one more than the largest N of the names that
 * begin with `stem`, N and a full stop; 0 if there are none.  CLATTN_ERROR_UNSUPPORTED: more than `most`. */
clattn_status model_count_numbered(const clattn_safetensors *file, const char *path, const char *stem, size_t most,
                                   size_t *count, clattn_io_error *error);

#endif
