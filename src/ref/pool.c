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
