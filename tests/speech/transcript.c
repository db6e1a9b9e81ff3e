/* The transcript of a recording by a scripted model: windows, times of words, maps of attention, JSON.  Needs no
 * device. */
#include "speech/script.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tool/transcribe/json.h"
#include "tool/tool.h"

/* The recording lasts 50 s.  The first window ends with a pair of timestamps at 24 s, the second with one timestamp at
 * 10 s. */
static const int32_t two_windows[][16] = {
    {AT(0), 0, AT(4), AT(4), 1, 2, AT(24), AT(24), 0, -1},
    {AT(0), 8, 3, AT(10), -1},
};

static void windows(void **state)
{
    (void)state;
    whisper_tokens t = load_tokens();
    whisper_transcript out;
    script s = {.says = two_windows, .windows = 2, .confidence = 20};
    script_transcribe(&s, &t, 5000, (whisper_options){.beams = 1}, &out);
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
    /* The second window was shown what the first one said, timestamps included. */
    static const int32_t shown[] = {PREVIOUS, AT(0), 0, AT(4), AT(4), 1, 2, AT(24), START};
    assert_int_equal(s.prompt_count, COUNT_OF(shown));
    assert_memory_equal(s.prompt, shown, sizeof shown);
    /* Each token except the end has a probability of at least 1 / (1 + 1,515 e^-20). */
    assert_true(out.segment[0].average < 0.0 && out.segment[0].average > -1e-4);
    whisper_transcript_release(&out);

    script_transcribe(&s, &t, 5000, (whisper_options){.beams = 1, .independent = true}, &out);
    assert_int_equal(s.prompt_count, 1);
    whisper_transcript_release(&out);

    /* Five beams give the same text. */
    script_transcribe(&s, &t, 5000, (whisper_options){.beams = 5}, &out);
    text = whisper_transcript_text(&out);
    assert_string_equal(text, "hello world the.");
    free(text);
    whisper_transcript_release(&out);

    /* An empty recording has no text. */
    script_transcribe(&s, &t, 0, (whisper_options){.beams = 1}, &out);
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
    script_transcribe(&s, &t, 400, (whisper_options){.beams = 1, .words = true}, &out);
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
    whisper_engine engine = script_engine(&s);
    whisper_options options = {.beams = 1, .words = true};
    assert_complaint(whisper_transcribe(&engine, &t, &mel, &options, &out), "alignment_heads");
    assert_non_null(heads);
    mel_release(&mel);
    whisper_tokens_release(&t);
}

/* The script's attention, (h + 1) times as large for head h, so that heads differ. */
static int map_align(void *user, const int32_t *tokens, size_t count, int32_t end, const whisper_head *heads,
                     size_t head_count, double *p, float *attention)
{
    script_align(user, tokens, count, end, heads, head_count, p, attention);
    assert_int_equal(head_count, 6);
    for (size_t h = 0; h < head_count; h++) {
        assert_true(heads[h].layer == (int32_t)(h / 3) && heads[h].head == (int32_t)(h % 3));
        for (size_t i = 0; i < count * WHISPER_POSITIONS; i++)
            attention[h * count * WHISPER_POSITIONS + i] *= (float)(h + 1);
    }
    return TOOL_DONE;
}

static void hear_map(script *s, const whisper_tokens *t, size_t frames, whisper_map *map, whisper_transcript *out)
{
    whisper_engine engine = script_engine(s);
    mel_spectrogram mel = silence(frames);
    whisper_options options = {.beams = 1, .map = map};
    engine.align = map_align;
    if (whisper_transcribe(&engine, t, &mel, &options, out) != TOOL_DONE)
        fail_msg("'%s'", complaint);
    mel_release(&mel);
}

/* Fails the test unless the row of token i sums what the script gives the token in 0.02 s from its place on. */
static void assert_map(const heatmap_part *part, size_t positions, size_t merged)
{
    assert_true(part->layers == 2 && part->heads == 3);
    assert_int_equal(part->key.count, (positions + merged - 1) / merged);
    assert_close(part->key.step, 0.02 * (double)merged, 1e-12);
    for (size_t h = 0; h < 6; h++)
        for (size_t i = 0; i < part->query.count; i++)
            for (size_t c = 0; c < part->key.count; c++) {
                double sum = 0.0;
                for (size_t f = c * merged; f < (c + 1) * merged && f < positions; f++)
                    sum += (double)(h + 1) * (f / 30 == i ? (double)0.03f : (double)0.0001f);
                const float *row = part->values + (h * part->query.count + i) * part->key.count;
                assert_close((double)row[c], sum, 1e-6);
            }
}

