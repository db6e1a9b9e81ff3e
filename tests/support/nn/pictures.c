/* The reference of what only models of pictures have: patches, positions of a grid, windows and merging. */
#include "support/nn/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/harness.h"

/* ---- patches ---- */

/* The tap at `at` of a bicubic filter (Keys 1981) around an element of an axis whose elements are `ratio` of these apart. */
static double cubic(double at, double ratio, bool antialias)
{
    const double a = antialias ? -0.5 : -0.75, d = fabs(at) / (antialias && ratio > 1 ? ratio : 1);
    return d <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1 : d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

/* The weights of an axis of `from` elements in element i of `to`: PyTorch's interpolate without align_corners. */
static void cubic_weights(size_t from, size_t to, size_t i, bool antialias, double *weights)
{
    const double ratio = (double)from / (double)to, at = ((double)i + 0.5) * ratio - 0.5;
    const long last = (long)from - 1, reach = 3 + (long)(2 * ratio);
    double sum = 0;
    for (long k = 0; k <= last; k++)
        weights[k] = 0;
    for (long k = (long)at - reach; k <= (long)at + reach; k++) {
        const double weight = cubic((double)k - at, ratio, antialias);
        if (antialias && (k < 0 || k > last))
            continue;
        weights[k < 0 ? 0 : k > last ? last : k] += weight;
        sum += weight;
    }
    for (long k = 0; k <= last; k++)
        weights[k] /= sum;
}

/* What is added to patch (row, column) of a grid of rows x columns: the table's vector, or one between those of its grid. */
static void add_grid_position(const nn_reference *r, size_t rows, size_t columns, size_t row, size_t column, double *x)
{
    const clattn_stack_desc *d = r->desc;
    const clattn_patches *p = &d->patches;
    const size_t n = d->d_model, others = d->position_count - p->grid_rows * p->grid_columns;
    const float *table = nn_store_get(r->store, "%s.positions.weight", r->name) + others * n;
    double *v = nn_zeros(p->grid_rows), *w = nn_zeros(p->grid_columns);
    if (rows == p->grid_rows && columns == p->grid_columns) {
        v[row] = w[column] = 1;
    } else {
        cubic_weights(p->grid_rows, rows, row, p->antialias, v);
        cubic_weights(p->grid_columns, columns, column, p->antialias, w);
    }
    for (size_t k = 0; k < p->grid_rows; k++)
        for (size_t l = 0; l < p->grid_columns; l++)
            for (size_t i = 0; i < n; i++)
                x[i] += v[k] * w[l] * table[(k * p->grid_columns + l) * n + i];
    free(v);
    free(w);
}

/* Adds the sines and cosines of a patch's row, and those of its column. */
static void add_sinusoids(size_t n, size_t row, size_t column, double *x)
{
    const size_t quarter = n / 4;
    for (size_t i = 0; i < quarter; i++) {
        const double frequency = pow(10000, -(double)i / (double)quarter);
        x[i] += sin((double)row * frequency);
        x[quarter + i] += cos((double)row * frequency);
        x[2 * quarter + i] += sin((double)column * frequency);
        x[3 * quarter + i] += cos((double)column * frequency);
    }
}

/* The vector of patch (row, column) of one picture. */
static void patch_vector(const nn_reference *r, const float *picture, size_t height, size_t width, size_t row,
                         size_t column, double *x)
{
    const clattn_patches *p = &r->desc->patches;
    const float *weight = nn_store_get(r->store, "%s.patches.weight", r->name);
    const float *bias = p->without_bias ? NULL : nn_store_get(r->store, "%s.patches.bias", r->name);
    for (size_t o = 0; o < r->desc->d_model; o++) {
        x[o] = bias ? bias[o] : 0;
        for (size_t c = 0; c < p->channels; c++)
            for (size_t k = 0; k < p->height + 2 * p->border; k++)
                for (size_t l = 0; l < p->width + 2 * p->border; l++, weight++) {
                    const size_t at = row * p->height + k, across = column * p->width + l; /* p->border too many */
                    if (at >= p->border && at < height + p->border && across >= p->border && across < width + p->border)
                        x[o] += (double)*weight * picture[(c * height + at - p->border) * width + across - p->border];
                }
    }
}

double *nn_reference_pictures(const nn_reference *r, size_t height, size_t width, const float *pictures)
{
    const clattn_stack_desc *d = r->desc;
    const clattn_patches *p = &d->patches;
    const size_t n = d->d_model, rows = height / p->height, columns = width / p->width;
    const size_t prefix = (size_t)p->class_token + p->registers, length = prefix + rows * columns;
    const bool class_position = d->position_count > p->grid_rows * p->grid_columns;
    double *x = nn_zeros(r->batch * length * n);
    char name[64];
    for (size_t b = 0; b < r->batch; b++) {
        double *item = x + b * length * n;
        for (size_t i = 0; i < n && p->class_token; i++)
            item[i] = nn_store_get(r->store, "%s.class.weight", r->name)[i] +
                      (class_position ? nn_store_get(r->store, "%s.positions.weight", r->name)[i] : 0);
        for (size_t i = 0; i < p->registers * n; i++)
            item[(size_t)p->class_token * n + i] = nn_store_get(r->store, "%s.registers.weight", r->name)[i];
        for (size_t row = 0; row < rows; row++)
            for (size_t column = 0; column < columns; column++) {
                double *patch = item + (prefix + row * columns + column) * n;
                patch_vector(r, pictures + b * p->channels * height * width, height, width, row, column, patch);
                if (d->positions == CLATTN_POSITIONS_SINUSOIDS)
                    add_sinusoids(n, row, column, patch);
                else if (d->positions)
                    add_grid_position(r, rows, columns, row, column, patch);
            }
    }
    nn_store_as(r->dtype, x, r->batch * length * n);
    snprintf(name, sizeof name, "%s.input_", r->name);
    if (d->input_norm)
        nn_reference_norm(r, name, x, r->batch * length, n);
    return x;
}

/* ---- windows ---- */

/* An axis of the grid: its length, filled up to whole windows, and the shift. */
struct axis {
    size_t length, filled, window, shift;
};

static struct axis axis_of(size_t length, size_t window, bool shifted)
{
    return (struct axis){length, (length + window - 1) / window * window, window, shifted ? window / 2 : 0};
}

/* Where index i of the axis is after the shift. */
static size_t shifted(const struct axis *axis, size_t i)
{
    return (i + axis->filled - axis->shift) % axis->filled;
}

/* Whether a query at i and a key at j are in one window, and both or none have come around the edge. */
static bool together(const struct axis *axis, size_t i, size_t j)
{
    const size_t a = shifted(axis, i), b = shifted(axis, j), edge = axis->filled - axis->shift;
    return a / axis->window == b / axis->window && (a >= edge) == (b >= edge);
}

/* The row, or column, of the table of distances. */
static size_t distance(const struct axis *axis, size_t i, size_t j)
{
    return shifted(axis, i) % axis->window + axis->window - 1 - shifted(axis, j) % axis->window;
}

/* What is added to scores: a table of distances, or vectors for distances in rows and in columns; NULL: nothing. */
struct bias {
    const float *table, *down, *across;
};

/* The output of one head at one place; k and v have the places of the filled grid. */
static void attend_window(const nn_reference *r, const struct axis axis[2], struct bias bias, size_t head,
                          const double *q, const double *k, const double *v, size_t place, double *y)
{
    const clattn_stack_desc *d = r->desc;
    const size_t size = nn_head_size(d), places = axis[0].filled * axis[1].filled;
    const size_t i[2] = {place / axis[1].length, place % axis[1].length};
    const double scale = d->explicit_scale ? d->scale : 1 / sqrt((double)size);
    double sum = 0, *p = nn_zeros(places);
    for (size_t key = 0; key < places; key++) {
        const size_t j[2] = {key / axis[1].filled, key % axis[1].filled};
        if (!together(&axis[0], i[0], j[0]) || !together(&axis[1], i[1], j[1]))
            continue;
        double score = 0;
        for (size_t c = 0; c < size; c++)
            score += scale * q[head * size + c] * k[key * d->d_model + head * size + c];
        const size_t down = distance(&axis[0], i[0], j[0]), across = distance(&axis[1], i[1], j[1]);
        if (bias.table)
            score += bias.table[(down * (2 * axis[1].window - 1) + across) * d->heads + head];
        for (size_t c = 0; c < size && bias.down; c++)
            score += q[head * size + c] * ((double)bias.down[down * size + c] + bias.across[across * size + c]);
        p[key] = exp(score);
        sum += p[key];
    }
    for (size_t key = 0; key < places; key++)
        for (size_t c = 0; c < size; c++)
            y[head * size + c] += p[key] / sum * v[key * d->d_model + head * size + c];
    free(p);
}

double *nn_reference_windows(const nn_reference *r, const char *prefix, const double *x)
{
    const clattn_stack_desc *d = r->desc;
    const size_t n = d->d_model, rows = r->grid_rows * r->grid_columns;
    const int layer = strstr(prefix, ".layers.")[strlen(".layers.")] - '0';
    const bool all = d->windows.whole >> layer & 1;
    const bool large = r->grid_rows > d->windows.rows && r->grid_columns > d->windows.columns;
    const bool shift = d->windows.shifted && !all && layer % 2 && (large || d->windows.shifted == 2);
    const struct axis axis[2] = {axis_of(r->grid_rows, all ? r->grid_rows : d->windows.rows, shift),
                                 axis_of(r->grid_columns, all ? r->grid_columns : d->windows.columns, shift)};
    const size_t filled = axis[0].filled * axis[1].filled;
    struct bias bias = {NULL, NULL, NULL};
    if (d->windows.position_bias == CLATTN_POSITION_BIAS_TABLE)
        bias.table = nn_store_get(r->store, "%sposition_bias", prefix);
    if (d->windows.position_bias == CLATTN_POSITION_BIAS_DECOMPOSED) {
        bias.down = nn_store_get(r->store, "%sposition_rows", prefix);
        bias.across = nn_store_get(r->store, "%sposition_columns", prefix);
    }
    double *whole = nn_zeros(r->batch * filled * n), *attended = nn_zeros(r->batch * rows * n);
    for (size_t row = 0; row < r->batch * rows; row++) {
        const size_t b = row / rows, place = row % rows;
        memcpy(whole + (b * filled + place / r->grid_columns * axis[1].filled + place % r->grid_columns) * n,
               x + row * n, n * sizeof *x);
    }
    double *q = nn_reference_project(r, prefix, "query", CLATTN_WITHOUT_QUERY_BIAS, x, r->batch * rows, n, n);
    double *k = nn_reference_project(r, prefix, "key", CLATTN_WITHOUT_KEY_BIAS, whole, r->batch * filled, n, n);
    double *v = nn_reference_project(r, prefix, "value", CLATTN_WITHOUT_VALUE_BIAS, whole, r->batch * filled, n, n);
    for (size_t row = 0; row < r->batch * rows; row++)
        for (size_t head = 0; head < d->heads; head++)
            attend_window(r, axis, bias, head, q + row * n, k + row / rows * filled * n, v + row / rows * filled * n,
                          row % rows, attended + row * n);
    double *y = nn_reference_project(r, prefix, "output", CLATTN_WITHOUT_OUTPUT_BIAS, attended, r->batch * rows, n, n);
    free(whole);
    free(attended);
    free(q);
    free(k);
    free(v);
    return y;
}

double *nn_reference_merge(const nn_reference *r, const double *x)
{
    const clattn_stack_desc *d = r->desc;
    const size_t n = d->d_model, rows = (r->grid_rows + 1) / 2, columns = (r->grid_columns + 1) / 2;
    double *four = nn_zeros(r->batch * rows * columns * 4 * n);
    char prefix[64];
    for (size_t i = 0; i < r->batch * rows * columns * 4; i++) {
        const size_t place = i / 4 % (rows * columns), b = i / 4 / (rows * columns);
        const size_t row = 2 * (place / columns) + i % 2, column = 2 * (place % columns) + i / 2 % 2;
        if (row < r->grid_rows && column < r->grid_columns)
            memcpy(four + i * n, x + ((b * r->grid_rows + row) * r->grid_columns + column) * n, n * sizeof *x);
    }
    snprintf(prefix, sizeof prefix, "%s.merge.", r->name);
    nn_reference_norm(r, prefix, four, r->batch * rows * columns, 4 * n);
    double *y = nn_reference_linear(four, r->batch * rows * columns, 4 * n,
                                    nn_store_get(r->store, "%s.merge.weight", r->name), d->next->d_model, NULL);
    nn_store_as(r->dtype, y, r->batch * rows * columns * d->next->d_model);
    free(four);
    return y;
}

double *nn_reference_neck(const nn_reference *r, const double *x)
{
    const clattn_stack_desc *d = r->desc;
    const size_t n = d->neck, rows = r->grid_rows, columns = r->grid_columns, places = rows * columns;
    const float *weight = nn_store_get(r->store, "%s.neck.out.weight", r->name);
    double *narrow = nn_reference_linear(x, r->batch * places, d->d_model,
                                         nn_store_get(r->store, "%s.neck.in.weight", r->name), n, NULL);
    double *y = nn_zeros(r->batch * places * n);
    char prefix[64];
    snprintf(prefix, sizeof prefix, "%s.neck.in_", r->name);
    nn_reference_norm(r, prefix, narrow, r->batch * places, n);
    for (size_t i = 0; i < r->batch * places * n; i++)
        for (size_t tap = 0; tap < 9; tap++) {
            const size_t o = i % n, place = i / n % places, b = i / n / places;
            const size_t row = place / columns + tap / 3, column = place % columns + tap % 3; /* one too many */
            for (size_t c = 0; c < n && row > 0 && row <= rows && column > 0 && column <= columns; c++)
                y[i] += narrow[((b * rows + row - 1) * columns + column - 1) * n + c] * weight[(o * n + c) * 9 + tap];
        }
    snprintf(prefix, sizeof prefix, "%s.neck.out_", r->name);
    nn_reference_norm(r, prefix, y, r->batch * places, n);
    free(narrow);
    return y;
}
