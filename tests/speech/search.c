/* The search for a recording's tokens tries again if needed, at random and by beams, and stops at faults; the models
 * are scripts.  Needs no device. */
#include "speech/script.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tool/transcribe/decode.h"
#include "tool/tool.h"

/* A text that repeats itself is tried again at a higher temperature; one that is unlikely and silent is skipped. */
static void fallback(void **state)
{
    (void)state;
    whisper_tokens t = load_tokens();
    whisper_transcript out;
    static const int32_t says[][16] = {{AT(0), 0, 1, 2, AT(4), -1}};
    script s = {.says = says, .windows = 1, .confidence = 30, .hot_tries = 2};
    script_transcribe(&s, &t, 2000, (whisper_options){.beams = 1, .samples = 5, .fallback = true}, &out);
    assert_int_equal(s.tries, 3);
    assert_int_equal(s.sequences, 5);
    assert_close(out.segment[0].temperature, 0.4, 1e-9);
    assert_string_equal(out.segment[0].text, " hello world");
    whisper_transcript_release(&out);

    /* Without fallback the first text counts. */
    script_transcribe(&s, &t, 2000, (whisper_options){.beams = 1}, &out);
    assert_int_equal(s.tries, 1);
    assert_true(out.segment[0].compression > 2.4);
    whisper_transcript_release(&out);

    s = (script){.says = says, .windows = 1, .confidence = 0.5f, .no_speech = 40};
    script_transcribe(&s, &t, 2000, (whisper_options){.beams = 1, .samples = 5, .fallback = true}, &out);
    assert_int_equal(out.count, 0);
    assert_int_equal(s.tries, 1);
    whisper_transcript_release(&out);
    whisper_tokens_release(&t);
}

/* A model of two words in which the likelier first word has only unlikely continuations: greedy search is fooled, two
 * beams are not.  The model knows a sequence by its last token. */
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
    whisper_engine engine = {&sequences, VOCABULARY, 80, 1, 1, NULL, fork_begin, fork_step, NULL};
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

    /* Random choices are the same for the same seed, and each word comes about as often as it should. */
    int first = 0;
    how = (whisper_decoding){.temperature = 1.0, .samples = 1};
    for (how.seed = 0; how.seed < 400; how.seed++) {
        whisper_result again;
        assert_int_equal(whisper_decode(&engine, &t, &prompt, 1, &how, &result), TOOL_DONE);
        assert_int_equal(whisper_decode(&engine, &t, &prompt, 1, &how, &again), TOOL_DONE);
        assert_true(again.count == result.count && memcmp(again.tokens, result.tokens, 4 * result.count) == 0);
        first += result.tokens[1] == 0;
    }
    assert_true(first > 200 && first < 280);
    whisper_tokens_release(&t);
}

/* ---- texts that end while nothing can take their place ---- */

/* Returns the vocabulary, of which only the given tokens may be generated. */
static whisper_tokens tokens_of_few(const int32_t *few, size_t count)
{
    whisper_tokens t = load_tokens();
    int32_t *forbidden = realloc(t.suppressed, VOCABULARY * sizeof *forbidden);
    assert_non_null(forbidden);
    t.suppressed = forbidden;
    t.suppressed_count = 0;
    for (int32_t i = 0; i < VOCABULARY; i++) {
        bool may = false;
        for (size_t k = 0; k < count; k++)
            may |= few[k] == i;
        if (!may)
            forbidden[t.suppressed_count++] = i;
    }
    return t;
}

typedef struct narrow {
    size_t sequences, steps;
} narrow;

static int narrow_begin(void *user, const int32_t *tokens, size_t count, size_t sequences, float *to)
{
    (void)tokens;
    (void)count;
    *(narrow *)user = (narrow){.sequences = sequences};
    for (int i = 0; i < VOCABULARY; i++)
        to[i] = -30.0f;
    to[AT(0)] = logf(0.6f);
    to[AT(0) + 1] = logf(0.4f);
    return TOOL_DONE;
}

/* After the first timestamp the end is likeliest, after the second the word, after the word one more word and the end.
 * A text that were continued though it has ended would get the word and the end at once. */
static int narrow_step(void *user, const size_t *parents, const int32_t *tokens, float *to)
{
    narrow *n = user;
    (void)parents;
    n->steps++;
    for (size_t s = 0; s < n->sequences; s++) {
        float *row = to + s * VOCABULARY;
        bool ends = tokens[s] == AT(0) || (tokens[s] == 0 && n->steps >= 3);
        for (int i = 0; i < VOCABULARY; i++)
            row[i] = -30.0f;
        row[END] = logf(ends ? 0.9f : 0.1f);
        row[0] = logf(ends ? 0.1f : 0.9f);
        if (tokens[s] == END) {
            row[0] = 0.0f;
            row[END] = -30.0f;
        }
    }
    return TOOL_DONE;
}

