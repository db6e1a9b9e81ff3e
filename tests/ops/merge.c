/* Merged partials agree with the definition in double precision, for -inf and NaN, storage types, strides and lengths;
 * guard bands stay; two parts of the keys that are attended and merged give what one attention gives.
 *
 * Holds: include/clattn/merge.h, and docs/numerics.md about large values. */
#include "support/ops/merge_case.h"

#define DIMS(n, b, h, s, d) .partials = (n), .batch = (b), .heads = (h), .queries = (s), .columns = (d)

static const merge_case cases[] = {
    {"one part", ALL, DIMS(1, 1, 2, 3, 5), .lse = true},
    {"several partials", ALL, DIMS(3, 2, 2, 5, 8), .lse = true},
    {"no partials", ALL, DIMS(0, 1, 2, 3, 5), .lse = true},
    {"no queries", ALL, DIMS(3, 1, 2, 0, 5), .lse = true},
    {"without lse", ALL, DIMS(3, 2, 2, 5, 8)},
    {"sinks", ALL, DIMS(3, 2, 2, 5, 8), .sinks = true, .lse = true},
    {"sinks, without lse", ALL, DIMS(2, 1, 3, 2, 7), .sinks = true},
    {"sinks, a NaN in one", ALL, DIMS(3, 2, 2, 5, 8), .sinks = true, .nan_sink = true, .lse = true},
    {"many partials, many columns", BIG, DIMS(40, 1, 2, 3, 200), .sinks = true, .lse = true},
    {"gaps", ALL, DIMS(4, 2, 3, 3, 9), .sinks = true, .lse = true, .partial = FORM_PADDED, .output = FORM_PADDED},
    {"columns apart", BIG, DIMS(4, 2, 3, 3, 9), .lse = true, .partial = FORM_SPREAD, .output = FORM_SPREAD},
    {"columns backwards", BIG, DIMS(4, 2, 3, 3, 9), .lse = true, .partial = FORM_MIRRORED, .output = FORM_TRANSPOSED},
    {"fewer partials than planned", ALL, DIMS(5, 2, 2, 3, 8), .lse = true, .explicit_lengths = true,
     .actual_partials = 2, .actual_batch = 2, .actual_queries = 3},
    {"a smaller batch, fewer queries", BIG, DIMS(3, 3, 2, 5, 8), .lse = true, .explicit_lengths = true,
     .actual_partials = 3, .actual_batch = 2, .actual_queries = 4},
    {"no batch at enqueue", BIG, DIMS(3, 3, 2, 5, 8), .lse = true, .explicit_lengths = true, .actual_partials = 3,
     .actual_batch = 0, .actual_queries = 5},
    {"partials near FLT_MAX", ALL, DIMS(7, 2, 2, 5, 8), .lse = true, .spread = 3.4e38f},
    {"float16", MORE, DIMS(3, 2, 2, 5, 8), .lse = true, .type = CLATTN_DTYPE_F16},
    {"bfloat16", MORE, DIMS(3, 2, 2, 5, 8), .sinks = true, .type = CLATTN_DTYPE_BF16},
};

