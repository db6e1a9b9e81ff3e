/* The reader of tokenizer.json. */
#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "io/common.h"
#include "tool/run/model_file.h"
#include "tool/embed/wordpiece_private.h"

typedef struct json_file {
    const char *path;
    clattn_io_error *error;
} json_file;

static clattn_status unsupported(const json_file *file, const char *what, const char *expected)
{
    return io_fail(file->error, CLATTN_ERROR_UNSUPPORTED, file->path, "its %s is not one that clattn has, expected %s",
                   what, expected);
}

static bool has_type(const json_t *object, const char *type)
{
    const char *found = json_string_value(json_object_get(object, "type"));
    return found != NULL && strcmp(found, type) == 0;
}

static bool read_number(const json_t *value, json_int_t least, json_int_t most, size_t *number)
{
    if (!json_is_integer(value) || json_integer_value(value) < least || json_integer_value(value) > most)
        return false;
    *number = (size_t)json_integer_value(value);
    return true;
}

static clattn_status read_vocab(wordpiece *t, const json_file *file, json_t *tokens)
{
    size_t size = 0, number = 0;
    const char *key;
    json_t *value;
    if (!json_is_object(tokens))
        return io_fail(file->error, CLATTN_ERROR_FORMAT, file->path,
                       "its model.vocab is not an object of tokens and numbers");
    json_object_foreach(tokens, key, value)
    {
        const size_t length = strlen(key);
        const int shown = (int)(length < WORDPIECE_SHOWN ? length : WORDPIECE_SHOWN);
        if (!read_number(value, 0, (json_int_t)WORDPIECE_MOST_TOKENS - 1, &number))
            return io_fail(file->error, CLATTN_ERROR_FORMAT, file->path,
                           "the token '%.*s' has no number, expected one from 0 to %zu", shown, key,
                           WORDPIECE_MOST_TOKENS - 1);
        if (length == 0 || length > WORDPIECE_MOST_TOKEN)
            return io_fail(file->error, length == 0 ? CLATTN_ERROR_FORMAT : CLATTN_ERROR_UNSUPPORTED, file->path,
                           "token %zu has %zu bytes, expected 1 to %d", number, length, WORDPIECE_MOST_TOKEN);
        size = number >= size ? number + 1 : size;
    }
    t->numbers = json_incref(tokens);
    return wordpiece_index(t, size, file->path, file->error);
}

static clattn_status read_model(wordpiece *t, const json_file *file, const json_t *model)
{
    const json_t *prefix = json_object_get(model, "continuing_subword_prefix");
    const json_t *unknown = json_object_get(model, "unk_token"),
                 *most = json_object_get(model, "max_input_chars_per_word");
    if (!has_type(model, "WordPiece"))
        return unsupported(file, "model", "WordPiece");
    if (!json_is_string(prefix) || json_string_length(prefix) > WORDPIECE_MOST_PREFIX)
        return unsupported(file, "model.continuing_subword_prefix", "a short text");
    if (!read_number(most, 1, WORDPIECE_MOST_CHARACTERS, &t->most_characters))
        return unsupported(file, "model.max_input_chars_per_word", "a number from 1 to 1000");
    if (!json_is_string(unknown))
        return io_fail(file->error, CLATTN_ERROR_FORMAT, file->path, "its model.unk_token is not a text");
    t->prefix_bytes = json_string_length(prefix);
    memcpy(t->prefix, json_string_value(prefix), t->prefix_bytes);
    clattn_status status = read_vocab(t, file, json_object_get(model, "vocab"));
    if (status == CLATTN_SUCCESS)
        status = wordpiece_find(t, json_string_value(unknown), file->path, &t->unknown, file->error);
    return status;
}

static bool read_flag(const json_t *object, const char *name, bool *flag)
{
    const json_t *value = json_object_get(object, name);
    *flag = json_is_true(value);
    return json_is_boolean(value);
}

static clattn_status read_rules(wordpiece *t, const json_file *file, const json_t *root)
{
    const json_t *normalizer = json_object_get(root, "normalizer"),
                 *strip = json_object_get(normalizer, "strip_accents");
    if (!has_type(normalizer, "BertNormalizer") || !read_flag(normalizer, "clean_text", &t->rules.clean) ||
        !read_flag(normalizer, "handle_chinese_chars", &t->rules.chinese) ||
        !read_flag(normalizer, "lowercase", &t->rules.lower) ||
        (strip != NULL && !json_is_null(strip) && !json_is_boolean(strip)))
        return unsupported(file, "normalizer", "BertNormalizer with its four flags");
    t->rules.strip = json_is_boolean(strip) ? json_is_true(strip) : t->rules.lower;
    if (!has_type(json_object_get(root, "pre_tokenizer"), "BertPreTokenizer"))
        return unsupported(file, "pre_tokenizer", "BertPreTokenizer");
    return CLATTN_SUCCESS;
}

