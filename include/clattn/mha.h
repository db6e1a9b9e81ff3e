/* Multi-head attention.
 *
 *   head_h  = attention(X W_Qᵀ + b_Q, C W_Kᵀ + b_K, C W_Vᵀ + b_V) over the h-th share of the columns
 *   Y       = concat(head_1 … head_H) W_Oᵀ + b_O
 *
 * (Vaswani et al. 2017, section 3.2.2) with C = X for self-attention.  Weights are stored (out, in),
 * row-major, as PyTorch's nn.MultiheadAttention has them.  Heads are strides: nothing is transposed or
 * copied.
 *
 * Queries, keys and values of self-attention are one product where the weights are packed (packed_weights),
 * and three where they are not; of cross-attention with packed weights they are two, or three where the
 * values have a `context_value` of their own. */
#ifndef CLATTN_MHA_H
#define CLATTN_MHA_H

#include "attention.h"

CLATTN_BEGIN_DECLS

typedef enum clattn_weights_output {
    CLATTN_WEIGHTS_OUTPUT_NONE = 0,
    CLATTN_WEIGHTS_OUTPUT_PER_HEAD = 1, /* (batch, heads, S_q, S_k) */
    CLATTN_WEIGHTS_OUTPUT_AVERAGE = 2,  /* (batch, S_q, S_k): the mean over heads */
    CLATTN_WEIGHTS_OUTPUT_FORCE_32BIT = 0x7fffffff
} clattn_weights_output;

/* What to compute.  Set it up with CLATTN_MHA_DESC_INIT.  Zero sizes mean what stands beside them. */
typedef struct clattn_mha_desc {
    size_t size; /* sizeof(clattn_mha_desc) */
    clattn_direction direction;
    clattn_dtype dtype;         /* of inputs, weights, biases and output: CLATTN_DTYPE_F32 (0 too), CLATTN_DTYPE_F16
                             * or CLATTN_DTYPE_BF16.  Projected queries, keys and values and the attended heads are
                             * rounded to it between the parts; sums and softmax are float32 */
    int32_t cross;              /* 1: keys and values come from `context`; 0 (default): from x itself */
    int32_t packed_weights;     /* 1: W_Q, W_K, W_V are one array `w_in` (3*inner, d_model), PyTorch's
                             * in_proj_weight, and b_Q, b_K, b_V one `b_in`; 0 (default): three arrays each */
    int32_t bias_in;            /* 1: b_Q, b_K, b_V are added */
    int32_t bias_out;           /* 1: b_O is added */
    int32_t causal;             /* as in clattn_attention_desc */
    clattn_alignment alignment; /* as in clattn_attention_desc */
    int32_t explicit_scale;     /* 1: `scale` counts; 0 (default): 1/sqrt(d_k), d_k the head size */
    float scale;
    clattn_weights_output weights; /* an extra output of probabilities, CLATTN_DTYPE_F32 */
    int32_t short_mask;            /* as in clattn_attention_desc */
    size_t batch;                  /* largest batch; 0, as any length of 0, is allowed and does nothing */
    size_t query_length;           /* largest S_q */
    size_t key_length;             /* largest S_k, with `cross`; otherwise S_q */
    size_t d_model;                /* columns of x and y */
    size_t heads;                  /* H */
    size_t kv_heads;               /* 0: heads; otherwise a divisor of heads */
    size_t head_size;              /* d_k = d_v; 0: d_model / heads, which must then be whole */
    size_t d_context;              /* columns of `context` for keys; 0: d_model */
    size_t d_context_value;        /* columns of `context_value`; 0: d_context, and `context` serves both.  Given,
                             * even equal to d_context, it makes `context_value` an input of its own */
    clattn_layout mask;            /* as in clattn_attention_desc */
} clattn_mha_desc;

#define CLATTN_MHA_DESC_INIT CLATTN_INIT(clattn_mha_desc)

/* What CLATTN_MHA_DESC_INIT does.  NULL is accepted. */
CLATTN_API void clattn_mha_desc_init(clattn_mha_desc *desc);

/* Where the arrays are; all contiguous, row-major, at the desc's largest lengths: explicit_lengths says how
 * much of them counts, and does not move anything.  With a desc for (batch 4, S_q 128), the items of x stay
 * 128*d_model elements apart when 3 items of 17 tokens are computed: token i of item b lies at
 * (b*128 + i)*d_model, and y likewise; element (b, h, i, j) of `weights` at ((b*H + h)*128 + i)*S_k + j with
 * the desc's S_k.  For arrays packed at other lengths, make a plan for those.
 *
 * With inner = heads * head_size and inner_kv = kv_heads * head_size: x and y (batch, S_q, d_model), context
 * (batch, S_k, d_context), context_value (batch, S_k, d_context_value), w_q (inner, d_model), w_k (inner_kv,
 * d_context), w_v (inner_kv, d_context_value), w_o (d_model, inner), biases one per row of their weight.
 *
 * Packed weights need kv_heads = heads and d_context = d_context_value = d_model. */
typedef struct clattn_mha_args {
    size_t size; /* sizeof(clattn_mha_args) */
    clattn_binding x, context, context_value;
    clattn_binding w_in, b_in;    /* with packed_weights */
    clattn_binding w_q, w_k, w_v; /* without */
    clattn_binding b_q, b_k, b_v;
    clattn_binding w_o, b_o;
    clattn_binding mask, y, weights;
    int32_t explicit_lengths; /* 1: the three fields below count; 0 (default): the desc's */
    int32_t reserved;         /* 0 */
    size_t batch, query_length, key_length;
    int64_t position;         /* with CLATTN_ALIGNMENT_EXPLICIT */
    clattn_binding workspace; /* as in clattn_attention_args */
} clattn_mha_args;

#define CLATTN_MHA_ARGS_INIT CLATTN_INIT(clattn_mha_args)

/* What CLATTN_MHA_ARGS_INIT does.  NULL is accepted. */
CLATTN_API void clattn_mha_args_init(clattn_mha_args *args);

/* The five calls below behave as their namesakes in attention.h: contracts, blocking and statuses.  enqueue
 * and run also return UNSUPPORTED, for a shared-virtual-memory binding on a device that has none, or where
 * CLBlast does one of the products.  A solver asked for in the options is the attention's; the products
 * choose theirs.
 *
 * A layer is several kernels: after a failure of enqueue or run with OUT_OF_MEMORY or OPENCL,
 * the first of them may have been enqueued, `weights` and `y` written by then or later, wholly or in part.
 * After any other failure nothing that writes the caller's outputs has been.  `y` must be readable by kernels
 * where CLBlast computes the output and there is a bias: BUFFER_ACCESS otherwise. */
CLATTN_API clattn_status clattn_mha_supports(clattn_context *context, const clattn_mha_desc *desc, const char **reason);
CLATTN_API clattn_status clattn_mha_plan_create(clattn_context *context, const clattn_mha_desc *desc,
                                                const clattn_plan_options *options, clattn_plan **plan);
CLATTN_API clattn_status clattn_mha_enqueue(clattn_plan *plan, cl_command_queue queue, const clattn_mha_args *args,
                                            cl_uint wait_count, const cl_event *wait_list, cl_event *event);
CLATTN_API clattn_status clattn_mha_prewarm(clattn_context *context, const clattn_mha_desc *desc);
CLATTN_API clattn_status clattn_mha_run(clattn_context *context, cl_command_queue queue, const clattn_mha_desc *desc,
                                        const clattn_mha_args *args, cl_uint wait_count, const cl_event *wait_list,
                                        cl_event *event);

CLATTN_END_DECLS

#endif
