/* Activations and their gradients as table rows. */
#ifndef TESTS_SUPPORT_OPS_ACTIVATION_CASE_H
#define TESTS_SUPPORT_OPS_ACTIVATION_CASE_H

#include "support/job.h"

/* What x holds. */
typedef enum activation_values {
    VALUES_UNIFORM, /* [−8, 8] */
    VALUES_FLOATS,  /* bit patterns spread over all floats of x's type */
    VALUES_TAILS,   /* [−110, −1] and, one in four, [1, 110] */
    VALUES_SPECIAL  /* ±0, ±inf, NaN, the largest, the smallest, and numbers beside those at which formulas change */
} activation_values;

typedef struct activation_case {
    const char *rule;
    unsigned levels;
    clattn_activation function;
    bool explicit_alpha;
    float alpha;
    int rank;
    size_t extent[CLATTN_MAX_RANK];
    array_form x, y;                            /* y: what is written, backward the gradient of x */
    clattn_dtype x_type, y_type, gradient_type; /* 0: CLATTN_DTYPE_F32 */
    activation_values values;
    bool in_place; /* backward: the gradients are one array */
    bool backward;
    array_form gradient; /* of y */
    bool explicit_batch;
    size_t batch;
} activation_case;

/* Makes arrays, arguments and the plan of a case by a solver. */
bool activation_make(test_job *job, const void *test, const char *solver);

/* The solvers' names. */
#define ACTIVATION_SOLVERS 2
extern const char *const activation_solvers[ACTIVATION_SOLVERS];

void activation_add(const activation_case *cases, size_t count);

#endif
