/* Storage types.  A kernel computes in float whatever its arrays hold; an array's element type is one
 * of the tokens F32, F16, BF16, F64, I8, I4 or BOOL, and the kernel reaches its elements through these macros only:
 *
 *   ELEMENT(TYPE)               the type to declare pointers with
 *   LOAD(TYPE, p, i)            element i of p, as a float (F64: a double; BOOL: 0.0f or 1.0f)
 *   LOAD_INT(TYPE, p, i)        element i of an I32 or I64 array, as a long
 *   STORE(TYPE, p, i, x)        rounds the float x to nearest even and stores it
 *   LOADV(TYPE, p, i)           LANES neighbouring elements from i, as a floatv   (lib/vector.h)
 *   STOREV(TYPE, p, i, x)       the same, stored
 *   BYTES(TYPE, i)              of i elements, half a byte left out
 *   IS_F32(TYPE), IS_BOOL(TYPE)   1 or 0, for #if
 *   PREFETCH(address)           asks for the memory there; the address is a number, and need not be an array's.  For kernels
 *                               that are told (AHEAD, PREFETCH_DISTANCE) that the compiler has __builtin_prefetch
 *   PREFETCH_SECOND(address)    the same, into the second-level cache
 *   MOVED(TYPE, p, i), REST(TYPE, i)   p moved on to the byte where element i lies, and the index that element i has
 *                               from there: elements behind it then lie at constant distances from one pointer
 *
 * F16 needs no cl_khr_fp16: vload_half and vstore_half are core.  BF16 is the upper half of a float.  Two I4 share a
 * byte, the one with the even index in its lower half: p must be a start from which indices are counted.
 * I8 and I4 are read only. */
#ifndef CLATTN_CL_LIB_STORAGE_H
#define CLATTN_CL_LIB_STORAGE_H

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

#define ELEMENT_F32 float
#define ELEMENT_F16 half
#define ELEMENT_BF16 ushort
#define ELEMENT_F64 double
#define ELEMENT_I8 char
#define ELEMENT_I4 uchar
#define ELEMENT_I32 int
#define ELEMENT_I64 long
#define ELEMENT_BOOL uchar
#define ELEMENT(TYPE) JOIN(ELEMENT_, TYPE)

#define LOAD_F32(p, i) ((p)[i])
#define LOAD_F16(p, i) vload_half((i), (p))
#define LOAD_BF16(p, i) as_float((uint)(p)[i] << 16)
#define LOAD_F64(p, i) ((p)[i])
#define LOAD_I8(p, i) ((float)(p)[i])
#define LOAD_I4(p, i) ((float)((((p)[(i) >> 1] >> ((i) & 1) * 4 & 15) ^ 8) - 8))
#define LOAD_BOOL(p, i) ((p)[i] ? 1.0f : 0.0f)
#define LOAD_INT(TYPE, p, i) ((long)((p)[i]))
#define LOAD(TYPE, p, i) JOIN(LOAD_, TYPE)(p, i)

#define IS_F32_F32 1
#define IS_F32_F16 0
#define IS_F32_BF16 0
#define IS_F32_I8 0
#define IS_F32_I4 0
#define IS_F32(TYPE) JOIN(IS_F32_, TYPE)

#define IS_BOOL_BOOL 1
#define IS_BOOL_F32 0
#define IS_BOOL_F16 0
#define IS_BOOL_BF16 0
#define IS_BOOL_F64 0
#define IS_BOOL(TYPE) JOIN(IS_BOOL_, TYPE)

#define BYTES_F32(i) ((i) * 4)
#define BYTES_F16(i) ((i) * 2)
#define BYTES_BF16(i) ((i) * 2)
#define BYTES_I8(i) (i)
#define BYTES_I4(i) ((i) / 2)
#define BYTES(TYPE, i) JOIN(BYTES_, TYPE)(i)
#define PREFETCH(address) __builtin_prefetch((const void *)(size_t)(address))
#define PREFETCH_SECOND(address) __builtin_prefetch((const void *)(size_t)(address), 0, 2)

#define MOVED_F32(p, i) ((p) + (i))
#define MOVED_F16(p, i) ((p) + (i))
#define MOVED_BF16(p, i) ((p) + (i))
#define MOVED_I8(p, i) ((p) + (i))
#define MOVED_I4(p, i) ((p) + ((i) >> 1))
#define MOVED(TYPE, p, i) JOIN(MOVED_, TYPE)(p, i)

#define REST_F32(i) 0
#define REST_F16(i) 0
#define REST_BF16(i) 0
#define REST_I8(i) 0
#define REST_I4(i) ((i) & 1)
#define REST(TYPE, i) JOIN(REST_, TYPE)(i)

#define STORE_F32(p, i, x) ((p)[i] = (x))
#define STORE_F16(p, i, x) vstore_half_rte((x), (i), (p))
#define STORE_BF16(p, i, x) ((p)[i] = bf16_bits(x))
#define STORE_F64(p, i, x) ((p)[i] = (x))
#define STORE(TYPE, p, i, x) JOIN(STORE_, TYPE)(p, i, x)

/* Round to nearest even; a NaN stays one (its payload is cut and made quiet). */
static inline ushort bf16_bits(float x)
{
    uint bits = as_uint(x);
    uint rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (ushort)(isnan(x) ? (bits >> 16) | 0x40u : rounded);
}

#endif
