/* A model of texts on devices: sequences of pieces are translated or continued, many side by side. */
#ifndef CLATTN_TOOL_TEXT_GENERATOR_H
#define CLATTN_TOOL_TEXT_GENERATOR_H

#include <clattn/generate.h>

#include "tool/pool/pool.h"
#include "tool/text/text_model.h"
#include "tool/world/world.h"

#define TEXT_BEAMS_MOST 32

/* The model on a device, and its plans for at most `batch` sequences with inputs of at most `length` pieces. */
typedef struct text_device {
    tool_device *device; /* borrowed */
    clattn_transformer *transformer;
    clattn_plan *encoder, *decoder; /* NULL before the first use */
    clattn_decoder_state *state;
    cl_mem source, memory; /* (batch, length) ids, and what the encoder makes of them */
    size_t batch, length;
} text_device;

/* The caller zeroes it and sets the first fields.  Close with text_generator_close, before the devices are closed. */
typedef struct text_generator {
    const text_model *model; /* borrowed */
    const char *solver;      /* the attention's; NULL: the best.  Borrowed */
    clattn_dtype dtype;      /* of weights, activations and caches */
    size_t beams;            /* 1: the most probable piece each time */
    tool_pool *pool;         /* borrowed */
    tool_world *world;       /* borrowed */
    text_device on[POOL_MOST];
    size_t batch, length; /* what plans take */
} text_generator;

/* One sequence.  The caller frees both `id`. */
typedef struct text_item {
    vocabulary_ids
        input; /* a source with VOCABULARY_END, or VOCABULARY_BEGIN and a prompt; nothing: nothing comes of it */
    vocabulary_ids output; /* what was generated, with VOCABULARY_END if it has ended */
    float score;           /* the log-probability of the output, by the length rule if there are beams */
} text_item;

/* Reads the model's weights and copies them to the devices.  All ranks call it, also with the `status` of one that has failed before.
 * Returns an exit status, of which all have been told. */
int text_generator_open(text_generator *g, int status);

/* Generates the outputs of all items, which are empty, and blocks until it is done.  An output is independent of the other
 * items, but for rounding, and devices share batches that do not depend on how many devices there are.  Returns an exit status. */
int text_generator_run(text_generator *g, text_item *items, size_t count);

/* The attention's solver in one of the plans; "" before the first. */
const char *text_generator_solver(const text_generator *g);

void text_generator_close(text_generator *g);

#endif
