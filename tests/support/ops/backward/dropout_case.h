/* Dropout and its gradient as table rows. */
#ifndef TESTS_SUPPORT_OPS_DROPOUT_CASE_H
#define TESTS_SUPPORT_OPS_DROPOUT_CASE_H

#include "support/job.h"

/* Which input the output takes the place of. */
typedef enum dropout_place { PLACE_OWN, PLACE_X, PLACE_RESIDUAL } dropout_place;

typedef struct dropout_case {
    const char *rule;
    unsigned levels;
    float probability;
    int rank;
    size_t extent[CLATTN_MAX_RANK];
    bool backward;                              /* x and y are then the gradients of y and x */
    bool add;                                   /* there is a residual */
    array_form x, residual, y;                  /* y: what is written */
    clattn_dtype x_type, residual_type, y_type; /* 0: CLATTN_DTYPE_F32 */
    dropout_place in_place;
    bool special; /* x holds NaN and infinities, too */
    bool explicit_batch;
    size_t batch;
} dropout_case;

/* Makes arrays, arguments and the plan of a case by a solver: input[0] is x, input[1] the residual. */
bool dropout_make(test_job *job, const void *test, const char *solver);

/* Whether the element at a place in C order is kept, by the tests' own generator. */
bool dropout_keeps(const clattn_dropout_args *args, float probability, uint64_t place);

/* The solvers' names. */
#define DROPOUT_SOLVERS 2
extern const char *const dropout_solvers[DROPOUT_SOLVERS];

void dropout_add(const dropout_case *cases, size_t count);

#endif
