/* Matrix product for CPU devices: one work-item a group, explicit vectors, register tiles, no barriers.
 *
 *   C[b,i,j] = sum_k A[b,i,k] * B[b,k,j]  (+ bias[j])  (and what matmul/epilogue.h says)
 *
 * One of the two operands, the *lane operand*, runs across vector lanes: B with lanes = columns of C, or A with lanes = rows
 * of C (LANES_ALONG_M).  matmul_pack (matmul/cpu/pack.h) copies it into panels once; matmul_cpu then multiplies the other
 * one, the *row operand*, into them, element by element in its own layout.  "Row" below is an index of the row operand and
 * "lane" one of the lane operand, whichever of i and j that is.
 *
 *          k ->                      lane ->  | LANES |  LANE_VECTORS of these  |
 *        +---------+                +-----------------+
 *   row  | element |  x         k   |  vector  vector |  a panel, packed:        An item owns TILES register tiles, one
 *    |   |    .    |            |   |  vector  vector |  PANEL lanes of one k    below the other, and goes over DEPTH
 *    v   |    .    | ROWS       v   |    ...     ...  |  are neighbours          steps of k in all of them before it
 *        +---------+                +-----------------+                          takes the next DEPTH.
 *        | the next tile            one step: acc[row][vector] += element * vector
 *
 * Layouts: matmul/types.h; packed: matmul/cpu/pack.h.
 *
 * Arguments: matmul_cpu(row operand, packed, [bias], [b_scale], [operand], c, matmul_args)
 *
 *   macro           meaning                                          allowed         tested
 *   A_TYPE, B_TYPE, C_TYPE, BIAS_TYPE   storage types; B also I8     F32 F16 BF16    each, and mixed
 *   BIAS            whether there is a bias                          0, 1            both
 *   MATMUL_EPILOGUE ...   matmul/epilogue.h                                          each
 *   LANES_ALONG_M   0: B is the lane operand; 1: A is                0, 1            both
 *   ROW_UNIT        1: the row operand's stride along k is 1         0, 1            both
 *                   (a.a.col, or a.b.row with LANES_ALONG_M)
 *   PAIRS           1: steps are pairs of bfloat16                   0, 1            both
 *                   (matmul/cpu/product.h); A and B are BF16, and ROW_UNIT is 1
 *   X86_BF16        1: pairs are multiplied by an instruction        0, 1            both
 *                   (engine/x86/bf16.h)
 *   LANES           floats a vector (lib/vector.h)                   4, 8, 16        all
 *   LANE_VECTORS    vectors across a register tile                   1 and up        1 2 3 4
 *   ROWS            rows of a register tile                          1 and up        4 6 8 12 13 14
 *   TILES           the most register tiles of an item               1 and up        1 8 12 16
 *   DEPTH           steps between two tiles                          1 and up        64 128 256 512 2048 4096
 *   PREFETCH_DISTANCE   steps by which rows are prefetched; beyond a block's end the next tile's rows are.  0: none.
 *                   Needs ROW_UNIT, and a compiler that has __builtin_prefetch       0 and up   0 256
 *   PREFETCH_PANEL  1: each tile prefetches its share of the panel's next block.     0, 1       both
 *                   Not with PAIRS; needs a compiler that has __builtin_prefetch
 *   PACK_DEPTH      matmul/cpu/pack.h                                multiples of 16 64 256
 * The accumulators, ROWS*LANE_VECTORS vectors, and LANE_VECTORS + 1 more must fit the registers: 6 x 4 uses 29 of 32, 6 x 2
 * uses 15 of 16.  Tiles have few rows because the rows' addresses need general registers, and because at a row stride that
 * is a multiple of 4 KiB their lines share one set of the level-1 cache, often of 8 ways: 12 x 2 is as fast at k = 512 and
 * 7 % slower at k = 4096.
 *
 * NDRange, groups of one item: 0 panels, 1 ceil(rows/(ROWS*TILES)), 2 the batch.  Panels are the fastest dimension, so that
 * neighbouring items read the same rows, which by then lie in the level-2 cache.
 * Ownership: an item owns at most ROWS*TILES rows times PANEL lanes of C.
 * Private memory: 4*ROWS*(TILES + 1)*PANEL bytes of sums (13.5 KiB by default with 16 lanes).  Local memory: none.
 * Barriers: none.
 * Accumulator: float, one chain of fma for each element in rising k, or, with PAIRS, in the order 1, 0, 3, 2 ...; neither the
 * tile nor LANES_ALONG_M changes a bit of the result.  Then the bias; rounded once on storing.  k = 0 gives the bias or +0.
 * There is no masked value; rows beyond the last one repeat it, and are not stored.
 * Features: OpenCL C 1.2 only.  Devices with work-group hardware are better served by matmul_tile, processors with AMX by
 * matmul/cpu/amx.cl. */
