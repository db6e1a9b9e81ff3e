/* The tests' own reference, written from the definitions and sharing nothing with the library.
 *
 * The same code gives both the reference and the naive float computation: rounding the double result of one
 * addition, product or quotient of floats to float gives exactly what float arithmetic does (a double
 * has more than twice the digits), so "narrow" only adds roundings. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "support/harness.h"

static double rounded(double x, bool narrow)
{
    return narrow ? (double)(float)x : x;
}

static double dot(size_t n, const double *x, const double *y, size_t y_step, bool narrow)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        sum = rounded(sum + rounded(x[i] * y[i * y_step], narrow), narrow);
    }
    return sum;
}

/* Turns scores into exp(score − maximum) in place and returns their sum, whose NaN is the row's.  −inf gives 0. */
static double exponentials(size_t n, double *score, double *maximum, bool narrow)
{
    double sum = 0;

    *maximum = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        *maximum = score[i] > *maximum ? score[i] : *maximum; /* a NaN is met again in the sum */
    }
    for (size_t i = 0; i < n; i++) {
        score[i] = rounded(exp(rounded(score[i] - *maximum, narrow)), narrow);
        sum = rounded(sum + score[i], narrow);
    }
    return sum;
}

double reference_mask(const test_array *mask, int rank, const size_t *index)
{
    const clattn_layout *layout = &mask->layout;
    size_t at[CLATTN_MAX_RANK] = {0};
    int skip = rank - layout->rank;

    for (int d = 0; d < layout->rank; d++) {
        if (layout->extent[d] != 1) {
            at[d] = index[d + skip];
        }
        if (at[d] >= layout->extent[d]) {
            return -INFINITY; /* fewer keys than there are: the rest is not attended */
        }
    }
    double value = array_get(mask, at);
    return layout->dtype == CLATTN_DTYPE_BOOL ? (value != 0 ? 0 : -INFINITY) : value;
}

double *reference_addend(const test_array *mask, bool causal, int64_t position, size_t batch, size_t heads,
                         size_t queries, size_t keys)
{
    const size_t extent[4] = {batch, heads, queries, keys}, count = batch * heads * queries * keys;
    bool masked = mask && mask->memory;
    double *addend = masked || causal ? zeros(count) : NULL;
    size_t index[4] = {0};

    for (size_t n = 0; n < count && addend; n++) {
        bool ahead = causal && (int64_t)index[3] - (int64_t)index[2] > position;
        addend[n] = ahead ? -INFINITY : masked ? reference_mask(mask, 4, index) : 0;
        array_next(4, extent, index);
    }
    return addend;
}

void reference_matmul(size_t m, size_t n, size_t k, const double *a, const double *b, size_t b_row, size_t b_col,
                      const double *bias, bool narrow, double *c, double *magnitude)
{
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            double sum = dot(k, a + i * k, b + j * b_col, b_row, narrow);
            c[i * n + j] = bias ? rounded(sum + bias[j], narrow) : sum;
            if (magnitude) {
                double total = bias ? fabs(bias[j]) : 0;
                for (size_t x = 0; x < k; x++) {
                    total += fabs(a[i * k + x] * b[x * b_row + j * b_col]);
                }
                magnitude[i * n + j] = total;
            }
        }
    }
}

void reference_softmax(size_t columns, double scale, const double *x, const double *addend, bool narrow, double *y,
                       double *magnitude)
{
    double *score = zeros(columns), maximum;
    size_t count = 0;

    for (size_t j = 0; j < columns; j++) {
        if (!addend || addend[j] != -INFINITY) {
            double s = rounded(scale * x[j], narrow);
            score[count++] = addend ? rounded(s + addend[j], narrow) : s;
        }
    }
    double sum = exponentials(count, score, &maximum, narrow);
    count = 0;
    for (size_t j = 0; j < columns; j++) {
        bool attended = !addend || addend[j] != -INFINITY;
        y[j] = attended ? rounded(score[count++] / sum, narrow) : 0;
        if (magnitude) {
            magnitude[j] = attended ? y[j] : EXACT_ZERO;
        }
    }
    free(score);
}

void reference_softmax_backward(size_t columns, double scale, const double *y, const double *dy, const double *addend,
                                bool narrow, double *dx, double *magnitude)
{
    double sum = 0, absolute = 0;

    for (size_t j = 0; j < columns; j++) {
        if (!addend || addend[j] != -INFINITY) {
            sum = rounded(sum + rounded(y[j] * dy[j], narrow), narrow);
            absolute += fabs(y[j] * dy[j]);
        }
    }
    for (size_t j = 0; j < columns; j++) {
        bool attended = !addend || addend[j] != -INFINITY;
        double factor = rounded(scale * y[j], narrow);
        dx[j] = attended ? rounded(factor * rounded(dy[j] - sum, narrow), narrow) : 0;
        if (magnitude) {
            magnitude[j] = attended ? fabs(factor) * (fabs(dy[j]) + absolute) : EXACT_ZERO;
        }
    }
}

/* ---- the small operators ---- */

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

