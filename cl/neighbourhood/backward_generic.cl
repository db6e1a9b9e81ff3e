/* Gradients of neighbourhood attention for every device and every shape.  For a query q and a key k of its window
 *
 *   s   = scale * Q[q,:] . K[k,:]  (+ bias[k]),   p = exp(s - max s) / (the sum of these over the window)
 *   dP  = output_gradient[q,:] . V[k,:],          D = the sum of p dP over the window,   dS = p * (dP - D)
 *
 *   query_gradient[q,:] = scale * the sum of dS K[k,:] over the keys of q's window
 *   key_gradient[k,:]   = scale * the sum of dS Q[q,:] over the queries whose windows have k, of all heads of its group
 *   value_gradient[k,:] = the sum of p output_gradient[q,:] over the same
 *   bias_gradient[k]    = the sum of dS over the queries whose windows have k, of each batch item and head that has this bias
 *
 * The first kernel writes max s, 1 / sum and D of each query to `rows`, or zeros if the bias drops all its keys: three floats at
 * rows_offset + 3 * (((b * heads + h) * query_height + y) * query_width + x), which the others read.  Keys that the bias drops
 * are skipped, so they get 0.  Everything is gathered in a fixed order: there are no atomics.
 *
 * Arrays are indexed as map5 says (neighbourhood/args.h), and parameters are types, sizes and BIAS as in neighbourhood/generic.cl,
 * O_TYPE of output_gradient, and
 *   QUERY_GRADIENT_TYPE KEY_GRADIENT_TYPE VALUE_GRADIENT_TYPE   storage: F32 F16 BF16                (F32)
 *   KEY_GRADIENT VALUE_GRADIENT                                 1: such an array is to be written    (1)
 *   CHUNK                                                       columns of a work-item: 1 and more   (8)
 * Tested: types, BIAS, D_K and D_V 1 to 70, each gradient alone and all.
 *
 * NDRange: see each kernel; rounded up at will in the first two dimensions; any work-group.
 * Local memory: none.  Barriers: none.  State is float.  Needs OpenCL C 1.2 and nothing else. */
#include "neighbourhood/args.h"
#include "neighbourhood/neighbourhood.h"
#include "lib/storage.h"
#include "lib/exp2.h"

#ifndef QUERY_GRADIENT_TYPE
#define QUERY_GRADIENT_TYPE F32
#endif
#ifndef KEY_GRADIENT_TYPE
#define KEY_GRADIENT_TYPE F32
#endif
#ifndef VALUE_GRADIENT_TYPE
#define VALUE_GRADIENT_TYPE F32
#endif
#ifndef KEY_GRADIENT
#define KEY_GRADIENT 1
#endif
#ifndef VALUE_GRADIENT
#define VALUE_GRADIENT 1
#endif
#ifndef CHUNK
#define CHUNK 8
#endif

#if D_K < 1 || D_V < 1 || CHUNK < 1
#error "D_K, D_V and CHUNK must be positive"
#endif

#define QUERY_CHUNKS ((D_K + CHUNK - 1) / CHUNK)
#define KEY_CHUNKS (((D_K > D_V ? D_K : D_V) + CHUNK - 1) / CHUNK)

/* The last column of a chunk that starts at column `first`, counted from there. */
#define LAST(size, first) (min(CHUNK, (size) - (first)) - 1)

DEFINE_DOT_PRODUCT(multiply_query, Q_TYPE, K_TYPE, D_K)
DEFINE_DOT_PRODUCT(multiply_gradient, O_TYPE, V_TYPE, D_V)

/* The queries (of a tile of `count` from key position `at` on) whose windows have key position p: *first, and from one to the
 * next `dilation` more, up to *last; none if *last < *first. */
static inline void find_queries(int p, int length, int window, int dilation, int clip, int at, int count, int *first,
                                int *last)
{
    const int t = p / dilation, rest = p - t * dilation, members = (length - rest + dilation - 1) / dilation;
    int low = t - window / 2, high = t + window / 2;

    if (!clip) { /* the windows of members near an edge are those of the nearest member whose window is not shifted */
        low = t < window ? 0 : low;
        high = t >= members - window ? members - 1 : high;
    }
    low = max(low, max(at - rest + dilation - 1, 0) / dilation);
    high = at + count - 1 < rest ? -1 : min(min(high, members - 1), (at + count - 1 - rest) / dilation);
    *first = rest + low * dilation - at;
    *last = rest + high * dilation - at;
}

