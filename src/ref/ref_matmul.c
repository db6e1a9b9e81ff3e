#include "ref/ref.h"

#include <math.h>
#include <stddef.h>

void ref_matmul_row(const ref_matmul_problem *p, int64_t batch, int64_t i, double *c, double *magnitude)
{
    const float *a = p->a.data + batch * p->a.batch + i * p->a.row;

    for (int64_t j = 0; j < p->n; j++) {
        const float *b = p->b.data + batch * p->b.batch + j * p->b.col;
        double bias = p->bias ? (double)p->bias[j * p->bias_col] : 0.0;
        double sum = bias, size = fabs(bias);

        for (int64_t k = 0; k < p->k; k++) {
            double product = (double)a[k * p->a.col] * b[k * p->b.row];
            sum += product;
            size += fabs(product);
        }
        c[j] = sum;
        if (magnitude)
            magnitude[j] = size;
    }
}

void ref_matmul_naive_row(const ref_matmul_problem *p, int64_t batch, int64_t i, float *c)
{
    const float *a = p->a.data + batch * p->a.batch + i * p->a.row;

    for (int64_t j = 0; j < p->n; j++) {
        const float *b = p->b.data + batch * p->b.batch + j * p->b.col;
        float sum = 0.0f;

        for (int64_t k = 0; k < p->k; k++)
            sum += a[k * p->a.col] * b[k * p->b.row];
        c[j] = p->bias ? sum + p->bias[j * p->bias_col] : sum;
    }
}
