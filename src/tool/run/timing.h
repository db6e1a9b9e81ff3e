/* Wall-clock times of repeated runs. */
#ifndef CLATTN_TOOL_RUN_TIMING_H
#define CLATTN_TOOL_RUN_TIMING_H

#include <stddef.h>

typedef struct timing {
    size_t runs;
    double min, median; /* seconds */
} timing;

typedef struct timing_rule {
    size_t repeat;  /* the number of runs; 0: the two fields below decide */
    size_t minimum; /* at least so many, */
    double budget;  /* runs continue until so many seconds have passed */
    size_t warm_up; /* runs before the first that counts */
} timing_rule;

/* Calls `run` as `rule` says and reduces the times of the calls.  `run` returns an exit status; the first
 * that is not TOOL_DONE ends it and is returned. */
int timing_measure(const timing_rule *rule, const char *label, int (*run)(void *user), void *user, timing *result);

/* Sorts `seconds` and reduces them; `count` is at least 1. */
timing timing_reduce(double *seconds, size_t count);

#endif
