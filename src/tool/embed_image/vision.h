/* A model of pictures in a folder, as Hugging Face's transformers or timm writes it: PNG files to unit vectors.
 *
 *   model.safetensors           the weights, under the names of either
 *   config.json                 transformers: model_type vit, dinov2, dinov2_with_registers, clip or clip_vision_model, and
 *                               sizes; timm: architecture, model_args, and pretrained_cfg, which says what is done to pictures
 *   preprocessor_config.json    transformers' alone: what is done to pictures; if absent, what its classes do
 *
 * Sizes that config.json lacks are read off the tensors. */
#ifndef CLATTN_TOOL_EMBED_IMAGE_VISION_H
#define CLATTN_TOOL_EMBED_IMAGE_VISION_H

#include <clattn/transformer.h>

#include "pictures/fit.h"
#include "pictures/prefix.h"
#include "tool/cli/png_file.h"
#include "tool/pool/pool.h"
#include "tool/run/model_config.h"

/* The model on a device. */
typedef struct vision_device {
    tool_device *device; /* borrowed */
    clattn_transformer *transformer;
    clattn_plan *plan; /* of vision_encode, for `batch` pictures; NULL before the first use */
    size_t batch;
} vision_device;

/* A zeroed one holds nothing.  Close with vision_close, before the devices are closed. */
typedef struct vision_model {
    const char *folder; /* borrowed */
    model_path weights; /* the path of model.safetensors */
    clattn_safetensors *file;
    clattn_stack_desc stack;
    clattn_name_format format;
    bool gated_timm;           /* timm's names with a gated feed-forward network, which `format` lacks */
    bool norm_after;           /* timm's fc_norm: the pooled vector is normalised, and not the positions before */
    char prefix[PREFIX_BYTES]; /* what the names begin with */
    fit_rule rule;
    clattn_pooling pooling;
    const char *solver; /* the attention's; NULL: the best.  Borrowed */
    clattn_dtype dtype; /* of weights and activations */
    float *norm;        /* of norm_after: d_model scales, then as many biases; NULL if there is none */
    tool_pool *pool;    /* borrowed */
    vision_device on[POOL_MOST];
    size_t batch; /* pictures that plans take */
} vision_model;

/* Reads the files in the folder, the weights' values excepted.  Returns an exit status. */
int vision_open(const char *folder, vision_model *model);

/* Uploads the weights to the devices. */
int vision_load(vision_model *model, tool_pool *pool);

void vision_close(vision_model *model);

/* Positions of a picture: patches, class token and registers; those before the patches; rows and columns of patches. */
size_t vision_positions(const vision_model *model);
size_t vision_first_patch(const vision_model *model);
size_t vision_rows(const vision_model *model);
size_t vision_columns(const vision_model *model);

/* Numbers of a vector. */
size_t vision_size(const vision_model *model);

/* ---- parts of vision_open, each in a file of its own ---- */

/* The tensor that has this canonical name (clattn/weights.h); a zeroed one if there is none. */
clattn_host_tensor vision_tensor(const vision_model *model, const char *canonical);

/* The tensor that the file calls so, after the prefix. */
clattn_host_tensor vision_named_tensor(const vision_model *model, const char *name);

/* Finds what the weights' names begin with, and reads sizes off the tensors: columns, patches, layers, the hidden size,
 * and rows of positions. */
clattn_status vision_read_tensors(vision_model *model, clattn_io_error *error);

/* Sets the grid of the table of positions, of which `others` are not of patches: that of pictures of so many pixels (height,
 * width), or a square one if these are 0. */
clattn_status vision_set_grid(vision_model *model, const model_config *c, size_t others, const size_t pixels[2],
                              clattn_io_error *error);

/* Read config.json of timm and of transformers, and the tensors, and set the model's stack and rule. */
clattn_status vision_read_timm(vision_model *model, model_config *c);
clattn_status vision_read_hugging_face(vision_model *model, model_config *c);

/* Reads preprocessor_config.json, whose absence changes nothing (c->at is NULL then). */
clattn_status vision_read_processor(vision_model *model, model_config *c);

#endif
