/* Reads and checks the descriptions of a normalisation and of its gradients. */
#include <math.h>
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/norm/norm.h"

_Static_assert(sizeof(array5) == 48, "array5 has padding");
_Static_assert(sizeof(norm_args) == 24 + 8 * 48 + 8 + 18 * 4, "norm_args has padding");
_Static_assert(sizeof(norm_backward_args) == 24 + 6 * 48 + 2 * 8 + 16 * 4, "norm_backward_args has padding");
_Static_assert(sizeof(norm_weights_args) == 24 + 5 * 88 + 4 * 8 + 12 * 4, "norm_weights_args has padding");
_Static_assert(CLATTN_MAX_RANK == NORM_DIMENSIONS + 1, "the kernels take four dimensions and columns");

static clattn_status read_options(clattn_norm_desc *desc, const char **reason)
{
    REQUIRE(enum_within(desc->direction, CLATTN_DIRECTION_BACKWARD), CLATTN_ERROR_INVALID_ARGUMENT,
            "unknown direction");
    REQUIRE(enum_within(desc->kind, CLATTN_NORM_KIND_RMS), CLATTN_ERROR_INVALID_ARGUMENT, "unknown kind");
    REQUIRE(is_flag(desc->explicit_epsilon), CLATTN_ERROR_INVALID_ARGUMENT, "explicit_epsilon is neither 0 nor 1");
    REQUIRE(desc->reserved == 0, CLATTN_ERROR_INVALID_ARGUMENT, "reserved is not 0");
    REQUIRE(!desc->explicit_epsilon || (desc->epsilon >= 0 && isfinite(desc->epsilon)), CLATTN_ERROR_INVALID_ARGUMENT,
            "epsilon is negative, NaN or infinite");
    REQUIRE(desc->axes >= 0 && desc->axes <= desc->x.rank, CLATTN_ERROR_INVALID_ARGUMENT,
            "axes is below 0 or above x's rank");
    if (!desc->explicit_epsilon)
        desc->epsilon = 1e-5f;
    if (!desc->axes)
        desc->axes = 1;
    return CLATTN_SUCCESS;
}

/* Reads scale, bias or residual, and aligns it with x's dimensions; it broadcasts by stride 0. */
static clattn_status read_broadcast(clattn_layout *layout, const struct layout_words *words, const clattn_layout *x,
                                    const char **reason)
{
    clattn_status status;
    size_t extent[CLATTN_MAX_RANK] = {0};
    int64_t stride[CLATTN_MAX_RANK] = {0};
    if (layout_is_none(layout))
        return CLATTN_SUCCESS;
    TRY(layout_check(layout, LAYOUT_INPUT, words, reason));
    REQUIRE(dtype_is_storage(layout->dtype), CLATTN_ERROR_UNSUPPORTED,
            "scale, bias and residual are float32, float16 or bfloat16");
    const char *shape =
        "scale, bias and residual have no more dimensions than x, and each of their extents is 1 or x's";
    REQUIRE(layout->rank <= x->rank, CLATTN_ERROR_INVALID_LAYOUT, shape);
    mask_align(layout, x->rank, extent, stride);
    for (int i = 0; i < x->rank; i++)
        REQUIRE(extent[i] == 1 || extent[i] == x->extent[i], CLATTN_ERROR_INVALID_LAYOUT, shape);
    layout->rank = x->rank;
    memcpy(layout->extent, extent, sizeof extent);
    memcpy(layout->stride, stride, sizeof stride);
fail:
    return status;
}

static clattn_status read_statistic(const clattn_layout *layout, const struct layout_words *words,
                                    const clattn_norm_desc *desc, const char **reason)
{
    clattn_status status;
    if (layout_is_none(layout))
        return CLATTN_SUCCESS;
    TRY(layout_check(layout, LAYOUT_OUTPUT, words, reason));
    const char *shape = "mean and inv_std_dev are float32 with x's extents, 1 for each normalised axis";
    REQUIRE(layout->dtype == CLATTN_DTYPE_F32 && layout->rank == desc->x.rank, CLATTN_ERROR_INVALID_LAYOUT, shape);
    for (int i = 0; i < layout->rank; i++)
        REQUIRE(layout->extent[i] == (i < layout->rank - desc->axes ? desc->x.extent[i] : 1),
                CLATTN_ERROR_INVALID_LAYOUT, shape);
fail:
    return status;
}

