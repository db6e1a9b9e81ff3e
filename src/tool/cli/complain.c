#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/cli/progress.h"
#include "tool/tool.h"

static atomic_bool complained; /* several threads may fail at a time */
static bool holds;
static char kept[4096]; /* a line that is held */
static char about[32];  /* the rank, if there are several */

void complain_no_more(void)
{
    complained = true;
}

void complain_as_rank(int rank)
{
    snprintf(about, sizeof about, "rank %d: ", rank);
}

void complain_hold(void)
{
    holds = true;
}

static void write_line(const char *line)
{
    progress_hide();
    fprintf(stderr, "clattn: %s%s\n", about, line);
}

void complain_deliver(bool speak)
{
    holds = false;
    if (speak && kept[0] != '\0')
        write_line(kept);
    kept[0] = '\0';
}

/* Formats the line; a line that is too long loses its middle, because a path may have any length and the fault is
 * named at the end. */
static void format_line(char *line, size_t bytes, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(line, bytes, format, arguments);
    char *whole = length >= 0 && (size_t)length >= bytes ? malloc((size_t)length + 1) : NULL;
    if (whole != NULL && vsnprintf(whole, (size_t)length + 1, format, again) == length) {
        size_t tail = bytes / 2;
        memcpy(line + bytes - tail - 3, "...", 3);
        memcpy(line + bytes - tail, whole + (size_t)length + 1 - tail, tail);
    }
    free(whole);
    va_end(again);
    if (length < 0)
        snprintf(line, bytes, "%s", format);
}

int complain(int status, const char *format, ...)
{
    char line[4096];

    if (atomic_exchange(&complained, true))
        return status;

    va_list arguments;
    va_start(arguments, format);
    format_line(line, sizeof line, format, arguments);
    va_end(arguments);
    /* A build log or a hostile file name must not become a second line, nor steer the terminal. */
    size_t end = strlen(line);
    while (end > 0 && (unsigned char)line[end - 1] <= ' ')
        line[--end] = '\0';
    for (size_t i = 0; i < end; i++) {
        unsigned char c = (unsigned char)line[i];
        if (c == '\n')
            line[i] = '|';
        else if (c < ' ' || c == 0x7f)
            line[i] = c == '\t' ? ' ' : '?';
    }
    if (holds)
        memcpy(kept, line, sizeof kept);
    else
        write_line(line);
    return status;
}
