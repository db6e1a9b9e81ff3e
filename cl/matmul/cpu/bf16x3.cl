/* Matrix product of float32, float16 and mixtures by AMX's products of bfloat16: each element is split into up to three
 * bfloat16, its terms (lib/bf16x3.h).
 *
 *   C[b,i,j] = sum_k A[b,i,k] * B[b,k,j]  (+ bias[j])  (and what matmul/epilogue.h says)
 *
 * Rows, lanes and the two operands are matmul/cpu/packed.cl's; here both operands are copied.
 *
 *                         a block: 32 k of 32 rows                   a block: 32 k of 32 lanes
 *                       +--------+                                 +--------+--------+
 *      term 0   2 tiles | 16 x 16|   row i: word x holds           | 16 x 16| 16 x 16|   row x: word j holds k = x and
 *                       | words  |   k = x and x + 16              | words  | words  |   x + 16 of lane j
 *                       +--------+                                 +--------+--------+
 *      term 1   2 tiles |  ...   |                                 |  ...   |  ...   |
 *      term 2   2 tiles |  ...   |                                 |  ...   |  ...   |
 *                        local memory, made by the item             workspace, made by matmul_split
 *
 * Elements that the terms cannot hold are summed as matmul_cpu sums them, by a chain of fma from A and B themselves: every
 * element of C whose row of A and column of B have greatest magnitudes for which IS_BEYOND holds.  For the others a term, or
 * a product of terms, below 2^-126 counts as 0.
 *
 * Layouts
 *   A, B, C, bias   matmul/types.h's
 *   terms           at terms[a.packed_offset]: panels of 32 lanes, all items' one behind the other, each of ceil(k/32)
 *                   blocks of six AMX tiles of 16 x 16 words: two of term 0, two of term 1, two of term 2.  Word j of a
 *                   tile's row x is lane j, or 16 + j in the second tile of each two, and has k = x in its lower half and
 *                   x + 16 in its upper one.  Lanes and k beyond the last ones are 0.  Blocks of rows in local memory have
 *                   row i of a tile for a row, and word x for k = x and x + 16
 *   peaks           behind them, for each panel ceil(blocks/SPLIT_BLOCKS) times 32: the greatest magnitudes of its lanes in
 *                   that many blocks, as bits
 *   The lane operand's batch is 1 if its batch stride is 0, else the batch.
 *   Workspace: panels of all items * 4 * (1536 * ceil(k/32) + 32 * ceil(ceil(k/32)/SPLIT_BLOCKS)) bytes.
 *
 * Arguments: matmul_split(lane operand, terms, matmul_args)
 *            matmul_cpu_bf16x3(row operand, lane operand, terms, [bias], [operand], c, matmul_args)
 *
 *   macro           meaning                                          allowed         tested
 *   A_TYPE, B_TYPE, C_TYPE, BIAS_TYPE   storage types                F32 F16 BF16    each, and mixed
 *   BIAS            whether there is a bias                          0, 1            both
 *   MATMUL_EPILOGUE ...   matmul/epilogue.h; B_SCALED is 0                           each
 *   LANES_ALONG_M   0: B is the lane operand; 1: A is                0, 1            both
 *   X86_AMX         1: by the instructions (engine/x86/amx.h)        0, 1            both
 *   LANES           floats a vector (lib/vector.h)                   4, 8, 16        all
 *   TILES           tiles of an item, one below the other            1 to 32         1 2 4 8
 *   GROUP           panels of an item                                1 and up        1 2 4 8 16
 *   DEPTH           blocks of rows that are split at a time          1 and up        1 2 4 8 16
 *   DEEP            whether there may be more than DEPTH blocks      0, 1            both
 *   PREFETCH_PANEL  1: each tile prefetches its share of the next panel    0, 1      both
 *                   (needs a compiler that has __builtin_prefetch)
 *   SPLIT_BLOCKS    blocks that an item of matmul_split makes        1 and up        8
 *
 * NDRange, groups of one item:
 *   matmul_split        0 panels, 1 ceil(blocks/SPLIT_BLOCKS), 2 the lane operand's batch; not launched if k is 0
 *   matmul_cpu_bf16x3   0 ceil(panels/GROUP), 1 ceil(rows/(32*TILES)), 2 the batch
 * Ownership: an item of matmul_cpu_bf16x3 owns 32*TILES rows times 32*GROUP lanes of C.
 * Local memory: 6 KiB * TILES * DEPTH for terms and, with DEEP, 4 KiB * TILES * GROUP for sums; a work-group has one item,
 * so that local memory is that item's own, and PoCL leaves it in the same place from item to item: in the second-level cache.
 * Private memory: 12 KiB.  Barriers: none.
 * Accumulator: float; a product of tiles adds 16 products of lower and 16 of upper halves, each in a chain, and the sum of
 * both to the accumulator, rounded to nearest even.  The geometry does not change a bit of the result.  k = 0 gives the bias
 * or +0.
 * Features: OpenCL C 1.2 only. */
