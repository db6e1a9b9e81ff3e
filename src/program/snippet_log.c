/* The formats, of one error in line 3, in column 9:
 *
 *   PoCL 3.1              error: score_mod:3:9: TEXT
 *   Intel, rusticl        score_mod:3:9: error: TEXT [-Werror,-Wreturn-type]
 *   Oclgrind 21.10        input.cl:49:9: error: TEXT                            the line is counted from the program's first
 *   NVIDIA 580            <kernel>:49:9: error: TEXT                            likewise
 */
#include "program/snippet_log.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS "0123456789"

/* The first "NAME:" with a digit behind it, up to `end`; returns the digit, or NULL. */
static const char *find_named(const char *line, const char *end, const char *name)
{
    const size_t length = strlen(name);
    for (; line + length + 1 < end; line++)
        if (!strncmp(line, name, length) && line[length] == ':' && isdigit((unsigned char)line[length + 1]))
            return line + length + 1;
    return NULL;
}

/* The digit behind the first ':' of the line's first word, or NULL. */
static const char *find_numbered(const char *line, const char *end)
{
    for (; line + 1 < end && *line != ' '; line++)
        if (*line == ':' && isdigit((unsigned char)line[1]))
            return line + 1;
    return NULL;
}

/* A decimal number that does not overflow; 0 if it is absurd. */
static int read_number(const char *digits)
{
    return strspn(digits, DIGITS) < 8 ? atoi(digits) : 0;
}

/* Appends "NAME:LINE:COLUMN: TEXT" if the line tells of the snippet; false if it does not. */
static bool append_place(const struct snippet_place *place, const char *line, size_t length, struct strbuf *message)
{
    static const char *const severities[] = {"fatal error: ", "error: ", "warning: "};
    const char *end = line + length, *number = find_named(line, end, place->name);
    int found = number ? read_number(number) : 0;
    if (!number && (number = find_numbered(line, end)) != NULL)
        found = read_number(number) - place->before;
    if (!number || found < 1 || found > place->lines)
        return false;
    number += strspn(number, DIGITS);
    size_t column = *number == ':' ? strspn(number + 1, DIGITS) + 1 : 0;
    const char *text = number + column;
    if (column == 1) /* no column, but the ':' before the text */
        text = number, column = 0;
    text += text < end && *text == ':';
    text += text < end && *text == ' ';
    for (size_t i = 0; i < sizeof severities / sizeof severities[0]; i++)
        if (!strncmp(text, severities[i], strlen(severities[i])))
            text += strlen(severities[i]);
    for (const char *tail = text; tail < end; tail++)
        if (!strncmp(tail, " [-W", 4))
            end = tail;
    strbuf_printf(message, "%s:%d%.*s: %.*s", place->name, found, (int)column, number,
                  text < end ? (int)(end - text) : 0, text);
    return true;
}

/* The error in the first line of driver_build's message. */
static const char *error_of(const char *failure, size_t *length)
{
    static const char before_error[] = " did not build: ";
    const char *error = strstr(failure, before_error);
    error = error ? error + sizeof before_error - 1 : failure;
    *length = strcspn(error, "\n");
    return error;
}

void snippet_log_error(const struct snippet_place *place, const char *failure, const char *strict,
                       struct strbuf *message)
{
    size_t length, each;
    const char *error = error_of(failure, &length);
    bool found = append_place(place, error, length, message);
    /* That a function is nowhere a linker may find, which knows no lines: the compiler has warned of it. */
    for (const char *line = error_of(strict, &each); !found && *line; line += strspn(line, "\r\n")) {
        each = strcspn(line, "\r\n");
        found = append_place(place, line, each, message);
        line += each;
    }
    if (!found)
        strbuf_printf(message, "%s: %.*s", place->name, (int)length, error);
    strbuf_printf(message, "\n%s", failure);
}

static bool has(const char *line, size_t length, const char *word)
{
    const size_t bytes = strlen(word);
    for (size_t i = 0; i + bytes <= length; i++)
        if (!strncmp(line + i, word, bytes))
            return true;
    return false;
}

void snippet_log_warnings(const struct snippet_place *place, const char *log, struct strbuf *warnings)
{
    for (const char *line = log; *line;) {
        size_t length = strcspn(line, "\r\n");
        if ((has(line, length, "error: ") || has(line, length, "warning: ")) && !has(line, length, "note: ") &&
            append_place(place, line, length, warnings))
            strbuf_printf(warnings, "\n");
        line += length + strspn(line + length, "\r\n");
    }
}
