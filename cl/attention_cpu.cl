/* Attention for CPU devices: queries across vector lanes, one work-item a work-group.
 *
 *   O[i,:] = sum_j p_ij V[j,:] / sum_j p_ij,   p_ij = exp(s_ij - max_j s_ij),
 *   s_ij   = scale * Q[i,:] . K[j,:]  (+ mask_ij), replaced by -inf where key j is not attended
 *   lse[i] = log sum_j exp(s_ij)
 *
 * Element (b, h, i, d) of query, output and mask, each with its own strides in `a`, is
 *   offset + b*batch + h*head + i*row + d*col;
 * key and value are indexed the same with h / a.group for the head; lse has (b, h, i).  Any strides and
 * any alignment; those of the inputs may be 0 or negative.
 *
 * Parameters
 *   Q_TYPE K_TYPE V_TYPE O_TYPE   storage of each array: F32 F16 BF16                 (F32)
 *   D_K, D_V        sizes of a query and of a value: 1 to 256                         (64)
 *   LANES           floats in a vector: 4 8 16                                        (inc/vector.h)
 *   QUERY_VECTORS   vectors of queries in a work-item: 1 2 4                          (4)
 *   KEY_TILE        keys for each rescaling, a multiple of KEY_STEP                   (96)
 *   KEY_STEP        keys of the register tile of Q K^T: 1 and more                    (6)
 *   COLUMN_STEP     columns of the register tile of P V: 1 and more                   (6)
 *   MASK            1: a mask argument: 0 1                                           (0)
 *   MASK_TYPE       BOOL: 1 = attend; else added to the score: BOOL F32 F16 BF16      (F32)
 *   CAUSAL          1: query i attends j <= i + a.position: 0 1                       (0)
 *   LSE             1: an lse argument (float): 0 1                                   (0)
 *   POSITIVE_SCALE  1: a.scale >= 1e-30, promised by the host; saves a multiplication a score: 0 1   (0)
 *   UNIT_STRIDE     1: a.key.col == a.value.col == 1, promised by the host: 0 1       (0)
 *   PACK            1: K and V are copied, a tile at a time, into a float array that the register
 *                   tiles read: for 16-bit storage, for columns that are not neighbours, and where
 *                   rows lie far apart: 0 1           (0 for F32 with UNIT_STRIDE, else 1)
 * Tested: LANES x QUERY_VECTORS x MASK (none, BOOL, F32) x CAUSAL x LSE x POSITIVE_SCALE x UNIT_STRIDE x
 * PACK; D_K, D_V 1 to 256.
 *
 * NDRange: (ceil(query_length / (QUERY_VECTORS * LANES)), heads, batch) work-groups of one item.  Dimension
 * 0 counts blocks of queries from the last to the first, so that with CAUSAL the heavy ones start first.
 * A work-item owns its block's rows of output and lse; in it, lane l of query vector v is query
 * v * LANES + l of the block, in every array of vectors below.
 *
 * Private memory, in floats: QUERY_VECTORS * LANES * (D_K + D_V + KEY_TILE), and with PACK KEY_TILE *
 * max(D_K, D_V) more (sizes rounded up to LANES): 57 KiB by default.  It lives on the stack of the
 * device's thread.  Local memory: none.  Barriers: none.
 *
 * State is float.  A masked score is -inf, p of it exactly +0; a row that attends nothing gives output +0
 * and lse -inf; NaN or +inf in an attended score travels through the sum and makes its row NaN.  K, V and
 * mask are read at j < key_length and Q and mask at i < query_length only; a tile shorter than KEY_TILE
 * or a block with fewer queries repeats its last row where the register tile wants more.
 *
 * Needs OpenCL C 1.2 and nothing else; attention_generic takes larger sizes. */
#include "inc/args.h"
#include "inc/storage.h"
#include "inc/vector.h"
#include "inc/exp2.h"
#include "inc/rows.h"

/* Fused operations are written as fma.  Left to the compiler, the difference of two rounded products in
 * softmax_tile becomes one rounded and one exact product: an error of 3e-4 at scores near 1e4. */
#pragma OPENCL FP_CONTRACT OFF

