/* Attention of few queries, for CPU devices: a head's columns across vector lanes, one work-item a work-group.
 *
 * What one token's query does to a long cache.  Every K and V row is read once, in the order of memory, and serves all
 * rows of the block; with one query attention_cpu would leave all lanes but one empty.  Formulas as there.
 *
 * Arrays, strides, the description's macros and the parameters' order: inc/attention.h; everything of it but DOUBLE,
 * any strides and any alignment; those of the inputs may be 0 or negative.  Parts shared with attention_cpu are
 * inc/cpu_block.h (the queries), inc/cpu_keys.h (where K and V lie), inc/cpu_score.h.
 *
 * Parameters
 *   D_K, D_V     sizes of a query and of a value: 1 to 512                       (64)
 *   LANES        floats in a vector: 4 8 16                                      (inc/vector.h)
 *   BLOCK        rows of a work-item: 1 to 8                                     (1)
 *   GROUPED      1: the rows are the queries of all query heads of a key head; 0: those of one query head   (0)
 *   KEY_TILE     keys for each rescaling, a multiple of LANES                    (64)
 *   KEY_STEP     keys of the register tile of Q K^T, which divide LANES          (4 rows or fewer: 4; more: 2)
 *   VALUE_STEP   keys that an accumulator takes in on one way through a register (4)
 *   UNIT_STRIDE  1: a.key.col == a.value.col == 1, promised by the host: 0 1     (0)
 * Tested: LANES x BLOCK 1 to 8 x GROUPED x every feature.
 *
 * NDRange: (ceil(rows / BLOCK), launch_heads, batch) work-groups of one item, rows being launch_queries; with GROUPED
 * launch_queries * a.group, and the second dimension counts the key heads that the launch touches.  A work-item owns its
 * block's rows of output, lse and entropy.
 *
 * Private memory, in floats: BLOCK * (D_K + D_V + KEY_TILE + LANES * LANES), with ADDITIVE another BLOCK * D_K (sizes
 * rounded up to LANES).  Local memory: none.  Barriers: none.
 *
 * State is float.  Keys, values and masks are read as attention_cpu.cl says: K, V and mask at keys within the item's
 * lengths only, V at a key that only some rows attend with weight +0; a tile that the mask closes costs nothing.
 *
 * Needs OpenCL C 1.2 and nothing else. */
#ifndef BLOCK
#define BLOCK 1
#endif
#ifndef GROUPED
#define GROUPED 0
#endif
#ifndef KEY_TILE
#define KEY_TILE 64
#endif
#ifndef VALUE_STEP
#define VALUE_STEP 4
#endif
#ifndef UNIT_STRIDE
#define UNIT_STRIDE 0
#endif

#include "inc/attention.h"
#include "inc/vector.h"
#include "inc/exp2.h"
#include "inc/cpu_block.h"
#include "inc/cpu_keys.h"
#include "inc/cpu_score.h"

#ifndef KEY_STEP
#define KEY_STEP (BLOCK <= 4 ? 4 : 2)
#endif
#if D_K > 512 || D_V > 512 || DOUBLE
#error "D_K and D_V must be 1 to 512, and the state is float"
#endif
#if KEY_TILE < LANES || KEY_TILE % LANES != 0
#error "KEY_TILE must be a multiple of LANES"
#endif

#define K_VECTORS (ROUND_UP(D_K, LANES) / LANES)
#define V_VECTORS (ROUND_UP(D_V, LANES) / LANES)
#define TILE_VECTORS (KEY_TILE / LANES)

/* The sum and the largest of a vector's lanes; a NaN is never the largest. */
INLINE float sum_lanes(floatv x)
{
    float lane[LANES];
    VSTORE(x, 0, lane);
    for (int step = LANES / 2; step > 0; step /= 2)
        for (int l = 0; l < step; l++)
            lane[l] += lane[l + step];
    return lane[0];
}

INLINE float largest_lane(floatv x)
{
    float lane[LANES];
    VSTORE(x, 0, lane);
    for (int step = LANES / 2; step > 0; step /= 2)
        for (int l = 0; l < step; l++)
            lane[l] = lane[l + step] > lane[l] ? lane[l + step] : lane[l];
    return lane[0];
}

