/* Few queries over many keys: the keys are split among work-groups and the partials merged, and nothing else changes.
 * With devices of many compute units every row here is split by the cpu and tile solvers; with one, those with 2,048
 * keys.
 *
 * Holds: docs/kernels.md, "Split keys", and the accuracy rule for its results. */
#include "support/attention/case.h"

#define TOKEN .dim = {1, 2, 1, 1, 2048, 8, 8}, .long_loops = true
#define FEW .dim = {1, 4, 2, 3, 1100, 16, 8}, .long_loops = true

static const attention_case cases[] = {
    {"one token", ALL, TOKEN},
    {"one token, without lse", BIG, TOKEN, .no_lse = true},
    {"one token, a sink", BIG, TOKEN, .sinks = true},
    {"one token, a sink, nothing attended", BIG, TOKEN, .sinks = true, .mask = MASK_FALSE},
    {"one token, nothing attended", BIG, TOKEN, .mask = MASK_FALSE, .mask_rank = 1, .mask_extent = {2048}},
    {"one token, fewer keys than parts have", BIG, TOKEN, .shorter = true, .actual = {1, 1, 17}},
    {"one token, no keys", BIG, TOKEN, .shorter = true, .actual = {1, 1, 0}},
    {"one token, NaN key", BIG, TOKEN, .inject = INJECT_KEY_NAN},
    {"one token, bfloat16", BIG, TOKEN, .type = FOUR(CLATTN_DTYPE_BF16)},
    {"few queries", BIG, FEW, .causal = true, .alignment = CLATTN_ALIGNMENT_BOTTOM_RIGHT},
    {"few queries, masked", BIG, FEW, .mask = MASK_FLOAT, .inject = INJECT_MASKED},
    {"few queries, ALiBi, softcap, bias", BIG, FEW, .alibi = 1, .softcap = 3, .bias = MASK_FINITE,
     .alignment = CLATTN_ALIGNMENT_BOTTOM_RIGHT},
    {"few queries, lengths", BIG, .dim = {2, 2, 1, 2, 1100, 8, 8}, .long_loops = true,
     .list = {.keys = LIST(1100, 33)}},
    {"few queries, a ring", BIG, .dim = {1, 2, 1, 2, 1100, 8, 8}, .long_loops = true, .cache = CLATTN_CACHE_KIND_RING,
     .shorter = true, .actual = {1, 2, 1500}},
    {"few queries, pages", BIG, .dim = {1, 2, 1, 2, 1120, 8, 8}, .long_loops = true, PAGED(75, 16)},
    {"few queries, probabilities", BIG, FEW, .scores = SCORES_OF(PROBABILITIES), .no_lse = true},
    {"few queries, dropout", BIG, FEW, .dropout = 0.25f, .seed = 5},
};

int main(int argc, char **argv)
{
    attention_add(cases, COUNT_OF(cases));
    return suite_run("attention, split keys", argc, argv);
}
