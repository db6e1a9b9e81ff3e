/* tanh in single precision, for vectors of LANES floats.
 *
 *   floatv tanhv(floatv x)
 *
 * The error is at most 3.7 ulp (measured: 3.69 over one in 37 of all floats from 3e-8 to 10, against double; 1.7 from 0.3 on).
 * The function is odd, in the sign of a zero too; exactly +-1 for |x| >= 9.02, +-inf included; NaN gives NaN.
 *
 * How: with e = exp(2|x|) - 1 it is e / (e + 2), with the sign of x.  As exp2v does, adding a magic number rounds 2|x| log2(e) to
 * an integer n; what is left is f, and e = 2^n (2^f - 1) + (2^n - 1).  The polynomial for (2^f - 1) / f is a minimax fit in
 * relative error (1.1e-8) over [-1/2, 1/2], so that e, and with n = 0 the result, is exact for small x.  The clamp is a
 * comparison, which lets a NaN through, and keeps 2^n within its range. */
#ifndef CLATTN_CL_LIB_TANH_H
#define CLATTN_CL_LIB_TANH_H

#include "lib/exp2.h"

static inline floatv tanhv(floatv x)
{
    const floatv size = fabs(x);
    const floatv most = select(size, (floatv)(10.0f), size > 10.0f);
    const floatv t = FMA(most, (floatv)(2.0f * LOG2E), (floatv)(EXP2_MAGIC));
    const floatv f = FMA(most, (floatv)(2.0f * LOG2E), EXP2_MAGIC - t);
    const floatv power = AS_FLOATV(AS_INTV(t) << 23);
    floatv p = FMA((floatv)(0x1.4308fp-13f), f, (floatv)(0x1.5f07dcp-10f));
    p = FMA(p, f, (floatv)(0x1.3b2bap-7f));
    p = FMA(p, f, (floatv)(0x1.c6af6ep-5f));
    p = FMA(p, f, (floatv)(0x1.ebfbdep-3f));
    p = FMA(p, f, (floatv)(0x1.62e430p-1f));
    const floatv e = FMA(power, p * f, power - 1.0f);
    return copysign(e / (e + 2.0f), x);
}

#endif
