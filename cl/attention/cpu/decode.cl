/* Attention of few queries, for CPU devices: a head's columns across vector lanes, one work-item a work-group.
 *
 * One token's query attends a long cache.  Every K and V row is read once, in the order of memory, and serves all
 * rows of the block; attention_cpu would leave all lanes but one empty.  The formulas are those of attention/cpu/lanes.cl.
 *
 *             D_K columns, LANES to a vector                             D_V columns
 *      BLOCK  +-----+-----+-----+-----+                           +-----+-----+-----+-----+
 *      rows   |           Q           |                           |   O += P V            |  BLOCK rows
 *             +-----+-----+-----+-----+                           +-----+-----+-----+-----+
 *                         |                                                   ^
 *             +-----+-----v-----+-----+       S: BLOCK rows       +-----+-----+-----+-----+
 *      KEY_   |           K           |       +-----------+       |           V           |
 *      TILE   |  KEY_STEP keys a step |  -->  |  KEY_TILE |  -->  |    4 keys a step      |
 *      keys   |                       |       |    keys   |       |                       |
 *             +-----+-----+-----+-----+       +-----------+       +-----+-----+-----+-----+
 *        sums across the lanes, LANES keys at once;    row_max, row_sum, rescale;    weights are broadcast
 *
 * Arrays, strides, the description's macros and the parameters' order: attention/core.h; all of it except DOUBLE,
 * any strides and any alignment; strides of the inputs may be 0 or negative.  The products are attention/cpu/decode.h; it
 * shares with attention_cpu attention/cpu/block.h (the queries), attention/cpu/keys.h (where K and V lie) and
 * attention/cpu/score.h.
 *
 * Parameters
 *   D_K, D_V           sizes of a query and of a value: 1 and more                      (64)
 *   LANES              floats in a vector: 4 8 16                                      (lib/vector.h)
 *   BLOCK              rows of a work-item: 1 to 8                                     (1)
 *   GROUPED            1: the rows are the queries of all query heads of a key head; 0: those of one query head   (0)
 *   HEADS              key heads that a work-item interleaves in each tile of keys: several if their rows lie closer to one
 *                      another than a head's own rows do, as in a cache of small pages or of (length, heads, size)   (1)
 *   INTERLEAVE         keys of a tile that a head takes before the next head does, a multiple of LANES   (KEY_TILE)
 *   KEY_TILE           keys for each rescaling, a multiple of LANES                    (64)
 *   KEY_STEP           keys of the register tile of Q K^T: 2 4                         (4 rows or fewer: 4; more: 2)
 *   UNIT_STRIDE        1: a.key.col == a.value.col == 1, promised by the host: 0 1     (0)
 *   PREFETCH_DISTANCE  keys between one and that which is prefetched with it, a multiple of LANES; 0: no prefetch, for
 *                      compilers that have no __builtin_prefetch   (0)
 * Tested: BLOCK 1 to 8, GROUPED, HEADS 1 to 4, PREFETCH_DISTANCE 0 and as planned, every feature; LANES 4, 16
 * (tests/ops/attention/decode.c, tests/ops/attention/decode_caches.c).
 *
 * NDRange: (ceil(rows / BLOCK), ceil(heads / HEADS), batch) work-groups of one item, rows being query_length and heads
 * the query heads; with GROUPED query_length * a.group and the key heads.  A work-item owns its
 * blocks' rows of output, lse and entropy.
 *
 * Private memory, in floats: BLOCK * (HEADS * (D_K + D_V + KEY_TILE) + LANES * LANES / 4), with ADDITIVE another
 * HEADS * BLOCK * D_K (sizes rounded up to LANES).  Local memory: none.  Barriers: none.
 *
 * State is float.  Keys, values and masks are read as attention/cpu/lanes.cl says: K, V and mask at keys within the item's
 * lengths only, V at a key that only some rows attend with weight +0; a tile that the mask closes costs nothing.
 *
 * Needs OpenCL C 1.2 and nothing else. */
#include "attention/core.h"

#ifndef BLOCK
#define BLOCK 1
#endif
#ifndef HEADS
#define HEADS 1
#endif
#ifndef KEY_TILE
#define KEY_TILE 64
#endif
#ifndef INTERLEAVE
#define INTERLEAVE KEY_TILE
#endif
#ifndef UNIT_STRIDE
#define UNIT_STRIDE 0
#endif
#ifndef PREFETCH_DISTANCE
#define PREFETCH_DISTANCE 0
#endif

