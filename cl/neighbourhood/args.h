/* The arguments of neighbourhood attention's kernels, shared by the host and OpenCL C; lib/array.h has the rules. */
#ifndef CLATTN_CL_NEIGHBOURHOOD_ARGS_H
#define CLATTN_CL_NEIGHBOURHOOD_ARGS_H

#include "lib/array.h"

/* Element (b, h, y, x, d) of a (batch, heads, height, width, size) array lies at
 * offset + b*batch + h*head + y*row + x*col + d*size. */
typedef struct map5 {
    args_long offset, batch, head, row, col, size;
} map5;

typedef struct neighbourhood_args {
    launch_part part;
    map5 query, key, value, output;
    map5 bias;                                                  /* (b, h, y, x); a broadcast dimension has stride 0 */
    map5 lse;                                                   /* (b, h, y, x) */
    args_long packed_offset;                                    /* where the workspace starts, in floats */
    args_long packed_bias, packed_bias_batch, packed_bias_head; /* bias rows, from packed_offset; 0: broadcast */
    int batch;                                                  /* 0: nothing to do, return at once */
    int heads;                                                  /* query heads */
    int group;                                                  /* query heads for each key/value head */
    int query_height, query_width;
    int height, width;      /* of the keys */
    int query_y, query_x;   /* key position of query (0, 0) */
    int window_y, window_x; /* odd */
    int dilation_y, dilation_x;
    int clip;                   /* 1: CLATTN_EDGE_CLIP */
    int packed_width;           /* floats of a packed row */
    int bias_batch, bias_heads; /* extents of the bias, 1: broadcast */
    float scale;
} neighbourhood_args;

/* The arrays of backward: forward.output is the gradient of the output, and there is no lse. */
typedef struct neighbourhood_backward_args {
    neighbourhood_args forward;
    map5 query_gradient, key_gradient, value_gradient, bias_gradient;
    args_long rows_offset; /* where the workspace starts, in floats */
    int kv_heads;
    int reserved; /* 0 */
} neighbourhood_backward_args;

#endif