#include "matmul/args.h"
#include "matmul/epilogue.h"
#include "matmul/types.h"

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
#ifndef PREFETCH_DISTANCE
#define PREFETCH_DISTANCE 0
#endif
#ifndef PREFETCH_PANEL
#define PREFETCH_PANEL 0
#endif
#ifndef PAIRS
#define PAIRS 0
#endif

#if ROW_UNIT != 0 && ROW_UNIT != 1
#error "ROW_UNIT must be 0 or 1"
#endif
#if (PREFETCH_DISTANCE || PAIRS) && !ROW_UNIT
#error "PREFETCH_DISTANCE and PAIRS need ROW_UNIT"
#endif
#if PREFETCH_PANEL && PAIRS
#error "PREFETCH_PANEL is for products of float"
#endif
#if ROWS < 1 || TILES < 1 || DEPTH < 1
#error "ROWS, TILES and DEPTH must be at least 1"
#endif

#include "matmul/cpu/pack.h"
#include "matmul/cpu/store.h"

#define LINE (64 / BYTES(ROW_TYPE, K_STEP)) /* steps of a row in one cache line */
#define COPY_ROWS (ROW_UNIT && !PAIRS && !IS_F32(ROW_TYPE))

/* What a tile multiplies in a block of k. */
typedef struct tile_operands {
    const global ELEMENT(ROW_TYPE) *row[ROWS];
    const global packed_element *panel;
    long row_k;        /* from one k of a row to the next */
    long next_rows;    /* bytes from a row's end in this block to the next tile's row */
    size_t next_panel; /* the address of what this tile prefetches of the panel */
    int parts;         /* how many of the block's TILES parts this tile prefetches */
    long part_bytes;
} tile_operands;

#if COPY_ROWS
typedef const private float *row_steps;
#define ROW_STEP(p, i, stride, whole) ((p)[i])

/* Converts a line of each row to floats, once for all lanes; it has `count` steps. */
INLINE void copy_lines(float line[ROWS][LINE], const private tile_operands *t, int i, int count)
{
    if (count == LINE) {
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int l = 0; l < LINE; l += LANES)
                STORE_WHOLE(private whole_floatv, line[r] + l, LOADV(ROW_TYPE, t->row[r], i + l));
    } else {
        for (int r = 0; r < ROWS; r++)
            for (int l = 0; l < count; l++)
                line[r][l] = LOAD(ROW_TYPE, t->row[r], i + l);
    }
}
#else
typedef const global ELEMENT(ROW_TYPE) *row_steps;
#define ROW_STEP(p, i, stride, whole) STEP_OF(ROW_TYPE, (p) + (i) * K_STEP * (stride), stride, whole)
#endif

/* Adds the products of steps from <= i < to of rows p and panel q; the second half of the last one is 0 unless `whole`. */
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

/* Adds the products of steps from <= i < to, at most a line, all of them whole. */
INLINE void add_line(floatv acc[ROWS][LANE_VECTORS], const private tile_operands *t, int from, int to)
{
#if COPY_ROWS
    float line[ROWS][LINE];
    row_steps rows_of_line[ROWS];

    copy_lines(line, t, from, to - from);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        rows_of_line[r] = line[r];
    add_products(acc, rows_of_line, t->panel + from * PANEL, 0, to - from, 1, 1);
#else
    add_products(acc, t->row, t->panel, from, to, t->row_k, 1);
#endif
}

/* While line i of a block of `whole` steps is multiplied. */
INLINE void prefetch(const private tile_operands *t, int i, int whole)
{
#if PREFETCH_DISTANCE
    const int distance = min(whole, PREFETCH_DISTANCE);
    const long ahead = BYTES(ROW_TYPE, (long)(i + distance) * K_STEP) + (i + distance < whole ? 0 : t->next_rows);

#pragma unroll
    for (int r = 0; r < ROWS; r++)
        PREFETCH((size_t)t->row[r] + ahead);
#endif
#if PREFETCH_PANEL
    for (int part = 0; part < t->parts; part++)
#pragma unroll
        for (int byte = 0; byte < LINE * PANEL / TILES * 4; byte += 64)
            PREFETCH_SECOND(t->next_panel + part * t->part_bytes + (long)i * (PANEL * 4) / TILES + byte);
#endif
}

/* Adds a block's products: `depth` steps, of which the first `whole` are whole. */
INLINE void multiply_tile(floatv acc[ROWS][LANE_VECTORS], const private tile_operands *t, int depth, int whole)
{
#if PREFETCH_DISTANCE || PREFETCH_PANEL || COPY_ROWS
    for (int i = 0; i < whole; i += LINE) {
        prefetch(t, i, whole);
        add_line(acc, t, i, min(whole, i + LINE));
    }
#else
    add_products(acc, t->row, t->panel, 0, whole, t->row_k, 1);
#endif
#if K_STEP > 1
    add_products(acc, t->row, t->panel, whole, depth, t->row_k, 0);
#endif
}

