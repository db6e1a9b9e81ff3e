/* The self-check of softmax's gradient: the plan's own kernel on some rows. */
#include <math.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/common/check.h"
#include "ops/softmax/softmax.h"
#include "ref/ref.h"

#define COLUMNS 203
#define ROWS 5

enum { Y, MASK, DY, DX, ARRAYS };

static clattn_status judge(const struct check *check)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct softmax_backward_problem *small = check->problem;
    const clattn_layout *y = &small->desc.y;
    double exact[COLUMNS], magnitude[COLUMNS];
    float y_wide[2 * ROWS * COLUMNS], dy_wide[ROWS * COLUMNS], plain[COLUMNS];
    const float *dy = check_floats(&check->arrays[DY], dy_wide);
    ref_softmax_problem reference = {
        .extent = {1, 1, 1, (int64_t)y->extent[0]},
        .columns = (int64_t)y->extent[1],
        .x = check_floats(&check->arrays[Y], y_wide),
        .stride = {0, 0, 0, y->stride[0]},
        .col = y->stride[1],
        .mask_kind = !small->shape.has_mask                        ? REF_MASK_NONE
                     : small->desc.mask.dtype == CLATTN_DTYPE_BOOL ? REF_MASK_BOOL
                                                                   : REF_MASK_FLOAT,
        .mask = check->arrays[MASK].host,
        .mask_stride = {0, 0, 0, small->desc.mask.stride[0]},
        .mask_col = small->desc.mask.stride[1],
        .mask_columns = (int64_t)y->extent[1],
        .scale = small->shape.scale,
    };
    for (int64_t row = 0; row < (int64_t)y->extent[0]; row++) {
        ref_softmax_backward_row(&reference, row, dy + row * reference.columns, exact, magnitude);
        ref_softmax_backward_naive_row(&reference, row, dy + row * reference.columns, plain);
        TRY(check_row(check, &check->arrays[DX], (const int64_t[3]){0, 0, row}, exact, plain, magnitude));
    }
fail:
    return status;
}

/* The small problem has the same -D options: types, whether columns are contiguous, the mask's type, rows that KEEP holds. */
clattn_status softmax_backward_self_check(struct self_check *self)
{
    const struct softmax_backward_plan *plan = (const struct softmax_backward_plan *)self->plan;
    const struct softmax_backward_problem *full = &plan->problem;
    const size_t extent[2] = {ROWS, size_min(plan->rows.longest_row, COLUMNS)};
    clattn_softmax_desc desc = full->desc;
    desc.explicit_scale = 1;
    desc.scale = copysignf(4, full->shape.scale); /* the plan's own may be 0 */
    desc.y = clattn_layout_contiguous(desc.y.dtype, 2, extent);
    desc.gradients.x = clattn_layout_contiguous(desc.gradients.x.dtype, 2, extent);
    desc.gradients.y = clattn_layout_contiguous(desc.gradients.y.dtype, 2, extent);
    for (int i = 0; i < 2 && !full->unit_columns; i++)
        desc.y.stride[i] *= 2;
    if (full->shape.has_mask)
        desc.mask = clattn_layout_contiguous(desc.mask.dtype, 2, extent);
    struct softmax_backward_problem small;
    clattn_softmax_args args = CLATTN_SOFTMAX_ARGS_INIT;
    const struct check_place places[ARRAYS] = {
        [Y] = {"y", &small.desc.y, &args.y, CHECK_NUMBERS},
        [MASK] = {"mask", &small.desc.mask, &args.mask, CHECK_EXCLUDES},
        [DY] = {"gradients.y", &small.desc.gradients.y, &args.gradients.y, CHECK_NUMBERS},
        [DX] = {"gradients.x", &small.desc.gradients.x, &args.gradients.x, CHECK_ZEROS},
    };
    const struct check_course course = {places, ARRAYS, DX, NULL, judge, 0};
    return check_run(self->plan, &course, &desc, &small, &args);
}
