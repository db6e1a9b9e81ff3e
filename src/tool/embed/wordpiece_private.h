/* The tokenizer as its readers fill it and the encoder uses it. */
#ifndef CLATTN_TOOL_EMBED_WORDPIECE_PRIVATE_H
#define CLATTN_TOOL_EMBED_WORDPIECE_PRIVATE_H

#include <jansson.h>

#include "tool/embed/wordpiece.h"

#define WORDPIECE_MOST_TOKENS ((size_t)1 << 20)
#define WORDPIECE_MOST_TOKEN 1024      /* bytes */
#define WORDPIECE_MOST_CHARACTERS 1000 /* of a word; a file that allows more is refused */
#define WORDPIECE_MOST_SPECIAL 1024
#define WORDPIECE_MOST_PREFIX 16
#define WORDPIECE_MOST_BYTES ((size_t)16 << 20) /* of a file */
#define WORDPIECE_SHOWN 40                      /* bytes of a token in a message */

/* One of a sorted list of tokens, in which the longest that a text begins with is found by bisection: the last token that
 * is not behind the text, or the longest of that one's beginnings that are tokens, too.  A hash of each length would take
 * a hostile vocabulary's word of n characters n^3 steps. */
typedef struct sorted_token {
    const char *text; /* in the vocabulary */
    size_t bytes;
    int32_t id;
    int32_t shorter; /* the place in the list of the longest other token that this one begins with; −1: none */
} sorted_token;

struct wordpiece {
    json_t *numbers;      /* an object: tokens and their numbers */
    const char **token;   /* by number, `size` of them, in `numbers`; NULL: there is no such number */
    size_t size;          /* the largest number plus 1 */
    size_t count;         /* of tokens */
    sorted_token *sorted; /* all tokens */
    bert_rules rules;
    char prefix[WORDPIECE_MOST_PREFIX + 1]; /* of every piece of a word but the first */
    size_t prefix_bytes;
    size_t most_characters;                       /* of a word that is cut */
    int32_t unknown, first, last;                 /* [UNK], [CLS], [SEP] */
    sorted_token special[WORDPIECE_MOST_SPECIAL]; /* sorted, too, when the file has been read */
    size_t special_count;
};

/* Sorts a list by bytes and fills `shorter`. */
void wordpiece_sort(sorted_token *tokens, size_t count);

/* Adds a token of the vocabulary to the special ones. */
void wordpiece_add_special(wordpiece *tokenizer, int32_t id);

/* Fills `token`, `size`, `count` and `sorted` from `numbers`, which are all below `size`; refuses a number with two tokens. */
clattn_status wordpiece_index(wordpiece *tokenizer, size_t size, const char *path, clattn_io_error *error);

/* The number of a token, or −1. */
int32_t wordpiece_number(const wordpiece *tokenizer, const char *text);

/* Finds the number of a token that must be in the vocabulary. */
clattn_status wordpiece_find(const wordpiece *tokenizer, const char *text, const char *path, int32_t *id,
                             clattn_io_error *error);

/* Reports that memory ran out. */
clattn_status wordpiece_no_memory(const char *path, clattn_io_error *error);

#endif
