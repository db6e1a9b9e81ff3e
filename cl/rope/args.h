/* The arguments of rotary position embedding's kernels, shared by the host and OpenCL C; lib/array.h has the rules. */
#ifndef CLATTN_CL_ROPE_ARGS_H
#define CLATTN_CL_ROPE_ARGS_H

#include "lib/array.h"

#define ROPE_RATIOS 16

typedef struct rope_args {
    launch_part part;
    array4 x, y;     /* (batch, heads, length, size) */
    array4 cos, sin; /* (batch, -, row, pair); head unused */
    args_long positions_offset, positions_batch, positions_row;
    args_long offsets_offset, offsets_batch;
    args_long position;            /* added to all positions */
    args_ulong turn;               /* pair 0's computed angle from one position to the next, in 2^-64 of a turn */
    args_ulong ratio[ROPE_RATIOS]; /* [k]: a pair's `turn` over that of the pair 2^k before it, in 2^-64 */
    int batch;                     /* 0: nothing to do, return at once */
    int heads, length, size, pairs;
    int step, distance; /* pair i: elements i * step and i * step + distance */
    int table;          /* source of cos and sin: ROPE_COMPUTED, ... */
    int table_rows;     /* with ROPE_BY_POSITION */
    int has_positions, has_offsets;
    int chunk; /* heads of an item of rope_generic */
} rope_args;

#define ROPE_COMPUTED 0
#define ROPE_BY_POSITION 1 /* row p of the caches */
#define ROPE_BY_PLACE 2    /* row (b, s) */

#endif
