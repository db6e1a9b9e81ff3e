#include "support/nn/model.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/harness.h"

struct nn_tensor {
    char name[96];
    int rank;
    size_t extent[CLATTN_MAX_RANK], elements;
    float *values;
};

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
    fill_floats(tensor->values, tensor->elements, ++store->seed);
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

/* Whether the tensor is the matrix of a layer's product or of the output. */
static bool is_matrix(const struct nn_tensor *tensor)
{
    return tensor->rank == 2 && !strstr(tensor->name, "position_bias") &&
           (strstr(tensor->name, ".layers.") || strstr(tensor->name, ".merge.weight") ||
            !strcmp(tensor->name, "output.weight"));
}

void nn_store_vary_rows(nn_store *store)
{
    for (size_t i = 0; i < store->count; i++) {
        struct nn_tensor *tensor = &store->tensors[i];
        for (size_t e = 0; is_matrix(tensor) && e < tensor->elements; e++) {
            const size_t row = e / tensor->extent[1];
            tensor->values[e] *= row % 10 == 6 ? 0 : ldexpf(1, -(int)(row * 7 % 9)); /* values do not grow */
        }
    }
}

void nn_store_quantise(nn_store *store)
{
    for (size_t i = 0; i < store->count; i++) {
        const struct nn_tensor *tensor = &store->tensors[i];
        for (size_t row = 0; is_matrix(tensor) && row < tensor->extent[0]; row++) {
            const size_t columns = tensor->extent[1];
            float *values = tensor->values + row * columns;
            float largest = 0;
            for (size_t c = 0; c < columns; c++)
                largest = fabsf(values[c]) > largest ? fabsf(values[c]) : largest;
            const float scale = largest / 127;
            for (size_t c = 0; largest > 0 && c < columns; c++)
                values[c] = rintf(values[c] / scale) * scale;
        }
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

/* Returns the float16 bits of a number that float16 holds, or that is smaller than its smallest one. */
static uint16_t half_of(float value)
{
    int exponent;
    const double fraction = frexp(fabs(value), &exponent);
    const uint16_t sign = signbit(value) ? 0x8000 : 0;
    if (exponent < -13)
        return (uint16_t)(sign | (uint16_t)rint(ldexp(fraction, exponent + 24)));
    return (uint16_t)(sign | ((exponent + 14) << 10) | ((uint16_t)ldexp(fraction, 11) & 0x3ff));
}

/* 16-bit floats hold these values exactly, so conversion loses nothing. */
clattn_status nn_store_lookup(void *user, const char *name, clattn_host_tensor *tensor, clattn_io_error *error)
{
    nn_store *store = user;
    const struct nn_tensor *found = find(store, name);
    (void)error;
    memset(tensor, 0, sizeof *tensor);
    if (!found)
        return CLATTN_SUCCESS;
    tensor->dtype = store->dtype ? store->dtype : CLATTN_DTYPE_F32;
    tensor->rank = found->rank;
    memcpy(tensor->extent, found->extent, sizeof tensor->extent);
    tensor->bytes = found->elements * clattn_dtype_size(tensor->dtype);
    tensor->data = found->values;
    if (tensor->dtype == CLATTN_DTYPE_F32)
        return CLATTN_SUCCESS;
    uint16_t *converted = malloc(tensor->bytes);
    assert_non_null(converted);
    for (size_t i = 0; i < found->elements; i++) {
        uint32_t bits;
        memcpy(&bits, &found->values[i], sizeof bits);
        if (tensor->dtype == CLATTN_DTYPE_BF16) {
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

static void add_norm_of(nn_store *store, const char *prefix, const clattn_stack_desc *d, size_t size)
{
    char name[96];
    snprintf(name, sizeof name, "%snorm.weight", prefix);
    nn_store_add(store, name, 1, &size, 0.3f, 1);
    snprintf(name, sizeof name, "%snorm.bias", prefix);
    if (d->norm == CLATTN_NORM_KIND_LAYER && !(d->without_bias & CLATTN_WITHOUT_NORM_BIAS))
        nn_store_add(store, name, 1, &size, 0.3f, 0);
}

static void add_norm(nn_store *store, const char *prefix, const clattn_stack_desc *d)
{
    add_norm_of(store, prefix, d, d->d_model);
}

static void add_scale(nn_store *store, const char *prefix, const clattn_stack_desc *d)
{
    char name[96];
    snprintf(name, sizeof name, "%sscale", prefix);
    if (d->layer_scale)
        nn_store_add(store, name, 1, &d->d_model, 0.4f, 0.6f);
}

static void add_patches(nn_store *store, const char *stack, const clattn_stack_desc *d)
{
    const clattn_patches *p = &d->patches;
    const size_t weight[4] = {d->d_model, p->channels, p->height + 2 * p->border, p->width + 2 * p->border};
    char name[96];
    if (d->input != CLATTN_STACK_INPUT_PICTURES)
        return;
    snprintf(name, sizeof name, "%s.patches.weight", stack);
    nn_store_add(store, name, 4, weight, 1.7f / sqrtf((float)(weight[1] * weight[2] * weight[3])), 0);
    snprintf(name, sizeof name, "%s.patches.bias", stack);
    if (!p->without_bias)
        nn_store_add(store, name, 1, &d->d_model, 0.3f, 0);
    snprintf(name, sizeof name, "%s.class.weight", stack);
    if (p->class_token) /* files have further extents of 1 */
        nn_store_add(store, name, 3, (const size_t[3]){1, 1, d->d_model}, 1, 0);
    snprintf(name, sizeof name, "%s.registers.weight", stack);
    if (p->registers)
        nn_store_add(store, name, 2, (const size_t[2]){p->registers, d->d_model}, 1, 0);
}

/* Adds what is added to the scores of a layer with windows. */
static void add_position_bias(nn_store *store, const char *prefix, const clattn_stack_desc *d, size_t layer)
{
    const clattn_windows *w = &d->windows;
    const bool all = w->whole >> layer & 1;
    const size_t rows = all ? d->patches.grid_rows : w->rows, columns = all ? d->patches.grid_columns : w->columns;
    const size_t table[2] = {(2 * rows - 1) * (2 * columns - 1), d->heads};
    const size_t down[2] = {2 * rows - 1, nn_head_size(d)}, across[2] = {2 * columns - 1, nn_head_size(d)};
    char name[96];
    snprintf(name, sizeof name, "%sposition_bias", prefix);
    if (w->position_bias == CLATTN_POSITION_BIAS_TABLE)
        nn_store_add(store, name, 2, table, 1, 0);
    if (w->position_bias != CLATTN_POSITION_BIAS_DECOMPOSED)
        return;
    snprintf(name, sizeof name, "%sposition_rows", prefix);
    nn_store_add(store, name, 2, down, 0.5f, 0);
    snprintf(name, sizeof name, "%sposition_columns", prefix);
    nn_store_add(store, name, 2, across, 0.5f, 0);
}

static void add_neck(nn_store *store, const char *stack, const clattn_stack_desc *d)
{
    char name[96];
    snprintf(name, sizeof name, "%s.neck.in.weight", stack);
    nn_store_add(store, name, 4, (const size_t[4]){d->neck, d->d_model, 1, 1}, 1.7f / sqrtf((float)d->d_model), 0);
    snprintf(name, sizeof name, "%s.neck.in_", stack);
    add_norm_of(store, name, d, d->neck);
    snprintf(name, sizeof name, "%s.neck.out.weight", stack);
    nn_store_add(store, name, 4, (const size_t[4]){d->neck, d->neck, 3, 3}, 1.7f / sqrtf((float)(9 * d->neck)), 0);
    snprintf(name, sizeof name, "%s.neck.out_", stack);
    add_norm_of(store, name, d, d->neck);
}

static void add_attention(nn_store *store, const char *prefix, const clattn_stack_desc *d, bool cross)
{
    const size_t inner = d->heads * nn_head_size(d), inner_kv = nn_kv_heads(d) * nn_head_size(d);
    const size_t in = cross ? nn_d_memory(d) : d->d_model;
    add_linear(store, prefix, "query", inner, d->d_model, !(d->without_bias & CLATTN_WITHOUT_QUERY_BIAS));
    add_linear(store, prefix, "key", inner_kv, in, !(d->without_bias & CLATTN_WITHOUT_KEY_BIAS));
    add_linear(store, prefix, "value", inner_kv, in, !(d->without_bias & CLATTN_WITHOUT_VALUE_BIAS));
    add_linear(store, prefix, "output", d->d_model, inner, !(d->without_bias & CLATTN_WITHOUT_OUTPUT_BIAS));
    add_norm(store, prefix, d);
    add_scale(store, prefix, d);
    for (int key = 0; key < 2 && d->query_key_norm && !cross; key++) {
        char of_heads[96];
        snprintf(of_heads, sizeof of_heads, "%s%s_", prefix, key ? "key" : "query");
        add_norm_of(store, of_heads, d, nn_head_size(d));
    }
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
    add_patches(store, name, d);
    for (size_t i = 0; i < d->convolutions; i++) {
        const size_t in = i ? d->d_model : d->features, kernel = d->convolution[i].kernel;
        char tensor[96];
        snprintf(tensor, sizeof tensor, "%s.convolutions.%zu.weight", name, i);
        nn_store_add(store, tensor, 3, (const size_t[3]){d->d_model, in, kernel}, 1.7f / sqrtf((float)(in *kernel)), 0);
        snprintf(tensor, sizeof tensor, "%s.convolutions.%zu.bias", name, i);
        nn_store_add(store, tensor, 1, &d->d_model, 0.3f, 0);
    }
    for (size_t i = 0; i < d->layers; i++) {
        snprintf(prefix, sizeof prefix, "%s.layers.%zu.self.", name, i);
        add_attention(store, prefix, d, false);
        add_position_bias(store, prefix, d, i);
        snprintf(prefix, sizeof prefix, "%s.layers.%zu.cross.", name, i);
        if (d->cross)
            add_attention(store, prefix, d, true);
        snprintf(prefix, sizeof prefix, "%s.layers.%zu.feed_forward.", name, i);
        add_linear(store, prefix, "in", d->d_ff, d->d_model, bias);
        if (d->gated)
            add_linear(store, prefix, "gate", d->d_ff, d->d_model, bias);
        add_linear(store, prefix, "out", d->d_model, d->d_ff, bias);
        add_norm(store, prefix, d);
        add_scale(store, prefix, d);
    }
    snprintf(prefix, sizeof prefix, "%s.", name);
    if (d->final_norm)
        add_norm(store, prefix, d);
    if (d->projection)
        add_linear(store, prefix, "projection", d->projection, d->d_model, false);
    if (d->neck)
        add_neck(store, name, d);
    if (!d->next)
        return;
    if (d->next->input == CLATTN_STACK_INPUT_MERGED) {
        add_linear(store, prefix, "merge", d->next->d_model, 4 * d->d_model, false);
        snprintf(prefix, sizeof prefix, "%s.merge.", name);
        add_norm_of(store, prefix, d, 4 * d->d_model);
    }
    const char *last = strrchr(name, '.');
    snprintf(prefix, sizeof prefix, "encoder.stages.%lu", last ? strtoul(last + 1, NULL, 10) + 1 : 1);
    nn_store_add_stack(store, prefix, d->next);
}
