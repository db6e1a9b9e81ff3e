/* What every attention kernel shares: the description's macros, the optional arrays, where an item's rows lie, which
 * keys a query attends, and a score's way from the dot product to the softmax.
 *
 *   s   = scale * q.k, or scale * sum_d vector[d] * tanh(q[d] + k[d])                        (ADDITIVE)
 *   s   = softcap * tanh(s / softcap);  s = score_mod(s, b, h, i, j)
 *   s  += bias[b,h,i,j] - slope[b,h] * |p - j| + mask[b,h,i,j],   p = i + item.position
 *
 * Key j of item b is attended by query i if item.first_key <= j < item.keys, j < mask_keys, bias_keys, neither mask,
 * bias nor mask_mod exclude it (a boolean 0, an added -inf), CAUSAL: j <= p, WINDOW: p - left <= j <= p + right.
 *
 * Macros, by the host from the description; all default to 0 (none) but where a value is shown:
 *   D_K, D_V (64), Q_TYPE K_TYPE V_TYPE O_TYPE (F32): F32 F16 BF16, K and V also I8 I4, or all F64
 *   DOUBLE            the state is double: with F64 arrays
 *   KEY_GROUPS VALUE_GROUPS    scales to a row of an I8 or I4 array, and KEY_SCALE_TYPE VALUE_SCALE_TYPE: F32 F16
 *   MASK, MASK_TYPE   BOOL selects; F32 F16 BF16 F64 is added
 *   BIAS, BIAS_TYPE   added: F32 F16 BF16 F64
 *   ADDITIVE, SOFTCAP, SCORE_MOD, MASK_MOD, ALIBI, SINKS, CAUSAL, WINDOW, DROPOUT, LSE, ENTROPY
 *   QUERY_LENGTHS KEY_LENGTHS POSITIONS QUERY_STARTS KEY_STARTS   0, I32 or I64: an array of that type
 *   BOTTOM_RIGHT      an item's position is its keys - its queries, of all, instead of a.position (+ positions[b])
 *   RING, PAGED (0, I32 or I64: the block table's type), PAGE_SIZE (16)
 *   USER0 ... USER3   (attention/user.h)
 *   SPLIT             a launch's batch index is part * a.items + item, and a part attends only its share of the item's keys;
 *                     output (float) and lse are partials, indexed by that batch index, and sinks are left to the merge
 *
 * A kernel's parameters are ATTENTION_PARAMETERS.  It begins with
 *   const optional_arrays arrays = OPTIONAL_ARRAYS;   the optional arrays in one private struct
 *   if (a.batch == 0) return;
 *
 * Everything that the arrays hold is clamped before it becomes an address.  Scores, sums and accumulators are of type
 * `state`. */
#ifndef CLATTN_CL_ATTENTION_CORE_H
#define CLATTN_CL_ATTENTION_CORE_H

#include "attention/args.h"
#include "attention/user.h"
#include "attention/arrays.h"
#include "lib/exp2.h"
#include "lib/philox.h"

#define ATTENTION_PARAMETERS \
    const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key, const global ELEMENT(V_TYPE) *value, \
        OPTIONAL_ARRAY_PARAMETERS global ELEMENT(O_TYPE) *output, global float *lse, global float *entropy, \
        attention_args a
#define ATTENTION_ARGUMENTS query, key, value, OPTIONAL_ARRAY_ARGUMENTS output, lse, entropy, a

#if DOUBLE
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double state;
#define NATURAL_EXP(x) exp(x)
#define ATTENTION_SCALE(a) as_double((a)->scale_bits)
#define ATTENTION_DROPOUT_SCALE(a) (1.0 / (1.0 - (a)->dropout))
#else
typedef float state;
#define NATURAL_EXP(x) exp2s((x) * LOG2E)
#define ATTENTION_SCALE(a) ((a)->scale)
#define ATTENTION_DROPOUT_SCALE(a) ((a)->dropout_scale)
#endif

/* ---- one batch item ---- */

typedef struct attention_item {
    int b, h;               /* batch item and query head */
    int rows, key_rows;     /* of the output, and of the keys, that are its own */
    int queries, keys;      /* its lengths; a ring's keys are those from first_key on */
    int first_key, end_key; /* what may be attended of them: a ring's from the oldest that it holds, a part's share */
    int past_queries, past_keys; /* of a part of it: how many are before those that are here */
    int result;                  /* the batch index of its results */
    long position;               /* of query 0 */
    long query_row, key_row;     /* packed: rows before its first */
} attention_item;

