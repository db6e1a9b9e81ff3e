/* tanh in single precision, for vectors of LANES floats.
 *
 *   floatv tanhv(floatv x)
 *   void tanh_each(floatv *x, const int count)      the same for x[0] ... x[count - 1]; count is a literal, at most TANH_MOST
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

#define TANH_MOST 4

/* All numbers take a step before any takes the next one: if each takes all steps at once, a processor has too few chains of
 * dependent instructions in view, and needs half as long again. */
static inline void tanh_each(floatv *x, const int count)
{
    const float coefficients[] = {0x1.4308fp-13f, 0x1.5f07dcp-10f, 0x1.3b2bap-7f,
                                  0x1.c6af6ep-5f, 0x1.ebfbdep-3f,  0x1.62e430p-1f};
    floatv f[TANH_MOST], power[TANH_MOST], p[TANH_MOST];

#pragma unroll
    for (int i = 0; i < count; i++) {
        const floatv size = fabs(x[i]);
        const floatv most = select(size, (floatv)(10.0f), size > 10.0f);
        const floatv t = FMA(most, (floatv)(2.0f * LOG2E), (floatv)(EXP2_MAGIC));
        f[i] = FMA(most, (floatv)(2.0f * LOG2E), EXP2_MAGIC - t);
        power[i] = AS_FLOATV(AS_INTV(t) << 23);
        p[i] = (floatv)(coefficients[0]);
    }
#pragma unroll
    for (int term = 1; term < 6; term++)
#pragma unroll
        for (int i = 0; i < count; i++)
            p[i] = FMA(p[i], f[i], (floatv)(coefficients[term]));
#pragma unroll
    for (int i = 0; i < count; i++) {
        const floatv e = FMA(power[i], p[i] * f[i], power[i] - 1.0f);
        x[i] = copysign(e / (e + 2.0f), x[i]);
    }
}

static inline floatv tanhv(floatv x)
{
    tanh_each(&x, 1);
    return x;
}

#endif
