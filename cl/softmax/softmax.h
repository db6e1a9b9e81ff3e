/* What the kernels of softmax/rows.cl and softmax/cpu_short.cl share: the parameters that say what arrays there are, where a
 * row lies, and the exponential.
 *
 * Parameter       meaning                                          allowed
 * X_TYPE, Y_TYPE  storage                                          F32, F16, BF16
 * MASK, MASK_TYPE a mask is given; BOOL attends where true, others 0, 1; BOOL, F32, F16, BF16
 *                 are added and -inf selects as BOOL does */
#ifndef CLATTN_CL_SOFTMAX_SOFTMAX_H
#define CLATTN_CL_SOFTMAX_SOFTMAX_H

#include "softmax/args.h"
#include "lib/storage.h"
#include "lib/exp2.h"

#ifndef X_TYPE
#define X_TYPE F32
#endif
#ifndef Y_TYPE
#define Y_TYPE F32
#endif
#ifndef MASK
#define MASK 0
#endif
#ifndef MASK_TYPE
#define MASK_TYPE F32
#endif

#define SELECTS_BOOL 1
#define SELECTS_F32 0
#define SELECTS_F16 0
#define SELECTS_BF16 0
#define MASK_SELECTS (MASK && JOIN(SELECTS_, MASK_TYPE))

#if MASK
#define MASK_PARAMETER const global ELEMENT(MASK_TYPE) *mask,
#define MASK_ARGUMENT mask
#else
#define MASK_PARAMETER
#define MASK_ARGUMENT 0
#endif

/* Where a row begins in each array. */
typedef struct row_place {
    const global ELEMENT(X_TYPE) *x;
    const global ELEMENT(MASK_TYPE) *mask;
    global ELEMENT(Y_TYPE) *y;
} row_place;

static inline row_place find_row(args_long row, const global ELEMENT(X_TYPE) *x, const global ELEMENT(MASK_TYPE) *mask,
                                 global ELEMENT(Y_TYPE) *y, const softmax_args *a)
{
    row_place place = {x + a->x.offset, mask, y + a->y.offset};

    if (MASK)
        place.mask += a->mask.offset;
    for (int n = 3; n >= 0; n--) {
        const args_long rest = row / a->extent[n], index = row - rest * a->extent[n];
        place.x += index * a->x.stride[n];
        place.y += index * a->y.stride[n];
        if (MASK)
            place.mask += index * a->mask.stride[n];
        row = rest;
    }
    return place;
}

/* e^x for x <= 0 as exp2.h makes 2^x, but with the multiple of ln 2 taken off in two parts (the first has
 * so few bits that n times it is exact): a small probability keeps its low bits, which x * log2(e) rounds
 * away.  Results below 2^-126.5 are +0; NaN stays NaN. */
#define LN2_HIGH 0x1.62ep-1f
#define LN2_LOW 0x1.0bfbe8p-15f
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
    floatv p = FMA((floatv)(EXP2_C5), f, (floatv)(EXP2_C4));
    p = FMA(p, f, (floatv)(EXP2_C3));
    p = FMA(p, f, (floatv)(EXP2_C2));
    p = FMA(p, f, (floatv)(EXP2_C1));
    p = FMA(p, f, (floatv)(1.0f));
    return p * AS_FLOATV(AS_INTV(t) << 23);
}

#endif
