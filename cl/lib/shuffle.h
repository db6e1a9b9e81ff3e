/* Shuffles of two vectors of LANES floats, for kernels on CPU devices; with LANES 8 they are
 *
 *   x             x0 x1 x2 x3 x4 x5 x6 x7
 *   y             y0 y1 y2 y3 y4 y5 y6 y7
 *
 *   zip_low       x0 y0 x1 y1 x2 y2 x3 y3     lower halves, lanes in turn
 *   zip_high      x4 y4 x5 y5 x6 y6 x7 y7     upper halves
 *   even_lanes    x0 x2 x4 x6 y0 y2 y4 y6     of zip_low and zip_high: x
 *   odd_lanes     x1 x3 x5 x7 y1 y3 y5 y7     of zip_low and zip_high: y
 *   pair_low      x0 y0 x1 y1 x4 y4 x5 y5     zip_low of each four lanes
 *   pair_high     x2 y2 x3 y3 x6 y6 x7 y7     zip_high of each four lanes
 *   four_low      x0 x1 y0 y1 x4 x5 y4 y5     lower halves of each four lanes
 *   four_high     x2 x3 y2 y3 x6 x7 y6 y7     upper halves of each four lanes
 *   even_fours    x0 x1 x2 x3 y0 y1 y2 y3     every second four lanes; LANES 8 and 16
 *   odd_fours     x4 x5 x6 x7 y4 y5 y6 y7     the other fours; LANES 8 and 16
 *
 * PoCL makes one instruction of each.  It does not of OpenCL's shuffle2, nor of .even and .odd. */
#ifndef CLATTN_CL_LIB_SHUFFLE_H
#define CLATTN_CL_LIB_SHUFFLE_H

#include "lib/vector.h"

/* Lane l of the result is lane INDEX(l) of x, or lane INDEX(l) - LANES of y. */
#define DEFINE_SHUFFLE(NAME, INDEX) \
    static inline floatv NAME(floatv x, floatv y) \
    { \
        const floatv both[2] = {x, y}; \
        const float *lane = (const float *)both; \
        return (floatv)(LANES_FROM(INDEX, lane)); \
    }
#define FOUR_FROM(INDEX, lane, l) lane[INDEX(l)], lane[INDEX(l + 1)], lane[INDEX(l + 2)], lane[INDEX(l + 3)]
#if LANES == 16
#define LANES_FROM(INDEX, lane) \
    FOUR_FROM(INDEX, lane, 0), FOUR_FROM(INDEX, lane, 4), FOUR_FROM(INDEX, lane, 8), FOUR_FROM(INDEX, lane, 12)
#elif LANES == 8
#define LANES_FROM(INDEX, lane) FOUR_FROM(INDEX, lane, 0), FOUR_FROM(INDEX, lane, 4)
#else
#define LANES_FROM(INDEX, lane) FOUR_FROM(INDEX, lane, 0)
#endif

#define ZIP_LOW(l) ((l) / 2 + (l) % 2 * LANES)
#define ZIP_HIGH(l) (ZIP_LOW(l) + LANES / 2)
#define EVEN_LANES(l) ((l) * 2)
#define ODD_LANES(l) ((l) * 2 + 1)
#define PAIR_LOW(l) ((l) / 4 * 4 + (l) / 2 % 2 + (l) % 2 * LANES)
#define PAIR_HIGH(l) (PAIR_LOW(l) + 2)
#define FOUR_LOW(l) ((l) / 4 * 4 + (l) % 2 + (l) / 2 % 2 * LANES)
#define FOUR_HIGH(l) (FOUR_LOW(l) + 2)
#define EVEN_FOURS(l) ((l) / 4 * 8 + (l) % 4)
#define ODD_FOURS(l) (EVEN_FOURS(l) + 4)

DEFINE_SHUFFLE(zip_low, ZIP_LOW)
DEFINE_SHUFFLE(zip_high, ZIP_HIGH)
DEFINE_SHUFFLE(even_lanes, EVEN_LANES)
DEFINE_SHUFFLE(odd_lanes, ODD_LANES)
DEFINE_SHUFFLE(pair_low, PAIR_LOW)
DEFINE_SHUFFLE(pair_high, PAIR_HIGH)
DEFINE_SHUFFLE(four_low, FOUR_LOW)
DEFINE_SHUFFLE(four_high, FOUR_HIGH)
#if LANES > 4
DEFINE_SHUFFLE(even_fours, EVEN_FOURS)
DEFINE_SHUFFLE(odd_fours, ODD_FOURS)
#endif

#endif