#include "matmul/args.h"

#ifndef LANES_ALONG_M
#define LANES_ALONG_M 0
#endif
#ifndef TILES
#define TILES 4
#endif
#ifndef GROUP
#define GROUP 4
#endif
#ifndef DEPTH
#define DEPTH 16
#endif
#ifndef DEEP
#define DEEP 1
#endif
#ifndef PREFETCH_PANEL
#define PREFETCH_PANEL 0
#endif
#ifndef SPLIT_BLOCKS
#define SPLIT_BLOCKS 8
#endif

#if LANES_ALONG_M != 0 && LANES_ALONG_M != 1 || DEEP != 0 && DEEP != 1
#error "LANES_ALONG_M and DEEP must be 0 or 1"
#endif
#if TILES < 1 || TILES > 32 || GROUP < 1 || DEPTH < 1 || SPLIT_BLOCKS < 1
#error "TILES must be 1 to 32, GROUP, DEPTH and SPLIT_BLOCKS at least 1"
#endif

#define PAIRS 0
#define PANEL 32 /* rows or lanes */
#define ROWS PANEL
#define LANE_VECTORS (PANEL / LANES)

#include "engine/x86/amx_sums.h"
#include "lib/bf16x3.h"
#include "matmul/cpu/store.h"

/* Panels of one item of the batch and of all, blocks of k, and chunks of SPLIT_BLOCKS blocks. */
typedef struct split_shape {
    long panels, all;
    int blocks, chunks;
} split_shape;

static inline split_shape shape_of(const private matmul_args *a, operand_layout lanes)
{
    split_shape s;

    s.panels = (lanes.count + PANEL - 1) / PANEL;
    s.all = s.panels * (lanes.batch ? a->batch : 1);
    s.blocks = a->k / BLOCK_K + (a->k % BLOCK_K != 0);
    s.chunks = (s.blocks + SPLIT_BLOCKS - 1) / SPLIT_BLOCKS;
    return s;
}

/* Defines how an operand of a storage type is read.
 *
 * name_square: reads a square: vector l is row l, whose elements lie `col` apart.  `rows` rows and `columns` elements of each
 * exist; the rest is 0.
 * name: reads LANES indices from p on times LANES k twice, the second ones BLOCK_K / 2 on.  `count` indices and `ks` k exist.
 * A vector is an index, along k, if `along_k`, else a k, along the indices; memory is read along the dimension whose
 * elements are neighbours, and the square transposed if that is the other one. */
#define DEFINE_LOAD_OPERAND(name, TYPE) \
    INLINE void name##_square(floatv *x, const global ELEMENT(TYPE) *p, long row, long col, int rows, int columns) \
    { \
        if (rows >= LANES && columns >= LANES && col == 1) { \
            _Pragma("unroll") \
            for (int l = 0; l < LANES; l++) \
                x[l] = LOADV(TYPE, p, l * row); \
        } else { \
            for (int l = 0; l < LANES; l++) \
                LOAD_ROW(TYPE, x[l], p, l *row, col, l < rows ? columns : 0, 0.0f); \
        } \
    } \
    INLINE void name(floatv x[2][LANES], const global ELEMENT(TYPE) *p, operand_layout s, int count, int ks, \
                     int along_k) \
    { \
        const int read_along_k = s.k_stride == 1 ? along_k || s.stride != 1 : along_k && s.stride != 1; \
        const long row = read_along_k ? s.stride : s.k_stride, col = read_along_k ? s.k_stride : s.stride; \
\
        for (int i = 0; i < 2; i++) { \
            floatv y[LANES]; \
\
            name##_square(y, p, row, col, read_along_k ? count : ks, read_along_k ? ks : count); \
            if (read_along_k != along_k) \
                transpose(y); \
            _Pragma("unroll") \
            for (int l = 0; l < LANES; l++) \
                x[i][l] = y[l]; \
            p += BLOCK_K / 2 * s.k_stride; \
            ks -= BLOCK_K / 2; \
        } \
    }
