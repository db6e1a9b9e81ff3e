/* lib/philox.h's generator for LANES counters at a time: c[4] becomes their words. */
#ifndef CLATTN_CL_LIB_PHILOX_VECTOR_H
#define CLATTN_CL_LIB_PHILOX_VECTOR_H

#include "lib/vector.h"

static inline __attribute__((always_inline)) void philoxv(uintv *c, uint2 key)
{
    for (int round = 0; round < 10; round++) {
        const ulongv p = JOIN(convert_ulong, LANES)(c[0]) * 0xD2511F53u,
                     q = JOIN(convert_ulong, LANES)(c[2]) * 0xCD9E8D57u;
        const uintv low0 = JOIN(convert_uint, LANES)(p & 0xffffffffu),
                    low1 = JOIN(convert_uint, LANES)(q & 0xffffffffu);
        const uintv high0 = JOIN(convert_uint, LANES)(p >> 32), high1 = JOIN(convert_uint, LANES)(q >> 32);
        c[0] = high1 ^ c[1] ^ key.x;
        c[1] = low1;
        c[2] = high0 ^ c[3] ^ key.y;
        c[3] = low0;
        key += (uint2)(0x9E3779B9u, 0xBB67AE85u);
    }
}

#endif
