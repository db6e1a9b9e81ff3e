/** @file
 * Transformers: a model's description, its weights on the device, and encoders.
 *
 * Decoders are in decoder.h, text generation in generate.h, and the weights' names in weights.h.
 *
 * A model has an encoder, a decoder, or both (Vaswani et al. 2017). Each is a stack: an input (vectors, tokens with
 * positions, or features through convolutions), L identical layers, and perhaps a norm after the last. A layer's
 * sublayers are self-attention, attention to the encoder's output if `cross` is 1, and the feed-forward network. Each
 * sublayer has its residual and its norm:
 *
 *     post-norm (the paper):  x = norm(x + sublayer(x))
 *     pre-norm:               x = x + sublayer(norm(x))
 *
 * A stack of one layer is a layer. The order of use:
 *
 *     clattn_transformer_create      describes the model, asks a callback for its weights, copies them to the device
 *     clattn_encoder_plan_create     compiles an encoder for a largest batch and length
 *     clattn_encoder_enqueue         any number of times, at any lengths up to these; does not block
 *
 * All of a plan's layers share one workspace: an array's memory is used again once the last kernel that reads it has
 * run. So the workspace's size (clattn_plan_workspace_size) does not grow with the number of layers, and is the whole
 * peak, but for the places and masks of windows, which belong to the plan; the plan's explain text lists its arrays.
 * Between layers nothing passes through the host.
 */
#ifndef CLATTN_TRANSFORMER_H
#define CLATTN_TRANSFORMER_H

#include "activation.h"
#include "embedding.h"
#include "norm.h"
#include "rope.h"
#include "weights.h"

CLATTN_BEGIN_DECLS

/** Where a layer's norms are. */
typedef enum clattn_norm_place {
    CLATTN_NORM_PLACE_POST = 0, /**< after the residual, as in the paper and BERT */
    CLATTN_NORM_PLACE_PRE = 1,  /**< before the sublayer, as in GPT-2 and Whisper */
    CLATTN_NORM_PLACE_FORCE_32BIT = 0x7fffffff
} clattn_norm_place;

/** What goes into a stack. */
typedef enum clattn_stack_input {
    CLATTN_STACK_INPUT_VECTORS = 0,   /**< (batch, length, d_model): what the application has embedded itself */
    CLATTN_STACK_INPUT_TOKENS = 1,    /**< (batch, length) int32 ids, which are embedded */
    CLATTN_STACK_INPUT_FEATURES = 2,  /**< (batch, length, features) through convolutions, as a spectrogram */
    CLATTN_STACK_INPUT_PICTURES = 3,  /**< (batch, channels, height, width), cut into patches; encoders only */
    CLATTN_STACK_INPUT_MERGED = 4,    /**< two by two neighbours of the stage before (clattn_stack_desc.next) */
    CLATTN_STACK_INPUT_CONTINUED = 5, /**< the vectors of the stage before, as they are */
    CLATTN_STACK_INPUT_FORCE_32BIT = 0x7fffffff
} clattn_stack_input;

/** Whether self-attention's queries and keys are rotated by their positions (rope.h). */
typedef enum clattn_rotary {
    CLATTN_ROTARY_NONE = 0,        /**< they are not */
    CLATTN_ROTARY_HALVES = 1,      /**< by CLATTN_ROPE_PAIRING_HALVES */
    CLATTN_ROTARY_INTERLEAVED = 2, /**< by CLATTN_ROPE_PAIRING_INTERLEAVED */
    CLATTN_ROTARY_FORCE_32BIT = 0x7fffffff
} clattn_rotary;

/* Biases that a stack does not have: values of clattn_stack_desc.without_bias, to be added up. */
#define CLATTN_WITHOUT_QUERY_BIAS 1         /**< no bias in the query projections of attention, self and cross */
#define CLATTN_WITHOUT_KEY_BIAS 2           /**< none in the key projections, as in Whisper */
#define CLATTN_WITHOUT_VALUE_BIAS 4         /**< none in the value projections */
#define CLATTN_WITHOUT_OUTPUT_BIAS 8        /**< none in the output projections */
#define CLATTN_WITHOUT_ATTENTION_BIAS 15    /**< none of these four */
#define CLATTN_WITHOUT_FEED_FORWARD_BIAS 16 /**< none in the feed-forward network */
#define CLATTN_WITHOUT_NORM_BIAS 32         /**< none in the norms */
#define CLATTN_WITHOUT_BIAS 63              /**< none at all: PyTorch's bias=False */

