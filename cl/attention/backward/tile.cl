/* Attention's backward direction for GPU-class devices: a work-group owns TILE_Q queries, or keys, and walks over the others in tiles
 * of TILE_K.  Scores and their derivatives never leave the chip.
 *
 *   dQ_i = scale * sum_j G_ij K_j        dK_j = scale * sum_i G_ij Q_i        dV_j = sum_i keep_ij P_ij dO_i
 *
 * attention/backward/core.h has the rest of the formula; arrays, strides and macros are those of attention/core.h and
 * attention/backward/core.h, all of it except DOUBLE and ADDITIVE; any strides, any alignment.  DQ_TYPE DK_TYPE DV_TYPE and
 * GRADIENT_QUERY GRADIENT_KEY GRADIENT_VALUE: as in attention/backward/generic.cl, whose attention_backward_pairs and
 * attention_backward_sum follow.  Geometry: attention/gpu/shape.h, whose rows are here what the work-group owns.
 *
 *                          others, TILE_K ->
 *                          |        4 * ITEMS_X             |  again, KEYS / 4 times
 *            +---------+   +------+------+-----+------------+-
 *  own       |    y    |   | x=0  | x=1  | ... | ITEMS_X - 1|      Item (x, y) has ROWS own rows, below each other, times
 *  TILE_Q    |  ROWS   |   | 4 of | 4 of |     |            |      4 others in each group of 4 * ITEMS_X: these are its pairs.
 *    |       +---------+   | them | them |     |            |      Of each sum it has the same rows times columns in the same
 *    v       |  y + 1  |   +------+------+-----+------------+-     pattern, in registers.
 *            +---------+
 *
 *   attention_backward_tile_rows: own queries, for each tile of keys
 *     dO V^T -> gradients,  Q K^T -> weights       CHUNK columns at a time through `stage`
 *     gradients = G, pair by pair in place; each item's sums of a row's P go where its first scores were
 *     dQ += G K                                    VALUE_ROWS keys at a time through `stage`
 *   attention_backward_tile_keys: own keys, for each head of the key's group and each tile of queries
 *     V dO^T -> gradients,  K Q^T -> weights;  gradients = G^T, weights = (keep P)^T
 *     dK += G^T Q,  dV += (keep P)^T dO
 *
 * Tested sets (TILE_Q x TILE_K, ITEMS_X x ITEMS_Y, CHUNK, VALUE_ROWS): those of src/ops/attention/backward/solver_tile.c.
 *
 * NDRange: local (ITEMS_X, ITEMS_Y, 1); the rows' groups: (ceil(query_length / TILE_Q), heads, batch), with causality the last queries,
 * which attend most, first; the keys': (ceil(key_length / TILE_Q), key/value heads, batch).
 *
 * Local memory, in bytes, with D the larger of D_K and D_V:
 *   8 * TILE_K * (TILE_Q + 4)                                                weights and gradients
 * + 4 * max(2 * CHUNK * (TILE_Q + 4 + TILE_K + 4),                           two halves of what is staged
 *           2 * VALUE_ROWS * roundup(D, 4 * ITEMS_X))
 * + 20 * max(TILE_Q, TILE_K) + 400                                           what is known of rows, which of the others count, and
 *                                                                            where arrays lie
 * Both arrays hold pair (own row r, other OWN_KEY(x, k)) at [(k * ITEMS_X + x) * (TILE_Q + 4) + r].
 *
 * Barriers: every loop that holds one has a trip count that is the same for the whole work-group, and all items leave early or none
 * does.  `stage` may be written once a barrier has passed since it was last read; an item writes its own pairs only, and others read
 * them between the barrier behind that and the last one of the tile.
 *
 * A tile of pairs that lengths, causality or windows exclude as a whole is not visited.  K and V beyond the item's lengths, and Q and dO
 * beyond its queries, are not read.  A key that no own query attends counts as zeros in dQ, and a query that attends nothing
 * in dK and dV; but a key that some attend must be finite, or it makes the others' rows of dQ NaN, too, and so must a query that attends
 * some, and its dO, or it makes other keys' rows of dK and dV NaN.
 *
 * Every sum has one order, whatever the launch.  State: float.  Needs OpenCL C 1.2 and the local memory above; else
 * attention/backward/generic.cl takes over. */
