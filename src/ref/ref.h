/* The operators other than attention (ref/attention.h) in double precision on the host, without OpenCL: the references of
 * the self-check and of the command's --verify.  They are written to be read, not to be fast.
 *
 * Every function computes one row, so that a caller may check all rows or a sample of them; outputs are
 * dense.  Arrays are float whatever the device stores: a caller widens 16-bit data first.  Strides are in
 * elements; 0 broadcasts.  A `_naive` function computes the same row in float and in the plainest order, for
 * the accuracy rule: error <= 2 * (naive's error) + 8 * epsilon * magnitude.
 *
 * Thread-safety: no state; nothing is allocated, nothing fails.  Arguments are not checked. */
#ifndef CLATTN_REF_REF_H
#define CLATTN_REF_REF_H

#include <stdbool.h>
#include <stdint.h>

#include "clattn/activation.h"
#include "clattn/resize.h"

typedef enum ref_mask_kind {
    REF_MASK_NONE,
    REF_MASK_BOOL, /* uint8_t elements, nonzero: attend */
    REF_MASK_FLOAT /* float elements, added; -inf selects as a boolean does */
} ref_mask_kind;

/* Element (i, j) lies at data[i*row + j*col]. */
typedef struct ref_view {
    const float *data;
    int64_t row, col;
} ref_view;

typedef struct ref_softmax_problem {
    int64_t extent[4], columns; /* rows = product of the extents, the last one fastest */
    const float *x;
    int64_t stride[4], col;
    ref_mask_kind mask_kind;
    const void *mask;
    int64_t mask_stride[4], mask_col;
    int64_t mask_columns; /* with a mask: columns from here on are not attended */
    float scale;
} ref_softmax_problem;

/* Row `row` of softmax(scale * x + mask): y[columns].  With a mask, a row with nothing attended is 0. */
void ref_softmax_row(const ref_softmax_problem *p, int64_t row, double *y);
void ref_softmax_naive_row(const ref_softmax_problem *p, int64_t row, float *y);

/* Row `row` of softmax's gradient: dx[columns] of dy[columns] and of the result y, which p->x is here.  magnitude is
 * |scale y| (|dy| + sum |y dy|). */
void ref_softmax_backward_row(const ref_softmax_problem *p, int64_t row, const float *dy, double *dx,
                              double *magnitude);
void ref_softmax_backward_naive_row(const ref_softmax_problem *p, int64_t row, const float *dy, float *dx);

/* One element; alpha is SWISH's or LEAKY_RELU's.  Infinities give the function's limits, of which 0 has no sign. */
double ref_activate(clattn_activation function, double alpha, double x);

/* The derivative, and *magnitude, the sum of the sizes of its terms (clattn/activation.h has them). */
double ref_activation_slope(clattn_activation function, double alpha, double x, double *magnitude);

/* A bound of the slope of all functions, 1.2, unless LEAKY_RELU's alpha is beyond it. */
double ref_steepness(clattn_activation function, double alpha);

typedef struct ref_matmul_problem {
    int64_t n, k;
    ref_view a, b;
    const float *bias, *b_scale; /* n elements; or NULL */
    clattn_activation activation;
    double alpha;
    bool multiply;    /* the operand is multiplied, otherwise added */
    ref_view operand; /* data NULL: none */
} ref_matmul_problem;

/* Row i of C = act(A B * b_scale + bias) with the operand: c[n] and magnitude[n], to which errors are relative: the sum
 * of |a| * |b|, plus |bias|; with an activation ref_steepness times that plus |act|; with an operand times or plus
 * |operand|. */
void ref_matmul_row(const ref_matmul_problem *p, int64_t i, double *c, double *magnitude);
void ref_matmul_naive_row(const ref_matmul_problem *p, int64_t i, float *c);

