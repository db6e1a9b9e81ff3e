/* Decodes the text of a window, token by token. */
#ifndef CLATTN_TOOL_TRANSCRIBE_DECODE_H
#define CLATTN_TOOL_TRANSCRIBE_DECODE_H

#include "tool/transcribe/engine.h"

typedef struct whisper_decoding {
    size_t beams;       /* at temperature 0: 1 is greedy, more is a beam search of so many beams */
    double temperature; /* above 0: tokens are drawn at random */
    size_t samples;     /* at temperatures above 0: random sequences, of which the likeliest is taken */
    uint64_t seed;
} whisper_decoding;

/* Zeroed: none.  A plain value. */
typedef struct whisper_result {
    int32_t tokens[WHISPER_LENGTH]; /* without the end of text */
    size_t count;
    double average;   /* of the logarithms of the probabilities of all tokens and the end of text */
    double no_speech; /* the probability that there is no speech */
} whisper_result;

/* Generates at most 224 tokens after `prompt`, until the end of text. Returns an exit status. */
int whisper_decode(const whisper_engine *engine, const whisper_tokens *tokens, const int32_t *prompt,
                   size_t prompt_count, const whisper_decoding *how, whisper_result *result);

#endif
