/* Applies the rule of numerics.md to the results of several operators: the library's errors against the naive
 * computation's. */
#ifndef TESTS_SUPPORT_NN_JUDGE_H
#define TESTS_SUPPORT_NN_JUDGE_H

#include <stddef.h>
#include <stdint.h>

#include <clattn/dtype.h>

/* Errors so far; begins zeroed. */
typedef struct nn_judgement {
    struct nn_errors {
        double largest, sum;
    } ours, naive;
    double rounding; /* the output's largest rounding error */
    size_t count;
} nn_judgement;

/* Adds one number of an output of type `dtype`; NaN counts as infinitely wrong. */
void nn_judge(nn_judgement *j, clattn_dtype dtype, double ours, double naive, double reference);

/* Fails the test, which is about `what`, unless the largest and the mean error keep the rule; prints them. */
void nn_judgement_assert(const nn_judgement *j, const char *what);

#endif
