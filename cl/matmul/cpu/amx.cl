/* Matrix product of bfloat16 by AMX: matmul/cpu/packed.cl's method with tiles of 32 x 32 sums in AMX's tile registers.
 *
 *   C[b,i,j] = sum_k A[b,i,k] * B[b,k,j]  (+ bias[j])  (and what matmul/epilogue.h says)
 *
 * Rows, lanes and the layouts of A, B and C are matmul/cpu/packed.cl's.  A word is a pair of bfloat16 of neighbouring k.
 *
 *       16 words ->              32 lanes ->
 *      +---------+            +--------+--------+        A step is 16 words, 32 k.  Register tiles 0 to 3 are sums,
 *   16 |    4    |         16 |        |        |        4 and 5 the rows, where they lie, 6 and 7 the panel:
 *      +---------+  x   words |   6    |   7    |            0 += 4 * 6     1 += 4 * 7
 *   16 |    5    |            |        |        |            2 += 5 * 6     3 += 5 * 7
 *      +---------+            +--------+--------+        An item owns TILES such squares, one below the other.
 *        rows                   packed panel
 *
 * Arguments: matmul_cpu_amx(row operand, packed, [bias], [operand], c, matmul_args)
 *
 *   macro           meaning                                          allowed         tested
 *   C_TYPE, BIAS_TYPE   storage types; A_TYPE and B_TYPE are BF16    F32 F16 BF16    each, and mixed
 *   BIAS            whether there is a bias                          0, 1            both
 *   MATMUL_EPILOGUE ...   matmul/epilogue.h; B_SCALED is 0                           each
 *   LANES_ALONG_M   0: B is the lane operand; 1: A is                0, 1            both
 *   X86_AMX         1: by the instructions (engine/x86/amx.h)        0, 1            both
 *   X86_BF16        1: sums are rounded by an instruction            0, 1            both
 *                   (engine/x86/bf16.h)
 *   LANES           floats a vector (lib/vector.h)                   4, 8, 16        all
 *   TILES           squares of an item                               1 and up        1 8 12 16
 *   DEPTH           words of k between two squares                   1 and up        64 128 256 512 2048 4096
 *   PACK_DEPTH      matmul/cpu/pack.h                                multiples of 16 64 256
 * The row operand's stride along k is 1.
 *
 * NDRange, groups of one item: 0 panels, 1 ceil(rows/(32*TILES)), 2 the batch.
 * Ownership: an item owns 32*TILES rows times 32 lanes of C.
 * Private memory: 4 KiB * (TILES + 1).  Local memory: none.  Barriers: none.
 * Accumulator: float; AMX adds even and odd k apart.  The geometry does not change a bit of the result.  Then the bias;
 * rounded once on storing.  k = 0 gives the bias or +0.  Rows beyond the last one enter as 0, and are not stored.
 * Features: OpenCL C 1.2 only; with X86_AMX the processor's. */
#define PAIRS 1
#define ROWS 32
#define LANE_VECTORS (32 / LANES)

#include "matmul/args.h"
#include "matmul/epilogue.h"
#include "matmul/types.h"

#ifndef TILES
#define TILES 16
#endif
#ifndef DEPTH
#define DEPTH 256
#endif

#if TILES < 1 || DEPTH < 1
#error "TILES and DEPTH must be at least 1"
#endif

#include "engine/x86/amx_sums.h"
#include "matmul/cpu/pack.h"
#include "matmul/cpu/store.h"

/* So many rows of the square before are stored in each step: storing them takes no longer than a step's products. */
#define DEFERRED_ROWS 2

/* A register tile's operands if they do not fill it; the rest is 0. */
typedef uint padded_tile[AMX_ROWS * AMX_WORDS];

/* `rows` rows of `words` words; the second half of each row's last word is 0 unless `whole`. */
INLINE void pad_rows(padded_tile copy, const global ushort *p, long stride, int rows, int words, int whole)
{
    for (int i = 0; i < AMX_ROWS; i++)
#pragma unroll
        for (int w = 0; w < AMX_WORDS; w++)
            copy[i * AMX_WORDS + w] =
                i < rows && w < words ? pair_at(p + i * stride + 2 * w, 1, whole || w < words - 1) : 0;
}

INLINE void pad_lanes(padded_tile copy, const global uint *p, int words)
{
    for (int x = 0; x < AMX_ROWS; x++)
#pragma unroll
        for (int j = 0; j < AMX_WORDS; j++)
            copy[x * AMX_WORDS + j] = x < words ? p[x * PANEL + j] : 0;
}

/* The operands of a square in a block of k. */
typedef struct square_operands {
    const global ushort *row; /* the first row; the others are `stride` apart */
    long stride;
    int rows;
    const global uint *panel;
    int words;
    int whole; /* 0: the second half of the last word is 0 */
} square_operands;

/* A step of 32 rows and 16 whole words from word i on.  Rows are streamed past the panel, which stays in the level-1 cache. */
INLINE void add_full_step(amx_state *amx, const private square_operands *s, int i)
{
    const global ushort *p = s->row + 2 * i;
    const global uint *q = s->panel + i * PANEL;

    AMX_STREAM(amx, 4, p, s->stride);
    AMX_LOAD_WORDS(amx, 6, q, PANEL);
    AMX_LOAD_WORDS(amx, 7, q + AMX_WORDS, PANEL);
    AMX_DOT(amx, 0, 4, 6);
    AMX_DOT(amx, 1, 4, 7);
    AMX_STREAM(amx, 5, p + AMX_ROWS * s->stride, s->stride);
    AMX_DOT(amx, 2, 5, 6);
    AMX_DOT(amx, 3, 5, 7);
}

