/* The text of a snippet and of a kernel's source as a compiler reads it. */
#ifndef CLATTN_PROGRAM_SNIPPET_TEXT_H
#define CLATTN_PROGRAM_SNIPPET_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* A name or a number in a text; its length is 0 if there is none. */
struct word {
    const char *text;
    size_t length;
};

bool word_is(struct word word, const char *text);

/* The word that begins at `text`; the one behind another with only blanks between them; the first from `text` on that begins
 * before `end`. */
struct word word_at(const char *text);
struct word word_behind(struct word word);
struct word word_next(const char *text, const char *end);

/* Whether the line is a directive, and its name; its '#' may be "%:". */
bool word_directive(const char *line, struct word *name);

/* A copy of the text, for the caller to free, with lines joined that a backslash continues, and a blank for each comment, string
 * and character.  What follows a joined line keeps its number.  Returns NULL if host memory is out. */
char *snippet_plain(const char *text);

#endif
