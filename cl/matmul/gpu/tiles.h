/* The tiles of a matrix product by a matrix engine: how pieces of 8 elements, 16 bytes, come from the operands to local
 * memory.  Whoever includes this has defined
 *
 *   TILE_M, TILE_N, TILE_K           extents of the work-group's tiles
 *   A_ACROSS, B_ACROSS               1: a tile's rows are k, its columns m or n; 0: its columns are k
 *   ITEMS                            of the work-group
 *   COPIES                           tiles are copied to local memory at once (engine/copy.h); 0: through registers
 *   TILE_AT(row, column, width, height)   which element of a tile of that width and height (row, column) is; eight
 *                                    neighbouring columns lie side by side
 *
 * Barriers are the caller's.
 * Tested: by tests/ops/matmul_matrix.c, through its two kernels. */
#ifndef CLATTN_CL_MATMUL_GPU_TILES_H
#define CLATTN_CL_MATMUL_GPU_TILES_H

#include "engine/copy.h"

/* Tiles as they lie in local memory, in pieces of 8 elements. */
#if A_ACROSS
#define A_WIDTH TILE_M
#else
#define A_WIDTH TILE_K
#endif
#if B_ACROSS
#define B_WIDTH TILE_N
#else
#define B_WIDTH TILE_K
#endif
#define A_PIECES (TILE_M * TILE_K / 8)
#define B_PIECES (TILE_N * TILE_K / 8)

#if A_WIDTH > 8 * ITEMS || B_WIDTH > 8 * ITEMS || ITEMS % (A_WIDTH / 8) || ITEMS % (B_WIDTH / 8)
#error "A tile's row must be shared out evenly to the work-group's items"
#endif

/* An operand where a tile is taken from: elements as they are, from the work-group's first row or column and k 0 on.  The
 * tile's rows and columns lie `row` and `column` apart, and a step further is `step` further. */
typedef struct source {
    const global ushort *from;
    long row, column, step;
} source;

/* The source of A or of B, array4 `x`, from row or column `first` on. */
#define SOURCE(data, x, batch_, first, outer, rows, columns, k) \
    {(const global ushort *)(data) + (x).offset + (batch_) * (x).batch + (first) * (x).outer, (x).rows, (x).columns, \
     TILE_K * (x).k}
#if A_ACROSS
#define A_SOURCE(data, x, batch, first) SOURCE(data, x, batch, first, row, col, row, col)
#else
#define A_SOURCE(data, x, batch, first) SOURCE(data, x, batch, first, row, row, col, col)
#endif
#if B_ACROSS
#define B_SOURCE(data, x, batch, first) SOURCE(data, x, batch, first, col, row, col, row)
#else
#define B_SOURCE(data, x, batch, first) SOURCE(data, x, batch, first, col, col, row, row)
#endif

/* The first element of the work-group's part of C or of the operand, array4 `x`. */
#define TILE_START(x, batch_, row_, col_) ((x).offset + (batch_) * (x).batch + (row_) * (x).row + (col_) * (x).col)

/* Stores a sum, bias included, as element (at, to) of that part; `in` is the operand's. */
#if OPERAND
#define WITH_OPERAND_AT(x, in, at, to, a) \
    WITH_OPERAND(x, LOAD(OPERAND_TYPE, in, (at) * (a).operand.row + (to) * (a).operand.col))
#else
#define WITH_OPERAND_AT(x, in, at, to, a) (x)
#endif
#define STORE_RESULT(out, in, at, to, sum, a) \
    do { \
        const float activated_ = ACTIVATED_ONE(sum, a); \
        STORE(C_TYPE, out, (at) * (a).c.row + (to) * (a).c.col, WITH_OPERAND_AT(activated_, in, at, to, a)); \
    } while (0)

/* Pieces are shared out so that an item has the same columns in all of its. */
#define PIECE_COLUMN(width, item) (((item) & ((width) / 8 - 1)) * 8)
#define PIECE_ROW(width, item) ((item) / ((width) / 8))
#define PIECE_ROWS(width) (ITEMS / ((width) / 8)) /* from one of an item's pieces to the next */
#define PIECE_LOADS(width, height) (((height) + PIECE_ROWS(width) - 1) / PIECE_ROWS(width))

/* ---- any strides: one element at a time ---- */

