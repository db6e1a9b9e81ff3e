#include "ref/ref.h"

#include <math.h>
#include <stddef.h>

void ref_matmul_row(const ref_matmul_problem *p, int64_t i, double *c, double *magnitude)
{
    const float *a = p->a.data + i * p->a.row;

    for (int64_t j = 0; j < p->n; j++) {
        const float *b = p->b.data + j * p->b.col;
        double bias = p->bias ? (double)p->bias[j] : 0.0;
        double scale = p->b_scale ? (double)p->b_scale[j] : 1.0;
        double sum = bias, size = fabs(bias);

        for (int64_t k = 0; k < p->k; k++) {
            double product = (double)a[k * p->a.col] * b[k * p->b.row] * scale;
            sum += product;
            size += fabs(product);
        }
        if (p->activation) {
            sum = ref_activate(p->activation, p->alpha, sum);
            size = ref_steepness(p->activation, p->alpha) * size + fabs(sum);
        }
        if (p->operand.data) {
            double operand = p->operand.data[i * p->operand.row + j * p->operand.col];
            sum = p->multiply ? sum * operand : sum + operand;
            size = p->multiply ? size * fabs(operand) : size + fabs(operand);
        }
        c[j] = sum;
        magnitude[j] = size;
    }
}

void ref_matmul_naive_row(const ref_matmul_problem *p, int64_t i, float *c)
{
    const float *a = p->a.data + i * p->a.row;

    for (int64_t j = 0; j < p->n; j++) {
        const float *b = p->b.data + j * p->b.col;
        float sum = 0.0f;

        for (int64_t k = 0; k < p->k; k++)
            sum += a[k * p->a.col] * b[k * p->b.row];
        if (p->b_scale)
            sum *= p->b_scale[j];
        if (p->bias)
            sum += p->bias[j];
        sum = (float)ref_activate(p->activation, p->alpha, sum);
        if (p->operand.data) {
            float operand = p->operand.data[i * p->operand.row + j * p->operand.col];
            sum = p->multiply ? sum * operand : sum + operand;
        }
        c[j] = sum;
    }
}
