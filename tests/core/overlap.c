/* Two strided arrays overlap exactly when marking every element's bytes of both says so. */
#include <stdlib.h>
#include <string.h>

#include "base/layout.h"
#include "support/check.h"

#define SPAN 24576 /* the range that random arrays reach, in units of four bits */

static uint32_t random_state = 20261123;

static int64_t draw(int64_t least, int64_t most)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return least + (int64_t)(random_state % (uint32_t)(most - least + 1));
}

static clattn_layout draw_layout(void)
{
    static const clattn_dtype dtypes[] = {CLATTN_DTYPE_I4,  CLATTN_DTYPE_I8,  CLATTN_DTYPE_F16,
                                          CLATTN_DTYPE_F32, CLATTN_DTYPE_F32, CLATTN_DTYPE_F64};
    clattn_layout layout = {.dtype = dtypes[draw(0, 5)], .rank = (int32_t)draw(1, CLATTN_MAX_RANK)};
    const int64_t scale = draw(0, 2) ? draw(1, 7) : 1;
    for (int32_t i = 0; i < layout.rank; i++) {
        layout.extent[i] = (size_t)draw(draw(0, 20) ? 1 : 0, layout.rank > 3 ? 3 : 5);
        layout.stride[i] = draw(0, 3) ? scale * draw(-5, 7) : draw(-30, 30);
    }
    return layout;
}

/* Marks the units of each element; returns true if another array has marked one of them. */
static bool mark(unsigned char *units, const clattn_layout *layout, int64_t offset, unsigned char by)
{
    bool met = false;
    const size_t count = layout_elements(layout), width = clattn_dtype_bits(layout->dtype) / 4;
    for (size_t n = 0; n < count; n++) {
        int64_t at = offset;
        size_t rest = n;
        for (int32_t i = layout->rank - 1; i >= 0; i--) {
            at += (int64_t)(rest % layout->extent[i]) * layout->stride[i];
            rest /= layout->extent[i];
        }
        for (size_t u = 0; u < width; u++) {
            unsigned char *unit = &units[SPAN / 2 + at * (int64_t)width + (int64_t)u];
            met = met || (*unit && *unit != by);
            *unit = by;
        }
    }
    return met;
}

static void random_layouts_agree_with_marks(void **state)
{
    static unsigned char units[SPAN];
    int overlapping = 0, cases = 200000;
    (void)state;
    for (int n = 0; n < cases; n++) {
        const clattn_layout a = draw_layout(), b = draw_layout();
        const int64_t offset_a = draw(-20, 20), offset_b = draw(-20, 20) * (draw(0, 3) ? 1 : 8) % 30;
        memset(units, 0, sizeof units);
        mark(units, &a, offset_a, 1);
        const bool expected = mark(units, &b, offset_b, 2);
        const struct array_place place_a = {&a, a.extent, 0, offset_a}, place_b = {&b, b.extent, 0, offset_b};
        overlapping += expected;
        if (arrays_overlap(&place_a, &place_b) != expected || arrays_overlap(&place_b, &place_a) != expected)
            fail_msg("case %d: %s", n, expected ? "an overlap is missed" : "an overlap is seen that is none");
    }
    assert_in_range(overlapping, cases / 10, cases * 9 / 10);
}

/* Layouts that models use are too large to be marked. */
static void layouts_of_models(void **state)
{
    enum { B = 64, H = 128, S = 4096, D = 128, W = H * D };
    const clattn_layout head_of_qkv = {CLATTN_DTYPE_F16, 4, {B, H, S, D}, {(int64_t)S * 3 * W, D, 3 * (int64_t)W, 1}};
    const clattn_layout columns = {CLATTN_DTYPE_F32, 2, {1000000, 500}, {1536, 1}};
    const clattn_layout even = {CLATTN_DTYPE_BF16, 3, {1000, 77, 4096}, {77 * 8192, 8192, 2}};
    const clattn_layout cache = {CLATTN_DTYPE_I8, 4, {B, H, 2 * S, D}, {2 * (int64_t)S * W, 2 * S * D, D, 1}};
    const clattn_layout reversed = {CLATTN_DTYPE_F32, 2, {100, 100}, {-100, -1}};
    const clattn_layout halves = {CLATTN_DTYPE_F16, 2, {100, 100}, {200, 2}};
    const clattn_layout broadcast = {CLATTN_DTYPE_F32, 2, {1 << 30, 8}, {0, 1}};
    const clattn_layout one = {CLATTN_DTYPE_F32, 1, {1}, {1}};
    const struct {
        const clattn_layout *a, *b;
        int64_t apart; /* distance of b's first element from a's, in elements of b */
        bool overlap;
    } cases[] = {
        {&head_of_qkv, &head_of_qkv, W, false},
        {&head_of_qkv, &head_of_qkv, 2 * W, false},
        {&head_of_qkv, &head_of_qkv, W - 1, true},
        {&head_of_qkv, &head_of_qkv, 3 * (int64_t)W * S * B, false},
        {&head_of_qkv, &head_of_qkv, 3 * (int64_t)W * S * B - 3 * W + 1, true},
        {&columns, &columns, 500, false},
        {&columns, &columns, 1036, false},
        {&columns, &columns, 499, true},
        {&columns, &columns, 1037, true},
        {&columns, &columns, -500, false},
        {&even, &even, 1, false},
        {&even, &even, 2, true},
        {&even, &even, 77 * 8192 * 3 + 1, false},
        {&cache, &cache, 2 * (int64_t)S * W * B, false},
        {&cache, &cache, 2 * (int64_t)S * W * B - 1, true},
        {&cache, &cache, (int64_t)S * D, true},
        {&reversed, &one, 0, true},
        {&reversed, &one, 1, false},
        {&reversed, &one, -9999, true},
        {&reversed, &one, -10000, false},
        {&halves, &one, 0, true},
        {&broadcast, &one, 7, true},
        {&broadcast, &one, 8, false},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct array_place a = {cases[i].a, cases[i].a->extent, 0, 0};
        const struct array_place b = {cases[i].b, cases[i].b->extent, 0, cases[i].apart};
        if (arrays_overlap(&a, &b) != cases[i].overlap)
            fail_msg("case %zu", i);
    }
}

