#include "ref/attention.h"

#include <math.h>

#include "base/convert.h"

/* ---- elements ---- */

double ref_element(const void *data, clattn_dtype dtype, int64_t index)
{
    switch (dtype) {
    case CLATTN_DTYPE_F32:
    case CLATTN_DTYPE_F16:
    case CLATTN_DTYPE_BF16: return load_element(dtype, data, (size_t)index);
    case CLATTN_DTYPE_F64: return ((const double *)data)[index];
    case CLATTN_DTYPE_I32: return ((const int32_t *)data)[index];
    case CLATTN_DTYPE_I64: return (double)((const int64_t *)data)[index];
    case CLATTN_DTYPE_I8: return ((const int8_t *)data)[index];
    case CLATTN_DTYPE_I4: return ((((const uint8_t *)data)[index / 2] >> (index & 1) * 4 & 15) ^ 8) - 8;
    default: return ((const uint8_t *)data)[index] != 0;
    }
}

const float *ref_floats(const void *data, clattn_dtype dtype, size_t count, float *floats)
{
    for (size_t i = 0; i < count && data; i++)
        floats[i] = (float)ref_element(data, dtype, (int64_t)i);
    return data ? floats : NULL;
}

static bool is_short(clattn_dtype dtype)
{
    return dtype == CLATTN_DTYPE_F16 || dtype == CLATTN_DTYPE_BF16;
}

double ref_unit(clattn_dtype dtype, double value)
{
    int exponent, digits = dtype == CLATTN_DTYPE_F16 ? 11 : 8, lowest = dtype == CLATTN_DTYPE_F16 ? -24 : -133;
    if (!is_short(dtype))
        return 0;
    frexp(value, &exponent);
    return ldexp(1, exponent - digits > lowest ? exponent - digits : lowest);
}

double ref_stored(clattn_dtype dtype, double value)
{
    if (!is_short(dtype) || !isfinite(value))
        return value;
    double unit = ref_unit(dtype, value), stored = rint(value / unit) * unit; /* powers of two: exact */
    return fabs(stored) < (dtype == CLATTN_DTYPE_F16 ? 0x1p16 : 0x1p128) ? stored : copysign(INFINITY, value);
}

static double rounded(const ref_attention_problem *r, double x)
{
    return r->narrow ? (double)(float)x : x;
}

static int64_t clamped(double x, int64_t low, int64_t high)
{
    return x<(double)low ? low : x>(double) high ? high : (int64_t)x;
}

/* ---- rows and places ---- */

static double per_item(const void *data, const clattn_layout *layout, const clattn_binding *binding, int64_t batch)
{
    return ref_element(data, layout->dtype, binding->offset + batch * layout->stride[0]);
}

/* Rows [*first, *first + *count) of a packed sequence. */
static void packed(const void *data, const clattn_layout *layout, const clattn_binding *binding, int64_t batch,
                   size_t rows, size_t longest, int64_t *first, int64_t *count)
{
    *first = clamped(per_item(data, layout, binding, batch), 0, (int64_t)rows);
    *count = clamped(per_item(data, layout, binding, batch + 1), *first, (int64_t)rows) - *first;
    *count = *count < (int64_t)longest ? *count : (int64_t)longest;
}

ref_attention_item ref_attention_item_of(const ref_attention_problem *r, int64_t batch)
{
    const clattn_attention_desc *desc = r->desc;
    const clattn_attention_args *args = r->args;
    ref_attention_item item = {.queries = (int64_t)args->query_length, .keys = (int64_t)args->key_length};
    if (r->data.query_starts)
        packed(r->data.query_starts, &desc->lengths.query_starts, &args->lengths.query_starts, batch,
               desc->query.extent[2], args->query_length, &item.query_row, &item.queries);
    if (r->data.key_starts)
        packed(r->data.key_starts, &desc->lengths.key_starts, &args->lengths.key_starts, batch, desc->key.extent[2],
               args->key_length, &item.key_row, &item.keys);
    if (r->data.query_lengths)
        item.queries = clamped(per_item(r->data.query_lengths, &desc->lengths.query, &args->lengths.query, batch), 0,
                               item.queries);
    if (r->data.key_lengths)
        item.keys = clamped(per_item(r->data.key_lengths, &desc->lengths.key, &args->lengths.key, batch), 0,
                            desc->cache.kind == CLATTN_CACHE_KIND_RING ? INT32_MAX : item.keys);
    if (desc->cache.kind == CLATTN_CACHE_KIND_RING && item.keys > (int64_t)desc->key.extent[2])
        item.first_key = item.keys - (int64_t)desc->key.extent[2];
    if (desc->alignment == CLATTN_ALIGNMENT_BOTTOM_RIGHT)
        item.position = item.keys - item.queries;
    else if (desc->alignment == CLATTN_ALIGNMENT_EXPLICIT)
        item.position =
            args->position + (r->data.positions ? (int64_t)per_item(r->data.positions, &desc->lengths.positions,
                                                                    &args->lengths.positions, batch)
                                                : 0);
    return item;
}

