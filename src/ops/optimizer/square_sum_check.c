/* The self-check of the sum of squares: the plan's own kernels on two blocks, the last vector not full, added to a number. */
#include <float.h>

#include "base/layout.h"
#include "ops/common/check.h"
#include "ops/optimizer/optimizer.h"

enum { X, WORKSPACE, RESULT, ARRAYS };

#define COUNT (SQUARE_BLOCK + 3 * SQUARE_COLUMNS + 3)

static clattn_status judge(const struct check *check)
{
    const struct check_array *result = &check->arrays[RESULT];
    double exact = (double)*(const float *)result->before;
    for (int64_t i = 0; i < COUNT; i++) {
        const double x = check_read(&check->arrays[X], i);
        exact += x * x;
    }
    return check_element(check->report, check->kernel, "result", (const int64_t[4]){0}, check_read(result, 0), exact,
                         check_slack(exact, exact, exact, FLT_EPSILON / 16, FLT_EPSILON));
}

clattn_status square_sum_self_check(struct self_check *self)
{
    clattn_square_sum_desc desc = ((const struct square_sum_plan *)self->plan)->problem.desc;
    clattn_layout workspace = {0};
    struct square_sum_problem small;
    clattn_square_sum_args args = CLATTN_SQUARE_SUM_ARGS_INIT;
    const struct check_place places[ARRAYS] = {
        [X] = {"x", &small.desc.x, &args.x, CHECK_NUMBERS},
        [WORKSPACE] = {"workspace", &workspace, &args.workspace, CHECK_ZEROS},
        [RESULT] = {"result", &small.desc.result, &args.result, CHECK_NUMBERS},
    };
    const struct check_course course = {places, ARRAYS, RESULT, NULL, judge, 2 * sizeof(float)};
    workspace = clattn_layout_contiguous(CLATTN_DTYPE_U8, 1, &course.workspace);
    desc.x.extent[0] = COUNT;
    desc.x.stride[0] = 1;
    args.accumulate = 1;
    return check_run(self->plan, &course, &desc, &small, &args);
}
