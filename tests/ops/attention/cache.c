/* Attention's keys, values and queries may lie in packed sequences, ring buffers, paged caches, and int8 and int4
 * arrays with scales.
 *
 * Holds: what include/clattn/attention.h says of query_starts to value_scale: each item's own rows alone count and are
 * written, whatever the rest holds; numbers on the device that are out of range are clamped (that nothing is addressed
 * then that is not there, Oclgrind holds). */
#include "support/attention/case.h"

/* ---- packed sequences: three items unless said otherwise ---- */

#define STARTS(q, k) .list.query_starts = q, .list.key_starts = k

static const attention_case packed[] = {
    {"packed", ALL, MASKED, .dim = {3, 2, 1, 9, 14, 8, 8}, STARTS(LIST(0, 4, 4, 9), LIST(0, 5, 7, 14))},
    {"packed", BIG | TILE, MASKED, .dim = {3, 4, 2, 150, 260, 8, 8}, .longest = 70,
     STARTS(LIST(0, 66, 80, 150), LIST(0, 100, 101, 260))},
    {"packed, other rows in between", ALL, MASKED, .dim = {2, 2, 1, 9, 14, 8, 8},
     STARTS(LIST(1, 4, 7), LIST(2, 3, 12))},
    {"packed, a shorter batch", BIG, MASKED, .dim = {3, 4, 2, 150, 260, 8, 8}, .longest = 70,
     STARTS(LIST(0, 66, 80, 150), LIST(0, 100, 101, 260)), SHORTER(2, 70, 260)},
    {"packed, starts out of range", ALL, .dim = {4, 2, 1, 9, 14, 8, 8},
     STARTS(LIST(INT32_MIN, -1, 3, INT32_MAX, INT32_MAX), LIST(-7, 5, 5, 14, INT32_MAX))},
    {"packed, key starts that fall", ALL, .dim = {3, 2, 1, 9, 14, 8, 8},
     STARTS(LIST(0, 4, 4, 9), LIST(13, 2, 7, INT32_MIN))},
    {"packed, causal, bottom-right", ALL, MASKED, .dim = {3, 2, 1, 9, 14, 8, 8}, .causal = true, AT(BOTTOM_RIGHT, 0),
     STARTS(LIST(0, 4, 4, 9), LIST(0, 5, 7, 14))},
    {"packed, causal, bottom-right", BIG, MASKED, .dim = {3, 4, 2, 150, 260, 8, 8}, .longest = 70, .causal = true,
     AT(BOTTOM_RIGHT, 0), STARTS(LIST(0, 66, 80, 150), LIST(0, 100, 101, 260))},
    {"packed, with lengths, mask and entropy", ALL, MASKED, .dim = {3, 2, 1, 9, 14, 8, 8}, .longest = 6,
     .mask = MASK_BOOL, .entropy = true, .type.integers = CLATTN_DTYPE_I64,
     .list = {.queries = LIST(2, 3, 9),
              .keys = LIST(4, 9, 5),
              .query_starts = LIST(0, 4, 4, 9),
              .key_starts = LIST(0, 5, 7, 14)}},
    {"packed, with lengths, mask and entropy", BIG, MASKED, .dim = {3, 4, 2, 150, 260, 8, 8}, .longest = 70,
     .mask = MASK_BOOL, .entropy = true, .type.integers = CLATTN_DTYPE_I64,
     .list = {.queries = LIST(50, 30, 70),
              .keys = LIST(99, 0, 120),
              .query_starts = LIST(0, 66, 80, 150),
              .key_starts = LIST(0, 100, 101, 260)}},
    {"packed queries, keys by item", ALL, MASKED, .dim = {3, 2, 1, 9, 7, 8, 8}, .longest = 5,
     .list = {.query_starts = LIST(0, 4, 4, 9), .keys = LIST(3, 7, 5)}},
    {"packed queries, keys by item, bias, ALiBi, dropout", BIG, MASKED, .dim = {3, 4, 2, 150, 131, 8, 8}, .longest = 70,
     .bias = MASK_FLOAT, .alibi = 2, .dropout = 0.4f, .seed = 3,
     .list = {.query_starts = LIST(0, 66, 80, 150), .keys = LIST(131, 7, 64)}},
    {"packed keys, queries by item", ALL, MASKED, .dim = {3, 2, 1, 5, 14, 8, 8},
     .list = {.key_starts = LIST(0, 5, 7, 14), .queries = LIST(5, 0, 3)}},
};

