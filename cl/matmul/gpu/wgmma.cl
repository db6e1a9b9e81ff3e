/* Matrix product by Hopper's wgmma (engine/nvidia/wgmma.h), of float16 or bfloat16.
 *
 *   C[b,i,j] = sum_k A[b,i,k] * B[b,k,j]  (+ bias[j])  (and what matmul/epilogue.h says)
 *
 * Layouts: matmul/types.h.  Arguments: a, b, [bias], [operand], c, matmul_args.
 *
 *   macro                        meaning                                          allowed          tested
 *   MATRIX_BF16, _EMULATED       engine/fragment.h; MATRIX_ENGINE is 1                             emulated: both
 *   PTX_SPLICE                   1: the library puts the instructions in          without          by the compiler
 *                                (src/program/ptx_splice.h)                       MATRIX_EMULATED
 *   WARPGROUPS                   of 128 items each, one below the other in C      1, 2             both
 *   WGMMA_N                      columns of the work-group's tile                 16 32 64 128     each
 *   TILE_K                       depth of a step                                  16 32 64         each
 *   STAGES                       steps in local memory at a time                  2 and up         2 3 4
 *   A_TRANSPOSED                 A's rows, not its columns, lie side by side      0, 1             both
 *   B_TRANSPOSED                 B's columns, not its rows, do                    0, 1             both
 *   A_TYPE, B_TYPE               storage types                                    F16 BF16         both
 *   C_TYPE, BIAS_TYPE                                                             F32 F16 BF16     each
 *   BIAS                         whether there is a bias                          0, 1             both
 *   MATMUL_EPILOGUE ...          matmul/epilogue.h; no B_SCALED                                each
 * Other strides than _TRANSPOSED says are read one element at a time: slow, and right.
 *
 *        k ->                  j ->  |  TILE_N = WGMMA_N |
 *      +------+              +-------+-------------------+    Warpgroup w owns 64 rows, 64 w and on, and all columns of the
 *   i  |   A  |   x       k  |   B   | b_tile            |    work-group's part of C.  Which of their elements a lane owns,
 *   |  +------+              +-------+-------------------+    the engine decides.
 *   v  |a_tile| TILE_M = 64 WARPGROUPS
 *      +------+
 *
 * NDRange: dimension 0 ceil(n/TILE_N) groups of 128 items, 1 ceil(m/TILE_M) groups of WARPGROUPS items, 2 the batch, groups
 * of 1 item.
 * Local memory: 2 * STAGES * TILE_K * (TILE_M + TILE_N) bytes.
 * Barriers: one for each step; their number depends on the arguments alone, which are the same for all items.  An item waits
 * for its own copies into a step's stage and for the product of the step before, then at the barrier: behind it the stage is
 * read by this step's product, and the stage of the step before is written.
 * Accumulator: float, in the engine's own order for each 16 of k, then the bias; rounded once on storing.  k = 0 gives the
 * bias or +0.  There is no masked value; elements beyond k enter the tiles as 0, rows beyond m and columns beyond n as 0 or
 * as the last one there is, which no element of C sees.  Nothing beyond m, n or k is read from memory.
 * Features: compute capability 9.0 and a driver whose binaries are PTX.  Without them: matmul_matrix. */
#include "matmul/args.h"

#ifndef A_TYPE
#define A_TYPE BF16
#endif
#ifndef B_TYPE
#define B_TYPE A_TYPE
#endif
#ifndef WARPGROUPS
#define WARPGROUPS 2
#endif
#ifndef WGMMA_N
#define WGMMA_N 64
#endif
#ifndef TILE_K
#define TILE_K 32
#endif
#ifndef STAGES
#define STAGES 2
#endif
#ifndef A_TRANSPOSED
#define A_TRANSPOSED 0
#endif
#ifndef B_TRANSPOSED
#define B_TRANSPOSED 1
#endif

#define WGMMA_A_TRANSPOSED A_TRANSPOSED
#define WGMMA_B_TRANSPOSED B_TRANSPOSED

