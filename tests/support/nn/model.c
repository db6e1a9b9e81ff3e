#include "support/nn/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/harness.h"
#include "support/reference.h"
#include "support/storage.h"

static const float *get_or_null(const nn_store *store, bool there, const char *prefix, const char *part)
{
    return there ? nn_store_get(store, "%s%s", prefix, part) : NULL;
}

double *nn_zeros(size_t count)
{
    double *values = calloc(count ? count : 1, sizeof *values);
    assert_non_null(values);
    return values;
}

double *nn_doubles(const float *values, size_t count)
{
    double *result = nn_zeros(count);
    for (size_t i = 0; i < count; i++)
        result[i] = values[i];
    return result;
}

void nn_store_as(clattn_dtype dtype, double *x, size_t count)
{
    for (size_t i = 0; dtype && i < count; i++)
        x[i] = storage_round(dtype, x[i]);
}

static clattn_dtype cache_dtype(const nn_reference *r)
{
    return r->cache_dtype ? r->cache_dtype : r->dtype;
}

double *nn_reference_linear(const double *x, size_t rows, size_t columns, const float *weight, size_t out,
                            const float *bias)
{
    double *y = nn_zeros(rows * out);
    for (size_t r = 0; r < rows; r++)
        for (size_t o = 0; o < out; o++) {
            double sum = bias ? bias[o] : 0;
            for (size_t c = 0; c < columns; c++)
                sum += x[r * columns + c] * weight[o * columns + c];
            y[r * out + o] = sum;
        }
    return y;
}

double nn_activate(int32_t function, double x)
{
    return function == CLATTN_ACTIVATION_NONE ? x
                                              : reference_activation(function, reference_alpha(function, false, 0), x);
}

void nn_reference_norm(const nn_reference *r, const char *prefix, double *x, size_t rows, size_t n)
{
    const clattn_stack_desc *d = r->desc;
    const float *scale = nn_store_get(r->store, "%snorm.weight", prefix);
    const bool layer = d->norm == CLATTN_NORM_KIND_LAYER;
    const float *bias =
        get_or_null(r->store, layer && !(d->without_bias & CLATTN_WITHOUT_NORM_BIAS), prefix, "norm.bias");
    for (size_t row = 0; row < rows; row++, x += n) {
        double mean = 0, square = 0;
        for (size_t i = 0; i < n && layer; i++)
            mean += x[i] / (double)n;
        for (size_t i = 0; i < n; i++)
            square += (x[i] - mean) * (x[i] - mean) / (double)n;
        const double deviation = sqrt(square + (d->explicit_epsilon ? (double)d->epsilon : 1e-5));
        for (size_t i = 0; i < n; i++)
            x[i] = (x[i] - mean) / deviation * scale[i] + (bias ? bias[i] : 0);
        nn_store_as(r->dtype, x, n);
    }
}

static void norm(const nn_reference *r, const char *prefix, double *x, size_t rows)
{
    nn_reference_norm(r, prefix, x, rows, r->desc->d_model);
}

/* The angle of pair i of n at a position, which for pictures is a patch's. */
static double angle_of(const nn_reference *r, size_t position, size_t i, size_t n)
{
    const clattn_stack_desc *d = r->desc;
    const double base = d->rotary_base > 0 ? (double)d->rotary_base : 10000;
    if (!r->grid_rows)
        return (double)position * pow(base, -(double)i / (double)n);
    const bool by_row = i < n / 2;
    const size_t at = by_row ? position / r->grid_columns : position % r->grid_columns;
    const double count = (double)(by_row ? r->grid_rows : r->grid_columns);
    const double place = d->rotary_centred ? 2 * acos(-1.0) * (2 * ((double)at + 0.5) / count - 1) : (double)at;
    return place * pow(base, -(double)(i % (n / 2)) / (double)(n / 2));
}

static void rotate(const nn_reference *r, double *head, size_t position)
{
    const clattn_stack_desc *d = r->desc;
    const size_t size = d->rotary_size ? d->rotary_size : nn_head_size(d), n = size / 2;
    for (size_t i = 0; i < n; i++) {
        const double angle = angle_of(r, position, i, n);
        const bool halves = d->rotary == CLATTN_ROTARY_HALVES;
        double *a = &head[halves ? i : 2 * i], *b = &head[halves ? i + n : 2 * i + 1];
        const double x = *a, y = *b;
        *a = x * cos(angle) - y * sin(angle);
        *b = x * sin(angle) + y * cos(angle);
    }
}

