#include "ref/ref.h"

#include <math.h>

/* How many of a window's positions count in an average's divisor along an axis. */
static double counted(const ref_pool_axis *axis, int64_t first, bool padding_counts)
{
    double count = 0;
    for (int64_t k = first; k < first + axis->window; k++)
        count += padding_counts ? k < axis->source + axis->after : k >= 0 && k < axis->source;
    return count;
}

double ref_pool(const ref_pool_problem *p, int64_t i, int64_t j, double *magnitude)
{
    const int64_t row = i * p->rows.stride - p->rows.before, column = j * p->columns.stride - p->columns.before;
    double value = p->average ? 0 : -INFINITY;
    *magnitude = 0;
    for (int64_t k = 0; k < p->rows.window; k++)
        for (int64_t l = 0; l < p->columns.window; l++) {
            const int64_t r = row + k * p->rows.dilation, c = column + l * p->columns.dilation;
            if (r < 0 || r >= p->rows.source || c < 0 || c >= p->columns.source)
                continue;
            const double x = (double)p->x.data[r * p->x.row + c * p->x.col];
            value = p->average ? value + x : x > value || isnan(x) ? x : value;
            *magnitude += p->average ? fabs(x) : 0;
        }
    if (!p->average)
        return value;
    const double divisor = counted(&p->rows, row, p->padding_counts) * counted(&p->columns, column, p->padding_counts);
    *magnitude /= divisor;
    return value / divisor;
}

/* Whether element `at` of x is tap *tap of window i along an axis. */
static bool has(const ref_pool_axis *axis, int64_t i, int64_t at, int64_t *tap)
{
    const int64_t distance = at - (i * axis->stride - axis->before);
    *tap = distance / axis->dilation;
    return distance >= 0 && *tap < axis->window && *tap * axis->dilation == distance;
}

/* Whether tap (k, l), which lies in x, is the first largest one of window (i, j); a NaN is larger than any number. */
static bool is_largest(const ref_pool_problem *p, int64_t i, int64_t j, int64_t k, int64_t l)
{
    const int64_t row = i * p->rows.stride - p->rows.before, column = j * p->columns.stride - p->columns.before;
    int64_t largest = -1;
    double value = 0;
    for (int64_t tap = 0; tap < p->rows.window * p->columns.window; tap++) {
        const int64_t r = row + tap / p->columns.window * p->rows.dilation;
        const int64_t c = column + tap % p->columns.window * p->columns.dilation;
        if (r < 0 || r >= p->rows.source || c < 0 || c >= p->columns.source)
            continue;
        const double x = (double)p->x.data[r * p->x.row + c * p->x.col];
        if (largest < 0 || x > value || (isnan(x) && !isnan(value))) {
            largest = tap;
            value = x;
        }
    }
    return largest == k * p->columns.window + l;
}

double ref_pool_gradient(const ref_pool_problem *p, const ref_view *y_gradient, int64_t rows, int64_t columns,
                         int64_t r, int64_t c, double *magnitude)
{
    double sum = 0;
    *magnitude = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            int64_t k, l;
            if (!has(&p->rows, i, r, &k) || !has(&p->columns, j, c, &l) || (!p->average && !is_largest(p, i, j, k, l)))
                continue;
            const int64_t row = i * p->rows.stride - p->rows.before;
            const int64_t column = j * p->columns.stride - p->columns.before;
            const double divisor =
                p->average ? counted(&p->rows, row, p->padding_counts) * counted(&p->columns, column, p->padding_counts)
                           : 1;
            const double term = (double)y_gradient->data[i * y_gradient->row + j * y_gradient->col] / divisor;
            sum += term;
            *magnitude += fabs(term);
        }
    return sum;
}
