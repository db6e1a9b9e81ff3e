/* Depthwise 2-D convolution for CPU devices, in which each channel is convolved alone: channels or columns across lanes.
 *
 *   Y[n,c,i,j] = act(sum_(k,l) X[n,c,i*s+k*d-p,j*s'+l*d'-p'] * W[c,0,k,l] + bias[c])  (+ or *) operand[n,c,i,j]
 *
 * An item owns a tile of outputs, down.tile rows of across.tile columns, of some channels.  It copies what the tile needs of
 * the picture into private memory (conv2d/halo.h) and computes ROWS vectors of outputs at a time, tap by tap:
 *
 *   lanes_along_channels 1: a vector is a pixel's channels, and a tap's weights are a vector.  One copy has all
 *                           a.block channels, so that it moves whole pixels.
 *   lanes_along_channels 0: a vector is neighbouring columns of a channel, and a tap's weight is broadcast.  LANES channels
 *                           are copied one by one.  across.out_step is 1.
 *
 * Layouts: conv2d/args.h, and conv2d/pack.h with VECTORS 1, by which all channels are one group.  Arguments:
 * conv2d_depthwise(x, packed, operand, y, conv2d_args); without an operand it is not read.
 *
 *   macro           meaning                                          allowed         tested
 *   X_TYPE, W_TYPE, B_TYPE, OPERAND_TYPE, Y_TYPE   storage types     F32 F16 BF16    each, and mixed
 *   LANES           floats a vector (lib/vector.h)                   4, 8, 16        all
 *   ROWS            vectors of outputs computed at a time            1 and up        4 8
 *   HALO            floats of the copy: the most that HALO_HEIGHT * HALO_WIDTH may be, times a.block
 *                   with lanes_along_channels                             1 and up        1024 24576
 *
 * NDRange, groups of one item: 0 tiles, 1 parts of a.block or LANES channels, 2 the batch.
 * Private memory: 4*(HALO + LANES) bytes.  Local memory: none.  Barriers: none.
 * Accumulator: float, one chain of fma for each element: the bias, then tap by tap; rounded once on storing.  Lanes beyond
 * the last channel or column compute anything and are not stored.
 * Features: OpenCL C 1.2 only.  conv2d/generic.cl runs where the device is no CPU. */
#define VECTORS 1
#include "conv2d/args.h"
#include "conv2d/halo.h"
#include "conv2d/pack.h"
#include "conv2d/store.h"
#include "lib/fma.h"

#ifndef ROWS
#define ROWS 8
#endif
#ifndef HALO
#define HALO 24576
#endif
#if ROWS < 1 || HALO < 1
#error "ROWS and HALO must be at least 1"
#endif

/* Where a tile's outputs and operand are, and how many of them. */
typedef struct tile_place {
    global ELEMENT(Y_TYPE) *y;
    const global ELEMENT(OPERAND_TYPE) *operand;
    int rows, columns, lanes;
} tile_place;

/* Adds the products of ROWS vectors.  `lane` is the lane of the panel whose weights are broadcast, or -1. */
INLINE void multiply_vectors(floatv acc[ROWS], const private float *vector[ROWS], const global float *panel,
                             const conv2d_args *a, int position, int lane)
{
    const long down = a->down.tap_step * (long)HALO_WIDTH(a) * position, across = a->across.tap_step * (long)position;

    for (int k = 0; k < a->down.taps; k++)
        for (int l = 0; l < a->across.taps; l++) {
            const long at = k * down + l * across;
            floatv b;

            if (lane < 0)
                b = VLOAD(0, panel);
            else
                b = (floatv)(panel[lane]);
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                acc[r] = FMA(VLOAD(0, vector[r] + at), b, acc[r]);
            panel += PANEL;
        }
}

/* Computes the tile's outputs, of the channel `lane` of the panel in vectors of columns, or, if that is -1, of all its channels
 * in vectors of channels.  `position` is the copy's step from one position to the next. */
