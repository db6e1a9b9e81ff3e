/* A tokenizer, between the readers of its files and the encoder. */
#ifndef CLATTN_TOOL_EMBED_WORDPIECE_PRIVATE_H
#define CLATTN_TOOL_EMBED_WORDPIECE_PRIVATE_H

#include "tool/embed/wordpiece.h"
#include "tool/embed/wordpiece_vocab.h"

#define WORDPIECE_MOST_CHARACTERS 1000 /* of a word, whatever the file says */
#define WORDPIECE_MOST_SPECIAL 1024
#define WORDPIECE_MOST_PREFIX 16
#define WORDPIECE_MOST_BYTES ((size_t)16 << 20) /* of a file */
#define WORDPIECE_SHOWN 40                      /* bytes of a token in a message */

typedef struct special_token {
    char *text;
    size_t bytes;
    int32_t id;
} special_token;

struct wordpiece {
    wordpiece_vocab vocab;
    bert_rules rules;
    char prefix[WORDPIECE_MOST_PREFIX + 1]; /* of a piece that is not its word's first */
    size_t prefix_bytes;
    size_t most_characters;       /* of a word that is cut */
    int32_t unknown, first, last; /* [UNK], [CLS], [SEP] */
    special_token *special;
    size_t special_count;
};

/* Adds a special token, known to the vocabulary or not; false when memory runs out. */
bool wordpiece_add_special(wordpiece *tokenizer, const char *text, size_t bytes, int32_t id);

/* For the readers of both files: a token into the vocabulary, the number of one that must be there, and what
 * is said when memory runs out. */
clattn_status wordpiece_add(wordpiece *tokenizer, size_t number, const char *text, size_t bytes, const char *path,
                            clattn_io_error *error);
clattn_status wordpiece_find(const wordpiece *tokenizer, const char *text, size_t bytes, const char *path, int32_t *id,
                             clattn_io_error *error);
clattn_status wordpiece_no_memory(const char *path, clattn_io_error *error);

#endif