/* Two attentions over the first and the last keys are merged and agree with one over all keys. */
static void parts_of_the_keys_merge_to_the_whole(void **state)
{
    enum { HEADS = 2, QUERIES = 5, KEYS = 23, D = 8, FIRST = 9, ROWS = HEADS * QUERIES };
    static const size_t partials[5] = {2, 1, HEADS, QUERIES, D}, *rows = partials + 1, keys[4] = {1, HEADS, KEYS, D};
    float q[ROWS * D], k[HEADS * KEYS * D], v[HEADS * KEYS * D], whole[ROWS * D], merged[ROWS * D];
    clattn_attention_desc attention = CLATTN_ATTENTION_DESC_INIT;
    clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT;
    clattn_merge_desc merge = CLATTN_MERGE_DESC_INIT;
    test_job job = {.args.merge = CLATTN_MERGE_ARGS_INIT};

    (void)state;
    fill_floats(q, ROWS * D, 1);
    fill_floats(k, HEADS * KEYS * D, 2);
    fill_floats(v, HEADS * KEYS * D, 3);
    expected_attention(HEADS, QUERIES, KEYS, D, D, false, q, k, v, whole);
    test_array query = job_floats(&job, 4, rows, q), key = job_floats(&job, 4, keys, k);
    test_array value = job_floats(&job, 4, keys, v);
    test_array partial = job_array(&job, ROLE_IN_PLACE, CLATTN_DTYPE_F32, 5, partials, FORM_PLAIN);
    test_array lse = job_array(&job, ROLE_IN_PLACE, CLATTN_DTYPE_F32, 4, partials, FORM_PLAIN);
    array_bind(&partial, &merge.partial, &job.args.merge.partial);
    array_bind(&lse, &merge.partial_lse, &job.args.merge.partial_lse);
    array_bind(job_output(&job, 4, rows), &merge.output, &job.args.merge.output);
    for (int part = 0; part < 2; part++) {
        array_bind(&query, &attention.query, &args.query);
        array_bind(&key, &attention.key, &args.key);
        array_bind(&value, &attention.value, &args.value);
        attention.key.extent[2] = attention.value.extent[2] = part ? KEYS - FIRST : FIRST;
        attention.output = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, rows);
        attention.outputs.lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, rows);
        args.output = array_binding(&partial);
        args.outputs.lse = array_binding(&lse);
        args.key.offset += part * FIRST * D;
        args.value.offset += part * FIRST * D;
        args.output.offset += part * ROWS * D;
        args.outputs.lse.offset += part * ROWS;
        assert_status(device_context(), clattn_attention_run(device_context(), NULL, &attention, &args, 0, NULL, NULL),
                      CLATTN_SUCCESS);
    }
    job_run_once(&job, &merge_operator, &merge);
    job_copy_output(&job, merged);
    assert_true(largest_difference(merged, whole, ROWS * D) < 2e-6);
    job_release(&job);
}

#define REFUSED(status, change) OPERATOR_REFUSES_DESC(merge, status, good, change)

static void what_does_not_fit_is_refused(void **state)
{
    const size_t extent[5] = {3, 2, 2, 5, 8};
    clattn_merge_desc good = CLATTN_MERGE_DESC_INIT;

    (void)state;
    good.partial = clattn_layout_contiguous(CLATTN_DTYPE_F32, 5, extent);
    good.partial_lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, extent);
    good.output = clattn_layout_contiguous(CLATTN_DTYPE_F16, 4, extent + 1);
    operator_answers(&merge_operator, &good, CLATTN_SUCCESS);
    REFUSED(INVALID_STRUCT, size--);
    REFUSED(INVALID_ARGUMENT, reserved = 1);
    REFUSED(INVALID_ARGUMENT, direction = 1);
    REFUSED(UNSUPPORTED, partial.dtype = CLATTN_DTYPE_F16);
    REFUSED(UNSUPPORTED, partial_lse.dtype = CLATTN_DTYPE_F64);
    REFUSED(UNSUPPORTED, output.dtype = CLATTN_DTYPE_I32);
    REFUSED(INVALID_LAYOUT, partial_lse.extent[0] = 2);
    REFUSED(INVALID_LAYOUT, output.extent[3] = 7);
    REFUSED(INVALID_LAYOUT, output.rank = 3);
    REFUSED(INVALID_LAYOUT, output.stride[3] = 0);
    REFUSED(INVALID_LAYOUT, sinks = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, extent));
    REFUSED(INVALID_LAYOUT, lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, extent));
}

int main(int argc, char **argv)
{
    merge_add(cases, COUNT_OF(cases));
    suite_add(parts_of_the_keys_merge_to_the_whole, "merge: partials of the keys merge to the whole");
    suite_add(what_does_not_fit_is_refused, "merge: descriptions that are refused");
    return suite_run("merge", argc, argv);
}
