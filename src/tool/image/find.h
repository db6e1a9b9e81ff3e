/* Where a model's weights are. */
#ifndef CLATTN_TOOL_IMAGE_FIND_H
#define CLATTN_TOOL_IMAGE_FIND_H

#include "tool/run/model_file.h"

/* Finds the safetensors file that `path` is, or the one in the folder `path`: model.safetensors, or the only one.  Returns an
 * exit status. */
int find_weights(const char *path, model_path *weights);

#endif