static void maps(void **state)
{
    (void)state;
    whisper_tokens t = load_tokens();
    whisper_transcript out;
    static const char *const rows[2][4] = {{" hello", " wor", "ld", "<|endoftext|>"}, {" the", ".", "<|endoftext|>"}};
    static const size_t counts[] = {4, 3};
    script s = {.says = two_windows, .windows = 2, .confidence = 20};
    for (size_t most = 0; most <= 6000; most += 3000) {
        /* Unmerged, there are 6 matrices of 4 x 1,500 and 6 of 3 x 1,300; merged by eight, 4 x 188 and 3 x 163 are
         * 7,446 cells. */
        whisper_map map = {.most = most == 0 ? 0 : most + 1500};
        const size_t merged = most == 0 ? 1 : most == 3000 ? 16 : 8;
        hear_map(&s, &t, 5000, &map, &out);
        assert_int_equal(map.count, 2);
        for (size_t w = 0; w < 2; w++) {
            assert_int_equal(map.parts[w].query.count, counts[w]);
            for (size_t i = 0; i < counts[w]; i++)
                assert_string_equal(map.parts[w].query.labels[i], rows[w][i]);
            assert_map(&map.parts[w], w == 0 ? 1500 : 1300, merged);
            assert_close(map.parts[w].key.first, w == 0 ? 0.0 : 24.0, 1e-9);
        }
        assert_string_equal(map.parts[0].name, "0.00 s to 30.00 s");
        assert_string_equal(map.parts[1].name, "24.00 s to 50.00 s");
        whisper_map_release(&map);
        whisper_transcript_release(&out);
    }

    /* One column stays, however few cells are allowed. */
    whisper_map map = {.most = 1};
    hear_map(&s, &t, 5000, &map, &out);
    assert_map(&map.parts[0], 1500, 2048);
    whisper_map_release(&map);
    whisper_transcript_release(&out);

    /* If nothing is said, nothing is drawn. */
    static const int32_t silent[][16] = {{AT(0), -1}};
    s = (script){.says = silent, .windows = 1, .confidence = 20};
    hear_map(&s, &t, 400, &map, &out);
    assert_int_equal(map.count, 0);
    whisper_map_release(&map);
    whisper_transcript_release(&out);
    whisper_tokens_release(&t);
}

/* A number that JSON cannot express makes the transcript fail; the library does not leave it out. */
static void json(void **state)
{
    (void)state;
    int32_t tokens[] = {AT(0), 0, AT(4)};
    char text[] = " hello";
    whisper_word word = {text, 1, 0.5, 1.25, 0.75};
    whisper_segment segment = {.start = 0.0,
                               .end = 4.0,
                               .text = text,
                               .tokens = tokens,
                               .token_count = COUNT_OF(tokens),
                               .average = -0.25,
                               .no_speech = 0.125,
                               .temperature = 0.5,
                               .compression = 1.5,
                               .words = {&word, 1}};
    const whisper_transcript transcript = {.segment = &segment, .count = 1, .windows = 1};
    for (int words = 0; words < 2; words++) {
        json_t *object = whisper_transcript_json(&transcript, words);
        char *line = json_dumps(object, JSON_COMPACT);
        assert_non_null(line);
        assert_string_equal(line,
                            words ? "{\"text\":\"hello\",\"segments\":[{\"start\":0.0,\"end\":4.0,\"text\":\" hello\","
                                    "\"tokens\":[15,0,215],\"avg_logprob\":-0.25,\"no_speech_prob\":0.125,"
                                    "\"temperature\":0.5,\"compression_ratio\":1.5,\"words\":[{\"start\":0.5,"
                                    "\"end\":1.25,\"word\":\" hello\",\"probability\":0.75}]}],\"windows\":1}"
                                  : "{\"text\":\"hello\",\"segments\":[{\"start\":0.0,\"end\":4.0,\"text\":\" hello\","
                                    "\"tokens\":[15,0,215],\"avg_logprob\":-0.25,\"no_speech_prob\":0.125,"
                                    "\"temperature\":0.5,\"compression_ratio\":1.5}],\"windows\":1}");
        free(line);
        json_decref(object);
    }
    double *const numbers[] = {&segment.start,       &segment.end,         &segment.average, &segment.no_speech,
                               &segment.temperature, &segment.compression, &word.start,      &word.end,
                               &word.probability};
    static const double none[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < COUNT_OF(numbers); i++)
        for (size_t k = 0; k < COUNT_OF(none); k++) {
            const double was = *numbers[i];
            *numbers[i] = none[k];
            assert_null(whisper_transcript_json(&transcript, true));
            *numbers[i] = was;
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows),
        cmocka_unit_test(word_times),
        cmocka_unit_test(maps),
        cmocka_unit_test(json),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
