/* The self-check of activations: the plan's own kernel on some numbers, with rows that do not fill their last vector. */
#include <float.h>
#include <math.h>

#include "base/try.h"
#include "ops/activation/activation.h"
#include "ops/common/arrays.h"
#include "plan/self_check.h"
#include "ref/attention.h"
#include "ref/ref.h"

#define ROWS 3
#define COLUMNS 67

enum { X, Y, ARRAYS };

struct activation_check {
    struct activation_problem small, original;
    clattn_activation_args args;
    struct check_array arrays[ARRAYS];
};

/* Scales the numbers to every binary magnitude from 2^-4 to 2^7; each storage type still holds them exactly. */
static void spread(struct check_array *array, clattn_dtype dtype)
{
    for (size_t i = 0; i < array->elements; i++) {
        uint16_t *half = (uint16_t *)array->host + i;
        if (dtype == CLATTN_DTYPE_F32)
            ((float *)array->host)[i] *= (float)(1 << i % 8);
        else
            *half = (uint16_t)(*half + ((unsigned)(i % 8) << (dtype == CLATTN_DTYPE_F16 ? 10 : 7)));
    }
}

/* The small problem has the same -D options: types, function, whether columns are contiguous. */
static clattn_status make(void *data, clattn_context *context)
{
    clattn_status status;
    struct activation_check *check = data;
    const clattn_activation_desc *full = &check->original.desc;
    clattn_activation_desc desc = *full;
    const size_t extent[2] = {ROWS, COLUMNS};
    const char *reason;
    desc.explicit_alpha = 1;
    desc.alpha = copysignf(1.25f, full->alpha); /* the plan's own may make all results alike */
    desc.x = clattn_layout_contiguous(full->x.dtype, 2, extent);
    desc.y = clattn_layout_contiguous(full->y.dtype, 2, extent);
    if (!check->original.unit_columns) {
        desc.x.stride[0] *= 2;
        desc.x.stride[1] *= 2;
    }
    TRY(activation_problem_read(&desc, &check->small, &reason));
    const struct check_place places[ARRAYS] = {
        [X] = {&desc.x, &check->args.x, CHECK_NUMBERS},
        [Y] = {&desc.y, &check->args.y, CHECK_ZEROS},
    };
    TRY(check_arrays_make(context, places, ARRAYS, check->arrays));
    spread(&check->arrays[X], desc.x.dtype);
    TRY(check_arrays_upload(context, places, ARRAYS, check->arrays));
fail:
    return status;
}

static clattn_status judge(void *data, struct report *report, const char *kernel)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct activation_check *check = data;
    const clattn_activation_desc *desc = &check->small.desc;
    for (int64_t row = 0; row < ROWS; row++)
        for (int64_t c = 0; c < COLUMNS; c++) {
            double x =
                ref_element(check->arrays[X].host, desc->x.dtype, row * desc->x.stride[0] + c * desc->x.stride[1]);
            double value = ref_element(check->arrays[Y].host, desc->y.dtype, row * COLUMNS + c);
            double exact = ref_activate(desc->function, (double)desc->alpha, x);
            if (fabs(exact) >= 32768 && desc->y.dtype == CLATTN_DTYPE_F16)
                continue; /* may be rounded to Inf */
            TRY(check_element(report, kernel, "y", (const int64_t[4]){0, 0, row, c}, value, exact,
                              check_slack(exact, exact, fabs(exact), FLT_EPSILON, storage_epsilon(desc->y.dtype))));
        }
fail:
    return status;
}

clattn_status activation_self_check(struct self_check *self)
{
    const clattn_plan *base = self->plan;
    const struct activation_plan *plan = (const struct activation_plan *)base;
    struct activation_check check = {.original = plan->problem, .args = CLATTN_ACTIVATION_ARGS_INIT};
    const struct check_course course = {&check.small, &check.args, check.arrays, ARRAYS, Y, 1, make, judge, 0};
    self->unchecked = check.original.empty;
    if (self->unchecked)
        return CLATTN_SUCCESS;
    return check_run(base, &course, &check);
}
