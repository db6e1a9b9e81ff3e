/* Attention keeps its definition: masks of every shape, causality, scales, large logits, rows that attend nothing, and
 * what NaN and Inf may and may not reach.
 *
 * Holds: Meaning 1 (order, scale), 2 (masks), 3 (causality and alignment), 4 (masked rows), 5 (NaN, Inf and what cannot
 * leak), 6 (logits of ±1e4), 8 (nothing to do; refused scales) of docs/numerics.md. */
#include <float.h>
#include <math.h>

#include "support/attention/case.h"
#include "support/operator.h"

/* ---- masks: made from a list of extents, for both types ---- */

#define B 2
#define H 4
#define Q 35
#define K 67

static const struct {
    int rank;
    size_t extent[4];
} mask_shapes[] = {
    {4, {B, H, Q, K}}, {4, {1, H, Q, K}}, {4, {B, 1, Q, K}}, {4, {B, H, 1, K}},     {4, {B, H, Q, 1}},
    {4, {1, 1, 1, K}}, {4, {1, 1, 1, 1}}, {4, {B, 1, 1, K}}, {4, {1, H, 1, 1}},     {1, {K}},
    {2, {Q, K}},       {3, {H, 1, K}},    {2, {1, 2}},       {4, {B, 1, Q, K - 1}}, {1, {K - 33}},
};

static attention_case mask_cases[2 * COUNT_OF(mask_shapes)];

static size_t make_mask_cases(void)
{
    size_t count = 0;

    for (size_t n = 0; n < COUNT_OF(mask_shapes); n++) {
        for (mask_kind kind = MASK_BOOL; kind <= MASK_FLOAT; kind++) {
            attention_case made = {kind == MASK_BOOL ? "boolean mask" : "float mask", BIG, .dim = {B, H, 2, Q, K, 8, 8},
                                   .mask = kind, .mask_rank = mask_shapes[n].rank};
            for (int d = 0; d < made.mask_rank; d++) {
                made.mask_extent[d] = mask_shapes[n].extent[d];
            }
            mask_cases[count++] = made;
        }
    }
    return count;
}

static const attention_case masks[] = {
    {"boolean mask", TINY, .dim = {2, 2, 1, 5, 7, 8, 8}, .mask = MASK_BOOL},
    {"boolean mask of 3 keys", ALL, .dim = {2, 2, 1, 5, 7, 8, 8}, .mask = MASK_BOOL, .mask_rank = 2,
     .mask_extent = {1, 3}},
    {"float mask", TINY, .dim = {2, 2, 1, 5, 7, 8, 8}, .mask = MASK_FLOAT},
    {"float mask of 2 keys", ALL, .dim = {2, 2, 1, 5, 7, 8, 8}, .mask = MASK_FINITE, .mask_rank = 1,
     .mask_extent = {2}},
    {"mask for one key", ALL, .dim = {2, 2, 1, 5, 1, 8, 8}, .mask = MASK_BOOL, .mask_rank = 2, .mask_extent = {5, 1}},
    {"finite float mask", BIG, .dim = {2, 4, 4, 35, 67, 8, 8}, .mask = MASK_FINITE},
    {"mask with gaps", BIG, .dim = {2, 2, 2, 35, 67, 8, 8}, .mask = MASK_BOOL, .form.mask = FORM_PADDED},
    {"mask with gaps", ALL, .dim = {2, 2, 2, 5, 7, 8, 8}, .mask = MASK_FLOAT, .form.mask = FORM_SPREAD},
    {"mask backwards", BIG, .dim = {2, 2, 2, 35, 67, 8, 8}, .mask = MASK_FLOAT, .form.mask = FORM_MIRRORED},
    {"mask upside down", BIG, .dim = {2, 2, 2, 35, 67, 8, 8}, .mask = MASK_BOOL, .form.mask = FORM_FLIPPED},
    {"mask transposed", BIG, .dim = {2, 2, 2, 35, 67, 8, 8}, .mask = MASK_BOOL, .form.mask = FORM_TRANSPOSED},
    {"mask shared by stride", BIG, .dim = {2, 2, 2, 35, 67, 8, 8}, .mask = MASK_FLOAT, .form.mask = FORM_SHARED_ROWS},
};

/* ---- causality ---- */

#define CAUSAL(where, at) .causal = true, .alignment = CLATTN_ALIGNMENT_##where, .position = (at)

