/* Attention of few queries, as in decoding: the cpu solver has its own kernel for up to eight rows, a row being a query
 * of one of the heads that share a key head.
 *
 * Holds: the same of include/clattn/attention.h as the other suites of attention, for every count of those rows, with
 * and without shared key heads, alone and with what else changes scores or storage; caches are
 * test_attention_decode_caches.c. */
#include "support/attention/case.h"

static const attention_case rows[] = {
    {"1 row", ALL, .dim = {2, 2, 2, 1, 37, 8, 8}},
    {"1 row", BIG, .dim = {2, 3, 3, 1, 601, 64, 64}},
    {"2 rows of a head", BIG, .dim = {2, 3, 3, 2, 131, 24, 40}},
    {"2 rows of two heads", ALL, .dim = {1, 4, 2, 1, 21, 8, 8}},
    {"3 rows of three heads", BIG, .dim = {2, 6, 2, 1, 131, 16, 16}},
    {"4 rows of four heads", BIG, .dim = {2, 8, 2, 1, 601, 128, 128}},
    {"5 rows of a head", BIG, .dim = {1, 2, 2, 5, 70, 7, 5}},
    {"6 rows of two heads", ALL, .dim = {1, 2, 1, 3, 37, 8, 8}, .causal = true, AT(BOTTOM_RIGHT, 0)},
    {"7 rows of seven heads", BIG, .dim = {2, 7, 1, 1, 131, 80, 48}},
    {"8 rows of four heads", BIG, .dim = {2, 8, 2, 2, 601, 32, 32}, .causal = true, AT(BOTTOM_RIGHT, 0)},
    {"head size 512", BIG, .dim = {1, 2, 1, 1, 37, 512, 512}},
    {"301 columns of keys, 290 of values", BIG, .dim = {1, 4, 2, 1, 37, 301, 290}},
    {"head size 1", BIG, .dim = {1, 2, 1, 2, 37, 1, 1}},
    {"fewer queries", ALL, MASKED, .dim = {2, 2, 1, 3, 37, 8, 8},
     .list = {.queries = LIST(1, 2), .keys = LIST(37, 20)}},
    {"no queries, no keys", BIG, MASKED, .dim = {3, 4, 2, 2, 70, 8, 8},
     .list = {.queries = LIST(0, 2, 1), .keys = LIST(70, 0, 33)}},
    {"logits near 1e4 and -1e4", BIG, .dim = {2, 4, 2, 2, 601, 16, 16}, .scaled = true, .scale = 1, .fill = FILL_HUGE},
    {"logits far apart", BIG, .dim = {2, 4, 2, 2, 601, 16, 16}, .scaled = true, .scale = 1, .fill = FILL_WILD},
    {"NaN key", BIG, .dim = {2, 4, 2, 1, 70, 8, 8}, .inject = INJECT_KEY_NAN},
    {"infinite value", BIG, .dim = {2, 4, 2, 1, 70, 8, 8}, .inject = INJECT_VALUE_INF},
    {"launches that part a group of heads", BIG, .dim = {2, 8, 1, 1, 3000, 8, 8}, .max_launch_ms = 1,
     .long_loops = true},
};

#define EVERYTHING \
    .softcap = 4, .bias = MASK_FLOAT, .alibi = 2, .sinks = true, .causal = true, AT(BOTTOM_RIGHT, 0), WINDOW(40, -1), \
    .entropy = true, .dropout = 0.3f, .seed = 0x123456789abcdef0u, .dropout_offset = 9

