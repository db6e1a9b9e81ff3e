/* Attention's backward direction for every device and every shape: the solver of last resort.
 *
 *   dQ_i = scale * sum_j G_ij K_j        dK_j = scale * sum_i G_ij Q_i        dV_j = sum_i keep_ij P_ij dO_i
 *   dbias_ij = dmask_ij = dS_ij          dslope = -sum_ij |p - j| dS_ij       dsink = -sum_i exp(sink - lse_i) factor_i delta_i
 *
 * and with ADDITIVE, where t = tanh(q + k) for each column of Q and K: dQ_i = scale * sum_j G_ij vector * (1 - t^2), dK_j the
 * same over i, dvector = scale * sum_ij G_ij t.  attention/backward/core.h has the rest of the formula.
 *
 * Arrays, strides and macros: attention/core.h and attention/backward/core.h; any strides, any alignment.  Besides:
 *   DQ_TYPE DK_TYPE DV_TYPE (F32)     the types of dQ, dK and dV; a kernel gets no array for what is not asked for, and
 *   GRADIENT_QUERY GRADIENT_KEY GRADIENT_VALUE GRADIENT_VECTOR    (0) what is
 *   CHUNK (8)                         columns of one work-item
 *
 * The kernels run one after another.  attention_backward_rows comes first and fills the workspace; NDRange: (chunks of dQ's columns,
 * or 1, query_length, heads * batch); a work-item walks the keys of one query.  attention_backward_keys: (chunks of dK's
 * columns, then those of dV's, key_length, key/value heads * batch); a work-item walks the queries of one key, head by head.
 * attention_backward_pairs writes the gradient of a mask or bias, and attention_backward_sum those of sinks, slopes and vectors:
 * one work-item for each element.  NDRanges are rounded up as work-groups need; any work-group.
 *
 * Every sum has one order, whatever the launch.  Local memory: none.  Barriers: none.  Needs OpenCL C 1.2, with DOUBLE fp64. */
#include "attention/backward/core.h"
#include "lib/compensated.h"

#ifndef CHUNK
#define CHUNK 8
#endif
#ifndef GRADIENT_VECTOR
#define GRADIENT_VECTOR 0
#endif

#define CHUNKS(columns) (((columns) + CHUNK - 1) / CHUNK)
#define KEY_CHUNKS (GRADIENT_KEY ? CHUNKS(D_K) : 0)

/* Element d of a query and a key, and of their head's vector. */
#define QUERY_AT(d) LOAD(Q_TYPE, query, q + (d) * a->query.col)
#define KEY_AT(d) LOAD(K_TYPE, key, k + (d) * a->key.col)
#define VECTOR_AT(d) arrays->vector[a->vector.offset + item->h * a->vector.row + (d) * a->vector.col]

#if GRADIENT_QUERY || GRADIENT_KEY || GRADIENT_VECTOR
/* sum += g * the derivative of the score by columns first ... of the query, or with `by_key` of the key, but for the scale */
static inline void add_operand(state *sum, state g, bool by_key, int first, int columns,
                               const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key,
                               const attention_item *item, long i, long j, const attention_args *a,
                               const optional_arrays *arrays)
{
    const long q = attention_query_row(&a->query, item, i), k = attention_row(&a->key, item, j, a, arrays);
    for (int c = 0; c < columns; c++) {
        const int d = first + c;
#if ADDITIVE
        const state t = tanh((state)QUERY_AT(d) + KEY_AT(d));
        sum[c] = STATE_FMA(g * VECTOR_AT(d), STATE_FMA(-t, t, (state)1.0f), sum[c]);
#else
        sum[c] = by_key ? STATE_FMA(g, QUERY_AT(d), sum[c]) : STATE_FMA(g, KEY_AT(d), sum[c]);
#endif
    }
}
#endif

#if GRADIENT_VECTOR
static inline void add_vector(state *sum, state g, int first, int columns, const global ELEMENT(Q_TYPE) *query,
                              const global ELEMENT(K_TYPE) *key, const attention_item *item, long i, long j,
                              const attention_args *a, const optional_arrays *arrays)
{
    const long q = attention_query_row(&a->query, item, i), k = attention_row(&a->key, item, j, a, arrays);
    for (int c = 0; c < columns; c++)
        sum[c] = STATE_FMA(g, tanh((state)QUERY_AT(first + c) + KEY_AT(first + c)), sum[c]);
}
#endif

