/* Matrix product for GPU-class devices: a work-group shares tiles of A and B in local memory.
 *
 *   C[b,i,j] = sum_k A[b,i,k] * B[b,k,j]  (+ bias[j])  (and what matmul/epilogue.h says)
 *
 * Layouts: matmul/types.h.  Arguments: a, b, [bias], [b_scale], [operand], c, matmul_args.
 *
 *   macro                                meaning                      allowed                  tested
 *   TILE_M, TILE_N                       C tile of a work-group       powers of two            see below
 *   TILE_K                               depth of a step              power of two              8 16
 *   ITEM_M, ITEM_N                       C elements of an item        multiples of 4           4 8
 *   A_ALONG_K, B_ALONG_K                 neighbouring items load      0, 1                     both
 *                                        neighbours in k, not in i, j
 *   A_TYPE, B_TYPE, C_TYPE, BIAS_TYPE    storage types; B also I8     F32 F16 BF16             each
 *   BIAS                                 whether there is a bias      0, 1                     both
 *   MATMUL_EPILOGUE ...                  matmul/epilogue.h                                 each
 * With ITEMS = TILE_M/ITEM_M * TILE_N/ITEM_N: ITEMS, TILE_M, TILE_N and TILE_K are powers of two, TILE_K is at most ITEMS,
 * and ITEMS at most TILE_M*TILE_K and TILE_N*TILE_K.
 * Tested (TILE_M x TILE_N x TILE_K, ITEM_M x ITEM_N): 16x32x8, 4x4 on all platforms; 128x128x8, 8x8 (the default);
 * 64x64x8, 8x4; 32x32x16, 4x4.
 *
 *        k ->             j ->  |  TILE_N  |
 *      +------+         +-------+----------+    An item's columns are quads of neighbours; the quads
 *   i  |   A  |   x  k  |   B   | b_tile   |    of one item lie TILE_N/ITEM_N quads apart, so that
 *   |  +------+         +-------+----------+    neighbouring items read neighbouring float4s of
 *   v  |a_tile| TILE_M                          b_tile (no bank conflicts) and write neighbouring
 *      +------+                                 columns of C.  Rows likewise.
 *
 * Where the tile is large enough, 32 neighbouring items (a warp) own 8 x 4 places of it, not 16 x 2 or 32 x 1: they read 12
 * float4s of the tiles for each k instead of 18 or 33.
 *
 * NDRange: dimension 0 ceil(n/TILE_N) groups of TILE_N/ITEM_N items, 1 ceil(m/TILE_M) groups of
 * TILE_M/ITEM_M items, 2 the batch, groups of 1 item.
 * Local memory: two tiles of each, 8 * TILE_K * (TILE_M + TILE_N + 8) bytes (default 16.5 KiB).
 * Barriers: one before the first step and one at the end of each; the number of steps depends on a.k alone, which is
 * the same for all items.  A step reads one half of the tiles, and writes into the other what the next one reads; that
 * half was last read in the step before, which all items have ended.
 * Accumulator: float, one chain of fma in rising k for each element, then the bias; rounded once on
 * storing.  k = 0 gives the bias or +0.  There is no masked value.  Nothing beyond m, n or k is read from memory: beyond
 * k the tiles hold 0, and in place of rows and columns that do not exist the last one is read again, whose products are
 * not stored.
 * Features: OpenCL C 1.2, ITEMS items a group.  Without them: matmul_generic. */
#include "matmul/args.h"
#include "lib/fma.h"
#include "matmul/epilogue.h"
#include "matmul/types.h"

#ifndef TILE_M
#define TILE_M 128
#endif
#ifndef TILE_N
#define TILE_N 128
#endif
#ifndef TILE_K
#define TILE_K 8
#endif
#ifndef ITEM_M
#define ITEM_M 8
#endif
#ifndef ITEM_N
#define ITEM_N 8
#endif

#ifndef A_ALONG_K
#define A_ALONG_K 1
#endif
#ifndef B_ALONG_K
#define B_ALONG_K 0
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

