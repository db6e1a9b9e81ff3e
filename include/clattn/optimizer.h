/** @file
 * Training: a step of Adam or AdamW, and the sum of squares that a gradient's norm is the root of.
 *
 * Adam changes n parameters and their two moments as PyTorch's torch.optim.Adam and AdamW do (Kingma, Ba 2015;
 * Loshchilov, Hutter 2019). With t = step:
 *
 *     g       = gradient * gradient_scale * clip
 *     p       = parameter * (1 - learning_rate * weight_decay)             if decoupled: AdamW
 *     g       = g + weight_decay * parameter                               otherwise: Adam
 *     m       = beta1 * first_moment + (1 - beta1) * g
 *     v       = beta2 * second_moment + (1 - beta2) * g * g
 *     denom   = sqrt(v) / sqrt(1 - beta2^t) + epsilon
 *     p       = p - learning_rate / (1 - beta1^t) * m / denom
 *     parameter = p,  first_moment = m,  second_moment = v,  stored = p rounded to its type
 *
 *     clip    = min(1, clip_norm / (norm + 1e-6)),  norm = |gradient_scale| * sqrt(squares)     (clip_grad_norm_)
 *               or 1 if clip_norm is 0
 *
 * If there is `squares` and it is NaN or infinite, as it is after any NaN or infinite gradient, the call changes nothing
 * at all: parameters and moments stay what they were before the broken step, and the host need not look first. Finite
 * gradients whose sum of squares overflows count as broken, too.
 *
 * The sum of squares makes `squares`:
 *
 *     result = sum of x[i]^2                                or result + that, if args.accumulate is 1
 *
 * so that one number is made of many arrays by as many calls, on one queue or behind each other's events. The sum's
 * relative error is below 1e-6 for any n; accumulating adds 2^-24 for each call. An overflow gives infinity.
 *
 * Arithmetic is float32, whatever is stored. What depends on `step` alone the host computes in double precision. Each
 * parameter is computed alone, and the squares are added in an order that depends on n alone: results are the same from
 * run to run and whatever the number of the device's cores.
 *
 * Arrays have one dimension and no gaps: one call serves a tensor that is contiguous, or all of a model's parameters if they
 * lie in one buffer.
 */
#ifndef CLATTN_OPTIMIZER_H
#define CLATTN_OPTIMIZER_H

#include "plan.h"

CLATTN_BEGIN_DECLS

/** What to compute. Set it up with CLATTN_ADAM_DESC_INIT.
 *
 * All layouts are contiguous: rank 1, stride 1, n elements, at most 2^31 - 65537. */
typedef struct clattn_adam_desc {
    size_t size;                 /**< sizeof(clattn_adam_desc) */
    clattn_direction direction;  /**< CLATTN_DIRECTION_FORWARD */
    int32_t reserved;            /* 0 */
    clattn_layout parameter;     /**< what is trained, (n) float32, read and written */
    clattn_layout gradient;      /**< of the loss, (n) float32, float16 or bfloat16 */
    clattn_layout first_moment;  /**< (n) float32, read and written; zeros before the first step */
    clattn_layout second_moment; /**< the same */
    clattn_layout stored;        /**< none, or an output, (n) float16 or bfloat16: the new parameter, rounded */
    clattn_layout squares;       /**< none, or (1) float32: the sum of squares of all gradients of the model */
} clattn_adam_desc;

/** Initialises a clattn_adam_desc: its size, and zeros. */
#define CLATTN_ADAM_DESC_INIT CLATTN_INIT(clattn_adam_desc)

/** Sets *desc as CLATTN_ADAM_DESC_INIT does (@ref calls_init). */
CLATTN_API void clattn_adam_desc_init(clattn_adam_desc *desc);

/** Where the arrays are this time, and the step's numbers. Set it up with CLATTN_ADAM_ARGS_INIT. What is written may overlap
 * nothing else.
 *
 * The numbers are double, as PyTorch's are: of a float32 0.999, 1 - beta2 would be wrong by 1e-5. */
