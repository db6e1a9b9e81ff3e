/* Attention by matrix engines (attention/gpu/matrix.cl) is tested with NVIDIA's engine emulated, which runs everywhere:
 * the whole kernel except the instructions, and with the device's own engine if it has one.  Sizes, lengths and strides around 8, 16 and a tile, what is added to the
 * products, what is refused.
 *
 * Holds: the accuracy rule of 16-bit storage (P is rounded), NaN and Inf, what cannot leak. */
#include <string.h>

#include "support/attention/case.h"

#define BF16 CLATTN_DTYPE_BF16
#define F16 CLATTN_DTYPE_F16
#define PAIRS .type = FOUR(BF16)
#define HALVES .type = FOUR(F16)
#define WIDE .type = TYPES(BF16, BF16, BF16, CLATTN_DTYPE_F32)
#define NOT_TAKEN .refused_by = BY_EMULATED_MMA | BY_MATRIX

static const attention_case cases[] = {
    {"bfloat16", ALL, LITTLE, PAIRS},
    {"bfloat16", BIG, MEDIUM, PAIRS},
    {"bfloat16, several tiles", BIG, LARGE, PAIRS},
    {"float16", ALL, LITTLE, HALVES},
    {"float16", BIG, LARGE, HALVES},
    {"bfloat16 in, float32 out", ALL, LITTLE, WIDE},
    {"one key", BIG, .dim = {2, 4, 2, 35, 1, 8, 8}, PAIRS},
    {"one query", ALL, .dim = {2, 2, 1, 1, 9, 8, 8}, PAIRS},
    {"sizes of 1", ALL, .dim = {1, 2, 1, 5, 9, 1, 1}, PAIRS},
    {"odd sizes", ALL, .dim = {1, 2, 1, 5, 9, 7, 5}, PAIRS},
    {"sizes of 16 and 24", BIG, .dim = {1, 2, 1, 35, 67, 16, 24}, WIDE},
    {"head size 64", BIG, .dim = {1, 2, 1, 70, 131, 64, 64}, PAIRS},
    /* rusticl (Mesa 22.3) counts local memory twice and has 32 KiB, so this case is left to a level that does not run
     * there. */
    {"head size 128", FULL, .dim = {1, 2, 1, 70, 67, 128, 128}, HALVES},
    {"head sizes 129 and 24", MORE, .dim = {1, 2, 1, 35, 67, 129, 24}, PAIRS},
    {"head size 256", FULL, .dim = {1, 2, 1, 70, 67, 256, 256}, HALVES, .causal = true},
    {"whole tiles", BIG, .dim = {1, 2, 2, 64, 128, 64, 64}, WIDE},
    {"tiles and one more", BIG, .dim = {1, 2, 1, 65, 129, 64, 64}, PAIRS, .causal = true},
    {"causal", ALL, LITTLE, PAIRS, .causal = true},
    {"causal", BIG, LARGE, PAIRS, .causal = true, .inject = INJECT_MASKED},
    {"causal at the end", BIG, LARGE, HALVES, .causal = true, AT(BOTTOM_RIGHT, 0)},
    {"causal, before the first key", ALL, LITTLE, PAIRS, .causal = true, AT(EXPLICIT, -3)},
    {"window", BIG, LARGE, PAIRS, WINDOW(9, 20)},
    {"sinks", BIG, MEDIUM, PAIRS, .sinks = true},
    {"lengths of each item", BIG, MEDIUM, PAIRS, .list = {.queries = LIST(20, 35), .keys = LIST(67, 33)},
     .inject = INJECT_MASKED},
    {"no keys, no queries", BIG, MEDIUM, PAIRS, .list = {.queries = LIST(0, 35), .keys = LIST(67, 0)}},
    {"beyond the lengths", ALL, LITTLE, PAIRS, .shorter = true, .actual = {1, 3, 7}, .inject = INJECT_MASKED},
    {"logits far apart", BIG, MEDIUM, PAIRS, .scaled = true, .scale = 1, .fill = FILL_WILD},
    {"equal scores", BIG, MEDIUM, WIDE, .fill = FILL_ZERO_QUERY},
    {"NaN key", BIG, MEDIUM, PAIRS, .inject = INJECT_KEY_NAN},
    {"infinite key", ALL, LITTLE, PAIRS, .inject = INJECT_KEY_INF},
    {"NaN value", BIG, MEDIUM, PAIRS, .inject = INJECT_VALUE_NAN},
    {"NaN query", BIG, MEDIUM, PAIRS, .inject = INJECT_QUERY_NAN},
    {"gaps", BIG, MEDIUM, PAIRS, .form = {FORM_PADDED, FORM_PADDED, FORM_PADDED, FORM_PADDED, FORM_PLAIN}},
    {"(batch, length, heads, size)", BIG, MEDIUM, PAIRS,
     .form = {FORM_BSHD, FORM_BSHD, FORM_BSHD, FORM_BSHD, FORM_PLAIN}},
    {"columns apart, rows backwards", ALL, LITTLE, PAIRS,
     .form = {FORM_SPREAD, FORM_FLIPPED, FORM_SPREAD, FORM_MIRRORED, FORM_PLAIN}},
    {"float32", ALL, LITTLE, NOT_TAKEN},
    {"float16 keys of bfloat16 queries", ALL, LITTLE, NOT_TAKEN, .type = TYPES(BF16, F16, BF16, BF16)},
    {"head size 257", ALL, .dim = {1, 2, 1, 5, 9, 257, 8}, PAIRS, NOT_TAKEN},
    {"boolean mask", ALL, LITTLE, PAIRS, NOT_TAKEN, .mask = MASK_BOOL},
    {"softcap", ALL, LITTLE, PAIRS, NOT_TAKEN, .softcap = 3},
    {"dropout", ALL, LITTLE, PAIRS, NOT_TAKEN, .dropout = 0.25f, .seed = 5},
    {"a negative scale", ALL, LITTLE, PAIRS, NOT_TAKEN, .scaled = true, .scale = -0.5f},
    {"entropy", ALL, LITTLE, PAIRS, NOT_TAKEN, .entropy = true},
    {"pages", ALL, .dim = {2, 2, 1, 5, 15, 8, 8}, PAGED(7, 5), PAIRS, NOT_TAKEN},
};

/* A CPU has no engine, and nobody gets the emulation without asking for it. */
static void without_an_engine(void **state)
{
    test_job job = {0};
    clattn_attention_desc desc = attention_prepare(&job, &cases[0], 1);

    (void)state;
    job.plan = operator_plan(&attention_operator, &desc, NULL);
    assert_non_null(strstr(clattn_plan_explain(job.plan), "  matrix: "));
    assert_null(strstr(clattn_plan_explain(job.plan), "emulated"));
    if (device_is_cpu()) {
        operator_refuses_plan(&attention_operator, &desc, "matrix", CLATTN_ERROR_UNSUPPORTED);
    }
    job_release(&job);
}

/* Whether the device has an engine, be it a wrong one. */
static bool has_engine(void)
{
    test_job job = {0};
    clattn_attention_desc desc = attention_prepare(&job, &cases[0], 1);
    const clattn_status status = operator_makes(device_context(), &attention_operator, &desc, "matrix");

    job_release(&job);
    return status != CLATTN_ERROR_UNSUPPORTED;
}

int main(int argc, char **argv)
{
    attention_add_by("emulated-mma", cases, COUNT_OF(cases));
    if (has_engine()) {
        attention_add_by("matrix", cases, COUNT_OF(cases));
    }
    suite_add(without_an_engine, "attention matrix: not without an engine");
    return suite_run("attention_matrix", argc, argv);
}