/* ---- rings: S_k is what the ring holds ---- */

#define RING .cache = CLATTN_CACHE_KIND_RING

static const attention_case rings[] = {
    {"ring, not yet full", ALL, MASKED, RING, .dim = {2, 2, 1, 3, 8, 8, 8}, SHORTER(2, 3, 5)},
    {"ring, just full", ALL, RING, .dim = {2, 2, 1, 3, 8, 8, 8}, SHORTER(2, 3, 8)},
    {"ring, gone round", ALL, RING, .dim = {2, 2, 1, 3, 8, 8, 8}, SHORTER(2, 3, 29)},
    {"ring, gone round", BIG | TILE, RING, .dim = {2, 4, 2, 35, 67, 8, 8}, SHORTER(2, 35, 1000)},
    {"ring of one key", BIG, RING, .dim = {2, 2, 1, 3, 1, 8, 8}, SHORTER(2, 3, 7)},
    {"ring, no keys yet", ALL, MASKED, RING, .dim = {2, 2, 1, 3, 8, 8, 8}, SHORTER(2, 3, 0)},
    {"ring by item, as far as the lengths say", ALL, MASKED, RING, .dim = {4, 2, 1, 3, 8, 8, 8}, .causal = true,
     AT(BOTTOM_RIGHT, 0), .list.keys = LIST(4, 8, 13, 3000)},
    {"ring by item, whatever key_length says", ALL, MASKED, RING, .dim = {4, 2, 1, 3, 8, 8, 8}, .causal = true,
     AT(BOTTOM_RIGHT, 0), .list.keys = LIST(4, 8, 13, 3000), SHORTER(3, 2, 8)},
    {"ring by item, no key_length", BIG, MASKED, RING, .dim = {4, 2, 1, 3, 8, 8, 8}, .list.keys = LIST(4, 0, 13, 3000),
     SHORTER(4, 3, 0)},
    {"ring by item, causal, window, bottom-right", ALL, MASKED, RING, .dim = {4, 2, 1, 3, 8, 8, 8}, .causal = true,
     .windowed = true, .left = 5, .right = -1, AT(BOTTOM_RIGHT, 0), .list.keys = LIST(4, 8, 9, 30), SHORTER(4, 3, 30)},
    {"ring by item, causal, window, bottom-right", BIG, MASKED, RING, .dim = {4, 4, 2, 9, 67, 8, 8}, .causal = true,
     .windowed = true, .left = 40, .right = -1, AT(BOTTOM_RIGHT, 0), .list.keys = LIST(4, 67, 70, 500),
     SHORTER(4, 9, 500)},
    {"ring by item, ALiBi, sinks, mask and bias of one key", BIG, MASKED, RING, .dim = {4, 4, 2, 9, 67, 8, 8},
     .alibi = 1, .sinks = true, AT(EXPLICIT, 60), .list.keys = LIST(4, 67, 70, 500), SHORTER(4, 9, 500),
     .mask = MASK_BOOL, .mask_rank = 4, .mask_extent = {4, 1, 9, 1}, .bias = MASK_FINITE, .bias_rank = 2,
     .bias_extent = {9, 1}},
    {"ring, dropout", BIG, RING, .dim = {2, 4, 2, 9, 67, 8, 8}, .dropout = 0.5f, .seed = 11, SHORTER(2, 9, 202)},
};

/* ---- pages ---- */

