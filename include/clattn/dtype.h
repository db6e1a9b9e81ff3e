/** @file
 * Element types of arrays.
 */
#ifndef CLATTN_DTYPE_H
#define CLATTN_DTYPE_H

#include <stddef.h>

#include "export.h"

CLATTN_BEGIN_DECLS

/** The type of an array's elements; 32 bits wherever it is stored. */
typedef enum clattn_dtype {
    CLATTN_DTYPE_NONE = 0, /**< "there is no such array": the value of a zeroed layout */
    CLATTN_DTYPE_F32 = 1,  /**< float32 */
    CLATTN_DTYPE_F16 = 2,  /**< float16, IEEE 754's binary16 */
    CLATTN_DTYPE_BF16 = 3, /**< bfloat16: the upper 16 bits of a float32 */
    CLATTN_DTYPE_F64 = 4,  /**< float64 */
    CLATTN_DTYPE_BOOL = 5, /**< one byte: 0 is false, anything else true; in a mask, true means "attend" */
    CLATTN_DTYPE_I32 = 6,  /**< int32 */
    CLATTN_DTYPE_I64 = 7,  /**< int64 */
    CLATTN_DTYPE_U8 = 8,   /**< uint8 */
    CLATTN_DTYPE_I8 = 9,   /**< int8 */
    /** int4, -8 ... 7: two to a byte, the even index in the lower half. Strides and offsets count elements. */
    CLATTN_DTYPE_I4 = 10,
    CLATTN_DTYPE_FORCE_32BIT = 0x7fffffff
} clattn_dtype;

/** Returns the bytes of one element of `dtype`; 0 for CLATTN_DTYPE_I4, CLATTN_DTYPE_NONE and unknown values.
 * Thread-safe. */
CLATTN_API size_t clattn_dtype_size(clattn_dtype dtype);

/** Returns the bits of one element of `dtype`; 0 for CLATTN_DTYPE_NONE and unknown values. Thread-safe. */
CLATTN_API size_t clattn_dtype_bits(clattn_dtype dtype);

/** Returns the name of `dtype`, a static string: "float32", "bool", ...; otherwise "none" or "unknown". Thread-safe. */
CLATTN_API const char *clattn_dtype_name(clattn_dtype dtype);

/** The most dimensions that a clattn_layout or clattn_host_tensor has. */
#define CLATTN_MAX_RANK 5

CLATTN_END_DECLS

#endif