typedef struct clattn_adam_args {
    size_t size;                                                           /**< sizeof(clattn_adam_args) */
    clattn_binding parameter;                                              /**< the array of that name */
    clattn_binding gradient, first_moment, second_moment, stored, squares; /**< the array of that name */
    double learning_rate;                                                  /**< finite, >= 0 */
    double beta1, beta2;                                                   /**< in [0, 1), if explicit_betas is 1 */
    double epsilon;         /**< finite, >= 0, if explicit_epsilon is 1 */
    double weight_decay;    /**< finite, >= 0 */
    double gradient_scale;  /**< finite; 0 (default): 1. With a scaled loss, the scale's inverse */
    double clip_norm;       /**< the norm to clip gradients to, finite, > 0, which needs `squares`; 0 (default): none */
    int64_t step;           /**< which step this is, from 1 */
    int32_t explicit_betas; /**< 1: `beta1` and `beta2` count; 0 (default): 0.9 and 0.999 */
    int32_t explicit_epsilon; /**< 1: `epsilon` counts; 0 (default): 1e-8 */
    int32_t decoupled;        /**< 1: AdamW's weight decay; 0 (default): Adam's, which is part of the gradient */
    int32_t reserved;         /* 0 */
    clattn_control *control;  /**< what watches the call (control.h), or NULL */
} clattn_adam_args;

/** Initialises a clattn_adam_args: its size, and zeros. */
#define CLATTN_ADAM_ARGS_INIT CLATTN_INIT(clattn_adam_args)

/** Sets *args as CLATTN_ADAM_ARGS_INIT does (@ref calls_init). */
CLATTN_API void clattn_adam_args_init(clattn_adam_args *args);

/** Tells whether some solver takes `desc`, and if not, why (@ref calls_supports).
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, INVALID_LAYOUT, OVERFLOW, UNSUPPORTED or OUT_OF_MEMORY. */
CLATTN_API clattn_status clattn_adam_supports(clattn_context *context, const clattn_adam_desc *desc,
                                              const char **reason);

/** Compiles a plan for `desc` (@ref calls_plan). Blocks.
 *
 * @return what clattn_adam_supports returns, FORKED, OPENCL, BUILD, MISCOMPILED, IO or INTERNAL. */
CLATTN_API clattn_status clattn_adam_plan_create(clattn_context *context, const clattn_adam_desc *desc,
                                                 const clattn_plan_options *options, clattn_plan **plan);

/** Enqueues the plan's one kernel (@ref calls_enqueue). Does not block.
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, OVERFLOW, UNSUPPORTED (shared virtual memory on a device without it),
 * WRONG_CONTEXT, BUFFER_TOO_SMALL, BUFFER_ACCESS, OUT_OF_MEMORY, OPENCL, CANCELLED or FORKED. */
CLATTN_API clattn_status clattn_adam_enqueue(clattn_plan *plan, cl_command_queue queue, const clattn_adam_args *args,
                                             cl_uint wait_count, const cl_event *wait_list, cl_event *event);

/** Makes the plan that clattn_adam_run will want for `desc` (@ref calls_prewarm). Blocks.
 *
 * @return what clattn_adam_plan_create returns. */
CLATTN_API clattn_status clattn_adam_prewarm(clattn_context *context, const clattn_adam_desc *desc);

/** Finds or makes the plan for `desc` and enqueues it (@ref calls_run). Blocks only while it compiles.
 *
 * @return what clattn_adam_plan_create and clattn_adam_enqueue return. */
CLATTN_API clattn_status clattn_adam_run(clattn_context *context, cl_command_queue queue, const clattn_adam_desc *desc,
                                         const clattn_adam_args *args, cl_uint wait_count, const cl_event *wait_list,
                                         cl_event *event);

