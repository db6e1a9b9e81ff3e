/* Attention's backward direction by a GPU's matrix engine, for float16 or bfloat16: what attention_backward_rows and
 * attention_backward_keys of attention/backward/generic.cl compute (attention/backward/core.h has the formula).
 *
 *     rows:  S = Q K^T,    dP = dO V^T,    dQ += G K
 *     keys:  S^T = K Q^T,  dP^T = V dO^T,  dK += G^T Q,  or  S^T = K Q^T,  dV += (keep P)^T dO
 *
 * Arrays, strides and macros: attention/core.h and attention/backward/core.h, all of it except DOUBLE and ADDITIVE; Q, K, V and dO
 * have one type; any strides, slow ones if columns are apart or rows do not begin at multiples of 16 bytes.  The engine and its macros:
 * engine/fragment.h.  DQ_TYPE DK_TYPE DV_TYPE, GRADIENT_QUERY GRADIENT_KEY GRADIENT_VALUE: as in attention/backward/generic.cl,
 * whose attention_backward_pairs and attention_backward_sum go on from here.  Besides:
 *   WARPS     sub-groups of a work-group                 1 and up                        tested: 1 4
 *   TILE      rows of a step                             16 32 64                        16 32
 *   WIDTH     elements of a row in local memory          16 32 64 128 192 256; at least D_K, D_V     16 64 128
 *
 * A work-group owns OWN = 16 * WARPS rows: queries in the first kernel, keys in the second, where it makes either dK or dV of them.
 * It walks over the rows of the other kind, TILE at a time; the second kernel does so for each query head of its key/value head.
 *
 *                       TILE other rows ->                                columns ->
 *                     +------+------+                  +-------------+     +----+----+----+
 *   sub-group 0       | S,   |  16  |   local memory   | G, or       |     | dQ,| 16 |    |    Each sub-group multiplies for its 16
 *   16 own rows       | dP   | x 16 |   ----------->   | keep P      |  x  | dK,| x16|    |    own rows; the sums stay in its
 *                     +------+------+   each item has  |             |     | dV |    |    |    registers.  Own and other rows lie in
 *   sub-group 1       |      |      |   a row's pairs  |             |     |    |    |    |    local memory, and so do the pairs.
 *                     +------+------+                  +-------------+     +----+----+----+
 *
 * NDRange: local (MATRIX_LANES, WARPS, 1).  Groups: attention_backward_matrix_rows (ceil(query_length / OWN), heads, batch);
 * attention_backward_matrix_keys (ceil(key_length / OWN) for each of dK and dV that is asked for, key/value heads, batch), dK first.
 * Who owns what: an item has of each square of a product the floats that matrix_c_row and matrix_c_column name, and between the products
 * every PARTS-th pair of own row item / PARTS, PARTS being MATRIX_LANES / 16.
 *
 * Local memory in bytes: 4 * WIDTH * (OWN + TILE) for rows, 2 * OWN * TILE for weights, 8 * OWN * (TILE + 4) for products, and 4 for
 * each item and each row.
 * Barriers: four a tile of keys and five of queries, with float16 one more, with masks one more of keys.  The emulation adds its
 * own.  All are in control flow that the whole work-group shares.
 *
 * Accumulators, sums and what is between the products are float; P and G are rounded to the arrays' type before they are multiplied,
 * and a row's factor comes from P as it was.  Float16 has few exponents: each row of weights is multiplied by a power of two that
 * brings its greatest magnitude of the tile to between 2^14 and 2^15, so that what vanishes is below 2^-39 of that.  A pair that is not
 * attended has P and G exactly +0.  Rows outside the lengths, queries that attend nothing and keys that no query of the work-group
 * attends enter the products as zeros; but a key, or a query, that some attend must be finite, or it makes the gradients of others
 * NaN, too.
 * Without a matrix engine: attention/backward/generic.cl. */
#include "attention/backward/core.h"
#include "engine/copy.h"
#include "engine/fragment.h"
#include "lib/compensated.h"

#ifndef WARPS
#define WARPS 4
#endif
#ifndef TILE
#define TILE 32
#endif
#ifndef WIDTH
#define WIDTH 64
#endif

