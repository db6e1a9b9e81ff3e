/* e^x in single precision, for vectors of LANES floats and for scalars, of which small ones are as exact as large ones.
 *
 *   floatv exp_ofv(floatv x)      float exp_of(float x)
 *
 * They are for x up to 80: a softmax subtracts the maximum, or what is nearly that. */
#ifndef CLATTN_CL_LIB_EXP_H
#define CLATTN_CL_LIB_EXP_H

#include "lib/exp2.h"

/* e^x, computed as exp2.h computes 2^x, except that the multiple of ln 2 is subtracted as two numbers
 * (LN2_HIGH, LN2_LOW).  So a small probability keeps its low bits, which x * log2(e) rounds away.
 * Results below 2^-126.5 are +0; NaN stays NaN. */
#define EXP_LOWEST -88.1f

static inline float exp_of(float x)
{
    x = EXP_LOWEST > x ? EXP_LOWEST : x;
    const float t = FMA(x, LOG2E, EXP2_MAGIC);
    const float n = t - EXP2_MAGIC;
    const float f = FMA(n, -LN2_LOW, FMA(n, -LN2_HIGH, x)) * LOG2E;
    float p = FMA(EXP2_C5, f, EXP2_C4);
    p = FMA(p, f, EXP2_C3);
    p = FMA(p, f, EXP2_C2);
    p = FMA(p, f, EXP2_C1);
    p = FMA(p, f, 1.0f);
    return p * as_float(as_int(t) << 23);
}

static inline floatv exp_ofv(floatv x)
{
    const floatv lowest = (floatv)(EXP_LOWEST);

    x = select(x, lowest, lowest > x);
    const floatv t = FMA(x, (floatv)(LOG2E), (floatv)(EXP2_MAGIC));
    const floatv n = t - EXP2_MAGIC;
    const floatv f = FMA(n, (floatv)(-LN2_LOW), FMA(n, (floatv)(-LN2_HIGH), x)) * LOG2E;
    return exp2_polynomial(f) * AS_FLOATV(AS_INTV(t) << 23);
}

#endif
