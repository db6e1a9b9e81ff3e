/* Prompts for the decoders of decoder_case.h, and the reference's logits after a text, shared by the tests of
 * generation. */
#ifndef TESTS_SUPPORT_NN_GENERATE_CASE_H
#define TESTS_SUPPORT_NN_GENERATE_CASE_H

#include "support/nn/decoder_case.h"

#define VOCABULARY NN_VOCABULARY

enum { MANY = 4, MOST = 6 };

/* The prompts of several items, one after the other, their lengths, and the lengths of the items' memories. */
extern const int32_t prompts[8];
extern const size_t prompt_lengths[MANY];
extern const int32_t many_memory_lengths[MANY];

const int32_t *prompt_of(size_t item);

/* Computes the logits after a text by the reference, anew in each call; log_softmax turns a row of logits into
 * log-probabilities in place. */
void logits_behind(const nn_world *w, size_t item, const int32_t *text, size_t length, double *logits);
void log_softmax(double *logits);

/* Opens a world of the paper's decoder for `items` prompts, each with a memory of its own length; `beams` as in
 * clattn_decoder_desc. */
nn_world generating_world(clattn_context *context, size_t items, size_t beams);

/* Continues the prompts; the arrays are those of clattn_generated. */
void generate(const nn_world *w, const clattn_generate_desc *how, int32_t *tokens, size_t *lengths, float *scores,
              float *each);
clattn_generated results_of(int32_t *tokens, size_t *lengths, float *scores, float *each);

#endif