#ifndef Q_TYPE
#define Q_TYPE F32
#endif
#ifndef K_TYPE
#define K_TYPE F32
#endif
#ifndef V_TYPE
#define V_TYPE F32
#endif
#ifndef O_TYPE
#define O_TYPE F32
#endif
#ifndef D_K
#define D_K 64
#endif
#ifndef D_V
#define D_V 64
#endif
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
#ifndef MASK
#define MASK 0
#endif
#ifndef MASK_TYPE
#define MASK_TYPE F32
#endif
#ifndef CAUSAL
#define CAUSAL 0
#endif
#ifndef LSE
#define LSE 0
#endif
#ifndef POSITIVE_SCALE
#define POSITIVE_SCALE 0
#endif
#ifndef UNIT_STRIDE
#define UNIT_STRIDE 0
#endif

#define IS_F32_F32 1
#define IS_F32_F16 0
#define IS_F32_BF16 0
#define IS_BOOL_F32 0
#define IS_BOOL_F16 0
#define IS_BOOL_BF16 0
#define IS_BOOL_BOOL 1

#ifndef PACK
#define PACK (!(UNIT_STRIDE && JOIN(IS_F32_, K_TYPE) && JOIN(IS_F32_, V_TYPE)))
#endif

#if D_K < 1 || D_V < 1 || D_K > 256 || D_V > 256
#error "D_K and D_V must be 1 to 256"
#endif
#if QUERY_VECTORS != 1 && QUERY_VECTORS != 2 && QUERY_VECTORS != 4
#error "QUERY_VECTORS must be 1, 2 or 4"
#endif
#if KEY_STEP < 1 || COLUMN_STEP < 1 || KEY_TILE < 1 || KEY_TILE % KEY_STEP != 0
#error "KEY_TILE must be a multiple of KEY_STEP"
#endif

#define BLOCK (QUERY_VECTORS * LANES)
#define ROUND_UP(n, step) (((n) + (step) - 1) / (step) * (step))
#define COLUMN_REST (D_V % COLUMN_STEP)
#define BOOL_MASK (MASK && JOIN(IS_BOOL_, MASK_TYPE))
#define FLOAT_MASK (MASK && !JOIN(IS_BOOL_, MASK_TYPE))

/* RAW_SCORES: with a positive scale the largest s is where the largest dot product is.  Scores then stay
 * dot products, and scale * log2(e) enters in the FMA that subtracts the maximum.  A float mask forbids
 * it: the products that the FMA needs overflow for masks like -FLT_MAX. */
#define RAW_SCORES (POSITIVE_SCALE && !FLOAT_MASK)

/* What the register tiles read: the arrays themselves, or the packed tile. */
#if PACK
#define KEY_POINTER const float *
#define VALUE_POINTER const float *
#define LOAD_KEY(p, i) ((p)[i])
#define LOAD_VALUE(p, i) ((p)[i])
#else
#define KEY_POINTER const global ELEMENT(K_TYPE) *
#define VALUE_POINTER const global ELEMENT(V_TYPE) *
#define LOAD_KEY(p, i) LOAD(K_TYPE, p, i)
#define LOAD_VALUE(p, i) LOAD(V_TYPE, p, i)
#endif
#define PACK_ROW ROUND_UP((D_K > D_V ? D_K : D_V), LANES)

/* Q^T of the block, q[d * QUERY_VECTORS + v]; lanes past the last query repeat it. */
INLINE void load_queries(floatv *q, const global ELEMENT(Q_TYPE) *query, int queries, long row, long col)
{
    for (int v = 0; v < QUERY_VECTORS; v++) {
        for (int d = 0; d < D_K; d += LANES) {
            floatv x[LANES];
            for (int r = 0; r < LANES; r++)
                LOAD_ROW(Q_TYPE, x[r], query, min(v * LANES + r, queries - 1) * row + d * col, col, D_K - d,
                         0.0f);
            transpose(x);
            for (int c = 0; c < LANES; c++)
                q[(d + c) * QUERY_VECTORS + v] = x[c];
        }
    }
}

/* O of the block from O^T, o[c * QUERY_VECTORS + v], each lane times its `inverse`; lanes whose sum is 0
 * have attended nothing and get +0 whatever the accumulator holds. */
