/* Appending to caches of keys and values writes the right rows with the right values, compared in double precision; all
 * other bytes of the caches and the guard bands stay.  Attention reads what is appended in steps as if it had been
 * appended at once.
 *
 * Holds: include/clattn/kv_append.h. */
#include "support/ops/kv_append_case.h"

#define DIMS(kind, s, n, k, v) .cache = CLATTN_CACHE_KIND_##kind, .length = (s), .capacity = (n), .d_k = (k), .d_v = (v)

static const kv_append_case cases[] = {
    {"plain", ALL, DIMS(PLAIN, 3, 8, 8, 12), .past = {2, 2}, .one_past = true},
    {"lengths of each item", ALL, DIMS(PLAIN, 3, 8, 8, 12), .past = {0, 4}, .has_new = true, .fresh = {3, 1},
     .form = FORM_BSHD},
    {"a full cache", ALL, DIMS(PLAIN, 4, 6, 8, 8), .past = {5, 9}},
    {"hostile lengths", ALL, DIMS(PLAIN, 4, 6, 8, 8), .past = {-3, 3}, .has_new = true, .fresh = {9, -2}},
    {"a ring that wraps", ALL, DIMS(RING, 3, 5, 7, 70), .past = {4, 11}},
    {"more than a ring holds", ALL, DIMS(RING, 9, 4, 8, 8), .type = CLATTN_DTYPE_F16, .past = {1, 6}, .has_new = true,
     .fresh = {9, 7}},
    {"pages", ALL, DIMS(PAGED, 5, 4, 8, 16), .type = CLATTN_DTYPE_BF16, .past = {2, 7}},
    {"rotated halves", ALL, DIMS(PLAIN, 3, 8, 16, 8), .past = {2, 5}, .rotate = true, .position = 1000},
    {"a rotated part, interleaved", ALL, DIMS(RING, 3, 5, 16, 8), .past = {2, 5}, .rotate = true, .interleaved = true,
     .rotary = 12, .base = 500, .position = -3},
    {"int8", ALL, DIMS(PLAIN, 3, 8, 8, 16), .type = CLATTN_DTYPE_I8, .scale_type = CLATTN_DTYPE_F32, .groups = 2,
     .past = {2, 5}, .form = FORM_BSHD},
    {"int8 pages, rotated", ALL, DIMS(PAGED, 3, 4, 16, 8), .type = CLATTN_DTYPE_I8, .scale_type = CLATTN_DTYPE_F16,
     .groups = 4, .past = {2, 5}, .rotate = true},
    {"int4", ALL, DIMS(RING, 3, 5, 16, 8), .type = CLATTN_DTYPE_I4, .scale_type = CLATTN_DTYPE_F16, .groups = 2,
     .past = {2, 5}, .rotate = true, .interleaved = true, .rotary = 8, .position = 7},
    {"a cache with gaps", BIG, DIMS(PLAIN, 3, 8, 8, 12), .past = {2, 0}, .form = FORM_PADDED},
    {"columns apart", BIG, DIMS(RING, 3, 5, 8, 12), .past = {2, 4}, .form = FORM_SPREAD},
};

