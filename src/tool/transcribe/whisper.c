#include "tool/transcribe/whisper.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/strbuf.h"
#include "tool/tool.h"
#include "tool/transcribe/dtw.h"
#include "tool/transcribe/utf8.h"
#include "tool/transcribe/decode.h"

/* A window is silent above this probability, if its text is unlikely as well; */
#define SILENT 0.6
/* below this average logarithm, or above this ratio of lengths, it is tried again. */
#define UNLIKELY (-1.0)
#define REPETITIVE 2.4

#define STEP 0.2      /* of the temperature, up to 1 */
#define HOTTEST 5     /* steps */
#define HOT 0.5       /* text that was found above this temperature is not in the next window's prompt */
#define POSITION 0.02 /* seconds of a timestamp's step */
#define FRAMES 2      /* spectrogram frames of a timestamp's step */
#define PROMPT_MOST (WHISPER_LENGTH / 2 - 1)

/* A window while it is worked on. */
typedef struct window {
    size_t seek, frames; /* of the spectrogram */
    double offset;       /* seconds */
    whisper_result result;
    double temperature, compression;
    size_t first; /* its first segment in the transcript */
    bool closed;  /* it ended with one timestamp: there is no speech after it */
} window;

typedef struct work {
    const whisper_engine *engine;
    const whisper_tokens *tokens;
    const mel_spectrogram *mel;
    const whisper_options *options;
    whisper_transcript *out;
    int32_t *said; /* tokens of all segments in the transcript */
    size_t said_count, said_capacity,
        said_from; /* `said_from`: the first token that the next window's prompt may have */
    double last_speech;
} work;

static int no_memory(void)
{
    return complain(TOOL_FAILED, "no memory for the text of a recording");
}

/* Bytes of text for one byte that zlib compresses them to. */
static int measure(const work *w, const whisper_result *result, double *ratio)
{
    size_t length;
    char *text = whisper_text(w->tokens, result->tokens, result->count);
    if (text == NULL)
        return no_memory();
    const char *stripped = utf8_strip(text, &length);
    uLongf packed = compressBound((uLong)length);
    Bytef *compressed = malloc(packed);
    int done = compressed != NULL ? compress(compressed, &packed, (const Bytef *)stripped, (uLong)length) : Z_MEM_ERROR;
    free(compressed);
    free(text);
    *ratio = (double)length / (double)packed;
    return done == Z_OK ? TOOL_DONE : no_memory();
}

/* Writes the prompt: the text of earlier windows, then the start tokens. */
static size_t make_prompt(const work *w, int32_t *prompt)
{
    size_t there = w->said_count - w->said_from, kept = there < PROMPT_MOST ? there : PROMPT_MOST, count = 0;
    if (kept > 0)
        prompt[count++] = w->tokens->previous;
    for (size_t i = w->said_count - kept; i < w->said_count; i++)
        prompt[count++] = w->said[i];
    prompt[count++] = w->tokens->start_of_transcript;
    return count;
}

/* Decodes the window, again and hotter if its text is no good.  Of texts that were all bad, the likeliest one that
 * does not repeat itself is taken, or the likeliest. */
static int decode_window(work *w, window *win)
{
    int32_t prompt[PROMPT_MOST + 2];
    size_t count = make_prompt(w, prompt);
    whisper_result tried;
    bool kept = false, kept_repeats = false;
    int status = TOOL_DONE;
    for (int step = 0; step <= (w->options->fallback ? HOTTEST : 0); step++) {
        double temperature = STEP * step, compression = 0.0;
        whisper_decoding how = {w->options->beams, temperature, w->options->samples,
                                w->options->seed + win->seek * 8 + (size_t)step};
        TOOL_TRY(whisper_decode(w->engine, w->tokens, prompt, count, &how, &tried));
        TOOL_TRY(measure(w, &tried, &compression));
        w->out->generated += tried.count;
        bool repeats = compression > REPETITIVE, unlikely = tried.average < UNLIKELY;
        bool good = !repeats && !unlikely;
        if (unlikely && tried.no_speech > SILENT)
            good = true;
        if (!kept || good || (kept_repeats && !repeats) ||
            (kept_repeats == repeats && tried.average > win->result.average)) {
            win->result = tried;
            win->compression = compression;
            kept = true;
            kept_repeats = repeats;
        }
        win->temperature = temperature;
        if (good)
            break;
    }
fail:
    return status;
}

