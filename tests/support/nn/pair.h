/* A whole model, an encoder and a decoder that reads its output, compared with the reference. */
#ifndef TESTS_SUPPORT_NN_PAIR_H
#define TESTS_SUPPORT_NN_PAIR_H

#include "clattn/clattn.h"
#include "support/nn/model.h"

typedef struct nn_pair {
    clattn_context *context;
    const clattn_transformer_desc *desc; /* its output is tied */
    nn_store *store;                     /* the reference's weights by canonical names */
    const clattn_weight_source *source;  /* the library's weights */
    size_t batch, input, length;         /* the encoder's tokens or frames, and the decoder's tokens */
    bool cached_only;                    /* tokens are appended one by one, which takes fewer kernels */
    double tolerance;                    /* of logits, relative to values above 1 */
} nn_pair;

/* Fails the test unless the logits of all tokens agree with the reference and with each other, appended one by one and,
 * unless `cached_only` is set, at once. */
void nn_pair_check(const nn_pair *pair);

#endif
