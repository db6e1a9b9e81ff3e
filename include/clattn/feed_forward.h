/** @file
 * The position-wise feed-forward network.
 *
 *     plain:  Y = act(X W1ᵀ + b1) W2ᵀ + b2                                   (Vaswani et al. 2017, section 3.3)
 *     gated:  Y = (act(X Wgᵀ + bg) · (X W1ᵀ + b1)) W2ᵀ + b2                  (Shazeer 2020)
 *
 * Gated with SWISH it is SwiGLU, and with GELU GeGLU. Each position, a row of X, is treated alike and by itself. This
 * is why the paper calls the network two convolutions of kernel size 1: a convolution whose window is one position is
 * a product by the (out, in) matrix of its weights. Bias, activation and the gate's product are done to the sums
 * before they are stored.
 *
 * Weights are stored (out, in), row-major, as PyTorch's nn.Linear has them.
 */
#ifndef CLATTN_FEED_FORWARD_H
#define CLATTN_FEED_FORWARD_H

#include "matmul.h"

CLATTN_BEGIN_DECLS

/** What to compute. Set it up with CLATTN_FEED_FORWARD_DESC_INIT. */
typedef struct clattn_feed_forward_desc {
    size_t size;                /**< sizeof(clattn_feed_forward_desc) */
    clattn_direction direction; /**< CLATTN_DIRECTION_FORWARD */

    /** The type of x, y, biases and weights: float32 (CLATTN_DTYPE_NONE, too), float16 or bfloat16. The hidden layer
     * is rounded to it. */
    clattn_dtype dtype;

    /** The activation; CLATTN_ACTIVATION_NONE (default) is refused. Swish has alpha 1, LeakyReLU 0.01. */
    clattn_activation activation;
    int32_t gated;    /**< 1: there are w_gate and, if bias_in is 1, b_gate; 0 (default): plain */
    int32_t bias_in;  /**< 1: b1 (and bg) are added */
    int32_t bias_out; /**< 1: b2 is added */

    /** 1: X is added to Y, which gives x + f(x).
     *
     * A pre-norm layer wants x + f(norm(x)) instead: leave this 0 there, and add the layer's own input, by
     * clattn_norm_desc.residual of the next norm or by the operand of clattn_matmul. */
    int32_t residual;
    int32_t reserved; /* 0 */
    size_t rows;      /**< the most positions of an enqueue, those of all items of a batch together */
    size_t d_model;   /**< columns of x and y */
    size_t d_ff;      /**< columns of the hidden layer */
} clattn_feed_forward_desc;

/** Initialises a clattn_feed_forward_desc: its size, and zeros. */
#define CLATTN_FEED_FORWARD_DESC_INIT CLATTN_INIT(clattn_feed_forward_desc)

/** Sets *desc as CLATTN_FEED_FORWARD_DESC_INIT does (@ref calls_init). */
CLATTN_API void clattn_feed_forward_desc_init(clattn_feed_forward_desc *desc);

/** Where the arrays are this time; all are contiguous, row-major. Set it up with CLATTN_FEED_FORWARD_ARGS_INIT.
 *
 * y may be x itself if `residual` is 1; otherwise it may overlap nothing. */
typedef struct clattn_feed_forward_args {
    size_t size;                   /**< sizeof(clattn_feed_forward_args) */
    clattn_binding x;              /**< (rows, d_model) */
    clattn_binding w_in, b_in;     /**< W1 (d_ff, d_model) and b1 (d_ff) */
    clattn_binding w_gate, b_gate; /**< Wg (d_ff, d_model) and bg (d_ff), if gated */
    clattn_binding w_out, b_out;   /**< W2 (d_model, d_ff) and b2 (d_model) */
    clattn_binding y;              /**< the output (rows, d_model) */
    int32_t explicit_rows;         /**< 1: `rows` counts; 0 (default): the description's */
    int32_t reserved;              /* 0 */
    size_t rows;                   /**< at most the description's; 0 is allowed and does nothing */
    clattn_binding workspace;      /**< none (default), or a workspace (@ref calls_workspace) */
    clattn_control *control;       /**< what watches the call (control.h), or NULL */
} clattn_feed_forward_args;

/** Initialises a clattn_feed_forward_args: its size, and zeros. */
#define CLATTN_FEED_FORWARD_ARGS_INIT CLATTN_INIT(clattn_feed_forward_args)

/** Sets *args as CLATTN_FEED_FORWARD_ARGS_INIT does (@ref calls_init). */
CLATTN_API void clattn_feed_forward_args_init(clattn_feed_forward_args *args);

/** Tells whether some solver takes `desc`, and if not, why (@ref calls_supports).
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, INVALID_LAYOUT, OVERFLOW, UNSUPPORTED or OUT_OF_MEMORY. */
CLATTN_API clattn_status clattn_feed_forward_supports(clattn_context *context, const clattn_feed_forward_desc *desc,
                                                      const char **reason);

/** Compiles a plan for `desc` (@ref calls_plan). Blocks.
 *
 * A solver that `options` asks for is every product's.
 *
 * @return what clattn_feed_forward_supports returns, FORKED, OPENCL, BUILD, MISCOMPILED, IO or INTERNAL. */
CLATTN_API clattn_status clattn_feed_forward_plan_create(clattn_context *context, const clattn_feed_forward_desc *desc,
                                                         const clattn_plan_options *options, clattn_plan **plan);

/** Enqueues the plan (@ref calls_enqueue). Does not block.
 *
 * The network is several kernels. After a failure with OUT_OF_MEMORY or OPENCL the first of them may have been
 * enqueued, and `y` be written by then or later, wholly or in part. After any other failure nothing that writes it has
 * been enqueued.
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, OVERFLOW, UNSUPPORTED (shared virtual memory), WRONG_CONTEXT,
 * BUFFER_TOO_SMALL, BUFFER_ACCESS, BUSY, OUT_OF_MEMORY, OPENCL, CANCELLED or FORKED. */
CLATTN_API clattn_status clattn_feed_forward_enqueue(clattn_plan *plan, cl_command_queue queue,
                                                     const clattn_feed_forward_args *args, cl_uint wait_count,
                                                     const cl_event *wait_list, cl_event *event);

/** Makes the plan that clattn_feed_forward_run will want for `desc` (@ref calls_prewarm). Blocks.
 *
 * @return what clattn_feed_forward_plan_create returns. */
CLATTN_API clattn_status clattn_feed_forward_prewarm(clattn_context *context, const clattn_feed_forward_desc *desc);

/** Finds or makes the plan for `desc` and enqueues it (@ref calls_run). Blocks only while it compiles.
 *
 * @return what clattn_feed_forward_plan_create and clattn_feed_forward_enqueue return. */
CLATTN_API clattn_status clattn_feed_forward_run(clattn_context *context, cl_command_queue queue,
                                                 const clattn_feed_forward_desc *desc,
                                                 const clattn_feed_forward_args *args, cl_uint wait_count,
                                                 const cl_event *wait_list, cl_event *event);

CLATTN_END_DECLS

#endif
