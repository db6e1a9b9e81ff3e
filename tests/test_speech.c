/* The command's speech recognition, all but the model: sound files, spectrograms, tokens and their text,
 * which may follow which, the search, words and their times, and how a recording is cut into windows.  Models
 * are scripts here.  Needs no device. */
#define _GNU_SOURCE
#include "io_files.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tool/models/audio.h"
#include "tool/models/dtw.h"
#include "tool/models/mel.h"
#include "tool/models/utf8.h"
#include "tool/models/whisper.h"
#include "tool/models/whisper_decode.h"
#include "tool/models/whisper_rules.h"
#include "tool/tool.h"

static char complaint[1024];

/* The command's, which would write one line and then be silent. */
int complain(int status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(complaint, sizeof complaint, format, arguments);
    va_end(arguments);
    return status;
}

static void assert_complaint(int status, const char *part)
{
    if (status != TOOL_BAD_INPUT || strstr(complaint, part) == NULL)
        fail_msg("status %d, '%s', expected '%s'", status, complaint, part);
}

static void assert_close(double actual, double expected, double tolerance)
{
    if (!(fabs(actual - expected) <= tolerance))
        fail_msg("%.9g, expected %.9g within %.3g", actual, expected, tolerance);
}

/* ---- sound ---- */

typedef struct wave {
    unsigned char bytes[1 << 18];
    size_t size;
} wave;

static void put(wave *w, uint64_t value, int bytes)
{
    assert_true(w->size + (size_t)bytes <= sizeof w->bytes);
    for (int i = 0; i < bytes; i++)
        w->bytes[w->size++] = (unsigned char)(value >> 8 * i);
}

/* A header for `data` bytes of samples. */
static void begin_wave(wave *w, int tag, int channels, int rate, int bits, size_t data)
{
    w->size = 0;
    put(w, 0x46464952, 4); /* RIFF */
    put(w, 36 + data, 4);
    put(w, 0x45564157, 4); /* WAVE */
    put(w, 0x20746d66, 4); /* fmt */
    put(w, 16, 4);
    put(w, (uint64_t)tag, 2);
    put(w, (uint64_t)channels, 2);
    put(w, (uint64_t)rate, 4);
    put(w, (uint64_t)(rate * channels * bits / 8), 4);
    put(w, (uint64_t)(channels * bits / 8), 2);
    put(w, (uint64_t)bits, 2);
    put(w, 0x61746164, 4); /* data */
    put(w, data, 4);
}

static uint64_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static wave file_;

static void load(audio *a)
{
    if (audio_load(store("a.wav", file_.bytes, file_.size), a) != TOOL_DONE)
        fail_msg("%s", complaint);
}

static void samples_of_every_kind(void **state)
{
    (void)state;
    audio a;
    begin_wave(&file_, 1, 1, 16000, 16, 8);
    for (int i = 0; i < 4; i++)
        put(&file_, (uint64_t)(int64_t)(int[]){0, 1, -32768, 32767}[i], 2);
    load(&a);
    assert_true(a.count == 4 && a.rate == 16000 && a.channels == 1);
    for (int i = 0; i < 4; i++)
        assert_true((a.samples[i] == (float[]){0.0f, 1.0f, -32768.0f, 32767.0f}[i] / 32768.0f));
    audio_release(&a);

    begin_wave(&file_, 1, 1, 16000, 8, 3);
    for (int i = 0; i < 3; i++)
        put(&file_, (uint64_t)(int[]){0, 128, 255}[i], 1);
    load(&a);
    assert_true(a.count == 3 && a.samples[0] == -1.0f && a.samples[1] == 0.0f &&
                a.samples[2] == 127.0f / 128.0f);
    audio_release(&a);

    /* 24 bits lose their last eight, and are never rounded up. */
    begin_wave(&file_, 1, 1, 16000, 24, 9);
    for (int i = 0; i < 3; i++)
        put(&file_, (uint64_t)(int64_t)(int[]){0x1ff, -1, 0x7fffff}[i], 3);
    load(&a);
    assert_true(a.samples[0] == 1.0f / 32768.0f && a.samples[1] == -1.0f / 32768.0f &&
                a.samples[2] == 32767.0f / 32768.0f);
    audio_release(&a);

    /* Floats are rounded and clipped. */
    begin_wave(&file_, 3, 1, 16000, 32, 16);
    for (int i = 0; i < 4; i++)
        put(&file_, float_bits((float[]){1.6f / 32768.0f, -9.0f, 9.0f, 0.5f}[i]), 4);
    load(&a);
    assert_true(a.samples[0] == 2.0f / 32768.0f && a.samples[1] == -1.0f &&
                a.samples[2] == 32767.0f / 32768.0f && a.samples[3] == 0.5f);
    audio_release(&a);

    /* Two channels: their mean. */
    begin_wave(&file_, 1, 2, 16000, 16, 8);
    for (int i = 0; i < 4; i++)
        put(&file_, (uint64_t)(int[]){100, 300, 4, 5}[i], 2);
    load(&a);
    assert_true(a.count == 2 && a.channels == 2 && a.samples[0] == 200.0f / 32768.0f &&
                a.samples[1] == 5.0f / 32768.0f);
    audio_release(&a);

    /* Nothing at all is a recording, of no length. */
    begin_wave(&file_, 1, 1, 16000, 16, 0);
    load(&a);
    assert_true(a.count == 0 && a.seconds == 0.0);
    audio_release(&a);

    /* What ends early is read as far as it goes. */
    begin_wave(&file_, 1, 1, 16000, 16, 8000);
    for (int i = 0; i < 1000; i++)
        put(&file_, (uint64_t)i, 2);
    load(&a);
    assert_int_equal(a.count, 1000);
    assert_true(a.samples[999] == 999.0f / 32768.0f);
    audio_release(&a);
}

