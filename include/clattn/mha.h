/** @file
 * Multi-head attention: projections, attention by heads, and the projection of what they found.
 *
 *     head_h  = attention(X W_Qᵀ + b_Q, C W_Kᵀ + b_K, C W_Vᵀ + b_V) over the h-th share of the columns
 *     Y       = concat(head_1 ... head_H) W_Oᵀ + b_O
 *
 * (Vaswani et al. 2017, section 3.2.2.) In self-attention C is X; in cross-attention it is another array. Weights are
 * stored (out, in), row-major, as PyTorch's nn.MultiheadAttention has them. Heads are strides: nothing is transposed
 * or copied.
 *
 * The projections of queries, keys and values are
 *
 *     self-attention     packed weights: one product      separate weights: three
 *     cross-attention    packed weights: two products,    separate weights: three
 *                        three with a context_value
 */
#ifndef CLATTN_MHA_H
#define CLATTN_MHA_H

#include "attention.h"

CLATTN_BEGIN_DECLS

/** Which probabilities are an extra output. */
typedef enum clattn_weights_output {
    CLATTN_WEIGHTS_OUTPUT_NONE = 0,     /**< none */
    CLATTN_WEIGHTS_OUTPUT_PER_HEAD = 1, /**< those of each head, (batch, heads, S_q, S_k) */
    CLATTN_WEIGHTS_OUTPUT_AVERAGE = 2,  /**< their mean over heads, (batch, S_q, S_k) */
    CLATTN_WEIGHTS_OUTPUT_FORCE_32BIT = 0x7fffffff
} clattn_weights_output;

/** What to compute. Set it up with CLATTN_MHA_DESC_INIT. */
typedef struct clattn_mha_desc {
    size_t size;                /**< sizeof(clattn_mha_desc) */
    clattn_direction direction; /**< CLATTN_DIRECTION_FORWARD */

    /** The type of inputs, weights, biases and output: float32 (CLATTN_DTYPE_NONE, too), float16 or bfloat16.
     * Projected queries, keys and values and the attended heads are rounded to it; sums and softmax are float32. */
    clattn_dtype dtype;
    int32_t cross; /**< 1: keys and values come from `context`; 0 (default): from x itself */

    /** 1: W_Q, W_K and W_V are one array `w_in` (3*inner, d_model), PyTorch's in_proj_weight, and b_Q, b_K and b_V one
     * `b_in`; needs kv_heads = heads and d_context = d_context_value = d_model. 0 (default): three arrays each. */
    int32_t packed_weights;
    int32_t bias_in;               /**< 1: b_Q, b_K and b_V are added */
    int32_t bias_out;              /**< 1: b_O is added */
    int32_t causal;                /**< as in clattn_attention_desc */
    clattn_alignment alignment;    /**< as in clattn_attention_desc */
    int32_t explicit_scale;        /**< 1: `scale` counts; 0 (default): 1/sqrt(d_k), where d_k is the head size */
    float scale;                   /**< any finite value, 0 and negative included */
    clattn_weights_output weights; /**< which float32 probabilities are an extra output */
    int32_t short_mask;            /**< as in clattn_attention_desc */
    size_t batch;                  /**< the largest batch; 0, as a length of 0, is allowed and does nothing */
    size_t query_length;           /**< the largest S_q */
    size_t key_length;             /**< the largest S_k if `cross` is 1; otherwise S_k is S_q */
    size_t d_model;                /**< columns of x and y */
    size_t heads;                  /**< H */
    size_t kv_heads;               /**< 0: heads; otherwise a divisor of heads */
    size_t head_size;              /**< d_k = d_v; 0: d_model / heads, which must then be whole */
    size_t d_context;              /**< columns of `context`; 0: d_model */

    /** Columns of `context_value`, an input of its own for the values, even if equal to d_context. 0: `context` serves
     * keys and values. */
    size_t d_context_value;
    clattn_layout mask; /**< as in clattn_attention_desc */
} clattn_mha_desc;

/** Initialises a clattn_mha_desc: its size, and zeros. */
#define CLATTN_MHA_DESC_INIT CLATTN_INIT(clattn_mha_desc)

/** Sets *desc as CLATTN_MHA_DESC_INIT does (@ref calls_init). */
CLATTN_API void clattn_mha_desc_init(clattn_mha_desc *desc);

/** Where the arrays are this time. Set it up with CLATTN_MHA_ARGS_INIT.
 *
 * All arrays are contiguous, row-major, at the description's largest lengths; `explicit_lengths` says how much of them
 * counts, and does not move anything. If the description has batch 4 and S_q 128, the items of x stay 128*d_model
 * elements apart even when 3 items of 17 tokens are computed:
 *
 *     token i of item b lies at                      (b*128 + i) * d_model                 in x, and likewise in y
 *     element (b, h, i, j) of `weights` lies at      ((b*H + h)*128 + i) * S_k + j         with the description's S_k
 *
 * Make another plan for arrays that are packed at other lengths. Below, inner = heads * head_size and inner_kv =
 * kv_heads * head_size. */
