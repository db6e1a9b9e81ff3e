/* Reads and checks the description of a resize. */
#include <math.h>
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/resize/resize.h"

_Static_assert(sizeof(resize_axis) == 2 * 8 + 8 * 4, "resize_axis has padding");
_Static_assert(sizeof(resize_args) == 24 + 2 * 40 + 2 * sizeof(resize_axis) + 2 * 8 + 8 * 4, "resize_args has padding");

#define MAX_SIDE ((size_t)1 << 28)
#define MAX_CUBIC_A 4

static bool is_nearest(const clattn_resize_desc *desc)
{
    return desc->mode == CLATTN_RESIZE_MODE_NEAREST || desc->mode == CLATTN_RESIZE_MODE_NEAREST_EXACT;
}

static clattn_status read_options(clattn_resize_desc *desc, const char **reason)
{
    if (!desc->explicit_cubic_a)
        desc->cubic_a = desc->antialias ? -0.5f : -0.75f;
    if (!desc->explicit_scale)
        desc->scale[0] = desc->scale[1] = 1;
    REQUIRE(desc->direction == CLATTN_DIRECTION_FORWARD, CLATTN_ERROR_INVALID_ARGUMENT,
            "direction: only CLATTN_DIRECTION_FORWARD is known");
    REQUIRE(enum_within(desc->mode, CLATTN_RESIZE_MODE_BICUBIC), CLATTN_ERROR_INVALID_ARGUMENT, "unknown mode");
    REQUIRE(is_flag(desc->align_corners), CLATTN_ERROR_INVALID_ARGUMENT, "align_corners is neither 0 nor 1");
    REQUIRE(is_flag(desc->antialias), CLATTN_ERROR_INVALID_ARGUMENT, "antialias is neither 0 nor 1");
    REQUIRE(is_flag(desc->explicit_scale), CLATTN_ERROR_INVALID_ARGUMENT, "explicit_scale is neither 0 nor 1");
    REQUIRE(is_flag(desc->explicit_cubic_a), CLATTN_ERROR_INVALID_ARGUMENT, "explicit_cubic_a is neither 0 nor 1");
    REQUIRE(desc->reserved == 0, CLATTN_ERROR_INVALID_ARGUMENT, "reserved is not 0");
    REQUIRE(!is_nearest(desc) || (!desc->align_corners && !desc->antialias), CLATTN_ERROR_INVALID_ARGUMENT,
            "align_corners and antialias are for bilinear and bicubic");
    REQUIRE(!desc->align_corners || !desc->antialias, CLATTN_ERROR_UNSUPPORTED, "align_corners with antialias");
    REQUIRE(fabsf(desc->cubic_a) <= MAX_CUBIC_A, CLATTN_ERROR_INVALID_ARGUMENT, "cubic_a is not within -4 to 4");
    for (int i = 0; i < 2; i++)
        REQUIRE(isfinite(desc->scale[i]) && desc->scale[i] >= 1.0 / (double)MAX_SIDE, CLATTN_ERROR_INVALID_ARGUMENT,
                "a scale is not finite, or is below 2^-28");
    return CLATTN_SUCCESS;
}

static clattn_status read_arrays(clattn_resize_desc *desc, bool *empty, const char **reason)
{
    clattn_layout *x = &desc->x, *y = &desc->y;
    const struct layout_rule both[] = {
        {x, LAYOUT_OF("x"), LAYOUT_INPUT, 4, false},
        {y, LAYOUT_OF("y"), LAYOUT_OUTPUT, 4, false},
    };
    clattn_status status;
    TRY(layouts_read(both, 2, "x and y are (batch, channels, height, width)", reason));
    REQUIRE(dtype_is_storage(x->dtype) && dtype_is_storage(y->dtype), CLATTN_ERROR_UNSUPPORTED,
            "x and y are float32, float16 or bfloat16");
    REQUIRE(x->extent[0] == y->extent[0] && x->extent[1] == y->extent[1], CLATTN_ERROR_INVALID_LAYOUT,
            "x (batch, channels, height, width) and y differ in batch or channels");
    *empty = !y->extent[0] || !y->extent[1] || !y->extent[2] || !y->extent[3];
    REQUIRE(*empty || (x->extent[2] && x->extent[3]), CLATTN_ERROR_INVALID_LAYOUT,
            "x (batch, channels, height, width) has no rows or no columns, and y has some");
    for (int i = 0; i < 2; i++)
        REQUIRE(x->extent[i] <= LENGTH_LIMIT, CLATTN_ERROR_OVERFLOW, "batch or channels are more than 2^31 - 65537");
    for (int i = 2; i < 4; i++) {
        REQUIRE(x->extent[i] <= MAX_SIDE && y->extent[i] <= MAX_SIDE, CLATTN_ERROR_OVERFLOW,
                "a height or a width is more than 2^28");
        REQUIRE(*empty || !desc->explicit_scale || desc->align_corners ||
                    ((double)y->extent[i] - 1) / desc->scale[i - 2] < (double)x->extent[i],
                CLATTN_ERROR_INVALID_LAYOUT, "y's height or width is more than x's times its scale");
    }
fail:
    return status;
}

