/* tanh in single precision, for vectors of LANES floats.
 *
 *   floatv tanhv(floatv x)
 *
 * The error is at most 2.1 ulp (measured: 2.04 over one in 37 of all floats from 0 to 11, against double).  The function
 * is odd, in the sign of a zero too; exactly +-1 for |x| >= 9.02, +-inf included; NaN gives NaN.
 *
 * How: if |x| < 0.625 it is x + x^3 * P(x^2), otherwise 1 - 2 / (1 + exp(2|x|)) with the sign of x, by one division.  The
 * polynomial is that of Cephes' tanhf.  The clamp is a comparison, which lets a NaN through, and keeps exp2v within its
 * range. */
#ifndef CLATTN_CL_LIB_TANH_H
#define CLATTN_CL_LIB_TANH_H

#include "lib/exp2.h"

static inline floatv tanhv(floatv x)
{
    const floatv size = fabs(x);
    const floatv most = select(size, (floatv)(10.0f), size > 10.0f);
    const floatv far = 1.0f - 2.0f / (1.0f + exp2v(most * (2.0f * LOG2E)));
    const floatv z = x * x;
    floatv p = FMA((floatv)(-5.70498872745e-3f), z, (floatv)(2.06390887954e-2f));
    p = FMA(p, z, (floatv)(-5.37397155531e-2f));
    p = FMA(p, z, (floatv)(1.33314422036e-1f));
    p = FMA(p, z, (floatv)(-3.33332819422e-1f));
    return select(FMA(p * z, x, x), copysign(far, x), size > 0.625f);
}

#endif
