/* The self-check of normalisation's gradients: the plan's own kernels on some rows. */
#include <float.h>
#include <math.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/common/check.h"
#include "ops/norm/norm.h"
#include "ref/ref.h"

#define COLUMNS 203
#define ELEMENTS (21 * COLUMNS)
#define ROWS (NORM_BLOCK + 5) /* at most: a block of terms, and some */

enum { X, SCALE, RESIDUAL, DY, DSUM, WORKSPACE, DX, DSCALE, DBIAS, ARRAYS };

static void blame_rows(struct check *check)
{
    check->kernel = check->plan->kernels[NORM_ROWS].name;
}

/* Compares the element of each column, whose exact value and magnitude are given. */
static clattn_status judge_columns(const struct check *check, int which, const double *exact, const double *magnitude)
{
    return check->arrays[which].host
               ? check_row(check, &check->arrays[which], (const int64_t[3]){0, 0, 0}, exact, NULL, magnitude)
               : CLATTN_SUCCESS;
}

static clattn_status judge(const struct check *check)
{
    clattn_status status = CLATTN_SUCCESS;
    const clattn_norm_desc *desc = check->problem;
    const int64_t rows = (int64_t)desc->x.extent[0], count = (int64_t)desc->x.extent[1];
    float x[2 * ELEMENTS], scale[COLUMNS], dy_wide[ELEMENTS], dsum_wide[ELEMENTS];
    double exact[COLUMNS], magnitude[COLUMNS], term[COLUMNS], term_magnitude[COLUMNS];
    double dscale[COLUMNS] = {0}, dscale_magnitude[COLUMNS] = {0}, dbias[COLUMNS] = {0}, dbias_magnitude[COLUMNS] = {0};
    const float *dy = check_floats(&check->arrays[DY], dy_wide), *dsum = check_floats(&check->arrays[DSUM], dsum_wide);
    const ref_norm_problem reference = {
        .columns = count,
        .row = desc->x.stride[0],
        .col = desc->x.stride[1],
        .rms = desc->kind == CLATTN_NORM_KIND_RMS,
        .epsilon = (double)desc->epsilon,
        .x = x,
        .scale = check_floats(&check->arrays[SCALE], scale),
    };
    const float *given = check_floats(&check->arrays[X], x);
    for (int64_t i = 0; i < rows * count; i++) {
        const int64_t at = i / count * desc->x.stride[0] + i % count * desc->x.stride[1];
        const double added = desc->residual.rank ? check_read(&check->arrays[RESIDUAL], i) : 0;
        x[at] = given[at] + (float)added;
    }
    for (int64_t row = 0; row < rows; row++) {
        ref_norm_backward_row(&reference, row, dy + row * count, dsum ? dsum + row * count : NULL, exact, magnitude,
                              term, term_magnitude);
        for (int64_t c = 0; c < count; c++) {
            dscale[c] += term[c];
            dscale_magnitude[c] += term_magnitude[c];
            dbias[c] += (double)dy[row * count + c];
            dbias_magnitude[c] += fabs((double)dy[row * count + c]);
        }
        if (check->arrays[DX].host)
            TRY(check_row(check, &check->arrays[DX], (const int64_t[3]){0, 0, row}, exact, NULL, magnitude));
    }
    TRY(judge_columns(check, DSCALE, dscale, dscale_magnitude));
    TRY(judge_columns(check, DBIAS, dbias, dbias_magnitude));
fail:
    return status;
}

/* The small problem has the same -D options: types, whether columns are contiguous.  It asks for gradients of x, or for those
 * of scale and bias, as far as the plan has them. */
static clattn_status check_small(struct self_check *self, size_t columns, bool of_x)
{
    const struct norm_backward_plan *plan = (const struct norm_backward_plan *)self->plan;
    const size_t extent[2] = {size_min(ROWS, ELEMENTS / columns), columns};
    clattn_norm_desc desc = plan->problem.desc;
    struct norm_backward_problem small;
    clattn_norm_args args = CLATTN_NORM_ARGS_INIT;
    clattn_layout workspace = {0};
    if (of_x)
        desc.gradients.scale = desc.gradients.bias = (clattn_layout){0};
    else
        desc.gradients.x = (clattn_layout){0};
    if (!desc.gradients.x.rank && !desc.gradients.scale.rank && !desc.gradients.bias.rank)
        return CLATTN_SUCCESS;
    self->blamed = of_x ? NORM_ROWS : NORM_TERMS;
    const struct check_place places[ARRAYS] = {
        [X] = {"x", &small.desc.x, &args.x, CHECK_NUMBERS},
        [SCALE] = {"scale", &small.desc.scale, &args.scale, CHECK_NUMBERS},
        [RESIDUAL] = {"residual", &small.desc.residual, &args.residual, CHECK_NUMBERS},
        [DY] = {"gradients.y", &small.desc.gradients.y, &args.gradients.y, CHECK_NUMBERS},
        [DSUM] = {"gradients.sum", &small.desc.gradients.sum, &args.gradients.sum, CHECK_NUMBERS},
        [WORKSPACE] = {"workspace", &workspace, &args.workspace, CHECK_ZEROS},
        [DX] = {"gradients.x", &small.desc.gradients.x, &args.gradients.x, CHECK_ZEROS},
        [DSCALE] = {"gradients.scale", &small.desc.gradients.scale, &args.gradients.scale, CHECK_ZEROS},
        [DBIAS] = {"gradients.bias", &small.desc.gradients.bias, &args.gradients.bias, CHECK_ZEROS},
    };
    clattn_layout *const whole[] = {&desc.x, &desc.residual, &desc.gradients.y, &desc.gradients.sum, &desc.gradients.x};
    clattn_layout *const each_column[] = {&desc.scale, &desc.gradients.scale, &desc.gradients.bias};
    for (size_t i = 0; i < COUNT_OF(whole); i++)
        if (whole[i]->rank)
            *whole[i] = clattn_layout_contiguous(whole[i]->dtype, 2, extent);
    for (size_t i = 0; i < COUNT_OF(each_column); i++)
        if (each_column[i]->rank)
            *each_column[i] = clattn_layout_contiguous(each_column[i]->dtype, 2, (const size_t[2]){1, columns});
    for (int i = 0; i < 2 && !plan->problem.unit_columns; i++)
        desc.x.stride[i] *= 2;
    desc.axes = 1;
    desc.explicit_epsilon = 1;
    desc.epsilon = 1e-5f; /* the plan's own may be huge */
    struct check_course course = {places, ARRAYS, DX, of_x ? blame_rows : NULL, judge, 0};
    if (!of_x) {
        course.workspace = (3 * ROWS + 2 * COLUMNS) * sizeof(float);
        workspace = clattn_layout_contiguous(CLATTN_DTYPE_U8, 1, &course.workspace);
    }
    return check_run(self->plan, &course, &desc, &small, &args);
}

clattn_status norm_backward_self_check(struct self_check *self)
{
    clattn_status status;
    TRY(check_small(self, COLUMNS, true));
    TRY(check_small(self, COLUMNS, false));
    TRY(check_small(self, ELEMENTS / ROWS, false));
fail:
    return status;
}