/* A tone keeps its height, strength and length at every rate. */
static void resampling(void **state)
{
    (void)state;
    static const int rates[] = {8000, 11025, 22050, 44100, 48000, 96000, 192000};
    for (size_t r = 0; r < COUNT_OF(rates); r++) {
        audio a;
        size_t count = (size_t)rates[r] / 4;
        begin_wave(&file_, 1, 1, rates[r], 16, 2 * count);
        for (size_t i = 0; i < count; i++)
            put(&file_, (uint64_t)(int64_t)lrint(16000.0 * sin(2.0 * M_PI * 440.0 * (double)i / rates[r])),
                2);
        load(&a);
        assert_true(a.count >= 3999 && a.count <= 4001);
        assert_close(a.seconds, 0.25, 1e-3);
        double largest = 0.0;
        for (size_t i = 400; i < 3600; i++)
            largest = fmax(largest, fabs((double)a.samples[i] -
                                         16000.0 / 32768.0 * sin(2.0 * M_PI * 440.0 * (double)i / 16000.0)));
        if (!(largest < 2e-4))
            fail_msg("%d Hz: off by %g", rates[r], largest);
        audio_release(&a);
    }
}

static void no_sound(void **state)
{
    (void)state;
    audio a;
    assert_complaint(audio_load(path_to("none.wav"), &a), "there is no such file");
    assert_complaint(audio_load(test_folder, &a), "is a folder");
    assert_complaint(audio_load("/dev/null", &a), "not a regular file");
    assert_complaint(audio_load(store("nil.wav", "", 0), &a), "is not a WAV file");
    assert_complaint(audio_load(store("text.wav", "RIFF is what I begin with, and no more", 38), &a),
                     "is not a WAV file");
    begin_wave(&file_, 1, 1, 16000, 16, 100);
    for (size_t size = 1; size < 44; size++) {
        int status = audio_load(store("cut.wav", file_.bytes, size), &a);
        assert_true(status == TOOL_BAD_INPUT || (status == TOOL_DONE && a.count == 0));
        audio_release(&a);
    }
    begin_wave(&file_, 1, 1, 10, 16, 2);
    put(&file_, 0, 2);
    assert_complaint(audio_load(store("slow.wav", file_.bytes, file_.size), &a), "has 10 samples a second");
    begin_wave(&file_, 3, 1, 16000, 32, 8);
    put(&file_, 0, 4);
    put(&file_, float_bits(NAN), 4);
    assert_complaint(audio_load(store("nan.wav", file_.bytes, file_.size), &a), "is not a finite number");
    /* An AU file: sound, but of another kind. */
    static const unsigned char au[] = {'.', 's', 'n', 'd', 0,    0,    0, 24, 0, 0, 0, 4, 0, 0,
                                       0,   3,   0,   0,   0x3e, 0x80, 0, 0,  0, 1, 0, 1, 2, 3};
    assert_complaint(audio_load(store("a.au", au, sizeof au), &a), "sound of another kind");
    assert_null(a.samples);
}