DEFINE_LOAD_OPERAND(load_lanes, LANE_TYPE)
DEFINE_LOAD_OPERAND(load_rows, ROW_TYPE)

kernel void matmul_split(const global ELEMENT(LANE_TYPE) *source, global uint *terms, matmul_args a)
{
    if (a.batch == 0)
        return;

    const operand_layout s = lane_operand(&a);
    const split_shape shape = shape_of(&a, s);
    const long panel = group_id(&a.part, 0), batch = group_id(&a.part, 2), number = batch * shape.panels + panel;
    const int chunk = (int)group_id(&a.part, 1), count = min(PANEL, s.count - (int)panel * PANEL);
    const int from = chunk * SPLIT_BLOCKS, to = min(shape.blocks, from + SPLIT_BLOCKS);
    const global ELEMENT(LANE_TYPE) *in = source + s.offset + batch * s.batch + panel * PANEL * s.stride;
    global uint *const blocks = terms + a.packed_offset + number * shape.blocks * BLOCK_WORDS;
    global uint *const own_peaks =
        terms + a.packed_offset + shape.all * shape.blocks * BLOCK_WORDS + (number * shape.chunks + chunk) * PANEL;

    for (int j = 0; j < PANEL; j += LANES) {
        floatv peak = (floatv)0.0f;

        for (int block = from; block < to; block++)
            for (int i = 0; i < BLOCK_K / 2; i += LANES) {
                const int k = block * BLOCK_K + i;
                const global ELEMENT(LANE_TYPE) *p = in + j * s.stride + k * s.k_stride;
                global uint *tile = blocks + (long)block * BLOCK_WORDS + j / AMX_WORDS * TILE_WORDS + j % AMX_WORDS;
                floatv x[2][LANES];

                load_lanes(x, p, s, count - j, a.k - k, 0);
                for (int l = 0; l < LANES; l++) {
                    uintv term[TERMS];

                    peak = greater_magnitude(greater_magnitude(peak, x[0][l]), x[1][l]);
                    split(term, x[0][l], x[1][l], TERMS_OF(LANE_TYPE));
#pragma unroll
                    for (int n = 0; n < TERMS_OF(LANE_TYPE); n++)
                        STORE_WHOLE(global whole_uintv, tile + n * 2 * TILE_WORDS + (i + l) * AMX_WORDS, term[n]);
                }
            }
        STORE_WHOLE(global whole_uintv, own_peaks + j, AS_UINTV(peak));
    }
}

/* Splits `count` rows from p on, k of them, into blocks; raises `peak` to each row's greatest magnitude. */
static void split_rows(local uint *tile, const global ELEMENT(ROW_TYPE) *p, operand_layout s, int count, int k,
                       private uint *peak)
{
    for (int i = 0; i < PANEL; i += LANES) {
        floatv most[LANES];

        for (int l = 0; l < LANES; l++)
            most[l] = (floatv)0.0f;
        for (int k0 = 0; k0 < k; k0 += BLOCK_K)
            for (int j = 0; j < BLOCK_K / 2; j += LANES) {
                const global ELEMENT(ROW_TYPE) *in = p + i * s.stride + (k0 + j) * s.k_stride;
                local uint *out = tile + k0 / BLOCK_K * BLOCK_WORDS + i * AMX_WORDS + j;
                floatv x[2][LANES];

                load_rows(x, in, s, count - i, k - k0 - j, 1);
                for (int l = 0; l < LANES; l++) {
                    uintv term[TERMS];

                    most[l] = greater_magnitude(greater_magnitude(most[l], x[0][l]), x[1][l]);
                    split(term, x[0][l], x[1][l], TERMS_OF(ROW_TYPE));
#pragma unroll
                    for (int n = 0; n < TERMS_OF(ROW_TYPE); n++)
                        STORE_WHOLE(local whole_uintv, out + n * 2 * TILE_WORDS + l * AMX_WORDS, term[n]);
                }
            }
        for (int l = 0; l < LANES * LANES; l++)
            peak[i + l / LANES] = max(peak[i + l / LANES], as_uint(((const private float *)most)[l]));
    }
}