/** A convolution over time at a stack's input, with bias and activation.
 *
 *     y[t] = act(b + sum_{j < kernel} W[:,:,j] x[t * stride + j - padding])      where x is 0 outside
 *
 * It makes floor((length + 2 padding - kernel) / stride) + 1 frames. */
typedef struct clattn_convolution {
    uint32_t kernel;              /**< frames that a window covers, >= 1 */
    uint32_t stride;              /**< frames from one window to the next, >= 1 */
    uint32_t padding;             /**< frames of zeros on either side, < kernel */
    clattn_activation activation; /**< what is applied to the sums; CLATTN_ACTIVATION_NONE (default): nothing */
} clattn_convolution;

/** The most convolutions that a stack has. */
#define CLATTN_MAX_CONVOLUTIONS 4

/** How pictures become vectors (Dosovitskiy et al. 2020): each patch is multiplied by a matrix.
 *
 * An item's positions are, in this order: the class token, the registers (Darcet et al. 2023), and the patches, row by
 * row. Class token and registers are vectors of the model. Each size is at most 65536, and a patch has less than 2^31
 * values. */
typedef struct clattn_patches {
    size_t channels; /**< of the picture */
    size_t height;   /**< rows of pixels in a patch */
    size_t width;    /**< columns of pixels in a patch */

    /** The rows of patches that the table of positions was learned with. A picture of another grid gets positions that are
     * resized by bicubic interpolation (resize.h). 0 without a table, but for a decomposed bias of whole layers. */
    size_t grid_rows;
    size_t grid_columns; /**< its columns of patches */

    /** 1: positions are resized with antialiasing, as timm does, and Hugging Face's Dinov2WithRegisters; 0 (default):
     * without, as Hugging Face's other models do. */
    int32_t antialias;
    int32_t without_bias; /**< 1: the matrix has no bias, as in CLIP; 0 (default): it has one */
    int32_t class_token;  /**< 1: there is a class token */
    int32_t reserved;     /* 0 */
    size_t registers;     /**< how many registers there are */

    /** Pixels on each side of a patch that its matrix multiplies too, which thus has height + 2 border rows and width + 2 border
     * columns; outside of the picture they are zeros. Without a table of positions. 0 (default): none. */
    size_t border;
} clattn_patches;

/** What is added to the scores of patches for their places. */
typedef enum clattn_position_bias {
    CLATTN_POSITION_BIAS_NONE = 0,  /**< nothing */
    CLATTN_POSITION_BIAS_TABLE = 1, /**< a number for each head and distance within a window, as in Swin */

    /** The product of the query, without the scale, and the sum of two vectors: one for the distance in rows, one for that in
     * columns (Li et al. 2021, as in SAM). */
    CLATTN_POSITION_BIAS_DECOMPOSED = 2,
    CLATTN_POSITION_BIAS_FORCE_32BIT = 0x7fffffff
} clattn_position_bias;

/** Which patches of a picture attend to each other: those of the same window (Liu et al. 2021).
 *
 * A grid that is no multiple of the window is filled up with vectors of zeros, right and below, before it is shifted and
 * queries, keys and values are made; they are attended to, and dropped afterwards. (So do the authors' and Hugging Face's
 * code; timm shifts first.) All items of a plan have at most 2^26 places, filled up. */
typedef struct clattn_windows {
    size_t rows;    /**< rows of patches in a window; 0: there are no windows */
    size_t columns; /**< columns of patches in a window */

    /** 1: in layers 1, 3, 5 ... of the stack the grid is shifted up and left by half a window, around its edges, and a patch
     * attends only to those that lie in its window without that; not if the grid has no more rows, or no more columns, than a
     * window. 2: in such a grid, too, as in SwinIR. 0 (default): never. */
    int32_t shifted;
    clattn_position_bias position_bias; /**< what is added to the scores */

    /** Layers of the first 64 without windows, in which all patches attend to each other: bit l (value 2^l) is layer l's. With a
     * decomposed bias the pictures' grid is then that of `patches`. */
    uint64_t whole;
} clattn_windows;