#include "matmul/epilogue.h"
#include "matmul/types.h"
#include "engine/fragment.h"
#include "engine/copy.h"
#include "engine/nvidia/wgmma.h"

#define TILE_M (WGMMA_ROWS * WARPGROUPS)
#define TILE_N WGMMA_N
#define ITEMS (WGMMA_LANES * WARPGROUPS)
#define COPIES 1
/* Tiles wider than 64 are panels of 64 columns, one behind the other. */
#define TILE_AT(row, column, width, height) \
    ((width) > 64 ? ((column) >> 6) * (height) * 64 + MATRIX_AT(row, (column) & 63, 64) : MATRIX_AT(row, column, width))

#if WARPGROUPS < 1 || WARPGROUPS > 2
#error "WARPGROUPS must be 1 or 2"
#endif
#if TILE_K != 16 && TILE_K != 32 && TILE_K != 64
#error "TILE_K must be 16, 32 or 64"
#endif
#if STAGES < 2
#error "STAGES must be at least 2"
#endif

#include "matmul/gpu/tiles.h"

/* Bytes of a tile's row, as the engine knows it, of sixteen k more, and of a panel.  What is not used is 16. */
#define SPAN_OF(width) (2 * ((width) < 64 ? (width) : 64))
#define DEEPER(transposed, width) ((transposed) ? WGMMA_DEPTH * SPAN_OF(width) : 2 * WGMMA_DEPTH)
#define PANEL(transposed, width) ((transposed) ? TILE_K * SPAN_OF(width) : 16)
/* The share of A that a warpgroup takes: a panel, or rows. */
#define WARPGROUP_BYTES (2 * WGMMA_ROWS * TILE_K)

/* Puts a step's tiles into local memory: 16 bytes at a time if `whole`, else one element at a time.  Both in one loop: with a
 * loop that has barriers in each branch of a condition PoCL 3.1 lets items read tiles that others have not written yet. */
static inline void fetch(local uint4 *a_tile, const source *a, local uint4 *b_tile, const source *b, int step,
                         int whole, int item)
{
    if (whole) {
        copy_tile(a_tile, a, step, A_TRANSPOSED, A_WIDTH, A_HEIGHT, item);
        copy_tile(b_tile, b, step, B_TRANSPOSED, B_WIDTH, B_HEIGHT, item);
    } else {
        gather_tile(a_tile, a, step, A_TRANSPOSED, A_WIDTH, A_HEIGHT, item);
        gather_tile(b_tile, b, step, B_TRANSPOSED, B_WIDTH, B_HEIGHT, item);
    }
}

/* Begins a step's products; addresses are its tiles'. */
static inline void multiply_tiles(wgmma_c *sum, uint a_tile, uint b_tile, const local uint4 *memory, int lane)
{
    wgmma_begin(sum);
    MATRIX_UNROLL
    for (int k = 0; k < TILE_K / WGMMA_DEPTH; k++)
        wgmma_multiply(sum,
                       wgmma_descriptor(a_tile + k * DEEPER(A_TRANSPOSED, A_WIDTH), PANEL(A_TRANSPOSED, A_WIDTH),
                                        8 * SPAN_OF(A_WIDTH), SPAN_OF(A_WIDTH)),
                       wgmma_descriptor(b_tile + k * DEEPER(B_TRANSPOSED, B_WIDTH), PANEL(B_TRANSPOSED, B_WIDTH),
                                        8 * SPAN_OF(B_WIDTH), SPAN_OF(B_WIDTH)),
                       memory, lane);
    wgmma_end();
}

