/* Double-precision references of the operators, on the host and without OpenCL, for self-checks on a
 * device and for the command's --verify.  They are written to be read, not to be fast.
 *
 * Every function computes one row, so that a caller may check all rows or a sample of them; outputs are
 * dense.  Arrays are float whatever the device stores: a caller widens 16-bit data first.  Strides are in
 * elements; 0 broadcasts.  A `_naive` twin computes the same with float state in the plainest order, for
 * the accuracy rule: error <= 2 * (naive's error) + 8 * epsilon * magnitude.
 *
 * Thread-safety: no state; nothing is allocated, nothing fails.  Arguments are not checked. */
#ifndef CLATTN_REF_REF_H
#define CLATTN_REF_REF_H

#include <stdbool.h>
#include <stdint.h>

typedef enum ref_mask_kind {
    REF_MASK_NONE,
    REF_MASK_BOOL,           /* uint8_t elements, nonzero: attend */
    REF_MASK_FLOAT           /* float elements, added; -inf selects as a boolean does */
} ref_mask_kind;

/* Element (b, h, i, j) lies at data[b*batch + h*head + i*row + j*col]. */
typedef struct ref_view {
    const float *data;
    int64_t batch, head, row, col;
} ref_view;

typedef struct ref_attention_problem {
    int64_t batch, heads, group;          /* query heads, and how many of them share a key/value head */
    int64_t query_length, key_length, d_k, d_v;
    ref_view query, key, value;
    ref_mask_kind mask_kind;
    const void *mask;
    int64_t mask_batch, mask_head, mask_row, mask_col;
    int64_t mask_keys;                    /* keys from here on are not attended, where there is a mask */
    bool causal;                          /* query i attends key j when j <= i + position */
    int64_t position;
    float scale;
} ref_attention_problem;

/* One query's attention: output[d_v] and, unless NULL, magnitude[d_v] (sum of p_j * |v_j|) and *lse
 * (natural logarithm; -inf where nothing is attended, and then the output is 0).  weights[key_length] is
 * needed as room and holds the probabilities afterwards. */
void ref_attention_row(const ref_attention_problem *p, int64_t b, int64_t h, int64_t i, double *output,
                       double *magnitude, double *lse, double *weights);
void ref_attention_naive_row(const ref_attention_problem *p, int64_t b, int64_t h, int64_t i, float *output,
                             float *lse, float *weights);

typedef struct ref_softmax_problem {
    int64_t extent[4], columns;           /* rows = product of the extents, the last one fastest */
    const float *x;
    int64_t stride[4], col;
    ref_mask_kind mask_kind;
    const void *mask;
    int64_t mask_stride[4], mask_col;
    int64_t mask_columns;                 /* columns from here on are not attended, where there is a mask */
    float scale;
} ref_softmax_problem;

/* Row `row` of softmax(scale * x + mask): y[columns].  With a mask, a row with nothing attended is 0. */
void ref_softmax_row(const ref_softmax_problem *p, int64_t row, double *y);
void ref_softmax_naive_row(const ref_softmax_problem *p, int64_t row, float *y);

typedef struct ref_matmul_problem {
    int64_t batch, m, n, k;
    ref_view a, b;                        /* `head` is unused */
    const float *bias;                    /* n elements, bias_col apart; or NULL */
    int64_t bias_col;
} ref_matmul_problem;

/* Row i of C = A B + bias: c[n] and, unless NULL, magnitude[n] (sum of |a| * |b|, and |bias|). */
void ref_matmul_row(const ref_matmul_problem *p, int64_t batch, int64_t i, double *c, double *magnitude);
void ref_matmul_naive_row(const ref_matmul_problem *p, int64_t batch, int64_t i, float *c);

#endif