/* Lane l of the result is the sum of x[l]'s lanes.  A pass adds the halves of vectors i and i + count, whose lanes then
 * take turns: inc/rows.h's transpose, added up on the way. */
INLINE floatv sum_each(floatv *x)
{
#pragma unroll
    for (int count = LANES / 2; count > 0; count /= 2)
#pragma unroll
        for (int i = 0; i < count; i++)
            x[i] = ZIP_LOW(x[i], x[i + count]) + ZIP_HIGH(x[i], x[i + count]);
    return x[0];
}

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
                         const attention_side *side)
{
    for (int r = 0; r < BLOCK; r++)
        for (int d = 0; d < D_K; d += LANES) {
            const long at = a->vector.offset + ROW_HEAD(block, LIVE_ROW(block, r)) * a->vector.head + d * a->vector.col;
            floatv x;
            LOAD_ROW(F32, x, side->vector, at, a->vector.col, D_K - d, 0.0f);
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
            const floatv x = select(o[r * V_VECTORS + d / LANES] * factor[r], (floatv)(0.0f), (floatv)(factor[r]) == 0.0f);
            if (D_V - d >= LANES && col == 1) {
                STOREV(O_TYPE, output, at, x);
            } else {
                float lane[LANES];
                VSTORE(x, 0, lane);
                for (int c = 0; c < LANES && d + c < D_V; c++)
                    STORE(O_TYPE, output, at + c * col, lane[c]);
            }
        }
}

/* ---- a tile of keys ---- */

/* FIND_TILE and then, for each vector of keys, FIND_VECTOR say where the rows of an array and of its scales lie; ROW_AT(c)
 * and SCALES_AT(c) are those of key j + c.  A vector of keys lies in one page, or there is a table. */
#define BY_TABLE (TABLE && PAGE_SIZE % LANES != 0)
#if BY_TABLE
#define FIND_TILE(array, scale, GROUPS) \
    long rows[KEY_TILE], scales[KEY_TILE]; \
    find_rows(rows, &a->array, start, n, item, a, side); \
    if (GROUPS) \
        find_rows(scales, &a->scale, start, n, item, a, side)
#define FIND_VECTOR(array, scale, GROUPS)
#define ROW_AT(c) rows[j + (c)]
#define SCALES_AT(c) scales[j + (c)]
#else
#define FIND_TILE(array, scale, GROUPS) const long step = a->array.row, scale_step = a->scale.row
#define FIND_VECTOR(array, scale, GROUPS) \
    const long row = attention_row(&a->array, item, start + j, a, side); \
    const long scale_row = GROUPS ? attention_row(&a->scale, item, start + j, a, side) : 0
#define ROW_AT(c) (row + (c) * step)
#define SCALES_AT(c) (scale_row + (c) * scale_step)
#endif

/* s[r * KEY_TILE + j] = scale * score of row r and key start + j, for j < n; what is beyond, up to the next multiple of
 * LANES, repeats the last key. */
INLINE void score_tile(floatv *s, const floatv *q, const floatv *weight, const global ELEMENT(K_TYPE) *key, int start,
                       int n, const attention_item *item, const attention_args *a, const attention_side *side)
{
    const long col = UNIT_STRIDE ? 1 : a->key.col;
    FIND_TILE(key, key_scale, KEY_GROUPS);

    for (int j = 0; j < n; j += LANES) {
        floatv part[BLOCK * LANES];
        FIND_VECTOR(key, key_scale, KEY_GROUPS);
        for (int c = 0; c < LANES; c += KEY_STEP) {
            floatv acc[KEY_STEP][BLOCK];
#pragma unroll
            for (int k = 0; k < KEY_STEP; k++)
#pragma unroll
                for (int r = 0; r < BLOCK; r++)
                    acc[k][r] = (floatv)(0.0f);
#pragma unroll
            for (int v = 0; v < K_VECTORS; v++)
#pragma unroll
                for (int k = 0; k < KEY_STEP; k++) {
                    const int at = min(c + k, n - 1 - j);
                    floatv x;
                    LOAD_ROW(K_TYPE, x, key, ROW_AT(at) + v * LANES * col, col, D_K - v * LANES, 0.0f);
                    SCALE_KEY(x, SCALES_AT(at), v * LANES);
#pragma unroll
                    for (int r = 0; r < BLOCK; r++)
#if ADDITIVE
                        acc[k][r] = FMA(weight[r * K_VECTORS + v], tanhv(q[r * K_VECTORS + v] + x), acc[k][r]);
#else
                        acc[k][r] = FMA(q[r * K_VECTORS + v], x, acc[k][r]);
#endif
                }
#pragma unroll
            for (int k = 0; k < KEY_STEP; k++)
#pragma unroll
                for (int r = 0; r < BLOCK; r++)
                    part[r * LANES + c + k] = acc[k][r];
        }
        for (int r = 0; r < BLOCK; r++)
            s[r * TILE_VECTORS + j / LANES] = sum_each(part + r * LANES) * a->scale;
    }
}