/* Where an operand of a tile lies, and how much of it exists. */
typedef struct tile_rows {
    const global ELEMENT(ROW_TYPE) *p;
    operand_layout layout;
    int count;
} tile_rows;

typedef struct tile_lanes {
    const global ELEMENT(LANE_TYPE) *p;
    operand_layout layout;
    int count;
} tile_lanes;

/* Replaces those sums of a tile that terms do not hold, by k products of the operands themselves. */
static void sum_exactly(private floatv *sum, const private uint *row_peak, const private uintv *lane_peak,
                        tile_rows rows, tile_lanes lanes, int k)
{
    floatv exact[ROWS * LANE_VECTORS];
    intv beyond[ROWS * LANE_VECTORS];
    int row_beyond[ROWS];

    for (int r = 0; r < rows.count; r++) {
        row_beyond[r] = 0;
        for (int v = 0; v < LANE_VECTORS; v++) {
            const uintv x = (uintv)row_peak[r], y = lane_peak[v];

            beyond[r * LANE_VECTORS + v] = IS_BEYOND(x, y);
            row_beyond[r] |= any(beyond[r * LANE_VECTORS + v]);
            exact[r * LANE_VECTORS + v] = (floatv)0.0f;
        }
    }
    for (int i = 0; i < k; i++)
        for (int v = 0; v < LANE_VECTORS; v++) {
            floatv y;

            LOAD_ROW(LANE_TYPE, y, lanes.p + i * lanes.layout.k_stride, v * LANES * lanes.layout.stride,
                     lanes.layout.stride, lanes.count - v * LANES, 0.0f);
            for (int r = 0; r < rows.count; r++)
                if (row_beyond[r])
                    exact[r * LANE_VECTORS + v] =
                        FMA((floatv)LOAD(ROW_TYPE, rows.p, r * rows.layout.stride + i * rows.layout.k_stride), y,
                            exact[r * LANE_VECTORS + v]);
        }
    for (int i = 0; i < rows.count * LANE_VECTORS; i++)
        sum[i] = select(sum[i], exact[i], beyond[i]);
}

#define DEFERRED_ROWS 2 /* rows of the tile before that are stored in each block: the processor has time for so many */
#define LANE_TILE(term, which) (q + ((term) * 2 + (which)) * TILE_WORDS)
#define PREFETCH_BYTES ((BLOCK_WORDS * 4 + TILES - 1) / TILES)

/* Adds the products of `blocks` blocks of rows from p and of lanes from q on, and stores what the tile before has left;
 * `next` is the address of what this tile prefetches of the next panel. */
INLINE void add_blocks(amx_state *amx, const local uint *p, const global uint *q, size_t next, int blocks,
                       deferred_rows *deferred, destination to)
{
    for (int i = 0; i < blocks; i++, p += BLOCK_WORDS, q += BLOCK_WORDS, next += PREFETCH_BYTES) {
#if PREFETCH_PANEL
#pragma unroll
        for (int byte = 0; byte < PREFETCH_BYTES; byte += 64)
            PREFETCH_SECOND(next + byte);
#endif
        ADD_PARTS(amx, p, TERMS_OF(ROW_TYPE), LANE_TILE, TERMS_OF(LANE_TYPE), AMX_WORDS);
        store_deferred(deferred, DEFERRED_ROWS, to);
    }
    store_deferred(deferred, ROWS, to);
}

/* The greatest and the least of a tile's rows' peaks, and of a panel's lanes'. */
INLINE peaks peaks_of(const private uint *each)
{
    peaks all = NO_PEAKS;

    for (int i = 0; i < PANEL; i++)
        all = with_peak(all, each[i]);
    return all;
}

