/* Whisper's tokens: vocabularies that are taken or refused, the text of tokens, broken characters, which tokens may
 * follow, and their probabilities.  Needs no device. */
#define _GNU_SOURCE
#include "speech/speech.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tool/transcribe/utf8.h"
#include "tool/transcribe/rules.h"
#include "tool/tool.h"

/* ---- vocabularies ---- */

static void assert_text(const whisper_tokens *tokens, const char *expected, size_t count, ...)
{
    int32_t ids[16];
    va_list list;
    va_start(list, count);
    for (size_t i = 0; i < count; i++)
        ids[i] = va_arg(list, int);
    va_end(list);
    char *text = whisper_text(tokens, ids, count);
    assert_non_null(text);
    assert_string_equal(text, expected);
    free(text);
}

static void tokens_and_text(void **state)
{
    (void)state;
    whisper_tokens t = load_tokens();
    assert_int_equal(t.count, VOCABULARY);
    assert_int_equal(t.end_of_text, END);
    assert_int_equal(t.start_of_transcript, START);
    assert_int_equal(t.previous, PREVIOUS);
    assert_int_equal(t.no_speech, NO_SPEECH);
    assert_int_equal(t.first_timestamp, STAMP);
    assert_true(t.suppressed_count == 2 && t.suppressed[1] == 11 && t.suppressed_first_count == 1 && t.head_count == 2);
    assert_true(t.heads[1].layer == 1 && t.heads[1].head == 0);
    assert_text(&t, " hello world.", 6, STAMP, 0, 1, 2, 3, END);
    assert_text(&t, " caf\xc3\xa9", 2, 6, 7);
    assert_text(&t, " caf\xef\xbf\xbd.", 2, 6, 3);
    assert_text(&t, "\xef\xbf\xbd", 1, 7);
    assert_text(&t, "", 0);
    whisper_tokens_release(&t);

    store("vocabulary.json", "[\"a\", 1]", 8);
    assert_complaint(whisper_tokens_load(test_folder, &t), "token 1 is not a string");
    store("vocabulary.json", "{}", 2);
    assert_complaint(whisper_tokens_load(test_folder, &t), "not a JSON array");
    static const char array[] = "[\"a\", \"<|endoftext|>\", \"<|startoftranscript|>\", \"<|startofprev|>\", "
                                "\"<|nospeech|>\", \"<|notimestamps|>\", \"<|0.00|>\"]";
    store("vocabulary.json", array, strlen(array));
    assert_complaint(whisper_tokens_load(test_folder, &t), "expected a whole one below 7");
    unlink(path_to("vocabulary.json"));
}

static void refuse_config(const char *text, const char *part)
{
    whisper_tokens t;
    store("config.json", text, strlen(text));
    assert_complaint(whisper_tokens_load(test_folder, &t), part);
    assert_null(t.bytes);
}

static void tokens_refused(void **state)
{
    (void)state;
    whisper_tokens t = load_tokens();
    whisper_tokens_release(&t);
    refuse_config("", "not a JSON object");
    refuse_config("[]", "not a JSON object");
    refuse_config("{}", "no list suppress_ids");
    refuse_config("{\"suppress_ids\": [-1]}", "number 0 of suppress_ids");
    refuse_config("{\"suppress_ids\": [\"1\"]}", "number 0 of suppress_ids");
    refuse_config("{\"suppress_ids\": [1516]}", "expected a whole one below 1516");
    refuse_config("{\"suppress_ids\": [], \"suppress_ids_begin\": [], \"alignment_heads\": [[1]]}", "pair 0");
    refuse_config("{\"suppress_ids\": [], \"suppress_ids_begin\": [], \"alignment_heads\": [[0, 0], [-1, 2]]}",
                  "pair 1");
    refuse_config("{\"suppress_ids\": [], \"suppress_ids_begin\": [], "
                  "\"alignment_heads\": [[0, 0], [63, 1023], [1, 0], [63, 1023]]}",
                  "pair 3 of alignment_heads has been there before");
    unlink(path_to("config.json"));
    assert_complaint(whisper_tokens_load(test_folder, &t), "config.json: cannot be opened");
    store("config.json", good_config, strlen(good_config));
    for (size_t i = 0; i < COUNT_OF(special); i++) {
        store_vocabulary(special[i], "<|other|>");
        assert_complaint(whisper_tokens_load(test_folder, &t), "has no token <|");
    }
    store_vocabulary("<|endoftext|>", "");
    assert_complaint(whisper_tokens_load(test_folder, &t), "many languages");
    unlink(path_to("vocabulary.txt"));
    assert_complaint(whisper_tokens_load(test_folder, &t), "cannot be opened");
    assert_complaint(whisper_tokens_load("/nowhere", &t), "/nowhere/vocabulary.txt");
}

