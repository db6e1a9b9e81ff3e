/* Sampled tokens come up as often as their probabilities say, top_k and top_p leave the right tokens, and a seed gives
 * the token that an independent generator and rule give.
 *
 * Holds: docs/transformer.md, "Generation"; generate.h, `seed`. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/harness.h"
#include "support/nn/generate_case.h"
#include "support/core/one_context.h"
#include "support/attention/philox.h"

/* ---- how often ---- */

static void sampled(void **state)
{
    nn_world w;
    clattn_decoder_desc desc = CLATTN_DECODER_DESC_INIT;
    clattn_generate_desc how = CLATTN_GENERATE_DESC_INIT;
    int32_t tokens[3][ITEMS * MOST];
    size_t lengths[ITEMS], differ = 0, counts[VOCABULARY] = {0};
    (void)state;
    desc.length = 4;
    desc.logits = CLATTN_LOGITS_ALL;
    decoder_case_open(&w, context, &decoder_cases[CASE_PAPER], &desc);
    nn_world_begin(&w, NULL, 1);
    how.method = CLATTN_GENERATE_METHOD_SAMPLE;
    how.max_tokens = MOST;
    how.temperature = 2;
    for (int i = 0; i < 3; i++) {
        how.seed = i == 2 ? 2 : 1;
        generate(&w, &how, tokens[i], lengths, NULL, NULL);
    }
    assert_memory_equal(tokens[0], tokens[1], sizeof tokens[0]);
    for (size_t i = 0; i < ITEMS * MOST; i++)
        differ += tokens[0][i] != tokens[2][i];
    assert_true(differ > 0);
    /* The first item's first tokens occur over many seeds as often as their probabilities say. */
    double next[VOCABULARY], sum = 0;
    const size_t rounds = is_tiny() ? 20 : 300;
    logits_behind(&w, 0, prompts, prompt_lengths[0], next);
    log_softmax(next);
    for (size_t v = 0; v < VOCABULARY; v++)
        sum += exp(next[v] / 2);
    how.max_tokens = 1;
    for (size_t i = 0; i < rounds; i++) {
        int32_t first[ITEMS];
        how.seed = 1000 + i;
        generate(&w, &how, first, lengths, NULL, NULL);
        counts[first[0]]++;
    }
    for (size_t v = 0; v < VOCABULARY; v++) {
        const double p = exp(next[v] / 2) / sum, expected = p * (double)rounds;
        assert_true(fabs((double)counts[v] - expected) < 5 * sqrt(expected * (1 - p)) + 1.5);
    }
    /* With one candidate, or hardly any probability left, the choice is the greedy one. */
    size_t best = 0;
    for (size_t v = 1; v < VOCABULARY; v++)
        best = next[v] > next[best] ? v : best;
    for (int i = 0; i < 2; i++) {
        int32_t first[ITEMS];
        how.top_k = i == 0;
        how.top_p = i == 0 ? 0 : 1e-6f;
        generate(&w, &how, first, lengths, NULL, NULL);
        assert_int_equal(first[0], best);
    }
    nn_world_close(&w);
}

static clattn_status make_all_equal(void *user, const clattn_logits_view *view)
{
    (void)user;
    for (size_t v = 0; v < view->count; v++)
        view->logits[v] = 0;
    return CLATTN_SUCCESS;
}

/* All tokens are equally probable, so the first ones are left and each of these comes up; top_p is a share of what
 * top_k leaves. */
static void sampled_by_both(void **state)
{
    static const struct {
        size_t top_k;
        float top_p;
        size_t left;
    } limits[] = {{10, 0.5f, 5}, {10, 0, 10}, {10, 1, 10}, {0, 0.25f, 10}, {3, 0.01f, 1}, {VOCABULARY + 1, 0.125f, 5}};
    nn_world w = generating_world(context, ITEMS, 0);
    clattn_generate_desc how = CLATTN_GENERATE_DESC_INIT;
    (void)state;
    nn_world_begin(&w, NULL, 1);
    how.method = CLATTN_GENERATE_METHOD_SAMPLE;
    how.max_tokens = MOST;
    how.hook = make_all_equal;
    for (size_t i = 0; i < COUNT_OF(limits); i++) {
        size_t counts[VOCABULARY] = {0};
        how.top_k = limits[i].top_k;
        how.top_p = limits[i].top_p;
        for (how.seed = 0; how.seed < 12; how.seed++) {
            int32_t tokens[ITEMS * MOST];
            size_t lengths[ITEMS];
            generate(&w, &how, tokens, lengths, NULL, NULL);
            for (size_t t = 0; t < ITEMS * MOST; t++)
                counts[tokens[t]]++;
        }
        for (size_t v = 0; v < VOCABULARY; v++)
            assert_true((counts[v] > 0) == (v < limits[i].left));
    }
    nn_world_close(&w);
}

/* ---- which token it is ---- */

/* Logits that depend on the text alone; some are equal, and float32 holds all exactly. */
static float known_logit(const int32_t *text, size_t length, size_t token)
{
    const size_t mixed = (token + 3 * (size_t)text[length - 1] + 5 * length) * 29 % 23;
    return 0.25f * (float)mixed;
}

static clattn_status say_known(void *user, const clattn_logits_view *view)
{
    (void)user;
    for (size_t v = 0; v < view->count; v++)
        view->logits[v] = known_logit(view->tokens, view->length, v);
    return CLATTN_SUCCESS;
}

