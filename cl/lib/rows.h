/* Moving blocks between arrays whose rows are queries and vectors whose lanes are queries.
 *
 *   LOAD_ROW(TYPE, x, p, i, col, columns, fill)    a row of up to LANES elements becomes a floatv
 *   LOAD_TRANSPOSED(TYPE, x, p, i, col, columns)    LANES rows of up to LANES elements that lie column by column
 *   STORE_ROW(TYPE, p, i, col, columns, x)         a floatv becomes a row of up to LANES elements
 *   transpose(x)                                   LANES rows of LANES become columns
 *   sum_each(x)                                    the sums of LANES rows of LANES, as a floatv
 *
 * INLINE marks a function that takes private arrays: those stay in registers only if it is inlined. */
#ifndef CLATTN_CL_LIB_ROWS_H
#define CLATTN_CL_LIB_ROWS_H

#include "lib/shuffle.h"

#define INLINE static inline __attribute__((always_inline))

#if LANES == 16
#define LOG2_LANES 4
#elif LANES == 8
#define LOG2_LANES 3
#else
#define LOG2_LANES 2
#endif

/* Shuffles all elements of `count` <= LANES vectors perfectly, `passes` times; both are literals. */
INLINE void shuffle_perfectly(floatv *x, const int count, const int passes)
{
    floatv y[LANES];

#pragma unroll
    for (int pass = 0; pass < passes; pass++) {
#pragma unroll
        for (int i = 0; i < count / 2; i++) {
            y[2 * i] = zip_low(x[i], x[i + count / 2]);
            y[2 * i + 1] = zip_high(x[i], x[i + count / 2]);
        }
#pragma unroll
        for (int i = 0; i < count; i++)
            x[i] = y[i];
    }
}

/* Transposes a LANES x LANES block held as rows: log2(LANES) shuffles bring element (r, c) to (c, r). */
INLINE void transpose(floatv *x)
{
    shuffle_perfectly(x, LANES, LOG2_LANES);
}

/* Lane l of the result is the sum of x[l]'s lanes.  A pass adds the halves of vectors i and i + count, whose lanes then
 * take turns: the transpose, added up on the way.  Overwrites x. */
INLINE floatv sum_each(floatv *x)
{
#pragma unroll
    for (int count = LANES / 2; count > 0; count /= 2)
#pragma unroll
        for (int i = 0; i < count; i++)
            x[i] = zip_low(x[i], x[i + count]) + zip_high(x[i], x[i + count]);
    return x[0];
}

/* Whether LANES neighbours can be loaded from index i on: two I4 share a byte. */
#define LOADS_FROM_F32(i) 1
#define LOADS_FROM_F16(i) 1
#define LOADS_FROM_BF16(i) 1
#define LOADS_FROM_I8(i) 1
#define LOADS_FROM_I4(i) (((i) & 1) == 0)
#define LOADS_FROM_BOOL(i) 1

/* One row of up to LANES elements from index i, `col` apart; the lanes from `columns` on get `fill`. */
#define LOAD_ROW(TYPE, x, p, i, col, columns, fill) \
    do { \
        if ((columns) >= LANES && (col) == 1 && JOIN(LOADS_FROM_, TYPE)(i)) { \
            x = LOADV(TYPE, p, i); \
        } else { \
            float lane_[LANES]; \
            for (int c_ = 0; c_ < LANES; c_++) \
                lane_[c_] = c_ < (columns) ? LOAD(TYPE, p, (i) + c_ * (col)) : (fill); \
            x = VLOAD(0, lane_); \
        } \
    } while (0)

/* LANES rows of up to LANES columns become x[row]: rows are neighbours in memory from index i on, and columns `col` apart; the
 * lanes from `columns` on get 0. */
#define LOAD_TRANSPOSED(TYPE, x, p, i, col, columns) \
    do { \
        for (int c_ = 0; c_ < LANES; c_++) { \
            const long at_ = (i) + c_ * (col); \
            if (c_ < (columns)) \
                LOAD_ROW(TYPE, x[c_], p, at_, 1, LANES, 0.0f); \
            else \
                x[c_] = (floatv)(0.0f); \
        } \
        transpose(x); \
    } while (0)

/* Stores the first `columns` lanes of x, at most LANES, from index i, `col` apart. */
#define STORE_ROW(TYPE, p, i, col, columns, x) \
    do { \
        if ((columns) >= LANES && (col) == 1) { \
            STOREV(TYPE, p, i, x); \
        } else { \
            float lane_[LANES]; \
            VSTORE(x, 0, lane_); \
            for (int c_ = 0; c_ < min(columns, LANES); c_++) \
                STORE(TYPE, p, (i) + c_ * (col), lane_[c_]); \
        } \
    } while (0)

#endif
