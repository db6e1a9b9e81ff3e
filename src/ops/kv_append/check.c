/* The self-check of appending to a cache: the plan's own kernel on some rows.
 *
 * Rows that are appended must be what the reference writes.  All others must keep their bytes: also rows beyond the cache's
 * capacity, on a page that does not exist, or beyond an item's own new length. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/kv_append/kv_append.h"
#include "plan/self_check.h"
#include "ref/attention.h"
#include "ref/ref.h"

#define BATCH 2
#define LENGTH 5
#define PAGES 4
#define BLOCKS 2
#define WIDE 1024  /* larger rows are checked with one head */
#define FAR 900000 /* a position whose angles are many turns */

enum { KEY, VALUE, KEY_CACHE, VALUE_CACHE, KEY_SCALE, VALUE_SCALE, TABLE, PAST, NEW, ARRAYS };

/* Item 1 has a page that does not exist. */
static const int64_t table[BATCH][BLOCKS] = {{2, 0}, {3, 9}}, past[BATCH] = {2, 1}, new[BATCH] = {LENGTH, LENGTH - 1};

struct kv_append_check {
    struct kv_append_problem small, original;
    clattn_kv_append_args args;
    struct check_array arrays[ARRAYS];
    void *before[ARRAYS]; /* of the caches and scales */
    double *exact;        /* a row, and behind it its magnitude */
    float *row;           /* the row before rotation */
};

static size_t capacity_of(int32_t cache)
{
    return cache == CLATTN_CACHE_KIND_PAGED ? 3 : cache == CLATTN_CACHE_KIND_RING ? 4 : 6;
}

/* The small problem has the same -D options: types, sizes, groups, the kind of cache, which lengths there are. */
static clattn_status describe(struct kv_append_check *check)
{
    const clattn_kv_append_desc *full = &check->original.desc;
    clattn_kv_append_desc desc = *full;
    bool paged = full->cache == CLATTN_CACHE_KIND_PAGED;
    const size_t heads = check->original.size[KV_KEY] + check->original.size[KV_VALUE] < WIDE ? 2 : 1;
    const size_t rows = capacity_of(full->cache), items[2] = {BATCH, BLOCKS};
    const struct {
        clattn_layout *layout;
        size_t outer, rows;
    } all[] = {
        [KEY] = {&desc.key, BATCH, LENGTH},       [VALUE] = {&desc.value, BATCH, LENGTH},
        [KEY_CACHE] = {&desc.key_cache, 0, rows}, [VALUE_CACHE] = {&desc.value_cache, 0, rows},
        [KEY_SCALE] = {&desc.key_scale, 0, rows}, [VALUE_SCALE] = {&desc.value_scale, 0, rows},
    };
    const char *reason;
    for (int i = KEY; i <= VALUE_SCALE; i++) {
        clattn_layout *layout = all[i].layout;
        const size_t extent[4] = {all[i].outer ? all[i].outer
                                  : paged      ? PAGES
                                               : BATCH,
                                  heads, all[i].rows, layout->extent[3]};
        if (layout->rank)
            *layout = clattn_layout_contiguous(layout->dtype, 4, extent);
    }
    clattn_layout *integers[3] = {&desc.block_table, &desc.past_lengths, &desc.new_lengths};
    for (int i = 0; i < 3; i++)
        if (integers[i]->rank)
            *integers[i] = clattn_layout_contiguous(integers[i]->dtype, i == 0 ? 2 : 1, items);
    return kv_append_problem_read(&desc, &check->small, &reason);
}

static void fill_integers(struct check_array *array, clattn_dtype dtype, const int64_t *values)
{
    for (size_t i = 0; i < array->elements; i++)
        check_put_integer(array->host, dtype, (int64_t)i, values[i]);
}

/* Fills float32's low digits, so that a narrower type rounds them.  Row 1 of the first item ends in a NaN, or in an
 * infinity if it is a value's; row 2 is 0. */
