/* BERT's normalisation of a text before the text is cut into pieces: a reader that gives one character after
 * another, cleaned, with spaces around Chinese characters, without accents, in lower case, and says which
 * characters separate words.  The Unicode properties are utf8proc's. */
#ifndef CLATTN_TOOL_EMBED_BERT_TEXT_H
#define CLATTN_TOOL_EMBED_BERT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bert_rules {
    bool clean;   /* NUL, U+FFFD and controls are dropped (tab, line feed and carriage return are not); white
                     space becomes a space */
    bool chinese; /* a space before and after each Chinese character */
    bool strip;   /* canonical decomposition (NFD) without its nonspacing marks (Mn) */
    bool lower;   /* lower case, whatever the neighbours are */
} bert_rules;

typedef enum bert_kind {
    BERT_LETTER, /* part of a word: every other character */
    BERT_SPACE,  /* ends a word */
    BERT_MARK    /* punctuation: a word by itself */
} bert_kind;

#define BERT_MOST_DECOMPOSED 16 /* the longest canonical decomposition has four characters */

typedef struct combining_mark {
    int32_t character;
    int32_t combining_class;
} combining_mark;

/* The text and the place in it.  The caller sets the first three members, zeroes the others, and calls
 * bert_reader_release at the end. */
typedef struct bert_reader {
    const bert_rules *rules; /* borrowed */
    const char *text;        /* borrowed: UTF-8; a byte of no well-formed sequence counts as U+FFFD */
    size_t bytes;

    bool failed;                                  /* memory ran out */
    size_t at;                                    /* the next character of the text */
    int32_t decomposed[BERT_MOST_DECOMPOSED + 2]; /* the last character read, between two spaces if it is Chinese */
    size_t decomposed_count, decomposed_at;
    combining_mark *marks; /* combining characters that are still to be given in their canonical order */
    size_t mark_count, mark_capacity, mark_at;
    bool ordering;      /* the marks are being given */
    int32_t mark_class; /* the combining class that is being given */
    int32_t second;     /* the second character of a lower case of two, or 0 */
} bert_reader;

/* The next character that the rules leave; false at the end and if memory ran out.  All calls together take a
 * time that is linear in the text's length. */
bool bert_next(bert_reader *reader, int32_t *character, bert_kind *kind);

void bert_reader_release(bert_reader *reader);

/* Whether the bytes are UTF-8 throughout. */
bool bert_text_is_utf8(const char *text, size_t bytes);

/* Writes the character as UTF-8; how many bytes, 1 to 4. */
size_t bert_text_encode(int32_t character, unsigned char to[4]);

#endif
