/* The words of a text, and when they are spoken. */
#ifndef CLATTN_TOOL_TRANSCRIBE_WORDS_H
#define CLATTN_TOOL_TRANSCRIBE_WORDS_H

#include "tool/transcribe/tokens.h"

typedef struct whisper_word {
    char *text;         /* with the space before it, if there is one; "" once its punctuation has joined a neighbour */
    size_t tokens;      /* how many */
    double start, end;  /* seconds */
    double probability; /* the mean of its tokens' */
} whisper_word;

/* Zeroed: none.  Release with whisper_words_release. */
typedef struct whisper_words {
    whisper_word *word;
    size_t count;
} whisper_words;

/* Groups words' tokens (all below end_of_text): a word begins with a space or is punctuation, and never ends
 * within a character.  Times and probabilities are 0.  False when memory runs out. */
bool whisper_words_split(const whisper_tokens *tokens, const int32_t *ids, size_t count, whisper_words *words);

/* Sets times from `first`, the first position (of 0.02 s) of each token and of the end, count + 1 of them, and
 * probabilities as means of `probabilities`, one for each token. */
void whisper_words_time(whisper_words *words, const size_t *first, const double *probabilities);

/* Shortens words at the ends of sentences that last longer than twice the median, which is at most 0.7 s and
 * comes back in *median; then joins punctuation to the word that it belongs to.  False when memory runs out.
 */
bool whisper_words_polish(whisper_words *words, double *median);

/* Places a segment's words `offset` seconds into the recording: the first is shortened if it reaches back over a
 * pause, and the segment's times and those of its outermost words are brought together.  *last is the end of the
 * speech before, and then of this. */
void whisper_words_place(whisper_word *word, size_t count, double offset, double median, double *start, double *end,
                         double *last);

void whisper_words_release(whisper_words *words);

#endif
