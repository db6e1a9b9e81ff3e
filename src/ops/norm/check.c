/* The self-check of normalisation: the plan's own kernel on some rows. */
#include <float.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/common/check.h"
#include "ops/norm/norm.h"
#include "ref/ref.h"

#define ELEMENTS 203
#define SOME (21 * ELEMENTS)
#define ROWS 37 /* at most: two vectors of rows, and some */

enum { X, SCALE, BIAS, RESIDUAL, Y, MEAN, INVERSE, SUM, ARRAYS };

/* What is normalised in place of x, which `x` holds. */
static void add_residual(const struct check *check, float *x)
{
    const clattn_norm_desc *desc = check->problem;
    int64_t count = (int64_t)desc->x.extent[1];
    for (int64_t i = 0; i < (int64_t)desc->x.extent[0] * count && desc->residual.rank; i++)
        x[i / count * desc->x.stride[0] + i % count * desc->x.stride[1]] +=
            (float)check_read(&check->arrays[RESIDUAL], i);
}

/* The array's numbers, one for each of `count` columns, in `copy`; NULL if it is absent. */
static const float *factors(const struct check_array *array, size_t extent, size_t count, float *copy)
{
    if (!check_floats(array, copy))
        return NULL;
    const float *given = check_floats(array, copy), first = given[0];
    for (size_t i = 0; i < count; i++)
        copy[i] = extent == 1 ? first : given[i];
    return copy;
}

static clattn_status judge(const struct check *check)
{
    clattn_status status = CLATTN_SUCCESS;
    const clattn_norm_desc *desc = check->problem;
    size_t rows = desc->x.extent[0], count = desc->x.extent[1];
    float x[2 * SOME], scale[ELEMENTS], bias[ELEMENTS], plain[ELEMENTS];
    double exact[ELEMENTS], magnitude[ELEMENTS], mean, factor;
    ref_norm_problem reference = {
        .columns = (int64_t)count,
        .row = desc->x.stride[0],
        .col = desc->x.stride[1],
        .rms = desc->kind == CLATTN_NORM_KIND_RMS,
        .epsilon = (double)desc->epsilon,
        .x = check_floats(&check->arrays[X], x),
        .scale = factors(&check->arrays[SCALE], desc->scale.extent[1], count, scale),
        .bias = factors(&check->arrays[BIAS], desc->bias.extent[1], count, bias),
    };
    add_residual(check, x);
    for (int64_t row = 0; row < (int64_t)rows; row++) {
        ref_norm_row(&reference, row, exact, magnitude, &mean, &factor);
        ref_norm_naive_row(&reference, row, plain);
        TRY(check_row(check, &check->arrays[Y], (const int64_t[3]){0, 0, row}, exact, plain, magnitude));
        for (int64_t e = 0; e < (int64_t)count && desc->sum.rank; e++) {
            double right = (double)x[row * desc->x.stride[0] + e * desc->x.stride[1]];
            TRY(check_element(check->report, check->kernel, "sum", (const int64_t[4]){0, 0, row, e},
                              check_read(&check->arrays[SUM], row * (int64_t)count + e), right,
                              check_slack(right, right, 0, FLT_EPSILON, storage_epsilon(desc->sum.dtype))));
        }
        for (int which = MEAN; which <= INVERSE; which++) {
            double right = which == MEAN ? mean : factor;
            if (!check->arrays[which].host)
                continue;
            TRY(check_element(check->report, check->kernel, check->arrays[which].place.name,
                              (const int64_t[4]){0, 0, 0, row}, check_read(&check->arrays[which], row), right,
                              check_slack(right, right, which == MEAN ? 1 : factor, FLT_EPSILON, 0)));
        }
    }
fail:
    return status;
}

/* The small problem has the same -D options: types, whether columns are contiguous, rows that KEEP holds.  Scale and bias have
 * a number for each column or one for all: plans with either share the program. */
static clattn_status check_small(struct self_check *self, bool each_column)
{
    const struct norm_plan *plan = (const struct norm_plan *)self->plan;
    const size_t elements = size_min(plan->rows.longest_row, ELEMENTS), rows = size_min(ROWS, SOME / elements);
    const size_t extent[2] = {rows, elements}, statistics[2] = {rows, 1};
    const size_t factor_columns = each_column ? elements : 1;
    clattn_norm_desc desc = plan->problem.desc;
    struct norm_problem small;
    clattn_norm_args args = CLATTN_NORM_ARGS_INIT;
    const struct check_place places[ARRAYS] = {
        [X] = {"x", &small.desc.x, &args.x, CHECK_NUMBERS},
        [SCALE] = {"scale", &small.desc.scale, &args.scale, CHECK_NUMBERS},
        [BIAS] = {"bias", &small.desc.bias, &args.bias, CHECK_NUMBERS},
        [RESIDUAL] = {"residual", &small.desc.residual, &args.residual, CHECK_NUMBERS},
        [SUM] = {"sum", &small.desc.sum, &args.sum, CHECK_ZEROS},
        [Y] = {"y", &small.desc.y, &args.y, CHECK_ZEROS},
        [MEAN] = {"mean", &small.desc.mean, &args.mean, CHECK_ZEROS},
        [INVERSE] = {"inv_std_dev", &small.desc.inv_std_dev, &args.inv_std_dev, CHECK_ZEROS},
    };
    clattn_layout *const full[] = {&desc.x, &desc.y, &desc.residual, &desc.sum};
    for (size_t i = 0; i < COUNT_OF(full); i++)
        if (full[i]->rank)
            *full[i] = clattn_layout_contiguous(full[i]->dtype, 2, extent);
    for (int i = 0; i < 2 && !plan->problem.unit_columns; i++)
        desc.x.stride[i] *= 2;
    if (plan->rows.is_abreast) {
        desc.x.stride[0] = desc.y.stride[0] = 1;
        desc.x.stride[1] = desc.y.stride[1] = (int64_t)rows;
    }
    if (desc.scale.rank)
        desc.scale = clattn_layout_contiguous(desc.scale.dtype, 1, &factor_columns);
    if (desc.bias.rank)
        desc.bias = clattn_layout_contiguous(desc.bias.dtype, 1, &factor_columns);
    if (desc.mean.rank)
        desc.mean = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, statistics);
    if (desc.inv_std_dev.rank)
        desc.inv_std_dev = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, statistics);
    desc.axes = 1;
    desc.explicit_epsilon = 1;
    desc.epsilon = 1e-5f; /* the plan's own may be huge */
    const struct check_course course = {places, ARRAYS, Y, NULL, judge, 0};
    return check_run(self->plan, &course, &desc, &small, &args);
}

clattn_status norm_self_check(struct self_check *self)
{
    const clattn_norm_desc *desc = &((const struct norm_plan *)self->plan)->problem.desc;
    clattn_status status = check_small(self, true);
    return status == CLATTN_SUCCESS && (desc->scale.rank || desc->bias.rank) ? check_small(self, false) : status;
}