/** How the vectors of patches become a picture again, `factor` times as high and wide (Liang et al. 2021, SwinIR). All
 * convolutions have 3 x 3 taps, zeros around, and biases. */
typedef enum clattn_restoration_kind {
    CLATTN_RESTORATION_KIND_NONE = 0, /**< they do not */

    /** A convolution to `features` channels, with LeakyReLU of slope 0.01; for each factor of 2, or once for 3, a convolution
     * and a pixel shuffle; and a convolution to the picture's channels. Factors are 2, 3, 4 and 8. */
    CLATTN_RESTORATION_KIND_SHUFFLE = 1,
    CLATTN_RESTORATION_KIND_SHUFFLE_ONCE = 2, /**< a convolution and one pixel shuffle; factors are 1 to 8 */

    /** A convolution to `features` channels, with LeakyReLU of slope 0.01; for each factor of 2 the nearest pixels twice, and a
     * convolution; one more convolution; and one to the picture's channels. LeakyReLU of slope 0.2 is after each between the
     * first and the last. Factors are 2, 4 and 8. */
    CLATTN_RESTORATION_KIND_NEAREST = 3,
    CLATTN_RESTORATION_KIND_ADDED = 4, /**< a convolution makes what is added to the picture; the factor is 1 */
    CLATTN_RESTORATION_KIND_FORCE_32BIT = 0x7fffffff
} clattn_restoration_kind;

/** The end of an encoder that makes pictures of pictures.
 *
 * Patches are single pixels. A grid that is no multiple of the window is filled up right and below by its mirror image, which
 * does not repeat the edge, before anything else; the result has nothing of that. What the patches' matrix makes is added to
 * the result of the layers, final norm and `residual` convolutions before the picture is made. */
typedef struct clattn_restoration {
    clattn_restoration_kind kind; /**< how, or CLATTN_RESTORATION_KIND_NONE (default) */
    int32_t reserved;             /* 0 */
    size_t factor;                /**< rows of the result for a row of the picture */
    size_t features;              /**< channels before the last convolution of SHUFFLE and NEAREST; 0 for others */
} clattn_restoration;

/** A stack. Set it up with CLATTN_STACK_DESC_INIT, clattn_transformer_preset or clattn_vision_preset.
 *
 * Which of the input's fields may be other than 0 depends on `input`:
 *
 *     vectors     none
 *     tokens      vocabulary (needed), positions by sinusoids or a table, segments, scale_embeddings, input_norm;
 *                 first_position if there are positions
 *     features    features and convolutions (needed), positions by a table
 *     pictures    patches (needed), positions by a table of grid_rows * grid_columns rows, or one more before them for
 *                 the class token, or by sinusoids, which the class token has none of; input_norm
 *     merged      none
 *     continued   none
 *
 * The sinusoids of a patch are four quarters of n = d_model / 4 numbers: the sines and then the cosines of row · 10000^(-i/n),
 * i = 0 ... n - 1, and those of column · 10000^(-i/n). (MAE's published weights have columns first, in a table.)
 *
 * Everything else is refused with INVALID_LAYOUT, for example a first_position of features with a table of positions.
 */