/* No struct as a result: inlining one leaves LLVM's noalias.scope.decl behind, which Oclgrind 21.10 does not know. */
static inline void attention_item_of(attention_item *item, int b, int h, const attention_args *a,
                                     const optional_arrays *arrays)
{
#if SPLIT
    const int part = b / a->items;
    item->result = b;
    b -= part * a->items;
#else
    item->result = b;
#endif
    item->b = b;
    item->h = h;
    item->rows = item->queries = a->query_length;
    item->key_rows = item->keys = a->key_length;
    item->past_queries = a->first_query;
    item->past_keys = a->first_key;
    int queries = a->whole_queries, keys = a->whole_keys; /* of all of it */
    item->first_key = 0;
    item->position = a->position;
    item->query_row = item->key_row = 0;
#if GIVEN(QUERY_STARTS)
    {
        const long rows = a->packed_queries, all = max(rows, (long)a->whole_queries);
        const long begin = clamp(
            LOAD_INT(QUERY_STARTS, arrays->query_starts, a->query_starts.offset + b * a->query_starts.stride), 0L, all);
        const long end = clamp(
            LOAD_INT(QUERY_STARTS, arrays->query_starts, a->query_starts.offset + (b + 1) * a->query_starts.stride),
            begin, all);
        queries = (int)min(end - begin, (long)a->whole_queries);
        item->past_queries = (int)max(a->first_query - begin, 0L);
        item->query_row = clamp(begin - a->first_query, 0L, rows);
        const long stop = clamp(begin + queries - a->first_query, item->query_row, rows);
        item->rows = item->queries = (int)min(stop - item->query_row, (long)a->query_length);
    }
#endif
#if GIVEN(KEY_STARTS)
    {
        const long rows = a->capacity, all = max(rows, (long)a->whole_keys);
        const long begin =
            clamp(LOAD_INT(KEY_STARTS, arrays->key_starts, a->key_starts.offset + b * a->key_starts.stride), 0L, all);
        const long end =
            clamp(LOAD_INT(KEY_STARTS, arrays->key_starts, a->key_starts.offset + (b + 1) * a->key_starts.stride),
                  begin, all);
        keys = (int)min(end - begin, (long)a->whole_keys);
        item->past_keys = (int)max(a->first_key - begin, 0L);
        item->key_row = clamp(begin - a->first_key, 0L, rows);
        const long stop = clamp(begin + keys - a->first_key, item->key_row, rows);
        item->key_rows = item->keys = (int)min(stop - item->key_row, (long)a->key_length);
    }
#endif
#if GIVEN(QUERY_LENGTHS)
    queries = (int)clamp(
        LOAD_INT(QUERY_LENGTHS, arrays->query_lengths, a->query_lengths.offset + b * a->query_lengths.stride), 0L,
        (long)queries);
    item->queries = clamp(queries - item->past_queries, 0, item->queries);
#endif
#if GIVEN(KEY_LENGTHS)
    keys = (int)clamp(LOAD_INT(KEY_LENGTHS, arrays->key_lengths, a->key_lengths.offset + b * a->key_lengths.stride), 0L,
                      (long)keys);
    item->keys = clamp(keys - item->past_keys, 0, item->keys);
#endif
#if RING
    item->first_key = max(item->keys - a->capacity, 0);
#endif
    item->end_key = item->keys;
#if BOTTOM_RIGHT
    item->position = (long)keys - queries + item->past_queries - item->past_keys;
#else
#if GIVEN(QUERY_STARTS) /* a.position knows of the others */
    item->position += item->past_queries;
#endif
#if GIVEN(KEY_STARTS)
    item->position -= item->past_keys;
#endif
#if GIVEN(POSITIONS)
    /* Where any length makes no difference any more, so that sums stay in range. */
    item->position += clamp(LOAD_INT(POSITIONS, arrays->positions, a->positions.offset + b * a->positions.stride),
                            -(1L << 40), 1L << 40);
#endif
#endif
#if SPLIT
    {
        /* Equal shares, in whole sixteens. */
        const int share = ((item->keys - item->first_key + a->splits - 1) / a->splits + 15) / 16 * 16;
        const long first = item->first_key + (long)part * share;
        item->first_key = (int)min(first, (long)item->keys);
        item->end_key = (int)min(first + share, (long)item->keys);
    }
#endif
}

/* The range of keys that lengths, causality and the window let query i attend; empty where *first >= *end. */
static inline void attention_key_range(const attention_item *item, long i, const attention_args *a, long *first,
                                       long *end)
{
    *first = item->first_key;
    *end = item->end_key;
#if CAUSAL
    *end = min(*end, i + item->position + 1);
#endif
#if WINDOW
    if (a->window_left != ATTENTION_UNBOUNDED)
        *first = max(*first, i + item->position - a->window_left);
    if (a->window_right != ATTENTION_UNBOUNDED)
        *end = min(*end, i + item->position + a->window_right + 1);
#endif
}

