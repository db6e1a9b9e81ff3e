#include "tool/embed/wordpiece_vocab.h"

#include <stdlib.h>
#include <string.h>

/* At most half of the slots are taken, so that an honest vocabulary has far shorter runs. */
#define MOST_PROBES 256

bool vocab_init(wordpiece_vocab *vocab, size_t size, size_t bytes)
{
    size_t slots = 16;
    while (slots < 2 * size)
        slots *= 2;
    *vocab = (wordpiece_vocab){.size = size, .slot_mask = slots - 1};
    vocab->entry = calloc(size + 1, sizeof *vocab->entry);
    vocab->slots = calloc(slots, sizeof *vocab->slots);
    vocab->text = malloc(bytes + size + 1);
    return vocab->entry != NULL && vocab->slots != NULL && vocab->text != NULL;
}

void vocab_release(wordpiece_vocab *vocab)
{
    free(vocab->entry);
    free(vocab->slots);
    free(vocab->text);
    *vocab = (wordpiece_vocab){0};
}

/* FNV-1a, since it can be continued; MOST_PROBES bounds what a hostile file can cost. */
uint64_t vocab_hash(uint64_t hash, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    return hash;
}

static size_t first_slot(const wordpiece_vocab *vocab, uint64_t hash)
{
    return (size_t)(hash ^ hash >> 32) & vocab->slot_mask;
}

int32_t vocab_find_hashed(const wordpiece_vocab *vocab, uint64_t hash, const char *first, size_t first_bytes,
                          const char *rest, size_t rest_bytes)
{
    for (size_t slot = first_slot(vocab, hash); vocab->slots[slot] != 0; slot = (slot + 1) & vocab->slot_mask) {
        const vocab_entry *entry = &vocab->entry[vocab->slots[slot] - 1];
        const char *text = vocab->text + entry->offset;
        if (entry->bytes == first_bytes + rest_bytes && memcmp(text, first, first_bytes) == 0 &&
            memcmp(text + first_bytes, rest, rest_bytes) == 0)
            return (int32_t)(vocab->slots[slot] - 1);
    }
    return -1;
}

int32_t vocab_find(const wordpiece_vocab *vocab, const char *text, size_t bytes)
{
    return vocab_find_hashed(vocab, vocab_hash(VOCAB_HASH_EMPTY, text, bytes), text, bytes, "", 0);
}

vocab_outcome vocab_add(wordpiece_vocab *vocab, size_t number, const char *text, size_t bytes, size_t *other)
{
    int32_t found = vocab_find(vocab, text, bytes);
    if (found >= 0) {
        *other = (size_t)found;
        return VOCAB_SAME_TEXT;
    }
    if (vocab->entry[number].bytes != 0)
        return VOCAB_SAME_NUMBER;
    size_t slot = first_slot(vocab, vocab_hash(VOCAB_HASH_EMPTY, text, bytes));
    for (size_t probes = 0; vocab->slots[slot] != 0; slot = (slot + 1) & vocab->slot_mask)
        if (++probes == MOST_PROBES)
            return VOCAB_ALIKE;
    vocab->slots[slot] = (uint32_t)number + 1;
    vocab->entry[number] = (vocab_entry){(uint32_t)vocab->used, (uint32_t)bytes};
    memcpy(vocab->text + vocab->used, text, bytes);
    vocab->text[vocab->used + bytes] = '\0';
    vocab->used += bytes + 1;
    if (bytes > vocab->longest)
        vocab->longest = bytes;
    return VOCAB_ADDED;
}
