/* The accuracy rule of docs/numerics.md. */
#ifndef TESTS_ACCURACY_H
#define TESTS_ACCURACY_H

#include "support/check.h"
#include "support/storage.h"

/* For every i: NaN where reference is NaN and nowhere else; the same Inf; +0 in every bit where magnitude is
 * EXACT_ZERO; otherwise |value − reference| <= 2 max|naive − reference| + 8 u magnitude, u = 2^-23.  The
 * maximum is over the whole array.  Returns the first index that breaks the rule, or `count`; *limit
 * (may be NULL) is what was allowed there. */
size_t accuracy_find(size_t count, const double *value, const double *reference, const double *naive,
                     const double *magnitude, double *limit);

/* The same for values that were stored as `dtype`: naive is still what float arithmetic gives before it is stored, so
 * that each element is allowed one rounding to its type and nothing more.  Where that overflows, Inf is right. */
size_t accuracy_find_stored(clattn_dtype dtype, size_t count, const double *value, const double *reference,
                            const double *naive, const double *magnitude, double *limit);

/* Asserts it; `what` and the index in terms of `extent` are printed if it fails. */
void accuracy_check(const char *what, int rank, const size_t *extent, const double *value, const double *reference,
                    const double *naive, const double *magnitude);
void accuracy_check_stored(const char *what, clattn_dtype dtype, int rank, const size_t *extent, const double *value,
                           const double *reference, const double *naive, const double *magnitude);

/* The rule with everything that may differ.  float64 has a `unit` of 2^-52.  For 16-bit storage (numerics.md) naive
 * comes rounded as it is stored, two roundings are allowed, and the mean error is at most `mean` times naive's. */
typedef struct accuracy_rule {
    clattn_dtype stored;
    double unit;
    double roundings; /* 0: 1 */
    double mean;      /* 0: any */
} accuracy_rule;

size_t accuracy_find_by(const accuracy_rule *rule, size_t count, const double *value, const double *reference,
                        const double *naive, const double *magnitude, double *limit);
void accuracy_check_by(const accuracy_rule *rule, const char *what, int rank, const size_t *extent, const double *value,
                       const double *reference, const double *naive, const double *magnitude);

/* Asserts that of two runs every value whose reference is the same number in both is the same in every bit. */
void accuracy_unchanged(const char *what, size_t count, const double *reference, const double *value,
                        const double *new_reference, const double *new_value);

/* Largest absolute difference; NaN counts as infinite. */
double largest_difference(const float *got, const float *expected, size_t count);

#endif