/* Noise and a tone, alike in every language that has integers. */
static void make_signal(float *samples, size_t count)
{
    uint32_t seed = 12345;
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        int32_t value = (int32_t)(seed >> 20) - 2048 + (i / 20 % 2 ? 6000 : -6000) +
                        (i > 2500 && i < 3500 ? (int32_t)(i % 7) * 900 : 0);
        samples[i] = (float)value / 32768.0f;
    }
}

/* Every eleventh frame's every thirteenth bin, by faster-whisper 1.2.1's feature extractor. */
static const float mel_expected[] = {
#include "speech/mel_expected.h"
};

static void spectrogram(void **state)
{
    (void)state;
    float samples[5000];
    mel_spectrogram mel;
    size_t next = 0;
    make_signal(samples, COUNT_OF(samples));
    assert_true(mel_compute(samples, COUNT_OF(samples), 80, &mel));
    assert_int_equal(mel.frames, 32);
    for (size_t t = 0; t < mel.frames; t += 11)
        for (size_t b = 0; b < 80; b += 13)
            assert_close((double)mel.values[t * 80 + b], (double)mel_expected[next++], 1e-5);
    assert_int_equal(next, COUNT_OF(mel_expected));

    /* Windows end in zeros, which are not the value of silence. */
    float *window = malloc(MEL_WINDOW * 80 * sizeof *window);
    assert_non_null(window);
    mel_window(&mel, 10, 5, window);
    assert_memory_equal(window, mel.values + 800, 400 * sizeof *window);
    for (size_t i = 400; i < MEL_WINDOW * 80; i++)
        assert_true(window[i] == 0.0f);
    mel_window(&mel, 30, 3000, window);
    assert_true(window[160] == 0.0f && window[159] == mel.values[31 * 80 + 79]);
    free(window);
    mel_release(&mel);

    /* Silence is -1.5; the shortest recordings have a frame. */
    memset(samples, 0, sizeof samples);
    for (size_t count = 0; count < 700; count += 53) {
        assert_true(mel_compute(samples, count, 80, &mel));
        assert_int_equal(mel.frames, count / 160 + 1);
        for (size_t i = 0; i < mel.frames * 80; i++)
            assert_true(mel.values[i] == -1.5f);
        mel_release(&mel);
    }
}

/* ---- tokens ---- */

/* Words 0 to 9, then the special tokens, then 1,501 timestamps. */
#define WORDS 10
#define END 10
#define START 11
#define PREVIOUS 12
#define NO_SPEECH 13
#define NO_STAMPS 14
#define STAMP 15
#define VOCABULARY (STAMP + 1501)
#define AT(seconds) (STAMP + (int32_t)((seconds)*50 + 0.5))

static const char *const words[WORDS] = {
    "\xc4\xa0hello", "\xc4\xa0wor",         "ld",       ".",           ",",
    "\xc4\xa0\"",    "\304\240caf\303\203", "\xc2\xa9", "\xc4\xa0the", "s"};
static const char *const special[] = {"<|endoftext|>", "<|startoftranscript|>", "<|startofprev|>",
                                      "<|nocaptions|>", "<|notimestamps|>"};
static const char good_config[] =
    "{\"suppress_ids\": [9, 11], \"suppress_ids_begin\": [10], \"alignment_heads\": [[0, 1], [1, 0]]}";