INLINE void store_output(global ELEMENT(O_TYPE) *output, const floatv *o, const floatv *sum, int queries,
                         long row, long col)
{
    for (int v = 0; v < QUERY_VECTORS; v++) {
        const floatv inverse = 1.0f / sum[v];
        for (int d = 0; d < D_V; d += LANES) {
            floatv x[LANES];
            for (int c = 0; c < LANES; c++)
                x[c] = select(o[(d + c) * QUERY_VECTORS + v] * inverse, (floatv)(0.0f), sum[v] == 0.0f);
            transpose(x);
            for (int r = 0; r < LANES && v * LANES + r < queries; r++) {
                const long at = (v * LANES + r) * row + d * col;
                if (D_V - d >= LANES && col == 1) {
                    STOREV(O_TYPE, output, at, x[r]);
                } else {
                    float lane[LANES];
                    VSTORE(x[r], 0, lane);
                    for (int c = 0; c < LANES && d + c < D_V; c++)
                        STORE(O_TYPE, output, at + c * col, lane[c]);
                }
            }
        }
    }
}

#if PACK
/* `keys` rows of K or of V as floats, PACK_ROW apart. */
#define PACK_TILE(TYPE, tile, p, keys, size, row, col) \
    do { \
        for (int j_ = 0; j_ < (keys); j_++) \
            for (int d_ = 0; d_ < (size); d_ += LANES) { \
                floatv x_; \
                LOAD_ROW(TYPE, x_, p, j_ * (row) + d_ * (col), col, (size) - d_, 0.0f); \
                VSTORE(x_, 0, (tile) + j_ * PACK_ROW + d_); \
            } \
    } while (0)
#endif

/* S^T of a tile: s[j * QUERY_VECTORS + v] = factor * dot product, for keys j < n; the rows up to the next
 * multiple of KEY_STEP get copies of the last. */
INLINE void score_tile(floatv *s, const floatv *q, KEY_POINTER key, int n, long row, long col, float factor)
{
    for (int j = 0; j < n; j += KEY_STEP) {
        floatv acc[KEY_STEP][QUERY_VECTORS];
        long at[KEY_STEP];
#pragma unroll
        for (int r = 0; r < KEY_STEP; r++) {
            at[r] = min(j + r, n - 1) * row;
#pragma unroll
            for (int v = 0; v < QUERY_VECTORS; v++)
                acc[r][v] = (floatv)(0.0f);
        }
        for (int d = 0; d < D_K; d++) {
#pragma unroll
            for (int r = 0; r < KEY_STEP; r++) {
                const floatv k = (floatv)(LOAD_KEY(key, at[r] + d * col));
#pragma unroll
                for (int v = 0; v < QUERY_VECTORS; v++)
                    acc[r][v] = FMA(k, q[d * QUERY_VECTORS + v], acc[r][v]);
            }
        }
#pragma unroll
        for (int r = 0; r < KEY_STEP; r++)
#pragma unroll
            for (int v = 0; v < QUERY_VECTORS; v++)
                s[(j + r) * QUERY_VECTORS + v] = RAW_SCORES ? acc[r][v] : acc[r][v] * factor;
    }
}

#if MASK
/* Applies the mask to keys j < n of S^T. */
INLINE void mask_tile(floatv *s, const global ELEMENT(MASK_TYPE) *mask, int n, int queries, long row, long col)
{
    const float excluded = BOOL_MASK ? 0.0f : -INFINITY;

    for (int j = 0; j < n; j += LANES) {
        for (int v = 0; v < QUERY_VECTORS; v++) {
            floatv x[LANES];
            for (int r = 0; r < LANES; r++)
                LOAD_ROW(MASK_TYPE, x[r], mask, min(v * LANES + r, queries - 1) * row + j * col, col, n - j,
                         excluded);
            transpose(x);
            for (int c = 0; c < LANES && j + c < n; c++) {
                floatv *score = s + (j + c) * QUERY_VECTORS + v;
                const floatv open = FLOAT_MASK ? *score + x[c] : *score;
                *score = select(open, (floatv)(-INFINITY), x[c] == excluded);
            }
        }
    }
}
#endif

#if CAUSAL
/* Excludes key j < n from the queries below j + below: those for which lane < j + below. */
INLINE void causal_tile(floatv *s, int n, int below)
{
    for (int j = 0; j < n; j++)
        for (int v = 0; v < QUERY_VECTORS; v++) {
            floatv *score = s + j * QUERY_VECTORS + v;
            *score = select(*score, (floatv)(-INFINITY), LANE_INDEX + v * LANES < j + below);
        }
}
#endif

