/* Appending to caches of keys and values: which rows are written and with what, in double precision; everything else in
 * the caches keeps its bytes.  And what is appended in steps, attention reads as one.
 *
 * Holds: include/clattn/kv_append.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/harness.h"

enum { BATCH = 2, HEADS = 2 };

struct problem {
    const char *rule;
    int32_t cache, dtype, scale_dtype; /* clattn_cache_kind; of both caches */
    size_t length, capacity, d_k, d_v, groups;
    int64_t past[BATCH]; /* past_lengths, or one past_length where both are equal and `one_past` */
    bool one_past;
    int64_t fresh[BATCH]; /* new_lengths; -1: no such array */
    bool rotate, interleaved, bshd;
    size_t rotary;
    int64_t position;
    float base;
};

static const struct problem problems[] = {
    {"plain",
     CLATTN_CACHE_KIND_PLAIN,
     CLATTN_DTYPE_F32,
     0,
     3,
     8,
     8,
     12,
     0,
     {2, 2},
     true,
     {-1, -1},
     false,
     false,
     false,
     0,
     0,
     0},
    {"lengths of each item",
     CLATTN_CACHE_KIND_PLAIN,
     CLATTN_DTYPE_F32,
     0,
     3,
     8,
     8,
     12,
     0,
     {0, 4},
     false,
     {3, 1},
     false,
     false,
     true,
     0,
     0,
     0},
    {"a full cache",
     CLATTN_CACHE_KIND_PLAIN,
     CLATTN_DTYPE_F32,
     0,
     4,
     6,
     8,
     8,
     0,
     {5, 9},
     false,
     {-1, -1},
     false,
     false,
     false,
     0,
     0,
     0},
    {"hostile lengths",
     CLATTN_CACHE_KIND_PLAIN,
     CLATTN_DTYPE_F32,
     0,
     4,
     6,
     8,
     8,
     0,
     {-3, 3},
     false,
     {9, -2},
     false,
     false,
     false,
     0,
     0,
     0},
    {"a ring that turns",
     CLATTN_CACHE_KIND_RING,
     CLATTN_DTYPE_F32,
     0,
     3,
     5,
     7,
     70,
     0,
     {4, 11},
     false,
     {-1, -1},
     false,
     false,
     false,
     0,
     0,
     0},
    {"more than a ring holds",
     CLATTN_CACHE_KIND_RING,
     CLATTN_DTYPE_F16,
     0,
     9,
     4,
     8,
     8,
     0,
     {1, 6},
     false,
     {-1, 7},
     false,
     false,
     false,
     0,
     0,
     0},
    {"pages",
     CLATTN_CACHE_KIND_PAGED,
     CLATTN_DTYPE_BF16,
     0,
     5,
     4,
     8,
     16,
     0,
     {2, 7},
     false,
     {-1, -1},
     false,
     false,
     false,
     0,
     0,
     0},
    {"rotated halves",
     CLATTN_CACHE_KIND_PLAIN,
     CLATTN_DTYPE_F32,
     0,
     3,
     8,
     16,
     8,
     0,
     {2, 5},
     false,
     {-1, -1},
     true,
     false,
     false,
     0,
     1000,
     0},
    {"a rotated part, interleaved",
     CLATTN_CACHE_KIND_RING,
     CLATTN_DTYPE_F32,
     0,
     3,
     5,
     16,
     8,
     0,
     {2, 5},
     false,
     {-1, -1},
     true,
     true,
     false,
     12,
     -3,
     500},
    {"int8",
     CLATTN_CACHE_KIND_PLAIN,
     CLATTN_DTYPE_I8,
     CLATTN_DTYPE_F32,
     3,
     8,
     8,
     16,
     2,
     {2, 5},
     false,
     {-1, -1},
     false,
     false,
     true,
     0,
     0,
     0},
    {"int8 pages, rotated",
     CLATTN_CACHE_KIND_PAGED,
     CLATTN_DTYPE_I8,
     CLATTN_DTYPE_F16,
     3,
     4,
     16,
     8,
     4,
     {2, 5},
     false,
     {-1, -1},
     true,
     false,
     false,
     0,
     0,
     0},
    {"int4",
     CLATTN_CACHE_KIND_RING,
     CLATTN_DTYPE_I4,
     CLATTN_DTYPE_F16,
     3,
     5,
     16,
     8,
     2,
     {2, 5},
     false,
     {-1, -1},
     true,
     true,
     false,
     8,
     7,
     0},
};

