/* The -D options that specialise a kernel file. */
#ifndef CLATTN_PROGRAM_DEFINES_H
#define CLATTN_PROGRAM_DEFINES_H

#include "base/strbuf.h"

static inline void define_int(struct strbuf *options, const char *name, long long value)
{
    strbuf_printf(options, " -D%s=%lld", name, value);
}

static inline void define_token(struct strbuf *options, const char *name, const char *token)
{
    strbuf_printf(options, " -D%s=%s", name, token);
}

#endif
