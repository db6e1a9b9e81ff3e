/* A whole model, an encoder and a decoder that reads what it makes, held against the reference.  cmocka first, then this. */
#ifndef TESTS_SUPPORT_NN_PAIR_H
#define TESTS_SUPPORT_NN_PAIR_H

#include "clattn/clattn.h"
#include "support/nn/model.h"

typedef struct nn_pair {
    clattn_context *context;
    const clattn_transformer_desc *desc; /* the output tied */
    const nn_store *store;               /* by canonical names, for the reference */
    const clattn_weight_source *source;  /* what the library is given */
    size_t batch, input, length;         /* the encoder's tokens or frames, and the decoder's tokens */
    bool cached_only;                    /* tokens are appended one by one, which takes fewer kernels */
    double tolerance;                    /* of logits, relative to 1 and more */
} nn_pair;

/* Fails the test unless the logits of all tokens are what the reference says, appended one by one and, but with
 * `cached_only`, at once, and both ways agree. */
void nn_pair_check(const nn_pair *pair);

#endif