/* Of pairs, rows come first, then columns. */
typedef struct ref_conv2d_problem {
    int64_t in[2], columns, kernel[2]; /* sizes of the picture, columns of y, taps */
    int64_t stride[2], dilation[2], before[2];
    int64_t in_channels, out_channels; /* of a group */
    const float *x, *weight, *bias;    /* bias NULL: none */
    int64_t x_stride[4], weight_stride[4];
    clattn_activation activation;
    double alpha;
    bool multiply;        /* the operand is multiplied, otherwise added */
    const float *operand; /* NULL: none */
    int64_t operand_stride[4];
} ref_conv2d_problem;

/* Row i of channel o of picture n of a convolution: y[columns] and magnitude[columns], as ref_matmul_row has it. */
void ref_conv2d_row(const ref_conv2d_problem *p, int64_t n, int64_t o, int64_t i, double *y, double *magnitude);
void ref_conv2d_naive_row(const ref_conv2d_problem *p, int64_t n, int64_t o, int64_t i, float *y);

typedef struct ref_cross_entropy_problem {
    int64_t classes, col;
    const float *x; /* element c of the row lies at x[c*col] */
    int64_t label;
    bool ignored; /* the row does not count */
    double smoothing, weight;
} ref_cross_entropy_problem;

typedef struct ref_cross_entropy_sums {
    double loss, lse;
} ref_cross_entropy_sums;

/* One row: *sums, and unless it is NULL gradient[classes] with magnitude[classes] (the sum of its absolute terms). */
void ref_cross_entropy_row(const ref_cross_entropy_problem *p, ref_cross_entropy_sums *sums, double *gradient,
                           double *magnitude);

typedef struct ref_dropout_problem {
    uint64_t seed;
    uint32_t offset;
    float probability;
} ref_dropout_problem;

/* What dropout makes of an element with the value x, the place-th in C order. */
double ref_dropout(const ref_dropout_problem *p, uint64_t place, double x);

typedef struct ref_norm_problem {
    int64_t columns, row, col; /* element c of row r lies at x[r*row + c*col] */
    bool rms;
    double epsilon;
    const float *x, *scale, *bias; /* scale and bias may be NULL: 1 and 0 */
} ref_norm_problem;

/* Row `row`: y[columns], magnitude[columns] ((|x - mean| + mean |x - mean|) |factor scale| + |bias|), *mean (RMS: 0) and
 * *factor. */
void ref_norm_row(const ref_norm_problem *p, int64_t row, double *y, double *magnitude, double *mean, double *factor);
void ref_norm_naive_row(const ref_norm_problem *p, int64_t row, float *y);

/* Row `row` of norm's gradients, of dy[columns] and dsum[columns] (NULL: none): dx[columns] with its magnitude, and the
 * row's terms of scale's gradient, dscale[columns], with theirs.  With n^ = (|x - mean| + mean |x - mean|) |factor| and
 * g = dy scale, magnitudes are |factor| (|g| + mean |g| + n^ mean |g n^|) + |dsum| and |dy| n^. */
void ref_norm_backward_row(const ref_norm_problem *p, int64_t row, const float *dy, const float *dsum, double *dx,
                           double *magnitude, double *dscale, double *scale_magnitude);

typedef struct ref_pool_axis {
    int64_t source, window, stride, dilation, before, after; /* elements of x, and padding before and after them */
} ref_pool_axis;

typedef struct ref_pool_problem {
    bool average, padding_counts;
    ref_pool_axis rows, columns;
    ref_view x; /* one channel of one batch item */
} ref_pool_problem;

/* Element (i, j): the largest or the mean, and *magnitude, the mean of |x| or 0. */
double ref_pool(const ref_pool_problem *p, int64_t i, int64_t j, double *magnitude);

/* The gradient of element (r, c) of x, of y_gradient with `rows` rows and `columns` columns, and the sum of the sizes of its
 * terms. */
