/* Small decoders of several kinds, whose texts for two items have memories of different lengths, for the tests of
 * decoding and of generation. */
#ifndef TESTS_SUPPORT_NN_DECODER_CASE_H
#define TESTS_SUPPORT_NN_DECODER_CASE_H

#include "support/nn/decode.h"

enum { ITEMS = 2, LENGTH = 9, MEMORY = 6 };

typedef struct decoder_case {
    const char *name;
    clattn_stack_desc stack;
    int32_t output;
    bool tiny;
} decoder_case;

/* Decoders like the paper's, Whisper's, Llama's and Gemma's, and one whose memory has another size. */
enum { CASE_PAPER, CASE_WHISPER, CASE_LLAMA, CASE_OTHER_MEMORY, CASE_GEMMA, DECODER_CASES };
extern const decoder_case decoder_cases[DECODER_CASES];

/* A world of the case's model with `items` texts of LENGTH tokens, whose memories all have MEMORY positions; not open yet. */
nn_world decoder_case_world(clattn_context *context, const decoder_case *c, size_t items);

/* Opens a world of ITEMS texts whose memories have the lengths of decoder_case_memory_lengths. */
extern const int32_t decoder_case_memory_lengths[ITEMS];
void decoder_case_open(nn_world *w, clattn_context *context, const decoder_case *c, clattn_decoder_desc *desc);

/* Appends `first` tokens of each item's text to a world that has been opened with CASE_BEAMS beams, and then, in each
 * round, one token to each sequence, after the sequences have changed places as orders[round] says.  Fails the test
 * unless all logits agree with those of the sequences' texts. */
enum { CASE_BEAMS = 3, CASE_SEQUENCES = ITEMS * CASE_BEAMS };
void decoder_case_beams(nn_world *w, size_t first, const size_t orders[][CASE_SEQUENCES], size_t rounds,
                        const char *what);

#endif
