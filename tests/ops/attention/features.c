/* Attention's features: additive scores, softcap, bias, ALiBi, sinks, windows, each item's own lengths and positions,
 * alone and together.
 *
 * Holds: Meaning 1 (order), 2 (a bias of -inf selects), 3 (windows and ALiBi from the same positions as causality,
 * alignment by each item's own lengths), 4 (rows that attend nothing; with a sink), 5 (what cannot leak) of
 * docs/numerics.md for all of include/clattn/attention.h that changes scores or which keys are attended. */
#include "support/attention/case.h"

static const attention_case scores[] = {
    {"softcap", ALL, LITTLE, .softcap = 1.5f, .scaled = true, .scale = 2},
    {"softcap", BIG, MEDIUM, .softcap = 1.5f, .scaled = true, .scale = 2},
    {"softcap far above the scores", BIG, MEDIUM, .softcap = 1e4f},
    {"softcap far below the scores", BIG, MEDIUM, .softcap = 0.01f, .scaled = true, .scale = 5},
    {"softcap of logits near 1e4", BIG, MEDIUM, .softcap = 50, .scaled = true, .scale = 1, .fill = FILL_HUGE},
    {"softcap, negative scale", FULL, MEDIUM, .softcap = 2, .scaled = true, .scale = -3},
    {"softcap, float mask", BIG | TILE, MEDIUM, .softcap = 1.5f, .scaled = true, .scale = 2, .mask = MASK_FLOAT,
     .inject = INJECT_MASKED},
    {"additive", ALL, LITTLE, .additive = true},
    {"additive", BIG, MEDIUM, .additive = true},
    {"additive, one vector for all heads", BIG, MEDIUM, .additive = true, .shared_vector = true},
    {"additive, scaled", BIG, MEDIUM, .additive = true, .scaled = true, .scale = -2.5f},
    {"additive, NaN key", BIG, MEDIUM, .additive = true, .inject = INJECT_KEY_NAN},
    {"additive, infinite key: a finite score", BIG, MEDIUM, .additive = true, .inject = INJECT_KEY_INF},
    {"additive, odd sizes", BIG, .dim = {2, 2, 2, 35, 67, 7, 5}, .additive = true},
    {"additive, softcap, causal, boolean mask", ALL, LITTLE, .additive = true, .softcap = 1, .causal = true,
     .mask = MASK_BOOL, .inject = INJECT_MASKED},
    {"additive, softcap, causal, boolean mask", BIG | TILE, LARGE, .additive = true, .softcap = 1, .causal = true,
     .mask = MASK_BOOL, .inject = INJECT_MASKED},
};

