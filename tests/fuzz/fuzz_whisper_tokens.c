/* libFuzzer target for a Whisper model's vocabulary.txt, vocabulary.json and config.json.
 *
 * The first byte says which file the rest is, and how many lines of it may be special tokens; those that are not fuzzed are
 * whole.  Whatever the bytes: an exit status of bad input, or a vocabulary that gives text, words and rules. */
#define _GNU_SOURCE
#include "fuzz_complain.h"
#include "fuzz_file.h"

#include <string.h>

#include "tool/transcribe/utf8.h"
#include "tool/transcribe/rules.h"
#include "tool/transcribe/words.h"

static const char specials[] =
    "<|endoftext|>\n<|startoftranscript|>\n<|startofprev|>\n<|nocaptions|>\n<|notimestamps|>\n"
    "<|0.00|>\n<|0.02|>\n<|0.04|>\n";
static const char config[] = "{\"suppress_ids\": [0], \"suppress_ids_begin\": [1], \"alignment_heads\": [[0, 1]]}";

enum { LINES, ARRAY, CONFIG, FILES };
static const char *const names[FILES] = {"vocabulary.txt", "vocabulary.json", "config.json"};

/* The folder's files are links to files in memory, which are much faster than a disk's. */
static void write_file(int which, const void *data, size_t size, const char *end)
{
    static int files[FILES];
    char target[64];
    if (files[which] == 0)
        files[which] = memfd_create(names[which], 0);
    snprintf(target, sizeof target, "/proc/self/fd/%d", files[which]);
    unlink(fuzz_path(names[which]));
    REQUIRE(files[which] > 0 && symlink(target, fuzz_path(names[which])) == 0);
    REQUIRE(ftruncate(files[which], 0) == 0);
    REQUIRE(size == 0 || pwrite(files[which], data, size, 0) == (ssize_t)size);
    REQUIRE(pwrite(files[which], end, strlen(end), (off_t)size) == (ssize_t)strlen(end));
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
    whisper_tokens tokens;
    if (size == 0)
        return 0;
    unlink(fuzz_path(names[ARRAY])); /* it would be preferred */
    write_file(CONFIG, config, strlen(config), "");
    write_file(LINES, "a\nb\n", 4, specials);
    if (data[0] % FILES == LINES)
        write_file(LINES, data + 1, size - 1, data[0] & 128 ? specials : "");
    else
        write_file(data[0] % FILES, data + 1, size - 1, "");
    int status = whisper_tokens_load(fuzz_folder(), &tokens);
    REQUIRE(status == TOOL_DONE || (status == TOOL_BAD_INPUT && tokens.bytes == NULL && tokens.count == 0));
    if (status == TOOL_DONE)
        use(&tokens);
    whisper_tokens_release(&tokens);
    return 0;
}
