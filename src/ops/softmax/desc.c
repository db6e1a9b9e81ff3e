/* Reads and checks the descriptions of a softmax and of its gradient. */
#include <math.h>
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/softmax/softmax.h"

_Static_assert(sizeof(array5) == 48, "array5 has padding");
_Static_assert(sizeof(softmax_args) == 24 + 3 * 48 + 8 + 8 * 4, "softmax_args has padding");
_Static_assert(sizeof(softmax_backward_args) == 24 + 4 * 48 + 8 + 8 * 4, "softmax_backward_args has padding");
_Static_assert(CLATTN_MAX_RANK == SOFTMAX_OUTER + 1, "softmax kernels take four outer dimensions");

array5 softmax_strides(const clattn_layout *layout)
{
    array5 array = {0};
    int last = layout->rank - 1;
    for (int i = 0; i < last; i++)
        array.stride[SOFTMAX_OUTER - last + i] = layout->stride[i];
    array.col = layout->stride[last];
    return array;
}

static clattn_status read_mask(const clattn_softmax_desc *desc, const clattn_layout *rows, struct softmax_shape *shape,
                               const char **reason)
{
    const clattn_layout *mask = &desc->mask;
    int64_t stride[CLATTN_MAX_RANK];
    shape->has_mask = !layout_is_none(mask);
    if (!shape->has_mask)
        return CLATTN_SUCCESS;
    REQUIRE(mask->dtype == CLATTN_DTYPE_BOOL || mask->dtype == CLATTN_DTYPE_F32, CLATTN_ERROR_UNSUPPORTED,
            "the mask is neither bool nor float32");
    REQUIRE(mask->rank <= rows->rank, CLATTN_ERROR_INVALID_LAYOUT, "the mask has more dimensions than x");
    mask_align(mask, rows->rank, shape->mask_extent, stride);
    for (int i = 0; i < rows->rank; i++) {
        const size_t extent = shape->mask_extent[i];
        const bool is_short = i + 1 == rows->rank && extent <= rows->extent[i] && desc->short_mask;
        REQUIRE(extent == 1 || extent == rows->extent[i] || is_short, CLATTN_ERROR_INVALID_LAYOUT,
                desc->short_mask ? "each extent of the mask is 1 or x's; its last may lie between"
                                 : "each extent of the mask is 1 or x's; its last may lie between with short_mask");
    }
    clattn_layout aligned = {.rank = rows->rank};
    memcpy(aligned.stride, stride, sizeof aligned.stride[0] * (size_t)rows->rank);
    shape->mask = softmax_strides(&aligned);
    return CLATTN_SUCCESS;
}

static clattn_status read_rows(const clattn_layout *rows, struct softmax_shape *shape, const char **reason)
{
    int outer = rows->rank - 1;
    size_t count = 1;
    bool fits = true, empty = !rows->extent[outer];
    shape->rank = rows->rank;
    shape->first = SOFTMAX_OUTER - outer;
    for (int i = 0; i < SOFTMAX_OUTER; i++) {
        shape->outer[i] = i < shape->first ? 1 : rows->extent[i - shape->first];
        fits = size_mul(count, shape->outer[i], &count) && fits;
        empty = empty || !shape->outer[i];
    }
    shape->columns = empty ? 0 : rows->extent[outer]; /* without rows there are no columns to walk either */
    /* layout_check multiplies no extents if one is 0: their product may then be anything, and is not used. */
    REQUIRE(empty || (fits && count <= LENGTH_LIMIT && shape->columns <= LENGTH_LIMIT), CLATTN_ERROR_OVERFLOW,
            "the rows, or the columns, are more than 2^31 - 65537");
    return CLATTN_SUCCESS;
}

