/* Matrix product for CPU devices: one work-item a group, explicit vectors, register tiles, no barriers.
 *
 *   C[b,i,j] = sum_k A[b,i,k] * B[b,k,j]  (+ bias[j])  (and what matmul/epilogue.h says)
 *
 * One of the two operands, the lane side, runs across vector lanes: B with lanes = columns of C, or A with
 * lanes = rows of C (LANES_ALONG_M).  matmul_pack copies it into panels once; matmul_cpu then multiplies
 * the other one, the row side, into them, element by element in its own layout.  "Row" below is an
 * index of the row side and "lane" one of the lane side, whichever of i and j that is.
 *
 * Layouts, with any strides in elements; 0 broadcasts an input (args: a.a, a.b, a.c; matmul/args.h)
 *   A[b,i,k]   a[a.a.offset + b*a.a.batch + i*a.a.row + k*a.a.col]
 *   B[b,k,j]   b[a.b.offset + b*a.b.batch + k*a.b.row + j*a.b.col]
 *   C[b,i,j]   c[a.c.offset + b*a.c.batch + i*a.c.row + j*a.c.col]
 *   bias[j]    bias[a.bias_offset + j*a.bias_col]
 *   packed[b,panel,step,lane]   packed[a.packed_offset + ((b*panels + panel)*steps + step)*PANEL + lane], with
 *              PANEL = LANES*LANE_VECTORS, panels = ceil(lanes/PANEL); lanes beyond the last one are 0.
 *              An element is a float and a step one k, or with PAIRS two bfloat16 of neighbouring k, the
 *              first in the lower half, and steps = ceil(k/2); behind an odd k's last one is 0.
 *              b is 0 for the whole batch where the lane side's batch stride is 0.
 *   Workspace: 4 * packed_batch * panels * PANEL * steps bytes; packed_batch is 1 where that stride is 0,
 *   else the batch.
 *
 * Arguments: matmul_pack(lane side, packed, matmul_args)
 *            matmul_cpu(row side, packed, [bias], [b_scale], [operand], c, matmul_args)
 *
 *   macro           meaning                                          allowed         tested
 *   A_TYPE, B_TYPE, C_TYPE, BIAS_TYPE   storage types; B also I8     F32 F16 BF16    each, and mixed
 *   BIAS            whether there is a bias                          0, 1            both
 *   MATMUL_EPILOGUE ...   matmul/epilogue.h                                      each
 *   LANES_ALONG_M   0: B is the lane side; 1: A is                   0, 1            both
 *   ROW_UNIT        1: the row side's stride along k is 1 (a.a.col,  0, 1            both
 *                   or a.b.row with LANES_ALONG_M); 0: any stride
 *   PAIRS           1: bfloat16 two by two (matmul/cpu/product.h);    0, 1       both
 *                   A and B are BF16, and ROW_UNIT
 *   X86_BF16        1: by an instruction (engine/x86/bf16.h)         0, 1            both
 *   AMX             1: PAIRS by tiles of AMX (matmul/cpu/amx_products.h); ROWS      0, 1    both
 *                   is 32, and so is LANES*LANE_VECTORS
 *   X86_AMX         1: by the instructions (engine/x86/amx.h)        0, 1            0
 *   LANES           floats a vector (lib/vector.h)                   4, 8, 16        all
 *   LANE_VECTORS    vectors across a register tile                   1 and up        1 2 3 4
 *   ROWS            rows of a register tile                          1 and up        4 6 8 12 13 14
 *   TILES           register tiles of an item, one below the other   1 and up        1 8 12 16
 *   DEPTH           steps between two tiles                          1 and up        64 128 256 512 2048 4096
 *   AHEAD           asks for the memory so many steps on, behind a   0 and up        0 256
 *                   row's end in the next tile; 0: does not (ROW_UNIT, and a compiler that has __builtin_prefetch)
 *   ONWARD          1: asks for the packed steps that come behind a tile's own, a share with each     0, 1       both
 *                   tile of an item (not PAIRS, and a compiler that has __builtin_prefetch)
 *   PACK_DEPTH      steps that an item of matmul_pack copies         multiples of 16 64 256
 * The accumulators, ROWS*LANE_VECTORS vectors, and LANE_VECTORS + 1 more must fit the registers: 6 x 4 uses
 * 29 of 32, 6 x 2 uses 15 of 16.  Few rows, because their addresses need general registers, and because at
 * a row stride that is a multiple of 4 KiB their lines share one set of the level-1 cache, often of 8 ways:
 * 12 x 2 is as fast at k = 512 and 7 % slower at k = 4096.
 *
 * NDRange, groups of one item:
 *   matmul_pack   0 panels, 1 ceil(steps/PACK_DEPTH), 2 packed_batch (none of it where k is 0)
 *   matmul_cpu    0 panels, 1 ceil(rows/(ROWS*TILES)), 2 the batch
 * Ownership: an item of matmul_cpu owns ROWS*TILES rows times PANEL lanes of C.  Panels are the fastest
 * dimension, so that neighbouring items read the same rows, which by then lie in the level-2 cache.
 * Private memory: 4*ROWS*(TILES + 1)*PANEL bytes of sums (default with 16 lanes 13.5 KiB).  Local memory: none.
 * Barriers: none.
 * Accumulator: float, one chain of fma for each element whatever the geometry, in rising k or, with PAIRS, 1, 0, 3, 2 ...
 * (AMX adds even and odd k apart), so that otherwise neither the tile nor the side changes a bit
 * of the result; then the bias; rounded once on storing.  k = 0 gives the bias or +0.  There is no masked value; rows
 * beyond the last one repeat it, and are not stored.
 * Features: OpenCL C 1.2 only.  Devices with work-group hardware are better served by matmul_tile. */
