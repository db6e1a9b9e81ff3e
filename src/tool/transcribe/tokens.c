#include "tool/transcribe/tokens.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "tool/cli/os_tool.h"
#include "tool/run/model_file.h"
#include "tool/tool.h"
#include "tool/transcribe/utf8.h"

/* The largest file that is read; a vocabulary has some 400 kB. */
#define FILE_MOST ((size_t)64 << 20)
#define TOKENS_MOST 1000000
#define LISTED_MOST 100000
#define LAYERS_MOST 64
#define HEADS_MOST 1024

static int read_file(const char *path, char **text, size_t *bytes)
{
    switch (model_file_read(path, FILE_MOST, text, bytes, NULL)) {
    case CLATTN_SUCCESS: return TOOL_DONE;
    case CLATTN_ERROR_OUT_OF_MEMORY: return complain(TOOL_FAILED, "%s: no memory to read it", path);
    case CLATTN_ERROR_UNSUPPORTED: return complain(TOOL_BAD_INPUT, "%s: has more than %zu bytes", path, FILE_MOST);
    default: return complain(TOOL_BAD_INPUT, "%s: cannot be opened, expected a file of a model", path);
    }
}

/* The byte that a character stands for in byte-level byte-pair encoding, or -1: printable characters of
 * Latin-1 are themselves, the other 68 bytes follow from U+0100 on. */
static int byte_of(uint32_t character)
{
    static const unsigned char others[] = {
        0,   1,   2,   3,   4,   5,   6,   7,   8,   9,   10,  11,  12,  13,  14,  15,  16,
        17,  18,  19,  20,  21,  22,  23,  24,  25,  26,  27,  28,  29,  30,  31,  32,  127,
        128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138, 139, 140, 141, 142, 143, 144,
        145, 146, 147, 148, 149, 150, 151, 152, 153, 154, 155, 156, 157, 158, 159, 160, 173,
    };
    if (character >= 256)
        return character - 256 < sizeof others ? others[character - 256] : -1;
    if (character <= 32 || (character >= 127 && character <= 160) || character == 173)
        return -1;
    return (int)character;
}

/* Special tokens, by their text. */
typedef struct special {
    const char *text;
    size_t field;
} special;

static const special specials[] = {
    {"<|endoftext|>", offsetof(whisper_tokens, end_of_text)},
    {"<|startoftranscript|>", offsetof(whisper_tokens, start_of_transcript)},
    {"<|startofprev|>", offsetof(whisper_tokens, previous)},
    {"<|nospeech|>", offsetof(whisper_tokens, no_speech)},
    {"<|nocaptions|>", offsetof(whisper_tokens, no_speech)},
    {"<|notimestamps|>", offsetof(whisper_tokens, no_timestamps)},
};
#define SPECIALS (sizeof specials / sizeof specials[0])

static int32_t *special_of(whisper_tokens *t, const special *s)
{
    return (int32_t *)(void *)((char *)t + s->field);
}

static int add_token(const char *path, whisper_tokens *t, const char *text, size_t length, size_t *used)
{
    t->start[t->count] = *used;
    if (length == 0 && t->end_of_text < 0)
        return complain(TOOL_BAD_INPUT, "%s: is the vocabulary of a model for many languages, expected one for English",
                        path);
    for (size_t i = 0; i < SPECIALS; i++)
        if (strlen(specials[i].text) == length && memcmp(specials[i].text, text, length) == 0)
            *special_of(t, &specials[i]) = (int32_t)t->count;
    for (size_t at = 0; t->end_of_text < 0 && at < length;) {
        uint32_t character;
        at += utf8_next(text + at, length - at, &character);
        int byte = byte_of(character);
        if (byte < 0)
            return complain(TOOL_BAD_INPUT, "%s: token %zu has a character U+%04X, which stands for no byte", path,
                            t->count, (unsigned)character);
        t->bytes[(*used)++] = (char)byte;
    }
    t->start[++t->count] = *used;
    return TOOL_DONE;
}

static int make_room(const char *path, whisper_tokens *t, size_t count, size_t bytes)
{
    if (count > TOKENS_MOST)
        return complain(TOOL_BAD_INPUT, "%s: has %zu tokens, expected at most %d", path, count, TOKENS_MOST);
    t->bytes = malloc(bytes + 1);
    t->start = malloc((count + 1) * sizeof *t->start);
    return t->bytes != NULL && t->start != NULL ? TOOL_DONE
                                                : complain(TOOL_FAILED, "%s: no memory for its tokens", path);
}