/* Where a query's three floats lie, from rows_offset. */
static inline long row_at(long b, int h, int y, int x, const neighbourhood_args *a)
{
    return 3 * (((b * a->heads + h) * a->query_height + y) * a->query_width + x);
}

/* p and dS of a query and a key, whose bias is `addend`. */
typedef struct pair {
    float p, step;
} pair;

static inline pair pair_of(const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key,
                           const global ELEMENT(V_TYPE) *value, const global ELEMENT(O_TYPE) *output_gradient,
                           const global float *row, float addend, const neighbourhood_args *a)
{
    const float s = a->scale * multiply_query(query, a->query.size, key, a->key.size) + addend;
    const float slope = multiply_gradient(output_gradient, a->output.size, value, a->value.size);
    const float p = exp2s((s - row[0]) * LOG2E) * row[1];
    const pair result = {p, p * (slope - row[2])};

    return result;
}

/* Defines NAME(sum, factor, x, step, last), which adds factor * x[c * step] to each sum[c]; elements past `last` repeat it.  Long
 * chunks are a CPU's, whose compilers make vectors of a loop that counts elements; GPUs' would keep each c * step in registers. */
#define REPEATS(size, c, last) ((size) % CHUNK && (c) >= (last))
#if CHUNK > 16
#define DEFINE_ADD(NAME, X, size) \
    static inline void NAME(float sum[CHUNK], float factor, const global ELEMENT(X) *x, long step, int last) \
    { \
        for (int c = 0; c < CHUNK; c++) \
            sum[c] = FMA(factor, LOAD(X, x, (REPEATS(size, c, last) ? last : c) * step), sum[c]); \
    }
#else
#define DEFINE_ADD(NAME, X, size) \
    static inline void NAME(float sum[CHUNK], float factor, const global ELEMENT(X) *x, long step, int last) \
    { \
        for (int c = 0; c < CHUNK; c++) { \
            sum[c] = FMA(factor, LOAD(X, x, 0), sum[c]); \
            x += REPEATS(size, c, last) ? 0 : step; \
        } \
    }
#endif

DEFINE_ADD(add_query, Q_TYPE, D_K)
DEFINE_ADD(add_key, K_TYPE, D_K)
DEFINE_ADD(add_output_gradient, O_TYPE, D_V)

/* (query_width, query_height, heads * batch); an item owns one query. */
kernel void neighbourhood_backward_rows(const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key,
                                        const global ELEMENT(V_TYPE) *value, const global float *bias,
                                        const global ELEMENT(O_TYPE) *output_gradient, global float *rows,
                                        neighbourhood_backward_args args)
{
    const neighbourhood_args a = args.forward;
    if (a.batch == 0)
        return;

    const int x = (int)global_id(&a.part, 0), y = (int)global_id(&a.part, 1);
    const int plane = (int)global_id(&a.part, 2), b = plane / a.heads, h = plane - b * a.heads;
    if (x >= a.query_width || y >= a.query_height || b >= a.batch)
        return;

    const key_window keys = find_keys(a.query_y + y, a.query_x + x, &a);
    query += map5_at(&a.query, b, h, y, x);
    output_gradient += map5_at(&a.output, b, h, y, x);
    float row_max = -INFINITY, row_sum = 0.0f, product = 0.0f;
    for (int i = keys.first_y; i <= keys.last_y; i += a.dilation_y)
        for (int j = keys.first_x; j <= keys.last_x; j += a.dilation_x) {
            const float addend = bias_of(bias, b, h, i, j, &a);
            if (addend == -INFINITY)
                continue;
            const global ELEMENT(K_TYPE) *k = key + map5_at(&a.key, b, h / a.group, i, j);
            const global ELEMENT(V_TYPE) *v = value + map5_at(&a.value, b, h / a.group, i, j);
            const float s = a.scale * multiply_query(query, a.query.size, k, a.key.size) + addend;
            const float slope = multiply_gradient(output_gradient, a.output.size, v, a.value.size);
            float rescale;
            const float p = next_weight(s, &row_max, &rescale);
            row_sum = row_sum * rescale + p;
            product = FMA(p, slope, product * rescale);
        }
    rows += args.rows_offset + row_at(b, h, y, x, &a);
    rows[0] = row_max == -INFINITY ? 0.0f : row_max;
    rows[1] = row_sum == 0.0f ? 0.0f : 1.0f / row_sum;
    rows[2] = row_sum == 0.0f ? 0.0f : product / row_sum;
}

