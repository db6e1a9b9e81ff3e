/** @file
 * Cross-entropy of logits and labels, with the gradient of the logits in the same pass.
 *
 *     p[r,c] = exp(x[r,c]) / sum_c' exp(x[r,c'])
 *     loss[r] = -(1 - e) * log p[r,label_r] - e / classes * sum_c log p[r,c]
 *     gradients.x[r,c] = weight_r * (p[r,c] - (1 - e) * [c == label_r] - e / classes)
 *
 * Here e is the label smoothing, and with e = 0 the second sum is left out. weight_r is args.scale times row_weights[r]
 * (1 without them): gradients.x is the gradient of the sum of scale * row_weights[r] * loss[r]. PyTorch's cross_entropy
 * with reduction "mean" is the sum of loss[r] divided by the number of labels that count; the caller, who knows that
 * number, passes 1 / number as the scale, and adds up the losses.
 *
 * A row counts unless its label is `ignored`: then its loss and its gradient are exactly +0, whatever x holds. A label
 * that is neither `ignored` nor 0 ... classes - 1 makes loss and gradient of its row NaN: it reads no memory outside x, and
 * does not pass unnoticed.
 *
 * The row's maximum is subtracted before anything is exponentiated, so that logits of any finite size are safe, and a logit
 * of -inf is a class of probability 0. If that is the label's, or e is not 0, the loss is +inf. A NaN or +inf in a row, or a
 * row that is all -inf, makes its loss, lse and gradient NaN. There is no array of probabilities, and gradients.x may take
 * the place of x.
 *
 * Everything is computed in float32, whatever is stored. The result is the same in every bit from run to run, and that of
 * a row does not depend on the other rows.
 */
#ifndef CLATTN_CROSS_ENTROPY_H
#define CLATTN_CROSS_ENTROPY_H

#include "plan.h"

CLATTN_BEGIN_DECLS

/** What to compute. Set it up with CLATTN_CROSS_ENTROPY_DESC_INIT.
 *
 * There is one direction: forward computes loss and gradient. Of loss, lse and gradients.x there is at least one. */
typedef struct clattn_cross_entropy_desc {
    size_t size;                /**< sizeof(clattn_cross_entropy_desc) */
    clattn_direction direction; /**< CLATTN_DIRECTION_FORWARD */
    int32_t explicit_ignored;   /**< 1: `ignored` counts; 0 (default): it is -100 */
    int64_t ignored;            /**< the label of rows that do not count; it may be a class */
    float smoothing;            /**< e: 0 or more, and less than 1 */
    int32_t reserved;           /* 0 */

    /** The logits: float32, float16 or bfloat16, of rank 2 ... 5. The last dimension holds a row's classes, 1 ...
     * 2^31 - 65537, the others are the rows, and there are at most as many. */
    clattn_layout x;

    clattn_layout labels;      /**< int32 or int64, with x's extents without the last */
    clattn_layout row_weights; /**< none, or float32 like labels; only if there is gradients.x */
    clattn_layout loss;        /**< an output: none, or float32 like labels */
    clattn_layout lse;         /**< an output: none, or log sum_c exp(x[r,c]), float32 like labels, of every row */

    struct {
        clattn_layout x; /**< an output: none, or float32, float16 or bfloat16 with x's extents, whatever x is */
    } gradients;         /**< gradients of the weighted sum of losses */
} clattn_cross_entropy_desc;

/** Initialises a clattn_cross_entropy_desc: its size, and zeros. */
#define CLATTN_CROSS_ENTROPY_DESC_INIT CLATTN_INIT(clattn_cross_entropy_desc)

/** Sets *desc as CLATTN_CROSS_ENTROPY_DESC_INIT does (@ref calls_init). */
CLATTN_API void clattn_cross_entropy_desc_init(clattn_cross_entropy_desc *desc);

/** Where the arrays are this time. Set it up with CLATTN_CROSS_ENTROPY_ARGS_INIT.
 *
 * gradients.x may be the same memory as x with the same layout (in place); otherwise no output overlaps anything. */
typedef struct clattn_cross_entropy_args {
    size_t size;                                      /**< sizeof(clattn_cross_entropy_args) */
    clattn_binding x, labels, row_weights, loss, lse; /**< the array of that name */
    int32_t explicit_scale;                           /**< 1: `scale` counts; 0 (default): it is 1 */
    float scale;            /**< finite; multiplies gradients.x: 1 / (the number of labels that count) for a mean */
    int32_t explicit_batch; /**< 1: `batch` counts; 0 (default): the description's extent */
    int32_t reserved;       /* 0 */
    size_t batch;           /**< the extent of x's first dimension, at most the description's */
    struct {
        clattn_binding x;    /**< the array of that name */
    } gradients;             /**< those of the description */
    clattn_control *control; /**< what watches the call (control.h), or NULL */
} clattn_cross_entropy_args;

/** Initialises a clattn_cross_entropy_args: its size, and zeros. */
#define CLATTN_CROSS_ENTROPY_ARGS_INIT CLATTN_INIT(clattn_cross_entropy_args)

/** Sets *args as CLATTN_CROSS_ENTROPY_ARGS_INIT does (@ref calls_init). */
CLATTN_API void clattn_cross_entropy_args_init(clattn_cross_entropy_args *args);

/** Tells whether some solver takes `desc`, and if not, why (@ref calls_supports).
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, INVALID_LAYOUT, OVERFLOW, UNSUPPORTED or OUT_OF_MEMORY. */
CLATTN_API clattn_status clattn_cross_entropy_supports(clattn_context *context, const clattn_cross_entropy_desc *desc,
                                                       const char **reason);

/** Compiles a plan for `desc` (@ref calls_plan). Blocks.
 *
 * @return what clattn_cross_entropy_supports returns, FORKED, OPENCL, BUILD, MISCOMPILED, IO or INTERNAL. */
CLATTN_API clattn_status clattn_cross_entropy_plan_create(clattn_context *context,
                                                          const clattn_cross_entropy_desc *desc,
                                                          const clattn_plan_options *options, clattn_plan **plan);

/** Enqueues the plan's one kernel (@ref calls_enqueue). Does not block.
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, OVERFLOW, UNSUPPORTED (shared virtual memory on a device without it),
 * WRONG_CONTEXT, BUFFER_TOO_SMALL, BUFFER_ACCESS, OUT_OF_MEMORY, OPENCL, CANCELLED or FORKED. */
CLATTN_API clattn_status clattn_cross_entropy_enqueue(clattn_plan *plan, cl_command_queue queue,
                                                      const clattn_cross_entropy_args *args, cl_uint wait_count,
                                                      const cl_event *wait_list, cl_event *event);

/** Makes the plan that clattn_cross_entropy_run will want for `desc` (@ref calls_prewarm). Blocks.
 *
 * @return what clattn_cross_entropy_plan_create returns. */
CLATTN_API clattn_status clattn_cross_entropy_prewarm(clattn_context *context, const clattn_cross_entropy_desc *desc);

/** Finds or makes the plan for `desc` and enqueues it (@ref calls_run). Blocks only while it compiles.
 *
 * @return what clattn_cross_entropy_plan_create and clattn_cross_entropy_enqueue return. */
CLATTN_API clattn_status clattn_cross_entropy_run(clattn_context *context, cl_command_queue queue,
                                                  const clattn_cross_entropy_desc *desc,
                                                  const clattn_cross_entropy_args *args, cl_uint wait_count,
                                                  const cl_event *wait_list, cl_event *event);

CLATTN_END_DECLS

#endif
