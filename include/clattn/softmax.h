/** @file
 * Softmax over the last dimension.
 *
 *     Y[r,c] = exp(scale * X[r,c] + mask[r,c] - m_r) / sum_c' exp(scale * X[r,c'] + mask[r,c'] - m_r)
 *
 * Here m_r is the row's maximum. Without a mask, a row that is all -inf is NaN, as everywhere else; with a mask, a row
 * that attends nothing is exactly +0. A NaN, or +inf in an attended place, makes its row NaN.
 *
 * CLATTN_DIRECTION_BACKWARD makes the gradient dX of X of the result Y and of its gradient dY; X itself is not needed:
 *
 *     dX[r,c] = scale * Y[r,c] * (dY[r,c] - sum_c' Y[r,c'] * dY[r,c'])
 *
 * With a mask, places that are not attended are exactly +0 and take no part in the sum, whatever Y and dY hold there. A
 * NaN or an infinity anywhere else gives what IEEE arithmetic makes of the formula. There is no gradient of the mask.
 *
 * Each row is computed alone, in an order that the plan has fixed, so results are the same from run to run and whatever
 * the batch.
 */
#ifndef CLATTN_SOFTMAX_H
#define CLATTN_SOFTMAX_H

#include "plan.h"

CLATTN_BEGIN_DECLS

/** What to compute. Set it up with CLATTN_SOFTMAX_DESC_INIT.
 *
 * Everything is computed in float32, whatever is stored. */
typedef struct clattn_softmax_desc {
    size_t size;                /**< sizeof(clattn_softmax_desc) */
    clattn_direction direction; /**< either */
    int32_t explicit_scale;     /**< 1: `scale` counts; 0 (default): the scale is 1 */
    float scale;                /**< any finite value, 0 and negative included */

    /** 1: the mask may have 2 ... columns - 1 columns, and the columns beyond are not attended. 0 (default): such a
     * mask is refused. */
    int32_t short_mask;

    /** The input: float32, float16 or bfloat16, of rank 1 ... 5. The last dimension holds a row, of 1 ... 2^31 - 65537
     * elements, and there are at most as many rows. Backward has none. */
    clattn_layout x;

    /** The output, with x's extents: float32, float16 or bfloat16, whatever x is. It is rounded to nearest even, so
     * small probabilities may become subnormal or 0. Backward reads it. */
    clattn_layout y;

    /** None, or each extent 1 or x's; lower ranks get leading 1s. It is bool (true = attend) or float32 (added). */
    clattn_layout mask;

    /** Only with CLATTN_DIRECTION_BACKWARD, which needs both, with y's extents: float32, float16 or bfloat16, whatever y is. */
    struct {
        clattn_layout x; /**< the output: the gradient of x */
        clattn_layout y; /**< the input: the gradient of y */
    } gradients;
} clattn_softmax_desc;

/** Initialises a clattn_softmax_desc: its size, and zeros. */
#define CLATTN_SOFTMAX_DESC_INIT CLATTN_INIT(clattn_softmax_desc)

/** Sets *desc as CLATTN_SOFTMAX_DESC_INIT does (@ref calls_init). */
CLATTN_API void clattn_softmax_desc_init(clattn_softmax_desc *desc);

/** Where the arrays are this time. Set it up with CLATTN_SOFTMAX_ARGS_INIT.
 *
 * Kernels also read y: a CL_MEM_WRITE_ONLY buffer is refused with BUFFER_ACCESS. y may be the same memory as x with
 * the same layout (in place), and gradients.x the same as y or as gradients.y; otherwise outputs may overlap nothing. */
typedef struct clattn_softmax_args {
    size_t size;               /**< sizeof(clattn_softmax_args) */
    clattn_binding x, mask, y; /**< the array of that name */
    int32_t explicit_batch;    /**< 1: `batch` counts; 0 (default): the description's extent */
    int32_t reserved;          /* 0 */
    size_t batch; /**< the extent of the first dimension, at most the description's; only if y has rank 2 or more */
    struct {
        clattn_binding x, y;
    } gradients;             /**< the array of that name in the description's `gradients` */
    clattn_control *control; /**< what watches the call (control.h), or NULL */
} clattn_softmax_args;

/** Initialises a clattn_softmax_args: its size, and zeros. */
#define CLATTN_SOFTMAX_ARGS_INIT CLATTN_INIT(clattn_softmax_args)

/** Sets *args as CLATTN_SOFTMAX_ARGS_INIT does (@ref calls_init). */
CLATTN_API void clattn_softmax_args_init(clattn_softmax_args *args);

/** Tells whether some solver takes `desc`, and if not, why (@ref calls_supports).
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, INVALID_LAYOUT, OVERFLOW, UNSUPPORTED or OUT_OF_MEMORY. */
CLATTN_API clattn_status clattn_softmax_supports(clattn_context *context, const clattn_softmax_desc *desc,
                                                 const char **reason);

/** Compiles a plan for `desc` (@ref calls_plan). Blocks.
 *
 * @return what clattn_softmax_supports returns, FORKED, OPENCL, BUILD, MISCOMPILED, IO or INTERNAL. */
CLATTN_API clattn_status clattn_softmax_plan_create(clattn_context *context, const clattn_softmax_desc *desc,
                                                    const clattn_plan_options *options, clattn_plan **plan);

/** Enqueues the plan's one kernel (@ref calls_enqueue). Does not block.
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, OVERFLOW, UNSUPPORTED (shared virtual memory on a device without it),
 * WRONG_CONTEXT, BUFFER_TOO_SMALL, BUFFER_ACCESS, OUT_OF_MEMORY, OPENCL, CANCELLED or FORKED. */
CLATTN_API clattn_status clattn_softmax_enqueue(clattn_plan *plan, cl_command_queue queue,
                                                const clattn_softmax_args *args, cl_uint wait_count,
                                                const cl_event *wait_list, cl_event *event);

/** Makes the plan that clattn_softmax_run will want for `desc` (@ref calls_prewarm). Blocks.
 *
 * @return what clattn_softmax_plan_create returns. */
CLATTN_API clattn_status clattn_softmax_prewarm(clattn_context *context, const clattn_softmax_desc *desc);

/** Finds or makes the plan for `desc` and enqueues it (@ref calls_run). Blocks only while it compiles.
 *
 * @return what clattn_softmax_plan_create and clattn_softmax_enqueue return. */
CLATTN_API clattn_status clattn_softmax_run(clattn_context *context, cl_command_queue queue,
                                            const clattn_softmax_desc *desc, const clattn_softmax_args *args,
                                            cl_uint wait_count, const cl_event *wait_list, cl_event *event);

CLATTN_END_DECLS

#endif
