/* Matrix product by a GPU's matrix engines (engine/fragment.h), of float16 or bfloat16.
 *
 *   C[b,i,j] = sum_k A[b,i,k] * B[b,k,j]  (+ bias[j])  (and what matmul/epilogue.h says)
 *
 * Layouts: matmul/types.h.  Arguments: a, b, [bias], [operand], c, matmul_args.
 *
 *   macro                            meaning                                        allowed              tested
 *   MATRIX_ENGINE, _BF16, _EMULATED  engine/fragment.h                                                   emulated: all
 *   GROUPS_M, GROUPS_N               sub-groups along m and n                       1 and up             1 2 4
 *   SQUARES_M, SQUARES_N             16 x 16 squares of C that a sub-group owns     1 and up             1 2 4
 *   TILE_K                           depth of a step                                16, 32, multiples of 64   16 32
 *   STAGES                           steps in local memory at a time                2 and up; without    2 3 4
 *                                                                                   MATRIX_COPY_ASYNC 2
 *   A_TRANSPOSED                     A's rows, not its columns, lie side by side    0, 1                 both
 *   B_TRANSPOSED                     B's columns, not its rows, do                  0, 1                 both
 *   A_TYPE, B_TYPE                   storage types                                  F16 BF16             both
 *   C_TYPE, BIAS_TYPE                                                               F32 F16 BF16         each
 *   BIAS                             whether there is a bias                        0, 1                 both
 *   MATMUL_EPILOGUE ...              matmul/epilogue.h; no B_SCALED                                  each
 * With _TRANSPOSED the tile's width is TILE_M or TILE_N, which must then be 16, 32 or a multiple of 64.  Other strides than
 * _TRANSPOSED says are read one element at a time: slow, and right.
 *
 *        k ->                  j ->  |  TILE_N = 16 GROUPS_N SQUARES_N  |
 *      +------+              +-------+--------+    Sub-group s owns SQUARES_M x SQUARES_N squares, from row
 *   i  |   A  |   x       k  |   B   | b_tile |    16 SQUARES_M (s / GROUPS_N) and column
 *   |  +------+              +-------+--------+    16 SQUARES_N (s - ...) of the work-group's on.  The engine
 *   v  |a_tile| TILE_M                             decides which of a square's elements a lane owns.
 *      +------+
 *
 * NDRange: dimension 0 ceil(n/TILE_N) groups of MATRIX_LANES items, 1 ceil(m/TILE_M) groups of GROUPS_M * GROUPS_N items,
 * 2 the batch, groups of 1 item.
 * Local memory: 2 * STAGES * TILE_K * (TILE_M + TILE_N) bytes, and emulated 512 * (SQUARES_M + SQUARES_N) more a sub-group.
 * Barriers: one for each step; which walk is taken and its number of steps depend on the arguments alone, which are the same
 * for all items.  A stage is written behind the barrier before which it was read last, and read behind the next one.
 * Accumulator: float, in the engine's own order for each 16 of k, then the bias; rounded once on storing.  k = 0 gives the
 * bias or +0.  There is no masked value; elements beyond k enter the tiles as 0, rows beyond m and columns beyond n as 0 or
 * as the last one there is, which no element of C sees.  Nothing beyond m, n or k is read from memory.
 * Features: the engine.  Without it: matmul_tile. */
#include "matmul/args.h"

#ifndef A_TYPE
#define A_TYPE BF16
#endif
#ifndef B_TYPE
#define B_TYPE A_TYPE
#endif

#include "matmul/epilogue.h"
#include "matmul/types.h"
#include "engine/fragment.h"
#include "engine/copy.h"

#ifndef GROUPS_M
#define GROUPS_M 2
#endif
#ifndef GROUPS_N
#define GROUPS_N 2
#endif
#ifndef SQUARES_M
#define SQUARES_M 2
#endif
#ifndef SQUARES_N
#define SQUARES_N 2
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

#define TILE_M (16 * GROUPS_M * SQUARES_M)
#define TILE_N (16 * GROUPS_N * SQUARES_N)
#define ITEMS (MATRIX_LANES * GROUPS_M * GROUPS_N)
/* Whether tiles are copied to local memory at once.  Intel's compiler keeps arrays in registers up to 256 bytes in all,
 * which fragments need; elsewhere what is loaded waits in registers. */
#define COPIES (MATRIX_COPY_ASYNC || MATRIX_ENGINE >= MATRIX_DPAS8)
#define WIDTH_OK(w) ((w) == 16 || (w) == 32 || (w) % 64 == 0)

#if GROUPS_M < 1 || GROUPS_N < 1 || SQUARES_M < 1 || SQUARES_N < 1
#error "GROUPS_M, GROUPS_N, SQUARES_M and SQUARES_N must be at least 1"
#endif
#if TILE_K < 16 || !WIDTH_OK(TILE_K)
#error "TILE_K must be 16, 32 or a multiple of 64"
#endif
#if (A_TRANSPOSED && !WIDTH_OK(TILE_M)) || (B_TRANSPOSED && !WIDTH_OK(TILE_N))
#error "A transposed tile must be 16, 32 or a multiple of 64 wide"
#endif
#if STAGES < 2 || (STAGES > 2 && !MATRIX_COPY_ASYNC)
#error "STAGES must be 2, or more with MATRIX_COPY_ASYNC"
#endif

