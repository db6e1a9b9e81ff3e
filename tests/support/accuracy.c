/* The accuracy rule for float32. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness.h"

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

size_t accuracy_find(size_t count, const double *value, const double *reference, const double *naive,
                     const double *magnitude, double *limit)
{
    double base = 2 * naive_error(count, reference, naive);

    for (size_t i = 0; i < count; i++) {
        double allowed = base + 8 * (double)FLT_EPSILON * magnitude[i];
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
        } else {
            good = fabs(value[i] - reference[i]) <= allowed; /* false for NaN */
        }
        if (!good) {
            return i;
        }
    }
    return count;
}

void accuracy_check(const char *what, int rank, const size_t *extent, const double *value,
                    const double *reference, const double *naive, const double *magnitude)
{
    size_t count = 1;
    double limit = 0;
    char where[128] = "";

    for (int d = 0; d < rank; d++) {
        count *= extent[d];
    }
    size_t bad = accuracy_find(count, value, reference, naive, magnitude, &limit);
    if (bad == count) {
        return;
    }
    for (int d = 0, length = 0; d < rank; d++) {
        size_t below = 1;

        for (int inner = d + 1; inner < rank; inner++) {
            below *= extent[inner];
        }
        length += snprintf(where + length, sizeof where - (size_t)length, "%s%zu", d ? ", " : "",
                           bad / below % extent[d]);
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
