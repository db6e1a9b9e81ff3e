/* Short rows: LANES of them at a time become vectors whose lanes are the rows, one vector a column, and back.
 *
 *   DEFINE_LOAD_COLUMNS(name, TYPE)    void name(x, p, row, col, columns, count): lane l of x[c] is element
 *                                      l * row + c * col of p, for c < columns; lanes from `count` on repeat the last row
 *   DEFINE_STORE_COLUMNS(name, TYPE)   void name(x, p, row, col, columns, count): stores lanes l < count there
 *
 * Parameter  meaning                                                                       allowed
 * LANES      vector width                                                                  4, 8, 16
 * MOST       the most columns of a row, for the kernel's arrays                            1 .. 1024  (32)
 * WINDOW     neighbouring columns that are moved at once: at most what a row has; 1: none  power of two, 1 .. LANES   (1)
 *
 * Rows whose columns are neighbours go through windows of WINDOW columns, the last of which ends with the row and may
 * overlap the one before, so that nothing outside a row is touched.  Windows of LANES / WINDOW rows make a vector, WINDOW
 * vectors hold one window of all rows, row by row, and log2(WINDOW) passes of shuffles transpose them.  Neighbouring rows
 * are loaded and stored as whole vectors; rows that lie otherwise, and fewer than LANES rows, element by element. */
#ifndef CLATTN_CL_LIB_COLUMNS_H
#define CLATTN_CL_LIB_COLUMNS_H

#include "lib/rows.h"

#ifndef MOST
#define MOST 32
#endif
#ifndef WINDOW
#define WINDOW 1
#endif
#if MOST < 1 || MOST > 1024
#error "MOST must be 1 to 1024"
#endif

#if WINDOW == 1
#define LOG2_WINDOW 0
#elif WINDOW == 2
#define LOG2_WINDOW 1
#elif WINDOW == 4
#define LOG2_WINDOW 2
#elif WINDOW == 8
#define LOG2_WINDOW 3
#elif WINDOW == 16
#define LOG2_WINDOW 4
#endif
#if !defined(LOG2_WINDOW) || WINDOW > LANES
#error "WINDOW must be 1, 2, 4, 8 or 16, and at most LANES"
#endif

#if WINDOW > 1
/* Transposes rows to columns.  The index of an element in all WINDOW vectors consists of its row's bits, then its
 * column's; a pass moves the last bit to the front. */
INLINE void transpose_to_columns(floatv *x)
{
    floatv y[WINDOW];

#pragma unroll
    for (int pass = 0; pass < LOG2_WINDOW; pass++) {
#pragma unroll
        for (int i = 0; i < WINDOW / 2; i++) {
            y[i] = even_lanes(x[2 * i], x[2 * i + 1]);
            y[i + WINDOW / 2] = odd_lanes(x[2 * i], x[2 * i + 1]);
        }
#pragma unroll
        for (int i = 0; i < WINDOW; i++)
            x[i] = y[i];
    }
}

/* Transposes columns to rows: a pass moves the first bit to the end. */
INLINE void transpose_to_rows(floatv *x)
{
    shuffle_perfectly(x, WINDOW, LOG2_WINDOW);
}

/* The types in which elements are moved, a vector of them at a time. */
#define RAW_F32 float
#define RAW_F16 ushort
#define RAW_BF16 ushort
#define RAW_BOOL uchar
#define RAW(TYPE) JOIN(RAW_, TYPE)
#define RAWV(TYPE) JOIN(RAW(TYPE), LANES)
#define FROM_RAW_F32(x) (x)
#define FROM_RAW_F16(x) f16_floatv(x)
#define FROM_RAW_BF16(x) AS_FLOATV(JOIN(convert_int, LANES)(x) << 16)
#define FROM_RAW_BOOL(x) select((floatv)(0.0f), (floatv)(1.0f), JOIN(convert_int, LANES)(x) != 0)
#define FROM_RAW(TYPE, x) JOIN(FROM_RAW_, TYPE)(x)
#define TO_RAW_F32(x) (x)
#define TO_RAW_F16(x) f16_bitsv(x)
#define TO_RAW_BF16(x) bf16_bitsv(x)
#define TO_RAW(TYPE, x) JOIN(TO_RAW_, TYPE)(x)