double *nn_reference_project(const nn_reference *r, const char *prefix, const char *part, uint32_t without,
                             const double *x, size_t rows, size_t columns, size_t out)
{
    const bool bias = !(r->desc->without_bias & without);
    char name[24];
    snprintf(name, sizeof name, "%s.weight", part);
    const float *weight = nn_store_get(r->store, "%s%s", prefix, name);
    snprintf(name, sizeof name, "%s.bias", part);
    return nn_reference_linear(x, rows, columns, weight, out, get_or_null(r->store, bias, prefix, name));
}

static double mask_of(const nn_mask *m, size_t batch, size_t head, size_t query, size_t key)
{
    if (!m->added)
        return 0;
    const size_t row = (m->batch > 1 ? batch : 0) * m->heads + (m->heads > 1 ? head : 0);
    return m->added[(row * m->queries + (m->queries > 1 ? query : 0)) * m->keys + key];
}

/* Computes self-attention or, if `cross`, attention over the memory. */
static double *attention(const nn_reference *r, const char *prefix, const double *x, bool cross, double *probabilities)
{
    const clattn_stack_desc *d = r->desc;
    const size_t size = nn_head_size(d), group = d->heads / nn_kv_heads(d), queries = r->length;
    const size_t keys = cross ? r->memory_length : r->length, inner = d->heads * size, inner_kv = nn_kv_heads(d) * size;
    const int32_t *lengths = cross ? r->memory_lengths : r->lengths;
    const nn_mask *mask = cross ? &r->memory_mask : &r->mask;
    const double *from = cross ? r->memory : x;
    const size_t columns = cross ? nn_d_memory(d) : d->d_model;
    const double scale = d->explicit_scale ? d->scale : 1 / sqrt((double)size);
    const char *number = strstr(prefix, ".layers.");
    const size_t layer = number ? strtoul(number + strlen(".layers."), NULL, 10) : 0;
    const size_t reach = cross || (d->unlimited >> layer & 1) ? 0 : d->reach;
    const size_t first =
        d->input == CLATTN_STACK_INPUT_PICTURES ? (size_t)d->patches.class_token + d->patches.registers : 0;
    double *q =
        nn_reference_project(r, prefix, "query", CLATTN_WITHOUT_QUERY_BIAS, x, r->batch * queries, d->d_model, inner);
    double *k =
        nn_reference_project(r, prefix, "key", CLATTN_WITHOUT_KEY_BIAS, from, r->batch * keys, columns, inner_kv);
    double *v =
        nn_reference_project(r, prefix, "value", CLATTN_WITHOUT_VALUE_BIAS, from, r->batch * keys, columns, inner_kv);
    double *attended = nn_zeros(r->batch * queries * inner), *p = nn_zeros(keys);
    nn_store_as(r->dtype, q, r->batch * queries * inner);
    nn_store_as(r->dtype, k, r->batch * keys * inner_kv);
    nn_store_as(r->dtype, v, r->batch * keys * inner_kv);
    if (d->query_key_norm && !cross) {
        char of_heads[96];
        snprintf(of_heads, sizeof of_heads, "%squery_", prefix);
        nn_reference_norm(r, of_heads, q, r->batch * queries * d->heads, size);
        snprintf(of_heads, sizeof of_heads, "%skey_", prefix);
        nn_reference_norm(r, of_heads, k, r->batch * keys * nn_kv_heads(d), size);
    }
    for (size_t row = 0; !cross && d->rotary && row < r->batch * queries; row++) {
        if (row % queries < first)
            continue;
        for (size_t h = 0; h < d->heads; h++)
            rotate(r, q + row * inner + h * size, row % queries - first);
        for (size_t h = 0; h < nn_kv_heads(d); h++)
            rotate(r, k + row * inner_kv + h * size, row % queries - first);
    }
    nn_store_as(r->dtype, q, r->batch * queries * inner);
    nn_store_as(cache_dtype(r), k, r->batch * keys * inner_kv);
    nn_store_as(cache_dtype(r), v, r->batch * keys * inner_kv);
    for (size_t b = 0; b < r->batch; b++)
        for (size_t h = 0; h < d->heads; h++)
            for (size_t i = 0; i < queries; i++) {
                const size_t limit = lengths ? (size_t)lengths[b] : keys;
                double largest = -INFINITY, sum = 0;
                for (size_t j = 0; j < keys; j++) {
                    const double added = mask_of(mask, b, h, i, j);
                    p[j] = -INFINITY;
                    if (j >= limit || (!cross && d->causal && j > i) || added == -INFINITY)
                        continue;
                    if (reach && (j > i + reach || i > j + reach))
                        continue;
                    p[j] = 0;
                    for (size_t c = 0; c < size; c++)
                        p[j] += scale * q[(b * queries + i) * inner + h * size + c] *
                                k[(b * keys + j) * inner_kv + h / group * size + c];
                    p[j] = (d->softcap > 0 ? d->softcap * tanh(p[j] / (double)d->softcap) : p[j]) + added;
                    largest = fmax(largest, p[j]);
                }
                for (size_t j = 0; j < keys; j++) {
                    p[j] = largest > -INFINITY ? exp(p[j] - largest) : 0;
                    sum += p[j];
                }
                for (size_t j = 0; j < keys; j++) {
                    p[j] = sum > 0 ? p[j] / sum : 0;
                    const double weight = cache_dtype(r) ? storage_round(cache_dtype(r), p[j]) : p[j];
                    for (size_t c = 0; c < size; c++)
                        attended[(b * queries + i) * inner + h * size + c] +=
                            weight * v[(b * keys + j) * inner_kv + h / group * size + c];
                    if (probabilities)
                        probabilities[((b * d->heads + h) * queries + i) * keys + j] = p[j];
                }
            }
    nn_store_as(r->dtype, attended, r->batch * queries * inner);
    double *y = nn_reference_project(r, prefix, "output", CLATTN_WITHOUT_OUTPUT_BIAS, attended, r->batch * queries,
                                     inner, d->d_model);
    free(q);
    free(k);
    free(v);
    free(attended);
    free(p);
    return y;
}