#include "matmul/args.h"
#include "matmul/epilogue.h"
#include "matmul/types.h"

#ifndef LANES_ALONG_M
#define LANES_ALONG_M 0
#endif
#ifndef ROWS
#define ROWS 6
#endif
#ifndef LANE_VECTORS
#define LANE_VECTORS 4
#endif
#ifndef TILES
#define TILES 8
#endif
#ifndef DEPTH
#define DEPTH 512
#endif
#ifndef ROW_UNIT
#define ROW_UNIT 0
#endif
#ifndef AHEAD
#define AHEAD 0
#endif
#ifndef ONWARD
#define ONWARD 0
#endif
#ifndef PACK_DEPTH
#define PACK_DEPTH 256
#endif
#ifndef PAIRS
#define PAIRS 0
#endif
#ifndef AMX
#define AMX 0
#endif

#if LANES_ALONG_M != 0 && LANES_ALONG_M != 1 || ROW_UNIT != 0 && ROW_UNIT != 1
#error "LANES_ALONG_M and ROW_UNIT must be 0 or 1"
#endif
#if (AHEAD || PAIRS) && !ROW_UNIT
#error "AHEAD and PAIRS need ROW_UNIT"
#endif
#if ONWARD && PAIRS
#error "ONWARD is for products of float"
#endif
#if ROWS < 1 || LANE_VECTORS < 1 || TILES < 1 || DEPTH < 1 || PACK_DEPTH < 1
#error "ROWS, LANE_VECTORS, TILES, DEPTH and PACK_DEPTH must be at least 1"
#endif

#if AMX && (!PAIRS || ROWS != 32 || LANES * LANE_VECTORS != 32)
#error "AMX needs PAIRS and tiles of 32 rows and 32 lanes"
#endif

#define PANEL (LANES * LANE_VECTORS)

#include "matmul/cpu/product.h"
#include "matmul/cpu/store.h"
#if AMX
#include "matmul/cpu/amx_products.h"
#endif

#define BLOCK (ROWS * TILES)
#define LINE (64 / BYTES(ROW_TYPE, K_STEP)) /* steps whose memory comes together */
#define COPY_ROWS (ROW_UNIT && !PAIRS && !IS_F32(ROW_TYPE))

