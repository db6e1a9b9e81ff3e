/* How kernels of either direction walk rows, their segments and the segments' columns. */
#include <string.h>

#include "base/size.h"
#include "ops/common/dimensions.h"
#include "ops/norm/norm.h"

/* The arrays that have columns; those behind them have one element a row, or do not exist. */
static size_t with_columns(const struct norm_walk *walk)
{
    return size_min(walk->count, DIMENSION_ARRAYS);
}

/* Sorts the normalised axes by x's strides, since the order of a sum is free; drops those of extent 1 and joins neighbours.
 * Returns how many are left. */
static int arrange(const clattn_norm_desc *desc, const struct norm_walk *walk, struct dimension *dimension)
{
    int count = 0;
    for (int i = desc->x.rank - desc->axes; i < desc->x.rank; i++) {
        struct dimension next = {.extent = desc->x.extent[i]};
        for (size_t n = 0; n < with_columns(walk); n++)
            next.stride[n] = walk->arrays[n].layout->stride[i];
        if (next.extent != 1)
            count = dimensions_insert(dimension, count, next);
    }
    return dimensions_join(dimension, count);
}

static bool is_one(const array5 *array, int at, int extent)
{
    int64_t span;
    return int64_mul(array->stride[at], extent, &span) && span == array->stride[at - 1];
}

/* Joins neighbouring row dimensions that are one in every array, since each costs a division.  Returns how many are left. */
static int join_rows(const struct norm_walk *walk, int rows)
{
    for (int i = rows - 1; i > 0; i--) {
        int *extent = &walk->row_extent[i];
        bool one = true;
        for (size_t n = 0; n < walk->count; n++)
            one = one && is_one(walk->arrays[n].array, i, *extent);
        if (!one && extent[0] != 1 && extent[-1] != 1)
            continue;
        /* The strides of a dimension of 1 mean nothing: the other's stay. */
        int gone = !one && extent[0] == 1 ? i : i - 1;
        extent[-1] *= extent[0];
        memmove(extent, extent + 1, (size_t)(NORM_DIMENSIONS - 1 - i) * sizeof *extent);
        walk->row_extent[NORM_DIMENSIONS - 1] = 1;
        for (size_t n = 0; n < walk->count; n++) {
            args_long *stride = walk->arrays[n].array->stride;
            memmove(&stride[gone], &stride[gone + 1], (size_t)(NORM_DIMENSIONS - 1 - gone) * sizeof *stride);
        }
        rows--;
    }
    return rows;
}

/* Row dimensions come first, then those of the segments, then the columns. */
void norm_lay_out(const clattn_norm_desc *desc, const struct norm_walk *walk)
{
    struct dimension dimension[CLATTN_MAX_RANK];
    int rows = desc->x.rank - desc->axes, count = arrange(desc, walk, dimension);
    for (int i = 0; i < NORM_DIMENSIONS; i++)
        walk->row_extent[i] = walk->segment_extent[i] = 1;
    for (int i = 0; i < rows; i++) {
        for (size_t n = 0; n < walk->count; n++)
            walk->arrays[n].array->stride[i] = walk->arrays[n].layout->stride[i];
        walk->row_extent[i] = (int)desc->x.extent[i];
    }
    rows = join_rows(walk, rows);
    *walk->segments = *walk->columns = 1;
    for (int i = 0; i + 1 < count; i++) {
        for (size_t n = 0; n < with_columns(walk); n++)
            walk->arrays[n].array->stride[rows + i] = dimension[i].stride[n];
        walk->segment_extent[rows + i] = (int)dimension[i].extent;
        *walk->segments *= (int)dimension[i].extent;
    }
    if (count) {
        for (size_t n = 0; n < with_columns(walk); n++)
            walk->arrays[n].array->col = dimension[count - 1].stride[n];
        *walk->columns = (int)dimension[count - 1].extent;
    }
}
