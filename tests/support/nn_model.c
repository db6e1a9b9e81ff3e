#include "nn_model.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "storage.h"

struct nn_tensor {
    char name[96];
    int rank;
    size_t extent[CLATTN_MAX_RANK], elements;
    float *values;
};

/* ---- tensors ---- */

static struct nn_tensor *find(const nn_store *store, const char *name)
{
    for (size_t i = 0; i < store->count; i++)
        if (!strcmp(store->tensors[i].name, name))
            return &store->tensors[i];
    return NULL;
}

void nn_store_rename(nn_store *store, size_t index, const char *name)
{
    char *kept = store->tensors[index].name;
    const size_t room = sizeof store->tensors[index].name;
    assert_true((size_t)snprintf(kept, room, "%s", name) < room);
}

float *nn_store_add(nn_store *store, const char *name, int rank, const size_t *extent, float scale, float offset)
{
    struct nn_tensor *tensor = find(store, name);
    if (!tensor) {
        store->tensors = realloc(store->tensors, (store->count + 1) * sizeof *store->tensors);
        assert_non_null(store->tensors);
        tensor = &store->tensors[store->count++];
        *tensor = (struct nn_tensor){0};
        nn_store_rename(store, store->count - 1, name);
    }
    tensor->rank = rank;
    tensor->elements = 1;
    for (int i = 0; i < rank; i++) {
        tensor->extent[i] = extent[i];
        tensor->elements *= extent[i];
    }
    free(tensor->values);
    tensor->values = malloc(tensor->elements * sizeof(float));
    assert_non_null(tensor->values);
    support_fill(tensor->values, tensor->elements, ++store->seed);
    for (size_t i = 0; i < tensor->elements; i++)
        tensor->values[i] = tensor->values[i] * scale + offset;
    return tensor->values;
}

void nn_store_remove(nn_store *store, const char *name)
{
    struct nn_tensor *tensor = find(store, name);
    assert_non_null(tensor);
    free(tensor->values);
    *tensor = store->tensors[--store->count];
}

void nn_store_clear(nn_store *store)
{
    for (size_t i = 0; i < store->count; i++)
        free(store->tensors[i].values);
    free(store->tensors);
    free(store->converted);
    memset(store, 0, sizeof *store);
}

size_t nn_store_count(const nn_store *store)
{
    return store->count;
}

const char *nn_store_name(const nn_store *store, size_t index)
{
    return store->tensors[index].name;
}

void nn_store_round(nn_store *store, size_t index, int bits)
{
    struct nn_tensor *tensor = &store->tensors[index];
    for (size_t i = 0; i < tensor->elements; i++) {
        int exponent;
        const double fraction = frexp(tensor->values[i], &exponent);
        tensor->values[i] = (float)ldexp(rint(ldexp(fraction, bits)), exponent - bits);
    }
}

const float *nn_store_get(const nn_store *store, const char *format, ...)
{
    char name[96];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    const struct nn_tensor *tensor = find(store, name);
    if (!tensor)
        fail_msg("the test has no tensor %s", name);
    return tensor->values;
}

static const float *get_or_null(const nn_store *store, bool there, const char *format, const char *prefix,
                                const char *part)
{
    return there ? nn_store_get(store, format, prefix, part) : NULL;
}

/* Of a number that float16 holds, or that is less than its smallest. */
static uint16_t half_of(float value)
{
    int exponent;
    const double fraction = frexp(fabs(value), &exponent);
    const uint16_t sign = signbit(value) ? 0x8000 : 0;
    if (exponent < -13)
        return (uint16_t)(sign | (uint16_t)rint(ldexp(fraction, exponent + 24)));
    return (uint16_t)(sign | ((exponent + 14) << 10) | ((uint16_t)ldexp(fraction, 11) & 0x3ff));
}