static const attention_case addends[] = {
    {"bias", ALL, LITTLE, .bias = MASK_FINITE},
    {"bias of -inf", ALL, LITTLE, .bias = MASK_FLOAT, .inject = INJECT_MASKED},
    {"bias of -inf", BIG | TILE, LARGE, .bias = MASK_FLOAT, .inject = INJECT_MASKED},
    {"bias of one key", BIG, MEDIUM, .bias = MASK_FINITE, .bias_rank = 4, .bias_extent = {2, 4, 1, 1}},
    {"bias for each key", BIG, MEDIUM, .bias = MASK_FINITE, .bias_rank = 4, .bias_extent = {2, 1, 1, 67}},
    {"bias for heads and queries", FULL, MEDIUM, .bias = MASK_FLOAT, .bias_rank = 3, .bias_extent = {4, 35, 1}},
    {"bias of fewer keys", ALL, LITTLE, .bias = MASK_FINITE, .bias_rank = 1, .bias_extent = {4}},
    {"bias of fewer keys", BIG, MEDIUM, .bias = MASK_FINITE, .bias_rank = 2, .bias_extent = {35, 40},
     .inject = INJECT_MASKED},
    {"bias of all -inf", BIG, MEDIUM, .bias = MASK_INF, .bias_rank = 1, .bias_extent = {1}},
    {"bias of all -1e4", BIG, MEDIUM, .bias = MASK_MINUS_1E4},
    {"NaN in a bias", BIG | TILE, MEDIUM, .bias = MASK_FLOAT, .inject = INJECT_BIAS_NAN},
    {"bias with a boolean mask", ALL, LITTLE, .bias = MASK_FLOAT, .mask = MASK_BOOL, .inject = INJECT_MASKED},
    {"bias with a boolean mask", BIG | TILE, MEDIUM, .bias = MASK_FINITE, .mask = MASK_BOOL, .mask_rank = 4,
     .mask_extent = {2, 1, 1, 67}},
    {"bias with a float mask of fewer keys", BIG, MEDIUM, .bias = MASK_FLOAT, .mask = MASK_FLOAT, .mask_rank = 1,
     .mask_extent = {50}, .inject = INJECT_MASKED},
    {"ALiBi", ALL, LITTLE, .alibi = 1},
    {"ALiBi", BIG, LARGE, .alibi = 1},
    {"ALiBi for each item", BIG | TILE, MEDIUM, .alibi = 2},
    {"ALiBi, rank 2, shared", BIG, MEDIUM, .alibi = 2, .shared_alibi = true},
    {"ALiBi at a position", ALL, LITTLE, .alibi = 1, AT(EXPLICIT, 6)},
    {"ALiBi before the keys", BIG, MEDIUM, .alibi = 1, AT(EXPLICIT, -40)},
    {"ALiBi, bottom-right, causal", ALL, LITTLE, .alibi = 1, .causal = true, AT(BOTTOM_RIGHT, 0)},
    {"ALiBi, bottom-right, causal", BIG | TILE, LARGE, .alibi = 2, .causal = true, AT(BOTTOM_RIGHT, 0)},
    {"sinks", ALL, LITTLE, .sinks = true},
    {"sinks", BIG | TILE, LARGE, .sinks = true},
    {"sinks below logits near 1e4", BIG, MEDIUM, .sinks = true, .scaled = true, .scale = 1, .fill = FILL_HUGE},
    {"sinks without keys", ALL, LITTLE, .sinks = true, .shorter = true, .actual = {2, 5, 0}},
    {"sinks, nothing attended", ALL, LITTLE, .sinks = true, .mask = MASK_FALSE},
    {"sinks, some masked", BIG, MEDIUM, .sinks = true, .mask = MASK_BOOL, .inject = INJECT_MASKED},
    {"sinks, causal, leading rows empty", BIG, .dim = {2, 4, 2, 67, 35, 8, 8}, .sinks = true, .causal = true,
     AT(BOTTOM_RIGHT, 0)},
    {"sinks, a NaN in one", BIG, MEDIUM, .sinks = true, .inject = INJECT_SINK_NAN},
};

static const attention_case windows[] = {
    {"window 2, 1", ALL, LITTLE, WINDOW(2, 1), .inject = INJECT_MASKED},
    {"window 7, 3", BIG | TILE, LARGE, WINDOW(7, 3), .inject = INJECT_MASKED},
    {"window 0, 0", ALL, LITTLE, WINDOW(0, 0)},
    {"window 70, 0", BIG, LARGE, WINDOW(70, 0)},
    {"window 0, 70", BIG, LARGE, WINDOW(0, 70)},
    {"window to the left", ALL, LITTLE, WINDOW(3, -1)},
    {"window to the right", ALL, LITTLE, WINDOW(-1, 3)},
    {"window without bounds", BIG, MEDIUM, WINDOW(-1, -1)},
    {"window wider than all", BIG, MEDIUM, WINDOW(INT64_MAX, (int64_t)1 << 40)},
    {"window at a position", ALL, LITTLE, WINDOW(2, 1), AT(EXPLICIT, 3)},
    {"window before the keys", BIG, MEDIUM, WINDOW(4, 40), AT(EXPLICIT, -50)},
    {"window beyond the keys", BIG, MEDIUM, WINDOW(40, 4), AT(EXPLICIT, 90)},
    {"window at INT64_MAX", ALL, LITTLE, WINDOW(3, 3), AT(EXPLICIT, INT64_MAX)},
    {"window at INT64_MIN", ALL, LITTLE, WINDOW(3, 3), AT(EXPLICIT, INT64_MIN)},
    {"window wider than int, far beyond the keys", ALL, LITTLE, WINDOW(3000000000, 0), AT(EXPLICIT, 5000000000)},
    {"window wider than int, its edge in the keys", BIG, MEDIUM, WINDOW(5000000000 - 40, -1), AT(EXPLICIT, 5000000000)},
    {"window wider than int to the right", BIG, MEDIUM, WINDOW(-1, 5000000000), AT(EXPLICIT, -5000000000)},
    {"window, bottom-right", BIG, LARGE, WINDOW(9, 5), AT(BOTTOM_RIGHT, 0)},
    {"window, bottom-right, of the actual lengths", BIG | TILE, LARGE, WINDOW(9, 5), AT(BOTTOM_RIGHT, 0),
     .shorter = true, .actual = {1, 40, 99}},
    {"window, causal", ALL, LITTLE, WINDOW(2, -1), .causal = true},
    {"window, causal", BIG | TILE, LARGE, WINDOW(33, -1), .causal = true, AT(EXPLICIT, 70), .inject = INJECT_MASKED},
    {"window, causal and to the right", BIG, MEDIUM, WINDOW(5, 5), .causal = true},
};