static int64_t query_row(const ref_attention_problem *r, const ref_attention_item *item, int64_t batch, int64_t head,
                         int64_t i)
{
    const clattn_layout *layout = &r->desc->query;
    return r->args->query.offset + (r->data.query_starts ? 0 : batch * layout->stride[0]) + head * layout->stride[1] +
           (item->query_row + i) * layout->stride[2];
}

/* The offset of key j's row in an array that has a row for each key. */
static int64_t key_row(const ref_attention_problem *r, const ref_attention_item *item, const clattn_layout *layout,
                       int64_t offset, int64_t batch, int64_t head, int64_t j)
{
    const clattn_attention_desc *desc = r->desc;
    int64_t group = (int64_t)(desc->query.extent[1] / desc->key.extent[1]);
    int64_t rows = (int64_t)layout->extent[2], first = batch;
    if (desc->cache.kind == CLATTN_CACHE_KIND_PAGED) {
        int64_t at = r->args->cache.block_table.offset + batch * desc->cache.block_table.stride[0] +
                     j / rows * desc->cache.block_table.stride[1];
        first = clamped(ref_element(r->data.block_table, desc->cache.block_table.dtype, at), 0,
                        (int64_t)layout->extent[0] - 1);
        j %= rows;
    } else if (desc->cache.kind == CLATTN_CACHE_KIND_RING) {
        j %= rows;
    } else if (r->data.key_starts) {
        first = 0;
        j += item->key_row;
    }
    return offset + first * layout->stride[0] + head / group * layout->stride[1] + j * layout->stride[2];
}

/* A key's or value's row, looked up once for all of its elements. */
typedef struct key_vector {
    const void *data, *scales;
    clattn_dtype dtype, scale_dtype;
    int64_t at, stride, scale_at, scale_stride, group;
} key_vector;

static key_vector key_vector_of(const ref_attention_problem *r, const ref_attention_item *item, bool is_value,
                                int64_t batch, int64_t head, int64_t j)
{
    const clattn_layout *layout = is_value ? &r->desc->value : &r->desc->key;
    const clattn_layout *scale = is_value ? &r->desc->cache.value_scale : &r->desc->cache.key_scale;
    const clattn_binding *binding = is_value ? &r->args->value : &r->args->key;
    const clattn_binding *scale_binding = is_value ? &r->args->cache.value_scale : &r->args->cache.key_scale;
    key_vector v = {.data = is_value ? r->data.value : r->data.key,
                    .scales = is_value ? r->data.value_scale : r->data.key_scale,
                    .dtype = layout->dtype,
                    .at = key_row(r, item, layout, binding->offset, batch, head, j),
                    .stride = layout->stride[3]};
    if (v.scales) {
        v.scale_dtype = scale->dtype;
        v.scale_at = key_row(r, item, scale, scale_binding->offset, batch, head, j);
        v.scale_stride = scale->stride[3];
        v.group = (int64_t)(layout->extent[3] / scale->extent[3]);
    }
    return v;
}

/* Element d, its scale included. */
static double key_element(const ref_attention_problem *r, const key_vector *v, int64_t d)
{
    double x = ref_element(v->data, v->dtype, v->at + d * v->stride);
    if (!v->scales)
        return x;
    return rounded(r, x * ref_element(v->scales, v->scale_dtype, v->scale_at + d / v->group * v->scale_stride));
}

/* Reads a mask's or bias's element; false if the array is too short for the key. */
static bool mask_at(const clattn_layout *mask, const void *data, int64_t offset, const int64_t index[4], double *value)
{
    int64_t at = offset;
    for (int32_t d = 0; d < mask->rank; d++) {
        int64_t i = mask->extent[d] == 1 ? 0 : index[d + 4 - mask->rank];
        if (i >= (int64_t)mask->extent[d])
            return false;
        at += i * mask->stride[d];
    }
    *value = ref_element(data, mask->dtype, at);
    return true;
}

