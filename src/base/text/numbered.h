/* Names that are numbered, as those of a model's layers are. */
#ifndef CLATTN_BASE_TEXT_NUMBERED_H
#define CLATTN_BASE_TEXT_NUMBERED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Whether `name` is `stem`, a number and a full stop; more than six digits make *number 1000000. */
static inline bool numbered(const char *name, const char *stem, size_t *number)
{
    const size_t length = strlen(stem);
    if (strncmp(name, stem, length) != 0)
        return false;
    const size_t digits = strspn(name + length, "0123456789");
    *number = digits > 6 ? 1000000 : (size_t)strtoul(name + length, NULL, 10);
    return digits > 0 && name[length + digits] == '.';
}

#endif