INLINE void convolve_tile(const private float *halo, const global float *panel, floatv bias, const conv2d_args *a,
                          const tile_place *t, int position, int lane)
{
    const int step = lane < 0 ? 1 : LANES; /* columns of a vector */
    const int vectors = (t->columns + step - 1) / step, total = t->rows * vectors;
    const long down = a->down.out_step * (long)HALO_WIDTH(a) * position, across = a->across.out_step * (long)position;

    for (int first = 0; first < total; first += ROWS) {
        const private float *vector[ROWS];
        floatv acc[ROWS];

#pragma unroll
        for (int r = 0; r < ROWS; r++) { /* repeating the last vector keeps the products free of conditions */
            const int q = min(first + r, total - 1), row = q / vectors;
            vector[r] = halo + row * down + (q - row * vectors) * step * across;
            acc[r] = bias;
        }
        multiply_vectors(acc, vector, panel, a, position, lane);
        for (int r = 0; r < min(ROWS, total - first); r++) {
            const int row = (first + r) / vectors, column = (first + r - row * vectors) * step, channel = max(lane, 0);
            const long at = channel * a->y.head + row * a->y.row + column * a->y.col;
            const long operand_at = channel * a->operand.head + row * a->operand.row + column * a->operand.col;
            const int count = lane < 0 ? t->lanes : min(LANES, t->columns - column);

            store_sums(t->y, t->operand, at, operand_at, lane < 0 ? a->y.head : a->y.col,
                       lane < 0 ? a->operand.head : a->operand.col, count, activate_sums(acc[r], a), a);
        }
    }
}

ITEM_FUNCTION convolve(const global ELEMENT(X_TYPE) *x, const global float *packed,
                       const global ELEMENT(OPERAND_TYPE) *operand, global ELEMENT(Y_TYPE) *y, conv2d_args a, int tile,
                       int part, long n)
{
    const int across = (a.across.out + a.across.tile - 1) / a.across.tile, tile_y = tile / across;
    const int y0 = tile_y * a.down.tile, x0 = (tile - tile_y * across) * a.across.tile;
    const int most = a.lanes_along_channels ? a.block : LANES, c0 = part * most;
    const int channels = min(most, a.out_channels - c0), positions = HALO_HEIGHT(&a) * HALO_WIDTH(&a);
    const long taps = a.down.taps * (long)a.across.taps;
    tile_place t;
    float halo[HALO + LANES];

    t.rows = min(a.down.tile, a.down.out - y0);
    t.columns = min(a.across.tile, a.across.out - x0);
    t.y = y + a.y.offset + n * a.y.batch + c0 * a.y.head + y0 * a.y.row + x0 * a.y.col;
    t.operand = operand;
    if (a.operand_use)
        t.operand +=
            a.operand.offset + n * a.operand.batch + c0 * a.operand.head + y0 * a.operand.row + x0 * a.operand.col;
    x += a.x.offset + n * a.x.batch + c0 * a.x.head;
    packed += a.packed_offset;
    const global float *bias = packed + a.packed_bias + c0;
    packed += c0 * taps;
    if (a.lanes_along_channels) {
        copy_halo(halo, x, &a, y0, x0, channels, 1);
        fill_zeros(halo + positions * channels, LANES); /* the last position's last vector reads them */
        for (int c = 0; c < channels; c += LANES) {
            t.lanes = min(LANES, channels - c);
            convolve_tile(halo + c, packed + c * taps, VLOAD(0, bias + c), &a, &t, channels, -1);
            t.y += LANES * a.y.head;
            t.operand += LANES * a.operand.head;
        }
    } else {
        fill_zeros(halo + positions, LANES);
        for (int c = 0; c < channels; c++) {
            copy_halo(halo, x + c * a.x.head, &a, y0, x0, 1, 0);
            convolve_tile(halo, packed, (floatv)(bias[c]), &a, &t, 1, c);
        }
    }
}

GROUP_SIZE(1, 1, 1)
kernel void conv2d_depthwise(const global ELEMENT(X_TYPE) *x, const global float *packed,
                             const global ELEMENT(OPERAND_TYPE) *operand, global ELEMENT(Y_TYPE) *y, conv2d_args a)
{
    if (a.batch != 0)
        convolve(x, packed, operand, y, a, (int)group_id(&a.part, 0), (int)group_id(&a.part, 1),
                 (long)group_id(&a.part, 2));
}
