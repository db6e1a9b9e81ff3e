/* A writer of safetensors files. */
#ifndef CLATTN_TOOL_TRAIN_TENSOR_FILE_H
#define CLATTN_TOOL_TRAIN_TENSOR_FILE_H

#include <clattn/io.h>

/* A tensor of float32 or uint8.  Name and data are borrowed. */
typedef struct train_tensor {
    const char *prefix, *name; /* the name is both, one behind the other */
    clattn_host_tensor tensor;
} train_tensor;

/* Writes the tensors to `path`, whole or not at all.  Returns an exit status. */
int train_tensors_write(const char *path, const train_tensor *tensors, size_t count);

#endif