#if WARPS < 1 || (TILE != 16 && TILE != 32 && TILE % 64)
#error "WARPS must be at least 1, TILE 16, 32 or a multiple of 64"
#endif
#if WIDTH < D_K || WIDTH < D_V || (WIDTH != 16 && WIDTH != 32 && WIDTH % 64)
#error "WIDTH must be 16, 32 or a multiple of 64, and hold a row"
#endif
#if MATRIX_ENGINE != MATRIX_MMA
#error "on other engines the compilers run out of registers"
#endif
#if DOUBLE || ADDITIVE || RING || GIVEN(PAGED) || KEY_GROUPS || VALUE_GROUPS
#error "the generic solver has these, or none"
#endif

#define ITEMS (MATRIX_LANES * WARPS)
#define OWN (16 * WARPS)
#define PARTS (MATRIX_LANES / 16)
#define SQUARES (TILE / 16)
#define SQUARES_OF(size) (((size) + 15) / 16)
#define LARGER_SIZE (D_K > D_V ? D_K : D_V)
#define STRIDE (TILE + 4) /* between rows of products, so that few of a square's floats share a bank */
#define SCRATCH MATRIX_SCRATCH(1, 1)
#define SELECTS (MASK || BIAS || MASK_MOD) /* keys within a query's range may not be attended */

/* ---- tiles ---- */

/* Copies rows first .. first + rows - 1 of a head into a tile.  Those outside [begin, end) become zeros and are not read, and if
 * `selects` those, too, whose factor is 0. */