typedef struct clattn_stack_desc {
    size_t size;                  /**< sizeof(clattn_stack_desc) */
    size_t layers;                /**< how many layers there are, L >= 1 */
    size_t d_model;               /**< columns of the vectors between layers */
    size_t heads;                 /**< heads of queries */
    size_t kv_heads;              /**< heads of keys and values; 0: heads; otherwise a divisor of heads */
    size_t head_size;             /**< d_k = d_v; 0: d_model / heads, which must then be whole */
    size_t d_ff;                  /**< the feed-forward network's hidden size */
    clattn_activation activation; /**< its activation; CLATTN_ACTIVATION_NONE (default) is refused */
    int32_t explicit_alpha;       /**< 1: `alpha` counts; 0 (default): Swish has 1, LeakyReLU 0.01 */

    /** Swish's or LeakyReLU's alpha: any finite value; Swish's 1.702 is CLIP's "quick GELU"; ignored by others. */
    float alpha;
    int32_t gated;                /**< 1: it is gated (feed_forward.h); 0 (default): plain */
    clattn_norm_kind norm;        /**< which norm */
    clattn_norm_place norm_place; /**< where it is */
    float epsilon;                /**< the epsilon of all norms, >= 0 */
    int32_t explicit_epsilon;     /**< 1: `epsilon` counts; 0 (default): 1e-5 */
    uint32_t without_bias;        /**< CLATTN_WITHOUT_... added up; 0 (default): all biases are there */
    int32_t final_norm;           /**< 1: there is a norm after the last layer */

    /** 1: queries and keys of self-attention are normalised, each head by itself, before they are rotated; all heads share a
     * scale and a bias of head_size numbers (Dehghani et al. 2023). */
    int32_t query_key_norm;

    /** 1: what attention and feed-forward network add to the stream is multiplied by a vector of d_model numbers
     * (LayerScale, Touvron et al. 2021). The weights of their last products are multiplied when they are loaded. */
    int32_t layer_scale;
    int32_t causal;         /**< 1: a position attends to itself and those before, as in a decoder */
    int32_t cross;          /**< 1: each layer attends to a memory, the encoder's output; decoders only */
    size_t d_memory;        /**< columns of that memory; 0: d_model */
    int32_t explicit_scale; /**< 1: `scale` counts, for all attentions; 0 (default): 1/sqrt(head_size) */
    float scale;            /**< any finite value */

    /** Whether self-attention's queries and keys are rotated. Of pictures, only the patches' are, by two positions: with
     * rotary_size = 4 n, pair i < n by the angle row · base^(-i/n), and pair n + i by column · base^(-i/n). */
    clattn_rotary rotary;
    float rotary_base;  /**< the base of the angles; 0: 10000 */
    size_t rotary_size; /**< how much of a head is rotated; 0: head_size */

    /** Pictures: 1: in place of a row r of R, the angle has 2 π (2 (r + 1/2) / R - 1), and likewise of a column (DINOv3, whose base
     * is 100); 0 (default): r itself. */
    int32_t rotary_centred;

    /** 0 (default): none; otherwise scores s of all attentions become softcap · tanh(s / softcap), before masks and biases, as
     * in Gemma 2. */
    float softcap;

    /** 0 (default): self-attention attends to all positions; otherwise to those at most this far before and behind. A sliding
     * window of W tokens, as in Mistral, is a reach of W - 1. Not for pictures, which have `windows`. */
    size_t reach;
    uint64_t unlimited;         /**< layers of the first 64 that have no `reach`: bit l (value 2^l) is layer l's */
    clattn_stack_input input;   /**< what goes in */
    clattn_positions positions; /**< what is added for the position */
    size_t vocabulary;          /**< rows of the table of tokens */
    size_t position_count;    /**< rows of the table of positions, with CLATTN_POSITIONS_TABLE; no position is beyond */
    size_t first_position;    /**< what the first position counts as; 2 for RoBERTa, otherwise 0 */
    size_t segments;          /**< rows of the table of segments (BERT's token types); 0: there is none */
    int32_t scale_embeddings; /**< 1: tokens' embeddings times sqrt(d_model), as in the paper */
    int32_t input_norm;       /**< 1: a norm of the embeddings' sum, as in BERT and CLIP */
    size_t features;          /**< columns of the input */
    size_t convolutions;      /**< how many convolutions there are, 1 ... CLATTN_MAX_CONVOLUTIONS */

    /** The convolutions. The first takes `features` channels and all others d_model; all make d_model. */
    clattn_convolution convolution[CLATTN_MAX_CONVOLUTIONS];
    clattn_patches patches; /**< how pictures are cut */
    size_t projection;      /**< columns of pooled vectors after a matrix without bias, as in CLIP; 0: there is none */
    clattn_windows windows; /**< which patches attend to each other; pictures without class token and registers only */

    /** 0 (default), or the columns that a neck makes of the last layer's vectors (SAM): a matrix without bias, a norm, a
     * convolution of 3 x 3 patches with zeros around, without bias, and a norm. The output has these columns. Pictures only,
     * without final_norm, pooling, class token and registers. */
    size_t neck;

    /** 1 or 3 convolutions of 3 x 3 patches after the stage's layers, whose result is added to what went into the stage, as in
     * SwinIR; 0 (default): none. Of three, the second has 1 x 1 patches, the first two make d_model / 4 channels, and
     * LeakyReLU of slope 0.2 is between them. All have biases. For encoders with a restoration; the last stage's are also in
     * that. */
    size_t residual;
    clattn_restoration restoration; /**< how the last stage's vectors become a picture */

    /** The stage that follows, or NULL (default). An encoder of pictures may have up to CLATTN_MAX_STAGES stages, each a stack
     * of its own sizes and layers. The first has the patches. The input of each further one is one of these:
     *
     *     merged      the four vectors of two by two patches, columns before rows, become one of 4 d_model numbers, which is
     *                 normalised and multiplied by a matrix without bias (Swin); an odd row or column is filled up with zeros
     *     continued   the vectors of the stage before, of the same d_model
     *
     * The last stage alone has final_norm and projection, and makes the output. All have one epsilon, norm and norm_place. */
    const struct clattn_stack_desc *next;
} clattn_stack_desc;

