/* The search for a recording's tokens, and how a recording is cut into windows, with models that are scripts.  Needs no
 * device. */
#include "support/speech.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tool/models/mel.h"
#include "tool/models/whisper.h"
#include "tool/models/whisper_decode.h"
#include "tool/models/whisper_json.h"
#include "tool/tool.h"

/* ---- a model that is a script ---- */

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
    return (whisper_engine){s, VOCABULARY, 80, 2, 3, script_encode, script_begin, script_step, script_align};
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

    transcribe(&s, &t, 5000, (whisper_options){.beams = 1, .independent = true}, &out);
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

/* The script's attention: head h looks (h + 1) times as much, so that heads are known apart. */
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
    whisper_engine engine = engine_of(s);
    mel_spectrogram mel = silence(frames);
    whisper_options options = {.beams = 1, .map = map};
    engine.align = map_align;
    if (whisper_transcribe(&engine, t, &mel, &options, out) != TOOL_DONE)
        fail_msg("'%s'", complaint);
    mel_release(&mel);
}

/* The row of token i sums what the script gives it in 0.02 s from its place on. */
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
                const float *row = part->layer[h / 3] + (h % 3 * part->query.count + i) * part->key.count;
                assert_close((double)row[c], sum, 1e-6);
            }
}

static void maps(void **state)
{
    (void)state;
    whisper_tokens t = load_tokens();
    whisper_transcript out;
    static const int32_t says[][16] = {
        {AT(0), 0, AT(4), AT(4), 1, 2, AT(24), AT(24), 0, -1},
        {AT(0), 8, 3, AT(10), -1},
    };
    static const char *const rows[2][4] = {{" hello", " wor", "ld", "<|endoftext|>"}, {" the", ".", "<|endoftext|>"}};
    static const size_t counts[] = {4, 3};
    script s = {.says = says, .windows = 2, .confidence = 20};
    for (size_t most = 0; most <= 6000; most += 3000) {
        /* Whole: 6 matrices of 4 x 1,500, and of 3 x 1,300.  Eightfold, 4 x 188 and 3 x 163 are 7,446 cells. */
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

    /* However little is allowed, a column stays. */
    whisper_map map = {.most = 1};
    hear_map(&s, &t, 5000, &map, &out);
    assert_map(&map.parts[0], 1500, 2048);
    whisper_map_release(&map);
    whisper_transcript_release(&out);

    /* Nothing said, nothing drawn. */
    static const int32_t silent[][16] = {{AT(0), -1}};
    s = (script){.says = silent, .windows = 1, .confidence = 20};
    hear_map(&s, &t, 400, &map, &out);
    assert_int_equal(map.count, 0);
    whisper_map_release(&map);
    whisper_transcript_release(&out);
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

/* ---- texts that end while nothing can take their place ---- */

/* The vocabulary's tokens, of which only those given may be generated. */
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

/* After the first timestamp mostly the end, after the second the word, after the word one more and the end.  A text that is
 * asked for more though it has ended would get the word and the end at once. */
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
    /* <|0.00|> and the end, 0.54, is finished first, and no other beginning is left for its beam.  <|0.02|> and two words,
     * 0.4 * 0.9 * 0.9 * 0.9, is the likeliest by token. */
    assert_int_equal(whisper_decode(&engine, &t, &prompt, 1, &how, &result), TOOL_DONE);
    assert_int_equal(n.steps, 3);
    assert_int_equal(result.count, 3);
    assert_true(result.tokens[0] == AT(0) + 1 && result.tokens[1] == 0 && result.tokens[2] == 0);
    assert_close(result.average, log(0.2916) / 4.0, 1e-4);
    whisper_tokens_release(&t);

    /* Nothing can go on: the search is over. */
    static const int32_t ending[] = {END, AT(0)};
    t = tokens_of_few(ending, COUNT_OF(ending));
    assert_int_equal(whisper_decode(&engine, &t, &prompt, 1, &how, &result), TOOL_DONE);
    assert_int_equal(n.steps, 1);
    assert_int_equal(result.count, 1);
    assert_close(result.average, 0.0, 1e-6);
    whisper_tokens_release(&t);

    /* Nothing can begin. */
    t = tokens_of_few(NULL, 0);
    for (how.beams = 1; how.beams <= 3; how.beams += 2)
        assert_complaint(whisper_decode(&engine, &t, &prompt, 1, &how, &result), "no token that may follow");
    how = (whisper_decoding){.temperature = 1.0, .samples = 2};
    assert_complaint(whisper_decode(&engine, &t, &prompt, 1, &how, &result), "no token that may follow");
    whisper_tokens_release(&t);
}

/* ---- numbers that are none ---- */

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
        assert_complaint(whisper_transcribe(&engine, &t, &mel, &options, &out), "probabilities of words are not all finite");
        whisper_transcript_release(&out);
    }
    mel_release(&mel);
    whisper_tokens_release(&t);
}

/* Of a number that JSON has not there is no transcript, rather than one that lacks a part. */
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
        assert_string_equal(line, words ? "{\"text\":\"hello\",\"segments\":[{\"start\":0.0,\"end\":4.0,\"text\":\" hello\","
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
        cmocka_unit_test(fallback),
        cmocka_unit_test(beams),
        cmocka_unit_test(ended_beams),
        cmocka_unit_test(not_finite),
        cmocka_unit_test(json),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
