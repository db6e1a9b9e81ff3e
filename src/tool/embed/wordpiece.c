#include "tool/embed/wordpiece.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "tool/embed/wordpiece_private.h"

#define MOST_WORD_BYTES (4 * WORDPIECE_MOST_CHARACTERS)

typedef struct encoder {
    const wordpiece *tokenizer;
    wordpiece_ids *ids;
    size_t most;       /* tokens that are kept, [SEP] not counted */
    size_t characters; /* of the word so far; most_characters + 1 stands for every longer word */
    bool failed;
    uint16_t end[WORDPIECE_MOST_CHARACTERS + 1]; /* end[i]: how many bytes the word's first i characters have */
    char word[MOST_WORD_BYTES];
} encoder;

static void add(encoder *e, int32_t id)
{
    wordpiece_ids *ids = e->ids;
    ids->total++;
    if (ids->count == e->most)
        return;
    if (ids->count + 1 >= ids->capacity) { /* one more for [SEP] */
        size_t capacity = ids->capacity == 0 ? 64 : 2 * ids->capacity;
        int32_t *larger = realloc(ids->id, capacity * sizeof *larger);
        if (larger == NULL) {
            e->failed = true;
            return;
        }
        ids->id = larger;
        ids->capacity = capacity;
    }
    ids->id[ids->count++] = id;
}

/* The longest token of a sorted list that the text begins with, or NULL. */
static const sorted_token *longest_token(const sorted_token *tokens, size_t count, const char *text, size_t bytes)
{
    size_t first = 0, end = count, same = 0;
    while (first < end) { /* tokens before `first` are not behind the text, those from `end` on are */
        const size_t middle = first + (end - first) / 2, shared = size_min(tokens[middle].bytes, bytes);
        const int order = memcmp(tokens[middle].text, text, shared);
        if (order < 0 || (order == 0 && tokens[middle].bytes <= bytes))
            first = middle + 1;
        else
            end = middle;
    }
    int32_t at = (int32_t)first - 1;
    while (at >= 0 && same < bytes && same < tokens[at].bytes && tokens[at].text[same] == text[same])
        same++;
    while (at >= 0 && tokens[at].bytes > same)
        at = tokens[at].shorter;
    return at >= 0 ? &tokens[at] : NULL;
}

/* The number of the longest piece that begins at character `from`, and its end; −1 if there is none. */
static int32_t longest_piece(const encoder *e, size_t from, size_t *to)
{
    const wordpiece *t = e->tokenizer;
    const size_t prefix = from > 0 ? t->prefix_bytes : 0, begin = e->end[from];
    const size_t bytes = size_min(e->end[e->characters] - begin, WORDPIECE_MOST_TOKEN);
    char text[WORDPIECE_MOST_PREFIX + WORDPIECE_MOST_TOKEN];
    memcpy(text, t->prefix, prefix);
    memcpy(text + prefix, e->word + begin, bytes);
    const sorted_token *piece = longest_token(t->sorted, t->count, text, prefix + bytes);
    if (piece == NULL || piece->bytes <= prefix)
        return -1;
    /* Tokens and words are UTF-8, so that one character ends where the piece does. */
    while (e->end[*to] < begin + piece->bytes - prefix)
        ++*to;
    return piece->id;
}

/* Adds the pieces of the word, or [UNK], and begins a new word. */
static void end_word(encoder *e)
{
    int32_t pieces[WORDPIECE_MOST_CHARACTERS];
    size_t count = 0, at = 0;
    if (e->characters == 0)
        return;
    bool known = e->characters <= e->tokenizer->most_characters;
    while (known && at < e->characters) {
        int32_t id = longest_piece(e, at, &at);
        known = id >= 0;
        if (known)
            pieces[count++] = id;
    }
    if (!known) {
        e->ids->unknown++;
        add(e, e->tokenizer->unknown);
    }
    for (size_t i = 0; known && i < count; i++)
        add(e, pieces[i]);
    e->characters = 0;
}

static void add_character(encoder *e, int32_t character)
{
    if (e->characters < e->tokenizer->most_characters) {
        size_t at = e->end[e->characters];
        e->end[e->characters + 1] = (uint16_t)(at + bert_text_encode(character, (unsigned char *)e->word + at));
    }
    if (e->characters <= e->tokenizer->most_characters)
        e->characters++;
}

/* A text without special tokens. */
static void add_text(encoder *e, const char *text, size_t bytes)
{
    bert_reader reader = {.rules = &e->tokenizer->rules, .text = text, .bytes = bytes};
    int32_t character;
    bert_kind kind;
    while (!e->failed && bert_next(&reader, &character, &kind)) {
        if (kind != BERT_LETTER)
            end_word(e);
        if (kind != BERT_SPACE)
            add_character(e, character);
        if (kind == BERT_MARK)
            end_word(e);
    }
    e->failed |= reader.failed;
    if (!e->failed)
        end_word(e);
    bert_reader_release(&reader);
}

clattn_status wordpiece_encode(const wordpiece *t, const char *text, size_t bytes, size_t most, wordpiece_ids *ids)
{
    encoder e = {.tokenizer = t, .ids = ids, .most = most - 1};
    bool first[256] = {false};
    size_t done = 0;
    ids->count = ids->total = ids->unknown = 0;
    for (size_t i = 0; i < t->special_count; i++)
        first[(unsigned char)t->special[i].text[0]] = true;
    add(&e, t->first);
    for (size_t at = 0; !e.failed && at < bytes;) {
        const sorted_token *special =
            first[(unsigned char)text[at]] ? longest_token(t->special, t->special_count, text + at, bytes - at) : NULL;
        if (special == NULL) {
            at++;
            continue;
        }
        add_text(&e, text + done, at - done);
        add(&e, special->id);
        done = at += special->bytes;
    }
    add_text(&e, text + done, bytes - done);
    if (e.failed)
        return CLATTN_ERROR_OUT_OF_MEMORY;
    ids->id[ids->count++] = t->last;
    ids->total++;
    return CLATTN_SUCCESS;
}

void wordpiece_ids_release(wordpiece_ids *ids)
{
    free(ids->id);
    *ids = (wordpiece_ids){0};
}

size_t wordpiece_size(const wordpiece *tokenizer)
{
    return tokenizer->size;
}

const char *wordpiece_token(const wordpiece *t, int32_t number)
{
    return number >= 0 && (size_t)number < t->size ? t->token[number] : NULL;
}

int32_t wordpiece_number(const wordpiece *t, const char *text)
{
    const json_t *number = json_object_get(t->numbers, text);
    return number != NULL ? (int32_t)json_integer_value(number) : -1;
}

void wordpiece_add_special(wordpiece *t, int32_t id)
{
    t->special[t->special_count++] = (sorted_token){.text = t->token[id], .bytes = strlen(t->token[id]), .id = id};
}

void wordpiece_close(wordpiece **tokenizer)
{
    if (tokenizer == NULL || *tokenizer == NULL)
        return;
    wordpiece *t = *tokenizer;
    json_decref(t->numbers);
    free(t->token);
    free(t->sorted);
    free(t);
    *tokenizer = NULL;
}