typedef struct clattn_mha_args {
    size_t size;                            /**< sizeof(clattn_mha_args) */
    clattn_binding x;                       /**< (batch, S_q, d_model) */
    clattn_binding context;                 /**< (batch, S_k, d_context) if `cross` is 1 */
    clattn_binding context_value;           /**< (batch, S_k, d_context_value) if that is not 0 */
    clattn_binding w_in, b_in;              /**< the packed weights (3*inner, d_model) and biases (3*inner) */
    clattn_binding w_q;                     /**< (inner, d_model), unless weights are packed */
    clattn_binding w_k;                     /**< (inner_kv, d_context), unless weights are packed */
    clattn_binding w_v;                     /**< (inner_kv, d_context_value), unless weights are packed */
    clattn_binding b_q, b_k, b_v;           /**< one number for each row of its weight, unless weights are packed */
    clattn_binding w_o, b_o;                /**< (d_model, inner) and (d_model) */
    clattn_binding mask;                    /**< the mask */
    clattn_binding y;                       /**< the output (batch, S_q, d_model) */
    clattn_binding weights;                 /**< the probabilities */
    int32_t explicit_lengths;               /**< 1: the three fields below count; 0 (default): the description's */
    int32_t reserved;                       /* 0 */
    size_t batch, query_length, key_length; /**< at most the description's; 0 is allowed */
    int64_t position;                       /**< the key position of query 0, with CLATTN_ALIGNMENT_EXPLICIT */
    clattn_binding workspace;               /**< none (default), or a workspace (@ref calls_workspace) */
    clattn_control *control;                /**< what watches the call (control.h), or NULL */
} clattn_mha_args;

/** Initialises a clattn_mha_args: its size, and zeros. */
#define CLATTN_MHA_ARGS_INIT CLATTN_INIT(clattn_mha_args)

/** Sets *args as CLATTN_MHA_ARGS_INIT does (@ref calls_init). */
CLATTN_API void clattn_mha_args_init(clattn_mha_args *args);

/** Tells whether some solver takes `desc`, and if not, why (@ref calls_supports).
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, INVALID_LAYOUT, OVERFLOW, UNSUPPORTED or OUT_OF_MEMORY. */
CLATTN_API clattn_status clattn_mha_supports(clattn_context *context, const clattn_mha_desc *desc, const char **reason);

/** Compiles a plan for `desc` (@ref calls_plan). Blocks.
 *
 * A solver that `options` asks for is the attention's; the products choose theirs.
 *
 * @return what clattn_mha_supports returns, FORKED, OPENCL, BUILD, MISCOMPILED, IO or INTERNAL. */
CLATTN_API clattn_status clattn_mha_plan_create(clattn_context *context, const clattn_mha_desc *desc,
                                                const clattn_plan_options *options, clattn_plan **plan);

/** Enqueues the plan (@ref calls_enqueue). Does not block.
 *
 * A layer is several kernels. After a failure with OUT_OF_MEMORY or OPENCL the first of them may have been enqueued,
 * and `weights` and `y` be written by then or later, wholly or in part. After any other failure nothing that writes
 * them has been enqueued.
 *
 * CLBlast multiplies buffers alone: arrays and a workspace in shared virtual memory need a plan of a context whose
 * params exclude it.
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, OVERFLOW, UNSUPPORTED (shared virtual memory on a device without it, or
 * for a product that CLBlast computes), WRONG_CONTEXT, BUFFER_TOO_SMALL, BUFFER_ACCESS, BUSY, OUT_OF_MEMORY, OPENCL or
 * FORKED. */
CLATTN_API clattn_status clattn_mha_enqueue(clattn_plan *plan, cl_command_queue queue, const clattn_mha_args *args,
                                            cl_uint wait_count, const cl_event *wait_list, cl_event *event);

/** Makes the plan that clattn_mha_run will want for `desc` (@ref calls_prewarm). Blocks.
 *
 * @return what clattn_mha_plan_create returns. */
CLATTN_API clattn_status clattn_mha_prewarm(clattn_context *context, const clattn_mha_desc *desc);

/** Finds or makes the plan for `desc` and enqueues it (@ref calls_run). Blocks only while it compiles.
 *
 * @return what clattn_mha_plan_create and clattn_mha_enqueue return. */
CLATTN_API clattn_status clattn_mha_run(clattn_context *context, cl_command_queue queue, const clattn_mha_desc *desc,
                                        const clattn_mha_args *args, cl_uint wait_count, const cl_event *wait_list,
                                        cl_event *event);

CLATTN_END_DECLS

#endif
