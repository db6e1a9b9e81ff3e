/* Attention of few queries reads caches: rings, pages, packed keys; the cpu solver's items take several heads in turn
 * if heads lie close together.
 *
 * Holds: the same rules as decode.c.  Batches of 40 leave no device so many compute units idle that heads would not be
 * taken in turn. */
#include "support/attention/case.h"

static const attention_case caches[] = {
    {"ring, gone round", ALL, MASKED, .cache = CLATTN_CACHE_KIND_RING, .dim = {2, 2, 1, 1, 21, 8, 8}, .shorter = true,
     .actual = {2, 1, 50}},
    {"ring by item, window", BIG, MASKED, .cache = CLATTN_CACHE_KIND_RING, .dim = {4, 4, 2, 1, 131, 8, 8},
     WINDOW(80, -1), .causal = true, AT(BOTTOM_RIGHT, 0), .list.keys = LIST(4, 131, 140, 500), .shorter = true,
     .actual = {4, 1, 500}},
    {"pages of 16", ALL, MASKED, PAGED(9, 16), .dim = {2, 2, 1, 1, 48, 8, 8}, .list.keys = LIST(45, 17)},
    {"pages of 16", BIG, MASKED, PAGED(41, 16), .dim = {4, 8, 2, 1, 144, 64, 64}, .list.keys = LIST(131, 0, 16, 144)},
    {"pages of 32, window", BIG, MASKED, PAGED(41, 32), .dim = {4, 4, 4, 2, 320, 16, 16},
     .list.keys = LIST(131, 1, 32, 320), .causal = true, WINDOW(45, 0), AT(BOTTOM_RIGHT, 0)},
    {"pages of 32, window, ALiBi, boolean mask", BIG, MASKED, PAGED(41, 32), .dim = {4, 4, 2, 2, 320, 16, 16},
     .list.keys = LIST(131, 1, 32, 320), WINDOW(45, 3), AT(BOTTOM_RIGHT, 0), .alibi = 1, .mask = MASK_BOOL},
    {"pages of 5", ALL, MASKED, PAGED(19, 5), .dim = {2, 2, 1, 1, 40, 8, 8}, .list.keys = LIST(37, 11)},
    {"pages of 16, int8", BIG, MASKED, PAGED(41, 16), .dim = {4, 8, 2, 1, 144, 32, 32},
     .list.keys = LIST(131, 0, 16, 144), .type = {.key = CLATTN_DTYPE_I8, .value = CLATTN_DTYPE_I8}, .key_groups = 2,
     .value_groups = 1},
    {"pages of 16, in parts of which the last have no key", BIG, PAGED(129, 16), .dim = {1, 1, 1, 1, 2048, 8, 8},
     .list.keys = LIST(33), .long_loops = true},
    {"pages of 16, heads in turn", ALL, MASKED, PAGED(21, 16),
     .dim = {10, 2, 2, 1, 32, 8, 8}}, /* for devices with one compute unit */
    {"pages of 16, heads in turn", BIG, MASKED, PAGED(161, 16), .dim = {40, 3, 3, 1, 64, 8, 8}},
    {"pages of 16, heads in turn, groups, window", BIG, MASKED, PAGED(161, 16), .dim = {40, 8, 4, 2, 64, 16, 24},
     .causal = true, WINDOW(20, 0), AT(BOTTOM_RIGHT, 0)},
    {"pages of 16, heads in turn, boolean mask, ALiBi", BIG, MASKED, PAGED(161, 16), .dim = {40, 4, 4, 1, 64, 8, 8},
     .mask = MASK_BOOL, .mask_rank = 4, .mask_extent = {40, 4, 1, 64}, .alibi = 1},
    {"pages of 32, heads in turn, everything", BIG, MASKED, PAGED(201, 32), .dim = {40, 6, 3, 2, 160, 16, 16},
     .softcap = 4, .bias = MASK_FLOAT, .alibi = 2, .sinks = true, .causal = true, AT(BOTTOM_RIGHT, 0), WINDOW(40, -1),
     .entropy = true, .dropout = 0.3f, .seed = 0x123456789abcdef0u, .dropout_offset = 9},
    {"pages of 5, heads in turn", BIG, MASKED, PAGED(321, 5), .dim = {40, 3, 3, 1, 40, 8, 8}},
    {"pages of 16, heads in turn, in parts", BIG, PAGED(513, 16), .dim = {1, 16, 4, 1, 8192, 16, 16},
     .list.keys = LIST(7001), .long_loops = true},
    {"(batch, length, heads, size), heads in turn", BIG, MASKED, .dim = {40, 4, 4, 1, 70, 16, 16},
     .form = {FORM_BSHD, FORM_BSHD, FORM_BSHD, FORM_BSHD, FORM_PLAIN}},
    {"packed", BIG, MASKED, .dim = {3, 4, 2, 6, 260, 8, 8}, .longest = 4,
     .list = {.query_starts = LIST(0, 4, 4, 6), .key_starts = LIST(0, 100, 101, 260)}},
};

int main(int argc, char **argv)
{
    attention_add_decoding(caches, COUNT_OF(caches));
    return suite_run("attention decode, caches", argc, argv);
}
