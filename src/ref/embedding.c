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

void ref_embedding_gradient_row(int64_t places, int64_t size, double scale, const int32_t *ids, const float *gradient,
                                int64_t row, double *y, double *magnitude)
{
    for (int64_t c = 0; c < size; c++) {
        double sum = 0.0, sizes = 0.0;
        for (int64_t place = 0; place < places; place++)
            if (ids[place] == row) {
                sum += (double)gradient[place * size + c];
                sizes += fabs((double)gradient[place * size + c]);
            }
        y[c] = sum * scale;
        magnitude[c] = sizes * fabs(scale);
    }
}
