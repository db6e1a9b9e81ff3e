/* Attention for every device and every shape: the solver of last resort.
 *
 *   O[i,:] = sum_j keep_ij p_ij V[j,:] / sum_j p_ij,   p_ij = exp(s_ij - max_j s_ij),   s_ij: attention/core.h
 *   lse[i] = log sum_j exp(s_ij),   entropy[i] = -sum_j P_ij log P_ij
 *
 * Arrays, strides and macros: attention/core.h; any combination of them, any strides, any alignment.  Besides:
 *   D_V_CHUNK   output columns of one work-item, 1 and more (8)
 * Tested: every feature; D_K, D_V 1 to 40,000; chunks 1, 4, 8, 16 and whole rows.
 *
 * NDRange: (chunks of columns = ceil(D_V / D_V_CHUNK), query_length, heads * batch), each of them
 * rounded up as the work-group needs; any work-group.  A work-item owns output columns
 * [chunk * D_V_CHUNK, ...) of one query and walks its keys; the item of chunk 0 writes lse and entropy.
 * Every item of a query computes the same scores again, which is the price of needing no memory.
 *
 * Local memory: none.  Barriers: none.  A key that is not attended is skipped: neither its K nor its V
 * is read; a row that attends nothing gives output +0 and lse -inf; a NaN or +inf in an attended score travels
 * through the sum and makes the row NaN.  Needs OpenCL C 1.2 and nothing else, with DOUBLE fp64. */
#include "attention/core.h"
#include "attention/pair.h"

#ifndef D_V_CHUNK
#define D_V_CHUNK 8
#endif
#if D_V_CHUNK < 1
#error "D_V_CHUNK must be positive"
#endif

/* o += p * V[j, first ... first + columns - 1] */
static inline void add_value(state *o, state p, const global ELEMENT(V_TYPE) *value, const attention_item *item, long j,
                             int first, int columns, const attention_args *a, const optional_arrays *arrays)
{
    const long row = attention_row(&a->value, item, j, a, arrays) + first * a->value.col;
#if VALUE_GROUPS
    const long scales = attention_row(&a->value_scale, item, j, a, arrays);
    for (int c = 0; c < columns; c++) {
        const state scale =
            LOAD(VALUE_SCALE_TYPE, arrays->value_scale, scales + (first + c) / VALUE_GROUP * a->value_scale.col);
        o[c] = STATE_FMA(p, scale * LOAD(V_TYPE, value, row + c * a->value.col), o[c]);
    }
#else
    for (int c = 0; c < columns; c++)
        o[c] = STATE_FMA(p, LOAD(V_TYPE, value, row + c * a->value.col), o[c]);
#endif
}

kernel void attention_generic(ATTENTION_PARAMETERS)
{
    const optional_arrays arrays = OPTIONAL_ARRAYS;
    if (a.batch == 0)
        return;

    const int first = (int)global_id(&a.part, 0) * D_V_CHUNK;
    const long i = (long)global_id(&a.part, 1);
    const size_t index = global_id(&a.part, 2);
    const int b = (int)(index / (size_t)a.heads), h = (int)(index - (size_t)b * (size_t)a.heads);
    if (first >= D_V || i >= a.query_length || b >= a.batch)
        return;
    attention_item item;
    attention_item_of(&item, b, h, &a, &arrays);
    if (i >= item.rows)
        return;

    const int columns = min(D_V_CHUNK, D_V - first);
    int begin, end;
    attention_keys(&item, i, i, &a, &begin, &end);
    if (i >= item.queries)
        end = begin;

    state o[D_V_CHUNK];
    state row_max = -INFINITY;
    state row_sum = 0.0f;
#if ENTROPY
    state row_moment = 0.0f;
#endif
    for (int c = 0; c < D_V_CHUNK; c++)
        o[c] = 0.0f;

    for (long j = begin; j < end; j++) {
        if (attention_excludes(&item, i, j, &a, &arrays))
            continue;
        state s = attention_capped(attention_pair(query, key, &item, i, j, &a, &arrays), &a);
        s = attention_biased(s, &item, i, j, &a, &arrays);

        /* `row_max` takes no NaN: the comparison is false, and s - row_max then carries it to the sum.
         * Where every score so far is -inf, subtract 0 instead of making a NaN. */
        const state old = row_max;
        row_max = s > row_max ? s : row_max;
        const state finite_max = row_max == -INFINITY ? 0.0f : row_max;
        const state p = NATURAL_EXP(s - finite_max);
        if (row_max > old) {
            const state rescale = NATURAL_EXP(old - finite_max);
#if ENTROPY
            row_moment = row_sum == 0.0f ? 0.0f : rescale * STATE_FMA(old - finite_max, row_sum, row_moment);
#endif
            row_sum *= rescale;
            for (int c = 0; c < D_V_CHUNK; c++)
                o[c] *= rescale;
        }
        row_sum += p;
#if ENTROPY
        row_moment += p == 0.0f ? 0.0f : p * (s - finite_max);
#endif
#if DROPOUT
        /* Through memory, and anew for every key: of a vector's element by a variable index, and of a vector chosen by a
         * scalar condition, Oclgrind 21.10 makes something else. */
        uint word[4];
        vstore4(attention_words(&item, i, j >> 2, &a), 0, word);
        if (word[j & 3] < a.dropout_threshold)
            continue;
#endif
        add_value(o, p, value, &item, j, first, columns, &a, &arrays);
    }

    state total;
    const state factor = attention_finish(row_max, row_sum, &item, &a, &arrays, &total);
    const long at = attention_result_row(&a.output, &item, i) + first * a.output.col;
    for (int c = 0; c < columns; c++)
        STORE(O_TYPE, output, at + c * a.output.col, factor == 0.0f ? 0.0f : o[c] * factor);
    if (first > 0)
        return;
#if LSE
    lse[attention_result_row(&a.lse, &item, i)] = total;
#endif
#if ENTROPY
    entropy[attention_result_row(&a.entropy, &item, i)] =
        attention_entropy(row_max, row_sum, row_moment, &item, &a, &arrays);
#endif
}
