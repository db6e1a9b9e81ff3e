/* Attention for CPU devices: queries across vector lanes, one work-item a work-group.
 *
 *   O[i,:] = sum_j keep_ij p_ij V[j,:] / sum_j p_ij,   p_ij = exp(s_ij - max_j s_ij),   s_ij: attention/core.h
 *   lse[i] = log sum_j exp(s_ij),   entropy[i] = -sum_j P_ij log P_ij;   keep_ij: 0 if dropout drops p_ij, else its scale
 *
 * A work-item holds Q^T and O^T of its block of queries and walks over the keys:
 *
 *                      QUERY_VECTORS * LANES queries
 *                    +-------+-------+-------+-------+
 *              D_K   |              Q^T              |      a vector is LANES queries of one column
 *                    +-------+-------+-------+-------+
 *         D_K                        |
 *      +-------+     +-------+-------v-------+-------+
 *      |   K   |     | S^T: register tiles of KEY_STEP keys x all queries, then P^T in its place
 *      |       | --> |                               |   KEY_TILE keys, then row_max, row_sum and rescale
 *      +-------+     +-------+-------+-------+-------+
 *         D_V                        |
 *      +-------+     +-------+-------v-------+-------+
 *      |   V   | --> |  O^T = rescale * O^T + V^T P^T: register tiles of COLUMN_STEP columns x all queries
 *      +-------+     +-------+-------+-------+-------+   D_V
 *
 * Arrays, strides, the description's macros and the parameters' order: attention/core.h; all of it except DOUBLE, any
 * strides and any alignment; strides of the inputs may be 0 or negative.  The pieces are attention/cpu/lanes.h (the queries),
 * attention/cpu/tile.h (K and V), attention/cpu/mask.h (masks and what else changes a score), attention/cpu/softmax.h.
 *
 * Parameters
 *   D_K, D_V        sizes of a query and of a value: 1 and more                          (64)
 *   LANES           floats in a vector: 4 8 16                                        (lib/vector.h)
 *   QUERY_VECTORS   vectors of rows in a work-item: 1 2 4                             (4)
 *   GROUPED         1: the rows of a block are the queries of all query heads of a key head, so that few queries fill
 *                   the lanes and K and V are read once; 0: those of one query head  (0)
 *   KEY_TILE        keys for each rescaling, a multiple of KEY_STEP                   (96)
 *   KEY_STEP        keys of the register tile of Q K^T: 1 and more                    (6)
 *   COLUMN_STEP     columns of the register tile of P V: 1 and more                   (6)
 *   POSITIVE_SCALE  1: a.scale >= 1e-30, promised by the host; saves a multiplication a score: 0 1   (0)
 *   UNIT_STRIDE     1: a.key.col == a.value.col == 1, promised by the host: 0 1       (0)
 *   PACK            1: K and V are copied, a tile at a time, into a float array that the register tiles read: for storage
 *                   of other types, for columns that are not neighbours, and if rows lie far apart: 0 1
 *                   (0 for F32 with UNIT_STRIDE, else 1)
 *   PAIRS           1: products of bfloat16 pairs (attention/cpu/tile_bf16.h): Q, K and V are BF16, not ADDITIVE, and
 *                   UNIT_STRIDE; P is rounded to bfloat16: 0 1                        (0)
 *   X86_BF16        1: pairs by an instruction (engine/x86/bf16.h): 0 1               (0)
 *   PREFETCHES      1: the compiler has __builtin_prefetch: 0 1                       (0)
 *   UNROLL          steps of the float products' innermost loops in one iteration: 1 4     (1)
 * Tested: LANES x QUERY_VECTORS x GROUPED x every feature; UNIT_STRIDE x PACK; D_K, D_V 1 to 600;
 * UNROLL 4 on Intel processors.
 *
 * NDRange: (ceil(rows / (QUERY_VECTORS * LANES)), heads, batch) work-groups of one item, rows being
 * query_length; with GROUPED query_length * a.group, and the second dimension counts the key heads.
 * touches.  Dimension 0 counts blocks of queries from the last to the first, so that with CAUSAL the heavy ones start
 * first.  A work-item owns its block's rows of output, lse and entropy; in it, lane l of query vector v is row
 * v * LANES + l of the block, in every array of vectors below.
 *
 * Private memory, in floats: QUERY_VECTORS * LANES * (D_K + D_V + KEY_TILE), with ADDITIVE another D_K there, and
 * with PACK KEY_TILE * max(D_K, D_V) more, with PAIRS KEY_TILE / 2 * D_V (sizes rounded up to LANES): 57 KiB by default; while
 * the rows are loaded and stored LANES * max(D_K, D_V) more.
 * It lives on the stack of the device's thread.  Local memory: none.  Barriers: none.
 *
 * State is float.  A tile of keys that no query of the block attends, by lengths, causality, window or mask, is
 * skipped; one that all attend pays for none of them.  A score that is not attended is -inf, p of it exactly +0; a
 * row that attends nothing gives output +0 and lse -inf (with SINKS the sink's logit); NaN or +inf in an attended
 * score travels through the sum and makes its row NaN.  K, V and mask are read at keys within the item's lengths
 * and Q and mask at its queries only; a tile shorter than KEY_TILE or a block with fewer queries repeats its last row
 * to fill the register tile.  V at a key that only some queries of a block attend takes part in the others
 * with weight +0.
 *
 * Needs OpenCL C 1.2 and nothing else; attention_generic takes DOUBLE, and sizes for which a thread has no stack. */
