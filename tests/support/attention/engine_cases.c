/* Cases for kernels that multiply bfloat16 by an engine of the processor: odd and even sizes, lengths and tiles, every feature
 * that changes a score, what is refused. */
#include "support/attention/engine_cases.h"

#define BF16 CLATTN_DTYPE_BF16
#define PAIRS .type = FOUR(BF16)
#define WIDE .type = TYPES(BF16, BF16, BF16, CLATTN_DTYPE_F32)
#define NOT_TAKEN .refused_by = BY_CPU_BF16 | BY_CPU_AMX
#define BLOCKS .dim = {1, 4, 2, 515, 201, 8, 8} /* enough rows for several vectors of them */

const attention_case attention_engine_cases[] = {
    {"bfloat16", ALL, LITTLE, PAIRS},
    {"bfloat16", BIG, LARGE, PAIRS},
    {"bfloat16 in, float32 out", ALL, LITTLE, WIDE},
    {"bfloat16 in, float16 out", BIG, MEDIUM, .type = TYPES(BF16, BF16, BF16, CLATTN_DTYPE_F16)},
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
    {"a ring", BIG, .dim = {1, 4, 2, 35, 67, 8, 8}, .cache = CLATTN_CACHE_KIND_RING, PAIRS, .list = {.keys = LIST(100)},
     .causal = true, AT(BOTTOM_RIGHT, 0)},
    {"keys in two parts", BIG, .dim = {1, 2, 1, 35, 1101, 8, 8}, PAIRS, .sinks = true},
    {"packed queries and keys", BIG, .dim = {2, 4, 2, 35, 67, 8, 8}, PAIRS,
     .list = {.query_starts = LIST(0, 20, 35), .key_starts = LIST(0, 33, 67)}, .longest = 20, .causal = true},
    {"short launches", BIG, LARGE, PAIRS, .max_launch_ms = 1},
    {"gaps", BIG, MEDIUM, PAIRS, .form = {FORM_PADDED, FORM_PADDED, FORM_PADDED, FORM_PADDED, FORM_PLAIN}},
    {"(batch, length, heads, size)", BIG, MEDIUM, PAIRS,
     .form = {FORM_BSHD, FORM_BSHD, FORM_BSHD, FORM_BSHD, FORM_PLAIN}},
    {"rows backwards, queries' columns apart", BIG, MEDIUM, PAIRS,
     .form = {FORM_SPREAD, FORM_FLIPPED, FORM_FLIPPED, FORM_MIRRORED, FORM_PLAIN}},
    {"keys' columns apart", ALL, LITTLE, PAIRS, NOT_TAKEN, .form = {.key = FORM_SPREAD}},
    {"values' columns apart", ALL, LITTLE, PAIRS, NOT_TAKEN, .form = {.value = FORM_SPREAD}},
    {"float32 values", ALL, LITTLE, .refused_by = BY_CPU_BF16, .type = TYPES(BF16, BF16, CLATTN_DTYPE_F32, BF16)},
    {"additive scores", ALL, LITTLE, PAIRS, NOT_TAKEN, .additive = true},
    {"one query", ALL, .dim = {2, 2, 1, 1, 9, 8, 8}, PAIRS, NOT_TAKEN},
};

const size_t attention_engine_case_count = COUNT_OF(attention_engine_cases);

bool emulates_amx_too_slowly(void)
{
    return device_platform_contains("Oclgrind") || device_platform_contains("rusticl");
}
