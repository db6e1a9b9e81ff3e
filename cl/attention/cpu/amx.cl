/* Attention of 16-bit floats or float32 for CPU devices by AMX: queries across lanes and tiles, one work-item a work-group.
 *
 *   O[i,:] = sum_j keep_ij p_ij V[j,:] / sum_j p_ij,   p_ij = exp(s_ij - m_i),   s_ij: attention/core.h
 *   lse[i] = log sum_j exp(s_ij),   entropy[i] = -sum_j P_ij log P_ij;   keep_ij: 0 if dropout drops p_ij, else its scale
 *
 *                   GATHERED keys, made tiles once for all blocks
 *                 +--------------+--------------+-----+          AMX multiplies tiles of 16 x 16 pairs of
 *      K, V^T     |   KEY_TILE   |   KEY_TILE   | ... |          bfloat16; a product here is 32 keys (or columns
 *                 +--------------+--------------+-----+          of V) x 32 queries, four tiles of sums
 *                        |  S^T = K Q^T, softmax, O^T += V^T P^T
 *                 +------v-------+--------------+-----+
 *      block 0    | 32 queries --> along all gathered keys       Q^T as pairs, O^T as floats; O^T stays in the
 *      block 1    | 32 queries --> then the next block           first-level cache while a block walks
 *       ...       |                                   |
 *      BLOCKS     +--------------+--------------+-----+
 *
 * Arrays, strides, the description's macros and the parameters' order: attention/core.h; Q, K and V are BF16, or with
 * SPLIT_FLOATS F32, F16 or BF16 each, not ADDITIVE, and the columns of K and of V are neighbours; other strides and
 * alignments are any, strides of the inputs may be 0 or negative.  Its pieces are attention_cpu's, attention/cpu/amx_tile.h or
 * attention/cpu/amx_bf16x3.h (K, V and the products) and engine/x86/weights.h.
 *
 * Parameters
 *   D_K, D_V        sizes of a query and of a value: 1 to 512                         (64)
 *   LANES           floats in a vector: 8 16                                          (lib/vector.h)
 *   BLOCKS          blocks of 32 rows in a work-item, which share the keys' tiles: 1 2 4 8 16 32      (8)
 *   GROUPED         1: the rows are the queries of all query heads of a key head; 0: those of one query head      (0)
 *   KEY_TILE        keys for each rescaling, a multiple of 32                         (128)
 *   GATHERED        keys that are brought into tiles at a time, a multiple of KEY_TILE                (1024)
 *   POSITIVE_SCALE  1: a.scale >= 1e-30, promised by the host: 0 1                    (0)
 *   UNIT_STRIDE     1, and promised by the host: a.key.col == a.value.col == 1
 *   SPLIT_FLOATS    1: each element is the sum of up to three bfloat16 (lib/bf16x3.h): 0 1                (0)
 *   X86_AMX         1: by the instructions (engine/x86/amx.h): 0 1                    (0)
 *   PREFETCHES      1: the compiler has __builtin_prefetch: 0 1                       (0)
 * Tested: X86_AMX x every feature; LANES as the device has them; D_K, D_V 1 to 300.
 *
 * NDRange: (ceil(rows / (32 * BLOCKS)), heads, batch) work-groups of one item, as attention_cpu counts them.  A
 * work-item owns its rows of output, lse and entropy; lane l of query vector v is row v * LANES + l of a block.
 *
 * Private memory, in bytes: BLOCKS * 32 * (2 D_K + 4 D_V) + 2 * GATHERED * (D_K + D_V) + 128 * KEY_TILE, sizes rounded up to
 * 32, or with SPLIT_FLOATS BLOCKS * 32 * (6 D_K + 4 D_V) + 6 * GATHERED * (D_K + D_V) + 320 * KEY_TILE; and at most
 * 256 D_K + 192 D_V, and with pages 8 * GATHERED, for a while; on the stack of the device's thread.  Local memory: none.
 * Barriers: none.
 *
 * State is float; P is rounded to bfloat16, but not its sum (with SPLIT_FLOATS neither is).  m_i is a score at most
 * 8 / log2(e) below the largest so far: O^T is rescaled when the largest grows by more, so that no weight is above 2^8.  Masks,
 * NaN and reads are as attention/cpu/lanes.cl says; V at a key that not all of a tile's queries attend takes part in the
 * others with weight +0.
 *
 * Needs OpenCL C 1.2 and nothing else without X86_AMX. */
#include "attention/core.h"

#define QUERY_VECTORS (32 / LANES)
#define PAIRS 1
#ifndef KEY_TILE
#define KEY_TILE 128
#endif
#ifndef GATHERED
#define GATHERED 1024
#endif
#ifndef BLOCKS
#define BLOCKS 8
#endif
#ifndef UNIT_STRIDE
#define UNIT_STRIDE 0
#endif
#ifndef SPLIT_FLOATS
#define SPLIT_FLOATS 0
#endif
#define KEYS_AT_ONCE GATHERED