kernel void matmul_cpu_bf16x3(const global ELEMENT(ROW_TYPE) *source, const global ELEMENT(LANE_TYPE) *lane_source,
                              const global uint *terms, EPILOGUE_PARAMETERS global ELEMENT(C_TYPE) *c, matmul_args a)
{
    local uint row_parts[TILES * DEPTH * BLOCK_WORDS];
#if DEEP
    local float sums[GROUP * TILES * PANEL * PANEL];
#endif
    if (a.batch == 0)
        return;

    const operand_layout rows = row_operand(&a), lanes = lane_operand(&a);
    const destination to = {&a, c, EPILOGUE_ARGUMENTS};
    const split_shape shape = shape_of(&a, lanes);
    const long batch = group_id(&a.part, 2), panel0 = group_id(&a.part, 0) * GROUP;
    const int row0 = (int)group_id(&a.part, 1) * (ROWS * TILES), row_count = min(ROWS * TILES, rows.count - row0);
    const int tiles = (row_count + ROWS - 1) / ROWS, group = (int)min((long)GROUP, shape.panels - panel0);
    const long first_panel = (lanes.batch ? batch * shape.panels : 0) + panel0;
    const global uint *panels = terms + a.packed_offset + first_panel * shape.blocks * BLOCK_WORDS;
    const global uint *all_peaks =
        terms + a.packed_offset + shape.all * shape.blocks * BLOCK_WORDS + first_panel * shape.chunks * PANEL;
    const global ELEMENT(ROW_TYPE) *in = source + rows.offset + batch * rows.batch + row0 * rows.stride;
    const global ELEMENT(LANE_TYPE) *lane_in = lane_source + lanes.offset + batch * lanes.batch;
    floatv sum[ROWS * LANE_VECTORS]; /* of one tile; stored during the next tile's products */
    uint row_peak[TILES][ROWS];
    peaks row_peaks[TILES];
    amx_state amx;
    deferred_rows deferred = {0};
    int i0 = 0;

    for (int t = 0; t < TILES; t++)
        for (int r = 0; r < ROWS; r++)
            row_peak[t][r] = 0;
    AMX_BEGIN(&amx);
    do {
        const int depth = min(DEPTH, shape.blocks - i0), last = i0 + depth == shape.blocks;

        for (int t = 0; t < tiles; t++)
            split_rows(row_parts + t * DEPTH * BLOCK_WORDS,
                       in + t * ROWS * rows.stride + (long)i0 * BLOCK_K * rows.k_stride, rows, row_count - t * ROWS,
                       min(depth * BLOCK_K, a.k - i0 * BLOCK_K), row_peak[t]);
        for (int t = 0; t < tiles && last; t++)
            row_peaks[t] = peaks_of(row_peak[t]);
        for (int g = 0; g < group; g++) {
            const global uint *q = panels + ((long)g * shape.blocks + i0) * BLOCK_WORDS;
            const int lane0 = (int)(panel0 + g) * PANEL, lane_count = min(PANEL, lanes.count - lane0);
            uintv lane_peak[LANE_VECTORS];
            peaks lane_peaks = NO_PEAKS;

            for (int v = 0; v < LANE_VECTORS && last; v++) {
                lane_peak[v] = (uintv)0;
                for (int chunk = 0; chunk < shape.chunks; chunk++)
                    lane_peak[v] = max(lane_peak[v], VLOAD(v, all_peaks + ((long)g * shape.chunks + chunk) * PANEL));
            }
            if (last)
                lane_peaks = peaks_of((const private uint *)lane_peak);
            for (int t = 0; t < tiles; t++) {
                const int count = min(ROWS, row_count - t * ROWS);
                const place at = {batch, row0 + t * ROWS, count, lane0, lane_count};
#if DEEP
                local float *const before = sums + (g * TILES + t) * (PANEL * PANEL);

                AMX_SUMS_BEGIN(&amx, before, PANEL, ROWS, i0 == 0);
#else
                AMX_SUMS_BEGIN(&amx, (float *)sum, PANEL, ROWS, 1);
#endif
                add_blocks(&amx, row_parts + t * DEPTH * BLOCK_WORDS, q,
                           (size_t)(q + (long)shape.blocks * BLOCK_WORDS) + (size_t)t * depth * PREFETCH_BYTES, depth,
                           &deferred, to);
#if DEEP
                if (!last) {
                    AMX_SUMS_END(&amx, before, PANEL, ROWS);
                    continue;
                }
#endif
                AMX_SUMS_END(&amx, (float *)sum, PANEL, ROWS);
                if (may_be_beyond(row_peaks[t], lane_peaks))
                    sum_exactly(sum, row_peak[t], lane_peak, (tile_rows){in + t * ROWS * rows.stride, rows, count},
                                (tile_lanes){lane_in + lane0 * lanes.stride, lanes, lane_count}, a.k);
                if (C_LANE_STEP(a) == 1)
                    deferred = (deferred_rows){sum, at};
                else
                    finish(sum, to, at);
            }
        }
        i0 += DEPTH;
    } while (i0 < shape.blocks);
    store_deferred(&deferred, ROWS, to);
    AMX_END(&amx);
}