#ifndef KEY_STEP
#if BLOCK <= 4
#define KEY_STEP 4
#else
#define KEY_STEP 2
#endif
#endif
#if KEY_STEP != 2 && KEY_STEP != 4
#error "KEY_STEP must be 2 or 4"
#endif
#if DOUBLE
#error "the state is float"
#endif
#if KEY_TILE < LANES || KEY_TILE % LANES != 0
#error "KEY_TILE must be a multiple of LANES"
#endif
#if INTERLEAVE < LANES || INTERLEAVE % LANES != 0 || PREFETCH_DISTANCE % LANES != 0
#error "INTERLEAVE and PREFETCH_DISTANCE must be multiples of LANES"
#endif

#include "attention/cpu/decode.h"
#include "attention/cpu/score.h"

/* ---- rows in and out ---- */

INLINE void load_queries(floatv *q, const global ELEMENT(Q_TYPE) *query, const attention_block *block,
                         const attention_args *a)
{
    const long start = attention_query_row(&a->query, &block->item, block->first), col = a->query.col;

    for (int r = 0; r < BLOCK; r++)
        for (int d = 0; d < D_K; d += LANES) {
            floatv x;
            LOAD_ROW(Q_TYPE, x, query, start + LIVE_OFFSET(block, &a->query, r) + d * col, col, D_K - d, 0.0f);
            q[r * K_VECTORS + d / LANES] = x;
        }
}

#if ADDITIVE
INLINE void load_weights(floatv *weight, const attention_block *block, const attention_args *a,
                         const optional_arrays *arrays)
{
    for (int r = 0; r < BLOCK; r++)
        for (int d = 0; d < D_K; d += LANES) {
            const long at = a->vector.offset + ROW_HEAD(block, LIVE_ROW(block, r)) * a->vector.row + d * a->vector.col;
            floatv x;
            LOAD_ROW(F32, x, arrays->vector, at, a->vector.col, D_K - d, 0.0f);
            weight[r * K_VECTORS + d / LANES] = x;
        }
}
#endif

INLINE void store_output(global ELEMENT(O_TYPE) *output, const floatv *o, const float *factor,
                         const attention_block *block, const attention_args *a)
{
    const long start = attention_result_row(&a->output, &block->item, block->first), col = a->output.col;

    for (int r = 0; r < block->rows; r++)
        for (int d = 0; d < D_V; d += LANES) {
            const long at = start + ROW_OFFSET(block, &a->output, r) + d * col;
            const floatv x =
                select(o[r * V_VECTORS + d / LANES] * factor[r], (floatv)(0.0f), (floatv)(factor[r]) == 0.0f);
            STORE_ROW(O_TYPE, output, at, col, D_V - d, x);
        }
}

/* ---- a tile of keys ---- */

/* Turns products into the scores that the softmax takes; lanes that are no key of the tile get -inf. */
INLINE void modify_tile(floatv *s, int start, int n, const attention_block *block, const attention_args *a,
                        const optional_arrays *arrays)
{
    attention_item item = block->item;

    for (int r = 0; r < BLOCK; r++) {
        floatv *row = s + r * TILE_VECTORS;
        const long i = ROW_QUERY(block, LIVE_ROW(block, r));
        item.h = ROW_HEAD(block, LIVE_ROW(block, r));
#if SOFTCAP
        cap_scores(row, (n + LANES - 1) / LANES, a->softcap);
#endif
        int low = 0, high = n;
#if RANGED
        long first, end;
        attention_key_range(&item, i, a, &first, &end);
        low = (int)clamp(first - start, 0L, (long)n);
        high = (int)clamp(end - start, 0L, (long)n);
#endif
#if ADDED || USER_MODS
        float *score = (float *)row;
        for (int j = low; j < high; j++) {
            if (attention_masked(&item, i, start + j, a, arrays))
                score[j] = -INFINITY;
            else
                score[j] = attention_biased(score[j], &item, i, start + j, a, arrays);
        }
#endif
        if (low > 0 || high % LANES != 0 || high < n)
            for (int v = 0; v < (n + LANES - 1) / LANES; v++) {
                const intv j = LANE_INDEX + v * LANES;
                row[v] = select(row[v], (floatv)(-INFINITY), (j < low) | (j >= high));
            }
    }
}

/* What a row has come to. */
typedef struct row_state {
    float row_max;
    floatv row_sum, row_moment; /* of exp(s - row_max), and with ENTROPY of that times s - row_max, lane by lane */
} row_state;

/* Scores become weights, the state takes the tile in, and accumulators are to be multiplied by `rescale`; as
 * attention/cpu/softmax.h's softmax_tile. */
