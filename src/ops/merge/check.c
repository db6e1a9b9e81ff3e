/* The self-check of merging: the plan's own kernel on some rows. */
#include <float.h>
#include <math.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/common/check.h"
#include "ops/merge/merge.h"
#include "ref/ref.h"

#define PARTIALS 5
#define BATCH 2
#define HEADS 3
#define QUERIES 2
#define ROWS (BATCH * HEADS * QUERIES)
#define COLUMNS 70 /* more than any CHUNK, so that CHUNK is the plan's unless the plan has fewer columns */

enum { PARTIAL, PARTIAL_LSE, SINKS, OUTPUT, LSE, ARRAYS };

/* Some partials attend nothing, and their output must not be read; row 1 attends nothing at all, row 2 has a NaN. */
static void fill_lse(struct check *check)
{
    float *lse = check->arrays[PARTIAL_LSE].host, *partial = check->arrays[PARTIAL].host;
    size_t columns = ((const struct merge_problem *)check->problem)->columns;
    for (size_t n = 0; n < PARTIALS; n++)
        for (size_t row = 0; row < ROWS; row++) {
            float *x = &lse[n * ROWS + row];
            *x = row == 2 && n == 3 ? NAN : row == 1 || (n + row) % 4 == 2 ? -INFINITY : 8.0f * *x;
            for (size_t c = 0; c < columns && *x == -INFINITY; c++)
                partial[(n * ROWS + row) * columns + c] = NAN;
        }
}

static clattn_status judge_row(const struct check *check, int64_t row)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct merge_problem *small = check->problem;
    const int64_t columns = (int64_t)small->columns, head = row / QUERIES % HEADS;
    const int64_t index[3] = {row / (HEADS * QUERIES), head, row % QUERIES};
    double exact[COLUMNS], magnitude[COLUMNS], lse;
    ref_merge_problem reference = {
        .partials = PARTIALS,
        .columns = columns,
        .partial = (const float *)check->arrays[PARTIAL].host + row * columns,
        .lse = (const float *)check->arrays[PARTIAL_LSE].host + row,
        .part = ROWS * columns,
        .part_lse = ROWS,
        .sink = small->has_sinks ? (const float *)check->arrays[SINKS].host + head : NULL,
    };
    ref_merge_row(&reference, exact, magnitude, &lse);
    TRY(check_row(check, &check->arrays[OUTPUT], index, exact, NULL, magnitude));
    if (small->has_lse)
        TRY(check_element(check->report, check->kernel, "lse", (const int64_t[4]){index[0], index[1], index[2], 0},
                          ((const float *)check->arrays[LSE].host)[row], lse,
                          check_slack(lse, lse, 1 + fabs(lse), FLT_EPSILON, FLT_EPSILON)));
fail:
    return status;
}

static clattn_status judge(const struct check *check)
{
    clattn_status status = CLATTN_SUCCESS;
    for (int64_t row = 0; row < ROWS; row++)
        TRY(judge_row(check, row));
fail:
    return status;
}

clattn_status merge_self_check(struct self_check *self)
{
    const struct merge_problem *full = &((const struct merge_plan *)self->plan)->problem;
    const size_t extent[5] = {PARTIALS, BATCH, HEADS, QUERIES, size_min(full->columns, COLUMNS)};
    clattn_merge_desc desc = CLATTN_MERGE_DESC_INIT;
    desc.partial = clattn_layout_contiguous(CLATTN_DTYPE_F32, 5, extent);
    desc.partial_lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, extent);
    desc.output = clattn_layout_contiguous(full->desc.output.dtype, 4, extent + 1);
    if (full->has_sinks)
        desc.sinks = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, extent + 2);
    if (full->has_lse)
        desc.lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, extent + 1);
    struct merge_problem small;
    clattn_merge_args args = CLATTN_MERGE_ARGS_INIT;
    const struct check_place places[ARRAYS] = {
        [PARTIAL] = {"partial", &small.desc.partial, &args.partial, CHECK_NUMBERS},
        [PARTIAL_LSE] = {"partial_lse", &small.desc.partial_lse, &args.partial_lse, CHECK_NUMBERS},
        [SINKS] = {"sinks", &small.desc.sinks, &args.sinks, CHECK_NUMBERS},
        [OUTPUT] = {"output", &small.desc.output, &args.output, CHECK_ZEROS},
        [LSE] = {"lse", &small.desc.lse, &args.lse, CHECK_ZEROS},
    };
    const struct check_course course = {places, ARRAYS, OUTPUT, fill_lse, judge, 0};
    return check_run(self->plan, &course, &desc, &small, &args);
}
