/* Gradients of matrix products as table rows. */
#ifndef TESTS_SUPPORT_OPS_BACKWARD_MATMUL_CASE_H
#define TESTS_SUPPORT_OPS_BACKWARD_MATMUL_CASE_H

#include "support/ops/matmul_case.h"

/* Which gradients are outputs. */
enum { MATMUL_DA = 1, MATMUL_DB = 2, MATMUL_DBIAS = 4, MATMUL_DOPERAND = 8, MATMUL_EVERY = 15 };

typedef struct matmul_backward_case {
    matmul_case of;     /* the product, whose c is the gradient of c */
    unsigned gradients; /* 0: of every array that there is */
    struct {
        clattn_dtype a, b, bias, operand; /* 0: float32 */
    } type;
    struct {
        array_form a, b, bias, operand;
    } form;
} matmul_backward_case;

bool matmul_backward_job(test_job *job, const matmul_backward_case *test, const char *solver, uint64_t salt);
void matmul_backward_add(const matmul_backward_case *cases, size_t count);

/* The gradients of one product of doubles, (m, k) by (k, n), added to what the arrays hold; arrays that are NULL are absent. */
typedef struct matmul_backward_reference {
    size_t m, n, k;
    clattn_activation activation;
    double alpha;
    bool multiply;
    const double *a, *b, *bias, *operand, *c_gradient;
    double *a_gradient, *b_gradient, *bias_gradient, *operand_gradient;
    double *a_magnitude, *b_magnitude, *bias_magnitude, *operand_magnitude;
} matmul_backward_reference;

/* narrow: every operation is rounded to float. */
void reference_matmul_backward(const matmul_backward_reference *r, bool narrow);

#endif
