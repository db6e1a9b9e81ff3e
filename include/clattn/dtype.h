/* Element types. */
#ifndef CLATTN_DTYPE_H
#define CLATTN_DTYPE_H

#include <stddef.h>

#include "export.h"

CLATTN_BEGIN_DECLS

/* Element types of arrays.  An int32_t wherever it is stored. */
typedef enum clattn_dtype {
    CLATTN_DTYPE_NONE = 0, /* "there is no such array": the value of a zeroed layout */
    CLATTN_DTYPE_F32 = 1,
    CLATTN_DTYPE_F16 = 2,
    CLATTN_DTYPE_BF16 = 3, /* the upper 16 bits of a float32 */
    CLATTN_DTYPE_F64 = 4,
    CLATTN_DTYPE_BOOL = 5, /* one byte; 0 is false, anything else true; true = attend */
    CLATTN_DTYPE_I32 = 6,
    CLATTN_DTYPE_I64 = 7,
    CLATTN_DTYPE_U8 = 8,
    CLATTN_DTYPE_I8 = 9,
    CLATTN_DTYPE_I4 =
        10, /* two to a byte, the even index in its lower half; -8 ... 7; strides and offsets count elements */
    CLATTN_DTYPE_FORCE_32BIT = 0x7fffffff
} clattn_dtype;

/* Bytes of one element; 0 for CLATTN_DTYPE_I4, CLATTN_DTYPE_NONE and unknown values.  Thread-safe. */
CLATTN_API size_t clattn_dtype_size(clattn_dtype dtype);

/* Bits of one element; 0 for CLATTN_DTYPE_NONE and unknown values.  Thread-safe. */
CLATTN_API size_t clattn_dtype_bits(clattn_dtype dtype);

/* "float32", "bool", …; "none" and "unknown" otherwise.  A static string.  Thread-safe. */
CLATTN_API const char *clattn_dtype_name(clattn_dtype dtype);

#define CLATTN_MAX_RANK 5

CLATTN_END_DECLS

#endif
