/* Two bfloat16 in 32 bits, the first in the lower half: what engine/x86/bf16.h multiplies.
 *
 *   pair_at(p, stride, whole)       elements p[0] and p[stride]; 0 for the second unless `whole`
 *   pairs_of_lanes(p, stride)       the same from LANES neighbours on
 *   pairs_of_row(p)                 LANES pairs next to each other
 *   round_pairs(x, y)               magnitudes rounded to nearest, a tie upwards; an infinity stays one, not each NaN
 *   exact_pairs(x, y)               of numbers that are bfloat16 already */
#ifndef CLATTN_CL_LIB_BF16_PAIRS_H
#define CLATTN_CL_LIB_BF16_PAIRS_H

#include "lib/rows.h"
#include "engine/x86/bf16.h"

INLINE uint pair_at(const global ushort *p, long stride, int whole)
{
    if (!whole)
        return p[0];
    return stride == 1 ? as_uint(vload2(0, p)) : p[0] | (uint)p[stride] << 16;
}

INLINE uintv pairs_of_lanes(const global ushort *p, long stride)
{
    return JOIN(convert_uint, LANES)(VLOAD(0, p)) | JOIN(convert_uint, LANES)(VLOAD(0, p + stride)) << 16;
}

INLINE uintv pairs_of_row(const global ushort *p)
{
#if LANES == 16
    return (uintv)(as_uint8(vload16(0, p)), as_uint8(vload16(1, p)));
#elif LANES == 8
    return as_uint8(vload16(0, p));
#else
    return as_uint4(vload8(0, p));
#endif
}

INLINE uintv exact_pairs(floatv x, floatv y)
{
    return AS_UINTV(x) >> 16 | (AS_UINTV(y) & 0xffff0000);
}

INLINE uintv round_pairs(floatv x, floatv y)
{
    return exact_pairs(AS_FLOATV(AS_UINTV(x) + 0x8000), AS_FLOATV(AS_UINTV(y) + 0x8000));
}

#endif
