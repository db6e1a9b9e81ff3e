/* Decoders that the tests run: a model with its plan and state, and the reference's logits of any text.  cmocka first, then
 * this. */
#ifndef TESTS_SUPPORT_NN_DECODE_H
#define TESTS_SUPPORT_NN_DECODE_H

#include "clattn/clattn.h"
#include "support/nn/model.h"

#define NN_VOCABULARY 37
#define NN_TOKENS .input = CLATTN_STACK_INPUT_TOKENS, .vocabulary = NN_VOCABULARY

typedef struct nn_world {
    /* The caller's. */
    clattn_context *context;
    const clattn_stack_desc *d;
    int32_t output;
    size_t output_size;                  /* with an output of its own; 0: NN_VOCABULARY */
    size_t items, length, memory_length; /* length: tokens of each item's text, and of the caches */
    const int32_t *memory_lengths;       /* of the items; NULL: memory_length each */
    nn_mask mask, memory_mask;           /* of self- and cross-attention; `queries` is 1 or `length` */
    clattn_dtype mask_dtype;             /* as which they are bound, CLATTN_DTYPE_BOOL or CLATTN_DTYPE_F32 */
    clattn_dtype dtype, weight_dtype; /* as in clattn_transformer_desc; 16 bits: values are such that both types hold */
    /* What nn_world_open makes. */
    nn_store store;
    clattn_transformer *model;
    clattn_plan *plan;
    clattn_decoder_state *state;
    clattn_dtype cache_dtype;
    size_t mask_rows; /* tokens of a sequence in one enqueue, as the plan has it */
    int32_t *ids;     /* (items, length) */
    float *memory;
    cl_mem memory_buffer, tokens, logits, vectors, self, cross;
    const float *head;
    double *expected;                       /* logits of the texts, computed at once */
    double *self_expected, *cross_expected; /* probabilities of all layers */
} nn_world;

/* `desc` has the caller's wishes, but no sizes of items and memory, and no masks that the world has; caches are of `length`
 * where nothing else is said. */
void nn_world_open(nn_world *w, clattn_decoder_desc *desc);
void nn_world_close(nn_world *w);

/* A beginning of all items; `queue` NULL: the context's. */
void nn_world_begin(nn_world *w, cl_command_queue queue, size_t beams);

/* Appends ids[s * stride + at[s] ...], `lengths` of each sequence or `length` of all, `row` being the tokens of a sequence
 * in the enqueue's input, and reads logits, `logit_rows` of them a sequence.  Masks are those rows of the world's. */
void nn_world_append(nn_world *w, size_t sequences, const int32_t *ids, size_t stride, const size_t *at, size_t length,
                     const int32_t *lengths, size_t row, float *logits, size_t logit_rows);

/* Logits of `batch` texts of `length` tokens each, of which the first belongs to item `item`, by the reference; or, with
 * `naive`, by the same with everything rounded to the model's types.  Probabilities may be NULL.  To be freed. */
double *nn_world_logits(const nn_world *w, size_t batch, size_t length, const int32_t *ids, size_t item, bool naive,
                        double *self, double *cross);

/* Fails the test unless a row of logits is what is expected in float32. */
void nn_check_logits(const float *got, const double *expected, const char *what);

#endif
