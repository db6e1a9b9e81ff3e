#include <math.h>
#include <stddef.h>

#include "ref/ref.h"

/* One sum with its bias in double, the sum of its terms' magnitudes, and the sum in float. */
struct sums {
    double exact, magnitude;
    float naive;
};

static struct sums sums_of(const ref_conv2d_problem *p, int64_t n, int64_t o, int64_t i, int64_t j)
{
    const int64_t *xs = p->x_stride, *ws = p->weight_stride, first = o / p->out_channels * p->in_channels;
    struct sums s = {0};
    for (int64_t c = 0; c < p->in_channels; c++)
        for (int64_t k = 0; k < p->kernel[0]; k++)
            for (int64_t l = 0; l < p->kernel[1]; l++) {
                const int64_t row = i * p->stride[0] + k * p->dilation[0] - p->before[0];
                const int64_t column = j * p->stride[1] + l * p->dilation[1] - p->before[1];
                if (row < 0 || row >= p->in[0] || column < 0 || column >= p->in[1])
                    continue;
                const float x = p->x[n * xs[0] + (first + c) * xs[1] + row * xs[2] + column * xs[3]];
                const float w = p->weight[o * ws[0] + c * ws[1] + k * ws[2] + l * ws[3]];
                s.exact += (double)x * (double)w;
                s.magnitude += fabs((double)x * (double)w);
                s.naive += x * w;
            }
    if (p->bias) {
        s.exact += (double)p->bias[o];
        s.magnitude += fabs((double)p->bias[o]);
        s.naive += p->bias[o];
    }
    return s;
}

static const float *operand_of(const ref_conv2d_problem *p, int64_t n, int64_t o, int64_t i, int64_t j)
{
    const int64_t *s = p->operand_stride;
    return p->operand ? p->operand + n * s[0] + o * s[1] + i * s[2] + j * s[3] : NULL;
}

void ref_conv2d_row(const ref_conv2d_problem *p, int64_t n, int64_t o, int64_t i, double *y, double *magnitude)
{
    for (int64_t j = 0; j < p->columns; j++) {
        const struct sums s = sums_of(p, n, o, i, j);
        const float *operand = operand_of(p, n, o, i, j);
        double sum = s.exact, size = s.magnitude;
        if (p->activation) {
            sum = ref_activate(p->activation, p->alpha, sum);
            size = ref_steepness(p->activation, p->alpha) * size + fabs(sum);
        }
        if (operand) {
            sum = p->multiply ? sum * (double)*operand : sum + (double)*operand;
            size = p->multiply ? size * fabs((double)*operand) : size + fabs((double)*operand);
        }
        y[j] = sum;
        magnitude[j] = size;
    }
}

void ref_conv2d_naive_row(const ref_conv2d_problem *p, int64_t n, int64_t o, int64_t i, float *y)
{
    for (int64_t j = 0; j < p->columns; j++) {
        const float *operand = operand_of(p, n, o, i, j);
        const float sum = (float)ref_activate(p->activation, p->alpha, (double)sums_of(p, n, o, i, j).naive);
        y[j] = !operand ? sum : p->multiply ? sum * *operand : sum + *operand;
    }
}
