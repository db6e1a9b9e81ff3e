/* Cross-entropy problems as table rows. */
#ifndef TESTS_SUPPORT_OPS_BACKWARD_CROSS_ENTROPY_CASE_H
#define TESTS_SUPPORT_OPS_BACKWARD_CROSS_ENTROPY_CASE_H

#include "support/job.h"

#define CROSS_ENTROPY_SOLVERS 4
extern const char *const cross_entropy_solvers[CROSS_ENTROPY_SOLVERS];

/* What x gets for a second run; rows without it must keep every bit. */
typedef enum cross_entropy_inject {
    CROSS_ENTROPY_NOTHING,
    CROSS_ENTROPY_PUT_NAN,      /* NaN in the middle of the first row */
    CROSS_ENTROPY_PUT_INF,      /* +inf there */
    CROSS_ENTROPY_PUT_LESS,     /* -inf there */
    CROSS_ENTROPY_PUT_UNLIKELY, /* -inf at the label of the first row that counts */
    CROSS_ENTROPY_PUT_EMPTY,    /* -inf all along the first row */
    CROSS_ENTROPY_PUT_LATE,     /* -inf all along the first row but its last element */
    CROSS_ENTROPY_PUT_UNUSED    /* NaN in all rows that are ignored, and beyond the actual batch */
} cross_entropy_inject;

/* Outputs. */
#define CROSS_ENTROPY_LOSS 1u
#define CROSS_ENTROPY_LSE 2u
#define CROSS_ENTROPY_GRADIENT 4u
#define CROSS_ENTROPY_EVERY (CROSS_ENTROPY_LOSS | CROSS_ENTROPY_LSE | CROSS_ENTROPY_GRADIENT)

typedef struct cross_entropy_case {
    const char *rule;
    unsigned levels;
    int rank;
    size_t extent[CLATTN_MAX_RANK];                 /* the last one is classes */
    unsigned outputs;                               /* 0: CROSS_ENTROPY_EVERY */
    array_form x, gradient, rows;                   /* rows: of labels, weights, loss and lse */
    clattn_dtype x_type, gradient_type, label_type; /* 0: float32, int32 */
    float smoothing;
    float scale; /* 0: none is given */
    bool weights;
    bool wrong;      /* some labels are ignored, some no class */
    bool pad;        /* class 0 is ignored, not -100 */
    bool ascending;  /* each logit is greater than those before it */
    float spread;    /* x is uniform in [-spread, spread]; 0: 4 */
    bool long_loops; /* a device that limits loops may refuse it: job_refused_for_loops */
    bool in_place;
    bool explicit_batch;
    size_t batch;
    cross_entropy_inject inject;
} cross_entropy_case;

bool cross_entropy_job(test_job *job, const cross_entropy_case *test, const char *solver);
void cross_entropy_add(const cross_entropy_case *cases, size_t count);

/* The loss of a row of logits, in double precision or, if `naive`, with each step rounded to float; its log-sum-exp and
 * its gradient (NULL: not wanted). */
double cross_entropy_loss(size_t classes, const double *x, size_t label, double smoothing, bool naive, double *lse,
                          double *gradient);

#endif