clattn_status softmax_shape_read(clattn_softmax_desc *desc, const clattn_layout *rows, struct softmax_shape *shape,
                                 const char **reason)
{
    clattn_status status;
    REQUIRE(is_flag(desc->explicit_scale), CLATTN_ERROR_INVALID_ARGUMENT, "explicit_scale is neither 0 nor 1");
    REQUIRE(is_flag(desc->short_mask), CLATTN_ERROR_INVALID_ARGUMENT, "short_mask is neither 0 nor 1");
    REQUIRE(!desc->explicit_scale || isfinite(desc->scale), CLATTN_ERROR_INVALID_ARGUMENT, "scale is NaN or infinite");
    shape->scale = desc->explicit_scale ? desc->scale : 1.0f;
    if (!desc->explicit_scale)
        desc->scale = 0;
    if (!layout_is_none(&desc->mask))
        TRY(layout_check(&desc->mask, LAYOUT_INPUT, LAYOUT_OF("mask"), reason));
    layout_normalise(&desc->mask);
    TRY(read_mask(desc, rows, shape, reason));
    TRY(read_rows(rows, shape, reason));
fail:
    return status;
}

clattn_status softmax_problem_read(const void *given, void *result, const char **reason)
{
    clattn_status status;
    struct softmax_problem *problem = result;
    clattn_softmax_desc *desc = &problem->desc;
    memset(problem, 0, sizeof *problem);
    *reason = "desc is NULL, or its size is none that clattn_softmax_desc ever had";
    TRY(struct_read(desc, sizeof *desc, offsetof(clattn_softmax_desc, gradients), given));
    REQUIRE(desc->direction == CLATTN_DIRECTION_FORWARD, CLATTN_ERROR_INVALID_ARGUMENT, "unknown direction");
    REQUIRE(layout_is_none(&desc->gradients.x) && layout_is_none(&desc->gradients.y), CLATTN_ERROR_INVALID_ARGUMENT,
            "gradients are for CLATTN_DIRECTION_BACKWARD");
    TRY(read_x_and_y(&desc->x, &desc->y, reason));
    TRY(softmax_shape_read(desc, &desc->x, &problem->shape, reason));
    layout_normalise(&desc->gradients.x);
    layout_normalise(&desc->gradients.y);
    problem->x = softmax_strides(&desc->x);
    problem->y = softmax_strides(&desc->y);
    problem->unit_columns = problem->x.col == 1 && problem->y.col == 1;
fail:
    return status;
}

clattn_status softmax_backward_problem_read(const void *given, void *result, const char **reason)
{
    clattn_status status;
    struct softmax_backward_problem *problem = result;
    clattn_softmax_desc *desc = &problem->desc;
    const struct layout_rule arrays[] = {
        {&desc->y, LAYOUT_OF("y"), LAYOUT_INPUT, 0, false},
        {&desc->gradients.x, LAYOUT_OF("gradients.x"), LAYOUT_OUTPUT, 0, false},
        {&desc->gradients.y, LAYOUT_OF("gradients.y"), LAYOUT_INPUT, 0, false},
    };
    memset(problem, 0, sizeof *problem);
    *reason = "desc is NULL, or its size is none that clattn_softmax_desc ever had";
    TRY(struct_read(desc, sizeof *desc, offsetof(clattn_softmax_desc, gradients), given));
    REQUIRE(layout_is_none(&desc->x), CLATTN_ERROR_INVALID_ARGUMENT, "x is for CLATTN_DIRECTION_FORWARD");
    layout_normalise(&desc->x);
    TRY(layouts_read(arrays, COUNT_OF(arrays), NULL, reason));
    for (size_t i = 0; i < COUNT_OF(arrays); i++) {
        const clattn_layout *layout = arrays[i].layout;
        REQUIRE(dtype_is_storage(layout->dtype), CLATTN_ERROR_UNSUPPORTED,
                "y and the gradients are float32, float16 or bfloat16");
        REQUIRE(layout->rank == desc->y.rank && !memcmp(layout->extent, desc->y.extent, sizeof layout->extent),
                CLATTN_ERROR_INVALID_LAYOUT, "y and the gradients differ in extents");
    }
    TRY(softmax_shape_read(desc, &desc->y, &problem->shape, reason));
    problem->y = softmax_strides(&desc->y);
    problem->dy = softmax_strides(&desc->gradients.y);
    problem->dx = softmax_strides(&desc->gradients.x);
    problem->unit_columns = problem->y.col == 1 && problem->dy.col == 1 && problem->dx.col == 1;
fail:
    return status;
}

size_t softmax_rows(const struct softmax_shape *shape)
{
    size_t rows = 1;
    for (int i = 0; i < SOFTMAX_OUTER; i++)
        rows *= shape->outer[i];
    return rows;
}