/* S^T becomes P^T for keys j < n, `highest` and `sum` take the tile in, and `shrink` tells what the
 * accumulators are to be multiplied by.  `highest` takes no NaN (the comparison is false): it is the
 * score's own subtraction that carries a NaN on.  Where all scores so far are -inf, 0 is subtracted:
 * -inf - -inf would be a NaN.  The maximum is multiplied by `factor` before the subtraction and rounded
 * there, once and for old and new alike, so that p and shrink refer to exactly the same number. */
INLINE void softmax_tile(floatv *s, int n, float factor, floatv *highest, floatv *sum, floatv *shrink)
{
    floatv top[QUERY_VECTORS];
    floatv total[QUERY_VECTORS];

#pragma unroll
    for (int v = 0; v < QUERY_VECTORS; v++)
        top[v] = highest[v];
    for (int j = 0; j < n; j++)
#pragma unroll
        for (int v = 0; v < QUERY_VECTORS; v++) {
            const floatv x = s[j * QUERY_VECTORS + v];
            top[v] = select(top[v], x, x > top[v]);
        }
#pragma unroll
    for (int v = 0; v < QUERY_VECTORS; v++) {
        const floatv safe = select(top[v], (floatv)(0.0f), top[v] == -INFINITY);
        shrink[v] = exp2v(RAW_SCORES ? highest[v] * factor - safe * factor : (highest[v] - safe) * LOG2E);
        highest[v] = top[v];
        top[v] = RAW_SCORES ? safe * factor : safe;
        total[v] = (floatv)(0.0f);
    }
    for (int j = 0; j < n; j++)
#pragma unroll
        for (int v = 0; v < QUERY_VECTORS; v++) {
            const floatv x = s[j * QUERY_VECTORS + v];
            const floatv p = exp2v(RAW_SCORES ? FMA(x, (floatv)(factor), -top[v]) : (x - top[v]) * LOG2E);
            s[j * QUERY_VECTORS + v] = p;
            total[v] += p;
        }
#pragma unroll
    for (int v = 0; v < QUERY_VECTORS; v++)
        sum[v] = FMA(sum[v], shrink[v], total[v]);
}

