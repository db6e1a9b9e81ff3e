#include "ref/ref.h"

#include <math.h>

#define TWO_ROOT_2_OVER_PI 1.5957691216057308

/* x / (1 + e^-v), also if x and v are infinite. */
static double times_sigmoid(double x, double v)
{
    return v == -INFINITY ? 0.0 : v < 0.0 ? x * exp(v) / (1.0 + exp(v)) : x / (1.0 + exp(-v));
}

double ref_activate(clattn_activation function, double alpha, double x)
{
    switch (function) {
    case CLATTN_ACTIVATION_NONE: return x;
    case CLATTN_ACTIVATION_RELU: return x < 0.0 ? 0.0 : x;
    case CLATTN_ACTIVATION_GELU: return x == -INFINITY ? 0.0 : 0.5 * x * erfc(-x * sqrt(0.5));
    case CLATTN_ACTIVATION_GELU_TANH: return times_sigmoid(x, TWO_ROOT_2_OVER_PI * (x + 0.044715 * x * x * x));
    case CLATTN_ACTIVATION_SWISH: return times_sigmoid(x, alpha == 0.0 ? 0.0 : alpha * x);
    case CLATTN_ACTIVATION_LEAKY_RELU: return x < 0.0 ? alpha * x : x;
    default: return NAN;
    }
}

/* s + w s (1 - s) with s = 1 / (1 + e^-v), also if v and w are infinite. */
static double sigmoid_slope(double w, double v, double *magnitude)
{
    const double sigmoid = times_sigmoid(1.0, v), bend = isinf(v) ? 0.0 : times_sigmoid(w, v) * times_sigmoid(1.0, -v);
    *magnitude = sigmoid + fabs(bend);
    return sigmoid + bend;
}

double ref_activation_slope(clattn_activation function, double alpha, double x, double *magnitude)
{
    double first, second = 0.0;
    switch (function) {
    case CLATTN_ACTIVATION_NONE: first = 1.0; break;
    case CLATTN_ACTIVATION_RELU: first = isnan(x) ? x : x > 0.0; break;
    case CLATTN_ACTIVATION_LEAKY_RELU: first = isnan(x) ? x : x > 0.0 ? 1.0 : alpha; break;
    case CLATTN_ACTIVATION_GELU:
        first = 0.5 * erfc(-x * sqrt(0.5));
        second = isinf(x) ? 0.0 : x * exp(-0.5 * x * x) * TWO_ROOT_2_OVER_PI / 4.0; /* 1 / sqrt(2 pi) */
        break;
    case CLATTN_ACTIVATION_GELU_TANH:
        return sigmoid_slope(TWO_ROOT_2_OVER_PI * (x + 3 * 0.044715 * x * x * x),
                             TWO_ROOT_2_OVER_PI * (x + 0.044715 * x * x * x), magnitude);
    case CLATTN_ACTIVATION_SWISH:
        return sigmoid_slope(alpha == 0.0 ? 0.0 : alpha * x, alpha == 0.0 ? 0.0 : alpha * x, magnitude);
    default: first = NAN;
    }
    *magnitude = fabs(first) + fabs(second);
    return first + second;
}

double ref_steepness(clattn_activation function, double alpha)
{
    return function == CLATTN_ACTIVATION_LEAKY_RELU ? fmax(1.2, fabs(alpha)) : 1.2;
}
