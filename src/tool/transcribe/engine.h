/* The interface of an engine that runs a Whisper model: the command's on a device, or a test's. */
#ifndef CLATTN_TOOL_TRANSCRIBE_ENGINE_H
#define CLATTN_TOOL_TRANSCRIBE_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include "tool/transcribe/tokens.h"

/* The most sequences side by side, and the most tokens of one, prompt included. */
#define WHISPER_SEQUENCES 8
#define WHISPER_LENGTH 448

/* Positions of the encoder's output for a window of 30 s, each of 0.02 s. */
#define WHISPER_POSITIONS 1500

/* Functions that return an int give an exit status. */
typedef struct whisper_engine {
    void *user;
    size_t vocabulary, bins, layers, heads; /* the last two: the decoder's */

    /* Encodes a window, (3000, bins); what follows is about it. */
    int (*encode)(void *user, const float *window);

    /* Begins `sequences` sequences with the same `count` tokens (1 or more): the logits of what follows,
     * (vocabulary). */
    int (*begin)(void *user, const int32_t *tokens, size_t count, size_t sequences, float *logits);

    /* Appends one token to each sequence, which before that becomes a copy of sequence parents[s] (NULL: of
     * itself): logits (sequences, vocabulary). */
    int (*step)(void *user, const size_t *parents, const int32_t *tokens, float *logits);

    /* Reads all `count` tokens at once.  probabilities[i], of count - 1: token i + 1's after those up to i,
     * among the tokens below `words`.  attention: (heads, count, positions), the cross-attention of the given
     * heads. */
    int (*align)(void *user, const int32_t *tokens, size_t count, int32_t words, const whisper_head *heads,
                 size_t head_count, double *probabilities, float *attention);
} whisper_engine;

#endif
