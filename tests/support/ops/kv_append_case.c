/* Appending to caches: makes arrays and a plan of a table row, and compares the result with a reference.  Caches and
 * scales are guarded like outputs: only appended rows may change. */
#include <math.h>
#include <stdlib.h>

#include "support/ops/kv_append_case.h"

enum { KEY, VALUE, BLOCK_TABLE, PAST, NEW };               /* of job.input */
enum { KEY_CACHE, VALUE_CACHE, KEY_SCALE, VALUE_SCALE };   /* of job.output */
enum { PAGES = 6, BLOCKS = 3, BEYOND = 99 /* no page */ }; /* of a paged cache */

static bool is_paged(const kv_append_case *test)
{
    return test->cache == CLATTN_CACHE_KIND_PAGED;
}

/* Returns the page number of a block; they descend, and one is out of range. */
static int64_t page_of(size_t b, size_t block)
{
    return b == 1 && block == 2 ? BEYOND : (int64_t)(PAGES - 1 - (b * BLOCKS + block));
}

/* Sets *place to the item or page and the row of the cache where new row i of item b goes; returns false if the cache
 * has no row for it. */
static bool place_of(const kv_append_case *test, size_t b, int64_t i, size_t place[2])
{
    const int64_t capacity = (int64_t)test->capacity, length = (int64_t)test->length, j = test->past[b] + i;
    const int64_t count = test->has_new && test->fresh[b] < length ? test->fresh[b] : length;

    place[0] = b;
    place[1] = (size_t)(j % capacity);
    if (test->past[b] < 0 || i >= count)
        return false;
    if (is_paged(test)) {
        const int64_t page = j / capacity < BLOCKS ? page_of(b, (size_t)(j / capacity)) : BEYOND;
        place[0] = (size_t)page;
        return page < PAGES;
    }
    return test->cache == CLATTN_CACHE_KIND_RING ? i >= count - capacity : j < capacity;
}

/* Calls visit for every row that has to be appended. */
typedef void (*row_visitor)(test_job *job, const kv_append_case *test, const size_t from[3], const size_t to[3]);
static void each_row(test_job *job, const kv_append_case *test, row_visitor visit)
{
    for (size_t b = 0; b < KV_BATCH; b++)
        for (size_t h = 0; h < KV_HEADS; h++)
            for (size_t i = 0; i < test->length; i++) {
                size_t place[2];
                if (place_of(test, b, (int64_t)i, place))
                    visit(job, test, (const size_t[3]){b, h, i}, (const size_t[3]){place[0], h, place[1]});
            }
}

static void own_row(test_job *job, const kv_append_case *test, const size_t from[3], const size_t to[3])
{
    (void)test, (void)from;
    for (int n = KEY_CACHE; n <= VALUE_SCALE; n++) {
        test_array *array = &job->output[n];
        size_t index[4] = {to[0], to[1], to[2], 0};
        for (; array->memory && index[3] < array->layout.extent[3]; index[3]++)
            array_own_element(array, index);
    }
}

static bool make_job(test_job *job, const kv_append_case *test, const char *solver)
{
    clattn_kv_append_desc desc = CLATTN_KV_APPEND_DESC_INIT;
    clattn_kv_append_args args = CLATTN_KV_APPEND_ARGS_INIT;
    const size_t sizes[2] = {test->d_k, test->d_v};
    int64_t table[KV_BATCH * BLOCKS];

    for (int n = 0; n < 2; n++) {
        size_t rows[4] = {KV_BATCH, KV_HEADS, test->length, sizes[n]};
        size_t cache[4] = {is_paged(test) ? PAGES : KV_BATCH, KV_HEADS, test->capacity, sizes[n]};
        job->input[KEY + n] = job_array(job, ROLE_INPUT, CLATTN_DTYPE_F32, 4, rows, FORM_PADDED);
        job_fill(&job->input[KEY + n], (uint64_t)n + 1, -1, 1, false);
        job->output[KEY_CACHE + n] = job_array(job, ROLE_IN_PLACE, test->type, 4, cache, test->form);
        cache[3] = test->groups;
        if (test->groups)
            job->output[KEY_SCALE + n] = job_array(job, ROLE_IN_PLACE, test->scale_type, 4, cache, test->form);
    }
    for (int n = KEY_CACHE; n <= VALUE_SCALE; n++)
        if (job->output[n].memory)
            array_upload(&job->output[n]);
    for (size_t i = 0; i < COUNT_OF(table); i++)
        table[i] = page_of(i / BLOCKS, i % BLOCKS);
    if (is_paged(test)) {
        job->input[BLOCK_TABLE] = job_integers(job, CLATTN_DTYPE_I32, COUNT_OF(table), table);
        job->input[BLOCK_TABLE].layout = (clattn_layout){
            .dtype = CLATTN_DTYPE_I32, .rank = 2, .extent = {KV_BATCH, BLOCKS}, .stride = {2 * BLOCKS, 2}};
    }
    if (!test->one_past)
        job->input[PAST] = job_integers(job, CLATTN_DTYPE_I64, KV_BATCH, test->past);
    if (test->has_new)
        job->input[NEW] = job_integers(job, CLATTN_DTYPE_I32, KV_BATCH, test->fresh);
    each_row(job, test, own_row);

    desc.cache = test->cache;
    desc.rotate = test->rotate;
    desc.pairing = test->interleaved ? CLATTN_ROPE_PAIRING_INTERLEAVED : CLATTN_ROPE_PAIRING_HALVES;
    desc.base = test->base;
    desc.rotary_size = test->rotary;
    array_bind(&job->input[KEY], &desc.key, &args.key);
    array_bind(&job->input[VALUE], &desc.value, &args.value);
    array_bind(&job->output[KEY_CACHE], &desc.key_cache, &args.key_cache);
    array_bind(&job->output[VALUE_CACHE], &desc.value_cache, &args.value_cache);
    array_bind(&job->output[KEY_SCALE], &desc.key_scale, &args.key_scale);
    array_bind(&job->output[VALUE_SCALE], &desc.value_scale, &args.value_scale);
    array_bind(&job->input[BLOCK_TABLE], &desc.block_table, &args.block_table);
    array_bind(&job->input[PAST], &desc.past_lengths, &args.past_lengths);
    array_bind(&job->input[NEW], &desc.new_lengths, &args.new_lengths);
    args.past_lengths = array_binding(&job->input[PAST]);
    args.new_lengths = array_binding(&job->input[NEW]);
    args.past_length = test->one_past ? test->past[0] : 0;
    args.position = test->position;
    job->args.kv_append = args;
    return job_plan(job, &kv_append_operator, &desc, solver, JOB_TAKEN);
}

