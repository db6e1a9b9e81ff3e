/* What the resize kernels are told, shared by the host and OpenCL C; lib/array.h has the rules. */
#ifndef CLATTN_CL_RESIZE_ARGS_H
#define CLATTN_CL_RESIZE_ARGS_H

#include "lib/array.h"

/* Element i of y along one axis is a weighted sum of `taps` neighbours of x.  The first one's index is the whole part of
 * start + i * step, whose fractions are in 2^-64; nearest multiplies by `ratio` instead. */
typedef struct resize_axis {
    args_ulong step_fraction, start_fraction;
    int step, start;
    int source, target; /* the extents of x and y */
    int taps;
    float distance; /* from the first tap to the centre, of an element whose fraction is 0: 1 - support */
    float shrink;   /* the filter is 1 / shrink times as wide as without antialiasing */
    float ratio;    /* elements of x for one of y */
} resize_axis;

/* A run is a row of y with all channels of its pixels if these are neighbours, else a row of one channel; element e of a run is
 * channel e % run_channels of column e / run_channels.  A plane is what has a run in each row. */
typedef struct resize_args {
    array4 x, y; /* (batch, channel, row, column) */
    resize_axis rows, cols;
    args_long run_step; /* of y, from one element of a run to the next */
    args_long pieces;   /* planes * bands of rows * tiles of a run, the last fastest; 0: nothing to do, return at once */
    int planes_of_item; /* planes of a batch item: 1, or the channels */
    int run, run_channels;
    int tile, band; /* elements of a run, and rows, that a piece has; the last ones of a plane may have fewer */
    int filter;     /* RESIZE_NEAREST, ... */
    int clips;      /* taps outside of x do not count, and the weights are divided by their sum; else the edge is repeated */
    float centre;   /* nearest: what is added to an index before it is multiplied */
    float cubic;    /* the cubic filter's a */
    int reserved;   /* 0 */
} resize_args;

#define RESIZE_NEAREST 0
#define RESIZE_LINEAR 1
#define RESIZE_CUBIC 2

#endif
