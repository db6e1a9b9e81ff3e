/* Normalisation problems as table rows. */
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
} norm_case;

void norm_add(const norm_case *cases, size_t count);
void norm_add_by(const char *solver, const norm_case *cases, size_t count);

#endif
