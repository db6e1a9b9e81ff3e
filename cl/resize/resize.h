/* Resizing pictures: the code that resize/cpu.cl and resize/generic.cl share.
 *
 *   y[n, c, i, j] = sum_k sum_l v(i, k) w(j, l) x[n, c, p(i) + k, q(j) + l],  0 <= k < rows.taps, 0 <= l < cols.taps
 *
 * with p, v (rows) and q, w (columns) as below.  Element (n, c, i, j) lies at offset + n*batch + c*head + i*row + j*col of x
 * and of y.  Indices outside of x are moved to its edge, or with `clips` do not count.  A tap of weight 0 does not count either,
 * not even if it is NaN.
 *
 * Parameter       meaning      allowed
 * X_TYPE, Y_TYPE  storage      F32, F16, BF16
 * Tested: F32, F16 and BF16 throughout and mixed. */
#ifndef CLATTN_CL_RESIZE_RESIZE_H
#define CLATTN_CL_RESIZE_RESIZE_H

#include "resize/args.h" /* first: it turns contraction off */
#include "lib/fma.h"
#include "lib/picture.h"
#include "lib/vector.h"

#ifndef X_TYPE
#define X_TYPE F32
#endif
#ifndef Y_TYPE
#define Y_TYPE F32
#endif

static inline picture_line resize_line_of(args_long number, int channel, const resize_args *a)
{
    picture_line line;

    picture_find_line(&line, number, channel, a->rows.target, a->channels, a->depth, &a->x, &a->y);
    return line;
}

/* Where the taps of an element lie: tap k at index first + k, distance + k from the element's centre. */
typedef struct resize_place {
    int first;
    float distance;
} resize_place;

static inline resize_place resize_find(const resize_axis *axis, int i, const resize_args *a)
{
    resize_place place;
    const ulong product = (ulong)i * axis->step_fraction, fraction = product + axis->start_fraction;

    place.first = i * axis->step + (int)mul_hi((ulong)i, axis->step_fraction) + axis->start + (fraction < product);
    /* It may round to 1, which would leave no weight to the only tap in x of an antialiased element. */
    const float part = (float)(uint)(fraction >> 32) * 0x1p-32f;
    place.distance = axis->distance - (a->clips ? fmin(part, 0x1.fffffcp-1f) : part);
    if (a->filter == RESIZE_NEAREST) {
        place.first = min((int)fmin(((float)i + a->centre) * axis->ratio, (float)axis->source), axis->source - 1);
        place.distance = 0.0f;
    }
    return place;
}

/* NAME(d, a): the filter's weight at distance d, of type T.  The cubic one has two pieces, each clamped to where it is 0. */
#define DEFINE_WEIGHT(NAME, T) \
    static inline T NAME(T d, const resize_args *a) \
    { \
        const T far = fabs(d), inner = fmin(far, (T)(1.0f)), outer = fmin(fmax(far, (T)(1.0f)), (T)(2.0f)); \
        const T rest = outer - 2.0f; \
        if (a->filter == RESIZE_LINEAR) \
            return 1.0f - inner; \
        if (a->filter == RESIZE_CUBIC) \
            return FMA(a->cubic * rest, rest * (outer - 1.0f), \
                       (1.0f - inner) * (1.0f + inner - (a->cubic + 2.0f) * inner * inner)); \
        return (T)(1.0f); \
    }
DEFINE_WEIGHT(resize_weight, float)

/* The taps from *begin to the returned one, which is excluded, are those that may count. */
static inline int resize_taps(const resize_axis *axis, resize_place place, int *begin, const resize_args *a)
{
    *begin = a->clips ? max(-place.first, 0) : 0;
    return a->clips ? min(axis->taps, axis->source - place.first) : axis->taps;
}

/* The factor by which an element's weights are multiplied. */
static inline float resize_norm(const resize_axis *axis, resize_place place, const resize_args *a)
{
    int k;
    float sum = 0.0f;

    if (!a->clips)
        return 1.0f;
    for (const int end = resize_taps(axis, place, &k, a); k < end; k++)
        sum += resize_weight((place.distance + (float)k) * axis->shrink, a);
    return 1.0f / sum;
}

#endif
