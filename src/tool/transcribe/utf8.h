/* Characters of UTF-8. */
#ifndef CLATTN_TOOL_TRANSCRIBE_UTF8_H
#define CLATTN_TOOL_TRANSCRIBE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The character that replaces bytes that are no character, and its bytes. */
#define UTF8_REPLACEMENT 0xfffdu
#define UTF8_REPLACEMENT_TEXT "\xef\xbf\xbd"

/* The next character of `bytes` (not 0) bytes; returns how many it takes.  What is no UTF-8 is U+FFFD, once
 * for each longest run of bytes with which a character could have begun, as Unicode recommends (chapter 3,
 * table 3-8). */
size_t utf8_next(const char *text, size_t bytes, uint32_t *character);

/* The text without the white space around it, and its length. */
const char *utf8_strip(const char *text, size_t *length);

/* Writes a character, of up to 4 bytes; returns how many. */
size_t utf8_put(uint32_t character, char *text);

/* Whether a character is white space (Unicode's White_Space, and U+001C to U+001F). */
bool utf8_is_space(uint32_t character);

#endif
