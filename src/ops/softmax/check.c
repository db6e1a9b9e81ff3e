/* The self-check of softmax: the plan's own kernel on some rows. */
#include <float.h>
#include <math.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/softmax/softmax.h"
#include "plan/self_check.h"
#include "ref/attention.h"
#include "ref/ref.h"

#define COLUMNS 203
#define ELEMENTS (5 * COLUMNS)
#define ROWS 37 /* at most: two vectors of rows, and some */

enum { X, MASK, Y, ARRAYS };

struct softmax_check {
    struct softmax_problem small, original;
    clattn_softmax_args args;
    size_t longest_row;
    struct check_array arrays[ARRAYS];
};

/* The small problem has the same -D options: types, whether columns are contiguous, the mask's type, rows that KEEP holds. */
static clattn_status make(void *data, clattn_context *context)
{
    clattn_status status;
    struct softmax_check *check = data;
    const clattn_softmax_desc *full = &check->original.desc;
    clattn_softmax_desc desc = *full;
    const size_t columns = size_min(check->longest_row, COLUMNS);
    const size_t extent[2] = {size_min(ROWS, ELEMENTS / columns), columns};
    const char *reason;
    desc.explicit_scale = 1;
    desc.scale = copysignf(4, check->original.scale); /* the plan's own may be 0 */
    desc.x = clattn_layout_contiguous(full->x.dtype, 2, extent);
    desc.y = clattn_layout_contiguous(full->y.dtype, 2, extent);
    if (!check->original.unit_columns) {
        desc.x.stride[0] *= 2;
        desc.x.stride[1] *= 2;
    }
    if (check->original.has_mask)
        desc.mask = clattn_layout_contiguous(full->mask.dtype, 2, extent);
    TRY(softmax_problem_read(&desc, &check->small, &reason));
    const struct check_place places[ARRAYS] = {
        [X] = {&desc.x, &check->args.x, CHECK_NUMBERS},
        [MASK] = {&desc.mask, &check->args.mask, CHECK_EXCLUDES},
        [Y] = {&desc.y, &check->args.y, CHECK_ZEROS},
    };
    TRY(check_arrays_make(context, places, ARRAYS, check->arrays));
    TRY(check_arrays_upload(context, places, ARRAYS, check->arrays));
fail:
    return status;
}

static clattn_status judge(void *data, struct report *report, const char *kernel)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct softmax_check *check = data;
    const struct softmax_problem *small = &check->small;
    const clattn_layout *x = &small->desc.x;
    double exact[COLUMNS], unit = storage_epsilon(small->desc.y.dtype);
    float wide[2 * ELEMENTS], plain[COLUMNS];
    ref_softmax_problem reference = {
        .extent = {1, 1, 1, (int64_t)x->extent[0]},
        .columns = (int64_t)x->extent[1],
        .x = ref_floats(check->arrays[X].host, x->dtype, check->arrays[X].elements, wide),
        .stride = {0, 0, 0, x->stride[0]},
        .col = x->stride[1],
        .mask_kind = !small->has_mask                              ? REF_MASK_NONE
                     : small->desc.mask.dtype == CLATTN_DTYPE_BOOL ? REF_MASK_BOOL
                                                                   : REF_MASK_FLOAT,
        .mask = check->arrays[MASK].host,
        .mask_stride = {0, 0, 0, small->desc.mask.stride[0]},
        .mask_col = small->desc.mask.stride[1],
        .mask_columns = (int64_t)x->extent[1],
        .scale = small->scale,
    };
    for (int64_t row = 0; row < (int64_t)x->extent[0]; row++) {
        ref_softmax_row(&reference, row, exact);
        ref_softmax_naive_row(&reference, row, plain);
        for (int64_t j = 0; j < reference.columns; j++) {
            double value = ref_element(check->arrays[Y].host, small->desc.y.dtype, row * small->desc.y.stride[0] + j);
            TRY(check_element(report, kernel, "y", (const int64_t[4]){0, 0, row, j}, value, exact[j],
                              check_slack(exact[j], plain[j], exact[j], FLT_EPSILON, unit)));
        }
    }
fail:
    return status;
}

clattn_status softmax_self_check(struct self_check *self)
{
    const clattn_plan *base = self->plan;
    const struct softmax_plan *plan = (const struct softmax_plan *)base;
    struct softmax_check check = {
        .original = plan->problem, .args = CLATTN_SOFTMAX_ARGS_INIT, .longest_row = plan->rows.longest_row};
    const struct check_course course = {&check.small, &check.args, check.arrays, ARRAYS, Y, 1, make, judge, 0};
    return check_run(base, &course, &check);
}
