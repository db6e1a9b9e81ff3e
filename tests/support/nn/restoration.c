/* The reference of encoders that make pictures of pictures.  All pictures here are (batch, rows, columns, channels). */
#include "support/nn/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/harness.h"

struct image {
    size_t batch, rows, columns, channels;
    double *pixels;
};

static struct image image_new(size_t batch, size_t rows, size_t columns, size_t channels)
{
    return (struct image){batch, rows, columns, channels, nn_zeros(batch * rows * columns * channels)};
}

static double *pixel(const struct image *image, size_t b, size_t row, size_t column)
{
    return image->pixels + ((b * image->rows + row) * image->columns + column) * image->channels;
}

/* Replaces x by its convolution with the weights PREFIXNAME, with zeros around and LeakyReLU. */
static void convolve(const nn_reference *r, const char *prefix, const char *name, size_t out, size_t taps, double slope,
                     struct image *x)
{
    const float *weight = nn_store_get(r->store, "%s%s.weight", prefix, name);
    const float *bias = nn_store_get(r->store, "%s%s.bias", prefix, name);
    struct image y = image_new(x->batch, x->rows, x->columns, out);
    for (size_t i = 0; i < x->batch * x->rows * x->columns * out; i++) {
        const size_t o = i % out, column = i / out % x->columns, row = i / out / x->columns % x->rows;
        const size_t b = i / out / x->columns / x->rows;
        double sum = bias[o];
        for (size_t k = 0; k < taps * taps; k++) {
            const size_t at = row + k / taps, across = column + k % taps, edge = taps / 2;
            for (size_t c = 0;
                 c < x->channels && at >= edge && at < x->rows + edge && across >= edge && across < x->columns + edge;
                 c++)
                sum += pixel(x, b, at - edge, across - edge)[c] * weight[(o * x->channels + c) * taps * taps + k];
        }
        y.pixels[i] = sum < 0 ? slope * sum : sum;
    }
    free(x->pixels);
    *x = y;
}

/* Replaces x by one convolution or three, plus `added`. */
static void residual(const nn_reference *r, const char *prefix, size_t count, const double *added, struct image *x)
{
    const size_t n = x->channels;
    if (count == 1) {
        convolve(r, prefix, "", n, 3, 1, x);
    } else {
        convolve(r, prefix, ".0", n / 4, 3, 0.2, x);
        convolve(r, prefix, ".1", n / 4, 1, 0.2, x);
        convolve(r, prefix, ".2", n, 3, 1, x);
    }
    for (size_t i = 0; i < x->batch * x->rows * x->columns * n; i++)
        x->pixels[i] += added[i];
}

/* Replaces x by a picture `factor` times as high and wide, of the nearest pixels or by a pixel shuffle. */
static void enlarge(size_t factor, bool shuffle, struct image *x)
{
    const size_t square = factor * factor;
    struct image y = image_new(x->batch, x->rows * factor, x->columns * factor, x->channels / (shuffle ? square : 1));
    for (size_t b = 0; b < y.batch; b++)
        for (size_t row = 0; row < y.rows; row++)
            for (size_t column = 0; column < y.columns; column++)
                for (size_t c = 0; c < y.channels; c++) {
                    const size_t from = c * square + row % factor * factor + column % factor;
                    pixel(&y, b, row, column)[c] = pixel(x, b, row / factor, column / factor)[shuffle ? from : c];
                }
    free(x->pixels);
    *x = y;
}

/* Index i of an axis that is filled up by its mirror image. */
static size_t mirror(size_t i, size_t length)
{
    while (i >= length && length > 1)
        i = i < 2 * length - 1 ? 2 * length - 2 - i : i - (2 * length - 2);
    return length > 1 ? i : 0;
}

/* The pictures, (batch, channels, rows, columns), filled up to whole windows. */
static float *fill(const nn_reference *r, size_t height, size_t width, const float *pictures)
{
    const size_t planes = r->batch * r->desc->patches.channels, rows = r->grid_rows, columns = r->grid_columns;
    float *filled = malloc(planes * rows * columns * sizeof *filled);
    assert_non_null(filled);
    for (size_t i = 0; i < planes * rows * columns; i++) {
        const size_t row = mirror(i / columns % rows, height), column = mirror(i % columns, width);
        filled[i] = pictures[(i / columns / rows * height + row) * width + column];
    }
    return filled;
}

/* Applies a stage's layers and residual convolutions. */
static void stage(nn_reference *r, const clattn_stack_desc *desc, struct image *x)
{
    const size_t count = x->batch * x->rows * x->columns * x->channels;
    clattn_stack_desc layers = *desc;
    char prefix[64];
    double *before = nn_zeros(count);
    memcpy(before, x->pixels, count * sizeof *before);
    layers.final_norm = 0; /* it comes behind the convolutions */
    r->desc = &layers;
    nn_reference_layers(r, x->pixels);
    snprintf(prefix, sizeof prefix, "%s.residual", r->name);
    if (desc->residual)
        residual(r, prefix, desc->residual, before, x);
    snprintf(prefix, sizeof prefix, "%s.", r->name);
    if (desc->final_norm)
        nn_reference_norm(r, prefix, x->pixels, count / x->channels, x->channels);
    free(before);
}