/* Source and panels meet in three ways: the source has neighbouring lanes (copy vectors), or neighbouring
 * k (transpose squares), or neither; the last loop also takes what is left of k and the last lanes. */
kernel void matmul_pack(const global ELEMENT(LANE_TYPE) *source, global packed_element *packed, matmul_args a)
{
    if (a.batch == 0)
        return;

    const side s = lane_side(&a);
    const long panel = get_group_id(0);
    const long batch = get_group_id(2);
    const int steps = STEPS(a.k), whole = a.k / K_STEP;
    const int from = (int)get_group_id(1) * PACK_DEPTH;
    const int to = min(steps, from + PACK_DEPTH);
    const long panels = (s.count + PANEL - 1) / PANEL;

    for (int v = 0; v < LANE_VECTORS; v++) {
        const int first = (int)panel * PANEL + v * LANES;
        const int lanes = clamp(s.count - first, 0, LANES);
        const global ELEMENT(LANE_TYPE) *in = source + s.offset + batch * s.batch + first * s.stride;
        global packed_element *out = packed + a.packed_offset + (batch * panels + panel) * steps * PANEL + v * LANES;
        int i = from;

        if (lanes == LANES && s.stride == 1) {
            for (; i < min(to, whole); i++)
                STORE_WHOLE(global whole_packedv, out + (long)i * PANEL,
                            STEP_OF_LANES(LANE_TYPE, in + i * K_STEP * s.k_stride, s.k_stride));
        } else if (lanes == LANES && s.k_stride == 1) {
            for (; i + LANES <= min(to, whole); i += LANES) {
                floatv t[LANES];

#pragma unroll
                for (int l = 0; l < LANES; l++)
                    t[l] = AS_FLOATV(STEPS_OF_LANE(LANE_TYPE, in + l * s.stride + i * K_STEP));
                transpose(t);
#pragma unroll
                for (int l = 0; l < LANES; l++)
                    STORE_WHOLE(global whole_packedv, out + (long)(i + l) * PANEL, AS_PACKEDV(t[l]));
            }
        }
        for (; i < to; i++)
            for (int l = 0; l < LANES; l++)
                out[(long)i * PANEL + l] =
                    l < lanes ? STEP_OF(LANE_TYPE, in + l * s.stride + i * K_STEP * s.k_stride, s.k_stride, i < whole)
                              : 0;
    }
}

#if COPY_ROWS
typedef const private float *row_steps;
#define ROW_STEP(p, i, stride, whole) ((p)[i])

/* A line of each row as floats, once for all lanes; `count` steps of it are there. */
INLINE void copy_lines(float line[ROWS][LINE], const global ELEMENT(ROW_TYPE) *const p[ROWS], int i, int count)
{
    if (count == LINE) {
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int l = 0; l < LINE; l += LANES)
                STORE_WHOLE(private whole_floatv, line[r] + l, LOADV(ROW_TYPE, p[r], i + l));
    } else {
        for (int r = 0; r < ROWS; r++)
            for (int l = 0; l < count; l++)
                line[r][l] = LOAD(ROW_TYPE, p[r], i + l);
    }
}
#else
typedef const global ELEMENT(ROW_TYPE) *row_steps;
#define ROW_STEP(p, i, stride, whole) STEP_OF(ROW_TYPE, (p) + (i) * K_STEP * (stride), stride, whole)
#endif

/* The products of steps from <= i < to, taken into acc; the last one is half a pair where `whole` is 0. */
INLINE void add_products(floatv acc[ROWS][LANE_VECTORS], const row_steps p[ROWS], const global packed_element *q,
                         int from, int to, long row_k, int whole)
{
    for (int i = from; i < to; i++) {
        packedv y[LANE_VECTORS];

#pragma unroll
        for (int v = 0; v < LANE_VECTORS; v++)
            y[v] = VLOAD(0, q + i * PANEL + v * LANES);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const packedv x = (packedv)ROW_STEP(p[r], i, row_k, whole);

#pragma unroll
            for (int v = 0; v < LANE_VECTORS; v++)
                acc[r][v] = ADD_PRODUCT(x, y[v], acc[r][v]);
        }
    }
}

