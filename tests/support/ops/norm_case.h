/* Normalisation problems and their gradients as table rows. */
#ifndef TESTS_SUPPORT_OPS_NORM_CASE_H
#define TESTS_SUPPORT_OPS_NORM_CASE_H

#include "support/job.h"

/* What x gets for a second run; rows without it must keep every bit. */
typedef enum norm_inject {
    NORM_NOTHING,
    NORM_NAN,      /* NaN in the middle of the first row */
    NORM_INF,      /* −inf there */
    NORM_OVERFLOW, /* 1e25 there, whose square is beyond float32 */
    NORM_CONSTANT, /* the first row all 7: exactly the bias */
    NORM_GRADIENT, /* backward: +inf in the middle of the first row of the gradient of y */
    NORM_BEYOND    /* NaN, Inf and large numbers beyond the actual batch */
} norm_inject;

/* A scale or bias; rank 0: none. */
typedef struct norm_factor {
    int rank;
    size_t extent[CLATTN_MAX_RANK];
    array_form form;
    clattn_dtype dtype; /* 0: CLATTN_DTYPE_F32 */
} norm_factor;

enum { NORM_MEAN = 1, NORM_INVERSE = 2 };

/* Which gradients are outputs. */
enum { NORM_DX = 1, NORM_DSCALE = 2, NORM_DBIAS = 4 };

typedef struct norm_case {
    const char *rule;
    unsigned levels;
    int rank;
    size_t extent[CLATTN_MAX_RANK];
    int axes; /* 0: the default, 1 */
    bool rms;
    array_form x, y;
    clattn_dtype x_type, y_type; /* 0: CLATTN_DTYPE_F32 */
    norm_factor scale, bias;
    unsigned outputs; /* NORM_MEAN, NORM_INVERSE: these too */
    bool explicit_epsilon;
    float epsilon;
    float offset, spread; /* x is uniform in offset ± spread; spread 0: 4 */
    bool long_loops;      /* a device that limits loops may refuse it: job_refused_for_loops */
    bool in_place;
    norm_factor residual; /* rank 0: none */
    bool sum;             /* sum is an output too */
    array_form sum_form;
    clattn_dtype sum_type;
    bool sum_in_place; /* sum has the residual's memory */
    bool explicit_batch;
    size_t batch;
    norm_inject inject;
    /* Backward, if there are gradients: y is then the gradient of x, and sum, an input, that of sum.  bias is the gradient of
     * bias, an output alone. */
    unsigned gradients;
    array_form dy;
    clattn_dtype dy_type; /* 0: CLATTN_DTYPE_F32 */
    norm_factor dscale;   /* its form and type; its extents are scale's */
} norm_case;

#define NORM_SOLVERS 3
extern const char *const norm_solvers[NORM_SOLVERS];

bool norm_job(test_job *job, const void *test, const char *solver);

void norm_add(const norm_case *cases, size_t count);
void norm_add_by(const char *solver, const norm_case *cases, size_t count);

#endif