/* The token before or after the text in a template: its name must have one number. */
static bool read_template_token(const json_t *item, const json_t *tokens, const wordpiece *t, int32_t *id)
{
    const char *name = json_string_value(json_object_get(json_object_get(item, "SpecialToken"), "id"));
    const json_t *ids = name != NULL ? json_object_get(json_object_get(tokens, name), "ids") : NULL;
    size_t number = 0;
    if (json_array_size(ids) != 1 ||
        !read_number(json_array_get(ids, 0), 0, (json_int_t)WORDPIECE_MOST_TOKENS - 1, &number))
        return false;
    *id = (int32_t)number;
    return wordpiece_token(t, *id) != NULL;
}

/* ["[SEP]", 102], as in the older BertProcessing. */
static bool read_pair(const json_t *pair, const wordpiece *t, int32_t *id)
{
    size_t number = 0;
    if (json_array_size(pair) != 2 ||
        !read_number(json_array_get(pair, 1), 0, (json_int_t)WORDPIECE_MOST_TOKENS - 1, &number))
        return false;
    *id = (int32_t)number;
    return wordpiece_token(t, *id) != NULL;
}

static clattn_status read_frame(wordpiece *t, const json_file *file, const json_t *processor)
{
    bool read = false;
    if (has_type(processor, "TemplateProcessing")) {
        const json_t *single = json_object_get(processor, "single"),
                     *tokens = json_object_get(processor, "special_tokens");
        const char *middle =
            json_string_value(json_object_get(json_object_get(json_array_get(single, 1), "Sequence"), "id"));
        read = json_array_size(single) == 3 && middle != NULL && strcmp(middle, "A") == 0 &&
               read_template_token(json_array_get(single, 0), tokens, t, &t->first) &&
               read_template_token(json_array_get(single, 2), tokens, t, &t->last);
    } else if (has_type(processor, "BertProcessing")) {
        read = read_pair(json_object_get(processor, "cls"), t, &t->first) &&
               read_pair(json_object_get(processor, "sep"), t, &t->last);
    }
    return read ? CLATTN_SUCCESS
                : unsupported(file, "post_processor", "a token of the vocabulary, the text, and another token");
}

static clattn_status read_special(wordpiece *t, const json_file *file, const json_t *list)
{
    const json_t *each;
    size_t index, id = 0;
    if (json_array_size(list) > WORDPIECE_MOST_SPECIAL)
        return unsupported(file, "added_tokens", "at most 1024 tokens");
    json_array_foreach(list, index, each)
    {
        const json_t *content = json_object_get(each, "content");
        const size_t bytes = json_string_length(content);
        bool word, left, right, normalized;
        if (bytes == 0 || bytes > WORDPIECE_MOST_TOKEN || !read_flag(each, "single_word", &word) || word ||
            !read_flag(each, "lstrip", &left) || left || !read_flag(each, "rstrip", &right) || right ||
            !read_flag(each, "normalized", &normalized) || normalized)
            return unsupported(file, "added_tokens", "tokens that the text holds as they are");
        int32_t known = wordpiece_number(t, json_string_value(content));
        if (!read_number(json_object_get(each, "id"), 0, (json_int_t)t->size - 1, &id) || known != (int32_t)id)
            return io_fail(file->error, CLATTN_ERROR_FORMAT, file->path,
                           "added_tokens[%zu] has another number than the vocabulary, where it has %d", index,
                           (int)known);
        wordpiece_add_special(t, known);
    }
    wordpiece_sort(t->special, t->special_count);
    return CLATTN_SUCCESS;
}

static clattn_status read_root(wordpiece *t, const json_file *file, const json_t *root)
{
    clattn_status status;
    TRY(read_model(t, file, json_object_get(root, "model")));
    TRY(read_rules(t, file, root));
    TRY(read_frame(t, file, json_object_get(root, "post_processor")));
    TRY(read_special(t, file, json_object_get(root, "added_tokens")));
fail:
    return status;
}

clattn_status wordpiece_open_json(const char *path, wordpiece **tokenizer, clattn_io_error *error)
{
    const json_file file = {path, error};
    json_t *root = NULL;
    *tokenizer = NULL;
    wordpiece *t = calloc(1, sizeof *t);
    if (t == NULL)
        return wordpiece_no_memory(path, error);
    clattn_status status = model_file_json(path, WORDPIECE_MOST_BYTES, &root, error);
    if (status == CLATTN_SUCCESS)
        status = read_root(t, &file, root);
    json_decref(root);
    if (status != CLATTN_SUCCESS)
        wordpiece_close(&t);
    *tokenizer = t;
    return status;
}
