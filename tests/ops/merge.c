/* Merged partials agree with the definition in double precision, for -inf and NaN, storage types, strides and lengths;
 * guard bands stay; two parts of the keys that are attended and merged give what one attention gives.
 *
 * Holds: include/clattn/merge.h, and docs/numerics.md about large values. */
#include "support/ops/merge_case.h"

#define DIMS(n, b, h, s, d) .parts = (n), .batch = (b), .heads = (h), .queries = (s), .columns = (d)

static const merge_case cases[] = {
    {"one part", ALL, DIMS(1, 1, 2, 3, 5), .lse = true},
    {"several parts", ALL, DIMS(3, 2, 2, 5, 8), .lse = true},
    {"no parts", ALL, DIMS(0, 1, 2, 3, 5), .lse = true},
    {"no queries", ALL, DIMS(3, 1, 2, 0, 5), .lse = true},
    {"without lse", ALL, DIMS(3, 2, 2, 5, 8)},
    {"sinks", ALL, DIMS(3, 2, 2, 5, 8), .sinks = true, .lse = true},
    {"sinks, without lse", ALL, DIMS(2, 1, 3, 2, 7), .sinks = true},
    {"many parts, many columns", BIG, DIMS(40, 1, 2, 3, 200), .sinks = true, .lse = true},
    {"gaps", ALL, DIMS(4, 2, 3, 3, 9), .sinks = true, .lse = true, .partial = FORM_PADDED, .output = FORM_PADDED},
    {"columns apart", BIG, DIMS(4, 2, 3, 3, 9), .lse = true, .partial = FORM_SPREAD, .output = FORM_SPREAD},
    {"columns backwards", BIG, DIMS(4, 2, 3, 3, 9), .lse = true, .partial = FORM_MIRRORED, .output = FORM_TRANSPOSED},
    {"fewer parts than planned", ALL, DIMS(5, 2, 2, 3, 8), .lse = true, .explicit_lengths = true, .actual_parts = 2,
     .actual_batch = 2, .actual_queries = 3},
    {"a smaller batch, fewer queries", BIG, DIMS(3, 3, 2, 5, 8), .lse = true, .explicit_lengths = true,
     .actual_parts = 3, .actual_batch = 2, .actual_queries = 4},
    {"no batch at enqueue", BIG, DIMS(3, 3, 2, 5, 8), .lse = true, .explicit_lengths = true, .actual_parts = 3,
     .actual_batch = 0, .actual_queries = 5},
    {"partials near FLT_MAX", ALL, DIMS(7, 2, 2, 5, 8), .lse = true, .spread = 3.4e38f},
    {"float16", MORE, DIMS(3, 2, 2, 5, 8), .lse = true, .type = CLATTN_DTYPE_F16},
    {"bfloat16", MORE, DIMS(3, 2, 2, 5, 8), .sinks = true, .type = CLATTN_DTYPE_BF16},
};