static const attention_case pages[] = {
    {"paged", ALL, MASKED, PAGED(11, 4), .dim = {2, 2, 1, 3, 16, 8, 8}, .list.keys = LIST(15, 6)},
    {"paged, pages of 16", BIG | TILE, MASKED, PAGED(41, 16), .dim = {4, 4, 2, 35, 144, 8, 8},
     .list.keys = LIST(131, 0, 16, 144)},
    {"paged, shorter", BIG, MASKED, PAGED(41, 16), .dim = {4, 4, 2, 35, 144, 8, 8}, .list.keys = LIST(131, 0, 16, 144),
     SHORTER(3, 20, 100)},
    {"paged, shared pages", ALL, MASKED, PAGED(3, 4), .dim = {2, 2, 1, 3, 8, 8, 8}, .list.keys = LIST(8, 7),
     .table = LIST(1, 0, 1, 2)},
    {"paged, pages out of range", ALL, PAGED(3, 4), .dim = {2, 2, 1, 3, 12, 8, 8}, .list.keys = LIST(12, 11),
     .table = LIST(-1, 3, 1, INT32_MAX, INT32_MIN, 2)},
    {"paged, lengths out of range", ALL, PAGED(11, 4), .dim = {2, 2, 1, 3, 16, 8, 8}, .list.keys = LIST(INT32_MAX, -4)},
    {"paged, pages out of int32", BIG, PAGED(3, 4), .dim = {2, 2, 1, 3, 12, 8, 8}, .list.keys = LIST(12, 11),
     .type.integers = CLATTN_DTYPE_I64, .table = LIST(((int64_t)1 << 40) + 1, 2, INT64_MIN, (int64_t)1 << 62, 0, -1)},
    {"paged, packed queries, causal, bottom-right", ALL, MASKED, PAGED(11, 4), .dim = {3, 2, 1, 9, 12, 8, 8},
     .longest = 5, .causal = true, AT(BOTTOM_RIGHT, 0),
     .list = {.query_starts = LIST(0, 4, 5, 9), .keys = LIST(12, 1, 7)}},
    {"paged, packed queries, causal, bottom-right", BIG | TILE, MASKED, PAGED(41, 16), .dim = {3, 4, 2, 150, 160, 8, 8},
     .longest = 70, .causal = true, AT(BOTTOM_RIGHT, 0),
     .list = {.query_starts = LIST(0, 66, 80, 150), .keys = LIST(131, 14, 160)}},
    {"paged by 5, mask, bias, ALiBi, window, (page, row, head, size)", BIG, MASKED, PAGED(31, 5),
     .dim = {2, 4, 2, 35, 70, 8, 8}, .mask = MASK_BOOL, .bias = MASK_FLOAT, .alibi = 2, .windowed = true, .left = 30,
     .right = 20, .list.keys = LIST(67, 70), .form = {.key = FORM_BSHD, .value = FORM_BSHD}},
    {"paged by 1", BIG, MASKED, PAGED(31, 1), .dim = {2, 2, 2, 5, 15, 8, 8}, .list.keys = LIST(13, 15)},
    {"paged, one query of each item, int64", BIG, MASKED, PAGED(41, 16), .dim = {4, 8, 2, 1, 144, 8, 8},
     .list.keys = LIST(131, 1, 17, 144), .type.integers = CLATTN_DTYPE_I64},
};

/* ---- int8 and int4 ---- */

#define QUANTISED(type_, k, v) \
    .type.key = CLATTN_DTYPE_##type_, .type.value = CLATTN_DTYPE_##type_, .key_groups = (k), .value_groups = (v)

