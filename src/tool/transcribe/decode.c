#include "tool/transcribe/decode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tool/run/random_next.h"
#include "tool/tool.h"
#include "tool/transcribe/rules.h"

#define MOST_TOKENS (WHISPER_LENGTH / 2)

/* A sequence that grows, or has ended. */
typedef struct sequence {
    int32_t tokens[MOST_TOKENS];
    size_t count;
    double sum; /* the sum of the logarithms of the tokens' probabilities */
    bool ended;
} sequence;

typedef struct work {
    const whisper_engine *engine;
    const whisper_tokens *tokens;
    const whisper_decoding *how;
    size_t count, most;
    float *logits; /* (count, vocabulary) */
    sequence now[WHISPER_SEQUENCES], next[WHISPER_SEQUENCES];
    sequence *finished; /* beams: WHISPER_SEQUENCES * 2 at the most */
    size_t finished_count;
} work;

/* A random token by its probability at a temperature; the same for the same seed, sequence and place. */
static int32_t draw(const float *logs, size_t count, double temperature, uint64_t seed, size_t which, size_t place)
{
    uint64_t state = seed ^ ((uint64_t)which << 32) ^ place;
    random_next(&state);
    double all = 0.0, top = -INFINITY;
    for (size_t i = 0; i < count; i++)
        top = (double)logs[i] > top ? (double)logs[i] : top;
    for (size_t i = 0; i < count; i++)
        all += exp(((double)logs[i] - top) / temperature);
    double left = (double)(random_next(&state) >> 11) * 0x1p-53 * all;
    int32_t last = 0;
    for (size_t i = 0; i < count; i++) {
        if (!(logs[i] > -INFINITY))
            continue;
        last = (int32_t)i;
        left -= exp(((double)logs[i] - top) / temperature);
        if (left < 0.0)
            break;
    }
    return last;
}

static int32_t likeliest(const float *logs, size_t count)
{
    size_t best = 0;
    for (size_t i = 1; i < count; i++)
        best = logs[i] > logs[best] ? i : best;
    return (int32_t)best;
}

static void append(const work *w, sequence *s, int32_t token, double log)
{
    s->sum += log;
    if (token == w->tokens->end_of_text) {
        s->ended = true;
        return;
    }
    s->tokens[s->count++] = token;
    s->ended = s->count >= w->most;
}

/* Whether the model has given numbers: `rows` rows of logits. */
static int check_logits(const work *w, size_t rows)
{
    for (size_t i = 0; i < rows * w->engine->vocabulary; i++)
        if (!isfinite(w->logits[i]))
            return complain(TOOL_BAD_INPUT,
                            "the model's logits are not all finite: its weights are broken, or too large");
    return TOOL_DONE;
}

/* Appends a token to each sequence. */
static int step(work *w, const size_t *parents, const int32_t *tokens)
{
    int status = w->engine->step(w->engine->user, parents, tokens, w->logits);
    return status == TOOL_DONE ? check_logits(w, w->count) : status;
}

/* Decodes each sequence for itself, greedily or at random. */
static int decode_apart(work *w)
{
    size_t vocabulary = w->engine->vocabulary;
    int32_t tokens[WHISPER_SEQUENCES];
    for (size_t place = 0;; place++) {
        bool going = false;
        for (size_t s = 0; s < w->count; s++) {
            sequence *q = &w->now[s];
            float *logs = w->logits + (place > 0 ? s * vocabulary : 0);
            tokens[s] = w->tokens->end_of_text;
            if (q->ended)
                continue;
            /* The first tokens come from one row, which the first sequence makes ready for all. */
            if (place > 0 || s == 0) {
                whisper_rules_apply(w->tokens, q->tokens, q->count, logs);
                whisper_log_softmax(logs, vocabulary);
            }
            tokens[s] = w->how->temperature > 0.0 ? draw(logs, vocabulary, w->how->temperature, w->how->seed, s, place)
                                                  : likeliest(logs, vocabulary);
            append(w, q, tokens[s], (double)logs[tokens[s]]);
            going |= !q->ended;
        }
        if (!going)
            return TOOL_DONE;
        int status = step(w, NULL, tokens);
        if (status != TOOL_DONE)
            return status;
    }
}

/* A possible continuation of a beam. */
typedef struct candidate {
    size_t parent;
    int32_t token;
    double sum;
} candidate;

/* The best 2 * beams continuations of all beams, best first. */
static size_t best_candidates(const work *w, size_t rows, candidate *best)
{
    size_t most = 2 * w->how->beams, count = 0, vocabulary = w->engine->vocabulary;
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < vocabulary; i++) {
            double sum = w->now[r].sum + (double)w->logits[r * vocabulary + i];
            if (!(sum > -INFINITY) || (count == most && sum <= best[count - 1].sum))
                continue;
            size_t at = count < most ? count++ : count - 1;
            for (; at > 0 && best[at - 1].sum < sum; at--)
                best[at] = best[at - 1];
            best[at] = (candidate){r, (int32_t)i, sum};
        }
    return count;
}

