#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "progress.h"
#include "tool.h"

static bool complained;

void complain_no_more(void)
{
    complained = true;
}

int complain(int status, const char *format, ...)
{
    char line[4096];

    if (complained)
        return status;
    complained = true;

    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length < 0)
        return status;
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
    if ((size_t)length >= sizeof line)
        memcpy(line + sizeof line - 4, "...", 4);
    progress_hide();
    fprintf(stderr, "clattn: %s\n", line);
    return status;
}