/* Values that 16-bit floats hold exactly are handed out as such without loss. */
clattn_status nn_store_lookup(void *user, const char *name, clattn_host_tensor *tensor, clattn_io_error *error)
{
    nn_store *store = user;
    const struct nn_tensor *found = find(store, name);
    (void)error;
    memset(tensor, 0, sizeof *tensor);
    store->lookups++;
    if (!found)
        return CLATTN_SUCCESS;
    tensor->dtype = store->dtype ? store->dtype : CLATTN_F32;
    tensor->rank = found->rank;
    memcpy(tensor->extent, found->extent, sizeof tensor->extent);
    tensor->bytes = found->elements * clattn_dtype_size((clattn_dtype)tensor->dtype);
    tensor->data = found->values;
    if (tensor->dtype == CLATTN_F32)
        return CLATTN_SUCCESS;
    uint16_t *converted = malloc(tensor->bytes);
    assert_non_null(converted);
    for (size_t i = 0; i < found->elements; i++) {
        uint32_t bits;
        memcpy(&bits, &found->values[i], sizeof bits);
        if (tensor->dtype == CLATTN_BF16) {
            converted[i] = (uint16_t)(bits >> 16);
        } else {
            converted[i] = half_of(found->values[i]);
        }
    }
    free(store->converted);
    store->converted = converted;
    tensor->data = converted;
    return CLATTN_SUCCESS;
}

static void add_linear(nn_store *store, const char *prefix, const char *part, size_t out, size_t in, bool bias)
{
    char name[96];
    snprintf(name, sizeof name, "%s%s.weight", prefix, part);
    nn_store_add(store, name, 2, (const size_t[2]){out, in}, 1.7f / sqrtf((float)in), 0);
    snprintf(name, sizeof name, "%s%s.bias", prefix, part);
    if (bias)
        nn_store_add(store, name, 1, &out, 0.3f, 0);
}

static void add_norm(nn_store *store, const char *prefix, const clattn_stack_desc *d)
{
    char name[96];
    snprintf(name, sizeof name, "%snorm.weight", prefix);
    nn_store_add(store, name, 1, &d->d_model, 0.3f, 1);
    snprintf(name, sizeof name, "%snorm.bias", prefix);
    if (d->norm == CLATTN_NORM_LAYER && !(d->without_bias & CLATTN_WITHOUT_NORM_BIAS))
        nn_store_add(store, name, 1, &d->d_model, 0.3f, 0);
}

static size_t head_size(const clattn_stack_desc *d)
{
    return d->head_size ? d->head_size : d->d_model / d->heads;
}

static size_t kv_heads(const clattn_stack_desc *d)
{
    return d->kv_heads ? d->kv_heads : d->heads;
}

static size_t d_memory(const clattn_stack_desc *d)
{
    return d->d_memory ? d->d_memory : d->d_model;
}

static void add_attention(nn_store *store, const char *prefix, const clattn_stack_desc *d, bool cross)
{
    const size_t inner = d->heads * head_size(d), inner_kv = kv_heads(d) * head_size(d);
    const size_t in = cross ? d_memory(d) : d->d_model;
    add_linear(store, prefix, "query", inner, d->d_model, !(d->without_bias & CLATTN_WITHOUT_QUERY_BIAS));
    add_linear(store, prefix, "key", inner_kv, in, !(d->without_bias & CLATTN_WITHOUT_KEY_BIAS));
    add_linear(store, prefix, "value", inner_kv, in, !(d->without_bias & CLATTN_WITHOUT_VALUE_BIAS));
    add_linear(store, prefix, "output", d->d_model, inner, !(d->without_bias & CLATTN_WITHOUT_OUTPUT_BIAS));
    add_norm(store, prefix, d);
}

static void add_table(nn_store *store, const char *stack, const char *part, size_t rows, size_t columns)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s.weight", stack, part);
    nn_store_add(store, name, 2, (const size_t[2]){rows, columns}, 1, 0);
}

