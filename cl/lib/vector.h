/* Vectors of LANES floats: 16, 8 or 4, chosen by the planner from the device's native width.
 * LANES may be given with -D; the default suits a device that reports nothing. */
#ifndef CLATTN_CL_LIB_VECTOR_H
#define CLATTN_CL_LIB_VECTOR_H

#include "lib/storage.h"

#ifndef LANES
#define LANES 4
#endif
#if LANES != 4 && LANES != 8 && LANES != 16
#error "LANES must be 4, 8 or 16"
#endif

typedef JOIN(float, LANES) floatv;
typedef JOIN(int, LANES) intv;
typedef JOIN(uint, LANES) uintv;
typedef JOIN(ushort, LANES) ushortv;
typedef JOIN(ulong, LANES) ulongv;

#define VLOAD JOIN(vload, LANES)
#define VSTORE JOIN(vstore, LANES)
#define AS_FLOATV JOIN(as_float, LANES)
#define AS_INTV JOIN(as_int, LANES)
#define AS_UINTV JOIN(as_uint, LANES)

#if LANES == 16
#define LANE_INDEX ((int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))
#define LANES_HALF 8
#define TWICE(x) ((x).s0011223344556677)
#elif LANES == 8
#define LANE_INDEX ((int8)(0, 1, 2, 3, 4, 5, 6, 7))
#define LANES_HALF 4
#define TWICE(x) ((x).s00112233)
#else
#define LANE_INDEX ((int4)(0, 1, 2, 3))
#define LANES_HALF 2
#define TWICE(x) ((x).s0011)
#endif

#define LOADV_F32(p, i) VLOAD(0, (p) + (i))
#define LOADV_F16(p, i) f16_floatv(VLOAD(0, (const global ushort *)(p) + (i)))
#define LOADV_BF16(p, i) AS_FLOATV(JOIN(convert_int, LANES)(VLOAD(0, (p) + (i))) << 16)
#define LOADV_I8(p, i) JOIN(convert_float, LANES)(VLOAD(0, (p) + (i)))
#define LOADV_I4(p, i) i4_floatv(JOIN(vload, LANES_HALF)((long)0, (p) + ((i) >> 1)))
#define LOADV_BOOL(p, i) select((floatv)(0.0f), (floatv)(1.0f), JOIN(convert_int, LANES)(VLOAD(0, (p) + (i))) != 0)
#define LOADV(TYPE, p, i) JOIN(LOADV_, TYPE)(p, i)

/* Stores x at p as one vector.  `type` is one of those below, with the address space; p is aligned as an element is.
 * PoCL 3.1's vstore16 is three stores and the shuffles for them. */
#define STORE_WHOLE(type, p, x) (*(type *)(p) = (x))
typedef floatv whole_floatv __attribute__((aligned(4)));
typedef uintv whole_uintv __attribute__((aligned(4)));
typedef ushortv whole_ushortv __attribute__((aligned(2)));

#define STOREV_F32(p, i, x) STORE_WHOLE(global whole_floatv, (p) + (i), x)
#define STOREV_F16(p, i, x) STORE_WHOLE(global whole_ushortv, (p) + (i), f16_bitsv(x))
#define STOREV_BF16(p, i, x) STORE_WHOLE(global whole_ushortv, (p) + (i), bf16_bitsv(x))
#define STOREV(TYPE, p, i, x) JOIN(STOREV_, TYPE)(p, i, x)

/* Converts a vector of bits: PoCL 3.1's vload_half and vstore_half assume that an array is aligned to whole vectors. */
static inline floatv f16_floatv(ushortv bits)
{
#if X86_F16 && LANES == 16
    floatv x;

    __asm__("vcvtph2ps %1, %0" : "=v"(x) : "v"(bits));
    return x;
#else
    return JOIN(vload_half, LANES)(0, (const half *)&bits);
#endif
}

static inline ushortv f16_bitsv(floatv x)
{
    ushortv bits;

#if X86_F16 && LANES == 16
    __asm__("vcvtps2ph $0, %1, %0" : "=v"(bits) : "v"(x));
#else
    JOIN(JOIN(vstore_half, LANES), _rte)(x, 0, (half *)&bits);
#endif
    return bits;
}

/* Converts bytes that hold two integers of four bits each, the lower half first. */
static inline floatv i4_floatv(JOIN(uchar, LANES_HALF) bytes)
{
    const intv x = JOIN(convert_int, LANES)(TWICE(bytes)) >> ((LANE_INDEX & 1) * 4) & 15;
    return JOIN(convert_float, LANES)((x ^ 8) - 8);
}

static inline ushortv bf16_bitsv(floatv x)
{
    intv bits = AS_INTV(x);
    intv rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return JOIN(convert_ushort, LANES)(select(rounded, (bits >> 16) | 0x40, isnan(x)) & 0xffff);
}

/* b in the lanes in which it is larger, otherwise a: a NaN in b is dropped, a NaN in a stays. */
#define LARGER_OF(a, b) select(a, b, (b) > (a))

/* The sum of the lanes, and the largest lane (no lane may then be a NaN): both combine halves.  The last four lanes
 * go through memory, because Oclgrind 21.10 crashes at shuffles into shorter vectors, which compilers also make of
 * single lanes. */
static inline float sum_lanes(floatv x)
{
    float lane[4];
#if LANES == 16
    const float8 eight = x.lo + x.hi;
    vstore4(eight.lo + eight.hi, 0, lane);
#elif LANES == 8
    vstore4(x.lo + x.hi, 0, lane);
#else
    vstore4(x, 0, lane);
#endif
    for (int step = 2; step > 0; step /= 2)
        for (int l = 0; l < step; l++)
            lane[l] += lane[l + step];
    return lane[0];
}

static inline float largest_lane(floatv x)
{
    float lane[4];
#if LANES == 16
    const float8 eight = LARGER_OF(x.lo, x.hi);
    vstore4(LARGER_OF(eight.lo, eight.hi), 0, lane);
#elif LANES == 8
    vstore4(LARGER_OF(x.lo, x.hi), 0, lane);
#else
    vstore4(x, 0, lane);
#endif
    for (int step = 2; step > 0; step /= 2)
        for (int l = 0; l < step; l++)
            lane[l] = lane[l + step] > lane[l] ? lane[l + step] : lane[l];
    return lane[0];
}

#endif
