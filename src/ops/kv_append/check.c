/* The self-check of appending to a cache: the plan's own kernel on some rows.
 *
 * Rows that are appended must be what the reference writes.  All others must keep their bytes: also rows beyond the cache's
 * capacity, on a page that does not exist, or beyond an item's own new length. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/common/check.h"
#include "ops/kv_append/kv_append.h"
#include "ref/attention.h"
#include "ref/ref.h"

#define BATCH 2
#define LENGTH 5
#define PAGES 4
#define BLOCKS 2
#define WIDE 1024  /* larger rows are checked with one head */
#define FAR 900000 /* a position whose angles are many turns */

/* The outputs are last. */
enum { KEY, VALUE, TABLE, PAST, NEW, KEY_CACHE, VALUE_CACHE, KEY_SCALE, VALUE_SCALE, ARRAYS };

/* Item 1 has a page that does not exist. */
static const int64_t table[BATCH][BLOCKS] = {{2, 0}, {3, 9}}, past[BATCH] = {2, 1}, new[BATCH] = {LENGTH, LENGTH - 1};

static size_t capacity_of(int32_t cache)
{
    return cache == CLATTN_CACHE_KIND_PAGED ? 3 : cache == CLATTN_CACHE_KIND_RING ? 4 : 6;
}

/* The small problem has the same -D options: types, sizes, groups, the kind of cache, which lengths there are. */
static clattn_kv_append_desc describe(const struct kv_append_problem *full)
{
    clattn_kv_append_desc desc = full->desc;
    const size_t heads = full->size[KV_KEY] + full->size[KV_VALUE] < WIDE ? 2 : 1;
    const size_t items[2] = {BATCH, BLOCKS}, outer = full->is_paged ? PAGES : BATCH;
    clattn_layout *const rows[] = {&desc.key,         &desc.value,     &desc.key_cache,
                                   &desc.value_cache, &desc.key_scale, &desc.value_scale};
    clattn_layout *const integers[] = {&desc.block_table, &desc.past_lengths, &desc.new_lengths};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const size_t extent[4] = {i < 2 ? BATCH : outer, heads, i < 2 ? LENGTH : capacity_of(desc.cache),
                                  rows[i]->extent[3]};
        if (rows[i]->rank)
            *rows[i] = clattn_layout_contiguous(rows[i]->dtype, 4, extent);
    }
    for (size_t i = 0; i < COUNT_OF(integers); i++)
        if (integers[i]->rank)
            *integers[i] = clattn_layout_contiguous(integers[i]->dtype, i == 0 ? 2 : 1, items);
    return desc;
}

static void fill_integers(struct check_array *array, const int64_t *values)
{
    for (size_t i = 0; i < array->elements; i++)
        check_put_integer(array->host, array->place.layout->dtype, (int64_t)i, values[i]);
}

/* Fills float32's low digits, so that a narrower type rounds them.  Row 1 of the first item ends in a NaN, or in an
 * infinity if it is a value's; row 2 is 0. */
static void finish_rows(struct check_array *array, bool nan, uint32_t *random)
{
    const clattn_dtype dtype = array->place.layout->dtype;
    const size_t size = array->place.layout->extent[3];
    float *wide = array->host;
    uint16_t *narrow = array->host;
    uint16_t infinity = dtype == CLATTN_DTYPE_F16 ? 0x7c00 : 0x7f80,
             not_a_number = dtype == CLATTN_DTYPE_F16 ? 0x7e00 : 0x7fc0;
    for (size_t i = 0; i < array->elements && dtype == CLATTN_DTYPE_F32; i++)
        wide[i] *= 1 + (float)(check_random(random) & 0xffff) * 0x1p-22f;
    for (size_t i = 2 * size - 1; i < 3 * size; i++)
        if (dtype == CLATTN_DTYPE_F32)
            wide[i] = i >= 2 * size ? 0 : nan ? NAN : INFINITY;
        else
            narrow[i] = i >= 2 * size ? 0 : nan ? not_a_number : infinity;
}

static void fill(struct check *check)
{
    struct check_array *arrays = check->arrays;
    uint32_t random = 0x2545f491;
    finish_rows(&arrays[KEY], true, &random);
    finish_rows(&arrays[VALUE], false, &random);
    fill_integers(&arrays[TABLE], table[0]);
    fill_integers(&arrays[PAST], past);
    fill_integers(&arrays[NEW], new);
}

