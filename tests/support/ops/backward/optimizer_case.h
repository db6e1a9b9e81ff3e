/* Steps of Adam and sums of squares as table rows. */
#ifndef TESTS_SUPPORT_OPS_BACKWARD_OPTIMIZER_CASE_H
#define TESTS_SUPPORT_OPS_BACKWARD_OPTIMIZER_CASE_H

#include "support/job.h"

typedef struct adam_case {
    const char *rule;
    unsigned levels;
    size_t count;
    clattn_dtype gradient, stored; /* 0: float32, and none */
    double learning_rate, weight_decay, gradient_scale;
    int64_t step;
    bool decoupled;
    bool explicit_betas, explicit_epsilon;
    double beta1, beta2, epsilon;
    bool squares; /* with the value of that name below */
    float sum;
    double clip_norm;
    bool special; /* some gradients are NaN or infinite */
} adam_case;

typedef struct square_sum_case {
    const char *rule;
    unsigned levels;
    size_t count;
    clattn_dtype type;
    float low, high; /* of the elements; 0, 0: -1 to 1 */
    bool accumulate;
    float special; /* what the last element is, if it is not 0 */
} square_sum_case;

void adam_add(const adam_case *cases, size_t count);
void square_sum_add(const square_sum_case *cases, size_t count);

#endif
