/** @file
 * 2-D convolution with bias, activation and a second array, in one pass.
 *
 *     Y[n,o,i,j] = act(sum_(c,k,l) X[n, g·C' + c, i·stride[0] + k·dilation[0] − top, j·stride[1] + l·dilation[1] − left]
 *                                  · weight[o,c,k,l]  (+ bias[o]))  (+ or · operand[n,o,i,j])
 *
 * with C' = C / groups channels in each group, and o in group g = o / (O / groups). X is 0 outside of the picture. This is
 * PyTorch's Conv2d and ONNX's Conv (which both correlate: the kernel is not flipped).
 *
 * Extents always have the order (N, C, H, W) and (O, C', kernel height, kernel width). How pictures lie in memory is said
 * by strides: clattn_layout_nchw and clattn_layout_nhwc make both.
 *
 * Y has H' rows and W' columns:
 *
 *     H' = floor((H + top + bottom − dilation[0]·(kernel height − 1) − 1) / stride[0]) + 1
 *     W' = floor((W + left + right − dilation[1]·(kernel width − 1) − 1) / stride[1]) + 1
 *
 * Arrays are float32, float16 or bfloat16, independently of each other. Products are added up in float32, the bias is
 * added, and Y is rounded once, to nearest even, when it is stored. The error of a sum with its bias is at most
 * (K + 2)·2^-24 times sum |X · weight| + |bias|, with K = C' · kernel height · kernel width terms.
 *
 * Kernels may multiply the zeros around the picture as well: if a weight is NaN or infinite, so may outputs be whose taps lie
 * outside.
 *
 * If C' or the picture is empty but Y is not, sums are 0, so that Y is act(bias) with the operand.
 */
#ifndef CLATTN_CONV2D_H
#define CLATTN_CONV2D_H

#include "matmul.h"

CLATTN_BEGIN_DECLS

/** What to compute. Set it up with CLATTN_CONV2D_DESC_INIT. */
typedef struct clattn_conv2d_desc {
    size_t size;                  /**< sizeof(clattn_conv2d_desc) */
    clattn_direction direction;   /**< CLATTN_DIRECTION_FORWARD */
    int32_t groups;               /**< divides C and O; 0 (default): 1; C: depthwise */
    clattn_layout x;              /**< the input (N, C, H, W); an extent is at most 2^29 */
    clattn_layout weight;         /**< (O, C / groups, kernel height, kernel width), with 1 to 2^29 taps */
    clattn_layout bias;           /**< none (0), or (O) */
    clattn_layout operand;        /**< none, or (N or 1, O, H', W'). Strides of 0 broadcast. */
    clattn_layout y;              /**< the output (N, O, H', W') */
    int32_t stride[2];            /**< of rows and of columns, at most 2^29; 0 (default): 1 */
    int32_t dilation[2];          /**< of rows and of columns, at most 2^29; 0 (default): 1 */
    int32_t padding[4];           /**< rows and columns of zeros: top, left, bottom, right, each 0 (default) ... 2^29 */
    clattn_activation activation; /**< what is applied to the sums; CLATTN_ACTIVATION_NONE (default): nothing */
    int32_t explicit_alpha;       /**< 1: `alpha` counts; 0 (default): Swish has 1, LeakyReLU 0.01 */
    float alpha;                  /**< Swish's or LeakyReLU's alpha: any finite value */
    clattn_matmul_operand_use operand_use; /**< what becomes of `operand` after the activation; 0 if there is none */
} clattn_conv2d_desc;

/** Initialises a clattn_conv2d_desc: its size, and zeros. */
#define CLATTN_CONV2D_DESC_INIT CLATTN_INIT(clattn_conv2d_desc)

/** Sets *desc as CLATTN_CONV2D_DESC_INIT does (@ref calls_init). */
CLATTN_API void clattn_conv2d_desc_init(clattn_conv2d_desc *desc);

/** Where the arrays are this time. Set it up with CLATTN_CONV2D_ARGS_INIT.
 *
 * y may overlap nothing, with one exception: operand may be y itself, the same memory, layout and offset. Every solver
 * reads each element of operand before it writes that of y. */
typedef struct clattn_conv2d_args {
    size_t size;                                /**< sizeof(clattn_conv2d_args) */
    clattn_binding x, weight, bias, operand, y; /**< the array of that name */
    int32_t explicit_batch;                     /**< 1: `batch` counts; 0 (default): the description's N */
    int32_t reserved;                           /* 0 */
    size_t batch;             /**< pictures, at most the description's; 0 is allowed and does nothing */
    clattn_binding workspace; /**< none (default), or a workspace (@ref calls_workspace) */
    clattn_control *control;  /**< what watches the call (control.h), or NULL */
} clattn_conv2d_args;

/** Initialises a clattn_conv2d_args: its size, and zeros. */
#define CLATTN_CONV2D_ARGS_INIT CLATTN_INIT(clattn_conv2d_args)

/** Sets *args as CLATTN_CONV2D_ARGS_INIT does (@ref calls_init). */
CLATTN_API void clattn_conv2d_args_init(clattn_conv2d_args *args);

/** Tells whether some solver takes `desc`, and if not, why (@ref calls_supports).
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, INVALID_LAYOUT, OVERFLOW, UNSUPPORTED or OUT_OF_MEMORY. */
CLATTN_API clattn_status clattn_conv2d_supports(clattn_context *context, const clattn_conv2d_desc *desc,
                                                const char **reason);

/** Compiles a plan for `desc` (@ref calls_plan). Blocks.
 *
 * @return what clattn_conv2d_supports returns, FORKED, OPENCL, BUILD, MISCOMPILED, IO or INTERNAL. */
CLATTN_API clattn_status clattn_conv2d_plan_create(clattn_context *context, const clattn_conv2d_desc *desc,
                                                   const clattn_plan_options *options, clattn_plan **plan);

/** Enqueues the plan (@ref calls_enqueue). Does not block.
 *
 * If y has no elements, nothing is done.
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, OVERFLOW, UNSUPPORTED (shared virtual memory on a device without it),
 * WRONG_CONTEXT, BUFFER_TOO_SMALL, BUFFER_ACCESS, BUSY, OUT_OF_MEMORY, OPENCL, CANCELLED or FORKED. */
CLATTN_API clattn_status clattn_conv2d_enqueue(clattn_plan *plan, cl_command_queue queue,
                                               const clattn_conv2d_args *args, cl_uint wait_count,
                                               const cl_event *wait_list, cl_event *event);

/** Makes the plan that clattn_conv2d_run will want for `desc` (@ref calls_prewarm). Blocks.
 *
 * @return what clattn_conv2d_plan_create returns. */
CLATTN_API clattn_status clattn_conv2d_prewarm(clattn_context *context, const clattn_conv2d_desc *desc);

/** Finds or makes the plan for `desc` and enqueues it (@ref calls_run). Blocks only while it compiles.
 *
 * @return what clattn_conv2d_plan_create and clattn_conv2d_enqueue return. */
CLATTN_API clattn_status clattn_conv2d_run(clattn_context *context, cl_command_queue queue,
                                           const clattn_conv2d_desc *desc, const clattn_conv2d_args *args,
                                           cl_uint wait_count, const cl_event *wait_list, cl_event *event);

CLATTN_END_DECLS

#endif