static void store_vocabulary(const char *without, const char *instead)
{
    static char text[1 << 16];
    size_t used = 0;
    for (int i = 0; i < WORDS; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s\n", words[i]);
    for (size_t i = 0; i < COUNT_OF(special); i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s\n",
                                 without != NULL && strcmp(special[i], without) == 0 ? instead : special[i]);
    for (int i = 0; i <= 1500; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "<|%d.%02d|>\n", i / 50, i % 50 * 2);
    store("vocabulary.txt", text, used);
}

static whisper_tokens load_tokens(void)
{
    whisper_tokens tokens;
    unlink(path_to("vocabulary.json"));
    store_vocabulary(NULL, NULL);
    store("config.json", good_config, strlen(good_config));
    if (whisper_tokens_load(test_folder, &tokens) != TOOL_DONE)
        fail_msg("%s", complaint);
    return tokens;
}

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
    assert_true(t.suppressed_count == 2 && t.suppressed[1] == 11 && t.suppressed_first_count == 1 &&
                t.head_count == 2);
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
    refuse_config(
        "{\"suppress_ids\": [], \"suppress_ids_begin\": [], \"alignment_heads\": [[0, 0], [-1, 2]]}",
        "pair 1");
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
    /* Bytes, and the characters that they are; Unicode 15, chapter 3, tables 3-8 to 3-11. */
    static const struct {
        const char *bytes;
        uint32_t characters[8];
    } cases[] = {
        {"a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", {'a', 0xe9, 0x20ac, 0x1f600}},
        {"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82",
         {0xfffd, 0xfffd, 0xfffd, 0xfffd, 0xfffd, 0xfffd, 0xfffd, 0xfffd}},
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

/* All equal, but for words, which are likelier than all timestamps together. */
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

    /* One timestamp: words, or nothing more?  The end is never first, but may be second. */
    apply(&t, 1, (int32_t[]){AT(0.4)});
    assert_true(allowed(0) && !allowed(9) && !allowed(START) && !allowed(NO_STAMPS) && allowed(END));
    for (int32_t i = STAMP; i < VOCABULARY; i++)
        assert_false(allowed(i));

    /* Words: later timestamps only. */
    apply(&t, 2, (int32_t[]){AT(0.4), 0});
    assert_true(allowed(0) && allowed(END) && !allowed(AT(0.4)) && !allowed(AT(0.2)) && allowed(AT(0.42)));

    /* A lone timestamp after words: no words, and no earlier one; the same is its pair. */
    apply(&t, 3, (int32_t[]){AT(0.4), 0, AT(2)});
    assert_true(!allowed(0) && !allowed(AT(1.98)) && allowed(AT(2)) && allowed(AT(30)));
    /* The end is not as likely as all timestamps; now it is. */
    assert_false(allowed(END));
    for (int i = 0; i < VOCABULARY; i++)
        logits[i] = i == END ? 20.0f : 0.0f;
    whisper_rules_apply(&t, (int32_t[]){AT(0.4), 0, AT(2)}, 3, logits);
    assert_true(allowed(END) && allowed(AT(2)) && !allowed(0));

    /* A pair: words. */
    apply(&t, 4, (int32_t[]){AT(0.4), 0, AT(2), AT(2)});
    assert_true(allowed(0) && allowed(END) && !allowed(AT(2)) && !allowed(AT(3)));

    /* 1,400 timestamps of probability p against a word of 700 p, and one of 2,800 p. */
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

/* ---- times ---- */

static void medians(void **state)
{
    (void)state;
    static const float from[] = {5, 1, 4, 2, 9, 7, 0, 3, 8, 6, 1, 1, 1, 5, 5, 5};
    float to[16];
    median_filter(from, 2, 8, 3, to);
    static const float of_3[] = {1, 4, 2, 4, 7, 7, 3, 0, 6, 6, 1, 1, 1, 5, 5, 5};
    for (int i = 0; i < 16; i++)
        assert_true(to[i] == of_3[i]);
    /* Of the first: 2 4 1 5 1 4 2; of the fourth: all seven before the last. */
    median_filter(from, 1, 8, 7, to);
    assert_true(to[0] == 2.0f && to[3] == 4.0f);
    median_filter(from, 1, 3, 7, to);
    assert_memory_equal(to, from, 3 * sizeof *to);
}

/* The largest sum of all ways, by trying them. */
static double best_way(const float *m, size_t columns, size_t r, size_t c)
{
    double here = (double)m[r * columns + c], best = -INFINITY;
    if (r == 0 && c == 0)
        return here;
    if (r > 0)
        best = fmax(best, best_way(m, columns, r - 1, c));
    if (c > 0)
        best = fmax(best, best_way(m, columns, r, c - 1));
    if (r > 0 && c > 0)
        best = fmax(best, best_way(m, columns, r - 1, c - 1));
    return here + best;
}

static void warping(void **state)
{
    (void)state;
    uint32_t seed = 7;
    for (int round = 0; round < 200; round++) {
        size_t rows = 1 + (size_t)round % 5, columns = 1 + (size_t)round / 5 % 7, first[5];
        float m[35];
        for (size_t i = 0; i < rows * columns; i++) {
            seed = seed * 1664525u + 1013904223u;
            m[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
        }
        assert_true(dtw_rows(m, rows, columns, first));
        /* The way visits each row from its first column to the next row's first, or one before that. */
        assert_int_equal(first[0], 0);
        double best = best_way(m, columns, rows - 1, columns - 1), sum = -INFINITY;
        for (unsigned corner = 0; corner < 1u << (rows - 1); corner++) {
            double all = 0.0;
            for (size_t r = 0; r < rows; r++) {
                size_t last =
                    r + 1 < rows ? first[r + 1] - (corner >> r & 1 && first[r + 1] > first[r]) : columns - 1;
                for (size_t c = first[r]; c <= last; c++)
                    all += (double)m[r * columns + c];
            }
            sum = fmax(sum, all);
        }
        assert_close(sum, best, 1e-5);
    }
    /* All alike: along the columns first. */
    float flat[12] = {0};
    size_t first[3];
    assert_true(dtw_rows(flat, 3, 4, first));
    assert_true(first[0] == 0 && first[1] == 0 && first[2] == 0);
}

/* Tokens that look at one place each, 20 frames apart, in noise. */
static void alignment(void **state)
{
    (void)state;
    enum { HEADS = 2, TOKENS = 8, STRIDE = 150, FRAMES_HERE = 120 };
    static float p[HEADS * TOKENS * STRIDE];
    uint32_t seed = 3;
    for (size_t i = 0; i < COUNT_OF(p); i++) {
        size_t token = i / STRIDE % TOKENS, frame = i % STRIDE;
        seed = seed * 1664525u + 1013904223u;
        bool there = frame >= 20 * token && frame < 20 * token + 20;
        p[i] = (there ? 0.04f : 0.001f) + (float)(seed >> 16) * 1e-8f;
    }
    size_t first[TOKENS];
    assert_true(align_tokens(p, HEADS, TOKENS, STRIDE, FRAMES_HERE, 0, 6, first));
    for (size_t t = 0; t < 6; t++)
        assert_close((double)first[t], 20.0 * (double)t, 2.0);
    assert_true(align_tokens(p, HEADS, TOKENS, STRIDE, FRAMES_HERE, 1, 5, first));
    assert_int_equal(first[0], 0);
    for (size_t t = 1; t < 5; t++)
        assert_close((double)first[t], 20.0 * (double)(t + 1), 2.0);
}

static void assert_words(const whisper_words *all, size_t count, const char *const *texts,
                         const size_t *counts)
{
    assert_int_equal(all->count, count);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(all->word[i].text, texts[i]);
        assert_int_equal(all->word[i].tokens, counts[i]);
    }
}

static void grouping(void **state)
{
    (void)state;
    whisper_tokens t = load_tokens();
    whisper_words all;
    /* " hello" " world" "," ' "' " café" "." " the" "s" */
    assert_true(whisper_words_split(&t, (int32_t[]){0, 1, 2, 4, 5, 6, 7, 3, 8, 9}, 10, &all));
    assert_words(&all, 7, (const char *[]){" hello", " world", ",", " \"", " caf\xc3\xa9", ".", " thes"},
                 (size_t[]){1, 2, 1, 1, 2, 1, 2});
    size_t first[] = {0, 10, 20, 50, 60, 65, 70, 80, 200, 210, 220};
    double p[] = {0.5, 0.25, 0.75, 1, 1, 0.5, 0.7, 1, 1, 1};
    whisper_words_time(&all, first, p);
    assert_close(all.word[1].start, 0.2, 1e-9);
    assert_close(all.word[1].end, 1.0, 1e-9);
    assert_close(all.word[1].probability, 0.5, 1e-9);
    double median;
    assert_true(whisper_words_polish(&all, &median));
    /* 0.2 0.8 0.2 0.1 0.3 2.4 0.4: the stop of 2.4 s is cut to twice the median. */
    assert_close(median, 0.3, 1e-9);
    assert_words(&all, 7, (const char *[]){" hello", " world,", "", "", " \" caf\xc3\xa9.", "", " thes"},
                 (size_t[]){1, 3, 0, 0, 4, 0, 2});
    assert_close(all.word[5].end, 1.6 + 0.6, 1e-9);
    whisper_words_release(&all);
    assert_true(whisper_words_split(&t, (int32_t[]){6}, 1, &all));
    assert_words(&all, 1, (const char *[]){" caf\xef\xbf\xbd"}, (size_t[]){1});
    whisper_words_release(&all);
    assert_true(whisper_words_split(&t, NULL, 0, &all));
    assert_int_equal(all.count, 0);
    whisper_words_release(&all);
    whisper_tokens_release(&t);
}

static void placing(void **state)
{
    (void)state;
    /* The first word reaches back over a pause of five seconds; the segment's end agrees with the last
     * word's. */
    whisper_word w[] = {{NULL, 1, 0.0, 5.0, 1.0}, {NULL, 1, 5.0, 5.3, 1.0}};
    double start = 10.0, end = 15.3, last = 8.0;
    whisper_words_place(w, 2, 10.0, 0.3, &start, &end, &last);
    assert_close(w[0].start, 14.4, 1e-9);
    assert_close(start, 14.4, 1e-9);
    assert_close(w[1].end, 15.3, 1e-9);
    assert_close(last, 15.3, 1e-9);
    /* A last word that runs on is held back by the segment. */
    whisper_word v[] = {{NULL, 1, 1.0, 1.2, 1.0}, {NULL, 1, 1.2, 4.0, 1.0}};
    start = 1.0, end = 2.0, last = 0.9;
    whisper_words_place(v, 2, 0.0, 0.2, &start, &end, &last);
    assert_close(v[1].end, 2.0, 1e-9);
    assert_close(last, 2.0, 1e-9);
}

/* ---- the search, by a model that is a script ---- */

typedef struct script {
    /* What each window says, ended by -1: the likeliest token after those before it. */
    const int32_t (*says)[16];
    int windows, window;
    float confidence; /* the logit of what is said, others' being 0 */
    int hot_tries;    /* so many decodings of each window repeat themselves */
    int tries;
    float no_speech;
    int32_t generated[WHISPER_SEQUENCES][WHISPER_LENGTH];
    size_t count, sequences;
    int32_t prompt[WHISPER_LENGTH];
    size_t prompt_count;
} script;

static int script_encode(void *user, const float *window)
{
    script *s = user;
    (void)window;
    s->window++;
    s->tries = 0;
    return s->window < s->windows ? TOOL_DONE : TOOL_FAILED;
}

static void script_logits(const script *s, size_t place, float *to)
{
    const int32_t *says = s->says[s->window];
    for (int i = 0; i < VOCABULARY; i++)
        to[i] = 0.0f;
    size_t length = 0;
    while (says[length] >= 0)
        length++;
    int32_t token = place < length ? says[place] : END;
    if (s->tries <= s->hot_tries && place > 0)
        token = place < 60 ? 0 : place == 60 ? AT(5) : END;
    to[token] = s->confidence;
    if (place == 0)
        to[NO_SPEECH] = s->no_speech;
}

static int script_begin(void *user, const int32_t *tokens, size_t count, size_t sequences, float *to)
{
    script *s = user;
    memcpy(s->prompt, tokens, count * sizeof *tokens);
    s->prompt_count = count;
    s->count = 0;
    s->sequences = sequences;
    s->tries++;
    script_logits(s, 0, to);
    return TOOL_DONE;
}

static int script_step(void *user, const size_t *parents, const int32_t *tokens, float *to)
{
    script *s = user;
    (void)parents;
    (void)tokens;
    s->count++;
    for (size_t i = 0; i < s->sequences; i++)
        script_logits(s, s->count, to + i * VOCABULARY);
    return TOOL_DONE;
}

/* Token i looks at frames 30 i to 30 i + 30. */
static int script_align(void *user, const int32_t *tokens, size_t count, int32_t end,
                        const whisper_head *heads, size_t head_count, double *p, float *attention)
{
    (void)user;
    (void)heads;
    assert_int_equal(tokens[0], START);
    assert_int_equal(tokens[1], NO_STAMPS);
    assert_int_equal(tokens[count - 1], END);
    assert_int_equal(end, END);
    for (size_t i = 0; i + 1 < count; i++)
        p[i] = 0.1 * (double)i;
    for (size_t h = 0; h < head_count; h++)
        for (size_t i = 0; i < count; i++)
            for (size_t f = 0; f < WHISPER_POSITIONS; f++)
                attention[(h * count + i) * WHISPER_POSITIONS + f] =
                    i > 0 && f / 30 == i - 1 ? 0.03f : 0.0001f;
    return TOOL_DONE;
}

static whisper_engine engine_of(script *s)
{
    s->window = -1;
    return (whisper_engine){s, VOCABULARY, 80, script_encode, script_begin, script_step, script_align};
}

static mel_spectrogram silence(size_t frames)
{
    mel_spectrogram mel = {80, frames + 1, calloc((frames + 1) * 80, sizeof(float))};
    assert_non_null(mel.values);
    return mel;
}

static void transcribe(script *s, const whisper_tokens *t, size_t frames, whisper_options options,
                       whisper_transcript *out)
{
    whisper_engine engine = engine_of(s);
    mel_spectrogram mel = silence(frames);
    complaint[0] = '\0';
    if (whisper_transcribe(&engine, t, &mel, &options, out) != TOOL_DONE)
        fail_msg("'%s' after %d windows", complaint, s->window);
    mel_release(&mel);
}

static void windows(void **state)
{
    (void)state;
    whisper_tokens t = load_tokens();
    whisper_transcript out;
    /* 50 s.  The first window ends with a pair at 24 s, the second with one timestamp at 10 s. */
    static const int32_t says[][16] = {
        {AT(0), 0, AT(4), AT(4), 1, 2, AT(24), AT(24), 0, -1},
        {AT(0), 8, 3, AT(10), -1},
    };
    script s = {.says = says, .windows = 2, .confidence = 20};
    transcribe(&s, &t, 5000, (whisper_options){.beams = 1}, &out);
    assert_int_equal(out.windows, 2);
    assert_int_equal(out.count, 3);
    static const double times[][2] = {{0, 4}, {4, 24}, {24, 34}};
    for (size_t i = 0; i < 3; i++) {
        assert_close(out.segment[i].start, times[i][0], 1e-9);
        assert_close(out.segment[i].end, times[i][1], 1e-9);
    }
    char *text = whisper_transcript_text(&out);
    assert_string_equal(text, "hello world the.");
    free(text);
    /* The second window was shown what the first has said, timestamps included. */
    static const int32_t shown[] = {PREVIOUS, AT(0), 0, AT(4), AT(4), 1, 2, AT(24), START};
    assert_int_equal(s.prompt_count, COUNT_OF(shown));
    assert_memory_equal(s.prompt, shown, sizeof shown);
    /* Each token but the end is one of 1 + 1,515 e^-20, at the least. */
    assert_true(out.segment[0].average < 0.0 && out.segment[0].average > -1e-4);
    whisper_transcript_release(&out);

    transcribe(&s, &t, 5000, (whisper_options){.beams = 1, .alone = true}, &out);
    assert_int_equal(s.prompt_count, 1);
    whisper_transcript_release(&out);

    /* The same with five beams. */
    transcribe(&s, &t, 5000, (whisper_options){.beams = 5}, &out);
    text = whisper_transcript_text(&out);
    assert_string_equal(text, "hello world the.");
    free(text);
    whisper_transcript_release(&out);

    /* No text, and nothing to hear. */
    transcribe(&s, &t, 0, (whisper_options){.beams = 1}, &out);
    assert_int_equal(out.count + out.windows, 0);
    text = whisper_transcript_text(&out);
    assert_string_equal(text, "");
    free(text);
    whisper_transcript_release(&out);
    whisper_tokens_release(&t);
}

static void word_times(void **state)
{
    (void)state;
    whisper_tokens t = load_tokens();
    whisper_transcript out;
    static const int32_t says[][16] = {{AT(0), 0, 1, 2, 3, AT(4), -1}};
    script s = {.says = says, .windows = 1, .confidence = 20};
    transcribe(&s, &t, 400, (whisper_options){.beams = 1, .words = true}, &out);
    assert_int_equal(out.count, 1);
    assert_int_equal(out.segment[0].words.count, 2);
    const whisper_word *w = out.segment[0].words.word;
    assert_string_equal(w[0].text, " hello");
    assert_string_equal(w[1].text, " world.");
    assert_close(w[0].start, 0.0, 0.05);
    assert_close(w[0].end, 0.6, 0.05);
    assert_close(w[1].start, 0.6, 0.05);
    assert_close(w[0].probability, 0.1, 1e-9);
    assert_close(w[1].probability, 0.25, 1e-9);
    whisper_transcript_release(&out);

    int32_t *heads = (int32_t *)t.heads;
    t.head_count = 0;
    mel_spectrogram mel = silence(400);
    whisper_engine engine = engine_of(&s);
    whisper_options options = {.beams = 1, .words = true};
    assert_complaint(whisper_transcribe(&engine, &t, &mel, &options, &out), "alignment_heads");
    assert_non_null(heads);
    mel_release(&mel);
    whisper_tokens_release(&t);
}

/* What repeats itself is tried again, hotter; what is unlikely and silent is skipped. */
static void fallback(void **state)
{
    (void)state;
    whisper_tokens t = load_tokens();
    whisper_transcript out;
    static const int32_t says[][16] = {{AT(0), 0, 1, 2, AT(4), -1}};
    script s = {.says = says, .windows = 1, .confidence = 30, .hot_tries = 2};
    transcribe(&s, &t, 2000, (whisper_options){.beams = 1, .samples = 5, .fallback = true}, &out);
    assert_int_equal(s.tries, 3);
    assert_int_equal(s.sequences, 5);
    assert_close(out.segment[0].temperature, 0.4, 1e-9);
    assert_string_equal(out.segment[0].text, " hello world");
    whisper_transcript_release(&out);

    /* Without, the first is what there is. */
    transcribe(&s, &t, 2000, (whisper_options){.beams = 1}, &out);
    assert_int_equal(s.tries, 1);
    assert_true(out.segment[0].compression > 2.4);
    whisper_transcript_release(&out);

    s = (script){.says = says, .windows = 1, .confidence = 0.5f, .no_speech = 40};
    transcribe(&s, &t, 2000, (whisper_options){.beams = 1, .samples = 5, .fallback = true}, &out);
    assert_int_equal(out.count, 0);
    assert_int_equal(s.tries, 1);
    whisper_transcript_release(&out);
    whisper_tokens_release(&t);
}

/* A model of two words in which the likelier first word has only unlikely continuations: greedy is fooled,
 * two beams are not.  Sequences are known by their last token. */
static int fork_begin(void *user, const int32_t *tokens, size_t count, size_t sequences, float *to)
{
    *(size_t *)user = sequences;
    (void)tokens;
    (void)count;
    for (int i = 0; i < VOCABULARY; i++)
        to[i] = i == STAMP ? 30.0f : -30.0f;
    return TOOL_DONE;
}

static int fork_step(void *user, const size_t *parents, const int32_t *tokens, float *to)
{
    (void)parents;
    for (size_t s = 0; s < *(size_t *)user; s++) {
        float *row = to + s * VOCABULARY;
        for (int i = 0; i < VOCABULARY; i++)
            row[i] = -30.0f;
        if (tokens[s] == STAMP) {
            row[0] = logf(0.6f);
            row[1] = logf(0.4f);
        } else if (tokens[s] == 0) {
            for (int i = 2; i < 9; i++)
                row[i] = logf(1.0f / 7.0f);
        } else {
            row[END] = 0.0f;
        }
    }
    return TOOL_DONE;
}

static void beams(void **state)
{
    (void)state;
    size_t sequences;
    whisper_tokens t = load_tokens();
    whisper_engine engine = {&sequences, VOCABULARY, 80, NULL, fork_begin, fork_step, NULL};
    whisper_result result;
    int32_t prompt = START;
    whisper_decoding how = {.beams = 1};
    assert_int_equal(whisper_decode(&engine, &t, &prompt, 1, &how, &result), TOOL_DONE);
    assert_true(result.count == 3 && result.tokens[1] == 0 && result.tokens[2] == 2);
    assert_close(result.average, log(0.6 / 7.0) / 4.0, 1e-4);
    how.beams = 2;
    assert_int_equal(whisper_decode(&engine, &t, &prompt, 1, &how, &result), TOOL_DONE);
    assert_true(result.count == 2 && result.tokens[1] == 1);
    assert_close(result.average, log(0.4) / 3.0, 1e-4);

    /* At random: the same for the same seed, and each word about as often as it should be. */
    int first = 0;
    how = (whisper_decoding){.temperature = 1.0, .samples = 1};
    for (how.seed = 0; how.seed < 400; how.seed++) {
        whisper_result again;
        assert_int_equal(whisper_decode(&engine, &t, &prompt, 1, &how, &result), TOOL_DONE);
        assert_int_equal(whisper_decode(&engine, &t, &prompt, 1, &how, &again), TOOL_DONE);
        assert_true(again.count == result.count &&
                    memcmp(again.tokens, result.tokens, 4 * result.count) == 0);
        first += result.tokens[1] == 0;
    }
    assert_true(first > 200 && first < 280);
    whisper_tokens_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_of_every_kind),
        cmocka_unit_test(resampling),
        cmocka_unit_test(no_sound),
        cmocka_unit_test(spectrogram),
        cmocka_unit_test(tokens_and_text),
        cmocka_unit_test(tokens_refused),
        cmocka_unit_test(broken_characters),
        cmocka_unit_test(rules),
        cmocka_unit_test(probabilities),
        cmocka_unit_test(medians),
        cmocka_unit_test(warping),
        cmocka_unit_test(alignment),
        cmocka_unit_test(grouping),
        cmocka_unit_test(placing),
        cmocka_unit_test(windows),
        cmocka_unit_test(word_times),
        cmocka_unit_test(fallback),
        cmocka_unit_test(beams),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