#define TILE_AT(row, column, width, height) MATRIX_AT(row, column, width)
#include "matmul/gpu/tiles.h"

static inline void multiply_tiles(matrix_c *sum, const local uint4 *a_tile, const local uint4 *b_tile, int row,
                                  int column, int lane, local uint *scratch)
{
    const local ushort *a = (const local ushort *)a_tile, *b = (const local ushort *)b_tile;

    MATRIX_UNROLL
    for (int k = 0; k < TILE_K; k += 16) {
        matrix_a of_a[SQUARES_M];
        matrix_b of_b[SQUARES_N];

        MATRIX_UNROLL
        for (int j = 0; j < SQUARES_N; j++)
#if B_TRANSPOSED
            matrix_load_b_transposed(&of_b[j], b, B_WIDTH, k, column + 16 * j, lane);
#else
            matrix_load_b(&of_b[j], b, B_WIDTH, column + 16 * j, k, lane);
#endif
        MATRIX_UNROLL
        for (int i = 0; i < SQUARES_M; i++)
#if A_TRANSPOSED
            matrix_load_a_transposed(&of_a[i], a, A_WIDTH, k, row + 16 * i, lane);
#else
            matrix_load_a(&of_a[i], a, A_WIDTH, row + 16 * i, k, lane);
#endif
        matrix_multiply(sum, of_a, SQUARES_M, of_b, SQUARES_N, lane, scratch);
    }
}

