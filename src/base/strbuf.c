#include "base/strbuf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool reserve(struct strbuf *buffer, size_t more)
{
    if (buffer->failed || more > SIZE_MAX / 4 || buffer->length > SIZE_MAX / 4) {
        buffer->failed = true;
        return false;
    }
    size_t needed = buffer->length + more + 1;
    if (needed <= buffer->capacity)
        return true;
    size_t capacity = needed < 128 ? 128 : needed * 2;
    char *grown = realloc(buffer->text, capacity);
    if (!grown) {
        buffer->failed = true;
        return false;
    }
    buffer->text = grown;
    buffer->capacity = capacity;
    return true;
}

void strbuf_append(struct strbuf *buffer, const char *text, size_t length)
{
    if (!reserve(buffer, length))
        return;
    memcpy(buffer->text + buffer->length, text, length);
    buffer->length += length;
    buffer->text[buffer->length] = '\0';
}

void strbuf_printf(struct strbuf *buffer, const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    if (length < 0)
        buffer->failed = true;
    else if (reserve(buffer, (size_t)length)) {
        vsnprintf(buffer->text + buffer->length, (size_t)length + 1, format, again);
        buffer->length += (size_t)length;
    }
    va_end(again);
    va_end(arguments);
}

void strbuf_clear(struct strbuf *buffer)
{
    free(buffer->text);
    memset(buffer, 0, sizeof *buffer);
}

char *strbuf_take(struct strbuf *buffer)
{
    if (!buffer->failed)
        strbuf_append(buffer, "", 0);
    char *text = buffer->failed ? NULL : buffer->text;
    if (!text)
        free(buffer->text);
    memset(buffer, 0, sizeof *buffer);
    return text;
}

char *string_copy(const char *text)
{
    if (!text)
        return NULL;
    size_t bytes = strlen(text) + 1;
    char *copy = malloc(bytes);
    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}
