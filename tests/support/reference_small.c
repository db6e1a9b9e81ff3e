/* The tests' own references of the small operators, written from the definitions and sharing nothing with the library. */
#include <float.h>
#include <math.h>

#include "support/harness.h"

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

/* x / (1 + e^-z) without a difference that cancels; the limit if x and z are infinite. */
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

void expected_attention(size_t heads, size_t queries, size_t keys, size_t d_k, size_t d_v, bool causal, const float *q,
                        const float *k, const float *v, float *out)
{
    double *p = malloc((keys ? keys : 1) * sizeof *p);
    assert_non_null(p);
    for (size_t row = 0; row < heads * queries; row++) {
        size_t h = row / queries, i = row % queries;
        size_t attended = causal && i + 1 < keys ? i + 1 : keys;
        double largest = -(double)INFINITY, sum = 0;
        for (size_t j = 0; j < attended; j++) {
            p[j] = 0;
            for (size_t d = 0; d < d_k; d++)
                p[j] += (double)q[row * d_k + d] * (double)k[(h * keys + j) * d_k + d];
            p[j] /= sqrt((double)d_k);
            largest = p[j] > largest ? p[j] : largest;
        }
        for (size_t j = 0; j < attended; j++)
            sum += p[j] = exp(p[j] - largest);
        for (size_t d = 0; d < d_v; d++) {
            double total = 0;
            for (size_t j = 0; j < attended; j++)
                total += p[j] * (double)v[(h * keys + j) * d_v + d];
            out[row * d_v + d] = attended ? (float)(total / sum) : 0.0f;
        }
    }
    free(p);
}

void expected_softmax(size_t rows, size_t columns, const float *x, float *y)
{
    for (size_t r = 0; r < rows; r++) {
        double largest = -(double)INFINITY, sum = 0;
        for (size_t c = 0; c < columns; c++)
            largest = (double)x[r * columns + c] > largest ? (double)x[r * columns + c] : largest;
        for (size_t c = 0; c < columns; c++)
            sum += exp((double)x[r * columns + c] - largest);
        for (size_t c = 0; c < columns; c++)
            y[r * columns + c] = (float)(exp((double)x[r * columns + c] - largest) / sum);
    }
}
