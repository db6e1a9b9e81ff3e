#include "ref/ref.h"

#include <math.h>
#include <stddef.h>

static double operand_of(const ref_matmul_problem *p, int64_t batch, int64_t i, int64_t j)
{
    return p->operand.data[batch * p->operand.batch + i * p->operand.row + j * p->operand.col];
}

void ref_matmul_row(const ref_matmul_problem *p, int64_t batch, int64_t i, double *c, double *magnitude)
{
    const float *a = p->a.data + batch * p->a.batch + i * p->a.row;

    for (int64_t j = 0; j < p->n; j++) {
        const float *b = p->b.data + batch * p->b.batch + j * p->b.col;
        double bias = p->bias ? (double)p->bias[j * p->bias_col] : 0.0;
        double scale = p->b_scale ? (double)p->b_scale[j * p->scale_col] : 1.0;
        double sum = bias, size = fabs(bias);

        for (int64_t k = 0; k < p->k; k++) {
            double product = (double)a[k * p->a.col] * b[k * p->b.row] * scale;
            sum += product;
            size += fabs(product);
        }
        if (p->activated) {
            sum = ref_activate(p->activation, p->alpha, sum);
            size = 1.2 * size + fabs(sum);
        }
        if (p->operand.data) {
            double operand = operand_of(p, batch, i, j);
            sum = p->multiply ? sum * operand : sum + operand;
            size = p->multiply ? size * fabs(operand) : size + fabs(operand);
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
        if (p->b_scale)
            sum *= p->b_scale[j * p->scale_col];
        if (p->bias)
            sum += p->bias[j * p->bias_col];
        if (p->activated)
            sum = (float)ref_activate(p->activation, p->alpha, sum);
        if (p->operand.data) {
            float operand = (float)operand_of(p, batch, i, j);
            sum = p->multiply ? sum * operand : sum + operand;
        }
        c[j] = sum;
    }
}
