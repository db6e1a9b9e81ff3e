#include "tool/embed/text_lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tool/tool.h"

#define MOST_LINE ((size_t)64 << 20)    /* bytes; a longer line is refused */
#define MOST_PORTION ((size_t)16 << 20) /* bytes after which a portion ends, however few lines it has */

static bool grow(void **memory, size_t *capacity, size_t wanted, size_t size)
{
    if (wanted <= *capacity)
        return true;
    size_t larger = *capacity < 64 ? 64 : 2 * *capacity;
    void *moved = realloc(*memory, larger * size);
    if (moved == NULL)
        return false;
    *memory = moved;
    *capacity = larger;
    return true;
}

/* Appends a line to the text; *end: there is no more line. */
static int read_line(text_lines *lines, bool *end)
{
    const size_t begin = lines->used;
    int c = getc(lines->file);
    *end = c == EOF;
    for (; c != EOF && c != '\n'; c = getc(lines->file)) {
        if (lines->used - begin == MOST_LINE)
            return complain(TOOL_BAD_INPUT, "%s: line %zu has more than %zu bytes", lines->name, lines->read + 1,
                            MOST_LINE);
        void *text = lines->text;
        if (!grow(&text, &lines->capacity, lines->used + 1, 1))
            return complain(TOOL_FAILED, "%s: out of memory for line %zu", lines->name, lines->read + 1);
        lines->text = text;
        lines->text[lines->used++] = (char)c;
    }
    if (ferror(lines->file))
        return complain(TOOL_BAD_INPUT, "%s: cannot be read: %s", lines->name, strerror(errno));
    if (lines->used > begin && lines->text[lines->used - 1] == '\r')
        lines->used--;
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

int text_lines_read(text_lines *lines, size_t most, bool keep, bool filled)
{
    if (!keep)
        lines->used = lines->count = 0;
    const size_t from = lines->used, before = lines->count;
    while (most == 0 || (lines->count - before < most && lines->used - from < MOST_PORTION)) {
        const size_t begin = lines->used;
        bool end;
        int status = read_line(lines, &end);
        if (status != TOOL_DONE || end)
            return status;
        if (filled && (lines->used == begin || is_blank(lines->text + begin, lines->used - begin))) {
            lines->used = begin;
            continue;
        }
        void *line = lines->line;
        if (!grow(&line, &lines->line_capacity, lines->count + 1, sizeof *lines->line))
            return complain(TOOL_FAILED, "%s: out of memory for line %zu", lines->name, lines->read);
        lines->line = line;
        lines->line[lines->count++] = (text_line){begin, lines->used - begin, lines->read};
    }
    return TOOL_DONE;
}

void text_lines_release(text_lines *lines)
{
    free(lines->text);
    free(lines->line);
    lines->text = NULL;
    lines->line = NULL;
    lines->used = lines->capacity = lines->count = lines->line_capacity = 0;
}