MATRIX_SUB_GROUP
GROUP_SIZE(MATRIX_LANES, GROUPS_M *GROUPS_N, 1)
kernel void matmul_matrix(const global ELEMENT(A_TYPE) *a_data, const global ELEMENT(B_TYPE) *b_data,
                          EPILOGUE_PARAMETERS global ELEMENT(C_TYPE) *c_data, matmul_args a)
{
    local uint4 a_tile[STAGES * A_PIECES];
    local uint4 b_tile[STAGES * B_PIECES];
#if MATRIX_EMULATED
    local uint all_scratch[GROUPS_M * GROUPS_N * MATRIX_SCRATCH(SQUARES_M, SQUARES_N)];
    local uint *scratch = all_scratch + matrix_sub_group() * MATRIX_SCRATCH(SQUARES_M, SQUARES_N);
#else
    local uint *scratch = 0;
#endif

    if (a.batch == 0)
        return;

    const int lane = matrix_lane(), sub_group = matrix_sub_group();
    const int item = sub_group * MATRIX_LANES + lane;
    const int group_row = sub_group / GROUPS_N, row = group_row * SQUARES_M * 16;
    const int column = (sub_group - group_row * GROUPS_N) * SQUARES_N * 16;
    const long row0 = (long)group_id(&a.part, 1) * TILE_M, col0 = (long)group_id(&a.part, 0) * TILE_N;
    const long batch = global_id(&a.part, 2);
    const int rows = (int)min((long)TILE_M, a.m - row0), cols = (int)min((long)TILE_N, a.n - col0);
    source a_source, b_source;
    destination to;
    const int steps = (a.k + TILE_K - 1) / TILE_K;
    matrix_c sum[SQUARES_M * SQUARES_N];

    set_source(&a_source, (const global ushort *)a_data + a.a.offset + batch * a.a.batch + row0 * a.a.row, a.a.row,
               a.a.col, rows, a.k, A_TRANSPOSED);
    set_source(&b_source, (const global ushort *)b_data + a.b.offset + batch * a.b.batch + col0 * a.b.col, a.b.col,
               a.b.row, cols, a.k, B_TRANSPOSED);
    to.c = c_data + element_of(&a.c, batch, row0, col0);
#if OPERAND
    to.operand = operand + element_of(&a.operand, batch, row0, col0);
#endif
    MATRIX_UNROLL
    for (int i = 0; i < SQUARES_M * SQUARES_N; i++)
        MATRIX_UNROLL
    for (int n = 0; n < MATRIX_C; n++)
        sum[i].sum[n] = 0.0f;

    if (aligned(&a_source, A_TRANSPOSED) && aligned(&b_source, B_TRANSPOSED)) {
#if COPIES
        /* STAGES - 1 steps are under way while one is multiplied.  Each makes a group of copies, be it empty. */
        int now = 0, into = STAGES - 1;

        MATRIX_UNROLL
        for (int step = 0; step < STAGES - 1; step++) {
            if (step < steps) {
                copy_tile(a_tile + step * A_PIECES, &a_source, step, A_TRANSPOSED, A_WIDTH, A_HEIGHT, item);
                copy_tile(b_tile + step * B_PIECES, &b_source, step, B_TRANSPOSED, B_WIDTH, B_HEIGHT, item);
            }
            matrix_commit();
        }
        for (int step = 0; step < steps; step++) {
            const int ahead = step + STAGES - 1;

            matrix_wait(STAGES - 2);
            barrier(CLK_LOCAL_MEM_FENCE);
            if (ahead < steps) {
                copy_tile(a_tile + into * A_PIECES, &a_source, ahead, A_TRANSPOSED, A_WIDTH, A_HEIGHT, item);
                copy_tile(b_tile + into * B_PIECES, &b_source, ahead, B_TRANSPOSED, B_WIDTH, B_HEIGHT, item);
            }
            matrix_commit();
            multiply_tiles(sum, a_tile + now * A_PIECES, b_tile + now * B_PIECES, row, column, lane, scratch);
            now = now + 1 == STAGES ? 0 : now + 1;
            into = into + 1 == STAGES ? 0 : into + 1;
        }
#else
        /* Through registers: what is loaded before a product is put into the other stage behind it.  The last round's
         * loads are out of range: zeros, and no reads. */
        uint4 a_next[PIECE_LOADS(A_WIDTH, A_HEIGHT)];
        uint4 b_next[PIECE_LOADS(B_WIDTH, B_HEIGHT)];

        load_tile(a_next, &a_source, 0, A_TRANSPOSED, A_WIDTH, A_HEIGHT, item);
        load_tile(b_next, &b_source, 0, B_TRANSPOSED, B_WIDTH, B_HEIGHT, item);
        for (int step = 0; step < steps; step++) {
            const int now = step & 1;

            store_tile(a_tile + now * A_PIECES, a_next, A_WIDTH, A_HEIGHT, item);
            store_tile(b_tile + now * B_PIECES, b_next, B_WIDTH, B_HEIGHT, item);
            barrier(CLK_LOCAL_MEM_FENCE);
            load_tile(a_next, &a_source, step + 1, A_TRANSPOSED, A_WIDTH, A_HEIGHT, item);
            load_tile(b_next, &b_source, step + 1, B_TRANSPOSED, B_WIDTH, B_HEIGHT, item);
            multiply_tiles(sum, a_tile + now * A_PIECES, b_tile + now * B_PIECES, row, column, lane, scratch);
        }
#endif
    } else {
        for (int step = 0; step < steps; step++) {
            const int now = step & 1;

            gather_tile(a_tile + now * A_PIECES, &a_source, step, A_TRANSPOSED, A_WIDTH, A_HEIGHT, item);
            gather_tile(b_tile + now * B_PIECES, &b_source, step, B_TRANSPOSED, B_WIDTH, B_HEIGHT, item);
            barrier(CLK_LOCAL_MEM_FENCE);
            multiply_tiles(sum, a_tile + now * A_PIECES, b_tile + now * B_PIECES, row, column, lane, scratch);
        }
    }

#if MATMUL_EPILOGUE && MATRIX_ENGINE < MATRIX_DPAS8
    /* An activation is too much code for 128 copies of it: its loop stays one, and takes the sums from private memory; from
     * a copy there, or they would lie there in the loop above, too.  Intel's few sums stay where they are. */
    float kept[SQUARES_M * SQUARES_N * MATRIX_C];

    MATRIX_UNROLL
    for (int i = 0; i < SQUARES_M * SQUARES_N; i++)
        MATRIX_UNROLL
    for (int n = 0; n < MATRIX_C; n++)
        kept[i * MATRIX_C + n] = sum[i].sum[n];
#pragma nounroll
    for (int e = 0; e < SQUARES_M * SQUARES_N * MATRIX_C; e++) {
        const int square = e / MATRIX_C, n = e - square * MATRIX_C, i = square / SQUARES_N, j = square - i * SQUARES_N;
        const int c_row = row + 16 * i + matrix_c_row(lane, n), c_col = column + 16 * j + matrix_c_column(lane, n);

        if (c_row < rows && c_col < cols) {
            float result = kept[e];

#if BIAS
            result += LOAD(BIAS_TYPE, bias, a.bias_offset + (col0 + c_col) * a.bias_col);
#endif
            store_result(&to, c_row, c_col, result, &a);
        }
    }
#else
    MATRIX_UNROLL
    for (int j = 0; j < SQUARES_N; j++)
        MATRIX_UNROLL
    for (int n = 0; n < MATRIX_C; n++) {
        const int c_col = column + 16 * j + matrix_c_column(lane, n);
        float add = 0.0f;

#if BIAS
        if (c_col < cols)
            add = LOAD(BIAS_TYPE, bias, a.bias_offset + (col0 + c_col) * a.bias_col);
#endif
        MATRIX_UNROLL
        for (int i = 0; i < SQUARES_M; i++) {
            const int c_row = row + 16 * i + matrix_c_row(lane, n);

            if (c_row < rows && c_col < cols)
                store_result(&to, c_row, c_col, sum[i * SQUARES_N + j].sum[n] + add, &a);
        }
    }
#endif
}
