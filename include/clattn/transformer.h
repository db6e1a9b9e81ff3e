/* Transformers: a model's description, its weights on the device, and encoders.  Decoders are in decoder.h, text
 * generation in generate.h, the weights' names in weights.h.
 *
 * A model has an encoder, a decoder, or both (Vaswani et al. 2017).  Each is a stack: an input (vectors, tokens with
 * positions, or features through convolutions), L identical layers, and perhaps a norm behind the last.  A layer's
 * sublayers are self-attention, with `cross` attention to the encoder's output, and the feed-forward network, each with
 * its residual and its norm:
 *
 *   post-norm (the paper):  x = norm(x + sublayer(x))
 *   pre-norm:               x = x + sublayer(norm(x))
 *
 * One stack of one layer is a layer.  The order of use:
 *
 *   clattn_transformer_create      describes the model, asks a callback for its weights, copies them to the device
 *   clattn_encoder_plan_create     compiles an encoder for a largest batch and length
 *   clattn_encoder_enqueue         any number of times, at any lengths up to these; asynchronous
 *
 * All of a plan's layers share one workspace: an array's memory is used again once the last kernel that reads it has run,
 * so that its size, clattn_plan_workspace_size, does not grow with the number of layers and is the whole peak; the plan's
 * explain text has its parts.  Between layers nothing passes through the host. */
#ifndef CLATTN_TRANSFORMER_H
#define CLATTN_TRANSFORMER_H

#include "activation.h"
#include "embedding.h"
#include "norm.h"
#include "rope.h"
#include "weights.h"

CLATTN_BEGIN_DECLS

/* ---- description ---- */

typedef enum clattn_norm_place {
    CLATTN_NORM_PLACE_POST = 0, /* the paper's, BERT's */
    CLATTN_NORM_PLACE_PRE = 1,  /* GPT-2's, Whisper's */
    CLATTN_NORM_PLACE_FORCE_32BIT = 0x7fffffff
} clattn_norm_place;

typedef enum clattn_stack_input {
    CLATTN_STACK_INPUT_VECTORS = 0, /* (batch, length, d_model): what the application has embedded itself */
    CLATTN_STACK_INPUT_TOKENS = 1,  /* (batch, length) int32 ids, embedded */
    CLATTN_STACK_INPUT_FEATURES =
        2, /* (batch, length, features) through the convolutions; the frames of a spectrogram */
    CLATTN_STACK_INPUT_FORCE_32BIT = 0x7fffffff
} clattn_stack_input;

typedef enum clattn_rotary {
    CLATTN_ROTARY_NONE = 0,
    CLATTN_ROTARY_HALVES = 1,      /* CLATTN_ROPE_PAIRING_HALVES */
    CLATTN_ROTARY_INTERLEAVED = 2, /* CLATTN_ROPE_PAIRING_INTERLEAVED */
    CLATTN_ROTARY_FORCE_32BIT = 0x7fffffff
} clattn_rotary;

/* Biases that a stack has not. */
#define CLATTN_WITHOUT_QUERY_BIAS 1 /* of attention's linear layers, self and cross */
#define CLATTN_WITHOUT_KEY_BIAS 2   /* Whisper */
#define CLATTN_WITHOUT_VALUE_BIAS 4
#define CLATTN_WITHOUT_OUTPUT_BIAS 8
#define CLATTN_WITHOUT_ATTENTION_BIAS 15 /* all four */
#define CLATTN_WITHOUT_FEED_FORWARD_BIAS 16
#define CLATTN_WITHOUT_NORM_BIAS 32
#define CLATTN_WITHOUT_BIAS 63 /* PyTorch's bias=False */

/* A convolution over time of a front end, with bias:
 *   y[t] = act(b + sum_{j < kernel} W[:,:,j] x[t * stride + j - padding])      x being 0 outside
 * of floor((length + 2 padding - kernel) / stride) + 1 frames. */
typedef struct clattn_convolution {
    uint32_t kernel, stride, padding; /* kernel and stride >= 1, padding < kernel */
    clattn_activation activation;
} clattn_convolution;

#define CLATTN_MAX_CONVOLUTIONS 4

