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

enum { X, Y_GRADIENT, WRITTEN, ARRAYS };

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

/* What the kernel has to write for one element, and the size of the terms that it is the sum of. */
static double exact_element(const struct check *check, int64_t row, int64_t c, double *magnitude)
{
    const clattn_activation_desc *desc = check->problem;
    const double x = check_read(&check->arrays[X], row * desc->x.stride[0] + c * desc->x.stride[1]);
    if (desc->direction == CLATTN_DIRECTION_FORWARD) {
        const double exact = ref_activate(desc->function, (double)desc->alpha, x);
        *magnitude = fabs(exact);
        return exact;
    }
    const double gradient = check_read(&check->arrays[Y_GRADIENT], row * COLUMNS + c);
    const double slope = ref_activation_slope(desc->function, (double)desc->alpha, x, magnitude);
    *magnitude *= fabs(gradient);
    return slope * gradient;
}

static clattn_status judge(const struct check *check)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct check_array *written = &check->arrays[WRITTEN];
    const clattn_dtype dtype = written->place.layout->dtype;
    for (int64_t row = 0; row < ROWS; row++)
        for (int64_t c = 0; c < COLUMNS; c++) {
            double magnitude, exact = exact_element(check, row, c, &magnitude);
            if (fabs(exact) >= 32768 && dtype == CLATTN_DTYPE_F16)
                continue; /* may be rounded to Inf */
            TRY(check_element(check->report, check->kernel, written->place.name, (const int64_t[4]){0, 0, row, c},
                              check_read(written, row * COLUMNS + c), exact,
                              check_slack(exact, exact, magnitude, FLT_EPSILON, storage_epsilon(dtype))));
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
    const bool backward = desc.direction == CLATTN_DIRECTION_BACKWARD;
    desc.x = clattn_layout_contiguous(desc.x.dtype, 2, extent);
    if (backward) {
        desc.gradients.x = clattn_layout_contiguous(desc.gradients.x.dtype, 2, extent);
        desc.gradients.y = clattn_layout_contiguous(desc.gradients.y.dtype, 2, extent);
    } else {
        desc.y = clattn_layout_contiguous(desc.y.dtype, 2, extent);
    }
    for (int i = 0; i < 2 && !full->unit_columns; i++)
        desc.x.stride[i] *= 2;
    struct activation_problem small;
    clattn_activation_args args = CLATTN_ACTIVATION_ARGS_INIT;
    const struct check_place places[ARRAYS] = {
        [X] = {"x", &small.desc.x, &args.x, CHECK_NUMBERS},
        [Y_GRADIENT] = {"gradients.y", &small.desc.gradients.y, &args.gradients.y, CHECK_NUMBERS},
        [WRITTEN] = {backward ? "gradients.x" : "y", backward ? &small.desc.gradients.x : &small.desc.y,
                     backward ? &args.gradients.x : &args.y, CHECK_ZEROS},
    };
    const struct check_course course = {places, ARRAYS, WRITTEN, spread, judge, 0};
    self->unchecked = full->empty;
    return self->unchecked ? CLATTN_SUCCESS : check_run(self->plan, &course, &desc, &small, &args);
}
