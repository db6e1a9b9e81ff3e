/* Reads and checks the description of pooling. */
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/pool/pool.h"

_Static_assert(sizeof(pool_axis) == 8 * 4, "pool_axis has padding");
_Static_assert(sizeof(pool_backward_args) == sizeof(pool_args) + 40, "pool_backward_args has padding");
_Static_assert(sizeof(pool_args) == 24 + 2 * 40 + 2 * sizeof(pool_axis) + 2 * 8 + 8 * 4, "pool_args has padding");

#define MAX_SIDE ((int64_t)1 << 28)
#define MAX_WINDOW ((int64_t)1 << 30)

static clattn_status read_axis(clattn_pool_desc *desc, int axis, const char **reason)
{
    int32_t *stride = &desc->stride[axis], *dilation = &desc->dilation[axis];
    const int32_t window = desc->window[axis];
    if (!*stride)
        *stride = window;
    if (!*dilation)
        *dilation = 1;
    REQUIRE(window >= 1, CLATTN_ERROR_INVALID_ARGUMENT, "a window's height or width is below 1");
    REQUIRE(*stride >= 1 && *dilation >= 1, CLATTN_ERROR_INVALID_ARGUMENT, "a stride or a dilation is negative");
    REQUIRE(desc->kind == CLATTN_POOL_KIND_MAX || *dilation == 1, CLATTN_ERROR_UNSUPPORTED,
            "an average with a dilation");
    const int64_t covered = ((int64_t)window - 1) * *dilation + 1;
    REQUIRE(covered <= MAX_SIDE && *stride <= MAX_SIDE, CLATTN_ERROR_OVERFLOW,
            "a stride, or what a window covers, is more than 2^28");
    for (int i = axis; i < 4; i += 2)
        REQUIRE(desc->padding[i] >= 0 && desc->padding[i] <= covered / 2, CLATTN_ERROR_INVALID_ARGUMENT,
                "a padding is negative, or more than half of what a window covers");
    return CLATTN_SUCCESS;
}

static clattn_status read_options(clattn_pool_desc *desc, const char **reason)
{
    clattn_status status;
    REQUIRE(enum_within(desc->direction, CLATTN_DIRECTION_BACKWARD), CLATTN_ERROR_INVALID_ARGUMENT,
            "unknown direction");
    REQUIRE(enum_within(desc->kind, CLATTN_POOL_KIND_AVERAGE), CLATTN_ERROR_INVALID_ARGUMENT, "unknown kind");
    REQUIRE(is_flag(desc->ceil_mode), CLATTN_ERROR_INVALID_ARGUMENT, "ceil_mode is neither 0 nor 1");
    REQUIRE(is_flag(desc->count_include_pad), CLATTN_ERROR_INVALID_ARGUMENT, "count_include_pad is neither 0 nor 1");
    REQUIRE(desc->kind == CLATTN_POOL_KIND_AVERAGE || !desc->count_include_pad, CLATTN_ERROR_INVALID_ARGUMENT,
            "count_include_pad is for averages");
    TRY(read_axis(desc, 0, reason));
    TRY(read_axis(desc, 1, reason));
    REQUIRE((int64_t)desc->window[0] * desc->window[1] <= MAX_WINDOW, CLATTN_ERROR_OVERFLOW,
            "a window has more than 2^30 elements");
fail:
    return status;
}

/* The number of windows along an axis with `source` elements; 0 if these and the padding are too few for a window. */
static int64_t target_of(const clattn_pool_desc *desc, int axis, int64_t source)
{
    const int64_t stride = desc->stride[axis];
    const int64_t covered = ((int64_t)desc->window[axis] - 1) * desc->dilation[axis] + 1;
    const int64_t rest =
        source + desc->padding[axis] + desc->padding[axis + 2] - covered + (desc->ceil_mode ? stride - 1 : 0);
    const int64_t target = rest < 0 ? 0 : rest / stride + 1;
    return desc->ceil_mode && (target - 1) * stride >= source + desc->padding[axis] ? target - 1 : target;
}

/* Requires of x and y, or of their gradients, what pooling makes of x's extents. */
static clattn_status read_extents(const clattn_pool_desc *desc, const clattn_layout *x, const clattn_layout *y,
                                  const char **reason)
{
    REQUIRE(dtype_is_storage(x->dtype) && dtype_is_storage(y->dtype), CLATTN_ERROR_UNSUPPORTED,
            "x and y are float32, float16 or bfloat16, and so are their gradients");
    REQUIRE(x->extent[0] == y->extent[0] && x->extent[1] == y->extent[1], CLATTN_ERROR_INVALID_LAYOUT,
            "x (batch, channels, height, width) and y differ in batch or channels");
    for (int i = 0; i < 4; i++)
        REQUIRE(x->extent[i] <= (i < 2 ? LENGTH_LIMIT : (size_t)MAX_SIDE), CLATTN_ERROR_OVERFLOW,
                "batch or channels are more than 2^31 - 65537, or a height or a width is more than 2^28");
    for (int i = 0; i < 2; i++) {
        const int64_t target = target_of(desc, i, (int64_t)x->extent[2 + i]);
        REQUIRE(x->extent[2 + i] && target, CLATTN_ERROR_INVALID_LAYOUT,
                "x (batch, channels, height, width) with its padding is smaller than a window");
        REQUIRE(y->extent[2 + i] == (size_t)target, CLATTN_ERROR_INVALID_LAYOUT,
                "y's height or width is not the number of windows that x's, with padding, has");
    }
    return CLATTN_SUCCESS;
}