/* A stack.  Set it up with CLATTN_STACK_DESC_INIT, or a preset below. */
typedef struct clattn_stack_desc {
    size_t size; /* sizeof(clattn_stack_desc) */

    /* The layers. */
    size_t layers; /* L >= 1 */
    size_t d_model;
    size_t heads;
    size_t kv_heads;              /* 0: heads; otherwise a divisor of heads */
    size_t head_size;             /* d_k = d_v; 0: d_model / heads, which must then be whole */
    size_t d_ff;                  /* the feed-forward network's hidden size */
    clattn_activation activation; /* of the feed-forward network; NONE (default) is refused */
    int32_t gated;                /* 1: gated, see feed_forward.h; 0 (default): plain */
    clattn_norm_kind norm;
    clattn_norm_place norm_place;
    float epsilon;            /* of all norms, >= 0 */
    int32_t explicit_epsilon; /* 1: `epsilon` counts; 0 (default): 1e-5 */
    uint32_t without_bias;    /* CLATTN_WITHOUT_… added up; 0 (default): all biases are there */
    int32_t final_norm;       /* 1: a norm behind the last layer */
    int32_t causal;           /* 1: a position attends to itself and those before; what a decoder has */
    int32_t cross;            /* 1: each layer attends to a memory, the encoder's output.  Decoders only */
    size_t d_memory;          /* columns of that memory; 0: d_model */
    int32_t explicit_scale;   /* as in clattn_attention_desc.scoring, for all attentions */
    float scale;
    clattn_rotary rotary; /* of self-attention's queries and keys */
    float rotary_base;    /* 0: 10000 */
    size_t rotary_size;   /* 0: head_size */

    /* The input. */
    clattn_stack_input input;
    clattn_positions positions;
    size_t vocabulary;        /* TOKENS: rows of the embedding */
    size_t position_count;    /* POSITIONS_TABLE: rows of the table: no position is beyond */
    size_t first_position;    /* what the first position counts as; 2 for RoBERTa; 0 otherwise */
    size_t segments;          /* TOKENS: rows of the segments' table (BERT's token types); 0: none */
    int32_t scale_embeddings; /* TOKENS: 1: embeddings times sqrt(d_model), as in the paper */
    int32_t input_norm;       /* TOKENS: 1: a norm of what was added up, as BERT has */
    size_t features;          /* FEATURES: columns of the input */
    size_t convolutions; /* FEATURES: 1 ... CLATTN_MAX_CONVOLUTIONS; the first has `features` channels in, all others
                             * d_model, and all d_model out */
    clattn_convolution convolution[CLATTN_MAX_CONVOLUTIONS];
} clattn_stack_desc;

#define CLATTN_STACK_DESC_INIT CLATTN_INIT(clattn_stack_desc)

/* What CLATTN_STACK_DESC_INIT does.  NULL is accepted. */
CLATTN_API void clattn_stack_desc_init(clattn_stack_desc *desc);

/* How many positions the stack's layers see of an input of `length` frames: fewer than those with strides; other inputs'
 * are as many. */
CLATTN_API size_t clattn_stack_positions(const clattn_stack_desc *desc, size_t length);

typedef enum clattn_model_output {
    CLATTN_MODEL_OUTPUT_NONE = 0, /* the last layer's vectors are the result */
    CLATTN_MODEL_OUTPUT_OWN = 1,  /* logits by output.weight */
    CLATTN_MODEL_OUTPUT_TIED = 2, /* logits by the decoder's token embedding (section 3.4 of the paper) */
    CLATTN_MODEL_OUTPUT_FORCE_32BIT = 0x7fffffff
} clattn_model_output;

/* A model.  Set it up with CLATTN_TRANSFORMER_DESC_INIT.  What it points to is read during the call only. */
typedef struct clattn_transformer_desc {
    size_t size;                      /* sizeof(clattn_transformer_desc) */
    const clattn_stack_desc *encoder; /* NULL: none */
    const clattn_stack_desc
        *decoder;       /* NULL: none; a decoder without an encoder may have `cross` if the application brings
                                       * the memory */
    clattn_dtype dtype; /* of all activations: CLATTN_DTYPE_F32 (0 too), CLATTN_DTYPE_F16 or CLATTN_DTYPE_BF16 */
    clattn_dtype
        weight_dtype; /* of weights: CLATTN_DTYPE_F32, CLATTN_DTYPE_F16 or CLATTN_DTYPE_BF16, 0: as dtype.  CLATTN_DTYPE_I8:
                                       * layers' matrices and output.weight, with a float32 scale per row, its largest
                                       * magnitude / 127: an element is the nearest integer to its quotient by that, of
                                       * equally near ones the even one.  The rest is as dtype: convolutions, and tables,
                                       * also where tied outputs are products by one */
    clattn_model_output output; /* decoders only */
    int32_t output_bias;        /* 1: with an own output, a bias */
    size_t output_size;         /* columns of the logits; 0: the decoder's vocabulary */
} clattn_transformer_desc;

