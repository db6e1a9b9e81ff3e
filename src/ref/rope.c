#include "ref/ref.h"

#include <math.h>

void ref_rope_row(const ref_rope_problem *p, const float *x, int64_t position, double *y, double *magnitude)
{
    int64_t pairs = p->rotary / 2;

    for (int64_t i = 0; i < pairs; i++) {
        int64_t one = p->interleaved ? 2 * i : i, two = p->interleaved ? 2 * i + 1 : i + pairs;
        double angle = (double)position * pow(p->base, -(double)i / (double)pairs);
        double c = p->cosines ? p->cosines[i] : cos(angle), s = p->sines ? p->sines[i] : sin(angle);
        y[one] = x[one] * c - x[two] * s;
        y[two] = x[one] * s + x[two] * c;
        magnitude[one] = magnitude[two] = fabs((double)x[one]) + fabs((double)x[two]);
    }
    for (int64_t d = p->rotary; d < p->size; d++) {
        y[d] = x[d];
        magnitude[d] = fabs((double)x[d]);
    }
}
