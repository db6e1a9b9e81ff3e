#include "ref/ref.h"

#include <math.h>
#include <stddef.h>

void ref_embedding_row(const ref_embedding_problem *p, double *y, double *magnitude)
{
    for (int64_t c = 0; c < p->size; c++) {
        double element = p->row ? p->scale * (double)p->row[c] : NAN;
        double segment = p->segment_row ? (double)p->segment_row[c] : 0.0;
        double angle = (double)p->position * pow(10000.0, -2.0 * (double)(c / 2) / (double)p->size);
        double position = p->position_row ? (double)p->position_row[c] : 0.0;

        if (p->sinusoids)
            position = c % 2 ? cos(angle) : sin(angle);
        y[c] = element + position + segment;
        magnitude[c] = fabs(element) + fabs(segment) + (p->sinusoids ? 1.0 : fabs(position));
    }
}
