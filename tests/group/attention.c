/* Attention of a group: the parts of ranks, each a thread, make the whole that the tests' reference expects. */
#include <stdlib.h>
#include <string.h>

#include "support/group/parts.h"
#include "support/suite.h"

/* Lengths that 2 * ranks divides, and heads that as many as four ranks share. */
#define WHOLE .dim = {2, 8, 4, 48, 96, 8, 8}
#define SQUARE .dim = {1, 4, 4, 96, 96, 8, 8}
#define SMALL_WHOLE .dim = {1, 4, 4, 16, 16, 4, 4}

static const attention_case cases[] = {
    {"plain", ALL, SMALL_WHOLE},
    {"causal", ALL, SMALL_WHOLE, .causal = true},
    {"grouped heads", BIG, WHOLE},
    {"causal, grouped heads", BIG, WHOLE, .causal = true, AT(BOTTOM_RIGHT, 0)},
    {"causal from the top, more keys than queries", BIG, WHOLE, .causal = true},
    {"a window", BIG, SQUARE, WINDOW(20, 3)},
    {"a causal window at a position", BIG, WHOLE, .causal = true, AT(EXPLICIT, 37), WINDOW(11, 1000)},
    {"a position before all keys", BIG, SQUARE, .causal = true, AT(EXPLICIT, -40)},
    {"nothing attended", BIG, SQUARE, .causal = true, AT(EXPLICIT, -400)},
    {"a boolean mask", BIG, WHOLE, .mask = MASK_BOOL},
    {"a mask of keys", BIG, WHOLE, .mask = MASK_FLOAT, .mask_rank = 4, .mask_extent = {2, 1, 1, 96}},
    {"a mask that is -inf", BIG, WHOLE, .mask = MASK_INF},
    {"a mask of heads, a bias, causal", BIG, SQUARE, .causal = true, .mask = MASK_FLOAT, .mask_rank = 3,
     .mask_extent = {4, 96, 96}, .bias = MASK_FINITE, .bias_rank = 2, .bias_extent = {1, 96}},
    {"ALiBi, causal", BIG, WHOLE, .causal = true, AT(BOTTOM_RIGHT, 0), .alibi = 1},
    {"ALiBi of items, softcap", BIG, SQUARE, .alibi = 2, .softcap = 2},
    {"sinks", BIG, WHOLE, .sinks = true},
    {"sinks, causal", BIG, SQUARE, .sinks = true, .causal = true},
    {"lengths of keys", ALL, .dim = {2, 4, 4, 16, 16, 4, 4}, .list = {.keys = LIST(5, 16)}},
    {"lengths, causal from the bottom right", BIG, WHOLE, .causal = true, AT(BOTTOM_RIGHT, 0),
     .list = {.queries = LIST(48, 11), .keys = LIST(59, 7)}},
    {"lengths of nothing, sinks", BIG, WHOLE, .sinks = true, .list = {.queries = LIST(0, 33), .keys = LIST(96, 0)}},
    {"positions, a causal window, lengths of queries", BIG, WHOLE, .causal = true, AT(EXPLICIT, 9), WINDOW(30, 0),
     .list = {.queries = LIST(20, 48), .positions = LIST(40, -20)}, .type = {.integers = CLATTN_DTYPE_I64}},
    {"packed", BIG, .dim = {3, 4, 4, 48, 96, 8, 8},
     .list = {.query_starts = LIST(0, 17, 29, 48), .key_starts = LIST(0, 50, 57, 96)}},
    {"packed, causal from the bottom right, sinks", BIG, .dim = {3, 8, 4, 48, 96, 8, 8}, .causal = true,
     AT(BOTTOM_RIGHT, 0), .sinks = true,
     .list = {.query_starts = LIST(0, 17, 29, 48), .key_starts = LIST(0, 50, 57, 96)}},
    {"packed, a window, ALiBi of items, lengths", BIG, .dim = {3, 4, 4, 96, 96, 8, 8}, WINDOW(20, 5), .alibi = 2,
     .list = {.query_starts = LIST(0, 1, 70, 96), .key_starts = LIST(0, 40, 41, 96), .keys = LIST(30, 1, 50)}},
    {"dropout", ALL, SMALL_WHOLE, .dropout = 0.4F, .seed = 9, .dropout_offset = 3},
    {"dropout, causal, grouped heads, lengths", BIG, WHOLE, .causal = true, AT(BOTTOM_RIGHT, 0), .dropout = 0.2F,
     .seed = 11, .list = {.queries = LIST(48, 11), .keys = LIST(59, 96)}},
    {"dropout, packed", BIG, .dim = {3, 4, 4, 48, 96, 8, 8}, .dropout = 0.2F, .seed = 12,
     .list = {.query_starts = LIST(0, 17, 29, 48), .key_starts = LIST(0, 50, 57, 96)}},
    {"sinks, a NaN in one, rows that attend nothing", ALL, SMALL_WHOLE, .sinks = true, .causal = true, AT(EXPLICIT, -5),
     .inject = INJECT_SINK_NAN},
    {"additive", BIG, SQUARE, .additive = true},
    {"a scale, no log-sum-exps", BIG, SQUARE, .scaled = true, .scale = -0.3F, .no_lse = true},
    {"huge scores", BIG, SQUARE, .fill = FILL_HUGE},
    {"float16", BIG, WHOLE, .causal = true, .type = FOUR(CLATTN_DTYPE_F16)},
    {"bfloat16 values", BIG, SQUARE, .type = {.value = CLATTN_DTYPE_BF16}},
    {"wider values", BIG, .dim = {2, 4, 4, 48, 96, 8, 16}, .causal = true},
};

