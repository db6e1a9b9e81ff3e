/* The accuracy rule. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/harness.h"

/* max |naive − reference| over what is finite in both: elsewhere the rule asks for the class. */
static double naive_error(size_t count, const double *reference, const double *naive)
{
    double worst = 0;

    for (size_t i = 0; i < count; i++) {
        if (isfinite(reference[i]) && isfinite(naive[i])) {
            worst = fmax(worst, fabs(naive[i] - reference[i]));
        }
    }
    return worst;
}

/* Mean of |value − reference|, and in *slack of what float's own rounding explains, over what is finite in both. */
static double mean_error(const accuracy_rule *rule, size_t count, const double *value, const double *reference,
                         const double *magnitude, double *slack)
{
    double total = 0;

    *slack = 0;
    for (size_t i = 0; i < count; i++) {
        if (isfinite(reference[i]) && isfinite(value[i])) {
            total += fabs(value[i] - reference[i]) / (double)count;
            *slack += 8 * rule->unit * fmax(magnitude[i], 0) / (double)count;
        }
    }
    return total;
}

size_t accuracy_find_by(const accuracy_rule *rule, size_t count, const double *value, const double *reference,
                        const double *naive, const double *magnitude, double *limit)
{
    double base = 2 * naive_error(count, reference, naive);
    double roundings = rule->roundings > 0 ? rule->roundings : 1;

    for (size_t i = 0; i < count; i++) {
        double before = base + 8 * rule->unit * magnitude[i]; /* it is stored */
        double allowed = before + roundings * storage_rounding(rule->stored, reference[i]);
        bool good;

        if (limit) {
            *limit = allowed;
        }
        if (isnan(reference[i])) {
            good = isnan(value[i]);
        } else if (isinf(reference[i])) {
            good = value[i] == reference[i];
        } else if (magnitude[i] == EXACT_ZERO) {
            good = value[i] == 0 && !signbit(value[i]);
        } else if (isinf(value[i]) && rule->stored != CLATTN_DTYPE_F32) {
            good = storage_round(rule->stored, reference[i] + copysign(before, value[i])) == value[i];
        } else {
            good = fabs(value[i] - reference[i]) <= allowed; /* false for NaN */
        }
        if (!good) {
            return i;
        }
    }
    return count;
}

size_t accuracy_find(size_t count, const double *value, const double *reference, const double *naive,
                     const double *magnitude, double *limit)
{
    return accuracy_find_stored(CLATTN_DTYPE_F32, count, value, reference, naive, magnitude, limit);
}

size_t accuracy_find_stored(clattn_dtype dtype, size_t count, const double *value, const double *reference,
                            const double *naive, const double *magnitude, double *limit)
{
    const accuracy_rule rule = {.stored = dtype, .unit = (double)FLT_EPSILON};

    return accuracy_find_by(&rule, count, value, reference, naive, magnitude, limit);
}

void accuracy_check(const char *what, int rank, const size_t *extent, const double *value, const double *reference,
                    const double *naive, const double *magnitude)
{
    accuracy_check_stored(what, CLATTN_DTYPE_F32, rank, extent, value, reference, naive, magnitude);
}

void accuracy_check_stored(const char *what, clattn_dtype dtype, int rank, const size_t *extent, const double *value,
                           const double *reference, const double *naive, const double *magnitude)
{
    const accuracy_rule rule = {.stored = dtype, .unit = (double)FLT_EPSILON};

    accuracy_check_by(&rule, what, rank, extent, value, reference, naive, magnitude);
}

static void check_mean(const accuracy_rule *rule, const char *what, size_t count, const double *value,
                       const double *reference, const double *naive, const double *magnitude)
{
    double slack, own = mean_error(rule, count, value, reference, magnitude, &slack);
    double other = mean_error(rule, count, naive, reference, magnitude, &slack);

    if (own > rule->mean * other + slack) {
        fail_msg("%s is off by %.3g on average, the naive computation by %.3g", what, own, other);
    }
}

void accuracy_check_by(const accuracy_rule *rule, const char *what, int rank, const size_t *extent, const double *value,
                       const double *reference, const double *naive, const double *magnitude)
{
    size_t count = 1;
    double limit = 0;
    char where[128] = "";

    for (int d = 0; d < rank; d++) {
        count *= extent[d];
    }
    size_t bad = accuracy_find_by(rule, count, value, reference, naive, magnitude, &limit);
    if (bad == count) {
        if (rule->mean > 0) {
            check_mean(rule, what, count, value, reference, naive, magnitude);
        }
        return;
    }
    for (int d = 0, length = 0; d < rank; d++) {
        size_t below = 1;

        for (int inner = d + 1; inner < rank; inner++) {
            below *= extent[inner];
        }
        length +=
            snprintf(where + length, sizeof where - (size_t)length, "%s%zu", d ? ", " : "", bad / below % extent[d]);
    }
    fail_msg("%s[%s] is %.9g, expected %.17g (naive %.9g); off by %.3g, allowed %.3g%s", what, where, value[bad],
             reference[bad], naive[bad], fabs(value[bad] - reference[bad]), limit,
             magnitude[bad] == EXACT_ZERO ? "; must be +0 exactly" : "");
}

void accuracy_unchanged(const char *what, size_t count, const double *reference, const double *value,
                        const double *new_reference, const double *new_value)
{
    for (size_t i = 0; i < count; i++) {
        if (reference[i] == new_reference[i] && memcmp(&value[i], &new_value[i], sizeof value[i]) != 0) {
            fail_msg("%s element %zu changed from %.9g to %.9g with inputs that it does not depend on", what, i,
                     value[i], new_value[i]);
        }
    }
}

double largest_difference(const float *got, const float *expected, size_t count)
{
    double worst = 0;
    for (size_t i = 0; i < count; i++) {
        double difference = fabs((double)got[i] - (double)expected[i]);
        if (!(difference <= worst))
            worst = isnan(difference) ? (double)INFINITY : difference;
    }
    return worst;
}
