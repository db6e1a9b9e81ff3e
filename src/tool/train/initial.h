/* The weights that training begins with, drawn from a seed.
 *
 * Matrices are uniform in (-a, a) with a = sqrt(6 / (rows + columns)), as nn.Transformer of PyTorch has them (Glorot and
 * Bengio 2010), each of the matrices for queries, keys and values by itself.  Tables of pieces are normal with deviation
 * d_model^-0.5.  Biases are 0, and norms multiply by 1. */
#ifndef CLATTN_TOOL_TRAIN_INITIAL_H
#define CLATTN_TOOL_TRAIN_INITIAL_H

#include "tool/text/text_model.h"

/* The caller zeroes it, sets the first two fields, and frees `memory`. */
typedef struct train_initial {
    const text_shape *shape; /* borrowed */
    uint64_t seed;
    float *memory; /* of the tensor that was asked for last */
} train_initial;

/* A clattn_tensor_lookup; `user` is the train_initial. */
clattn_status train_initial_lookup(void *user, const char *name, clattn_host_tensor *tensor, clattn_io_error *error);

#endif
