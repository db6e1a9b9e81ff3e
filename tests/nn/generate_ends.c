/* Sequences end at a stop token, each item by itself, at the end of the cache and at the end of the table of positions;
 * generation refuses wrong requests with a message that names the fault.
 *
 * Holds: docs/transformer.md, "Generation"; generate.h, `max_tokens` and `stop_tokens`. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/harness.h"
#include "support/nn/generate_case.h"
#include "support/core/one_context.h"

enum { ROOM = LENGTH + 3 }; /* more tokens than the cache can hold */

/* Allows each token once, so that texts do not repeat themselves, and counts the calls for each item. */
static clattn_status nothing_twice(void *user, const clattn_logits_view *view)
{
    size_t *calls = user;
    calls[view->item]++;
    for (size_t i = 0; i < view->length; i++)
        view->logits[view->tokens[i]] = -INFINITY;
    return CLATTN_SUCCESS;
}

/* Appends `most` tokens to the prompt in `text` by the reference, with the log-probability of each. */
static void continue_text(const nn_world *w, size_t item, size_t prompt, int32_t *text, size_t most, double *each)
{
    for (size_t length = prompt; length < prompt + most; length++) {
        double next[VOCABULARY];
        size_t best = 0;
        logits_behind(w, item, text, length, next);
        for (size_t i = 0; i < length; i++)
            next[text[i]] = -INFINITY;
        log_softmax(next);
        for (size_t v = 1; v < VOCABULARY; v++)
            best = next[v] > next[best] ? v : best;
        text[length] = (int32_t)best;
        each[length - prompt] = next[best];
    }
}

/* ---- stop tokens ---- */

static void stop_tokens(void **state)
{
    const size_t items = is_tiny() ? ITEMS : MANY;
    nn_world w = generating_world(context, items, 0);
    clattn_generate_desc how = CLATTN_GENERATE_DESC_INIT;
    int32_t text[MANY][LENGTH + 1], tokens[MANY * MOST];
    double expected[MANY][MOST];
    float scores[MANY], each[MANY * MOST];
    size_t lengths[MANY], calls[MANY] = {0};
    (void)state;
    nn_world_begin(&w, NULL, 1);
    for (size_t i = 0; i < items; i++) {
        memcpy(text[i], prompt_of(i), prompt_lengths[i] * sizeof **text);
        continue_text(&w, i, prompt_lengths[i], text[i], MOST, expected[i]);
    }
    /* These are the first item's second token and the second item's fourth: both end before max_tokens, at different
     * steps. */
    const int32_t stops[] = {text[0][prompt_lengths[0] + 1], text[1][prompt_lengths[1] + 3]};
    how.max_tokens = MOST;
    how.stop_tokens = stops;
    how.stop_count = 2;
    how.hook = nothing_twice;
    how.hook_user = calls;
    generate(&w, &how, tokens, lengths, scores, each);
    for (size_t i = 0; i < items; i++) {
        size_t length = 0;
        double sum = 0;
        for (bool stop = false; length < MOST && !stop; length++) {
            const int32_t token = text[i][prompt_lengths[i] + length];
            stop = token == stops[0] || token == stops[1];
            assert_int_equal(tokens[i * MOST + length], token);
            assert_true(fabs(each[i * MOST + length] - expected[i][length]) < 1e-5);
            sum += expected[i][length];
        }
        assert_int_equal(lengths[i], length);
        assert_int_equal(calls[i], length);
        assert_true(fabs(scores[i] - sum) < 1e-4);
    }
    assert_int_equal(lengths[0], 2);
    assert_int_equal(lengths[1], 4);
    nn_world_close(&w);
}

/* ---- no room left ---- */

