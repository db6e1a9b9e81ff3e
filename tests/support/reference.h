/* The tests' own computation of every operator, in double precision; it shares no code with the library. */
#ifndef TESTS_REFERENCE_H
#define TESTS_REFERENCE_H

#include "support/array.h"
#include "support/attention/philox.h"

/* Everything is dense and row-major.  `narrow`: every operation is rounded to float, which is the naive computation
 * of the accuracy rule; otherwise exact to all purposes. */

/* A result that must be +0 in every bit has this magnitude. */
#define EXACT_ZERO (-1.0)

/* What a user's function is told of the pair that it is called for. */
typedef struct reference_pair {
    size_t b, h, i, j;
} reference_pair;

typedef struct reference_problem {
    size_t batch, heads, kv_heads, queries, keys, d_k, d_v;
    double scale;
    const double *query, *key, *value;
    const double *addend; /* (batch, heads, queries, keys): added to the score, −inf: not attended; or NULL */
    /* The following members are 0 or NULL if the problem has no such thing. */
    const double *vector; /* (heads, d_k): additive attention */
    double softcap;
    double (*modify)(void *context, double score, const reference_pair *pair); /* after the softcap */
    double (*derive)(void *context, double score, const reference_pair *pair); /* modify's derivative, for backward */
    void *context;
    const double *bias;  /* as addend, added before it */
    const double *alibi; /* (batch, heads, queries, keys): subtracted after the bias */
    const double *sinks; /* (heads) */
    const bool *kept;    /* (batch, heads, queries, keys): the keys whose probabilities dropout leaves */
    double dropout;
    clattn_dtype weights; /* what the naive computation rounds the probabilities to before the product with V */
    bool wide;            /* float64 arrays: narrow is double */
} reference_problem;

/* Fills those of output (b, h, i, d_v), lse (b, h, i), weights (b, h, i, j) that are not NULL; magnitude, as output, is
 * sum_j p_j |v_j|, or EXACT_ZERO in a row that attends nothing; weights of keys that are not attended
 * are EXACT_ZERO in `weights_magnitude` and themselves elsewhere.  In a row whose log-sum-exp is NaN all weights are.
 * entropy (b, h, i); raw, capped and biased (b, h, i, j) are the scores of all keys, biased ones −inf where a key is not
 * attended, and scores_magnitude what the sums of `raw` are made of. */
typedef struct reference_result {
    double *output, *magnitude, *lse, *weights, *weights_magnitude;
    double *entropy, *raw, *capped, *biased, *scores_magnitude;
} reference_result;

void reference_attention(const reference_problem *problem, bool narrow, const reference_result *result);

/* What a mask adds at index[rank] of what it masks: its value, 0 or −inf; −inf beyond its last key. */
double reference_mask(const test_array *mask, int rank, const size_t *index);

/* The addend that a mask (array without memory: none), causality and the mask's missing keys make together;
 * (batch, heads, queries, keys), to be freed; NULL when there is nothing to add. */
double *reference_addend(const test_array *mask, bool causal, int64_t position, size_t batch, size_t heads,
                         size_t queries, size_t keys);

/* C = A B + bias, A (m, k), B (k, n) with element (x, j) at b[x*b_row + j*b_col]; bias (n) or NULL; magnitude, sum |a||b| +
 * |bias|, may be NULL. */
void reference_matmul(size_t m, size_t n, size_t k, const double *a, const double *b, size_t b_row, size_t b_col,
                      const double *bias, bool narrow, double *c, double *magnitude);

/* One row; addend as above or NULL.  With an addend a row that attends nothing is +0; without one it is NaN. */
void reference_softmax(size_t columns, double scale, const double *x, const double *addend, bool narrow, double *y,
                       double *magnitude);

/* One row of softmax's gradient, of forward's result y and its gradient dy; with an addend, as above, what is not attended is
 * +0.  magnitude is |scale y| (|dy| + sum |y dy|). */
void reference_softmax_backward(size_t columns, double scale, const double *y, const double *dy, const double *addend,
                                bool narrow, double *dx, double *magnitude);

/* ---- references of the small operators, in double only ---- */

/* One row of LayerNorm or RMSNorm; scale and bias (as many elements as x) may be NULL.  magnitude is
 * (|x − mean| + mean |x − mean|) · |factor · scale| + |bias|; *factor is 1 / sqrt(mean((x − mean)²) + epsilon).  A
 * row whose sum of squares float32 does not hold is NaN. */
void reference_norm(size_t elements, bool rms, double epsilon, const double *x, const double *scale, const double *bias,
                    double *y, double *magnitude, double *mean, double *factor);

/* One row of the gradients of LayerNorm or RMSNorm: dx of dy and dsum (NULL: none), and the row's terms of scale's gradient.
 * With n^ = (|x − mean| + mean |x − mean|) · |factor| and g = dy · scale, magnitudes are |factor| · (|g| + mean |g| + n^ · mean
 * (|g| · n^)) + |dsum| and |dy| · n^. */
void reference_norm_backward(size_t elements, bool rms, double epsilon, const double *x, const double *scale,
                             const double *dy, const double *dsum, double *dx, double *magnitude, double *dscale,
                             double *scale_magnitude);

/* One head of rotary position embedding; cosines and sines (rotary / 2 each) may be NULL: computed in long double, of
 * position · base^(−2i/rotary).  magnitude is (|x1| + |x2|) / 2, half of what a rotated element is made of, so that the
 * rule grants 4 u of it; 0 where x is only copied. */
void reference_rope(size_t size, size_t rotary, bool interleaved, double base, const double *cosines,
                    const double *sines, double position, const double *x, double *y, double *magnitude);

/* One element of an activation; alpha is CLATTN_ACTIVATION_SWISH's or CLATTN_ACTIVATION_LEAKY_RELU's. */
double reference_activation(clattn_activation function, double alpha, double x);

/* Its derivative; magnitude is the sum of the sizes of the derivative's terms. */
double reference_activation_slope(clattn_activation function, double alpha, double x, double *magnitude);

/* The alpha that counts: `alpha`, or the function's own. */
double reference_alpha(clattn_activation function, bool is_explicit, float alpha);

/* How many times as large an activation may make the error of a sum. */
double reference_steepness(clattn_activation function, double alpha);

/* ---- references of contiguous float32 arrays ---- */

/* Attention on contiguous (batch*heads, length, size) arrays in double precision, scale 1/sqrt(d_k). */
void expected_attention(size_t heads, size_t queries, size_t keys, size_t d_k, size_t d_v, bool causal, const float *q,
                        const float *k, const float *v, float *out);

/* Softmax of contiguous rows in double precision. */
void expected_softmax(size_t rows, size_t columns, const float *x, float *y);

#endif
