/* Matrix product for GPU-class devices: a work-group shares tiles of A and B in local memory.
 *
 *   C[b,i,j] = sum_k A[b,i,k] * B[b,k,j]  (+ bias[j])
 *
 * Layouts, with any strides in elements; 0 broadcasts an input (args: a.a, a.b, a.c; inc/args.h)
 *   A[b,i,k]   a[a.a.offset + b*a.a.batch + i*a.a.row + k*a.a.col]
 *   B[b,k,j]   b[a.b.offset + b*a.b.batch + k*a.b.row + j*a.b.col]
 *   C[b,i,j]   c[a.c.offset + b*a.c.batch + i*a.c.row + j*a.c.col]
 *   bias[j]    bias[a.bias_offset + j*a.bias_col]
 *
 * Arguments: a, b, [bias], c, matmul_args.
 *
 *   macro                                meaning                      allowed                  tested
 *   TILE_M, TILE_N                       C tile of a work-group       ITEM_* x a whole number  see below
 *   TILE_K                               depth of a step              1 and up                 4 8 16
 *   ITEM_M, ITEM_N                       C elements of an item        multiples of 4           4 8
 *   A_TYPE, B_TYPE, C_TYPE, BIAS_TYPE    storage types                F32 F16 BF16             each
 *   BIAS                                 whether there is a bias      0, 1                     both
 * Tested (TILE_M x TILE_N x TILE_K, ITEM_M x ITEM_N): 64x64x16, 4x4 (the default) on all platforms;
 * 128x128x16, 8x8; 32x64x8, 4x4; 16x16x4, 4x4; 128x64x16, 8x4.
 *
 *        k ->             j ->  |  TILE_N  |
 *      +------+         +-------+----------+    An item's columns are quads of neighbours; the quads
 *   i  |   A  |   x  k  |   B   | b_tile   |    of one item lie TILE_N/ITEM_N quads apart, so that
 *   |  +------+         +-------+----------+    neighbouring items read neighbouring float4s of
 *   v  |a_tile| TILE_M                          b_tile (no bank conflicts) and write neighbouring
 *      +------+                                 columns of C.  Rows likewise.
 *
 * NDRange: dimension 0 ceil(n/TILE_N) groups of TILE_N/ITEM_N items, 1 ceil(m/TILE_M) groups of
 * TILE_M/ITEM_M items, 2 the batch, groups of 1 item.
 * Local memory: 4 * TILE_K * (TILE_M + TILE_N + 8) bytes (default 8.5 KiB).
 * Barriers: two for each step of TILE_K; the number of steps depends on a.k alone, which is the same
 * for all items.  Between the first and the second an item writes, after the second it reads the tiles.
 * Accumulator: float, one chain of fma in rising k for each element, then the bias; rounded once on
 * storing.  k = 0 gives the bias or +0.  There is no masked value; elements beyond m, n or k
 * enter the tiles as 0 and are never read from memory.
 * Features: OpenCL C 1.2, TILE_M/ITEM_M * TILE_N/ITEM_N items a group.  Without them: matmul_generic. */
#include "inc/args.h"
#include "inc/fma.h"
#include "inc/matmul_types.h"

#ifndef TILE_M
#define TILE_M 64
#endif
#ifndef TILE_N
#define TILE_N 64
#endif
#ifndef TILE_K
#define TILE_K 16
#endif
#ifndef ITEM_M
#define ITEM_M 4
#endif
#ifndef ITEM_N
#define ITEM_N 4
#endif

#if ITEM_M < 4 || ITEM_N < 4 || ITEM_M % 4 || ITEM_N % 4
#error "ITEM_M and ITEM_N must be multiples of 4"
#endif
#if TILE_M < 1 || TILE_N < 1 || TILE_K < 1 || TILE_M % ITEM_M || TILE_N % ITEM_N
#error "TILE_M and TILE_N must be multiples of ITEM_M and ITEM_N, TILE_K at least 1"
#endif

#define ITEMS_X (TILE_N / ITEM_N)
#define ITEMS_Y (TILE_M / ITEM_M)
#define ITEMS (ITEMS_X * ITEMS_Y)
/* One float4 of padding a row, so that the items of a warp that walk down k write to different banks. */
#define QUADS_A (TILE_M / 4 + 1)
#define QUADS_B (TILE_N / 4 + 1)
#define LOADS_A ((TILE_M * TILE_K + ITEMS - 1) / ITEMS)
#define LOADS_B ((TILE_N * TILE_K + ITEMS - 1) / ITEMS)

/* Element e of a tile of `size` x TILE_K: the walk goes along k where k has the unit stride, else across
 * it, so that neighbouring items read neighbouring elements of memory. */
static inline int2 place(int e, int size, int along_k)
{
    return along_k ? (int2)(e / TILE_K, e % TILE_K) : (int2)(e % size, e / size);
}

