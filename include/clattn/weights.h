/** @file
 * Where a model's weights come from: tensors by name, through a callback, and the names that files of several origins
 * use.
 *
 * Every weight has one canonical name. S is "encoder" or "decoder", N counts from 0; shapes are (rows, columns), and
 * sizes are those of the clattn_stack_desc of that name:
 *
 *     S.tokens.weight                     (vocabulary, d_model)
 *     S.positions.weight                  (position_count, d_model)             CLATTN_POSITIONS_TABLE
 *     S.segments.weight                   (segments, d_model)
 *     S.input_norm.weight, .bias          (d_model)
 *     S.patches.weight                    (d_model, channels, height, width)    pictures      .bias (d_model)
 *     S.class.weight                      (d_model)                             with a class token
 *     S.registers.weight                  (registers, d_model)
 *     S.convolutions.N.weight             (out, in, kernel), as PyTorch's nn.Conv1d has it
 *     S.convolutions.N.bias               (out)
 *     S.layers.N.self.query.weight        (heads * head_size, d_model)          .bias (heads * head_size)
 *     S.layers.N.self.key.weight, .value.weight    (kv_heads * head_size, d_model)      .bias alike
 *     S.layers.N.self.output.weight       (d_model, heads * head_size)          .bias (d_model)
 *     S.layers.N.self.norm.weight, .bias  (d_model)
 *     S.layers.N.self.query_norm.weight, .bias, S.layers.N.self.key_norm.weight, .bias    (head_size)    query_key_norm
 *     S.layers.N.self.position_bias       ((2 rows - 1) * (2 columns - 1), heads)    of windows: row (i - j + rows - 1) *
 *                                         (2 columns - 1) + k - l + columns - 1 is for a query at (i, k) and a key at (j, l)
 *     S.layers.N.self.position_rows       (2 rows - 1, head_size)    of a decomposed bias: row i - j + rows - 1 is for a query
 *                                         in row i and a key in row j of the window, or of the grid in a whole layer
 *     S.layers.N.self.position_columns    (2 columns - 1, head_size)
 *     S.layers.N.self.scale, S.layers.N.cross.scale, S.layers.N.feed_forward.scale    (d_model)    layer_scale
 *     S.layers.N.cross....                the same; key and value have d_memory columns
 *     S.layers.N.feed_forward.in.weight   (d_ff, d_model)                       .bias (d_ff)
 *     S.layers.N.feed_forward.gate.weight (d_ff, d_model)     if gated          .bias (d_ff)
 *     S.layers.N.feed_forward.out.weight  (d_model, d_ff)                       .bias (d_model)
 *     S.layers.N.feed_forward.norm.weight, .bias   (d_model)
 *     S.norm.weight, .bias                (d_model)           with final_norm
 *     S.projection.weight                 (projection, d_model)
 *     S.neck.in.weight                    (neck, d_model, 1, 1)
 *     S.neck.in_norm.weight, .bias        (neck)
 *     S.neck.out.weight                   (neck, neck, 3, 3)
 *     S.neck.out_norm.weight, .bias       (neck)
 *     S.residual.weight                   (d_model, d_model, 3, 3)              .bias (d_model)    residual 1
 *     S.residual.0.weight, .1, .2         (n, d_model, 3, 3), (n, n, 1, 1), (d_model, n, 3, 3)     residual 3, n = d_model / 4;
 *                                         and biases
 *     encoder.restoration.body....        as the last stage's residual
 *     encoder.restoration.before.weight   (features, d_model, 3, 3)             .bias (features)
 *     encoder.restoration.shuffle.N.weight    (features * r * r, features, 3, 3)    .bias    before the Nth pixel shuffle, by r;
 *                                         SHUFFLE_ONCE: (channels * factor * factor, d_model, 3, 3)
 *     encoder.restoration.nearest.N.weight    (features, features, 3, 3)            .bias    after the Nth doubling
 *     encoder.restoration.detail.weight   (features, features, 3, 3)            .bias
 *     encoder.restoration.last.weight     (channels, features or d_model, 3, 3) .bias (channels)
 *     S.merge.norm.weight, .bias          (4 d_model)         of a stage that a merging one follows
 *     S.merge.weight                      (the next d_model, 4 d_model)
 *     output.weight                       (vocabulary, d_model)                 .bias (vocabulary)
 *
 * The stages of an encoder of pictures are "encoder", "encoder.stages.1", "encoder.stages.2" and so on.
 *
 * RMSNorm has no bias. A linear layer's weight is (out, in), row-major, as PyTorch's nn.Linear has it. A tensor may have
 * further extents of 1 before these. Positions of pictures without the class token's may be (grid_rows, grid_columns, d_model).
 *
 * Rules give a file's own names. A rule's `canonical` is matched against the whole canonical name; in it "{n}" stands
 * for a number, "{s}" for another one and "{kind}" for "weight" or "bias", each at most once. Its `name` is what the
 * callback is asked for, with the same filled in; "{s+1}" is the number after that of {s}. A name may end in one or both of these, in this order:
 *
 *     ^T       the tensor is stored (columns, rows); for a vector it means nothing, so a rule with {kind} may have it
 *     [i/m]    the i-th of m equal shares of the tensor's rows, i from 0: [1/3] of PyTorch's in_proj_weight: the keys'
 *
 * The first rule that matches counts. If none matches, the callback is asked for the canonical name itself. A rule
 * whose `name` is NULL says that the model has no such tensor.
 */
