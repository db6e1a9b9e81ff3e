/* The self-check of normalisation: the plan's own kernel on some rows. */
#include <float.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/norm/norm.h"
#include "plan/self_check.h"
#include "ref/attention.h"
#include "ref/ref.h"

#define ELEMENTS 203
#define SOME (5 * ELEMENTS)
#define ROWS 37 /* at most: two vectors of rows, and some */

enum { X, SCALE, BIAS, RESIDUAL, Y, MEAN, INVERSE, SUM, ARRAYS };

struct norm_check {
    struct norm_problem small, original;
    clattn_norm_args args;
    size_t longest_row;
    struct check_array arrays[ARRAYS];
};

/* The small problem has the same -D options: types, whether columns are contiguous, rows that KEEP holds. */
static clattn_status describe(struct norm_check *check)
{
    const clattn_norm_desc *full = &check->original.desc;
    clattn_norm_desc desc = *full;
    const size_t elements = size_min(check->longest_row, ELEMENTS), rows = size_min(ROWS, SOME / elements);
    const size_t extent[2] = {rows, elements}, statistics[2] = {rows, 1};
    const char *reason;
    desc.axes = 1;
    desc.explicit_epsilon = 1;
    desc.epsilon = 1e-5f; /* the plan's own may be huge */
    desc.x = clattn_layout_contiguous(full->x.dtype, 2, extent);
    desc.y = clattn_layout_contiguous(full->y.dtype, 2, extent);
    if (!check->original.unit_columns) {
        desc.x.stride[0] *= 2;
        desc.x.stride[1] *= 2;
    }
    if (full->scale.rank)
        desc.scale = clattn_layout_contiguous(full->scale.dtype, 1, &extent[1]);
    if (full->bias.rank)
        desc.bias = clattn_layout_contiguous(full->bias.dtype, 1, &extent[1]);
    if (full->mean.rank)
        desc.mean = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, statistics);
    if (full->inv_std_dev.rank)
        desc.inv_std_dev = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, statistics);
    if (full->residual.rank)
        desc.residual = clattn_layout_contiguous(full->residual.dtype, 2, extent);
    if (full->sum.rank)
        desc.sum = clattn_layout_contiguous(full->sum.dtype, 2, extent);
    return norm_problem_read(&desc, &check->small, &reason);
}

static clattn_status make(void *data, clattn_context *context)
{
    clattn_status status;
    struct norm_check *check = data;
    const clattn_norm_desc *desc = &check->small.desc;
    TRY(describe(check));
    const struct check_place places[ARRAYS] = {
        [X] = {&desc->x, &check->args.x, CHECK_NUMBERS},
        [SCALE] = {&desc->scale, &check->args.scale, CHECK_NUMBERS},
        [BIAS] = {&desc->bias, &check->args.bias, CHECK_NUMBERS},
        [RESIDUAL] = {&desc->residual, &check->args.residual, CHECK_NUMBERS},
        [SUM] = {&desc->sum, &check->args.sum, CHECK_ZEROS},
        [Y] = {&desc->y, &check->args.y, CHECK_ZEROS},
        [MEAN] = {&desc->mean, &check->args.mean, CHECK_ZEROS},
        [INVERSE] = {&desc->inv_std_dev, &check->args.inv_std_dev, CHECK_ZEROS},
    };
    TRY(check_arrays_make(context, places, ARRAYS, check->arrays));
    TRY(check_arrays_upload(context, places, ARRAYS, check->arrays));
fail:
    return status;
}

static const float *floats(const struct norm_check *check, int which, const clattn_layout *layout, float *room)
{
    return ref_floats(check->arrays[which].host, layout->dtype, check->arrays[which].elements, room);
}

/* What is normalised in place of x, which `x` holds. */
static void add_residual(const struct norm_check *check, float *x)
{
    const clattn_norm_desc *desc = &check->small.desc;
    int64_t count = (int64_t)desc->x.extent[1];
    for (int64_t i = 0; i < (int64_t)desc->x.extent[0] * count && desc->residual.rank; i++)
        x[i / count * desc->x.stride[0] + i % count * desc->x.stride[1]] +=
            (float)ref_element(check->arrays[RESIDUAL].host, desc->residual.dtype, i);
}

static clattn_status judge(void *data, struct report *report, const char *kernel)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct norm_check *check = data;
    const clattn_norm_desc *desc = &check->small.desc;
    size_t rows = desc->x.extent[0], count = desc->x.extent[1];
    float x[2 * SOME], scale[ELEMENTS], bias[ELEMENTS], plain[ELEMENTS];
    double exact[ELEMENTS], magnitude[ELEMENTS], mean, factor, unit = storage_epsilon(desc->y.dtype);
    ref_norm_problem reference = {
        .extent = {1, 1, 1, (int64_t)rows, (int64_t)count},
        .axes = 1,
        .rms = desc->kind == CLATTN_NORM_KIND_RMS,
        .epsilon = (double)desc->epsilon,
        .x = floats(check, X, &desc->x, x),
        .scale = floats(check, SCALE, &desc->scale, scale),
        .bias = floats(check, BIAS, &desc->bias, bias),
        .stride = {0, 0, 0, desc->x.stride[0], desc->x.stride[1]},
        .scale_stride = {0, 0, 0, 0, 1},
        .bias_stride = {0, 0, 0, 0, 1},
    };
    add_residual(check, x);
    for (int64_t row = 0; row < (int64_t)rows; row++) {
        ref_norm_row(&reference, row, exact, magnitude, &mean, &factor);
        ref_norm_naive_row(&reference, row, plain);
        for (int64_t e = 0; e < (int64_t)count; e++) {
            double value = ref_element(check->arrays[Y].host, desc->y.dtype, row * (int64_t)count + e);
            TRY(check_element(report, kernel, "y", (const int64_t[4]){0, 0, row, e}, value, exact[e],
                              check_slack(exact[e], plain[e], magnitude[e], FLT_EPSILON, unit)));
            if (!desc->sum.rank)
                continue;
            double right = (double)x[row * desc->x.stride[0] + e * desc->x.stride[1]];
            value = ref_element(check->arrays[SUM].host, desc->sum.dtype, row * (int64_t)count + e);
            TRY(check_element(report, kernel, "sum", (const int64_t[4]){0, 0, row, e}, value, right,
                              check_slack(right, right, 0, FLT_EPSILON, storage_epsilon(desc->sum.dtype))));
        }
        for (int which = MEAN; which <= INVERSE; which++) {
            double right = which == MEAN ? mean : factor;
            if (!check->arrays[which].host)
                continue;
            TRY(check_element(report, kernel, which == MEAN ? "mean" : "inv_std_dev", (const int64_t[4]){0, 0, 0, row},
                              ((const float *)check->arrays[which].host)[row], right,
                              check_slack(right, right, which == MEAN ? 1 : factor, FLT_EPSILON, 0)));
        }
    }
fail:
    return status;
}

clattn_status norm_self_check(struct self_check *self)
{
    const clattn_plan *base = self->plan;
    const struct norm_plan *plan = (const struct norm_plan *)base;
    struct norm_check check = {
        .original = plan->problem, .args = CLATTN_NORM_ARGS_INIT, .longest_row = plan->rows.longest_row};
    const struct check_course course = {&check.small, &check.args, check.arrays, ARRAYS, Y, ARRAYS - Y, make, judge, 0};
    return check_run(base, &course, &check);
}
