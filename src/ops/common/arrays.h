/* Translates layouts and types into what kernels are told. */
#ifndef CLATTN_OPS_COMMON_ARRAYS_H
#define CLATTN_OPS_COMMON_ARRAYS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/size.h"
#include "clattn/layout.h"
#include "lib/array.h"

/* Lengths, batches and heads are ints in the kernels; a tile may overshoot them. */
#define LENGTH_LIMIT ((size_t)INT32_MAX - 65536)

/* The strides of a rank-4 layout (batch, head, row, col) and a binding's offset. */
static inline array4 array4_of(const clattn_layout *layout, int64_t offset)
{
    array4 array = {offset, layout->stride[0], layout->stride[1], layout->stride[2], layout->stride[3]};
    return array;
}

/* Whether arrays of that type hold what kernels compute in float32. */
static inline bool dtype_is_storage(clattn_dtype dtype)
{
    return dtype == CLATTN_DTYPE_F32 || dtype == CLATTN_DTYPE_F16 || dtype == CLATTN_DTYPE_BF16;
}

/* Whether arrays of that type hold integers of a cache that have scales. */
static inline bool dtype_is_quantised(clattn_dtype dtype)
{
    return dtype == CLATTN_DTYPE_I8 || dtype == CLATTN_DTYPE_I4;
}

/* Whether arrays of that type hold lengths, positions or pages. */
static inline bool dtype_is_integer(clattn_dtype dtype)
{
    return dtype == CLATTN_DTYPE_I32 || dtype == CLATTN_DTYPE_I64;
}

/* The distance from 1 to the next larger number of that type. */
static inline double storage_epsilon(clattn_dtype dtype)
{
    return dtype == CLATTN_DTYPE_F16 ? 0x1p-10 : dtype == CLATTN_DTYPE_BF16 ? 0x1p-7 : 0x1p-23;
}

/* The largest error of storing `value` in that type: half a unit in its last place, and 0 for float32. */
static inline double storage_rounding(clattn_dtype dtype, double value)
{
    return dtype == CLATTN_DTYPE_F32
               ? 0
               : storage_epsilon(dtype) / 2 * fabs(value) + (dtype == CLATTN_DTYPE_F16 ? 0x1p-25 : 0);
}

/* The name of a storage type in the kernels' macros. */
static inline const char *storage_token(clattn_dtype dtype)
{
    switch (dtype) {
    case CLATTN_DTYPE_F16: return "F16";
    case CLATTN_DTYPE_BF16: return "BF16";
    case CLATTN_DTYPE_F64: return "F64";
    case CLATTN_DTYPE_I8: return "I8";
    case CLATTN_DTYPE_I4: return "I4";
    case CLATTN_DTYPE_I32: return "I32";
    case CLATTN_DTYPE_I64: return "I64";
    case CLATTN_DTYPE_BOOL: return "BOOL";
    default: return "F32";
    }
}

/* The token of an array of integers, which may be absent. */
static inline const char *integer_token(const clattn_layout *layout)
{
    return layout->dtype == CLATTN_DTYPE_I64 ? "I64" : "I32";
}

/* The OpenCL C type of an element. */
static inline const char *element_token(clattn_dtype dtype)
{
    switch (dtype) {
    case CLATTN_DTYPE_F16: return "half";
    case CLATTN_DTYPE_BF16: return "ushort";
    case CLATTN_DTYPE_I8: return "char";
    case CLATTN_DTYPE_BOOL:
    case CLATTN_DTYPE_U8: return "uchar";
    case CLATTN_DTYPE_I32: return "int";
    case CLATTN_DTYPE_I64: return "long";
    default: return "float";
    }
}

/* Reads the layouts of an operator that makes y of x, element by element: both of a storage type, with the same extents. */
clattn_status read_x_and_y(clattn_layout *x, clattn_layout *y, const char **reason);

/* Aligns a mask of lower rank with `rank` dimensions by leading 1s: the extents and strides of each. */
static inline void mask_align(const clattn_layout *mask, int rank, size_t *extent, int64_t *stride)
{
    int missing = rank - mask->rank;
    for (int i = 0; i < rank; i++) {
        extent[i] = i < missing ? 1 : mask->extent[i - missing];
        stride[i] = extent[i] == 1 ? 0 : mask->stride[i - missing];
    }
}

/* Sets `reach` to the extents that an attention of these sizes (batch, heads, queries, keys) reads of a mask, in the layout
 * with all four dimensions that is returned. */
static inline clattn_layout mask_reach(const clattn_layout *mask, const size_t size[4], size_t reach[4])
{
    clattn_layout all = {.dtype = mask->dtype, .rank = 4};
    mask_align(mask, 4, all.extent, all.stride);
    for (int i = 0; i < 3; i++)
        reach[i] = all.extent[i] == 1 ? 1 : size[i];
    reach[3] = all.extent[3] == 1 ? 1 : size_min(all.extent[3], size[3]);
    return all;
}

#endif