static int read_lines(const char *path, const char *text, size_t bytes, whisper_tokens *t)
{
    size_t count = 1, used = 0;
    for (size_t i = 0; i < bytes; i++)
        count += text[i] == '\n';
    int status = make_room(path, t, count, bytes);
    for (size_t at = 0; at < bytes && status == TOOL_DONE;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t length = end != NULL ? (size_t)(end - text) - at : bytes - at;
        status = add_token(path, t, text + at, length, &used);
        at += length + 1;
    }
    return status;
}

static int read_array(const char *path, const char *text, size_t bytes, whisper_tokens *t)
{
    json_error_t error;
    size_t used = 0;
    bool no_memory;
    json_t *array = model_json(text, bytes, 0, &error, &no_memory);
    if (no_memory)
        return complain(TOOL_FAILED, "%s: no memory for its tokens", path);
    if (!json_is_array(array)) {
        json_decref(array);
        return complain(TOOL_BAD_INPUT, "%s: is not a JSON array of tokens", path);
    }
    int status = make_room(path, t, json_array_size(array), bytes);
    for (size_t i = 0; i < json_array_size(array) && status == TOOL_DONE; i++) {
        const json_t *token = json_array_get(array, i);
        status = json_is_string(token) ? add_token(path, t, json_string_value(token), json_string_length(token), &used)
                                       : complain(TOOL_BAD_INPUT, "%s: token %zu is not a string", path, i);
    }
    json_decref(array);
    return status;
}

static int check_specials(const char *path, whisper_tokens *t)
{
    for (size_t i = 0; i < SPECIALS; i++)
        if (*special_of(t, &specials[i]) < 0)
            return complain(TOOL_BAD_INPUT, "%s: has no token %s, expected a Whisper model's", path, specials[i].text);
    t->first_timestamp = t->no_timestamps + 1;
    if (t->end_of_text > t->start_of_transcript || t->start_of_transcript > t->no_timestamps ||
        t->previous > t->no_timestamps || t->no_speech > t->no_timestamps || (size_t)t->first_timestamp >= t->count)
        return complain(TOOL_BAD_INPUT, "%s: its special tokens stand in no order that is known", path);
    return TOOL_DONE;
}

/* Reads a list of numbers below `limit`. */
static int read_numbers(const char *path, const json_t *config, const char *name, size_t limit, int32_t **numbers,
                        size_t *count)
{
    const json_t *array = json_object_get(config, name);
    if (!json_is_array(array) || json_array_size(array) > LISTED_MOST)
        return complain(TOOL_BAD_INPUT, "%s: has no list %s", path, name);
    *count = json_array_size(array);
    *numbers = malloc((*count + 1) * sizeof **numbers);
    if (*numbers == NULL)
        return complain(TOOL_FAILED, "%s: no memory for %s", path, name);
    for (size_t i = 0; i < *count; i++) {
        const json_t *value = json_array_get(array, i);
        if (!json_is_integer(value) || json_integer_value(value) < 0 || (size_t)json_integer_value(value) >= limit)
            return complain(TOOL_BAD_INPUT, "%s: number %zu of %s is not valid, expected a whole one below %zu", path,
                            i, name, limit);
        (*numbers)[i] = (int32_t)json_integer_value(value);
    }
    return TOOL_DONE;
}

