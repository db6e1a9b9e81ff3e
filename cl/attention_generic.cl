/* Attention for every device and every shape: the solver of last resort.
 *
 *   O[i,:] = sum_j p_ij V[j,:] / sum_j p_ij,   p_ij = exp(s_ij - max_j s_ij),
 *   s_ij   = scale * Q[i,:] . K[j,:]  (+ mask_ij), replaced by -inf where key j is not attended
 *   lse[i] = log sum_j exp(s_ij)
 *
 * Element (b, h, i, d) of query, output and mask, each with its own strides in `a`, is
 *   offset + b*batch + h*head + i*row + d*col;
 * key and value are indexed the same with h / a.group for the head; lse has (b, h, i).  Any strides,
 * any alignment; those of the inputs may be 0 or negative.
 *
 * Parameters
 *   Q_TYPE K_TYPE V_TYPE O_TYPE   storage of each array: F32 F16 BF16          (F32)
 *   MASK        1: a mask argument                          0 1                (0)
 *   MASK_TYPE   BOOL: 1 = attend; else added to the score   BOOL F32 F16 BF16  (F32)
 *   CAUSAL      1: query i attends j <= i + a.position      0 1                (0)
 *   LSE         1: an lse argument (float)                  0 1                (0)
 *   D_K, D_V    sizes of a query and of a value             1 and more         (64)
 *   D_V_CHUNK   output columns of one work-item             1 and more         (8)
 * Tested: every combination of MASK (BOOL, F32), CAUSAL, LSE; D_K, D_V 1 to 2050; chunks 1, 4, 8, 16.
 *
 * NDRange: (chunks of columns = ceil(D_V / D_V_CHUNK), query_length, heads * batch), each of them
 * rounded up as the work-group needs; any work-group.  A work-item owns output columns
 * [chunk * D_V_CHUNK, ...) of one query and walks all of its keys; the item of chunk 0 writes the lse.
 * Every item of a query computes the same scores again, which is the price of needing no memory.
 *
 * Local memory: none.  Barriers: none.  State is float; a masked score is -inf and its p is exactly 0;
 * a row that attends nothing gives output +0 and lse -inf; a NaN or +inf in an attended score travels
 * through the sum and makes the row NaN.  Keys at or beyond key_length, and the K and V rows of keys
 * that a mask excludes, are not read.  Needs OpenCL C 1.2 and nothing else. */
#include "inc/args.h"
#include "inc/storage.h"
#include "inc/exp2.h"

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
#ifndef D_K
#define D_K 64
#endif
#ifndef D_V
#define D_V 64
#endif
#ifndef D_V_CHUNK
#define D_V_CHUNK 8
#endif

#if D_K < 1 || D_V < 1 || D_V_CHUNK < 1
#error "D_K, D_V and D_V_CHUNK must be positive"
#endif

#define IS_BOOL_F32 0
#define IS_BOOL_F16 0
#define IS_BOOL_BF16 0
#define IS_BOOL_BOOL 1
#define BOOL_MASK (MASK && JOIN(IS_BOOL_, MASK_TYPE))
#define FLOAT_MASK (MASK && !JOIN(IS_BOOL_, MASK_TYPE))

/* One query's dot product with one key, in two chains so that neither latency nor rounding doubles up. */
static float dot_product(const global ELEMENT(Q_TYPE) *query, long query_col,
                         const global ELEMENT(K_TYPE) *key, long key_col)
{
    float even = 0.0f;
    float odd = 0.0f;

    for (int d = 0; d + 1 < D_K; d += 2) {
        even = FMA(LOAD(Q_TYPE, query, d * query_col), LOAD(K_TYPE, key, d * key_col), even);
        odd = FMA(LOAD(Q_TYPE, query, (d + 1) * query_col), LOAD(K_TYPE, key, (d + 1) * key_col), odd);
    }
    if (D_K % 2 == 1)
        even = FMA(LOAD(Q_TYPE, query, (D_K - 1) * query_col), LOAD(K_TYPE, key, (D_K - 1) * key_col), even);
    return even + odd;
}

kernel void attention_generic(const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key,
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

    const int first = (int)get_global_id(0) * D_V_CHUNK;
    const long i = (long)get_global_id(1);
    const long b = (long)get_global_id(2) / a.heads;
    const long h = (long)get_global_id(2) - b * a.heads;
    if (first >= D_V || i >= a.query_length || b >= a.batch)
        return;

    const int columns = min(D_V_CHUNK, D_V - first);
    long keys = a.key_length;
    query += a.query.offset + b * a.query.batch + h * a.query.head + i * a.query.row;
    key += a.key.offset + b * a.key.batch + h / a.group * a.key.head;
    value += a.value.offset + b * a.value.batch + h / a.group * a.value.head + first * a.value.col;
    output += a.output.offset + b * a.output.batch + h * a.output.head + i * a.output.row
              + first * a.output.col;
#if MASK
    mask += a.mask.offset + b * a.mask.batch + h * a.mask.head + i * a.mask.row;
    keys = min(keys, (long)a.mask_keys);
#endif
#if CAUSAL
    keys = min(keys, i + a.position + 1);
#endif

    float o[D_V_CHUNK];
    float highest = -INFINITY;
    float sum = 0.0f;
    for (int c = 0; c < D_V_CHUNK; c++)
        o[c] = 0.0f;

    for (long j = 0; j < keys; j++) {
#if MASK
        const float bias = LOAD(MASK_TYPE, mask, j * a.mask.col);
        if (BOOL_MASK ? bias == 0.0f : bias == -INFINITY)
            continue;
#else
        const float bias = 0.0f;
#endif
        float s = a.scale * dot_product(query, a.query.col, key + j * a.key.row, a.key.col);
        if (FLOAT_MASK)
            s += bias;

        /* `highest` takes no NaN: the comparison is false, and s - highest then carries it to the sum.
         * Where every score so far is -inf, subtract 0 instead of making a NaN. */
        const float old = highest;
        highest = s > highest ? s : highest;
        const float safe = highest == -INFINITY ? 0.0f : highest;
        const float p = exp2s((s - safe) * LOG2E);
        if (highest > old) {
            const float shrink = exp2s((old - safe) * LOG2E);
            sum *= shrink;
            for (int c = 0; c < D_V_CHUNK; c++)
                o[c] *= shrink;
        }
        sum += p;
        const global ELEMENT(V_TYPE) *row = value + j * a.value.row;
        if (columns == D_V_CHUNK) {
            for (int c = 0; c < D_V_CHUNK; c++)
                o[c] = FMA(p, LOAD(V_TYPE, row, c * a.value.col), o[c]);
        } else {
            for (int c = 0; c < columns; c++)
                o[c] = FMA(p, LOAD(V_TYPE, row, c * a.value.col), o[c]);
        }
    }

    for (int c = 0; c < columns; c++)
        STORE(O_TYPE, output, c * a.output.col, sum == 0.0f ? 0.0f : o[c] / sum);
#if LSE
    if (first == 0)
        lse[a.lse.offset + b * a.lse.batch + h * a.lse.head + i * a.lse.row] =
            sum == 0.0f ? -INFINITY : highest + log(sum);
#endif
}
