/* Whether two strided arrays overlap.
 *
 * Positions count in units of four bits, the smallest element.  An element of the first array and one of the second share a
 * unit if their positions' difference lies in a window around 0 that the elements' sizes give.  The difference is
 *     first position of a - first position of b + sum over all dimensions of stride * index,
 * in which the indices of b count backwards.  So the question is whether a sum of terms, each a positive stride times an
 * integer of an interval, can reach a window. */
#include "base/layout.h"
#include "base/size.h"

/* An array that reaches further than this is in no memory, and sums of positions below it do not overflow. */
#define FURTHEST ((int64_t)1 << 52)

struct term {
    int64_t stride, least, most; /* the interval of the integer */
};

struct search {
    struct term term[2 * CLATTN_MAX_RANK]; /* the largest stride first */
    int count, steps;
};

/* Inserts a term by its stride; a term of the same stride gets a longer interval instead. */
static void add_term(struct search *search, struct term added)
{
    int at = search->count;
    for (int i = 0; i < search->count; i++)
        if (search->term[i].stride == added.stride) {
            search->term[i].least += added.least;
            search->term[i].most += added.most;
            return;
        }
    for (; at > 0 && search->term[at - 1].stride < added.stride; at--)
        search->term[at] = search->term[at - 1];
    search->term[at] = added;
    search->count++;
}

/* Adds the array's dimensions, with `direction` 1 or -1.  False if the array reaches further than any memory. */
static bool add_array(struct search *search, const struct array_place *place, int direction)
{
    const clattn_layout *layout = place->layout;
    int64_t lowest, highest, unit = (int64_t)clattn_dtype_bits(layout->dtype) / 4;
    if (!layout_reach(layout, place->extent, place->offset, &lowest, &highest) || lowest < -FURTHEST ||
        highest > FURTHEST)
        return false;
    for (int32_t i = 0; i < layout->rank; i++) {
        int64_t stride = layout->stride[i] * direction, last = (int64_t)place->extent[i] - 1;
        if (last > 0 && stride > 0)
            add_term(search, (struct term){stride * unit, 0, last});
        else if (last > 0 && stride < 0)
            add_term(search, (struct term){-stride * unit, -last, 0});
    }
    return true;
}

/* Joins neighbouring terms of which the smaller one fills the larger one's steps without a gap. */
static void join_terms(struct search *search)
{
    for (int i = search->count - 1; i > 0; i--) {
        struct term *outer = &search->term[i - 1], *inner = &search->term[i];
        int64_t factor = outer->stride / inner->stride;
        if (outer->stride % inner->stride || inner->most - inner->least + 1 < factor)
            continue;
        inner->least += factor * outer->least;
        inner->most += factor * outer->most;
        for (int k = i - 1; k + 1 < search->count; k++)
            search->term[k] = search->term[k + 1];
        search->count--;
    }
}

static int64_t divide_down(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

static int64_t greatest_divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Whether the terms from index `first` on can reach the window [low, high]; also true once the steps are used up. */
static bool reaches(struct search *search, int first, int64_t low, int64_t high)
{
    int64_t rest_low = 0, rest_high = 0, divisor = 0;
    if (first == search->count)
        return low <= 0 && high >= 0;
    for (int i = first + 1; i < search->count; i++) {
        const struct term *term = &search->term[i];
        rest_low += term->stride * term->least;
        rest_high += term->stride * term->most;
        divisor = greatest_divisor(term->stride, divisor);
    }
    const struct term *term = &search->term[first];
    int64_t from = -divide_down(rest_high - low, term->stride), to = divide_down(high - rest_low, term->stride);
    from = from < term->least ? term->least : from;
    to = to > term->most ? term->most : to;
    for (int64_t i = from; i <= to; i++) {
        int64_t new_low = low - i * term->stride, new_high = high - i * term->stride;
        if (++search->steps > OVERLAP_STEPS)
            return true;
        if (divisor && divide_down(new_high, divisor) * divisor < new_low)
            continue; /* no multiple of the other strides lies in the window */
        if (reaches(search, first + 1, new_low, new_high))
            return true;
    }
    return false;
}

bool arrays_overlap(const struct array_place *a, const struct array_place *b)
{
    struct search search = {.count = 0};
    int64_t unit_a = (int64_t)clattn_dtype_bits(a->layout->dtype) / 4;
    int64_t unit_b = (int64_t)clattn_dtype_bits(b->layout->dtype) / 4;
    for (int32_t i = 0; i < a->layout->rank; i++)
        if (!a->extent[i])
            return false;
    for (int32_t i = 0; i < b->layout->rank; i++)
        if (!b->extent[i])
            return false;
    if (!add_array(&search, a, 1) || !add_array(&search, b, -1))
        return true;
    int64_t apart = (int64_t)(2 * (a->address - b->address)) + a->offset * unit_a - b->offset * unit_b;
    join_terms(&search);
    return reaches(&search, 0, 1 - unit_a - apart, unit_b - 1 - apart);
}

bool arrays_coincide(const struct array_place *a, const struct array_place *b)
{
    bool equal = a->address == b->address && a->offset == b->offset && a->layout->dtype == b->layout->dtype &&
                 a->layout->rank == b->layout->rank;
    for (int32_t i = 0; equal && i < a->layout->rank; i++)
        equal = a->extent[i] == b->extent[i] && (a->extent[i] <= 1 || a->layout->stride[i] == b->layout->stride[i]);
    return equal;
}