static inline void stage_rows(local ushort *tile, const global ushort *from, const array4 *array, int first,
                              const int rows, int begin, int end, const bool selects, const local float *factor,
                              const int size, int item)
{
    const bool aligned = array->col == 1 && (array->row & 7) == 0 && ((size_t)from & 15) == 0;
    for (int n = item; n < rows * (WIDTH / 8); n += ITEMS) {
        const int r = n / (WIDTH / 8), column = (n - r * (WIDTH / 8)) * 8;
        local uint4 *to = (local uint4 *)(tile + MATRIX_AT(r, column, WIDTH));
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

static inline void clear_squares(matrix_c *c, const int count)
{
    MATRIX_UNROLL
    for (int i = 0; i < count; i++) {
        MATRIX_UNROLL
        for (int n = 0; n < MATRIX_C; n++)
            c[i].sum[n] = 0.0f;
    }
}

/* The products of the sub-group's 16 rows, from row0 on, with the rows of the other tile, over their columns. */
static inline void multiply_rows(local float *products, const local ushort *own, int row0, const local ushort *other,
                                 const int size, int lane, local uint *scratch)
{
    matrix_c c[SQUARES];

    clear_squares(c, SQUARES);
    MATRIX_UNROLL
    for (int d = 0; d < SQUARES_OF(size); d++) {
        matrix_a left;

        matrix_load_a(&left, own, WIDTH, row0, d * 16, lane);
        MATRIX_UNROLL
        for (int j = 0; j < SQUARES; j++) {
            matrix_b right;

            matrix_load_b(&right, other, WIDTH, j * 16, d * 16, lane);
            matrix_multiply(&c[j], &left, 1, &right, 1, lane, scratch);
        }
    }
    MATRIX_UNROLL
    for (int j = 0; j < SQUARES; j++) {
        MATRIX_UNROLL
        for (int n = 0; n < MATRIX_C; n++)
            products[(row0 + matrix_c_row(lane, n)) * STRIDE + j * 16 + matrix_c_column(lane, n)] = c[j].sum[n];
    }
}

/* sum[c] += the products of the sub-group's rows of weights with columns 16 c ... of the other tile, over its rows. */
static inline void add_rows(matrix_c *sum, const local ushort *weights, const local float *inverse, int row0,
                            const local ushort *other, const int size, int lane, local uint *scratch)
{
    matrix_a left[SQUARES];

    MATRIX_UNROLL
    for (int k = 0; k < SQUARES; k++)
        matrix_load_a(&left[k], weights, TILE, row0, k * 16, lane);
    MATRIX_UNROLL
    for (int c = 0; c < SQUARES_OF(size); c++) {
#if MATRIX_BF16
        matrix_c *to = &sum[c];
#else
        matrix_c part, *to = &part;
        clear_squares(to, 1);
#endif
        MATRIX_UNROLL
        for (int k = 0; k < SQUARES; k++) {
            matrix_b right;

            matrix_load_b_transposed(&right, other, WIDTH, k * 16, c * 16, lane);
            matrix_multiply(to, &left[k], 1, &right, 1, lane, scratch);
        }
#if !MATRIX_BF16
        MATRIX_UNROLL
        for (int n = 0; n < MATRIX_C; n++)
            sum[c].sum[n] = FMA(part.sum[n], inverse[row0 + matrix_c_row(lane, n)], sum[c].sum[n]);
#endif
    }
}

/* ---- pairs ---- */

/* What is known of a query.  factor 0: it attends nothing. */
typedef struct query_row {
    float lse, delta, factor;
} query_row;

/* What a pair gives: P, keep * P, dS and G. */
typedef struct pair_weights {
    float weight, kept, ds, g;
} pair_weights;

/* Makes them from the products of query i with key j; zeros if it does not attend the key. */
static inline void weigh(pair_weights *to, float product, float d_weight, const query_row *row,
                         const attention_item *item, long i, long j, const attention_args *a,
                         const optional_arrays *arrays)
{
    to->weight = to->kept = to->ds = to->g = 0.0f;
    if (row->factor == 0.0f || j >= item->keys || !attention_attends(item, i, j, a, arrays))
        return;
    float slope;
    const float keep = attention_keep(item, i, j, a);
    to->weight = row->factor * attention_weight_of(product * a->scale, row->lse, item, i, j, a, arrays, &slope);
    to->kept = to->weight * keep;
    to->ds = to->weight * (keep * d_weight - row->delta);
    to->g = to->ds * slope;
}

/* Whether query i attends any key, as far as lengths, causality and the window say. */
static inline bool has_keys(const attention_item *item, long i, const attention_args *a)
{
    int begin, end;
    attention_keys(item, i, i, a, &begin, &end);
    return begin < end;
}

/* Stores a weight as the arrays' type, or leaves float16's where its product was until finish_weights. */
static inline void put_weight(local ushort *weights, local float *products, float *most, int r, int c, float x)
{
#if MATRIX_BF16
    weights[MATRIX_AT(r, c, TILE)] = (ushort)matrix_pack(x, 0.0f);
#else
    products[r * STRIDE + c] = x;
    *most = fmax(*most, fabs(x));
#endif
}

/* The weights are there behind the barrier that follows.  inverse[r]: 1 over what row r was multiplied by. */
static inline void finish_weights(local ushort *weights, const local float *products, local float *inverse,
                                  local float *shared, float most, int item)
{
#if !MATRIX_BF16
    const int r = item / PARTS, part = item - r * PARTS;
    shared[item] = most;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < PARTS; i++)
        most = fmax(most, shared[r * PARTS + i]);
    const int bits = clamp((as_int(most) >> 23) - 14, 1, 253) << 23;
    if (part == 0)
        inverse[r] = as_float(bits);
    for (int c = part; c < TILE; c += PARTS)
        weights[MATRIX_AT(r, c, TILE)] =
            (ushort)matrix_pack(products[r * STRIDE + c] * as_float((254 << 23) - bits), 0.0f);
#endif
}

/* The sum of the numbers that the items of row r share. */
static inline float sum_up(const local float *shared, int r)
{
    float sum = 0.0f;
    for (int i = 0; i < PARTS; i++)
        sum += shared[r * PARTS + i];
    return sum;
}

/* ---- rows ---- */

/* What is known of query i before any key is; the factor is 1, or 0 if it attends nothing. */
static inline void load_query(query_row *row, const global ELEMENT(O_TYPE) *output, const global float *lse,
                              const global ELEMENT(DO_TYPE) *d_output, const global float *d_lse,
                              const attention_item *of, long i, const attention_args *a)
{
    row->lse = i < of->queries ? lse[attention_query_row(&a->lse, of, i)] : -INFINITY;
    const bool attends = row->lse != -INFINITY && has_keys(of, i, a);
    row->delta = attention_delta(output, d_output, d_lse, row->lse, attends, of, i, a);
    row->factor = attends ? 1.0f : 0.0f;
}

#if SELECTS
/* Makes a row of K zero, whatever it holds, if no query of the work-group attends the key: its column of weights is zero. */
static inline void forget_keys(local ushort *keys, const local ushort *weights, int item)
{
    for (int j = item; j < TILE; j += ITEMS) {
        uint any = 0;
        for (int r = 0; r < OWN; r++)
            any |= weights[MATRIX_AT(r, j, TILE)];
        for (int d = 0; d < WIDTH && any == 0; d += 8)
            *(local uint4 *)(keys + MATRIX_AT(j, d, WIDTH)) = (uint4)(0);
    }
}
#endif

MATRIX_SUB_GROUP
GROUP_SIZE(MATRIX_LANES, WARPS, 1)
kernel void attention_backward_matrix_rows(const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key,
                                           const global ELEMENT(V_TYPE) *value,
                                           OPTIONAL_ARRAY_PARAMETERS const global ELEMENT(O_TYPE) *output,
                                           const global float *lse, const global ELEMENT(DO_TYPE) *d_output,
                                           const global float *d_lse, global ELEMENT(DQ_TYPE) *d_query,
                                           global float *work, attention_args a)
{
    local uint4 query_tile[OWN * WIDTH / 8], d_output_tile[OWN * WIDTH / 8];
    local uint4 key_tile[TILE * WIDTH / 8], value_tile[TILE * WIDTH / 8], weight_tile[OWN * TILE / 8];
    local float products[OWN * STRIDE], d_weights[OWN * STRIDE], shared[ITEMS], inverse[OWN], factors[OWN];
    local uint all_scratch[WARPS * SCRATCH + 1];
    const optional_arrays arrays = OPTIONAL_ARRAYS;
    if (a.batch == 0)
        return;

    int lane = matrix_lane();
    const int warp = matrix_sub_group(), item = warp * MATRIX_LANES + lane, row0 = warp * 16;
    const int q0 = (int)group_id(&a.part, 0) * OWN, r = item / PARTS, part = item - r * PARTS;
    const long i = q0 + r;
    local uint *scratch = all_scratch + warp * SCRATCH;
    local ushort *queries = (local ushort *)query_tile, *d_outputs = (local ushort *)d_output_tile;
    local ushort *keys = (local ushort *)key_tile, *values = (local ushort *)value_tile;
    local ushort *weights = (local ushort *)weight_tile;
    attention_item of;
    attention_item_of(&of, (int)group_id(&a.part, 2), (int)group_id(&a.part, 1), &a, &arrays);

    const global ushort *of_query = (const global ushort *)query + attention_query_row(&a.query, &of, 0);
    const global ushort *of_d_output = (const global ushort *)d_output + attention_query_row(&a.scores, &of, 0);
    const global ushort *of_key = (const global ushort *)key + attention_head(&a.key, &of, &a);
    const global ushort *of_value = (const global ushort *)value + attention_head(&a.value, &of, &a);
    int begin = 0, end = 0;
    if (q0 < of.queries)
        attention_keys(&of, q0, min(of.queries, q0 + OWN) - 1, &a, &begin, &end);
    query_row row;
    load_query(&row, output, lse, d_output, d_lse, &of, i, &a);
    if (part == 0)
        factors[r] = row.factor;
    barrier(CLK_LOCAL_MEM_FENCE);
    stage_rows(queries, of_query, &a.query, q0, OWN, 0, of.queries, true, factors, D_K, item);
    stage_rows(d_outputs, of_d_output, &a.scores, q0, OWN, 0, of.queries, true, factors, D_V, item);

    matrix_c to_query[SQUARES_OF(D_K)];
    float sum = 0.0f, lost = 0.0f, slopes = 0.0f;
    clear_squares(to_query, SQUARES_OF(D_K));
    for (int k0 = begin / TILE * TILE; k0 < end; k0 += TILE) {
        float most = 0.0f;
        stage_rows(keys, of_key, &a.key, k0, TILE, begin, end, false, factors, D_K, item);
        stage_rows(values, of_value, &a.value, k0, TILE, begin, end, false, factors, D_V, item);
        matrix_commit();
        matrix_wait(0);
        barrier(CLK_LOCAL_MEM_FENCE);
        MATRIX_FORGET(lane);
        multiply_rows(products, queries, row0, keys, D_K, lane, scratch);
        multiply_rows(d_weights, d_outputs, row0, values, D_V, lane, scratch);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int c = part; c < TILE; c += PARTS) {
            pair_weights pair;
            weigh(&pair, products[r * STRIDE + c], d_weights[r * STRIDE + c], &row, &of, i, k0 + c, &a, &arrays);
            ADD(float, sum, lost, pair.weight);
#if ALIBI
            slopes -= pair.ds * fabs((float)(i + of.position - (k0 + c)));
#endif
            put_weight(weights, products, &most, r, c, pair.g);
        }
#if GRADIENT_QUERY
        finish_weights(weights, products, inverse, shared, most, item);
        barrier(CLK_LOCAL_MEM_FENCE);
#if SELECTS
        forget_keys(keys, weights, item);
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
        add_rows(to_query, weights, inverse, row0, keys, D_K, lane, scratch);
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
    }

    const float sink = attention_sink(row.lse, &of, &a, &arrays);
    shared[item] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    const float factor = attention_factor(sum_up(shared, r) + sink, row.lse);
#if ALIBI
    barrier(CLK_LOCAL_MEM_FENCE);
    shared[item] = slopes;
    barrier(CLK_LOCAL_MEM_FENCE);
    slopes = sum_up(shared, r);
#endif
    if (part == 0 && i < of.rows) {
        factors[r] = factor;
        attention_store_row(work, attention_workspace_at(0, &of, i, &a), WORKSPACE_ROWS(&a), row.delta, factor, sink,
                            slopes);
    }
#if GRADIENT_QUERY
    barrier(CLK_LOCAL_MEM_FENCE);
    MATRIX_UNROLL
    for (int n = 0; n < MATRIX_C; n++) {
        const int of_n = row0 + matrix_c_row(lane, n);
        if (q0 + of_n >= of.rows)
            continue;
        const long to = attention_query_row(&a.key_scale, &of, q0 + of_n);
        const float times = factors[of_n];
        MATRIX_UNROLL
        for (int c = 0; c < SQUARES_OF(D_K); c++) {
            const int d = c * 16 + matrix_c_column(lane, n);
            if (d < D_K)
                STORE(DQ_TYPE, d_query, to + d * a.key_scale.col,
                      times == 0.0f ? 0.0f : attention_unsigned_zero(to_query[c].sum[n] * times * a.scale));
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
    local uint4 key_tile[OWN * WIDTH / 8], value_tile[OWN * WIDTH / 8];
    local uint4 query_tile[TILE * WIDTH / 8], d_output_tile[TILE * WIDTH / 8], weight_tile[OWN * TILE / 8];
    local float products[OWN * STRIDE], d_weights[OWN * STRIDE], shared[ITEMS], inverse[OWN];
    local float row_lse[TILE], row_delta[TILE], factors[TILE];
    local uint all_scratch[WARPS * SCRATCH + 1];
    const optional_arrays arrays = OPTIONAL_ARRAYS;
    if (a.batch == 0)
        return;

    int lane = matrix_lane();
    const int warp = matrix_sub_group(), item = warp * MATRIX_LANES + lane, row0 = warp * 16;
    const int tiles = (a.key_length + OWN - 1) / OWN, group = (int)group_id(&a.part, 0);
    const bool is_key = GRADIENT_KEY && group < tiles;
    const int k0 = (GRADIENT_KEY && !is_key ? group - tiles : group) * OWN, g = (int)group_id(&a.part, 1);
    const int r = item / PARTS, part = item - r * PARTS;
    local uint *scratch = all_scratch + warp * SCRATCH;
    local ushort *queries = (local ushort *)query_tile, *d_outputs = (local ushort *)d_output_tile;
    local ushort *keys = (local ushort *)key_tile, *values = (local ushort *)value_tile;
    local ushort *weights = (local ushort *)weight_tile;
    attention_item of;
    attention_item_of(&of, (int)group_id(&a.part, 2), g * a.group, &a, &arrays);

    /* The queries outside which none attends any of the keys. */
    long first = 0, end = 0, unused;
    if (k0 < of.keys) {
        attention_query_range(&of, k0, &a, &first, &unused);
        attention_query_range(&of, min(of.keys, k0 + OWN) - 1, &a, &unused, &end);
    }
    if (first < end) {
        stage_rows(keys, (const global ushort *)key + attention_head(&a.key, &of, &a), &a.key, k0, OWN, 0, of.keys,
                   false, factors, D_K, item);
        if (is_key)
            stage_rows(values, (const global ushort *)value + attention_head(&a.value, &of, &a), &a.value, k0, OWN, 0,
                       of.keys, false, factors, D_V, item);
    }
    matrix_c sum[SQUARES_OF(LARGER_SIZE)];
    clear_squares(sum, SQUARES_OF(LARGER_SIZE));
    for (int head = 0; head < a.group && first < end; head++) {
        of.h = g * a.group + head;
        const global ushort *of_query = (const global ushort *)query + attention_query_row(&a.query, &of, 0);
        const global ushort *of_d_output = (const global ushort *)d_output + attention_query_row(&a.scores, &of, 0);
        for (int q0 = (int)first / TILE * TILE; q0 < end; q0 += TILE) {
            float most = 0.0f;
            for (int c = item; c < TILE; c += ITEMS) {
                const long i = q0 + c;
                float factor = i < of.queries ? work[attention_workspace_at(PART_FACTOR, &of, i, &a)] : 0.0f;
                factor = factor == 0.0f || !has_keys(&of, i, &a) ? 0.0f : factor;
                factors[c] = factor;
                row_lse[c] = factor == 0.0f ? 0.0f : lse[attention_query_row(&a.lse, &of, i)];
                row_delta[c] = factor == 0.0f ? 0.0f : work[attention_workspace_at(PART_DELTA, &of, i, &a)];
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            stage_rows(queries, of_query, &a.query, q0, TILE, 0, of.queries, true, factors, D_K, item);
            stage_rows(d_outputs, of_d_output, &a.scores, q0, TILE, 0, of.queries, true, factors, D_V, item);
            matrix_commit();
            matrix_wait(0);
            barrier(CLK_LOCAL_MEM_FENCE);
            MATRIX_FORGET(lane);
            multiply_rows(products, keys, row0, queries, D_K, lane, scratch);
            if (is_key)
                multiply_rows(d_weights, values, row0, d_outputs, D_V, lane, scratch);
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int c = part; c < TILE; c += PARTS) {
                const query_row row = {row_lse[c], row_delta[c], factors[c]};
                pair_weights pair;
                weigh(&pair, products[r * STRIDE + c], is_key ? d_weights[r * STRIDE + c] : 0.0f, &row, &of, q0 + c,
                      k0 + r, &a, &arrays);
                put_weight(weights, products, &most, r, c, is_key ? pair.g : pair.kept);
            }
            finish_weights(weights, products, inverse, shared, most, item);
            barrier(CLK_LOCAL_MEM_FENCE);
            add_rows(sum, weights, inverse, row0, is_key ? queries : d_outputs, LARGER_SIZE, lane, scratch);
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
            if (is_key && d < D_K)
                STORE(DK_TYPE, d_key, key_at + d * a.key_scale.col, attention_unsigned_zero(sum[c].sum[n] * a.scale));
        }
#endif
#if GRADIENT_VALUE
        const long value_at = attention_row(&a.output, &of, j, &a, &arrays);
        MATRIX_UNROLL
        for (int c = 0; c < SQUARES_OF(D_V); c++) {
            const int d = c * 16 + matrix_c_column(lane, n);
            if (!is_key && d < D_V)
                STORE(DV_TYPE, d_value, value_at + d * a.output.col, sum[c].sum[n]);
        }
#endif
    }
}