/* Runs the parts twice, puts their results into the whole, and releases them; returns the first failure. */
static clattn_status run_group(group_part *parts, test_job *whole, const group_way *way)
{
    const clattn_status status = group_parts_run(parts, device_context(), way, 2);
    for (int i = 0; i < way->ranks; i++) {
        if (status == CLATTN_SUCCESS)
            group_part_give(&parts[i], whole, way);
        group_part_release(&parts[i]);
    }
    return status;
}

static const int counts[] = {1, 2, 4, 3, 8};

/* How many of them this level has. */
static size_t count_of_counts(void)
{
    return by_level(2, 3, COUNT_OF(counts), COUNT_OF(counts));
}

static bool divides(const attention_case *test, const group_way *way)
{
    const size_t pieces = 2 * (size_t)way->ranks;
    return test->dim.queries % pieces == 0 && test->dim.keys % pieces == 0;
}

static void check_forward(const attention_case *test, const group_way *way)
{
    static group_part parts[GROUP_MOST_RANKS];
    test_job whole = {0};
    const clattn_attention_desc desc = attention_prepare(&whole, test, 7);
    (void)attention_inject(&whole, test);
    for (int i = 0; i < way->ranks; i++)
        group_part_make(&parts[i], &whole, &desc, way, i);
    const clattn_status status = run_group(parts, &whole, way);
    assert_int_equal(status, group_can(test, way) ? CLATTN_SUCCESS : CLATTN_ERROR_UNSUPPORTED);
    if (status == CLATTN_SUCCESS)
        attention_judge(&whole, test);
    job_release(&whole);
}

static void check(const void *which, const char *unused)
{
    const attention_case *test = which;
    (void)unused;
    for (size_t n = 0; n < count_of_counts(); n++)
        for (int mode = 0; mode < 3; mode++)
            for (int order = 0; order < 2; order++) {
                const group_way way = {counts[n], (clattn_group_mode)mode, (clattn_group_order)order, 0};
                /* Partial results near 1e4 have log-sum-exps of which 1e-3 is rounded away, as group.h says. */
                const bool rounds = mode == CLATTN_GROUP_MODE_RING && test->fill == FILL_HUGE;
                if (divides(test, &way) && !rounds)
                    check_forward(test, &way);
            }
}

/* ---- gradients ---- */

