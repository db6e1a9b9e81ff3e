/* Cross-entropy of rows of logits, with the gradient of the logits: what the kernels of cpu.cl, cpu_short.cl, tile.cl and
 * generic.cl share.
 *
 *   p[r,c]        = exp(x[r,c] - m_r) / s_r,   m_r = max_c x[r,c],   s_r = sum_c exp(x[r,c] - m_r)
 *   lse[r]        = m_r + log(s_r)
 *   loss[r]       = log(s_r) + kept * (m_r - x[r,label_r]) + sum_c share * (m_r - x[r,c])
 *   gradient[r,c] = weight_r * ((p[r,c] - share) - kept * (c == label_r)),   weight_r = scale * weights[r] (1 without weights)
 *
 * with kept = 1 - smoothing and share = smoothing / classes.  Written with x - m, no term of the loss is a difference of
 * large numbers.  A row whose label is `ignored` has loss and gradient +0; one whose label is no class has NaN for both.
 *
 * Row r has the indices (i0, i1, i2, i3) over extent[0..3], the last one fastest; element c of it lies in x and gradient at
 *   offset + i0*stride[0] + i1*stride[1] + i2*stride[2] + i3*stride[3] + c*col
 * and its one element of labels, weights, loss and lse at the same without c*col.  gradient may be x itself, laid out the
 * same: an item overwrites only elements that it alone reads from then on.  Arrays that are absent are NULL and not touched.
 *
 * Parameter       meaning                                          allowed
 * X_TYPE          storage of x                                     F32, F16, BF16
 * GRADIENT_TYPE   storage of gradient                              F32, F16, BF16
 * LABEL_TYPE      integers                                         I32, I64
 * GRADIENT, LOSS, LSE, WEIGHTS   1: there is that array            0, 1
 * SMOOTHING       1: share may be other than 0                     0, 1
 * Tested: each type and each parameter; X_TYPE x GRADIENT_TYPE mixed.
 *
 * State is float, and sums are compensated.  NaN or +inf in a row, or -inf alone, make it NaN. */
#ifndef CLATTN_CL_CROSS_ENTROPY_CROSS_ENTROPY_H
#define CLATTN_CL_CROSS_ENTROPY_CROSS_ENTROPY_H

#include "cross_entropy/args.h"
#include "lib/compensated.h"
#include "lib/exp.h"
#include "lib/storage.h"

#ifndef X_TYPE
#define X_TYPE F32
#endif
#ifndef GRADIENT_TYPE
#define GRADIENT_TYPE F32
#endif
#ifndef LABEL_TYPE
#define LABEL_TYPE I32
#endif
#ifndef GRADIENT
#define GRADIENT 1
#endif
#ifndef LOSS
#define LOSS 1
#endif
#ifndef LSE
#define LSE 0
#endif
#ifndef WEIGHTS
#define WEIGHTS 0
#endif
#ifndef SMOOTHING
#define SMOOTHING 0
#endif

/* The parameters of every kernel, and the same as arguments. */
#define ARRAYS \
    const global ELEMENT(X_TYPE) *x, const global ELEMENT(LABEL_TYPE) *labels, const global float *weights, \
        global float *loss, global float *lse, global ELEMENT(GRADIENT_TYPE) *gradient
#define ARRAYS_GIVEN x, labels, weights, loss, lse, gradient

/* Where a row begins in each array. */
typedef struct row_place {
    const global ELEMENT(X_TYPE) *x;
    const global ELEMENT(LABEL_TYPE) *labels;
    const global float *weights;
    global float *loss, *lse;
    global ELEMENT(GRADIENT_TYPE) *gradient;
} row_place;

/* Sets `place` to row `row`. */
static inline void find_row(row_place *place, args_long row, ARRAYS, const cross_entropy_args *a)
{
    place->x = x + a->x.offset;
    place->labels = labels + a->labels.offset;
    place->weights = WEIGHTS ? weights + a->weights.offset : weights;
    place->loss = LOSS ? loss + a->loss.offset : loss;
    place->lse = LSE ? lse + a->lse.offset : lse;
    place->gradient = GRADIENT ? gradient + a->gradient.offset : gradient;
    for (int n = 3; n >= 0; n--) {
        const args_long rest = row / a->extent[n], index = row - rest * a->extent[n];
        place->x += index * a->x.stride[n];
        place->labels += index * a->labels.stride[n];
        if (WEIGHTS)
            place->weights += index * a->weights.stride[n];
        if (LOSS)
            place->loss += index * a->loss.stride[n];
        if (LSE)
            place->lse += index * a->lse.stride[n];
        if (GRADIENT)
            place->gradient += index * a->gradient.stride[n];
        row = rest;
    }
}

/* What the label of a row says. */
typedef struct row_target {
    int label;     /* the nearest class, also if the row does not count */
    int counts;    /* 1: the label is a class and not ignored; 0: not */
    float instead; /* loss and gradient if the row does not count */
    float weight;
} row_target;

/* Reads the label of the i-th row from `place` on, of those that are neighbours in the last dimension. */
static inline void read_target(row_target *target, const row_place *place, int i, const cross_entropy_args *a)
{
    const args_long label = LOAD_INT(LABEL_TYPE, place->labels, i * a->labels.stride[3]);
    const args_long nearest = clamp(label, (args_long)0, (args_long)a->classes - 1);
    const int ignored = label == a->ignored;
    int counts = label == nearest; /* combined by &=, because Mesa 22.3 loses some of `counts && ...` in a loop */

    counts &= !ignored;
    target->counts = counts;
    target->label = (int)nearest;
    target->instead = ignored ? 0.0f : NAN;
    target->weight = WEIGHTS ? a->scale * place->weights[i * a->weights.stride[3]] : a->scale;
}

/* Whether the row's sums are asked for. */
#define NEEDS_SUMS(target) (LSE || (target)->counts)

/* Writes loss and log-sum-exp of a row; `spread` is the sum of share * (m - x). */
static inline void store_sums(const row_place *row, const row_target *target, float x_label, float row_max,
                              float row_sum, float spread, const cross_entropy_args *a)
{
    const float log_sum = log(row_sum);

    if (LSE)
        row->lse[0] = row_max + log_sum;
    if (LOSS)
        row->loss[0] = target->counts ? log_sum + (a->kept * (row_max - x_label) + spread) : target->instead;
}

/* The gradient where p is `term` / s and `inverse` is 1 / s, of another class than the label and of the label. */
#define GRADIENT_OF(term, inverse, weight, a) (((term) * (inverse) - (a)->share) * (weight))
#define GRADIENT_OF_LABEL(term, inverse, weight, a) ((((term) * (inverse) - (a)->share) - (a)->kept) * (weight))

/* ---- sums of exponentials in one walk ----
 *
 * Terms are exp(x - near) for a number `near` that follows the largest x so far, and is less than LAG below it.  When it
 * moves on, the sum is multiplied by exp(old - new): seldom, so that these roundings do not add up.  It begins at -FLT_MAX
 * and not at -inf, so that leading logits of -inf are terms of 0 and not NaN. */
#define LAG 8.0f

/* What `count` earlier terms share * (near - x) grow by when `near` becomes `next`. */
static inline float raised_by(int count, float near, float next, const cross_entropy_args *a)
{
    return count > 0 ? (float)count * a->share * (next - near) : 0.0f;
}

#endif