#include "attention/core.h"

#ifndef QUERY_VECTORS
#define QUERY_VECTORS 4
#endif
#ifndef KEY_TILE
#define KEY_TILE 96
#endif
#ifndef KEY_STEP
#define KEY_STEP 6
#endif
#ifndef COLUMN_STEP
#define COLUMN_STEP 6
#endif
#ifndef UNIT_STRIDE
#define UNIT_STRIDE 0
#endif
#ifndef UNROLL
#define UNROLL 1
#endif

#if UNROLL == 4
#define UNROLLED _Pragma("unroll 4")
#else
#define UNROLLED
#endif

#if UNROLL != 1 && UNROLL != 4
#error "UNROLL must be 1 or 4"
#endif
#if DOUBLE
#error "the state is float"
#endif
#if QUERY_VECTORS != 1 && QUERY_VECTORS != 2 && QUERY_VECTORS != 4
#error "QUERY_VECTORS must be 1, 2 or 4"
#endif
#if KEY_STEP < 1 || COLUMN_STEP < 1 || KEY_TILE < 1 || KEY_TILE % KEY_STEP != 0
#error "KEY_TILE must be a multiple of KEY_STEP"
#endif

#include "attention/cpu/keys.h"
#include "attention/cpu/lanes.h"
#include "attention/cpu/mask.h"
#include "attention/cpu/softmax.h"
#include "attention/cpu/tile.h"
#include "attention/cpu/tile_bf16.h"

ITEM_FUNCTION attend_block(ATTENTION_PARAMETERS, int batch, int head, int index)
{
    const optional_arrays arrays = OPTIONAL_ARRAYS;
    if (a.batch == 0)
        return;

    attention_block block;
    block_of(&block, batch, head, index, &a, &arrays);
    if (block.rows <= 0)
        return;

    const float factor = RAW_SCORES ? a.scale * LOG2E : a.scale;
    floatv q[ROUND_UP(D_K, LANES) * QUERY_VECTORS];
    floatv o[ROUND_UP(D_V, LANES) * QUERY_VECTORS];
    floatv s[KEY_TILE * QUERY_VECTORS];
    SCRATCH_TYPE scratch[SCRATCH];
    softmax_state state;
    floatv rescale[QUERY_VECTORS];
#if ADDITIVE
    floatv weight[ROUND_UP(D_K, LANES) * QUERY_VECTORS];
#else
    floatv weight[1];
#endif
    begin_rows(&state);

    int begin = 0, end = 0;
    bool fresh = true;
    if (block.live > 0) {
        attention_keys(&block.item, block.first, block.first + block.last, &a, &begin, &end);
        load_queries(q, query, &block, &a);
#if PAIRS
        pair_queries(q, q);
#endif
#if ADDITIVE
        load_weights(weight, &block, &a, &arrays);
#endif
    }
    for (int start = begin, n; start < end; start += n) {
        bool open = true;
        n = tile_length(KEY_TILE, start, end, &a);
#if MASK
        const int kind = mask_class(arrays.mask, start, n, &block, &a);
        open = kind == TILE_OPEN;
        if (kind == TILE_CLOSED)
            continue;
#endif
        scores_of(s, q, weight, key, scratch, start, n, factor, &block.item, &a, &arrays);
        modify_tile(s, open, start, n, &block, &a, &arrays);
        softmax_tile(s, n, factor, &state, rescale);
#if DROPOUT
        drop_tile(s, start, n, &block, &a);
#endif
        add_values(o, s, rescale, value, scratch, start, n, fresh, &block.item, &a, &arrays);
        fresh = false;
    }
    finish_block(output, lse, entropy, o, fresh, &state, factor, &block, &a, &arrays);
}

GROUP_SIZE(1, 1, 1)
kernel void attention_cpu(ATTENTION_PARAMETERS)
{
    attend_block(ATTENTION_ARGUMENTS, (int)group_id(&a.part, 2), (int)group_id(&a.part, 1), last_group_first(&a.part));
}
