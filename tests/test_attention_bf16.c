/* Attention of bfloat16 two by two (the solvers cpu-bf16 and cpu-amx): by the processor's instructions where it has them,
 * otherwise by what they do in OpenCL C, which only tests ask for.  Odd and even sizes, lengths and tiles, every feature
 * that changes a score.
 *
 * Holds: the accuracy rule of 16-bit storage (P is rounded), NaN and Inf, what cannot leak, what is refused. */
#include <string.h>

#include "support/attention_case.h"

#define BF16 CLATTN_BF16
#define PAIRS .type = FOUR(BF16)
#define WIDE .type = TYPES(BF16, BF16, BF16, CLATTN_F32)
#define NOT_TAKEN .refused_by = BY_CPU_BF16 | BY_CPU_AMX
#define BLOCKS .dim = {1, 4, 2, 515, 201, 8, 8} /* enough rows for several vectors of them */

static const attention_case cases[] = {
    {"bfloat16", ALL, LITTLE, PAIRS},
    {"bfloat16", BIG, LARGE, PAIRS},
    {"bfloat16 in, float32 out", ALL, LITTLE, WIDE},
    {"bfloat16 in, float16 out", BIG, MEDIUM, .type = TYPES(BF16, BF16, BF16, CLATTN_F16)},
    {"four vectors of queries", BIG, BLOCKS, PAIRS},
    {"one key", BIG, .dim = {2, 4, 2, 35, 1, 8, 8}, PAIRS},
    {"two keys", BIG, .dim = {2, 4, 2, 35, 2, 8, 8}, PAIRS},
    {"sizes of 1", ALL, .dim = {1, 2, 1, 5, 9, 1, 1}, PAIRS},
    {"odd sizes", ALL, .dim = {1, 2, 1, 5, 9, 7, 5}, PAIRS},
    {"odd sizes", BIG, .dim = {2, 2, 1, 35, 67, 7, 13}, PAIRS, .causal = true},
    {"odd sizes, above the lanes", BIG, .dim = {1, 2, 1, 35, 97, 67, 35}, WIDE},
    {"head size 64", FULL, .dim = {1, 2, 1, 515, 131, 64, 64}, PAIRS},
    {"head size 128", FULL, .dim = {1, 2, 1, 70, 131, 128, 128}, PAIRS},
    {"several gatherings of keys", BIG, .dim = {1, 2, 1, 70, 2201, 8, 8}, PAIRS, .causal = true, AT(BOTTOM_RIGHT, 0)},
    {"blocks of several parts of a window", BIG, .dim = {1, 2, 1, 515, 515, 8, 8}, PAIRS, WINDOW(70, 9)},
    {"head size 300", FULL, .dim = {1, 2, 1, 70, 131, 300, 300}, WIDE},
    {"queries of several heads in a block", BIG, .dim = {2, 8, 2, 5, 67, 8, 8}, PAIRS, .causal = true},
    {"logits near 1e4 and -1e4", BIG, MEDIUM, WIDE, .scaled = true, .scale = 1, .fill = FILL_HUGE},
    {"logits far apart", BIG, MEDIUM, PAIRS, .scaled = true, .scale = 1, .fill = FILL_WILD},
    {"a negative scale", BIG, MEDIUM, PAIRS, .scaled = true, .scale = -0.5f},
    {"equal scores", BIG, MEDIUM, WIDE, .fill = FILL_ZERO_QUERY},
    {"NaN key", BIG, MEDIUM, PAIRS, .inject = INJECT_KEY_NAN},
    {"infinite key", ALL, LITTLE, PAIRS, .inject = INJECT_KEY_INF},
    {"NaN value", BIG, MEDIUM, PAIRS, .inject = INJECT_VALUE_NAN},
    {"infinite value", BIG, MEDIUM, PAIRS, .inject = INJECT_VALUE_INF},
    {"NaN query", BIG, BLOCKS, PAIRS, .inject = INJECT_QUERY_NAN},
    {"beyond the lengths", ALL, LITTLE, PAIRS, .shorter = true, .actual = {1, 3, 7}, .inject = INJECT_MASKED},
    {"beyond the lengths", BIG, LARGE, PAIRS, .shorter = true, .actual = {1, 67, 97}, .inject = INJECT_MASKED},
    {"lengths of each item", BIG, MEDIUM, PAIRS, .list = {.queries = LIST(20, 35), .keys = LIST(67, 33)},
     .inject = INJECT_MASKED},
    {"boolean mask, causal", ALL, LITTLE, PAIRS, .mask = MASK_BOOL, .causal = true, .inject = INJECT_MASKED},
    {"boolean mask", BIG, BLOCKS, WIDE, .mask = MASK_BOOL, .inject = INJECT_MASKED},
    {"float mask", BIG, MEDIUM, PAIRS, .mask = MASK_FLOAT, .inject = INJECT_MASKED},
    {"causal at the end", BIG, LARGE, PAIRS, .causal = true, AT(BOTTOM_RIGHT, 0)},
    {"window, softcap, ALiBi, sinks", BIG, MEDIUM, PAIRS, .softcap = 3, .alibi = 1, .sinks = true, WINDOW(9, 20),
     .inject = INJECT_MASKED},
    {"bias, dropout, entropy", BIG, MEDIUM, WIDE, .bias = MASK_FLOAT, .dropout = 0.25f, .seed = 5, .entropy = true},
    {"scores after the softmax", BIG, MEDIUM, PAIRS, .scores = SCORES_OF(PROBABILITIES)},
    {"pages of 16 keys", BIG, .dim = {2, 4, 2, 35, 64, 8, 8}, PAGED(9, 16), PAIRS},
    {"pages of 5 keys", ALL, .dim = {2, 2, 1, 5, 15, 8, 8}, PAGED(7, 5), PAIRS, .causal = true, AT(BOTTOM_RIGHT, 0)},
    {"a ring", BIG, .dim = {1, 4, 2, 35, 67, 8, 8}, .cache = CLATTN_CACHE_RING, PAIRS, .list = {.keys = LIST(100)},
     .causal = true, AT(BOTTOM_RIGHT, 0)},
    {"keys in two parts", BIG, .dim = {1, 2, 1, 35, 1101, 8, 8}, PAIRS, .sinks = true},
    {"packed queries and keys", BIG, .dim = {2, 4, 2, 35, 67, 8, 8}, PAIRS, .list = {.query_starts = LIST(0, 20, 35),
     .key_starts = LIST(0, 33, 67)}, .longest = 20, .causal = true},
    {"short launches", BIG, LARGE, PAIRS, .max_launch_ms = 1},
    {"gaps", BIG, MEDIUM, PAIRS, .form = {FORM_PADDED, FORM_PADDED, FORM_PADDED, FORM_PADDED, FORM_PLAIN}},
    {"(batch, length, heads, size)", BIG, MEDIUM, PAIRS, .form = {FORM_BSHD, FORM_BSHD, FORM_BSHD, FORM_BSHD, FORM_PLAIN}},
    {"rows backwards, queries' columns apart", BIG, MEDIUM, PAIRS,
     .form = {FORM_SPREAD, FORM_FLIPPED, FORM_FLIPPED, FORM_MIRRORED, FORM_PLAIN}},
    {"keys' columns apart", ALL, LITTLE, PAIRS, NOT_TAKEN, .form = {.key = FORM_SPREAD}},
    {"values' columns apart", ALL, LITTLE, PAIRS, NOT_TAKEN, .form = {.value = FORM_SPREAD}},
    {"float32 values", ALL, LITTLE, NOT_TAKEN, .type = TYPES(BF16, BF16, CLATTN_F32, BF16)},
    {"additive scores", ALL, LITTLE, PAIRS, NOT_TAKEN, .additive = true},
    {"one query", ALL, .dim = {2, 2, 1, 1, 9, 8, 8}, PAIRS, NOT_TAKEN},
};

