/* Matrix product of few rows, or few columns, for CPU devices: k across vector lanes, one work-item a group.
 *
 *   C[b,i,j] = sum_k A[b,i,k] * B[b,k,j]  (+ bias[j])  (and what matmul/epilogue.h says)
 *
 * A layer's weights multiply one token's activations so.  One operand is streamed: each of its rows is read in the
 * order of memory, and is multiplied by the few rows of the other operand, which stay in the caches.  "Row" below is an
 * index of either operand, whichever of i and j that is; nothing is packed.
 *
 *        k ->  LANES at a time                     |  ROWS  |
 *       +------------------------+               +----------+      An item goes down LANES*TILES streamed rows, STEP at a
 *  STEP | streamed rows          |   x  few      |   sums   |      time, with ROWS of the few rows, then with the next
 *       +------------------------+      rows     +----------+      ROWS, while the caches hold what is streamed.  Lane l
 *       | ...                    |    (caches)                     of a sum adds up k = l, l + LANES, ...; sum_each adds
 *       +------------------------+                                 up the lanes of LANES sums.
 *
 * Layouts are matmul/types.h's, with neighbours along k that are neighbours in memory: a.a.col == a.b.row == 1, as the host
 * has checked.  The other strides are any.
 *
 *   macro           meaning                                            allowed            tested
 *   A_TYPE, B_TYPE, C_TYPE, BIAS_TYPE   storage types; B also I8       F32 F16 BF16       F32
 *   BIAS            whether there is a bias                            0, 1               both
 *   MATMUL_EPILOGUE ...   matmul/epilogue.h                                               each
 *   STREAM_A        0: B is streamed, rows of A are few; 1: A is, and columns of B are few   0, 1   both
 *   LANES           floats a vector (lib/vector.h)                     4, 8, 16           all
 *   ROWS            few rows of a register tile                        1 and up           1 to 8
 *   STEP            streamed rows of a register tile                   divisors of LANES  2 4
 *   TILES           times LANES: the most streamed rows of an item; with OPTIONAL (matmul/epilogue.h) it owns
 *                   a.item_rows, a multiple of LANES that is no more   1 and up           1 to 16
 *   DEPTH           0: the few rows are read where they lie; else the item copies so much of their k at a time, their
 *                   vectors interleaved, so that rows a power of two apart do not share one set of a cache; a multiple
 *                   of LANES
 *                                                                      0, 16 and up       0 1024
 *   PREFETCH_DISTANCE   k by which streamed rows are prefetched; beyond the end of the DEPTH the next STEP rows are.  0: none.
 *                   Needs a compiler that has __builtin_prefetch       0 and up           0 512
 * ROWS*STEP accumulators and ROWS + STEP more must fit the registers.
 *
 * NDRange, groups of one item: 0 ceil(n/(LANES*TILES)), 1 one, 2 the batch; with STREAM_A 0 one, 1 ceil(m/(LANES*TILES)).
 * An item owns LANES*TILES columns of C; with STREAM_A so many rows.
 * Private memory: 4*ROWS*(LANES*LANES + LANES*TILES + DEPTH) bytes.  Local memory: none.  Barriers: none.
 * Accumulator: float, LANES chains of fma in rising k for each DEPTH of it, added up in pairs, then one after the other;
 * then the bias; rounded once on storing.  k = 0 gives the bias or +0.  There is no masked value; rows beyond the last one
 * repeat it, and are not stored.
 * Features: OpenCL C 1.2 only. */
#include "matmul/args.h"
#include "lib/fma.h"
#include "matmul/epilogue.h"
#include "matmul/types.h"
#include "lib/rows.h"
#include "lib/vector.h"

#ifndef STREAM_A
#define STREAM_A 0
#endif
#ifndef ROWS
#define ROWS 1
#endif
#ifndef STEP
#define STEP 4
#endif
#ifndef TILES
#define TILES 4
#endif
#ifndef DEPTH
#define DEPTH 0
#endif
#ifndef PREFETCH_DISTANCE
#define PREFETCH_DISTANCE 0
#endif

#if STREAM_A != 0 && STREAM_A != 1
#error "STREAM_A must be 0 or 1"
#endif
#if ROWS < 1 || TILES < 1 || STEP < 1 || LANES % STEP != 0 || DEPTH % LANES != 0
#error "ROWS and TILES must be at least 1, STEP divides LANES, and LANES divides DEPTH"
#endif

