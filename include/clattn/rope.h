/** @file
 * Rotary position embedding (Su and others, 2021; ONNX's RotaryEmbedding, opset 23).
 *
 * The first rotary_size = 2 n elements of each head form n pairs. Pair i of an element at position p is rotated by the
 * angle a = p · base^(−i/n); the elements beyond rotary_size are copied:
 *
 *     Y1 = X1 cos(a) − X2 sin(a)          halves:       X1 = X[i],    X2 = X[i + n]
 *     Y2 = X1 sin(a) + X2 cos(a)          interleaved:  X1 = X[2 i],  X2 = X[2 i + 1]
 *
 * The cosines and sines are computed, or read from arrays of the caller's. Computed angles are fractions of a turn in
 * 64-bit integers, which lose whole turns and nothing else: cos(a) and sin(a) are within 1.3e-7 of exact for |p| up to
 * 2^20, and within 4e-7 up to 2^31. State is float32, whatever is stored, and Y is rounded once. A NaN or infinity
 * stays within its pair.
 *
 * CLATTN_DIRECTION_BACKWARD makes the gradient of X of the gradient of Y. The gradient of a rotation is the rotation by
 * the opposite angle, so X itself is not needed:
 *
 *     gradients.x = the above with gradients.y for X and −a for a
 *
 * Its exactness, what is NaN and what is copied are those above. Each pair is computed alone, so the result is the same
 * from run to run and whatever the batch around it. There are no gradients of cos and sin.
 */
#ifndef CLATTN_ROPE_H
#define CLATTN_ROPE_H

#include "plan.h"

CLATTN_BEGIN_DECLS

/** Which elements form a pair. */
typedef enum clattn_rope_pairing {
    CLATTN_ROPE_PAIRING_HALVES = 0,      /**< i and i + n: GPT-NeoX, Llama in Transformers, ONNX's interleaved = 0 */
    CLATTN_ROPE_PAIRING_INTERLEAVED = 1, /**< 2 i and 2 i + 1: the paper, GPT-J, Llama's own code */
    CLATTN_ROPE_PAIRING_FORCE_32BIT = 0x7fffffff
} clattn_rope_pairing;

/** What to compute. Set it up with CLATTN_ROPE_DESC_INIT.
 *
 * x, y, their gradients and cos are each float32, float16 or bfloat16, and sin is of cos's type. The extents of batch
 * and length are the largest that an enqueue may use. Backward has the gradients instead of x and y, and all the rest.
 *
 * The position of element s of batch item b is
 *
 *     clattn_rope_args.position + positions[b,s]      if there are positions
 *     clattn_rope_args.position + offsets[b] + s      if there are offsets
 *     clattn_rope_args.position + s                   otherwise
 */
typedef struct clattn_rope_desc {
    size_t size;                 /**< sizeof(clattn_rope_desc) */
    clattn_direction direction;  /**< either */
    clattn_rope_pairing pairing; /**< which elements form a pair */
    float base;                  /**< the base of computed angles: finite, > 1; 0 (default): 10000 */
    int32_t reserved;            /* 0 */
    size_t rotary_size;          /**< even, at most the head size and 131072; 0 (default): the head size */
    clattn_layout x; /**< (batch, heads, length, size); see clattn_layout_bshd for (batch, length, heads · size) */
    clattn_layout y; /**< the output, with x's extents */

    /** None: angles are computed. Otherwise one of
     *
     * - (table, n): row p belongs to position p. If a position is not in the table, the rotated part of that element
     *   is NaN.
     * - (batch or 1, length, n): row (b, s) belongs to element s of item b, whatever its position. There are then
     *   neither positions nor offsets. */
    clattn_layout cos;
    clattn_layout sin;       /**< the same extents as `cos` */
    clattn_layout positions; /**< none, or (batch or 1, length) int32 or int64 */
    clattn_layout offsets;   /**< none, or (batch) int32 or int64; not together with positions */

    /** Only with CLATTN_DIRECTION_BACKWARD, which needs both: (batch, heads, length, size). */
    struct {
        clattn_layout x; /**< the output: the gradient of x */
        clattn_layout y; /**< the input: the gradient of y, with the same extents */
    } gradients;
} clattn_rope_desc;

