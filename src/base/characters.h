/* Classes of characters, whatever the locale. */
#ifndef CLATTN_BASE_CHARACTERS_H
#define CLATTN_BASE_CHARACTERS_H

#include <stdbool.h>

static inline bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* A letter of an identifier, the underscore included. */
static inline bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

#endif
