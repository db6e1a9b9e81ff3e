/* Activation functions of LANES floats at once: what activation/cpu.cl, activation/generic.cl and the matrix products share.
 *
 *   RELU       y = max(x, 0)
 *   GELU       y = x * Phi(x)
 *   GELU_TANH  y = x * S(2 sqrt(2/pi) (x + 0.044715 x^3)),   S(v) = 1 / (1 + e^-v)
 *   SWISH      y = x * S(alpha * x)
 *   LEAKY_RELU y = x if x >= 0, otherwise alpha * x
 *
 *   ACTIVATE(floatv x, float alpha)    the function
 *
 * Parameter       meaning                        allowed
 * ACTIVATION      the function                   RELU, GELU, GELU_TANH, SWISH, LEAKY_RELU
 * LANES           vector width                   4, 8, 16
 * Tested: ACTIVATION x LANES 4, 16.
 *
 * In the tails y is about x e^v with v down to -104, where a rounding of v would be 100 roundings of y.  So v is a pair of
 * floats, e^v a float and a power of two that is multiplied in last, and GELU's tail is a product,
 *   Phi(-a) = e^(-a^2/2) T(a),   T(a) (1 + 1.25 a) = a polynomial in (a - 4) / (a + 4)
 * (Shepherd and Laframboise 1981; a minimax fit of degree 10 over 0 <= a <= 15, 2.2e-9 of T).  Measured against long
 * double over one in 997 of all floats: at most 3.6 * 2^-23 of y for GELU, 2.6 for the others, with fma and without. */
#ifndef CLATTN_CL_LIB_ACTIVATION_H
#define CLATTN_CL_LIB_ACTIVATION_H

#include "lib/exp2.h"

#ifndef ACTIVATION
#define ACTIVATION GELU
#endif

/* The rounding error of `product`, which is a * b rounded; exact without fma too, through halves of 12 bits. */
static inline floatv lost_in(floatv a, floatv b, floatv product)
{
#if FUSED
    return fma(a, b, -product);
#else
    const floatv a1 = AS_FLOATV(AS_INTV(a) & (intv)(-4096)), a2 = a - a1;
    const floatv b1 = AS_FLOATV(AS_INTV(b) & (intv)(-4096)), b2 = b - b1;
    return ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2;
#endif
}

/* fraction * 2^power */
typedef struct scaled_float {
    floatv fraction;
    intv power;
} scaled_float;

#define ROUND_MAGIC 12582912.0f
#define ROUND_BITS 0x4b400000

/* e^(high + low) for -200 <= high <= 0 and a small low; NaN gives a fraction of NaN. */
static inline scaled_float exponential(floatv high, floatv low)
{
    const floatv t = FMA(high, (floatv)(LOG2E), (floatv)(ROUND_MAGIC)), n = t - ROUND_MAGIC;
    const floatv f = (FMA(n, (floatv)(-LN2_LOW), FMA(n, (floatv)(-LN2_HIGH), high)) + low) * LOG2E;
    scaled_float result;

    result.fraction = exp2_polynomial(f);
    result.power = AS_INTV(t) - ROUND_BITS;
    return result;
}

static inline floatv power_of_2(intv n)
{
    return AS_FLOATV((n + 127) << 23);
}

/* v * fraction * 2^power, multiplied in steps, so that no step and no factor leaves the range before the result
 * does. */
static inline floatv times(floatv v, const scaled_float *e)
{
    const intv first = max(e->power, (intv)(-100)), second = max(e->power - first, (intv)(-100));
    const intv third = e->power - first - second;

    return v * power_of_2(first) * e->fraction * power_of_2(second) * power_of_2(third);
}

/* The sum of two floats, of which the second is small. */
typedef struct float_pair {
    floatv high, low;
} float_pair;

/* e^-|v|, or e^-200 if |v| is above 200. */
static inline scaled_float decayed(float_pair v)
{
    const floatv high = v.high, low = v.low;
    const intv negative = high<(floatv)(0.0f), saturated = fabs(high)>(floatv)(200.0f);
    const floatv towards = select(-low, low, negative);

    return exponential(select(-fabs(high), (floatv)(-200.0f), saturated), select(towards, (floatv)(0.0f), saturated));
}

/* x / (1 + e^-v) */
static inline floatv times_sigmoid(floatv x, float_pair v)
{
    const intv negative = v.high<(floatv)(0.0f), saturated = fabs(v.high)>(floatv)(200.0f);
    const scaled_float e = decayed(v);
    const floatv left = select(x, copysign((floatv)(0.0f), x), saturated); /* not inf * 0 */

    return select(x, times(left, &e), negative) / (1.0f + times((floatv)(1.0f), &e));
}

static inline floatv act_RELU(floatv x, float alpha)
{
    return select(x, (floatv)(0.0f), x < (floatv)(0.0f));
}

static inline floatv act_LEAKY_RELU(floatv x, float alpha)
{
    return select(x, alpha * x, x < (floatv)(0.0f));
}