/* The new row of item *batch that row `to` of the cache holds; -1 if there is none. */
static int64_t row_in(const struct kv_append_problem *small, int64_t outer, int64_t to, int64_t *batch)
{
    bool paged = small->is_paged;
    int64_t rows = (int64_t)small->desc.key_cache.extent[2];
    for (*batch = paged ? 0 : outer; *batch < (paged ? BATCH : outer + 1); ++*batch) {
        ref_cache cache = {small->desc.cache == CLATTN_CACHE_KIND_RING, rows, paged ? table[*batch] : NULL, BLOCKS,
                           PAGES};
        for (int64_t i = 0; i < LENGTH; i++)
            if (ref_cache_row(&cache, small->has_past ? past[*batch] : 2, small->has_new ? new[*batch] : LENGTH, i) ==
                to + (paged ? outer * rows : 0))
                return i;
    }
    return -1;
}

/* Row i of item `batch` as it should be stored, into `exact`; behind it its magnitude, and scratch for the row before
 * rotation. */
static void exact_row(const struct check *check, int which, int64_t batch, int64_t head, int64_t i, double *exact)
{
    const struct kv_append_problem *small = check->problem;
    const clattn_kv_append_desc *desc = &small->desc;
    const clattn_layout *layout = check->arrays[KEY + which].place.layout;
    const int64_t size = (int64_t)small->size[which];
    const int64_t first = batch * layout->stride[0] + head * layout->stride[1] + i * layout->stride[2];
    double *magnitude = exact + size;
    float *row = (float *)(magnitude + size);
    for (int64_t d = 0; d < size; d++) {
        exact[d] = check_read(&check->arrays[KEY + which], first + d);
        row[d] = (float)exact[d];
        magnitude[d] = 0; /* copies are exact */
    }
    if (which == KV_VALUE || !desc->rotate)
        return;
    ref_rope_problem rope = {.size = size,
                             .rotary = (int64_t)desc->rotary_size,
                             .interleaved = desc->pairing == CLATTN_ROPE_PAIRING_INTERLEAVED,
                             .base = (double)desc->base};
    int64_t position = (small->has_past ? past[batch] : 2) + i + FAR;
    ref_rope_row(&rope, row, position, exact, magnitude);
    for (int64_t d = rope.rotary; d < size; d++)
        magnitude[d] = 0;
}

/* The error that is allowed: half a unit of the type, and a rotation's rounding. */
static double slack_of(clattn_dtype dtype, double exact, double magnitude)
{
    double half = storage_rounding(dtype, exact);
    return magnitude == 0 ? half : half + check_slack(exact, exact, magnitude, FLT_EPSILON, storage_epsilon(dtype));
}

/* Judges a group's scale, and its integers by the scale that has been stored. */
static clattn_status judge_group(const struct check *check, int which, const double *row_exact, int64_t row,
                                 int64_t group, const int64_t index[3])
{
    clattn_status status = CLATTN_SUCCESS;
    const struct kv_append_problem *small = check->problem;
    const struct check_array *cache = &check->arrays[KEY_CACHE + which], *scale = &check->arrays[KEY_SCALE + which];
    const int64_t unit = (int64_t)small->unit[which], size = (int64_t)small->size[which];
    const int levels = cache->place.layout->dtype == CLATTN_DTYPE_I4 ? 7 : 127;
    const double *exact = row_exact + group * unit, *magnitude = exact + size;
    double right = ref_group_scale(exact, unit, levels), most = 0;
    double stored = check_read(scale, row * (int64_t)scale->place.layout->extent[3] + group);
    for (int64_t c = 0; c < unit; c++)
        most = fmax(most, magnitude[c]);
    TRY(check_element(check->report, check->kernel, scale->place.name,
                      (const int64_t[4]){index[0], index[1], index[2], group}, stored, right,
                      FLT_EPSILON * (2 * right + 256 * most / levels) +
                          storage_epsilon(scale->place.layout->dtype) / 2 * right));
    for (int64_t c = 0; c < unit && !isnan(right); c++) {
        double value = check_read(cache, row * size + group * unit + c);
        double level = stored == 0 ? 0 : fmin(fmax(exact[c] / stored, -levels), levels);
        double slack = stored == 0 ? 0 : 0.5 + FLT_EPSILON * (4 * levels + 256 * magnitude[c] / stored);
        TRY(check_element(check->report, check->kernel, cache->place.name,
                          (const int64_t[4]){index[0], index[1], index[2], group * unit + c}, value, level, slack));
    }
fail:
    return status;
}