INLINE void load_sums(floatv acc[ROWS][LANE_VECTORS], const private floatv *sums)
{
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int v = 0; v < LANE_VECTORS; v++)
            acc[r][v] = sums[r * LANE_VECTORS + v];
}

INLINE void save_sums(private floatv *sums, const private floatv acc[ROWS][LANE_VECTORS])
{
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int v = 0; v < LANE_VECTORS; v++)
            sums[r * LANE_VECTORS + v] = acc[r][v];
}

ITEM_FUNCTION multiply(const global ELEMENT(ROW_TYPE) *source, const global packed_element *packed,
                       EPILOGUE_PARAMETERS global ELEMENT(C_TYPE) *c, matmul_args a, long panel, int row_group,
                       long batch)
{
    const operand_layout rows = row_operand(&a), lanes = lane_operand(&a);
    const destination to = {&a, c, EPILOGUE_ARGUMENTS};
    const long panels = (lanes.count + PANEL - 1) / PANEL;
    /* Row groups have numbers of tiles that differ by one at the most. */
    const int tiles = (rows.count + ROWS - 1) / ROWS, share = tiles / a.part.groups[1];
    const int more = tiles - share * a.part.groups[1], tile0 = row_group * share + min(row_group, more);
    const int row0 = tile0 * ROWS, lane0 = (int)panel * PANEL;
    const int own_tiles = share + (row_group < more ? 1 : 0), row_count = min(own_tiles * ROWS, rows.count - row0);
    const int lane_count = min(PANEL, lanes.count - lane0);
    const long row_k = ROW_UNIT ? 1 : rows.k_stride;
    const int steps = STEPS(a.k);
    const global ELEMENT(ROW_TYPE) *in = source + rows.offset + batch * rows.batch;
    const global packed_element *lane_panel =
        packed + a.packed_offset + ((lanes.batch ? batch * panels : 0) + panel) * steps * PANEL;
    /* If C's lanes are neighbours, a tile is stored as soon as it is finished; otherwise squares of all tiles are stored. */
    const int by_rows = C_LANE_STEP(a) == 1;
    /* The sums, between blocks of k and until they are stored: float, whatever C holds. */
    floatv sums[ROWS * TILES * LANE_VECTORS], zeros[ROWS * LANE_VECTORS];
    const int parts = TILES / max(own_tiles, 1); /* so that few tiles prefetch a whole block, too */
    int i0 = 0;

    for (int i = 0; i < ROWS * LANE_VECTORS; i++)
        zeros[i] = (floatv)0.0f;
    do {
        const int depth = min(DEPTH, steps - i0), whole = min(depth, a.k / K_STEP - i0);
        const int last = i0 + depth == steps;

        for (int t = 0; t < row_count; t += ROWS) {
          private
            floatv *sum = sums + t * LANE_VECTORS;
            floatv acc[ROWS][LANE_VECTORS];
            tile_operands operands;

            operands.panel = lane_panel + (long)i0 * PANEL;
            operands.row_k = row_k;
            operands.next_rows = BYTES(ROW_TYPE, ROWS * rows.stride - whole * (long)K_STEP);
            /* Behind a block lies the panel's next one, and behind the last block the next item's panel. */
            operands.parts = parts;
            operands.part_bytes = (long)depth * PANEL * 4 / TILES;
            operands.next_panel =
                (size_t)(operands.panel + (long)depth * PANEL) + (t / ROWS) * parts * operands.part_bytes;
#pragma unroll
            for (int r = 0; r < ROWS; r++) /* repeating the last row keeps the products free of conditions */
                operands.row[r] = in + min(row0 + t + r, rows.count - 1) * rows.stride + (long)i0 * K_STEP * row_k;
            /* The condition chooses an address because Oclgrind 21.10 applies it to the first lane of a vector only. */
            load_sums(acc, i0 ? sum : zeros);
            multiply_tile(acc, &operands, depth, whole);
#if PLAIN_SUMS
            if (last && by_rows && lane_count == PANEL && !HAS_ACTIVATION(a) && !HAS_OPERAND(a)) {
                store_sums(acc, to, (place){batch, row0 + t, min(ROWS, row_count - t), lane0, PANEL});
                continue;
            }
#endif
            save_sums(sum, acc);
            if (last && (by_rows || t + ROWS >= row_count)) {
                const int first = by_rows ? t : 0;

                finish(sums + first * LANE_VECTORS, to,
                       (place){batch, row0 + first, min(t + ROWS, row_count) - first, lane0, lane_count});
            }
        }
        i0 += DEPTH;
    } while (i0 < steps);
}

kernel void matmul_cpu(const global ELEMENT(ROW_TYPE) *source, const global packed_element *packed,
                       EPILOGUE_PARAMETERS global ELEMENT(C_TYPE) *c, matmul_args a)
{
    if (a.batch != 0)
        multiply(source, packed, EPILOGUE_ARGUMENTS c, a, group_id(&a.part, 0), (int)group_id(&a.part, 1),
                 group_id(&a.part, 2));
}