/* Generates until the cache is full: the last of `capacity` tokens is read, and one more token is chosen after it. */
static void fill_up(nn_world *w, size_t capacity)
{
    static const int32_t methods[] = {CLATTN_GENERATE_METHOD_GREEDY, CLATTN_GENERATE_METHOD_BEAM};
    /* The last prompt leaves no room for another token. */
    const size_t own_lengths[3][ITEMS] = {{2, 1}, {1, capacity - 1}, {capacity, 3}};
    int32_t own[ITEMS * LENGTH];
    for (size_t i = 0; i < ITEMS * LENGTH; i++)
        own[i] = (int32_t)(i * 5 % VOCABULARY);
    for (size_t p = 0; p < 3; p++) {
        int32_t text[ITEMS][LENGTH + 1];
        double unused[LENGTH + 1];
        for (size_t i = 0, at = 0; i < ITEMS; at += own_lengths[p][i++]) {
            memcpy(text[i], own + at, own_lengths[p][i] * sizeof *own);
            continue_text(w, i, own_lengths[p][i], text[i], capacity + 1 - own_lengths[p][i], unused);
        }
        for (size_t m = 0; m < 2; m++) {
            clattn_generate_desc how = CLATTN_GENERATE_DESC_INIT;
            int32_t tokens[ITEMS * ROOM];
            size_t lengths[ITEMS], calls[ITEMS] = {0};
            clattn_generated generated = results_of(tokens, lengths, NULL, NULL);
            how.method = methods[m];
            how.beams = 1; /* beam search then is greedy */
            how.max_tokens = ROOM;
            how.hook = nothing_twice;
            how.hook_user = calls;
            assert_status(context, clattn_generate(w->state, NULL, &how, own, own_lengths[p], &generated),
                          CLATTN_SUCCESS);
            for (size_t i = 0; i < ITEMS; i++) {
                assert_int_equal(lengths[i], capacity + 1 - own_lengths[p][i]);
                assert_memory_equal(tokens + i * ROOM, text[i] + own_lengths[p][i], lengths[i] * sizeof *tokens);
            }
        }
    }
}

static void end_of_the_cache(void **state)
{
    nn_world w = generating_world(context, ITEMS, 0);
    (void)state;
    nn_world_begin(&w, NULL, 1);
    fill_up(&w, LENGTH);
    nn_world_close(&w);
}

/* The stack has fewer positions than its table has rows and than the cache has room for. */
static void end_of_the_table(void **state)
{
    enum { ROWS = LENGTH, FIRST = 2 };
    decoder_case c = decoder_cases[CASE_PAPER];
    nn_world w = decoder_case_world(context, &c, ITEMS);
    clattn_decoder_desc desc = CLATTN_DECODER_DESC_INIT;
    (void)state;
    c.stack.positions = CLATTN_POSITIONS_TABLE;
    c.stack.position_count = ROWS;
    c.stack.first_position = FIRST;
    w.length = ROWS - FIRST;
    desc.length = 4;
    desc.cache_length = ROWS + 1;
    desc.logits = CLATTN_LOGITS_LAST;
    nn_world_open(&w, &desc);
    nn_world_begin(&w, NULL, 1);
    fill_up(&w, ROWS - FIRST);
    nn_world_close(&w);
}

/* ---- what is refused ---- */

static void refuse(nn_world *w, const clattn_generate_desc *how, const int32_t *tokens, const size_t *token_counts,
                   const char *message)
{
    int32_t made[ITEMS * MOST];
    size_t lengths[ITEMS];
    clattn_generated generated = results_of(made, lengths, NULL, NULL);
    assert_status(context, clattn_generate(w->state, NULL, how, tokens, token_counts, &generated),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, message);
}

#define GREEDY .size = sizeof(clattn_generate_desc), .method = CLATTN_GENERATE_METHOD_GREEDY, .max_tokens = MOST
#define SAMPLE .size = sizeof(clattn_generate_desc), .method = CLATTN_GENERATE_METHOD_SAMPLE, .max_tokens = MOST
#define BEAM .size = sizeof(clattn_generate_desc), .method = CLATTN_GENERATE_METHOD_BEAM, .max_tokens = MOST

