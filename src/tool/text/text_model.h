/* A model of texts that `clattn train` makes, and `translate` and `generate` use: the numbers of its shape, which the file
 * config.json of its folder holds, and its vocabulary. */
#ifndef CLATTN_TOOL_TEXT_TEXT_MODEL_H
#define CLATTN_TOOL_TEXT_TEXT_MODEL_H

#include <stdbool.h>

#include <clattn/transformer.h>

#include "tool/text/vocabulary.h"

/* The files of a model's folder. */
#define TEXT_MODEL_CONFIG "config.json"
#define TEXT_MODEL_VOCABULARY "vocabulary.model"
#define TEXT_MODEL_WEIGHTS "model.safetensors"
#define TEXT_MODEL_CHECKPOINT "checkpoint.safetensors"

#define TEXT_MODEL_MOST_TOKENS 65536 /* the longest length */

typedef enum text_kind {
    TEXT_KIND_TRANSLATION, /* an encoder reads a source, a decoder writes a target */
    TEXT_KIND_TEXT         /* a decoder goes on with a text */
} text_kind;

typedef struct text_shape {
    text_kind kind;
    size_t encoder_layers; /* 0 for TEXT_KIND_TEXT */
    size_t decoder_layers;
    size_t d_model, heads, d_ff;
    size_t vocabulary;            /* pieces, the same for encoder and decoder, each of which has a table of its own */
    size_t source_length;         /* the most ids of a source with VOCABULARY_END; 0 for TEXT_KIND_TEXT */
    size_t target_length;         /* the most ids of a target with VOCABULARY_BEGIN, or with VOCABULARY_END */
    clattn_norm_place norm_place; /* pre-norm stacks have a final norm, post-norm stacks have none */
} text_shape;

/* Sets *shape to a preset's; false: there is none of that name.  `vocabulary` is how many pieces there shall be at most. */
bool text_shape_preset(const char *preset, text_kind kind, text_shape *shape);

/* Fills *desc, *encoder and *decoder, which desc refers to, with the model that has this shape: ReLU, sinusoids, scaled
 * embeddings, an output tied to the decoder's table.  Types of elements stay float32. */
void text_shape_describe(const text_shape *shape, clattn_transformer_desc *desc, clattn_stack_desc *encoder,
                         clattn_stack_desc *decoder);

/* Writes the folder's config.json, whole or not at all.  Returns an exit status. */
int text_shape_write(const char *folder, const text_shape *shape);

/* Reads the folder's config.json and checks every number.  Returns an exit status. */
int text_shape_read(const char *folder, text_shape *shape);

typedef struct text_model {
    const char *folder; /* borrowed */
    text_shape shape;
    vocabulary *vocabulary;
} text_model;

/* Reads shape and vocabulary, which must be of one size.  Returns an exit status; the caller calls text_model_close in any
 * case. */
int text_model_open(const char *folder, text_model *model);

void text_model_close(text_model *model);

#endif