GROUP_SIZE(WGMMA_LANES, WARPGROUPS, 1)
kernel void matmul_wgmma(const global ELEMENT(A_TYPE) *a_data, const global ELEMENT(B_TYPE) *b_data,
                         EPILOGUE_PARAMETERS global ELEMENT(C_TYPE) *c_data, matmul_args a)
{
    local uint4 tiles[STAGES * (A_PIECES + B_PIECES)] __attribute__((aligned(1024)));
    local uint4 *a_tile = tiles, *b_tile = tiles + STAGES * A_PIECES;

    const int lane = get_local_id(0), warpgroup = get_local_id(1);
    const int item = warpgroup * WGMMA_LANES + lane, row = warpgroup * WGMMA_ROWS;
    const long row0 = (long)group_id(&a.part, 1) * TILE_M, col0 = (long)group_id(&a.part, 0) * TILE_N;
    const long batch = global_id(&a.part, 2);
    /* Nothing to do: nothing is loaded or stored.  A return here, before the first barrier, made PoCL 6.0 multiply tiles that it
     * had not filled. */
    const int depth = a.batch ? a.k : 0;
    const int rows = a.batch ? (int)min((long)TILE_M, a.m - row0) : 0;
    const int cols = a.batch ? (int)min((long)TILE_N, a.n - col0) : 0;
    source a_source, b_source;
    destination to;
    const int steps = (depth + TILE_K - 1) / TILE_K;
    const uint a_at = wgmma_address(tiles, a_tile) + warpgroup * WARPGROUP_BYTES, b_at = wgmma_address(tiles, b_tile);
    wgmma_c sum;

    set_source(&a_source, (const global ushort *)a_data + a.a.offset + batch * a.a.batch + row0 * a.a.row, a.a.row,
               a.a.col, rows, depth, A_TRANSPOSED);
    set_source(&b_source, (const global ushort *)b_data + a.b.offset + batch * a.b.batch + col0 * a.b.col, a.b.col,
               a.b.row, cols, depth, B_TRANSPOSED);
    to.c = c_data + element_of(&a.c, batch, row0, col0);
#if OPERAND
    to.operand = operand + element_of(&a.operand, batch, row0, col0);
#endif
    MATRIX_UNROLL
    for (int n = 0; n < WGMMA_N / 2; n++)
        sum.sum[n] = 0.0f;

    const int whole = aligned(&a_source, A_TRANSPOSED) && aligned(&b_source, B_TRANSPOSED);
    /* STAGES - 1 steps are under way while one is multiplied.  Each makes a group of copies, be it empty. */
    int now = 0, into = STAGES - 1;

    MATRIX_UNROLL
    for (int step = 0; step < STAGES - 1; step++) {
        if (step < steps)
            fetch(a_tile + step * A_PIECES, &a_source, b_tile + step * B_PIECES, &b_source, step, whole, item);
        matrix_commit();
    }
    for (int step = 0; step < steps; step++) {
        matrix_wait(STAGES - 2);
        wgmma_publish();
        barrier(CLK_LOCAL_MEM_FENCE);
        multiply_tiles(&sum, a_at + now * (16 * A_PIECES), b_at + now * (16 * B_PIECES), tiles, lane);
        /* While that is done, and into a stage that every item's product has left. */
        if (step + STAGES - 1 < steps)
            fetch(a_tile + into * A_PIECES, &a_source, b_tile + into * B_PIECES, &b_source, step + STAGES - 1, whole,
                  item);
        matrix_commit();
        wgmma_wait(&sum);
        now = now + 1 == STAGES ? 0 : now + 1;
        into = into + 1 == STAGES ? 0 : into + 1;
    }

#if MATMUL_EPILOGUE
    /* An activation is too much code for 64 copies of it: its loop stays one, and takes the sums from private memory; from
     * a copy there, or they would lie there in the loop above, too. */
    float kept[WGMMA_N / 2];

    MATRIX_UNROLL
    for (int n = 0; n < WGMMA_N / 2; n++)
        kept[n] = sum.sum[n];
#pragma nounroll
#else
    const float *kept = sum.sum;

    MATRIX_UNROLL
#endif
    for (int n = 0; n < WGMMA_N / 2; n++) {
        const int c_col = wgmma_c_column(lane, n), c_row = row + wgmma_c_row(lane, n);
        float add = 0.0f;

#if BIAS
        if (c_col < cols)
            add = LOAD(BIAS_TYPE, bias, a.bias_offset + (col0 + c_col) * a.bias_col);
#endif
        if (c_row < rows && c_col < cols)
            store_result(&to, c_row, c_col, kept[n] + add, &a);
    }
}
