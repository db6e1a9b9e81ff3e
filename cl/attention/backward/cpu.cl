/* Attention's backward direction for CPU devices: one work-item a work-group, five products for each pair of a query and a key.
 *
 * A work-item holds a block of queries and walks over tiles of keys (attention/backward/core.h has the formula):
 *
 *     S^T = K Q^T,   dP^T = V dO^T,   dQ^T += K^T dS^T        queries across vector lanes
 *     dV += P^T dO,  dK += dS^T Q                             columns across vector lanes; the sums are in the workspace
 *
 * It does so for every block of its part, one after another, and a part has sums of its own: so there is one order.  The second kernel
 * adds the parts up.
 *
 * Arrays, strides and macros: attention/core.h and attention/backward/core.h, all of it except DOUBLE and ADDITIVE; any strides.
 * LANES, QUERY_VECTORS, KEY_TILE and KEY_STEP (also the columns of a register tile) are those of attention/cpu/lanes.cl.
 * PAIRS and X86_BF16: 1: products of bfloat16 pairs, and by an instruction; Q, K, V and dO are BF16, and P and dS are rounded.
 * SPLIT_FLOATS and X86_AMX: 1: products by AMX (attention/backward/products_amx.h), and by its instructions; Q, K, V and dO are F32, F16
 * or BF16 each.  Without SPLIT_FLOATS the products are those of attention/backward/products.h.
 * DQ_TYPE DK_TYPE DV_TYPE, GRADIENT_QUERY GRADIENT_KEY GRADIENT_VALUE: as in attention/backward/generic.cl, whose
 * attention_backward_sum adds the sinks' up.
 *
 * NDRange: attention_backward_cpu: (a.splits, key/value heads, batch) work-groups of one item; part p has the blocks p, p + a.splits,
 * ... of all heads of its key/value head.  attention_backward_cpu_keys: (1, key_length, key/value heads * batch).
 *
 * Workspace, behind the rows' four numbers: for each part (batch, key/value heads, parts, keys) a row of D_K and one of D_V floats,
 * both rounded up to LANES, with SPLIT_FLOATS to 32.  Private memory, in floats, at most: QUERY_VECTORS * LANES * (3 D_K + 2 D_V +
 * 5 (KEY_TILE + KEY_STEP)) + KEY_TILE * (D_K + D_V); with SPLIT_FLOATS, D being the greater of both sizes, QUERY_VECTORS * LANES *
 * (5 D_K + 4 D_V + D + 7 (KEY_TILE + KEY_STEP)) + KEY_TILE * (D_K + D_V + 1.5 D).
 *
 * Where |lse| is 16 or more in a row of a block, with SPLIT_FLOATS 8, its rounding shows, and the block walks the keys once more,
 * before, for the rows' factors.  A tile that no query of the block attends is skipped; a key that none attends counts as zeros.  But
 * a key that some attend must be finite, or it makes the others' rows of dQ NaN, too.
 *
 * Local memory: none.  Barriers: none.  Needs OpenCL C 1.2. */
#include "attention/backward/core.h"

#ifndef QUERY_VECTORS
#define QUERY_VECTORS 4
#endif
#ifndef KEY_TILE
#define KEY_TILE 48
#endif
#ifndef KEY_STEP
#define KEY_STEP 6
#endif
#ifndef SPLIT_FLOATS
#define SPLIT_FLOATS 0
#endif
#if DOUBLE || ADDITIVE || RING || GIVEN(PAGED) || KEY_GROUPS || VALUE_GROUPS
#error "the generic solver has these, or none"
#endif

#define WIDTH(size) ROUND_UP(size, SPLIT_FLOATS ? 32 : LANES)
#define K_WIDTH WIDTH(D_K)
#define V_WIDTH WIDTH(D_V)

#include "attention/cpu/keys.h"
#include "attention/cpu/lanes.h"
#include "attention/cpu/mask.h"
#include "attention/cpu/softmax.h"
#include "attention/backward/products.h"
#include "attention/backward/products_amx.h"
#include "lib/compensated.h"

#define LINES __attribute__((aligned(64))) /* of the cache */
#define LARGE_LSE (SPLIT_FLOATS ? 8.0f : 16.0f)
#define SELECTS (RANGED || MASK || BIAS || MASK_MOD) /* some pairs may not be attended */
#define SLOPES (SOFTCAP || SCORE_MOD)                /* the derivatives by the scaled scores are not 1 */

