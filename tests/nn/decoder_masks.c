/* Decoders with masks of self-attention and of cross-attention agree with the reference: boolean and float masks,
 * shared or for each item, head and query, that leave some queries no key.
 *
 * Holds: decoder.h, "mask" and "memory_mask"; that cached and uncached decoding agree with masks, too. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/harness.h"
#include "support/nn/decoder_case.h"
#include "support/core/one_context.h"

enum { PIECE = 4, HEADS = 4 };

/* Which of the extents are 1. */
struct shape {
    bool items, heads, queries;
};

static const struct mask_case {
    const char *name;
    int stack; /* an index into decoder_cases; few are used because equal stacks share kernels */
    clattn_dtype dtype;
    bool has_self, has_memory, tiny;
    struct shape self, memory;
} cases[] = {
    {"keys of each item, and of the memory",
     CASE_PAPER,
     CLATTN_DTYPE_BOOL,
     true,
     true,
     true,
     {true, false, false},
     {true, false, false}},
    {"each head and query", CASE_PAPER, CLATTN_DTYPE_BOOL, true, true, false, {false, true, true}, {false, true, true}},
    {"added for each item, head and query",
     CASE_PAPER,
     CLATTN_DTYPE_F32,
     true,
     true,
     true,
     {true, true, true},
     {true, true, true}},
    {"of the memory alone, added for each head",
     CASE_PAPER,
     CLATTN_DTYPE_F32,
     false,
     true,
     false,
     {0},
     {false, true, false}},
    {"added for each item and query, grouped heads",
     CASE_LLAMA,
     CLATTN_DTYPE_F32,
     true,
     false,
     false,
     {true, false, true},
     {0}},
};

/* About every third key is masked, all keys of the fifth query, and, if queries share a row, an item's first keys,
 * which leaves the first queries of self-attention none. */
static nn_mask make_mask(clattn_dtype dtype, struct shape shape, size_t keys)
{
    const nn_mask m = {NULL, shape.items ? ITEMS : 1, shape.heads ? HEADS : 1, shape.queries ? LENGTH : 1, keys};
    const size_t count = m.batch * m.heads * m.queries * keys;
    float *added = malloc(count * sizeof *added);
    assert_non_null(added);
    for (size_t i = 0; i < count; i++) {
        const size_t key = i % keys, query = i / keys % m.queries, outer = i / keys / m.queries;
        const size_t mixed = (outer * 5 + query * 7 + key * 11) % 13;
        const bool masked = mixed < 4 || query == 4 || (m.queries == 1 && key <= outer / m.heads);
        added[i] = masked ? -INFINITY : dtype == CLATTN_DTYPE_F32 ? ((float)mixed - 8) / 2 : 0;
    }
    return (nn_mask){added, m.batch, m.heads, m.queries, keys};
}

/* Fails the test unless the reference's logits change without the mask. */
static void assert_matters(nn_world *w, nn_mask *mask)
{
    const nn_mask kept = *mask;
    double apart = 0;
    *mask = (nn_mask){0};
    double *without = nn_world_logits(w, w->items, LENGTH, w->ids, 0, false, NULL, NULL);
    *mask = kept;
    for (size_t i = 0; i < w->items * LENGTH * NN_VOCABULARY; i++)
        apart = fmax(apart, fabs(without[i] - w->expected[i]));
    assert_true(apart > 0.1);
    free(without);
}

/* Appends the items' texts in `count` pieces, which have the given lengths for each item. */
static void append_pieces(nn_world *w, size_t count, const int32_t pieces[][ITEMS], const char *what)
{
    static float logits[ITEMS * PIECE * NN_VOCABULARY];
    size_t at[ITEMS] = {0};
    nn_world_begin(w, NULL, 1);
    for (size_t p = 0; p < count; p++) {
        const bool one = pieces[p][0] == 1 && pieces[p][1] == 1;
        const size_t row = one ? 1 : PIECE;
        nn_world_append(w, ITEMS, w->ids, LENGTH, at, row, pieces[p], row, logits, row);
        for (size_t s = 0; s < ITEMS; s++)
            for (size_t t = 0; t < (size_t)pieces[p][s]; t++)
                nn_check_logits(logits + (s * row + t) * NN_VOCABULARY,
                                w->expected + (s * LENGTH + at[s]++) * NN_VOCABULARY, what);
    }
    for (size_t s = 0; s < ITEMS; s++)
        assert_int_equal(at[s], LENGTH);
}

static void run_case(const struct mask_case *c)
{
    static const int32_t even[][ITEMS] = {{4, 4}, {1, 1}, {4, 4}}, uneven[][ITEMS] = {{4, 1}, {0, 4}, {1, 1}, {4, 3}},
                         single[LENGTH][ITEMS] = {{1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1},
                                                  {1, 1}, {1, 1}, {1, 1}, {1, 1}};
    const decoder_case *stack = &decoder_cases[c->stack];
    nn_world w = decoder_case_world(context, stack, ITEMS);
    clattn_decoder_desc desc = CLATTN_DECODER_DESC_INIT;
    assert_int_equal(stack->stack.heads, HEADS);
    desc.length = PIECE;
    desc.logits = CLATTN_LOGITS_ALL;
    if (c->has_self)
        w.mask = make_mask(c->dtype, c->self, LENGTH);
    if (c->has_memory)
        w.memory_mask = make_mask(c->dtype, c->memory, MEMORY);
    w.memory_lengths = decoder_case_memory_lengths;
    w.mask_dtype = c->dtype;
    nn_world_open(&w, &desc);
    if (c->has_self)
        assert_matters(&w, &w.mask);
    if (c->has_memory)
        assert_matters(&w, &w.memory_mask);
    append_pieces(&w, COUNT_OF(even), even, c->name);
    append_pieces(&w, LENGTH, single, c->name);
    /* If items share a mask, all texts must be at the same position. */
    if ((c->self.items || !c->self.queries) && (c->memory.items || !c->memory.queries))
        append_pieces(&w, COUNT_OF(uneven), uneven, c->name);
    free((float *)w.mask.added);
    free((float *)w.memory_mask.added);
    nn_world_close(&w);
    print_message("# %s\n", c->name);
}

/* An item's beams read the same row of the memory's mask. */
static void beams(void)
{
    static const size_t orders[][CASE_SEQUENCES] = {{0, 0, 0, 1, 1, 1}, {2, 0, 1, 4, 5, 3}, {2, 0, 1, 4, 5, 3}};
    nn_world w = decoder_case_world(context, &decoder_cases[CASE_PAPER], ITEMS);
    clattn_decoder_desc desc = CLATTN_DECODER_DESC_INIT;
    desc.length = 1;
    desc.beams = CASE_BEAMS;
    desc.logits = CLATTN_LOGITS_LAST;
    w.memory_mask = make_mask(CLATTN_DTYPE_BOOL, (struct shape){true, true, false}, MEMORY);
    w.mask_dtype = CLATTN_DTYPE_BOOL;
    nn_world_open(&w, &desc);
    decoder_case_beams(&w, 1, orders, COUNT_OF(orders), "beams with a mask");
    free((float *)w.memory_mask.added);
    nn_world_close(&w);
}

/* All cases are one test because programs are shared within a context. */
static void masks(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        if (cases[i].tiny || !is_tiny())
            run_case(&cases[i]);
    beams();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(masks, open_context, close_context),
    };
    return RUN_TESTS("decoder_masks", tests, argc, argv);
}
