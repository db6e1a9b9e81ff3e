/* Sound files of every kind are read, other files are refused; resampling and spectrograms are right.  Needs no
 * device. */
#define _GNU_SOURCE
#include "speech/speech.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tool/transcribe/sound/audio.h"
#include "tool/transcribe/sound/mel.h"
#include "tool/tool.h"

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

/* Writes a header for `data` bytes of samples. */
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
    assert_true(a.count == 3 && a.samples[0] == -1.0f && a.samples[1] == 0.0f && a.samples[2] == 127.0f / 128.0f);
    audio_release(&a);

    /* Samples of 24 bits lose their last eight bits and are never rounded up. */
    begin_wave(&file_, 1, 1, 16000, 24, 9);
    for (int i = 0; i < 3; i++)
        put(&file_, (uint64_t)(int64_t)(int[]){0x1ff, -1, 0x7fffff}[i], 3);
    load(&a);
    assert_true(a.samples[0] == 1.0f / 32768.0f && a.samples[1] == -1.0f / 32768.0f &&
                a.samples[2] == 32767.0f / 32768.0f);
    audio_release(&a);

    /* Samples of float are rounded and clipped. */
    begin_wave(&file_, 3, 1, 16000, 32, 16);
    for (int i = 0; i < 4; i++)
        put(&file_, float_bits((float[]){1.6f / 32768.0f, -9.0f, 9.0f, 0.5f}[i]), 4);
    load(&a);
    assert_true(a.samples[0] == 2.0f / 32768.0f && a.samples[1] == -1.0f && a.samples[2] == 32767.0f / 32768.0f &&
                a.samples[3] == 0.5f);
    audio_release(&a);

    /* Two channels are averaged. */
    begin_wave(&file_, 1, 2, 16000, 16, 8);
    for (int i = 0; i < 4; i++)
        put(&file_, (uint64_t)(int[]){100, 300, 4, 5}[i], 2);
    load(&a);
    assert_true(a.count == 2 && a.channels == 2 && a.samples[0] == 200.0f / 32768.0f &&
                a.samples[1] == 5.0f / 32768.0f);
    audio_release(&a);

    /* A file without samples is a recording of no length. */
    begin_wave(&file_, 1, 1, 16000, 16, 0);
    load(&a);
    assert_true(a.count == 0 && a.seconds == 0.0);
    audio_release(&a);

    /* A file that ends early is read up to its end. */
    begin_wave(&file_, 1, 1, 16000, 16, 8000);
    for (int i = 0; i < 1000; i++)
        put(&file_, (uint64_t)i, 2);
    load(&a);
    assert_int_equal(a.count, 1000);
    assert_true(a.samples[999] == 999.0f / 32768.0f);
    audio_release(&a);
}

/* A tone keeps its pitch, strength and length at every rate. */
static void resampling(void **state)
{
    (void)state;
    static const int rates[] = {8000, 11025, 22050, 44100, 48000, 96000, 192000};
    for (size_t r = 0; r < COUNT_OF(rates); r++) {
        audio a;
        size_t count = (size_t)rates[r] / 4;
        begin_wave(&file_, 1, 1, rates[r], 16, 2 * count);
        for (size_t i = 0; i < count; i++)
            put(&file_, (uint64_t)(int64_t)lrint(16000.0 * sin(2.0 * M_PI * 440.0 * (double)i / rates[r])), 2);
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
    /* An AU file is sound in a format that is not read. */
    static const unsigned char au[] = {'.', 's', 'n', 'd', 0,    0,    0, 24, 0, 0, 0, 4, 0, 0,
                                       0,   3,   0,   0,   0x3e, 0x80, 0, 0,  0, 1, 0, 1, 2, 3};
    assert_complaint(audio_load(store("a.au", au, sizeof au), &a), "sound of another kind");
    assert_null(a.samples);
}

/* Makes noise and a tone by integer arithmetic, which every language repeats exactly. */
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

/* Every thirteenth bin of every eleventh frame, by faster-whisper 1.2.1's feature extractor. */
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

    /* Windows are filled up with zeros, which are not the value of silence. */
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

    /* Silence is -1.5, and the shortest recordings have one frame. */
    memset(samples, 0, sizeof samples);
    for (size_t count = 0; count < 700; count += 53) {
        assert_true(mel_compute(samples, count, 80, &mel));
        assert_int_equal(mel.frames, count / 160 + 1);
        for (size_t i = 0; i < mel.frames * 80; i++)
            assert_true(mel.values[i] == -1.5f);
        mel_release(&mel);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_of_every_kind),
        cmocka_unit_test(resampling),
        cmocka_unit_test(no_sound),
        cmocka_unit_test(spectrogram),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