#include "attention/backward/core.h"
#include "attention/gpu/product.h"
#include "attention/gpu/stage.h"
#include "lib/compensated.h"

#if ADDITIVE || RING || GIVEN(PAGED) || KEY_GROUPS || VALUE_GROUPS || SPLIT || PACK_HEADS
#error "the generic solver has these, or none"
#endif
#if TILE_Q * CHUNK / 4 % ITEMS || TILE_K * CHUNK / 4 % ITEMS || VALUE_ROWS % ITEMS_Y || ITEMS % TILE_Q
#error "what is staged at a time must be whole loads of all items, and the items whole tiles of rows"
#endif

#define COLUMN_GROUPS(size) (((size) + BLOCK - 1) / BLOCK) /* of 4 columns an item */
#define HALF (QUERY_HALF + KEY_HALF)
#define LARGER_SIZE LARGER(D_K, D_V)
#define ROWS_HALF(size) (VALUE_ROWS * COLUMN_GROUPS(size) * ITEMS_X)
#define ROWS_LOADS(size) (ROWS_HALF(size) / ITEMS)
#define BACKWARD_QUADS (2 * LARGER(HALF, ROWS_HALF(LARGER_SIZE)))
#define PAIR_AT(x, k, row) (((k) * ITEMS_X + (x)) * Q_STRIDE + (row))

/* Which array an operand is.  Functions get it as a literal. */
enum { OF_QUERY, OF_KEY, OF_VALUE, OF_OUTPUT };
#define SIZE_OF(which) ((which) == OF_QUERY || (which) == OF_KEY ? D_K : D_V)

/* One head of Q, K, V or dO, or of a result.  In local memory, since compilers would keep all of it in registers from the start to the
 * end. */
typedef struct tile_operand {
    const global void *data;
    long start, head, row, col; /* where row 0 begins, and the strides */
    int first, end;             /* rows outside count as zeros, and are not read */
    int quads;                  /* tile_has_quads */
} tile_operand;

static inline void tile_find_operand(local tile_operand *operand, const global void *data, const array4 *array,
                                     long start, int first, int end)
{
    operand->data = data;
    operand->start = start;
    operand->head = array->head;
    operand->row = array->row;
    operand->col = array->col;
    operand->first = first;
    operand->end = end;
    operand->quads = tile_has_quads(data, array);
}

/* Where a head's rows of the log-sum-exp and of the workspace's first part begin, their strides, and where the other parts follow;
 * there for the same reason. */
typedef struct tile_numbers {
    long lse, lse_head, lse_row, work, work_head, work_row, work_part;
} tile_numbers;

static inline void tile_find_numbers(local tile_numbers *numbers, const attention_item *item, const attention_args *a)
{
    numbers->lse = attention_query_row(&a->lse, item, 0);
    numbers->lse_head = a->lse.head;
    numbers->lse_row = a->lse.row;
    numbers->work = attention_workspace_at(0, item, 0, a);
    numbers->work_head = a->value_scale.head;
    numbers->work_row = a->value_scale.row;
    numbers->work_part = WORKSPACE_ROWS(a);
}

/* Columns d to d + 3 of row i, zeros where there are none. */
static inline __attribute__((always_inline)) float4 tile_load(const int which, const local tile_operand *from, int i,
                                                              int d)
{
    float4 x = (float4)(0.0f);
    if (i < from->first || i >= from->end || d >= SIZE_OF(which))
        return x;
    const long at = from->start + i * from->row;
    if (which == OF_QUERY)
        LOAD_WHOLE_QUAD(Q_TYPE, x, (const global ELEMENT(Q_TYPE) *)from->data, at, from->col, d, D_K, from->quads);
    else if (which == OF_KEY)
        LOAD_WHOLE_QUAD(K_TYPE, x, (const global ELEMENT(K_TYPE) *)from->data, at, from->col, d, D_K, from->quads);
    else if (which == OF_VALUE)
        LOAD_WHOLE_QUAD(V_TYPE, x, (const global ELEMENT(V_TYPE) *)from->data, at, from->col, d, D_V, from->quads);
    else
        LOAD_WHOLE_QUAD(DO_TYPE, x, (const global ELEMENT(DO_TYPE) *)from->data, at, from->col, d, D_V, from->quads);
    return x;
}

