/* Reading and checking what a softmax is asked for. */
#include <math.h>
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/softmax/softmax.h"
#include "program/defines.h"

_Static_assert(sizeof(array5) == 48, "array5 has padding");
_Static_assert(sizeof(softmax_args) == 3 * 48 + 8 + 8 * 4, "softmax_args has padding");
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
    *reason = "the mask is neither bool nor float32";
    if (mask->dtype != CLATTN_DTYPE_BOOL && mask->dtype != CLATTN_DTYPE_F32)
        return CLATTN_ERROR_UNSUPPORTED;
    *reason = "the mask has more dimensions than x";
    if (mask->rank > x->rank)
        return CLATTN_ERROR_INVALID_LAYOUT;
    mask_align(mask, x->rank, problem->mask_extent, stride);
    *reason = problem->desc.short_mask
                  ? "each extent of the mask is 1 or x's; its last may lie between"
                  : "each extent of the mask is 1 or x's; its last may lie between with short_mask";
    for (int i = 0; i < x->rank; i++)
        if (problem->mask_extent[i] != 1 && problem->mask_extent[i] != x->extent[i] &&
            (i + 1 < x->rank || problem->mask_extent[i] > x->extent[i] || !problem->desc.short_mask))
            return CLATTN_ERROR_INVALID_LAYOUT;
    clattn_layout aligned = {.rank = x->rank};
    memcpy(aligned.stride, stride, sizeof aligned.stride[0] * (size_t)x->rank);
    problem->mask = strides_of(&aligned);
    return CLATTN_SUCCESS;
}

clattn_status softmax_problem_read(const clattn_softmax_desc *given, struct softmax_problem *problem,
                                   const char **reason)
{
    clattn_status status;
    clattn_softmax_desc *desc = &problem->desc;
    memset(problem, 0, sizeof *problem);
    *reason = "desc is NULL, or its size is none that clattn_softmax_desc ever had";
    TRY(struct_read(desc, sizeof *desc, sizeof *desc, given));
    status = CLATTN_ERROR_INVALID_ARGUMENT;
    *reason = "direction: only CLATTN_DIRECTION_FORWARD is known";
    if (desc->direction != CLATTN_DIRECTION_FORWARD)
        goto fail;
    *reason = "explicit_scale is neither 0 nor 1";
    if (desc->explicit_scale != 0 && desc->explicit_scale != 1)
        goto fail;
    *reason = "short_mask is neither 0 nor 1";
    if (desc->short_mask != 0 && desc->short_mask != 1)
        goto fail;
    *reason = "scale is NaN or infinite";
    if (desc->explicit_scale && !isfinite(desc->scale))
        goto fail;
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
    status = CLATTN_ERROR_OVERFLOW;
    *reason = "the rows, or the columns, are more than 2^31 - 65537";
    /* layout_check multiplies no extents where one is 0: their product may be anything then, and is not
     * used. */
    if (!empty && (!fits || rows > LENGTH_LIMIT || problem->columns > LENGTH_LIMIT))
        goto fail;
    problem->x = strides_of(&desc->x);
    problem->y = strides_of(&desc->y);
    problem->scale = desc->explicit_scale ? desc->scale : 1.0f;
    if (!desc->explicit_scale)
        desc->scale = 0;
    problem->unit_columns = problem->x.col == 1 && problem->y.col == 1;
    status = CLATTN_SUCCESS;
fail:
    return status;
}

static bool joins(const array5 *array, int outer, int inner, int64_t extent)
{
    return array->stride[outer] == extent * array->stride[inner];
}

static void take_dimension(array5 *array, int to, int from)
{
    array->stride[to] = array->stride[from];
}

