#include "ref/ref.h"

#include <math.h>
#include <stddef.h>

void ref_cross_entropy_row(const ref_cross_entropy_problem *p, ref_cross_entropy_sums *sums, double *gradient,
                           double *magnitude)
{
    const double kept = 1 - p->smoothing, share = p->smoothing / (double)p->classes;
    const bool wrong = p->label < 0 || p->label >= p->classes;
    double top = -INFINITY, sum = 0, spread = 0;

    for (int64_t c = 0; c < p->classes; c++)
        top = (double)p->x[c * p->col] > top ? (double)p->x[c * p->col] : top;
    for (int64_t c = 0; c < p->classes; c++) {
        const double below = top - (double)p->x[c * p->col];
        sum += exp(-below);
        if (share > 0)
            spread += share * below;
    }
    sums->lse = top + log(sum);
    sums->loss = NAN;
    if (!wrong)
        sums->loss = log(sum) + kept * (top - (double)p->x[p->label * p->col]) + spread;
    if (p->ignored)
        sums->loss = 0;
    for (int64_t c = 0; c < p->classes && gradient; c++) {
        const double probability = exp((double)p->x[c * p->col] - top) / sum, label = c == p->label ? kept : 0;
        gradient[c] = p->ignored ? 0 : wrong ? (double)NAN : p->weight * (probability - share - label);
        magnitude[c] = fabs(p->weight) * (probability + share + label);
    }
}