kernel __attribute__((reqd_work_group_size(ITEMS_X, ITEMS_Y, 1)))
void matmul_tile(const global ELEMENT(A_TYPE) *a_data, const global ELEMENT(B_TYPE) *b_data,
#if BIAS
                 const global ELEMENT(BIAS_TYPE) *bias,
#endif
                 global ELEMENT(C_TYPE) *c_data, matmul_args a)
{
    local float4 a_tile[TILE_K * QUADS_A];
    local float4 b_tile[TILE_K * QUADS_B];

    if (a.batch == 0)
        return;

    const int x = get_local_id(0), y = get_local_id(1);
    const int item = y * ITEMS_X + x;
    const long row0 = (long)get_group_id(1) * TILE_M, col0 = (long)get_group_id(0) * TILE_N;
    const long batch = get_global_id(2);
    const int rows = (int)min((long)TILE_M, a.m - row0), cols = (int)min((long)TILE_N, a.n - col0);
    const int a_along_k = a.a.col == 1, b_along_k = a.b.row == 1;
    const global ELEMENT(A_TYPE) *a_in = a_data + a.a.offset + batch * a.a.batch + row0 * a.a.row;
    const global ELEMENT(B_TYPE) *b_in = b_data + a.b.offset + batch * a.b.batch + col0 * a.b.col;
    float a_next[LOADS_A], b_next[LOADS_B];
    float4 sum[ITEM_M][ITEM_N / 4];

#pragma unroll
    for (int i = 0; i < ITEM_M; i++)
#pragma unroll
        for (int j = 0; j < ITEM_N / 4; j++)
            sum[i][j] = (float4)0.0f;

    /* Round -1 only loads.  Each other round puts what the one before it loaded into the tiles and
     * loads the next step's elements before it computes, so that memory's latency hides behind the
     * products.  The last round's loads are all out of range: zeros, and no reads. */
    const int steps = (a.k + TILE_K - 1) / TILE_K;

    for (int step = -1; step < steps; step++) {
        const int k0 = (step + 1) * TILE_K;

        barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
        for (int l = 0; l < LOADS_A; l++) {
            const int2 e = place(item + l * ITEMS, TILE_M, a_along_k);

            if (step >= 0 && e.x < TILE_M && e.y < TILE_K)
                ((local float *)a_tile)[e.y * QUADS_A * 4 + e.x] = a_next[l];
        }
#pragma unroll
        for (int l = 0; l < LOADS_B; l++) {
            const int2 e = place(item + l * ITEMS, TILE_N, b_along_k);

            if (step >= 0 && e.x < TILE_N && e.y < TILE_K)
                ((local float *)b_tile)[e.y * QUADS_B * 4 + e.x] = b_next[l];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
        for (int l = 0; l < LOADS_A; l++) {
            const int2 e = place(item + l * ITEMS, TILE_M, a_along_k);

            /* One number to compare, where the conditions apart would each be kept as a mask in scalar
             * registers: they spilled on gfx90a. */
            const int end = e.x < rows && e.y < TILE_K ? a.k - e.y : 0;

            a_next[l] = 0.0f;
            if (k0 < end)
                a_next[l] = LOAD(A_TYPE, a_in, e.x * a.a.row + (k0 + e.y) * a.a.col);
        }
#pragma unroll
        for (int l = 0; l < LOADS_B; l++) {
            const int2 e = place(item + l * ITEMS, TILE_N, b_along_k);

            /* One number to compare, where the conditions apart would each be kept as a mask in scalar
             * registers: they spilled on gfx90a. */
            const int end = e.x < cols && e.y < TILE_K ? a.k - e.y : 0;

            b_next[l] = 0.0f;
            if (k0 < end)
                b_next[l] = LOAD(B_TYPE, b_in, e.x * a.b.col + (k0 + e.y) * a.b.row);
        }
        for (int k = 0; k < (step < 0 ? 0 : TILE_K); k++) {
            float4 p[ITEM_M / 4], q[ITEM_N / 4];

#pragma unroll
            for (int i = 0; i < ITEM_M / 4; i++)
                p[i] = a_tile[k * QUADS_A + i * ITEMS_Y + y];
#pragma unroll
            for (int j = 0; j < ITEM_N / 4; j++)
                q[j] = b_tile[k * QUADS_B + j * ITEMS_X + x];
#pragma unroll
            for (int i = 0; i < ITEM_M / 4; i++)
#pragma unroll
                for (int j = 0; j < ITEM_N / 4; j++) {
                    sum[4 * i][j] = FMA((float4)p[i].x, q[j], sum[4 * i][j]);
                    sum[4 * i + 1][j] = FMA((float4)p[i].y, q[j], sum[4 * i + 1][j]);
                    sum[4 * i + 2][j] = FMA((float4)p[i].z, q[j], sum[4 * i + 2][j]);
                    sum[4 * i + 3][j] = FMA((float4)p[i].w, q[j], sum[4 * i + 3][j]);
                }
        }
    }

    global ELEMENT(C_TYPE) *out = c_data + a.c.offset + batch * a.c.batch + row0 * a.c.row + col0 * a.c.col;

#pragma unroll
    for (int j = 0; j < ITEM_N / 4; j++) {
        const int col = (j * ITEMS_X + x) * 4;
        float4 add = (float4)0.0f;
#if BIAS
        const global ELEMENT(BIAS_TYPE) *b = bias + a.bias_offset + col0 * a.bias_col;

        if (col < cols)
            add.x = LOAD(BIAS_TYPE, b, col * a.bias_col);
        if (col + 1 < cols)
            add.y = LOAD(BIAS_TYPE, b, (col + 1) * a.bias_col);
        if (col + 2 < cols)
            add.z = LOAD(BIAS_TYPE, b, (col + 2) * a.bias_col);
        if (col + 3 < cols)
            add.w = LOAD(BIAS_TYPE, b, (col + 3) * a.bias_col);
#endif
#pragma unroll
        for (int i = 0; i < ITEM_M; i++) {
            const int row = (i / 4 * ITEMS_Y + y) * 4 + i % 4;
            const float4 s = sum[i][j] + add;

            if (row < rows && col < cols)
                STORE(C_TYPE, out, row * a.c.row + col * a.c.col, s.x);
            if (row < rows && col + 1 < cols)
                STORE(C_TYPE, out, row * a.c.row + (col + 1) * a.c.col, s.y);
            if (row < rows && col + 2 < cols)
                STORE(C_TYPE, out, row * a.c.row + (col + 2) * a.c.col, s.z);
            if (row < rows && col + 3 < cols)
                STORE(C_TYPE, out, row * a.c.row + (col + 3) * a.c.col, s.w);
        }
    }
}
