/* The tests' own gradients of attention: the definition by the chain rule, everything dense, sharing nothing with the library. */
#ifndef TESTS_SUPPORT_ATTENTION_BACKWARD_H
#define TESTS_SUPPORT_ATTENTION_BACKWARD_H

#include "support/reference.h"

/* What a gradient is made of besides the forward problem. */
typedef struct backward_problem {
    const reference_problem *forward;
    const double *output;   /* (b, h, i, d_v): the forward result that the library is given */
    const double *d_output; /* (b, h, i, d_v) */
    const double *d_lse;    /* (b, h, i), or NULL */
    const double *distance; /* (b, h, i, j): |p - j|, or NULL */
    const size_t *queries;  /* (b): each item's; rows behind them have no gradient */
    const double *lse;      /* (b, h, i): what the naive computation has its weights by, or NULL: its own sums */
    clattn_dtype weights;   /* what the naive computation rounds P and dS to before their products; 0: nothing */
} backward_problem;

enum { BY_QUERY, BY_KEY, BY_VALUE, BY_PAIR, BY_VECTOR, BY_SLOPE, BY_SINK, BACKWARD_RESULTS };

/* Each (b, h, i, d_k), (b, kv_heads, j, d_k), (b, kv_heads, j, d_v), (b, h, i, j), (h, d_k), (b, h), (h); none NULL. */
typedef struct backward_result {
    double *value[BACKWARD_RESULTS], *magnitude[BACKWARD_RESULTS];
} backward_result;

size_t backward_count(const reference_problem *p, int which);

/* Fills the results, which are zeros before. `narrow`: every operation is rounded to float (with `wide` double), and unless
 * there is `lse` the sum of P dP takes the place of delta, as a plain backward pass has it. */
void reference_backward(const backward_problem *problem, bool narrow, const backward_result *result);

#endif