/* Reads an array of x's extents. */
static clattn_status read_whole(const clattn_layout *layout, enum layout_use use, const struct layout_words *words,
                                const clattn_layout *x, const char **reason, const char *types, const char *extents)
{
    clattn_status status;
    if (layout_is_none(layout))
        return CLATTN_SUCCESS;
    TRY(layout_check(layout, use, words, reason));
    REQUIRE(dtype_is_storage(layout->dtype), CLATTN_ERROR_UNSUPPORTED, types);
    REQUIRE(layout->rank == x->rank && !memcmp(layout->extent, x->extent, (size_t)x->rank * sizeof(size_t)),
            CLATTN_ERROR_INVALID_LAYOUT, extents);
fail:
    return status;
}

/* Zeroes what optional layouts do not use. */
static void normalise(clattn_norm_desc *desc)
{
    layout_normalise(&desc->y);
    layout_normalise(&desc->scale);
    layout_normalise(&desc->bias);
    layout_normalise(&desc->mean);
    layout_normalise(&desc->inv_std_dev);
    layout_normalise(&desc->residual);
    layout_normalise(&desc->sum);
    layout_normalise(&desc->gradients.x);
    layout_normalise(&desc->gradients.y);
    layout_normalise(&desc->gradients.sum);
    layout_normalise(&desc->gradients.scale);
    layout_normalise(&desc->gradients.bias);
}

static clattn_status read_layouts(clattn_norm_desc *desc, const char **reason)
{
    clattn_status status;
    TRY(read_x_and_y(&desc->x, &desc->y, reason));
    TRY(read_options(desc, reason));
    TRY(read_broadcast(&desc->scale, LAYOUT_OF("scale"), &desc->x, reason));
    TRY(read_broadcast(&desc->bias, LAYOUT_OF("bias"), &desc->x, reason));
    TRY(read_statistic(&desc->mean, LAYOUT_OF("mean"), desc, reason));
    TRY(read_statistic(&desc->inv_std_dev, LAYOUT_OF("inv_std_dev"), desc, reason));
    TRY(read_broadcast(&desc->residual, LAYOUT_OF("residual"), &desc->x, reason));
    REQUIRE(layout_is_none(&desc->sum) || !layout_is_none(&desc->residual), CLATTN_ERROR_INVALID_ARGUMENT,
            "sum, and there is no residual");
    TRY(read_whole(&desc->sum, LAYOUT_OUTPUT, LAYOUT_OF("sum"), &desc->x, reason, "sum is float32, float16 or bfloat16",
                   "x and sum differ in extents"));
    REQUIRE(desc->kind != CLATTN_NORM_KIND_RMS || layout_is_none(&desc->mean), CLATTN_ERROR_INVALID_ARGUMENT,
            "RMS normalisation has no mean");
    normalise(desc);
fail:
    return status;
}

/* Counts rows and a row's elements; both are 0 if x has no elements, because extents multiply to anything then. */
static clattn_status read_rows(const clattn_norm_desc *desc, size_t *rows, size_t *elements, const char **reason)
{
    *rows = *elements = 0;
    for (int i = 0; i < desc->x.rank; i++)
        if (!desc->x.extent[i])
            return CLATTN_SUCCESS;
    *rows = *elements = 1;
    for (int i = 0; i < desc->x.rank; i++)
        *(i < desc->x.rank - desc->axes ? rows : elements) *= desc->x.extent[i];
    REQUIRE(*rows <= LENGTH_LIMIT && *elements <= LENGTH_LIMIT, CLATTN_ERROR_OVERFLOW,
            "the rows, or a row's elements, are more than 2^31 - 65537");
    return CLATTN_SUCCESS;
}

