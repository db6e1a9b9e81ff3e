/** @file
 * Appending new keys and values to a cache, in place: the step before an attention over the cache.
 *
 * Row i of item b's new keys and values becomes key j = past + i of the cache, where past is past_lengths[b] or
 * clattn_kv_append_args.past_length. The caches are those that attention.h reads: plain, ring or paged, in any of its
 * storage types. If `rotate` is 1, the keys are rotated on their way, as by rope.h with computed angles, at position j
 * + clattn_kv_append_args.position.
 *
 * An int8 or int4 cache stores a group of d / groups neighbouring elements as integers q with one scale, x = q scale:
 *
 *     scale = max|x| / 127 (int4: 7), rounded to the scale's type first
 *     q     = x / scale, rounded to nearest even, within -127 ... 127 (int4: -7 ... 7)
 *
 * A group of zeros has scale 0. A NaN or infinity makes its group's scale NaN, and so the group.
 *
 * A key for which the cache has no room is not written: one beyond a plain cache's rows, beyond the block table, or on
 * a page whose number is out of range. If there are more new keys than a ring holds, the last ones are written.
 */
#ifndef CLATTN_KV_APPEND_H
#define CLATTN_KV_APPEND_H

#include "rope.h"

CLATTN_BEGIN_DECLS

/** What to do. Set it up with CLATTN_KV_APPEND_DESC_INIT.
 *
 * The extents of batch and length are the largest that an enqueue may use. */
typedef struct clattn_kv_append_desc {
    size_t size;                /**< sizeof(clattn_kv_append_desc) */
    clattn_direction direction; /**< CLATTN_DIRECTION_FORWARD */
    clattn_cache_kind cache;    /**< plain, ring or paged */
    clattn_layout key;          /**< the new keys, (batch, kv_heads, length, d_k) float32, float16 or bfloat16 */
    clattn_layout value;        /**< the new values, (batch, kv_heads, length, d_v), of the same types */

    /** (batch, kv_heads, S_k, d_k), or (pages, kv_heads, page_size, d_k) if paged: float32, float16, bfloat16, int8 or
     * int4. */
    clattn_layout key_cache;
    clattn_layout value_cache; /**< the same with d_v */

    /** (the first three extents of key_cache, groups) float32 or float16 if key_cache is int8 or int4; otherwise none.
     * The number of groups divides d_k. With int4 the groups have an even size, and the cache's strides are even. */
    clattn_layout key_scale;
    clattn_layout value_scale;  /**< the same for the values */
    clattn_layout block_table;  /**< (batch, blocks) int32 or int64 if paged; otherwise none */
    clattn_layout past_lengths; /**< none, or (batch) int32 or int64: how many keys each item's cache has already */
    clattn_layout new_lengths;  /**< none, or (batch): item b appends only its first new_lengths[b] rows */
    int32_t rotate; /**< 1: keys are rotated; 0 (default): they are not, and the fields below do not count */
    clattn_rope_pairing pairing; /**< which elements form a pair */
    float base;                  /**< the base of the angles: finite, > 1; 0 (default): 10000 */
    int32_t reserved;            /* 0 */
    size_t rotary_size;          /**< even, at most d_k and 131072; 0 (default): d_k */
} clattn_kv_append_desc;

/** Initialises a clattn_kv_append_desc: its size, and zeros. */
#define CLATTN_KV_APPEND_DESC_INIT CLATTN_INIT(clattn_kv_append_desc)

/** Sets *desc as CLATTN_KV_APPEND_DESC_INIT does (@ref calls_init). */
CLATTN_API void clattn_kv_append_desc_init(clattn_kv_append_desc *desc);

/** Where the arrays are this time. Set it up with CLATTN_KV_APPEND_ARGS_INIT.
 *
 * Only the appended rows of the caches and scales are written. Caches and scales may overlap nothing. If two items
 * have a page in common, their writes race. Kernels also read the scales: a CL_MEM_WRITE_ONLY buffer is refused with
 * BUFFER_ACCESS. */
typedef struct clattn_kv_append_args {
    size_t size;                                                                   /**< sizeof(clattn_kv_append_args) */
    clattn_binding key, value, key_cache, value_cache;                             /**< the array of that name */
    clattn_binding key_scale, value_scale, block_table, past_lengths, new_lengths; /**< the array of that name */
    int32_t explicit_lengths; /**< 1: `batch` and `length` count; 0 (default): the description's extents */
    int32_t reserved;         /* 0 */
    size_t batch, length;     /**< at most the description's; 0 is allowed and does nothing */

    /** How many keys each item's cache has already, >= 0, if there are no past_lengths. A ring's keys, the new ones
     * included, are at most 2^31 - 65537, because attention counts no further. */
    int64_t past_length;
    int64_t position;        /**< what is added to every key's position if keys are rotated */
    clattn_control *control; /**< what watches the call (control.h), or NULL */
} clattn_kv_append_args;

/** Initialises a clattn_kv_append_args: its size, and zeros. */
#define CLATTN_KV_APPEND_ARGS_INIT CLATTN_INIT(clattn_kv_append_args)

/** Sets *args as CLATTN_KV_APPEND_ARGS_INIT does (@ref calls_init). */
CLATTN_API void clattn_kv_append_args_init(clattn_kv_append_args *args);

/** Tells whether some solver takes `desc`, and if not, why (@ref calls_supports).
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, INVALID_LAYOUT, OVERFLOW, UNSUPPORTED or OUT_OF_MEMORY. */
CLATTN_API clattn_status clattn_kv_append_supports(clattn_context *context, const clattn_kv_append_desc *desc,
                                                   const char **reason);

/** Compiles a plan for `desc` (@ref calls_plan). Blocks.
 *
 * @return what clattn_kv_append_supports returns, FORKED, OPENCL, BUILD, MISCOMPILED, IO or INTERNAL. */
CLATTN_API clattn_status clattn_kv_append_plan_create(clattn_context *context, const clattn_kv_append_desc *desc,
                                                      const clattn_plan_options *options, clattn_plan **plan);

/** Enqueues the plan's one kernel (@ref calls_enqueue). Does not block.
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, OVERFLOW, UNSUPPORTED (shared virtual memory on a device without it),
 * WRONG_CONTEXT, BUFFER_TOO_SMALL, BUFFER_ACCESS, OUT_OF_MEMORY, OPENCL, CANCELLED or FORKED. */
CLATTN_API clattn_status clattn_kv_append_enqueue(clattn_plan *plan, cl_command_queue queue,
                                                  const clattn_kv_append_args *args, cl_uint wait_count,
                                                  const cl_event *wait_list, cl_event *event);

/** Makes the plan that clattn_kv_append_run will want for `desc` (@ref calls_prewarm). Blocks.
 *
 * @return what clattn_kv_append_plan_create returns. */
CLATTN_API clattn_status clattn_kv_append_prewarm(clattn_context *context, const clattn_kv_append_desc *desc);

/** Finds or makes the plan for `desc` and enqueues it (@ref calls_run). Blocks only while it compiles.
 *
 * @return what clattn_kv_append_plan_create and clattn_kv_append_enqueue return. */
CLATTN_API clattn_status clattn_kv_append_run(clattn_context *context, cl_command_queue queue,
                                              const clattn_kv_append_desc *desc, const clattn_kv_append_args *args,
                                              cl_uint wait_count, const cl_event *wait_list, cl_event *event);

CLATTN_END_DECLS

#endif
