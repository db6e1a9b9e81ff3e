/* The tests' own references of the small operators, written from the definitions and sharing nothing with the library. */
#include <float.h>
#include <math.h>

#include "harness.h"

void reference_norm(size_t elements, bool rms, double epsilon, const double *x, const double *scale, const double *bias,
                    double *y, double *magnitude, double *mean, double *factor)
{
    double n = (double)elements, sum = 0, lost = 0, square = 0, spread = 0;

    for (size_t i = 0; i < elements; i++) {
        sum += x[i];
    }
    *mean = rms ? 0 : sum / n;
    for (size_t i = 0; i < elements && !rms; i++) {
        lost += x[i] - *mean; /* a large offset's rounding, in double too */
    }
    *mean += lost / n;
    for (size_t i = 0; i < elements; i++) {
        y[i] = x[i] - *mean;
        square += y[i] * y[i];
        spread += rms ? 0 : fabs(y[i]);
    }
    *factor = square <= FLT_MAX && fabs(sum) <= FLT_MAX ? 1 / sqrt(square / n + epsilon) : NAN;
    for (size_t i = 0; i < elements; i++) {
        double s = scale ? scale[i] : 1, b = bias ? bias[i] : 0;
        magnitude[i] = (fabs(y[i]) + spread / n) * *factor * fabs(s) + fabs(b);
        y[i] = y[i] * *factor * s + b;
    }
}

void reference_rope(size_t size, size_t rotary, bool interleaved, double base, const double *cosines,
                    const double *sines, double position, const double *x, double *y, double *magnitude)
{
    size_t half = rotary / 2;

    for (size_t d = 0; d < size; d++) {
        y[d] = x[d];
        magnitude[d] = 0;
    }
    for (size_t d = 0; d < rotary; d++) {
        bool second = interleaved ? d % 2 : d >= half;
        size_t i = interleaved ? d / 2 : d % half;
        size_t partner = interleaved ? d ^ 1 : second ? d - half : d + half;
        long double angle =
            (long double)position * powl((long double)base, -2.0L * (long double)i / (long double)rotary);
        double c = cosines ? cosines[i] : (double)cosl(angle), s = sines ? sines[i] : (double)sinl(angle);
        y[d] = x[d] * c + (second ? x[partner] : -x[partner]) * s;
        magnitude[d] = (fabs(x[d]) + fabs(x[partner])) / 2;
    }
}

/* x / (1 + e^-z) without a difference that cancels; the limit where x and z are infinite. */
static double gated(double x, double z)
{
    if (z == -INFINITY) {
        return 0;
    }
    return z > 0 ? x / (exp(-z) + 1) : x * (1 / (exp(-z) + 1));
}

double reference_activation(clattn_activation function, double alpha, double x)
{
    const double pi = acos(-1);

    switch (function) {
    case CLATTN_ACTIVATION_NONE: return x;
    case CLATTN_ACTIVATION_RELU: return isnan(x) ? x : fmax(x, 0);
    case CLATTN_ACTIVATION_GELU: return x == -INFINITY ? 0 : x * erfc(-x / sqrt(2)) / 2;
    /* (1 + tanh u) / 2 = 1 / (1 + e^-2u) */
    case CLATTN_ACTIVATION_GELU_TANH: return gated(x, 2 * sqrt(2 / pi) * (x + 0.044715 * x * x * x));
    case CLATTN_ACTIVATION_SWISH: return gated(x, alpha == 0 ? 0 : alpha * x);
    default: fail_msg("no such activation: %d", (int)function);
    }
    return 0;
}