static void finish_rows(struct check_array *array, clattn_dtype dtype, size_t size, bool nan, uint32_t *random)
{
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

static clattn_status make(void *data, clattn_context *context)
{
    clattn_status status;
    struct kv_append_check *check = data;
    const clattn_kv_append_desc *desc = &check->small.desc;
    clattn_kv_append_args *args = &check->args;
    const size_t size = size_max(check->original.size[KV_KEY], check->original.size[KV_VALUE]);
    struct report *report = &context->device.report;
    uint32_t random = 0x2545f491;
    check->exact = malloc(2 * size * sizeof *check->exact);
    check->row = malloc(size * sizeof *check->row);
    if (!check->exact || !check->row)
        return report_error(report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a self-check");
    if (describe(check) != CLATTN_SUCCESS)
        return report_error(report, CLATTN_ERROR_INTERNAL, "a self-check cannot be described");
    const struct check_place places[ARRAYS] = {
        [KEY] = {&desc->key, &args->key, CHECK_NUMBERS},
        [VALUE] = {&desc->value, &args->value, CHECK_NUMBERS},
        [KEY_CACHE] = {&desc->key_cache, &args->key_cache, CHECK_NUMBERS},
        [VALUE_CACHE] = {&desc->value_cache, &args->value_cache, CHECK_NUMBERS},
        [KEY_SCALE] = {&desc->key_scale, &args->key_scale, CHECK_NUMBERS},
        [VALUE_SCALE] = {&desc->value_scale, &args->value_scale, CHECK_NUMBERS},
        [TABLE] = {&desc->block_table, &args->block_table, CHECK_ZEROS},
        [PAST] = {&desc->past_lengths, &args->past_lengths, CHECK_ZEROS},
        [NEW] = {&desc->new_lengths, &args->new_lengths, CHECK_ZEROS},
    };
    TRY(check_arrays_make(context, places, ARRAYS, check->arrays));
    finish_rows(&check->arrays[KEY], desc->key.dtype, check->small.size[KV_KEY], true, &random);
    finish_rows(&check->arrays[VALUE], desc->value.dtype, check->small.size[KV_VALUE], false, &random);
    fill_integers(&check->arrays[TABLE], desc->block_table.dtype, table[0]);
    fill_integers(&check->arrays[PAST], desc->past_lengths.dtype, past);
    fill_integers(&check->arrays[NEW], desc->new_lengths.dtype, new);
    for (int i = KEY_CACHE; i <= VALUE_SCALE; i++) {
        if (!check->arrays[i].host)
            continue;
        check->before[i] = malloc(check->arrays[i].bytes);
        if (!check->before[i])
            return report_error(report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a self-check");
        memcpy(check->before[i], check->arrays[i].host, check->arrays[i].bytes);
    }
    TRY(check_arrays_upload(context, places, ARRAYS, check->arrays));
    args->past_length = 2;
    args->position = desc->rotate ? FAR : 0;
fail:
    return status;
}

/* The new row of item *batch that row `to` of the cache holds; -1 if there is none. */
static int64_t row_in(const struct kv_append_check *check, int64_t outer, int64_t to, int64_t *batch)
{
    const clattn_kv_append_desc *desc = &check->small.desc;
    bool paged = desc->cache == CLATTN_CACHE_KIND_PAGED;
    int64_t rows = (int64_t)desc->key_cache.extent[2];
    for (*batch = paged ? 0 : outer; *batch < (paged ? BATCH : outer + 1); ++*batch) {
        ref_cache cache = {desc->cache == CLATTN_CACHE_KIND_RING, rows, paged ? table[*batch] : NULL, BLOCKS, PAGES};
        for (int64_t i = 0; i < LENGTH; i++)
            if (ref_cache_row(&cache, check->small.has_past ? past[*batch] : 2,
                              check->small.has_new ? new[*batch] : LENGTH, i) == to + (paged ? outer * rows : 0))
                return i;
    }
    return -1;
}

/* Row i of item `batch` as it should be stored, into check->exact. */
static void exact_row(struct kv_append_check *check, int which, int64_t batch, int64_t head, int64_t i)
{
    const clattn_kv_append_desc *desc = &check->small.desc;
    const clattn_layout *layout = which == KV_KEY ? &desc->key : &desc->value;
    const int64_t size = (int64_t)check->small.size[which];
    const int64_t first = batch * layout->stride[0] + head * layout->stride[1] + i * layout->stride[2];
    double *exact = check->exact, *magnitude = exact + size;
    for (int64_t d = 0; d < size; d++) {
        exact[d] = ref_element(check->arrays[which].host, layout->dtype, first + d);
        check->row[d] = (float)exact[d];
        magnitude[d] = 0; /* copies are exact */
    }
    if (which == KV_VALUE || !desc->rotate)
        return;
    ref_rope_problem rope = {.size = size,
                             .rotary = (int64_t)desc->rotary_size,
                             .interleaved = desc->pairing == CLATTN_ROPE_PAIRING_INTERLEAVED,
                             .base = (double)desc->base};
    int64_t position = (check->small.has_past ? past[batch] : 2) + i + FAR;
    ref_rope_row(&rope, check->row, position, exact, magnitude);
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
static clattn_status judge_group(const struct kv_append_check *check, struct report *report, int which, int64_t row,
                                 int64_t group, const int64_t index[3])
{
    clattn_status status = CLATTN_SUCCESS;
    const clattn_kv_append_desc *desc = &check->small.desc;
    const clattn_layout *scale = which == KV_KEY ? &desc->key_scale : &desc->value_scale;
    const clattn_layout *cache = which == KV_KEY ? &desc->key_cache : &desc->value_cache;
    const int64_t unit = (int64_t)check->small.unit[which], size = (int64_t)check->small.size[which];
    const int levels = cache->dtype == CLATTN_DTYPE_I4 ? 7 : 127;
    const double *exact = check->exact + group * unit, *magnitude = exact + size;
    double right = ref_group_scale(exact, unit, levels), most = 0, unit_of_type = storage_epsilon(scale->dtype);
    double stored =
        ref_element(check->arrays[KEY_SCALE + which].host, scale->dtype, row * (int64_t)scale->extent[3] + group);
    for (int64_t c = 0; c < unit; c++)
        most = fmax(most, magnitude[c]);
    TRY(check_element(report, "kv_append", which == KV_KEY ? "key_scale" : "value_scale",
                      (const int64_t[4]){index[0], index[1], index[2], group}, stored, right,
                      FLT_EPSILON * (2 * right + 256 * most / levels) + unit_of_type / 2 * right));
    for (int64_t c = 0; c < unit && !isnan(right); c++) {
        double value = ref_element(check->arrays[KEY_CACHE + which].host, cache->dtype, row * size + group * unit + c);
        double level = stored == 0 ? 0 : fmin(fmax(exact[c] / stored, -levels), levels);
        double slack = stored == 0 ? 0 : 0.5 + FLT_EPSILON * (4 * levels + 256 * magnitude[c] / stored);
        TRY(check_element(report, "kv_append", which == KV_KEY ? "key_cache" : "value_cache",
                          (const int64_t[4]){index[0], index[1], index[2], group * unit + c}, value, level, slack));
    }
fail:
    return status;
}

static clattn_status judge_written(const struct kv_append_check *check, struct report *report, int which, int64_t row,
                                   const int64_t index[3])
{
    clattn_status status = CLATTN_SUCCESS;
    const clattn_kv_append_desc *desc = &check->small.desc;
    const clattn_layout *cache = which == KV_KEY ? &desc->key_cache : &desc->value_cache;
    const int64_t size = (int64_t)check->small.size[which];
    const double *exact = check->exact, *magnitude = exact + size;
    for (int64_t g = 0; check->small.has_scale[which] && g < size / (int64_t)check->small.unit[which]; g++)
        TRY(judge_group(check, report, which, row, g, index));
    for (int64_t d = 0; d < size && !check->small.has_scale[which]; d++) {
        double value = ref_element(check->arrays[KEY_CACHE + which].host, cache->dtype, row * size + d);
        TRY(check_element(report, "kv_append", which == KV_KEY ? "key_cache" : "value_cache",
                          (const int64_t[4]){index[0], index[1], index[2], d}, value, exact[d],
                          slack_of(cache->dtype, exact[d], magnitude[d])));
    }
fail:
    return status;
}

/* Judges a row that nothing was appended to. */
static clattn_status judge_untouched(const struct kv_append_check *check, struct report *report, int array,
                                     clattn_dtype dtype, int64_t row, int64_t columns, const int64_t index[3])
{
    clattn_status status = CLATTN_SUCCESS;
    for (int64_t d = 0; d < columns; d++) {
        double value = ref_element(check->arrays[array].host, dtype, row * columns + d);
        double old = ref_element(check->before[array], dtype, row * columns + d);
        TRY(check_element(report, "kv_append", "a row that is not appended to",
                          (const int64_t[4]){index[0], index[1], index[2], d}, value, old, 0));
    }
fail:
    return status;
}

static clattn_status judge_caches(struct kv_append_check *check, struct report *report, int which)
{
    clattn_status status = CLATTN_SUCCESS;
    const clattn_kv_append_desc *desc = &check->small.desc;
    const clattn_layout *cache = which == KV_KEY ? &desc->key_cache : &desc->value_cache;
    const clattn_layout *scale = which == KV_KEY ? &desc->key_scale : &desc->value_scale;
    const int64_t outers = (int64_t)cache->extent[0], heads = (int64_t)cache->extent[1],
                  rows = (int64_t)cache->extent[2];
    for (int64_t n = 0; n < outers * heads * rows; n++) {
        const int64_t index[3] = {n / rows / heads, n / rows % heads, n % rows};
        int64_t batch, i = row_in(check, index[0], index[2], &batch);
        if (i >= 0) {
            exact_row(check, which, batch, index[1], i);
            TRY(judge_written(check, report, which, n, index));
            continue;
        }
        TRY(judge_untouched(check, report, KEY_CACHE + which, cache->dtype, n, (int64_t)cache->extent[3], index));
        if (check->small.has_scale[which])
            TRY(judge_untouched(check, report, KEY_SCALE + which, scale->dtype, n, (int64_t)scale->extent[3], index));
    }
fail:
    return status;
}

static clattn_status judge(void *data, struct report *report, const char *kernel)
{
    clattn_status status;
    (void)kernel;
    TRY(judge_caches(data, report, KV_KEY));
    TRY(judge_caches(data, report, KV_VALUE));
fail:
    return status;
}

clattn_status kv_append_self_check(struct self_check *self)
{
    const clattn_plan *base = self->plan;
    const struct kv_append_plan *plan = (const struct kv_append_plan *)base;
    struct kv_append_check check = {.original = plan->problem, .args = CLATTN_KV_APPEND_ARGS_INIT};
    const struct check_course course = {&check.small,      &check.args, check.arrays, ARRAYS, KEY_CACHE,
                                        TABLE - KEY_CACHE, make,        judge,        0};
    clattn_status status = check_run(base, &course, &check);
    for (int i = 0; i < ARRAYS; i++)
        free(check.before[i]);
    free(check.exact);
    free(check.row);
    return status;
}
