/* Matrix product with bias, activation and a second array.
 *
 *   C[b,i,j] = act((sum_k A[b,i,k] * B[b,k,j]) (* b_scale[j]) (+ bias[j]))  (+ or * operand[b,i,j])
 *
 * Arrays are float32, float16 or bfloat16, each for itself; products are added up in float32 and rounded once, to
 * nearest even, when C is stored: what is done to a sum costs no further rounding and no further pass over memory.
 *
 * The two layers of a feed-forward network are H = act(X W1ᵀ + b1) and Y = H W2ᵀ + b2, with the residual X as the second
 * one's operand; gated (GLU, SwiGLU, GeGLU), G = act(X Wgᵀ) and H = (X W1ᵀ) * G, with G as operand.
 *
 * B may be int8, with b_scale: float32, one for each column of B, which is a row of a weight stored (out, in).  The
 * products of A by the integers are added up, and the sum is multiplied.
 *
 * Transposes are strides: a weight stored (out, in) row-major, as PyTorch's Linear has it, is the layout of B
 * with extents (in, out) and strides (1, in). */
#ifndef CLATTN_MATMUL_H
#define CLATTN_MATMUL_H

#include "activation.h"

CLATTN_BEGIN_DECLS

/* What becomes of `operand`, behind the activation. */
typedef enum clattn_matmul_operand_use {
    CLATTN_MATMUL_OPERAND_USE_ADD = 0,
    CLATTN_MATMUL_OPERAND_USE_MULTIPLY = 1,
    CLATTN_MATMUL_OPERAND_USE_FORCE_32BIT = 0x7fffffff
} clattn_matmul_operand_use;

/* What to compute.  Set it up with CLATTN_MATMUL_DESC_INIT. */
typedef struct clattn_matmul_desc {
    size_t size; /* sizeof(clattn_matmul_desc) */
    clattn_direction direction;
    int32_t reserved;             /* 0 */
    clattn_layout a;              /* (m, k) or (batch, m, k) */
    clattn_layout b;              /* (k, n) or (batch, k, n); batch may be 1, or stride 0, for one that all items share;
                      * also CLATTN_DTYPE_I8 */
    clattn_layout c;              /* (m, n) or (batch, m, n) */
    clattn_layout bias;           /* none, or (n) */
    clattn_activation activation; /* 0 (default): none */
    int32_t explicit_alpha;       /* 1: `alpha` counts; 0 (default): 1 */
    float alpha;                  /* CLATTN_ACTIVATION_SWISH's: any finite value */
    clattn_matmul_operand_use operand_use; /* without an operand 0 */
    clattn_layout operand; /* none, or (m, n) or (batch, m, n), batch as b's; any strides, 0 broadcasts */
    clattn_layout b_scale; /* (n), CLATTN_DTYPE_F32, if b is CLATTN_DTYPE_I8, else none */
} clattn_matmul_desc;

#define CLATTN_MATMUL_DESC_INIT CLATTN_INIT(clattn_matmul_desc)

/* What CLATTN_MATMUL_DESC_INIT does.  NULL is accepted. */
CLATTN_API void clattn_matmul_desc_init(clattn_matmul_desc *desc);

/* Where the arrays are this time.  c may overlap nothing, but operand may be c itself: the same memory, layout and offset
 * (Y += X W).  Each element of it is read before that of c is written, by every solver. */
typedef struct clattn_matmul_args {
    size_t size; /* sizeof(clattn_matmul_args) */
    clattn_binding a, b, bias, c;
    int32_t explicit_lengths; /* 1: `batch` and `m` count; 0 (default): the desc's extents */
    int32_t reserved;         /* 0 */
    size_t batch, m;          /* <= the desc's; 0 is allowed and does nothing */
    clattn_binding workspace; /* as in clattn_attention_args */
    clattn_binding operand, b_scale;
} clattn_matmul_args;

#define CLATTN_MATMUL_ARGS_INIT CLATTN_INIT(clattn_matmul_args)

/* What CLATTN_MATMUL_ARGS_INIT does.  NULL is accepted. */
CLATTN_API void clattn_matmul_args_init(clattn_matmul_args *args);

/* The five calls below behave as their namesakes in attention.h: contracts, blocking and statuses.  enqueue
 * and run also return UNSUPPORTED, for a shared-virtual-memory binding on a device that has none, or with
 * the solver "clblast", which takes buffers only.  "clblast" refuses activations, operands and integers.
 *
 * "clblast" with a bias writes that to c first and adds to it: c must then be readable by kernels
 * (BUFFER_ACCESS otherwise), and after a failure with OUT_OF_MEMORY or OPENCL it may have been written.
 *
 * CLBlast is called under one lock of the process, which making a plan holds while CLBlast compiles: an
 * enqueue by "clblast" may wait for a clattn_matmul_plan_create, of any context, in another thread. */
CLATTN_API clattn_status clattn_matmul_supports(clattn_context *context, const clattn_matmul_desc *desc,
                                                const char **reason);
CLATTN_API clattn_status clattn_matmul_plan_create(clattn_context *context, const clattn_matmul_desc *desc,
                                                   const clattn_plan_options *options, clattn_plan **plan);
CLATTN_API clattn_status clattn_matmul_enqueue(clattn_plan *plan, cl_command_queue queue,
                                               const clattn_matmul_args *args, cl_uint wait_count,
                                               const cl_event *wait_list, cl_event *event);
CLATTN_API clattn_status clattn_matmul_prewarm(clattn_context *context, const clattn_matmul_desc *desc);
CLATTN_API clattn_status clattn_matmul_run(clattn_context *context, cl_command_queue queue,
                                           const clattn_matmul_desc *desc, const clattn_matmul_args *args,
                                           cl_uint wait_count, const cl_event *wait_list, cl_event *event);

CLATTN_END_DECLS

#endif
