/* The accuracy rule of docs/numerics.md. */
#ifndef TESTS_ACCURACY_H
#define TESTS_ACCURACY_H

#include "support/check.h"
#include "support/storage.h"

/* What may differ from one result to another.  float64 has a `unit` of 2^-52.  For 16-bit storage (numerics.md) naive
 * comes rounded as it is stored, two roundings are allowed, and the mean error is at most `mean` times naive's. */
typedef struct accuracy_rule {
    clattn_dtype stored;
    double unit;
    double roundings; /* 0: 1 */
    double mean;      /* 0: any */
    double least;     /* results whose magnitude is smaller may also be +0 */
} accuracy_rule;

/* The rule for values that float32 arithmetic computes and that are stored as `stored`. */
accuracy_rule accuracy_rule_of(clattn_dtype stored);

/* Finds where the rule is broken, which says for every i: NaN where reference is NaN and nowhere else; the same Inf; +0 in every bit where magnitude is
 * EXACT_ZERO; otherwise |value − reference| <= 2 max|naive − reference| + 8 u magnitude, u = 2^-23.  The
 * maximum is over the whole array.  Of 16-bit values naive is what float arithmetic gives before it is stored, so that
 * each element is allowed one rounding to its type and nothing more; where that overflows, Inf is right.  Returns the
 * first index that breaks the rule, or `count`; *limit (may be NULL) is what was allowed there. */
size_t accuracy_find(const accuracy_rule *rule, size_t count, const double *value, const double *reference,
                     const double *naive, const double *magnitude, double *limit);

/* Largest absolute difference; NaN counts as infinite. */
double largest_difference(const float *got, const float *expected, size_t count);

#endif