#if (TILE_M & (TILE_M - 1)) || (TILE_N & (TILE_N - 1)) || (TILE_K & (TILE_K - 1)) || (ITEMS & (ITEMS - 1))
#error "TILE_M, TILE_N, TILE_K and the number of items must be powers of two"
#endif
#if TILE_K > ITEMS || TILE_M * TILE_K < ITEMS || TILE_N * TILE_K < ITEMS
#error "an item must have elements of both tiles to load, and TILE_K may be at most the number of items"
#endif

/* One float4 of padding a row, so that the items of a warp that walk down k write to different banks. */
#define QUADS_A (TILE_M / 4 + 1)
#define QUADS_B (TILE_N / 4 + 1)
#define LOADS_A (TILE_M * TILE_K / ITEMS)
#define LOADS_B (TILE_N * TILE_K / ITEMS)

/* Which element of a tile of `size` x TILE_K an item's load number l is: along the tile, and in depth.  Neighbouring items
 * load neighbours in depth (along_k) or along the tile, whichever lie side by side in memory. */
static inline int place_along(uint item, int l, int size, int along_k)
{
    if (along_k)
        return (int)(item / TILE_K) + l * (ITEMS / TILE_K);
    return (int)(item & (uint)(size - 1)) + (l * ITEMS & (size - 1));
}

static inline int place_deep(uint item, int l, int size, int along_k)
{
    if (along_k)
        return (int)(item & (TILE_K - 1));
    return (int)(item / (uint)size) + l * ITEMS / size;
}

/* An item's elements of the next step, 0 where `left` ends k before them; `at` moves on to the step behind it. */
static inline void load_a(float next[LOADS_A], const global ELEMENT(A_TYPE) *at[LOADS_A], uint item, int left,
                          long move)
{
#pragma unroll
    for (int l = 0; l < LOADS_A; l++) {
        next[l] = 0.0f;
        if (place_deep(item, l, TILE_M, A_ALONG_K) < left)
            next[l] = LOAD(A_TYPE, at[l], 0);
        at[l] += move;
    }
}

static inline void load_b(float next[LOADS_B], const global ELEMENT(B_TYPE) *at[LOADS_B], uint item, int left,
                          long move)
{
#pragma unroll
    for (int l = 0; l < LOADS_B; l++) {
        next[l] = 0.0f;
        if (place_deep(item, l, TILE_N, B_ALONG_K) < left)
            next[l] = LOAD(B_TYPE, at[l], 0);
        at[l] += move;
    }
}

static inline void put(local float *tile, const float *next, uint item, int loads, int size, int along_k, int quads)
{
#pragma unroll
    for (int l = 0; l < loads; l++)
        tile[place_deep(item, l, size, along_k) * quads * 4 + place_along(item, l, size, along_k)] = next[l];
}

/* Four neighbours of a row of C, of which `left` exist; all at once where they are 16 bytes of memory. */
static inline void store_quad(global ELEMENT(C_TYPE) *to, float4 x, int left, long move)
{
#if IS_F32(C_TYPE)
    if (left > 3 && move == 1 && ((size_t)to & 15) == 0) {
        *(global float4 *)to = x;
        return;
    }
#endif
    if (left > 0)
        STORE(C_TYPE, to, 0, x.x);
    if (left > 1)
        STORE(C_TYPE, to, move, x.y);
    if (left > 2)
        STORE(C_TYPE, to, 2 * move, x.z);
    if (left > 3)
        STORE(C_TYPE, to, 3 * move, x.w);
}

/* Loads four neighbours, `move` apart, of which `left` exist; the others of the quad stay. */
#define LOAD_QUAD(TYPE, quad, from, left, move) \
    do { \
        if ((left) > 0) \
            (quad).x = LOAD(TYPE, from, 0); \
        if ((left) > 1) \
            (quad).y = LOAD(TYPE, from, move); \
        if ((left) > 2) \
            (quad).z = LOAD(TYPE, from, 2 * (move)); \
        if ((left) > 3) \
            (quad).w = LOAD(TYPE, from, 3 * (move)); \
    } while (0)

