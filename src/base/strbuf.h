/* A growing string, zero-initialised.  After a failed allocation `failed` is set and strbuf_take returns NULL. */
#ifndef CLATTN_BASE_STRBUF_H
#define CLATTN_BASE_STRBUF_H

#include <stdbool.h>
#include <stddef.h>

#include "base/report.h"

struct strbuf {
    char *text; /* NUL-terminated; NULL while empty */
    size_t length, capacity;
    bool failed;
};

void strbuf_append(struct strbuf *buffer, const char *text, size_t length);
void strbuf_printf(struct strbuf *buffer, const char *format, ...) PRINTF_LIKE(2, 3);
void strbuf_clear(struct strbuf *buffer);

/* Hands the text over to the caller, who frees it; NULL if any append failed. */
char *strbuf_take(struct strbuf *buffer);

/* strdup, which C11 lacks; NULL for NULL. */
char *string_copy(const char *text);

#endif