#define CLATTN_TRANSFORMER_DESC_INIT CLATTN_INIT(clattn_transformer_desc)

/* What CLATTN_TRANSFORMER_DESC_INIT does.  NULL is accepted. */
CLATTN_API void clattn_transformer_desc_init(clattn_transformer_desc *desc);

/* Published models' shapes. */
typedef enum clattn_preset {
    CLATTN_PRESET_PAPER_BASE = 0, /* the paper's base model: L 6, d_model 512, 8 heads, d_ff 2048, ReLU, post-norm,
                                    * sinusoids, scaled embeddings; `vocabulary` is to be set, and outputs are tied */
    CLATTN_PRESET_PAPER_BIG = 1,  /* L 6, d_model 1024, 16 heads, d_ff 4096 */
    CLATTN_PRESET_BERT_BASE = 2,  /* L 12, d_model 768, 12 heads, d_ff 3072, GELU, vocabulary 30522; encoder only */
    CLATTN_PRESET_MINILM_L6 = 3,  /* all-MiniLM-L6-v2: L 6, d_model 384, 12 heads, d_ff 1536; encoder only */
    CLATTN_PRESET_WHISPER_TINY_EN =
        4, /* encoder of 80 features, and decoder: L 4, d_model 384, 6 heads, vocabulary 51864,
                                        * at most 3000 frames (1500 positions) and 448 tokens */
    CLATTN_PRESET_FORCE_32BIT = 0x7fffffff
} clattn_preset;

/* Fills all three, which the caller owns and may then change; desc->encoder and ->decoder point to `encoder` and `decoder`,
 * or are NULL where the model has none.  INVALID_ARGUMENT: a NULL, or no such preset. */
CLATTN_API clattn_status clattn_transformer_preset(clattn_preset preset, clattn_transformer_desc *desc,
                                                   clattn_stack_desc *encoder, clattn_stack_desc *decoder);

/* ---- the model ---- */

/* A described model and its weights on a context's device.
 * Thread-safety: immutable; any number of threads may use it at once.
 * Ownership: the caller releases it with clattn_transformer_release; plans keep what they need of it. */
typedef struct clattn_transformer clattn_transformer;

/* Asks `source` for every tensor that the description calls for, checks its shape, converts it (from float32, float16 or
 * bfloat16) and copies it to the device.  Blocks while it does; compiles nothing.  Rows of zeros, permutations and packing
 * that kernels want are made here, once.
 *
 * After failure *transformer is NULL.  A tensor that is not there, or has another shape or type, is FORMAT, and the
 * context's message names it, as the file does and canonically, with its shape and the expected one.  A failure of the
 * callback comes back as it is, its message taken over.  Otherwise INVALID_ARGUMENT, INVALID_STRUCT, INVALID_LAYOUT (sizes
 * that contradict each other), OVERFLOW, UNSUPPORTED, OUT_OF_MEMORY, OPENCL, FORKED. */
CLATTN_API clattn_status clattn_transformer_create(clattn_context *context, const clattn_transformer_desc *desc,
                                                   const clattn_weight_source *source,
                                                   clattn_transformer **transformer);

/* Releases and nulls; NULL and a NULL handle are accepted.  Does not wait for enqueued work. */
CLATTN_API void clattn_transformer_release(clattn_transformer **transformer);

/* Bytes of device memory that the weights take, and how many numbers they are. */
CLATTN_API size_t clattn_transformer_weight_bytes(const clattn_transformer *transformer);
CLATTN_API size_t clattn_transformer_parameters(const clattn_transformer *transformer);

/* ---- encoders ---- */

/* One vector for a whole sequence, of the vectors of its positions. */
typedef enum clattn_pooling {
    CLATTN_POOLING_NONE = 0,
    CLATTN_POOLING_MEAN = 1,  /* the mean over the item's length */
    CLATTN_POOLING_FIRST = 2, /* the first position's, BERT's [CLS] */
    CLATTN_POOLING_FORCE_32BIT = 0x7fffffff
} clattn_pooling;

/* What to compute.  Set it up with CLATTN_ENCODER_DESC_INIT. */
typedef struct clattn_encoder_desc {
    size_t size;            /* sizeof(clattn_encoder_desc) */
    size_t batch;           /* largest batch, at most 65536 */
    size_t length;          /* largest length of the input: vectors, tokens or frames */
    clattn_pooling pooling; /* another output, `pooled` */
    int32_t pooled_unit;    /* 1: pooled vectors are divided by their Euclidean length (a vector of zeros stays) */
    uint64_t probabilities; /* layers whose attention probabilities are an output: bit l (value 2^l) is layer l's */
    clattn_layout mask; /* none, or as in clattn_attention_desc: (batch or 1, heads or 1, positions or 1, positions),
                             * CLATTN_DTYPE_BOOL (true = attend) or float (added).  PyTorch's boolean masks are the opposite:
                             * there true means "do not attend"; clattn_mask_from_pytorch */
} clattn_encoder_desc;