/* Rows of up to `size` columns from index `at` on, `step` apart, become rows of WIDTH(size) numbers. */
#define PACK_ROWS(TYPE, to, from, at, step, col, size, n) \
    do { \
        for (int j_ = 0; j_ < (n); j_++) \
            for (int d_ = 0; d_ < WIDTH(size); d_ += LANES) { \
                floatv x_; \
                LOAD_ROW(TYPE, x_, from, (at) + j_ * (step) + d_ * (col), col, (size) - d_, 0.0f); \
                set_row(to, WIDTH(size) * j_ + d_, x_); \
            } \
    } while (0)

/* What a block's rows are to the products. */
typedef struct block_rows {
    floatv lse[QUERY_VECTORS], delta[QUERY_VECTORS], factor[QUERY_VECTORS]; /* factor 0: the row attends nothing */
} block_rows;

/* ---- a block ---- */

/* The rows of Q and dO, zeros where a row attends nothing, and what else is known of the rows before any key is. */
INLINE void load_block(block_rows *rows, operand *q, operand *g, const global ELEMENT(Q_TYPE) *query,
                       const global ELEMENT(O_TYPE) *output, const global float *lse,
                       const global ELEMENT(DO_TYPE) *d_output, const global float *d_lse, const attention_block *block,
                       const attention_args *a)
{
    float row_lse[BLOCK], delta[BLOCK], factor[BLOCK];
    for (int r = 0; r < BLOCK; r++) {
        const long i = block->first + r;
        row_lse[r] = r < block->live ? lse[attention_query_row(&a->lse, &block->item, i)] : -INFINITY;
        factor[r] = row_lse[r] == -INFINITY ? 0.0f : 1.0f;
        delta[r] = 0.0f;
#if GRADIENT_LSE
        if (factor[r] != 0.0f)
            delta[r] = -d_lse[attention_query_row(&a->entropy, &block->item, i)];
#endif
        int begin, end;
        attention_keys(&block->item, i, i, a, &begin, &end);
        if (factor[r] == 0.0f || (begin >= end && !PARTIAL)) { /* it attends nothing, or its sink alone */
            for (int d = 0; d < K_WIDTH; d += LANES)
                set_row(q, r * K_WIDTH + d, (floatv)(0.0f));
            for (int c = 0; c < V_WIDTH; c += LANES)
                set_row(g, r * V_WIDTH + c, (floatv)(0.0f));
            continue;
        }
        const long from = attention_query_row(&a->scores, &block->item, i),
                   to = attention_query_row(&a->output, &block->item, i);
        PACK_ROWS(Q_TYPE, q + r * OPERANDS(K_WIDTH), query, attention_query_row(&a->query, &block->item, i), 0,
                  a->query.col, D_K, 1);
        PACK_ROWS(DO_TYPE, g + r * OPERANDS(V_WIDTH), d_output, from, 0, a->scores.col, D_V, 1);
        floatv sum = (floatv)(0.0f);
        for (int c = 0; c < D_V; c += LANES) {
            floatv x;
            LOAD_ROW(O_TYPE, x, output, to + c * a->output.col, a->output.col, D_V - c, 0.0f);
            sum = FMA(x, row_at(g, r * V_WIDTH + c), sum);
        }
        float lane[LANES];
        VSTORE(sum, 0, lane);
        for (int l = 0; l < LANES; l++)
            delta[r] += lane[l];
    }
    for (int v = 0; v < QUERY_VECTORS; v++) {
        rows->lse[v] = VLOAD(v, row_lse);
        rows->delta[v] = VLOAD(v, delta);
        rows->factor[v] = VLOAD(v, factor);
    }
}

#if SCORE_MOD
/* Turns capped scores into the derivatives of scores by the scaled ones.  The user's function is called for pairs of live rows
 * whose score s is not -inf; the others get 0. */