#if OPERAND
/* Four neighbours of a row of the operand likewise, and 0 for those that do not exist. */
static inline float4 load_quad(const global ELEMENT(OPERAND_TYPE) *from, int left, long move)
{
    float4 x = (float4)0.0f;

#if IS_F32(OPERAND_TYPE)
    if (left > 3 && move == 1 && ((size_t)from & 15) == 0)
        return *(const global float4 *)from;
#endif
    LOAD_QUAD(OPERAND_TYPE, x, from, left, move);
    return x;
}
#endif

GROUP_SIZE(ITEMS_X, ITEMS_Y, 1)
kernel void matmul_tile(const global ELEMENT(A_TYPE) *a_data, const global ELEMENT(B_TYPE) *b_data,
                        EPILOGUE_PARAMETERS global ELEMENT(C_TYPE) *c_data, matmul_args a)
{
    local float4 a_tile[2 * TILE_K * QUADS_A];
    local float4 b_tile[2 * TILE_K * QUADS_B];

    const uint item = (uint)get_local_id(1) * ITEMS_X + (uint)get_local_id(0);
#if ITEMS_X % 8 == 0 && ITEMS_Y % 4 == 0
    const int x = (int)((item >> 5 & (ITEMS_X / 8 - 1)) * 8 + (item & 7));
    const int y = (int)((item >> 5) / (ITEMS_X / 8) * 4 + (item >> 3 & 3));
#else
    const int x = (int)get_local_id(0), y = (int)get_local_id(1);
#endif
    const long row0 = (long)group_id(&a.part, 1) * TILE_M, col0 = (long)group_id(&a.part, 0) * TILE_N;
    const long batch = global_id(&a.part, 2);
    /* Nothing to do: nothing is loaded or stored.  A return here, before the first barrier, made PoCL 3.1 store beyond C. */
    const int depth = a.batch ? a.k : 0;
    const int rows = a.batch ? (int)min((long)TILE_M, a.m - row0) : 0;
    const int cols = a.batch ? (int)min((long)TILE_N, a.n - col0) : 0;
    const global ELEMENT(A_TYPE) *a_at[LOADS_A];
    const global ELEMENT(B_TYPE) *b_at[LOADS_B];
    float a_next[LOADS_A], b_next[LOADS_B];
    float4 sum[ITEM_M][ITEM_N / 4];

#pragma unroll
    for (int l = 0; l < LOADS_A; l++)
        a_at[l] = a_data + a.a.offset + batch * a.a.batch +
                  (row0 + min(place_along(item, l, TILE_M, A_ALONG_K), rows - 1)) * a.a.row +
                  place_deep(item, l, TILE_M, A_ALONG_K) * a.a.col;
#pragma unroll
    for (int l = 0; l < LOADS_B; l++)
        b_at[l] = b_data + a.b.offset + batch * a.b.batch +
                  (col0 + min(place_along(item, l, TILE_N, B_ALONG_K), cols - 1)) * a.b.col +
                  place_deep(item, l, TILE_N, B_ALONG_K) * a.b.row;
#pragma unroll
    for (int i = 0; i < ITEM_M; i++)
#pragma unroll
        for (int j = 0; j < ITEM_N / 4; j++)
            sum[i][j] = (float4)0.0f;

    const int steps = (depth + TILE_K - 1) / TILE_K;
    const long a_step = TILE_K * a.a.col, b_step = TILE_K * a.b.row;

    load_a(a_next, a_at, item, depth, a_step);
    load_b(b_next, b_at, item, depth, b_step);
    put((local float *)a_tile, a_next, item, LOADS_A, TILE_M, A_ALONG_K, QUADS_A);
    put((local float *)b_tile, b_next, item, LOADS_B, TILE_N, B_ALONG_K, QUADS_B);
    barrier(CLK_LOCAL_MEM_FENCE);

    /* Before a step computes it asks for the next one's elements, so that memory's latency hides behind the products.  The
     * last step's are all beyond k: zeros, and no reads. */
    for (int step = 0; step < steps; step++) {
        const int now = step & 1, left = depth - (step + 1) * TILE_K;
        const local float4 *a_quads = a_tile + now * (TILE_K * QUADS_A) + y;
        const local float4 *b_quads = b_tile + now * (TILE_K * QUADS_B) + x;

        load_a(a_next, a_at, item, left, a_step);
        load_b(b_next, b_at, item, left, b_step);
#pragma unroll
        for (int k = 0; k < TILE_K; k++) {
            float4 q[ITEM_N / 4];

#pragma unroll
            for (int j = 0; j < ITEM_N / 4; j++)
                q[j] = b_quads[k * QUADS_B + j * ITEMS_X];
            /* A's quads one by one: with all of them loaded first NVIDIA's compiler took up to 138 registers, and of 256
             * items with more than 128 a multiprocessor holds half as many (ptxas 13.0). */
#pragma unroll
            for (int i = 0; i < ITEM_M / 4; i++) {
                const float4 p = a_quads[k * QUADS_A + i * ITEMS_Y];

#pragma unroll
                for (int j = 0; j < ITEM_N / 4; j++) {
                    sum[4 * i][j] = FMA((float4)p.x, q[j], sum[4 * i][j]);
                    sum[4 * i + 1][j] = FMA((float4)p.y, q[j], sum[4 * i + 1][j]);
                    sum[4 * i + 2][j] = FMA((float4)p.z, q[j], sum[4 * i + 2][j]);
                    sum[4 * i + 3][j] = FMA((float4)p.w, q[j], sum[4 * i + 3][j]);
                }
            }
        }
        put((local float *)(a_tile + (1 - now) * (TILE_K * QUADS_A)), a_next, item, LOADS_A, TILE_M, A_ALONG_K,
            QUADS_A);
        put((local float *)(b_tile + (1 - now) * (TILE_K * QUADS_B)), b_next, item, LOADS_B, TILE_N, B_ALONG_K,
            QUADS_B);
        barrier(CLK_LOCAL_MEM_FENCE);
    }

    global ELEMENT(C_TYPE) *out = c_data + a.c.offset + batch * a.c.batch + row0 * a.c.row + col0 * a.c.col;
#if OPERAND
    const global ELEMENT(OPERAND_TYPE) *in =
        operand + a.operand.offset + batch * a.operand.batch + row0 * a.operand.row + col0 * a.operand.col;
#endif

#pragma unroll
    for (int j = 0; j < ITEM_N / 4; j++) {
        const int col = (j * ITEMS_X + x) * 4;
        float4 add = (float4)0.0f;
#if BIAS
        LOAD_QUAD(BIAS_TYPE, add, bias + a.bias_offset + (col0 + col) * a.bias_col, cols - col, a.bias_col);
#endif
#if B_SCALED
        float4 times_b = (float4)0.0f;
        LOAD_QUAD(F32, times_b, b_scale + a.scale_offset + (col0 + col) * a.scale_col, cols - col, a.scale_col);
#endif
#pragma unroll
        for (int i = 0; i < ITEM_M; i++) {
            const int row = (i / 4 * ITEMS_Y + y) * 4 + i % 4;
#if MATMUL_EPILOGUE
            if (row < rows) {
                float4 result = sum[i][j];
#if B_SCALED
                result *= times_b;
#endif
                result = ACTIVATED_SUM(result + add, a);
#if OPERAND
                result = WITH_OPERAND(
                    result, load_quad(in + row * a.operand.row + col * a.operand.col, cols - col, a.operand.col));
#endif
                store_quad(out + row * a.c.row + col * a.c.col, result, cols - col, a.c.col);
            }
#else
            if (row < rows)
                store_quad(out + row * a.c.row + col * a.c.col, sum[i][j] + add, cols - col, a.c.col);
#endif
        }
    }
}