#define CLATTN_ENCODER_DESC_INIT CLATTN_INIT(clattn_encoder_desc)

/* What CLATTN_ENCODER_DESC_INIT does.  NULL is accepted. */
CLATTN_API void clattn_encoder_desc_init(clattn_encoder_desc *desc);

/* Where the arrays are.  All are contiguous, row-major, at the desc's largest sizes, and of the model's dtype where nothing
 * else is said.  With B, L and P the desc's batch, length and positions (clattn_stack_positions of L): */
typedef struct clattn_encoder_args {
    size_t size;             /* sizeof(clattn_encoder_args) */
    clattn_binding input;    /* VECTORS (B, L, d_model), TOKENS (B, L) CLATTN_DTYPE_I32, FEATURES (B, L, features) */
    clattn_binding segments; /* (B, L) CLATTN_DTYPE_I32, if the stack has segments; none: all are 0 */
    clattn_binding mask;     /* with the desc's */
    clattn_binding
        output; /* (B, P, d_model); none: not wanted, where there is pooling or probabilities.  Kernels read it
                              * and `pooled`, too: no CL_MEM_WRITE_ONLY (BUFFER_ACCESS) */
    clattn_binding pooled;        /* (B, d_model) CLATTN_DTYPE_F32, with pooling; +0 of an item without positions */
    clattn_binding probabilities; /* (chosen layers, B, heads, P, P) CLATTN_DTYPE_F32; +0 where nothing is attended */
    int32_t explicit_lengths;     /* 1: `batch` and `length` count; 0 (default): the desc's */
    int32_t reserved;             /* 0 */
    size_t batch;                 /* <= the desc's; 0 is allowed and does nothing */
    size_t length; /* <= the desc's, of every item: what lies beyond in the arrays is neither read nor written */
    const int32_t
        *lengths; /* NULL, or in host memory each item's own number of positions (of VECTORS and TOKENS that is
                              * their length), 0 ... positions of `length`; read during the call.  Positions beyond are not
                              * attended, and what the output has there means nothing */
    clattn_binding workspace; /* as in clattn_attention_args, but not shared virtual memory */
} clattn_encoder_args;

#define CLATTN_ENCODER_ARGS_INIT CLATTN_INIT(clattn_encoder_args)

/* What CLATTN_ENCODER_ARGS_INIT does.  NULL is accepted. */
CLATTN_API void clattn_encoder_args_init(clattn_encoder_args *args);

/* Compiles the model's encoder for these sizes.  Blocks, as clattn_attention_plan_create does; layers share kernels, so the
 * time does not grow with their number.  `options` may be NULL; a solver asked for is the attention's.
 * After failure *plan is NULL.  Returns INVALID_ARGUMENT (among others: the model has no encoder), INVALID_STRUCT,
 * INVALID_LAYOUT, OVERFLOW, UNSUPPORTED, OUT_OF_MEMORY, OPENCL, BUILD, FORKED. */
CLATTN_API clattn_status clattn_encoder_plan_create(clattn_transformer *transformer, const clattn_encoder_desc *desc,
                                                    const clattn_plan_options *options, clattn_plan **plan);

/* Enqueues the whole encoder: contract, blocking and statuses of clattn_attention_enqueue.  Several kernels: after a
 * failure with OUT_OF_MEMORY or OPENCL the first of them may have been enqueued, and the outputs be written by then or
 * later, wholly or in part.  After any other failure nothing that writes them has been. */
CLATTN_API clattn_status clattn_encoder_enqueue(clattn_plan *plan, cl_command_queue queue,
                                                const clattn_encoder_args *args, cl_uint wait_count,
                                                const cl_event *wait_list, cl_event *event);

/* PyTorch's boolean masks (attn_mask, key_padding_mask, src_mask …) are true where a key is *not* attended; clattn's, as
 * ONNX's, where it is.  Turns `count` bytes over: `to` may be `from`.  NULLs are accepted and nothing is done.  Float masks
 * are alike in both.  Thread-safe. */
CLATTN_API void clattn_mask_from_pytorch(const uint8_t *from, uint8_t *to, size_t count);

CLATTN_END_DECLS

#endif