/** What to compute. Set it up with CLATTN_SQUARE_SUM_DESC_INIT. */
typedef struct clattn_square_sum_desc {
    size_t size;                /**< sizeof(clattn_square_sum_desc) */
    clattn_direction direction; /**< CLATTN_DIRECTION_FORWARD */
    int32_t reserved;           /* 0 */
    clattn_layout x;            /**< (n) float32, float16 or bfloat16 of stride 1, n at most 2^31 - 65537 */
    clattn_layout result;       /**< (1) float32; 0 for no elements */
} clattn_square_sum_desc;

/** Initialises a clattn_square_sum_desc: its size, and zeros. */
#define CLATTN_SQUARE_SUM_DESC_INIT CLATTN_INIT(clattn_square_sum_desc)

/** Sets *desc as CLATTN_SQUARE_SUM_DESC_INIT does (@ref calls_init). */
CLATTN_API void clattn_square_sum_desc_init(clattn_square_sum_desc *desc);

/** Where the arrays are this time. Set it up with CLATTN_SQUARE_SUM_ARGS_INIT. The result may overlap nothing. */
typedef struct clattn_square_sum_args {
    size_t size;              /**< sizeof(clattn_square_sum_args) */
    clattn_binding x, result; /**< the array of that name */
    clattn_binding workspace; /**< none (default), or a workspace (@ref calls_workspace) */
    int32_t accumulate;       /**< 1: adds to what the result holds; 0 (default): replaces it */
    int32_t reserved;         /* 0 */
    clattn_control *control;  /**< what watches the call (control.h), or NULL */
} clattn_square_sum_args;

/** Initialises a clattn_square_sum_args: its size, and zeros. */
#define CLATTN_SQUARE_SUM_ARGS_INIT CLATTN_INIT(clattn_square_sum_args)

/** Sets *args as CLATTN_SQUARE_SUM_ARGS_INIT does (@ref calls_init). */
CLATTN_API void clattn_square_sum_args_init(clattn_square_sum_args *args);

/** Tells whether some solver takes `desc`, and if not, why (@ref calls_supports).
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, INVALID_LAYOUT, OVERFLOW, UNSUPPORTED or OUT_OF_MEMORY. */
CLATTN_API clattn_status clattn_square_sum_supports(clattn_context *context, const clattn_square_sum_desc *desc,
                                                    const char **reason);

/** Compiles a plan for `desc` (@ref calls_plan). Blocks.
 *
 * @return what clattn_square_sum_supports returns, FORKED, OPENCL, BUILD, MISCOMPILED, IO or INTERNAL. */
CLATTN_API clattn_status clattn_square_sum_plan_create(clattn_context *context, const clattn_square_sum_desc *desc,
                                                       const clattn_plan_options *options, clattn_plan **plan);

/** Enqueues the plan's two kernels (@ref calls_enqueue). Does not block.
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, OVERFLOW, UNSUPPORTED (shared virtual memory on a device without it),
 * WRONG_CONTEXT, BUFFER_TOO_SMALL, BUFFER_ACCESS, BUSY, OUT_OF_MEMORY, OPENCL, CANCELLED or FORKED. */
CLATTN_API clattn_status clattn_square_sum_enqueue(clattn_plan *plan, cl_command_queue queue,
                                                   const clattn_square_sum_args *args, cl_uint wait_count,
                                                   const cl_event *wait_list, cl_event *event);

/** Makes the plan that clattn_square_sum_run will want for `desc` (@ref calls_prewarm). Blocks.
 *
 * @return what clattn_square_sum_plan_create returns. */
CLATTN_API clattn_status clattn_square_sum_prewarm(clattn_context *context, const clattn_square_sum_desc *desc);

/** Finds or makes the plan for `desc` and enqueues it (@ref calls_run). Blocks only while it compiles.
 *
 * @return what clattn_square_sum_plan_create and clattn_square_sum_enqueue return. */
CLATTN_API clattn_status clattn_square_sum_run(clattn_context *context, cl_command_queue queue,
                                               const clattn_square_sum_desc *desc, const clattn_square_sum_args *args,
                                               cl_uint wait_count, const cl_event *wait_list, cl_event *event);

CLATTN_END_DECLS

#endif