/* Elements beyond `rows` and `columns` are 0.  The loops stay loops: nobody waits for this one. */
static inline void gather_tile(local uint4 *tile, const source *s, int step, int rows, int columns, int width,
                               int height, int item)
{
    const global ushort *from = s->from + step * s->step;

#pragma nounroll
    for (int piece = item; piece < width * height / 8; piece += ITEMS) {
        const int row = PIECE_ROW(width, piece), column = PIECE_COLUMN(width, piece);
        const int count = row < rows ? min(columns - column, 8) : 0;
        const global ushort *at = from + row * s->row + column * s->column;
        local uint *to = (local uint *)((local ushort *)tile + TILE_AT(row, column, width, height));

        /* Word by word, for the registers' sake.  And of a whole vector's store LLVM 14 makes four and one of an undefined
         * vector before them, which Oclgrind 21.10 (--uninitialized) reports. */
#pragma nounroll
        for (int w = 0; w < 4; w++)
            to[w] = matrix_element(at, s->column, count, 2 * w) | matrix_element(at, s->column, count, 2 * w + 1) << 16;
    }
}

/* ---- 16 bytes at a time ---- */

/* The rows of a tile that are m or n are never cut off: those that there are not are read from the last one, and what
 * becomes of them in C is never stored.  Those that are k must be 0, as must columns that are. */
static inline int row_in(int row, int rows, int along_k)
{
    return along_k ? min(row, rows - 1) : row;
}

#if COPIES

static inline int aligned(const source *s, int columns)
{
    return s->column == 1 && (s->row & 7) == 0 && ((size_t)s->from & 15) == 0;
}

static inline void copy_tile(local uint4 *tile, const source *s, int step, int rows, int columns, int width, int height,
                             int along_k, int item)
{
    const int row0 = PIECE_ROW(width, item), column = PIECE_COLUMN(width, item);
    const int bytes = 2 * clamp(columns - column, 0, 8);
    const global ushort *from = s->from + step * s->step + column;

    MATRIX_UNROLL
    for (int l = 0; l < PIECE_LOADS(width, height); l++) {
        const int row = row0 + l * PIECE_ROWS(width);

        if ((l + 1) * PIECE_ROWS(width) <= height || row < height)
            matrix_copy((local uint4 *)((local ushort *)tile + TILE_AT(row, column, width, height)),
                        from + row_in(row, rows, along_k) * s->row, along_k || row < rows ? bytes : 0);
    }
}

#else

/* Nothing is read in part. */
static inline int aligned(const source *s, int columns)
{
    return s->column == 1 && (s->row & 7) == 0 && ((size_t)s->from & 15) == 0 && (columns & 7) == 0;
}

static inline void load_tile(uint4 *next, const source *s, int step, int rows, int columns, int width, int height,
                             int along_k, int item)
{
    const int row0 = PIECE_ROW(width, item), column = PIECE_COLUMN(width, item);
    const global ushort *from = s->from + step * s->step + column;

    MATRIX_UNROLL
    for (int l = 0; l < PIECE_LOADS(width, height); l++) {
        const int row = row0 + l * PIECE_ROWS(width);

        next[l] = (uint4)0;
        if (column < columns && (along_k || row < rows))
            next[l] = *(const global uint4 *)(from + row_in(row, rows, along_k) * s->row);
    }
}

static inline void store_tile(local uint4 *tile, const uint4 *next, int width, int height, int item)
{
    const int row0 = PIECE_ROW(width, item), column = PIECE_COLUMN(width, item);

    MATRIX_UNROLL
    for (int l = 0; l < PIECE_LOADS(width, height); l++) {
        const int row = row0 + l * PIECE_ROWS(width);

        if ((l + 1) * PIECE_ROWS(width) <= height || row < height)
            *(local uint4 *)((local ushort *)tile + TILE_AT(row, column, width, height)) = next[l];
    }
}

#endif

/* What a tile of step `step` has: rows, columns, width, height, and whether its columns are k. */
#if A_ACROSS
#define A_PART(step) (step), a.k - (step) * TILE_K, rows, A_WIDTH, TILE_K
#else
#define A_PART(step) (step), rows, a.k - (step) * TILE_K, A_WIDTH, TILE_M
#endif
#if B_ACROSS
#define B_PART(step) (step), a.k - (step) * TILE_K, cols, B_WIDTH, TILE_K
#else
#define B_PART(step) (step), cols, a.k - (step) * TILE_K, B_WIDTH, TILE_N
#endif

#endif
