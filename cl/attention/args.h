/* What the attention kernels are told, shared by the host and OpenCL C; lib/array.h has the rules. */
#ifndef CLATTN_CL_ATTENTION_ARGS_H
#define CLATTN_CL_ATTENTION_ARGS_H

#include "lib/array.h"

/* Positions lie within 2^42 of 0, so that a window which is wider ends nowhere. */
#define ATTENTION_UNBOUNDED ((args_long)1 << 44)

/* attention/core.h says what each member means to a kernel. */
typedef struct attention_args {
    launch_part part;
    array4 query, key, value, output; /* key and value of a paged cache: `batch` is the page's stride */
    array4 mask, bias;                /* (b, h, i, j); a broadcast dimension has stride 0 */
    array4 lse, entropy;              /* (b, h, i); col unused */
    array4 scores;                    /* (b, h, i, j); head 0 when averaged */
    array4 key_scale, value_scale;    /* (b, h, j, group) */
    array2 vector;                    /* (h, d) */
    array2 alibi, block_table;        /* (b, h), (b, block) */
    array1 sinks;                     /* (h) */
    array1 query_lengths, key_lengths, positions, query_starts, key_starts; /* (b) */
    args_long user_offset[4];
    args_long position;                  /* key position of query 0, but for ALIGN_BOTTOM_RIGHT */
    args_long window_left, window_right; /* ATTENTION_UNBOUNDED: no end */
    args_long dropout_seed;
    args_long scale_bits;         /* of `scale` as a double, for DOUBLE */
    int batch;                    /* 0: nothing to do, return at once */
    int heads;                    /* query heads */
    int group;                    /* query heads for each key/value head */
    int query_length, key_length; /* the most that an item has */
    int mask_keys, bias_keys;     /* keys that they cover; those beyond are not attended */
    int capacity;                 /* rows of a ring or of packed keys; pages of a paged cache */
    int packed_queries;           /* rows of packed queries */
    args_uint dropout_offset;
    args_uint dropout_threshold; /* a word below it drops */
    float dropout_scale;         /* 1 / (1 - dropout) */
    float scale;
    float softcap;
    float user_scalar[4];
    float dropout;                              /* the probability, for DOUBLE */
    int splits;                                 /* parts of each item's keys; `batch` is items * splits, part by part */
    int items;                                  /* batch items, with `splits` */
    int first_query, first_key, first_head;     /* of larger arrays, of which these are a part */
    int whole_queries, whole_keys, whole_heads; /* how many those have */
    int reserved;
} attention_args;

#endif
