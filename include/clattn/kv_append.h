/* Appending new keys and values to a cache, in place: what stands before an attention over the cache.
 *
 * Row i of item b's new keys and values becomes key j = past + i of the cache, past being past_lengths[b] or
 * clattn_kv_append_args.past_length.  The caches are those that clattn_attention reads: plain, ring or paged, in any of
 * its storage types.  Optionally the keys are rotated on their way (clattn/rope.h: the same angles, computed, at
 * position j + clattn_kv_append_args.position).
 *
 * int8 and int4 caches: a group of d / groups neighbouring elements is stored as integers q with one scale, x = q scale:
 * scale = max|x| / 127 (int4: 7), rounded to the scale's type first; q = x / scale rounded to nearest even, within
 * -127 ... 127 (-7 ... 7); a group of zeros has scale 0.  A NaN or infinity makes its group's scale NaN, and so the group.
 *
 * A key that the cache has no room for is not written: beyond a plain cache's rows, beyond the block table, on a page
 * number that is out of range.  Of more new keys than a ring holds, the last ones are written. */
#ifndef CLATTN_KV_APPEND_H
#define CLATTN_KV_APPEND_H

#include "rope.h"

CLATTN_BEGIN_DECLS

/* What to do.  Set it up with CLATTN_KV_APPEND_DESC_INIT.  Batch and length are the largest that an enqueue may use. */
typedef struct clattn_kv_append_desc {
    size_t size; /* sizeof(clattn_kv_append_desc) */
    clattn_direction direction;
    clattn_cache_kind cache;
    clattn_layout key;       /* (batch, kv_heads, length, d_k) float32, float16 or bfloat16 */
    clattn_layout value;     /* (batch, kv_heads, length, d_v) */
    clattn_layout key_cache; /* (batch, kv_heads, S_k, d_k), paged (pages, kv_heads, page_size, d_k): float32, float16,
                                * bfloat16, int8 or int4 */
    clattn_layout value_cache;  /* the same with d_v */
    clattn_layout key_scale;    /* with an int8 or int4 key_cache: (its first three extents, groups) float32 or float16,
                                * groups a divisor of d_k; with int4 groups have an even size, and strides are even */
    clattn_layout value_scale;  /* the same for the values */
    clattn_layout block_table;  /* with CLATTN_CACHE_KIND_PAGED: (batch, blocks) int32 or int64 */
    clattn_layout past_lengths; /* none, or (batch) int32 or int64 */
    clattn_layout new_lengths;  /* none, or (batch): item b appends its first new_lengths[b] rows only */
    int32_t rotate; /* 1: the keys are rotated; 0 (default): they are not, and the fields below do not count */
    clattn_rope_pairing pairing;
    float base;         /* finite, > 1; 0 (default): 10000 */
    int32_t reserved;   /* 0 */
    size_t rotary_size; /* even, <= d_k and 131072; 0 (default): d_k */
} clattn_kv_append_desc;

#define CLATTN_KV_APPEND_DESC_INIT CLATTN_INIT(clattn_kv_append_desc)

/* What CLATTN_KV_APPEND_DESC_INIT does.  NULL is accepted. */
CLATTN_API void clattn_kv_append_desc_init(clattn_kv_append_desc *desc);

/* Where the arrays are.  The caches and scales are written in the appended rows alone, and overlap nothing.  Two items
 * whose pages are the same race. */
typedef struct clattn_kv_append_args {
    size_t size; /* sizeof(clattn_kv_append_args) */
    clattn_binding key, value, key_cache, value_cache, key_scale, value_scale, block_table, past_lengths, new_lengths;
    int32_t explicit_lengths; /* 1: `batch` and `length` count; 0 (default): the desc's extents */
    int32_t reserved;         /* 0 */
    size_t batch, length;     /* <= the desc's; 0 is allowed and does nothing */
    int64_t past_length;      /* >= 0; without past_lengths: keys that each item's cache already has.  A ring's, the new
                               * ones included, are at most 2^31 - 65537, since attention counts no further */
    int64_t position;         /* with `rotate`: added to every key's position */
} clattn_kv_append_args;

#define CLATTN_KV_APPEND_ARGS_INIT CLATTN_INIT(clattn_kv_append_args)

/* What CLATTN_KV_APPEND_ARGS_INIT does.  NULL is accepted. */
CLATTN_API void clattn_kv_append_args_init(clattn_kv_append_args *args);

/* The five calls below behave as their namesakes in attention.h: contracts, blocking and statuses. */
CLATTN_API clattn_status clattn_kv_append_supports(clattn_context *context, const clattn_kv_append_desc *desc,
                                                   const char **reason);
CLATTN_API clattn_status clattn_kv_append_plan_create(clattn_context *context, const clattn_kv_append_desc *desc,
                                                      const clattn_plan_options *options, clattn_plan **plan);
CLATTN_API clattn_status clattn_kv_append_enqueue(clattn_plan *plan, cl_command_queue queue,
                                                  const clattn_kv_append_args *args, cl_uint wait_count,
                                                  const cl_event *wait_list, cl_event *event);
CLATTN_API clattn_status clattn_kv_append_prewarm(clattn_context *context, const clattn_kv_append_desc *desc);
CLATTN_API clattn_status clattn_kv_append_run(clattn_context *context, cl_command_queue queue,
                                              const clattn_kv_append_desc *desc, const clattn_kv_append_args *args,
                                              cl_uint wait_count, const cl_event *wait_list, cl_event *event);

CLATTN_END_DECLS

#endif