/* ---- scores ---- */

/* Whether the key is attended, and the sum of what mask and bias add. */
static bool attended(const ref_attention_problem *r, const ref_attention_item *item, const int64_t index[4],
                     double *added)
{
    const clattn_attention_desc *desc = r->desc;
    int64_t i = index[2], j = index[3], p = i + item->position;
    double x;
    *added = 0;
    if (i >= item->queries || j < item->first_key || j >= item->keys || (desc->causal && j > p))
        return false;
    if ((desc->window.explicit_left && j < p - desc->window.left) ||
        (desc->window.explicit_right && j > p + desc->window.right))
        return false;
    if (r->data.mask) {
        if (!mask_at(&desc->mask, r->data.mask, r->args->mask.offset, index, &x))
            return false;
        if (desc->mask.dtype == CLATTN_DTYPE_BOOL ? x == 0 : x == -INFINITY)
            return false;
        *added += desc->mask.dtype == CLATTN_DTYPE_BOOL ? 0 : x;
    }
    if (r->data.bias) {
        if (!mask_at(&desc->bias, r->data.bias, r->args->bias.offset, index, &x) || x == -INFINITY)
            return false;
        *added = rounded(r, *added + x);
    }
    return !r->mask_mod || r->mask_mod(r->user, index[0], index[1], i, j);
}

static double raw_score(const ref_attention_problem *r, const ref_attention_item *item, const int64_t index[4])
{
    const clattn_attention_desc *desc = r->desc;
    int64_t q = query_row(r, item, index[0], index[1], index[2]);
    const key_vector key = key_vector_of(r, item, false, index[0], index[1], index[3]);
    bool additive = desc->scoring.kind == CLATTN_SCORE_ADDITIVE;
    double sum = 0, scale = desc->scoring.explicit_scale ? (double)desc->scoring.scale
                            : additive                   ? 1.0
                                                         : 1 / sqrt((double)desc->query.extent[3]);
    for (int64_t d = 0; d < (int64_t)desc->query.extent[3]; d++) {
        double x = ref_element(r->data.query, desc->query.dtype, q + d * desc->query.stride[3]);
        double y = key_element(r, &key, d);
        if (additive) {
            int64_t head = desc->scoring.vector.extent[0] == 1 ? 0 : index[1];
            x = rounded(r, tanh(rounded(r, x + y)));
            y = ref_element(r->data.vector, CLATTN_DTYPE_F32,
                            r->args->scoring.vector.offset + head * desc->scoring.vector.stride[0] +
                                d * desc->scoring.vector.stride[1]);
        }
        sum = rounded(r, sum + rounded(r, x * y));
    }
    return rounded(r, rounded(r, scale) * sum);
}

static double capped_score(const ref_attention_problem *r, double s)
{
    double cap = r->desc->scoring.softcap;
    return cap > 0 ? rounded(r, cap * rounded(r, tanh(rounded(r, s / cap)))) : s;
}

static double biased_score(const ref_attention_problem *r, const ref_attention_item *item, const int64_t index[4],
                           double s, double added)
{
    const clattn_layout *alibi = &r->desc->scoring.alibi;
    if (r->score_mod)
        s = rounded(r, r->score_mod(r->user, s, index[0], index[1], index[2], index[3]));
    s = rounded(r, s + added);
    if (r->data.alibi) {
        int64_t head = alibi->stride[alibi->rank - 1] * index[1];
        int64_t batch = alibi->rank == 2 && alibi->extent[0] != 1 ? alibi->stride[0] * index[0] : 0;
        double slope = ref_element(r->data.alibi, CLATTN_DTYPE_F32, r->args->scoring.alibi.offset + head + batch);
        s = rounded(r, s - rounded(r, slope * fabs((double)(index[2] + item->position - index[3]))));
    }
    return s;
}

double ref_attention_score(const ref_attention_problem *r, int32_t mode, int64_t batch, int64_t head, int64_t query,
                           int64_t key)
{
    const int64_t index[4] = {batch, head, query, key};
    const ref_attention_item item = ref_attention_item_of(r, batch);
    double added;
    bool inside = query < item.queries && key >= item.first_key && key < item.keys;
    if (mode == CLATTN_SCORES_MODE_BIASED && !attended(r, &item, index, &added))
        return -INFINITY;
    if (!inside)
        return 0;
    double s = raw_score(r, &item, index);
    if (mode >= CLATTN_SCORES_MODE_CAPPED)
        s = capped_score(r, s);
    return mode == CLATTN_SCORES_MODE_BIASED ? biased_score(r, &item, index, s, added) : s;
}

