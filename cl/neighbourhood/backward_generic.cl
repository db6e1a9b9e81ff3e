/* Gradients of neighbourhood attention for every device and every shape.  For a query q and a key k of its window
 *
 *   s   = scale * Q[q,:] . K[k,:]  (+ bias[k]),   p = exp(s - max s) / (the sum of these over the window)
 *   dP  = output_gradient[q,:] . V[k,:],          D = the sum of p dP over the window,   dS = p * (dP - D)
 *
 *   query_gradient[q,:] = scale * the sum of dS K[k,:] over the keys of q's window
 *   key_gradient[k,:]   = scale * the sum of dS Q[q,:] over the queries whose windows have k, of all heads of its group
 *   value_gradient[k,:] = the sum of p output_gradient[q,:] over the same
 *   bias_gradient[k]    = the sum of dS over the same, of each batch item and head that the bias is broadcast to
 *
 * The first kernel writes max s, 1 / sum and D of each query to `rows`, three floats at
 * rows_offset + 3 * (((b * heads + h) * query_height + y) * query_width + x), which the others read.  Keys that the bias drops
 * are skipped, so they get 0.  Everything is gathered in a fixed order: there are no atomics.
 *
 * Arrays are indexed as map5 says (neighbourhood/args.h), and parameters are those of neighbourhood/generic.cl, O_TYPE of
 * output_gradient, and
 *   QUERY_GRADIENT_TYPE KEY_GRADIENT_TYPE VALUE_GRADIENT_TYPE   storage: F32 F16 BF16                (F32)
 *   QUERY_GRADIENT KEY_GRADIENT VALUE_GRADIENT                  1: such an array is to be written    (1)
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
#ifndef QUERY_GRADIENT
#define QUERY_GRADIENT 1
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

#define QUERY_CHUNKS (QUERY_GRADIENT ? (D_K + CHUNK - 1) / CHUNK : 1)
#define KEY_CHUNKS (((D_K > D_V ? D_K : D_V) + CHUNK - 1) / CHUNK)

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

/* The softmax of a query: what the first kernel writes. */
typedef struct softmax_row {
    float max, inverse, product;
} softmax_row;

static inline long row_of(long b, long h, int y, int x, const neighbourhood_backward_args *args)
{
    const neighbourhood_args *a = &args->forward;
    return args->rows_offset + 3 * (((b * a->heads + h) * a->query_height + y) * a->query_width + x);
}

