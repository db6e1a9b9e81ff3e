/* Loading a model: which weights it has, and which tensors they are made of. */
#ifndef CLATTN_NN_MODEL_LOAD_H
#define CLATTN_NN_MODEL_LOAD_H

#include "nn/model/model.h"

#define WEIGHT_NAME_BYTES 96

/* A tensor of the source, and the rows of a weight, (rows, columns), that it becomes.  A vector has one column.  A
 * convolution's tensor (rows, columns / kernel, kernel) is stored as (rows, kernel, columns / kernel), so that a window
 * of frames is a row of a matrix. */
struct part {
    char name[WEIGHT_NAME_BYTES];
    weight_id weight;
    size_t first, rows, columns, kernel;
    struct split of_rows, of_columns; /* which rows and columns of the tensor, or of its share, these are */
    float factor;                     /* multiplies the tensor's elements; 0: 1 */
    bool vector, convolution;
    const clattn_windows *windows;      /* not NULL: the tensor is a table of distances, and the rows are heads */
    const clattn_patches *grid;         /* not NULL: rows may be counted as rows and columns of this grid */
    size_t window[2];                   /* not 0: the tensor is (rows, columns / these, window[0], window[1]) */
    char scale_name[WEIGHT_NAME_BYTES]; /* not "": the vector whose elements multiply the tensor's rows */
    bool zero;                          /* there is no such tensor: its rows are zeros */
};

struct loader {
    clattn_transformer *model;
    const clattn_weight_source *source;
    struct part *parts;
    size_t part_count, part_capacity;
    struct part nowhere; /* what add_part returns if memory has run out */
    bool failed;
};

/* Declares all weights of the model and the parts that they are made of; sets `failed` if memory runs out. */
void loader_declare(struct loader *loader);

#endif