/* ---- a row ---- */

/* Turns row->probabilities from scores, -inf of keys that are not attended, into probabilities, and computes lse and
 * entropy. */
static void normalise(const ref_attention_problem *r, int64_t keys, const double *sink, ref_attention_result *row)
{
    double top = sink ? *sink : -INFINITY, sum = 0;
    for (int64_t j = 0; j < keys; j++)
        top = row->probabilities[j] > top ? row->probabilities[j] : top;
    double safe = top == -INFINITY ? 0 : top;
    for (int64_t j = 0; j < keys; j++) {
        double *p = &row->probabilities[j];
        *p = *p == -INFINITY ? 0 : rounded(r, exp(rounded(r, *p - safe)));
        sum = rounded(r, sum + *p);
    }
    if (sink)
        sum = rounded(r, sum + exp(*sink - safe));
    row->lse = sum == 0 ? -INFINITY : rounded(r, top + rounded(r, log(sum)));
    row->entropy = 0;
    for (int64_t j = 0; j < keys; j++) {
        double *p = &row->probabilities[j];
        *p = sum == 0 ? 0 : rounded(r, *p / sum);
        if (*p > 0 || isnan(*p))
            row->entropy = rounded(r, row->entropy - rounded(r, *p * rounded(r, log(*p))));
    }
}

/* output += P * value of one key, dropout included. */
static void add_value(const ref_attention_problem *r, const ref_attention_item *item, const int64_t index[4],
                      ref_attention_result *row)
{
    const clattn_attention_desc *desc = r->desc;
    double p = row->probabilities[index[3]];
    if (p == 0)
        return;
    if (desc->dropout.probability > 0) {
        if (!clattn_dropout_keep(r->args->dropout.seed, r->args->dropout.offset, desc->dropout.probability,
                                 (uint32_t)desc->query.extent[1], (uint32_t)index[0], (uint32_t)index[1],
                                 (uint32_t)index[2], (uint32_t)index[3]))
            return;
        p = rounded(r, p * (1 / (1 - (double)desc->dropout.probability)));
    }
    /* Matrix engines take P in the type of V, and the naive computation does the same. */
    double weight = r->narrow ? ref_stored(desc->value.dtype, p) : p;
    const key_vector value = key_vector_of(r, item, true, index[0], index[1], index[3]);
    for (int64_t e = 0; e < (int64_t)desc->value.extent[3]; e++) {
        double v = key_element(r, &value, e);
        row->output[e] = rounded(r, row->output[e] + rounded(r, weight * v));
        if (row->magnitude)
            row->magnitude[e] += p * fabs(v);
        if (row->largest)
            row->largest[e] = fmax(row->largest[e], fabs(v));
    }
}

void ref_attention_row(const ref_attention_problem *r, int64_t batch, int64_t head, int64_t query,
                       ref_attention_result *row)
{
    const clattn_attention_desc *desc = r->desc;
    const ref_attention_item item = ref_attention_item_of(r, batch);
    int64_t d_v = (int64_t)desc->value.extent[3], keys = item.keys;
    double added, sink = 0;
    row->attends = false;
    for (int64_t j = 0; j < keys; j++) {
        const int64_t index[4] = {batch, head, query, j};
        row->probabilities[j] = -INFINITY;
        if (!attended(r, &item, index, &added))
            continue;
        row->attends = true;
        row->probabilities[j] = biased_score(r, &item, index, capped_score(r, raw_score(r, &item, index)), added);
    }
    if (r->data.sinks)
        sink = ref_element(r->data.sinks, CLATTN_DTYPE_F32,
                           r->args->scoring.sinks.offset + head * desc->scoring.sinks.stride[0]);
    normalise(r, keys, r->data.sinks ? &sink : NULL, row);
    for (int64_t j = 0; j < keys && isnan(row->lse); j++)
        row->probabilities[j] = attended(r, &item, (int64_t[]){batch, head, query, j}, &added) ? NAN : 0;
    for (int64_t e = 0; e < d_v; e++) {
        row->output[e] = 0;
        if (row->magnitude)
            row->magnitude[e] = 0;
        if (row->largest)
            row->largest[e] = 0;
    }
    for (int64_t j = 0; j < keys && row->attends; j++)
        add_value(r, &item, (int64_t[]){batch, head, query, j}, row);
}
