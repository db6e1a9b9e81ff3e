/* The reader of vocab.txt, and what both readers share. */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "io/common.h"
#include "tool/run/model_file.h"
#include "tool/embed/wordpiece_private.h"

clattn_status wordpiece_no_memory(const char *path, clattn_io_error *error)
{
    return io_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, path, "no memory for its tokens");
}

/* The bytes of a token that a message shows. */
static int shown(const char *text)
{
    return (int)size_min(strlen(text), WORDPIECE_SHOWN);
}

static int compare(const void *a, const void *b)
{
    return strcmp(((const sorted_token *)a)->text, ((const sorted_token *)b)->text);
}

void wordpiece_sort(sorted_token *tokens, size_t count)
{
    qsort(tokens, count, sizeof *tokens, compare);
    for (size_t i = 0; i < count; i++) {
        int32_t before = (int32_t)i - 1;
        while (before >= 0 && (tokens[before].bytes > tokens[i].bytes ||
                               memcmp(tokens[before].text, tokens[i].text, tokens[before].bytes) != 0))
            before = tokens[before].shorter;
        tokens[i].shorter = before;
    }
}

clattn_status wordpiece_index(wordpiece *t, size_t size, const char *path, clattn_io_error *error)
{
    const char *text;
    json_t *value;
    t->token = calloc(size + 1, sizeof *t->token);
    t->sorted = calloc(json_object_size(t->numbers) + 1, sizeof *t->sorted);
    if (t->token == NULL || t->sorted == NULL)
        return wordpiece_no_memory(path, error);
    t->size = size;
    json_object_foreach(t->numbers, text, value)
    {
        const char **place = &t->token[json_integer_value(value)];
        if (*place != NULL)
            return io_fail(error, CLATTN_ERROR_FORMAT, path, "number %zu is '%s' and '%.*s', expected one token",
                           (size_t)json_integer_value(value), *place, shown(text), text);
        *place = text;
        t->sorted[t->count++] =
            (sorted_token){.text = text, .bytes = strlen(text), .id = (int32_t)json_integer_value(value)};
    }
    wordpiece_sort(t->sorted, t->count);
    return CLATTN_SUCCESS;
}

clattn_status wordpiece_find(const wordpiece *t, const char *text, const char *path, int32_t *id,
                             clattn_io_error *error)
{
    *id = wordpiece_number(t, text);
    return *id >= 0
               ? CLATTN_SUCCESS
               : io_fail(error, CLATTN_ERROR_FORMAT, path, "its vocabulary lacks the token '%.*s'", shown(text), text);
}

/* The length of the line at `at`, without its end, and the beginning of the next line. */
static size_t line_length(const char *text, size_t bytes, size_t at, size_t *next)
{
    const char *end = memchr(text + at, '\n', bytes - at);
    size_t length = end != NULL ? (size_t)(end - text) - at : bytes - at;
    *next = at + length + (end != NULL);
    return length > 0 && text[at + length - 1] == '\r' ? length - 1 : length;
}

static clattn_status add_line(wordpiece *t, size_t line, const char *text, size_t bytes, const char *path,
                              clattn_io_error *error)
{
    if (bytes == 0 || strlen(text) != bytes)
        return io_fail(error, CLATTN_ERROR_FORMAT, path, "token %zu, on line %zu, %s, expected a token a line", line,
                       line + 1, bytes == 0 ? "is empty" : "holds a NUL");
    if (bytes > WORDPIECE_MOST_TOKEN)
        return io_fail(error, CLATTN_ERROR_UNSUPPORTED, path,
                       "token %zu, on line %zu, has %zu bytes, expected at most %d", line, line + 1, bytes,
                       WORDPIECE_MOST_TOKEN);
    if (wordpiece_number(t, text) >= 0)
        return io_fail(error, CLATTN_ERROR_FORMAT, path, "the token '%.*s' is number %d and %zu, expected once",
                       shown(text), text, (int)wordpiece_number(t, text), line);
    return json_object_set_new(t->numbers, text, json_integer((json_int_t)line)) == 0
               ? CLATTN_SUCCESS
               : wordpiece_no_memory(path, error);
}

static clattn_status read_lines(wordpiece *t, const char *path, char *text, size_t bytes, clattn_io_error *error)
{
    clattn_status status;
    size_t lines = 0, next;
    if (!bert_text_is_utf8(text, bytes))
        return io_fail(error, CLATTN_ERROR_FORMAT, path, "is not UTF-8, expected a token a line");
    for (size_t at = 0; at < bytes; at = next, lines++)
        line_length(text, bytes, at, &next);
    if (lines > WORDPIECE_MOST_TOKENS)
        return io_fail(error, CLATTN_ERROR_UNSUPPORTED, path, "has %zu lines, expected at most %zu", lines,
                       WORDPIECE_MOST_TOKENS);
    t->numbers = json_object();
    for (size_t at = 0, line = 0; line < lines; at = next, line++) {
        size_t length = line_length(text, bytes, at, &next);
        text[at + length] = '\0';
        TRY(add_line(t, line, text + at, length, path, error));
    }
    TRY(wordpiece_index(t, lines, path, error));
fail:
    return status;
}

static clattn_status add_usual_special(wordpiece *t, const char *path, clattn_io_error *error)
{
    static const char *const names[] = {"[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"};
    clattn_status status;
    TRY(wordpiece_find(t, "[UNK]", path, &t->unknown, error));
    TRY(wordpiece_find(t, "[CLS]", path, &t->first, error));
    TRY(wordpiece_find(t, "[SEP]", path, &t->last, error));
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (wordpiece_number(t, names[i]) >= 0)
            wordpiece_add_special(t, wordpiece_number(t, names[i]));
    wordpiece_sort(t->special, t->special_count);
fail:
    return status;
}

clattn_status wordpiece_open_vocab(const char *path, wordpiece **tokenizer, clattn_io_error *error)
{
    char *text = NULL;
    size_t bytes = 0;
    *tokenizer = NULL;
    wordpiece *t = calloc(1, sizeof *t);
    if (t == NULL)
        return wordpiece_no_memory(path, error);
    t->rules = (bert_rules){true, true, true, true};
    memcpy(t->prefix, "##", 3);
    t->prefix_bytes = 2;
    t->most_characters = 100;
    clattn_status status;
    TRY(model_file_read(path, WORDPIECE_MOST_BYTES, &text, &bytes, error));
    TRY(read_lines(t, path, text, bytes, error));
    TRY(add_usual_special(t, path, error));
fail:
    free(text);
    if (status != CLATTN_SUCCESS)
        wordpiece_close(&t);
    *tokenizer = t;
    return status;
}
