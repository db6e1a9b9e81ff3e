/* The self-check of activations: the plan's own kernel on some numbers, with rows that do not fill their last vector. */
#include <float.h>
#include <math.h>

#include "base/try.h"
#include "ops/activation/activation.h"
#include "ops/common/arrays.h"
#include "ops/common/check.h"
#include "ref/ref.h"

#define ROWS 3
#define COLUMNS 67

enum { X, Y, ARRAYS };

/* Scales the numbers to every binary magnitude from 2^-4 to 2^7; each storage type still holds them exactly. */
static void spread(struct check *check)
{
    struct check_array *array = &check->arrays[X];
    const clattn_dtype dtype = array->place.layout->dtype;
    for (size_t i = 0; i < array->elements; i++) {
        uint16_t *half = (uint16_t *)array->host + i;
        if (dtype == CLATTN_DTYPE_F32)
            ((float *)array->host)[i] *= (float)(1 << i % 8);
        else
            *half = (uint16_t)(*half + ((unsigned)(i % 8) << (dtype == CLATTN_DTYPE_F16 ? 10 : 7)));
    }
}

static clattn_status judge(const struct check *check)
{
    clattn_status status = CLATTN_SUCCESS;
    const clattn_activation_desc *desc = check->problem;
    for (int64_t row = 0; row < ROWS; row++)
        for (int64_t c = 0; c < COLUMNS; c++) {
            double x = check_read(&check->arrays[X], row * desc->x.stride[0] + c * desc->x.stride[1]);
            double value = check_read(&check->arrays[Y], row * COLUMNS + c);
            double exact = ref_activate(desc->function, (double)desc->alpha, x);
            if (fabs(exact) >= 32768 && desc->y.dtype == CLATTN_DTYPE_F16)
                continue; /* may be rounded to Inf */
            TRY(check_element(check->report, check->kernel, "y", (const int64_t[4]){0, 0, row, c}, value, exact,
                              check_slack(exact, exact, fabs(exact), FLT_EPSILON, storage_epsilon(desc->y.dtype))));
        }
fail:
    return status;
}

/* The small problem has the same -D options: types, function, whether columns are contiguous. */
clattn_status activation_self_check(struct self_check *self)
{
    const struct activation_problem *full = &((const struct activation_plan *)self->plan)->problem;
    const size_t extent[2] = {ROWS, COLUMNS};
    clattn_activation_desc desc = full->desc;
    desc.explicit_alpha = 1;
    desc.alpha = copysignf(1.25f, full->desc.alpha); /* the plan's own may make all results alike */
    desc.x = clattn_layout_contiguous(desc.x.dtype, 2, extent);
    desc.y = clattn_layout_contiguous(desc.y.dtype, 2, extent);
    for (int i = 0; i < 2 && !full->unit_columns; i++)
        desc.x.stride[i] *= 2;
    struct activation_problem small;
    clattn_activation_args args = CLATTN_ACTIVATION_ARGS_INIT;
    const struct check_place places[ARRAYS] = {
        [X] = {"x", &small.desc.x, &args.x, CHECK_NUMBERS},
        [Y] = {"y", &small.desc.y, &args.y, CHECK_ZEROS},
    };
    const struct check_course course = {places, ARRAYS, Y, spread, judge, 0};
    self->unchecked = full->empty;
    return self->unchecked ? CLATTN_SUCCESS : check_run(self->plan, &course, &desc, &small, &args);
}