#if AMX
#define LATE_ROWS 2 /* of a step */

/* The products of a tile whose rows begin at p, with the lanes from q on, as amx_products.h has them; meanwhile the processor
 * has time for what is late.  Rows are streamed past lanes, which stay in the level-1 cache. */
INLINE void tile_products(amx_state *amx, amx_copy *copy, float *sum, const global ushort *p, long stride, int rows,
                          const global uint *q, int steps, int even, int fresh, late_rows *late,
                          BIAS_PARAMETER EPILOGUE_PARAMETERS global ELEMENT(C_TYPE) *c, const private matmul_args *a)
{
    const int width = PANEL, whole_steps = (even ? steps : steps - 1) / AMX_WORDS * AMX_WORDS;
    int i = 0;

    AMX_SUMS_BEGIN(amx, sum, width, rows, fresh);
    if (rows >= 2 * AMX_ROWS)
        for (; i < whole_steps; i += AMX_WORDS) {
            AMX_STEP(STREAMED_ROWS, WHOLE_LANES);
            store_late(late, LATE_ROWS, BIAS_ARGUMENT EPILOGUE_ARGUMENTS c, a);
        }
    for (; i < steps; i += AMX_WORDS) {
        const int words = min(AMX_WORDS, steps - i), whole = even || i + words < steps;
        AMX_STEP(ANY_ROWS, ANY_LANES);
    }
    store_late(late, ROWS, BIAS_ARGUMENT EPILOGUE_ARGUMENTS c, a);
    AMX_SUMS_END(amx, sum, width, rows);
}
#endif