/* The range of keys outside which no query from `first` to `last` attends any; empty where begin >= end. */
static inline void attention_keys(const attention_item *item, long first, long last, const attention_args *a,
                                  int *begin, int *end)
{
    long low, high, unused;
    attention_key_range(item, first, a, &low, &unused);
    attention_key_range(item, last, a, &unused, &high);
#if MASK
    high = min(high, (long)a->mask_keys);
#endif
#if BIAS
    high = min(high, (long)a->bias_keys);
#endif
    *begin = (int)min(low, (long)item->end_key);
    *end = (int)max(high, 0L);
}

/* Whether causality and the window let query i attend key j. */
static inline bool attention_in_range(const attention_item *item, long i, long j, const attention_args *a)
{
    bool seen = true;
#if CAUSAL
    seen = seen && j <= i + item->position;
#endif
#if WINDOW
    seen = seen && (a->window_left == ATTENTION_UNBOUNDED || j >= i + item->position - a->window_left);
    seen = seen && (a->window_right == ATTENTION_UNBOUNDED || j <= i + item->position + a->window_right);
#endif
    return seen;
}

/* Where the item's head of keys, values or their scales begins.  Unsigned: a quotient's sign takes registers. */
static inline long attention_head(const array4 *array, const attention_item *item, const attention_args *a)
{
    const long head = array->offset + (uint)item->h / (uint)a->group * array->head;
#if GIVEN(PAGED)
    return head;
#else
    return head + item->b * array->batch + item->key_row * array->row;
#endif
}

/* Where its row j begins, from there. */
static inline long attention_row_of_head(const array4 *array, const attention_item *item, long j,
                                         const attention_args *a, const optional_arrays *arrays)
{
#if GIVEN(PAGED)
    const long block = j / PAGE_SIZE;
    const long page = LOAD_INT(PAGED, arrays->block_table,
                               a->block_table.offset + item->b * a->block_table.row + block * a->block_table.col);
    return clamp(page, 0L, (long)a->capacity - 1) * array->batch + (j - block * PAGE_SIZE) * array->row;
#elif RING
    return j % a->capacity * array->row;
#else
    return j * array->row;
#endif
}

/* Where row j begins. */
static inline long attention_row(const array4 *array, const attention_item *item, long j, const attention_args *a,
                                 const optional_arrays *arrays)
{
    return attention_head(array, item, a) + attention_row_of_head(array, item, j, a, arrays);
}

/* Where row i of the item's queries begins. */
static inline long attention_query_row(const array4 *array, const attention_item *item, long i)
{
    return array->offset + item->b * array->batch + item->h * array->head + (item->query_row + i) * array->row;
}

/* Where row i of its output, lse or entropy begins. */
static inline long attention_result_row(const array4 *array, const attention_item *item, long i)
{
    return array->offset + item->result * array->batch + item->h * array->head + (item->query_row + i) * array->row;
}

/* ---- a score ---- */

static inline user_data attention_user(const attention_item *item, const attention_args *a,
                                       const optional_arrays *arrays)
{
    user_data user = {USER0_SET(arrays, a) USER1_SET(arrays, a) USER2_SET(arrays, a) USER3_SET(arrays, a).scalar0 =
                          a->user_scalar[0],
                      .scalar1 = a->user_scalar[1],
                      .scalar2 = a->user_scalar[2],
                      .scalar3 = a->user_scalar[3],
                      .position = item->position,
                      .query_length = item->queries,
                      .key_length = item->keys};
    return user;
}

/* A scaled score after softcap. */
static inline state attention_capped(state s, const attention_args *a)
{
#if SOFTCAP
    s = (state)a->softcap * tanh(s / (state)a->softcap);
#endif
    return s;
}

/* Whether mask, bias or mask_mod keep query i from key j, which lies within the item's lengths and, with MASK or BIAS,
 * below mask_keys and bias_keys. */
static inline bool attention_masked(const attention_item *item, long i, long j, const attention_args *a,
                                    const optional_arrays *arrays)
{
#if MASK
    if (LOAD(MASK_TYPE, arrays->mask,
             a->mask.offset + item->b * a->mask.batch + item->h * a->mask.head + i * a->mask.row + j * a->mask.col) ==
        (BOOL_MASK ? 0.0f : -INFINITY))
        return true;
#endif
#if BIAS
    if (LOAD(BIAS_TYPE, arrays->bias,
             a->bias.offset + item->b * a->bias.batch + item->h * a->bias.head + i * a->bias.row + j * a->bias.col) ==
        -INFINITY)
        return true;
#endif
#if MASK_MOD
    if (!mask_mod(item->b, item->h, (int)i, (int)j, attention_user(item, a, arrays)))
        return true;
#endif
    return false;
}

/* Whether query i does not attend such a key. */
static inline bool attention_excludes(const attention_item *item, long i, long j, const attention_args *a,
                                      const optional_arrays *arrays)
{
    return !attention_in_range(item, i, j, a) || attention_masked(item, i, j, a, arrays);
}

