/* Small models that are trained, with a batch each, for the tests of training. */
#ifndef TESTS_SUPPORT_NN_TRAINING_CASE_H
#define TESTS_SUPPORT_NN_TRAINING_CASE_H

#include "support/nn/run.h"

enum {
    TRAINING_VOCABULARY = 23,
    TRAINING_SOURCES = 19, /* the encoder's vocabulary */
    TRAINING_BATCH = 3,
    TRAINING_SOURCE = 6,  /* positions of the encoder */
    TRAINING_FRAMES = 11, /* of which convolutions make as many */
    TRAINING_FEATURES = 4,
    TRAINING_TARGET = 5,
    TRAINING_LABELS = TRAINING_BATCH * TRAINING_TARGET,
    TRAINING_IGNORED = -100
};

typedef struct training_case {
    const char *name;
    clattn_stack_desc encoder, decoder; /* no layers: there is no encoder */
    clattn_model_output output;
    float smoothing;
    bool bias;          /* of the output */
    clattn_dtype dtype; /* of the model */
} training_case;

/* Models like the paper's, Llama's, Whisper's and BERT's, and others. */
enum { TRAINING_CASES = 6 };
extern const training_case training_cases[TRAINING_CASES];

typedef struct training_world {
    const training_case *test;
    bool has_encoder, has_features;
    nn_store store;
    clattn_transformer *model;
    clattn_trainer *trainer;
    clattn_training_desc desc;
    int32_t source[TRAINING_BATCH * TRAINING_SOURCE], source_segments[TRAINING_BATCH * TRAINING_SOURCE];
    float features[TRAINING_BATCH * TRAINING_FRAMES * TRAINING_FEATURES];
    int32_t target[TRAINING_LABELS], target_segments[TRAINING_LABELS], labels[TRAINING_LABELS];
    int32_t source_lengths[TRAINING_BATCH], target_lengths[TRAINING_BATCH];
    float losses[TRAINING_LABELS];
} training_world;

/* The description of the case's model. */
clattn_transformer_desc training_model(const training_case *test);

void training_open(training_world *w, const training_case *test);
void training_close(training_world *w);

/* Binds items first ... first + desc.batch - 1, and releases what was bound. */
clattn_training_args training_bind(const training_world *w, size_t first);
void training_unbind(clattn_training_args *args);

/* Runs these items, and reads their losses. */
void training_step(training_world *w, size_t first, bool accumulate, uint64_t seed);

/* A parameter, and how many numbers it has. */
clattn_parameter training_parameter(const training_world *w, size_t index, size_t *count);

/* The values at a binding as they lie there, or in the order of a parameter's extents; the caller frees them. */
float *training_read(clattn_binding at, size_t count);
float *training_read_ordered(const clattn_parameter *p, clattn_binding at);

/* All gradients one after the other, which the caller frees. */
float *training_values(const training_world *w, size_t *count);
float *training_gradients(const training_world *w, size_t *count);

/* The losses of the store's weights; returns their sum. */
double training_expected(const training_world *w, double *losses);

#endif