/** The most stages of an encoder. */
#define CLATTN_MAX_STAGES 64

/** Initialises a clattn_stack_desc: its size, and zeros. */
#define CLATTN_STACK_DESC_INIT CLATTN_INIT(clattn_stack_desc)

/** Sets *desc as CLATTN_STACK_DESC_INIT does (@ref calls_init). */
CLATTN_API void clattn_stack_desc_init(clattn_stack_desc *desc);

/** Returns how many positions the layers of `desc` see of an input of `length` vectors, tokens, frames or patches; those of a
 * first stage, if there are several.
 *
 * Convolutions with strides make fewer; class token and registers are added to patches; otherwise the result is
 * `length`. 0 if the input is too short for the convolutions, or `desc` is NULL or of a wrong size. */
CLATTN_API size_t clattn_stack_positions(const clattn_stack_desc *desc, size_t length);

/** What a model makes of its decoder's vectors. */
typedef enum clattn_model_output {
    CLATTN_MODEL_OUTPUT_NONE = 0, /**< nothing: the last layer's vectors are the result */
    CLATTN_MODEL_OUTPUT_OWN = 1,  /**< logits, by the matrix output.weight */
    CLATTN_MODEL_OUTPUT_TIED = 2, /**< logits, by the decoder's table of tokens (section 3.4 of the paper) */
    CLATTN_MODEL_OUTPUT_FORCE_32BIT = 0x7fffffff
} clattn_model_output;

/** A model. Set it up with CLATTN_TRANSFORMER_DESC_INIT. What it points to is read during the call only. */
typedef struct clattn_transformer_desc {
    size_t size;                      /**< sizeof(clattn_transformer_desc) */
    const clattn_stack_desc *encoder; /**< NULL: there is none */

    /** NULL: there is none. A decoder without an encoder may have `cross` if the application brings the memory. */
    const clattn_stack_desc *decoder;
    clattn_dtype dtype; /**< the type of all activations: float32 (CLATTN_DTYPE_NONE, too), float16 or bfloat16 */

    /** The type of weights: float32, float16 or bfloat16, or `dtype` if it is CLATTN_DTYPE_NONE.
     *
     * CLATTN_DTYPE_I8 stores the layers' matrices, those between stages and output.weight as int8, with a float32 scale for each row: its
     * largest magnitude / 127. An element is the integer nearest to its quotient by the scale, ties to even.
     * Everything else is of type `dtype`: convolutions, and tables, even if tied outputs are products by one. */
    clattn_dtype weight_dtype;
    clattn_model_output output; /**< what a decoder's vectors become */
    int32_t output_bias;        /**< 1: an own output has a bias */
    size_t output_size;         /**< columns of the logits; 0: the decoder's vocabulary */
} clattn_transformer_desc;