static const attention_case causal[] = {
    {"causal", ALL, .dim = {1, 2, 2, 9, 9, 8, 8}, CAUSAL(TOP_LEFT, 0)},
    {"causal", BIG, .dim = {1, 4, 2, 131, 131, 8, 8}, CAUSAL(TOP_LEFT, 0)},
    {"causal, more keys", ALL, .dim = {1, 2, 2, 5, 12, 8, 8}, CAUSAL(TOP_LEFT, 0)},
    {"causal, more queries", BIG, .dim = {1, 4, 4, 131, 35, 8, 8}, CAUSAL(TOP_LEFT, 0)},
    {"bottom-right", ALL, .dim = {1, 2, 2, 5, 12, 8, 8}, CAUSAL(BOTTOM_RIGHT, 0)},
    {"bottom-right", BIG, .dim = {1, 4, 4, 67, 201, 8, 8}, CAUSAL(BOTTOM_RIGHT, 0)},
    {"bottom-right, leading rows empty", ALL, .dim = {1, 2, 2, 12, 5, 8, 8}, CAUSAL(BOTTOM_RIGHT, 0)},
    {"bottom-right, leading tiles empty", BIG, .dim = {1, 4, 4, 201, 67, 8, 8}, CAUSAL(BOTTOM_RIGHT, 0)},
    {"bottom-right of the actual lengths", BIG, .dim = {2, 4, 4, 131, 201, 8, 8}, CAUSAL(BOTTOM_RIGHT, 0),
     .shorter = true, .actual = {2, 67, 70}},
    {"position 3", ALL, .dim = {1, 2, 2, 5, 12, 8, 8}, CAUSAL(EXPLICIT, 3)},
    {"position 64", BIG, .dim = {1, 4, 4, 67, 201, 8, 8}, CAUSAL(EXPLICIT, 64)},
    {"position -3", ALL, .dim = {1, 2, 2, 9, 9, 8, 8}, CAUSAL(EXPLICIT, -3)},
    {"position -65", BIG, .dim = {1, 4, 4, 131, 131, 8, 8}, CAUSAL(EXPLICIT, -65)},
    {"position before all", ALL, .dim = {1, 2, 2, 9, 9, 8, 8}, CAUSAL(EXPLICIT, -9)},
    {"position beyond all", ALL, .dim = {1, 2, 2, 9, 9, 8, 8}, CAUSAL(EXPLICIT, 100)},
    {"position INT64_MIN", ALL, .dim = {1, 2, 2, 3, 4, 8, 8}, CAUSAL(EXPLICIT, INT64_MIN)},
    {"position INT64_MAX", ALL, .dim = {1, 2, 2, 3, 4, 8, 8}, CAUSAL(EXPLICIT, INT64_MAX)},
    {"position without causality", ALL, .dim = {1, 2, 2, 5, 12, 8, 8}, .alignment = CLATTN_ALIGNMENT_EXPLICIT,
     .position = -100},
    {"causal with a boolean mask", ALL, .dim = {2, 2, 1, 9, 9, 8, 8}, CAUSAL(TOP_LEFT, 0), .mask = MASK_BOOL},
    {"causal with a boolean mask", BIG, .dim = {2, 4, 2, 70, 131, 8, 8}, CAUSAL(BOTTOM_RIGHT, 0), .mask = MASK_BOOL,
     .mask_rank = 2, .mask_extent = {1, 131}},
    {"causal with a float mask", BIG, .dim = {2, 4, 2, 70, 131, 8, 8}, CAUSAL(EXPLICIT, -7), .mask = MASK_FLOAT},
};

/* ---- scales and large logits ---- */

