/* JSON texts that may meet a lack of memory. */
#ifndef CLATTN_IO_JSON_LOAD_H
#define CLATTN_IO_JSON_LOAD_H

#include <errno.h>
#include <stdbool.h>

#include <jansson.h>

/* json_loadb; if it fails, *no_memory tells whether memory has run out.  jansson 2.14 mostly reports that as malformed text,
 * so what malloc has left in errno decides. */
static inline json_t *json_load(const char *text, size_t bytes, size_t flags, json_error_t *problem, bool *no_memory)
{
    errno = 0;
    json_t *value = json_loadb(text, bytes, flags, problem);
    *no_memory = value == NULL && errno == ENOMEM;
    return value;
}

#endif
