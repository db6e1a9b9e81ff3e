/* Attention's backward direction by a GPU's matrix engine, for bfloat16: what attention_backward_rows and attention_backward_keys of
 * attention/backward/generic.cl compute, a square of 16 x 16 pairs at a time (attention/backward/core.h has the formula).
 *
 *     rows:  S = Q K^T,    dP = dO V^T,                            dQ += G K
 *     keys:  S^T = K Q^T,  dP^T = V dO^T,  dV += (keep P)^T dO,    dK += G^T Q
 *
 * Arrays, strides and macros: attention/core.h and attention/backward/core.h, all of it except DOUBLE and ADDITIVE; Q, K, V and dO are
 * BF16; any strides, slow ones where columns are apart or rows not aligned to 16 bytes.  The engine and its macros:
 * engine/fragment.h.  DQ_TYPE DK_TYPE DV_TYPE, GRADIENT_QUERY GRADIENT_KEY GRADIENT_VALUE: as in attention/backward/generic.cl,
 * whose attention_backward_pairs and attention_backward_sum go on from here.  Besides:
 *   WARPS     sub-groups of a work-group       1 and up      tested: 1 4
 *   TILE      rows of a walk's step            16 32 64      16 32
 *
 * A work-group owns OWN = 16 * WARPS rows, queries in the first kernel and keys in the second, and each sub-group 16 of them.  It
 * walks over the rows of the other kind, TILE at a time; the second kernel does so for each query head of its key/value head.
 *
 *                          TILE other rows ->                     columns ->
 *                        +------+------+                       +----+----+----+
 *   sub-group 0          | S,   |      |   -> P and G, as      |dQ  | 16 |    |     Each sub-group has its squares of S and dP and
 *   16 own rows          | dP   |      |      bfloat16 in      |    | x16|    |     its sums in registers.  The own and the other
 *                        +------+------+      local memory,    +----+----+----+     rows of both arrays lie in local memory.
 *   sub-group 1          |      |      |      times the        |    |    |    |
 *                        +------+------+      other rows       +----+----+----+
 *
 * NDRange: local (MATRIX_LANES, WARPS, 1).  Groups: attention_backward_matrix_rows (ceil(query_length / OWN), heads, batch),
 * attention_backward_matrix_keys (ceil(key_length / OWN), key/value heads, batch).
 * Who owns what: lane l of a sub-group has of each square the floats that matrix_c_row and matrix_c_column name.
 *
 * Local memory, in bytes: 2 * (OWN + TILE) * (K_WIDTH + V_WIDTH) for Q, dO, K and V, 2 * OWN * TILE for G and in the second kernel as
 * much again for P, 12 * OWN or 12 * TILE for what is known of the queries; in the first kernel 64 * OWN for sums of P, with ALIBI as much again.
 * Barriers: three a tile: behind the first the tile is there, behind the second the tile's weights, and with the third all have read both.
 * The emulation adds its own.  All are in control flow that the whole work-group shares.
 *
 * Accumulators, sums and what is between the products are float; P and G are rounded to bfloat16 before they are multiplied, and the
 * row's factor comes from P as it was.  A pair that is not attended has P and G exactly +0.  Rows outside the lengths, queries that
 * attend nothing and keys that no query of the work-group attends enter the products as zeros; but a key, or a query, that some attend
 * must be finite, or it makes the gradients of others NaN, too.
 * Without a matrix engine: attention/backward/generic.cl. */
#include "attention/backward/core.h"
#include "engine/copy.h"
#include "engine/fragment.h"

#ifndef WARPS
#define WARPS 4
#endif
#ifndef TILE
#define TILE 32
#endif

#if WARPS < 1 || (TILE != 16 && TILE != 32 && TILE % 64)
#error "WARPS must be at least 1, TILE 16, 32 or a multiple of 64"
#endif
#if DOUBLE || ADDITIVE || SCORE_MOD || RING || GIVEN(PAGED) || KEY_GROUPS || VALUE_GROUPS || !MATRIX_BF16
#error "the generic solver has these, or none"
#endif

