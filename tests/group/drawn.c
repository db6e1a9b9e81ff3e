/* Attention of a group, forward and backward, of drawn descriptions, which CLATTN_TEST_SEED changes: the ranks' parts make the whole that
 * the tests' reference expects, no rank makes a plan while it computes, and calls that are made again give the same bits.
 *
 * A failing draw's name is its description; with the seed that is printed first, `test_group_drawn 'draw 17:*'` repeats it. */
#include <stdlib.h>
#include <string.h>

#include "support/core/inject.h"
#include "support/group/drawn.h"
#include "support/suite.h"

#define MOST_DRAWS 1200
#define PLANS 512 /* of one draw, at the most: ranks whose arrays differ in strides have plans of their own */

/* Makes the ranks' shares and calls them `times` times. */
static void compute(drawn *w, int times)
{
    const clattn_status status = group_parts_run(w->parts, device_context(), &w->draw->way, times);
    assert_int_equal(status, CLATTN_SUCCESS);
    /* A plan has kernels.  When one rank has its share, all have made their plans. */
    assert_int_equal(inject_made(INJECT_KERNEL), w->parts[0].kernels);
}

static group_draw draws[MOST_DRAWS];

static void check(const void *which, const char *unused)
{
    const group_draw *d = which;
    const size_t index = (size_t)(d - draws);
    static drawn w;
    (void)unused;
    drawn_prepare(&w, d, index);
    drawn_make_parts(&w);
    compute(&w, 1);
    if (index % 5 == 0) { /* other shares, called twice, give the same bits */
        unsigned char *first[GROUP_MOST_RANKS];
        for (int i = 0; i < d->way.ranks; i++) {
            first[i] = group_part_bytes(&w.parts[i]);
            group_part_release(&w.parts[i]);
        }
        drawn_make_parts(&w);
        compute(&w, 2);
        for (int i = 0; i < d->way.ranks; i++) {
            unsigned char *second = group_part_bytes(&w.parts[i]);
            assert_memory_equal(first[i], second, job_bytes(&w.parts[i].job));
            free(first[i]);
            free(second);
        }
    }
    drawn_give_parts(&w);
    drawn_judge(&w);
    drawn_release(&w);
}

/* ---- a share that is called with other positions ---- */

#define POSITIONS .test = {"", ALL, .dim = {1, 2, 2, 48, 48, 8, 8}, .causal = true, AT(EXPLICIT, 0)}

static const struct positioned {
    const char *name;
    group_draw draw;
} positioned[] = {
    {"a ring", {POSITIONS, .way = {3, CLATTN_GROUP_MODE_RING, CLATTN_GROUP_ORDER_ZIGZAG, 0}}},
    {"a ring, straight", {POSITIONS, .way = {4, CLATTN_GROUP_MODE_RING, CLATTN_GROUP_ORDER_STRAIGHT, 0}}},
    {"gathered heads", {POSITIONS, .way = {2, CLATTN_GROUP_MODE_GATHER, CLATTN_GROUP_ORDER_ZIGZAG, 0}}},
    {"exchanged heads", {POSITIONS, .way = {2, CLATTN_GROUP_MODE_HEADS, CLATTN_GROUP_ORDER_ZIGZAG, 0}}},
    {"a ring, backward",
     {POSITIONS, .way = {3, CLATTN_GROUP_MODE_RING, CLATTN_GROUP_ORDER_ZIGZAG, 0}, true, 7, {{0}}, ""}},
    {"gathered heads, backward",
     {POSITIONS, .way = {2, CLATTN_GROUP_MODE_GATHER, CLATTN_GROUP_ORDER_ZIGZAG, 0}, true, 7, {{0}}, ""}},
};

/* Which blocks a ring attends, and how many there are, depends on the position. */
static void positions_make_no_plan(const void *which, const char *unused)
{
    static const int64_t at[] = {0, -30, 17, 48, -7, -100, 3};
    static group_draw draw[COUNT_OF(at)];
    static drawn calls[COUNT_OF(at)];
    const struct positioned *p = which;
    (void)unused;
    for (size_t n = 0; n < COUNT_OF(at); n++) {
        draw[n] = p->draw;
        draw[n].test.position = at[n];
        drawn_prepare(&calls[n], &draw[n], n);
        drawn_make_parts(&calls[n]);
        for (int i = 0; n && i < p->draw.way.ranks; i++)
            calls[n - 1].parts[i].then = &calls[n].parts[i];
    }
    compute(&calls[0], 1);
    for (size_t n = 0; n < COUNT_OF(at); n++) {
        drawn_give_parts(&calls[n]);
        drawn_judge(&calls[n]);
        drawn_release(&calls[n]);
    }
}