/* Keys are appended to a ring in three steps, and attention reads them. */
static void attention_reads_what_was_appended(void **state)
{
    enum { D = 8, KEYS = 7, CAPACITY = 5 };
    static const size_t steps[] = {3, 1, 3};
    clattn_context *context = new_context();
    cl_context opencl = clattn_context_opencl_context(context);
    float q[D], k[KEYS * D], v[KEYS * D], wanted[D], got[D];
    clattn_kv_append_desc append = CLATTN_KV_APPEND_DESC_INIT;
    clattn_kv_append_args append_args = CLATTN_KV_APPEND_ARGS_INIT;
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT;
    (void)state;
    fill_floats(q, D, 1);
    fill_floats(k, KEYS * D, 2);
    fill_floats(v, KEYS * D, 3);
    expected_attention(1, 1, CAPACITY, D, D, false, q, k + (KEYS - CAPACITY) * D, v + (KEYS - CAPACITY) * D, wanted);
    cl_mem memory[] = {new_buffer(opencl, CL_MEM_READ_ONLY, sizeof q, q),
                       new_buffer(opencl, CL_MEM_READ_ONLY, sizeof k, k),
                       new_buffer(opencl, CL_MEM_READ_ONLY, sizeof v, v),
                       new_buffer(opencl, CL_MEM_READ_WRITE, CAPACITY * D * sizeof(float), NULL),
                       new_buffer(opencl, CL_MEM_READ_WRITE, CAPACITY * D * sizeof(float), NULL),
                       new_buffer(opencl, CL_MEM_WRITE_ONLY, sizeof got, NULL)};
    append.cache = desc.cache.kind = CLATTN_CACHE_KIND_RING;
    append.key = append.value = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, 3, D);
    append.key_cache = append.value_cache = desc.key = desc.value =
        clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, CAPACITY, D);
    append_args.key_cache = args.key = clattn_binding_buffer(memory[3], 0);
    append_args.value_cache = args.value = clattn_binding_buffer(memory[4], 0);
    append_args.explicit_lengths = 1;
    append_args.batch = 1;
    for (size_t n = 0; n < 3; n++) {
        append_args.length = steps[n];
        append_args.key = clattn_binding_buffer(memory[1], append_args.past_length * D);
        append_args.value = clattn_binding_buffer(memory[2], append_args.past_length * D);
        assert_status(context, clattn_kv_append_run(context, NULL, &append, &append_args, 0, NULL, NULL),
                      CLATTN_SUCCESS);
        append_args.past_length += (int64_t)steps[n];
    }
    desc.query = desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, 1, D);
    args.query = clattn_binding_buffer(memory[0], 0);
    args.output = clattn_binding_buffer(memory[5], 0);
    args.explicit_lengths = 1;
    args.batch = args.query_length = 1;
    args.key_length = KEYS;
    assert_status(context, clattn_attention_run(context, NULL, &desc, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    read_buffer(clattn_context_queue(context), memory[5], sizeof got, got);
    assert_true(largest_difference(got, wanted, D) < 2e-6);
    for (size_t i = 0; i < COUNT_OF(memory); i++)
        clReleaseMemObject(memory[i]);
    release_context(&context);
}

#define REFUSED(status, change) \
    do { \
        clattn_kv_append_desc d = good; \
        const char *reason = NULL; \
        change; \
        assert_int_equal(clattn_kv_append_supports(context, &d, &reason), CLATTN_ERROR_##status); \
        assert_non_null(reason); \
    } while (0)

static void what_does_not_fit_is_refused(void **state)
{
    static const size_t one[1] = {2}, other[1] = {3}, table[2] = {2, 4};
    clattn_context *context = new_context();
    clattn_kv_append_desc good = CLATTN_KV_APPEND_DESC_INIT;
    (void)state;
    good.key = good.value = clattn_layout_bhsd(CLATTN_DTYPE_F16, 2, 2, 3, 8);
    good.key_cache = good.value_cache = clattn_layout_bhsd(CLATTN_DTYPE_BF16, 2, 2, 9, 8);
    assert_int_equal(clattn_kv_append_supports(context, &good, NULL), CLATTN_SUCCESS);
    REFUSED(INVALID_STRUCT, d.size++);
    REFUSED(INVALID_ARGUMENT, d.cache = 3);
    REFUSED(INVALID_ARGUMENT, d.rotate = 2);
    REFUSED(INVALID_ARGUMENT, (d.rotate = 1, d.rotary_size = 3));
    REFUSED(INVALID_ARGUMENT, (d.rotate = 1, d.pairing = 2));
    REFUSED(UNSUPPORTED, d.key.dtype = CLATTN_DTYPE_F64);
    REFUSED(UNSUPPORTED, d.value_cache.dtype = CLATTN_DTYPE_U8);
    REFUSED(INVALID_LAYOUT, d.key_cache.extent[1] = 1);
    REFUSED(INVALID_LAYOUT, d.value_cache.extent[3] = 7);
    REFUSED(INVALID_LAYOUT, d.value.extent[2] = 2);
    REFUSED(INVALID_LAYOUT, d.key_cache.stride[3] = 0);
    REFUSED(INVALID_ARGUMENT, d.key_cache.dtype = CLATTN_DTYPE_I8);
    REFUSED(INVALID_ARGUMENT, (d.key_scale = clattn_layout_bhsd(CLATTN_DTYPE_F32, 2, 2, 9, 2)));
    REFUSED(INVALID_LAYOUT,
            (d.key_cache.dtype = CLATTN_DTYPE_I8, d.key_scale = clattn_layout_bhsd(CLATTN_DTYPE_F32, 2, 2, 9, 3)));
    REFUSED(UNSUPPORTED,
            (d.key_cache.dtype = CLATTN_DTYPE_I8, d.key_scale = clattn_layout_bhsd(CLATTN_DTYPE_BF16, 2, 2, 9, 2)));
    REFUSED(UNSUPPORTED,
            (d.key_cache.dtype = CLATTN_DTYPE_I4, d.key_scale = clattn_layout_bhsd(CLATTN_DTYPE_F32, 2, 2, 9, 8)));
    REFUSED(INVALID_ARGUMENT, (d.block_table = clattn_layout_contiguous(CLATTN_DTYPE_I32, 2, table)));
    REFUSED(INVALID_ARGUMENT, d.cache = CLATTN_CACHE_KIND_PAGED);
    REFUSED(INVALID_LAYOUT, (d.past_lengths = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, other)));
    REFUSED(INVALID_LAYOUT, (d.new_lengths = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, one)));
    release_context(&context);
}