kernel void attention_backward_rows(const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key,
                                    const global ELEMENT(V_TYPE) *value,
                                    OPTIONAL_ARRAY_PARAMETERS const global ELEMENT(O_TYPE) *output,
                                    const global float *lse, const global ELEMENT(DO_TYPE) *d_output,
                                    const global float *d_lse, global ELEMENT(DQ_TYPE) *d_query, global state *work,
                                    attention_args a)
{
    const optional_arrays arrays = OPTIONAL_ARRAYS;
    if (a.batch == 0)
        return;

    const int first = (int)global_id(&a.part, 0) * CHUNK;
    const long i = (long)global_id(&a.part, 1);
    const size_t index = global_id(&a.part, 2);
    const int b = (int)(index / (size_t)a.heads), h = (int)(index - (size_t)b * (size_t)a.heads);
    if (first >= D_K || i >= a.query_length || b >= a.batch)
        return;
    attention_item item;
    attention_item_of(&item, b, h, &a, &arrays);
    if (i >= item.rows)
        return;

    const state row_lse = i < item.queries ? lse[attention_query_row(&a.lse, &item, i)] : -INFINITY;
    int begin = 0, end = 0;
    if (row_lse != -INFINITY)
        attention_keys(&item, i, i, &a, &begin, &end);
    const state delta = attention_delta(output, d_output, d_lse, row_lse, begin < end, &item, i, &a);

    const int columns = min(CHUNK, D_K - first);
    state sum = 0.0f, lost = 0.0f, slopes = 0.0f;
#if GRADIENT_QUERY
    state to_query[CHUNK];
    for (int c = 0; c < CHUNK; c++)
        to_query[c] = 0.0f;
#endif
#if GRADIENT_VECTOR
    state to_vector[CHUNK];
    for (int c = 0; c < CHUNK; c++)
        to_vector[c] = 0.0f;
#endif
    for (long j = begin; j < end; j++) {
        if (attention_excludes(&item, i, j, &a, &arrays))
            continue;
        state slope;
        const state weight = attention_weight(query, key, row_lse, &item, i, j, &a, &arrays, &slope);
        const state p =
            attention_keep(&item, i, j, &a) * attention_output_gradient(d_output, value, &item, i, j, &a, &arrays);
        const state ds = weight * (p - delta), g = ds * slope;
        ADD(state, sum, lost, weight);
#if ALIBI
        slopes -= ds * fabs((state)(i + item.position - j));
#endif
#if GRADIENT_QUERY
        add_operand(to_query, g, false, first, columns, query, key, &item, i, j, &a, &arrays);
#endif
#if GRADIENT_VECTOR
        add_vector(to_vector, g, first, columns, query, key, &item, i, j, &a, &arrays);
#endif
    }
    const state sink = attention_sink(row_lse, &item, &a, &arrays), factor = attention_factor(sum + sink, row_lse);
#if GRADIENT_QUERY
    const long at = attention_query_row(&a.key_scale, &item, i) + first * a.key_scale.col;
    for (int c = 0; c < columns; c++)
        STORE(DQ_TYPE, d_query, at + c * a.key_scale.col,
              factor == 0.0f ? 0.0f : attention_unsigned_zero(to_query[c] * factor * ATTENTION_SCALE(&a)));
#endif
#if GRADIENT_VECTOR
    const long place = a.value_scale.offset + PART_VECTOR * WORKSPACE_ROWS(&a) +
                       (attention_workspace_at(0, &item, i, &a) - a.value_scale.offset) * D_K + first;
    for (int c = 0; c < columns; c++)
        work[place + c] = factor == 0.0f ? 0.0f : to_vector[c] * factor * ATTENTION_SCALE(&a);
#endif
    if (first == 0)
        attention_store_row(work, attention_workspace_at(0, &item, i, &a), WORKSPACE_ROWS(&a), delta, factor, sink,
                            slopes);
}

