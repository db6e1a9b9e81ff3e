#include "ref/ref.h"

#include <math.h>

void ref_norm_row(const ref_norm_problem *p, int64_t row, double *y, double *magnitude, double *mean, double *factor)
{
    const float *x = p->x + row * p->row;
    double centre = 0.0, square = 0.0, deviation = 0.0;

    for (int64_t c = 0; c < p->columns && !p->rms; c++)
        centre += (double)x[c * p->col] / (double)p->columns;
    for (int64_t c = 0; c < p->columns; c++) {
        y[c] = (double)x[c * p->col] - centre;
        square += y[c] * y[c] / (double)p->columns;
        deviation += p->rms ? 0.0 : fabs(y[c]) / (double)p->columns;
    }
    double inverse = isfinite(square) ? 1.0 / sqrt(square + p->epsilon) : NAN;
    for (int64_t c = 0; c < p->columns; c++) {
        double scale = p->scale ? p->scale[c] : 1.0, bias = p->bias ? p->bias[c] : 0.0;
        magnitude[c] = (fabs(y[c]) + deviation) * fabs(inverse * scale) + fabs(bias);
        y[c] = y[c] * inverse * scale + bias;
    }
    *mean = centre;
    *factor = inverse;
}

void ref_norm_naive_row(const ref_norm_problem *p, int64_t row, float *y)
{
    const float *x = p->x + row * p->row;
    float sum = 0.0f, square = 0.0f;

    for (int64_t c = 0; c < p->columns && !p->rms; c++)
        sum += x[c * p->col];
    sum /= (float)p->columns;
    for (int64_t c = 0; c < p->columns; c++) {
        y[c] = x[c * p->col] - sum;
        square += y[c] * y[c];
    }
    float inverse = 1.0f / sqrtf(square / (float)p->columns + (float)p->epsilon);
    for (int64_t c = 0; c < p->columns; c++) {
        y[c] *= inverse;
        if (p->scale)
            y[c] *= p->scale[c];
        if (p->bias)
            y[c] += p->bias[c];
    }
}

void ref_norm_backward_row(const ref_norm_problem *p, int64_t row, const float *dy, const float *dsum, double *dx,
                           double *magnitude, double *dscale, double *scale_magnitude)
{
    const ref_norm_problem plain = {
        .columns = p->columns, .row = p->row, .col = p->col, .rms = p->rms, .epsilon = p->epsilon, .x = p->x};
    const double count = (double)p->columns;
    double mean, factor, mean_g = 0.0, mean_gn = 0.0, absolute_g = 0.0, absolute_gn = 0.0;

    ref_norm_row(&plain, row, dscale, scale_magnitude, &mean, &factor);
    for (int64_t c = 0; c < p->columns; c++) {
        double g = dy[c] * (p->scale ? (double)p->scale[c] : 1.0);
        mean_g += p->rms ? 0.0 : g / count;
        mean_gn += g * dscale[c] / count;
        absolute_g += fabs(g) / count;
        absolute_gn += fabs(g) * scale_magnitude[c] / count;
    }
    for (int64_t c = 0; c < p->columns; c++) {
        double g = dy[c] * (p->scale ? (double)p->scale[c] : 1.0), more = dsum ? (double)dsum[c] : 0.0;
        dx[c] = factor * (g - mean_g - dscale[c] * mean_gn) + more;
        magnitude[c] = fabs(factor) * (fabs(g) + absolute_g + scale_magnitude[c] * absolute_gn) + fabs(more);
        dscale[c] *= dy[c];
        scale_magnitude[c] *= fabs((double)dy[c]);
    }
}
