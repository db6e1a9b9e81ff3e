/* Reads and checks the description of a softmax. */
#include <math.h>
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/softmax/softmax.h"

_Static_assert(sizeof(array5) == 48, "array5 has padding");
_Static_assert(sizeof(softmax_args) == 24 + 3 * 48 + 8 + 8 * 4, "softmax_args has padding");
_Static_assert(CLATTN_MAX_RANK == SOFTMAX_OUTER + 1, "softmax kernels take four outer dimensions");

static array5 strides_of(const clattn_layout *layout)
{
    array5 array = {0};
    int last = layout->rank - 1;
    for (int i = 0; i < last; i++)
        array.stride[SOFTMAX_OUTER - last + i] = layout->stride[i];
    array.col = layout->stride[last];
    return array;
}

static clattn_status read_mask(struct softmax_problem *problem, const char **reason)
{
    const clattn_layout *mask = &problem->desc.mask, *x = &problem->desc.x;
    int64_t stride[CLATTN_MAX_RANK];
    problem->has_mask = !layout_is_none(mask);
    if (!problem->has_mask)
        return CLATTN_SUCCESS;
    REQUIRE(mask->dtype == CLATTN_DTYPE_BOOL || mask->dtype == CLATTN_DTYPE_F32, CLATTN_ERROR_UNSUPPORTED,
            "the mask is neither bool nor float32");
    REQUIRE(mask->rank <= x->rank, CLATTN_ERROR_INVALID_LAYOUT, "the mask has more dimensions than x");
    mask_align(mask, x->rank, problem->mask_extent, stride);
    for (int i = 0; i < x->rank; i++) {
        const size_t extent = problem->mask_extent[i];
        const bool is_short = i + 1 == x->rank && extent <= x->extent[i] && problem->desc.short_mask;
        REQUIRE(extent == 1 || extent == x->extent[i] || is_short, CLATTN_ERROR_INVALID_LAYOUT,
                problem->desc.short_mask
                    ? "each extent of the mask is 1 or x's; its last may lie between"
                    : "each extent of the mask is 1 or x's; its last may lie between with short_mask");
    }
    clattn_layout aligned = {.rank = x->rank};
    memcpy(aligned.stride, stride, sizeof aligned.stride[0] * (size_t)x->rank);
    problem->mask = strides_of(&aligned);
    return CLATTN_SUCCESS;
}

clattn_status softmax_problem_read(const void *given, void *result, const char **reason)
{
    clattn_status status;
    struct softmax_problem *problem = result;
    clattn_softmax_desc *desc = &problem->desc;
    memset(problem, 0, sizeof *problem);
    *reason = "desc is NULL, or its size is none that clattn_softmax_desc ever had";
    TRY(struct_read(desc, sizeof *desc, sizeof *desc, given));
    REQUIRE(desc->direction == CLATTN_DIRECTION_FORWARD, CLATTN_ERROR_INVALID_ARGUMENT,
            "direction: only CLATTN_DIRECTION_FORWARD is known");
    REQUIRE(is_flag(desc->explicit_scale), CLATTN_ERROR_INVALID_ARGUMENT, "explicit_scale is neither 0 nor 1");
    REQUIRE(is_flag(desc->short_mask), CLATTN_ERROR_INVALID_ARGUMENT, "short_mask is neither 0 nor 1");
    REQUIRE(!desc->explicit_scale || isfinite(desc->scale), CLATTN_ERROR_INVALID_ARGUMENT, "scale is NaN or infinite");
    TRY(read_x_and_y(&desc->x, &desc->y, reason));
    if (!layout_is_none(&desc->mask))
        TRY(layout_check(&desc->mask, LAYOUT_INPUT, LAYOUT_OF("mask"), reason));
    layout_normalise(&desc->mask);
    TRY(read_mask(problem, reason));

    int outer = desc->x.rank - 1;
    size_t rows = 1;
    bool fits = true, empty = !desc->x.extent[outer];
    problem->first = SOFTMAX_OUTER - outer;
    for (int i = 0; i < SOFTMAX_OUTER; i++) {
        problem->outer[i] = i < problem->first ? 1 : desc->x.extent[i - problem->first];
        fits = size_mul(rows, problem->outer[i], &rows) && fits;
        empty = empty || !problem->outer[i];
    }
    problem->columns = empty ? 0 : desc->x.extent[outer]; /* without rows there are no columns to walk either */
    /* layout_check multiplies no extents if one is 0: their product may then be anything, and is not used. */
    REQUIRE(empty || (fits && rows <= LENGTH_LIMIT && problem->columns <= LENGTH_LIMIT), CLATTN_ERROR_OVERFLOW,
            "the rows, or the columns, are more than 2^31 - 65537");
    problem->x = strides_of(&desc->x);
    problem->y = strides_of(&desc->y);
    problem->scale = desc->explicit_scale ? desc->scale : 1.0f;
    if (!desc->explicit_scale)
        desc->scale = 0;
    problem->unit_columns = problem->x.col == 1 && problem->y.col == 1;
fail:
    return status;
}

size_t softmax_rows(const struct softmax_problem *problem)
{
    size_t rows = 1;
    for (int i = 0; i < SOFTMAX_OUTER; i++)
        rows *= problem->outer[i];
    return rows;
}
