/* Activation functions, element by element.
 *
 *   NONE        X: a copy, from one layout and type to another
 *   ReLU        max(X, 0)
 *   GELU        X · Φ(X) = X · (1 + erf(X / √2)) / 2                               (Hendrycks, Gimpel 2016)
 *   GELU_TANH   X · (1 + tanh(√(2/π) · (X + 0.044715 X³))) / 2, their approximation
 *   SWISH       X / (1 + exp(−alpha · X))                                          (Ramachandran et al. 2017)
 *
 * SWISH with alpha 1 is SiLU.  These are ONNX's Relu, Gelu (opset 20, approximate "none" and "tanh") and
 * Swish (opset 24).  State is float32 whatever is stored.  Y before its rounding to the storage type is
 * within 6·2^-23 of |Y|, for every X and in the tails too, where these functions are small and formulas of
 * tanh and erf cancel; of a magnitude below 2^-126 it may be 0.  NaN stays NaN; infinities give the limits:
 * +inf or ±0. */
#ifndef CLATTN_ACTIVATION_H
#define CLATTN_ACTIVATION_H

#include "plan.h"

CLATTN_BEGIN_DECLS

/* The function: of this operator, of a matrix product's sums, of a feed-forward network, of a convolution. */
typedef enum clattn_activation {
    CLATTN_ACTIVATION_NONE = 0, /* X itself */
    CLATTN_ACTIVATION_RELU = 1,
    CLATTN_ACTIVATION_GELU = 2,
    CLATTN_ACTIVATION_GELU_TANH = 3,
    CLATTN_ACTIVATION_SWISH = 4,
    CLATTN_ACTIVATION_FORCE_32BIT = 0x7fffffff
} clattn_activation;

/* What to compute.  Set it up with CLATTN_ACTIVATION_DESC_INIT.  x and y are each CLATTN_DTYPE_F32, CLATTN_DTYPE_F16 or
 * CLATTN_DTYPE_BF16. */
typedef struct clattn_activation_desc {
    size_t size; /* sizeof(clattn_activation_desc) */
    clattn_direction direction;
    clattn_activation function;
    int32_t explicit_alpha; /* 1: `alpha` counts; 0 (default): 1 */
    float alpha;            /* SWISH: any finite value, 0 and negative included */
    clattn_layout x;        /* rank 1 … 5, each extent at most 2^31 − 65537 */
    clattn_layout y;        /* the same extents */
} clattn_activation_desc;

#define CLATTN_ACTIVATION_DESC_INIT CLATTN_INIT(clattn_activation_desc)

/* What CLATTN_ACTIVATION_DESC_INIT does.  NULL is accepted. */
CLATTN_API void clattn_activation_desc_init(clattn_activation_desc *desc);

/* Where the arrays are.  y may be the same memory as x with the same layout (in place), and may otherwise
 * overlap nothing. */
typedef struct clattn_activation_args {
    size_t size; /* sizeof(clattn_activation_args) */
    clattn_binding x, y;
    int32_t explicit_batch; /* 1: `batch` counts; 0 (default): the desc's extent */
    int32_t reserved;       /* 0 */
    size_t batch;           /* of the first dimension, <= the desc's */
} clattn_activation_args;

#define CLATTN_ACTIVATION_ARGS_INIT CLATTN_INIT(clattn_activation_args)

/* What CLATTN_ACTIVATION_ARGS_INIT does.  NULL is accepted. */
CLATTN_API void clattn_activation_args_init(clattn_activation_args *args);

/* The five calls below behave as their namesakes in attention.h: contracts, blocking and statuses.  enqueue
 * and run also return UNSUPPORTED, for a shared-virtual-memory binding on a device that has none. */
CLATTN_API clattn_status clattn_activation_supports(clattn_context *context, const clattn_activation_desc *desc,
                                                    const char **reason);
CLATTN_API clattn_status clattn_activation_plan_create(clattn_context *context, const clattn_activation_desc *desc,
                                                       const clattn_plan_options *options, clattn_plan **plan);
CLATTN_API clattn_status clattn_activation_enqueue(clattn_plan *plan, cl_command_queue queue,
                                                   const clattn_activation_args *args, cl_uint wait_count,
                                                   const cl_event *wait_list, cl_event *event);
CLATTN_API clattn_status clattn_activation_prewarm(clattn_context *context, const clattn_activation_desc *desc);
CLATTN_API clattn_status clattn_activation_run(clattn_context *context, cl_command_queue queue,
                                               const clattn_activation_desc *desc, const clattn_activation_args *args,
                                               cl_uint wait_count, const cl_event *wait_list, cl_event *event);

CLATTN_END_DECLS

#endif
