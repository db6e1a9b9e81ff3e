/* conv2d_pack: weights and biases become panels of floats in the workspace.
 *
 *   packed[a.packed_offset + panel*taps*in_channels*PANEL + ((c0*taps + tap*depth + c) * PANEL) + lane]
 *        weight[o, c0 + c, tap]; lane o of the panel, tap = k * kernel width + l; a block has `depth` channels from c0 on,
 *        a.block of them or what is left; 0 in lanes beyond the group's last output channel
 *   packed[a.packed_offset + a.packed_bias + panel*PANEL + lane]
 *        bias[o]; 0 without a bias
 *
 * Panels are numbered group by group, ceil(out_channels / PANEL) in each.
 *
 *   macro             meaning                      allowed        tested
 *   W_TYPE, B_TYPE    storage types                F32 F16 BF16   each
 *   VECTORS           vectors across a panel       1 and up       1 2 3 4
 *   LANES             floats a vector              4, 8, 16       all
 *
 * NDRange, groups of one item: 0 panels of all groups, 1 blocks of channels, at least 1.  An item packs one block of a panel,
 * LANES x LANES elements at a time if the elements of an output channel are neighbours.  Local memory: none. */
#ifndef CLATTN_CL_CONV2D_PACK_H
#define CLATTN_CL_CONV2D_PACK_H

#include "conv2d/args.h"
#include "lib/rows.h"

#ifndef W_TYPE
#define W_TYPE F32
#endif
#ifndef B_TYPE
#define B_TYPE F32
#endif
#ifndef VECTORS
#define VECTORS 4
#endif
#if VECTORS < 1
#error "VECTORS must be at least 1"
#endif
#define PANEL (LANES * VECTORS)

/* Packs one vector of output channels, `lanes` of which there are, of a block. */
INLINE void pack_vector(global float *to, const global ELEMENT(W_TYPE) *weight, const conv2d_args *a, int depth,
                        int lanes)
{
    const int taps = a->down.taps * a->across.taps;
    const int flat = a->weight.col == 1 && a->weight.row == a->across.taps && a->weight.head == taps;
    const int outer = flat ? 1 : taps, inner = flat ? taps * depth : depth;
    const long step = flat ? 1 : a->weight.head;

    for (int t = 0; t < outer; t++) {
        /* Oclgrind 21.10 does not know the instruction that LLVM makes of a quotient and its remainder by %. */
        const int row = t / a->across.taps;
        const long start = row * a->weight.row + (t - row * a->across.taps) * a->weight.col;
        for (int i = 0; i < inner; i += LANES) {
            floatv x[LANES];
            for (int l = 0; l < LANES; l++) {
                if (l < lanes)
                    LOAD_ROW(W_TYPE, x[l], weight, start + l * a->weight.batch + i * step, step, inner - i, 0.0f);
                else
                    x[l] = (floatv)(0.0f);
            }
            transpose(x);
            for (int k = 0; k < min(LANES, inner - i); k++) {
                const int c = flat ? (i + k) / taps : i + k, tap = flat ? (i + k) - c * taps : t;
                STORE_WHOLE(global whole_floatv, to + (long)(tap * depth + c) * PANEL, x[k]);
            }
        }
    }
}

ITEM_FUNCTION pack_block(const global ELEMENT(W_TYPE) *weight, const global ELEMENT(B_TYPE) *bias, global float *packed,
                         conv2d_args a, int panel, int block)
{
    const int panels = (a.out_channels + PANEL - 1) / PANEL, group = panel / panels;
    const int o0 = (panel - group * panels) * PANEL, lanes = min(PANEL, a.out_channels - o0);
    const int c0 = block * a.block, depth = min(a.block, a.in_channels - c0);
    const long taps = a.down.taps * a.across.taps, o = (long)group * a.out_channels + o0;
    global float *to = packed + a.packed_offset + (panel * (long)a.in_channels + c0) * taps * PANEL;

    weight += a.weight.offset + o * a.weight.batch + c0 * a.weight.head;
    for (int v = 0; v < VECTORS; v++)
        pack_vector(to + v * LANES, weight + v * LANES * a.weight.batch, &a, depth, clamp(lanes - v * LANES, 0, LANES));
    if (block == 0) {
        to = packed + a.packed_offset + a.packed_bias + (long)panel * PANEL;
        for (int l = 0; l < PANEL; l++)
            to[l] = a.has_bias && l < lanes ? LOAD(B_TYPE, bias, a.bias_offset + (o + l) * a.bias_stride) : 0.0f;
    }
}

GROUP_SIZE(1, 1, 1)
kernel void conv2d_pack(const global ELEMENT(W_TYPE) *weight, const global ELEMENT(B_TYPE) *bias, global float *packed,
                        conv2d_args a)
{
    if (a.batch != 0)
        pack_block(weight, bias, packed, a, (int)group_id(&a.part, 0), (int)group_id(&a.part, 1));
}

#endif
