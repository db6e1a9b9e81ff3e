/* Beam search: the most probable beginnings of each item grow side by side. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "nn/generate/generate.h"

/* A beam with one more token. */
struct candidate {
    double score, log_probability;
    size_t beam;
    int32_t token;
};

/* One item's search. */
struct search {
    struct candidate *best; /* the 2 * beams best, best first */
    size_t best_count;
    struct sequence *finished; /* at most `wanted` */
    double *final;             /* their scores by the length rule */
    size_t finished_count;
    bool done;
};

struct beams {
    struct generation *g;
    size_t count, wanted; /* beams; finished sequences that end a search */
    struct search *searches;
    struct candidate *best; /* these three are the searches' memory */
    struct sequence *finished;
    double *final;
    size_t *parents;
    bool *live; /* whether there is a sequence in that beam */
};

static double final_score(const struct generation *g, double score, size_t length)
{
    const double n = (double)length, a = g->desc.length_penalty;
    if (a == 0 || !length)
        return score;
    return score / pow(g->desc.length_rule == CLATTN_LENGTH_RULE_GNMT ? (5 + n) / 6 : n, a);
}

/* ---- candidates ---- */

static void offer(struct search *search, size_t capacity, const struct candidate *candidate)
{
    struct candidate *best = search->best;
    size_t at = search->best_count;
    if (at == capacity && !(candidate->score > best[capacity - 1].score))
        return;
    at = size_min(at, capacity - 1);
    search->best_count = at + 1;
    for (; at > 0 && candidate->score > best[at - 1].score; at--)
        best[at] = best[at - 1];
    best[at] = *candidate;
}

/* Offers every continuation of a beam; false if there is none.  At the beginning all beams have the same logits. */
static bool offer_all(struct beams *b, size_t item, size_t beam, const struct sequence *sequence, const float *logits)
{
    const struct generation *g = b->g;
    const double sum = logits_log_sum(logits, g->vocabulary, 1);
    for (size_t t = 0; t < g->vocabulary && sum > -INFINITY; t++) {
        const double log_probability = logits[t] - sum;
        const struct candidate candidate = {sequence->score + log_probability, log_probability, beam, (int32_t)t};
        if (logits[t] > -INFINITY)
            offer(&b->searches[item], 2 * b->count, &candidate);
    }
    return sum > -INFINITY;
}

/* ---- finished sequences ---- */

/* Keeps a finished sequence if it is among the best that are wanted. */
static void finish(struct beams *b, size_t item, const struct sequence *sequence)
{
    struct search *search = &b->searches[item];
    const double score = final_score(b->g, sequence->score, generated(sequence));
    size_t at = search->finished_count;
    if (at == b->wanted) {
        at = 0;
        for (size_t i = 1; i < b->wanted; i++)
            if (search->final[i] < search->final[at])
                at = i;
        if (score <= search->final[at])
            return;
    } else {
        search->finished_count++;
    }
    sequence_copy(&search->finished[at], sequence);
    search->final[at] = score;
}

/* ---- steps ---- */

/* Takes an item's candidates, best first: those that have finished become results, the others fill the beams.  A
 * finished candidate counts only if it is among the first `count` candidates, since otherwise `count` live ones are
 * better. */
static void advance(struct beams *b, size_t item)
{
    struct generation *g = b->g;
    struct search *search = &b->searches[item];
    struct sequence *from = g->sequences + item * b->count, *to = from + g->items * b->count;
    size_t filled = 0;
    for (size_t i = 0; i < search->best_count && filled < b->count; i++) {
        const struct candidate *c = &search->best[i];
        struct sequence *grown = &to[filled];
        sequence_copy(grown, &from[c->beam]);
        sequence_append(grown, c->token, c->log_probability);
        if (generation_stopped(g, c->token)) {
            if (i < b->count)
                finish(b, item, grown);
            continue;
        }
        if (!generation_can_grow(g, grown)) {
            finish(b, item, grown);
            continue;
        }
        b->parents[item * b->count + filled] = c->beam;
        g->next[item * b->count + filled++] = c->token;
    }
    search->done = search->finished_count >= b->wanted || !filled;
    for (size_t k = 0; k < b->count; k++) {
        const bool live = k < filled && !search->done;
        if (!live)
            b->parents[item * b->count + k] = search->done ? k : 0;
        b->live[item * b->count + k] = live;
        g->fresh[item * b->count + k] = live;
    }
    for (size_t k = 0; k < filled; k++)
        sequence_copy(&from[k], &to[k]);
}

