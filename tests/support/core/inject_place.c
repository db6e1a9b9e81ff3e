/* Where a call that was made to fail came from. */
#define _GNU_SOURCE
#include <stdio.h>

#include "support/core/inject.h"

#ifdef _WIN32 /* which has the layer of OpenCL alone, whose calls have names and no places */

const char *inject_place(const void *caller, char *text, size_t bytes)
{
    snprintf(text, bytes, "%p", caller);
    return text;
}

void inject_trace(void)
{
}

#else

#include <dlfcn.h>
#include <execinfo.h>

const char *inject_place(const void *caller, char *text, size_t bytes)
{
    Dl_info about;
    if (dladdr(caller, &about))
        snprintf(text, bytes, "%s+0x%zx", about.dli_fname,
                 (size_t)((const char *)caller - (const char *)about.dli_fbase));
    return text;
}

void inject_trace(void)
{
    void *stack[24];
    backtrace_symbols_fd(stack, backtrace(stack, 24), 2);
}

#endif
