/* Wisdom as text.  The reader takes what the writer writes, to the byte, and nothing else. */
#include <stdlib.h>
#include <string.h>

#include "plan/wisdom/wisdom.h"

#define HEADING "clattn-wisdom 1\n"
#define FAMILY "clattn-wisdom "
#define KEY_TOKENS 5

void wisdom_token(struct strbuf *key, const char *text, size_t most)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._+:,()@-";
    if (!*text)
        strbuf_append(key, "-", 1);
    for (size_t i = 0; text[i] && i < most; i++)
        if (strchr(plain, text[i]))
            strbuf_append(key, &text[i], 1);
        else
            strbuf_printf(key, "%%%02X", (unsigned)(unsigned char)text[i]);
}

/* The bytes of the token at `at`: printing characters up to a blank or the end. */
static size_t token(const char *at, const char *end)
{
    const char *p = at;
    while (p < end && *p > ' ' && *p < 0x7f)
        p++;
    return p == end || *p == ' ' ? (size_t)(p - at) : 0;
}

/* Reads a token as a decimal number without leading zeros; false if it is none, or is above `most`. */
static bool number(const char *at, size_t length, uint64_t most, uint64_t *value)
{
    if (!length || length > 19 || (length > 1 && *at == '0'))
        return false;
    *value = 0;
    for (size_t i = 0; i < length; i++) {
        if (at[i] < '0' || at[i] > '9')
            return false;
        *value = *value * 10 + (uint64_t)(at[i] - '0');
    }
    return *value <= most;
}

/* Splits a line into its parts; returns why it is no record, or NULL. */
static const char *split(const char *line, size_t length, struct wisdom_record *record, struct advice *advice)
{
    const char *p = line, *end = line + length;
    uint64_t rank;
    for (int i = 0; i < KEY_TOKENS + 3; i++) {
        size_t bytes = token(p, end);
        bool last = p + bytes == end;
        if (!bytes || (last && i < KEY_TOKENS + 2))
            return "a record has too few parts, or an empty one";
        if (i == KEY_TOKENS) {
            if (bytes >= WISDOM_SOLVER)
                return "a solver's name is too long";
            record->key = (size_t)(p - line) - 1;
            record->solver = bytes;
            memcpy(advice->solver, p, bytes);
            advice->solver[bytes] = '\0';
        } else if (i == KEY_TOKENS + 1) {
            if (!number(p, bytes, WISDOM_RANKS - 1, &rank))
                return "a rank is no number from 0 to 7";
            record->rank = advice->rank = (uint32_t)rank;
        } else if (i == KEY_TOKENS + 2 && !number(p, bytes, UINT64_MAX, &advice->nanoseconds)) {
            return "nanoseconds are no number of at most 19 digits";
        }
        p += bytes + !last;
    }
    if (p == end && end[-1] == ' ')
        return "a line ends in a blank";
    if (!settings_parse(p, (size_t)(end - p), &advice->settings))
        return "parameters are not NAME=NUMBER, or are too many";
    return NULL;
}

static char *copy_of(const char *line, size_t length)
{
    char *copy = malloc(length + 1);
    if (copy) {
        memcpy(copy, line, length);
        copy[length] = '\0';
    }
    return copy;
}

clattn_status wisdom_parse(const char *text, size_t bytes, struct wisdom_list *list, size_t *line, const char **reason)
{
    const char *p = text + strlen(HEADING), *end = text + bytes;
    struct advice advice;
    *line = 1;
    *reason = "there is more text than wisdom may be";
    if (bytes > WISDOM_BYTES)
        return CLATTN_ERROR_FORMAT;
    if (bytes < strlen(HEADING) || memcmp(text, HEADING, strlen(HEADING)) != 0) {
        *reason = bytes > strlen(FAMILY) && !memcmp(text, FAMILY, strlen(FAMILY)) ? "it is wisdom of another version"
                                                                                  : "it does not begin as wisdom does";
        return CLATTN_ERROR_FORMAT;
    }
    for (*line = 2; p < end; ++*line) {
        struct wisdom_record record = {0};
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        *reason = !stop ? "the last line has no end" : stop - p >= WISDOM_LINE ? "a line is too long" : NULL;
        if (!*reason && list->count == WISDOM_RECORDS)
            *reason = "there are too many records";
        if (!*reason)
            *reason = split(p, (size_t)(stop - p), &record, &advice);
        if (*reason)
            return CLATTN_ERROR_FORMAT;
        record.line = copy_of(p, (size_t)(stop - p));
        *reason = "no memory for wisdom";
        if (!record.line || !wisdom_list_add(list, record))
            return CLATTN_ERROR_OUT_OF_MEMORY;
        p = stop + 1;
    }
    return CLATTN_SUCCESS;
}

void wisdom_write(const struct wisdom_list *list, struct strbuf *text)
{
    strbuf_append(text, HEADING, strlen(HEADING));
    for (size_t i = 0; i < list->count; i++) {
        strbuf_append(text, list->record[i].line, strlen(list->record[i].line));
        strbuf_append(text, "\n", 1);
    }
}

void wisdom_read(const struct wisdom_record *record, struct advice *advice)
{
    struct wisdom_record parts;
    split(record->line, strlen(record->line), &parts, advice);
}
