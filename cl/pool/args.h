/* What the pooling kernels are told, shared by the host and OpenCL C; lib/array.h has the rules. */
#ifndef CLATTN_CL_POOL_ARGS_H
#define CLATTN_CL_POOL_ARGS_H

#include "lib/array.h"

/* Along one axis element i of y has the elements i * stride - before + k * dilation of x, 0 <= k < window. */
typedef struct pool_axis {
    int source, target; /* the extents of x and y */
    int window, stride, dilation;
    int before, after; /* padding */
    int reserved;      /* 0 */
} pool_axis;

/* A line is a row of y with `depth` neighbouring channels: element e is channel e % depth of column e / depth.  If depth is 1, lines
 * are counted through rows, channels and batch items, else through rows and batch items, for each chunk of depth channels anew.
 * A piece has neighbouring elements of neighbouring lines. */
typedef struct pool_args {
    launch_part part;
    array4 x, y; /* (batch, channel, row, column) */
    pool_axis rows, cols;
    args_long lines;  /* of a chunk of channels */
    args_long pieces; /* chunks * bands * tiles, the last fastest; 0: nothing to do, return at once */
    int channels, depth;
    int tile, band; /* elements and lines of a piece; the last ones may have fewer */
    int share; /* pool_cpu: columns of a window that the span has at a time; pool_generic: items that share an element */
    int average; /* 0: the largest */
    int padding_counts;
    int reserved; /* 0 */
} pool_args;

/* The arrays of backward: forward.y is the gradient of y.  Lines, pieces and tiles are of x_gradient's elements, a band is a
 * line, and `share` is 0. */
typedef struct pool_backward_args {
    pool_args forward;
    array4 x_gradient;
} pool_backward_args;

/* What pool_cpu has room for. */
#define POOL_TILE 128 /* elements of a piece */
#define POOL_SPAN 512 /* elements of x that they need of one row at a time */
#define POOL_BLOCK 4  /* vectors of channels */
#define POOL_ROW 1024 /* pool_backward_cpu: elements of a piece */

/* The most items of a work-group of pool_generic. */
#define POOL_ITEMS 64

#endif