void nn_store_add_stack(nn_store *store, const char *name, const clattn_stack_desc *d)
{
    char prefix[64];
    const bool bias = !(d->without_bias & CLATTN_WITHOUT_FEED_FORWARD_BIAS);
    if (d->vocabulary)
        add_table(store, name, "tokens", d->vocabulary, d->d_model);
    if (d->position_count)
        add_table(store, name, "positions", d->position_count, d->d_model);
    if (d->segments)
        add_table(store, name, "segments", d->segments, d->d_model);
    snprintf(prefix, sizeof prefix, "%s.input_", name);
    if (d->input_norm)
        add_norm(store, prefix, d);
    for (size_t i = 0; i < d->convolutions; i++) {
        const size_t in = i ? d->d_model : d->features, kernel = d->convolution[i].kernel;
        char tensor[96];
        snprintf(tensor, sizeof tensor, "%s.convolutions.%zu.weight", name, i);
        nn_store_add(store, tensor, 3, (const size_t[3]){d->d_model, in, kernel}, 1.7f / sqrtf((float)(in * kernel)), 0);
        snprintf(tensor, sizeof tensor, "%s.convolutions.%zu.bias", name, i);
        nn_store_add(store, tensor, 1, &d->d_model, 0.3f, 0);
    }
    for (size_t i = 0; i < d->layers; i++) {
        snprintf(prefix, sizeof prefix, "%s.layers.%zu.self.", name, i);
        add_attention(store, prefix, d, false);
        snprintf(prefix, sizeof prefix, "%s.layers.%zu.cross.", name, i);
        if (d->cross)
            add_attention(store, prefix, d, true);
        snprintf(prefix, sizeof prefix, "%s.layers.%zu.feed_forward.", name, i);
        add_linear(store, prefix, "in", d->d_ff, d->d_model, bias);
        if (d->gated)
            add_linear(store, prefix, "gate", d->d_ff, d->d_model, bias);
        add_linear(store, prefix, "out", d->d_model, d->d_ff, bias);
        add_norm(store, prefix, d);
    }
    snprintf(prefix, sizeof prefix, "%s.", name);
    if (d->final_norm)
        add_norm(store, prefix, d);
}

/* ---- the reference ---- */

static double *doubles(size_t count)
{
    double *values = calloc(count ? count : 1, sizeof *values);
    assert_non_null(values);
    return values;
}

double *nn_doubles(const float *values, size_t count)
{
    double *result = doubles(count);
    for (size_t i = 0; i < count; i++)
        result[i] = values[i];
    return result;
}

/* As an array of that type holds them. */
static void store_as(int32_t dtype, double *x, size_t count)
{
    for (size_t i = 0; dtype && i < count; i++)
        x[i] = storage_round((clattn_dtype)dtype, x[i]);
}

static int32_t cache_dtype(const nn_reference *r)
{
    return r->cache_dtype ? r->cache_dtype : r->dtype;
}

double *nn_reference_linear(const double *x, size_t rows, size_t columns, const float *weight, size_t out,
                            const float *bias)
{
    double *y = doubles(rows * out);
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
    switch (function) {
    case CLATTN_ACTIVATION_RELU: return x > 0 ? x : 0;
    case CLATTN_ACTIVATION_GELU: return x * 0.5 * erfc(-x * 0.70710678118654752440);
    case CLATTN_ACTIVATION_GELU_TANH:
        return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
    default: return x / (1 + exp(-x));
    }
}

static void norm(const nn_reference *r, const char *prefix, double *x, size_t rows)
{
    const clattn_stack_desc *d = r->desc;
    const size_t n = d->d_model;
    const float *scale = nn_store_get(r->store, "%snorm.weight", prefix);
    const bool layer = d->norm == CLATTN_NORM_LAYER;
    const float *bias = get_or_null(r->store, layer && !(d->without_bias & CLATTN_WITHOUT_NORM_BIAS), "%s%s", prefix,
                                    "norm.bias");
    for (size_t row = 0; row < rows; row++, x += n) {
        double mean = 0, square = 0;
        for (size_t i = 0; i < n && layer; i++)
            mean += x[i] / (double)n;
        for (size_t i = 0; i < n; i++)
            square += (x[i] - mean) * (x[i] - mean) / (double)n;
        const double deviation = sqrt(square + (d->explicit_epsilon ? (double)d->epsilon : 1e-5));
        for (size_t i = 0; i < n; i++)
            x[i] = (x[i] - mean) / deviation * scale[i] + (bias ? bias[i] : 0);
        store_as(r->dtype, x, n);
    }
}