static void broken_characters(void **state)
{
    (void)state;
    /* Bytes and the characters that they encode; Unicode 15, chapter 3, tables 3-8 to 3-11. */
    static const struct {
        const char *bytes;
        uint32_t characters[8];
    } cases[] = {
        {"a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", {'a', 0xe9, 0x20ac, 0x1f600}},
        {"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82", {0xfffd, 0xfffd, 0xfffd, 0xfffd, 0xfffd, 0xfffd, 0xfffd, 0xfffd}},
        {"\xed\xa0\x80\xed\xbf\xbf", {0xfffd, 0xfffd, 0xfffd, 0xfffd, 0xfffd, 0xfffd}},
        {"\xf4\x91\x92\x93\xff\x41\x80\xbf", {0xfffd, 0xfffd, 0xfffd, 0xfffd, 0xfffd, 0x41, 0xfffd, 0xfffd}},
        {"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf", {0xfffd, 0xfffd, 0xfffd, 0xfffd}},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        size_t length = strlen(cases[i].bytes), count = 0;
        for (size_t at = 0; at < length; count++) {
            uint32_t character;
            at += utf8_next(cases[i].bytes + at, length - at, &character);
            assert_int_equal(character, cases[i].characters[count]);
        }
        assert_true(count == 8 || cases[i].characters[count] == 0);
    }
    for (uint32_t c = 1; c < 0x110000; c += c < 0x3000 ? 1 : 977) {
        char bytes[4];
        uint32_t again;
        if (c >= 0xd800 && c < 0xe000)
            continue;
        size_t length = utf8_put(c, bytes);
        assert_int_equal(utf8_next(bytes, length, &again), length);
        assert_int_equal(again, c);
    }
    assert_true(utf8_is_space(' ') && utf8_is_space(0x3000) && utf8_is_space(0xa0) && !utf8_is_space('a') &&
                !utf8_is_space(0x200b));
}

/* ---- which tokens may follow ---- */

static float logits[VOCABULARY];

static bool allowed(int32_t token)
{
    return logits[token] > -INFINITY;
}

/* Gives words a higher probability than all timestamps together, and all other tokens equal ones. */
static void apply(const whisper_tokens *t, size_t count, const int32_t *generated)
{
    for (int i = 0; i < VOCABULARY; i++)
        logits[i] = i < END ? 20.0f : 0.0f;
    whisper_rules_apply(t, generated, count, logits);
}

static void rules(void **state)
{
    (void)state;
    whisper_tokens t = load_tokens();

    apply(&t, 0, NULL);
    for (int32_t i = 0; i < VOCABULARY; i++)
        assert_int_equal(allowed(i), i >= STAMP && i <= STAMP + 50);

    /* After one timestamp come words or the end, which may be second but not first. */
    apply(&t, 1, (int32_t[]){AT(0.4)});
    assert_true(allowed(0) && !allowed(9) && !allowed(START) && !allowed(NO_STAMPS) && allowed(END));
    for (int32_t i = STAMP; i < VOCABULARY; i++)
        assert_false(allowed(i));

    /* After words come only later timestamps. */
    apply(&t, 2, (int32_t[]){AT(0.4), 0});
    assert_true(allowed(0) && allowed(END) && !allowed(AT(0.4)) && !allowed(AT(0.2)) && allowed(AT(0.42)));

    /* After a single timestamp behind words come neither words nor earlier timestamps; the same one is its pair. */
    apply(&t, 3, (int32_t[]){AT(0.4), 0, AT(2)});
    assert_true(!allowed(0) && !allowed(AT(1.98)) && allowed(AT(2)) && allowed(AT(30)));
    /* The end is less likely than all timestamps together at first, and then as likely. */
    assert_false(allowed(END));
    for (int i = 0; i < VOCABULARY; i++)
        logits[i] = i == END ? 20.0f : 0.0f;
    whisper_rules_apply(&t, (int32_t[]){AT(0.4), 0, AT(2)}, 3, logits);
    assert_true(allowed(END) && allowed(AT(2)) && !allowed(0));

    /* After a pair come words. */
    apply(&t, 4, (int32_t[]){AT(0.4), 0, AT(2), AT(2)});
    assert_true(allowed(0) && allowed(END) && !allowed(AT(2)) && !allowed(AT(3)));

    /* 1,400 timestamps of probability p compete with a word of 700 p, and then with one of 2,800 p. */
    for (int word = 0; word < 2; word++) {
        for (int i = 0; i < VOCABULARY; i++)
            logits[i] = 0.0f;
        logits[0] = logf(word ? 2800.0f : 700.0f);
        whisper_rules_apply(&t, (int32_t[]){AT(1.98), 0}, 2, logits);
        assert_int_equal(allowed(0), word);
        assert_int_equal(allowed(END), word);
        assert_true(allowed(AT(2)));
    }
    whisper_tokens_release(&t);
}

static void probabilities(void **state)
{
    (void)state;
    float x[] = {1000.0f, 1001.0f, -INFINITY, 999.0f};
    double all = 1.0 + exp(1.0) + exp(-1.0);
    assert_close(whisper_probability(x, 4, 0), 1.0 / all, 1e-6);
    assert_close(whisper_probability(x, 4, 2), 0.0, 0.0);
    whisper_log_softmax(x, 4);
    assert_close((double)x[1], 1.0 - log(all), 1e-6);
    assert_true(x[2] == -INFINITY);
    float none[] = {-INFINITY, -INFINITY};
    whisper_log_softmax(none, 2);
    assert_true(none[0] == -INFINITY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_and_text), cmocka_unit_test(tokens_refused), cmocka_unit_test(broken_characters),
        cmocka_unit_test(rules),           cmocka_unit_test(probabilities),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
