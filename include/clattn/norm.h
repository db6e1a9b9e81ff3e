/** @file
 * Normalisation over trailing axes: LayerNorm and RMSNorm.
 *
 *     layer:  Y = (X − mean) / sqrt(mean((X − mean)²) + epsilon) · scale + bias       (Ba et al. 2016)
 *     RMS:    Y = X / sqrt(mean(X²) + epsilon) · scale + bias                         (Zhang, Sennrich 2019)
 *
 * The means are over the normalised axes of each row. These are ONNX's LayerNormalization (opset 17, with its optional
 * outputs Mean and InvStdDev) and RMSNormalization (opset 23), stash_type float32.
 *
 * Views make the norms of image models of these. Of a picture (N, C, H, W), wherever its strides say that it lies:
 *
 *     GroupNorm        x as (N, G, C/G, H, W), axes 3, scale and bias as (1, G, C/G, 1, 1)
 *     InstanceNorm     x as (N, C, H, W), axes 2, scale and bias as (1, C, 1, 1)
 *     of channels      x as (N, H, W, C), axes 1, scale and bias as (C)    (ConvNeXt's and SAM's LayerNorm2d)
 *
 * The last axes are normalised, whatever lies next to each other: of a picture in NHWC order, x as (N, H, W, C) with 2 axes
 * would normalise over W and C.
 *
 * If there is a residual, X + residual, added and rounded in float32, takes X's place. `sum` is that sum as an output:
 * what a Transformer's layer hands on and its next norm take one pass (SkipLayerNormalization).
 *
 * State is float32, whatever is stored. The mean is subtracted before anything is squared (two passes). The
 * deviations' own mean, which is what rounding has left, is subtracted once more. So an offset that a row has in
 * common costs no accuracy, however large it is. The error of Y, before its rounding to the storage type, is at most
 * 8·2^-23 times
 *
 *     layer:  (|X − mean| + mean|X − mean|) · |scale| / sqrt(…) + |bias|
 *     RMS:    |X| · |scale| / sqrt(…) + |bias|
 *
 * Squares below 2^-126 may be lost, which only an epsilon of that size would notice.
 *
 * A row that holds NaN or an infinity is NaN. So is a row whose sum or sum of squares exceeds float32's range
 * (elements of 1e19 and more, which of the 16-bit types only bfloat16 has). A constant row becomes `bias`; with
 * epsilon 0 its value cannot be relied on.
 *
 * CLATTN_DIRECTION_BACKWARD makes gradients of forward's inputs and of the gradient of Y; mean and inv_std_dev are computed
 * once more. X̂ is (X − mean) / sqrt(…) here, G is gradients.y · scale, and means are over the row:
 *
 *     layer:  gradients.x = (G − mean(G) − X̂ · mean(G · X̂)) / sqrt(…) + gradients.sum
 *     RMS:    gradients.x = (G − X̂ · mean(G · X̂)) / sqrt(…) + gradients.sum
 *     gradients.scale = sum of gradients.y · X̂,  gradients.bias = sum of gradients.y,  over what each is broadcast to
 *
 * gradients.x is the residual's gradient, too: what a residual was broadcast to is to be summed. Forward's sum may stand for
 * x and residual: as x, without a residual.
 *
 * A gradient of x depends on its row alone. Sums of gradients.scale and gradients.bias have a fixed order, in blocks of 256
 * terms with compensation, so all results are the same in every bit from run to run. A sum of no terms is +0. NaN and
 * infinities give what IEEE arithmetic makes of the formulas.
 */
#ifndef CLATTN_NORM_H
#define CLATTN_NORM_H

#include "plan.h"

CLATTN_BEGIN_DECLS

/** Which norm. */
typedef enum clattn_norm_kind {
    CLATTN_NORM_KIND_LAYER = 0, /**< LayerNorm */
    CLATTN_NORM_KIND_RMS = 1,   /**< RMSNorm */
    CLATTN_NORM_KIND_FORCE_32BIT = 0x7fffffff
} clattn_norm_kind;

/** What to compute. Set it up with CLATTN_NORM_DESC_INIT.
 *
 * x, y, scale, bias, residual, sum and the gradients are each float32, float16 or bfloat16, independently of each other.
 * Backward has x, scale, residual and gradients, and none of the others. */