static void rotate(const clattn_stack_desc *d, double *head, size_t position)
{
    const size_t size = d->rotary_size ? d->rotary_size : head_size(d), n = size / 2;
    const double base = d->rotary_base ? d->rotary_base : 10000;
    for (size_t i = 0; i < n; i++) {
        const double angle = (double)position * pow(base, -(double)i / (double)n);
        const bool halves = d->rotary == CLATTN_ROTARY_HALVES;
        double *a = &head[halves ? i : 2 * i], *b = &head[halves ? i + n : 2 * i + 1];
        const double x = *a, y = *b;
        *a = x * cos(angle) - y * sin(angle);
        *b = x * sin(angle) + y * cos(angle);
    }
}

static double *project(const nn_reference *r, const char *prefix, const char *part, uint32_t without, const double *x,
                       size_t rows, size_t columns, size_t out)
{
    const bool bias = !(r->desc->without_bias & without);
    char name[24];
    snprintf(name, sizeof name, "%s.weight", part);
    const float *weight = nn_store_get(r->store, "%s%s", prefix, name);
    snprintf(name, sizeof name, "%s.bias", part);
    return nn_reference_linear(x, rows, columns, weight, out, get_or_null(r->store, bias, "%s%s", prefix, name));
}

static double mask_of(const nn_mask *m, size_t batch, size_t head, size_t query, size_t key)
{
    if (!m->added)
        return 0;
    const size_t row = (m->batch > 1 ? batch : 0) * m->heads + (m->heads > 1 ? head : 0);
    return m->added[(row * m->queries + (m->queries > 1 ? query : 0)) * m->keys + key];
}

/* One attention; with `memory` NULL of x itself. */
static double *attention(const nn_reference *r, const char *prefix, const double *x, bool cross, double *probabilities)
{
    const clattn_stack_desc *d = r->desc;
    const size_t size = head_size(d), group = d->heads / kv_heads(d), queries = r->length;
    const size_t keys = cross ? r->memory_length : r->length, inner = d->heads * size, inner_kv = kv_heads(d) * size;
    const int32_t *lengths = cross ? r->memory_lengths : r->lengths;
    const nn_mask *mask = cross ? &r->memory_mask : &r->mask;
    const double *from = cross ? r->memory : x;
    const size_t columns = cross ? d_memory(d) : d->d_model;
    const double scale = d->scale_mode == CLATTN_SCALE_EXPLICIT ? d->scale : 1 / sqrt((double)size);
    double *q = project(r, prefix, "query", CLATTN_WITHOUT_QUERY_BIAS, x, r->batch * queries, d->d_model, inner);
    double *k = project(r, prefix, "key", CLATTN_WITHOUT_KEY_BIAS, from, r->batch * keys, columns, inner_kv);
    double *v = project(r, prefix, "value", CLATTN_WITHOUT_VALUE_BIAS, from, r->batch * keys, columns, inner_kv);
    double *attended = doubles(r->batch * queries * inner), *p = doubles(keys);
    store_as(r->dtype, q, r->batch * queries * inner);
    store_as(r->dtype, k, r->batch * keys * inner_kv);
    store_as(r->dtype, v, r->batch * keys * inner_kv);
    for (size_t row = 0; !cross && d->rotary && row < r->batch * queries; row++) {
        for (size_t h = 0; h < d->heads; h++)
            rotate(d, q + row * inner + h * size, row % queries);
        for (size_t h = 0; h < kv_heads(d); h++)
            rotate(d, k + row * inner_kv + h * size, row % queries);
    }
    store_as(r->dtype, q, r->batch * queries * inner);
    store_as(cache_dtype(r), k, r->batch * keys * inner_kv);
    store_as(cache_dtype(r), v, r->batch * keys * inner_kv);
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
                    p[j] = added;
                    for (size_t c = 0; c < size; c++)
                        p[j] += scale * q[(b * queries + i) * inner + h * size + c] *
                                k[(b * keys + j) * inner_kv + h / group * size + c];
                    largest = fmax(largest, p[j]);
                }
                for (size_t j = 0; j < keys; j++) {
                    p[j] = largest > -INFINITY ? exp(p[j] - largest) : 0;
                    sum += p[j];
                }
                for (size_t j = 0; j < keys; j++) {
                    p[j] = sum > 0 ? p[j] / sum : 0;
                    const double weight = cache_dtype(r) ? storage_round((clattn_dtype)cache_dtype(r), p[j]) : p[j];
                    for (size_t c = 0; c < size; c++)
                        attended[(b * queries + i) * inner + h * size + c] +=
                            weight * v[(b * keys + j) * inner_kv + h / group * size + c];
                    if (probabilities)
                        probabilities[((b * d->heads + h) * queries + i) * keys + j] = p[j];
                }
            }
    store_as(r->dtype, attended, r->batch * queries * inner);
    double *y = project(r, prefix, "output", CLATTN_WITHOUT_OUTPUT_BIAS, attended, r->batch * queries, inner, d->d_model);
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
    double *h = project(r, prefix, "in", without, x, rows, d->d_model, d->d_ff);
    double *gate = d->gated ? project(r, prefix, "gate", without, x, rows, d->d_model, d->d_ff) : NULL;
    for (size_t i = 0; i < rows * d->d_ff; i++) {
        double *activated = gate ? &gate[i] : &h[i];
        *activated = nn_activate(d->activation, *activated);
        store_as(r->dtype, activated, 1);
        h[i] *= gate ? gate[i] : 1;
    }
    store_as(r->dtype, h, rows * d->d_ff);
    double *y = project(r, prefix, "out", without, h, rows, d->d_ff, d->d_model);
    free(h);
    free(gate);
    return y;
}

