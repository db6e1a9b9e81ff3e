/* Inside the loading of a model: the weights that it has, and the tensors that they are made of. */
#ifndef CLATTN_NN_MODEL_LOAD_H
#define CLATTN_NN_MODEL_LOAD_H

#include "nn/model/model.h"

#define WEIGHT_NAME_BYTES 96

/* A tensor of the source's, and the rows of a weight that it becomes: (rows, columns).  A vector has one column.  A
 * convolution's (rows, columns / kernel, kernel) is stored (rows, kernel, columns / kernel), so that a window of frames is
 * a row of a matrix. */
struct part {
    char name[WEIGHT_NAME_BYTES];
    weight_id weight;
    size_t first, rows, columns, kernel;
    bool vector, convolution;
    bool zero; /* there is no such tensor, but rows of zeros in its place */
};

struct loader {
    clattn_transformer *model;
    const clattn_weight_source *source;
    struct part *parts;
    size_t part_count, part_capacity;
    struct part nowhere; /* what is declared when host memory is out */
    bool failed;
};

/* All weights of the model's stacks and its output, without places, and their parts; `failed` where host memory is out. */
void loader_declare(struct loader *loader);

#endif
