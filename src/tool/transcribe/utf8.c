#include "tool/transcribe/utf8.h"

#include <string.h>

size_t utf8_next(const char *text, size_t bytes, uint32_t *character)
{
    const unsigned char *b = (const unsigned char *)text;
    unsigned char lead = b[0], low = 0x80, high = 0xbf;
    size_t more;
    *character = UTF8_REPLACEMENT;
    if (lead < 0x80) {
        *character = lead;
        return 1;
    }
    if (lead < 0xc2 || lead > 0xf4)
        return 1;
    more = lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
    /* The second byte tells overlong forms, surrogates and characters beyond U+10FFFF. */
    if (lead == 0xe0)
        low = 0xa0;
    if (lead == 0xed)
        high = 0x9f;
    if (lead == 0xf0)
        low = 0x90;
    if (lead == 0xf4)
        high = 0x8f;
    uint32_t value = lead & (0x3fu >> more);
    for (size_t i = 1; i <= more; i++) {
        if (i >= bytes || b[i] < low || b[i] > high)
            return i;
        value = value << 6 | (b[i] & 0x3fu);
        low = 0x80;
        high = 0xbf;
    }
    *character = value;
    return more + 1;
}

size_t utf8_put(uint32_t c, char *text)
{
    if (c < 0x80) {
        text[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        text[0] = (char)(0xc0 | c >> 6);
        text[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        text[0] = (char)(0xe0 | c >> 12);
        text[1] = (char)(0x80 | (c >> 6 & 0x3f));
        text[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    text[0] = (char)(0xf0 | c >> 18);
    text[1] = (char)(0x80 | (c >> 12 & 0x3f));
    text[2] = (char)(0x80 | (c >> 6 & 0x3f));
    text[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

bool utf8_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

const char *utf8_strip(const char *text, size_t *length)
{
    size_t bytes = strlen(text), from = 0, to = 0;
    for (size_t at = 0; at < bytes;) {
        uint32_t character;
        size_t step = utf8_next(text + at, bytes - at, &character);
        if (!utf8_is_space(character))
            to = at + step;
        else if (to == 0)
            from = at + step;
        at += step;
    }
    *length = to > from ? to - from : 0;
    return text + from;
}
