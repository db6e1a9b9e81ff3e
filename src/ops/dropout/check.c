/* The self-check of dropout: the plan's own kernel on some rows that begin within a block of four words. */
#include <float.h>
#include <math.h>

#include "base/layout.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/common/check.h"
#include "ops/dropout/dropout.h"
#include "ref/ref.h"

#define ROWS 3
#define COLUMNS 67

enum { INPUT, RESIDUAL, WRITTEN, ARRAYS };

/* The small problem drops as often as not, whatever the plan's probability, which the kernel is told at its launch. */
static const ref_dropout_problem dropout = {.seed = 0x123456789abcdef, .offset = 7, .probability = 0.5f};

static clattn_status judge(const struct check *check)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct check_array *input = &check->arrays[INPUT], *residual = &check->arrays[RESIDUAL];
    const struct check_array *written = &check->arrays[WRITTEN];
    for (int64_t row = 0; row < ROWS; row++)
        for (int64_t c = 0; c < COLUMNS; c++) {
            const int64_t place = row * COLUMNS + c;
            const int64_t *stride = input->place.layout->stride;
            const double dropped =
                ref_dropout(&dropout, (uint64_t)place, check_read(input, row * stride[0] + c * stride[1]));
            const double added = residual->host ? check_read(residual, place) : 0.0;
            const double exact = added + dropped;
            TRY(check_element(check->report, check->kernel, written->place.name, (const int64_t[4]){0, 0, row, c},
                              check_read(written, place), exact,
                              check_slack(exact, exact, fabs(added) + fabs(dropped), FLT_EPSILON,
                                          storage_epsilon(written->place.layout->dtype))));
        }
fail:
    return status;
}

/* The small problem has the same -D options: types, a residual or none, whether columns are contiguous. */
clattn_status dropout_self_check(struct self_check *self)
{
    const struct dropout_problem *full = &((const struct dropout_plan *)self->plan)->problem;
    const size_t extent[2] = {ROWS, COLUMNS};
    const int64_t col = full->unit_columns ? 1 : 2;
    clattn_dropout_desc desc = full->desc;
    desc.probability = dropout.probability;
    const bool backward = desc.direction == CLATTN_DIRECTION_BACKWARD;
    clattn_layout *input = backward ? &desc.gradients.y : &desc.x, *output = backward ? &desc.gradients.x : &desc.y;
    *input = clattn_layout_contiguous(input->dtype, 2, extent);
    *output = clattn_layout_contiguous(output->dtype, 2, extent);
    if (!layout_is_none(&desc.residual))
        desc.residual = clattn_layout_contiguous(desc.residual.dtype, 2, extent);
    input->stride[0] = (COLUMNS + 1) * col; /* so that rows are not joined */
    input->stride[1] = col;
    struct dropout_problem small;
    clattn_dropout_args args = CLATTN_DROPOUT_ARGS_INIT;
    args.seed = dropout.seed;
    args.offset = dropout.offset;
    const struct check_place places[ARRAYS] = {
        [INPUT] = {backward ? "gradients.y" : "x", backward ? &small.desc.gradients.y : &small.desc.x,
                   backward ? &args.gradients.y : &args.x, CHECK_NUMBERS},
        [RESIDUAL] = {"residual", &small.desc.residual, &args.residual, CHECK_NUMBERS},
        [WRITTEN] = {backward ? "gradients.x" : "y", backward ? &small.desc.gradients.x : &small.desc.y,
                     backward ? &args.gradients.x : &args.y, CHECK_ZEROS},
    };
    const struct check_course course = {places, ARRAYS, WRITTEN, NULL, judge, 0};
    self->unchecked = full->empty;
    return self->unchecked ? CLATTN_SUCCESS : check_run(self->plan, &course, &desc, &small, &args);
}