static const attention_case backward_cases[] = {
    {"plain", ALL, SMALL_WHOLE},
    {"causal, grouped heads", BIG, WHOLE, .causal = true, AT(BOTTOM_RIGHT, 0)},
    {"a window, the log-sum-exp's gradient", BIG, SQUARE, WINDOW(20, 3), .entropy = true},
    {"nothing attended by some", BIG, SQUARE, .causal = true, AT(EXPLICIT, -40)},
    {"a mask, a bias, causal", BIG, SQUARE, .causal = true, .mask = MASK_FLOAT, .bias = MASK_FINITE},
    {"a mask of keys, a bias of heads", BIG, WHOLE, .mask = MASK_FLOAT, .mask_rank = 4, .mask_extent = {2, 1, 1, 96},
     .bias = MASK_FINITE, .bias_rank = 4, .bias_extent = {1, 8, 1, 1}},
    {"a mask of rows, a bias of heads and keys, causal", BIG, SQUARE, .causal = true, .mask = MASK_FINITE,
     .mask_rank = 2, .mask_extent = {96, 1}, .bias = MASK_FINITE, .bias_rank = 3, .bias_extent = {4, 1, 96}},
    {"ALiBi, softcap, sinks", BIG, WHOLE, .alibi = 1, .softcap = 2, .sinks = true},
    {"ALiBi of items, causal", MORE, WHOLE, .causal = true, .alibi = 2},
    {"sinks alone by some, the log-sum-exp's gradient", BIG, SQUARE, .causal = true, AT(EXPLICIT, -40), .sinks = true,
     .entropy = true},
    {"additive, sinks", ALL, SMALL_WHOLE, .additive = true, .sinks = true},
    {"lengths, causal from the bottom right, sinks", BIG, WHOLE, .causal = true, AT(BOTTOM_RIGHT, 0), .sinks = true,
     .list = {.queries = LIST(48, 11), .keys = LIST(59, 7)}},
    {"positions, a window, ALiBi", MORE, WHOLE, AT(EXPLICIT, 9), WINDOW(30, 5), .alibi = 1,
     .list = {.positions = LIST(40, -20)}},
    {"packed, causal, sinks", BIG, .dim = {3, 8, 4, 48, 96, 8, 8}, .causal = true, AT(BOTTOM_RIGHT, 0), .sinks = true,
     .list = {.query_starts = LIST(0, 17, 29, 48), .key_starts = LIST(0, 50, 57, 96)}},
    {"packed, a window, ALiBi of items", MORE, .dim = {3, 4, 4, 96, 96, 8, 8}, WINDOW(20, 5), AT(EXPLICIT, 3),
     .alibi = 2, .list = {.query_starts = LIST(0, 1, 70, 96), .key_starts = LIST(0, 40, 41, 96)}},
    {"dropout, causal, sinks", BIG, WHOLE, .causal = true, AT(BOTTOM_RIGHT, 0), .sinks = true, .dropout = 0.2F,
     .seed = 9},
    {"dropout, a bias", BIG, SQUARE, .bias = MASK_FINITE, .dropout = 0.2F, .seed = 10, .dropout_offset = 1},
    {"additive, one vector", MORE, SQUARE, .additive = true, .shared_vector = true},
    {"large log-sum-exps", ALL, SMALL_WHOLE, .scaled = true, .scale = 20},
    {"large log-sum-exps, sinks, the log-sum-exp's gradient", MORE, SQUARE, .scaled = true, .scale = 20, .sinks = true,
     .entropy = true},
    {"float16, causal", BIG, WHOLE, .causal = true, .type = FOUR(CLATTN_DTYPE_F16)},
};

static void check_backward(const void *which, const char *unused)
{
    static group_part parts[GROUP_MOST_RANKS];
    static struct backward_job whole;
    const attention_case *test = which;
    (void)unused;
    for (size_t n = 0; n < 6 * count_of_counts(); n++) {
        const group_way way = {counts[n / 6], (clattn_group_mode)(n % 3), (clattn_group_order)(n / 3 % 2), 0};
        if (!divides(test, &way) || !group_can(test, &way))
            continue;
        backward_prepare(&whole, test);
        for (int i = 0; i < way.ranks; i++)
            group_part_make_backward(&parts[i], &whole, &way, i);
        assert_int_equal(run_group(parts, &whole.job, &way), CLATTN_SUCCESS);
        whole.by_sums = way.mode == CLATTN_GROUP_MODE_RING;
        backward_judge(&whole);
        backward_release(&whole);
    }
}