static int add_segment(work *w, const window *win, double start, double end, const int32_t *tokens, size_t count)
{
    whisper_transcript *out = w->out;
    whisper_segment *more = realloc(out->segment, (out->count + 1) * sizeof *more);
    if (more == NULL)
        return no_memory();
    out->segment = more;
    whisper_segment *s = &more[out->count++];
    *s = (whisper_segment){.start = start,
                           .end = end,
                           .text = whisper_text(w->tokens, tokens, count),
                           .tokens = malloc((count + 1) * sizeof *tokens),
                           .token_count = count,
                           .average = win->result.average,
                           .no_speech = win->result.no_speech,
                           .temperature = win->temperature,
                           .compression = win->compression};
    if (s->text == NULL || s->tokens == NULL)
        return no_memory();
    memcpy(s->tokens, tokens, count * sizeof *tokens);
    return TOOL_DONE;
}

/* Cuts the window's tokens between each pair of timestamps, and says where the next window begins. */
static int cut(work *w, window *win, size_t *next)
{
    const int32_t *tokens = win->result.tokens, stamps = w->tokens->first_timestamp;
    size_t count = win->result.count, from = 0;
    int status = TOOL_DONE;
    win->closed = count >= 2 && tokens[count - 2] < stamps && tokens[count - 1] >= stamps;
    *next = win->seek + win->frames;
    for (size_t i = 1; i <= count && status == TOOL_DONE; i++) {
        bool pair = i < count && tokens[i] >= stamps && tokens[i - 1] >= stamps;
        if (!pair && !(i == count && win->closed && from > 0))
            continue;
        status = add_segment(w, win, win->offset + (tokens[from] - stamps) * POSITION,
                             win->offset + (tokens[i - 1] - stamps) * POSITION, tokens + from, i - from);
        from = i;
    }
    if (from > 0) {
        /* A segment that begins after the last pair is left to the next window. */
        if (!win->closed)
            *next = win->seek + (size_t)(tokens[from - 1] - stamps) * FRAMES;
        return status;
    }
    double seconds = (double)win->frames * MEL_SECONDS;
    for (size_t i = count; i-- > 0;)
        if (tokens[i] >= stamps) {
            if (tokens[i] != stamps)
                seconds = (tokens[i] - stamps) * POSITION;
            break;
        }
    return add_segment(w, win, win->offset, win->offset + seconds, tokens, count);
}

/* The tokens of words of all the window's segments, between the start and the end of a prompt without
 * timestamps. */
static size_t alignment_tokens(const work *w, const window *win, int32_t *ids)
{
    size_t count = 0;
    ids[count++] = w->tokens->start_of_transcript;
    ids[count++] = w->tokens->no_timestamps;
    for (size_t s = win->first; s < w->out->count; s++)
        for (size_t i = 0; i < w->out->segment[s].token_count && count < WHISPER_LENGTH - 1; i++)
            if (w->out->segment[s].tokens[i] < w->tokens->end_of_text)
                ids[count++] = w->out->segment[s].tokens[i];
    ids[count++] = w->tokens->end_of_text;
    return count;
}

