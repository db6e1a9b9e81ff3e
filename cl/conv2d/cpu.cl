/* 2-D convolution for CPU devices: output channels across vector lanes, register tiles of pixels, no barriers.
 *
 *   Y[n,o,i,j] = act(sum_(c,k,l) X[n,c,i*s+k*d-p,j*s'+l*d'-p'] * W[o,c,k,l] + bias[o])  (+ or *) operand[n,o,i,j]
 *
 * conv2d_pack (conv2d/pack.h) lays the weights out as panels.  An item of conv2d_cpu owns a tile of outputs, down.tile rows of
 * across.tile columns, of one panel.  For a block of channels at a time it copies what the tile needs of the picture, its
 * halo, into private memory (conv2d/halo.h), and multiplies it by the panel in register tiles of ROWS pixels:
 *
 *          c ->                    output channel ->  |  LANES  |  VECTORS of these  |
 *        +-----------+                         +-----------------+
 *  pixel |  element  |  x                   c  |  vector  vector |  a panel, one tap after the other
 *    |   |    .      |                      |  |  vector  vector |
 *    v   |    .      | ROWS                 v  |    ...     ...  |
 *        +-----------+
 *          of one tap            one step: acc[pixel][vector] += element * vector
 *
 * A register tile's pixels follow each other in the tile, also from the end of one row to the start of the next, so that
 * only the last register tile computes pixels that nobody needs: it repeats the last one.
 *
 * Layouts: conv2d/args.h, conv2d/pack.h; arguments: conv2d_cpu(x, packed, operand, y, conv2d_args); without an operand it is
 * not read.
 *
 *   macro           meaning                                          allowed         tested
 *   X_TYPE, W_TYPE, B_TYPE, OPERAND_TYPE, Y_TYPE   storage types     F32 F16 BF16    each, and mixed
 *   LANES           floats a vector (lib/vector.h)                   4, 8, 16        all
 *   VECTORS         vectors across a register tile                   1 and up        1 2 3 4
 *   ROWS            pixels of a register tile                        1 and up        4 6 8 12
 *   TILES           the most register tiles of an item               1 and up        4 48
 *   HALO            floats of the copy: the most that HALO_HEIGHT * HALO_WIDTH * a.block may be
 *                                                                    1 and up        1024 16384
 *   PREFETCH_DISTANCE   floats by which the panel is prefetched; 0: not.  Needs a compiler that has __builtin_prefetch
 *                                                                    0 and up        0 1024
 * The accumulators, ROWS*VECTORS vectors, and VECTORS + 1 more must fit the registers: 6 x 4 uses 29 of 32, 6 x 2 15 of 16.
 *
 * NDRange, groups of one item: 0 tiles, 1 panels of all groups, 2 the batch.
 * Private memory: 4*HALO + 4*ROWS*VECTORS*TILES*LANES bytes.  Local memory: none.  Barriers: none.
 * Accumulator: float, one chain of fma for each element: the bias, then block by block, in each block tap by tap, in each tap
 * in rising c; rounded once on storing.  There is no masked value; zeros outside of the picture are multiplied.
 * Features: OpenCL C 1.2 only.  conv2d/depthwise.cl takes over if each group has one channel; conv2d/generic.cl runs where
 * the device is no CPU. */
#include "conv2d/args.h"
#include "conv2d/halo.h"
#include "conv2d/pack.h"
#include "conv2d/store.h"
#include "lib/fma.h"

#ifndef ROWS
#define ROWS 6
#endif
#ifndef TILES
#define TILES 48
#endif
#ifndef HALO
#define HALO 16384
#endif
#ifndef PREFETCH_DISTANCE
#define PREFETCH_DISTANCE 0
#endif
#if ROWS < 1 || TILES < 1 || HALO < 1
#error "ROWS, TILES and HALO must be at least 1"
#endif

/* A tile of outputs. */
typedef struct tile_place {
    int y, x, rows, columns;
} tile_place;

/* How a block's products are walked: steps of the taps and of the channels in the copy, and the counts of each. */
typedef struct tap_walk {
    int taps_down, taps_across, depth;
    long down, across, channel;
} tap_walk;

INLINE void multiply_tile(floatv acc[ROWS][VECTORS], const private float *pixel[ROWS], const global float *panel,
                          tap_walk w)
{
    for (int k = 0; k < w.taps_down; k++)
        for (int l = 0; l < w.taps_across; l++) {
            long at = k * w.down + l * w.across;

            for (int c = 0; c < w.depth; c++) {
                floatv b[VECTORS];

#if PREFETCH_DISTANCE
#pragma unroll
                for (int v = 0; v < VECTORS; v++)
                    PREFETCH(panel + PREFETCH_DISTANCE + v * LANES);
#endif
#pragma unroll
                for (int v = 0; v < VECTORS; v++)
                    b[v] = VLOAD(0, panel + v * LANES);
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    const floatv x = (floatv)(pixel[r][at]);

#pragma unroll
                    for (int v = 0; v < VECTORS; v++)
                        acc[r][v] = FMA(x, b[v], acc[r][v]);
                }
                at += w.channel;
                panel += PANEL;
            }
        }
}