static const attention_case scales[] = {
    {"scale 0", ALL, .dim = {1, 2, 2, 5, 7, 8, 8}, .scaled = true, .scale = 0},
    {"scale -0", FULL, .dim = {1, 2, 2, 5, 7, 8, 8}, .scaled = true, .scale = -0.0f},
    {"scale 0 with a float mask", FULL, .dim = {2, 2, 2, 35, 67, 8, 8}, .scaled = true, .mask = MASK_FLOAT},
    {"scale 0 with NaN", BIG, .dim = {2, 2, 2, 35, 67, 8, 8}, .scaled = true, .inject = INJECT_KEY_NAN},
    {"negative scale", ALL, .dim = {1, 2, 2, 5, 7, 8, 8}, .scaled = true, .scale = -1.5f},
    {"negative scale", BIG, .dim = {2, 4, 4, 35, 201, 8, 8}, .scaled = true, .scale = -3},
    {"negative scale, boolean mask", FULL, .dim = {2, 4, 4, 35, 67, 8, 8}, .scaled = true, .scale = -3,
     .mask = MASK_BOOL},
    {"negative scale, causal", FULL, .dim = {2, 4, 4, 35, 67, 8, 8}, .scaled = true, .scale = -3,
     CAUSAL(BOTTOM_RIGHT, 0)},
    {"scale of an ordinary size", BIG, .dim = {2, 4, 4, 35, 67, 8, 8}, .scaled = true, .scale = 2.5f},
    {"smallest scale", BIG, .dim = {2, 4, 4, 35, 67, 8, 8}, .scaled = true, .scale = FLT_TRUE_MIN},
    {"logits near 1e4 and -1e4", ALL, .dim = {1, 2, 2, 6, 9, 8, 8}, .scaled = true, .scale = 1, .fill = FILL_HUGE},
    {"logits near 1e4 and -1e4", BIG, .dim = {2, 4, 4, 67, 201, 8, 8}, .scaled = true, .scale = 1, .fill = FILL_HUGE},
    {"logits near 1e4 and -1e4, masked", BIG, .dim = {2, 4, 4, 67, 201, 8, 8}, .scaled = true, .scale = 1,
     .fill = FILL_HUGE, .mask = MASK_BOOL},
    {"logits far apart", BIG, .dim = {2, 4, 4, 67, 201, 8, 8}, .scaled = true, .scale = 1, .fill = FILL_WILD},
    {"logits far apart, float mask", BIG, .dim = {2, 4, 4, 67, 201, 8, 8}, .scaled = true, .scale = 1,
     .fill = FILL_WILD, .mask = MASK_FLOAT},
};

/* ---- rows that attend nothing, and masks that are none ---- */

static const attention_case empty[] = {
    {"fully masked: all false", ALL, .dim = {1, 2, 2, 5, 7, 8, 8}, .mask = MASK_FALSE},
    {"fully masked: all false", BIG, .dim = {2, 4, 4, 67, 201, 8, 8}, .mask = MASK_FALSE, .mask_rank = 1,
     .mask_extent = {1}},
    {"fully masked: all -inf", ALL, .dim = {1, 2, 2, 5, 7, 8, 8}, .mask = MASK_INF},
    {"fully masked: all -inf", BIG, .dim = {2, 4, 4, 67, 201, 8, 8}, .mask = MASK_INF},
    {"all -1e4, equal scores: mean of V", ALL, .dim = {1, 2, 2, 5, 7, 8, 8}, .mask = MASK_MINUS_1E4,
     .fill = FILL_ZERO_QUERY},
    {"all -1e4, equal scores: mean of V", BIG, .dim = {2, 4, 4, 67, 201, 8, 8}, .mask = MASK_MINUS_1E4,
     .fill = FILL_ZERO_QUERY},
    {"all -FLT_MAX: mean of V", ALL, .dim = {1, 2, 2, 5, 7, 8, 8}, .mask = MASK_LOWEST},
    {"all -FLT_MAX: mean of V", BIG, .dim = {2, 4, 4, 67, 201, 8, 8}, .mask = MASK_LOWEST},
    {"all -FLT_MAX, negative scale", FULL, .dim = {1, 2, 2, 35, 67, 8, 8}, .mask = MASK_LOWEST, .scaled = true,
     .scale = -2},
    {"no keys at enqueue", ALL, .dim = {2, 2, 2, 5, 7, 8, 8}, .shorter = true, .actual = {2, 5, 0}},
    {"no keys at enqueue, masked", BIG, .dim = {2, 2, 2, 35, 67, 8, 8}, .shorter = true, .actual = {2, 35, 0},
     .mask = MASK_FLOAT},
    {"no keys, causal", BIG, .dim = {2, 2, 2, 35, 67, 8, 8}, .shorter = true, .actual = {2, 35, 0},
     CAUSAL(BOTTOM_RIGHT, 0)},
    {"no keys in the description", ALL, .dim = {2, 2, 2, 5, 0, 8, 8}},
    {"no batch", ALL, .dim = {0, 2, 2, 5, 7, 8, 8}},
    {"no heads", ALL, .dim = {1, 0, 0, 5, 7, 8, 8}},
    {"no queries", ALL, .dim = {1, 2, 2, 0, 7, 8, 8}},
    {"no batch at enqueue", ALL, .dim = {2, 2, 2, 5, 7, 8, 8}, .shorter = true, .actual = {0, 5, 7}},
    {"no queries at enqueue", ALL, .dim = {2, 2, 2, 5, 7, 8, 8}, .shorter = true, .actual = {2, 0, 7}},
};