/* A vector of windows from EACH rows, which lie `row` apart. */
#define PIECE(TYPE, p, i) JOIN(vload, WINDOW)(0, (const global RAW(TYPE) *)(p) + (i))
#define PUT(TYPE, p, i, x) STORE_WHOLE(global JOIN(piece_, TYPE), (global RAW(TYPE) *)(p) + (i), x)
typedef JOIN(float, WINDOW) piece_F32 __attribute__((aligned(4)));
typedef JOIN(ushort, WINDOW) piece_F16 __attribute__((aligned(2)));
typedef JOIN(ushort, WINDOW) piece_BF16 __attribute__((aligned(2)));
#define EACH (LANES / WINDOW)
#if WINDOW == LANES
#define PIECES(TYPE, p, i, row) PIECE(TYPE, p, i)
#define PUT_PIECES(TYPE, p, i, row, x) PUT(TYPE, p, i, x)
#elif WINDOW * 2 == LANES
#define PIECES(TYPE, p, i, row) ((RAWV(TYPE))(PIECE(TYPE, p, i), PIECE(TYPE, p, (i) + (row))))
#define PUT_PIECES(TYPE, p, i, row, x) \
    do { \
        PUT(TYPE, p, i, (x).lo); \
        PUT(TYPE, p, (i) + (row), (x).hi); \
    } while (0)
#elif WINDOW * 4 == LANES
#define PIECES(TYPE, p, i, row) \
    ((RAWV(TYPE))(PIECE(TYPE, p, i), PIECE(TYPE, p, (i) + (row)), PIECE(TYPE, p, (i) + 2 * (row)), \
                  PIECE(TYPE, p, (i) + 3 * (row))))
#define PUT_PIECES(TYPE, p, i, row, x) \
    do { \
        PUT(TYPE, p, i, (x).lo.lo); \
        PUT(TYPE, p, (i) + (row), (x).lo.hi); \
        PUT(TYPE, p, (i) + 2 * (row), (x).hi.lo); \
        PUT(TYPE, p, (i) + 3 * (row), (x).hi.hi); \
    } while (0)
#else
#define PIECES(TYPE, p, i, row) \
    ((RAWV(TYPE))(PIECE(TYPE, p, i), PIECE(TYPE, p, (i) + (row)), PIECE(TYPE, p, (i) + 2 * (row)), \
                  PIECE(TYPE, p, (i) + 3 * (row)), PIECE(TYPE, p, (i) + 4 * (row)), PIECE(TYPE, p, (i) + 5 * (row)), \
                  PIECE(TYPE, p, (i) + 6 * (row)), PIECE(TYPE, p, (i) + 7 * (row))))
#define PUT_PIECES(TYPE, p, i, row, x) \
    do { \
        PUT(TYPE, p, i, (x).lo.lo.lo); \
        PUT(TYPE, p, (i) + (row), (x).lo.lo.hi); \
        PUT(TYPE, p, (i) + 2 * (row), (x).lo.hi.lo); \
        PUT(TYPE, p, (i) + 3 * (row), (x).lo.hi.hi); \
        PUT(TYPE, p, (i) + 4 * (row), (x).hi.lo.lo); \
        PUT(TYPE, p, (i) + 5 * (row), (x).hi.lo.hi); \
        PUT(TYPE, p, (i) + 6 * (row), (x).hi.hi.lo); \
        PUT(TYPE, p, (i) + 7 * (row), (x).hi.hi.hi); \
    } while (0)
#endif