#define ITEMS (MATRIX_LANES * WARPS)
#define OWN (16 * WARPS)
#define SQUARES (TILE / 16)
#define SQUARES_OF(size) (((size) + 15) / 16)
/* Elements of a row in local memory. */
#define WIDTH_OF(size) ((size) <= 16 ? 16 : (size) <= 32 ? 32 : ((size) + 63) / 64 * 64)
#define K_WIDTH WIDTH_OF(D_K)
#define V_WIDTH WIDTH_OF(D_V)
#define SCRATCH MATRIX_SCRATCH(1, 1)
#define SELECTS (MASK || BIAS || MASK_MOD) /* keys within a query's range may not be attended */

/* ---- tiles ---- */

/* Copies rows first .. first + rows - 1 of a head into a tile.  Those outside [begin, end) become zeros and are not read, and if
 * `selects` those, too, whose factor is 0. */
static inline void stage_rows(local ushort *tile, const int width, const global ushort *from, const array4 *array,
                              int first, const int rows, int begin, int end, const bool selects,
                              const local float *factor, const int size, int item)
{
    const bool aligned = array->col == 1 && (array->row & 7) == 0 && ((size_t)from & 15) == 0;
    for (int n = item; n < rows * (width / 8); n += ITEMS) {
        const int r = n / (width / 8), column = (n - r * (width / 8)) * 8;
        local uint4 *to = (local uint4 *)(tile + MATRIX_AT(r, column, width));
        int count = first + r >= begin && first + r < end ? clamp(size - column, 0, 8) : 0;
        if (selects && factor[r] == 0.0f)
            count = 0;
        const global ushort *at = count ? from + (first + r) * array->row + column * array->col : from;
        if (aligned)
            matrix_copy(to, at, 2 * count);
        else
            *to = matrix_eight(at, array->col, count);
    }
}

/* c[j] = the products of the sub-group's 16 rows with rows 16 j ... of the other tile, over their columns. */
static inline void multiply_rows(matrix_c c[SQUARES], const local ushort *own, int row0, const local ushort *other,
                                 const int width, const int size, int lane, local uint *scratch)
{
    MATRIX_UNROLL
    for (int j = 0; j < SQUARES; j++) {
        MATRIX_UNROLL
        for (int n = 0; n < MATRIX_C; n++)
            c[j].sum[n] = 0.0f;
    }
    MATRIX_UNROLL
    for (int d = 0; d < SQUARES_OF(size); d++) {
        matrix_a left;

        matrix_load_a(&left, own, width, row0, d * 16, lane);
        MATRIX_UNROLL
        for (int j = 0; j < SQUARES; j++) {
            matrix_b right;

            matrix_load_b(&right, other, width, j * 16, d * 16, lane);
            matrix_multiply(&c[j], &left, 1, &right, 1, lane, scratch);
        }
    }
}

/* sum[c] += the products of the sub-group's rows of weights with columns 16 c ... of the other tile, over its rows. */
static inline void add_rows(matrix_c *sum, const local ushort *weights, int row0, const local ushort *other,
                            const int width, const int size, int lane, local uint *scratch)
{
    MATRIX_UNROLL
    for (int k = 0; k < SQUARES; k++) {
        matrix_a left;

        matrix_load_a(&left, weights, TILE, row0, k * 16, lane);
        MATRIX_UNROLL
        for (int c = 0; c < SQUARES_OF(size); c++) {
            matrix_b right;

            matrix_load_b_transposed(&right, other, width, k * 16, c * 16, lane);
            matrix_multiply(&sum[c], &left, 1, &right, 1, lane, scratch);
        }
    }
}

static inline void clear_squares(matrix_c *c, const int count)
{
    MATRIX_UNROLL
    for (int i = 0; i < count; i++) {
        MATRIX_UNROLL
        for (int n = 0; n < MATRIX_C; n++)
            c[i].sum[n] = 0.0f;
    }
}

/* Rounds one number into a tile of weights. */
static inline void store_weight(local ushort *weights, int row, int column, float x)
{
    weights[MATRIX_AT(row, column, TILE)] = (ushort)matrix_pack(x, 0.0f);
}

/* ---- pairs ---- */

/* What the kernels know of the queries at hand.  factor 0: the query attends nothing. */
typedef struct query_rows {
    local float *lse, *delta, *factor;
} query_rows;

