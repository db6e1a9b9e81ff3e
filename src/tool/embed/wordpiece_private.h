/* The tokenizer as its readers fill it and the encoder uses it. */
#ifndef CLATTN_TOOL_EMBED_WORDPIECE_PRIVATE_H
#define CLATTN_TOOL_EMBED_WORDPIECE_PRIVATE_H

#include "tool/embed/wordpiece.h"
#include "tool/embed/wordpiece_vocab.h"

#define WORDPIECE_MOST_CHARACTERS 1000 /* of a word; a file that allows more is refused */
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
    char prefix[WORDPIECE_MOST_PREFIX + 1]; /* of every piece of a word but the first */
    size_t prefix_bytes;
    size_t most_characters;       /* of a word that is cut */
    int32_t unknown, first, last; /* [UNK], [CLS], [SEP] */
    special_token *special;
    size_t special_count;
};

/* Adds a special token, which the vocabulary need not have; false if memory runs out. */
bool wordpiece_add_special(wordpiece *tokenizer, const char *text, size_t bytes, int32_t id);

/* Adds a token to the vocabulary, or refuses the file. */
clattn_status wordpiece_add(wordpiece *tokenizer, size_t number, const char *text, size_t bytes, const char *path,
                            clattn_io_error *error);

/* Finds the number of a token that must be in the vocabulary. */
clattn_status wordpiece_find(const wordpiece *tokenizer, const char *text, size_t bytes, const char *path, int32_t *id,
                             clattn_io_error *error);

/* Reports that memory ran out. */
clattn_status wordpiece_no_memory(const char *path, clattn_io_error *error);

#endif