INLINE void derive_each(floatv *slope, const floatv *s, int start, int n, const attention_block *block,
                        const attention_args *a, const optional_arrays *arrays)
{
    for (int j = 0; j < n; j++)
        for (int v = 0; v < QUERY_VECTORS; v++) {
            float score[LANES], lane[LANES];
            VSTORE(s[j * QUERY_VECTORS + v], 0, score);
            VSTORE(slope[j * QUERY_VECTORS + v], 0, lane);
            for (int l = 0; l < LANES; l++) {
                const int r = v * LANES + l;
                if (r < block->live && score[l] != -INFINITY)
                    lane[l] = attention_slope(lane[l], &block->item, block->first + r, start + j, a, arrays);
                else
                    lane[l] = 0.0f;
            }
            slope[j * QUERY_VECTORS + v] = VLOAD(0, lane);
        }
}
#endif

/* The scores of a tile of keys, which are packed into k; -inf where a pair is not attended.  False: no pair is.  With SLOPES, slope is
 * the derivative of a score by the scaled score. */
INLINE bool score_tile(floatv *s, floatv *slope, operand *k, word *room, converted qt,
                       const global ELEMENT(K_TYPE) *key, int start, int n, const attention_block *block,
                       const attention_args *a, const optional_arrays *arrays)
{
    bool open = true;
#if MASK
    const int kind = mask_class(arrays->mask, start, n, block, a);
    open = kind == TILE_OPEN;
    if (kind == TILE_CLOSED)
        return false;
#endif
    PACK_ROWS(K_TYPE, k, key, attention_row(&a->key, &block->item, start, a, arrays), a->key.row, a->key.col, D_K, n);
    multiply_rows(s, keys_along_columns(room, k, K_WIDTH, n, TERMS_OF(K_TYPE)), K_WIDTH, D_K, qt, n);
    for (int j = 0; j < n * QUERY_VECTORS && !RAW_SCORES; j++)
        s[j] *= a->scale;
    for (int j = 0; j < n * QUERY_VECTORS && SLOPES; j++)
        slope[j] = s[j];
#if SOFTCAP
    cap_scores(slope, n * QUERY_VECTORS, a->softcap);
#endif
    modify_tile(s, open, start, n, block, a, arrays);
#if SCORE_MOD
    derive_each(slope, s, start, n, block, a, arrays);
#elif SOFTCAP
    for (int j = 0; j < n * QUERY_VECTORS; j++)
        slope[j] = 1.0f - (slope[j] / a->softcap) * (slope[j] / a->softcap);
#endif
    return true;
}

/* P of vector v's queries and a key, from their scores. */
INLINE floatv weigh(floatv s, int v, const block_rows *rows, const attention_args *a)
{
    const floatv x = RAW_SCORES ? FMA(s, (floatv)(a->scale), -rows->lse[v]) : s - rows->lse[v];
    const floatv p = fast_exp2v(x * LOG2E) * rows->factor[v];
    return select(p, (floatv)(0.0f), s == -INFINITY || rows->factor[v] == 0.0f);
}

#if SINKS
INLINE float sink_of(float row_lse, const attention_block *block, const attention_args *a,
                     const optional_arrays *arrays)
{
    return NATURAL_EXP(arrays->sinks[a->sinks.offset + block->item.h * a->sinks.stride] - row_lse);
}
#endif

/* Sets the factors of the rows to 1 / (their weights' sum), if a log-sum-exp is so large that its rounding shows. */
INLINE void find_factors(block_rows *rows, floatv *s, floatv *slope, operand *k, word *room, converted qt,
                         const global ELEMENT(K_TYPE) *key, int begin, int end, const attention_block *block,
                         const attention_args *a, const optional_arrays *arrays)
{
    intv large = (intv)(0);
    floatv sum[QUERY_VECTORS], lost[QUERY_VECTORS];
    for (int v = 0; v < QUERY_VECTORS; v++) {
        large |= fabs(rows->lse[v]) >= LARGE_LSE && rows->factor[v] != 0.0f;
        sum[v] = lost[v] = (floatv)(0.0f);
    }
    if (!any(large))
        return;
    for (int start = begin, n; start < end; start += n) {
        n = tile_length(KEY_TILE, start, end, a);
        if (!score_tile(s, slope, k, room, qt, key, start, n, block, a, arrays))
            continue;
        for (int j = 0; j < n; j++)
            for (int v = 0; v < QUERY_VECTORS; v++)
                ADD(floatv, sum[v], lost[v], weigh(s[j * QUERY_VECTORS + v], v, rows, a));
    }
    for (int v = 0; v < QUERY_VECTORS; v++) {
#if SINKS
        float lane[LANES];
        VSTORE(rows->lse[v], 0, lane);
        for (int l = 0; l < LANES; l++)
            lane[l] = sink_of(lane[l], block, a, arrays);
        sum[v] += VLOAD(0, lane);
#endif
        rows->factor[v] = select(1.0f / sum[v], (floatv)(0.0f), rows->factor[v] == 0.0f || sum[v] == 0.0f);
    }
}

