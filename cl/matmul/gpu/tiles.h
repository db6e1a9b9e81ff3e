/* The tiles of a matrix product by a matrix engine: copying pieces of 8 elements, 16 bytes, from the operands to local memory,
 * and storing sums.  The kernel that includes this has defined
 *
 *   TILE_M, TILE_N, TILE_K           extents of the work-group's tiles
 *   A_TRANSPOSED, B_TRANSPOSED               1: a tile's rows are k, its columns m or n; 0: its columns are k
 *   ITEMS                            of the work-group
 *   COPIES                           tiles are copied to local memory at once (engine/copy.h); 0: through registers
 *   TILE_AT(row, column, width, height)   which element of a tile of that width and height (row, column) is; eight
 *                                    neighbouring columns lie side by side
 *
 * The functions have no barriers.
 * Tested: by tests/ops/matmul_matrix.c, through its two kernels. */
#ifndef CLATTN_CL_MATMUL_GPU_TILES_H
#define CLATTN_CL_MATMUL_GPU_TILES_H

#include "engine/copy.h"

/* Tiles as they lie in local memory, in pieces of 8 elements. */
#if A_TRANSPOSED
#define A_WIDTH TILE_M
#else
#define A_WIDTH TILE_K
#endif
#if B_TRANSPOSED
#define B_WIDTH TILE_N
#else
#define B_WIDTH TILE_K
#endif
#define A_PIECES (TILE_M * TILE_K / 8)
#define B_PIECES (TILE_N * TILE_K / 8)

#if A_WIDTH > 8 * ITEMS || B_WIDTH > 8 * ITEMS || ITEMS % (A_WIDTH / 8) || ITEMS % (B_WIDTH / 8)
#error "A tile's row must be shared out evenly to the work-group's items"
#endif

#define A_HEIGHT (A_TRANSPOSED ? TILE_K : TILE_M)
#define B_HEIGHT (B_TRANSPOSED ? TILE_K : TILE_N)

/* The part of an operand that a work-group's tiles are taken from: `count` rows of A or columns of B, and all of k.  A tile's
 * rows and columns lie `row` and `column` apart in memory, and the next step's tile lies `step` behind it. */
typedef struct source {
    const global ushort *from; /* elements as they are stored */
    long row, column, step;
    int count, depth;
} source;

/* `index` and `k` are the operand's strides; its offset, batch item and first index are in `from` already. */
static inline void set_source(source *s, const global ushort *from, long index, long k, int count, int depth,
                              int transposed)
{
    s->from = from;
    s->row = transposed ? k : index;
    s->column = transposed ? index : k;
    s->step = TILE_K * k;
    s->count = count;
    s->depth = depth;
}

/* Rows and columns of a step's tile that exist. */
static inline int rows_of(const source *s, int step, int transposed)
{
    return transposed ? s->depth - step * TILE_K : s->count;
}

static inline int columns_of(const source *s, int step, int transposed)
{
    return transposed ? s->count : s->depth - step * TILE_K;
}

/* The index of element (row, col) of one item of the batch. */
static inline long element_of(const array4 *x, long batch, long row, long col)
{
    return x->offset + batch * x->batch + row * x->row + col * x->col;
}

/* Where a work-group's sums go: C and what is read beside it, from the tile's first element on. */
typedef struct destination {
    global ELEMENT(C_TYPE) *c;
#if OPERAND
    const global ELEMENT(OPERAND_TYPE) *operand;
#endif
} destination;

static inline void store_result(const destination *to, int row, int col, float sum, const matmul_args *a)
{
    float x = ACTIVATED_ONE(sum, *a);

#if OPERAND
    x = WITH_OPERAND(x, LOAD(OPERAND_TYPE, to->operand, row * a->operand.row + col * a->operand.col));
#endif
    STORE(C_TYPE, to->c, row * a->c.row + col * a->c.col, x);
}

/* Pieces are shared out so that all of an item's pieces have the same columns. */
#define PIECE_COLUMN(width, item) (((item) & ((width) / 8 - 1)) * 8)
#define PIECE_ROW(width, item) ((item) / ((width) / 8))
#define PIECE_ROWS(width) (ITEMS / ((width) / 8)) /* from one of an item's pieces to its next */
#define PIECE_LOADS(width, height) (((height) + PIECE_ROWS(width) - 1) / PIECE_ROWS(width))

/* ---- any strides: one element at a time ---- */

/* Elements that do not exist are 0.  The loops stay loops, since this path is not meant to be fast. */
static inline void gather_tile(local uint4 *tile, const source *s, int step, int transposed, int width, int height,
                               int item)
{
    const int rows = rows_of(s, step, transposed), columns = columns_of(s, step, transposed);
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

/* A tile's rows that are rows of A or columns of B are never cut off: those that do not exist are read from the last one, and
 * their part of C is not stored.  Rows or columns that are k must be 0. */
static inline int existing_row(int row, int rows, int transposed)
{
    return transposed ? row : min(row, rows - 1);
}

#if COPIES

static inline int aligned(const source *s, int transposed)
{
    return s->column == 1 && (s->row & 7) == 0 && ((size_t)s->from & 15) == 0;
}

static inline void copy_tile(local uint4 *tile, const source *s, int step, int transposed, int width, int height,
                             int item)
{
    const int rows = rows_of(s, step, transposed), columns = columns_of(s, step, transposed);
    const int row0 = PIECE_ROW(width, item), column = PIECE_COLUMN(width, item);
    const int bytes = 2 * clamp(columns - column, 0, 8);
    const global ushort *from = s->from + step * s->step + column;

    MATRIX_UNROLL
    for (int l = 0; l < PIECE_LOADS(width, height); l++) {
        const int row = row0 + l * PIECE_ROWS(width);

        if ((l + 1) * PIECE_ROWS(width) <= height || row < height)
            matrix_copy((local uint4 *)((local ushort *)tile + TILE_AT(row, column, width, height)),
                        from + existing_row(row, rows, transposed) * s->row, !transposed || row < rows ? bytes : 0);
    }
}

#else

/* A piece is read whole or not at all. */
static inline int aligned(const source *s, int transposed)
{
    return s->column == 1 && (s->row & 7) == 0 && ((size_t)s->from & 15) == 0 &&
           (columns_of(s, 0, transposed) & 7) == 0;
}

static inline void load_tile(uint4 *next, const source *s, int step, int transposed, int width, int height, int item)
{
    const int rows = rows_of(s, step, transposed), columns = columns_of(s, step, transposed);
    const int row0 = PIECE_ROW(width, item), column = PIECE_COLUMN(width, item);
    const global ushort *from = s->from + step * s->step + column;

    MATRIX_UNROLL
    for (int l = 0; l < PIECE_LOADS(width, height); l++) {
        const int row = row0 + l * PIECE_ROWS(width);

        next[l] = (uint4)0;
        if (column < columns && (!transposed || row < rows))
            next[l] = *(const global uint4 *)(from + existing_row(row, rows, transposed) * s->row);
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

#endif
