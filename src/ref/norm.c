#include "ref/ref.h"

#include <math.h>

static int64_t elements_of(const ref_norm_problem *p)
{
    int64_t count = 1;

    for (int64_t n = 5 - p->axes; n < 5; n++)
        count *= p->extent[n];
    return count;
}

/* The offset of element `element` of row `row` in an array with these strides. */
static int64_t place(const ref_norm_problem *p, int64_t row, int64_t element, const int64_t *stride)
{
    int64_t at = 0;

    for (int64_t n = 4; n >= 0; n--) {
        int64_t *index = n < 5 - p->axes ? &row : &element;
        at += *index % p->extent[n] * stride[n];
        *index /= p->extent[n];
    }
    return at;
}

void ref_norm_row(const ref_norm_problem *p, int64_t row, double *y, double *magnitude, double *mean, double *factor)
{
    int64_t count = elements_of(p);
    double centre = 0.0, square = 0.0, deviation = 0.0;

    for (int64_t e = 0; e < count && !p->rms; e++)
        centre += (double)p->x[place(p, row, e, p->stride)] / (double)count;
    for (int64_t e = 0; e < count; e++) {
        y[e] = (double)p->x[place(p, row, e, p->stride)] - centre;
        square += y[e] * y[e] / (double)count;
        deviation += p->rms ? 0.0 : fabs(y[e]) / (double)count;
    }
    double inverse = isfinite(square) ? 1.0 / sqrt(square + p->epsilon) : NAN;
    for (int64_t e = 0; e < count; e++) {
        double scale = p->scale ? p->scale[place(p, row, e, p->scale_stride)] : 1.0;
        double bias = p->bias ? p->bias[place(p, row, e, p->bias_stride)] : 0.0;
        if (magnitude)
            magnitude[e] = (fabs(y[e]) + deviation) * fabs(inverse * scale) + fabs(bias);
        y[e] = y[e] * inverse * scale + bias;
    }
    if (mean)
        *mean = centre;
    if (factor)
        *factor = inverse;
}

void ref_norm_naive_row(const ref_norm_problem *p, int64_t row, float *y)
{
    int64_t count = elements_of(p);
    float sum = 0.0f, square = 0.0f;

    for (int64_t e = 0; e < count && !p->rms; e++)
        sum += p->x[place(p, row, e, p->stride)];
    sum /= (float)count;
    for (int64_t e = 0; e < count; e++) {
        y[e] = p->x[place(p, row, e, p->stride)] - sum;
        square += y[e] * y[e];
    }
    float inverse = 1.0f / sqrtf(square / (float)count + (float)p->epsilon);
    for (int64_t e = 0; e < count; e++) {
        y[e] *= inverse;
        if (p->scale)
            y[e] *= p->scale[place(p, row, e, p->scale_stride)];
        if (p->bias)
            y[e] += p->bias[place(p, row, e, p->bias_stride)];
    }
}
