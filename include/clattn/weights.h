/* Where a model's weights come from: tensors by name, through a callback, and the names that files of several origins have
 * for them.
 *
 * Every weight has one canonical name.  S is "encoder" or "decoder", N counts from 0; shapes are (rows, columns), and the
 * sizes those of the clattn_stack_desc of that name:
 *
 *   S.tokens.weight                     (vocabulary, d_model)
 *   S.positions.weight                  (position_count, d_model)             CLATTN_POSITIONS_TABLE
 *   S.segments.weight                   (segments, d_model)
 *   S.input_norm.weight, .bias          (d_model)
 *   S.convolutions.N.weight             (out, in, kernel), as PyTorch's nn.Conv1d has it
 *   S.convolutions.N.bias               (out)
 *   S.layers.N.self.query.weight        (heads * head_size, d_model)          .bias (heads * head_size)
 *   S.layers.N.self.key.weight, .value.weight    (kv_heads * head_size, d_model)      .bias alike
 *   S.layers.N.self.output.weight       (d_model, heads * head_size)          .bias (d_model)
 *   S.layers.N.self.norm.weight, .bias  (d_model)
 *   S.layers.N.cross.…                  the same; key and value have d_memory columns
 *   S.layers.N.feed_forward.in.weight   (d_ff, d_model)                       .bias (d_ff)
 *   S.layers.N.feed_forward.gate.weight (d_ff, d_model)     with `gated`      .bias (d_ff)
 *   S.layers.N.feed_forward.out.weight  (d_model, d_ff)                       .bias (d_model)
 *   S.layers.N.feed_forward.norm.weight, .bias   (d_model)
 *   S.norm.weight, .bias                (d_model)           with `final_norm`
 *   output.weight                       (vocabulary, d_model)                 .bias (vocabulary)
 *
 * RMSNorm has no bias.  A linear layer's weight is (out, in), row-major, as PyTorch's nn.Linear has it.
 *
 * A file's own names come from rules.  A rule's `canonical` is matched against the canonical name, whole; in it "{n}" stands
 * for a number and "{kind}" for "weight" or "bias", each at most once.  `name` is what to ask the callback for, with the
 * same two filled in; a name may end in one or both of
 *   ^T       the tensor is stored (columns, rows); of a vector it says nothing, so that a rule with {kind} may have it
 *   [i/m]    the i-th of m equal shares of the tensor's rows, i from 0: [1/3] of PyTorch's in_proj_weight is the keys'
 * in that order.  The first rule that matches counts; without one the canonical name itself is asked for.  A rule whose
 * `name` is NULL says that the model has no such tensor. */
#ifndef CLATTN_WEIGHTS_H
#define CLATTN_WEIGHTS_H

#include "tensor.h"

CLATTN_BEGIN_DECLS

typedef struct clattn_name_rule {
    const char *canonical;
    const char *name;
} clattn_name_rule;

/* Rules that are built in. */
typedef enum clattn_name_format {
    CLATTN_NAME_FORMAT_CANONICAL = 0,             /* none */
    CLATTN_NAME_FORMAT_PYTORCH_TRANSFORMER = 1,   /* state dict of nn.Transformer */
    CLATTN_NAME_FORMAT_PYTORCH_ENCODER = 2,       /* of nn.TransformerEncoder */
    CLATTN_NAME_FORMAT_PYTORCH_DECODER = 3,       /* of nn.TransformerDecoder */
    CLATTN_NAME_FORMAT_PYTORCH_ENCODER_LAYER = 4, /* of nn.TransformerEncoderLayer: a stack of one */
    CLATTN_NAME_FORMAT_PYTORCH_DECODER_LAYER = 5, /* of nn.TransformerDecoderLayer: a stack of one */
    CLATTN_NAME_FORMAT_BERT = 6,                  /* Hugging Face's BertModel, and sentence-transformers of it */
    CLATTN_NAME_FORMAT_WHISPER = 7,               /* Hugging Face's WhisperForConditionalGeneration */
    CLATTN_NAME_FORMAT_WHISPER_CTRANSLATE2 = 8,   /* CTranslate2's converted Whisper; see below */
    CLATTN_NAME_FORMAT_FORCE_32BIT = 0x7fffffff
} clattn_name_format;

/* Where weights come from.  Set it up with CLATTN_WEIGHT_SOURCE_INIT.  Read, callback included, during the call that it is
 * given to only, on the calling thread. */
typedef struct clattn_weight_source {
    size_t size;                 /* sizeof(clattn_weight_source) */
    clattn_tensor_lookup lookup; /* asked once or more for each tensor, in no order that is promised */
    void *user;                  /* its first argument */
    const char *prefix;          /* what every name of the rules begins with, as "bert." in some files; NULL: nothing */
    const clattn_name_rule
        *rules; /* the caller's own, tried before the format's; NULL: none.  Names without the prefix */
    size_t rule_count;
    clattn_name_format format;
    int32_t reserved; /* 0 */
} clattn_weight_source;

#define CLATTN_WEIGHT_SOURCE_INIT CLATTN_INIT(clattn_weight_source)

/* What CLATTN_WEIGHT_SOURCE_INIT does.  NULL is accepted. */
CLATTN_API void clattn_weight_source_init(clattn_weight_source *source);

/* What `source` asks for when it wants the tensor with that canonical name: writes the name into `buffer` of `bytes` bytes
 * as snprintf does, truncated and always terminated, and returns its full length; 0 if a rule says that there is none.
 * `buffer` may be NULL when `bytes` is 0.  *share and *shares (may be NULL) are i and m of [i/m], 0 and 1 without;
 * *transposed (may be NULL) is 1 with ^T.  For messages, and for writing rules.  Thread-safe; does not block. */
CLATTN_API size_t clattn_weight_name(const clattn_weight_source *source, const char *canonical, char *buffer,
                                     size_t bytes, size_t *share, size_t *shares, int32_t *transposed);

CLATTN_END_DECLS

#endif