/* ---- what cannot leak, and what must ---- */

static const attention_case leaks[] = {
    {"beyond the lengths", ALL, MASKED, .dim = {2, 2, 1, 6, 9, 8, 8}, SHORTER(1, 5, 7)},
    {"beyond the lengths", BIG, MASKED, .dim = {3, 4, 2, 131, 201, 8, 8}, SHORTER(2, 67, 97)},
    {"beyond the lengths", BIG, MASKED, .dim = {3, 4, 2, 131, 201, 8, 8}, SHORTER(3, 130, 65)},
    {"one query of many", BIG, MASKED, .dim = {3, 4, 2, 131, 201, 8, 8}, SHORTER(3, 1, 200)},
    {"one key of many", BIG, MASKED, .dim = {3, 4, 2, 131, 201, 8, 8}, SHORTER(1, 64, 1)},
    {"beyond the lengths, strided", BIG, MASKED, .dim = {2, 4, 2, 70, 101, 8, 8}, SHORTER(1, 33, 67),
     .form = {FORM_BSHD, FORM_TRANSPOSED, FORM_FLIPPED, FORM_BSHD, FORM_PLAIN}},
    {"beyond the lengths, boolean mask", ALL, MASKED, .dim = {2, 2, 1, 6, 9, 8, 8}, SHORTER(1, 5, 7),
     .mask = MASK_BOOL},
    {"beyond the lengths, float mask", BIG, MASKED, .dim = {3, 4, 2, 131, 201, 8, 8}, SHORTER(2, 67, 97),
     .mask = MASK_FLOAT},
    {"beyond the lengths, a shorter mask", BIG, MASKED, .dim = {3, 4, 2, 131, 201, 8, 8}, SHORTER(2, 67, 97),
     .mask = MASK_FLOAT, .mask_rank = 1, .mask_extent = {150}},
    {"boolean masked keys", ALL, MASKED, .dim = {2, 2, 1, 5, 7, 8, 8}, .mask = MASK_BOOL},
    {"boolean masked keys", BIG, MASKED, .dim = {2, 4, 2, 67, 201, 8, 8}, .mask = MASK_BOOL, .mask_rank = 2,
     .mask_extent = {1, 201}},
    {"boolean mask of fewer keys", BIG, MASKED, .dim = {2, 4, 2, 67, 201, 8, 8}, .mask = MASK_BOOL, .mask_rank = 1,
     .mask_extent = {100}},
    {"-inf masked keys", ALL, MASKED, .dim = {2, 2, 1, 5, 7, 8, 8}, .mask = MASK_FLOAT},
    {"-inf masked keys", BIG, MASKED, .dim = {2, 4, 2, 67, 201, 8, 8}, .mask = MASK_FLOAT},
    {"-inf masked keys, negative scale", FULL, MASKED, .dim = {2, 4, 2, 35, 67, 8, 8}, .mask = MASK_FLOAT,
     .scaled = true, .scale = -1},
    {"fully masked: all false", BIG, MASKED, .dim = {2, 4, 2, 35, 67, 8, 8}, .mask = MASK_FALSE},
    {"fully masked: all -inf", BIG, MASKED, .dim = {2, 4, 2, 35, 67, 8, 8}, .mask = MASK_INF},
    {"keys ahead of all queries", ALL, MASKED, .dim = {2, 2, 1, 5, 9, 8, 8}, CAUSAL(TOP_LEFT, 0)},
    {"keys ahead of all queries", BIG, MASKED, .dim = {2, 4, 2, 67, 201, 8, 8}, CAUSAL(EXPLICIT, 10)},
    {"keys ahead, boolean mask", BIG, MASKED, .dim = {2, 4, 2, 67, 201, 8, 8}, CAUSAL(EXPLICIT, 10), .mask = MASK_BOOL},
};