#include "attention/cpu/amx_bf16x3.h"
#include "attention/cpu/amx_tile.h"
#include "attention/cpu/keys.h"
#include "attention/cpu/lanes.h"
#include "attention/cpu/mask.h"
#include "attention/cpu/softmax.h"

#if D_K > 512 || D_V > 512 || DOUBLE
#error "D_K and D_V must be 1 to 512, and the state is float"
#endif

#define SLACK 8.0f /* log2 of what a weight may be at the most */

/* What a block of queries has on the way through the keys. */
typedef struct amx_block {
    attention_block rows;
    int begin, end; /* the keys that it attends */
    bool fresh;     /* o counts as 0 */
    softmax_state state;
    floatv q[QUERY_WORDS]; /* Q^T's pairs */
#if SPLIT_FLOATS
    uintv query_peak[QUERY_VECTORS];
    peaks query_peaks;
#endif
    floatv o[VALUE_COLUMNS * QUERY_VECTORS]; /* O^T */
} amx_block;

/* `rows` is there already. */
INLINE void begin_block(amx_block *block, const global ELEMENT(Q_TYPE) *query, const attention_args *a)
{
    floatv q[ROUND_UP(D_K, LANES) * QUERY_VECTORS];

    begin_rows(&block->state);
    block->fresh = true;
    block->begin = block->end = 0;
    if (block->rows.rows <= 0 || block->rows.live <= 0)
        return;
    attention_keys(&block->rows.item, block->rows.first, block->rows.first + block->rows.last, a, &block->begin,
                   &block->end);
    load_queries(q, query, &block->rows, a);
#if SPLIT_FLOATS
    split_queries(block->q, q, block->query_peak);
    block->query_peaks = NO_PEAKS;
    for (int r = 0; r < BLOCK; r++)
        block->query_peaks = with_peak(block->query_peaks, ((const uint *)block->query_peak)[r]);
#else
    pair_queries(block->q, q);
    for (int c = HALF(D_K) * QUERY_VECTORS; c < QUERY_WORDS; c++)
        block->q[c] = (floatv)(0.0f);
#endif
}

#if !DROPOUT
/* weigh_tile, of whose weights of keys j < n `word` is made, as the tile's header says; those behind them are 0, up to a
 * multiple of 32 keys. */
INLINE void weigh_pairs(floatv *word, floatv *s, int n, float factor, const floatv *new_max, softmax_state *state,
                        const floatv *rescale)
{
    floatv total[QUERY_VECTORS];

    for (int i = n * QUERY_VECTORS; i < ROUND_UP(n, 32) * QUERY_VECTORS; i++)
        s[i] = (floatv)(-INFINITY);
#pragma unroll
    for (int v = 0; v < QUERY_VECTORS; v++)
        total[v] = (floatv)(0.0f);
    for (int i = 0; i < ROUND_UP(n, 32) / 2; i++)
#pragma unroll
        for (int v = 0; v < QUERY_VECTORS; v++) {
            const floatv x = exponent_of(s[LOW_KEY(i) * QUERY_VECTORS + v], factor, new_max[v]);
            const floatv y = exponent_of(s[HIGH_KEY(i) * QUERY_VECTORS + v], factor, new_max[v]);
            const floatv p = fast_exp2v(x), r = fast_exp2v(y);
            total[v] += p + r;
            add_moment(state, v, p, x);
            add_moment(state, v, r, y);
            STORE_WEIGHTS(word, s, i, v, p, r);
        }
#pragma unroll
    for (int v = 0; v < QUERY_VECTORS; v++)
        state->row_sum[v] = FMA(state->row_sum[v], rescale[v], total[v]);
}
#endif

/* O^T += V^T P^T of n keys, number `first` and so on of those in `keys`, with P^T's pairs. */
INLINE void take_values(amx_block *block, amx_state *amx, const amx_keys *keys, int first, int n, const floatv *pairs)
{
    for (int c = 0; c < VALUE_COLUMNS; c += 32)
        add_values(amx, (float *)(block->o + c * QUERY_VECTORS), block->fresh, keys->value + VALUE_TILES(c, first),
                   (const uint *)pairs, ROUND_UP(n, 32) / 32);
    block->fresh = false;
}

/* S^T of n keys becomes weights, and these O^T's share. */
INLINE void weigh_and_take(const amx_call *call, amx_block *block, int first, int start, int n, const floatv *new_max,
                           const floatv *rescale)
{
    floatv *s = call->s;
#if SPLIT_FLOATS
    floatv word[WEIGHT_WORDS], exact[VALUE_COLUMNS * QUERY_VECTORS];
    const amx_keys *keys = call->keys;
#else
    floatv *word = s;
#endif
#if DROPOUT
    weigh_tile(s, n, call->factor, new_max, &block->state, rescale);
    drop_tile(s, start, n, &block->rows, call->a);
#if SPLIT_FLOATS
    split_weights(word, s, n);
#else
    pair_weights(s, n, ROUND_UP(n, 32) / 2);
#endif
#else
    weigh_pairs(word, s, n, call->factor, new_max, &block->state, rescale);
#endif
#if SPLIT_FLOATS
    if (keys->value_beyond)
        exact_columns(call, exact, block->o, block->fresh, s, start, n, &block->rows.item);
#endif
    take_values(block, call->amx, call->keys, first, n, word);
#if SPLIT_FLOATS
    for (int c = 0; c < D_V && keys->value_beyond; c++)
        if (IS_BEYOND_ALONE(keys->value_peak[c]))
            for (int v = 0; v < QUERY_VECTORS; v++)
                block->o[c * QUERY_VECTORS + v] = exact[c * QUERY_VECTORS + v];
#endif
}