/** Initialises a clattn_rope_desc: its size, and zeros. */
#define CLATTN_ROPE_DESC_INIT CLATTN_INIT(clattn_rope_desc)

/** Sets *desc as CLATTN_ROPE_DESC_INIT does (@ref calls_init). */
CLATTN_API void clattn_rope_desc_init(clattn_rope_desc *desc);

/** Where the arrays are this time. Set it up with CLATTN_ROPE_ARGS_INIT.
 *
 * y may be the same memory as x with the same layout (in place), and gradients.x the same as gradients.y; otherwise
 * outputs may overlap nothing. */
typedef struct clattn_rope_args {
    size_t size;                                       /**< sizeof(clattn_rope_args) */
    clattn_binding x, y, cos, sin, positions, offsets; /**< the array of that name */
    int32_t explicit_lengths; /**< 1: `batch` and `length` count; 0 (default): the description's extents */
    int32_t reserved;         /* 0 */
    size_t batch, length;     /**< at most the description's; 0 is allowed and does nothing */
    int64_t position;         /**< where the first element stands: added to every position */
    struct {
        clattn_binding x, y;
    } gradients;             /**< the array of that name in the description's `gradients` */
    clattn_control *control; /**< what watches the call (control.h), or NULL */
} clattn_rope_args;

/** Initialises a clattn_rope_args: its size, and zeros. */
#define CLATTN_ROPE_ARGS_INIT CLATTN_INIT(clattn_rope_args)

/** Sets *args as CLATTN_ROPE_ARGS_INIT does (@ref calls_init). */
CLATTN_API void clattn_rope_args_init(clattn_rope_args *args);

/** Tells whether some solver takes `desc`, and if not, why (@ref calls_supports).
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, INVALID_LAYOUT, OVERFLOW, UNSUPPORTED or OUT_OF_MEMORY. */
CLATTN_API clattn_status clattn_rope_supports(clattn_context *context, const clattn_rope_desc *desc,
                                              const char **reason);

/** Compiles a plan for `desc` (@ref calls_plan). Blocks.
 *
 * @return what clattn_rope_supports returns, FORKED, OPENCL, BUILD, MISCOMPILED, IO or INTERNAL. */
CLATTN_API clattn_status clattn_rope_plan_create(clattn_context *context, const clattn_rope_desc *desc,
                                                 const clattn_plan_options *options, clattn_plan **plan);

/** Enqueues the plan's one kernel (@ref calls_enqueue). Does not block.
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, OVERFLOW, UNSUPPORTED (shared virtual memory on a device without it),
 * WRONG_CONTEXT, BUFFER_TOO_SMALL, BUFFER_ACCESS, OUT_OF_MEMORY, OPENCL, CANCELLED or FORKED. */
CLATTN_API clattn_status clattn_rope_enqueue(clattn_plan *plan, cl_command_queue queue, const clattn_rope_args *args,
                                             cl_uint wait_count, const cl_event *wait_list, cl_event *event);

/** Makes the plan that clattn_rope_run will want for `desc` (@ref calls_prewarm). Blocks.
 *
 * @return what clattn_rope_plan_create returns. */
CLATTN_API clattn_status clattn_rope_prewarm(clattn_context *context, const clattn_rope_desc *desc);

/** Finds or makes the plan for `desc` and enqueues it (@ref calls_run). Blocks only while it compiles.
 *
 * @return what clattn_rope_plan_create and clattn_rope_enqueue return. */
CLATTN_API clattn_status clattn_rope_run(clattn_context *context, cl_command_queue queue, const clattn_rope_desc *desc,
                                         const clattn_rope_args *args, cl_uint wait_count, const cl_event *wait_list,
                                         cl_event *event);

CLATTN_END_DECLS

#endif
