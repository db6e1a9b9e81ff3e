/* What BERT does to a text before it is cut into pieces, character by character: its cleaning, spaces around
 * Chinese characters, accents off, lower case, and what separates words.  The Unicode properties are
 * utf8proc's. */
#ifndef CLATTN_TOOL_EMBED_BERT_TEXT_H
#define CLATTN_TOOL_EMBED_BERT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bert_rules {
    bool clean;   /* NUL, U+FFFD and controls (but tab, line feed, carriage return) go, white space becomes a
                     space */
    bool chinese; /* a space before and after each Chinese character */
    bool strip;   /* decomposed canonically (NFD), nonspacing marks (Mn) dropped */
    bool lower;   /* lower case, without regard to the neighbours */
} bert_rules;

typedef enum bert_kind {
    BERT_LETTER, /* whatever is part of a word */
    BERT_SPACE,  /* ends a word */
    BERT_MARK    /* punctuation: a word by itself */
} bert_kind;

/* Takes one character that is left; false stops the text. */
typedef bool (*bert_sink)(void *user, int32_t character, bert_kind kind);

/* Passes the `bytes` bytes of UTF-8 at `text` through the rules, in order, into `sink`.  A byte that belongs
 * to no well-formed sequence counts as U+FFFD.  False if the sink stopped it or memory ran out.  Linear in
 * time, and needs memory for runs of combining characters that are no nonspacing marks alone. */
bool bert_text_pass(const bert_rules *rules, const char *text, size_t bytes, bert_sink sink, void *user);

/* Whether the bytes are UTF-8 throughout. */
bool bert_text_is_utf8(const char *text, size_t bytes);

/* Writes the character as UTF-8; how many bytes, 1 to 4. */
size_t bert_text_encode(int32_t character, unsigned char to[4]);

#endif