/* Addresses of shared virtual memory count in bytes; an array of half the size may or may not lie in the gaps of the
 * other. */
static void addresses_count_in_bytes(void **state)
{
    const clattn_layout wide = {CLATTN_DTYPE_F32, 1, {8}, {2}}, narrow = {CLATTN_DTYPE_F16, 1, {8}, {4}};
    const uint64_t base = 0x7f0012345000;
    (void)state;
    for (uint64_t bytes = 0; bytes < 8; bytes++) {
        const struct array_place a = {&wide, wide.extent, base, 0}, b = {&narrow, narrow.extent, base + bytes, 0};
        assert_int_equal(arrays_overlap(&a, &b), bytes < 4 || bytes > 6);
        assert_int_equal(arrays_overlap(&b, &a), bytes < 4 || bytes > 6);
    }
}

/* Arrays that no memory can hold, and pairs that would take too long to compare, count as overlapping. */
static void what_cannot_be_told_overlaps(void **state)
{
    const clattn_layout far = {CLATTN_DTYPE_F64, 2, {2, 2}, {INT64_MAX / 16, 1}};
    const clattn_layout a = {CLATTN_DTYPE_I8, 5, {999, 997, 991, 983, 977}, {30030, 39270, 46410, 53130, 66990}};
    const clattn_layout b = {CLATTN_DTYPE_I8, 5, {999, 997, 991, 983, 977}, {72930, 81510, 90090, 98670, 106260}};
    const struct array_place far_place = {&far, far.extent, 0, 0}, place_a = {&a, a.extent, 0, 0};
    const struct array_place place_b = {&b, b.extent, 0, 5};
    (void)state;
    assert_true(arrays_overlap(&far_place, &far_place));
    assert_false(arrays_overlap(&place_a, &place_b)); /* all strides are multiples of 30, and 5 is not */
}

static void arrays_coincide_by_layout_and_place(void **state)
{
    const clattn_layout rows = {CLATTN_DTYPE_F32, 2, {4, 6}, {8, 1}}, same = {CLATTN_DTYPE_F32, 2, {4, 6}, {8, 1}};
    const clattn_layout dense = {CLATTN_DTYPE_F32, 2, {4, 6}, {6, 1}}, half = {CLATTN_DTYPE_F16, 2, {4, 6}, {8, 1}};
    const clattn_layout column = {CLATTN_DTYPE_F32, 2, {4, 1}, {8, 1}}, again = {CLATTN_DTYPE_F32, 2, {4, 1}, {8, 77}};
    const struct {
        const clattn_layout *a, *b;
        int64_t offset;
        bool coincide;
    } cases[] = {{&rows, &same, 0, true},  {&rows, &same, 1, false},   {&rows, &dense, 0, false},
                 {&rows, &half, 0, false}, {&column, &again, 0, true}, {&rows, &column, 0, false}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct array_place a = {cases[i].a, cases[i].a->extent, 64, 0};
        const struct array_place b = {cases[i].b, cases[i].b->extent, 64, cases[i].offset};
        assert_int_equal(arrays_coincide(&a, &b), cases[i].coincide);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_layouts_agree_with_marks),
        cmocka_unit_test(layouts_of_models),
        cmocka_unit_test(addresses_count_in_bytes),
        cmocka_unit_test(what_cannot_be_told_overlaps),
        cmocka_unit_test(arrays_coincide_by_layout_and_place),
    };
    return cmocka_run_group_tests_name("overlap", tests, NULL, NULL);
}
