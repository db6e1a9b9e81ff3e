/* The lines of a file or of standard input, read in portions. */
#ifndef CLATTN_TOOL_TEXT_TEXT_LINES_H
#define CLATTN_TOOL_TEXT_TEXT_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/strbuf.h"

typedef struct text_line {
    size_t begin, bytes; /* in text_lines.text, without the line's end */
    size_t number;       /* from 1 */
} text_line;

/* The caller sets `file` and `name` and zeroes the rest.  text_lines_release frees the lines and leaves the file
 * open. */
typedef struct text_lines {
    FILE *file;
    const char *name;   /* for messages */
    size_t read;        /* lines so far */
    struct strbuf text; /* a NUL is after each line */
    text_line *line;
    size_t count, line_capacity;
} text_lines;

/* Reads the next `most` lines, or all lines if `most` is 0.  A line ends at a line feed or at the end of the file;
 * a carriage return before the line feed is dropped.  The lines that were read before are kept if `keep`, and
 * replaced otherwise.  With `filled`, lines of ASCII white space alone are skipped.  Returns an exit status; at the
 * end of the file no line is added. */
int text_lines_read(text_lines *lines, size_t most, bool keep, bool filled);

void text_lines_release(text_lines *lines);

#endif
