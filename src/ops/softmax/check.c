/* The self-check of softmax: the plan's own kernel on some rows. */
#include <math.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/common/check.h"
#include "ops/softmax/softmax.h"
#include "ref/ref.h"

#define COLUMNS 203
#define ELEMENTS (5 * COLUMNS)
#define ROWS 37 /* at most: two vectors of rows, and some */

enum { X, MASK, Y, ARRAYS };

static clattn_status judge(const struct check *check)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct softmax_problem *small = check->problem;
    const clattn_layout *x = &small->desc.x;
    double exact[COLUMNS];
    float wide[2 * ELEMENTS], plain[COLUMNS];
    ref_softmax_problem reference = {
        .extent = {1, 1, 1, (int64_t)x->extent[0]},
        .columns = (int64_t)x->extent[1],
        .x = check_floats(&check->arrays[X], wide),
        .stride = {0, 0, 0, x->stride[0]},
        .col = x->stride[1],
        .mask_kind = !small->shape.has_mask                        ? REF_MASK_NONE
                     : small->desc.mask.dtype == CLATTN_DTYPE_BOOL ? REF_MASK_BOOL
                                                                   : REF_MASK_FLOAT,
        .mask = check->arrays[MASK].host,
        .mask_stride = {0, 0, 0, small->desc.mask.stride[0]},
        .mask_col = small->desc.mask.stride[1],
        .mask_columns = (int64_t)x->extent[1],
        .scale = small->shape.scale,
    };
    for (int64_t row = 0; row < (int64_t)x->extent[0]; row++) {
        ref_softmax_row(&reference, row, exact);
        ref_softmax_naive_row(&reference, row, plain);
        TRY(check_row(check, &check->arrays[Y], (const int64_t[3]){0, 0, row}, exact, plain, exact));
    }
fail:
    return status;
}

/* The small problem has the same -D options: types, whether columns are contiguous, the mask's type, rows that KEEP holds. */
clattn_status softmax_self_check(struct self_check *self)
{
    const struct softmax_plan *plan = (const struct softmax_plan *)self->plan;
    const struct softmax_problem *full = &plan->problem;
    const size_t columns = size_min(plan->rows.longest_row, COLUMNS);
    const size_t extent[2] = {size_min(ROWS, ELEMENTS / columns), columns};
    clattn_softmax_desc desc = full->desc;
    desc.explicit_scale = 1;
    desc.scale = copysignf(4, full->shape.scale); /* the plan's own may be 0 */
    desc.x = clattn_layout_contiguous(desc.x.dtype, 2, extent);
    desc.y = clattn_layout_contiguous(desc.y.dtype, 2, extent);
    for (int i = 0; i < 2 && !full->unit_columns; i++)
        desc.x.stride[i] *= 2;
    if (full->shape.has_mask)
        desc.mask = clattn_layout_contiguous(desc.mask.dtype, 2, extent);
    struct softmax_problem small;
    clattn_softmax_args args = CLATTN_SOFTMAX_ARGS_INIT;
    const struct check_place places[ARRAYS] = {
        [X] = {"x", &small.desc.x, &args.x, CHECK_NUMBERS},
        [MASK] = {"mask", &small.desc.mask, &args.mask, CHECK_EXCLUDES},
        [Y] = {"y", &small.desc.y, &args.y, CHECK_ZEROS},
    };
    const struct check_course course = {places, ARRAYS, Y, NULL, judge, 0};
    return check_run(self->plan, &course, &desc, &small, &args);
}