/* Finds the words of the window and their times within it; none if it has no text or no whole position. */
static int time_words(work *w, const window *win, whisper_words *words)
{
    int32_t ids[WHISPER_LENGTH];
    double probabilities[WHISPER_LENGTH];
    size_t first[WHISPER_LENGTH], count = alignment_tokens(w, win, ids), text = count - 3,
                                  positions = win->frames / FRAMES;
    *words = (whisper_words){0};
    if (text == 0 || positions == 0)
        return TOOL_DONE;
    float *attention = malloc(w->tokens->head_count * count * WHISPER_POSITIONS * sizeof *attention);
    int status = TOOL_DONE;
    if (attention == NULL)
        TOOL_TRY(no_memory());
    TOOL_TRY(w->engine->align(w->engine->user, ids, count, w->tokens->end_of_text, w->tokens->heads,
                              w->tokens->head_count, probabilities, attention));
    for (size_t i = 0; i + 1 < count; i++)
        if (!isfinite(probabilities[i]))
            TOOL_TRY(complain(TOOL_BAD_INPUT, "the model's probabilities of words are not all finite"));
    /* The first word is chosen at row 1, that of <|notimestamps|>; the end is chosen at the last word's row. */
    if (!align_tokens(attention, w->tokens->head_count, count, WHISPER_POSITIONS, positions, 1, text + 1, first))
        TOOL_TRY(no_memory());
    if (!whisper_words_split(w->tokens, ids + 2, text, words))
        TOOL_TRY(no_memory());
    whisper_words_time(words, first, probabilities + 1);
fail:
    free(attention);
    return status;
}

/* Moves the segment's words out of the window's, from *at on. */
static int give_words(whisper_segment *s, const whisper_tokens *tokens, whisper_words *all, size_t *at)
{
    size_t wanted = 0, got = 0;
    for (size_t i = 0; i < s->token_count; i++)
        wanted += s->tokens[i] < tokens->end_of_text;
    s->words.word = calloc(all->count + 1, sizeof *s->words.word);
    if (s->words.word == NULL)
        return no_memory();
    for (; *at < all->count && got < wanted; ++*at) {
        whisper_word *word = &all->word[*at];
        got += word->tokens;
        if (word->text[0] == '\0')
            continue;
        s->words.word[s->words.count++] = *word;
        word->text = NULL;
    }
    return TOOL_DONE;
}

/* The time at which the window's last word ends, or its last segment if there is no word. */
static double end_of_words(const work *w, const window *win)
{
    for (size_t s = w->out->count; s-- > win->first;)
        if (w->out->segment[s].words.count > 0)
            return w->out->segment[s].words.word[w->out->segment[s].words.count - 1].end;
    return w->out->segment[w->out->count - 1].end;
}

static int add_words(work *w, window *win, size_t *next)
{
    whisper_words all;
    double median = 0.0, last = w->last_speech;
    size_t at = 0;
    int status;
    TOOL_TRY(time_words(w, win, &all));
    if (!whisper_words_polish(&all, &median))
        TOOL_TRY(no_memory());
    for (size_t i = win->first; i < w->out->count; i++) {
        whisper_segment *s = &w->out->segment[i];
        TOOL_TRY(give_words(s, w->tokens, &all, &at));
        whisper_words_place(s->words.word, s->words.count, win->offset, median, &s->start, &s->end, &last);
    }
    w->last_speech = end_of_words(w, win);
    if (!win->closed && w->last_speech > win->offset)
        *next = (size_t)rint(w->last_speech / MEL_SECONDS);
fail:
    whisper_words_release(&all);
    return status;
}

static void release_segment(whisper_segment *s)
{
    free(s->text);
    free(s->tokens);
    whisper_words_release(&s->words);
}