/* From the products to the scores that the softmax takes; lanes that are no key of the tile get -inf. */
INLINE void modify_tile(floatv *s, int start, int n, const attention_block *block, const attention_args *a,
                        const attention_side *side)
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
#if SIDED
        long first, end;
        attention_sides(&item, i, a, &first, &end);
        low = (int)clamp(first - start, 0L, (long)n);
        high = (int)clamp(end - start, 0L, (long)n);
#endif
#if ADDED || USER_MODS
        float *score = (float *)row;
        for (int j = low; j < high; j++) {
            if (attention_deselects(&item, i, start + j, a, side))
                score[j] = -INFINITY;
            else
                score[j] = attention_biased(score[j], &item, i, start + j, a, side);
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
    float highest, shrink;
    floatv sum, moment; /* of exp(s - highest), and with ENTROPY of that times s - highest, lane by lane */
} row_state;

/* Scores become weights, and the state takes the tile in; as cpu_softmax.h's softmax_tile. */
INLINE void softmax_tile(floatv *s, int n, row_state *state_of)
{
    const int vectors = (n + LANES - 1) / LANES;

    for (int r = 0; r < BLOCK; r++) {
        row_state *row = &state_of[r];
        floatv *x = s + r * TILE_VECTORS;
        floatv top = (floatv)(-INFINITY);
        for (int v = 0; v < vectors; v++)
            top = select(top, x[v], x[v] > top);
        const float lane = largest_lane(top);
        const float highest = lane > row->highest ? lane : row->highest;
        const float safe = highest == -INFINITY ? 0.0f : highest;
        row->shrink = exp2s((row->highest - safe) * LOG2E);
        row->sum *= row->shrink;
#if ENTROPY
        /* -inf - anything times a sum of 0 is no number. */
        row->moment = select(FMA((floatv)(row->highest - safe), row->sum, row->moment * row->shrink), (floatv)(0.0f),
                             (floatv)(row->shrink) == 0.0f);
#endif
        row->highest = highest;
        for (int v = 0; v < vectors; v++) {
            const floatv below = x[v] - safe;
            const floatv p = exp2v(below * LOG2E);
            row->sum += p;
#if ENTROPY
            row->moment += select(p * below, (floatv)(0.0f), p == 0.0f);
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
            const int4 kept = attention_keeps(&item, ROW_QUERY(block, LIVE_ROW(block, r)), four, a);
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

/* O += P V for `count` keys from j + c on, a literal. */
#define ADD_VALUES(count) \
    do { \
        _Pragma("unroll") \
        for (int v = 0; v < V_VECTORS; v++) { \
            floatv x[count]; \
            _Pragma("unroll") \
            for (int k = 0; k < (count); k++) { \
                LOAD_ROW(V_TYPE, x[k], value, ROW_AT(c + k) + v * LANES * col, col, D_V - v * LANES, 0.0f); \
                SCALE_VALUE(x[k], SCALES_AT(c + k), v * LANES); \
            } \
            _Pragma("unroll") \
            for (int r = 0; r < BLOCK; r++) { \
                floatv acc = o[r * V_VECTORS + v]; \
                _Pragma("unroll") \
                for (int k = 0; k < (count); k++) \
                    acc = FMA((floatv)(p[r * KEY_TILE + j + c + k]), x[k], acc); \
                o[r * V_VECTORS + v] = acc; \
            } \
        } \
    } while (0)

/* O = shrink * O + P V. */
INLINE void add_values(floatv *o, const float *p, const row_state *state_of, const global ELEMENT(V_TYPE) *value,
                       int start, int n, const attention_item *item, const attention_args *a, const attention_side *side)
{
    const long col = UNIT_STRIDE ? 1 : a->value.col;
    FIND_TILE(value, value_scale, VALUE_GROUPS);

    for (int r = 0; r < BLOCK; r++)
        for (int v = 0; v < V_VECTORS; v++)
            o[r * V_VECTORS + v] *= state_of[r].shrink;
    for (int j = 0; j < n; j += LANES) {
        FIND_VECTOR(value, value_scale, VALUE_GROUPS);
        if (n - j >= LANES)
            for (int c = 0; c < LANES; c += VALUE_STEP)
                ADD_VALUES(VALUE_STEP);
        else
            for (int c = 0; c < n - j; c++)
                ADD_VALUES(1);
    }
}

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void attention_cpu_decode(const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key,
                          const global ELEMENT(V_TYPE) *value, ATTENTION_SIDE_PARAMETERS
                          global ELEMENT(O_TYPE) *output, ATTENTION_RESULT_PARAMETERS attention_args a)
{
    const attention_side side = ATTENTION_SIDE;
    if (attention_idle(&a, &side))
        return;

    attention_block block;
    block_of(&block, (int)get_group_id(2), (int)get_group_id(1), (int)get_group_id(0), &a, &side);
    if (block.rows <= 0)
        return;

    floatv q[BLOCK * K_VECTORS], o[BLOCK * V_VECTORS], s[BLOCK * TILE_VECTORS];
    row_state state_of[BLOCK];
#if ADDITIVE
    floatv weight[BLOCK * K_VECTORS];
#else
    floatv weight[1];
#endif
    for (int r = 0; r < BLOCK; r++) {
        state_of[r].highest = -INFINITY;
        state_of[r].sum = state_of[r].moment = (floatv)(0.0f);
    }
    for (int c = 0; c < BLOCK * V_VECTORS; c++)
        o[c] = (floatv)(0.0f);

    int begin = 0, end = 0;
    if (block.live > 0) {
        attention_keys(&block.item, block.first, block.first + block.last, &a, &begin, &end);
        if (TABLE && !BY_TABLE) /* modify_tile leaves out what the window does not reach */
            begin &= ~(LANES - 1);
        load_queries(q, query, &block, &a);
#if ADDITIVE
        load_weights(weight, &block, &a, &side);
#endif
    }
    for (int start = begin, n; start < end; start += n) {
        n = tile_length(start, end, &a);
#if MASK
        if (mask_class(side.mask, start, n, &block, &a) == TILE_CLOSED)
            continue;
#endif
        score_tile(s, q, weight, key, start, n, &block.item, &a, &side);
        modify_tile(s, start, n, &block, &a, &side);
        softmax_tile(s, n, state_of);
#if DROPOUT
        drop_tile(s, start, n, &block, &a);
#endif
        add_values(o, (const float *)s, state_of, value, start, n, &block.item, &a, &side);
    }

    float factor[BLOCK], row_lse[BLOCK];
    attention_item item = block.item;
    for (int r = 0; r < block.rows; r++) {
        const bool live = r < block.live;
        const float highest = live ? state_of[r].highest : -INFINITY, sum = live ? sum_lanes(state_of[r].sum) : 0.0f;
        item.h = ROW_HEAD(&block, r);
        factor[r] = attention_finish(highest, sum, &item, &a, &side, &row_lse[r]);
#if LSE
        lse[attention_result_row(&a.lse, &block.item, block.first) + ROW_OFFSET(&block, &a.lse, r)] = row_lse[r];
#endif
#if ENTROPY
        entropy[attention_result_row(&a.entropy, &block.item, block.first) + ROW_OFFSET(&block, &a.entropy, r)] =
            attention_entropy(highest, sum, live ? sum_lanes(state_of[r].moment) : 0.0f, &item, &a, &side);
#endif
    }
    store_output(output, o, factor, &block, &a);
}