/* Takes in keys start ... start + n - 1, of which the first is number `first` of the gathered ones. */
INLINE void take_tile(const amx_call *call, amx_block *block, int first, bool open, int start, int n)
{
    softmax_state *state = &block->state;
    floatv new_max[QUERY_VECTORS], rescale[QUERY_VECTORS];
    intv rescales = (intv)(0);

#pragma unroll
    for (int v = 0; v < QUERY_VECTORS; v++)
        new_max[v] = state->row_max[v];
    for (int j = 0; j < n; j += 32) {
        floatv *s = call->s + j * QUERY_VECTORS;
        const int m = min(32, n - j);
        add_scores(call->amx, (float *)s, true, call->keys->key + KEY_TILES(first + j), (const uint *)block->q,
                   KEY_STEPS);
#if SPLIT_FLOATS
        if (may_be_beyond(block->query_peaks, call->keys->key_peaks))
            exact_scores(call, s, first + j, start + j, m, block->query_peak, &block->rows);
#endif
#if !RAW_SCORES
        for (int i = 0; i < m * QUERY_VECTORS; i++)
            s[i] *= call->factor;
#endif
        modify_tile(s, open, start + j, m, &block->rows, call->a, call->arrays);
        find_row_max(new_max, s, m);
    }
#pragma unroll
    for (int v = 0; v < QUERY_VECTORS; v++) {
        const floatv above = (new_max[v] - state->row_max[v]) * (RAW_SCORES ? call->factor : LOG2E);
        new_max[v] = select(state->row_max[v], new_max[v], above > SLACK);
    }
    raise_row_max(new_max, call->factor, state, rescale);
#pragma unroll
    for (int v = 0; v < QUERY_VECTORS; v++)
        rescales |= rescale[v] != 1.0f;
    if (!block->fresh && any(rescales))
        for (int c = 0; c < VALUE_COLUMNS; c++)
#pragma unroll
            for (int v = 0; v < QUERY_VECTORS; v++)
                block->o[c * QUERY_VECTORS + v] *= rescale[v];
    weigh_and_take(call, block, first, start, n, new_max, rescale);
}

/* Takes in keys start ... start + n - 1, which are gathered, a tile at a time. */
INLINE void take_keys(const amx_call *call, amx_block *block, int start, int n)
{
    const int end = min(start + n, block->end);

    for (int j = start; j < end; j += KEY_TILE) {
        const int m = min(KEY_TILE, end - j);
        bool open = true;
        if (j + m <= block->begin)
            continue;
#if MASK
        const int kind = mask_class(call->arrays->mask, j, m, &block->rows, call->a);
        open = kind == TILE_OPEN;
        if (kind == TILE_CLOSED)
            continue;
#endif
        take_tile(call, block, j - start, open, j, m);
    }
}

GROUP_SIZE(1, 1, 1)
kernel void attention_cpu_amx(ATTENTION_PARAMETERS)
{
    const optional_arrays arrays = OPTIONAL_ARRAYS;
    if (a.batch == 0)
        return;

    const float factor = RAW_SCORES ? a.scale * LOG2E : a.scale;
    const int first_block = last_group_first(&a.part) * BLOCKS;
    amx_block block[BLOCKS];
    amx_keys keys;
    amx_state amx;
    floatv s[KEY_TILE * QUERY_VECTORS];
    const amx_call call = {query, key, value, &a, &arrays, factor, &amx, &keys, s};
    int begin = INT_MAX, end = 0;

    for (int i = 0; i < BLOCKS; i++) {
        block_of(&block[i].rows, (int)group_id(&a.part, 2), (int)group_id(&a.part, 1), first_block + i, &a, &arrays);
        begin_block(&block[i], query, &a);
        if (block[i].begin < block[i].end) {
            begin = min(begin, block[i].begin);
            end = max(end, block[i].end);
        }
    }
    AMX_BEGIN(&amx);
    for (int start = begin, n; start < end; start += n) {
        n = tile_length(GATHERED, start, end, &a);
        gather_keys(&keys, key, start, n, &block[0].rows.item, &a, &arrays);
        gather_values(&keys, value, start, n, &block[0].rows.item, &a, &arrays);
        for (int i = 0; i < BLOCKS; i++)
            take_keys(&call, &block[i], start, n);
    }
    AMX_END(&amx);
    for (int i = 0; i < BLOCKS && block[i].rows.rows > 0; i++)
        finish_block(output, lse, entropy, block[i].o, block[i].fresh, &block[i].state, factor, &block[i].rows, &a,
                     &arrays);
}