/* Drops segments without time or text, and appends the tokens of the others to the prompt of the next windows. */
static int keep_segments(work *w, const window *win)
{
    size_t kept = win->first, more = 0, length;
    for (size_t i = win->first; i < w->out->count; i++)
        more += w->out->segment[i].token_count;
    if (w->said_count + more > w->said_capacity) {
        size_t capacity = 2 * (w->said_count + more);
        int32_t *said = realloc(w->said, capacity * sizeof *said);
        if (said == NULL)
            return no_memory();
        w->said = said;
        w->said_capacity = capacity;
    }
    for (size_t i = win->first; i < w->out->count; i++) {
        whisper_segment *s = &w->out->segment[i];
        utf8_strip(s->text, &length);
        if (s->start == s->end || length == 0) {
            release_segment(s);
            continue;
        }
        memcpy(w->said + w->said_count, s->tokens, s->token_count * sizeof *s->tokens);
        w->said_count += s->token_count;
        w->out->segment[kept++] = *s;
    }
    w->out->count = kept;
    if (w->options->independent || win->temperature > HOT)
        w->said_from = w->said_count;
    return TOOL_DONE;
}

/* Adds the window to the heat map, unless it has no text or no whole position. */
static int map_window(work *w, const window *win)
{
    int32_t ids[WHISPER_LENGTH];
    size_t count = alignment_tokens(w, win, ids), positions = win->frames / FRAMES;
    if (w->options->map == NULL || count == 3 || positions == 0)
        return TOOL_DONE;
    return whisper_map_add(w->options->map, w->engine, w->tokens, ids, count, win->offset, positions);
}

/* Transcribes the window that begins at `win->seek`. */
static int transcribe_window(work *w, window *win, float *features, size_t *next)
{
    mel_window(w->mel, win->seek, win->frames, features);
    *next = win->seek + win->frames;
    int status;
    TOOL_TRY(w->engine->encode(w->engine->user, features));
    w->out->windows++;
    TOOL_TRY(decode_window(w, win));
    if (win->result.no_speech > SILENT && !(win->result.average > UNLIKELY))
        return TOOL_DONE;
    TOOL_TRY(cut(w, win, next));
    if (w->options->words)
        TOOL_TRY(add_words(w, win, next));
    TOOL_TRY(keep_segments(w, win));
    TOOL_TRY(map_window(w, win));
fail:
    return status;
}

int whisper_transcribe(const whisper_engine *engine, const whisper_tokens *tokens, const mel_spectrogram *mel,
                       const whisper_options *options, whisper_transcript *transcript)
{
    work w = {.engine = engine, .tokens = tokens, .mel = mel, .options = options, .out = transcript};
    *transcript = (whisper_transcript){0};
    if (options->words && tokens->head_count == 0)
        return complain(TOOL_BAD_INPUT, "the model's config.json has no alignment_heads, so that words have no times");
    float *features = malloc(MEL_WINDOW * mel->bins * sizeof *features);
    int status = features != NULL ? TOOL_DONE : no_memory();
    /* The last frame is not counted, since it has no whole hop of samples. */
    for (size_t seek = 0, next, end = mel->frames - 1; seek < end && status == TOOL_DONE; seek = next) {
        window win = {.seek = seek,
                      .frames = end - seek < MEL_WINDOW ? end - seek : MEL_WINDOW,
                      .offset = (double)seek * MEL_SECONDS,
                      .first = transcript->count};
        status = transcribe_window(&w, &win, features, &next);
        if (next <= seek)
            next = seek + win.frames;
    }
    free(features);
    free(w.said);
    return status;
}

char *whisper_transcript_text(const whisper_transcript *transcript)
{
    struct strbuf all = {0};
    size_t length;
    for (size_t i = 0; i < transcript->count; i++)
        strbuf_append(&all, transcript->segment[i].text, strlen(transcript->segment[i].text));
    char *text = strbuf_take(&all);
    if (text == NULL)
        return NULL;
    const char *stripped = utf8_strip(text, &length);
    memmove(text, stripped, length);
    text[length] = '\0';
    return text;
}

void whisper_transcript_release(whisper_transcript *transcript)
{
    for (size_t i = 0; i < transcript->count; i++)
        release_segment(&transcript->segment[i]);
    free(transcript->segment);
    *transcript = (whisper_transcript){0};
}
