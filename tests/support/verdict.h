/* The verdict on a job: the tests' own reference for each output, and the check that all cases of an operator share. */
#ifndef TESTS_VERDICT_H
#define TESTS_VERDICT_H

#include "support/job.h"

/* What an output must hold, and what the device gave. */
typedef struct job_result {
    const char *name; /* NULL: there is no such result */
    accuracy_rule rule;
    bool exact; /* every value must be the reference itself */
    int rank;
    size_t extent[CLATTN_MAX_RANK], count;
    double *reference, *magnitude, *given;
    double *naive; /* NULL: the reference, so that nothing is granted for the errors of a naive computation */
} job_result;

/* A result of these actual extents, stored as `stored`; its reference and magnitude are zeros. */
job_result result_sized(const char *name, clattn_dtype stored, int rank, const size_t *extent);

/* The result of what array_own has declared of an output; none if the output has no memory. */
job_result result_of(const char *name, const test_array *output);

/* Fails unless r->given is what the rule allows. */
void result_judge(const job_result *r);

void result_release(job_result *r);

/* How an operator's cases are checked. */
typedef struct job_checker {
    /* Makes arrays, arguments and the plan; false if the solver refuses, which has been asserted. */
    bool (*make)(test_job *job, const void *test, const char *solver);
    /* Computes from what the inputs hold what the outputs must be; result[n] is output[n]'s. */
    void (*refer)(const test_job *job, const void *test, job_result result[JOB_OUTPUTS]);
    /* Returns what the device gave, dense.  NULL: the first elements of the output. */
    double *(*read)(const test_job *job, const void *test, int output, const job_result *result);
    /* Changes inputs for a second run and uploads them; false: there is none.  May be NULL. */
    bool (*inject)(test_job *job, const void *test);
} job_checker;

/* Makes the job, runs it and compares each output with its reference; injects and runs again: then every value whose
 * reference is the same number in both must be the same in every bit. */
void job_check(const job_checker *checker, const void *test, const char *solver);

/* Compares what the outputs hold with the reference of what the inputs hold. */
void job_judge(const job_checker *checker, const test_job *job, const void *test);

#endif