static double *feed_forward(const nn_reference *r, const char *prefix, const double *x)
{
    const clattn_stack_desc *d = r->desc;
    const size_t rows = r->batch * r->length;
    const uint32_t without = CLATTN_WITHOUT_FEED_FORWARD_BIAS;
    const double alpha = reference_alpha(d->activation, d->explicit_alpha, d->alpha);
    double *h = nn_reference_project(r, prefix, "in", without, x, rows, d->d_model, d->d_ff);
    double *gate = d->gated ? nn_reference_project(r, prefix, "gate", without, x, rows, d->d_model, d->d_ff) : NULL;
    for (size_t i = 0; i < rows * d->d_ff; i++) {
        double *activated = gate ? &gate[i] : &h[i];
        *activated = reference_activation(d->activation, alpha, *activated);
        nn_store_as(r->dtype, activated, 1);
        h[i] *= gate ? gate[i] : 1;
    }
    nn_store_as(r->dtype, h, rows * d->d_ff);
    double *y = nn_reference_project(r, prefix, "out", without, h, rows, d->d_ff, d->d_model);
    free(h);
    free(gate);
    return y;
}

static void sublayer(const nn_reference *r, const char *prefix, double *x, int which, double *probabilities)
{
    const size_t rows = r->batch * r->length, count = rows * r->desc->d_model;
    const bool pre = r->desc->norm_place == CLATTN_NORM_PLACE_PRE;
    double *read = nn_zeros(count);
    memcpy(read, x, count * sizeof *x);
    if (pre)
        norm(r, prefix, read, rows);
    double *made = which == 2              ? feed_forward(r, prefix, read)
                   : r->desc->windows.rows ? nn_reference_windows(r, prefix, read)
                                           : attention(r, prefix, read, which == 1, probabilities);
    const float *scale = get_or_null(r->store, r->desc->layer_scale, prefix, "scale");
    for (size_t i = 0; i < count; i++)
        x[i] += made[i] * (scale ? scale[i % r->desc->d_model] : 1);
    nn_store_as(r->dtype, x, count);
    if (!pre)
        norm(r, prefix, x, rows);
    free(read);
    free(made);
}

