#include "tool/embed/wordpiece.h"

#include <stdlib.h>
#include <string.h>

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

/* The number of the longest piece that begins at character `from`, and its end; −1 if there is none. */
static int32_t longest_piece(const encoder *e, size_t from, size_t *to)
{
    const wordpiece *t = e->tokenizer;
    const size_t prefix = from > 0 ? t->prefix_bytes : 0, begin = e->end[from];
    char piece[WORDPIECE_MOST_PREFIX + WORDPIECE_MOST_TOKEN + 1];
    size_t last = from;
    /* No token holds a NUL. */
    while (last < e->characters && prefix + e->end[last + 1] - begin <= t->longest && e->word[e->end[last]] != '\0')
        last++;
    memcpy(piece, t->prefix, prefix);
    memcpy(piece + prefix, e->word + begin, e->end[last] - begin);
    for (; last > from; last--) {
        piece[prefix + e->end[last] - begin] = '\0';
        int32_t id = wordpiece_number(t, piece);
        if (id >= 0) {
            *to = last;
            return id;
        }
    }
    return -1;
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

/* The longest special token that the text begins with, or NULL. */
static const special_token *special_at(const wordpiece *t, const char *text, size_t bytes)
{
    const special_token *found = NULL;
    for (size_t i = 0; i < t->special_count; i++) {
        const special_token *each = &t->special[i];
        if (each->bytes <= bytes && (found == NULL || each->bytes > found->bytes) &&
            memcmp(each->text, text, each->bytes) == 0)
            found = each;
    }
    return found;
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
        const special_token *special = first[(unsigned char)text[at]] ? special_at(t, text + at, bytes - at) : NULL;
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
    t->special[t->special_count++] = (special_token){t->token[id], strlen(t->token[id]), id};
}

void wordpiece_close(wordpiece **tokenizer)
{
    if (tokenizer == NULL || *tokenizer == NULL)
        return;
    wordpiece *t = *tokenizer;
    json_decref(t->numbers);
    free(t->token);
    free(t);
    *tokenizer = NULL;
}