static clattn_status judge_written(const struct check *check, int which, const double *exact, int64_t row,
                                   const int64_t index[3])
{
    clattn_status status = CLATTN_SUCCESS;
    const struct kv_append_problem *small = check->problem;
    const struct check_array *cache = &check->arrays[KEY_CACHE + which];
    const int64_t size = (int64_t)small->size[which];
    for (int64_t g = 0; small->has_scale[which] && g < size / (int64_t)small->unit[which]; g++)
        TRY(judge_group(check, which, exact, row, g, index));
    for (int64_t d = 0; d < size && !small->has_scale[which]; d++)
        TRY(check_element(check->report, check->kernel, cache->place.name,
                          (const int64_t[4]){index[0], index[1], index[2], d}, check_read(cache, row * size + d),
                          exact[d], slack_of(cache->place.layout->dtype, exact[d], exact[size + d])));
fail:
    return status;
}

/* Judges a row that nothing was appended to. */
static clattn_status judge_untouched(const struct check *check, const struct check_array *array, int64_t row,
                                     const int64_t index[3])
{
    clattn_status status = CLATTN_SUCCESS;
    const clattn_layout *layout = array->place.layout;
    const int64_t columns = (int64_t)layout->extent[3];
    for (int64_t d = 0; d < columns; d++)
        TRY(check_element(check->report, check->kernel, "a row that is not appended to",
                          (const int64_t[4]){index[0], index[1], index[2], d}, check_read(array, row * columns + d),
                          ref_element(array->before, layout->dtype, row * columns + d), 0));
fail:
    return status;
}

static clattn_status judge_cache(const struct check *check, int which, double *exact)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct kv_append_problem *small = check->problem;
    const size_t *extent = check->arrays[KEY_CACHE + which].place.layout->extent;
    const int64_t outers = (int64_t)extent[0], heads = (int64_t)extent[1], rows = (int64_t)extent[2];
    for (int64_t n = 0; n < outers * heads * rows; n++) {
        const int64_t index[3] = {n / rows / heads, n / rows % heads, n % rows};
        int64_t batch, i = row_in(small, index[0], index[2], &batch);
        if (i >= 0) {
            exact_row(check, which, batch, index[1], i, exact);
            TRY(judge_written(check, which, exact, n, index));
            continue;
        }
        TRY(judge_untouched(check, &check->arrays[KEY_CACHE + which], n, index));
        if (small->has_scale[which])
            TRY(judge_untouched(check, &check->arrays[KEY_SCALE + which], n, index));
    }
fail:
    return status;
}

static clattn_status judge(const struct check *check)
{
    clattn_status status;
    const struct kv_append_problem *small = check->problem;
    double *exact = calloc(3 * size_max(small->size[KV_KEY], small->size[KV_VALUE]), sizeof *exact);
    if (!exact)
        return report_error(check->report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a self-check");
    TRY(judge_cache(check, KV_KEY, exact));
    TRY(judge_cache(check, KV_VALUE, exact));
fail:
    free(exact);
    return status;
}

clattn_status kv_append_self_check(struct self_check *self)
{
    const struct kv_append_problem *full = &((const struct kv_append_plan *)self->plan)->problem;
    const clattn_kv_append_desc desc = describe(full);
    struct kv_append_problem small;
    clattn_kv_append_args args = CLATTN_KV_APPEND_ARGS_INIT;
    const struct check_place places[ARRAYS] = {
        [KEY] = {"key", &small.desc.key, &args.key, CHECK_NUMBERS},
        [VALUE] = {"value", &small.desc.value, &args.value, CHECK_NUMBERS},
        [TABLE] = {"block_table", &small.desc.block_table, &args.block_table, CHECK_ZEROS},
        [PAST] = {"past_lengths", &small.desc.past_lengths, &args.past_lengths, CHECK_ZEROS},
        [NEW] = {"new_lengths", &small.desc.new_lengths, &args.new_lengths, CHECK_ZEROS},
        [KEY_CACHE] = {"key_cache", &small.desc.key_cache, &args.key_cache, CHECK_NUMBERS},
        [VALUE_CACHE] = {"value_cache", &small.desc.value_cache, &args.value_cache, CHECK_NUMBERS},
        [KEY_SCALE] = {"key_scale", &small.desc.key_scale, &args.key_scale, CHECK_NUMBERS},
        [VALUE_SCALE] = {"value_scale", &small.desc.value_scale, &args.value_scale, CHECK_NUMBERS},
    };
    const struct check_course course = {places, ARRAYS, KEY_CACHE, fill, judge, 0};
    args.past_length = 2;
    args.position = desc.rotate ? FAR : 0;
    return check_run(self->plan, &course, &desc, &small, &args);
}
