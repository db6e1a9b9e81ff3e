/* float32 as the sum of three bfloat16, its terms: x = x0 + x1 + x2, where x0 is x rounded to bfloat16, x1 is x - x0
 * rounded, and x2 is x - x0 - x1.  The sum is exact, because three times eight bits are float32's 24.  Of the nine products
 * xi yj of two numbers' terms the six with i + j <= 2 are added; the other three are together at most about 2^-24 |x y|
 * (Henry, Tang, Heinecke: Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations, ARITH
 * 2019).  docs/numerics.md says what follows for results.  float16, with 11 bits, has two terms and bfloat16 one; further
 * terms would be 0.
 *
 *   TERMS_OF(TYPE)            F32 3, F16 2, BF16 1
 *   split(term, low, high, count)   the first `count` terms of two vectors' elements, as bf16 pairs: the first vector's in
 *                             the lower halves
 *   ADD_PARTS(amx, row, row_parts, lane, lane_parts, lane_step)   adds, by AMX, the products of BLOCK_K columns of 32 rows
 *                             and 32 lanes, of so many terms each, to tiles 0 to 3.  Rows are TERMS times two tiles of 16
 *                             rows, one after the other, each row 16 words; word w of a row, and row w of the lanes, has
 *                             columns w and w + 16.  The lanes' address is lane(term, 0) for a term's lower 16 lanes and
 *                             lane(term, 1) for the upper 16; their rows are lane_step words apart
 *   greater_magnitude(x, y)   x, or y's magnitude if that is greater; x is a magnitude, and NaN is the greatest
 *   peak_of(x)                the greatest of a vector of magnitudes, as bits; a NaN counts as infinity
 *   peaks, with_peak(all, x)  the greatest and the least of some rows' or lanes' greatest magnitudes, as bits, and with x
 *                             added; a magnitude of 0 does not count for the least
 *   may_be_beyond(x, y)       whether IS_BEYOND may hold for one of the pairs of two such peaks' rows and lanes
 *   IS_BEYOND(x, y)           takes vectors of bits, the greatest magnitudes of a row and of a lane: whether terms do not
 *                             represent their product.  Either one of them is an infinity or NaN, is 2^96 or more, or is
 *                             below 2^-80 and not 0; or products of terms may overflow or underflow: the exponents' sum is
 *                             92 or more, or less than -80
 *   IS_BEYOND_ALONE(x)        the conditions of IS_BEYOND that concern one of the two alone */
#ifndef CLATTN_CL_LIB_BF16X3_H
#define CLATTN_CL_LIB_BF16X3_H

#include "engine/x86/weights.h"

#define TERMS 3
#define TERMS_OF_F32 3
#define TERMS_OF_F16 2
#define TERMS_OF_BF16 1
#define TERMS_OF(TYPE) JOIN(TERMS_OF_, TYPE)
#define BLOCK_K 32
#define HALF_BLOCK (BLOCK_K / 2) /* words of so many columns */
#define TILE_WORDS (AMX_ROWS * AMX_WORDS)
#define BLOCK_WORDS (TERMS * 2 * TILE_WORDS) /* words of 32 rows or lanes */

INLINE void split(uintv term[TERMS], floatv low, floatv high, int count)
{
#pragma unroll
    for (int n = 0; n < TERMS && n < count; n++) {
        term[n] = weight_pairs(low, high);
        low -= AS_FLOATV((AS_UINTV(low) + 0x8000) & 0xffff0000);
        high -= AS_FLOATV((AS_UINTV(high) + 0x8000) & 0xffff0000);
    }
}

INLINE floatv greater_magnitude(floatv x, floatv y)
{
    return AS_FLOATV(max(AS_UINTV(x), AS_UINTV(y) & 0x7fffffff));
}

INLINE uint peak_of(floatv x)
{
    return as_uint(largest_lane(AS_FLOATV(min(AS_UINTV(x), (uintv)(0x7f800000)))));
}

#define IS_BEYOND_ALONE(x) ((x) >= as_uint(0x1p96f) || ((x) > 0 && (x) < as_uint(0x1p-80f)))
#define EXPONENTS(x, y) (((x) >> 23) + ((y) >> 23)) /* the sum of the exponents, plus 254 */
#define IS_BEYOND(x, y) \
    (IS_BEYOND_ALONE(x) || IS_BEYOND_ALONE(y) || EXPONENTS(x, y) >= 254u + 92 || \
     ((x) > 0 && (y) > 0 && EXPONENTS(x, y) < 254u - 80))

typedef struct peaks {
    uint most, least;
} peaks;

#define NO_PEAKS ((peaks){0, 0x7fffffff})

INLINE peaks with_peak(peaks all, uint x)
{
    all.most = max(all.most, x);
    all.least = min(all.least, x ? x : 0x7fffffff);
    return all;
}

/* The peaks need not be exact: if any pair is beyond, then the pair of the greatest or of the least is. */
INLINE int may_be_beyond(peaks x, peaks y)
{
    if (x.most == 0 || y.most == 0)
        return IS_BEYOND_ALONE(x.most) || IS_BEYOND_ALONE(y.most);
    return IS_BEYOND(x.most, y.most) || IS_BEYOND(x.least, y.least);
}

/* The order loads each term of rows once, and the lanes' terms as seldom as then possible. */
#define LOAD_ROW_PART(amx, row, n) \
    do { \
        AMX_STREAM_WORDS(amx, 4, (row) + (n) * 2 * TILE_WORDS, AMX_WORDS); \
        AMX_STREAM_WORDS(amx, 5, (row) + ((n) * 2 + 1) * TILE_WORDS, AMX_WORDS); \
    } while (0)
#define LOAD_LANE_PART(amx, lane, n, step) \
    do { \
        AMX_LOAD_WORDS(amx, 6, lane(n, 0), step); \
        AMX_LOAD_WORDS(amx, 7, lane(n, 1), step); \
    } while (0)
#define ADD_PART(amx) \
    do { \
        AMX_DOT(amx, 0, 4, 6); \
        AMX_DOT(amx, 1, 4, 7); \
        AMX_DOT(amx, 2, 5, 6); \
        AMX_DOT(amx, 3, 5, 7); \
    } while (0)
#define ADD_PARTS(amx, row, row_parts, lane, lane_parts, lane_step) \
    do { \
        LOAD_ROW_PART(amx, row, 0); \
        if ((lane_parts) > 2) { \
            LOAD_LANE_PART(amx, lane, 2, lane_step); \
            ADD_PART(amx); \
        } \
        if ((lane_parts) > 1) { \
            LOAD_LANE_PART(amx, lane, 1, lane_step); \
            ADD_PART(amx); \
        } \
        LOAD_LANE_PART(amx, lane, 0, lane_step); \
        ADD_PART(amx); \
        if ((row_parts) > 2) { \
            LOAD_ROW_PART(amx, row, 2); \
            ADD_PART(amx); \
        } \
        if ((row_parts) > 1) { \
            LOAD_ROW_PART(amx, row, 1); \
            ADD_PART(amx); \
            if ((lane_parts) > 1) { \
                LOAD_LANE_PART(amx, lane, 1, lane_step); \
                ADD_PART(amx); \
            } \
        } \
    } while (0)

#endif