/* Applies the convolutions before the last one, of kinds that have features. */
static void features(const nn_reference *r, const clattn_restoration *kind, struct image *x)
{
    const size_t n = kind->features, once = kind->factor == 3 ? 3 : 2;
    const bool shuffle = kind->kind == CLATTN_RESTORATION_KIND_SHUFFLE;
    char name[32];
    convolve(r, "encoder.restoration.", "before", n, 3, 0.01, x);
    for (size_t i = 0, left = kind->factor; left > 1; i++, left /= once) {
        snprintf(name, sizeof name, "%s.%zu", shuffle ? "shuffle" : "nearest", i);
        if (!shuffle)
            enlarge(once, false, x);
        convolve(r, "encoder.restoration.", name, shuffle ? n * once * once : n, 3, shuffle ? 1 : 0.2, x);
        if (shuffle)
            enlarge(once, true, x);
    }
    if (!shuffle)
        convolve(r, "encoder.restoration.", "detail", n, 3, 0.2, x);
}

double *nn_reference_restored(const nn_reference *given, size_t height, size_t width, const float *pictures)
{
    nn_reference r = *given;
    const clattn_stack_desc *first = r.desc, *last = first;
    const size_t channels = first->patches.channels, pixels = r.batch * r.grid_rows * r.grid_columns;
    clattn_stack_desc without_norm = *first;
    char name[32] = "encoder";
    float *filled = fill(&r, height, width, pictures);
    without_norm.input_norm = 0;
    r.desc = &without_norm;
    r.name = name;
    r.length = r.grid_rows * r.grid_columns;
    double *shallow = nn_reference_pictures(&r, r.grid_rows, r.grid_columns, filled);
    struct image x = image_new(r.batch, r.grid_rows, r.grid_columns, first->d_model);
    memcpy(x.pixels, shallow, pixels * first->d_model * sizeof *shallow);
    r.desc = first;
    if (first->input_norm)
        nn_reference_norm(&r, "encoder.input_", x.pixels, pixels, first->d_model);
    for (int i = 1; last; i++, last = last->next) {
        stage(&r, last, &x);
        snprintf(name, sizeof name, "encoder.stages.%d", i);
        if (!last->next)
            break;
    }
    const clattn_restoration *kind = &last->restoration;
    residual(&r, "encoder.restoration.body", last->residual, shallow, &x);
    if (kind->features)
        features(&r, kind, &x);
    const bool once = kind->kind == CLATTN_RESTORATION_KIND_SHUFFLE_ONCE;
    convolve(&r, "encoder.restoration.", once ? "shuffle.0" : "last",
             once ? channels * kind->factor * kind->factor : channels, 3, 1, &x);
    if (once)
        enlarge(kind->factor, true, &x);
    const size_t rows = height * kind->factor, columns = width * kind->factor;
    double *restored = nn_zeros(r.batch * channels * rows * columns);
    for (size_t i = 0; i < r.batch * channels * rows * columns; i++) {
        const size_t plane = i / columns / rows, row = i / columns % rows, column = i % columns;
        restored[i] = pixel(&x, plane / channels, row, column)[plane % channels];
        if (kind->kind == CLATTN_RESTORATION_KIND_ADDED)
            restored[i] += pictures[i];
    }
    free(filled);
    free(shallow);
    free(x.pixels);
    return restored;
}

/* ---- weights ---- */

static void add_weights(nn_store *store, const char *name, size_t out, size_t in, size_t taps)
{
    char tensor[96];
    snprintf(tensor, sizeof tensor, "%s.weight", name);
    nn_store_add(store, tensor, 4, (const size_t[4]){out, in, taps, taps}, 1.7f / sqrtf((float)(in * taps * taps)), 0);
    snprintf(tensor, sizeof tensor, "%s.bias", name);
    nn_store_add(store, tensor, 1, &out, 0.3f, 0);
}

static void add_residual(nn_store *store, const char *name, const clattn_stack_desc *d)
{
    const size_t n = d->d_model, narrow = n / 4;
    char inner[64];
    if (d->residual == 1)
        add_weights(store, name, n, n, 3);
    for (size_t i = 0; d->residual == 3 && i < 3; i++) {
        snprintf(inner, sizeof inner, "%s.%zu", name, i);
        add_weights(store, inner, i == 2 ? n : narrow, i ? narrow : n, i == 1 ? 1 : 3);
    }
}

void nn_store_add_restoration(nn_store *store, const char *stack, const clattn_stack_desc *d, size_t channels)
{
    const clattn_restoration *r = &d->restoration;
    const size_t n = r->features, once = r->factor == 3 ? 3 : 2;
    const bool shuffle = r->kind == CLATTN_RESTORATION_KIND_SHUFFLE;
    char name[64];
    snprintf(name, sizeof name, "%s.residual", stack);
    add_residual(store, name, d);
    if (!r->kind)
        return;
    add_residual(store, "encoder.restoration.body", d);
    if (r->kind == CLATTN_RESTORATION_KIND_SHUFFLE_ONCE)
        add_weights(store, "encoder.restoration.shuffle.0", channels * r->factor * r->factor, d->d_model, 3);
    else
        add_weights(store, "encoder.restoration.last", channels, n ? n : d->d_model, 3);
    if (!n)
        return;
    add_weights(store, "encoder.restoration.before", n, d->d_model, 3);
    for (size_t i = 0, left = r->factor; left > 1; i++, left /= once) {
        snprintf(name, sizeof name, "encoder.restoration.%s.%zu", shuffle ? "shuffle" : "nearest", i);
        add_weights(store, name, shuffle ? n * once * once : n, n, 3);
    }
    if (!shuffle)
        add_weights(store, "encoder.restoration.detail", n, n, 3);
}
