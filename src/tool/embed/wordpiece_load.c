/* The reader of vocab.txt, and what both readers share. */
#include <stdlib.h>
#include <string.h>

#include "io/common.h"
#include "tool/run/model_file.h"
#include "tool/embed/wordpiece_private.h"

clattn_status wordpiece_no_memory(const char *path, clattn_io_error *error)
{
    return io_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, path, "no memory for its tokens");
}

clattn_status wordpiece_add(wordpiece *t, size_t number, const char *text, size_t bytes, const char *path,
                            clattn_io_error *error)
{
    size_t other = 0;
    const int shown = (int)(bytes < WORDPIECE_SHOWN ? bytes : WORDPIECE_SHOWN);
    switch (vocab_add(&t->vocab, number, text, bytes, &other)) {
    case VOCAB_SAME_TEXT:
        return io_fail(error, CLATTN_ERROR_FORMAT, path, "the token '%.*s' is number %zu and %zu, expected once", shown,
                       text, other, number);
    case VOCAB_SAME_NUMBER:
        return io_fail(error, CLATTN_ERROR_FORMAT, path, "number %zu is '%s' and '%.*s', expected one token", number,
                       wordpiece_token(t, (int32_t)number), shown, text);
    case VOCAB_ALIKE:
        return io_fail(error, CLATTN_ERROR_UNSUPPORTED, path, "too many of its tokens have one hash, '%.*s' among them",
                       shown, text);
    case VOCAB_ADDED: break;
    }
    return CLATTN_SUCCESS;
}

clattn_status wordpiece_find(const wordpiece *t, const char *text, size_t bytes, const char *path, int32_t *id,
                             clattn_io_error *error)
{
    *id = vocab_find(&t->vocab, text, bytes);
    return *id >= 0 ? CLATTN_SUCCESS
                    : io_fail(error, CLATTN_ERROR_FORMAT, path, "its vocabulary lacks the token '%.*s'",
                              (int)(bytes < WORDPIECE_SHOWN ? bytes : WORDPIECE_SHOWN), text);
}

/* The length of the line at `at`, without its end, and the beginning of the next line. */
static size_t line_length(const char *text, size_t bytes, size_t at, size_t *next)
{
    const char *end = memchr(text + at, '\n', bytes - at);
    size_t length = end != NULL ? (size_t)(end - text) - at : bytes - at;
    *next = at + length + (end != NULL);
    return length > 0 && text[at + length - 1] == '\r' ? length - 1 : length;
}

static clattn_status read_lines(wordpiece *t, const char *path, const char *text, size_t bytes, clattn_io_error *error)
{
    clattn_status status = CLATTN_SUCCESS;
    size_t lines = 0, next;
    if (!bert_text_is_utf8(text, bytes))
        return io_fail(error, CLATTN_ERROR_FORMAT, path, "is not UTF-8, expected a token a line");
    for (size_t at = 0; at < bytes; at = next, lines++)
        line_length(text, bytes, at, &next);
    if (lines > VOCAB_MOST_TOKENS)
        return io_fail(error, CLATTN_ERROR_UNSUPPORTED, path, "has %zu lines, expected at most %zu", lines,
                       VOCAB_MOST_TOKENS);
    if (!vocab_init(&t->vocab, lines, bytes))
        return wordpiece_no_memory(path, error);
    for (size_t at = 0, line = 0; status == CLATTN_SUCCESS && line < lines; at = next, line++) {
        size_t length = line_length(text, bytes, at, &next);
        if (length == 0 || memchr(text + at, '\0', length) != NULL)
            status = io_fail(error, CLATTN_ERROR_FORMAT, path, "token %zu, on line %zu, %s, expected a token a line",
                             line, line + 1, length == 0 ? "is empty" : "holds a NUL");
        else if (length > VOCAB_MOST_BYTES)
            status = io_fail(error, CLATTN_ERROR_UNSUPPORTED, path,
                             "token %zu, on line %zu, has %zu bytes, expected at most %d", line, line + 1, length,
                             VOCAB_MOST_BYTES);
        else
            status = wordpiece_add(t, line, text + at, length, path, error);
    }
    return status;
}

static clattn_status add_usual_special(wordpiece *t, const char *path, clattn_io_error *error)
{
    static const char *const names[] = {"[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"};
    int32_t *const ids[] = {&t->unknown, &t->first, &t->last};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        int32_t id = vocab_find(&t->vocab, names[i], strlen(names[i]));
        if (i < sizeof ids / sizeof ids[0]) {
            clattn_status status = wordpiece_find(t, names[i], strlen(names[i]), path, ids[i], error);
            if (status != CLATTN_SUCCESS)
                return status;
        }
        if (id >= 0 && !wordpiece_add_special(t, names[i], strlen(names[i]), id))
            return wordpiece_no_memory(path, error);
    }
    return CLATTN_SUCCESS;
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
    clattn_status status = model_file_read(path, WORDPIECE_MOST_BYTES, &text, &bytes, error);
    if (status == CLATTN_SUCCESS)
        status = read_lines(t, path, text, bytes, error);
    if (status == CLATTN_SUCCESS)
        status = add_usual_special(t, path, error);
    free(text);
    if (status != CLATTN_SUCCESS)
        wordpiece_close(&t);
    *tokenizer = t;
    return status;
}