/* Swish's v: alpha * x */
static inline float_pair swish_argument(floatv x, float alpha)
{
    const floatv factor = (floatv)(alpha), high = factor * x, low = lost_in(factor, x, high);
    const intv flat = (intv)(alpha == 0.0f ? -1 : 0); /* 0 * inf */

    const float_pair v = {select(high, (floatv)(0.0f), flat), select(low, (floatv)(0.0f), flat)};
    return v;
}

static inline floatv act_SWISH(floatv x, float alpha)
{
    return times_sigmoid(x, swish_argument(x, alpha));
}

/* 2 sqrt(2/pi), and 0.044715 times 2 sqrt(2/pi), each as the sum of two floats. */
#define TANH_1 0x1.988454p+0f
#define TANH_1_LOW -0x1.857936p-25f
#define TANH_3 0x1.2444f2p-4f
#define TANH_3_LOW 0x1.49b16ap-29f

/* x clamped to |x| <= 16, beyond which GELU_TANH's sigmoid is 1, or 0 within rounding; NaN passes. */
static inline floatv gelu_tanh_near(floatv x)
{
    return select(x, copysign((floatv)(16.0f), x), fabs(x) > (floatv)(16.0f));
}

/* GELU_TANH's v: 2 sqrt(2/pi) (x + 0.044715 x^3) */
static inline float_pair gelu_tanh_argument(floatv x)
{
    const floatv near = gelu_tanh_near(x);
    const floatv square = near * near, square_low = lost_in(near, near, square);
    const floatv cubic = square * TANH_3;
    const floatv cubic_low = lost_in(square, (floatv)(TANH_3), cubic) + (square_low * TANH_3 + square * TANH_3_LOW);
    const floatv sum = cubic + TANH_1, part = sum - TANH_1;
    const floatv sum_low = ((TANH_1 - (sum - part)) + (cubic - part)) + (cubic_low + TANH_1_LOW);
    const floatv high = near * sum;
    const float_pair v = {high, lost_in(near, sum, high) + near * sum_low};
    return v;
}

static inline floatv act_GELU_TANH(floatv x, float alpha)
{
    return times_sigmoid(x, gelu_tanh_argument(x));
}

#define TAIL_0 0x1.22078cp-1f
#define TAIL_1 -0x1.40a26cp-4f
#define TAIL_2 -0x1.bd7dccp-7f
#define TAIL_3 0x1.b7b83ap-5f
#define TAIL_4 -0x1.88e96cp-5f
#define TAIL_5 0x1.923702p-6f
#define TAIL_6 -0x1.a23562p-8f
#define TAIL_7 -0x1.1c555cp-11f
#define TAIL_8 0x1.dc74b2p-11f
#define TAIL_9 -0x1.03bdb0p-14f
#define TAIL_10 -0x1.7ecb0ap-14f

/* Phi(-a) = e^(-a^2/2) T(a), for 0 <= a <= 16. */
typedef struct gelu_tail {
    scaled_float e; /* e^(-a^2/2) */
    floatv t;       /* T(a) */
} gelu_tail;

static inline gelu_tail find_gelu_tail(floatv a)
{
    const floatv high = -0.5f * a * a, low = lost_in(-0.5f * a, a, high);
    const floatv rising = a + 4.0f, bend = FMA((floatv)(1.25f), a, (floatv)(1.0f)), inverse = 1.0f / (rising * bend);
    const floatv t = (a - 4.0f) * bend * inverse;
    gelu_tail tail;

    tail.e = exponential(high, low);
    floatv p = FMA((floatv)(TAIL_10), t, (floatv)(TAIL_9));
    p = FMA(p, t, (floatv)(TAIL_8));
    p = FMA(p, t, (floatv)(TAIL_7));
    p = FMA(p, t, (floatv)(TAIL_6));
    p = FMA(p, t, (floatv)(TAIL_5));
    p = FMA(p, t, (floatv)(TAIL_4));
    p = FMA(p, t, (floatv)(TAIL_3));
    p = FMA(p, t, (floatv)(TAIL_2));
    p = FMA(p, t, (floatv)(TAIL_1));
    p = FMA(p, t, (floatv)(TAIL_0));
    tail.t = p * (rising * inverse);
    return tail;
}

/* v * factor * e.  Two multiplications by powers of two suffice: a is at most 16, so the power is above -186. */
static inline floatv times_gelu_tail(floatv v, floatv factor, const scaled_float *e)
{
    const intv first = max(e->power, (intv)(-100));

    return v * power_of_2(first) * (e->fraction * factor) * power_of_2(e->power - first);
}

static inline floatv act_GELU(floatv x, float alpha)
{
    const intv negative = x<(floatv)(0.0f), far = fabs(x)>(floatv)(16.0f);
    const floatv a = select(fabs(x), (floatv)(16.0f), far);
    const gelu_tail tail = find_gelu_tail(a);

    /* The result is max(x, 0) less |x| Phi(-|x|). */
    return select(x, (floatv)(0.0f), negative) - times_gelu_tail(a, tail.t, &tail.e);
}

static inline floatv act_NONE(floatv x, float alpha)
{
    (void)alpha;
    return x;
}

#define ACTIVATE JOIN(act_, ACTIVATION)

#endif