/* Two attentions over the first and the last keys are merged and agree with one over all keys. */
static void parts_of_the_keys_merge_to_the_whole(void **state)
{
    enum { HEADS = 2, QUERIES = 5, KEYS = 23, D = 8, FIRST = 9 };
    clattn_context *context = new_context();
    cl_context opencl = clattn_context_opencl_context(context);
    float q[HEADS * QUERIES * D], k[HEADS * KEYS * D], v[HEADS * KEYS * D], whole[HEADS * QUERIES * D];
    float merged[HEADS * QUERIES * D];
    const size_t partial_extent[5] = {2, 1, HEADS, QUERIES, D};
    (void)state;
    fill_floats(q, HEADS * QUERIES * D, 1);
    fill_floats(k, HEADS * KEYS * D, 2);
    fill_floats(v, HEADS * KEYS * D, 3);
    expected_attention(HEADS, QUERIES, KEYS, D, D, false, q, k, v, whole);
    cl_mem query = new_buffer(opencl, CL_MEM_READ_ONLY, sizeof q, q);
    cl_mem key = new_buffer(opencl, CL_MEM_READ_ONLY, sizeof k, k);
    cl_mem value = new_buffer(opencl, CL_MEM_READ_ONLY, sizeof v, v);
    cl_mem partial = new_buffer(opencl, CL_MEM_READ_WRITE, 2 * sizeof whole, NULL);
    cl_mem lse = new_buffer(opencl, CL_MEM_READ_WRITE, 2 * HEADS * QUERIES * sizeof(float), NULL);
    cl_mem output = new_buffer(opencl, CL_MEM_WRITE_ONLY, sizeof whole, NULL);
    for (int part = 0; part < 2; part++) {
        clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
        clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT;
        size_t first = part ? FIRST : 0, keys = part ? KEYS - FIRST : FIRST;
        const size_t lse_extent[3] = {1, HEADS, QUERIES};
        desc.query = desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, HEADS, QUERIES, D);
        desc.key = desc.value = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, HEADS, KEYS, D);
        desc.key.extent[2] = desc.value.extent[2] = keys;
        desc.outputs.lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, lse_extent);
        args.query = clattn_binding_buffer(query, 0);
        args.key = clattn_binding_buffer(key, (int64_t)(first * D));
        args.value = clattn_binding_buffer(value, (int64_t)(first * D));
        args.output = clattn_binding_buffer(partial, part * HEADS * QUERIES * D);
        args.outputs.lse = clattn_binding_buffer(lse, part * HEADS * QUERIES);
        assert_status(context, clattn_attention_run(context, NULL, &desc, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    }
    clattn_merge_desc desc = CLATTN_MERGE_DESC_INIT;
    clattn_merge_args args = CLATTN_MERGE_ARGS_INIT;
    desc.partial = clattn_layout_contiguous(CLATTN_DTYPE_F32, 5, partial_extent);
    desc.partial_lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, partial_extent);
    desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, HEADS, QUERIES, D);
    args.partial = clattn_binding_buffer(partial, 0);
    args.partial_lse = clattn_binding_buffer(lse, 0);
    args.output = clattn_binding_buffer(output, 0);
    assert_status(context, clattn_merge_run(context, NULL, &desc, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    read_buffer(clattn_context_queue(context), output, sizeof merged, merged);
    assert_true(largest_difference(merged, whole, HEADS * QUERIES * D) < 2e-6);
    cl_mem all[] = {query, key, value, partial, lse, output};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        clReleaseMemObject(all[i]);
    release_context(&context);
}

#define REFUSED(status, change) \
    do { \
        clattn_merge_desc d = good; \
        const char *reason = NULL; \
        change; \
        assert_int_equal(clattn_merge_supports(context, &d, &reason), CLATTN_ERROR_##status); \
        assert_non_null(reason); \
    } while (0)

static void what_does_not_fit_is_refused(void **state)
{
    const size_t extent[5] = {3, 2, 2, 5, 8};
    clattn_context *context = new_context();
    clattn_merge_desc good = CLATTN_MERGE_DESC_INIT;
    (void)state;
    good.partial = clattn_layout_contiguous(CLATTN_DTYPE_F32, 5, extent);
    good.partial_lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, extent);
    good.output = clattn_layout_contiguous(CLATTN_DTYPE_F16, 4, extent + 1);
    assert_int_equal(clattn_merge_supports(context, &good, NULL), CLATTN_SUCCESS);
    REFUSED(INVALID_STRUCT, d.size--);
    REFUSED(INVALID_ARGUMENT, d.reserved = 1);
    REFUSED(INVALID_ARGUMENT, d.direction = 1);
    REFUSED(UNSUPPORTED, d.partial.dtype = CLATTN_DTYPE_F16);
    REFUSED(UNSUPPORTED, d.partial_lse.dtype = CLATTN_DTYPE_F64);
    REFUSED(UNSUPPORTED, d.output.dtype = CLATTN_DTYPE_I32);
    REFUSED(INVALID_LAYOUT, d.partial_lse.extent[0] = 2);
    REFUSED(INVALID_LAYOUT, d.output.extent[3] = 7);
    REFUSED(INVALID_LAYOUT, d.output.rank = 3);
    REFUSED(INVALID_LAYOUT, d.output.stride[3] = 0);
    REFUSED(INVALID_LAYOUT, (d.sinks = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, extent)));
    REFUSED(INVALID_LAYOUT, (d.lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, extent)));
    release_context(&context);
}

int main(int argc, char **argv)
{
    merge_add(cases, COUNT_OF(cases));
    suite_add(parts_of_the_keys_merge_to_the_whole, "merge: parts of the keys merge to the whole");
    suite_add(what_does_not_fit_is_refused, "merge: descriptions that are refused");
    return suite_run("merge", argc, argv);
}
