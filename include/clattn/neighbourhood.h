/** @file
 * Neighbourhood attention: each pixel attends a window of pixels around it.
 *
 *     S[b,h,y,x,(i,j)] = scale * sum_d query[b,h,y,x,d] * key[b,h/g,i,j,d]  (+ bias[b,h,i,j])
 *     O[b,h,y,x,:]     = sum_(i,j) softmax(S[b,h,y,x,:] over the window of (y,x)) * value[b,h/g,i,j,:]
 *
 * Here g = heads / kv_heads. The window of a query is the product of its two ranges, one in each dimension. Consider a
 * dimension of length L, with an odd window K and dilation D. All positions with the same remainder r = p mod D form a
 * group of n = ceil((L - r) / D) positions, in which p is number t = p div D. The range of p consists of the group's
 * positions r + D*u:
 *
 *     CLATTN_EDGE_SHIFT   u = s ... s + K - 1, where s = t - K div 2, shifted to lie within 0 ... n - K.
 *                         Every query has K keys in this dimension.  Needs K*D <= L.
 *     CLATTN_EDGE_CLIP    u = t - K div 2 ... t + K div 2, as far as it lies within 0 ... n - 1.
 *                         The window stays centred on the query, and keys outside the map are dropped.
 *
 * CLATTN_EDGE_SHIFT is NATTEN's way (Hassani et al. 2023, "Neighborhood Attention Transformer"; dilation: Hassani and
 * Shi 2022).
 *
 * The cost is that of the window, K_y * K_x keys for each query, and never of the whole map. Scores are not written to
 * memory. Storage is float32, float16 or bfloat16; state is float32.
 *
 * - A key outside the window cannot leak, whatever it holds.
 * - A bias of -inf drops its key exactly: `key` may hold anything there; `value` takes part with weight +0 and must be
 *   finite.
 * - A query all of whose keys are dropped is exactly +0, and its log-sum-exp is -inf.
 * - A NaN, or a score of +inf, makes its query NaN.
 *
 * CLATTN_DIRECTION_BACKWARD makes the gradients of query, key, value and bias of the gradient of the output, those of
 * them that the description's `gradients` has. With P the softmax, G the gradient of the output, and q and k a query and
 * a key of its window,
 *
 *     dP[q,k] = sum_d G[q,d] * value[k,d]      dS[q,k] = P[q,k] * (dP[q,k] - sum_k' P[q,k'] * dP[q,k'])
 *
 *     gradients.query[q,:] = scale * sum_k dS[q,k] * key[k,:]       gradients.value[k,:] = sum_q P[q,k] * G[q,:]
 *     gradients.key[k,:]   = scale * sum_q dS[q,k] * query[q,:]     gradients.bias[k]    = sum_q dS[q,k]
 *
 * where a sum over q has the queries whose windows have k, of all heads that share it; for a bias that broadcasts, of
 * all batch items and heads that it is broadcast to. Softmax is computed anew, so neither output nor lse is needed, and
 * lse has no gradient. A key that the bias drops gets +0, whatever `key` and `value` hold there, and so do a key of no
 * query's window and a query all of whose keys are dropped. A query that is NaN makes the gradients of its keys NaN.
 * Everything is gathered: there are no atomics, sums have a fixed order, and gradients of an item are the same in every
 * bit from run to run and whatever the batch around it, except that of a bias which broadcasts over the batch.
 */
#ifndef CLATTN_NEIGHBOURHOOD_H
#define CLATTN_NEIGHBOURHOOD_H

#include "plan.h"

CLATTN_BEGIN_DECLS

/** What becomes of a window at the map's edge. */
typedef enum clattn_edge {
    CLATTN_EDGE_SHIFT = 0, /**< it is shifted inwards and stays whole */
    CLATTN_EDGE_CLIP = 1,  /**< it is cut off */
    CLATTN_EDGE_FORCE_32BIT = 0x7fffffff
} clattn_edge;

/** What to compute. Set it up with CLATTN_NEIGHBOURHOOD_DESC_INIT.
 *
 * Extents are the largest that an enqueue may use, and at most 2^29. Pairs are (y, x). query, key, value, output and
 * their gradients are each float32, float16 or bfloat16, independently of each other. Backward has no output and no lse.
 */
typedef struct clattn_neighbourhood_desc {
    size_t size;                /**< sizeof(clattn_neighbourhood_desc) */
    clattn_direction direction; /**< either */
    clattn_edge edge;           /**< what becomes of a window at the edge */
    int32_t window[2];          /**< K, odd, 1 ... 32767 */
    int32_t dilation[2];        /**< D, 1 ... 32767; 0 (default): 1 */
    int32_t explicit_scale;     /**< 1: `scale` counts; 0 (default): 1/sqrt(d_k) */
    float scale;                /**< any finite value, 0 and negative included */
    clattn_layout query;        /**< (batch, heads, query height, query width, d_k) */
    clattn_layout key;          /**< (batch, kv_heads, height, width, d_k); heads is a multiple of kv_heads */
    clattn_layout value;        /**< (batch, kv_heads, height, width, d_v) */
    clattn_layout output;       /**< (batch, heads, query height, query width, d_v) */

    /** None, or (batch or 1, heads or 1, height, width) float32: added to the scores of a key, whichever query asks. */
    clattn_layout bias;

    /** None, or (batch, heads, query height, query width) float32: the natural logarithm of the sum of exp(S) over the
     * window. */
    clattn_layout lse;

    /** Only with CLATTN_DIRECTION_BACKWARD: each has the extents of the array of its name. */
    struct {
        clattn_layout output;            /**< the input: the gradient of output */
        clattn_layout query, key, value; /**< each none, or an output; at least one gradient is written */
        clattn_layout bias;              /**< none, or an output, float32; only if there is a bias */
    } gradients;
} clattn_neighbourhood_desc;