/* (query_width, query_height, chunks of columns * heads * batch); an item owns CHUNK columns of one query's gradient. */
kernel void neighbourhood_backward_queries(const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key,
                                           const global ELEMENT(V_TYPE) *value, const global float *bias,
                                           const global ELEMENT(O_TYPE) *output_gradient, const global float *rows,
                                           global ELEMENT(QUERY_GRADIENT_TYPE) *query_gradient,
                                           neighbourhood_backward_args args)
{
    const neighbourhood_args a = args.forward;
    if (a.batch == 0)
        return;

    const int x = (int)global_id(&a.part, 0), y = (int)global_id(&a.part, 1);
    const int rest = (int)global_id(&a.part, 2) / QUERY_CHUNKS, b = rest / a.heads, h = rest - b * a.heads;
    const int first = ((int)global_id(&a.part, 2) - rest * QUERY_CHUNKS) * CHUNK;
    if (x >= a.query_width || y >= a.query_height || b >= a.batch)
        return;

    const key_window keys = find_keys(a.query_y + y, a.query_x + x, &a);
    query += map5_at(&a.query, b, h, y, x);
    output_gradient += map5_at(&a.output, b, h, y, x);
    rows += args.rows_offset + row_at(b, h, y, x, &a);
    float sum[CHUNK];
    for (int c = 0; c < CHUNK; c++)
        sum[c] = 0.0f;
    for (int i = keys.first_y; i <= keys.last_y; i += a.dilation_y)
        for (int j = keys.first_x; j <= keys.last_x; j += a.dilation_x) {
            const float addend = bias_of(bias, b, h, i, j, &a);
            if (addend == -INFINITY)
                continue;
            const global ELEMENT(K_TYPE) *k = key + map5_at(&a.key, b, h / a.group, i, j);
            const global ELEMENT(V_TYPE) *v = value + map5_at(&a.value, b, h / a.group, i, j);
            const pair both = pair_of(query, k, v, output_gradient, rows, addend, &a);
            add_key(sum, a.scale * both.step, k + first * a.key.size, a.key.size, LAST(D_K, first));
        }
    query_gradient += map5_at(&args.query_gradient, b, h, y, x);
    for (int c = 0; c < CHUNK && first + c < D_K; c++)
        STORE(QUERY_GRADIENT_TYPE, query_gradient, (first + c) * args.query_gradient.size, sum[c]);
}

/* (width, height, chunks of columns * key/value heads * batch) of the keys; an item owns CHUNK columns of one key's gradient and
 * of its value's. */
