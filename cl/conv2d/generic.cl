/* 2-D convolution, the solver that runs everything: one work-item for CHANNELS output channels of a pixel.
 *
 *   Y[n,o,i,j] = act(sum_(c,k,l) X[n,c,i*s+k*d-p,j*s'+l*d'-p'] * W[o,c,k,l] + bias[o])  (+ or *) operand[n,o,i,j]
 *
 * Layouts: conv2d/args.h.  Arguments: x, weight, bias, operand, y, conv2d_args; arrays that are absent are not read.
 *
 *   macro                                          meaning          allowed         tested
 *   X_TYPE, W_TYPE, B_TYPE, OPERAND_TYPE, Y_TYPE   storage types    F32 F16 BF16    each, and mixed
 *
 * NDRange, any local size; dimensions 0 and 1 may be rounded up, dimension 2 is exactly the batch times the output rows.
 * Let blocks = groups * ceil(out_channels / CHANNELS).
 *   lanes_along_channels 0: dimension 0 columns, 1 blocks; an item's channels are neighbours, and items that are neighbours
 *                           read and write neighbouring columns
 *   lanes_along_channels 1: dimension 0 blocks, 1 columns; an item's channels lie as many apart as a group has blocks, and
 *                           items that are neighbours read and write neighbouring channels
 * Ownership: an item owns CHANNELS elements of Y.  Local memory: none.  Barriers: none.
 * Accumulator: float, one chain of fma for each element in rising k, l, c, then the bias; rounded once on storing.  Taps
 * outside of the picture are left out.  Features: OpenCL C 1.2 only.  Nobody takes over: this is the last solver. */
#include "conv2d/args.h"
#include "lib/storage.h"
#include "lib/activate.h"
#include "lib/fma.h"

#ifndef X_TYPE
#define X_TYPE F32
#endif
#ifndef W_TYPE
#define W_TYPE F32
#endif
#ifndef B_TYPE
#define B_TYPE F32
#endif
#ifndef OPERAND_TYPE
#define OPERAND_TYPE F32
#endif
#ifndef Y_TYPE
#define Y_TYPE F32
#endif

#define CHANNELS 4
#if LANES != CHANNELS
#error "the channels of an item are one vector"
#endif

/* The first tap at or beyond the picture's edge `before`, and the first beyond its other edge. */
static inline int first_tap(const conv2d_axis *axis, long start)
{
    return start >= 0 ? 0 : (int)min((long)axis->taps, (axis->dilation - 1 - start) / axis->dilation);
}

static inline int last_tap(const conv2d_axis *axis, long start)
{
    return start >= axis->in ? 0 : (int)min((long)axis->taps, (axis->in - 1 - start) / axis->dilation + 1);
}

/* Adds the products of the picture and the weights of four output channels, `next` apart. */
static inline float4 sums_of(const global ELEMENT(X_TYPE) *x, const global ELEMENT(W_TYPE) *w, const conv2d_args *a,
                             int i, int j, const long next[CHANNELS])
{
    const long top = (long)i * a->down.stride - a->down.before, left = (long)j * a->across.stride - a->across.before;
    const int k1 = last_tap(&a->down, top), l0 = first_tap(&a->across, left), l1 = last_tap(&a->across, left);
    float4 sum = (float4)(0.0f);

    for (int k = first_tap(&a->down, top); k < k1; k++)
        for (int l = l0; l < l1; l++) {
            const global ELEMENT(X_TYPE) *p =
                x + (top + k * (long)a->down.dilation) * a->x.row + (left + l * (long)a->across.dilation) * a->x.col;
            const global ELEMENT(W_TYPE) *q = w + k * a->weight.row + l * a->weight.col;
            for (int c = 0; c < a->in_channels; c++) {
                const float4 b =
                    (float4)(LOAD(W_TYPE, q, c * a->weight.head), LOAD(W_TYPE, q, c * a->weight.head + next[1]),
                             LOAD(W_TYPE, q, c * a->weight.head + next[2]),
                             LOAD(W_TYPE, q, c * a->weight.head + next[3]));
                sum = FMA((float4)(LOAD(X_TYPE, p, c * a->x.head)), b, sum);
            }
        }
    return sum;
}

kernel void conv2d_generic(const global ELEMENT(X_TYPE) *x, const global ELEMENT(W_TYPE) *weight,
                           const global ELEMENT(B_TYPE) *bias, const global ELEMENT(OPERAND_TYPE) *operand,
                           global ELEMENT(Y_TYPE) *y, conv2d_args a)
{
    if (a.batch == 0)
        return;

    const int blocks = (a.out_channels + CHANNELS - 1) / CHANNELS;
    const long n = (long)global_id(&a.part, 2) / a.down.out;
    const int i = (int)((long)global_id(&a.part, 2) - n * a.down.out);
    /* Both are there before one is chosen: PoCL 7.1 has no get_local_size of a dimension that is chosen at run time. */
    const int lane = (int)global_id(&a.part, 0), other = (int)global_id(&a.part, 1);
    const int j = a.lanes_along_channels ? other : lane, block = a.lanes_along_channels ? lane : other;
    if (j >= a.across.out || block >= a.groups * blocks)
        return;

    const int group = block / blocks, at = block - group * blocks;
    const int o = a.lanes_along_channels ? at : at * CHANNELS, step = a.lanes_along_channels ? blocks : 1;
    const int count = min(CHANNELS, (a.out_channels - o + step - 1) / step);
    const long first = (long)group * a.out_channels + o;
    long next[CHANNELS];
    float values[CHANNELS];
    for (int m = 0; m < CHANNELS; m++) /* channels beyond the last one repeat it, and are not stored */
        next[m] = min(m, count - 1) * (long)step * a.weight.batch;

    float4 sum = sums_of(x + a.x.offset + n * a.x.batch + group * (long)a.in_channels * a.x.head,
                         weight + a.weight.offset + first * a.weight.batch, &a, i, j, next);
    if (a.has_bias) {
        for (int m = 0; m < CHANNELS; m++)
            values[m] = LOAD(B_TYPE, bias, a.bias_offset + (first + min(m, count - 1) * step) * a.bias_stride);
        sum += vload4(0, values);
    }
    if (a.activation != ACTIVATION_NONE)
        sum = activated_sum(sum, a.activation, a.alpha);
    vstore4(sum, 0, values);
    y += a.y.offset + n * a.y.batch + first * a.y.head + i * a.y.row + j * a.y.col;
    if (a.operand_use)
        operand +=
            a.operand.offset + n * a.operand.batch + first * a.operand.head + i * a.operand.row + j * a.operand.col;
    for (int m = 0; m < count; m++) {
        float value = values[m];
        if (a.operand_use) {
            const float o_value = LOAD(OPERAND_TYPE, operand, m * (long)step * a.operand.head);
            value = a.operand_use == 2 ? value * o_value : value + o_value;
        }
        STORE(Y_TYPE, y, m * (long)step * a.y.head, value);
    }
}
