/* Greedy generation and beam search agree with searches that decode every prefix anew; hooks forbid tokens and stop
 * generation.
 *
 * Holds: docs/transformer.md, "Generation". */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/harness.h"
#include "support/nn/generate_case.h"
#include "support/core/one_context.h"

enum { STOP = 5 };

static clattn_status forbid_seven(void *user, const clattn_logits_view *view)
{
    ++*(size_t *)user;
    assert_int_equal(view->count, VOCABULARY);
    assert_int_equal(view->prompt_length, prompt_lengths[view->item]);
    assert_int_equal(view->tokens[0], *prompt_of(view->item));
    view->logits[7] = -INFINITY;
    return view->length > 3 + view->prompt_length ? CLATTN_ERROR_UNSUPPORTED : CLATTN_SUCCESS;
}

static void greedy(void **state)
{
    nn_world w = generating_world(context, ITEMS, 0);
    clattn_generate_desc how = CLATTN_GENERATE_DESC_INIT;
    const int32_t stop = STOP;
    int32_t tokens[ITEMS * MOST];
    size_t lengths[ITEMS], calls = 0;
    float scores[ITEMS], each[ITEMS * MOST];
    clattn_generated generated = results_of(tokens, lengths, scores, each);
    (void)state;
    nn_world_begin(&w, NULL, 1);
    how.max_tokens = MOST;
    how.stop_tokens = &stop;
    how.stop_count = 1;
    assert_status(context, clattn_generate(w.state, NULL, &how, prompts, prompt_lengths, &generated), CLATTN_SUCCESS);
    for (size_t item = 0; item < ITEMS; item++) {
        int32_t text[LENGTH + 1];
        size_t length = prompt_lengths[item];
        double sum = 0;
        memcpy(text, prompt_of(item), length * sizeof *text);
        for (size_t i = 0; i < MOST; i++) {
            double next[VOCABULARY];
            size_t best = 0;
            logits_behind(&w, item, text, length, next);
            log_softmax(next);
            for (size_t v = 1; v < VOCABULARY; v++)
                best = next[v] > next[best] ? v : best;
            assert_int_equal(tokens[item * MOST + i], best);
            assert_true(fabs(each[item * MOST + i] - next[best]) < 1e-5);
            text[length++] = (int32_t)best;
            sum += next[best];
            if (best == STOP || i + 1 == MOST) {
                assert_int_equal(lengths[item], i + 1);
                break;
            }
        }
        assert_true(fabs(scores[item] - sum) < 1e-4);
    }
    how.hook = forbid_seven;
    how.hook_user = &calls;
    assert_status(context, clattn_generate(w.state, NULL, &how, prompts, prompt_lengths, &generated),
                  CLATTN_ERROR_UNSUPPORTED);
    assert_message_has(context, "the hook gave up");
    assert_true(calls > ITEMS);
    /* After the hook has failed, the state must be begun anew. */
    clattn_decoder_args args = CLATTN_DECODER_ARGS_INIT;
    cl_mem ids = new_buffer(clattn_context_opencl_context(context), CL_MEM_READ_ONLY, sizeof prompts, prompts);
    args.input = clattn_binding_buffer(ids, 0);
    args.logits = clattn_binding_buffer(w.logits, 0);
    args.length = 1;
    assert_status(context, clattn_decoder_enqueue(w.state, NULL, &args, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "clattn_decoder_begin");
    how.hook = NULL;
    assert_status(context, clattn_generate(w.state, NULL, &how, prompts, prompt_lengths, &generated),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    nn_world_begin(&w, NULL, 1);
    assert_status(context, clattn_generate(w.state, NULL, &how, prompts, prompt_lengths, &generated), CLATTN_SUCCESS);
    assert_status(context, clattn_decoder_enqueue(w.state, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    clReleaseMemObject(ids);
    nn_world_close(&w);
}

/* A token that has logits but no embedding could be chosen and not be read, so such models are refused. */
static void only_embedded_tokens(void **state)
{
    nn_world w = decoder_case_world(context, &decoder_cases[CASE_LLAMA], ITEMS);
    clattn_decoder_desc desc = CLATTN_DECODER_DESC_INIT;
    clattn_generate_desc how = CLATTN_GENERATE_DESC_INIT;
    int32_t tokens[ITEMS * MOST];
    size_t lengths[ITEMS];
    clattn_generated generated = results_of(tokens, lengths, NULL, NULL);
    (void)state;
    desc.length = 4;
    desc.logits = CLATTN_LOGITS_LAST;
    how.max_tokens = MOST;
    w.output_size = VOCABULARY + 1;
    nn_world_open(&w, &desc);
    nn_world_begin(&w, NULL, 1);
    assert_status(context, clattn_generate(w.state, NULL, &how, prompts, prompt_lengths, &generated),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "more columns than the embedding has rows");
    nn_world_close(&w);
}

/* ---- beam search, in which every prefix is decoded from its first token ---- */

struct beginning {
    int32_t text[LENGTH + 2];
    size_t length;
    double sum;
};

static int by_sum(const void *left, const void *right)
{
    const double a = ((const struct beginning *)left)->sum, b = ((const struct beginning *)right)->sum;
    return a < b ? 1 : a > b ? -1 : 0;
}

/* How the results of beams are compared, and how many finished ones end a search. */
struct beam_rule {
    int32_t length_rule;
    float penalty, patience;
};

static double comparable(const struct beam_rule *rule, double sum, size_t length)
{
    const double n = (double)length;
    return sum / pow(rule->length_rule == CLATTN_LENGTH_RULE_POWER ? n : (5 + n) / 6, rule->penalty);
}

/* Makes stop tokens come early, so that results have different lengths. */
#define LIKELIER 1.5f

static clattn_status stop_is_likelier(void *user, const clattn_logits_view *view)
{
    (void)user;
    view->logits[STOP] += LIKELIER;
    return CLATTN_SUCCESS;
}

enum { BEAMS = 3, FINISHED = 4 * BEAMS }; /* patience is at most 2, and a step finishes at most 2 * BEAMS */

static size_t search(nn_world *w, size_t item, const struct beam_rule *rule, struct beginning *finished)
{
    static struct beginning live[BEAMS], all[BEAMS * VOCABULARY];
    const size_t prompt = prompt_lengths[item];
    const size_t wanted = (size_t)lrint(BEAMS * (rule->patience ? (double)rule->patience : 1));
    size_t lives = 1, ended = 0;
    live[0] = (struct beginning){.length = prompt};
    memcpy(live[0].text, prompt_of(item), prompt * sizeof *prompts);
    while (lives && ended < wanted) {
        size_t candidates = 0, filled = 0;
        struct beginning next[BEAMS];
        for (size_t k = 0; k < lives; k++) {
            double each[VOCABULARY];
            logits_behind(w, item, live[k].text, live[k].length, each);
            each[STOP] += LIKELIER;
            log_softmax(each);
            for (size_t v = 0; v < VOCABULARY; v++) {
                all[candidates] = live[k];
                all[candidates].text[all[candidates].length++] = (int32_t)v;
                all[candidates++].sum += each[v];
            }
        }
        qsort(all, candidates, sizeof *all, by_sum);
        for (size_t i = 0; i < 2 * BEAMS && filled < BEAMS; i++) {
            const bool stop = all[i].text[all[i].length - 1] == STOP, full = all[i].length - prompt == MOST;
            if (!stop && !full)
                next[filled++] = all[i];
            else if (!stop || i < BEAMS)
                finished[ended++] = all[i];
        }
        memcpy(live, next, sizeof live);
        lives = filled;
    }
    for (size_t i = 0; i < ended; i++)
        finished[i].sum = comparable(rule, finished[i].sum, finished[i].length - prompt);
    qsort(finished, ended, sizeof *finished, by_sum);
    return ended < wanted ? ended : wanted;
}

/* Compares beam searches of items whose prompts and memories have different lengths. */
static void search_beams(const decoder_case *c, size_t items)
{
    static const struct beam_rule rules[] = {
        {CLATTN_LENGTH_RULE_GNMT, 0, 0},           {CLATTN_LENGTH_RULE_GNMT, 0.6f, 0},
        {CLATTN_LENGTH_RULE_POWER, 1.5f, 2},       {CLATTN_LENGTH_RULE_POWER, 0.6f, 0},
        {CLATTN_LENGTH_RULE_GNMT, 0.6f, 1 / 3.0f},
    };
    nn_world w = decoder_case_world(context, c, items);
    clattn_decoder_desc desc = CLATTN_DECODER_DESC_INIT;
    clattn_generate_desc how = CLATTN_GENERATE_DESC_INIT;
    const int32_t stop = STOP;
    size_t shorter = 0;
    desc.length = 2;
    desc.beams = BEAMS;
    desc.logits = CLATTN_LOGITS_LAST;
    w.memory_lengths = many_memory_lengths;
    nn_world_open(&w, &desc);
    nn_world_begin(&w, NULL, 1);
    how.method = CLATTN_GENERATE_METHOD_BEAM;
    how.max_tokens = MOST;
    how.stop_tokens = &stop;
    how.stop_count = 1;
    how.beams = how.results = BEAMS;
    how.hook = stop_is_likelier;
    for (size_t i = 0; i < (is_tiny() ? 3 : COUNT_OF(rules)); i++) {
        int32_t tokens[MANY * BEAMS * MOST];
        size_t lengths[MANY * BEAMS];
        float scores[MANY * BEAMS], each[MANY * BEAMS * MOST];
        how.length_rule = rules[i].length_rule;
        how.length_penalty = rules[i].penalty;
        how.patience = rules[i].patience;
        generate(&w, &how, tokens, lengths, scores, each);
        for (size_t item = 0; item < items; item++) {
            struct beginning finished[FINISHED];
            const size_t count = search(&w, item, &rules[i], finished), prompt = prompt_lengths[item];
            for (size_t k = 0; k < BEAMS; k++) {
                const size_t place = item * BEAMS + k;
                assert_int_equal(lengths[place], k < count ? finished[k].length - prompt : 0);
                if (k >= count) {
                    assert_true(scores[place] == -INFINITY);
                    continue;
                }
                assert_memory_equal(tokens + place * MOST, finished[k].text + prompt, lengths[place] * sizeof *tokens);
                assert_true(fabs(scores[place] - finished[k].sum) < 1e-4);
                shorter += lengths[place] < MOST;
            }
        }
    }
    assert_true(shorter > 0);
    nn_world_close(&w);
}

static void beam_search(void **state)
{
    (void)state;
    search_beams(&decoder_cases[CASE_PAPER], ITEMS);
    if (is_tiny())
        return;
    search_beams(&decoder_cases[CASE_PAPER], MANY);
    search_beams(&decoder_cases[CASE_LLAMA], MANY);
}

/* ---- sequences that a hook stops ---- */

enum { STOPPED_BEAMS = 3 };

/* Results of any method; beam search has STOPPED_BEAMS results for each item, other methods have one. */
struct results {
    size_t lengths[ITEMS * STOPPED_BEAMS];
    int32_t tokens[ITEMS * STOPPED_BEAMS][MOST];
    float scores[ITEMS * STOPPED_BEAMS];
};

/* Forbids every token after `length` tokens, and after a text whose first token is `token`. */
struct ending {
    size_t length;
    int32_t token;
};

static clattn_status end_early(void *user, const clattn_logits_view *view)
{
    const struct ending *ending = user;
    const size_t length = view->length - view->prompt_length;
    if (length >= ending->length || (length && view->tokens[view->prompt_length] == ending->token))
        for (size_t v = 0; v < view->count; v++)
            view->logits[v] = -INFINITY;
    return CLATTN_SUCCESS;
}

static void generate_to(nn_world *w, int32_t method, size_t most, struct ending *ending, struct results *results)
{
    int32_t tokens[ITEMS * STOPPED_BEAMS * MOST];
    clattn_generate_desc how = CLATTN_GENERATE_DESC_INIT;
    how.method = method;
    how.beams = how.results = method == CLATTN_GENERATE_METHOD_BEAM ? STOPPED_BEAMS : 1;
    how.max_tokens = most;
    how.hook = ending ? end_early : NULL;
    how.hook_user = ending;
    generate(w, &how, tokens, results->lengths, results->scores, NULL);
    for (size_t r = 0; r < ITEMS * how.results; r++)
        memcpy(results->tokens[r], tokens + r * most, results->lengths[r] * sizeof *tokens);
}

/* A sequence for which a hook leaves no token is kept like one that has no room left. */
static void stopped_by_hook(void **state)
{
    static const int32_t methods[] = {CLATTN_GENERATE_METHOD_GREEDY, CLATTN_GENERATE_METHOD_SAMPLE,
                                      CLATTN_GENERATE_METHOD_BEAM};
    nn_world w = generating_world(context, ITEMS, STOPPED_BEAMS);
    (void)state;
    nn_world_begin(&w, NULL, 1);
    for (size_t m = 0; m < COUNT_OF(methods); m++) {
        const size_t each = methods[m] == CLATTN_GENERATE_METHOD_BEAM ? STOPPED_BEAMS : 1;
        struct results short_of_room, stopped;
        struct ending ending = {2, -1};
        generate_to(&w, methods[m], 2, NULL, &short_of_room);
        generate_to(&w, methods[m], MOST, &ending, &stopped);
        for (size_t r = 0; r < ITEMS * each; r++) {
            assert_int_equal(stopped.lengths[r], 2);
            assert_memory_equal(stopped.tokens[r], short_of_room.tokens[r], 2 * sizeof(int32_t));
            assert_true(stopped.scores[r] == short_of_room.scores[r]);
        }
        /* If no token is left from the start, each item has one result without tokens. */
        ending.length = 0;
        generate_to(&w, methods[m], MOST, &ending, &stopped);
        for (size_t r = 0; r < ITEMS * each; r++) {
            assert_int_equal(stopped.lengths[r], 0);
            assert_true(r % each ? stopped.scores[r] == -INFINITY : stopped.scores[r] == 0);
        }
        /* One beam stops and the others continue. */
        ending = (struct ending){MOST, short_of_room.tokens[0][0]};
        generate_to(&w, methods[m], MOST, &ending, &stopped);
        assert_int_equal(stopped.lengths[0], 1);
        assert_int_equal(stopped.tokens[0][0], ending.token);
        for (size_t r = 1; r < each; r++) {
            assert_int_equal(stopped.lengths[r], MOST);
            assert_true(stopped.tokens[r][0] != ending.token && stopped.scores[r] < stopped.scores[0]);
        }
    }
    nn_world_close(&w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(greedy, open_context, close_context),
        cmocka_unit_test_setup_teardown(only_embedded_tokens, open_context, close_context),
        cmocka_unit_test_setup_teardown(beam_search, open_context, close_context),
        cmocka_unit_test_setup_teardown(stopped_by_hook, open_context, close_context),
    };
    return RUN_TESTS("generate", tests, argc, argv);
}
