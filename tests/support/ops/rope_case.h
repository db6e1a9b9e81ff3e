/* Rotary position embedding and its gradient as table rows. */
#ifndef TESTS_SUPPORT_OPS_ROPE_CASE_H
#define TESTS_SUPPORT_OPS_ROPE_CASE_H

#include "support/job.h"

typedef enum rope_angles {
    ANGLES_COMPUTED,
    ANGLES_TABLE, /* caches of 97 rows, by position */
    ANGLES_PLACE, /* caches with a row for each (b, s) */
    ANGLES_SHARED /* caches with a row for each s */
} rope_angles;

typedef enum rope_where {
    WHERE_COUNTED,          /* 0, 1, 2, … and the enqueue's position */
    WHERE_POSITIONS,        /* (batch, length) */
    WHERE_SHARED_POSITIONS, /* (1, length) */
    WHERE_OFFSETS           /* (batch) */
} rope_where;

typedef struct rope_case {
    const char *rule;
    unsigned levels;
    size_t batch, heads, length, size;
    bool interleaved;
    size_t rotary; /* 0: all */
    float base;    /* 0: 10000 */
    rope_angles angles;
    rope_where where;
    int64_t position;                        /* position passed at enqueue */
    int64_t low, high;                       /* range of positions or offsets; both 0: 0 … 96 − length */
    clattn_dtype x_type, y_type, cache_type; /* 0: CLATTN_DTYPE_F32 */
    clattn_dtype index_type;                 /* 0: CLATTN_DTYPE_I32 */
    array_form x, y, cache;
    bool in_place;
    bool backward; /* x is the gradient of y, and y the gradient of x */
    bool explicit_lengths;
    size_t actual_batch, actual_length;
    bool inject; /* runs once more with NaN in one element, and NaN, Inf beyond the actual lengths */
} rope_case;

/* Makes arrays, arguments and the plan of a case by a solver. */
bool rope_make(test_job *job, const void *test, const char *solver);

/* The solvers' names. */
#define ROPE_SOLVERS 2
extern const char *const rope_solvers[ROPE_SOLVERS];

void rope_add(const rope_case *cases, size_t count);

#endif