kernel void attention_backward_keys(const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key,
                                    const global ELEMENT(V_TYPE) *value,
                                    OPTIONAL_ARRAY_PARAMETERS const global float *lse,
                                    const global ELEMENT(DO_TYPE) *d_output, const global state *work,
                                    global ELEMENT(DK_TYPE) *d_key, global ELEMENT(DV_TYPE) *d_value, attention_args a)
{
    const optional_arrays arrays = OPTIONAL_ARRAYS;
    if (a.batch == 0)
        return;

    const int chunk = (int)global_id(&a.part, 0), kv_heads = a.heads / a.group;
    const bool is_key = chunk < KEY_CHUNKS;
    const int first = (is_key ? chunk : chunk - KEY_CHUNKS) * CHUNK, size = is_key ? D_K : D_V;
    const long j = (long)global_id(&a.part, 1);
    const size_t index = global_id(&a.part, 2);
    const int b = (int)(index / (size_t)kv_heads), g = (int)(index - (size_t)b * (size_t)kv_heads);
    if (first >= size || (!is_key && !GRADIENT_VALUE) || j >= a.key_length || b >= a.batch)
        return;
    attention_item item;
    attention_item_of(&item, b, g * a.group, &a, &arrays);
    if (j >= item.key_rows)
        return;

    const int columns = min(CHUNK, size - first);
    long begin, end;
    state sum[CHUNK];
    for (int c = 0; c < CHUNK; c++)
        sum[c] = 0.0f;
    attention_query_range(&item, j, &a, &begin, &end);
    if (j >= item.keys)
        end = begin;
    for (int n = 0; n < a.group; n++) {
        item.h = g * a.group + n;
        for (long i = begin; i < end; i++) {
            const state factor = work[attention_workspace_at(PART_FACTOR, &item, i, &a)];
            if (factor == 0.0f || !attention_attends(&item, i, j, &a, &arrays))
                continue;
            state slope;
            const state row_lse = lse[attention_query_row(&a.lse, &item, i)];
            const state p = factor * attention_weight(query, key, row_lse, &item, i, j, &a, &arrays, &slope);
            const state keep = attention_keep(&item, i, j, &a);
            if (is_key) {
#if GRADIENT_KEY
                const state dp = keep * attention_output_gradient(d_output, value, &item, i, j, &a, &arrays);
                const state ds = p * (dp - work[attention_workspace_at(PART_DELTA, &item, i, &a)]);
                add_operand(sum, ds * slope, true, first, columns, query, key, &item, i, j, &a, &arrays);
#endif
            } else {
                const long from = attention_query_row(&a.scores, &item, i) + first * a.scores.col;
                for (int c = 0; c < columns; c++)
                    sum[c] = STATE_FMA(p * keep, LOAD(DO_TYPE, d_output, from + c * a.scores.col), sum[c]);
            }
        }
    }

    item.h = g * a.group;
    if (is_key) {
#if GRADIENT_KEY
        const long at = attention_row(&a.key_scale, &item, j, &a, &arrays) + first * a.key_scale.col;
        for (int c = 0; c < columns; c++)
            STORE(DK_TYPE, d_key, at + c * a.key_scale.col, attention_unsigned_zero(sum[c] * ATTENTION_SCALE(&a)));
#endif
    } else {
#if GRADIENT_VALUE
        const long at = attention_row(&a.output, &item, j, &a, &arrays) + first * a.output.col;
        for (int c = 0; c < columns; c++)
            STORE(DV_TYPE, d_value, at + c * a.output.col, sum[c]);
#endif
    }
}

/* Keeps the strides by item and head in each work-item's own registers: `never` is false, which the compiler does not know.  AMD's
 * registers for what all work-items share are too few for nine arrays. */
static inline void own_strides(array4 *array, bool never)
{
    array->batch = never ? 0 : array->batch;
    array->head = never ? 0 : array->head;
}

/* Element (b, h, i, j) of a.output: the sum of dS over those of the four that its extent is 1 in.  The extents are a.items, a.splits,
 * a.block_table.row and a.block_table.col. */
