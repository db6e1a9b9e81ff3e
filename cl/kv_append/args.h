/* What kv_append/kv_append.cl is told; shared with the host. */
#ifndef CLATTN_CL_KV_APPEND_ARGS_H
#define CLATTN_CL_KV_APPEND_ARGS_H

#include "rope/args.h"

typedef struct kv_append_args {
    launch_part part;
    array4 key, value;             /* (b, h, i, d) */
    array4 key_cache, value_cache; /* (b, h, j, d); paged: `batch` is the page's stride */
    array4 key_scale, value_scale; /* (b, h, j, group), as the caches */
    array4 block_table;            /* (b, block): the block's stride is `col` */
    array1 past_lengths, new_lengths;
    args_long past_length, position;
    rope_args rope; /* its angles and pairs; the rest of it is unused */
    int batch;      /* 0: nothing to do, return at once */
    int heads, length;
    int capacity; /* rows of a cache or of a page */
    int pages, blocks;
} kv_append_args;

#endif