/* Attention counts a ring's keys in an int, so kv_append refuses more. */
static void a_ring_ends_where_attention_stops_counting(void **state)
{
    const int64_t most = INT32_MAX - 65536;
    clattn_context *context = new_context();
    cl_context opencl = clattn_context_opencl_context(context);
    clattn_kv_append_desc desc = CLATTN_KV_APPEND_DESC_INIT;
    clattn_kv_append_args args = CLATTN_KV_APPEND_ARGS_INIT;
    cl_mem cache = new_buffer(opencl, CL_MEM_READ_WRITE, 2 * 4 * 8 * sizeof(float), NULL);
    float zeros[3 * 8] = {0};
    cl_mem rows = new_buffer(opencl, CL_MEM_READ_ONLY, sizeof zeros, zeros);

    (void)state;
    desc.cache = CLATTN_CACHE_KIND_RING;
    desc.key = desc.value = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, 3, 8);
    desc.key_cache = desc.value_cache = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, 4, 8);
    args.key = args.value = clattn_binding_buffer(rows, 0);
    args.key_cache = clattn_binding_buffer(cache, 0);
    args.value_cache = clattn_binding_buffer(cache, 4 * 8);
    args.past_length = most - 3;
    assert_int_equal(clattn_kv_append_run(context, NULL, &desc, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    args.past_length = most - 2;
    assert_int_equal(clattn_kv_append_run(context, NULL, &desc, &args, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    args.past_length = INT64_MAX;
    assert_int_equal(clattn_kv_append_run(context, NULL, &desc, &args, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    clReleaseMemObject(cache);
    clReleaseMemObject(rows);
    release_context(&context);
}

int main(int argc, char **argv)
{
    kv_append_add(cases, COUNT_OF(cases));
    suite_add(attention_reads_what_was_appended, "kv_append: attention reads what was appended");
    suite_add(what_does_not_fit_is_refused, "kv_append: descriptions that are refused");
    suite_add(a_ring_ends_where_attention_stops_counting, "kv_append: a ring ends where attention stops counting");
    return suite_run("kv_append", argc, argv);
}
