/* Runs models of a store's weights and encoders over one input. */
#ifndef TESTS_SUPPORT_NN_RUN_H
#define TESTS_SUPPORT_NN_RUN_H

#include "clattn/clattn.h"
#include "support/nn/model.h"

/* The small stack that most tests start from. */
#define SHAPE(function) \
    .size = sizeof(clattn_stack_desc), .d_model = 32, .heads = 4, .d_ff = 48, .activation = CLATTN_ACTIVATION_##function
#define POST .norm_place = CLATTN_NORM_PLACE_POST
#define PRE .norm_place = CLATTN_NORM_PLACE_PRE

/* Makes a buffer with a copy of `data` (NULL: NaN). */
cl_mem nn_buffer(clattn_context *context, size_t bytes, const void *data);

/* Returns reproducible values in [-1, 1), which the caller frees. */
float *nn_floats(size_t count, uint32_t seed);

/* Makes a weight source that reads the store, and a model from one. */
clattn_weight_source nn_source(nn_store *store);
clattn_transformer *nn_transformer(clattn_context *context, const clattn_transformer_desc *desc, nn_store *store);

/* Returns the largest difference in rows within `lengths`, relative to values above 1; NaN is infinite. */
double nn_difference(const float *got, const double *expected, size_t rows, size_t columns, size_t item,
                     const int32_t *lengths);

/* A model whose encoder is `d`, and one input for it. */
typedef struct nn_encoder_run {
    const clattn_stack_desc *d;
    nn_store *store;
    const clattn_weight_source *source; /* the library's weights; NULL: the store's */
    clattn_transformer_desc model;
    clattn_encoder_desc desc;
    const void *input; /* tokens, features or vectors of the model's dtype, or float32 pictures in NCHW order */
    const int32_t *segments, *lengths;
    float *pooled; /* receives the pooled vectors unless it is NULL */
} nn_encoder_run;

/* The output has positions * d_model elements for each sequence.  nn_encode writes it into a buffer; nn_run_encoder
 * makes the model and returns the output in the model's dtype, and leaves the store with the numbers that int8 weights
 * stand for; nn_encoder_expected returns the reference's, for an input of tokens or float32 and rounded to `dtype`
 * between operators unless it is 0.  The caller frees both. */
void nn_encode(clattn_context *context, clattn_transformer *model, const nn_encoder_run *run, cl_mem output);
void *nn_run_encoder(clattn_context *context, const nn_encoder_run *run);
double *nn_encoder_expected(const nn_encoder_run *run, clattn_dtype dtype);

/* Returns how many positions an item has. */
size_t nn_encoder_positions(const nn_encoder_run *run);

/* Runs a model and returns how far its output is from the reference's (nn_difference), which does not round. */
double nn_encoder_apart(clattn_context *context, const nn_encoder_run *run);

/* Returns a plan's description for inputs of that size. */
clattn_encoder_desc nn_encoder_desc(size_t batch, size_t length);

#endif