#if OPTIONAL
#define ITEM_ROWS(a) ((a).item_rows)
#else
#define ITEM_ROWS(a) (LANES * TILES)
#endif

#if STREAM_A
#define STREAM_TYPE A_TYPE
#define FEW_TYPE B_TYPE
#else
#define STREAM_TYPE B_TYPE
#define FEW_TYPE A_TYPE
#endif

/* Element (index, k) of an operand lies at start + index*stride + k; `count` indices exist. */
typedef struct operand_layout {
    long start, stride;
    int count;
} operand_layout;

/* The few rows: where they lie, and the item's copy, in which vector k/LANES of all rows are neighbours. */
typedef struct few_data {
    const global ELEMENT(FEW_TYPE) *row[ROWS];
#if DEPTH
    floatv copy[DEPTH / LANES * ROWS];
#endif
} few_data;

#if DEPTH
INLINE void copy_rows(few_data *few, int k0, int depth)
{
    for (int k = 0; k < depth; k += LANES)
        for (int r = 0; r < ROWS; r++)
            LOAD_ROW(FEW_TYPE, few->copy[k / LANES * ROWS + r], few->row[r], k0 + k, 1, depth - k, 0.0f);
}
#endif

/* Adds the products of `columns` elements from k0 + k on, at most a vector, to acc. */
INLINE void add_products(floatv acc[STEP][ROWS], const global ELEMENT(STREAM_TYPE) *const stream[STEP],
                         const few_data *few, int k0, int k, int columns)
{
    floatv x[STEP];

#pragma unroll
    for (int s = 0; s < STEP; s++)
        LOAD_ROW(STREAM_TYPE, x[s], stream[s], k0 + k, 1, columns, 0.0f);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        floatv y;
#if DEPTH
        y = few->copy[k / LANES * ROWS + r];
#else
        LOAD_ROW(FEW_TYPE, y, few->row[r], k0 + k, 1, columns, 0.0f);
#endif
#pragma unroll
        for (int s = 0; s < STEP; s++)
            acc[s][r] = FMA(x[s], y, acc[s][r]);
    }
}

/* Adds the sums over k0 <= k < k0 + depth of LANES streamed rows from `start` on to state[r], for each few row r. */
INLINE void add_block(floatv *state, const global ELEMENT(STREAM_TYPE) *streamed, int start, int last, long stride,
                      const few_data *few, int k0, int depth)
{
    floatv lane_sums[ROWS * LANES];

    for (int s0 = 0; s0 < LANES; s0 += STEP) {
        floatv acc[STEP][ROWS];
        const global ELEMENT(STREAM_TYPE) *p[STEP];
        int k = 0;

#pragma unroll
        for (int s = 0; s < STEP; s++) {
            p[s] = streamed + min(start + s0 + s, last) * stride;
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                acc[s][r] = (floatv)(0.0f);
        }
#if PREFETCH_DISTANCE
        const int distance = min(depth, PREFETCH_DISTANCE);
        const long next_rows = BYTES(STREAM_TYPE, STEP * stride - depth);

        for (; k + LANES <= depth; k += LANES) {
            const long ahead = BYTES(STREAM_TYPE, (long)(k0 + k + distance)) + (k + distance < depth ? 0 : next_rows);

            if (!(BYTES(STREAM_TYPE, k) & 63)) /* each line once */
#pragma unroll
                for (int s = 0; s < STEP; s++)
                    PREFETCH((size_t)p[s] + ahead);
            add_products(acc, p, few, k0, k, LANES);
        }
#else
        for (; k + LANES <= depth; k += LANES)
            add_products(acc, p, few, k0, k, LANES);
#endif
        if (k < depth)
            add_products(acc, p, few, k0, k, depth - k);
#pragma unroll
        for (int s = 0; s < STEP; s++)
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                lane_sums[r * LANES + s0 + s] = acc[s][r];
    }
    for (int r = 0; r < ROWS; r++)
        state[r] += sum_each(lane_sums + r * LANES);
}

