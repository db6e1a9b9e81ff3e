/* What merge/merge.cl is told; shared with the host. */
#ifndef CLATTN_CL_MERGE_ARGS_H
#define CLATTN_CL_MERGE_ARGS_H

#include "lib/array.h"

typedef struct merge_args {
    launch_part part;
    array4 partial, output;   /* (b, h, i, d) of part 0 */
    array4 partial_lse, lse;  /* (b, h, i) */
    args_long step, step_lse; /* from one part to the next */
    args_long sinks_offset, sinks_stride;
    int batch; /* 0: nothing to do, return at once */
    int heads, queries, partials, columns;
    int reserved;
} merge_args;

#endif
