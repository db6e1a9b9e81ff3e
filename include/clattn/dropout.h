/** @file
 * Dropout (Srivastava and others, 2014) of the elements of an array, and the residual connection behind it.
 *
 *     Y = dropped(X), or residual + dropped(X)
 *     dropped(X) = X / (1 - probability) if the element is kept, otherwise +0, whatever X holds there
 *
 * The element at place e of the array, counted in C order (the last index fastest), is kept if
 *
 *     clattn_dropout_keep(seed, offset, probability, 1, 0, 0, e / 2^32, e % 2^32)
 *
 * is 1, which attention.h declares: word e % 4 of Philox4x32-10 with `seed` as key and (e / 4 % 2^30, e / 2^32, 0,
 * offset) as counter, divided by 2^32, is at least the probability. So an element's fate depends on seed, offset,
 * probability and its place among the extents alone: not on strides, types, the solver, the device or the batch that is
 * enqueued. Dropouts that are to be independent of each other, attention's included, need seeds or offsets of their
 * own.
 *
 * State is float32, whatever is stored: X times the float nearest to 1 / (1 - probability), then the sum. NaN and
 * infinities of elements that are kept, and of the residual, give what IEEE arithmetic makes of them.
 *
 * CLATTN_DIRECTION_BACKWARD makes the gradient of X of the gradient of Y, by the same seed and offset, and needs neither
 * X nor Y:
 *
 *     gradients.x = dropped(gradients.y)
 *
 * The gradient of the residual is gradients.y itself. Each element is computed alone, so the result is the same from run
 * to run and whatever the batch around it.
 */
#ifndef CLATTN_DROPOUT_H
#define CLATTN_DROPOUT_H

#include "plan.h"

CLATTN_BEGIN_DECLS

/** What to compute. Set it up with CLATTN_DROPOUT_DESC_INIT.
 *
 * The arrays are each float32, float16 or bfloat16. Forward has x, y and perhaps a residual, backward the gradients. */
typedef struct clattn_dropout_desc {
    size_t size;                /**< sizeof(clattn_dropout_desc) */
    clattn_direction direction; /**< either */
    float probability;          /**< that an element is dropped: 0 (default) ... below 1 */
    clattn_layout x;            /**< the input, of rank 1 ... 5; each extent is at most 2^31 - 65537 */
    clattn_layout residual;     /**< none, or what is added, with x's extents */
    clattn_layout y;            /**< the output of forward, with x's extents */

    /** Only with CLATTN_DIRECTION_BACKWARD, which needs both, with the same extents. */
    struct {
        clattn_layout x; /**< the output: the gradient of x */
        clattn_layout y; /**< the input: the gradient of y */
    } gradients;
} clattn_dropout_desc;

/** Initialises a clattn_dropout_desc: its size, and zeros. */
#define CLATTN_DROPOUT_DESC_INIT CLATTN_INIT(clattn_dropout_desc)

/** Sets *desc as CLATTN_DROPOUT_DESC_INIT does (@ref calls_init). */
CLATTN_API void clattn_dropout_desc_init(clattn_dropout_desc *desc);

/** Where the arrays are this time, and which elements are dropped. Set it up with CLATTN_DROPOUT_ARGS_INIT.
 *
 * y may be the same memory as x or the residual with the same layout (in place), and gradients.x the same as
 * gradients.y; otherwise outputs may overlap nothing. */
typedef struct clattn_dropout_args {
    size_t size;                   /**< sizeof(clattn_dropout_args) */
    clattn_binding x, residual, y; /**< the array of that name */
    uint64_t seed;                 /**< the generator's key */
    uint32_t offset;               /**< which of the seed's masks */
    int32_t explicit_batch;        /**< 1: `batch` counts; 0 (default): the description's extent */
    size_t batch;                  /**< the extent of the first dimension, at most the description's */
    struct {
        clattn_binding x, y;
    } gradients;             /**< the array of that name in the description's `gradients` */
    clattn_control *control; /**< what watches the call (control.h), or NULL */
} clattn_dropout_args;

/** Initialises a clattn_dropout_args: its size, and zeros. */
#define CLATTN_DROPOUT_ARGS_INIT CLATTN_INIT(clattn_dropout_args)

/** Sets *args as CLATTN_DROPOUT_ARGS_INIT does (@ref calls_init). */
CLATTN_API void clattn_dropout_args_init(clattn_dropout_args *args);

/** Tells whether some solver takes `desc`, and if not, why (@ref calls_supports).
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, INVALID_LAYOUT, OVERFLOW, UNSUPPORTED or OUT_OF_MEMORY. */
CLATTN_API clattn_status clattn_dropout_supports(clattn_context *context, const clattn_dropout_desc *desc,
                                                 const char **reason);

/** Compiles a plan for `desc` (@ref calls_plan). Blocks.
 *
 * @return what clattn_dropout_supports returns, FORKED, OPENCL, BUILD, MISCOMPILED, IO or INTERNAL. */
CLATTN_API clattn_status clattn_dropout_plan_create(clattn_context *context, const clattn_dropout_desc *desc,
                                                    const clattn_plan_options *options, clattn_plan **plan);

/** Enqueues the plan's one kernel (@ref calls_enqueue). Does not block.
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, OVERFLOW, UNSUPPORTED (shared virtual memory on a device without it),
 * WRONG_CONTEXT, BUFFER_TOO_SMALL, BUFFER_ACCESS, OUT_OF_MEMORY, OPENCL, CANCELLED or FORKED. */
CLATTN_API clattn_status clattn_dropout_enqueue(clattn_plan *plan, cl_command_queue queue,
                                                const clattn_dropout_args *args, cl_uint wait_count,
                                                const cl_event *wait_list, cl_event *event);

/** Makes the plan that clattn_dropout_run will want for `desc` (@ref calls_prewarm). Blocks.
 *
 * @return what clattn_dropout_plan_create returns. */
CLATTN_API clattn_status clattn_dropout_prewarm(clattn_context *context, const clattn_dropout_desc *desc);

/** Finds or makes the plan for `desc` and enqueues it (@ref calls_run). Blocks only while it compiles.
 *
 * @return what clattn_dropout_plan_create and clattn_dropout_enqueue return. */
CLATTN_API clattn_status clattn_dropout_run(clattn_context *context, cl_command_queue queue,
                                            const clattn_dropout_desc *desc, const clattn_dropout_args *args,
                                            cl_uint wait_count, const cl_event *wait_list, cl_event *event);

CLATTN_END_DECLS

#endif