INLINE void softmax_tile(floatv *s, int n, row_state *state_of, float *rescale)
{
    const int vectors = (n + LANES - 1) / LANES;

    for (int r = 0; r < BLOCK; r++) {
        row_state *row = &state_of[r];
        floatv *x = s + r * TILE_VECTORS;
        floatv new_max = (floatv)(-INFINITY);
        for (int v = 0; v < vectors; v++)
            new_max = LARGER_OF(new_max, x[v]);
        const float lane = largest_lane(new_max);
        const float row_max = lane > row->row_max ? lane : row->row_max;
        const float finite_max = row_max == -INFINITY ? 0.0f : row_max;
        rescale[r] = exp2s((row->row_max - finite_max) * LOG2E);
        row->row_sum *= rescale[r];
#if ENTROPY
        /* -inf - anything times a sum of 0 is no number. */
        row->row_moment = select(FMA((floatv)(row->row_max - finite_max), row->row_sum, row->row_moment * rescale[r]),
                                 (floatv)(0.0f), (floatv)(rescale[r]) == 0.0f);
#endif
        row->row_max = row_max;
        for (int v = 0; v < vectors; v++) {
            const floatv below = x[v] - finite_max;
            const floatv p = exp2v(below * LOG2E);
            row->row_sum += p;
#if ENTROPY
            row->row_moment += select(p * below, (floatv)(0.0f), p == 0.0f);
#endif
            x[v] = p;
        }
    }
}

#if DROPOUT
INLINE void drop_tile(floatv *s, int start, int n, const attention_block *block, const attention_args *a)
{
    attention_item item = block->item;

    for (int r = 0; r < BLOCK; r++) {
        float *p = (float *)(s + r * TILE_VECTORS);
        item.h = ROW_HEAD(block, LIVE_ROW(block, r));
        for (int four = start / 4; four * 4 < start + n; four++) {
            const int4 kept = attention_kept(&item, ROW_QUERY(block, LIVE_ROW(block, r)), four, a);
            const int keeps[4] = {kept.x, kept.y, kept.z, kept.w};
            for (int w = 0; w < 4; w++) {
                const int j = four * 4 + w - start;
                if (j >= 0 && j < n && !keeps[w])
                    p[j] = 0.0f;
            }
        }
    }
}
#endif

/* ---- a head's block ---- */

typedef struct head_work {
    attention_block block;
    floatv q[BLOCK * K_VECTORS], o[BLOCK * V_VECTORS];
#if ADDITIVE
    floatv weight[BLOCK * K_VECTORS];
#else
    floatv weight[1];
#endif
    row_state row[BLOCK];
} head_work;

INLINE bool opens_tile(const attention_block *block, int start, int n, const attention_args *a,
                       const optional_arrays *arrays)
{
#if MASK
    if (block->live > 0 && mask_class(arrays->mask, start, n, block, a) == TILE_CLOSED)
        return false;
#endif
    return block->live > 0;
}

/* *begin and *end take in the keys that the block attends.  A part past the item's keys has none: its `first` may be in the
 * middle of a vector, whose other keys are another part's. */
INLINE void begin_head(head_work *w, const global ELEMENT(Q_TYPE) *query, int batch, int y, int index, int *begin,
                       int *end, const attention_args *a, const optional_arrays *arrays)
{
    block_of(&w->block, batch, y, index, a, arrays);
    for (int r = 0; r < BLOCK; r++) {
        w->row[r].row_max = -INFINITY;
        w->row[r].row_sum = w->row[r].row_moment = (floatv)(0.0f);
    }
    for (int c = 0; c < BLOCK * V_VECTORS; c++)
        w->o[c] = (floatv)(0.0f);
    if (w->block.live <= 0)
        return;
    int first, last;
    attention_keys(&w->block.item, w->block.first, w->block.first + w->block.last, a, &first, &last);
    if (first < last) {
        *begin = min(*begin, first);
        *end = max(*end, last);
    }
    load_queries(w->q, query, &w->block, a);
#if ADDITIVE
    load_weights(w->weight, &w->block, a, arrays);
#endif
}

/* A tile's scores become weights, and the block's state and output are made ready to take its values in. */
INLINE void weigh_tile(head_work *w, floatv *s, int start, int n, const attention_args *a,
                       const optional_arrays *arrays)
{
    float rescale[BLOCK];

    modify_tile(s, start, n, &w->block, a, arrays);
    softmax_tile(s, n, w->row, rescale);
#if DROPOUT
    drop_tile(s, start, n, &w->block, a);
#endif
    for (int r = 0; r < BLOCK; r++)
        for (int v = 0; v < V_VECTORS; v++)
            w->o[r * V_VECTORS + v] *= rescale[r];
}

