/** @file
 * Pooling: the largest, or the mean, of each window of a picture or map.
 *
 *     max:      Y[n,c,i,j] = max X[n,c, i·s + k·d − top, j·s' + l·d' − left]
 *     average:  Y[n,c,i,j] = Σ X[n,c, i·s + k − top, j·s' + l − left] / divisor
 *
 * over the 0 <= k < window[0], 0 <= l < window[1] whose element lies in X, with strides s, s' and dilations d, d'. These are
 * PyTorch's max_pool2d and avg_pool2d, and ONNX's MaxPool and AveragePool without indices. A window as large as the picture
 * pools it globally. Along an axis with S elements Y has
 *
 *     T = floor((S + before + after − (window − 1)·d − 1) / s) + 1
 *
 * elements. With `ceil_mode` it is rounded up instead, but a last window that would begin behind X and the padding before it
 * is left out.
 *
 * The divisor is the number of the window's elements in X or, with `count_include_pad`, in X and its padding; what a window of
 * ceil_mode has beyond that counts in neither.
 *
 * The numbers:
 *
 * - The largest is exact. It is NaN if an element of the window is. Of zeros of both signs either may be given.
 * - A window of max without elements, which only dilation can make, gives −∞. Each window of average has elements, because
 *   padding is at most half as wide as a window.
 * - The error of an average, before its rounding to the storage type, is at most (8 + n) · 2^-24 times the sum of |X| over the
 *   divisor, for windows of n elements; the sum is float32. Subnormals may count as 0 and become 0.
 *
 * CLATTN_DIRECTION_BACKWARD makes the gradient of X of the gradient of Y:
 *
 *     max:      gradients.x[n,c,r,s] = Σ gradients.y[n,c,i,j] over the windows (i,j) whose first largest element is (r,s)
 *     average:  gradients.x[n,c,r,s] = Σ gradients.y[n,c,i,j] / divisor over the windows (i,j) that have (r,s)
 *
 * Max needs X: of equal elements the first in the order of rows and columns gets the gradient, and if a window has a NaN,
 * its first NaN does. For average it needs neither X nor Y. An element of no window gets +0. The sums are float32, in the order of
 * the windows: their error is at most (8 + n) · 2^-24 times the sum of the sizes, for an element of n windows. There are no
 * atomics, and each element is computed alone, so the result is the same from run to run and whatever the batch around it.
 */
#ifndef CLATTN_POOL_H
#define CLATTN_POOL_H

#include "plan.h"

CLATTN_BEGIN_DECLS

/** What a window gives. */
typedef enum clattn_pool_kind {
    CLATTN_POOL_KIND_MAX = 0,     /**< its largest element */
    CLATTN_POOL_KIND_AVERAGE = 1, /**< its mean */
    CLATTN_POOL_KIND_FORCE_32BIT = 0x7fffffff
} clattn_pool_kind;

/** What to compute. Set it up with CLATTN_POOL_DESC_INIT.
 *
 * x, y and their gradients are each float32, float16 or bfloat16, independently of each other. Their extents are in the order given here
 * whatever the order in memory, which strides tell: clattn_layout_nchw and clattn_layout_nhwc make both. */
typedef struct clattn_pool_desc {
    size_t size;                /**< sizeof(clattn_pool_desc) */
    clattn_direction direction; /**< either */
    clattn_pool_kind kind;      /**< what a window gives */
    int32_t window
        [2]; /**< height and width, at least 1; their product is at most 2^30; each, dilated, covers at most 2^28 */
    int32_t stride[2];   /**< from one window to the next, at most 2^28; 0 (default): the window's */
    int32_t dilation[2]; /**< from one element of a window to the next; 0 (default): 1; an average has no other */
    int32_t padding[4];  /**< top, left, bottom, right; each at most half of what a window, dilated, covers */
    int32_t ceil_mode;   /**< 1: y's extents are rounded up; 0 (default): down */

    /** 1: padding counts in the divisor; 0 (default): it does not. ONNX has the same default; PyTorch's is 1. Average only. */
    int32_t count_include_pad;
    clattn_layout x; /**< the input, (batch, channels, height, width) of at most 2^28 rows and columns; none for an
                          average's gradient */
    clattn_layout y; /**< the output of forward, with x's batch and channels and the extents above */

    /** Only with CLATTN_DIRECTION_BACKWARD, which needs both. */
    struct {
        clattn_layout x; /**< the output: the gradient of x, with x's extents */
        clattn_layout y; /**< the input: the gradient of y, with y's extents */
    } gradients;
} clattn_pool_desc;