clattn_status norm_problem_read(const void *given, void *result, const char **reason)
{
    clattn_status status;
    struct norm_problem *problem = result;
    clattn_norm_desc *desc = &problem->desc;
    norm_args *walk = &problem->walk;
    memset(problem, 0, sizeof *problem);
    *reason = "desc is NULL, or its size is none that clattn_norm_desc ever had";
    TRY(struct_read(desc, sizeof *desc, offsetof(clattn_norm_desc, residual), given));
    REQUIRE(layout_is_none(&desc->gradients.x) && layout_is_none(&desc->gradients.y) &&
                layout_is_none(&desc->gradients.sum) && layout_is_none(&desc->gradients.scale) &&
                layout_is_none(&desc->gradients.bias),
            CLATTN_ERROR_INVALID_ARGUMENT, "gradients are for CLATTN_DIRECTION_BACKWARD");
    TRY(read_layouts(desc, reason));
    walk->has_scale = !layout_is_none(&desc->scale);
    walk->has_bias = !layout_is_none(&desc->bias);
    walk->has_mean = !layout_is_none(&desc->mean);
    walk->has_inverse = !layout_is_none(&desc->inv_std_dev);
    problem->has_residual = !layout_is_none(&desc->residual);
    walk->has_sum = !layout_is_none(&desc->sum);
    walk->centred = desc->kind == CLATTN_NORM_KIND_LAYER;
    walk->epsilon = desc->epsilon;
    TRY(read_rows(desc, &problem->rows, &problem->elements, reason));
    if (!problem->rows)
        return CLATTN_SUCCESS;
    const struct norm_walk_array arrays[] = {
        {&desc->x, &walk->x},
        {&desc->y, &walk->y},
        {&desc->scale, &walk->scale},
        {&desc->bias, &walk->bias},
        {&desc->residual, &walk->residual},
        {&desc->sum, &walk->sum},
        {&desc->mean, &walk->mean},
        {&desc->inv_std_dev, &walk->inverse},
    };
    norm_lay_out(desc, &(struct norm_walk){arrays, COUNT_OF(arrays), walk->row_extent, walk->segment_extent,
                                           &walk->segments, &walk->columns});
    problem->unit_columns = walk->x.col == 1 && walk->y.col == 1 &&
                            (!problem->has_residual || walk->residual.col == 1) &&
                            (!walk->has_sum || walk->sum.col == 1);
fail:
    return status;
}

/* ---- gradients ---- */

/* Reads the gradient of scale or bias, and aligns it with x's dimensions. */
static clattn_status read_weight(clattn_layout *layout, const struct layout_words *words, const clattn_layout *x,
                                 const char **reason)
{
    clattn_status status;
    if (!layout_is_none(layout))
        TRY(layout_check(layout, LAYOUT_OUTPUT, words, reason));
    TRY(read_broadcast(layout, words, x, reason));
fail:
    return status;
}

static clattn_status read_gradients(clattn_norm_desc *desc, const char **reason)
{
    clattn_status status;
    const clattn_layout *x = &desc->x;
    const char *types = "gradients are float32, float16 or bfloat16",
               *extents = "x and a gradient of x, y or sum differ in extents";
    REQUIRE(!layout_is_none(&desc->gradients.y), CLATTN_ERROR_INVALID_LAYOUT, "gradients.y: the layout is missing");
    REQUIRE(!layout_is_none(&desc->gradients.x) || !layout_is_none(&desc->gradients.scale) ||
                !layout_is_none(&desc->gradients.bias),
            CLATTN_ERROR_INVALID_ARGUMENT, "no gradient is asked for");
    TRY(read_whole(&desc->gradients.y, LAYOUT_INPUT, LAYOUT_OF("gradients.y"), x, reason, types, extents));
    TRY(read_whole(&desc->gradients.sum, LAYOUT_INPUT, LAYOUT_OF("gradients.sum"), x, reason, types, extents));
    TRY(read_whole(&desc->gradients.x, LAYOUT_OUTPUT, LAYOUT_OF("gradients.x"), x, reason, types, extents));
    TRY(read_weight(&desc->gradients.scale, LAYOUT_OF("gradients.scale"), x, reason));
    TRY(read_weight(&desc->gradients.bias, LAYOUT_OF("gradients.bias"), x, reason));
    REQUIRE(layout_is_none(&desc->gradients.scale) || !layout_is_none(&desc->scale), CLATTN_ERROR_INVALID_ARGUMENT,
            "gradients.scale, and there is no scale");
    REQUIRE(layout_is_none(&desc->gradients.scale) ||
                !memcmp(desc->gradients.scale.extent, desc->scale.extent, (size_t)x->rank * sizeof(size_t)),
            CLATTN_ERROR_INVALID_LAYOUT, "scale and its gradient differ in extents");
fail:
    return status;
}