kernel void attention_backward_pairs(const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key,
                                     const global ELEMENT(V_TYPE) *value,
                                     OPTIONAL_ARRAY_PARAMETERS const global float *lse,
                                     const global ELEMENT(DO_TYPE) *d_output, const global state *work,
                                     global state *gradient, attention_args a)
{
    const optional_arrays arrays = OPTIONAL_ARRAYS;
    if (a.heads == 0)
        return;

    const int j = (int)global_id(&a.part, 0), i = (int)global_id(&a.part, 1), index = (int)global_id(&a.part, 2);
    const int b = index / a.splits, h = index - b * a.splits;
    if (j >= a.block_table.col || i >= a.block_table.row || b >= a.items)
        return;

    own_strides(&a.query, j < 0);
    own_strides(&a.key, j < 0);
    own_strides(&a.value, j < 0);
    own_strides(&a.scores, j < 0);
    own_strides(&a.bias, j < 0);
    own_strides(&a.lse, j < 0);
    own_strides(&a.value_scale, j < 0);
    own_strides(&a.output, j < 0);

    const int heads = a.splits == 1 ? a.heads : 1, pairs = (a.items == 1 ? a.batch : 1) * heads;
    const int end_i = a.block_table.row == 1 ? a.query_length : i + 1;
    const int end_j = a.block_table.col == 1 ? a.key_length : j + 1;
    state sum = 0.0f, lost = 0.0f;
    for (int n = 0; n < pairs; n++) {
        attention_item item;
        const int m = n / heads; /* and no remainder, which Oclgrind 21.10 does not know beside it */
        attention_item_of(&item, b + m, h + n - m * heads, &a, &arrays);
        for (int at_i = i; at_i < min(end_i, item.queries); at_i++) {
            const long at = attention_workspace_at(0, &item, at_i, &a);
            const state delta = work[at + PART_DELTA * WORKSPACE_ROWS(&a)];
            const state factor = work[at + PART_FACTOR * WORKSPACE_ROWS(&a)];
            const state row_lse = lse[attention_query_row(&a.lse, &item, at_i)];
            int begin, end;
            attention_keys(&item, at_i, at_i, &a, &begin, &end);
            end = factor == 0.0f ? 0 : min(end, end_j);
            for (int at_j = max(begin, j); at_j < end; at_j++) {
                if (attention_excludes(&item, at_i, at_j, &a, &arrays))
                    continue;
                state slope;
                const state p = factor * attention_weight(query, key, row_lse, &item, at_i, at_j, &a, &arrays, &slope);
                const state dp = attention_keep(&item, at_i, at_j, &a) *
                                 attention_output_gradient(d_output, value, &item, at_i, at_j, &a, &arrays);
                ADD(state, sum, lost, p * (dp - delta));
            }
        }
    }
    gradient[a.output.offset + b * a.output.batch + h * a.output.head + i * a.output.row + j * a.output.col] = sum;
}

/* Element (b, h, c) of a.output: the sum of a part of the workspace over an item's rows, and over items and heads where the
 * extents a.items and a.splits are 1.  Column c of row r of the part is element a.block_table.row + r * a.block_table.col + c. */
kernel void attention_backward_sum(OPTIONAL_ARRAY_PARAMETERS const global state *work, global float *gradient,
                                   attention_args a)
{
    const optional_arrays arrays = OPTIONAL_ARRAYS;
    if (a.heads == 0)
        return;

    const int c = (int)global_id(&a.part, 0), h = (int)global_id(&a.part, 1), b = (int)global_id(&a.part, 2);
    if (c >= a.block_table.col || h >= a.splits || b >= a.items)
        return;
    const int last_b = a.items == 1 ? a.batch : b + 1, last_h = a.splits == 1 ? a.heads : h + 1;
    state sum = 0.0f, lost = 0.0f;
    for (int at_b = b; at_b < last_b; at_b++)
        for (int at_h = h; at_h < last_h; at_h++) {
            attention_item item;
            attention_item_of(&item, at_b, at_h, &a, &arrays);
            for (int i = 0; i < item.queries; i++) {
                const long row = attention_workspace_at(0, &item, i, &a) - a.value_scale.offset;
                ADD(state, sum, lost, work[a.value_scale.offset + a.block_table.row + row * a.block_table.col + c]);
            }
        }
    gradient[a.output.offset + b * a.output.batch + h * a.output.head + c * a.output.col] = (float)sum;
}