/** Initialises a clattn_pool_desc: its size, and zeros. */
#define CLATTN_POOL_DESC_INIT CLATTN_INIT(clattn_pool_desc)

/** Sets *desc as CLATTN_POOL_DESC_INIT does (@ref calls_init). */
CLATTN_API void clattn_pool_desc_init(clattn_pool_desc *desc);

/** Where the arrays are this time. Set it up with CLATTN_POOL_ARGS_INIT. Outputs may overlap nothing. */
typedef struct clattn_pool_args {
    size_t size;            /**< sizeof(clattn_pool_args) */
    clattn_binding x, y;    /**< the array of that name */
    int32_t explicit_batch; /**< 1: `batch` counts; 0 (default): the description's extent */
    int32_t reserved;       /* 0 */
    size_t batch;           /**< the extent of the first axis, at most the description's */
    struct {
        clattn_binding x, y;
    } gradients;             /**< the array of that name in the description's `gradients` */
    clattn_control *control; /**< what watches the call (control.h), or NULL */
} clattn_pool_args;

/** Initialises a clattn_pool_args: its size, and zeros. */
#define CLATTN_POOL_ARGS_INIT CLATTN_INIT(clattn_pool_args)

/** Sets *args as CLATTN_POOL_ARGS_INIT does (@ref calls_init). */
CLATTN_API void clattn_pool_args_init(clattn_pool_args *args);

/** Tells whether some solver takes `desc`, and if not, why (@ref calls_supports).
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, INVALID_LAYOUT, OVERFLOW, UNSUPPORTED or OUT_OF_MEMORY. */
CLATTN_API clattn_status clattn_pool_supports(clattn_context *context, const clattn_pool_desc *desc,
                                              const char **reason);

/** Compiles a plan for `desc` (@ref calls_plan). Blocks.
 *
 * All kinds, windows, sizes and strides of the same two types share one program.
 *
 * @return what clattn_pool_supports returns, FORKED, OPENCL, BUILD, MISCOMPILED, IO or INTERNAL. */
CLATTN_API clattn_status clattn_pool_plan_create(clattn_context *context, const clattn_pool_desc *desc,
                                                 const clattn_plan_options *options, clattn_plan **plan);

/** Enqueues the plan's one kernel (@ref calls_enqueue). Does not block.
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, OVERFLOW, UNSUPPORTED (shared virtual memory on a device without it),
 * WRONG_CONTEXT, BUFFER_TOO_SMALL, BUFFER_ACCESS, OUT_OF_MEMORY, OPENCL, CANCELLED or FORKED. */
CLATTN_API clattn_status clattn_pool_enqueue(clattn_plan *plan, cl_command_queue queue, const clattn_pool_args *args,
                                             cl_uint wait_count, const cl_event *wait_list, cl_event *event);

/** Makes the plan that clattn_pool_run will want for `desc` (@ref calls_prewarm). Blocks.
 *
 * @return what clattn_pool_plan_create returns. */
CLATTN_API clattn_status clattn_pool_prewarm(clattn_context *context, const clattn_pool_desc *desc);

/** Finds or makes the plan for `desc` and enqueues it (@ref calls_run). Blocks only while it compiles.
 *
 * @return what clattn_pool_plan_create and clattn_pool_enqueue return. */
CLATTN_API clattn_status clattn_pool_run(clattn_context *context, cl_command_queue queue, const clattn_pool_desc *desc,
                                         const clattn_pool_args *args, cl_uint wait_count, const cl_event *wait_list,
                                         cl_event *event);

CLATTN_END_DECLS

#endif
