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
    static const size_t one[4] = {1, 1, 1, D}, keys[4] = {1, 1, KEYS, D}, ring[4] = {1, 1, CAPACITY, D};
    float q[D], k[KEYS * D], v[KEYS * D], wanted[D], got[D];
    clattn_kv_append_desc append = CLATTN_KV_APPEND_DESC_INIT;
    clattn_kv_append_args append_args = CLATTN_KV_APPEND_ARGS_INIT;
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    test_job job = {.args.attention = CLATTN_ATTENTION_ARGS_INIT};
    clattn_attention_args *args = &job.args.attention;

    (void)state;
    fill_floats(q, D, 1);
    fill_floats(k, KEYS * D, 2);
    fill_floats(v, KEYS * D, 3);
    expected_attention(1, 1, CAPACITY, D, D, false, q, k + (KEYS - CAPACITY) * D, v + (KEYS - CAPACITY) * D, wanted);
    test_array query = job_floats(&job, 4, one, q), key = job_floats(&job, 4, keys, k);
    test_array value = job_floats(&job, 4, keys, v);
    test_array key_cache = job_array(&job, ROLE_IN_PLACE, CLATTN_DTYPE_F32, 4, ring, FORM_PLAIN);
    test_array value_cache = job_array(&job, ROLE_IN_PLACE, CLATTN_DTYPE_F32, 4, ring, FORM_PLAIN);
    append.cache = desc.cache.kind = CLATTN_CACHE_KIND_RING;
    array_bind(&key, &append.key, &append_args.key);
    array_bind(&value, &append.value, &append_args.value);
    append.key.extent[2] = append.value.extent[2] = 3;
    array_bind(&key_cache, &append.key_cache, &append_args.key_cache);
    array_bind(&value_cache, &append.value_cache, &append_args.value_cache);
    append_args.explicit_lengths = 1;
    append_args.batch = 1;
    for (size_t n = 0; n < COUNT_OF(steps); n++) {
        append_args.length = steps[n];
        assert_status(device_context(),
                      clattn_kv_append_run(device_context(), NULL, &append, &append_args, 0, NULL, NULL),
                      CLATTN_SUCCESS);
        append_args.past_length += (int64_t)steps[n];
        append_args.key.offset += (int64_t)steps[n] * D;
        append_args.value.offset += (int64_t)steps[n] * D;
    }
    array_bind(&query, &desc.query, &args->query);
    array_bind(&key_cache, &desc.key, &args->key);
    array_bind(&value_cache, &desc.value, &args->value);
    array_bind(job_output(&job, 4, one), &desc.output, &args->output);
    args->explicit_lengths = 1;
    args->batch = args->query_length = 1;
    args->key_length = KEYS;
    job_run_once(&job, &attention_operator, &desc);
    job_copy_output(&job, got);
    assert_true(largest_difference(got, wanted, D) < 2e-6);
    job_release(&job);
}

#define REFUSED(status, change) OPERATOR_REFUSES_DESC(kv_append, status, good, change)