/* Keys that no query of the block attends become zeros, whatever they hold. */
INLINE void forget_keys(operand *rows, const int width, const floatv *s, int n)
{
    for (int j = 0; j < n && SELECTS; j++) {
        intv attended = (intv)(0);
        for (int v = 0; v < QUERY_VECTORS && !any(attended); v++)
            attended = s[j * QUERY_VECTORS + v] != -INFINITY;
        for (int d = 0; d < width && !any(attended); d += LANES)
            set_row(rows, j * width + d, (floatv)(0.0f));
    }
}

/* attention_unsigned_zero of vectors. */
INLINE floatv unsigned_zeros(floatv x)
{
    return select(x, (floatv)(0.0f), x == 0.0f);
}

/* Stores dQ of the block, times the scale. */
INLINE void store_queries(global ELEMENT(DQ_TYPE) *d_query, const floatv *sum, const block_rows *rows,
                          const attention_block *block, const attention_args *a)
{
    const long start = attention_query_row(&a->key_scale, &block->item, block->first), col = a->key_scale.col;
    for (int v = 0; v < QUERY_VECTORS; v++)
        for (int d = 0; d < D_K; d += LANES) {
            floatv x[LANES];
            for (int c = 0; c < LANES; c++)
                x[c] = select(unsigned_zeros(sum[(d + c) * QUERY_VECTORS + v] * a->scale), (floatv)(0.0f),
                              rows->factor[v] == 0.0f);
            transpose(x);
            for (int r = 0; r < LANES && v * LANES + r < block->rows; r++)
                STORE_ROW(DQ_TYPE, d_query, start + ROW_OFFSET(block, &a->key_scale, v * LANES + r) + d * col, col,
                          D_K - d, x[r]);
        }
}

/* What the sinks add to their gradient. */
INLINE void store_sinks(global float *work, const block_rows *rows, const attention_block *block,
                        const attention_args *a, const optional_arrays *arrays)
{
#if SINKS
    for (int v = 0; v < QUERY_VECTORS; v++) {
        float lse[LANES], delta[LANES], factor[LANES];
        VSTORE(rows->lse[v], 0, lse);
        VSTORE(rows->delta[v], 0, delta);
        VSTORE(rows->factor[v], 0, factor);
        for (int l = 0; l < LANES && v * LANES + l < block->live; l++)
            work[attention_workspace_at(PART_SINK, &block->item, block->first + v * LANES + l, a)] =
                factor[l] == 0.0f ? 0.0f : -sink_of(lse[l], block, a, arrays) * factor[l] * delta[l];
    }
#endif
}

/* Where the sums of key j of a part are: a row of dK, and behind it one of dV. */
static inline long sums_at(int b, int g, int part, long j, const attention_args *a)
{
    const long head = (long)b * (a->heads / a->group) + g;
    return a->value_scale.offset + 4 * WORKSPACE_ROWS(a) +
           ((head * a->splits + part) * a->key_length + j) * (K_WIDTH + V_WIDTH);
}

