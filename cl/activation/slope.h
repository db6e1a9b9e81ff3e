/* Derivatives of the activation functions of LANES floats at once, for activation/backward.h.
 *
 *   RELU        f' = 1 if x > 0, otherwise 0
 *   GELU        f' = Phi(x) + x phi(x),   phi(x) = e^(-x^2/2) / sqrt(2 pi)
 *   GELU_TANH   f' = S(v) + w S(v) S(-v),  v = 2 sqrt(2/pi) (x + 0.044715 x^3),  w = x v'(x),  S(v) = 1 / (1 + e^-v)
 *   SWISH       f' = S(v) + w S(v) S(-v),  v = w = alpha * x
 *   LEAKY_RELU  f' = 1 if x > 0, otherwise alpha
 *
 *   SLOPE(floatv x, float alpha)    the derivative of ACTIVATION at x; NaN for NaN, except that of NONE
 *
 * Parameters are those of lib/activation.h.  In the left tail each term is e^v times a float, and e^v is a float and a
 * power of two that is multiplied in last.  Measured against long double over one in 997 of all floats, with fma: at
 * most 3.6 * 2^-23 of the sum of the sizes of the two terms for GELU_TANH, 2.9 for GELU and SWISH. */
#ifndef CLATTN_CL_ACTIVATION_SLOPE_H
#define CLATTN_CL_ACTIVATION_SLOPE_H

#include "lib/activation.h"

#define INVERSE_ROOT_2_PI 0x1.988454p-2f

/* S(v) + w S(v) S(-v), and 0 or 1 if |v| is above 200, whatever w is. */
static inline floatv sigmoid_slope(floatv w, float_pair v)
{
    const intv negative = v.high<(floatv)(0.0f), saturated = fabs(v.high)>(floatv)(200.0f);
    const scaled_float e = decayed(v);
    const floatv size = times((floatv)(1.0f), &e), larger = 1.0f / (1.0f + size); /* S(|v|) */
    const floatv bounded = select(w, (floatv)(0.0f), saturated);
    /* S(|v|) is taken out of both terms, and on the left e^v, too. */
    const floatv left = FMA(bounded, larger, (floatv)(1.0f)) * larger;
    const floatv right = FMA(bounded * size, larger, (floatv)(1.0f)) * larger;

    return select(right, times(left, &e), negative);
}

static inline floatv slope_NONE(floatv x, float alpha)
{
    return (floatv)(1.0f);
}

static inline floatv slope_LEAKY_RELU(floatv x, float alpha)
{
    const floatv slope = select((floatv)(alpha), (floatv)(1.0f), x > (floatv)(0.0f));

    return select(slope, x, x != x);
}

static inline floatv slope_RELU(floatv x, float alpha)
{
    return slope_LEAKY_RELU(x, 0.0f);
}

static inline floatv slope_SWISH(floatv x, float alpha)
{
    const float_pair v = swish_argument(x, alpha);

    return sigmoid_slope(v.high, v);
}

static inline floatv slope_GELU_TANH(floatv x, float alpha)
{
    const floatv near = gelu_tanh_near(x);

    return sigmoid_slope(near * FMA(near * near, (floatv)(3.0f * TANH_3), (floatv)(TANH_1)), gelu_tanh_argument(x));
}

static inline floatv slope_GELU(floatv x, float alpha)
{
    const floatv size = fabs(x), a = select(size, (floatv)(16.0f), size > (floatv)(16.0f));
    const gelu_tail tail = find_gelu_tail(a);
    /* f'(-a); f'(a) is the rest to 1. */
    const floatv left = times_gelu_tail((floatv)(1.0f), FMA(a, (floatv)(-INVERSE_ROOT_2_PI), tail.t), &tail.e);

    return select(1.0f - left, left, x < (floatv)(0.0f));
}

#define SLOPE JOIN(slope_, ACTIVATION)

#endif