/* Adds a block's products to the sums of a tile. */
INLINE void multiply_block(private floatv *sums, const private float *halo, const global float *panel,
                           const conv2d_args *a, tile_place t, int depth)
{
    const int pixels = t.rows * t.columns, inner = a->channels_inner;
    const long width = HALO_WIDTH(a), position = inner ? depth : 1;
    const long down = a->down.out_step * width * position, across = a->across.out_step * position;
    tap_walk w;
    int row = 0, column = 0;

    w.taps_down = a->down.taps;
    w.taps_across = a->across.taps;
    w.depth = depth;
    w.down = a->down.tap_step * width * position;
    w.across = a->across.tap_step * position;
    w.channel = inner ? 1 : HALO_HEIGHT(a) * width;
    if (inner && a->across.tap_step == 1) { /* neighbouring taps are neighbours in the copy, as in the panel */
        w.depth *= w.taps_across;
        w.taps_across = 1;
    }
    for (int q = 0; q < pixels; q += ROWS) {
      private
        floatv *sum = sums + q * VECTORS;
        const private float *pixel[ROWS];
        floatv acc[ROWS][VECTORS];

#pragma unroll
        for (int r = 0; r < ROWS; r++) { /* repeating the last pixel keeps the products free of conditions */
            pixel[r] = halo + row * down + column * across;
            if (q + r + 1 < pixels) {
                const int ends = column + 1 == t.columns;
                column = ends ? 0 : column + 1;
                row += ends;
            }
#pragma unroll
            for (int v = 0; v < VECTORS; v++)
                acc[r][v] = sum[r * VECTORS + v];
        }
        multiply_tile(acc, pixel, panel, w);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int v = 0; v < VECTORS; v++)
                sum[r * VECTORS + v] = acc[r][v];
    }
}

/* Stores one row of a tile, from channel o on, of which there are `lanes`: vectors of channels, or, if columns are neighbours
 * in memory, of columns. */
INLINE void store_row(global ELEMENT(Y_TYPE) *y, const global ELEMENT(OPERAND_TYPE) *operand,
                      const private floatv *sums, const conv2d_args *a, int columns, int lanes)
{
    if (a->y.col != 1 || a->y.head == 1) {
        for (int j = 0; j < columns; j++)
            for (int v = 0; v * LANES < lanes; v++)
                store_sums(y, operand, j * a->y.col + v * LANES * a->y.head,
                           j * a->operand.col + v * LANES * a->operand.head, a->y.head, a->operand.head,
                           min(LANES, lanes - v * LANES), sums[j * VECTORS + v], a);
    } else {
        for (int v = 0; v * LANES < lanes; v++)
            for (int j = 0; j < columns; j += LANES) {
                floatv t[LANES];
                for (int i = 0; i < LANES; i++)
                    t[i] = sums[min(j + i, columns - 1) * VECTORS + v];
                transpose(t);
                for (int l = 0; l < min(LANES, lanes - v * LANES); l++)
                    store_sums(y, operand, j + (v * LANES + l) * a->y.head,
                               j * a->operand.col + (v * LANES + l) * a->operand.head, 1, a->operand.col,
                               min(LANES, columns - j), t[l], a);
            }
    }
}

ITEM_FUNCTION convolve(const global ELEMENT(X_TYPE) *x, const global float *packed,
                       const global ELEMENT(OPERAND_TYPE) *operand, global ELEMENT(Y_TYPE) *y, conv2d_args a, int tile,
                       int panel, long n)
{
    const int across = (a.across.out + a.across.tile - 1) / a.across.tile, tile_y = tile / across;
    const int panels = (a.out_channels + PANEL - 1) / PANEL, group = panel / panels;
    const int o0 = (panel - group * panels) * PANEL, lanes = min(PANEL, a.out_channels - o0);
    const long taps = a.down.taps * a.across.taps, o = (long)group * a.out_channels + o0;
    tile_place t;
    float halo[HALO];
    floatv sums[ROWS * TILES * VECTORS];

    t.y = tile_y * a.down.tile;
    t.x = (tile - tile_y * across) * a.across.tile;
    t.rows = min(a.down.tile, a.down.out - t.y);
    t.columns = min(a.across.tile, a.across.out - t.x);
    x += a.x.offset + n * a.x.batch + group * (long)a.in_channels * a.x.head;
    packed += a.packed_offset;
    const int pixels = t.rows * t.columns;
    const global float *bias = packed + a.packed_bias + (long)panel * PANEL;
    packed += panel * (long)a.in_channels * taps * PANEL;
    for (int q = 0; q < (pixels + ROWS - 1) / ROWS * ROWS; q++)
        for (int v = 0; v < VECTORS; v++)
            sums[q * VECTORS + v] = VLOAD(0, bias + v * LANES);
    for (int c0 = 0; c0 < a.in_channels; c0 += a.block) {
        const int depth = min(a.block, a.in_channels - c0);
        copy_halo(halo, x + c0 * a.x.head, &a, t.y, t.x, depth, a.channels_inner);
        multiply_block(sums, halo, packed + c0 * taps * PANEL, &a, t, depth);
    }
    if (a.activation != ACTIVATION_NONE)
        for (int q = 0; q < pixels * VECTORS; q++)
            sums[q] = activate_sums(sums[q], &a);
    y += a.y.offset + n * a.y.batch + o * a.y.head + t.y * a.y.row + t.x * a.y.col;
    if (a.operand_use)
        operand +=
            a.operand.offset + n * a.operand.batch + o * a.operand.head + t.y * a.operand.row + t.x * a.operand.col;
    for (int i = 0; i < t.rows; i++)
        store_row(y + i * a.y.row, operand + i * a.operand.row, sums + i * t.columns * VECTORS, &a, t.columns, lanes);
}

GROUP_SIZE(1, 1, 1)
kernel void conv2d_cpu(const global ELEMENT(X_TYPE) *x, const global float *packed,
                       const global ELEMENT(OPERAND_TYPE) *operand, global ELEMENT(Y_TYPE) *y, conv2d_args a)
{
    if (a.batch != 0)
        convolve(x, packed, operand, y, a, (int)group_id(&a.part, 0), (int)group_id(&a.part, 1),
                 (long)group_id(&a.part, 2));
}