/** Initialises a clattn_neighbourhood_desc: its size, and zeros. */
#define CLATTN_NEIGHBOURHOOD_DESC_INIT CLATTN_INIT(clattn_neighbourhood_desc)

/** Sets *desc as CLATTN_NEIGHBOURHOOD_DESC_INIT does (@ref calls_init). */
CLATTN_API void clattn_neighbourhood_desc_init(clattn_neighbourhood_desc *desc);

/** Where the arrays are this time, and how much of them counts. Set it up with CLATTN_NEIGHBOURHOOD_ARGS_INIT.
 *
 * Queries may be a part of the map, a tile: query (0, 0) stands at key position (query_y, query_x), and all queries
 * lie within the map of keys. The keys of a tile are those within a margin of K div 2 * D around it, or less at the
 * map's edge. Tile by tile the result is then that of the whole map. With CLATTN_EDGE_SHIFT, windows at the map's edge
 * reach further inwards: if the map's end cuts a margin, the tile has at least K * D keys in that dimension, from the
 * edge on. */
typedef struct clattn_neighbourhood_args {
    size_t size;                                         /**< sizeof(clattn_neighbourhood_args) */
    clattn_binding query, key, value, bias, output, lse; /**< the array of that name */
    int32_t explicit_sizes;           /**< 1: the next five fields count; 0 (default): the description's extents */
    int32_t reserved;                 /* 0 */
    size_t batch;                     /**< at most the description's; 0 is allowed and does nothing */
    size_t query_height, query_width; /**< at most the description's; 0 is allowed: nothing, and backward +0 */
    size_t key_height, key_width;     /**< at most the description's */
    size_t query_y, query_x;          /**< where query (0, 0) stands; 0 (default): at the map's first row, column */
    struct {
        clattn_binding output, query, key, value, bias;
    } gradients;              /**< the array of that name in the description's `gradients` */
    clattn_binding workspace; /**< none (default), or a workspace (@ref calls_workspace) */
    clattn_control *control;  /**< what watches the call (control.h), or NULL */
} clattn_neighbourhood_args;

/** Initialises a clattn_neighbourhood_args: its size, and zeros. */
#define CLATTN_NEIGHBOURHOOD_ARGS_INIT CLATTN_INIT(clattn_neighbourhood_args)

/** Sets *args as CLATTN_NEIGHBOURHOOD_ARGS_INIT does (@ref calls_init). */
CLATTN_API void clattn_neighbourhood_args_init(clattn_neighbourhood_args *args);

/** Tells whether some solver takes `desc`, and if not, why (@ref calls_supports).
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, INVALID_LAYOUT, OVERFLOW, UNSUPPORTED or OUT_OF_MEMORY. */
CLATTN_API clattn_status clattn_neighbourhood_supports(clattn_context *context, const clattn_neighbourhood_desc *desc,
                                                       const char **reason);

/** Compiles a plan for `desc` (@ref calls_plan). Blocks.
 *
 * @return what clattn_neighbourhood_supports returns, FORKED, OPENCL, BUILD, MISCOMPILED, IO or INTERNAL. */
CLATTN_API clattn_status clattn_neighbourhood_plan_create(clattn_context *context,
                                                          const clattn_neighbourhood_desc *desc,
                                                          const clattn_plan_options *options, clattn_plan **plan);

/** Enqueues the plan (@ref calls_enqueue). Does not block.
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, OVERFLOW, UNSUPPORTED (shared virtual memory on a device without it),
 * WRONG_CONTEXT, BUFFER_TOO_SMALL, BUFFER_ACCESS, BUSY, OUT_OF_MEMORY, OPENCL, CANCELLED or FORKED. */
CLATTN_API clattn_status clattn_neighbourhood_enqueue(clattn_plan *plan, cl_command_queue queue,
                                                      const clattn_neighbourhood_args *args, cl_uint wait_count,
                                                      const cl_event *wait_list, cl_event *event);

/** Makes the plan that clattn_neighbourhood_run will want for `desc` (@ref calls_prewarm). Blocks.
 *
 * @return what clattn_neighbourhood_plan_create returns. */
CLATTN_API clattn_status clattn_neighbourhood_prewarm(clattn_context *context, const clattn_neighbourhood_desc *desc);

/** Finds or makes the plan for `desc` and enqueues it (@ref calls_run). Blocks only while it compiles.
 *
 * @return what clattn_neighbourhood_plan_create and clattn_neighbourhood_enqueue return. */
CLATTN_API clattn_status clattn_neighbourhood_run(clattn_context *context, cl_command_queue queue,
                                                  const clattn_neighbourhood_desc *desc,
                                                  const clattn_neighbourhood_args *args, cl_uint wait_count,
                                                  const cl_event *wait_list, cl_event *event);

CLATTN_END_DECLS

#endif