/* What a pair gives: P, keep * P, dS and G. */
typedef struct pair_weights {
    float weight, kept, ds, g;
} pair_weights;

/* Makes them from the products of query i, number r of `rows`, with key j; zeros if it does not attend the key. */
static inline void weigh(pair_weights *to, float product, float d_weight, const query_rows *rows, int r,
                         const attention_item *item, long i, long j, const attention_args *a,
                         const optional_arrays *arrays)
{
    to->weight = to->kept = to->ds = to->g = 0.0f;
    if (rows->factor[r] == 0.0f || j >= item->keys || !attention_attends(item, i, j, a, arrays))
        return;
    float slope;
    const float keep = attention_keep(item, i, j, a);
    to->weight =
        rows->factor[r] * attention_weight_of(product * a->scale, rows->lse[r], item, i, j, a, arrays, &slope);
    to->kept = to->weight * keep;
    to->ds = to->weight * (keep * d_weight - rows->delta[r]);
    to->g = to->ds * slope;
}

/* Whether query i attends any key, as far as lengths, causality and the window say. */
static inline bool has_keys(const attention_item *item, long i, const attention_args *a)
{
    int begin, end;
    attention_keys(item, i, i, a, &begin, &end);
    return begin < end;
}

/* ---- rows ---- */

/* lse and delta of the work-group's queries; the factor is 1, or 0 for those that attend nothing. */
static inline void load_queries(const query_rows *rows, int q0, const global ELEMENT(O_TYPE) *output,
                                const global float *lse, const global ELEMENT(DO_TYPE) *d_output,
                                const global float *d_lse, const attention_item *of, const attention_args *a, int item)
{
    for (int r = item; r < OWN; r += ITEMS) {
        const long i = q0 + r;
        const float row_lse = i < of->queries ? lse[attention_query_row(&a->lse, of, i)] : -INFINITY;
        const bool attends = row_lse != -INFINITY && has_keys(of, i, a);
        float delta = 0.0f;
        if (attends) {
            const long from = attention_query_row(&a->scores, of, i), to = attention_query_row(&a->output, of, i);
            for (int c = 0; c < D_V; c++)
                delta = FMA(LOAD(DO_TYPE, d_output, from + c * a->scores.col),
                            LOAD(O_TYPE, output, to + c * a->output.col), delta);
        }
#if GRADIENT_LSE
        if (row_lse != -INFINITY)
            delta -= d_lse[attention_query_row(&a->entropy, of, i)];
#endif
        rows->lse[r] = row_lse;
        rows->delta[r] = delta;
        rows->factor[r] = attends ? 1.0f : 0.0f;
    }
}

/* The sum of a row of `partial`, 16 numbers. */
static inline float sum_up(const local float *partial, int r)
{
    float sum = 0.0f;
    for (int c = 0; c < 16; c++)
        sum += partial[r * 16 + c];
    return sum;
}

/* Makes a row of K zero, whatever it holds, if no query of the work-group attends the key: its column of weights is zero. */
static inline void forget_keys(local ushort *keys, const local ushort *weights, int item)
{
    for (int j = item; j < TILE; j += ITEMS) {
        uint any = 0;
        for (int r = 0; r < OWN; r++)
            any |= weights[MATRIX_AT(r, j, TILE)];
        for (int d = 0; d < K_WIDTH && any == 0; d += 8)
            *(local uint4 *)(keys + MATRIX_AT(j, d, K_WIDTH)) = (uint4)(0);
    }
}