static clattn_status read_forward(clattn_pool_desc *desc, const char **reason)
{
    clattn_status status;
    const struct layout_rule rules[] = {
        {&desc->x, LAYOUT_OF("x"), LAYOUT_INPUT, 4, false},
        {&desc->y, LAYOUT_OF("y"), LAYOUT_OUTPUT, 4, false},
    };
    REQUIRE(layout_is_none(&desc->gradients.x) && layout_is_none(&desc->gradients.y), CLATTN_ERROR_INVALID_ARGUMENT,
            "gradients are for CLATTN_DIRECTION_BACKWARD");
    TRY(layouts_read(rules, COUNT_OF(rules), "x and y are (batch, channels, height, width)", reason));
    TRY(read_extents(desc, &desc->x, &desc->y, reason));
fail:
    return status;
}

static clattn_status read_backward(clattn_pool_desc *desc, const char **reason)
{
    clattn_status status;
    const clattn_layout *x = &desc->x, *gradient = &desc->gradients.x;
    const bool average = desc->kind == CLATTN_POOL_KIND_AVERAGE;
    const struct layout_rule rules[] = {
        {&desc->x, LAYOUT_OF("x"), LAYOUT_INPUT, 4, average},
        {&desc->gradients.y, LAYOUT_OF("gradients.y"), LAYOUT_INPUT, 4, false},
        {&desc->gradients.x, LAYOUT_OF("gradients.x"), LAYOUT_OUTPUT, 4, false},
    };
    REQUIRE(layout_is_none(&desc->y), CLATTN_ERROR_INVALID_ARGUMENT, "y is for CLATTN_DIRECTION_FORWARD");
    REQUIRE(!average || layout_is_none(x), CLATTN_ERROR_INVALID_ARGUMENT, "an average's gradient does not depend on x");
    TRY(layouts_read(rules, COUNT_OF(rules), "x and the gradients are (batch, channels, height, width)", reason));
    TRY(read_extents(desc, gradient, &desc->gradients.y, reason));
    REQUIRE(average || dtype_is_storage(x->dtype), CLATTN_ERROR_UNSUPPORTED, "x is float32, float16 or bfloat16");
    REQUIRE(average || !memcmp(x->extent, gradient->extent, sizeof x->extent), CLATTN_ERROR_INVALID_LAYOUT,
            "x and gradients.x differ in extents");
fail:
    return status;
}

static pool_axis axis_of(const clattn_pool_desc *desc, int axis, const clattn_layout *x, const clattn_layout *y)
{
    return (pool_axis){
        .source = (int)x->extent[2 + axis],
        .target = (int)y->extent[2 + axis],
        .window = desc->window[axis],
        .stride = desc->stride[axis],
        .dilation = desc->dilation[axis],
        .before = desc->padding[axis],
        .after = desc->padding[axis + 2],
    };
}

/* Makes rows of a picture longer that is pooled as a whole, if they are next to each other: a few short ones become one. */
static void lengthen_rows(const clattn_layout *x, pool_args *kernel)
{
    pool_axis *rows = &kernel->rows, *columns = &kernel->cols;
    const bool whole = rows->window == rows->source && columns->window == columns->source && rows->dilation == 1 &&
                       columns->dilation == 1 && !rows->before && !rows->after && !columns->before && !columns->after;
    int64_t row;
    if (!whole || rows->target != 1 || columns->target != 1 || !int64_mul(x->stride[3], columns->source, &row) ||
        row != x->stride[2])
        return;
    for (int more = rows->source; more > 1; more--)
        if (rows->source % more == 0 && columns->source <= POOL_SPAN / more) {
            rows->source = rows->window = rows->source / more;
            columns->source = columns->window = columns->source * more;
            kernel->x.row *= more;
            return;
        }
}

clattn_status pool_problem_read(const void *given, void *result, const char **reason)
{
    clattn_status status;
    struct pool_problem *problem = result;
    clattn_pool_desc *desc = &problem->desc;
    pool_args *kernel = &problem->kernel;
    memset(problem, 0, sizeof *problem);
    *reason = "desc is NULL, or its size is none that clattn_pool_desc ever had";
    TRY(struct_read(desc, sizeof *desc, sizeof *desc, given));
    TRY(read_options(desc, reason));
    const bool backward = desc->direction == CLATTN_DIRECTION_BACKWARD;
    TRY(backward ? read_backward(desc, reason) : read_forward(desc, reason));
    const clattn_layout *x = backward ? &desc->gradients.x : &desc->x, *y = backward ? &desc->gradients.y : &desc->y;
    const int64_t channels = (int64_t)x->extent[1];
    problem->empty = !y->extent[0] || !channels;
    if (problem->empty)
        return CLATTN_SUCCESS;
    kernel->x = array4_of(&desc->x, 0);
    kernel->y = array4_of(y, 0);
    kernel->rows = axis_of(desc, 0, x, y);
    kernel->cols = axis_of(desc, 1, x, y);
    kernel->channels = (int)channels;
    if (!backward)
        lengthen_rows(x, kernel);
    kernel->average = desc->kind == CLATTN_POOL_KIND_AVERAGE;
    kernel->padding_counts = desc->count_include_pad;
    problem->unit_channels = channels > 1 && x->stride[1] == 1 && y->stride[1] == 1 &&
                             (layout_is_none(&desc->x) || desc->x.stride[1] == 1) &&
                             y->extent[3] <= LENGTH_LIMIT / (POOL_BLOCK * 16);
    problem->joined = problem->unit_channels && x->stride[3] == channels && y->stride[3] == channels &&
                      (size_t)channels * size_max(x->extent[3], y->extent[3]) <= LENGTH_LIMIT;
fail:
    return status;
}