static const attention_case lengths[] = {
    {"key lengths", ALL, LITTLE, .list.keys = LIST(9, 4), .inject = INJECT_MASKED},
    {"key lengths", BIG, .dim = {4, 4, 2, 35, 131, 8, 8}, .list.keys = LIST(131, 0, 64, 1), .inject = INJECT_MASKED},
    {"key lengths out of range", ALL, .dim = {3, 2, 1, 5, 9, 8, 8}, .list.keys = LIST(-1, INT32_MAX, INT32_MIN)},
    {"key lengths above the enqueue's", BIG, .dim = {4, 4, 2, 35, 131, 8, 8}, .list.keys = LIST(131, 70, 100, 5),
     .shorter = true, .actual = {3, 30, 90}, .inject = INJECT_MASKED},
    {"key and query lengths", ALL, LITTLE, .list = {.queries = LIST(3, 5), .keys = LIST(9, 4)},
     .inject = INJECT_MASKED},
    {"key and query lengths", BIG | TILE, .dim = {4, 4, 2, 70, 131, 8, 8},
     .list = {.queries = LIST(0, 70, 33, 65), .keys = LIST(131, 64, 0, 97)}, .inject = INJECT_MASKED},
    {"lengths out of range", ALL, .dim = {3, 2, 1, 5, 9, 8, 8},
     .list = {.queries = LIST(INT32_MAX, -7, 4), .keys = LIST(5, INT32_MIN, INT32_MAX)}},
    {"lengths, bottom-right, causal", ALL, LITTLE, .causal = true, AT(BOTTOM_RIGHT, 0),
     .list = {.queries = LIST(3, 5), .keys = LIST(9, 4)}},
    {"lengths, bottom-right, causal", BIG, .dim = {4, 4, 2, 70, 131, 8, 8}, .causal = true, AT(BOTTOM_RIGHT, 0),
     .list = {.queries = LIST(2, 70, 33, 65), .keys = LIST(131, 64, 0, 97)}, .inject = INJECT_MASKED},
    {"positions, causal", ALL, LITTLE, .causal = true, AT(EXPLICIT, 1), .list.positions = LIST(4, -3),
     .type.integers = CLATTN_DTYPE_I64},
    {"positions, causal", BIG | TILE, .dim = {4, 4, 2, 35, 131, 8, 8}, .causal = true, AT(EXPLICIT, -5),
     .list.positions = LIST(100, 0, -100, 30), .type.integers = CLATTN_DTYPE_I64, .inject = INJECT_MASKED},
    {"positions out of range, causal", ALL, .dim = {4, 2, 1, 5, 9, 8, 8}, .causal = true, AT(EXPLICIT, 3),
     .list.positions = LIST(INT64_MIN, (int64_t)1 << 62, -((int64_t)1 << 33), (int64_t)1 << 33),
     .type.integers = CLATTN_DTYPE_I64},
    {"positions and the args' far apart, causal", ALL, LITTLE, .causal = true, AT(EXPLICIT, -((int64_t)1 << 35)),
     .list.positions = LIST(((int64_t)1 << 35) + 4, (int64_t)1 << 35), .type.integers = CLATTN_DTYPE_I64},
    {"lengths, positions, int64", BIG, .dim = {4, 4, 2, 70, 131, 8, 8}, WINDOW(20, 3), AT(EXPLICIT, 0),
     .list = {.queries = LIST(0, 70, 33, 65), .keys = LIST(131, 64, 0, 97), .positions = LIST(3, 0, -9, 60)},
     .type.integers = CLATTN_DTYPE_I64, .inject = INJECT_MASKED},
};

