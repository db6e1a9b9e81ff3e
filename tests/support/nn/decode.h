/* Decoders for tests: a model with its plan and state, and the reference's logits of any text. */
#ifndef TESTS_SUPPORT_NN_DECODE_H
#define TESTS_SUPPORT_NN_DECODE_H

#include "clattn/clattn.h"
#include "support/nn/model.h"

#define NN_VOCABULARY 37
#define NN_TOKENS .input = CLATTN_STACK_INPUT_TOKENS, .vocabulary = NN_VOCABULARY

typedef struct nn_world {
    /* Set by the caller. */
    clattn_context *context;
    const clattn_stack_desc *d;
    int32_t output;
    size_t output_size;                  /* of an untied output; 0: NN_VOCABULARY */
    size_t items, length, memory_length; /* length: tokens of each item's text, and of the caches */
    const int32_t *memory_lengths;       /* one for each item; NULL: memory_length */
    nn_mask mask, memory_mask;           /* for self- and cross-attention; `queries` is 1 or `length` */
    clattn_dtype mask_dtype;             /* the type in which they are bound */
    clattn_dtype dtype, weight_dtype; /* as in clattn_transformer_desc; 16 bits: values are such that both types hold */
    /* Set by nn_world_open. */
    nn_store store;
    clattn_transformer *model;
    clattn_plan *plan;
    clattn_decoder_state *state;
    clattn_dtype cache_dtype;
    size_t mask_rows; /* the plan's tokens for each sequence in one enqueue */
    int32_t *ids;     /* (items, length) */
    float *memory;
    cl_mem memory_buffer, tokens, logits, vectors, self, cross;
    const float *head;
    double *expected;                       /* logits of the texts, computed at once */
    double *self_expected, *cross_expected; /* probabilities of all layers */
} nn_world;

/* Makes everything that a world needs.  The caller sets `desc` except for the sizes of items and memory and the layouts
 * of the world's masks; caches have `length` rows unless the caller says otherwise. */
void nn_world_open(nn_world *w, clattn_decoder_desc *desc);
void nn_world_close(nn_world *w);

/* Begins all items with `beams` sequences each on `queue` (NULL: the context's). */
void nn_world_begin(nn_world *w, cl_command_queue queue, size_t beams);

/* Appends ids[s * stride + at[s]] and the following ids to each sequence s, lengths[s] of them or `length` if `lengths`
 * is NULL; `row` is the number of tokens for each sequence in the enqueue's input.  Reads `logit_rows` rows of logits
 * for each sequence.  The world's masks are bound with the rows of these tokens. */
void nn_world_append(nn_world *w, size_t sequences, const int32_t *ids, size_t stride, const size_t *at, size_t length,
                     const int32_t *lengths, size_t row, float *logits, size_t logit_rows);

/* Returns the reference's logits of `batch` texts of `length` tokens, the first of which belongs to item `item`,
 * rounded to the model's types between operators if `naive`.  `self` and `cross` receive probabilities unless they are
 * NULL.  The caller frees the result. */
double *nn_world_logits(const nn_world *w, size_t batch, size_t length, const int32_t *ids, size_t item, bool naive,
                        double *self, double *cross);

/* Fails the test unless a row of logits agrees with `expected` to float32's accuracy. */
void nn_check_logits(const float *got, const double *expected, const char *what);

#endif
