/* The colours of images: sRGB's transfer function and premultiplied alpha, as include/clattn/image.h defines them.
 *
 *   floatv srgb_decode(floatv v)     from what an sRGB image holds to linear light
 *   floatv srgb_encode(floatv v)     back
 *   floatv straight(floatv v, floatv alpha)     v / alpha, 0 where alpha is 0
 *
 * Powers are exp(y * log(x)): within 16 ulp for x up to 1, which leaves 32 ulp of what decoding gives and 40 ulp of 1 of
 * what encoding gives.  Numbers below 0 are mirrored, NaN stays. */
#ifndef CLATTN_CL_IMAGE_COLOUR_H
#define CLATTN_CL_IMAGE_COLOUR_H

#include "lib/vector.h"

static inline floatv srgb_decode(floatv v)
{
    const floatv x = fabs(v), power = exp(2.4f * log((x + 0.055f) * (1.0f / 1.055f)));
    return copysign(select(power, x * (1.0f / 12.92f), x <= 0.04045f), v);
}

static inline floatv srgb_encode(floatv v)
{
    const floatv x = fabs(v), power = 1.055f * exp((1.0f / 2.4f) * log(x)) - 0.055f;
    return copysign(select(power, x * 12.92f, x <= 0.0031308f), v);
}

static inline floatv straight(floatv v, floatv alpha)
{
    return select(v / alpha, (floatv)(0.0f), alpha == 0.0f);
}

#endif