static void refused_methods(nn_world *w)
{
    static const struct {
        clattn_generate_desc how;
        const char *message;
    } wrong[] = {
        {{.size = sizeof(clattn_generate_desc), .method = 3, .max_tokens = 1}, "unknown method"},
        {{.size = sizeof(clattn_generate_desc), .method = -1, .max_tokens = 1}, "unknown method"},
        {{BEAM, .beams = 3, .length_rule = 2}, "length_rule"},
        {{.size = sizeof(clattn_generate_desc)}, "max_tokens"},
        {{.size = sizeof(clattn_generate_desc), .max_tokens = (size_t)INT32_MAX + 1}, "max_tokens"},
        {{GREEDY, .stop_count = 1}, "stop_tokens"},
        {{GREEDY, .beams = 2}, "beams and results above 1"},
        {{SAMPLE, .results = 2}, "beams and results above 1"},
        {{BEAM}, "beams is 1 or the plan's"},
        {{BEAM, .beams = 2}, "beams is 1 or the plan's"},
        {{BEAM, .beams = 4}, "beams is 1 or the plan's"},
        {{BEAM, .beams = 3, .results = 4}, "results at most beams"},
        {{GREEDY, .length_penalty = 1}, "length_penalty"},
        {{SAMPLE, .patience = 1}, "patience"},
        {{BEAM, .beams = 3, .length_penalty = INFINITY}, "length_penalty is not finite"},
        {{BEAM, .beams = 3, .length_penalty = NAN}, "length_penalty is not finite"},
        {{BEAM, .beams = 3, .patience = -1}, "patience is not 0 to 1000"},
        {{BEAM, .beams = 3, .patience = 1001}, "patience is not 0 to 1000"},
        {{BEAM, .beams = 3, .patience = NAN}, "patience is not 0 to 1000"},
        {{GREEDY, .temperature = 1}, "temperature"},
        {{BEAM, .beams = 3, .top_p = 0.5f}, "top_p"},
        {{GREEDY, .top_k = 1}, "top_k"},
        {{SAMPLE, .temperature = -1}, "temperature is negative"},
        {{SAMPLE, .temperature = INFINITY}, "temperature is negative or not finite"},
        {{SAMPLE, .temperature = NAN}, "temperature is negative or not finite"},
        {{SAMPLE, .top_p = -0.5f}, "top_p is not 0 to 1"},
        {{SAMPLE, .top_p = 1.5f}, "top_p is not 0 to 1"},
        {{SAMPLE, .top_p = NAN}, "top_p is not 0 to 1"},
    };
    for (size_t i = 0; i < COUNT_OF(wrong); i++)
        refuse(w, &wrong[i].how, prompts, prompt_lengths, wrong[i].message);
}

static void refused_prompts(nn_world *w)
{
    static const clattn_generate_desc how = {GREEDY};
    int32_t long_ones[2 + LENGTH + 1] = {0}, made[ITEMS * MOST];
    size_t lengths[ITEMS];
    clattn_generated generated = results_of(made, lengths, NULL, NULL);
    refuse(w, &how, prompts, (const size_t[]){2, 0}, "prompt 1 has no tokens");
    refuse(w, &how, prompts, (const size_t[]){0, 2}, "prompt 0 has no tokens");
    refuse(w, &how, long_ones, (const size_t[]){2, LENGTH + 1},
           "prompt 1 has 10 tokens, more than the 9 of the cache or the table of positions");
    refuse(w, &how, (const int32_t[]){3, 8, VOCABULARY}, prompt_lengths, "prompt 1 has token 37 in place 0");
    refuse(w, &how, (const int32_t[]){3, -1, 4}, prompt_lengths, "prompt 0 has token -1 in place 1");
    refuse(w, &how, NULL, prompt_lengths, "prompts");
    refuse(w, &how, prompts, NULL, "prompt_lengths");
    generated.tokens = NULL;
    assert_status(context, clattn_generate(w->state, NULL, &how, prompts, prompt_lengths, &generated),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "tokens");
    generated = results_of(made, NULL, NULL, NULL);
    assert_status(context, clattn_generate(w->state, NULL, &how, prompts, prompt_lengths, &generated),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "lengths");
    assert_status(context, clattn_generate(w->state, NULL, NULL, prompts, prompt_lengths, &generated),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(NULL, clattn_generate(NULL, NULL, &how, prompts, prompt_lengths, &generated),
                  CLATTN_ERROR_INVALID_ARGUMENT);
}

static void refusals(void **state)
{
    static const clattn_generate_desc how = {GREEDY};
    nn_world w = generating_world(context, ITEMS, 3);
    clattn_decoder_desc desc = CLATTN_DECODER_DESC_INIT;
    (void)state;
    refuse(&w, &how, prompts, prompt_lengths, "clattn_decoder_begin");
    nn_world_begin(&w, NULL, 1);
    refused_methods(&w);
    refused_prompts(&w);
    nn_world_close(&w);
    desc.length = 4;
    decoder_case_open(&w, context, &decoder_cases[CASE_PAPER], &desc);
    nn_world_begin(&w, NULL, 1);
    refuse(&w, &how, prompts, prompt_lengths, "has no logits");
    nn_world_close(&w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(stop_tokens, open_context, close_context),
        cmocka_unit_test_setup_teardown(end_of_the_cache, open_context, close_context),
        cmocka_unit_test_setup_teardown(end_of_the_table, open_context, close_context),
        cmocka_unit_test_setup_teardown(refusals, open_context, close_context),
    };
    return RUN_TESTS("generate_ends", tests, argc, argv);
}