/* All blocks of a part, of the heads of key/value head g. */
ITEM_FUNCTION take_part(const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key,
                        const global ELEMENT(V_TYPE) *value, const optional_arrays *arrays,
                        const global ELEMENT(O_TYPE) *output, const global float *lse,
                        const global ELEMENT(DO_TYPE) *d_output, const global float *d_lse,
                        global ELEMENT(DQ_TYPE) *d_query, global float *work, int part, int g, int b,
                        const attention_args *a)
{
    const int blocks = (a->query_length + BLOCK - 1) / BLOCK, step = K_WIDTH + V_WIDTH;
    operand q[BLOCK * OPERANDS(K_WIDTH)] LINES, go[BLOCK * OPERANDS(V_WIDTH)] LINES;
    operand k[KEY_TILE * OPERANDS(K_WIDTH)] LINES, v[KEY_TILE * OPERANDS(V_WIDTH)] LINES;
    floatv sum[K_WIDTH * QUERY_VECTORS];
    floatv s[(KEY_TILE + KEY_STEP) * QUERY_VECTORS], dp[(KEY_TILE + KEY_STEP) * QUERY_VECTORS];
    /* Q and dO in other orders; and in turn K and V, and P and dS. */
    word query_columns[COLUMN_WORDS(BLOCK * K_WIDTH)] LINES, gradient_columns[COLUMN_WORDS(BLOCK * V_WIDTH)] LINES;
    word query_rows[WORDS(BLOCK * K_WIDTH)] LINES, gradient_rows[WORDS(BLOCK * V_WIDTH)] LINES;
    word key_room[WORDS(KEY_TILE * (K_WIDTH > V_WIDTH ? K_WIDTH : V_WIDTH))] LINES;
    word weights[WORDS(KEY_TILE * BLOCK)] LINES, turned[WORDS(KEY_TILE * BLOCK)] LINES;
#if DROPOUT
    floatv kept[KEY_TILE * QUERY_VECTORS];
#else
    floatv *const kept = s;
#endif
#if SLOPES
    floatv slope[KEY_TILE * QUERY_VECTORS];
#else
    floatv *const slope = s;
#endif

    attention_item whole;
    attention_item_of(&whole, b, g * a->group, a, arrays);
#if GRADIENT_KEY || GRADIENT_VALUE
    for (long at = sums_at(b, g, part, 0, a); at < sums_at(b, g, part, whole.keys, a); at += LANES)
        STORE_WHOLE(global whole_floatv, work + at, (floatv)(0.0f));
#endif
    begin_products();
    for (int index = part; index < blocks * a->group; index += a->splits) {
        attention_block block;
        block_rows rows;
        int begin = 0, end = 0;
        const int head =
            index / blocks; /* No %: beside / it becomes an LLVM freeze, which Oclgrind 21.10 does not know. */
        block_of(&block, b, g * a->group + head, index - head * blocks, a, arrays);
        if (block.rows <= 0)
            continue;
        load_block(&rows, q, go, query, output, lse, d_output, d_lse, &block, a);
        const converted qt = block_along_columns(query_columns, q, K_WIDTH, TERMS_OF(Q_TYPE));
        const converted gt = block_along_columns(gradient_columns, go, V_WIDTH, TERMS_OF(DO_TYPE));
        const converted own = block_along_rows(query_rows, q, K_WIDTH, TERMS_OF(Q_TYPE));
        const converted given = block_along_rows(gradient_rows, go, V_WIDTH, TERMS_OF(DO_TYPE));
        for (int d = 0; d < K_WIDTH * QUERY_VECTORS; d++)
            sum[d] = (floatv)(0.0f);
        if (block.live > 0) {
            attention_keys(&block.item, block.first, block.first + block.last, a, &begin, &end);
#if !PARTIAL
            find_factors(&rows, s, slope, k, key_room, qt, key, begin, end, &block, a, arrays);
#endif
        }
        for (int start = begin, n; start < end; start += n) {
            n = tile_length(KEY_TILE, start, end, a);
            if (!score_tile(s, slope, k, key_room, qt, key, start, n, &block, a, arrays))
                continue;
            PACK_ROWS(V_TYPE, v, value, attention_row(&a->value, &block.item, start, a, arrays), a->value.row,
                      a->value.col, D_V, n);
            forget_keys(k, K_WIDTH, s, n);
            forget_keys(v, V_WIDTH, s, n);
            for (int j = 0; j < n; j++)
                for (int i = 0; i < QUERY_VECTORS; i++)
                    s[j * QUERY_VECTORS + i] = weigh(s[j * QUERY_VECTORS + i], i, &rows, a);
#if DROPOUT
            for (int j = 0; j < n * QUERY_VECTORS; j++)
                kept[j] = s[j];
            drop_tile(kept, start, n, &block, a);
#endif
            global float *sums = work + sums_at(b, g, part, start, a);
#if GRADIENT_VALUE
            add_rows(sums + K_WIDTH, step, along_queries(weights, kept, n), given, V_WIDTH, n, block.live);
#endif
#if GRADIENT_QUERY || GRADIENT_KEY
            multiply_rows(dp, keys_along_columns(key_room, v, V_WIDTH, n, TERMS_OF(V_TYPE)), V_WIDTH, D_V, gt, n);
            for (int j = 0; j < n; j++)
                for (int i = 0; i < QUERY_VECTORS; i++) {
                    const int at = j * QUERY_VECTORS + i;
#if DROPOUT
                    s[at] = kept[at] * (dp[at] * a->dropout_scale) - s[at] * rows.delta[i];
#else
                    s[at] = select(s[at] * (dp[at] - rows.delta[i]), (floatv)(0.0f), s[at] == 0.0f);
#endif
#if SCORE_MOD
                    s[at] *= slope[at]; /* 0 unless the pair is attended */
#elif SOFTCAP
                    s[at] = select(s[at] * slope[at], (floatv)(0.0f),
                                   s[at] == 0.0f); /* a key may be NaN that none attends */
#endif
                }
            const converted by_queries = along_queries(weights, s, n);
#endif
#if GRADIENT_KEY
            add_rows(sums, step, by_queries, own, K_WIDTH, n, block.live);
#endif
#if GRADIENT_QUERY
            add_columns(sum, keys_along_rows(key_room, k, K_WIDTH, n, TERMS_OF(K_TYPE)), K_WIDTH, D_K,
                        along_keys(turned, by_queries, s, n), n);
#endif
        }
#if GRADIENT_QUERY
        store_queries(d_query, sum, &rows, &block, a);
#endif
        store_sinks(work, &rows, &block, a, arrays);
    }
    end_products();
}

