/* What comes before the names of a model's tensors in a file. */
#ifndef CLATTN_PICTURES_PREFIX_H
#define CLATTN_PICTURES_PREFIX_H

#include <stdbool.h>

#include "clattn/io.h"
#include "clattn/weights.h"

#define PREFIX_BYTES 64

/* Finds the shortest beginning, empty or up to a full stop, that makes the name of the patches' weights one of the file's.  False
 * if none does. */
bool find_prefix(const clattn_safetensors *file, clattn_name_format format, char prefix[PREFIX_BYTES]);

#endif