/* Reads pairs of layer and head; the list may be absent. */
static int read_heads(const char *path, const json_t *config, whisper_tokens *t)
{
    const json_t *array = json_object_get(config, "alignment_heads");
    size_t count = json_array_size(array);
    uint8_t seen[LAYERS_MOST][HEADS_MOST / 8] = {{0}};
    if (count > LISTED_MOST)
        return complain(TOOL_BAD_INPUT, "%s: has %zu alignment_heads", path, count);
    t->heads = malloc((count + 1) * sizeof *t->heads);
    if (t->heads == NULL)
        return complain(TOOL_FAILED, "%s: no memory for alignment_heads", path);
    for (size_t i = 0; i < count; i++) {
        const json_t *pair = json_array_get(array, i);
        const json_t *layer = json_array_get(pair, 0), *head = json_array_get(pair, 1);
        if (json_array_size(pair) != 2 || !json_is_integer(layer) || !json_is_integer(head) ||
            json_integer_value(layer) < 0 || json_integer_value(layer) >= LAYERS_MOST || json_integer_value(head) < 0 ||
            json_integer_value(head) >= HEADS_MOST)
            return complain(TOOL_BAD_INPUT, "%s: pair %zu of alignment_heads is not a layer and a head", path, i);
        /* A pair that occurs twice is refused: it adds nothing, and memory for words' times grows with the pairs. */
        uint8_t *eight = &seen[json_integer_value(layer)][json_integer_value(head) / 8];
        const uint8_t bit = (uint8_t)(1u << json_integer_value(head) % 8);
        if (*eight & bit)
            return complain(TOOL_BAD_INPUT, "%s: pair %zu of alignment_heads has been there before", path, i);
        *eight |= bit;
        t->heads[t->head_count++] =
            (whisper_head){(int32_t)json_integer_value(layer), (int32_t)json_integer_value(head)};
    }
    return TOOL_DONE;
}

static int read_config(const char *path, whisper_tokens *t)
{
    char *text;
    size_t bytes;
    json_error_t error;
    json_t *config = NULL;
    int status;
    TOOL_TRY(read_file(path, &text, &bytes));
    bool no_memory;
    config = model_json(text, bytes, 0, &error, &no_memory);
    free(text);
    if (no_memory)
        TOOL_TRY(complain(TOOL_FAILED, "%s: no memory for its contents", path));
    if (!json_is_object(config))
        TOOL_TRY(complain(TOOL_BAD_INPUT, "%s: is not a JSON object", path));
    TOOL_TRY(read_numbers(path, config, "suppress_ids", t->count, &t->suppressed, &t->suppressed_count));
    TOOL_TRY(
        read_numbers(path, config, "suppress_ids_begin", t->count, &t->suppressed_first, &t->suppressed_first_count));
    TOOL_TRY(read_heads(path, config, t));
fail:
    json_decref(config);
    return status;
}

int whisper_tokens_load(const char *folder, whisper_tokens *tokens)
{
    model_path path;
    char *text = NULL;
    size_t bytes = 0;
    *tokens = (whisper_tokens){0};
    for (size_t i = 0; i < SPECIALS; i++)
        *special_of(tokens, &specials[i]) = -1;
    if (!model_path_in(folder, "vocabulary.json", &path))
        return complain(TOOL_BAD_INPUT, "%s: this name is too long for a folder", folder);
    bool lines = os_look_at(path.text) != OS_PATH_FILE;
    if (lines)
        model_path_in(folder, "vocabulary.txt", &path);
    int status;
    TOOL_TRY(read_file(path.text, &text, &bytes));
    TOOL_TRY(lines ? read_lines(path.text, text, bytes, tokens) : read_array(path.text, text, bytes, tokens));
    TOOL_TRY(check_specials(path.text, tokens));
    model_path_in(folder, "config.json", &path);
    TOOL_TRY(read_config(path.text, tokens));
fail:
    free(text);
    if (status != TOOL_DONE)
        whisper_tokens_release(tokens);
    return status;
}

void whisper_tokens_release(whisper_tokens *tokens)
{
    free(tokens->bytes);
    free(tokens->start);
    free(tokens->suppressed);
    free(tokens->suppressed_first);
    free(tokens->heads);
    *tokens = (whisper_tokens){0};
}

char *whisper_text(const whisper_tokens *tokens, const int32_t *ids, size_t count)
{
    struct strbuf raw = {0}, text = {0};
    for (size_t i = 0; i < count; i++)
        if (ids[i] >= 0 && ids[i] < tokens->end_of_text) {
            const size_t *start = &tokens->start[ids[i]];
            strbuf_append(&raw, tokens->bytes + start[0], start[1] - start[0]);
        }
    for (size_t at = 0; at < raw.length && !text.failed;) {
        char encoded[4];
        uint32_t character;
        at += utf8_next(raw.text + at, raw.length - at, &character);
        strbuf_append(&text, encoded, utf8_put(character, encoded));
    }
    text.failed |= raw.failed;
    strbuf_clear(&raw);
    return strbuf_take(&text);
}