GROUP_SIZE(1, 1, 1)
kernel void attention_backward_cpu(const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key,
                                   const global ELEMENT(V_TYPE) *value,
                                   OPTIONAL_ARRAY_PARAMETERS const global ELEMENT(O_TYPE) *output,
                                   const global float *lse, const global ELEMENT(DO_TYPE) *d_output,
                                   const global float *d_lse, global ELEMENT(DQ_TYPE) *d_query, global float *work,
                                   attention_args a)
{
    const optional_arrays arrays = OPTIONAL_ARRAYS;
    if (a.batch == 0)
        return;
    take_part(query, key, value, &arrays, output, lse, d_output, d_lse, d_query, work, (int)group_id(&a.part, 0),
              (int)group_id(&a.part, 1), (int)group_id(&a.part, 2), &a);
}

/* Adds the parts up: dK and dV of one key. */
kernel void attention_backward_cpu_keys(const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key,
                                        const global ELEMENT(V_TYPE) *value,
                                        OPTIONAL_ARRAY_PARAMETERS const global float *lse,
                                        const global ELEMENT(DO_TYPE) *d_output, const global float *work,
                                        global ELEMENT(DK_TYPE) *d_key, global ELEMENT(DV_TYPE) *d_value,
                                        attention_args a)
{
    const optional_arrays arrays = OPTIONAL_ARRAYS;
    if (a.batch == 0)
        return;

    const int kv_heads = a.heads / a.group;
    const long j = (long)global_id(&a.part, 1);
    const int index = (int)global_id(&a.part, 2), b = index / kv_heads, g = index - b * kv_heads;
    if (j >= a.key_length || b >= a.batch)
        return;
    attention_item item;
    attention_item_of(&item, b, g * a.group, &a, &arrays);
    if (j >= item.key_rows)
        return;
    const int parts = a.query_length > 0 && j < item.keys ? a.splits : 0;
#if GRADIENT_KEY
    const long key_at = attention_row(&a.key_scale, &item, j, &a, &arrays);
    for (int d = 0; d < D_K; d += LANES) {
        floatv sum = (floatv)(0.0f);
        for (int part = 0; part < parts; part++)
            sum += VLOAD(0, work + sums_at(b, g, part, j, &a) + d);
        STORE_ROW(DK_TYPE, d_key, key_at + d * a.key_scale.col, a.key_scale.col, D_K - d,
                  unsigned_zeros(sum * a.scale));
    }
#endif
#if GRADIENT_VALUE
    const long value_at = attention_row(&a.output, &item, j, &a, &arrays);
    for (int c = 0; c < D_V; c += LANES) {
        floatv sum = (floatv)(0.0f);
        for (int part = 0; part < parts; part++)
            sum += VLOAD(0, work + sums_at(b, g, part, j, &a) + K_WIDTH + c);
        STORE_ROW(DV_TYPE, d_value, value_at + c * a.output.col, a.output.col, D_V - c,
                  sum * ATTENTION_DROPOUT_SCALE(&a));
    }
#endif
}
