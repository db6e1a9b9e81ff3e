/* SwinIR's weights (Liang et al. 2021), whose tensors tell the model's shape: no other file does.
 *
 *   conv_first                       d_model, channels of the picture
 *   layers.S, .blocks.N              stages and their layers
 *   relative_position_bias_table     rows and columns of a window, heads
 *   layers.0.conv, .conv.0           1 or 3 convolutions of a stage
 *   conv_before_upsample, upsample.N, conv_upN, conv_last    how a picture is made, and its factor
 *
 * The names may begin with "params." or "params_ema.". */
#ifndef CLATTN_RESTORE_SWINIR_H
#define CLATTN_RESTORE_SWINIR_H

#include <stdbool.h>

#include <clattn/clattn.h>
#include <clattn/io.h>

#include "base/printf_like.h"

/* A zeroed one holds nothing.  Close it with swinir_close, before the context is released. */
typedef struct swinir {
    const char *path; /* of the weights; borrowed */
    clattn_safetensors *file;
    const char *prefix; /* what the names begin with */
    size_t stages;
    clattn_stack_desc stage[CLATTN_MAX_STAGES];
    size_t channels; /* of the picture: 1 or 3 */
    size_t window;   /* rows and columns */
    size_t factor;   /* rows of the result for one of the picture */
    float range;     /* what 1, the most of a component, is for the model */
    clattn_transformer *transformer;
    clattn_io_error error; /* why the last call failed, in one line; empty if the context has the message */
} swinir;

/* Opens the weights, a safetensors file, and reads the model's shape.  FORMAT: they are no SwinIR model's; or what
 * clattn_safetensors_create returns.  What fails leaves a model that swinir_close accepts. */
clattn_status swinir_open(const char *path, swinir *model);

/* The part of swinir_open that reads the model's shape off the tensors of its file. */
clattn_status swinir_read_shape(swinir *model);

/* Uploads the weights, to be stored as `dtype`.  FORMAT: the file has a tensor that SwinIR has not; or what
 * clattn_transformer_create returns, whose message is the context's. */
clattn_status swinir_load(swinir *model, clattn_context *context, clattn_dtype dtype);

/* Writes to model->error, behind the path, why the model is refused.  Returns FORMAT. */
clattn_status swinir_refuse(swinir *model, const char *format, ...) PRINTF_LIKE(2, 3);

void swinir_close(swinir *model);

/* What is subtracted from a component 0 ... 1 of the picture before the model has it, and added to its result. */
float swinir_mean(const swinir *model, size_t plane);

/* The stage that makes the picture. */
const clattn_stack_desc *swinir_last(const swinir *model);

/* Whether the tensor of this name is made by PyTorch from the model's shape. */
bool swinir_is_buffer(const char *name);

#endif
