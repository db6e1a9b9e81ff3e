/* One work-group of one sub-group: a 16 x 16 x 16 product, and what every lane holds of it, for tests/ops/matrix.c.
 *
 * A[i][x] = a[16 i + x] and B[x][j] = b[16 x + j], 16-bit elements.  TRANSPOSED: the tiles are stored
 * transposed.  WIDTH: of a larger tile, in which these begin at AT_ROW, AT_COLUMN.
 *   words    (lane, word): A's fragment, then B's
 *   c        (16, 16): A B, twice (added to itself)
 *   places   (lane, float): where in C it stands, 16 * row + column
 *   chained  (lane, word): C as an operand
 *   swapped  (lane): of 100 * lane, by SWAP lanes
 *   copied   16 words, by copies of 16, 6, 0 and 2 bytes */
#include "lib/storage.h"
#include "engine/fragment.h"
#include "engine/copy.h"

#define ROWS 48

kernel MATRIX_SUB_GROUP
__attribute__((reqd_work_group_size(MATRIX_LANES, 1, 1))) void fragments(const global ushort *a, const global ushort *b,
                                                                         global uint *words, global float *c,
                                                                         global int *places, global uint *chained,
                                                                         global float *swapped, global uint *copied)
{
    local uint4 a_room[ROWS * WIDTH / 8], b_room[ROWS * WIDTH / 8], copy_room[4];
    local uint scratch[MATRIX_SCRATCH(2, 1) + 1];
    local ushort *a_tile = (local ushort *)a_room, *b_tile = (local ushort *)b_room;
    const int lane = matrix_lane();
    matrix_a of_a[2];
    matrix_b of_b;
    matrix_c of_c[2];

    for (int n = lane; n < 256; n += MATRIX_LANES) {
        const int i = n >> 4, j = n & 15;
#if TRANSPOSED
        a_tile[MATRIX_AT(AT_ROW + j, AT_COLUMN + i, WIDTH)] = a[n];
        b_tile[MATRIX_AT(AT_ROW + i, AT_COLUMN + j, WIDTH)] = b[n];
#else
        a_tile[MATRIX_AT(AT_ROW + i, AT_COLUMN + j, WIDTH)] = a[n];
        b_tile[MATRIX_AT(AT_ROW + j, AT_COLUMN + i, WIDTH)] = b[n];
#endif
    }
    if (lane == 0) {
        /* 0; of constants LLVM makes two stores, one with a lane left open, which Oclgrind 21.10 takes for uninitialised. */
        const int more = (int)get_global_offset(0);
        matrix_copy(copy_room, a, 16 + more);
        matrix_copy(copy_room + 1, a + 8, 6 + more);
        matrix_commit();
        matrix_copy(copy_room + 2, a + 16, more);
        matrix_copy(copy_room + 3, a + 24, 2 + more);
        matrix_commit();
    }
    matrix_wait(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < 2; i++) {
#if TRANSPOSED
        matrix_load_a_transposed(&of_a[i], a_tile, WIDTH, AT_ROW, AT_COLUMN, lane);
#else
        matrix_load_a(&of_a[i], a_tile, WIDTH, AT_ROW, AT_COLUMN, lane);
#endif
    }
#if TRANSPOSED
    matrix_load_b_transposed(&of_b, b_tile, WIDTH, AT_ROW, AT_COLUMN, lane);
#else
    matrix_load_b(&of_b, b_tile, WIDTH, AT_ROW, AT_COLUMN, lane);
#endif
    for (int w = 0; w < MATRIX_A; w++)
        words[lane * (MATRIX_A + MATRIX_B) + w] = of_a[0].word[w];
    for (int w = 0; w < MATRIX_B; w++)
        words[lane * (MATRIX_A + MATRIX_B) + MATRIX_A + w] = of_b.word[w];
    for (int i = 0; i < 2; i++)
        for (int n = 0; n < MATRIX_C; n++)
            of_c[i].sum[n] = 0.0f;
    matrix_multiply(of_c, of_a, 2, &of_b, 1, lane, scratch);
    /* Onto what is there. */
    matrix_multiply(of_c + 1, of_a + 1, 1, &of_b, 1, lane, scratch);
    for (int n = 0; n < MATRIX_C; n++) {
        const int at = matrix_c_row(lane, n) * 16 + matrix_c_column(lane, n);
        c[at] = of_c[1].sum[n];
        places[lane * MATRIX_C + n] = at;
    }
#if MATRIX_CHAIN_A
    matrix_chain(&of_a[0], &of_c[0], lane, scratch);
    for (int w = 0; w < MATRIX_A; w++)
        chained[lane * MATRIX_A + w] = of_a[0].word[w];
#else
    matrix_chain(&of_b, &of_c[0], lane, scratch);
    for (int w = 0; w < MATRIX_B; w++)
        chained[lane * MATRIX_B + w] = of_b.word[w];
#endif
    swapped[lane] = matrix_swap(100.0f * lane, SWAP, lane, scratch);
    if (lane < 4)
        vstore4(copy_room[lane], lane, copied);
}