/* (query_width, query_height, chunks of columns * heads * batch); an item owns CHUNK columns of one query's gradient. */
kernel void neighbourhood_backward_rows(const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key,
                                        const global ELEMENT(V_TYPE) *value, const global float *bias,
                                        const global ELEMENT(O_TYPE) *output_gradient,
                                        global ELEMENT(QUERY_GRADIENT_TYPE) *query_gradient, global float *rows,
                                        neighbourhood_backward_args args)
{
    const neighbourhood_args a = args.forward;
    if (a.batch == 0)
        return;

    const int x = (int)global_id(&a.part, 0), y = (int)global_id(&a.part, 1);
    const long rest = (long)global_id(&a.part, 2) / QUERY_CHUNKS;
    const int first = (int)((long)global_id(&a.part, 2) - rest * QUERY_CHUNKS) * CHUNK;
    const long b = rest / a.heads, h = rest - b * a.heads;
    if (x >= a.query_width || y >= a.query_height || b >= a.batch)
        return;

    const int at_y = a.query_y + y, at_x = a.query_x + x;
    const int low_y = window_low(at_y, a.height, a.window_y, a.dilation_y, a.clip);
    const int high_y = window_high(at_y, a.height, a.window_y, a.dilation_y, a.clip);
    const int low_x = window_low(at_x, a.width, a.window_x, a.dilation_x, a.clip);
    const int high_x = window_high(at_x, a.width, a.window_x, a.dilation_x, a.clip);
    query += a.query.offset + b * a.query.batch + h * a.query.head + y * a.query.row + x * a.query.col;
    key += a.key.offset + b * a.key.batch + h / a.group * a.key.head;
    value += a.value.offset + b * a.value.batch + h / a.group * a.value.head;
    output_gradient += a.output.offset + b * a.output.batch + h * a.output.head + y * a.output.row + x * a.output.col;
#if BIAS
    bias += a.bias.offset + b * a.bias.batch + h * a.bias.head;
#endif

    softmax_row row = {-INFINITY, 0.0f, 0.0f};
    float row_sum = 0.0f;
    float sum[CHUNK];
    for (int c = 0; c < CHUNK; c++)
        sum[c] = 0.0f;
    /* The first walk finds the softmax, the second adds. */
    for (int walk = 0; walk < 1 + QUERY_GRADIENT; walk++) {
        for (int u = low_y; u <= high_y; u++)
            for (int v = low_x; v <= high_x; v++) {
                const long i = at_y + (long)u * a.dilation_y, j = at_x + (long)v * a.dilation_x;
                const global ELEMENT(K_TYPE) *k = key + i * a.key.row + j * a.key.col;
#if BIAS
                const float addend = bias[i * a.bias.row + j * a.bias.col];
                if (addend == -INFINITY)
                    continue;
#else
                const float addend = 0.0f;
#endif
                const float s = a.scale * multiply_query(query, a.query.size, k, a.key.size) + addend;
                const float slope = multiply_gradient(output_gradient, a.output.size,
                                                      value + i * a.value.row + j * a.value.col, a.value.size);
                if (walk == 1) {
                    const float p = exp2s((s - row.max) * LOG2E) * row.inverse;
                    const float step = a.scale * (p * (slope - row.product));
                    for (int c = 0; c < CHUNK; c++)
                        sum[c] = FMA(step, LOAD(K_TYPE, k, min(first + c, D_K - 1) * a.key.size), sum[c]);
                    continue;
                }
                /* As in neighbourhood/generic.cl: NaN is carried by the sum, and if every score is -inf, 0 is subtracted. */
                const float old = row.max;
                row.max = s > row.max ? s : row.max;
                const float safe = row.max == -INFINITY ? 0.0f : row.max;
                const float p = exp2s((s - safe) * LOG2E);
                if (row.max > old) {
                    const float rescale = exp2s((old - safe) * LOG2E);
                    row_sum *= rescale;
                    row.product *= rescale;
                }
                row_sum += p;
                row.product = FMA(p, slope, row.product);
            }
        if (walk == 0) {
            row.max = row.max == -INFINITY ? 0.0f : row.max;
            row.inverse = row_sum == 0.0f ? 0.0f : 1.0f / row_sum;
            row.product = row_sum == 0.0f ? 0.0f : row.product / row_sum;
        }
    }
    if (first == 0) {
        const long at = row_of(b, h, y, x, &args);
        rows[at] = row.max;
        rows[at + 1] = row.inverse;
        rows[at + 2] = row.product;
    }
#if QUERY_GRADIENT
    query_gradient += args.query_gradient.offset + b * args.query_gradient.batch + h * args.query_gradient.head +
                      y * args.query_gradient.row + x * args.query_gradient.col;
    for (int c = 0; c < CHUNK && first + c < D_K; c++)
        STORE(QUERY_GRADIENT_TYPE, query_gradient, (first + c) * args.query_gradient.size, sum[c]);
#endif
}

/* A key and a head, and what its item has of the sums over queries. */
typedef struct key_sums {
    const global ELEMENT(K_TYPE) *key;
    const global ELEMENT(V_TYPE) *value;
    long b, h;
    int y, x;
    float addend;
    int first; /* column */
    float step, key_gradient[CHUNK], value_gradient[CHUNK];
} key_sums;

/* Adds dS of each query of head h whose window has the key to `step`, and with `columns` dS Q and p output_gradient to the
 * others. */
static inline void add_queries(key_sums *k, const bool columns, const global ELEMENT(Q_TYPE) *query,
                               const global ELEMENT(O_TYPE) *output_gradient, const global float *rows,
                               const neighbourhood_backward_args *args)
{
    const neighbourhood_args *a = &args->forward;
    int first[2], last[2];

    find_queries(k->y, a->height, a->window_y, a->dilation_y, a->clip, a->query_y, a->query_height, &first[0],
                 &last[0]);
    find_queries(k->x, a->width, a->window_x, a->dilation_x, a->clip, a->query_x, a->query_width, &first[1], &last[1]);
    for (int y = first[0]; y <= last[0]; y += a->dilation_y)
        for (int x = first[1]; x <= last[1]; x += a->dilation_x) {
            const global ELEMENT(Q_TYPE) *q = query + a->query.offset + k->b * a->query.batch + k->h * a->query.head +
                                              y * a->query.row + x * a->query.col;
            const global ELEMENT(O_TYPE) *gradient = output_gradient + a->output.offset + k->b * a->output.batch +
                                                     k->h * a->output.head + y * a->output.row + x * a->output.col;
            const long at = row_of(k->b, k->h, y, x, args);
            const float s = a->scale * multiply_query(q, a->query.size, k->key, a->key.size) + k->addend;
            const float slope = multiply_gradient(gradient, a->output.size, k->value, a->value.size);
            const float p = exp2s((s - rows[at]) * LOG2E) * rows[at + 1], step = p * (slope - rows[at + 2]);
            k->step += step;
            for (int c = 0; c < CHUNK && columns; c++) {
#if KEY_GRADIENT
                k->key_gradient[c] = FMA(a->scale * step, LOAD(Q_TYPE, q, min(k->first + c, D_K - 1) * a->query.size),
                                         k->key_gradient[c]);
#endif
#if VALUE_GRADIENT
                k->value_gradient[c] =
                    FMA(p, LOAD(O_TYPE, gradient, min(k->first + c, D_V - 1) * a->output.size), k->value_gradient[c]);
#endif
            }
        }
}