/* O^T = shrink * O^T + V^T P^T for `columns` <= COLUMN_STEP columns of V, a literal, and keys j < n. */
INLINE void value_columns(floatv *o, const int columns, const floatv *p, VALUE_POINTER value, int n, long row,
                          long col, const floatv *shrink)
{
    floatv acc[COLUMN_STEP][QUERY_VECTORS];

#pragma unroll
    for (int c = 0; c < columns; c++)
#pragma unroll
        for (int v = 0; v < QUERY_VECTORS; v++)
            acc[c][v] = o[c * QUERY_VECTORS + v] * shrink[v];
    for (int j = 0; j < n; j++)
#pragma unroll
        for (int c = 0; c < columns; c++) {
            const floatv x = (floatv)(LOAD_VALUE(value, j * row + c * col));
#pragma unroll
            for (int v = 0; v < QUERY_VECTORS; v++)
                acc[c][v] = FMA(x, p[j * QUERY_VECTORS + v], acc[c][v]);
        }
#pragma unroll
    for (int c = 0; c < columns; c++)
#pragma unroll
        for (int v = 0; v < QUERY_VECTORS; v++)
            o[c * QUERY_VECTORS + v] = acc[c][v];
}

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void attention_cpu(const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key,
                   const global ELEMENT(V_TYPE) *value,
#if MASK
                   const global ELEMENT(MASK_TYPE) *mask,
#endif
                   global ELEMENT(O_TYPE) *output,
#if LSE
                   global float *lse,
#endif
                   attention_args a)
{
    if (a.batch == 0)
        return;

    const long h = (long)get_group_id(1);
    const long b = (long)get_group_id(2);
    const int first = (int)(get_num_groups(0) - 1 - get_group_id(0)) * BLOCK;
    const int queries = min(BLOCK, a.query_length - first);
    const long key_col = UNIT_STRIDE ? 1 : a.key.col;
    const long value_col = UNIT_STRIDE ? 1 : a.value.col;
    const float factor = RAW_SCORES ? a.scale * LOG2E : a.scale;
    if (queries <= 0)
        return;

    query += a.query.offset + b * a.query.batch + h * a.query.head + first * a.query.row;
    key += a.key.offset + b * a.key.batch + h / a.group * a.key.head;
    value += a.value.offset + b * a.value.batch + h / a.group * a.value.head;
    output += a.output.offset + b * a.output.batch + h * a.output.head + first * a.output.row;
    int keys = a.key_length;
#if MASK
    mask += a.mask.offset + b * a.mask.batch + h * a.mask.head + first * a.mask.row;
    keys = min(keys, a.mask_keys);
#endif
#if CAUSAL
    /* All queries of the block attend the keys below `open`; none attends those from `keys` on. */
    const long open = first + a.position + 1;
    keys = (int)max(min((long)keys, open + queries - 1), 0L);
#endif

    floatv q[ROUND_UP(D_K, LANES) * QUERY_VECTORS];
    floatv o[ROUND_UP(D_V, LANES) * QUERY_VECTORS];
    floatv s[KEY_TILE * QUERY_VECTORS];
#if PACK
    floatv packed[KEY_TILE * PACK_ROW / LANES];
    float *tile = (float *)packed;
#endif
    floatv highest[QUERY_VECTORS], sum[QUERY_VECTORS], shrink[QUERY_VECTORS];
    for (int v = 0; v < QUERY_VECTORS; v++) {
        highest[v] = (floatv)(-INFINITY);
        sum[v] = (floatv)(0.0f);
    }
    for (int c = 0; c < ROUND_UP(D_V, LANES) * QUERY_VECTORS; c++)
        o[c] = (floatv)(0.0f);
    load_queries(q, query, queries, a.query.row, a.query.col);

    for (int start = 0; start < keys; start += KEY_TILE) {
        const int n = min(KEY_TILE, keys - start);
        const global ELEMENT(K_TYPE) *key_rows = key + start * a.key.row;
        const global ELEMENT(V_TYPE) *value_rows = value + start * a.value.row;

#if PACK
        PACK_TILE(K_TYPE, tile, key_rows, n, D_K, a.key.row, key_col);
        score_tile(s, q, tile, n, PACK_ROW, 1, factor);
#else
        score_tile(s, q, key_rows, n, a.key.row, key_col, factor);
#endif
#if MASK
        mask_tile(s, mask + start * a.mask.col, n, queries, a.mask.row, a.mask.col);
#endif
#if CAUSAL
        if (start + n > open)
            causal_tile(s, n, (int)(start - open) + 1);
#endif
        softmax_tile(s, n, factor, highest, sum, shrink);
#if PACK
        PACK_TILE(V_TYPE, tile, value_rows, n, D_V, a.value.row, value_col);
        const float *values = tile;
        const long value_row = PACK_ROW, value_step = 1;
#else
        const global ELEMENT(V_TYPE) *values = value_rows;
        const long value_row = a.value.row, value_step = value_col;
#endif
        for (int c = 0; c + COLUMN_STEP <= D_V; c += COLUMN_STEP)
            value_columns(o + c * QUERY_VECTORS, COLUMN_STEP, s, values + c * value_step, n, value_row,
                          value_step, shrink);
#if COLUMN_REST > 0
        const int rest = D_V - COLUMN_REST;
        value_columns(o + rest * QUERY_VECTORS, COLUMN_REST, s, values + rest * value_step, n, value_row,
                      value_step, shrink);
#endif
    }

    store_output(output, o, sum, queries, a.output.row, a.output.col);
#if LSE
    lse += a.lse.offset + b * a.lse.batch + h * a.lse.head + first * a.lse.row;
    for (int v = 0; v < QUERY_VECTORS; v++) {
        const floatv top = RAW_SCORES ? highest[v] * factor * LN2 : highest[v];
        float lane[LANES];
        VSTORE(select(top + log(sum[v]), (floatv)(-INFINITY), sum[v] == 0.0f), 0, lane);
        for (int l = 0; l < LANES && v * LANES + l < queries; l++)
            lse[(v * LANES + l) * a.lse.row] = lane[l];
    }
#endif
}
