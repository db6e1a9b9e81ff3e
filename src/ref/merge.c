#include "ref/ref.h"

#include <math.h>

/* A log-sum-exp that is NaN is no maximum, but makes its weight NaN and with it the result. */
void ref_merge_row(const ref_merge_problem *p, double *y, double *magnitude, double *lse)
{
    double top = p->sink ? (double)*p->sink : -INFINITY;

    for (int64_t n = 0; n < p->partials; n++)
        top = p->lse[n * p->part_lse] > top ? p->lse[n * p->part_lse] : top;
    double safe = top == -INFINITY ? 0.0 : top, total = p->sink ? exp(*p->sink - safe) : 0.0;
    for (int64_t n = 0; n < p->partials; n++)
        total += exp(p->lse[n * p->part_lse] - safe);
    for (int64_t c = 0; c < p->columns; c++) {
        double sum = 0.0, size = 0.0;
        for (int64_t n = 0; n < p->partials; n++) {
            double weight = exp(p->lse[n * p->part_lse] - safe) / total, x = p->partial[n * p->part + c];
            if (p->lse[n * p->part_lse] == -INFINITY)
                continue;
            sum += weight * x;
            size += weight * fabs(x);
        }
        y[c] = sum;
        magnitude[c] = size;
    }
    *lse = total == 0.0 ? -INFINITY : safe + log(total);
}