double ref_pool_gradient(const ref_pool_problem *p, const ref_view *y_gradient, int64_t rows, int64_t columns,
                         int64_t r, int64_t c, double *magnitude);

typedef struct ref_resize_axis {
    clattn_resize_mode mode;
    bool align_corners, antialias;
    int64_t source; /* elements of x */
    double ratio;   /* elements of x for one of y: r of clattn/resize.h */
    double cubic_a;
} ref_resize_axis;

/* The weights of all elements of x for element i of y: weight[source].  Taps outside of x are added to those at its edges. */
void ref_resize_weights(const ref_resize_axis *axis, int64_t i, double *weight);

typedef struct ref_rope_problem {
    int64_t size, rotary; /* elements of a head, and how many of them are rotated */
    bool interleaved;
    double base;
    const float *cosines, *sines; /* rotary / 2 of each, or NULL: they are computed */
} ref_rope_problem;

/* One head at one position: y[size] and magnitude[size] (|x1| + |x2|; |x| if x is copied). */
void ref_rope_row(const ref_rope_problem *p, const float *x, int64_t position, double *y, double *magnitude);

typedef struct ref_embedding_problem {
    int64_t size;
    double scale;
    const float *row, *position_row,
        *segment_row; /* row NULL: the token is not in the table; the others NULL: there is none */
    bool sinusoids;
    int64_t position; /* of the sinusoids */
} ref_embedding_problem;

/* One row: y[size] and magnitude[size] (the sum of the absolute terms; a sinusoid counts 1). */
void ref_embedding_row(const ref_embedding_problem *p, double *y, double *magnitude);

/* One row of the gradient of the table: y[size], the sum of the rows of `gradient` (places, size) whose id is `row`,
 * times the scale, and magnitude[size]. */
void ref_embedding_gradient_row(int64_t places, int64_t size, double scale, const int32_t *ids, const float *gradient,
                                int64_t row, double *y, double *magnitude);

typedef struct ref_merge_problem {
    int64_t partials, columns;
    const float *partial, *lse; /* element (n, c) at n*part + c, of lse at n*part_lse */
    int64_t part, part_lse;
    const float *sink; /* one logit, or NULL */
} ref_merge_problem;

/* One row of partial attentions merged: y[columns], magnitude[columns] (weighted |partial|) and *lse. */
void ref_merge_row(const ref_merge_problem *p, double *y, double *magnitude, double *lse);

/* The cache of one batch item, to which rows are appended. */
typedef struct ref_cache {
    bool ring;
    int64_t capacity;     /* rows of the cache or of a page */
    const int64_t *table; /* a paged cache's page numbers, `blocks` of them; or NULL */
    int64_t blocks, pages;
} ref_cache;

/* The row of the cache that row i of `count` new rows after `past` old ones is written to, in a paged cache page *
 * capacity plus the row of the page; -1: the row is not written. */
int64_t ref_cache_row(const ref_cache *cache, int64_t past, int64_t count, int64_t i);

/* The scale of a group that is stored as integers up to `levels`, before the scale is rounded: max|x| / levels; NaN if
 * an x is not finite. */
double ref_group_scale(const double *x, int64_t n, int levels);

typedef struct ref_image_colours {
    const float *matrix; /* three rows of four elements, or NULL */
    bool srgb, premultiplied;
} ref_image_colours;

/* Converts a colour (red, green, blue, alpha) of an image to what pack gives, or of an array to what unpack gives before it
 * rounds to the image's format.  error[c] is how far the given component may be off, and becomes how far a computation in
 * float32 may be. */
void ref_image_packed(const ref_image_colours *colours, double colour[4], double error[4]);
void ref_image_unpacked(const ref_image_colours *colours, double colour[4], double error[4]);

/* Whether the window of a query at position p of one dimension has the key at position j, by the definition in
 * clattn/neighbourhood.h. */
bool ref_neighbour(int p, int j, int length, int window, int dilation, bool clip);

#endif