static size_t bytes_of(clattn_dtype dtype, size_t count)
{
    return count * clattn_dtype_bits((clattn_dtype)dtype) / 8;
}

static double half_of(uint16_t bits)
{
    int exponent = bits >> 10 & 31;
    double fraction = bits & 1023, sign = bits >> 15 ? -1 : 1;
    return exponent == 31 ? (double)NAN
                          : sign * (exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24));
}

static double element(const unsigned char *data, clattn_dtype dtype, size_t at)
{
    uint16_t bits;
    float value;
    switch (dtype) {
    case CLATTN_DTYPE_I8: return ((const int8_t *)data)[at];
    case CLATTN_DTYPE_I4: {
        int nibble = at % 2 ? data[at / 2] >> 4 : data[at / 2] & 15;
        return nibble > 7 ? nibble - 16 : nibble;
    }
    case CLATTN_DTYPE_F16: memcpy(&bits, data + 2 * at, 2); return half_of(bits);
    case CLATTN_DTYPE_BF16:
        memcpy(&bits, data + 2 * at, 2);
        return ldexp((double)((bits & 127) | (bits >> 7 & 255 ? 128 : 0)), (bits >> 7 & 255) - 134) *
               (bits >> 15 ? -1 : 1);
    default: memcpy(&value, data + 4 * at, 4); return value;
    }
}

/* What the caches should hold of one new row, before it is stored. */
static void rotated(const struct problem *p, const float *row, int64_t position, double *out)
{
    size_t rotary = p->rotary ? p->rotary : p->d_k, pairs = rotary / 2;
    for (size_t d = 0; d < p->d_k; d++)
        out[d] = row[d];
    for (size_t i = 0; i < pairs && p->rotate; i++) {
        double angle = (double)position * pow(p->base > 0 ? p->base : 10000, -(double)i / (double)pairs);
        size_t one = p->interleaved ? 2 * i : i, two = p->interleaved ? 2 * i + 1 : i + pairs;
        out[one] = row[one] * cos(angle) - row[two] * sin(angle);
        out[two] = row[one] * sin(angle) + row[two] * cos(angle);
    }
}

/* The page number of a block: descending, one of them out of range. */
static int32_t page_of(size_t b, size_t block)
{
    return b == 1 && block == 2 ? 99 : (int32_t)(5 - (b * 3 + block));
}

/* The first extent of the cache (item or page) and its row for key j, or false if it has none. */
static bool place_of(const struct problem *p, size_t b, int64_t j, size_t *first, size_t *row)
{
    *first = b;
    *row = (size_t)j;
    if (p->cache == CLATTN_CACHE_KIND_PAGED) {
        size_t block = (size_t)j / p->capacity;
        if (block > 2 || page_of(b, block) > 5)
            return false;
        *first = (size_t)page_of(b, block);
        *row = (size_t)j % p->capacity;
    } else if (p->cache == CLATTN_CACHE_KIND_RING) {
        *row = (size_t)j % p->capacity;
    }
    return *row < p->capacity;
}

/* Compares one stored row; `unit` is how exact the storage is. */
static void check_row(const struct problem *p, const double *wanted, size_t size, const unsigned char *cache,
                      const unsigned char *scales, size_t row)
{
    size_t group = p->groups ? size / p->groups : size;
    double levels = p->dtype == CLATTN_DTYPE_I4 ? 7 : 127;
    for (size_t d = 0; d < size; d++) {
        double got = element(cache, p->dtype, row * size + d), top = 0, slack;
        if (p->groups) {
            double scale = element(scales, p->scale_dtype, row * p->groups + d / group);
            for (size_t e = d / group * group; e < (d / group + 1) * group; e++)
                top = fmax(top, fabs(wanted[e]));
            assert_true(fabs(scale - top / levels) <=
                        top / levels * (p->scale_dtype == CLATTN_DTYPE_F16 ? 1e-3 : 1e-6) + 1e-7);
            assert_true(fabs(got) <= levels);
            got *= scale;
            slack = 0.5001 * scale + 1e-6 + top * (p->scale_dtype == CLATTN_DTYPE_F16 ? 1e-3 : 0);
        } else {
            slack = fabs(wanted[d]) * (p->dtype == CLATTN_DTYPE_F32   ? 0
                                       : p->dtype == CLATTN_DTYPE_F16 ? 0x1p-11
                                                                      : 0x1p-8) +
                    1e-6;
        }
        if (!(fabs(got - wanted[d]) <= slack)) {
            print_error("%s: element %zu of row %zu is %.9g, not %.9g\n", p->rule, d, row, got, wanted[d]);
            fail();
        }
    }
}

