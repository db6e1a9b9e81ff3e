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

double ref_steepness(clattn_activation function, double alpha)
{
    return function == CLATTN_ACTIVATION_LEAKY_RELU ? fmax(1.2, fabs(alpha)) : 1.2;
}