/* Splits a number into its whole part and 2^-64 of the rest. */
static void split(long double number, int *whole, uint64_t *fraction)
{
    *whole = (int)floorl(number);
    *fraction = (uint64_t)ldexpl(number - floorl(number), 64);
}

/* Elements of x for one of y along an axis. */
static long double ratio_of(const clattn_resize_desc *desc, int axis)
{
    const long double source = (long double)desc->x.extent[2 + axis], target = (long double)desc->y.extent[2 + axis];
    if (desc->align_corners)
        return target > 1 ? (source - 1) / (target - 1) : 0;
    return desc->explicit_scale ? 1 / (long double)desc->scale[axis] : source / target;
}

static resize_axis axis_of(const clattn_resize_desc *desc, int axis)
{
    const long double ratio = ratio_of(desc, axis), stretch = desc->antialias && ratio > 1 ? ratio : 1;
    const long double support = stretch * (desc->mode == CLATTN_RESIZE_MODE_BICUBIC ? 2 : 1);
    const long double first = desc->align_corners ? 0 : ratio / 2 - 0.5L;
    resize_axis result = {
        .source = (int)desc->x.extent[2 + axis],
        .target = (int)desc->y.extent[2 + axis],
        .taps = is_nearest(desc) ? 1 : (int)ceill(2 * support),
        .distance = (float)(1 - support),
        .shrink = (float)(1 / stretch),
        .ratio = (float)ratio,
    };
    split(ratio, &result.step, &result.step_fraction);
    split(first + 1 - support, &result.start, &result.start_fraction);
    return result;
}

clattn_status resize_problem_read(const void *given, void *result, const char **reason)
{
    clattn_status status;
    struct resize_problem *problem = result;
    clattn_resize_desc *desc = &problem->desc;
    resize_args *kernel = &problem->kernel;
    memset(problem, 0, sizeof *problem);
    *reason = "desc is NULL, or its size is none that clattn_resize_desc ever had";
    TRY(struct_read(desc, sizeof *desc, sizeof *desc, given));
    TRY(read_options(desc, reason));
    TRY(read_arrays(desc, &problem->empty, reason));
    if (problem->empty)
        return CLATTN_SUCCESS;
    const clattn_layout *x = &desc->x, *y = &desc->y;
    const int64_t channels = (int64_t)x->extent[1];
    kernel->x = array4_of(x, 0);
    kernel->y = array4_of(y, 0);
    kernel->rows = axis_of(desc, 0);
    kernel->cols = axis_of(desc, 1);
    kernel->channels = (int)channels;
    problem->joined = channels > 1 && x->stride[1] == 1 && y->stride[1] == 1 && x->stride[3] == channels &&
                      y->stride[3] == channels && (size_t)channels * y->extent[3] <= LENGTH_LIMIT;
    kernel->filter = is_nearest(desc)                            ? RESIZE_NEAREST
                     : desc->mode == CLATTN_RESIZE_MODE_BILINEAR ? RESIZE_LINEAR
                                                                 : RESIZE_CUBIC;
    kernel->clips = desc->antialias;
    kernel->centre = desc->mode == CLATTN_RESIZE_MODE_NEAREST_EXACT ? 0.5f : 0;
    kernel->cubic = desc->cubic_a;
fail:
    return status;
}
