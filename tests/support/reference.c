/* The tests' own reference, written from the definitions and sharing nothing with the library.
 *
 * The same code gives both the reference and the naive float computation: rounding the double result of one
 * addition, product or quotient of floats to float gives exactly what float arithmetic does (a double
 * has more than twice the digits), so "narrow" only adds roundings. */
#include <math.h>
#include <stdlib.h>

#include "support/harness.h"

static double rounded(double x, bool narrow)
{
    return narrow ? (double)(float)x : x;
}

static double dot(size_t n, const double *x, const double *y, size_t y_step, bool narrow)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        sum = rounded(sum + rounded(x[i] * y[i * y_step], narrow), narrow);
    }
    return sum;
}

/* Turns scores into exp(score − maximum) in place and returns their sum, whose NaN is the row's.  −inf gives 0. */
static double exponentials(size_t n, double *score, double *maximum, bool narrow)
{
    double sum = 0;

    *maximum = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        *maximum = score[i] > *maximum ? score[i] : *maximum; /* a NaN is met again in the sum */
    }
    for (size_t i = 0; i < n; i++) {
        score[i] = rounded(exp(rounded(score[i] - *maximum, narrow)), narrow);
        sum = rounded(sum + score[i], narrow);
    }
    return sum;
}

double reference_mask(const test_array *mask, int rank, const size_t *index)
{
    const clattn_layout *layout = &mask->layout;
    size_t at[CLATTN_MAX_RANK] = {0};
    int skip = rank - layout->rank;

    for (int d = 0; d < layout->rank; d++) {
        if (layout->extent[d] != 1) {
            at[d] = index[d + skip];
        }
        if (at[d] >= layout->extent[d]) {
            return -INFINITY; /* fewer keys than there are: the rest is not attended */
        }
    }
    double value = array_get(mask, at);
    return layout->dtype == CLATTN_DTYPE_BOOL ? (value != 0 ? 0 : -INFINITY) : value;
}

double *reference_addend(const test_array *mask, bool causal, int64_t position, size_t batch, size_t heads,
                         size_t queries, size_t keys)
{
    bool masked = mask && mask->memory;
    double *addend = malloc((batch * heads * queries * keys + 1) * sizeof *addend);
    size_t n = 0;

    assert_non_null(addend);
    for (size_t b = 0; b < batch; b++) {
        for (size_t h = 0; h < heads; h++) {
            for (size_t i = 0; i < queries; i++) {
                for (size_t j = 0; j < keys; j++) {
                    bool ahead = causal && (int64_t)j - (int64_t)i > position;
                    size_t index[4] = {b, h, i, j};
                    addend[n++] = ahead ? -INFINITY : masked ? reference_mask(mask, 4, index) : 0;
                }
            }
        }
    }
    if (!masked && !causal) {
        free(addend);
        return NULL;
    }
    return addend;
}

void reference_matmul(size_t m, size_t n, size_t k, const double *a, const double *b, size_t b_row, size_t b_col,
                      const double *bias, bool narrow, double *c, double *magnitude)
{
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            double sum = dot(k, a + i * k, b + j * b_col, b_row, narrow);
            c[i * n + j] = bias ? rounded(sum + bias[j], narrow) : sum;
            if (magnitude) {
                double total = bias ? fabs(bias[j]) : 0;
                for (size_t x = 0; x < k; x++) {
                    total += fabs(a[i * k + x] * b[x * b_row + j * b_col]);
                }
                magnitude[i * n + j] = total;
            }
        }
    }
}

void reference_softmax(size_t columns, double scale, const double *x, const double *addend, bool narrow, double *y,
                       double *magnitude)
{
    double *score = malloc(columns * sizeof *score);
    double maximum;
    size_t count = 0;

    assert_non_null(score);
    for (size_t j = 0; j < columns; j++) {
        if (!addend || addend[j] != -INFINITY) {
            double s = rounded(scale * x[j], narrow);
            score[count++] = addend ? rounded(s + addend[j], narrow) : s;
        }
    }
    double sum = exponentials(count, score, &maximum, narrow);
    count = 0;
    for (size_t j = 0; j < columns; j++) {
        bool attended = !addend || addend[j] != -INFINITY;
        y[j] = attended ? rounded(score[count++] / sum, narrow) : 0;
        if (magnitude) {
            magnitude[j] = attended ? y[j] : EXACT_ZERO;
        }
    }
    free(score);
}
