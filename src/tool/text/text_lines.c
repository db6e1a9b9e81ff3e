#include "tool/text/text_lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tool/tool.h"

#define MOST_LINE ((size_t)64 << 20)    /* bytes; a longer line is refused */
#define MOST_PORTION ((size_t)16 << 20) /* bytes after which a portion ends, however few lines it has */

/* Appends a line to the text; *end: there is no more line. */
static int read_line(text_lines *lines, bool *end)
{
    const size_t begin = lines->text.length;
    int c = getc(lines->file);
    *end = c == EOF;
    for (; c != EOF && c != '\n'; c = getc(lines->file)) {
        const char byte = (char)c;
        if (lines->text.length - begin == MOST_LINE)
            return complain(TOOL_BAD_INPUT, "%s: line %zu has more than %zu bytes", lines->name, lines->read + 1,
                            MOST_LINE);
        strbuf_append(&lines->text, &byte, 1);
        if (lines->text.failed)
            return complain(TOOL_FAILED, "%s: out of memory for line %zu", lines->name, lines->read + 1);
    }
    if (ferror(lines->file))
        return complain(TOOL_BAD_INPUT, "%s: cannot be read: %s", lines->name, strerror(errno));
    if (lines->text.length > begin && lines->text.text[lines->text.length - 1] == '\r')
        lines->text.length--;
    lines->read += !*end;
    return TOOL_DONE;
}

static bool is_blank(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (text[i] != ' ' && !(text[i] >= '\t' && text[i] <= '\r'))
            return false;
    return true;
}

static bool add_line(text_lines *lines, size_t begin, size_t bytes)
{
    if (lines->count == lines->line_capacity) {
        size_t capacity = 2 * lines->line_capacity + 64;
        text_line *larger = realloc(lines->line, capacity * sizeof *larger);
        if (larger == NULL)
            return false;
        lines->line = larger;
        lines->line_capacity = capacity;
    }
    lines->line[lines->count++] = (text_line){begin, bytes, lines->read};
    return true;
}

int text_lines_read(text_lines *lines, size_t most, bool keep, bool filled)
{
    if (!keep)
        lines->text.length = lines->count = 0;
    const size_t from = lines->text.length, before = lines->count;
    while (most == 0 || (lines->count - before < most && lines->text.length - from < MOST_PORTION)) {
        const size_t begin = lines->text.length;
        bool end;
        int status = read_line(lines, &end);
        if (status != TOOL_DONE || end)
            return status;
        const size_t bytes = lines->text.length - begin;
        if (filled && (bytes == 0 || is_blank(lines->text.text + begin, bytes))) {
            lines->text.length = begin;
            continue;
        }
        strbuf_append(&lines->text, "", 1);
        if (lines->text.failed || !add_line(lines, begin, bytes))
            return complain(TOOL_FAILED, "%s: out of memory for line %zu", lines->name, lines->read);
    }
    return TOOL_DONE;
}

void text_lines_release(text_lines *lines)
{
    strbuf_clear(&lines->text);
    free(lines->line);
    lines->line = NULL;
    lines->count = lines->line_capacity = 0;
}
