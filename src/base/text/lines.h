/* Texts of lines, each of which ends in a newline. */
#ifndef CLATTN_BASE_TEXT_LINES_H
#define CLATTN_BASE_TEXT_LINES_H

#include <string.h>

static inline size_t line_length(const char *text)
{
    return strcspn(text, "\n");
}

/* Moves both to the first line in which they differ; one that has no more is then at its end. */
static inline void skip_equal_lines(const char **left, const char **right)
{
    while (**left && !strncmp(*left, *right, line_length(*left) + 1)) {
        const size_t length = line_length(*left) + 1;
        *left += length;
        *right += length;
    }
}

#endif