/* Of the gradients of query, key and value each subset can be asked for, and of all heads' sinks alone. */
static void check_subset(const void *which, const char *unused)
{
    static group_part parts[GROUP_MOST_RANKS];
    static struct backward_job whole;
    const attention_case test = {"", ALL, SMALL_WHOLE, .causal = true, .sinks = true};
    const unsigned subset = *(const unsigned *)which;
    (void)unused;
    for (int mode = 0; mode < 3; mode++) {
        const group_way way = {2, (clattn_group_mode)mode, CLATTN_GROUP_ORDER_ZIGZAG, 0};
        backward_prepare(&whole, &test);
        test_array *own[3] = {&whole.query, &whole.key, &whole.value};
        for (int n = 0; n < 3; n++)
            if (!(subset >> n & 1))
                own[n]->memory = whole.job.output[n].memory = NULL;
        for (int i = 0; i < way.ranks; i++)
            group_part_make_backward(&parts[i], &whole, &way, i);
        assert_int_equal(run_group(parts, &whole.job, &way), CLATTN_SUCCESS);
        whole.by_sums = way.mode == CLATTN_GROUP_MODE_RING;
        backward_judge(&whole);
        backward_release(&whole);
    }
}

/* ---- the same bits ---- */

enum { REPEATS = 20 };

/* Makes the ranks' shares again and again, and calls each twice. */
static void repeats_bits(const void *which, const char *unused)
{
    static group_part parts[GROUP_MOST_RANKS];
    static struct backward_job gradients;
    const group_way *way = which;
    const attention_case test = {"repeated",
                                 ALL,
                                 .dim = {1, 4, 4, 48, 48, 8, 8},
                                 .causal = true,
                                 .sinks = true,
                                 .bias = MASK_FINITE,
                                 .bias_rank = 3,
                                 .bias_extent = {4, 1, 48}};
    unsigned char *first[GROUP_MOST_RANKS];
    (void)unused;
    for (int backward = 0; backward < 2; backward++) {
        for (size_t n = 0; n < by_level(2, REPEATS, REPEATS, 1000); n++) {
            test_job whole = {0};
            const clattn_attention_desc desc = attention_prepare(&whole, &test, 7);
            backward_prepare(&gradients, &test);
            for (int i = 0; i < way->ranks; i++)
                if (backward)
                    group_part_make_backward(&parts[i], &gradients, way, i);
                else
                    group_part_make(&parts[i], &whole, &desc, way, i);
            assert_int_equal(group_parts_run(parts, device_context(), way, 2), CLATTN_SUCCESS);
            for (int i = 0; i < way->ranks; i++) {
                unsigned char *bytes = group_part_bytes(&parts[i]);
                if (n)
                    assert_memory_equal(bytes, first[i], job_bytes(&parts[i].job));
                if (n)
                    free(bytes);
                else
                    first[i] = bytes;
                group_part_release(&parts[i]);
            }
            job_release(&whole);
            backward_release(&gradients);
        }
        for (int i = 0; i < way->ranks; i++)
            free(first[i]);
    }
}

static const group_way repeated[] = {
    {3, CLATTN_GROUP_MODE_RING, CLATTN_GROUP_ORDER_ZIGZAG, 0},
    {2, CLATTN_GROUP_MODE_GATHER, CLATTN_GROUP_ORDER_ZIGZAG, 0},
    {4, CLATTN_GROUP_MODE_HEADS, CLATTN_GROUP_ORDER_ZIGZAG, 0},
};

static const unsigned subsets[] = {2, 5, 0, 1, 3, 4, 6}; /* bits of query, key and value */

int main(int argc, char **argv)
{
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        if (cases[i].levels & level())
            suite_add_case(check, &cases[i], "", "group attention: %s", cases[i].rule);
    for (size_t i = 0; i < COUNT_OF(backward_cases); i++)
        if (backward_cases[i].levels & level())
            suite_add_case(check_backward, &backward_cases[i], "", "group attention backward: %s",
                           backward_cases[i].rule);
    for (size_t i = 0; i < by_level(2, 3, COUNT_OF(subsets), COUNT_OF(subsets)); i++)
        suite_add_case(check_subset, &subsets[i], "", "group attention backward: gradients %u", subsets[i]);
    for (size_t i = 0; i < COUNT_OF(repeated); i++)
        suite_add_case(repeats_bits, &repeated[i], "", "group attention: %d ranks give the same bits, mode %d",
                       repeated[i].ranks, (int)repeated[i].mode);
    return suite_run("group_attention", argc, argv);
}
