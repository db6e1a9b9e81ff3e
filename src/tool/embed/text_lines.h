/* Lines of a file or of standard input, a portion at a time. */
#ifndef CLATTN_TOOL_EMBED_TEXT_LINES_H
#define CLATTN_TOOL_EMBED_TEXT_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct text_line {
    size_t begin, bytes; /* in text_lines.text, without the line's end */
    size_t number;       /* from 1 */
} text_line;

/* Zeroed, but for `file` and `name`: none read yet.  Release with text_lines_release, which leaves the file
 * open. */
typedef struct text_lines {
    FILE *file;
    const char *name; /* for messages */
    size_t read;      /* lines so far */
    char *text;
    size_t used, capacity;
    text_line *line;
    size_t count, line_capacity;
} text_lines;

/* Reads on, up to `most` lines (0: to the end), which end at a line feed, before which a carriage return is
 * dropped; the last need not.  What was there before is kept if `keep`, otherwise replaced.  With `filled`,
 * lines of nothing but white space (of ASCII) are passed over.  An exit status; at the end of the file no
 * line is added. */
int text_lines_read(text_lines *lines, size_t most, bool keep, bool filled);

void text_lines_release(text_lines *lines);

#endif
