/* The accuracy rule. */
#include <float.h>
#include <math.h>

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

accuracy_rule accuracy_rule_of(clattn_dtype stored)
{
    return (accuracy_rule){.stored = stored, .unit = (double)FLT_EPSILON};
}

size_t accuracy_find(const accuracy_rule *rule, size_t count, const double *value, const double *reference,
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
            good = fabs(value[i] - reference[i]) <= allowed || /* false for NaN */
                   (fabs(reference[i]) < rule->least && value[i] == 0 && !signbit(value[i]));
        }
        if (!good) {
            return i;
        }
    }
    return count;
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