/* Finds the key of head k->h, unless the bias drops it: then the result is false. */
static inline bool find_key(key_sums *k, const global ELEMENT(K_TYPE) *key, const global ELEMENT(V_TYPE) *value,
                            const global float *bias, const neighbourhood_args *a)
{
    const long head = k->h / a->group;

    k->key = key + a->key.offset + k->b * a->key.batch + head * a->key.head + k->y * a->key.row + k->x * a->key.col;
    k->value = value + a->value.offset + k->b * a->value.batch + head * a->value.head + k->y * a->value.row +
               k->x * a->value.col;
    k->addend = 0.0f;
#if BIAS
    k->addend =
        bias[a->bias.offset + k->b * a->bias.batch + k->h * a->bias.head + k->y * a->bias.row + k->x * a->bias.col];
#endif
    return k->addend != -INFINITY;
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

    key_sums k;
    k.x = (int)global_id(&a.part, 0);
    k.y = (int)global_id(&a.part, 1);
    const long rest = (long)global_id(&a.part, 2) / KEY_CHUNKS;
    k.first = (int)((long)global_id(&a.part, 2) - rest * KEY_CHUNKS) * CHUNK;
    k.b = rest / args.kv_heads;
    const long head = rest - k.b * args.kv_heads;
    if (k.x >= a.width || k.y >= a.height || k.b >= a.batch)
        return;

    k.step = 0.0f;
    for (int c = 0; c < CHUNK; c++)
        k.key_gradient[c] = k.value_gradient[c] = 0.0f;
    for (k.h = head * a.group; k.h < (head + 1) * a.group; k.h++)
        if (find_key(&k, key, value, bias, &a))
            add_queries(&k, true, query, output_gradient, rows, &args);
#if KEY_GRADIENT
    key_gradient += args.key_gradient.offset + k.b * args.key_gradient.batch + head * args.key_gradient.head +
                    k.y * args.key_gradient.row + k.x * args.key_gradient.col;
    for (int c = 0; c < CHUNK && k.first + c < D_K; c++)
        STORE(KEY_GRADIENT_TYPE, key_gradient, (k.first + c) * args.key_gradient.size, k.key_gradient[c]);
#endif
#if VALUE_GRADIENT
    value_gradient += args.value_gradient.offset + k.b * args.value_gradient.batch + head * args.value_gradient.head +
                      k.y * args.value_gradient.row + k.x * args.value_gradient.col;
    for (int c = 0; c < CHUNK && k.first + c < D_V; c++)
        STORE(VALUE_GRADIENT_TYPE, value_gradient, (k.first + c) * args.value_gradient.size, k.value_gradient[c]);
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

    key_sums k;
    k.x = (int)global_id(&a.part, 0);
    k.y = (int)global_id(&a.part, 1);
    const long plane = (long)global_id(&a.part, 2), b = plane / a.bias_heads, h = plane - b * a.bias_heads;
    if (k.x >= a.width || k.y >= a.height || b >= a.bias_batch)
        return;

    float sum = 0.0f;
    for (k.b = b; k.b < a.batch; k.b += a.bias_batch)
        for (k.h = h; k.h < a.heads; k.h += a.bias_heads) {
            k.step = 0.0f; /* a sum of its own for each head */
            if (find_key(&k, key, value, bias, &a))
                add_queries(&k, false, query, output_gradient, rows, &args);
            sum += k.step;
        }
    bias_gradient[args.bias_gradient.offset + b * args.bias_gradient.batch + h * args.bias_gradient.head +
                  k.y * args.bias_gradient.row + k.x * args.bias_gradient.col] = sum;
}