static const attention_case scores[] = {
    {"boolean mask", ALL, MASKED, .dim = {2, 2, 1, 2, 37, 8, 8}, .mask = MASK_BOOL},
    {"boolean mask of nothing", BIG, .dim = {2, 4, 2, 1, 131, 8, 8}, .mask = MASK_FALSE, .sinks = true},
    {"float mask of fewer keys", BIG, MASKED, .dim = {2, 4, 2, 2, 131, 8, 8}, .mask = MASK_FLOAT, .mask_rank = 2,
     .mask_extent = {2, 100}},
    {"ALiBi, window", ALL, MASKED, .dim = {2, 2, 1, 2, 37, 8, 8}, .alibi = 1, WINDOW(9, 2), AT(BOTTOM_RIGHT, 0)},
    {"window by item", BIG, MASKED, .dim = {3, 4, 2, 2, 601, 8, 8}, WINDOW(300, 0), AT(BOTTOM_RIGHT, 0),
     .list.keys = LIST(601, 71, 257)},
    {"additive, softcap", ALL, .dim = {2, 2, 1, 2, 37, 8, 8}, .additive = true, .softcap = 1.5f, .scaled = true,
     .scale = 2},
    {"additive, odd sizes", BIG, .dim = {2, 4, 2, 1, 70, 7, 5}, .additive = true},
    {"entropy", ALL, .dim = {2, 2, 1, 2, 37, 8, 8}, .entropy = true},
    {"entropy, sinks, logits near 1e4", BIG, .dim = {2, 4, 2, 2, 601, 8, 8}, .entropy = true, .sinks = true,
     .scaled = true, .scale = 1, .fill = FILL_HUGE},
    {"dropout", ALL, .dim = {2, 2, 1, 2, 37, 8, 8}, .dropout = 0.4f, .seed = 5},
    {"dropout, softcap, additive", BIG, .dim = {2, 4, 2, 1, 601, 8, 8}, .dropout = 0.4f, .seed = 5, .softcap = 2,
     .additive = true},
    {"everything", ALL, MASKED, .dim = {2, 2, 1, 3, 37, 8, 8}, EVERYTHING, .mask = MASK_BOOL,
     .list = {.queries = LIST(3, 2), .keys = LIST(37, 20)}},
    {"everything", BIG, MASKED, .dim = {3, 8, 2, 2, 333, 16, 24}, EVERYTHING, .mask = MASK_FLOAT,
     .list = {.queries = LIST(1, 0, 2), .keys = LIST(333, 64, 97)}},
    {"probabilities", BIG, .dim = {2, 4, 2, 2, 131, 8, 8}, .scores = SCORES_OF(PROBABILITIES)},
};

static const attention_case stored[] = {
    {"float16", ALL, .dim = {2, 2, 1, 2, 37, 8, 8}, .type = FOUR(CLATTN_DTYPE_F16)},
    {"float16, head size 64", BIG, .dim = {2, 4, 2, 1, 131, 64, 64}, .type = FOUR(CLATTN_DTYPE_F16)},
    {"float16, rows at any two bytes", BIG, .dim = {2, 4, 2, 1, 131, 21, 21}, .type = FOUR(CLATTN_DTYPE_F16)},
    {"float16, rows at any two bytes", BIG, .dim = {1, 2, 1, 3, 70, 100, 100}, .type = FOUR(CLATTN_DTYPE_F16)},
    {"bfloat16", BIG, .dim = {2, 4, 4, 1, 601, 40, 40}, .type = FOUR(CLATTN_DTYPE_BF16)},
    {"columns apart", BIG, MASKED, .dim = {2, 4, 2, 2, 70, 8, 8},
     .form = {FORM_SPREAD, FORM_SPREAD, FORM_TRANSPOSED, FORM_MIRRORED, FORM_PLAIN}},
    {"(batch, length, heads, size)", BIG, MASKED, .dim = {2, 4, 2, 2, 70, 16, 16},
     .form = {FORM_BSHD, FORM_BSHD, FORM_BSHD, FORM_BSHD, FORM_PLAIN}},
    {"int8", ALL, .dim = {2, 2, 1, 2, 37, 8, 8}, .type = {.key = CLATTN_DTYPE_I8, .value = CLATTN_DTYPE_I8},
     .key_groups = 1, .value_groups = 1},
    {"int8, head size 64", BIG, .dim = {2, 4, 2, 1, 601, 64, 64},
     .type = {.key = CLATTN_DTYPE_I8, .value = CLATTN_DTYPE_I8}, .key_groups = 2, .value_groups = 4},
    {"int8, groups of 8 and of 4", BIG, .dim = {1, 2, 1, 2, 70, 40, 24},
     .type = {.key = CLATTN_DTYPE_I8, .value = CLATTN_DTYPE_I8}, .key_groups = 5, .value_groups = 6},
    {"int4, a scale an element", BIG, .dim = {2, 4, 2, 2, 70, 7, 3},
     .type = {.key = CLATTN_DTYPE_I4, .value = CLATTN_DTYPE_I4}, .key_groups = 7, .value_groups = 3},
    {"int4, head size 128", BIG, .dim = {2, 4, 1, 1, 601, 128, 128},
     .type = {.key = CLATTN_DTYPE_I4, .value = CLATTN_DTYPE_I4}, .key_groups = 4, .value_groups = 4},
};

int main(int argc, char **argv)
{
    attention_add_decoding(rows, COUNT_OF(rows));
    attention_add_decoding(scores, COUNT_OF(scores));
    attention_add_decoding(stored, COUNT_OF(stored));
    return suite_run("attention decode", argc, argv);
}