/* Few queries, whose heads may share a work-group; some launches split a group of heads. */
static const attention_case few[] = {
    {"few queries, grouped heads", BIG | TILE, .dim = {2, 12, 2, 3, 200, 8, 8}, .sinks = true, .alibi = 1,
     .causal = true, AT(BOTTOM_RIGHT, 0), .mask = MASK_BOOL, .inject = INJECT_MASKED},
    {"few queries, grouped heads", BIG | TILE, .dim = {1, 28, 4, 16, 333, 8, 8}, WINDOW(100, 0), AT(BOTTOM_RIGHT, 0)},
    {"few queries, grouped heads, short launches", BIG | TILE, .dim = {2, 12, 2, 16, 3000, 8, 8}, .max_launch_ms = 1,
     .long_loops = true},
};

/* Kernels with many features at once; the cases vary numbers and lengths. */
#define EVERYTHING \
    .softcap = 4, .bias = MASK_FLOAT, .alibi = 2, .sinks = true, .causal = true, AT(BOTTOM_RIGHT, 0), WINDOW(40, -1), \
    .entropy = true, .dropout = 0.3f, .seed = 0x123456789abcdef0u, .dropout_offset = 9

static const attention_case together[] = {
    {"everything", ALL, LITTLE, EVERYTHING, .mask = MASK_BOOL, .list = {.queries = LIST(3, 5), .keys = LIST(9, 4)},
     .inject = INJECT_MASKED},
    {"everything", BIG | TILE, .dim = {4, 4, 2, 70, 131, 8, 8}, EVERYTHING, .mask = MASK_BOOL,
     .list = {.queries = LIST(2, 70, 33, 65), .keys = LIST(131, 64, 0, 97)}, .inject = INJECT_MASKED},
    {"everything, broadcast", BIG, .dim = {4, 4, 2, 70, 131, 8, 8}, EVERYTHING, .mask = MASK_BOOL, .mask_rank = 2,
     .mask_extent = {1, 100}, .bias_rank = 4, .bias_extent = {1, 4, 1, 131},
     .list = {.queries = LIST(70, 70, 33, 65), .keys = LIST(131, 64, 100, 97)}, .inject = INJECT_MASKED},
    {"everything, additive", BIG | TILE, MEDIUM, EVERYTHING, .mask = MASK_FLOAT, .additive = true,
     .inject = INJECT_MASKED},
    {"everything, (batch, length, heads, size)", FULL, .dim = {2, 4, 2, 70, 131, 24, 40}, EVERYTHING,
     .mask = MASK_FLOAT, .form = {FORM_BSHD, FORM_BSHD, FORM_BSHD, FORM_BSHD, FORM_PLAIN}, .inject = INJECT_MASKED},
    {"softcap, ALiBi, window, head size 64", FULL, .dim = {1, 4, 2, 70, 131, 64, 64}, .softcap = 4, .alibi = 1,
     WINDOW(30, 10)},
    {"softcap, sinks, causal, head size 300", BIG, .dim = {1, 2, 1, 9, 35, 300, 300}, .softcap = 4, .sinks = true,
     .causal = true},
};

int main(int argc, char **argv)
{
    attention_add_frugal(scores, COUNT_OF(scores));
    attention_add_frugal(addends, COUNT_OF(addends));
    attention_add_frugal(windows, COUNT_OF(windows));
    attention_add_frugal(lengths, COUNT_OF(lengths));
    attention_add_frugal(few, COUNT_OF(few));
    attention_add_frugal(together, COUNT_OF(together));
    return suite_run("attention features", argc, argv);
}