/* One window of LANES rows from p on.  Rows that are one window each and lie side by side are whole vectors. */
#define LOAD_WINDOW(TYPE, x, p, row, columns) \
    do { \
        if ((columns) == WINDOW && (row) == WINDOW) { \
            _Pragma("unroll") \
            for (int i_ = 0; i_ < WINDOW; i_++) \
                (x)[i_] = LOADV(TYPE, p, i_ * LANES); \
        } else { \
            _Pragma("unroll") \
            for (int i_ = 0; i_ < WINDOW; i_++) { \
                const RAWV(TYPE) raw_ = PIECES(TYPE, p, i_ * EACH * (row), row); \
                (x)[i_] = FROM_RAW(TYPE, raw_); \
            } \
        } \
        transpose_to_columns(x); \
    } while (0)
#define STORE_WINDOW(TYPE, x, p, row, columns) \
    do { \
        transpose_to_rows(x); \
        if ((columns) == WINDOW && (row) == WINDOW) { \
            _Pragma("unroll") \
            for (int i_ = 0; i_ < WINDOW; i_++) \
                STOREV(TYPE, p, i_ *LANES, (x)[i_]); \
        } else { \
            _Pragma("unroll") \
            for (int i_ = 0; i_ < WINDOW; i_++) { \
                const RAWV(TYPE) raw_ = TO_RAW(TYPE, (x)[i_]); \
                PUT_PIECES(TYPE, p, i_ *EACH *(row), row, raw_); \
            } \
        } \
    } while (0)
#define BY_WINDOWS(col, columns, count) ((col) == 1 && (columns) >= WINDOW && (count) >= LANES)
#else
#define LOAD_WINDOW(TYPE, x, p, row, columns)
#define STORE_WINDOW(TYPE, x, p, row, columns)
#define BY_WINDOWS(col, columns, count) 0
#endif

#define DEFINE_LOAD_COLUMNS(NAME, TYPE) \
    INLINE void NAME(floatv *x, const global ELEMENT(TYPE) *p, args_long row, args_long col, int columns, int count) \
    { \
        if (row == 1 && count >= LANES) { \
            for (int c = 0; c < columns; c++) \
                x[c] = LOADV(TYPE, p, c * col); \
        } else if (row == 0) { \
            for (int c = 0; c < columns; c++) \
                x[c] = (floatv)(LOAD(TYPE, p, c * col)); \
        } else if (BY_WINDOWS(col, columns, count)) { \
            for (int c = 0; c < columns; c += WINDOW) { \
                const int at = min(c, columns - WINDOW); \
                floatv y[WINDOW]; \
                LOAD_WINDOW(TYPE, y, p + at, row, columns); \
                for (int i = 0; i < WINDOW; i++) \
                    x[at + i] = y[i]; \
            } \
        } else { \
            for (int c = 0; c < columns; c++) { \
                float lane[LANES]; \
                for (int l = 0; l < LANES; l++) \
                    lane[l] = LOAD(TYPE, p, min(l, count - 1) * row + c * col); \
                x[c] = VLOAD(0, lane); \
            } \
        } \
    }

#define DEFINE_STORE_COLUMNS(NAME, TYPE) \
    INLINE void NAME(const floatv *x, global ELEMENT(TYPE) *p, args_long row, args_long col, int columns, int count) \
    { \
        if (row != 1 && BY_WINDOWS(col, columns, count)) { \
            for (int c = 0; c < columns; c += WINDOW) { \
                const int at = min(c, columns - WINDOW); \
                floatv y[WINDOW]; \
                for (int i = 0; i < WINDOW; i++) \
                    y[i] = x[at + i]; \
                STORE_WINDOW(TYPE, y, p + at, row, columns); \
            } \
        } else { \
            for (int c = 0; c < columns; c++) \
                STORE_ROW(TYPE, p, c *col, row, count, x[c]); \
        } \
    }

#endif
