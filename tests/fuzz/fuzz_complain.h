/* What the command's parts complain with: the line is made, so that the sanitizers see it, and forgotten. */
#ifndef TESTS_FUZZ_COMPLAIN_H
#define TESTS_FUZZ_COMPLAIN_H

#include <stdarg.h>
#include <stdio.h>

#include "tool/tool.h"

int complain(int status, const char *format, ...)
{
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    return status;
}

#endif
