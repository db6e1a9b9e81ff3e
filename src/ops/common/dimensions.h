/* Dimensions of a walk over several arrays of the same extents, in the order of memory and joined. */
#ifndef CLATTN_OPS_COMMON_DIMENSIONS_H
#define CLATTN_OPS_COMMON_DIMENSIONS_H

#include <stddef.h>
#include <stdint.h>

#define DIMENSION_ARRAYS 6 /* a walk has at most so many arrays */

/* A dimension with its stride in each array; arrays that are absent have stride 0. */
struct dimension {
    size_t extent;
    int64_t stride[DIMENSION_ARRAYS];
};

/* Inserts a dimension by the first array's strides, the smallest last.  Returns the new count. */
int dimensions_insert(struct dimension *dimensions, int count, struct dimension added);

/* Joins neighbours that are one dimension in every array, unless the result is too long for a kernel.  Returns how many are
 * left. */
int dimensions_join(struct dimension *dimensions, int count);

#endif