/* Loads the item's part of columns d0 .. d0 + CHUNK-1 of `rows` rows from row i0 on. */
static inline __attribute__((always_inline)) void
tile_load_chunk(float4 *next, const int which, const local tile_operand *from, int i0, int d0, const int rows, uint id)
{
#pragma unroll
    for (int n = 0; n < LOADS(rows); n++)
        next[n] = tile_load(which, from, i0 + tile_load_row(id, n, rows), d0 + tile_load_column(id, n, rows));
}

/* Own pairs of `to` become the dot products of own rows of `a`, from row a0 on, and others' of `b`, from row b0 on. */
static inline __attribute__((always_inline)) void tile_pair_products(local float4 *to, const int which_a,
                                                                     const local tile_operand *a, int a0,
                                                                     const int which_b, const local tile_operand *b,
                                                                     int b0, local float4 *stage, uint id)
{
    const int x = (int)(id % ITEMS_X), y = (int)(id / ITEMS_X);
    float4 sum[KEYS][QUADS], next_a[LOADS(TILE_Q)], next_b[LOADS(TILE_K)];
#pragma unroll
    for (int k = 0; k < KEYS; k++)
        for (int r = 0; r < QUADS; r++)
            sum[k][r] = (float4)(0.0f);
    /* The next chunk is on its way while the products of one are computed; the first turn has no products. */
#pragma unroll 1
    for (int d0 = -CHUNK, now = 1; d0 < SIZE_OF(which_a); d0 += CHUNK, now = 1 - now) {
        tile_load_chunk(next_a, which_a, a, a0, d0 + CHUNK, TILE_Q, id);
        tile_load_chunk(next_b, which_b, b, b0, d0 + CHUNK, TILE_K, id);
        if (d0 >= 0)
            tile_multiply(sum, stage + now * HALF + y * QUADS, Q_QUADS, stage + now * HALF + QUERY_HALF + x,
                          K_STRIDE / 4, CHUNK, KEYS / 4);
        tile_put((local float *)(stage + (1 - now) * HALF), next_a, id, TILE_Q);
        tile_put((local float *)(stage + (1 - now) * HALF + QUERY_HALF), next_b, id, TILE_K);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
#pragma unroll
    for (int k = 0; k < KEYS; k++)
        for (int r = 0; r < QUADS; r++)
            to[(k * ITEMS_X + x) * Q_QUADS + y * QUADS + r] = sum[k][r];
}

/* sum += `factors` of all pairs times the rows of `from`, from row i0 on, of those that count. */
static inline __attribute__((always_inline)) void tile_add_rows(float4 (*sum)[QUADS], const local float4 *factors,
                                                                const int which, const local tile_operand *from, int i0,
                                                                const local int *counts, local float4 *stage, uint id)
{
    const int x = (int)(id % ITEMS_X), y = (int)(id / ITEMS_X), groups = COLUMN_GROUPS(SIZE_OF(which));
    const uint half_quads = ROWS_HALF(SIZE_OF(which));
    float4 next[ROWS_LOADS(LARGER_SIZE)];
#pragma unroll 1
    for (int p0 = -VALUE_ROWS, now = 1; p0 < TILE_K; p0 += VALUE_ROWS, now = 1 - now) {
#pragma unroll
        for (int n = 0; n < ROWS_LOADS(SIZE_OF(which)); n++) {
            const uint place = id + n * ITEMS, p = p0 + VALUE_ROWS + place / (uint)(groups * ITEMS_X);
            const int d = (int)(place % (uint)(groups * ITEMS_X)) * 4, other = OWN_KEY((int)(p % ITEMS_X), p / ITEMS_X);
            next[n] = (float4)(0.0f);
            if (p < TILE_K && counts[other])
                next[n] = tile_load(which, from, i0 + other, d);
        }
        if (p0 >= 0)
            tile_multiply(sum, factors + p0 * Q_QUADS + y * QUADS, Q_QUADS, stage + now * half_quads + x,
                          groups * ITEMS_X, VALUE_ROWS, groups);
#pragma unroll
        for (int n = 0; n < ROWS_LOADS(SIZE_OF(which)); n++)
            stage[(1 - now) * half_quads + id + n * ITEMS] = next[n];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

static inline __attribute__((always_inline)) void tile_clear_sums(float4 (*sum)[QUADS], const int columns)
{
#pragma unroll
    for (int c = 0; c < columns; c++)
        for (int r = 0; r < QUADS; r++)
            sum[c][r] = (float4)(0.0f);
}

/* attention_unsigned_zero of vectors. */
static inline float4 tile_unsigned_zeros(float4 x)
{
    return select(x, (float4)(0.0f), x == 0.0f);
}

/* Element `at` of the gradient of Q, K or V. */
static inline __attribute__((always_inline)) void tile_store_element(const int which, global void *to, long at, float x)
{
    if (which == OF_QUERY)
        STORE(DQ_TYPE, (global ELEMENT(DQ_TYPE) *)to, at, x);
    else if (which == OF_KEY)
        STORE(DK_TYPE, (global ELEMENT(DK_TYPE) *)to, at, x);
    else
        STORE(DV_TYPE, (global ELEMENT(DV_TYPE) *)to, at, x);
}

/* Stores the rows from `first` on of a result, four columns of each item at a time through `scratch`, which has room for TILE_K *
 * Q_QUADS, so that neighbouring items store neighbouring columns. */
static inline __attribute__((always_inline)) void tile_store_rows(const int which, global void *result,
                                                                  const local tile_operand *to, int first,
                                                                  float4 (*sum)[QUADS], local float4 *scratch, uint id)
{
    const int x = (int)(id % ITEMS_X), y = (int)(id / ITEMS_X);
#pragma unroll
    for (int group = 0; group < COLUMN_GROUPS(SIZE_OF(which)); group++) {
#pragma unroll
        for (int c = 0; c < 4; c++)
            for (int r = 0; r < QUADS; r++)
                scratch[(c * ITEMS_X + x) * Q_QUADS + y * QUADS + r] = sum[4 * group + c][r];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint n = id; n < TILE_Q * BLOCK; n += ITEMS) {
            const int row = (int)(n / BLOCK), c = (int)(n % BLOCK), d = group * BLOCK + c;
            if (first + row < to->end && d < SIZE_OF(which))
                tile_store_element(which, result, to->start + (first + row) * to->row + d * to->col,
                                   ((const local float *)scratch)[PAIR_AT(c / 4, c % 4, row)]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

GROUP_SIZE(ITEMS_X, ITEMS_Y, 1)
kernel void attention_backward_tile_rows(const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key,
                                         const global ELEMENT(V_TYPE) *value,
                                         OPTIONAL_ARRAY_PARAMETERS const global ELEMENT(O_TYPE) *output,
                                         const global float *lse, const global ELEMENT(DO_TYPE) *d_output,
                                         const global float *d_lse, global ELEMENT(DQ_TYPE) *d_query,
                                         global float *work, attention_args a)
{
    local float4 stage[BACKWARD_QUADS];
    local float4 weights[TILE_K * Q_QUADS], gradients[TILE_K * Q_QUADS];
    local float row_lse[TILE_Q], row_delta[TILE_Q], row_sink[TILE_Q], row_factor[TILE_Q];
    local tile_operand q, k, v, g, result;
    local tile_numbers numbers;
    local int counts[TILE_K]; /* whether some own query attends the key */
    const optional_arrays arrays = OPTIONAL_ARRAYS;
    const int x = (int)get_local_id(0), y = (int)get_local_id(1);
    const uint id = (uint)(y * ITEMS_X + x);
    if (a.batch == 0)
        return;

    const int first = (CAUSAL ? last_group_first(&a.part) : (int)group_id(&a.part, 0)) * TILE_Q;
    attention_item item;
    attention_item_of(&item, (int)group_id(&a.part, 2), (int)group_id(&a.part, 1), &a, &arrays);
    if (first >= item.rows)
        return;
    const int own_end = min(first + TILE_Q, item.queries);
    int begin = 0, end = 0;
    if (first < own_end)
        attention_keys(&item, first, own_end - 1, &a, &begin, &end);
    if (id == 0) {
        tile_find_numbers(&numbers, &item, &a);
        tile_find_operand(&result, d_query, &a.key_scale, attention_query_row(&a.key_scale, &item, 0), first,
                          item.rows);
        tile_find_operand(&q, query, &a.query, attention_query_row(&a.query, &item, 0), first, own_end);
        tile_find_operand(&g, d_output, &a.scores, attention_query_row(&a.scores, &item, 0), first, own_end);
        tile_find_operand(&k, key, &a.key, attention_row(&a.key, &item, 0, &a, &arrays), begin, end);
        tile_find_operand(&v, value, &a.value, attention_row(&a.value, &item, 0, &a, &arrays), begin, end);
    }

    for (int row = y * ROWS + x; row < (y + 1) * ROWS; row += ITEMS_X) {
        const long i = first + row;
        int any_begin = 0, any_end = 0;
        row_lse[row] = -INFINITY;
        if (i < own_end) {
            row_lse[row] = lse[attention_query_row(&a.lse, &item, i)];
            attention_keys(&item, i, i, &a, &any_begin, &any_end);
        }
        row_sink[row] = attention_sink(row_lse[row], &item, &a, &arrays);
        row_delta[row] = attention_delta(output, d_output, d_lse, row_lse[row], any_begin < any_end, &item, i, &a);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float own_sum = 0.0f, own_lost = 0.0f, own_slopes = 0.0f; /* of row id % TILE_Q */
#if GRADIENT_QUERY
    float4 to_query[4 * COLUMN_GROUPS(D_K)][QUADS];
    tile_clear_sums(to_query, 4 * COLUMN_GROUPS(D_K));
#endif

#pragma unroll 1
    for (int k0 = begin / TILE_K * TILE_K; k0 < end; k0 += TILE_K) {
        for (int n = (int)id; n < TILE_K; n += ITEMS)
            counts[n] = !SELECTIVE && k0 + n >= k.first && k0 + n < k.end;
        tile_pair_products(gradients, OF_OUTPUT, &g, first, OF_VALUE, &v, k0, stage, id);
        tile_pair_products(weights, OF_QUERY, &q, first, OF_KEY, &k, k0, stage, id);
#pragma unroll 1
        for (int row = y * ROWS; row < (y + 1) * ROWS; row++) {
            const long i = first + row;
            float sum = 0.0f, slopes = 0.0f;
#pragma unroll 1
            for (int n = 0; n < KEYS; n++) {
                const long j = k0 + OWN_KEY(x, n);
                local float *const score = (local float *)weights + PAIR_AT(x, n, row);
                local float *const gradient = (local float *)gradients + PAIR_AT(x, n, row);
                float slope, ds = 0.0f;
                if (row_lse[row] == -INFINITY || j < k.first || j >= k.end ||
                    attention_excludes(&item, i, j, &a, &arrays)) {
                    *gradient = 0.0f;
                    continue;
                }
                const float weight =
                    attention_weight_of(a.scale * *score, row_lse[row], &item, i, j, &a, &arrays, &slope);
                ds = weight * (attention_keep(&item, i, j, &a) * *gradient - row_delta[row]);
                *gradient = ds * slope;
                sum += weight;
#if ALIBI
                slopes -= ds * fabs((float)(i + item.position - j));
#endif
#if SELECTIVE
                atomic_or(&counts[OWN_KEY(x, n)], 1);
#endif
            }
            ((local float *)weights)[PAIR_AT(x, 0, row)] = sum;
            ((local float *)weights)[PAIR_AT(x, 1, row)] = slopes;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        /* Several items do so for a row, without a branch: PoCL 3.1 may lose the second of two branches on one condition, with barriers
         * between, and the one behind this loop is on the item's number, too. */
        float sum = 0.0f;
        for (int n = 0; n < ITEMS_X; n++) {
            sum += ((const local float *)weights)[PAIR_AT(n, 0, id % TILE_Q)];
            own_slopes += ((const local float *)weights)[PAIR_AT(n, 1, id % TILE_Q)];
        }
        ADD(float, own_sum, own_lost, sum);
#if GRADIENT_QUERY
        tile_add_rows(to_query, gradients, OF_KEY, &k, k0, counts, stage, id);
#else
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
    }

    if (id >= ITEMS - TILE_Q) {
        const int row = (int)(id % TILE_Q);
        const float factor = attention_factor(own_sum + row_sink[row], row_lse[row]);
        row_factor[row] = factor;
        if (first + row < result.end)
            attention_store_row(work, numbers.work + (first + row) * numbers.work_row, numbers.work_part,
                                row_delta[row], factor, row_sink[row], own_slopes);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#if GRADIENT_QUERY
#pragma unroll
    for (int r = 0; r < QUADS; r++) {
        const float4 factor = vload4(y * QUADS + r, row_factor);
#pragma unroll
        for (int c = 0; c < 4 * COLUMN_GROUPS(D_K); c++)
            to_query[c][r] = select(tile_unsigned_zeros(to_query[c][r] * factor * a.scale), (float4)(0.0f),
                                    factor == (float4)(0.0f));
    }
    tile_store_rows(OF_QUERY, d_query, &result, first, to_query, weights, id);
#endif
}

GROUP_SIZE(ITEMS_X, ITEMS_Y, 1)
kernel void attention_backward_tile_keys(const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key,
                                         const global ELEMENT(V_TYPE) *value,
                                         OPTIONAL_ARRAY_PARAMETERS const global float *lse,
                                         const global ELEMENT(DO_TYPE) *d_output, const global float *work,
                                         global ELEMENT(DK_TYPE) *d_key, global ELEMENT(DV_TYPE) *d_value,
                                         attention_args a)
{
    local float4 stage[BACKWARD_QUADS];
    local float4 weights[TILE_K * Q_QUADS], gradients[TILE_K * Q_QUADS];
    local float row_lse[TILE_K], row_delta[TILE_K], row_factor[TILE_K];
    local tile_operand q, k, v, g, key_result, value_result;
    local tile_numbers numbers;
    local int counts[TILE_K]; /* whether the query attends any key, of all */
    const optional_arrays arrays = OPTIONAL_ARRAYS;
    const int x = (int)get_local_id(0), y = (int)get_local_id(1);
    const uint id = (uint)(y * ITEMS_X + x);
    if (a.batch == 0)
        return;

    const int first = (int)group_id(&a.part, 0) * TILE_Q, head = (int)group_id(&a.part, 1) * a.group;
    attention_item item;
    attention_item_of(&item, (int)group_id(&a.part, 2), head, &a, &arrays);
    if (first >= item.key_rows)
        return;
    const int own_end = min(first + TILE_Q, item.keys);
    long low = 0, high = 0, unused;
    if (first < own_end) {
        attention_query_range(&item, first, &a, &low, &unused);
        attention_query_range(&item, own_end - 1, &a, &unused, &high);
    }
    const int begin = (int)min(low, high), end = (int)high;
    if (id == 0) {
        tile_find_numbers(&numbers, &item, &a);
        tile_find_operand(&key_result, d_key, &a.key_scale, attention_row(&a.key_scale, &item, 0, &a, &arrays), first,
                          item.key_rows);
        tile_find_operand(&value_result, d_value, &a.output, attention_row(&a.output, &item, 0, &a, &arrays), first,
                          item.key_rows);
        tile_find_operand(&q, query, &a.query, attention_query_row(&a.query, &item, 0), begin, end);
        tile_find_operand(&g, d_output, &a.scores, attention_query_row(&a.scores, &item, 0), begin, end);
        tile_find_operand(&k, key, &a.key, attention_row(&a.key, &item, 0, &a, &arrays), first, own_end);
        tile_find_operand(&v, value, &a.value, attention_row(&a.value, &item, 0, &a, &arrays), first, own_end);
    }
#if GRADIENT_KEY
    float4 to_key[4 * COLUMN_GROUPS(D_K)][QUADS];
    tile_clear_sums(to_key, 4 * COLUMN_GROUPS(D_K));
#endif
#if GRADIENT_VALUE
    float4 to_value[4 * COLUMN_GROUPS(D_V)][QUADS];
    tile_clear_sums(to_value, 4 * COLUMN_GROUPS(D_V));
#endif

#pragma unroll 1
    for (int h = head; h < head + a.group; h++) {
        item.h = h;
        barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll 1
        for (int i0 = begin / TILE_K * TILE_K; i0 < end; i0 += TILE_K) {
            for (int n = (int)id; n < TILE_K; n += ITEMS) {
                const long i = i0 + n;
                int any_begin = 0, any_end = 0;
                row_lse[n] = row_delta[n] = row_factor[n] = 0.0f;
                if (i >= q.first && i < q.end) {
                    attention_keys(&item, i, i, &a, &any_begin, &any_end);
                    row_lse[n] = lse[numbers.lse + i * numbers.lse_row];
                    row_delta[n] = work[numbers.work + i * numbers.work_row + PART_DELTA * numbers.work_part];
                    row_factor[n] = work[numbers.work + i * numbers.work_row + PART_FACTOR * numbers.work_part];
                }
                counts[n] = any_begin < any_end && row_factor[n] != 0.0f;
            }
#if GRADIENT_KEY
            tile_pair_products(gradients, OF_VALUE, &v, first, OF_OUTPUT, &g, i0, stage, id);
#endif
            tile_pair_products(weights, OF_KEY, &k, first, OF_QUERY, &q, i0, stage, id);
#pragma unroll 1
            for (int row = y * ROWS; row < (y + 1) * ROWS; row++) {
                const long j = first + row;
#pragma unroll 1
                for (int n = 0; n < KEYS; n++) {
                    const int other = OWN_KEY(x, n);
                    const long i = i0 + other;
                    local float *const score = (local float *)weights + PAIR_AT(x, n, row);
                    local float *const gradient = (local float *)gradients + PAIR_AT(x, n, row);
                    float slope;
                    if (!counts[other] || j >= k.end || !attention_attends(&item, i, j, &a, &arrays)) {
                        *score = *gradient = 0.0f;
                        continue;
                    }
                    const float weight = row_factor[other] * attention_weight_of(a.scale * *score, row_lse[other],
                                                                                 &item, i, j, &a, &arrays, &slope);
                    const float keep = attention_keep(&item, i, j, &a);
                    *score = weight * keep;
#if GRADIENT_KEY
                    *gradient = weight * (keep * *gradient - row_delta[other]) * slope;
#endif
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);
#if GRADIENT_KEY
            tile_add_rows(to_key, gradients, OF_QUERY, &q, i0, counts, stage, id);
#endif
#if GRADIENT_VALUE
            tile_add_rows(to_value, weights, OF_OUTPUT, &g, i0, counts, stage, id);
#endif
        }
        /* The next head's queries, not by item 0, for the same reason as the rows' sums. */
        if (id == ITEMS - 1) {
            q.start += q.head;
            g.start += g.head;
            numbers.lse += numbers.lse_head;
            numbers.work += numbers.work_head;
        }
    }

#if GRADIENT_KEY
#pragma unroll
    for (int c = 0; c < 4 * COLUMN_GROUPS(D_K); c++)
        for (int r = 0; r < QUADS; r++)
            to_key[c][r] = tile_unsigned_zeros(to_key[c][r] * a.scale);
    tile_store_rows(OF_KEY, d_key, &key_result, first, to_key, weights, id);
#endif
#if GRADIENT_VALUE
    tile_store_rows(OF_VALUE, d_value, &value_result, first, to_value, weights, id);
#endif
}