/* ---- the verdict ---- */

/* Computes a row before it is stored; *error is what rotating it may lose. */
static void expected_row(const test_job *job, const kv_append_case *test, int which, const size_t from[3], double *out,
                         double *error)
{
    const test_array *rows = &job->input[KEY + which];
    const size_t size = rows->layout.extent[3], rotary = test->rotary ? test->rotary : test->d_k;
    const double position = (double)(test->past[from[0]] + (int64_t)from[2] + test->position);
    double *x = zeros(size), *magnitude = zeros(size);

    for (size_t d = 0; d < size; d++)
        out[d] = x[d] = array_get(rows, (const size_t[4]){from[0], from[1], from[2], d});
    *error = 0;
    if (which == KEY && test->rotate) {
        reference_rope(size, rotary, test->interleaved, test->base > 0 ? (double)test->base : 10000, NULL, NULL,
                       position, x, out, magnitude);
        *error = 1e-6;
    }
    free(x);
    free(magnitude);
}

/* Compares a stored row with the expected one. */
static void judge(const kv_append_case *test, const test_array *cache, const test_array *scales, const size_t to[3],
                  const double *wanted, double error)
{
    const size_t size = cache->layout.extent[3], group = test->groups ? size / test->groups : size;
    const double levels = test->type == CLATTN_DTYPE_I4 ? 7 : 127;
    const bool half = test->scale_type == CLATTN_DTYPE_F16;

    for (size_t d = 0; d < size; d++) {
        double got = array_get(cache, (const size_t[4]){to[0], to[1], to[2], d}), slack = error;
        if (test->groups) {
            const double scale = array_get(scales, (const size_t[4]){to[0], to[1], to[2], d / group});
            double largest = 0;
            for (size_t e = d / group * group; e < (d / group + 1) * group; e++)
                largest = fmax(largest, fabs(wanted[e]));
            assert_true(fabs(scale - largest / levels) <= largest / levels * (half ? 1e-3 : 1e-6) + 1e-7);
            assert_true(fabs(got) <= levels);
            got *= scale;
            slack = 0.5001 * scale + 1e-6 + largest * (half ? 1e-3 : 0);
        } else {
            slack += fabs(wanted[d]) * (test->type == CLATTN_DTYPE_F16    ? 0x1p-11
                                        : test->type == CLATTN_DTYPE_BF16 ? 0x1p-8
                                                                          : 0);
        }
        if (!(fabs(got - wanted[d]) <= slack))
            fail_msg("element %zu of row (%zu, %zu, %zu) is %.9g, not %.9g", d, to[0], to[1], to[2], got, wanted[d]);
    }
}

static void judge_row(test_job *job, const kv_append_case *test, const size_t from[3], const size_t to[3])
{
    const size_t longest = test->d_k > test->d_v ? test->d_k : test->d_v;
    double *wanted = zeros(longest), error;

    for (int n = 0; n < 2; n++) {
        expected_row(job, test, n, from, wanted, &error);
        judge(test, &job->output[KEY_CACHE + n], &job->output[KEY_SCALE + n], to, wanted, error);
    }
    free(wanted);
}

static void check(const void *which, const char *solver)
{
    const kv_append_case *test = which;
    test_job job = {0};

    if (make_job(&job, test, solver)) {
        job_run(&job, NULL);
        each_row(&job, test, judge_row);
    }
    job_release(&job);
}

void kv_append_add(const kv_append_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const kv_append_case *t = &cases[i];

        if (t->levels & level())
            suite_add_case(check, t, "generic", "kv_append: %s", t->rule);
    }
}