static const attention_case poisons[] = {
    {"NaN key", ALL, .dim = {2, 2, 1, 5, 7, 8, 8}, .inject = INJECT_KEY_NAN},
    {"NaN key", BIG, .dim = {2, 4, 2, 67, 201, 8, 8}, .inject = INJECT_KEY_NAN},
    {"NaN key, causal: later rows alone", ALL, .dim = {1, 2, 1, 9, 9, 8, 8}, CAUSAL(TOP_LEFT, 0),
     .inject = INJECT_KEY_NAN},
    {"NaN key, causal: later rows alone", BIG, .dim = {2, 4, 2, 131, 131, 8, 8}, CAUSAL(TOP_LEFT, 0),
     .inject = INJECT_KEY_NAN},
    {"NaN key, boolean mask: attending rows alone", BIG, .dim = {2, 4, 2, 67, 201, 8, 8}, .mask = MASK_BOOL,
     .inject = INJECT_KEY_NAN},
    {"NaN key, float mask: attending rows alone", BIG, .dim = {2, 4, 2, 67, 201, 8, 8}, .mask = MASK_FLOAT,
     .inject = INJECT_KEY_NAN},
    {"NaN key, negative scale", FULL, .dim = {2, 4, 2, 67, 201, 8, 8}, .scaled = true, .scale = -1,
     .inject = INJECT_KEY_NAN},
    {"infinite key: scores of +inf and -inf", ALL, .dim = {2, 2, 1, 5, 7, 8, 8}, .inject = INJECT_KEY_INF},
    {"infinite key: scores of +inf and -inf", BIG, .dim = {2, 4, 2, 67, 201, 8, 8}, .inject = INJECT_KEY_INF},
    {"infinite key, float mask", BIG, .dim = {2, 4, 2, 67, 201, 8, 8}, .inject = INJECT_KEY_INF, .mask = MASK_FINITE},
    {"infinite key, negative scale", FULL, .dim = {2, 4, 2, 67, 201, 8, 8}, .scaled = true, .scale = -1,
     .inject = INJECT_KEY_INF},
    {"NaN value: its column alone", ALL, .dim = {2, 2, 1, 5, 7, 8, 8}, .inject = INJECT_VALUE_NAN},
    {"NaN value: its column alone", BIG, .dim = {2, 4, 2, 67, 201, 8, 8}, .inject = INJECT_VALUE_NAN},
    {"infinite value: its column alone", ALL, .dim = {2, 2, 1, 5, 7, 8, 8}, .inject = INJECT_VALUE_INF},
    {"infinite value: its column alone", BIG, .dim = {2, 4, 2, 67, 201, 8, 8}, .inject = INJECT_VALUE_INF},
    {"NaN query: its row alone", ALL, .dim = {2, 2, 1, 5, 7, 8, 8}, .inject = INJECT_QUERY_NAN},
    {"NaN query: its row alone", BIG, .dim = {2, 4, 2, 67, 201, 8, 8}, .inject = INJECT_QUERY_NAN},
    {"NaN query, nothing attended", BIG, .dim = {2, 4, 2, 35, 67, 8, 8}, .inject = INJECT_QUERY_NAN,
     .mask = MASK_FALSE},
    {"NaN in a float mask", ALL, .dim = {2, 2, 1, 5, 7, 8, 8}, .mask = MASK_FINITE, .inject = INJECT_MASK_NAN},
    {"NaN in a float mask", BIG, .dim = {2, 4, 2, 67, 201, 8, 8}, .mask = MASK_FLOAT, .inject = INJECT_MASK_NAN},
    {"+inf in a float mask", BIG, .dim = {2, 4, 2, 67, 201, 8, 8}, .mask = MASK_FLOAT, .inject = INJECT_MASK_INF},
};

/* ---- refusals ---- */

static void refused_scales(void **state)
{
    static const float refused[] = {NAN, INFINITY, -INFINITY};
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;

    (void)state;
    desc.query = desc.key = desc.value = desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, 4, 8);
    desc.scoring.explicit_scale = 1;
    for (size_t i = 0; i < COUNT_OF(refused); i++) {
        desc.scoring.scale = refused[i];
        operator_answers(&attention_operator, &desc, CLATTN_ERROR_INVALID_ARGUMENT);
    }
    desc.scoring.explicit_scale = 0; /* scale is then ignored */
    operator_answers(&attention_operator, &desc, CLATTN_SUCCESS);
}

int main(int argc, char **argv)
{
    attention_add(mask_cases, make_mask_cases());
    attention_add(masks, COUNT_OF(masks));
    attention_add(causal, COUNT_OF(causal));
    attention_add(scales, COUNT_OF(scales));
    attention_add(empty, COUNT_OF(empty));
    attention_add(leaks, COUNT_OF(leaks));
    attention_add(poisons, COUNT_OF(poisons));
    suite_add(refused_scales, "attention: NaN and infinite scales are refused");
    return suite_run("attention rules", argc, argv);
}
