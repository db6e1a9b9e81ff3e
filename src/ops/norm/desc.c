/* Reads and checks the description of a normalisation. */
#include <math.h>
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/common/dimensions.h"
#include "ops/norm/norm.h"

_Static_assert(sizeof(array5) == 48, "array5 has padding");
_Static_assert(sizeof(norm_args) == 24 + 8 * 48 + 8 + 18 * 4, "norm_args has padding");
_Static_assert(CLATTN_MAX_RANK == NORM_DIMENSIONS + 1, "the kernels take four dimensions and columns");

static clattn_status read_options(clattn_norm_desc *desc, const char **reason)
{
    REQUIRE(desc->direction == CLATTN_DIRECTION_FORWARD, CLATTN_ERROR_INVALID_ARGUMENT,
            "direction: only CLATTN_DIRECTION_FORWARD is known");
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

static clattn_status read_sum(const clattn_norm_desc *desc, const char **reason)
{
    clattn_status status;
    if (layout_is_none(&desc->sum))
        return CLATTN_SUCCESS;
    REQUIRE(!layout_is_none(&desc->residual), CLATTN_ERROR_INVALID_ARGUMENT, "sum, and there is no residual");
    TRY(layout_check(&desc->sum, LAYOUT_OUTPUT, LAYOUT_OF("sum"), reason));
    REQUIRE(dtype_is_storage(desc->sum.dtype), CLATTN_ERROR_UNSUPPORTED, "sum is float32, float16 or bfloat16");
    REQUIRE(desc->sum.rank == desc->x.rank &&
                !memcmp(desc->sum.extent, desc->x.extent, (size_t)desc->x.rank * sizeof(size_t)),
            CLATTN_ERROR_INVALID_LAYOUT, "x and sum differ in extents");
fail:
    return status;
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
    TRY(read_sum(desc, reason));
    REQUIRE(desc->kind != CLATTN_NORM_KIND_RMS || layout_is_none(&desc->mean), CLATTN_ERROR_INVALID_ARGUMENT,
            "RMS normalisation has no mean");
    layout_normalise(&desc->scale);
    layout_normalise(&desc->bias);
    layout_normalise(&desc->mean);
    layout_normalise(&desc->inv_std_dev);
    layout_normalise(&desc->residual);
    layout_normalise(&desc->sum);
fail:
    return status;
}

/* Sorts the normalised axes by x's strides, since the order of a sum is free; drops those of extent 1 and joins neighbours.
 * Their strides are those in x, y, scale, bias, residual and sum.  Returns how many are left. */
static int arrange(const clattn_norm_desc *desc, struct dimension *dimension)
{
    const clattn_layout *layout[] = {&desc->x, &desc->y, &desc->scale, &desc->bias, &desc->residual, &desc->sum};
    int count = 0;
    for (int i = desc->x.rank - desc->axes; i < desc->x.rank; i++) {
        struct dimension next = {.extent = desc->x.extent[i]};
        for (size_t n = 0; n < COUNT_OF(layout); n++)
            next.stride[n] = layout[n]->stride[i];
        if (next.extent != 1)
            count = dimensions_insert(dimension, count, next);
    }
    return dimensions_join(dimension, count);
}

static void set_stride(norm_args *walk, int at, const int64_t stride[DIMENSION_ARRAYS])
{
    walk->x.stride[at] = stride[0];
    walk->y.stride[at] = stride[1];
    walk->scale.stride[at] = stride[2];
    walk->bias.stride[at] = stride[3];
    walk->residual.stride[at] = stride[4];
    walk->sum.stride[at] = stride[5];
}

static bool is_one(const array5 *array, int at, int extent)
{
    int64_t span;
    return int64_mul(array->stride[at], extent, &span) && span == array->stride[at - 1];
}

/* Joins neighbouring row dimensions that are one in every array, since each costs a division.  Returns how many are left. */
static int join_rows(norm_args *walk, int rows)
{
    array5 *const arrays[] = {&walk->x,    &walk->y,       &walk->scale,    &walk->bias,
                              &walk->mean, &walk->inverse, &walk->residual, &walk->sum};
    const int count = COUNT_OF(arrays);
    for (int i = rows - 1; i > 0; i--) {
        int *extent = &walk->row_extent[i];
        bool one = true;
        for (int n = 0; n < count; n++)
            one = one && is_one(arrays[n], i, *extent);
        if (!one && extent[0] != 1 && extent[-1] != 1)
            continue;
        /* The strides of a dimension of 1 mean nothing: the other's stay. */
        int gone = !one && extent[0] == 1 ? i : i - 1;
        extent[-1] *= extent[0];
        memmove(extent, extent + 1, (size_t)(NORM_DIMENSIONS - 1 - i) * sizeof *extent);
        walk->row_extent[NORM_DIMENSIONS - 1] = 1;
        for (int n = 0; n < count; n++) {
            args_long *stride = arrays[n]->stride;
            memmove(&stride[gone], &stride[gone + 1], (size_t)(NORM_DIMENSIONS - 1 - gone) * sizeof *stride);
        }
        rows--;
    }
    return rows;
}

/* Lays out the walk: row dimensions first, then those of the segments, then the columns. */
static void lay_out(struct norm_problem *problem)
{
    const clattn_norm_desc *desc = &problem->desc;
    norm_args *walk = &problem->walk;
    struct dimension dimension[CLATTN_MAX_RANK];
    int rows = desc->x.rank - desc->axes, count = arrange(desc, dimension);
    for (int i = 0; i < NORM_DIMENSIONS; i++)
        walk->row_extent[i] = walk->segment_extent[i] = 1;
    for (int i = 0; i < rows; i++) {
        set_stride(walk, i,
                   (const int64_t[DIMENSION_ARRAYS]){desc->x.stride[i], desc->y.stride[i], desc->scale.stride[i],
                                                     desc->bias.stride[i], desc->residual.stride[i],
                                                     desc->sum.stride[i]});
        walk->row_extent[i] = (int)desc->x.extent[i];
        walk->mean.stride[i] = desc->mean.stride[i];
        walk->inverse.stride[i] = desc->inv_std_dev.stride[i];
    }
    rows = join_rows(walk, rows);
    walk->segments = walk->columns = 1;
    for (int i = 0; i + 1 < count; i++) {
        set_stride(walk, rows + i, dimension[i].stride);
        walk->segment_extent[rows + i] = (int)dimension[i].extent;
        walk->segments *= (int)dimension[i].extent;
    }
    if (count) {
        walk->x.col = dimension[count - 1].stride[0];
        walk->y.col = dimension[count - 1].stride[1];
        walk->scale.col = dimension[count - 1].stride[2];
        walk->bias.col = dimension[count - 1].stride[3];
        walk->residual.col = dimension[count - 1].stride[4];
        walk->sum.col = dimension[count - 1].stride[5];
        walk->columns = (int)dimension[count - 1].extent;
    }
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
    TRY(read_layouts(desc, reason));
    walk->has_scale = !layout_is_none(&desc->scale);
    walk->has_bias = !layout_is_none(&desc->bias);
    walk->has_mean = !layout_is_none(&desc->mean);
    walk->has_inverse = !layout_is_none(&desc->inv_std_dev);
    problem->has_residual = !layout_is_none(&desc->residual);
    walk->has_sum = !layout_is_none(&desc->sum);
    walk->centred = desc->kind == CLATTN_NORM_KIND_LAYER;
    walk->epsilon = desc->epsilon;
    for (int i = 0; i < desc->x.rank; i++)
        if (!desc->x.extent[i])
            return CLATTN_SUCCESS; /* no rows and no elements: extents multiply to anything then */
    problem->rows = problem->elements = 1;
    for (int i = 0; i < desc->x.rank; i++)
        *(i < desc->x.rank - desc->axes ? &problem->rows : &problem->elements) *= desc->x.extent[i];
    REQUIRE(problem->rows <= LENGTH_LIMIT && problem->elements <= LENGTH_LIMIT, CLATTN_ERROR_OVERFLOW,
            "the rows, or a row's elements, are more than 2^31 - 65537");
    lay_out(problem);
    problem->unit_columns = walk->x.col == 1 && walk->y.col == 1 &&
                            (!problem->has_residual || walk->residual.col == 1) &&
                            (!walk->has_sum || walk->sum.col == 1);
fail:
    return status;
}