void reference_norm_backward(size_t elements, bool rms, double epsilon, const double *x, const double *scale,
                             const double *dy, const double *dsum, double *dx, double *magnitude, double *dscale,
                             double *scale_magnitude)
{
    double n = (double)elements, mean, factor, sum_g = 0, sum_gn = 0, absolute_g = 0, absolute_gn = 0;
    double *normal = dscale, *size = scale_magnitude, *g = zeros(elements);

    reference_norm(elements, rms, epsilon, x, NULL, NULL, normal, size, &mean, &factor);
    for (size_t i = 0; i < elements; i++) {
        g[i] = scale ? dy[i] * scale[i] : dy[i];
        sum_g += rms ? 0 : g[i];
        sum_gn += g[i] * normal[i];
        absolute_g += fabs(g[i]);
        absolute_gn += fabs(g[i]) * size[i];
    }
    for (size_t i = 0; i < elements; i++) {
        dx[i] = factor * (g[i] - sum_g / n - normal[i] * (sum_gn / n)) + (dsum ? dsum[i] : 0);
        magnitude[i] =
            fabs(factor) * (fabs(g[i]) + absolute_g / n + size[i] * absolute_gn / n) + (dsum ? fabs(dsum[i]) : 0);
    }
    for (size_t i = 0; i < elements; i++) {
        dscale[i] = dy[i] * normal[i];
        scale_magnitude[i] = fabs(dy[i]) * size[i];
    }
    free(g);
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
    case CLATTN_ACTIVATION_LEAKY_RELU: return x >= 0 || isnan(x) ? x : x * alpha;
    default: fail_msg("no such activation: %d", (int)function);
    }
    return 0;
}

/* d/dx x / (1 + e^-z), where w is x dz/dx; the limit if z is infinite. */
static double gated_slope(double w, double z, double *magnitude)
{
    const double gate = gated(1, z), second = isinf(z) ? 0 : gated(gated(w, z), -z);

    *magnitude = gate + fabs(second);
    return gate + second;
}

double reference_activation_slope(clattn_activation function, double alpha, double x, double *magnitude)
{
    const double pi = acos(-1), z = alpha == 0 ? 0 : alpha * x, cube = 0.044715 * x * x * x;
    double slope = function == CLATTN_ACTIVATION_RELU ? 0 : alpha, density;

    switch (function) {
    case CLATTN_ACTIVATION_NONE: return *magnitude = 1;
    case CLATTN_ACTIVATION_GELU:
        density = isinf(x) ? 0 : x * exp(-x * x / 2) / sqrt(2 * pi);
        *magnitude = erfc(-x / sqrt(2)) / 2 + fabs(density);
        return erfc(-x / sqrt(2)) / 2 + density;
    case CLATTN_ACTIVATION_GELU_TANH:
        return gated_slope(2 * sqrt(2 / pi) * (x + 3 * cube), 2 * sqrt(2 / pi) * (x + cube), magnitude);
    case CLATTN_ACTIVATION_SWISH: return gated_slope(z, z, magnitude);
    default:
        slope = isnan(x) ? x : x > 0 ? 1 : slope;
        *magnitude = fabs(slope);
        return slope;
    }
}

double reference_alpha(clattn_activation function, bool is_explicit, float alpha)
{
    const float own = function == CLATTN_ACTIVATION_LEAKY_RELU ? 0.01f : 1;

    return (double)(is_explicit ? alpha : own);
}

double reference_steepness(clattn_activation function, double alpha)
{
    return function == CLATTN_ACTIVATION_LEAKY_RELU && fabs(alpha) > 1.2 ? fabs(alpha) : 1.2;
}

/* ---- contiguous float32 arrays ---- */

static double *widened(size_t count, const float *values)
{
    double *made = zeros(count);

    for (size_t i = 0; i < count; i++) {
        made[i] = (double)values[i];
    }
    return made;
}

static void narrow_into(float *out, size_t count, double *values)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = (float)values[i];
    }
    free(values);
}

void expected_attention(size_t heads, size_t queries, size_t keys, size_t d_k, size_t d_v, bool causal, const float *q,
                        const float *k, const float *v, float *out)
{
    double *query = widened(heads * queries * d_k, q), *key = widened(heads * keys * d_k, k);
    double *value = widened(heads * keys * d_v, v), *output = zeros(heads * queries * d_v);
    double *addend = reference_addend(NULL, causal, 0, 1, heads, queries, keys);
    const reference_problem problem = {.batch = 1,
                                       .heads = heads,
                                       .kv_heads = heads,
                                       .queries = queries,
                                       .keys = keys,
                                       .d_k = d_k,
                                       .d_v = d_v,
                                       .scale = 1 / sqrt((double)d_k),
                                       .query = query,
                                       .key = key,
                                       .value = value,
                                       .addend = addend};

    reference_attention(&problem, false, &(reference_result){.output = output});
    narrow_into(out, heads * queries * d_v, output);
    free(query);
    free(key);
    free(value);
    free(addend);
}

void expected_softmax(size_t rows, size_t columns, const float *x, float *y)
{
    double *wide = widened(rows * columns, x), *output = zeros(rows * columns);

    for (size_t r = 0; r < rows; r++) {
        reference_softmax(columns, 1, wide + r * columns, NULL, false, output + r * columns, NULL);
    }
    narrow_into(y, rows * columns, output);
    free(wide);
}
