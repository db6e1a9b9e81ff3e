/** @file
 * Activation functions, element by element.
 *
 *     NONE        X: a copy, from one layout and type to another
 *     ReLU        max(X, 0)
 *     GELU        X · Φ(X) = X · (1 + erf(X / √2)) / 2                               (Hendrycks, Gimpel 2016)
 *     GELU_TANH   X · (1 + tanh(√(2/π) · (X + 0.044715 X³))) / 2, their approximation
 *     SWISH       X / (1 + exp(−alpha · X))                                          (Ramachandran et al. 2017)
 *     LEAKY_RELU  X if X >= 0, otherwise alpha · X                                   (Maas et al. 2013)
 *
 * SWISH with alpha 1 is SiLU. These are ONNX's Relu, Gelu (opset 20, approximate "none" and "tanh"), Swish (opset
 * 24) and LeakyRelu, whose default alpha, 0.01, is PyTorch's, too.
 *
 * NONE rearranges pictures by views, layouts that say where the same elements lie in x and in y. With C channels of the larger
 * picture, H rows and W columns of the smaller one, and a factor r (PyTorch's pixel_shuffle); exchanging x and y undoes it:
 *
 *     of NCHW          extents (N·C, r, r, H, W)          x: (r²HW, rHW, HW, W, 1)         y: (r²HW, rW, 1, r²W, r)
 *     of NHWC          extents (N·H, W, C, r, r)          x: (r²WC, r²C, r², r, 1)         y: (r²WC, rC, 1, rWC, C)
 *     windows h x w    extents (N·H/h, h, W/w, w, C)      x: (hWC, WC, wC, C, 1)           y: (hWC, wC, hwC, C, 1)
 *
 * The last is of a picture in NHWC order. embedding.h gathers rows by ids, for what strides cannot say.
 *
 * State is float32, whatever is stored. The error of Y, before its rounding to the storage type, is at most 6·2^-23
 * |Y| for every X, also in the tails, where these functions are small and formulas of tanh and erf cancel. If |Y| is
 * below 2^-126, the result may be 0. NaN stays NaN; infinities give the limits: +inf or ±0.
 * LEAKY_RELU multiplies infinities, too: -inf gives alpha · -inf, which is NaN if alpha is 0. It may take X below
 * 2^-126 in size for 0.
 *
 * CLATTN_DIRECTION_BACKWARD makes the gradient of X of the gradient of Y, element by element, and needs X:
 *
 *     gradients.x = f'(X) · gradients.y
 *
 *     NONE        f' = 1
 *     ReLU        f' = 1 if X > 0, otherwise 0
 *     GELU        f' = Φ(X) + X · exp(−X²/2) / √(2π)
 *     GELU_TANH   f' = s + X · v' · s · (1 − s),  s = 1 / (1 + exp(−v)),  v = 2 √(2/π) · (X + 0.044715 X³)
 *     SWISH       f' = s + alpha · X · s · (1 − s),  s = 1 / (1 + exp(−alpha · X))
 *     LEAKY_RELU  f' = 1 if X > 0, otherwise alpha
 *
 * The error before the rounding to the storage type is at most 6·2^-23 · M · |gradients.y| for every X, also in the
 * tails, if M is the sum of the sizes of the terms of f'. If M or the result is below 2^-126, it may count as 0. A NaN in X
 * gives NaN, except with NONE; infinities give the limits of f': 1 or ±0. The product is IEEE's: 0 times an infinity is
 * NaN, also for ReLU. Each element is computed alone, so the result is the same from run to run and whatever the batch
 * around it.
 */
#ifndef CLATTN_ACTIVATION_H
#define CLATTN_ACTIVATION_H

#include "plan.h"

CLATTN_BEGIN_DECLS

/** An activation function: of this operator, of a matrix product's sums, of a feed-forward network, of a
 * convolution. */
typedef enum clattn_activation {
    CLATTN_ACTIVATION_NONE = 0,       /**< X itself */
    CLATTN_ACTIVATION_RELU = 1,       /**< ReLU */
    CLATTN_ACTIVATION_GELU = 2,       /**< GELU, exact */
    CLATTN_ACTIVATION_GELU_TANH = 3,  /**< GELU by tanh */
    CLATTN_ACTIVATION_SWISH = 4,      /**< Swish; SiLU if alpha is 1 */
    CLATTN_ACTIVATION_LEAKY_RELU = 5, /**< LeakyReLU */
    CLATTN_ACTIVATION_FORCE_32BIT = 0x7fffffff
} clattn_activation;

/** What to compute. Set it up with CLATTN_ACTIVATION_DESC_INIT.
 *
 * x, y and their gradients are each float32, float16 or bfloat16. Backward has x and the gradients, and no y. */
