/* Whisper's tokens: what a folder says of them, and their text. */
#ifndef CLATTN_TOOL_TRANSCRIBE_TOKENS_H
#define CLATTN_TOOL_TRANSCRIBE_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct whisper_head {
    int32_t layer, head;
} whisper_head;

/* Immutable once loaded.  Zeroed: none.  Release with whisper_tokens_release. */
typedef struct whisper_tokens {
    size_t count;  /* tokens, from 0 on: words, then those below in order, then timestamps of 0.02 s to the end */
    char *bytes;   /* all words' bytes, one behind the other */
    size_t *start; /* count + 1 places in `bytes`; from end_of_text on, tokens have none */
    int32_t end_of_text, start_of_transcript, previous, no_speech, no_timestamps, first_timestamp;
    int32_t *suppressed, *suppressed_first; /* never generated, and never as the first */
    size_t suppressed_count, suppressed_first_count;
    whisper_head *heads; /* whose cross-attention follows the speech */
    size_t head_count;
} whisper_tokens;

/* Reads `folder`/vocabulary.txt (a token a line) or vocabulary.json (an array), and config.json, of a model
 * for English. Returns an exit status. */
int whisper_tokens_load(const char *folder, whisper_tokens *tokens);

void whisper_tokens_release(whisper_tokens *tokens);

/* The text of the words among the tokens, NUL-terminated: bytes that are no UTF-8 become U+FFFD, one for each
 * longest beginning of a character.  The caller frees it; NULL when memory runs out. */
char *whisper_text(const whisper_tokens *tokens, const int32_t *ids, size_t count);

#endif