/* One step of all items, in which the state's sequences are reordered.  At the beginning an item has one sequence. */
static clattn_status step_all(struct beams *b, bool beginning, bool *live)
{
    clattn_status status = CLATTN_SUCCESS;
    struct generation *g = b->g;
    const size_t count = b->count;
    *live = false;
    for (size_t i = 0; i < g->items; i++) {
        struct search *search = &b->searches[i];
        search->best_count = 0;
        for (size_t k = 0; k < (beginning ? 1 : count) && !search->done; k++) {
            float *logits = logits_of(g, beginning ? i : i * count + k);
            struct sequence *sequence = &g->sequences[i * count + k];
            if (!beginning && !b->live[i * count + k])
                continue;
            TRY(generation_hook(g, sequence, i, k, logits));
            if (!offer_all(b, i, k, sequence, logits))
                finish(b, i, sequence);
        }
        if (!search->done)
            advance(b, i);
        else
            for (size_t k = 0; k < count; k++)
                b->parents[i * count + k] = k;
        *live = *live || !search->done;
    }
    if (!*live)
        return CLATTN_SUCCESS;
    for (size_t s = 0; s < g->items * count; s++)
        b->parents[s] = beginning ? s / count : s / count * count + b->parents[s];
    TRY(clattn_decoder_reorder(g->state, g->queue, count, b->parents, 0, NULL, NULL));
    status = generation_step(g);
fail:
    return status;
}

/* ---- the search ---- */

static clattn_status give_memory(struct beams *b)
{
    const struct generation *g = b->g;
    const size_t beams = g->items * b->count, finished = g->items * b->wanted;
    b->searches = calloc(g->items, sizeof *b->searches);
    b->best = calloc(beams, 2 * sizeof *b->best);
    b->finished = sequences_create(g, finished);
    b->final = calloc(finished, sizeof *b->final);
    b->parents = calloc(beams, sizeof *b->parents);
    b->live = calloc(beams, sizeof *b->live);
    if (!b->searches || !b->best || !b->finished || !b->final || !b->parents || !b->live)
        return report_error(&g->state->plan->base.context->device.report, CLATTN_ERROR_OUT_OF_MEMORY,
                            "no memory for a search");
    for (size_t i = 0; i < g->items; i++)
        b->searches[i] = (struct search){.best = b->best + 2 * i * b->count,
                                         .finished = b->finished + i * b->wanted,
                                         .final = b->final + i * b->wanted};
    return CLATTN_SUCCESS;
}

static void give_back(struct beams *b)
{
    free(b->searches);
    free(b->best);
    free(b->finished);
    free(b->final);
    free(b->parents);
    free(b->live);
}

/* Writes the results best first; of equal scores, that which finished first. */
static void give_results(struct beams *b, size_t item)
{
    struct search *search = &b->searches[item];
    for (size_t rank = 0; rank < size_max(b->g->desc.results, 1); rank++) {
        size_t best = SIZE_MAX;
        for (size_t k = 0; k < search->finished_count; k++)
            if (!isnan(search->final[k]) && (best == SIZE_MAX || search->final[k] > search->final[best]))
                best = k;
        if (best == SIZE_MAX) {
            generation_result(b->g, item, rank, NULL, -INFINITY);
            continue;
        }
        generation_result(b->g, item, rank, &search->finished[best], search->final[best]);
        search->final[best] = NAN;
    }
}

/* Moves the prompts' sequences, one an item, to the places of the first beams. */
static void spread(struct generation *g, size_t count)
{
    for (size_t i = g->items; i-- > 1;) {
        const struct sequence other = g->sequences[i * count];
        g->sequences[i * count] = g->sequences[i];
        g->sequences[i] = other;
    }
}

clattn_status generation_beams(struct generation *g)
{
    clattn_status status;
    const double patience = g->desc.patience ? g->desc.patience : 1;
    struct beams b = {.g = g, .count = g->desc.beams};
    bool live = true;
    b.wanted = size_max((size_t)llrint((double)b.count * patience), 1);
    TRY(give_memory(&b));
    spread(g, b.count);
    TRY(step_all(&b, true, &live));
    while (live)
        TRY(step_all(&b, false, &live));
    for (size_t i = 0; i < g->items; i++)
        give_results(&b, i);
fail:
    give_back(&b);
    return status;
}