/** Initialises a clattn_transformer_desc: its size, and zeros. */
#define CLATTN_TRANSFORMER_DESC_INIT CLATTN_INIT(clattn_transformer_desc)

/** Sets *desc as CLATTN_TRANSFORMER_DESC_INIT does (@ref calls_init). */
CLATTN_API void clattn_transformer_desc_init(clattn_transformer_desc *desc);

/** The shapes of published models. */
typedef enum clattn_preset {
    /** The paper's base model: L 6, d_model 512, 8 heads, d_ff 2048, ReLU, post-norm, sinusoids, scaled embeddings,
     * tied outputs. The caller sets `vocabulary`. */
    CLATTN_PRESET_PAPER_BASE = 0,
    CLATTN_PRESET_PAPER_BIG = 1, /**< the paper's big model: L 6, d_model 1024, 16 heads, d_ff 4096 */
    CLATTN_PRESET_BERT_BASE = 2, /**< an encoder: L 12, d_model 768, 12 heads, d_ff 3072, GELU, vocabulary 30522 */
    CLATTN_PRESET_MINILM_L6 = 3, /**< all-MiniLM-L6-v2, an encoder: L 6, d_model 384, 12 heads, d_ff 1536 */

    /** Whisper tiny.en: an encoder of 80 features and a decoder, L 4, d_model 384, 6 heads, vocabulary 51864, at most
     * 3000 frames (1500 positions) and 448 tokens. */
    CLATTN_PRESET_WHISPER_TINY_EN = 4,
    CLATTN_PRESET_FORCE_32BIT = 0x7fffffff
} clattn_preset;

/** Fills *desc, *encoder and *decoder with the shape of the published model that `preset` names.
 *
 * The caller owns all three and may then change them. desc->encoder and desc->decoder point to `encoder` and
 * `decoder`, or are NULL if the model has none.
 *
 * @return INVALID_ARGUMENT: a NULL, or no such preset. */
CLATTN_API clattn_status clattn_transformer_preset(clattn_preset preset, clattn_transformer_desc *desc,
                                                   clattn_stack_desc *encoder, clattn_stack_desc *decoder);

/** A described model and its weights on a context's device.
 *
 * - Thread-safety: immutable; any number of threads may use it at once.
 * - Ownership: the caller releases it with clattn_transformer_release; plans keep what they need of it. */
typedef struct clattn_transformer clattn_transformer;

/** Makes a model: asks `source` for every tensor that `desc` calls for, and copies it to the device of `context`.
 *
 * Each tensor's shape is checked, and it is converted from float32, float16 or bfloat16. Padding, permutations and
 * packing that kernels want are made here, once. Blocks while it does all that; compiles nothing.
 *
 * If it fails, *transformer is NULL.
 *
 * @return FORMAT: a tensor is missing, or has another shape or type; the context's message names it, as the file does
 * and canonically, with its shape and the expected one. A failure of the callback is returned as it is, and its
 * message taken over. Otherwise INVALID_ARGUMENT, INVALID_STRUCT, INVALID_LAYOUT (sizes that contradict each other),
 * OVERFLOW, UNSUPPORTED, OUT_OF_MEMORY, OPENCL or FORKED. */
CLATTN_API clattn_status clattn_transformer_create(clattn_context *context, const clattn_transformer_desc *desc,
                                                   const clattn_weight_source *source,
                                                   clattn_transformer **transformer);

/** Releases the model and sets *transformer to NULL; accepts NULL and a pointer to NULL.
 *
 * Does not wait for enqueued work. */
CLATTN_API void clattn_transformer_release(clattn_transformer **transformer);

/** Returns 1 if the model has read the tensor that its source calls `name`, and otherwise 0, also for NULL.
 *
 * So an application finds what a file has and the model does not want: the head of a classifier, or the rest of another model.
 * Thread-safe; does not block. */
