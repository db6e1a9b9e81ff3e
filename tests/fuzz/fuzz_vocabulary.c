/* libFuzzer target for a Whisper model's vocabulary.txt, vocabulary.json and config.json:
 *
 *   clang -g -O1 -fsanitize=fuzzer,address,undefined -Iinclude -Isrc src/tool/models/whisper_tokens.c
 *     src/tool/models/whisper_words.c src/tool/models/whisper_rules.c src/tool/models/utf8.c src/tool/os_tool.c
 *     tests/fuzz/fuzz_vocabulary.c -ljansson -lm
 *
 * The first byte says which file the rest is, and how many lines of it may be special tokens; those that are not fuzzed are
 * whole.  Whatever the bytes: an exit status of bad input, or a vocabulary that gives text, words and rules. */
#define _GNU_SOURCE
#include "fuzz_file.h"

#include <stdarg.h>
#include <string.h>

#include "tool/models/utf8.h"
#include "tool/models/whisper_rules.h"
#include "tool/models/whisper_words.h"
#include "tool/tool.h"

static const char specials[] = "<|endoftext|>\n<|startoftranscript|>\n<|startofprev|>\n<|nocaptions|>\n<|notimestamps|>\n"
                               "<|0.00|>\n<|0.02|>\n<|0.04|>\n";
static const char config[] = "{\"suppress_ids\": [0], \"suppress_ids_begin\": [1], \"alignment_heads\": [[0, 1]]}";

int complain(int status, const char *format, ...)
{
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    return status;
}

static void write_file(const char *folder, const char *name, const void *data, size_t size, const char *end)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    REQUIRE(file != NULL && fwrite(data, 1, size, file) == size);
    REQUIRE(fputs(end, file) >= 0 && fclose(file) == 0);
}

static void use(const whisper_tokens *t)
{
    int32_t ids[64];
    whisper_words words;
    double median, probabilities[65] = {0};
    size_t first[65] = {0}, count = t->count < 64 ? t->count : 64;
    for (size_t i = 0; i < count; i++)
        ids[i] = (int32_t)(t->count - 1 - i);
    char *text = whisper_text(t, ids, count);
    REQUIRE(text != NULL);
    for (size_t at = 0, length = strlen(text); at < length;) {
        uint32_t character;
        size_t step = utf8_next(text + at, length - at, &character);
        REQUIRE(character != UTF8_REPLACEMENT || step == 3); /* it is UTF-8 */
        at += step;
    }
    free(text);
    size_t spoken = 0;
    for (size_t i = 0; i < count; i++)
        if (ids[i] < t->end_of_text)
            ids[spoken++] = ids[i];
    REQUIRE(whisper_words_split(t, ids, spoken, &words));
    whisper_words_time(&words, first, probabilities);
    REQUIRE(whisper_words_polish(&words, &median));
    size_t tokens = 0;
    for (size_t i = 0; i < words.count; i++)
        tokens += words.word[i].tokens;
    REQUIRE(tokens <= spoken);
    whisper_words_release(&words);
    float *logits = calloc(t->count, sizeof *logits);
    REQUIRE(logits != NULL);
    whisper_rules_apply(t, ids, 0, logits);
    whisper_rules_apply(t, &t->first_timestamp, 1, logits);
    whisper_log_softmax(logits, t->count);
    free(logits);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char folder[64];
    whisper_tokens tokens;
    if (size == 0)
        return 0;
    if (folder[0] == '\0') {
        snprintf(folder, sizeof folder, "/tmp/clattn-fuzz-XXXXXX");
        REQUIRE(mkdtemp(folder) != NULL);
    }
    char path[128];
    snprintf(path, sizeof path, "%s/vocabulary.json", folder);
    unlink(path);
    write_file(folder, "config.json", config, strlen(config), "");
    write_file(folder, "vocabulary.txt", "a\nb\n", 4, specials);
    if (data[0] % 3 == 0)
        write_file(folder, "vocabulary.txt", data + 1, size - 1, data[0] & 128 ? specials : "");
    else
        write_file(folder, data[0] % 3 == 1 ? "vocabulary.json" : "config.json", data + 1, size - 1, "");
    int status = whisper_tokens_load(folder, &tokens);
    REQUIRE(status == TOOL_DONE || (status == TOOL_BAD_INPUT && tokens.bytes == NULL && tokens.count == 0));
    if (status == TOOL_DONE)
        use(&tokens);
    whisper_tokens_release(&tokens);
    return 0;
}