/* A step of any number of rows and words. */
INLINE void add_step(amx_state *amx, padded_tile copy, const private square_operands *s, int i)
{
    const int words = min(AMX_WORDS, s->words - i), whole = s->whole || i + words < s->words;
    const int fills = words == AMX_WORDS && whole;
    const global ushort *p = s->row + 2 * i, *second = p + AMX_ROWS * s->stride;
    const global uint *q = s->panel + i * PANEL;

    if (s->rows >= AMX_ROWS && fills) {
        AMX_LOAD(amx, 4, p, s->stride);
    } else {
        pad_rows(copy, p, s->stride, s->rows, words, whole);
        AMX_LOAD_WORDS(amx, 4, copy, AMX_WORDS);
    }
    if (words == AMX_WORDS) {
        AMX_LOAD_WORDS(amx, 6, q, PANEL);
        AMX_LOAD_WORDS(amx, 7, q + AMX_WORDS, PANEL);
    } else {
        pad_lanes(copy, q, words);
        AMX_LOAD_WORDS(amx, 6, copy, AMX_WORDS);
        pad_lanes(copy, q + AMX_WORDS, words);
        AMX_LOAD_WORDS(amx, 7, copy, AMX_WORDS);
    }
    AMX_DOT(amx, 0, 4, 6);
    AMX_DOT(amx, 1, 4, 7);
    if (s->rows <= AMX_ROWS)
        return;
    if (s->rows >= 2 * AMX_ROWS && fills) {
        AMX_LOAD(amx, 5, second, s->stride);
    } else {
        pad_rows(copy, second, s->stride, s->rows - AMX_ROWS, words, whole);
        AMX_LOAD_WORDS(amx, 5, copy, AMX_WORDS);
    }
    AMX_DOT(amx, 2, 5, 6);
    AMX_DOT(amx, 3, 5, 7);
}

/* Adds a block's products to `sum`, or makes it their sum if `fresh`; meanwhile the processor has time to store the rows of
 * the square before. */
INLINE void multiply_square(amx_state *amx, padded_tile copy, float *sum, const private square_operands *s, int fresh,
                            deferred_rows *deferred, destination to)
{
    const int full = (s->whole ? s->words : s->words - 1) / AMX_WORDS * AMX_WORDS;
    int i = 0;

    AMX_SUMS_BEGIN(amx, sum, PANEL, s->rows, fresh);
    if (s->rows >= 2 * AMX_ROWS)
        for (; i < full; i += AMX_WORDS) {
            add_full_step(amx, s, i);
            store_deferred(deferred, DEFERRED_ROWS, to);
        }
    for (; i < s->words; i += AMX_WORDS)
        add_step(amx, copy, s, i);
    store_deferred(deferred, ROWS, to);
    AMX_SUMS_END(amx, sum, PANEL, s->rows);
}

kernel void matmul_cpu_amx(const global ELEMENT(ROW_TYPE) *source, const global packed_element *packed,
                           EPILOGUE_PARAMETERS global ELEMENT(C_TYPE) *c, matmul_args a)
{
    if (a.batch == 0)
        return;

    const operand_layout rows = row_operand(&a), lanes = lane_operand(&a);
    const destination to = {&a, c, EPILOGUE_ARGUMENTS};
    const long panel = group_id(&a.part, 0), batch = group_id(&a.part, 2);
    const long panels = (lanes.count + PANEL - 1) / PANEL;
    const int row0 = (int)group_id(&a.part, 1) * (ROWS * TILES), lane0 = (int)panel * PANEL;
    const int row_count = min(ROWS * TILES, rows.count - row0), lane_count = min(PANEL, lanes.count - lane0);
    const int steps = STEPS(a.k);
    const global ushort *in = source + rows.offset + batch * rows.batch;
    const global packed_element *lane_panel =
        packed + a.packed_offset + ((lanes.batch ? batch * panels : 0) + panel) * steps * PANEL;
    /* If C's lanes are neighbours, a finished square's rows are stored during the next square's products; otherwise squares
     * of vectors are stored in the end. */
    const int by_rows = C_LANE_STEP(a) == 1;
    floatv sums[ROWS * TILES * LANE_VECTORS]; /* between blocks of k and until they are stored */
    amx_state amx;
    padded_tile copy;
    deferred_rows deferred = {0};
    int i0 = 0;

    AMX_BEGIN(&amx);
    do {
        const int depth = min(DEPTH, steps - i0), last = i0 + depth == steps;
        /* Sums that are stored after one block have two places in turn, which stay in the level-1 cache. */
        const int two_places = by_rows && last && i0 == 0;

        for (int t = 0; t < row_count; t += ROWS) {
          private
            floatv *sum = sums + (two_places ? t % (2 * ROWS) : t) * LANE_VECTORS;
            const square_operands s = {
                .row = in + (row0 + t) * rows.stride + (long)i0 * K_STEP,
                .stride = rows.stride,
                .rows = row_count - t,
                .panel = lane_panel + (long)i0 * PANEL,
                .words = depth,
                .whole = i0 + depth <= a.k / K_STEP,
            };

            multiply_square(&amx, copy, (float *)sum, &s, i0 == 0, &deferred, to);
            if (last && by_rows)
                deferred = (deferred_rows){sum, {batch, row0 + t, min(ROWS, row_count - t), lane0, lane_count}};
            else if (last && t + ROWS >= row_count)
                finish(sums, to, (place){batch, row0, row_count, lane0, lane_count});
        }
        i0 += DEPTH;
    } while (i0 < steps);
    store_deferred(&deferred, ROWS, to);
    AMX_END(&amx);
}
