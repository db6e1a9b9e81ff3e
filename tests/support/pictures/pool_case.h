/* Pooling as table rows. */
#ifndef TESTS_SUPPORT_PICTURES_POOL_CASE_H
#define TESTS_SUPPORT_PICTURES_POOL_CASE_H

#include "support/job.h"

typedef struct pool_case {
    const char *rule;
    unsigned levels;
    clattn_pool_kind kind;
    size_t batch, channels; /* 0: 1 */
    size_t from[2], to[2];  /* height and width */
    int32_t window[2], stride[2], dilation[2], padding[4];
    bool ceil_mode, count_include_pad;
    bool channels_last;
    bool backward;             /* y is then the gradient of x, and there is an x for max alone */
    array_form x, y, gradient; /* with channels_last of (batch, height, width, channels); gradient: of y */
    clattn_dtype x_type, y_type, gradient_type;
    bool whole; /* x is of few whole numbers, so that many elements are equal */
    bool explicit_batch;
    size_t actual_batch;
    bool inject; /* runs once more with NaN in one element and beyond the actual batch */
} pool_case;

/* Makes arrays, arguments and the plan of a case by a solver: input[0] is x, input[1] the gradient of y. */
bool pool_make(test_job *job, const void *test, const char *solver);

/* Pools `planes` pictures x; `magnitude` has the sums of sizes over the divisors, or the sizes. */
void pool_reference(const pool_case *test, size_t planes, const double *x, double *y, double *magnitude);

/* The gradient of x (NULL for an average), and the sums of its terms' sizes. */
void pool_gradient_reference(const pool_case *test, size_t planes, const double *x, const double *y_gradient,
                             double *x_gradient, double *magnitude);

/* The solvers' names. */
#define POOL_SOLVERS 2
extern const char *const pool_solvers[POOL_SOLVERS];

void pool_add(const pool_case *cases, size_t count);

#endif