static const attention_case one_query = {"one query", ALL, .dim = {2, 2, 1, 1, 9, 8, 8}, PAIRS};

/* The planner's own choice: pairs exactly where the processor has the instructions and the queries are more than a few. */
static void chosen_where_it_pays(void **state)
{
    (void)state;
    for (int few = 0; few < 2; few++) {
        test_job job = {0};
        clattn_attention_desc desc = attention_prepare(&job, few ? &one_query : &cases[0], 1);
        assert_status(CLATTN_SUCCESS, clattn_attention_plan_create(device_context(), &desc, NULL, &job.plan));
        device_check_pairs(job.plan, !few);
        job_release(&job);
    }
}

/* Where AMX is only imitated, and slowly, nobody gets it. */
static bool emulates_too_slowly(void)
{
    return device_platform_contains("Oclgrind") || device_platform_contains("rusticl");
}

/* Where it is only imitated, AMX is for those who ask for it. */
static void imitated_amx_must_be_asked_for(void **state)
{
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    test_job job = {0};
    clattn_attention_desc desc = attention_prepare(&job, &cases[0], 1);
    const char *here = device_pairs_solver();
    bool slow = emulates_too_slowly();

    (void)state;
    assert_status(CLATTN_SUCCESS, clattn_attention_plan_create(device_context(), &desc, NULL, &job.plan));
    assert_non_null(strstr(clattn_plan_explain(job.plan), slow ? "cpu-amx: refused, this device is too slow"
                                                          : here && !strcmp(here, "cpu-amx") ? "cpu-amx: chosen"
                                                          : "cpu-amx: refused, no AMX for bfloat16"));
    clattn_plan_release(&job.plan);
    options.solver = "cpu-amx";
    assert_status(slow ? CLATTN_ERROR_UNSUPPORTED : CLATTN_SUCCESS,
                  clattn_attention_plan_create(device_context(), &desc, &options, &job.plan));
    job_release(&job);
}

int main(int argc, char **argv)
{
    test_suite suite = {0};

    attention_add_by(&suite, "cpu-bf16", cases, COUNT_OF(cases));
    if (!emulates_too_slowly()) {
        attention_add_by(&suite, "cpu-amx", cases, COUNT_OF(cases));
    }
    suite_add(&suite, chosen_where_it_pays, "attention cpu-bf16: chosen where it pays");
    suite_add(&suite, imitated_amx_must_be_asked_for, "attention cpu-amx: must be asked for where it is imitated");
    return suite_run(&suite, "attention_bf16", true, argc, argv);
}
