/* The arguments of the kernels of 2-D convolution, shared by the host and OpenCL C; lib/array.h has the rules. */
#ifndef CLATTN_CL_CONV2D_ARGS_H
#define CLATTN_CL_CONV2D_ARGS_H

#include "lib/activation_kind.h"
#include "lib/array.h"

/* The rows or the columns of a convolution.  Output i needs input i*stride + k*dilation - before for each tap k.
 *
 * Kernels for CPUs copy what a tile of outputs needs, `segments` pieces of `length` positions each: position j of piece s is
 * input first*stride + s*dilation + j*step - before, if `first` is the tile's first output.  Tap k of the tile's output i then
 * lies at position i*out_step + k*tap_step of the copy, counted over all pieces.  A tile that needs most of the inputs that it
 * spans is one piece (segments 1, step 1, out_step `stride`, tap_step `dilation`); otherwise each tap has its own piece
 * (segments `taps`, step `stride`, out_step 1, tap_step `length`). */
typedef struct conv2d_axis {
    int in, out, taps, stride, dilation, before;
    int tile; /* outputs of a tile */
    int segments, length, step, out_step, tap_step;
} conv2d_axis;

typedef struct conv2d_args {
    launch_part part;
    array4 x, operand, y;               /* (n, c, i, j): `head` is a channel's stride */
    array4 weight;                      /* (o, c, k, l) */
    args_long bias_offset, bias_stride; /* stride 0 without a bias */
    args_long packed_offset;            /* where the workspace starts, in floats: packed weights */
    args_long packed_bias;              /* the packed bias, from packed_offset */
    conv2d_axis down, across;           /* rows and columns */
    int batch;                          /* 0: nothing to do, return at once */
    int groups;
    int in_channels, out_channels; /* of a group */
    int block;                     /* channels that are copied at a time */
    int channels_inner;            /* copies: 1: channels are neighbours; 0: columns are */
    int lanes_along_channels;      /* depthwise and generic: neighbouring lanes or items are channels, not columns */
    int has_bias, operand_use;     /* operand_use: 0: there is none, 1: added, 2: multiplied */
    int activation;                /* an ACTIVATION_... */
    float alpha;
    int reserved; /* 0 */
} conv2d_args;

#endif