CLATTN_API int32_t clattn_transformer_has_read(const clattn_transformer *transformer, const char *name);

/** Returns the bytes of device memory that the weights of `transformer` take; 0 for NULL. */
CLATTN_API size_t clattn_transformer_weight_bytes(const clattn_transformer *transformer);

/** Returns how many numbers the weights of `transformer` are; 0 for NULL. */
CLATTN_API size_t clattn_transformer_parameters(const clattn_transformer *transformer);

/** How the vectors of a sequence's positions become one vector. */
typedef enum clattn_pooling {
    CLATTN_POOLING_NONE = 0,  /**< they do not */
    CLATTN_POOLING_MEAN = 1,  /**< by the mean over the item's length */
    CLATTN_POOLING_FIRST = 2, /**< the first position's vector is taken: BERT's [CLS] */
    CLATTN_POOLING_LAST = 3,  /**< the vector of the item's last position is taken, within its length: CLIP's texts */

    /** By the mean over the patches of pictures, without class token and registers; not with lengths. */
    CLATTN_POOLING_PATCHES = 4,
    CLATTN_POOLING_FORCE_32BIT = 0x7fffffff
} clattn_pooling;

/** What to compute. Set it up with CLATTN_ENCODER_DESC_INIT. */
typedef struct clattn_encoder_desc {
    size_t size;            /**< sizeof(clattn_encoder_desc) */
    size_t batch;           /**< the largest batch, at most 65536 */
    size_t length;          /**< the largest length of the input: vectors, tokens or frames; 0 for pictures */
    clattn_pooling pooling; /**< one vector for each item as another output, `pooled` */
    int32_t pooled_unit;    /**< 1: pooled vectors are divided by their Euclidean length (a vector of zeros stays) */
    uint64_t probabilities; /**< layers whose attention probabilities are an output: bit l (value 2^l) is layer l's */

    /** None, or (batch or 1, heads or 1, positions or 1, positions): bool (true = attend) or float (added), as in
     * clattn_attention_desc.
     *
     * PyTorch's boolean masks are the opposite: there true means "do not attend". See clattn_mask_from_pytorch. */
    clattn_layout mask;

    /** Pictures: (batch, channels, height, width), float32, float16 or bfloat16, in any order in memory: clattn_layout_nchw
     * and clattn_layout_nhwc make two. Height and width are multiples of the patches'. None for other inputs. */
    clattn_layout picture;

    /** The output of an encoder with a restoration: (batch, channels, factor * height, factor * width) in any order in memory,
     * float32, float16 or bfloat16. None for others. */
    clattn_layout restored;

    /** 1: the plan keeps the matrices of its products packed as its kernels read them, in memory of its own, instead of packing them
     * in each call: as much as they have in float32, by the solver cpu-amx twice. Models of pictures take 4 to 12 % less time on
     * CPUs, and products of up to 16 rows 0.5 to 0.8 of it; roundings are others. Solvers that do not pack (GPUs') ignore it. */
    int32_t prepack;
    int32_t reserved; /* 0 */
} clattn_encoder_desc;

/** Initialises a clattn_encoder_desc: its size, and zeros. */
#define CLATTN_ENCODER_DESC_INIT CLATTN_INIT(clattn_encoder_desc)

/** Sets *desc as CLATTN_ENCODER_DESC_INIT does (@ref calls_init). */
CLATTN_API void clattn_encoder_desc_init(clattn_encoder_desc *desc);

/** Where the arrays are this time, and how much of them counts. Set it up with CLATTN_ENCODER_ARGS_INIT.
 *
 * All arrays are contiguous, row-major, at the description's largest sizes, and of the model's dtype unless something
 * else is said. B, L and P are the description's batch, length and positions (clattn_stack_positions of L, or of the number
 * of a picture's patches; of several stages the last one's, with half as many rows and columns after each that merges). d_model
 * is the last stage's, or its neck's columns. Kernels also read `output` and `pooled`: a CL_MEM_WRITE_ONLY buffer is refused with BUFFER_ACCESS. */