/* A capped score after everything that is added. */
static inline state attention_biased(state s, const attention_item *item, long i, long j, const attention_args *a,
                                     const optional_arrays *arrays)
{
#if SCORE_MOD
    s = score_mod((float)s, item->b, item->h, (int)i, (int)j, attention_user(item, a, arrays));
#endif
#if BIAS
    s += LOAD(BIAS_TYPE, arrays->bias,
              a->bias.offset + item->b * a->bias.batch + item->h * a->bias.head + i * a->bias.row + j * a->bias.col);
#endif
#if ALIBI
    {
        const long distance = i + item->position - j;
        s -= (state)arrays->alibi[a->alibi.offset + item->b * a->alibi.row + item->h * a->alibi.col] *
             fabs((state)distance);
    }
#endif
#if FLOAT_MASK
    s += LOAD(MASK_TYPE, arrays->mask,
              a->mask.offset + item->b * a->mask.batch + item->h * a->mask.head + i * a->mask.row + j * a->mask.col);
#endif
    return s;
}

#if DROPOUT
/* The generator's words of keys 4*block ... 4*block + 3 of query i; dropout keeps what is not below a.dropout_threshold. */
static inline uint4 attention_words(const attention_item *item, long i, long block, const attention_args *a)
{
    return philox((uint4)((uint)block + (uint)item->past_keys / 4, (uint)i + (uint)item->past_queries,
                          (uint)item->b * (uint)a->whole_heads + (uint)(a->first_head + item->h), a->dropout_offset),
                  (uint2)((uint)a->dropout_seed, (uint)(a->dropout_seed >> 32)));
}

/* Whether dropout keeps the probabilities of those keys: 1 or 0. */
static inline int4 attention_kept(const attention_item *item, long i, long block, const attention_args *a)
{
    const uint4 word = attention_words(item, i, block, a);
    /* Not compared as a vector: Oclgrind 21.10 makes -1 of a vector's truths where LLVM counts on 1. */
    const uint least = a->dropout_threshold;
    return (int4)(word.x >= least, word.y >= least, word.z >= least, word.w >= least);
}
#endif

/* ---- a row's end ---- */

/* A row's attended keys, with SINKS its sink too: the sum of exp(s - *total_max) is *total.  Returns exp(row_max - *total_max). */
static inline state attention_sum_up(state row_max, state row_sum, const attention_item *item, const attention_args *a,
                                     const optional_arrays *arrays, state *total_max, state *total)
{
    state rescale = 1.0f;
    *total_max = row_max;
    *total = row_sum;
#if SINKS && !SPLIT
    const state sink = arrays->sinks[a->sinks.offset + item->h * a->sinks.stride];
    *total_max = sink > row_max ? sink : row_max;
    const state finite_max = *total_max == -INFINITY ? 0.0f : *total_max;
    rescale = row_sum == 0.0f ? 0.0f : NATURAL_EXP(row_max - finite_max);
    *total = row_sum * rescale + NATURAL_EXP(sink - finite_max);
#endif
    return rescale;
}

/* Returns what the accumulator is multiplied by, from the attended keys' maximum and sum of exp(s - maximum) and, with
 * SINKS, the sink's share.  *lse is the row's log-sum-exp.
 *
 * The logarithm is computed for every row, because a branch around it ends the process on PoCL 6.0 with LLVM 18: see
 * QUIRK_GROUPS_BREAK. */
static inline state attention_finish(state row_max, state row_sum, const attention_item *item, const attention_args *a,
                                     const optional_arrays *arrays, state *lse)
{
    state total_max, total;
    const state rescale = attention_sum_up(row_max, row_sum, item, a, arrays, &total_max, &total);
    const state log_total = log(total);
    *lse = total == 0.0f ? -INFINITY : total_max + log_total;
    state factor = total == 0.0f ? 0.0f : rescale / total;
#if DROPOUT
    factor *= ATTENTION_DROPOUT_SCALE(a);
#endif
    return factor;
}

#if ENTROPY
/* -sum P ln P of a row: `row_moment` is the sum over its keys of exp(s - row_max) * (s - row_max).  Not from the log-sum-exp,
 * whose rounding is as large as the scores. */
static inline state attention_entropy(state row_max, state row_sum, state row_moment, const attention_item *item,
                                      const attention_args *a, const optional_arrays *arrays)
{
    state total_max, total;
    const state rescale = attention_sum_up(row_max, row_sum, item, a, arrays, &total_max, &total);
    const state entropy = rescale / total * (row_sum * (log(total) + (total_max - row_max)) - row_moment);
    return row_sum == 0.0f ? 0.0f : entropy;
}
#endif

#endif