/* ---- what is drawn ---- */

static void draws_have_everything(void **state)
{
    size_t ranks[GROUP_MOST_RANKS + 1] = {0}, modes[2][3] = {{0}}, orders[2] = {0}, alignments[3] = {0}, types[3] = {0};
    size_t subsets[8] = {0}, of_scores[JOB_OUTPUTS] = {0}, lists[4] = {0}, dropout[3] = {0}, unowned = 0, scores = 0,
           masks = 0, biases = 0, no_lse = 0, causal = 0, windows = 0, odd = 0, injected = 0, distinct = 0;
    static group_draw again;
    (void)state;
    for (size_t i = 0; i < DRAWS_OF_FAMILIES; i++) {
        group_draw_make(&draws[i], i);
        group_draw_make(&again, i);
        const group_draw *d = &draws[i];
        const attention_case *t = &d->test;
        const size_t pieces = (size_t)d->way.ranks * (d->way.order == CLATTN_GROUP_ORDER_ZIGZAG ? 2 : 1);
        assert_string_equal(d->text, again.text);
        assert_in_range(strlen(d->text), 1, sizeof d->text - 2); /* nothing is cut off */
        assert_true(group_can(t, &d->way));
        assert_int_equal(t->dim.queries % pieces, 0);
        assert_int_equal(t->dim.keys % pieces, 0);
        assert_int_not_equal(t->dim.d_k, t->dim.d_v);
        ranks[d->way.ranks]++;
        modes[d->backward][d->way.mode]++;
        orders[d->way.order]++;
        alignments[t->alignment]++;
        types[t->type.query == CLATTN_DTYPE_F32 ? 0 : t->type.query == CLATTN_DTYPE_F16 ? 1 : 2]++;
        subsets[d->gradients & 7]++;
        for (int n = 3; n < JOB_OUTPUTS; n++)
            of_scores[n] += d->gradients >> n & 1;
        lists[0] += t->list.queries != NULL;
        lists[1] += t->list.keys != NULL;
        lists[2] += t->list.positions != NULL;
        lists[3] += t->list.query_starts != NULL;
        unowned += t->list.key_starts && t->list.key_starts[t->dim.batch] < (int64_t)t->dim.keys;
        dropout[d->way.mode] += t->dropout > 0;
        masks += t->mask != MASK_NONE;
        biases += t->bias != MASK_NONE;
        no_lse += t->no_lse;
        causal += t->causal;
        windows += t->windowed;
        odd += t->dim.keys / pieces % 2;
        injected += t->inject != INJECT_NOTHING;
    }
    for (int n = 1; n <= 4; n++)
        assert_in_range(ranks[n], 8, 120);
    assert_in_range(ranks[8], 8, 60);
    for (int mode = 0; mode < 3; mode++) {
        assert_in_range(modes[0][mode], 20, 140);
        assert_in_range(modes[1][mode], 10, 90);
        assert_in_range(dropout[mode], 5, 60);
        assert_in_range(alignments[mode], 25, 230);
        assert_in_range(types[mode], 12, 260);
    }
    for (int n = 3; n < JOB_OUTPUTS; n++)
        scores += of_scores[n] > 0;
    assert_in_range(scores, 2, 5);
    for (int n = 0; n < 4; n++)
        assert_in_range(lists[n], 15, 200);
    assert_in_range(unowned, 5, 60);
    for (int n = 1; n < 8; n++)
        distinct += subsets[n] > 0;
    assert_in_range(distinct, 5, 7);
    assert_in_range(orders[0], 100, 200);
    assert_in_range(masks, 40, 200);
    assert_in_range(biases, 25, 160);
    assert_in_range(no_lse, 30, 110);
    assert_in_range(causal, 100, 200);
    assert_in_range(windows, 100, 200);
    assert_in_range(odd, 100, 260);
    assert_in_range(injected, 15, 80);
}

int main(int argc, char **argv)
{
    const size_t count = by_level(20, DRAWS_OF_FAMILIES, DRAWS_OF_FAMILIES, MOST_DRAWS);
    device_use_functions(inject_get_proc);
    device_use_plans(PLANS);
    inject_stop(); /* objects are counted all the same */
    suite_add(draws_have_everything, "draws have everything");
    for (size_t i = 0; i < COUNT_OF(positioned); i++)
        suite_add_case(positions_make_no_plan, &positioned[i], "", "positions make no plan: %s", positioned[i].name);
    for (size_t i = 0; i < count; i++) {
        group_draw_make(&draws[i], i);
        suite_add_case(check, &draws[i], "", "draw %zu: %s", i, draws[i].text);
    }
    return suite_run("group_drawn", argc, argv);
}