typedef struct clattn_activation_desc {
    size_t size;                /**< sizeof(clattn_activation_desc) */
    clattn_direction direction; /**< either */
    clattn_activation function; /**< which function */
    int32_t explicit_alpha;     /**< 1: `alpha` counts; 0 (default): Swish has 1, LeakyReLU 0.01 */
    float alpha;                /**< Swish's or LeakyReLU's alpha: any finite value, 0 and negative included */
    clattn_layout x;            /**< the input, of rank 1 ... 5; each extent is at most 2^31 - 65537 */
    clattn_layout y;            /**< the output of forward, with x's extents */

    /** Only with CLATTN_DIRECTION_BACKWARD, which needs both, with x's extents. */
    struct {
        clattn_layout x; /**< the output: the gradient of x */
        clattn_layout y; /**< the input: the gradient of y */
    } gradients;
} clattn_activation_desc;

/** Initialises a clattn_activation_desc: its size, and zeros. */
#define CLATTN_ACTIVATION_DESC_INIT CLATTN_INIT(clattn_activation_desc)

/** Sets *desc as CLATTN_ACTIVATION_DESC_INIT does (@ref calls_init). */
CLATTN_API void clattn_activation_desc_init(clattn_activation_desc *desc);

/** Where the arrays are this time. Set it up with CLATTN_ACTIVATION_ARGS_INIT.
 *
 * y may be the same memory as x with the same layout (in place), and gradients.x the same as gradients.y; otherwise
 * outputs may overlap nothing. */
typedef struct clattn_activation_args {
    size_t size;            /**< sizeof(clattn_activation_args) */
    clattn_binding x, y;    /**< the array of that name */
    int32_t explicit_batch; /**< 1: `batch` counts; 0 (default): the description's extent */
    int32_t reserved;       /* 0 */
    size_t batch;           /**< the extent of the first dimension, at most the description's */
    struct {
        clattn_binding x, y;
    } gradients;             /**< the array of that name in the description's `gradients` */
    clattn_control *control; /**< what watches the call (control.h), or NULL */
} clattn_activation_args;

/** Initialises a clattn_activation_args: its size, and zeros. */
#define CLATTN_ACTIVATION_ARGS_INIT CLATTN_INIT(clattn_activation_args)

/** Sets *args as CLATTN_ACTIVATION_ARGS_INIT does (@ref calls_init). */
CLATTN_API void clattn_activation_args_init(clattn_activation_args *args);

/** Tells whether some solver takes `desc`, and if not, why (@ref calls_supports).
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, INVALID_LAYOUT, OVERFLOW, UNSUPPORTED or OUT_OF_MEMORY. */
CLATTN_API clattn_status clattn_activation_supports(clattn_context *context, const clattn_activation_desc *desc,
                                                    const char **reason);

/** Compiles a plan for `desc` (@ref calls_plan). Blocks.
 *
 * @return what clattn_activation_supports returns, FORKED, OPENCL, BUILD, MISCOMPILED, IO or INTERNAL. */
CLATTN_API clattn_status clattn_activation_plan_create(clattn_context *context, const clattn_activation_desc *desc,
                                                       const clattn_plan_options *options, clattn_plan **plan);

/** Enqueues the plan's one kernel (@ref calls_enqueue). Does not block.
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, OVERFLOW, UNSUPPORTED (shared virtual memory on a device without it),
 * WRONG_CONTEXT, BUFFER_TOO_SMALL, BUFFER_ACCESS, OUT_OF_MEMORY, OPENCL, CANCELLED or FORKED. */
CLATTN_API clattn_status clattn_activation_enqueue(clattn_plan *plan, cl_command_queue queue,
                                                   const clattn_activation_args *args, cl_uint wait_count,
                                                   const cl_event *wait_list, cl_event *event);

/** Makes the plan that clattn_activation_run will want for `desc` (@ref calls_prewarm). Blocks.
 *
 * @return what clattn_activation_plan_create returns. */
CLATTN_API clattn_status clattn_activation_prewarm(clattn_context *context, const clattn_activation_desc *desc);

/** Finds or makes the plan for `desc` and enqueues it (@ref calls_run). Blocks only while it compiles.
 *
 * @return what clattn_activation_plan_create and clattn_activation_enqueue return. */
CLATTN_API clattn_status clattn_activation_run(clattn_context *context, cl_command_queue queue,
                                               const clattn_activation_desc *desc, const clattn_activation_args *args,
                                               cl_uint wait_count, const cl_event *wait_list, cl_event *event);

CLATTN_END_DECLS

#endif
