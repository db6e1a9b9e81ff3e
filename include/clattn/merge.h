/** @file
 * Merging partial attentions over disjoint sets of keys: split keys, several devices, several machines.
 *
 * A partial is a normalised float32 output with its float32 log-sum-exp, as attention.h with `outputs.lse` gives it
 * for some of the keys (without sinks, which enter once, here):
 *
 *     L                = log(sum_n exp(lse[n,b,h,i]) + exp(sink[h]))
 *     output[b,h,i,:]  = sum_n exp(lse[n,b,h,i] - L) * partial[n,b,h,i,:]      n = 0, 1, ... in that order
 *
 * (Dao et al. 2023, "Flash-Decoding"; the identity is that of the blockwise softmax of Milakov and Gimelshein 2018.)
 *
 * A partial whose lse is -inf has attended nothing and counts for nothing, whatever its output holds. A row in which
 * all partials are so is +0, with lse -inf (with a sink: the sink's logit). A NaN lse makes its row NaN.
 */
#ifndef CLATTN_MERGE_H
#define CLATTN_MERGE_H

#include "plan.h"

CLATTN_BEGIN_DECLS

/** What to compute. Set it up with CLATTN_MERGE_DESC_INIT. */
typedef struct clattn_merge_desc {
    size_t size;                /**< sizeof(clattn_merge_desc) */
    clattn_direction direction; /**< CLATTN_DIRECTION_FORWARD */
    int32_t reserved;           /* 0 */
    clattn_layout partial;      /**< the outputs, (partials, batch, heads, S_q, d_v) float32 */
    clattn_layout partial_lse;  /**< their log-sum-exps, (partials, batch, heads, S_q) float32 */
    clattn_layout sinks;        /**< none, or (heads) float32 */
    clattn_layout output;       /**< (batch, heads, S_q, d_v) float32, float16 or bfloat16 */
    clattn_layout lse;          /**< none, or the output L, (batch, heads, S_q) float32 */
} clattn_merge_desc;

/** Initialises a clattn_merge_desc: its size, and zeros. */
#define CLATTN_MERGE_DESC_INIT CLATTN_INIT(clattn_merge_desc)

/** Sets *desc as CLATTN_MERGE_DESC_INIT does (@ref calls_init). */
CLATTN_API void clattn_merge_desc_init(clattn_merge_desc *desc);

/** Where the arrays are this time. Set it up with CLATTN_MERGE_ARGS_INIT. Outputs may overlap nothing. */
typedef struct clattn_merge_args {
    size_t size;                                             /**< sizeof(clattn_merge_args) */
    clattn_binding partial, partial_lse, sinks, output, lse; /**< the array of that name */
    int32_t explicit_lengths; /**< 1: the three fields below count; 0 (default): the description's extents */
    int32_t reserved;         /* 0 */
    size_t partials;          /**< at most the description's; with 0 no row attends anything */
    size_t batch;             /**< at most the description's; 0 is allowed and does nothing */
    size_t query_length;      /**< at most the description's S_q; 0 is allowed and does nothing */
    clattn_control *control;  /**< what watches the call (control.h), or NULL */
} clattn_merge_args;

/** Initialises a clattn_merge_args: its size, and zeros. */
#define CLATTN_MERGE_ARGS_INIT CLATTN_INIT(clattn_merge_args)

/** Sets *args as CLATTN_MERGE_ARGS_INIT does (@ref calls_init). */
CLATTN_API void clattn_merge_args_init(clattn_merge_args *args);

/** Tells whether some solver takes `desc`, and if not, why (@ref calls_supports).
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, INVALID_LAYOUT, OVERFLOW, UNSUPPORTED or OUT_OF_MEMORY. */
CLATTN_API clattn_status clattn_merge_supports(clattn_context *context, const clattn_merge_desc *desc,
                                               const char **reason);

/** Compiles a plan for `desc` (@ref calls_plan). Blocks.
 *
 * @return what clattn_merge_supports returns, FORKED, OPENCL, BUILD, MISCOMPILED, IO or INTERNAL. */
CLATTN_API clattn_status clattn_merge_plan_create(clattn_context *context, const clattn_merge_desc *desc,
                                                  const clattn_plan_options *options, clattn_plan **plan);

/** Enqueues the plan's one kernel (@ref calls_enqueue). Does not block.
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, OVERFLOW, UNSUPPORTED (shared virtual memory on a device without it),
 * WRONG_CONTEXT, BUFFER_TOO_SMALL, BUFFER_ACCESS, OUT_OF_MEMORY, OPENCL, CANCELLED or FORKED. */
CLATTN_API clattn_status clattn_merge_enqueue(clattn_plan *plan, cl_command_queue queue, const clattn_merge_args *args,
                                              cl_uint wait_count, const cl_event *wait_list, cl_event *event);

/** Makes the plan that clattn_merge_run will want for `desc` (@ref calls_prewarm). Blocks.
 *
 * @return what clattn_merge_plan_create returns. */
CLATTN_API clattn_status clattn_merge_prewarm(clattn_context *context, const clattn_merge_desc *desc);

/** Finds or makes the plan for `desc` and enqueues it (@ref calls_run). Blocks only while it compiles.
 *
 * @return what clattn_merge_plan_create and clattn_merge_enqueue return. */
CLATTN_API clattn_status clattn_merge_run(clattn_context *context, cl_command_queue queue,
                                          const clattn_merge_desc *desc, const clattn_merge_args *args,
                                          cl_uint wait_count, const cl_event *wait_list, cl_event *event);

CLATTN_END_DECLS

#endif