static const attention_case quantised[] = {
    {"int8", ALL, QUANTISED(I8, 1, 1), .dim = {2, 2, 1, 5, 9, 8, 8}},
    {"int8", BIG | TILE, QUANTISED(I8, 1, 1), .dim = {2, 4, 2, 35, 131, 8, 8}, MASKED, SHORTER(2, 33, 100)},
    {"int8, one scale", BIG, QUANTISED(I8, 1, 1), .dim = {2, 4, 2, 35, 67, 8, 8}, .scale_form = FORM_SHARED_ROWS},
    {"int8, strided", BIG, QUANTISED(I8, 1, 1), .dim = {2, 4, 2, 35, 67, 8, 8}, .scale_form = FORM_SPREAD,
     .form = {.key = FORM_TRANSPOSED, .value = FORM_FLIPPED}},
    {"int8, groups of 4 and of 8", BIG, QUANTISED(I8, 6, 5), .dim = {1, 2, 1, 35, 67, 24, 40},
     .scale_form = FORM_SPREAD},
    {"int4", ALL, QUANTISED(I4, 2, 4), .dim = {2, 2, 1, 5, 9, 8, 8}},
    {"int4", BIG | TILE, QUANTISED(I4, 2, 4), .dim = {2, 4, 2, 35, 131, 8, 8}, MASKED, SHORTER(2, 33, 100)},
    {"int4, strided", BIG, QUANTISED(I4, 2, 4), .dim = {2, 4, 2, 35, 67, 8, 8}, .scale_form = FORM_BSHD,
     .form = {.key = FORM_PADDED, .value = FORM_SPREAD}},
    {"int4, transposed and backwards", BIG, QUANTISED(I4, 2, 4), .dim = {2, 4, 2, 35, 67, 8, 8},
     .scale_form = FORM_MIRRORED, .form = {.key = FORM_MIRRORED, .value = FORM_TRANSPOSED}},
    {"int4, odd sizes, a scale an element", ALL, QUANTISED(I4, 7, 3), .dim = {2, 2, 1, 5, 9, 7, 3}},
    {"int8 keys, float16 values, mask, causal", BIG, .type = {.key = CLATTN_DTYPE_I8, .value = CLATTN_DTYPE_F16},
     .key_groups = 4, .dim = {2, 4, 2, 35, 67, 8, 8}, .mask = MASK_BOOL, .causal = true, MASKED},
    {"bfloat16 keys, int4 values, float16 scales", BIG,
     .type = {.key = CLATTN_DTYPE_BF16,
              .value = CLATTN_DTYPE_I4,
              .value_scale = CLATTN_DTYPE_F16,
              .output = CLATTN_DTYPE_BF16},
     .value_groups = 2, .dim = {2, 4, 2, 35, 67, 8, 8}},
    {"int4 keys, additive, dropout", BIG, .type.key = CLATTN_DTYPE_I4, .key_groups = 2, .additive = true,
     .dropout = 0.1f, .dim = {2, 4, 2, 35, 67, 8, 8}},
    {"int8, paged, causal, bottom-right", ALL, QUANTISED(I8, 2, 1), PAGED(11, 4), .dim = {2, 2, 1, 3, 16, 8, 8},
     .list.keys = LIST(15, 6), .causal = true, AT(BOTTOM_RIGHT, 0), MASKED},
    {"int8, paged, causal, bottom-right", BIG, QUANTISED(I8, 2, 1), PAGED(41, 4), .dim = {4, 8, 2, 3, 40, 8, 8},
     .list.keys = LIST(33, 0, 16, 40), .causal = true, AT(BOTTOM_RIGHT, 0), MASKED},
    {"int4, ring, sinks", BIG, QUANTISED(I4, 1, 1), RING, .dim = {4, 4, 2, 9, 67, 8, 8}, .sinks = true,
     .list.keys = LIST(4, 67, 70, 500), SHORTER(4, 9, 500), MASKED},
    {"int8, packed", BIG, QUANTISED(I8, 8, 8), .dim = {3, 4, 2, 150, 260, 8, 8}, .longest = 70,
     STARTS(LIST(0, 66, 80, 150), LIST(0, 100, 101, 260)), MASKED},
    {"int8, head size 64", FULL, QUANTISED(I8, 4, 4), .dim = {1, 2, 1, 70, 131, 64, 64}},
    {"int4, head size 128", FULL, QUANTISED(I4, 4, 2), .dim = {1, 2, 1, 70, 131, 128, 64}},
};

/* A ring may have counted far more keys than any buffer holds; equal rows then give equal results. */
static void long_ring(const void *which, const char *solver)
{
    static const attention_case test = {"ring", ALL, RING, .dim = {2, 2, 1, 3, 8, 8, 8}, SHORTER(2, 3, 29)};
    test_job job = {0};

    (void)which;
    if (attention_job(&job, &test, solver, 1)) {
        job.args.attention.key_length += (size_t)8 << 27;
        job_run(&job, NULL);
        attention_judge(&job, &test);
    }
    job_release(&job);
}

int main(int argc, char **argv)
{
    attention_add_frugal(packed, COUNT_OF(packed));
    attention_add_frugal(rings, COUNT_OF(rings));
    attention_add_frugal(pages, COUNT_OF(pages));
    attention_add_frugal(quantised, COUNT_OF(quantised));
    for (int n = 0; n < ATTENTION_SOLVERS; n++) {
        suite_add_case(long_ring, NULL, attention_solvers[n], "attention %s: ring after 2^30 keys",
                       attention_solvers[n]);
    }
    return suite_run("attention caches", argc, argv);
}