/* Returns a number in [0, 1) whose binary digits are the first two words. */
static double number_of(uint64_t seed, size_t item, size_t place)
{
    const uint32_t counter[4] = {(uint32_t)place, (uint32_t)item, 0, 0};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t words[4];
    reference_philox(counter, key, words);
    return ldexp(words[0], -32) + ldexp(words[1], -64);
}

/* Sorts tokens by probability, equal ones by index, drops those that top_k and top_p exclude, and returns the token
 * whose share of the total contains `number`. */
static int32_t known_token(const clattn_generate_desc *how, const int32_t *text, size_t length, double number)
{
    size_t order[VOCABULARY], kept = how->top_k ? how->top_k : VOCABULARY;
    double weight[VOCABULARY], all = 0, sum = 0;
    for (size_t v = 0; v < VOCABULARY; v++) {
        size_t at = v;
        weight[v] = exp((double)known_logit(text, length, v) / (how->temperature ? (double)how->temperature : 1));
        for (; at > 0 && weight[order[at - 1]] < weight[v]; at--)
            order[at] = order[at - 1];
        order[at] = v;
    }
    for (size_t i = 0; i < kept; i++)
        all += weight[order[i]];
    if (how->top_p) {
        size_t enough = 0;
        while (sum < (double)how->top_p * all)
            sum += weight[order[enough++]];
        kept = enough;
        all = sum;
    }
    sum = 0;
    for (size_t i = 0; i < kept; i++) {
        sum += weight[order[i]];
        if (sum > number * all)
            return (int32_t)order[i];
    }
    fail_msg("%g of %g", number, sum);
    return -1;
}

/* A seed, an item and a place determine the token for given logits, whether the item is alone or among four of which
 * some have stopped. */
static void token_of_a_seed(void **state)
{
    static const struct {
        uint64_t seed;
        float temperature, top_p;
        size_t top_k;
    } asked[] = {{0x123456789abcdef0, 0.7f, 0, 0}, {1ull << 32, 1.5f, 0.8f, 9}, {0, 0, 0, 0}, {UINT64_MAX, 2, 0.6f, 0}};
    static const int32_t stops[] = {5, 12, 20, 31};
    nn_world w = generating_world(context, MANY, 0);
    clattn_generate_desc how = CLATTN_GENERATE_DESC_INIT;
    size_t stopped = 0;
    (void)state;
    how.method = CLATTN_GENERATE_METHOD_SAMPLE;
    how.max_tokens = MOST;
    how.stop_tokens = stops;
    how.stop_count = COUNT_OF(stops);
    how.hook = say_known;
    for (int alone = 0; alone < 2; alone++) {
        w.items = alone ? 1 : MANY;
        nn_world_begin(&w, NULL, 1);
        for (size_t i = 0; i < (is_tiny() ? 2 : COUNT_OF(asked)); i++) {
            int32_t tokens[MANY * MOST];
            size_t lengths[MANY];
            how.seed = asked[i].seed;
            how.temperature = asked[i].temperature;
            how.top_p = asked[i].top_p;
            how.top_k = asked[i].top_k;
            generate(&w, &how, tokens, lengths, NULL, NULL);
            for (size_t item = 0; item < w.items; item++) {
                int32_t text[LENGTH + 1];
                bool stop = false;
                size_t place = 0;
                const size_t prompt = prompt_lengths[item];
                memcpy(text, prompt_of(item), prompt * sizeof *text);
                for (; place < MOST && !stop; place++) {
                    const int32_t token = known_token(&how, text, prompt + place, number_of(how.seed, item, place));
                    text[prompt + place] = token;
                    for (size_t s = 0; s < how.stop_count; s++)
                        stop = stop || token == stops[s];
                }
                assert_int_equal(lengths[item], place);
                assert_memory_equal(tokens + item * MOST, text + prompt, place * sizeof *text);
                stopped += place < MOST;
            }
        }
    }
    assert_true(stopped > 0);
    w.items = MANY;
    nn_world_close(&w);
}

/* An item alone gets the same tokens from the decoder's logits as among others. */
static void alone_as_among_others(void **state)
{
    nn_world w = generating_world(context, ITEMS, 0);
    clattn_generate_desc how = CLATTN_GENERATE_DESC_INIT;
    int32_t tokens[2][ITEMS * MOST];
    size_t lengths[ITEMS];
    (void)state;
    how.method = CLATTN_GENERATE_METHOD_SAMPLE;
    how.max_tokens = MOST;
    how.temperature = 2;
    how.seed = 3;
    for (int alone = 0; alone < 2; alone++) {
        w.items = alone ? 1 : ITEMS;
        nn_world_begin(&w, NULL, 1);
        generate(&w, &how, tokens[alone], lengths, NULL, NULL);
        assert_int_equal(lengths[0], MOST);
    }
    assert_memory_equal(tokens[0], tokens[1], MOST * sizeof **tokens);
    w.items = ITEMS;
    nn_world_close(&w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sampled, open_context, close_context),
        cmocka_unit_test_setup_teardown(sampled_by_both, open_context, close_context),
        cmocka_unit_test_setup_teardown(token_of_a_seed, open_context, close_context),
        cmocka_unit_test_setup_teardown(alone_as_among_others, open_context, close_context),
    };
    return RUN_TESTS("generate_sampled", tests, argc, argv);
}