static sequence continued(const work *w, const candidate *c)
{
    sequence s = w->now[c->parent];
    s.sum = c->sum;
    append(w, &s, c->token, 0.0);
    return s;
}

/* Does a beam search.  A beginning that has finished leaves its place to the next candidate that goes on, or to
 * none, whose sum is -INFINITY.  The search ends once as many have finished as there are beams, or none goes on. */
static int decode_beams(work *w)
{
    size_t beams = w->how->beams, vocabulary = w->engine->vocabulary;
    candidate best[2 * WHISPER_SEQUENCES];
    size_t parents[WHISPER_SEQUENCES];
    int32_t tokens[WHISPER_SEQUENCES];
    for (size_t place = 0;; place++) {
        size_t rows = place > 0 ? beams : 1, spare = beams;
        for (size_t r = 0; r < rows; r++) {
            whisper_rules_apply(w->tokens, w->now[r].tokens, w->now[r].count, w->logits + r * vocabulary);
            whisper_log_softmax(w->logits + r * vocabulary, vocabulary);
        }
        size_t count = best_candidates(w, rows, best);
        bool going = false;
        for (size_t k = 0; k < beams; k++) {
            static const candidate none = {0, 0, -INFINITY};
            const candidate *c = k < count ? &best[k] : &none;
            w->next[k] = continued(w, c);
            if (k < count && w->next[k].ended && w->finished_count < 2 * WHISPER_SEQUENCES) {
                w->finished[w->finished_count++] = w->next[k];
                for (; spare < count && best[spare].token == w->tokens->end_of_text; spare++)
                    continue;
                if (spare < count) {
                    c = &best[spare++];
                    w->next[k] = continued(w, c);
                } else {
                    w->next[k].sum = -INFINITY;
                }
            }
            going |= w->next[k].sum > -INFINITY;
            parents[k] = c->parent;
            tokens[k] = c->token;
        }
        memcpy(w->now, w->next, sizeof w->now);
        if (w->finished_count >= beams || !going || place + 1 >= w->most)
            return TOOL_DONE;
        int status = step(w, parents, tokens);
        if (status != TOOL_DONE)
            return status;
    }
}

static void keep_best(const sequence *of, size_t count, whisper_result *result)
{
    const sequence *best = NULL;
    double highest = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        double score = of[i].sum / (double)(of[i].count > 0 ? of[i].count : 1);
        if (best == NULL || score > highest) {
            best = &of[i];
            highest = score;
        }
    }
    if (best == NULL)
        return;
    memcpy(result->tokens, best->tokens, best->count * sizeof best->tokens[0]);
    result->count = best->count;
    result->average = best->sum / (double)(best->count + 1);
}

int whisper_decode(const whisper_engine *engine, const whisper_tokens *tokens, const int32_t *prompt,
                   size_t prompt_count, const whisper_decoding *how, whisper_result *result)
{
    bool beam = how->temperature <= 0.0 && how->beams > 1;
    work *w = calloc(1, sizeof *w);
    result->count = 0;
    if (w == NULL)
        return complain(TOOL_FAILED, "no memory to generate a text");
    w->engine = engine;
    w->tokens = tokens;
    w->how = how;
    w->count = beam ? how->beams : how->temperature > 0.0 ? how->samples : 1;
    /* The prompt's last token stands for the start of the text, and is not counted. */
    w->most = WHISPER_LENGTH - (prompt_count - 1) < MOST_TOKENS ? WHISPER_LENGTH - (prompt_count - 1) : MOST_TOKENS;
    w->logits = malloc(w->count * engine->vocabulary * sizeof *w->logits);
    w->finished = calloc(2 * WHISPER_SEQUENCES, sizeof *w->finished);
    int status = TOOL_DONE;
    if (w->logits == NULL || w->finished == NULL)
        TOOL_TRY(complain(TOOL_FAILED, "no memory to generate a text"));
    TOOL_TRY(engine->begin(engine->user, prompt, prompt_count, w->count, w->logits));
    TOOL_TRY(check_logits(w, 1));
    result->no_speech = whisper_probability(w->logits, engine->vocabulary, tokens->no_speech);
    TOOL_TRY(beam ? decode_beams(w) : decode_apart(w));
    keep_best(beam && w->finished_count > 0 ? w->finished : w->now,
              beam && w->finished_count > 0 ? w->finished_count : w->count, result);
    if (!isfinite(result->average))
        TOOL_TRY(complain(TOOL_BAD_INPUT, "the model's config.json leaves no token that may follow"));
fail:
    free(w->finished);
    free(w->logits);
    free(w);
    return status;
}
