/* JSON texts that may meet a lack of memory. */
#ifndef CLATTN_IO_JSON_LOAD_H
#define CLATTN_IO_JSON_LOAD_H

#include <errno.h>
#include <stdbool.h>

#include <jansson.h>

/* json_loadb; *no_memory tells whether it failed because memory has run out.  jansson 2.14 mostly calls that
 * malformed text, and where a string's buffer cannot grow it goes on without the character, so what malloc leaves in
 * errno decides.  Two things remain, which the command's json_watch_memory mends: jansson sets errno to 0 before it reads a
 * number, and ends the process by an assertion if the character stood behind a backslash. */
static inline json_t *json_load(const char *text, size_t bytes, size_t flags, json_error_t *problem, bool *no_memory)
{
    errno = 0;
    json_t *value = json_loadb(text, bytes, flags, problem);
    *no_memory = errno == ENOMEM;
    if (*no_memory) {
        json_decref(value);
        value = NULL;
    }
    return value;
}

#endif
