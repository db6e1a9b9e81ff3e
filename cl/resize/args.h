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

/* A line is a row of y with `depth` neighbouring channels: element e is channel e % depth of column e / depth.  If depth is 1, lines
 * are counted through rows, channels and batch items, else through rows and batch items, for each chunk of depth channels anew.
 * A piece has neighbouring elements of neighbouring lines. */
typedef struct resize_args {
    launch_part part;
    array4 x, y; /* (batch, channel, row, column) */
    resize_axis rows, cols;
    args_long lines;  /* of a chunk of channels */
    args_long pieces; /* chunks * bands * tiles, the last fastest; 0: nothing to do, return at once */
    int channels, depth;
    int tile, band; /* elements and lines of a piece; the last ones may have fewer */
    int filter;     /* RESIZE_NEAREST, ... */
    int clips; /* taps outside of x do not count, and the weights are divided by their sum; else the edge is repeated */
    float centre; /* nearest: what is added to an index before it is multiplied */
    float cubic;  /* the cubic filter's a */
} resize_args;

#define RESIZE_NEAREST 0
#define RESIZE_LINEAR 1
#define RESIZE_CUBIC 2

/* What resize_cpu has room for. */
#define RESIZE_TILE 256     /* elements of a piece */
#define RESIZE_WEIGHTS 2048 /* the taps of all of them along columns */
#define RESIZE_SPAN 512     /* elements of x that they need of one row */
#define RESIZE_ROWS 128     /* taps along rows */

#endif
