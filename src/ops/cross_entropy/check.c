/* The self-check of cross-entropy: the plan's own kernel on some rows, one with a label that is ignored and one with a label
 * that is no class. */
#include <float.h>
#include <math.h>

#include "base/convert.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/common/check.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ref/ref.h"

#define CLASSES 1103 /* more than a CPU takes in one run */
#define ELEMENTS (5 * CLASSES)
#define ROWS 37   /* at most: two vectors of rows, and some */
#define IGNORED 1 /* a class, unless there is but one */
#define LARGE 30  /* a logit so far above the others that sums of exponentials are rescaled */

enum { X, LABELS, ROW_WEIGHTS, LOSS, LSE, GRADIENT, ARRAYS };

static int64_t label_of(int64_t row, int64_t classes)
{
    return row == 1 ? IGNORED : row == 2 ? classes : (row * 613 + 5) % classes;
}

static void fill(struct check *check)
{
    const struct cross_entropy_problem *small = check->problem;
    const clattn_layout *x = &small->desc.x, *labels = &small->desc.labels;
    for (int64_t row = 0; row < (int64_t)x->extent[0]; row++) {
        const int64_t late = (int64_t)x->extent[1] * 3 / 4;
        check_put_integer(check->arrays[LABELS].host, labels->dtype, row, label_of(row, (int64_t)x->extent[1]));
        if (row % 4 == 3)
            store_element(x->dtype, check->arrays[X].host, (size_t)(row * x->stride[0] + late * x->stride[1]), LARGE);
    }
}

/* Compares the row's element of loss or lse, if there is that array. */
static clattn_status judge_sum(const struct check *check, int which, int64_t row, double exact, double magnitude)
{
    const struct check_array *array = &check->arrays[which];
    if (!array->host)
        return CLATTN_SUCCESS;
    return check_element(check->report, check->kernel, array->place.name, (const int64_t[4]){0, 0, 0, row},
                         check_read(array, row), exact, check_slack(exact, exact, magnitude, FLT_EPSILON, FLT_EPSILON));
}

static clattn_status judge(const struct check *check)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct cross_entropy_problem *small = check->problem;
    const clattn_cross_entropy_desc *desc = &small->desc;
    const struct check_array *gradient = &check->arrays[GRADIENT];
    float wide[2 * ELEMENTS];
    double exact[CLASSES], magnitude[CLASSES];
    const float *x = check_floats(&check->arrays[X], wide);
    for (int64_t row = 0; row < (int64_t)desc->x.extent[0]; row++) {
        const int64_t label = label_of(row, (int64_t)desc->x.extent[1]);
        const ref_cross_entropy_problem reference = {
            .classes = (int64_t)desc->x.extent[1],
            .col = desc->x.stride[1],
            .x = x + row * desc->x.stride[0],
            .label = label,
            .ignored = label == IGNORED,
            .smoothing = (double)desc->smoothing,
            .weight = check->arrays[ROW_WEIGHTS].host ? check_read(&check->arrays[ROW_WEIGHTS], row) : 1,
        };
        ref_cross_entropy_sums sums;
        ref_cross_entropy_row(&reference, &sums, exact, magnitude);
        TRY(judge_sum(check, LOSS, row, sums.loss, fabs(sums.loss) + fabs(sums.lse)));
        TRY(judge_sum(check, LSE, row, sums.lse, fabs(sums.lse) + 1));
        if (gradient->host)
            TRY(check_row(check, gradient, (const int64_t[3]){0, 0, row}, exact, NULL, magnitude));
    }
fail:
    return status;
}

/* The small problem has the same -D options: types, arrays, smoothing, whether columns are contiguous, rows that KEEP holds. */
clattn_status cross_entropy_self_check(struct self_check *self)
{
    const struct cross_entropy_plan *plan = (const struct cross_entropy_plan *)self->plan;
    const struct cross_entropy_problem *full = &plan->problem;
    const size_t classes = size_min(plan->rows.longest_row, CLASSES);
    const size_t extent[2] = {size_min(ROWS, ELEMENTS / classes), classes};
    clattn_cross_entropy_desc desc = full->desc;
    desc.explicit_ignored = 1;
    desc.ignored = IGNORED;
    desc.x = clattn_layout_contiguous(desc.x.dtype, 2, extent);
    for (int i = 0; i < 2 && !full->unit_columns; i++)
        desc.x.stride[i] *= 2;
    desc.labels = clattn_layout_contiguous(desc.labels.dtype, 1, extent);
    clattn_layout *const sums[] = {&desc.row_weights, &desc.loss, &desc.lse};
    for (size_t i = 0; i < COUNT_OF(sums); i++)
        if (sums[i]->rank)
            *sums[i] = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, extent);
    if (desc.gradients.x.rank)
        desc.gradients.x = clattn_layout_contiguous(desc.gradients.x.dtype, 2, extent);
    struct cross_entropy_problem small;
    clattn_cross_entropy_args args = CLATTN_CROSS_ENTROPY_ARGS_INIT;
    const struct check_place places[ARRAYS] = {
        [X] = {"x", &small.desc.x, &args.x, CHECK_NUMBERS},
        [LABELS] = {"labels", &small.desc.labels, &args.labels, CHECK_ZEROS},
        [ROW_WEIGHTS] = {"row_weights", &small.desc.row_weights, &args.row_weights, CHECK_NUMBERS},
        [LOSS] = {"loss", &small.desc.loss, &args.loss, CHECK_ZEROS},
        [LSE] = {"lse", &small.desc.lse, &args.lse, CHECK_ZEROS},
        [GRADIENT] = {"gradients.x", &small.desc.gradients.x, &args.gradients.x, CHECK_ZEROS},
    };
    const struct check_course course = {places, ARRAYS, LOSS, fill, judge, 0};
    return check_run(self->plan, &course, &desc, &small, &args);
}