typedef struct clattn_norm_desc {
    size_t size;                /**< sizeof(clattn_norm_desc) */
    clattn_direction direction; /**< either */
    clattn_norm_kind kind;      /**< which norm */

    /** How many trailing axes are normalised together, 1 ... rank; 0 (default): 1. ONNX's `axis` is rank - axes, or
     * -axes. */
    int32_t axes;
    int32_t explicit_epsilon; /**< 1: `epsilon` counts; 0 (default): 1e-5 */
    float epsilon;            /**< finite, >= 0 */
    int32_t reserved;         /* 0 */
    clattn_layout x;          /**< the input, of rank 1 ... 5: at most 2^31 - 65537 rows of as many elements */
    clattn_layout y;          /**< the output, with x's extents */

    /** None (1), or each extent 1 or x's; lower ranks get leading 1s. It may differ from row to row, as adaptive
     * normalisation needs. */
    clattn_layout scale;
    clattn_layout bias; /**< none (0), or as `scale` */
    clattn_layout mean; /**< none, or a float32 output: x's extents, 1 for each normalised axis; LayerNorm only */

    /** None, or a float32 output with the extents of `mean`: 1 / sqrt(mean((X - mean)²) + epsilon), of mean(X²) in
     * RMSNorm. */
    clattn_layout inv_std_dev;
    clattn_layout residual; /**< none, or what is added to x, with extents as `scale` */
    clattn_layout sum;      /**< none, or the output x + residual, with x's extents; only if there is a residual */

    /** Only with CLATTN_DIRECTION_BACKWARD, which needs y and at least one output. */
    struct {
        clattn_layout y; /**< the input: the gradient of y, with x's extents */
        clattn_layout
            sum;         /**< none (0), or an input with x's extents: the gradient of sum, or whatever x has besides */
        clattn_layout x; /**< none, or an output with x's extents */
        clattn_layout scale; /**< none, or an output with scale's extents */
        clattn_layout bias;  /**< none, or an output with bias's extents, which are as those of `scale` */
    } gradients;
} clattn_norm_desc;

/** Initialises a clattn_norm_desc: its size, and zeros. */
#define CLATTN_NORM_DESC_INIT CLATTN_INIT(clattn_norm_desc)

/** Sets *desc as CLATTN_NORM_DESC_INIT does (@ref calls_init). */
CLATTN_API void clattn_norm_desc_init(clattn_norm_desc *desc);

/** Where the arrays are this time. Set it up with CLATTN_NORM_ARGS_INIT.
 *
 * y and sum may each be in place: the same memory, with the same layout, as x, or as a residual that has x's extents.
 * gradients.x may be in place of gradients.sum and, without gradients of scale and bias, of x, gradients.y, or a residual with
 * x's extents. Otherwise outputs may overlap nothing. */
typedef struct clattn_norm_args {
    size_t size;                                         /**< sizeof(clattn_norm_args) */
    clattn_binding x, y, scale, bias, mean, inv_std_dev; /**< the array of that name */
    int32_t explicit_batch; /**< 1: `batch` counts; 0 (default): the description's extent */
    int32_t reserved;       /* 0 */
    size_t batch; /**< the extent of the first axis, at most the description's; only if that axis is not normalised */
    clattn_binding residual, sum; /**< the array of that name */
    struct {
        clattn_binding y, sum, x, scale, bias;
    } gradients;              /**< the array of that name in the description's `gradients` */
    clattn_binding workspace; /**< none (default), or a workspace (@ref calls_workspace), which only backward needs */
    clattn_control *control;  /**< what watches the call (control.h), or NULL */
} clattn_norm_args;

/** Initialises a clattn_norm_args: its size, and zeros. */
#define CLATTN_NORM_ARGS_INIT CLATTN_INIT(clattn_norm_args)

/** Sets *args as CLATTN_NORM_ARGS_INIT does (@ref calls_init). */
CLATTN_API void clattn_norm_args_init(clattn_norm_args *args);

/** Tells whether some solver takes `desc`, and if not, why (@ref calls_supports).
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, INVALID_LAYOUT, OVERFLOW, UNSUPPORTED or OUT_OF_MEMORY. */
CLATTN_API clattn_status clattn_norm_supports(clattn_context *context, const clattn_norm_desc *desc,
                                              const char **reason);

/** Compiles a plan for `desc` (@ref calls_plan). Blocks.
 *
 * @return what clattn_norm_supports returns, FORKED, OPENCL, BUILD, MISCOMPILED, IO or INTERNAL. */
CLATTN_API clattn_status clattn_norm_plan_create(clattn_context *context, const clattn_norm_desc *desc,
                                                 const clattn_plan_options *options, clattn_plan **plan);

/** Enqueues the plan's kernels, forward one (@ref calls_enqueue). Does not block.
 *
 * If x has no elements, nothing is written, not even mean and inv_std_dev; gradients of scale and bias that have elements are.
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, OVERFLOW, UNSUPPORTED (shared virtual memory on a device without it),
 * WRONG_CONTEXT, BUFFER_TOO_SMALL, BUFFER_ACCESS, OUT_OF_MEMORY, OPENCL, CANCELLED or FORKED. */
CLATTN_API clattn_status clattn_norm_enqueue(clattn_plan *plan, cl_command_queue queue, const clattn_norm_args *args,
                                             cl_uint wait_count, const cl_event *wait_list, cl_event *event);

/** Makes the plan that clattn_norm_run will want for `desc` (@ref calls_prewarm). Blocks.
 *
 * @return what clattn_norm_plan_create returns. */
CLATTN_API clattn_status clattn_norm_prewarm(clattn_context *context, const clattn_norm_desc *desc);

/** Finds or makes the plan for `desc` and enqueues it (@ref calls_run). Blocks only while it compiles.
 *
 * @return what clattn_norm_plan_create and clattn_norm_enqueue return. */
CLATTN_API clattn_status clattn_norm_run(clattn_context *context, cl_command_queue queue, const clattn_norm_desc *desc,
                                         const clattn_norm_args *args, cl_uint wait_count, const cl_event *wait_list,
                                         cl_event *event);

CLATTN_END_DECLS

#endif
