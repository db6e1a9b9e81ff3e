/* Softmax problems and their gradients as table rows. */
#ifndef TESTS_SUPPORT_OPS_SOFTMAX_CASE_H
#define TESTS_SUPPORT_OPS_SOFTMAX_CASE_H

#include "support/job.h"

#define SOFTMAX_SOLVERS 3
extern const char *const softmax_solvers[SOFTMAX_SOLVERS];

/* What x gets for a second run; rows without it must keep every bit. */
typedef enum softmax_inject {
    SOFTMAX_NOTHING,
    SOFTMAX_NAN,        /* NaN in the middle of the first row */
    SOFTMAX_INF,        /* +inf there */
    SOFTMAX_MINUS_INF,  /* −inf there: a probability of 0 */
    SOFTMAX_EMPTY,      /* −inf all along the first row */
    SOFTMAX_NAN_RESULT, /* backward: NaN there in forward's result */
    SOFTMAX_MASKED      /* NaN, Inf and large numbers wherever the mask excludes, and beyond the actual batch */
} softmax_inject;

typedef struct softmax_case {
    const char *rule;
    unsigned levels;
    int rank;
    size_t extent[CLATTN_MAX_RANK];
    array_form x, y, mask_form;
    clattn_dtype x_type, y_type; /* 0: CLATTN_DTYPE_F32 */
    mask_kind mask;
    int mask_rank;
    size_t mask_extent[CLATTN_MAX_RANK];
    bool scaled;
    float scale;
    float spread;    /* x is uniform in [−spread, spread]; 0: 4 */
    bool long_loops; /* a device that limits loops may refuse it: job_refused_for_loops */
    bool in_place;
    bool backward;            /* x is the gradient of y, and y the gradient of x */
    array_form result;        /* backward: forward's result */
    clattn_dtype result_type; /* 0: CLATTN_DTYPE_F32 */
    bool in_result;           /* backward: y takes the place of forward's result */
    bool explicit_batch;
    size_t batch;
    softmax_inject inject;
} softmax_case;

bool softmax_job(test_job *job, const softmax_case *test, const char *solver, uint64_t salt);
void softmax_add(const softmax_case *cases, size_t count);
void softmax_add_by(const char *solver, const softmax_case *cases, size_t count);

#endif
