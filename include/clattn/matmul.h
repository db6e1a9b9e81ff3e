/** @file
 * Matrix product with bias, activation and a second array, in one pass.
 *
 *     C[b,i,j] = act((sum_k A[b,i,k] * B[b,k,j]) (* b_scale[j]) (+ bias[j]))  (+ or * operand[b,i,j])
 *
 * Arrays are float32, float16 or bfloat16, independently of each other. Products are added up in float32 and rounded
 * once, to nearest even, when C is stored. Whatever is done to a sum costs no further rounding and no further pass
 * over memory.
 *
 * The two layers of a feed-forward network are H = act(X W1ᵀ + b1) and Y = H W2ᵀ + b2, with the residual X as the
 * second one's operand. If they are gated (GLU, SwiGLU, GeGLU), G = act(X Wgᵀ) and H = (X W1ᵀ) * G, with G as operand.
 *
 * B may be int8. `b_scale` then has one float32 for each column of B, which is a row of a weight stored (out, in): the
 * products of A by the integers are added up, and the sum is multiplied.
 *
 * Transposes are strides: a weight stored (out, in) row-major, as PyTorch's Linear has it, is the layout of B with
 * extents (in, out) and strides (1, in).
 *
 * CLATTN_DIRECTION_BACKWARD makes the gradients of A, B, bias and operand, each if its layout is there, of the gradient of C.
 * With s = A B + bias, and S' the gradient of s:
 *
 *     S'                 = gradients.c (* operand, if that is multiplied) * act'(s)          act' as in activation.h
 *     gradients.a        = S' Bᵀ
 *     gradients.b        = Aᵀ S'                 summed over the batch if all items share b
 *     gradients.bias[j]  = sum of S'[b,i,j] over b and i
 *     gradients.operand  = gradients.c (* act(s), if operand is multiplied)        summed over the batch if its batch is 1
 *
 * Backward needs gradients.c and of forward's arrays those that these formulas name, c never; s is computed anew if there
 * is an activation, or a multiplied operand's gradient, and then A, B and bias are needed. S' and s are float32 in the
 * workspace, (batch, m, n); without an activation and a multiplied operand S' is gradients.c itself, and nothing is copied.
 * Sums over rows are those of products of at most 4096 rows each, added up in float32 in their order, and rounded once;
 * those of bias have compensation. The same plan gives the same bits in every run; gradients that are no sums over the batch
 * are the same in every bit with fewer items at enqueue. A NaN or an infinity goes where the formulas take it: 0
 * times an infinity is NaN. An int8 B has no gradients.
 */
#ifndef CLATTN_MATMUL_H
#define CLATTN_MATMUL_H

#include "activation.h"

CLATTN_BEGIN_DECLS

/** What becomes of `operand` after the activation. */
typedef enum clattn_matmul_operand_use {
    CLATTN_MATMUL_OPERAND_USE_ADD = 0,      /**< it is added */
    CLATTN_MATMUL_OPERAND_USE_MULTIPLY = 1, /**< it is multiplied in */
    CLATTN_MATMUL_OPERAND_USE_FORCE_32BIT = 0x7fffffff
} clattn_matmul_operand_use;

/** What a call does of packing b, which solvers for CPUs do before they multiply, into the workspace. */
typedef enum clattn_prepack {
    CLATTN_PREPACK_NONE = 0, /**< b is packed, if the solver does that, and multiplied */
    /** b is packed and nothing is multiplied: nothing but b and the workspace need be bound, and lengths do not count */
    CLATTN_PREPACK_PACK = 1,
    CLATTN_PREPACK_PACKED = 2, /**< b is multiplied as the workspace has it */
    CLATTN_PREPACK_FORCE_32BIT = 0x7fffffff
} clattn_prepack;

/** What to compute. Set it up with CLATTN_MATMUL_DESC_INIT. */
typedef struct clattn_matmul_desc {
    size_t size;                /**< sizeof(clattn_matmul_desc) */
    clattn_direction direction; /**< either */

    /** 1: b will be packed in advance (clattn_prepack), so that packing it costs nothing, and a solver that can pack it does. Of up
     * to 100 rows on CPUs that takes 0.5 to 0.9 of the time, and has other roundings. 0 (default): packing counts. Forward only. */
    int32_t prepack;
    clattn_layout a; /**< (m, k) or (batch, m, k) */

    /** (k, n) or (batch, k, n), also int8. All items share it if its batch is 1 or has stride 0. */
    clattn_layout b;
    clattn_layout c;              /**< the output, (m, n) or (batch, m, n); backward: none */
    clattn_layout bias;           /**< none, or (n) */
    clattn_activation activation; /**< what is applied to the sums; CLATTN_ACTIVATION_NONE (default): nothing */
    int32_t explicit_alpha;       /**< 1: `alpha` counts; 0 (default): Swish has 1, LeakyReLU 0.01 */
    float alpha;                  /**< Swish's or LeakyReLU's alpha: any finite value */
    clattn_matmul_operand_use operand_use; /**< what becomes of `operand`; 0 if there is none */

    /** None, or (m, n) or (batch, m, n), with a batch as b's. Strides of 0 broadcast. */
    clattn_layout operand;
    clattn_layout b_scale; /**< (n) float32 if b is int8; otherwise none */

    /** Only with CLATTN_DIRECTION_BACKWARD: float32, float16 or bfloat16, independently of each other. c is the input, and of the
     * others there is at least one. */
    struct {
        clattn_layout a; /**< none, or (batch, m, k) as a */
        /** None, or (batch, k, n); (k, n) or (1, k, n) if all items share b, because its batch is 1 or has stride 0. */
        clattn_layout b;
        clattn_layout c;    /**< the gradient of c: (m, n) or (batch, m, n) */
        clattn_layout bias; /**< none, or (n), if there is a bias */
        clattn_layout
            operand; /**< none, or (batch, m, n); (m, n) or (1, m, n) if operand's batch is 1 or has stride 0 */
    } gradients;
} clattn_matmul_desc;