/* Takes a panel of matmul_pack's and a column of register tiles. */
kernel void matmul_cpu(const global ELEMENT(ROW_TYPE) *source, const global packed_element *packed,
                       BIAS_PARAMETER EPILOGUE_PARAMETERS global ELEMENT(C_TYPE) *c, matmul_args a)
{
    if (a.batch == 0)
        return;

    const side rows = row_side(&a), lanes = lane_side(&a);
    const long panel = get_group_id(0), batch = get_group_id(2);
    const long panels = (lanes.count + PANEL - 1) / PANEL;
    const int row0 = (int)get_group_id(1) * BLOCK;
    const int lane0 = (int)panel * PANEL;
    const int row_count = min(BLOCK, rows.count - row0);
    const int lane_count = min(PANEL, lanes.count - lane0);
    const long row_k = ROW_UNIT ? 1 : rows.k_stride;
    const int steps = STEPS(a.k);
    const global ELEMENT(ROW_TYPE) *in = source + rows.offset + batch * rows.batch;
    const global packed_element *lane_panel =
        packed + a.packed_offset + ((lanes.batch ? batch * panels : 0) + panel) * steps * PANEL;
    /* Rows of C are stored with the tile that ends them, while the next one's products go on; squares, by all tiles. */
    const int by_rows = C_LANE_STEP(a) == 1;
    /* The sums, between blocks of k and until they are stored: float, whatever C holds. */
    floatv state[BLOCK * LANE_VECTORS];
#if AMX
    amx_state amx;
    amx_copy copy;
    late_rows late = {0};
    AMX_BEGIN(&amx);
#else
    floatv zeros[ROWS * LANE_VECTORS];
    for (int i = 0; i < ROWS * LANE_VECTORS; i++)
        zeros[i] = (floatv)0.0f;
#endif

    int i0 = 0;
    do {
        const int depth = min(DEPTH, steps - i0), whole = min(depth, a.k / K_STEP - i0);
        const int last = i0 + depth == steps;
        /* Sums of tiles that are stored at once: two places, which stay in the level-1 cache. */
        const int in_turn = AMX && by_rows && last && i0 == 0;

        for (int t = 0; t < row_count; t += ROWS) {
          private
            floatv *sum = state + (in_turn ? t % (2 * ROWS) : t) * LANE_VECTORS;
#if AMX
            tile_products(&amx, &copy, (float *)sum, in + (row0 + t) * rows.stride + (long)i0 * K_STEP, rows.stride,
                          row_count - t, lane_panel + (long)i0 * PANEL, depth, whole == depth, i0 == 0, &late,
                          BIAS_ARGUMENT EPILOGUE_ARGUMENTS c, &a);
#else
            /* By address: Oclgrind 21.10 applies a scalar condition to the first lane of a vector only. */
            const private floatv *before = i0 ? sum : zeros;
            floatv acc[ROWS][LANE_VECTORS];
            const global ELEMENT(ROW_TYPE) *p[ROWS];
            const global packed_element *q = lane_panel + (long)i0 * PANEL;

#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                /* Repeating the last row keeps the products free of conditions. */
                p[r] = in + min(row0 + t + r, rows.count - 1) * rows.stride + (long)i0 * K_STEP * row_k;
#pragma unroll
                for (int v = 0; v < LANE_VECTORS; v++)
                    acc[r][v] = before[r * LANE_VECTORS + v];
            }
#if AHEAD || ONWARD || COPY_ROWS
#if AHEAD
            const int near = min(whole, AHEAD);
            const long onward = BYTES(ROW_TYPE, ROWS * rows.stride - whole * (long)K_STEP);
#endif
#if ONWARD
            /* Behind a block lies the panel's next one, and behind the last the next item's panel. */
            const size_t behind = (size_t)(q + ((long)depth + (long)(t / ROWS) * depth / TILES) * PANEL);
#endif

            for (int i = 0; i < whole; i += LINE) {
#if AHEAD
                const long there = BYTES(ROW_TYPE, (long)(i + near) * K_STEP) + (i + near < whole ? 0 : onward);

#pragma unroll
                for (int r = 0; r < ROWS; r++)
                    PREFETCH((size_t)p[r] + there);
#endif
#if ONWARD
#pragma unroll
                for (int line = 0; line < LINE * PANEL / TILES * 4; line += 64)
                    PREFETCH_SECOND(behind + (long)i * (PANEL * 4) / TILES + line);
#endif
#if COPY_ROWS
                float line[ROWS][LINE];
                const int count = min(LINE, whole - i);
                row_steps rows_of_line[ROWS];

                copy_lines(line, p, i, count);
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                    rows_of_line[r] = line[r];
                add_products(acc, rows_of_line, q + i * PANEL, 0, count, row_k, 1);
#else
                add_products(acc, p, q, i, min(whole, i + LINE), row_k, 1);
#endif
            }
#else
            add_products(acc, p, q, 0, whole, row_k, 1);
#endif
#if K_STEP > 1
            add_products(acc, p, q, whole, depth, row_k, 0);
#endif
#endif
#if AMX
            if (last && by_rows) {
                late = (late_rows){(private floatv(*)[LANE_VECTORS])sum,
                                   {batch, row0 + t, min(ROWS, row_count - t), lane0, lane_count}};
                continue;
            }
#elif PLAIN_SUMS
            if (last && by_rows && lane_count == PANEL) {
                store_sums(acc, BIAS_ARGUMENT c, &a, (place){batch, row0 + t, min(ROWS, row_count - t), lane0, PANEL});
                continue;
            }
#endif
#if !AMX
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int v = 0; v < LANE_VECTORS; v++)
                    sum[r * LANE_VECTORS + v] = acc[r][v];
#endif
            const int ended = by_rows ? t : 0; /* the first row that is not stored yet */

            if (last && (by_rows || t + ROWS >= row_count))
                finish(by_rows ? sum : state, BIAS_ARGUMENT EPILOGUE_ARGUMENTS c, &a,
                       (place){batch, row0 + ended, min(t + ROWS, row_count) - ended, lane0, lane_count});
        }
        i0 += DEPTH;
    } while (i0 < steps);
#if AMX
    store_late(&late, ROWS, BIAS_ARGUMENT EPILOGUE_ARGUMENTS c, &a);
    AMX_END(&amx);
#endif
}