static clattn_layout cache_layout(const struct problem *p, clattn_dtype dtype, size_t firsts, size_t size)
{
    return p->bshd ? clattn_layout_bshd((clattn_dtype)dtype, firsts, HEADS, p->capacity, size)
                   : clattn_layout_bhsd((clattn_dtype)dtype, firsts, HEADS, p->capacity, size);
}

/* The index of a cache's row, in rows. */
static size_t row_index(const struct problem *p, size_t first, size_t h, size_t row)
{
    return p->bshd ? (first * p->capacity + row) * HEADS + h : (first * HEADS + h) * p->capacity + row;
}

static void check(clattn_context *context, const struct problem *p)
{
    cl_context opencl = clattn_context_opencl_context(context);
    clattn_kv_append_desc desc = CLATTN_KV_APPEND_DESC_INIT;
    clattn_kv_append_args args = CLATTN_KV_APPEND_ARGS_INIT;
    bool paged = p->cache == CLATTN_CACHE_KIND_PAGED;
    size_t firsts = paged ? 6 : BATCH, rows = firsts * HEADS * p->capacity;
    size_t sizes[2] = {p->d_k, p->d_v};
    static const size_t batch[1] = {BATCH}, table_extent[2] = {BATCH, 3};
    int32_t table[BATCH * 3], fresh[BATCH];
    cl_mem memory[9] = {NULL};
    float *fill[2];
    unsigned char *cache[2], *scale[2];

    desc.cache = p->cache;
    desc.rotate = p->rotate;
    desc.pairing = p->interleaved ? CLATTN_ROPE_PAIRING_INTERLEAVED : CLATTN_ROPE_PAIRING_HALVES;
    desc.base = p->base;
    desc.rotary_size = p->rotary;
    clattn_layout *layouts[2][3] = {{&desc.key, &desc.key_cache, &desc.key_scale},
                                    {&desc.value, &desc.value_cache, &desc.value_scale}};
    clattn_binding *bindings[2][3] = {{&args.key, &args.key_cache, &args.key_scale},
                                      {&args.value, &args.value_cache, &args.value_scale}};
    for (int n = 0; n < 2; n++) {
        size_t count = BATCH * HEADS * p->length * sizes[n], bytes = bytes_of(p->dtype, rows * sizes[n]);
        fill[n] = calloc(count, sizeof(float));
        cache[n] = malloc(bytes);
        scale[n] = malloc(rows * 4 * 4);
        assert_true(fill[n] && cache[n] && scale[n]);
        fill_floats(fill[n], count, (uint32_t)n + 1);
        *layouts[n][0] = clattn_layout_bhsd(CLATTN_DTYPE_F32, BATCH, HEADS, p->length, sizes[n]);
        *layouts[n][1] = cache_layout(p, p->dtype, firsts, sizes[n]);
        memory[4 * n] = new_buffer(opencl, CL_MEM_READ_ONLY, count * sizeof(float), fill[n]);
        memory[4 * n + 1] = new_buffer(opencl, CL_MEM_READ_WRITE, bytes, NULL);
        *bindings[n][0] = clattn_binding_buffer(memory[4 * n], 0);
        *bindings[n][1] = clattn_binding_buffer(memory[4 * n + 1], 0);
        memory[4 * n + 2] = new_buffer(opencl, CL_MEM_READ_WRITE, rows * 4 * 4, NULL);
        if (p->groups) {
            *layouts[n][2] = cache_layout(p, p->scale_dtype, firsts, p->groups);
            *bindings[n][2] = clattn_binding_buffer(memory[4 * n + 2], 0);
        }
    }
    if (paged) {
        for (size_t b = 0; b < BATCH; b++)
            for (size_t block = 0; block < 3; block++)
                table[b * 3 + block] = page_of(b, block);
        desc.block_table = clattn_layout_contiguous(CLATTN_DTYPE_I32, 2, table_extent);
        memory[3] = new_buffer(opencl, CL_MEM_READ_ONLY, sizeof table, table);
        args.block_table = clattn_binding_buffer(memory[3], 0);
    }
    if (p->one_past) {
        args.past_length = p->past[0];
    } else {
        desc.past_lengths = clattn_layout_contiguous(CLATTN_DTYPE_I64, 1, batch);
        memory[7] = new_buffer(opencl, CL_MEM_READ_ONLY, sizeof p->past, p->past);
        args.past_lengths = clattn_binding_buffer(memory[7], 0);
    }
    if (p->fresh[1] != -1) {
        for (size_t b = 0; b < BATCH; b++)
            fresh[b] = p->fresh[b] == -1 ? (int32_t)p->length : (int32_t)p->fresh[b];
        desc.new_lengths = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, batch);
        memory[8] = new_buffer(opencl, CL_MEM_READ_ONLY, sizeof fresh, fresh);
        args.new_lengths = clattn_binding_buffer(memory[8], 0);
    }
    args.position = p->position;
    assert_status(context, clattn_kv_append_run(context, NULL, &desc, &args, 0, NULL, NULL), CLATTN_SUCCESS);

    bool *written = calloc(rows, sizeof *written);
    double *wanted = calloc(p->d_k + p->d_v, sizeof *wanted);
    assert_true(written && wanted);
    for (int n = 0; n < 2; n++) {
        read_buffer(clattn_context_queue(context), memory[4 * n + 1], bytes_of(p->dtype, rows * sizes[n]), cache[n]);
        read_buffer(clattn_context_queue(context), memory[4 * n + 2], rows * 4 * 4, scale[n]);
    }
    for (size_t b = 0; b < BATCH; b++) {
        int64_t past = p->past[b], count = (int64_t)p->length, first_new;
        if (p->fresh[1] != -1)
            count = fresh[b] < count ? fresh[b] : count;
        first_new =
            p->cache == CLATTN_CACHE_KIND_RING && count > (int64_t)p->capacity ? count - (int64_t)p->capacity : 0;
        for (int64_t i = first_new; i < count && past >= 0; i++) {
            size_t first, row;
            if (!place_of(p, b, past + i, &first, &row))
                continue;
            for (size_t h = 0; h < HEADS; h++) {
                size_t at = (b * HEADS + h) * p->length + (size_t)i, to = row_index(p, first, h, row);
                rotated(p, fill[0] + at * p->d_k, past + i + p->position, wanted);
                for (size_t d = 0; d < p->d_v; d++)
                    wanted[p->d_k + d] = fill[1][at * p->d_v + d];
                check_row(p, wanted, p->d_k, cache[0], scale[0], to);
                check_row(p, wanted + p->d_k, p->d_v, cache[1], scale[1], to);
                written[to] = true;
            }
        }
    }
    for (size_t row = 0; row < rows; row++)
        for (int n = 0; n < 2 && !written[row]; n++)
            for (size_t i = 0; i < bytes_of(p->dtype, sizes[n]); i++)
                assert_int_equal(cache[n][row * bytes_of(p->dtype, sizes[n]) + i], 0xff);
    for (size_t i = 0; i < 9; i++)
        if (memory[i])
            clReleaseMemObject(memory[i]);
    for (int n = 0; n < 2; n++) {
        free(fill[n]);
        free(cache[n]);
        free(scale[n]);
    }
    free(written);
    free(wanted);
}

static void the_right_rows_get_the_right_values(void **state)
{
    clattn_context *context = new_context();
    (void)state;
    for (size_t i = 0; i < COUNT_OF(problems); i++)
        check(context, &problems[i]);
    release_context(&context);
}

/* Keys appended in three steps to a ring, then attention over it. */
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

/* Attention counts a ring's keys in an int, so no more are appended than it can count. */
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_right_rows_get_the_right_values),
        cmocka_unit_test(attention_reads_what_was_appended),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(a_ring_ends_where_attention_stops_counting),
    };
    return RUN_TESTS("kv_append", tests, argc, argv);
}
