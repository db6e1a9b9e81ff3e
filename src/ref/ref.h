/* Double-precision references of the operators but attention (attention_reference.h), on the host and without OpenCL, for
 * self-checks on a device and for the command's --verify.  They are written to be read, not to be fast.
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

#include "clattn/activation.h"

typedef enum ref_mask_kind {
    REF_MASK_NONE,
    REF_MASK_BOOL, /* uint8_t elements, nonzero: attend */
    REF_MASK_FLOAT /* float elements, added; -inf selects as a boolean does */
} ref_mask_kind;

/* Element (b, h, i, j) lies at data[b*batch + h*head + i*row + j*col]. */
typedef struct ref_view {
    const float *data;
    int64_t batch, head, row, col;
} ref_view;

typedef struct ref_softmax_problem {
    int64_t extent[4], columns; /* rows = product of the extents, the last one fastest */
    const float *x;
    int64_t stride[4], col;
    ref_mask_kind mask_kind;
    const void *mask;
    int64_t mask_stride[4], mask_col;
    int64_t mask_columns; /* columns from here on are not attended, where there is a mask */
    float scale;
} ref_softmax_problem;

/* Row `row` of softmax(scale * x + mask): y[columns].  With a mask, a row with nothing attended is 0. */
void ref_softmax_row(const ref_softmax_problem *p, int64_t row, double *y);
void ref_softmax_naive_row(const ref_softmax_problem *p, int64_t row, float *y);

/* One element; alpha is SWISH's.  Infinities give the limits, where that is 0 without a sign. */
double ref_activate(clattn_activation function, double alpha, double x);

typedef struct ref_matmul_problem {
    int64_t batch, m, n, k;
    ref_view a, b;     /* `head` is unused */
    const float *bias; /* n elements, bias_col apart; or NULL */
    int64_t bias_col;
    const float *b_scale; /* n elements, scale_col apart; or NULL */
    int64_t scale_col;
    bool activated;
    clattn_activation activation;
    double alpha;
    bool multiply;    /* operand is; otherwise added */
    ref_view operand; /* data NULL: none */
} ref_matmul_problem;

/* Row i of C = act(A B * b_scale + bias) with the operand: c[n] and, unless NULL, magnitude[n], which an error of the sum and
 * of the rest are relative to: sum of |a| * |b|, and |bias|; then, where there is one, 1.2 times that (no activation is
 * steeper) and |act|, times or plus |operand|. */
void ref_matmul_row(const ref_matmul_problem *p, int64_t batch, int64_t i, double *c, double *magnitude);
void ref_matmul_naive_row(const ref_matmul_problem *p, int64_t batch, int64_t i, float *c);

typedef struct ref_norm_problem {
    int64_t extent[5], axes; /* the last `axes` dimensions are normalised together */
    bool rms;
    double epsilon;
    const float *x, *scale, *bias; /* scale and bias may be NULL: 1 and 0 */
    int64_t stride[5], scale_stride[5], bias_stride[5];
} ref_norm_problem;

/* Row `row` (over the leading dimensions, the last one fastest): y, its elements in the dimensions' order, and unless
 * NULL magnitude ((|x - mean| + mean |x - mean|) |factor scale| + |bias|), *mean (RMS: 0) and *factor. */
void ref_norm_row(const ref_norm_problem *p, int64_t row, double *y, double *magnitude, double *mean, double *factor);
void ref_norm_naive_row(const ref_norm_problem *p, int64_t row, float *y);

typedef struct ref_rope_problem {
    int64_t size, rotary; /* of a head, and how much of it is rotated */
    bool interleaved;
    double base;
    const float *cosines, *sines; /* rotary / 2 of each, in place of computed ones; or NULL */
} ref_rope_problem;

/* One head at one position: y[size] and, unless NULL, magnitude[size] (|x1| + |x2|; of what is copied |x|). */
void ref_rope_row(const ref_rope_problem *p, const float *x, int64_t position, double *y, double *magnitude);

typedef struct ref_embedding_problem {
    int64_t size;
    double scale;
    const float *row, *position_row, *segment_row; /* row NULL: not in the table; the others NULL: none */
    bool sinusoids;
    int64_t position; /* of the sinusoids */
} ref_embedding_problem;

/* One place: y[size] and, unless NULL, magnitude[size] (the absolute terms; of a sinusoid 1). */
void ref_embedding_row(const ref_embedding_problem *p, double *y, double *magnitude);

typedef struct ref_merge_problem {
    int64_t parts, columns;
    const float *partial, *lse; /* element (n, c) at n*part + c*col, of lse at n*part_lse */
    int64_t part, col, part_lse;
    const float *sink; /* one logit, or NULL */
} ref_merge_problem;

/* One row of partial attentions merged: y[columns] and, unless NULL, magnitude[columns] (weighted |partial|) and *lse. */
void ref_merge_row(const ref_merge_problem *p, double *y, double *magnitude, double *lse);
void ref_merge_naive_row(const ref_merge_problem *p, float *y, float *lse);

/* The cache of one batch item, to which rows are appended. */
typedef struct ref_cache {
    bool ring;
    int64_t capacity;     /* rows of the cache or of a page */
    const int64_t *table; /* a paged cache's page numbers, `blocks` of them; or NULL */
    int64_t blocks, pages;
} ref_cache;

/* Where row i of `count` new ones behind `past` old ones is written: the row of the cache, in a paged one the page times
 * capacity more; or -1, nowhere. */
int64_t ref_cache_row(const ref_cache *cache, int64_t past, int64_t count, int64_t i);

/* The scale of a group that is stored as integers up to `levels`, before it is rounded: max|x| / levels; NaN if there is a
 * NaN or an infinity. */
double ref_group_scale(const double *x, int64_t n, int levels);

/* A colour (red, green, blue, alpha) multiplied by a matrix of three rows of four, NULL: as it is; magnitude[c] is the sum
 * of the absolute terms, without a matrix 0, of alpha 0. */
void ref_image_colour(const float *matrix, const double rgba[4], double colour[4], double magnitude[4]);

/* Whether a query at place p of one dimension has key place j in its window, by the definition in clattn/neighbourhood.h
 * and nothing clever. */
bool ref_neighbour(int p, int j, int length, int window, int dilation, bool clip);

#endif