static void sublayer(const nn_reference *r, const char *prefix, double *x, int which, double *probabilities)
{
    const size_t rows = r->batch * r->length, count = rows * r->desc->d_model;
    const bool pre = r->desc->norm_place == CLATTN_NORM_PRE;
    double *read = doubles(count);
    memcpy(read, x, count * sizeof *x);
    if (pre)
        norm(r, prefix, read, rows);
    double *made = which == 2 ? feed_forward(r, prefix, read) : attention(r, prefix, read, which == 1, probabilities);
    for (size_t i = 0; i < count; i++)
        x[i] += made[i];
    store_as(r->dtype, x, count);
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
            double *probabilities = part == 0   ? r->self_probabilities
                                    : part == 1 ? r->cross_probabilities
                                                : NULL;
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
        double *y = doubles(r->batch * made * d->d_model);
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
                    y[(b * made + t) * d->d_model + o] = c->activation ? nn_activate(c->activation - 1, sum) : sum;
                }
        free(x);
        x = y;
        frames = made;
        channels = d->d_model;
    }
    for (size_t i = 0; d->positions && i < r->batch * frames * channels; i++)
        x[i] += nn_store_get(r->store, "%s.positions.weight", r->name)[i % (frames * channels)];
    return x;
}

double *nn_reference_tokens(const nn_reference *r, const int32_t *ids, const int32_t *segments)
{
    const clattn_stack_desc *d = r->desc;
    const size_t n = d->d_model;
    const float *tokens = nn_store_get(r->store, "%s.tokens.weight", r->name);
    double *x = doubles(r->batch * r->length * n);
    char prefix[64];
    for (size_t row = 0; row < r->batch * r->length; row++)
        for (size_t i = 0; i < n; i++) {
            const size_t p = row % r->length + d->first_position;
            const double angle = (double)p / pow(10000, (double)(i / 2 * 2) / (double)n);
            double value = tokens[(size_t)ids[row] * n + i] * (d->scaled ? sqrt((double)n) : 1);
            if (d->positions == CLATTN_POSITIONS_TABLE)
                value += nn_store_get(r->store, "%s.positions.weight", r->name)[p * n + i];
            if (d->positions == CLATTN_POSITIONS_SINUSOIDS)
                value += i % 2 ? cos(angle) : sin(angle);
            if (d->segments)
                value += nn_store_get(r->store, "%s.segments.weight", r->name)[(size_t)(segments ? segments[row] : 0) * n + i];
            x[row * n + i] = value;
        }
    store_as(r->dtype, x, r->batch * r->length * n);
    snprintf(prefix, sizeof prefix, "%s.input_", r->name);
    if (d->input_norm)
        norm(r, prefix, x, r->batch * r->length);
    return x;
}