/* Dimensions that lie like one in every array become one, so that as many rows as can be are a stride apart. */
static void join_dimensions(softmax_args *a)
{
    int inner = SOFTMAX_OUTER - 1;
    for (int n = inner - 1; n >= 0; n--) {
        if (a->extent[n] == 1)
            continue;
        if (a->extent[inner] == 1) {
            take_dimension(&a->x, inner, n);
            take_dimension(&a->y, inner, n);
            take_dimension(&a->mask, inner, n);
        } else if (!joins(&a->x, n, inner, a->extent[inner]) || !joins(&a->y, n, inner, a->extent[inner]) ||
                   !joins(&a->mask, n, inner, a->extent[inner])) {
            inner = n;
            continue;
        }
        a->extent[inner] *= a->extent[n];
        a->extent[n] = 1;
    }
}

clattn_status softmax_args_read(clattn_context *context, const struct softmax_problem *problem,
                                const clattn_softmax_args *given, clattn_softmax_args *args, softmax_args *kernel_args)
{
    clattn_status status;
    struct report *report = &context->device.report;
    const clattn_softmax_desc *desc = &problem->desc;
    size_t extent[CLATTN_MAX_RANK], mask_extent[CLATTN_MAX_RANK];
    memset(kernel_args, 0, sizeof *kernel_args);
    TRY(args_read(report, "clattn_softmax_args", args, sizeof *args, sizeof *args, given));
    TRY(args_check(report, "explicit_batch", args->explicit_batch, args->reserved));
    if (args->explicit_batch && desc->x.rank < 2)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "explicit_batch, and x has no batch");
    if (!problem->has_mask)
        TRY(binding_absent(context, &args->mask, "mask"));
    TRY(args_length(report, "batch", args->explicit_batch, &args->batch, desc->x.extent[0]));
    memcpy(extent, desc->x.extent, sizeof extent);
    memcpy(mask_extent, problem->mask_extent, sizeof mask_extent);
    extent[0] = args->batch;
    if (args->explicit_batch && mask_extent[0] != 1)
        mask_extent[0] = args->batch;
    size_t rows = 1;
    for (int i = 0; i < SOFTMAX_OUTER; i++) {
        size_t outer = i < problem->first ? 1 : extent[i - problem->first];
        kernel_args->extent[i] = (int)outer;
        rows *= outer;
    }
    if (!rows || !problem->columns)
        return CLATTN_SUCCESS; /* kernel_args->rows stays 0 */
    TRY(binding_check(context, &args->x, &desc->x, extent, BINDING_READ, "x"));
    /* The kernels keep exponentials in y and read them again. */
    TRY(binding_check(context, &args->y, &desc->y, extent, BINDING_READ_WRITE, "y"));
    kernel_args->x = problem->x;
    kernel_args->x.offset = args->x.offset;
    kernel_args->y = problem->y;
    kernel_args->y.offset = args->y.offset;
    kernel_args->mask_columns = (int)problem->columns;
    if (problem->has_mask) {
        clattn_layout aligned = {.dtype = desc->mask.dtype, .rank = desc->x.rank};
        for (int i = problem->first; i < SOFTMAX_OUTER; i++)
            aligned.stride[i - problem->first] = problem->mask.stride[i];
        aligned.stride[desc->x.rank - 1] = problem->mask.col;
        TRY(binding_check(context, &args->mask, &aligned, mask_extent, BINDING_READ, "mask"));
        kernel_args->mask = problem->mask;
        kernel_args->mask.offset = args->mask.offset;
        if (mask_extent[desc->x.rank - 1] != 1)
            kernel_args->mask_columns = (int)mask_extent[desc->x.rank - 1];
    }
    join_dimensions(kernel_args);
    kernel_args->rows = (int64_t)rows;
    kernel_args->columns = (int)problem->columns;
    kernel_args->scale = problem->scale;
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

void softmax_defines(const struct softmax_problem *problem, struct strbuf *options)
{
    define_token(options, "X_TYPE", storage_token(problem->desc.x.dtype));
    define_token(options, "Y_TYPE", storage_token(problem->desc.y.dtype));
    define_int(options, "MASK", problem->has_mask);
    if (problem->has_mask)
        define_token(options, "MASK_TYPE", storage_token(problem->desc.mask.dtype));
}