static void what_does_not_fit_is_refused(void **state)
{
    static const size_t one[1] = {2}, other[1] = {3}, table[2] = {2, 4};
    clattn_kv_append_desc good = CLATTN_KV_APPEND_DESC_INIT;
    (void)state;
    good.key = good.value = clattn_layout_bhsd(CLATTN_DTYPE_F16, 2, 2, 3, 8);
    good.key_cache = good.value_cache = clattn_layout_bhsd(CLATTN_DTYPE_BF16, 2, 2, 9, 8);
    operator_answers(&kv_append_operator, &good, CLATTN_SUCCESS);
    REFUSED(INVALID_STRUCT, size++);
    REFUSED(INVALID_ARGUMENT, cache = 3);
    REFUSED(INVALID_ARGUMENT, rotate = 2);
    REFUSED(INVALID_ARGUMENT, rotary_size = (desc.rotate = 1, 3));
    REFUSED(INVALID_ARGUMENT, pairing = (desc.rotate = 1, 2));
    REFUSED(UNSUPPORTED, key.dtype = CLATTN_DTYPE_F64);
    REFUSED(UNSUPPORTED, value_cache.dtype = CLATTN_DTYPE_U8);
    REFUSED(INVALID_LAYOUT, key_cache.extent[1] = 1);
    REFUSED(INVALID_LAYOUT, value_cache.extent[3] = 7);
    REFUSED(INVALID_LAYOUT, value.extent[2] = 2);
    REFUSED(INVALID_LAYOUT, key_cache.stride[3] = 0);
    REFUSED(INVALID_ARGUMENT, key_cache.dtype = CLATTN_DTYPE_I8);
    REFUSED(INVALID_ARGUMENT, key_scale = clattn_layout_bhsd(CLATTN_DTYPE_F32, 2, 2, 9, 2));
    REFUSED(INVALID_LAYOUT,
            key_scale = (desc.key_cache.dtype = CLATTN_DTYPE_I8, clattn_layout_bhsd(CLATTN_DTYPE_F32, 2, 2, 9, 3)));
    REFUSED(UNSUPPORTED,
            key_scale = (desc.key_cache.dtype = CLATTN_DTYPE_I8, clattn_layout_bhsd(CLATTN_DTYPE_BF16, 2, 2, 9, 2)));
    REFUSED(UNSUPPORTED,
            key_scale = (desc.key_cache.dtype = CLATTN_DTYPE_I4, clattn_layout_bhsd(CLATTN_DTYPE_F32, 2, 2, 9, 8)));
    REFUSED(INVALID_ARGUMENT, block_table = clattn_layout_contiguous(CLATTN_DTYPE_I32, 2, table));
    REFUSED(INVALID_ARGUMENT, cache = CLATTN_CACHE_KIND_PAGED);
    REFUSED(INVALID_LAYOUT, past_lengths = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, other));
    REFUSED(INVALID_LAYOUT, new_lengths = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, one));
}

/* Attention counts a ring's keys in an int, so kv_append refuses more. */
static void a_ring_ends_where_attention_stops_counting(void **state)
{
    const int64_t most = INT32_MAX - 65536;
    clattn_kv_append_desc desc = CLATTN_KV_APPEND_DESC_INIT;
    clattn_kv_append_args good = CLATTN_KV_APPEND_ARGS_INIT;
    test_job job = {0};
    test_array rows = job_array(&job, ROLE_INPUT, CLATTN_DTYPE_F32, 4, (size_t[]){1, 1, 3, 8}, FORM_PLAIN);
    test_array key_cache = job_array(&job, ROLE_IN_PLACE, CLATTN_DTYPE_F32, 4, (size_t[]){1, 1, 4, 8}, FORM_PLAIN);
    test_array value_cache = job_array(&job, ROLE_IN_PLACE, CLATTN_DTYPE_F32, 4, (size_t[]){1, 1, 4, 8}, FORM_PLAIN);

    (void)state;
    desc.cache = CLATTN_CACHE_KIND_RING;
    array_bind(&rows, &desc.key, &good.key);
    array_bind(&rows, &desc.value, &good.value);
    array_bind(&key_cache, &desc.key_cache, &good.key_cache);
    array_bind(&value_cache, &desc.value_cache, &good.value_cache);
    good.past_length = most - 3;
    job_plan(&job, &kv_append_operator, &desc, "generic", JOB_TAKEN);
    assert_status(device_context(), clattn_kv_append_enqueue(job.plan, NULL, &good, 0, NULL, NULL), CLATTN_SUCCESS);
    OPERATOR_REFUSES_ARGS(kv_append, job.plan, INVALID_ARGUMENT, good, past_length = most - 2);
    OPERATOR_REFUSES_ARGS(kv_append, job.plan, INVALID_ARGUMENT, good, past_length = INT64_MAX);
    job_release(&job);
}

int main(int argc, char **argv)
{
    kv_append_add(cases, COUNT_OF(cases));
    suite_add(attention_reads_what_was_appended, "kv_append: attention reads what was appended");
    suite_add(what_does_not_fit_is_refused, "kv_append: descriptions that are refused");
    suite_add(a_ring_ends_where_attention_stops_counting, "kv_append: a ring ends where attention stops counting");
    return suite_run("kv_append", argc, argv);
}
