/* The self-check of pooling: the plan's own kernel pools small pictures in each of the ways that one program has. */
#include <float.h>
#include <math.h>

#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/common/check.h"
#include "ops/pool/pool.h"
#include "ref/ref.h"

#define MOST 4096 /* elements of x */

enum { X, Y_GRADIENT, WRITTEN, ARRAYS };

static ref_pool_axis axis_of(const pool_axis *axis)
{
    return (ref_pool_axis){axis->source, axis->window, axis->stride, axis->dilation, axis->before, axis->after};
}

/* A channel's elements of an array; none of an array that is absent. */
static ref_view view_of(const float *data, const clattn_layout *layout, int64_t channel)
{
    return (ref_view){data ? data + channel * layout->stride[1] : NULL, layout->stride[2], layout->stride[3]};
}

static clattn_status judge(const struct check *check)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct pool_problem *problem = check->problem;
    const clattn_pool_desc *desc = &problem->desc;
    const bool backward = desc->direction == CLATTN_DIRECTION_BACKWARD;
    const struct check_array *written = &check->arrays[WRITTEN];
    const clattn_layout *layout = written->place.layout, *y = &desc->gradients.y;
    float scratch[2][MOST];
    const float *x = check_floats(&check->arrays[X], scratch[0]);
    const float *y_gradient = check_floats(&check->arrays[Y_GRADIENT], scratch[1]);
    ref_pool_problem reference = {
        .average = problem->kernel.average,
        .padding_counts = problem->kernel.padding_counts,
        .rows = axis_of(&problem->kernel.rows),
        .columns = axis_of(&problem->kernel.cols),
    };
    int64_t index[4] = {0};
    for (index[1] = 0; index[1] < (int64_t)layout->extent[1]; index[1]++)
        for (index[2] = 0; index[2] < (int64_t)layout->extent[2]; index[2]++)
            for (index[3] = 0; index[3] < (int64_t)layout->extent[3]; index[3]++) {
                double magnitude;
                reference.x = view_of(x, &desc->x, index[1]);
                const ref_view gradient = view_of(y_gradient, y, index[1]);
                const double exact = backward ? ref_pool_gradient(&reference, &gradient, (int64_t)y->extent[2],
                                                                  (int64_t)y->extent[3], index[2], index[3], &magnitude)
                                              : ref_pool(&reference, index[2], index[3], &magnitude);
                const int64_t at =
                    index[1] * layout->stride[1] + index[2] * layout->stride[2] + index[3] * layout->stride[3];
                TRY(check_element(check->report, check->kernel, written->place.name, index, check_read(written, at),
                                  exact,
                                  check_slack(exact, exact, magnitude, FLT_EPSILON, storage_epsilon(layout->dtype))));
            }
fail:
    return status;
}

/* A picture whose channels are neighbours, or whose columns are. */
static clattn_layout picture(clattn_dtype dtype, size_t channels, size_t height, size_t width, bool channels_last)
{
    const int64_t c = (int64_t)channels, w = (int64_t)width;
    clattn_layout layout = clattn_layout_bhsd(dtype, 1, channels, height, width);
    if (channels_last) {
        layout.stride[1] = 1;
        layout.stride[2] = w * c;
        layout.stride[3] = c;
    }
    return layout;
}

static clattn_layout typed(clattn_layout layout, clattn_dtype dtype)
{
    layout.dtype = dtype;
    return layout;
}

/* Types alone are -D options. */
clattn_status pool_self_check(struct self_check *self)
{
    static const struct {
        clattn_pool_kind kind;
        bool count_include_pad, channels_last;
        size_t channels, source[2], target[2];
        int32_t window[2], stride[2], dilation[2], padding[4];
    } runs[] = {
        {CLATTN_POOL_KIND_MAX, false, false, 5, {7, 19}, {3, 9}, {5, 3}, {2, 2}, {1, 1}, {1, 1, 1, 0}},
        {CLATTN_POOL_KIND_MAX, false, true, 3, {9, 11}, {5, 5}, {2, 3}, {2, 2}, {1, 2}, {0, 1, 1, 1}},
        {CLATTN_POOL_KIND_AVERAGE, true, false, 3, {6, 12}, {3, 4}, {3, 5}, {2, 3}, {1, 1}, {1, 2, 1, 1}},
        {CLATTN_POOL_KIND_AVERAGE, false, true, 86, {4, 5}, {3, 3}, {2, 3}, {2, 2}, {1, 1}, {1, 1, 1, 1}},
        {CLATTN_POOL_KIND_AVERAGE, false, false, 2, {3, 600}, {1, 1}, {3, 600}, {3, 600}, {1, 1}, {0, 0, 0, 0}},
    };
    clattn_status status = CLATTN_SUCCESS;
    const clattn_pool_desc *full = &((const struct pool_plan *)self->plan)->problem.desc;
    const bool backward = full->direction == CLATTN_DIRECTION_BACKWARD;
    for (size_t i = 0; i < COUNT_OF(runs); i++) {
        clattn_pool_desc desc = CLATTN_POOL_DESC_INIT;
        struct pool_problem small;
        clattn_pool_args args = CLATTN_POOL_ARGS_INIT;
        const struct check_place places[ARRAYS] = {
            [X] = {"x", &small.desc.x, &args.x, CHECK_NUMBERS},
            [Y_GRADIENT] = {"gradients.y", &small.desc.gradients.y, &args.gradients.y, CHECK_NUMBERS},
            [WRITTEN] = {backward ? "gradients.x" : "y", backward ? &small.desc.gradients.x : &small.desc.y,
                         backward ? &args.gradients.x : &args.y, CHECK_ZEROS},
        };
        const struct check_course course = {places, ARRAYS, WRITTEN, NULL, judge, 0};
        desc.direction = full->direction;
        desc.kind = runs[i].kind;
        desc.count_include_pad = runs[i].count_include_pad;
        for (int n = 0; n < 4; n++)
            desc.padding[n] = runs[i].padding[n];
        for (int n = 0; n < 2; n++) {
            desc.window[n] = runs[i].window[n];
            desc.stride[n] = runs[i].stride[n];
            desc.dilation[n] = runs[i].dilation[n];
        }
        const clattn_layout from =
            picture(CLATTN_DTYPE_F32, runs[i].channels, runs[i].source[0], runs[i].source[1], runs[i].channels_last);
        const clattn_layout to =
            picture(CLATTN_DTYPE_F32, runs[i].channels, runs[i].target[0], runs[i].target[1], runs[i].channels_last);
        if (!backward || desc.kind == CLATTN_POOL_KIND_MAX)
            desc.x = typed(from, full->x.dtype ? full->x.dtype : CLATTN_DTYPE_F32); /* none: an average */
        if (backward) {
            desc.gradients.x = typed(from, full->gradients.x.dtype);
            desc.gradients.y = typed(to, full->gradients.y.dtype);
        } else {
            desc.y = typed(to, full->y.dtype);
        }
        TRY(check_run(self->plan, &course, &desc, &small, &args));
    }
fail:
    return status;
}
