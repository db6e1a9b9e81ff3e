/* 2^x in single precision, for vectors of LANES floats and for scalars.
 *
 *   floatv exp2v(floatv x)      float exp2s(float x)
 *
 * At most 1.8 ulp for -125.9 <= x <= 1 (measured: 1.78 over one in 37 of all those floats, against double); exactly 1 for
 * x = 0.  Below that the result is exactly +0, which is what a masked score (x = -inf) must give.  NaN
 * gives NaN.  Above 127.5, +inf included, the result is unspecified: in a softmax x is never much
 * above 0, and +inf minus the running maximum +inf is already NaN.  No multiplication by log2(e) is
 * folded in; callers do that in the FMA that also subtracts the maximum.
 *
 * How: adding EXP2_MAGIC, 1.5 * 2^23 + 127, rounds x to an integer n and leaves n + 127 in the low bits
 * of the sum, so that one shift makes 2^n out of them.  The clamp is written as a comparison because
 * fmax would replace a NaN, and its limit is -127 because n + 127 is then 0: the factor is +0, not
 * 2^-126.  2^n enters by a multiplication, which keeps a NaN that the polynomial carries; adding to the
 * exponent field would not.  The polynomial is a minimax fit, in ulps of the result, over [-1/2, 1/2]
 * with its constant term fixed at 1. */
#ifndef CLATTN_CL_LIB_EXP2_H
#define CLATTN_CL_LIB_EXP2_H

#include "lib/fma.h"
#include "lib/vector.h"

#define EXP2_MAGIC 12583039.0f
#define EXP2_LOWEST -127.0f
#define EXP2_C1 0x1.62e424p-1f
#define EXP2_C2 0x1.ebf9b4p-3f
#define EXP2_C3 0x1.c6baa2p-5f
#define EXP2_C4 0x1.3ceca2p-7f
#define EXP2_C5 0x1.5ab438p-10f

#define LOG2E 0x1.715476p+0f
#define LN2 0x1.62e430p-1f
/* ln 2 as two numbers, of which the first has so few bits that an integer below 2^10 times it is exact. */
#define LN2_HIGH 0x1.62ep-1f
#define LN2_LOW 0x1.0bfbe8p-15f

/* 2^f for |f| <= 1/2. */
static inline floatv exp2_polynomial(floatv f)
{
    floatv p = FMA((floatv)(EXP2_C5), f, (floatv)(EXP2_C4));

    p = FMA(p, f, (floatv)(EXP2_C3));
    p = FMA(p, f, (floatv)(EXP2_C2));
    p = FMA(p, f, (floatv)(EXP2_C1));
    return FMA(p, f, (floatv)(1.0f));
}

static inline floatv exp2v(floatv x)
{
    const floatv lowest = (floatv)(EXP2_LOWEST);

    x = select(x, lowest, lowest > x);
    floatv t = x + EXP2_MAGIC;
    floatv f = x - (t - EXP2_MAGIC);
    return exp2_polynomial(f) * AS_FLOATV(AS_INTV(t) << 23);
}

static inline float exp2s(float x)
{
    x = EXP2_LOWEST > x ? EXP2_LOWEST : x;
    float t = x + EXP2_MAGIC;
    float f = x - (t - EXP2_MAGIC);
    float p = FMA(EXP2_C5, f, EXP2_C4);
    p = FMA(p, f, EXP2_C3);
    p = FMA(p, f, EXP2_C2);
    p = FMA(p, f, EXP2_C1);
    p = FMA(p, f, 1.0f);
    return p * as_float(as_int(t) << 23);
}

#endif