#if HEADS == 1
INLINE void take_tile(head_work *w, const global ELEMENT(K_TYPE) *key, const global ELEMENT(V_TYPE) *value, int start,
                      int n, const attention_args *a, const optional_arrays *arrays)
{
    floatv s[BLOCK * TILE_VECTORS];

    if (!opens_tile(&w->block, start, n, a, arrays))
        return;
    score_keys(s, w->q, w->weight, key, start, n, &w->block.item, a, arrays);
    weigh_tile(w, s, start, n, a, arrays);
    add_values(w->o, (const float *)s, value, start, n, &w->block.item, a, arrays);
}
#else
/* Scores of all heads in turn, then weights, whose chains of dependent instructions overlap, then values in turn. */
INLINE void take_tile_in_turn(head_work *work, int heads, const global ELEMENT(K_TYPE) *key,
                              const global ELEMENT(V_TYPE) *value, int start, int n, const attention_args *a,
                              const optional_arrays *arrays)
{
    floatv s[HEADS][BLOCK * TILE_VECTORS];
    bool open[HEADS];

    for (int h = 0; h < heads; h++)
        open[h] = opens_tile(&work[h].block, start, n, a, arrays);
    for (int j = 0; j < n; j += INTERLEAVE)
        for (int h = 0; h < heads; h++)
            if (open[h])
                score_keys(s[h] + j / LANES, work[h].q, work[h].weight, key, start + j, min(INTERLEAVE, n - j),
                           &work[h].block.item, a, arrays);
    for (int h = 0; h < heads; h++)
        if (open[h])
            weigh_tile(&work[h], s[h], start, n, a, arrays);
    for (int j = 0; j < n; j += INTERLEAVE)
        for (int h = 0; h < heads; h++)
            if (open[h])
                add_values(work[h].o, (const float *)s[h] + j, value, start + j, min(INTERLEAVE, n - j),
                           &work[h].block.item, a, arrays);
}
#endif

INLINE void end_head(const head_work *w, global ELEMENT(O_TYPE) *output, global float *lse, global float *entropy,
                     const attention_args *a, const optional_arrays *arrays)
{
    const attention_block *block = &w->block;
    attention_item item = block->item;
    float factor[BLOCK], row_lse[BLOCK];

    for (int r = 0; r < block->rows; r++) {
        const bool live = r < block->live;
        const float row_max = live ? w->row[r].row_max : -INFINITY,
                    row_sum = live ? sum_lanes(w->row[r].row_sum) : 0.0f;
        item.h = ROW_HEAD(block, r);
        factor[r] = attention_finish(row_max, row_sum, &item, a, arrays, &row_lse[r]);
#if LSE
        lse[attention_result_row(&a->lse, &block->item, block->first) + ROW_OFFSET(block, &a->lse, r)] = row_lse[r];
#endif
#if ENTROPY
        entropy[attention_result_row(&a->entropy, &block->item, block->first) + ROW_OFFSET(block, &a->entropy, r)] =
            attention_entropy(row_max, row_sum, live ? sum_lanes(w->row[r].row_moment) : 0.0f, &item, a, arrays);
#endif
    }
    store_output(output, w->o, factor, block, a);
}

ITEM_FUNCTION attend_heads(ATTENTION_PARAMETERS, int batch, int group, int index)
{
    const optional_arrays arrays = OPTIONAL_ARRAYS;
    if (a.batch == 0)
        return;

    const int first = group * HEADS;
    const int heads = HEADS == 1 ? 1 : min(HEADS, block_heads(&a) - first);
    int begin = INT_MAX, end = 0;
    head_work work[HEADS];
    for (int h = 0; h < heads; h++)
        begin_head(&work[h], query, batch, first + h, index, &begin, &end, &a, &arrays);
    if (TABLE && !BY_TABLE) /* modify_tile leaves out what the window does not reach */
        begin &= ~(LANES - 1);
    for (int start = begin, n; start < end; start += n) {
        n = tile_length(KEY_TILE, start, end, &a);
#if HEADS == 1
        take_tile(work, key, value, start, n, &a, &arrays);
#else
        take_tile_in_turn(work, heads, key, value, start, n, &a, &arrays);
#endif
    }
    for (int h = 0; h < heads; h++)
        end_head(&work[h], output, lse, entropy, &a, &arrays);
}

GROUP_SIZE(1, 1, 1)
kernel void attention_cpu_decode(ATTENTION_PARAMETERS)
{
    attend_heads(ATTENTION_ARGUMENTS, (int)group_id(&a.part, 2), (int)group_id(&a.part, 1), (int)group_id(&a.part, 0));
}
