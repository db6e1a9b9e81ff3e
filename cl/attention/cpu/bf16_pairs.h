/* What attention_cpu's tiles have in common where Q, K and V are bfloat16 and are multiplied two by two.
 *
 * A vector of Q^T holds two neighbouring columns of LANES queries, one of P^T two neighbouring keys, as pairs in the bits
 * of a floatv; they take the places of the first half of what they are made from. */
#ifndef CLATTN_CL_ATTENTION_CPU_BF16_PAIRS_H
#define CLATTN_CL_ATTENTION_CPU_BF16_PAIRS_H

#include "attention/cpu/lanes.h"
#include "lib/bf16_pairs.h"

#if PAIRS

#if !UNIT_STRIDE || ADDITIVE || KEY_GROUPS || VALUE_GROUPS
#error "PAIRS needs UNIT_STRIDE, dot products and no scales"
#endif
#if KEY_TILE % 2 != 0
#error "KEY_TILE must be even"
#endif

#define HALF(n) ((n) / 2 + ((n) & 1))

/* Columns 2c and 2c + 1 as pair[c * QUERY_VECTORS + v]; load_queries has made the column behind an odd D_K 0.  Both may
 * begin at the same place. */
INLINE void pair_queries(floatv *pair, const floatv *q)
{
    for (int c = 0; c < HALF(D_K); c++)
        for (int v = 0; v < QUERY_VECTORS; v++)
            pair[c * QUERY_VECTORS + v] =
                AS_FLOATV(exact_pairs(q[2 * c * QUERY_VECTORS + v], q[(2 * c + 1) * QUERY_VECTORS + v]));
}

/* p[i * QUERY_VECTORS + v] becomes keys 2i and 2i + 1 of n, rounded; those beyond, as far as `count` of them go, 0. */
INLINE void pair_weights(floatv *p, int n, int count)
{
    for (int i = n * QUERY_VECTORS; i < 2 * count * QUERY_VECTORS; i++)
        p[i] = (floatv)(0.0f);
    for (int i = 0; i < count; i++)
#pragma unroll
        for (int v = 0; v < QUERY_VECTORS; v++)
            p[i * QUERY_VECTORS + v] =
                AS_FLOATV(round_pairs(p[2 * i * QUERY_VECTORS + v], p[(2 * i + 1) * QUERY_VECTORS + v]));
}

/* LANES elements of a row of V as 32 bits, those beyond D_V 0. */
INLINE uintv value_lanes(const global ushort *p, int d)
{
    uint lane[LANES];

    if (D_V - d >= LANES)
        return JOIN(convert_uint, LANES)(VLOAD(0, p + d));
    for (int c = 0; c < LANES; c++)
        lane[c] = d + c < D_V ? p[d + c] : 0;
    return VLOAD(0, lane);
}

/* Two rows of V zipped, or one of them where there is no second. */
INLINE uintv zipped_values(const global ushort *even, const global ushort *odd, int both, int d)
{
    const uintv zipped = value_lanes(even, d);

    if (both)
        return zipped | value_lanes(odd, d) << 16;
    return zipped;
}

#endif
#endif
