/* libFuzzer target for the command's WordPiece tokenizer.
 *
 * The first byte says what the rest is: tokenizer.json, vocab.txt, or a text for a vocabulary of its own.
 * Whatever the bytes: a status and a message, or a tokenizer that encodes its own file within the limit asked
 * for. */
#define _GNU_SOURCE
#include "fuzz_file.h"

#include <string.h>

#include "tool/embed/wordpiece.h"

static const char own[] = "[UNK]\n[CLS]\n[SEP]\na\n##a\nb\n##b\nab\n##ab\n.\n\xe6\xbc\xa2\nabc";

static void encode(const wordpiece *tokenizer, const uint8_t *text, size_t bytes)
{
    wordpiece_ids ids = {0}, cut = {0};
    REQUIRE(wordpiece_encode(tokenizer, (const char *)text, bytes, 1 << 20, &ids) == CLATTN_SUCCESS);
    REQUIRE(ids.count >= 2 && ids.count == ids.total);
    for (size_t i = 0; i < ids.count; i++)
        REQUIRE(ids.id[i] >= 0 && (size_t)ids.id[i] < wordpiece_size(tokenizer));
    REQUIRE(wordpiece_encode(tokenizer, (const char *)text, bytes, 5, &cut) == CLATTN_SUCCESS);
    REQUIRE(cut.count <= 5 && cut.total == ids.total && cut.id[cut.count - 1] == ids.id[ids.count - 1]);
    REQUIRE(memcmp(cut.id, ids.id, (cut.count - 1) * sizeof *cut.id) == 0);
    wordpiece_ids_release(&ids);
    wordpiece_ids_release(&cut);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    wordpiece *tokenizer = NULL;
    clattn_io_error error;
    memset(&error, 0xff, sizeof error);
    if (size == 0)
        return 0;
    const char kind = (char)data[0];
    const bool text = kind != '{' && kind != 'v';
    const char *path = text          ? fuzz_file((const uint8_t *)own, strlen(own))
                       : kind == '{' ? fuzz_file(data, size)
                                     : fuzz_file(data + 1, size - 1);
    clattn_status status =
        kind == '{' ? wordpiece_open_json(path, &tokenizer, &error) : wordpiece_open_vocab(path, &tokenizer, &error);
    if (status == CLATTN_SUCCESS) {
        encode(tokenizer, data + text, size - text);
    } else {
        REQUIRE(!text && tokenizer == NULL && memchr(error.message, '\0', sizeof error.message) != NULL);
        REQUIRE(status == CLATTN_ERROR_FORMAT || status == CLATTN_ERROR_UNSUPPORTED);
    }
    wordpiece_close(&tokenizer);
    return 0;
}