ITEM_FUNCTION multiply(const global ELEMENT(A_TYPE) *a_data, const global ELEMENT(B_TYPE) *b_data,
                       EPILOGUE_PARAMETERS global ELEMENT(C_TYPE) *c, matmul_args a, int column_group, int row_group,
                       long batch)
{
    const operand_layout rows = {a.a.offset + batch * a.a.batch, a.a.row, a.m};
    const operand_layout columns = {a.b.offset + batch * a.b.batch, a.b.col, a.n};
    const long out = a.c.offset + batch * a.c.batch;
#if STREAM_A
    const global ELEMENT(STREAM_TYPE) *streamed = a_data;
    const global ELEMENT(FEW_TYPE) *kept = b_data;
    const operand_layout stream = rows, few = columns;
    const long stream_step = a.c.row, few_step = a.c.col;
    const int first = row_group * ITEM_ROWS(a), few0 = column_group * ROWS;
#else
    const global ELEMENT(STREAM_TYPE) *streamed = b_data;
    const global ELEMENT(FEW_TYPE) *kept = a_data;
    const operand_layout stream = columns, few = rows;
    const long stream_step = a.c.col, few_step = a.c.row;
    const int first = column_group * ITEM_ROWS(a), few0 = row_group * ROWS;
#endif
    const int end = min(first + ITEM_ROWS(a), stream.count);
    const int whole = DEPTH ? DEPTH : max(a.k, 1);
    few_data data;
    floatv state[TILES * ROWS];

    streamed += stream.start;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        data.row[r] = kept + few.start + min(few0 + r, few.count - 1) * few.stride;
    for (int i = 0; i < ITEM_ROWS(a) / LANES * ROWS; i++)
        state[i] = (floatv)(0.0f);
    for (int k0 = 0; k0 < a.k; k0 += whole) {
        const int depth = min(whole, a.k - k0);
#if DEPTH
        copy_rows(&data, k0, depth);
#endif
        for (int t = 0; first + t * LANES < end; t++)
            add_block(state + t * ROWS, streamed, first + t * LANES, end - 1, stream.stride, &data, k0, depth);
    }

    for (int t = 0; first + t * LANES < end; t++)
        for (int r = 0; r < ROWS && few0 + r < few.count; r++) {
            const int j = first + t * LANES, rest = end - j;
            const long at = out + (few0 + r) * few_step + j * stream_step;
            floatv sum = state[t * ROWS + r];
#if B_SCALED && STREAM_A
            sum *= b_scale[a.scale_offset + (few0 + r) * a.scale_col];
#elif B_SCALED
            floatv times_b;
            LOAD_ROW(F32, times_b, b_scale, a.scale_offset + j * a.scale_col, a.scale_col, rest, 0.0f);
            sum *= times_b;
#endif
#if BIAS && STREAM_A
            if (HAS_BIAS(a))
                sum += (floatv)(LOAD(BIAS_TYPE, bias, a.bias_offset + (few0 + r) * a.bias_col));
#elif BIAS
            if (HAS_BIAS(a)) {
                floatv add;
                LOAD_ROW(BIAS_TYPE, add, bias, a.bias_offset + j * a.bias_col, a.bias_col, rest, 0.0f);
                sum += add;
            }
#endif
            if (HAS_ACTIVATION(a))
                sum = ACTIVATED_SUM(sum, a);
#if OPERAND
            if (HAS_OPERAND(a)) {
                const long operand_step = STREAM_A ? a.operand.row : a.operand.col;
                floatv other;
                LOAD_ROW(OPERAND_TYPE, other, operand,
                         a.operand.offset + batch * a.operand.batch +
                             (few0 + r) * (STREAM_A ? a.operand.col : a.operand.row) + j * operand_step,
                         operand_step, rest, 0.0f);
                sum = WITH_OPERAND(sum, other);
            }
#endif
            STORE_ROW(C_TYPE, c, at, stream_step, rest, sum);
        }
}

GROUP_SIZE(1, 1, 1)
kernel void matmul_cpu_skinny(const global ELEMENT(A_TYPE) *a_data, const global ELEMENT(B_TYPE) *b_data,
                              EPILOGUE_PARAMETERS global ELEMENT(C_TYPE) *c, matmul_args a)
{
    const int few = STREAM_A ? a.n : a.m;

    if (a.batch != 0)
        for (int tile = 0; tile * ROWS < few; tile++)
            multiply(a_data, b_data, EPILOGUE_ARGUMENTS c, a, STREAM_A ? tile : (int)group_id(&a.part, 0),
                     STREAM_A ? (int)group_id(&a.part, 1) : tile, group_id(&a.part, 2));
}
