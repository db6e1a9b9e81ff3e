/* The position-wise feed-forward network.
 *
 *   plain:  Y = act(X W1ᵀ + b1) W2ᵀ + b2                                   (Vaswani et al. 2017, section 3.3)
 *   gated:  Y = (act(X Wgᵀ + bg) · (X W1ᵀ + b1)) W2ᵀ + b2                  (Shazeer 2020)
 *
 * Gated with SWISH it is SwiGLU, with GELU GeGLU.  Each position, a row of X, is treated alike and by itself, which is why
 * the paper calls it two convolutions of kernel size 1: a convolution whose window is one position is a product by the
 * (out, in) matrix of its weights.  Bias, activation and the gate's product are done to the sums before they are stored.
 *
 * Weights are stored (out, in), row-major, as PyTorch's nn.Linear has them. */
#ifndef CLATTN_FEED_FORWARD_H
#define CLATTN_FEED_FORWARD_H

#include "matmul.h"

CLATTN_BEGIN_DECLS

/* What to compute.  Set it up with CLATTN_FEED_FORWARD_DESC_INIT. */
typedef struct clattn_feed_forward_desc {
    size_t size; /* sizeof(clattn_feed_forward_desc) */
    clattn_direction direction;
    clattn_dtype
        dtype; /* of x, y, biases and weights: CLATTN_DTYPE_F32 (0 too), CLATTN_DTYPE_F16 or CLATTN_DTYPE_BF16.  The
                           * hidden layer is rounded to it */
    clattn_activation activation; /* NONE (default) is refused; SWISH has alpha 1 */
    int32_t gated;                /* 1: there are w_gate and, with bias_in, b_gate; 0 (default): plain */
    int32_t bias_in;              /* 1: b1 (and bg) are added */
    int32_t bias_out;             /* 1: b2 is added */
    int32_t
        residual; /* 1: X is added to Y, as in x + f(x).  A pre-norm layer, x + f(norm(x)), adds its own input instead */
    int32_t reserved; /* 0 */
    size_t rows;      /* most positions of an enqueue, those of all items of a batch */
    size_t d_model;   /* columns of x and y */
    size_t d_ff;      /* columns of the hidden layer */
} clattn_feed_forward_desc;

#define CLATTN_FEED_FORWARD_DESC_INIT CLATTN_INIT(clattn_feed_forward_desc)

/* What CLATTN_FEED_FORWARD_DESC_INIT does.  NULL is accepted. */
CLATTN_API void clattn_feed_forward_desc_init(clattn_feed_forward_desc *desc);

/* Where the arrays are; all contiguous, row-major: x and y (rows, d_model), w_in and w_gate (d_ff, d_model), w_out
 * (d_model, d_ff), b_in and b_gate (d_ff), b_out (d_model).  y may overlap nothing, but with `residual` be x itself. */
typedef struct clattn_feed_forward_args {
    size_t size; /* sizeof(clattn_feed_forward_args) */
    clattn_binding x, w_in, b_in, w_gate, b_gate, w_out, b_out, y;
    int32_t explicit_rows;    /* 1: `rows` counts; 0 (default): the desc's */
    int32_t reserved;         /* 0 */
    size_t rows;              /* <= the desc's; 0 is allowed and does nothing */
    clattn_binding workspace; /* as in clattn_attention_args */
} clattn_feed_forward_args;

#define CLATTN_FEED_FORWARD_ARGS_INIT CLATTN_INIT(clattn_feed_forward_args)

/* What CLATTN_FEED_FORWARD_ARGS_INIT does.  NULL is accepted. */
CLATTN_API void clattn_feed_forward_args_init(clattn_feed_forward_args *args);

/* The five calls below behave as their namesakes in mha.h: contracts, blocking and statuses.  Buffers only: shared virtual
 * memory is UNSUPPORTED.  A solver asked for in the options is every product's. */
CLATTN_API clattn_status clattn_feed_forward_supports(clattn_context *context, const clattn_feed_forward_desc *desc,
                                                      const char **reason);
CLATTN_API clattn_status clattn_feed_forward_plan_create(clattn_context *context, const clattn_feed_forward_desc *desc,
                                                         const clattn_plan_options *options, clattn_plan **plan);
CLATTN_API clattn_status clattn_feed_forward_enqueue(clattn_plan *plan, cl_command_queue queue,
                                                     const clattn_feed_forward_args *args, cl_uint wait_count,
                                                     const cl_event *wait_list, cl_event *event);
CLATTN_API clattn_status clattn_feed_forward_prewarm(clattn_context *context, const clattn_feed_forward_desc *desc);
CLATTN_API clattn_status clattn_feed_forward_run(clattn_context *context, cl_command_queue queue,
                                                 const clattn_feed_forward_desc *desc,
                                                 const clattn_feed_forward_args *args, cl_uint wait_count,
                                                 const cl_event *wait_list, cl_event *event);

CLATTN_END_DECLS

#endif