void nn_reference_layers(const nn_reference *r, double *x)
{
    static const char *const parts[] = {"self", "cross", "feed_forward"};
    const size_t self = r->batch * r->desc->heads * r->length * r->length;
    const size_t cross = r->batch * r->desc->heads * r->length * r->memory_length;
    char prefix[64];
    for (size_t l = 0; l < r->desc->layers; l++)
        for (int part = 0; part < 3; part++) {
            double *probabilities = part == 0 ? r->self_probabilities : part == 1 ? r->cross_probabilities : NULL;
            if (part == 1 && !r->desc->cross)
                continue;
            if (probabilities)
                probabilities += l * (part ? cross : self);
            snprintf(prefix, sizeof prefix, "%s.layers.%zu.%s.", r->name, l, parts[part]);
            sublayer(r, prefix, x, part, probabilities);
        }
    snprintf(prefix, sizeof prefix, "%s.", r->name);
    if (r->desc->final_norm)
        norm(r, prefix, x, r->batch * r->length);
}

double *nn_reference_convolutions(const nn_reference *r, size_t frames, const float *features)
{
    const clattn_stack_desc *d = r->desc;
    size_t channels = d->features;
    double *x = nn_doubles(features, r->batch * frames * channels);
    for (size_t n = 0; n < d->convolutions; n++) {
        const clattn_convolution *c = &d->convolution[n];
        const size_t made = (frames + 2 * c->padding - c->kernel) / c->stride + 1;
        const float *weight = nn_store_get(r->store, "%s.convolutions.%zu.weight", r->name, n);
        const float *bias = nn_store_get(r->store, "%s.convolutions.%zu.bias", r->name, n);
        double *y = nn_zeros(r->batch * made * d->d_model);
        for (size_t b = 0; b < r->batch; b++)
            for (size_t t = 0; t < made; t++)
                for (size_t o = 0; o < d->d_model; o++) {
                    double sum = bias[o];
                    for (size_t j = 0; j < c->kernel; j++) {
                        const long frame = (long)(t * c->stride + j) - (long)c->padding;
                        for (size_t i = 0; i < channels && frame >= 0 && frame < (long)frames; i++)
                            sum += weight[(o * channels + i) * c->kernel + j] *
                                   x[(b * frames + (size_t)frame) * channels + i];
                    }
                    y[(b * made + t) * d->d_model + o] = nn_activate(c->activation, sum);
                }
        free(x);
        x = y;
        frames = made;
        channels = d->d_model;
        if (n + 1 < d->convolutions)
            nn_store_as(r->dtype, x, r->batch * frames * channels);
    }
    for (size_t i = 0; d->positions && i < r->batch * frames * channels; i++)
        x[i] += nn_store_get(r->store, "%s.positions.weight", r->name)[i % (frames * channels)];
    nn_store_as(r->dtype, x, r->batch * frames * channels);
    return x;
}

double *nn_reference_tokens(const nn_reference *r, const int32_t *ids, const int32_t *segments)
{
    const clattn_stack_desc *d = r->desc;
    const size_t n = d->d_model;
    const float *tokens = nn_store_get(r->store, "%s.tokens.weight", r->name);
    double *x = nn_zeros(r->batch * r->length * n);
    char prefix[64];
    for (size_t row = 0; row < r->batch * r->length; row++)
        for (size_t i = 0; i < n; i++) {
            const size_t p = row % r->length + d->first_position;
            const double angle = (double)p / pow(10000, (double)(i / 2 * 2) / (double)n);
            double value = tokens[(size_t)ids[row] * n + i] * (d->scale_embeddings ? sqrt((double)n) : 1);
            if (d->positions == CLATTN_POSITIONS_TABLE)
                value += nn_store_get(r->store, "%s.positions.weight", r->name)[p * n + i];
            if (d->positions == CLATTN_POSITIONS_SINUSOIDS)
                value += i % 2 ? cos(angle) : sin(angle);
            if (d->segments)
                value += nn_store_get(r->store, "%s.segments.weight",
                                      r->name)[(size_t)(segments ? segments[row] : 0) * n + i];
            x[row * n + i] = value;
        }
    nn_store_as(r->dtype, x, r->batch * r->length * n);
    snprintf(prefix, sizeof prefix, "%s.input_", r->name);
    if (d->input_norm)
        norm(r, prefix, x, r->batch * r->length);
    return x;
}