/** Initialises a clattn_matmul_desc: its size, and zeros. */
#define CLATTN_MATMUL_DESC_INIT CLATTN_INIT(clattn_matmul_desc)

/** Sets *desc as CLATTN_MATMUL_DESC_INIT does (@ref calls_init). */
CLATTN_API void clattn_matmul_desc_init(clattn_matmul_desc *desc);

/** Where the arrays are this time. Set it up with CLATTN_MATMUL_ARGS_INIT.
 *
 * c may overlap nothing, with one exception: operand may be c itself, the same memory, layout and offset (Y += X W).
 * Every solver reads each element of operand before it writes that of c.
 *
 * Backward's outputs may overlap nothing, and gradients.b may also be read. Arrays that it does not need may be unbound, as may arrays without elements. */
typedef struct clattn_matmul_args {
    size_t size;                  /**< sizeof(clattn_matmul_args) */
    clattn_binding a, b, bias, c; /**< the array of that name */
    int32_t explicit_lengths;     /**< 1: `batch` and `m` count; 0 (default): the description's extents */

    /** NONE (default), or for a b that serves many calls, as weights do: PACK once, with a workspace of the caller's, and then
     * PACKED with this workspace, which nobody has written to since, this plan, and this b. b must have no batch, or one of
     * stride 0. Solvers that do not pack b do nothing for PACK and take PACKED for NONE, and need no workspace if the
     * plan has none. The description's `prepack` lets the planner count on it. Backward takes NONE alone. */
    clattn_prepack prepack;
    size_t batch, m; /**< at most the description's; 0 is allowed and does nothing, backward: makes sums of nothing */
    clattn_binding workspace;        /**< none (default), or a workspace (@ref calls_workspace) */
    clattn_binding operand, b_scale; /**< the array of that name */
    struct {
        clattn_binding a, b, c, bias, operand;
    } gradients;             /**< the array of that name in the description's `gradients` */
    clattn_control *control; /**< what watches the call (control.h), or NULL */
} clattn_matmul_args;

/** Initialises a clattn_matmul_args: its size, and zeros. */
#define CLATTN_MATMUL_ARGS_INIT CLATTN_INIT(clattn_matmul_args)

/** Sets *args as CLATTN_MATMUL_ARGS_INIT does (@ref calls_init). */
CLATTN_API void clattn_matmul_args_init(clattn_matmul_args *args);

/** Tells whether some solver takes `desc`, and if not, why (@ref calls_supports).
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, INVALID_LAYOUT, OVERFLOW, UNSUPPORTED or OUT_OF_MEMORY. */
CLATTN_API clattn_status clattn_matmul_supports(clattn_context *context, const clattn_matmul_desc *desc,
                                                const char **reason);

/** Compiles a plan for `desc` (@ref calls_plan). Blocks.
 *
 * The solver "clblast" refuses activations, operands and integers.
 *
 * Backward has no solvers of its own but several plans of products: `options` names the solver of each, and
 * clattn_plan_solver tells those that they have, "cpu+cpu-bf16" for example. Only a solver that takes every one of them can be
 * named.
 *
 * @return what clattn_matmul_supports returns, FORKED, OPENCL, BUILD, MISCOMPILED, IO or INTERNAL. */
CLATTN_API clattn_status clattn_matmul_plan_create(clattn_context *context, const clattn_matmul_desc *desc,
                                                   const clattn_plan_options *options, clattn_plan **plan);

/** Enqueues the plan (@ref calls_enqueue). Does not block.
 *
 * If the plan's solver is "clblast":
 *
 * - Arrays are buffers; shared virtual memory is refused with UNSUPPORTED. Plans for it name another solver, or are of
 *   a context whose params exclude CLBlast.
 * - If there is a bias, sums lie in the workspace first, which must then be a buffer, too.
 * - CLBlast is called under one lock of the process, which making a plan holds while CLBlast compiles. So the enqueue
 *   may wait for a clattn_matmul_plan_create, of any context, in another thread.
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, OVERFLOW, UNSUPPORTED (shared virtual memory on a device without it),
 * WRONG_CONTEXT, BUFFER_TOO_SMALL, BUFFER_ACCESS, BUSY, OUT_OF_MEMORY, OPENCL, CANCELLED or FORKED. */
CLATTN_API clattn_status clattn_matmul_enqueue(clattn_plan *plan, cl_command_queue queue,
                                               const clattn_matmul_args *args, cl_uint wait_count,
                                               const cl_event *wait_list, cl_event *event);

/** Makes the plan that clattn_matmul_run will want for `desc` (@ref calls_prewarm). Blocks.
 *
 * @return what clattn_matmul_plan_create returns. */
CLATTN_API clattn_status clattn_matmul_prewarm(clattn_context *context, const clattn_matmul_desc *desc);

/** Finds or makes the plan for `desc` and enqueues it (@ref calls_run). Blocks only while it compiles.
 *
 * @return what clattn_matmul_plan_create and clattn_matmul_enqueue return. */
CLATTN_API clattn_status clattn_matmul_run(clattn_context *context, cl_command_queue queue,
                                           const clattn_matmul_desc *desc, const clattn_matmul_args *args,
                                           cl_uint wait_count, const cl_event *wait_list, cl_event *event);

CLATTN_END_DECLS

#endif