typedef struct clattn_encoder_args {
    size_t size; /**< sizeof(clattn_encoder_args) */
    /** Vectors (B, L, d_model), tokens (B, L) int32, features (B, L, features), or pictures in the description's layout. */
    clattn_binding input;
    clattn_binding segments; /**< (B, L) int32 if the stack has segments; none: all are 0 */
    clattn_binding mask;     /**< the mask */
    /** (B, P, d_model), or the description's `restored`; may be none if there is pooling or probabilities. */
    clattn_binding output;
    /** (B, d_model), or (B, projection) if the stack has one, float32, if there is pooling; +0 for an item without
     * positions. */
    clattn_binding pooled;
    clattn_binding probabilities; /**< (chosen layers, B, heads, P, P) float32; +0 for keys that are not attended */
    int32_t explicit_lengths;     /**< 1: `batch` and `length` count; 0 (default): the description's */
    int32_t reserved;             /* 0 */
    size_t batch;                 /**< at most the description's; 0 is allowed and does nothing */

    /** The length of every item, at most the description's. What lies beyond in the inputs is not read, and what the outputs have
     * there means nothing. Pictures: 0. */
    size_t length;

    /** NULL, or each item's own number of positions, 0 ... the positions of `length`, in host memory that is read
     * during the call. (Vectors and tokens have as many positions as the item is long.) Positions beyond are not
     * attended, and what the output has there means nothing. */
    const int32_t *lengths;
    clattn_binding workspace; /**< none (default), or a workspace in a buffer (@ref calls_workspace) */
    clattn_control *control;  /**< what watches the call (control.h), or NULL */
} clattn_encoder_args;

/** Initialises a clattn_encoder_args: its size, and zeros. */
#define CLATTN_ENCODER_ARGS_INIT CLATTN_INIT(clattn_encoder_args)

/** Sets *args as CLATTN_ENCODER_ARGS_INIT does (@ref calls_init). */
CLATTN_API void clattn_encoder_args_init(clattn_encoder_args *args);

/** Compiles the encoder of `transformer` for the sizes of `desc` (@ref calls_plan). Blocks.
 *
 * Layers share kernels, so the time does not grow with their number. `options` may be NULL; a solver that it asks for
 * is the attention's. If it fails, *plan is NULL.
 *
 * @return INVALID_ARGUMENT (among others, the model has no encoder), INVALID_STRUCT, INVALID_LAYOUT, OVERFLOW,
 * UNSUPPORTED, OUT_OF_MEMORY, OPENCL, BUILD, MISCOMPILED, IO, INTERNAL or FORKED. */
CLATTN_API clattn_status clattn_encoder_plan_create(clattn_transformer *transformer, const clattn_encoder_desc *desc,
                                                    const clattn_plan_options *options, clattn_plan **plan);

/** Enqueues the whole encoder (@ref calls_enqueue). Does not block.
 *
 * An encoder is many kernels. After a failure with OUT_OF_MEMORY or OPENCL the first of them may have been enqueued,
 * and the outputs be written by then or later, wholly or in part. After any other failure nothing that writes them has
 * been enqueued.
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, OVERFLOW, UNSUPPORTED, WRONG_CONTEXT, BUFFER_TOO_SMALL, BUFFER_ACCESS,
 * BUSY, OUT_OF_MEMORY, OPENCL, CANCELLED or FORKED. */
CLATTN_API clattn_status clattn_encoder_enqueue(clattn_plan *plan, cl_command_queue queue,
                                                const clattn_encoder_args *args, cl_uint wait_count,
                                                const cl_event *wait_list, cl_event *event);

/** Inverts `count` bytes of a boolean mask, between PyTorch's meaning and clattn's; `to` may be `from`.
 *
 * PyTorch's boolean masks (attn_mask, key_padding_mask, src_mask, ...) are true for a key that is *not* attended;
 * clattn's, as ONNX's, are true for one that is. Float masks are alike in both. If `from` or `to` is NULL, nothing is
 * done. Thread-safe. */
CLATTN_API void clattn_mask_from_pytorch(const uint8_t *from, uint8_t *to, size_t count);

CLATTN_END_DECLS

#endif
