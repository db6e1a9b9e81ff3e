/* Attention's backward direction on a case: the arrays and the call, and the verdict on what it writes. */
#ifndef TESTS_SUPPORT_ATTENTION_BACKWARD_JOB_H
#define TESTS_SUPPORT_ATTENTION_BACKWARD_JOB_H

#include "support/attention/backward.h"
#include "support/attention/case.h"

/* The arrays of the backward call beside the forward job's inputs.  The job's outputs are the gradients of query, key, value, mask,
 * bias, vector, slopes and sinks.  A
 * case's `entropy` stands for a gradient of the log-sum-exp, its type.scores for the type of those three, which else is the inputs'. */
struct backward_job {
    test_job job;
    const attention_case *test;
    attention_dense dense;
    size_t *queries;                                     /* of each item */
    double *output, *sums, *d_output, *d_lse, *distance; /* dense; sums: the given log-sum-exps */
    test_array given, lse, given_output, given_lse;      /* output, its log-sum-exp, and the gradients of both */
    test_array query, key, value, mask, bias, vector, alibi, sinks;
    clattn_attention_desc desc;
    clattn_dtype weights; /* what the solver rounds P and dS to; 0: nothing */
    bool by_sums;         /* weights are made by the given log-sum-exps: of more keys, or of a ring */
};

/* Makes all but the plan; `j` may not be moved before its release. */
void backward_prepare(struct backward_job *j, const attention_case *test);
void backward_release(struct backward_job *j);

/* Plans the call; false if this driver's compiler breaks the solver, which then refuses. */
bool backward_plan(struct backward_job *j, const char *solver);

/* Whether the device has a matrix engine, be it a wrong one. */
bool backward_has_engine(void);

/* What the tests' gradients are made from. */
backward_problem backward_problem_of(const struct backward_job *j);

/* The first three indices of row `row` of head h in an array of queries, or of keys; false if the item has no such row. */
bool backward_row_index(const attention_case *t, bool is_key, size_t b, size_t h, size_t row, size_t index[3]);

/* Zeros for the results of a problem, which backward_results_release frees. */
backward_result backward_results(const reference_problem *p);
void backward_results_release(backward_result *r);

/* Enqueues the call of the job's plan and waits. */
void backward_run(struct backward_job *j);

/* Reads the gradients back and compares them with the tests'. */
void backward_judge(struct backward_job *j);

#endif