clattn_status norm_backward_problem_read(const void *given, void *result, const char **reason)
{
    clattn_status status;
    struct norm_backward_problem *problem = result;
    clattn_norm_desc *desc = &problem->desc;
    norm_backward_args *walk = &problem->walk;
    memset(problem, 0, sizeof *problem);
    *reason = "desc is NULL, or its size is none that clattn_norm_desc ever had";
    TRY(struct_read(desc, sizeof *desc, offsetof(clattn_norm_desc, residual), given));
    REQUIRE(layout_is_none(&desc->y) && layout_is_none(&desc->bias) && layout_is_none(&desc->mean) &&
                layout_is_none(&desc->inv_std_dev) && layout_is_none(&desc->sum),
            CLATTN_ERROR_INVALID_ARGUMENT, "y, bias, mean, inv_std_dev and sum are for CLATTN_DIRECTION_FORWARD");
    const struct layout_rule x = {&desc->x, LAYOUT_OF("x"), LAYOUT_INPUT, 0, false};
    TRY(layouts_read(&x, 1, NULL, reason));
    REQUIRE(dtype_is_storage(desc->x.dtype), CLATTN_ERROR_UNSUPPORTED, "x is float32, float16 or bfloat16");
    TRY(read_options(desc, reason));
    TRY(read_broadcast(&desc->scale, LAYOUT_OF("scale"), &desc->x, reason));
    TRY(read_broadcast(&desc->residual, LAYOUT_OF("residual"), &desc->x, reason));
    TRY(read_gradients(desc, reason));
    normalise(desc);
    walk->has_scale = !layout_is_none(&desc->scale);
    walk->has_dsum = !layout_is_none(&desc->gradients.sum);
    walk->has_dx = !layout_is_none(&desc->gradients.x);
    walk->has_statistics = !layout_is_none(&desc->gradients.scale);
    walk->centred = desc->kind == CLATTN_NORM_KIND_LAYER;
    walk->epsilon = desc->epsilon;
    problem->has_residual = !layout_is_none(&desc->residual);
    TRY(read_rows(desc, &problem->rows, &problem->elements, reason));
    if (!problem->rows)
        return CLATTN_SUCCESS;
    const struct norm_walk_array arrays[] = {
        {&desc->x, &walk->x},
        {&desc->residual, &walk->residual},
        {&desc->scale, &walk->scale},
        {&desc->gradients.y, &walk->dy},
        {&desc->gradients.sum, &walk->dsum},
        {&desc->gradients.x, &walk->dx},
    };
    norm_lay_out(desc, &(struct norm_walk){arrays, COUNT_OF(arrays), walk->row_extent, walk->segment_extent,
                                           &walk->segments, &walk->columns});
    problem->unit_columns = walk->x.col == 1 && walk->dy.col == 1 &&
                            (!problem->has_residual || walk->residual.col == 1) &&
                            (!walk->has_dsum || walk->dsum.col == 1) && (!walk->has_dx || walk->dx.col == 1);
fail:
    return status;
}