kernel void neighbourhood_backward_keys(const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key,
                                        const global ELEMENT(V_TYPE) *value, const global float *bias,
                                        const global ELEMENT(O_TYPE) *output_gradient, const global float *rows,
                                        global ELEMENT(KEY_GRADIENT_TYPE) *key_gradient,
                                        global ELEMENT(VALUE_GRADIENT_TYPE) *value_gradient,
                                        neighbourhood_backward_args args)
{
    const neighbourhood_args a = args.forward;
    if (a.batch == 0)
        return;

    const int x = (int)global_id(&a.part, 0), y = (int)global_id(&a.part, 1);
    const int rest = (int)global_id(&a.part, 2) / KEY_CHUNKS, b = rest / args.kv_heads, head = rest - b * args.kv_heads;
    const int first = ((int)global_id(&a.part, 2) - rest * KEY_CHUNKS) * CHUNK;
    if (x >= a.width || y >= a.height || b >= a.batch)
        return;

    int first_y, last_y, first_x, last_x;
    find_queries(y, a.height, a.window_y, a.dilation_y, a.clip, a.query_y, a.query_height, &first_y, &last_y);
    find_queries(x, a.width, a.window_x, a.dilation_x, a.clip, a.query_x, a.query_width, &first_x, &last_x);
    key += map5_at(&a.key, b, head, y, x);
    value += map5_at(&a.value, b, head, y, x);
    bias += BIAS ? map5_at(&a.bias, b, 0, y, x) : 0;
    rows += args.rows_offset;
    float key_sum[CHUNK], value_sum[CHUNK];
    for (int c = 0; c < CHUNK; c++)
        key_sum[c] = value_sum[c] = 0.0f;
    for (int n = 0; n < a.group; n++) {
        const int h = head * a.group + n;
        const float addend = BIAS ? bias[h * a.bias.head] : 0.0f;
        if (addend == -INFINITY)
            continue;
        for (int i = first_y; i <= last_y; i += a.dilation_y)
            for (int j = first_x; j <= last_x; j += a.dilation_x) {
                const global ELEMENT(Q_TYPE) *q = query + map5_at(&a.query, b, h, i, j);
                const global ELEMENT(O_TYPE) *gradient = output_gradient + map5_at(&a.output, b, h, i, j);
                const pair both = pair_of(q, key, value, gradient, rows + row_at(b, h, i, j, &a), addend, &a);
#if KEY_GRADIENT
                if (D_K >= D_V || first < D_K)
                    add_query(key_sum, a.scale * both.step, q + first * a.query.size, a.query.size, LAST(D_K, first));
#endif
#if VALUE_GRADIENT
                if (D_V >= D_K || first < D_V)
                    add_output_gradient(value_sum, both.p, gradient + first * a.output.size, a.output.size,
                                        LAST(D_V, first));
#endif
            }
    }
#if KEY_GRADIENT
    key_gradient += map5_at(&args.key_gradient, b, head, y, x);
    for (int c = 0; c < CHUNK && first + c < D_K; c++)
        STORE(KEY_GRADIENT_TYPE, key_gradient, (first + c) * args.key_gradient.size, key_sum[c]);
#endif
#if VALUE_GRADIENT
    value_gradient += map5_at(&args.value_gradient, b, head, y, x);
    for (int c = 0; c < CHUNK && first + c < D_V; c++)
        STORE(VALUE_GRADIENT_TYPE, value_gradient, (first + c) * args.value_gradient.size, value_sum[c]);
#endif
}

/* (width, height, heads * batch of the bias); an item owns one key's bias and adds up the batch items and heads that have it. */
kernel void neighbourhood_backward_bias(const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key,
                                        const global ELEMENT(V_TYPE) *value, const global float *bias,
                                        const global ELEMENT(O_TYPE) *output_gradient, const global float *rows,
                                        global float *bias_gradient, neighbourhood_backward_args args)
{
    const neighbourhood_args a = args.forward;
    if (a.batch == 0)
        return;

    const int x = (int)global_id(&a.part, 0), y = (int)global_id(&a.part, 1);
    const int plane = (int)global_id(&a.part, 2), first_b = plane / a.bias_heads;
    const int first_h = plane - first_b * a.bias_heads;
    if (x >= a.width || y >= a.height || first_b >= a.bias_batch)
        return;

    int first_y, last_y, first_x, last_x;
    find_queries(y, a.height, a.window_y, a.dilation_y, a.clip, a.query_y, a.query_height, &first_y, &last_y);
    find_queries(x, a.width, a.window_x, a.dilation_x, a.clip, a.query_x, a.query_width, &first_x, &last_x);
    rows += args.rows_offset;
    const float addend = bias_of(bias, first_b, first_h, y, x, &a); /* of all that it is broadcast to */
    float sum = 0.0f;
    for (int m = 0; m < (a.bias_batch == 1 ? a.batch : 1) && addend != -INFINITY; m++)
        for (int n = 0; n < (a.bias_heads == 1 ? a.heads : 1); n++) {
            const int b = first_b + m, h = first_h + n;
            const global ELEMENT(K_TYPE) *k = key + map5_at(&a.key, b, h / a.group, y, x);
            const global ELEMENT(V_TYPE) *v = value + map5_at(&a.value, b, h / a.group, y, x);
            float head_sum = 0.0f;
            for (int i = first_y; i <= last_y; i += a.dilation_y)
                for (int j = first_x; j <= last_x; j += a.dilation_x)
                    head_sum += pair_of(query + map5_at(&a.query, b, h, i, j), k, v,
                                        output_gradient + map5_at(&a.output, b, h, i, j), rows + row_at(b, h, i, j, &a),
                                        addend, &a)
                                    .step;
            sum += head_sum;
        }
    bias_gradient[map5_at(&args.bias_gradient, first_b, first_h, y, x)] = sum;
}
