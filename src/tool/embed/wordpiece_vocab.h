/* A vocabulary: tokens by their numbers, and numbers by their texts. */
#ifndef CLATTN_TOOL_EMBED_WORDPIECE_VOCAB_H
#define CLATTN_TOOL_EMBED_WORDPIECE_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VOCAB_MOST_TOKENS ((size_t)1 << 20)
#define VOCAB_MOST_BYTES 1024 /* of one token */

typedef struct vocab_entry {
    uint32_t offset; /* into the text */
    uint32_t bytes;  /* 0: there is no such number */
} vocab_entry;

/* A zeroed one is empty; vocab_release frees it. */
typedef struct wordpiece_vocab {
    vocab_entry *entry; /* by number, `size` of them */
    size_t size;        /* the largest number plus 1 */
    char *text;         /* all tokens, each with a NUL after it */
    size_t used;
    uint32_t *slots; /* number plus 1, by hash; 0: empty */
    size_t slot_mask;
    size_t longest; /* bytes of the longest token */
} wordpiece_vocab;

typedef enum vocab_outcome {
    VOCAB_ADDED,
    VOCAB_SAME_TEXT,   /* the text has a number already, *other */
    VOCAB_SAME_NUMBER, /* the number has a text already */
    VOCAB_ALIKE        /* too many tokens share the hash: only a file that was made for it has so many */
} vocab_outcome;

/* Allocates for numbers below `size` and `bytes` bytes of text in all, NULs not counted; false if memory runs
 * out. */
bool vocab_init(wordpiece_vocab *vocab, size_t size, size_t bytes);
void vocab_release(wordpiece_vocab *vocab);

/* Adds a token of 1 to VOCAB_MOST_BYTES bytes, within the limits that vocab_init was given. */
vocab_outcome vocab_add(wordpiece_vocab *vocab, size_t number, const char *text, size_t bytes, size_t *other);

/* The number of a token, or −1. */
int32_t vocab_find(const wordpiece_vocab *vocab, const char *text, size_t bytes);

/* Finds a token that is given as two strings, by a hash that the caller has computed piece by piece. */
#define VOCAB_HASH_EMPTY 0xcbf29ce484222325u
uint64_t vocab_hash(uint64_t hash, const char *text, size_t bytes);
int32_t vocab_find_hashed(const wordpiece_vocab *vocab, uint64_t hash, const char *first, size_t first_bytes,
                          const char *rest, size_t rest_bytes);

#endif