#ifndef CLATTN_WEIGHTS_H
#define CLATTN_WEIGHTS_H

#include "tensor.h"

CLATTN_BEGIN_DECLS

/** One rule: what a file calls the tensors of some canonical names. */
typedef struct clattn_name_rule {
    const char *canonical; /**< the canonical name that it matches */
    const char *name;      /**< the file's name; NULL: there is no such tensor */
} clattn_name_rule;

/** Rules that are built in. */
typedef enum clattn_name_format {
    CLATTN_NAME_FORMAT_CANONICAL = 0,             /**< none */
    CLATTN_NAME_FORMAT_PYTORCH_TRANSFORMER = 1,   /**< the state dict of nn.Transformer */
    CLATTN_NAME_FORMAT_PYTORCH_ENCODER = 2,       /**< that of nn.TransformerEncoder */
    CLATTN_NAME_FORMAT_PYTORCH_DECODER = 3,       /**< that of nn.TransformerDecoder */
    CLATTN_NAME_FORMAT_PYTORCH_ENCODER_LAYER = 4, /**< that of nn.TransformerEncoderLayer: a stack of one layer */
    CLATTN_NAME_FORMAT_PYTORCH_DECODER_LAYER = 5, /**< that of nn.TransformerDecoderLayer: a stack of one layer */
    CLATTN_NAME_FORMAT_BERT = 6,                  /**< Hugging Face's BertModel, and sentence-transformers of it */
    CLATTN_NAME_FORMAT_WHISPER = 7,               /**< Hugging Face's WhisperForConditionalGeneration */
    CLATTN_NAME_FORMAT_WHISPER_CTRANSLATE2 = 8,   /**< CTranslate2's converted Whisper */
    CLATTN_NAME_FORMAT_VIT = 9,           /**< Hugging Face's ViTModel; with the prefix "vit." its other models */
    CLATTN_NAME_FORMAT_DINOV2 = 10,       /**< Hugging Face's Dinov2Model and Dinov2WithRegistersModel */
    CLATTN_NAME_FORMAT_DINOV2_GATED = 11, /**< the same with use_swiglu_ffn, as the giant model has */
    CLATTN_NAME_FORMAT_CLIP_VISION = 12,  /**< the pictures' half of Hugging Face's CLIPModel */
    CLATTN_NAME_FORMAT_CLIP_TEXT = 13,    /**< its texts' half */
    CLATTN_NAME_FORMAT_TIMM_VIT = 14,     /**< timm's VisionTransformer */
    CLATTN_NAME_FORMAT_SWIN = 15,         /**< Hugging Face's SwinModel; with the prefix "swin." its other models */
    CLATTN_NAME_FORMAT_TIMM_SWIN = 16,    /**< timm's SwinTransformer */
    CLATTN_NAME_FORMAT_SAM = 17,          /**< the pictures' encoder of Hugging Face's SamModel */
    CLATTN_NAME_FORMAT_SWINIR = 18,       /**< SwinIR, as its authors have published it */
    CLATTN_NAME_FORMAT_DINOV3 = 19,       /**< Hugging Face's DINOv3ViTModel */
    CLATTN_NAME_FORMAT_FORCE_32BIT = 0x7fffffff
} clattn_name_format;

/** Where weights come from. Set it up with CLATTN_WEIGHT_SOURCE_INIT.
 *
 * All of it is used only during the call that it is given to, on the calling thread, the callback included. A tensor is usually
 * asked for twice: once to check its shape, and once to copy it. */
typedef struct clattn_weight_source {
    size_t size;                 /**< sizeof(clattn_weight_source) */
    clattn_tensor_lookup lookup; /**< asked once or more for each tensor, in no order that is promised */
    void *user;                  /**< the first argument of `lookup` */
    const char *prefix;          /**< what the name of every rule begins with in the file ("bert."); NULL: nothing */

    /** The caller's own rules, tried before those of `format`; NULL: none. Names are without the prefix. */
    const clattn_name_rule *rules;
    size_t rule_count;         /**< how many rules there are */
    clattn_name_format format; /**< which built-in rules apply */
    int32_t reserved;          /* 0 */
} clattn_weight_source;

/** Initialises a clattn_weight_source: its size, and zeros. */
#define CLATTN_WEIGHT_SOURCE_INIT CLATTN_INIT(clattn_weight_source)

/** Sets *source as CLATTN_WEIGHT_SOURCE_INIT does (@ref calls_init). */
CLATTN_API void clattn_weight_source_init(clattn_weight_source *source);

/** Writes what `source` asks for when it wants the tensor called `canonical`, and returns the text's full length.
 *
 * `buffer` has room for `bytes` bytes and gets the name truncated and always terminated, as by snprintf; it may be
 * NULL if `bytes` is 0. If a rule says that there is no such tensor, the result is 0. *share and *shares become i and
 * m of [i/m], or 0 and 1; *transposed becomes 1 for ^T, or 0; all three may be NULL. The function is for messages and
 * for writing rules. Thread-safe; does not block. */
CLATTN_API size_t clattn_weight_name(const clattn_weight_source *source, const char *canonical, char *buffer,
                                     size_t bytes, size_t *share, size_t *shares, int32_t *transposed);

CLATTN_END_DECLS

#endif