MATRIX_SUB_GROUP
GROUP_SIZE(MATRIX_LANES, WARPS, 1)
kernel void attention_backward_matrix_rows(const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key,
                                           const global ELEMENT(V_TYPE) *value,
                                           OPTIONAL_ARRAY_PARAMETERS const global ELEMENT(O_TYPE) *output,
                                           const global float *lse, const global ELEMENT(DO_TYPE) *d_output,
                                           const global float *d_lse, global ELEMENT(DQ_TYPE) *d_query,
                                           global float *work, attention_args a)
{
    local uint4 query_tile[OWN * K_WIDTH / 8], d_output_tile[OWN * V_WIDTH / 8];
    local uint4 key_tile[TILE * K_WIDTH / 8], value_tile[TILE * V_WIDTH / 8], weight_tile[OWN * TILE / 8];
    local float row_lse[OWN], row_delta[OWN], row_factor[OWN], partial[OWN * 16];
#if ALIBI
    local float partial_slope[OWN * 16];
#endif
    local uint all_scratch[WARPS * SCRATCH + 1];
    const optional_arrays arrays = OPTIONAL_ARRAYS;
    if (a.batch == 0)
        return;

    const int lane = matrix_lane(), warp = matrix_sub_group(), item = warp * MATRIX_LANES + lane, row0 = warp * 16;
    const int q0 = (int)group_id(&a.part, 0) * OWN;
    local uint *scratch = all_scratch + warp * SCRATCH;
    local ushort *queries = (local ushort *)query_tile, *d_outputs = (local ushort *)d_output_tile;
    local ushort *keys = (local ushort *)key_tile, *values = (local ushort *)value_tile;
    local ushort *weights = (local ushort *)weight_tile;
    const query_rows rows = {row_lse, row_delta, row_factor};
    attention_item of;
    attention_item_of(&of, (int)group_id(&a.part, 2), (int)group_id(&a.part, 1), &a, &arrays);
    if (q0 >= of.rows)
        return;

    int begin = 0, end = 0;
    if (q0 < of.queries)
        attention_keys(&of, q0, min(of.queries, q0 + OWN) - 1, &a, &begin, &end);
    load_queries(&rows, q0, output, lse, d_output, d_lse, &of, &a, item);
    barrier(CLK_LOCAL_MEM_FENCE);
    stage_rows(queries, K_WIDTH, query + attention_query_row(&a.query, &of, 0), &a.query, q0, OWN, 0, of.queries, true,
               row_factor, D_K, item);
    stage_rows(d_outputs, V_WIDTH, d_output + attention_query_row(&a.scores, &of, 0), &a.scores, q0, OWN, 0, of.queries,
               true, row_factor, D_V, item);

    matrix_c to_query[SQUARES_OF(D_K)], sums, slopes;
    clear_squares(to_query, SQUARES_OF(D_K));
    clear_squares(&sums, 1);
    clear_squares(&slopes, 1);
    for (int k0 = begin / TILE * TILE; k0 < end; k0 += TILE) {
        matrix_c s[SQUARES], dp[SQUARES];
        stage_rows(keys, K_WIDTH, key + attention_head(&a.key, &of, &a), &a.key, k0, TILE, begin, end, false,
                   row_factor, D_K, item);
        stage_rows(values, V_WIDTH, value + attention_head(&a.value, &of, &a), &a.value, k0, TILE, begin, end, false,
                   row_factor, D_V, item);
        matrix_commit();
        matrix_wait(0);
        barrier(CLK_LOCAL_MEM_FENCE);
        multiply_rows(s, queries, row0, keys, K_WIDTH, D_K, lane, scratch);
        multiply_rows(dp, d_outputs, row0, values, V_WIDTH, D_V, lane, scratch);
        MATRIX_UNROLL
        for (int j = 0; j < SQUARES; j++) {
            MATRIX_UNROLL
            for (int n = 0; n < MATRIX_C; n++) {
                const int r = row0 + matrix_c_row(lane, n), c = j * 16 + matrix_c_column(lane, n);
                pair_weights pair;
                weigh(&pair, s[j].sum[n], dp[j].sum[n], &rows, r, &of, q0 + r, k0 + c, &a, &arrays);
                sums.sum[n] += pair.weight;
#if ALIBI
                slopes.sum[n] -= pair.ds * fabs((float)(q0 + r + of.position - (k0 + c)));
#endif
                store_weight(weights, r, c, pair.g);
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
#if GRADIENT_QUERY
#if SELECTS
        forget_keys(keys, weights, item);
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
        add_rows(to_query, weights, row0, keys, K_WIDTH, D_K, lane, scratch);
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
    }

    MATRIX_UNROLL
    for (int n = 0; n < MATRIX_C; n++) {
        const int at = (row0 + matrix_c_row(lane, n)) * 16 + matrix_c_column(lane, n);
        partial[at] = sums.sum[n];
#if ALIBI
        partial_slope[at] = slopes.sum[n];
#endif
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int r = item; r < OWN && q0 + r < of.rows; r += ITEMS) {
        const long i = q0 + r;
        float sum = sum_up(partial, r), sink = 0.0f, slope = 0.0f;
#if SINKS
        if (row_lse[r] != -INFINITY)
            sink = NATURAL_EXP(arrays.sinks[a.sinks.offset + of.h * a.sinks.stride] - row_lse[r]);
        sum += sink;
#endif
#if ALIBI
        slope = sum_up(partial_slope, r);
#endif
        const float factor = sum == 0.0f ? 0.0f : 1.0f / sum;
        row_factor[r] = factor;
        work[attention_workspace_at(PART_DELTA, &of, i, &a)] = row_delta[r];
        work[attention_workspace_at(PART_FACTOR, &of, i, &a)] = factor;
        work[attention_workspace_at(PART_SINK, &of, i, &a)] = factor == 0.0f ? 0.0f : -sink * factor * row_delta[r];
        work[attention_workspace_at(PART_SLOPE, &of, i, &a)] = factor == 0.0f ? 0.0f : slope * factor;
    }
#if GRADIENT_QUERY
    barrier(CLK_LOCAL_MEM_FENCE);
    MATRIX_UNROLL
    for (int n = 0; n < MATRIX_C; n++) {
        const int r = row0 + matrix_c_row(lane, n);
        if (q0 + r >= of.rows)
            continue;
        const long to = attention_query_row(&a.key_scale, &of, q0 + r);
        const float factor = row_factor[r];
        MATRIX_UNROLL
        for (int c = 0; c < SQUARES_OF(D_K); c++) {
            const int d = c * 16 + matrix_c_column(lane, n);
            if (d < D_K)
                STORE(DQ_TYPE, d_query, to + d * a.key_scale.col,
                      factor == 0.0f ? 0.0f : to_query[c].sum[n] * factor * a.scale);
        }
    }
#endif
}

/* ---- keys ---- */

MATRIX_SUB_GROUP
GROUP_SIZE(MATRIX_LANES, WARPS, 1)
kernel void attention_backward_matrix_keys(const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key,
                                           const global ELEMENT(V_TYPE) *value,
                                           OPTIONAL_ARRAY_PARAMETERS const global float *lse,
                                           const global ELEMENT(DO_TYPE) *d_output, const global float *work,
                                           global ELEMENT(DK_TYPE) *d_key, global ELEMENT(DV_TYPE) *d_value,
                                           attention_args a)
{
    local uint4 key_tile[OWN * K_WIDTH / 8], value_tile[OWN * V_WIDTH / 8];
    local uint4 query_tile[TILE * K_WIDTH / 8], d_output_tile[TILE * V_WIDTH / 8];
    local uint4 weight_tile[OWN * TILE / 8], kept_tile[OWN * TILE / 8];
    local float row_lse[TILE], row_delta[TILE], row_factor[TILE];
    local uint all_scratch[WARPS * SCRATCH + 1];
    const optional_arrays arrays = OPTIONAL_ARRAYS;
    if (a.batch == 0)
        return;

    const int lane = matrix_lane(), warp = matrix_sub_group(), item = warp * MATRIX_LANES + lane, row0 = warp * 16;
    const int k0 = (int)group_id(&a.part, 0) * OWN, g = (int)group_id(&a.part, 1);
    local uint *scratch = all_scratch + warp * SCRATCH;
    local ushort *queries = (local ushort *)query_tile, *d_outputs = (local ushort *)d_output_tile;
    local ushort *keys = (local ushort *)key_tile, *values = (local ushort *)value_tile;
    local ushort *weights = (local ushort *)weight_tile, *kept = (local ushort *)kept_tile;
    const query_rows rows = {row_lse, row_delta, row_factor};
    attention_item of;
    attention_item_of(&of, (int)group_id(&a.part, 2), g * a.group, &a, &arrays);
    if (k0 >= of.key_rows)
        return;

    stage_rows(keys, K_WIDTH, key + attention_head(&a.key, &of, &a), &a.key, k0, OWN, 0, of.keys, false, row_factor,
               D_K, item);
    stage_rows(values, V_WIDTH, value + attention_head(&a.value, &of, &a), &a.value, k0, OWN, 0, of.keys, false,
               row_factor, D_V, item);

    /* The queries outside which none attends any of the keys. */
    long first = 0, end = 0, unused;
    if (k0 < of.keys && a.query_length > 0) {
        attention_query_range(&of, k0, &a, &first, &unused);
        attention_query_range(&of, min(of.keys, k0 + OWN) - 1, &a, &unused, &end);
    }
    matrix_c to_key[SQUARES_OF(D_K)], to_value[SQUARES_OF(D_V)];
    clear_squares(to_key, SQUARES_OF(D_K));
    clear_squares(to_value, SQUARES_OF(D_V));
    for (int head = 0; head < a.group && first < end; head++) {
        of.h = g * a.group + head;
        for (int q0 = (int)first / TILE * TILE; q0 < end; q0 += TILE) {
            matrix_c s[SQUARES], dp[SQUARES];
            for (int r = item; r < TILE; r += ITEMS) {
                const long i = q0 + r;
                float factor = i < of.queries ? work[attention_workspace_at(PART_FACTOR, &of, i, &a)] : 0.0f;
                factor = factor == 0.0f || !has_keys(&of, i, &a) ? 0.0f : factor;
                row_factor[r] = factor;
                row_lse[r] = factor == 0.0f ? 0.0f : lse[attention_query_row(&a.lse, &of, i)];
                row_delta[r] = factor == 0.0f ? 0.0f : work[attention_workspace_at(PART_DELTA, &of, i, &a)];
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            stage_rows(queries, K_WIDTH, query + attention_query_row(&a.query, &of, 0), &a.query, q0, TILE, 0,
                       of.queries, true, row_factor, D_K, item);
            stage_rows(d_outputs, V_WIDTH, d_output + attention_query_row(&a.scores, &of, 0), &a.scores, q0, TILE, 0,
                       of.queries, true, row_factor, D_V, item);
            matrix_commit();
            matrix_wait(0);
            barrier(CLK_LOCAL_MEM_FENCE);
            multiply_rows(s, keys, row0, queries, K_WIDTH, D_K, lane, scratch);
            multiply_rows(dp, values, row0, d_outputs, V_WIDTH, D_V, lane, scratch);
            MATRIX_UNROLL
            for (int j = 0; j < SQUARES; j++) {
                MATRIX_UNROLL
                for (int n = 0; n < MATRIX_C; n++) {
                    const int r = row0 + matrix_c_row(lane, n), c = j * 16 + matrix_c_column(lane, n);
                    pair_weights pair;
                    weigh(&pair, s[j].sum[n], dp[j].sum[n], &rows, c, &of, q0 + c, k0 + r, &a, &arrays);
                    store_weight(weights, r, c, pair.g);
                    store_weight(kept, r, c, pair.kept);
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);
#if GRADIENT_KEY
            add_rows(to_key, weights, row0, queries, K_WIDTH, D_K, lane, scratch);
#endif
#if GRADIENT_VALUE
            add_rows(to_value, kept, row0, d_outputs, V_WIDTH, D_V, lane, scratch);
#endif
            barrier(CLK_LOCAL_MEM_FENCE);
        }
    }

    of.h = g * a.group;
    MATRIX_UNROLL
    for (int n = 0; n < MATRIX_C; n++) {
        const long j = k0 + row0 + matrix_c_row(lane, n);
        if (j >= of.key_rows)
            continue;
#if GRADIENT_KEY
        const long key_at = attention_row(&a.key_scale, &of, j, &a, &arrays);
        MATRIX_UNROLL
        for (int c = 0; c < SQUARES_OF(D_K); c++) {
            const int d = c * 16 + matrix_c_column(lane, n);
            if (d < D_K)
                STORE(DK_TYPE, d_key, key_at + d * a.key_scale.col, to_key[c].sum[n] * a.scale + 0.0f); /* no -0 */
        }
#endif
#if GRADIENT_VALUE
        const long value_at = attention_row(&a.output, &of, j, &a, &arrays);
        MATRIX_UNROLL
        for (int c = 0; c < SQUARES_OF(D_V); c++) {
            const int d = c * 16 + matrix_c_column(lane, n);
            if (d < D_V)
                STORE(DV_TYPE, d_value, value_at + d * a.output.col, to_value[c].sum[n]);
        }
#endif
    }
}
