/* The self-check of merging: the plan's own kernel on some rows. */
#include <float.h>
#include <math.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/merge/merge.h"
#include "plan/self_check.h"
#include "ref/attention.h"
#include "ref/ref.h"

#define PARTS 5
#define BATCH 2
#define HEADS 3
#define QUERIES 2
#define ROWS (BATCH * HEADS * QUERIES)
#define COLUMNS 70 /* more than any CHUNK, so that CHUNK is the plan's unless the plan has fewer columns */

enum { PARTIAL, PARTIAL_LSE, SINKS, OUTPUT, LSE, ARRAYS };

struct merge_check {
    struct merge_problem small, original;
    clattn_merge_args args;
    struct check_array arrays[ARRAYS];
};

static clattn_status describe(struct merge_check *check)
{
    const clattn_merge_desc *full = &check->original.desc;
    const size_t extent[5] = {PARTS, BATCH, HEADS, QUERIES, size_min(check->original.columns, COLUMNS)};
    clattn_merge_desc desc = CLATTN_MERGE_DESC_INIT;
    const char *reason;
    desc.partial = clattn_layout_contiguous(CLATTN_DTYPE_F32, 5, extent);
    desc.partial_lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, extent);
    desc.output = clattn_layout_contiguous(full->output.dtype, 4, extent + 1);
    if (check->original.has_sinks)
        desc.sinks = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, extent + 2);
    if (check->original.has_lse)
        desc.lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, extent + 1);
    return merge_problem_read(&desc, &check->small, &reason);
}

/* Some parts attend nothing, and their output must not be read; row 1 attends nothing at all, row 2 has a NaN. */
static void fill_lse(struct merge_check *check)
{
    float *lse = check->arrays[PARTIAL_LSE].host, *partial = check->arrays[PARTIAL].host;
    size_t columns = check->small.columns;
    for (size_t n = 0; n < PARTS; n++)
        for (size_t row = 0; row < ROWS; row++) {
            float *x = &lse[n * ROWS + row];
            *x = row == 2 && n == 3 ? NAN : row == 1 || (n + row) % 4 == 2 ? -INFINITY : 8.0f * *x;
            for (size_t c = 0; c < columns && *x == -INFINITY; c++)
                partial[(n * ROWS + row) * columns + c] = NAN;
        }
}

static clattn_status make(void *data, clattn_context *context)
{
    clattn_status status;
    struct merge_check *check = data;
    const clattn_merge_desc *desc = &check->small.desc;
    TRY(describe(check));
    const struct check_place places[ARRAYS] = {
        [PARTIAL] = {&desc->partial, &check->args.partial, CHECK_NUMBERS},
        [PARTIAL_LSE] = {&desc->partial_lse, &check->args.partial_lse, CHECK_NUMBERS},
        [SINKS] = {&desc->sinks, &check->args.sinks, CHECK_NUMBERS},
        [OUTPUT] = {&desc->output, &check->args.output, CHECK_ZEROS},
        [LSE] = {&desc->lse, &check->args.lse, CHECK_ZEROS},
    };
    TRY(check_arrays_make(context, places, ARRAYS, check->arrays));
    fill_lse(check);
    TRY(check_arrays_upload(context, places, ARRAYS, check->arrays));
fail:
    return status;
}

static clattn_status judge_row(const struct merge_check *check, struct report *report, const char *kernel, int64_t row)
{
    clattn_status status = CLATTN_SUCCESS;
    const int64_t columns = (int64_t)check->small.columns, head = row / QUERIES % HEADS;
    const clattn_dtype dtype = check->small.desc.output.dtype;
    const int64_t index[3] = {row / (HEADS * QUERIES), head, row % QUERIES};
    double exact[COLUMNS], magnitude[COLUMNS], lse;
    ref_merge_problem reference = {
        .parts = PARTS,
        .columns = columns,
        .partial = (const float *)check->arrays[PARTIAL].host + row * columns,
        .lse = (const float *)check->arrays[PARTIAL_LSE].host + row,
        .part = ROWS * columns,
        .col = 1,
        .part_lse = ROWS,
        .sink = check->small.has_sinks ? (const float *)check->arrays[SINKS].host + head : NULL,
    };
    ref_merge_row(&reference, exact, magnitude, &lse);
    for (int64_t c = 0; c < columns; c++) {
        double value = ref_element(check->arrays[OUTPUT].host, dtype, row * columns + c);
        double slack = check_slack(exact[c], exact[c], magnitude[c], FLT_EPSILON, storage_epsilon(dtype));
        TRY(check_element(report, kernel, "output", (const int64_t[4]){index[0], index[1], index[2], c}, value,
                          exact[c], slack));
    }
    if (check->small.has_lse)
        TRY(check_element(report, kernel, "lse", (const int64_t[4]){index[0], index[1], index[2], 0},
                          ((const float *)check->arrays[LSE].host)[row], lse,
                          check_slack(lse, lse, 1 + fabs(lse), FLT_EPSILON, FLT_EPSILON)));
fail:
    return status;
}

static clattn_status judge(void *data, struct report *report, const char *kernel)
{
    clattn_status status = CLATTN_SUCCESS;
    for (int64_t row = 0; row < ROWS; row++)
        TRY(judge_row(data, report, kernel, row));
fail:
    return status;
}

clattn_status merge_self_check(struct self_check *self)
{
    const clattn_plan *base = self->plan;
    const struct merge_plan *plan = (const struct merge_plan *)base;
    struct merge_check check = {.original = plan->problem, .args = CLATTN_MERGE_ARGS_INIT};
    const struct check_course course = {&check.small,    &check.args, check.arrays, ARRAYS, OUTPUT,
                                        ARRAYS - OUTPUT, make,        judge,        0};
    return check_run(base, &course, &check);
}
