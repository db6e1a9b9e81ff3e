/* The self-check of resizing: the plan's own kernel makes small pictures of others, with each filter and both orders of memory,
 * because one program serves all. */
#include <float.h>
#include <math.h>

#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/common/check.h"
#include "ops/resize/resize.h"
#include "ref/ref.h"

#define CHANNELS 3
#define MOST 23 /* rows and columns */

enum { X, Y, ARRAYS };

static ref_resize_axis axis_of(const clattn_resize_desc *desc, int axis)
{
    const double source = (double)desc->x.extent[axis], target = (double)desc->y.extent[axis];
    return (ref_resize_axis){
        .mode = desc->mode,
        .align_corners = desc->align_corners,
        .antialias = desc->antialias,
        .source = (int64_t)desc->x.extent[axis],
        .ratio = desc->align_corners ? (source - 1) / (target - 1) : source / target,
        .cubic_a = (double)desc->cubic_a,
    };
}

/* One element of y. */
static clattn_status judge_element(const struct check *check, const int64_t index[4])
{
    const clattn_resize_desc *desc = &((const struct resize_problem *)check->problem)->desc;
    const ref_resize_axis rows = axis_of(desc, 2), columns = axis_of(desc, 3);
    double v[MOST], w[MOST], exact = 0, magnitude = 0;
    int64_t from = index[1] * desc->x.stride[1], to = 0;
    ref_resize_weights(&rows, index[2], v);
    ref_resize_weights(&columns, index[3], w);
    for (int64_t k = 0; k < rows.source; k++)
        for (int64_t l = 0; l < columns.source; l++) {
            const double x = check_read(&check->arrays[X], from + k * desc->x.stride[2] + l * desc->x.stride[3]);
            exact += v[k] * w[l] * x;
            magnitude += (fabs(v[k]) + 0.1) * (fabs(w[l]) + 0.1) * fabs(x);
        }
    for (int i = 0; i < 4; i++)
        to += index[i] * desc->y.stride[i];
    return check_element(check->report, check->kernel, "y", index, check_read(&check->arrays[Y], to), exact,
                         check_slack(exact, exact, magnitude, FLT_EPSILON, storage_epsilon(desc->y.dtype)));
}

static clattn_status judge(const struct check *check)
{
    clattn_status status = CLATTN_SUCCESS;
    const clattn_layout *y = &((const struct resize_problem *)check->problem)->desc.y;
    int64_t index[4] = {0};
    for (index[1] = 0; index[1] < CHANNELS; index[1]++)
        for (index[2] = 0; index[2] < (int64_t)y->extent[2]; index[2]++)
            for (index[3] = 0; index[3] < (int64_t)y->extent[3]; index[3]++)
                TRY(judge_element(check, index));
fail:
    return status;
}

/* A picture whose channels are neighbours, or whose columns are. */
static clattn_layout picture(clattn_dtype dtype, size_t height, size_t width, bool channels_last)
{
    const int64_t h = (int64_t)height, w = (int64_t)width;
    clattn_layout layout = clattn_layout_bhsd(dtype, 1, CHANNELS, height, width);
    if (channels_last) {
        layout.stride[0] = h * w * CHANNELS;
        layout.stride[1] = 1;
        layout.stride[2] = w * CHANNELS;
        layout.stride[3] = CHANNELS;
    }
    return layout;
}

/* Types alone are -D options. */
clattn_status resize_self_check(struct self_check *self)
{
    static const struct {
        clattn_resize_mode mode;
        bool align_corners, antialias, channels_last;
        size_t source[2], target[2];
    } runs[] = {
        {CLATTN_RESIZE_MODE_NEAREST, false, false, false, {5, 7}, {8, 19}},
        {CLATTN_RESIZE_MODE_NEAREST_EXACT, false, false, true, {9, 21}, {4, 10}},
        {CLATTN_RESIZE_MODE_BILINEAR, false, false, true, {5, 9}, {11, 19}},
        {CLATTN_RESIZE_MODE_BICUBIC, true, false, false, {7, 11}, {9, 21}},
        {CLATTN_RESIZE_MODE_BICUBIC, false, true, false, {21, 23}, {4, 18}},
    };
    clattn_status status = CLATTN_SUCCESS;
    const struct resize_problem *full = &((const struct resize_plan *)self->plan)->problem;
    for (size_t i = 0; i < COUNT_OF(runs); i++) {
        clattn_resize_desc desc = CLATTN_RESIZE_DESC_INIT;
        struct resize_problem small;
        clattn_resize_args args = CLATTN_RESIZE_ARGS_INIT;
        const struct check_place places[ARRAYS] = {
            [X] = {"x", &small.desc.x, &args.x, CHECK_NUMBERS},
            [Y] = {"y", &small.desc.y, &args.y, CHECK_ZEROS},
        };
        const struct check_course course = {places, ARRAYS, Y, NULL, judge, 0};
        desc.mode = runs[i].mode;
        desc.align_corners = runs[i].align_corners;
        desc.antialias = runs[i].antialias;
        desc.x = picture(full->desc.x.dtype, runs[i].source[0], runs[i].source[1], runs[i].channels_last);
        desc.y = picture(full->desc.y.dtype, runs[i].target[0], runs[i].target[1], runs[i].channels_last);
        TRY(check_run(self->plan, &course, &desc, &small, &args));
    }
fail:
    return status;
}