static void ended_beams(void **state)
{
    (void)state;
    static const int32_t few[] = {0, END, AT(0), AT(0) + 1};
    narrow n;
    whisper_tokens t = tokens_of_few(few, COUNT_OF(few));
    whisper_engine engine = {&n, VOCABULARY, 80, 1, 1, NULL, narrow_begin, narrow_step, NULL};
    whisper_result result;
    int32_t prompt = START;
    whisper_decoding how = {.beams = 3};
    /* <|0.00|> and the end, with 0.54, is finished first, and no other text is left for its beam.  <|0.02|> and two
     * words, with 0.4 * 0.9 * 0.9 * 0.9, is the likeliest for each token. */
    assert_int_equal(whisper_decode(&engine, &t, &prompt, 1, &how, &result), TOOL_DONE);
    assert_int_equal(n.steps, 3);
    assert_int_equal(result.count, 3);
    assert_true(result.tokens[0] == AT(0) + 1 && result.tokens[1] == 0 && result.tokens[2] == 0);
    assert_close(result.average, log(0.2916) / 4.0, 1e-4);
    whisper_tokens_release(&t);

    /* No text can continue, so the search is over. */
    static const int32_t ending[] = {END, AT(0)};
    t = tokens_of_few(ending, COUNT_OF(ending));
    assert_int_equal(whisper_decode(&engine, &t, &prompt, 1, &how, &result), TOOL_DONE);
    assert_int_equal(n.steps, 1);
    assert_int_equal(result.count, 1);
    assert_close(result.average, 0.0, 1e-6);
    whisper_tokens_release(&t);

    /* No text can begin. */
    t = tokens_of_few(NULL, 0);
    for (how.beams = 1; how.beams <= 3; how.beams += 2)
        assert_complaint(whisper_decode(&engine, &t, &prompt, 1, &how, &result), "no token that may follow");
    how = (whisper_decoding){.temperature = 1.0, .samples = 2};
    assert_complaint(whisper_decode(&engine, &t, &prompt, 1, &how, &result), "no token that may follow");
    whisper_tokens_release(&t);
}

/* ---- NaN and infinities ---- */

typedef struct broken {
    script s;
    size_t at; /* the step whose last logit is `value`; 0: the beginning */
    float value;
    double probability;
} broken;

static int broken_begin(void *user, const int32_t *tokens, size_t count, size_t sequences, float *to)
{
    broken *b = user;
    int status = script_begin(&b->s, tokens, count, sequences, to);
    if (b->at == 0)
        to[VOCABULARY - 1] = b->value;
    return status;
}

static int broken_step(void *user, const size_t *parents, const int32_t *tokens, float *to)
{
    broken *b = user;
    int status = script_step(&b->s, parents, tokens, to);
    if (b->at == b->s.count)
        to[b->s.sequences * VOCABULARY - 1] = b->value;
    return status;
}

static int broken_align(void *user, const int32_t *tokens, size_t count, int32_t end, const whisper_head *heads,
                        size_t head_count, double *p, float *attention)
{
    broken *b = user;
    int status = script_align(&b->s, tokens, count, end, heads, head_count, p, attention);
    p[count - 2] = b->probability;
    return status;
}

static int broken_encode(void *user, const float *window)
{
    return script_encode(&((broken *)user)->s, window);
}

static void not_finite(void **state)
{
    (void)state;
    static const int32_t says[][16] = {{AT(0), 0, 1, 2, 3, AT(4), -1}};
    static const float values[] = {NAN, INFINITY, -INFINITY};
    whisper_tokens t = load_tokens();
    mel_spectrogram mel = silence(400);
    whisper_transcript out;
    for (size_t v = 0; v < COUNT_OF(values); v++)
        for (size_t at = 0; at < 4; at++)
            for (size_t beams = 1; beams <= 3; beams += 2) {
                broken b = {{.says = says, .windows = 1, .window = -1, .confidence = 20}, at, values[v], 1.0};
                whisper_engine engine = {&b,           VOCABULARY,  80,          2, 3, broken_encode,
                                         broken_begin, broken_step, broken_align};
                whisper_options options = {.beams = beams, .words = true};
                assert_complaint(whisper_transcribe(&engine, &t, &mel, &options, &out), "logits are not all finite");
                whisper_transcript_release(&out);
            }
    for (size_t v = 0; v < 2; v++) {
        broken b = {{.says = says, .windows = 1, .window = -1, .confidence = 20}, 100, 0.0f, (double)values[v]};
        whisper_engine engine = {&b, VOCABULARY, 80, 2, 3, broken_encode, broken_begin, broken_step, broken_align};
        whisper_options options = {.beams = 1, .words = true};
        assert_complaint(whisper_transcribe(&engine, &t, &mel, &options, &out),
                         "probabilities of words are not all finite");
        whisper_transcript_release(&out);
    }
    mel_release(&mel);
    whisper_tokens_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fallback),
        cmocka_unit_test(beams),
        cmocka_unit_test(ended_beams),
        cmocka_unit_test(not_finite),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
