/* A model's inside: its checked description, and which of its weights is where on the device. */
#ifndef CLATTN_NN_MODEL_MODEL_H
#define CLATTN_NN_MODEL_MODEL_H

#include "clattn/decoder.h"
#include "clattn/matmul.h"
#include "clattn/transformer.h"
#include "plan/context.h"

/* Of the model's weights; 0: there is none. */
typedef int weight_id;

/* A linear layer's weight, (rows, columns), and bias. */
struct linear {
    weight_id weight, bias;
    size_t rows, columns;
};

struct norm_weights {
    weight_id scale, bias;
    bool there;
};

/* The products that read the same rows are one: queries, keys and values of self-attention (in that order, in `in`), keys
 * and values of cross-attention (in `memory`; `in` are its queries). */
struct attention_weights {
    struct linear in, memory, out;
    struct norm_weights norm;
};

struct layer_weights {
    struct attention_weights self, cross;
    struct linear in, gate, out; /* of the feed-forward network */
    struct norm_weights norm;
};

/* A stack.  The description's zeros are replaced by what they mean. */
struct stack {
    clattn_stack_desc desc;
    size_t inner, inner_kv; /* columns of queries, of keys and of values */
    weight_id tokens, positions, segments;
    struct norm_weights input_norm, final_norm;
    struct linear convolution[CLATTN_MAX_CONVOLUTIONS];
    struct layer_weights *layers;
};

struct weight {
    size_t rows, columns;
    clattn_dtype dtype;
    weight_id scale; /* of int8: float32, one for each row */
    size_t buffer;   /* which, */
    size_t at;       /* and bytes from its start */
};

struct clattn_transformer {
    atomic_int references;
    clattn_context *context; /* retained */
    clattn_dtype dtype, weight_dtype;
    int32_t output; /* clattn_model_output */
    bool output_bias;
    size_t output_size;
    struct linear logits;
    bool has_encoder, has_decoder;
    struct stack encoder, decoder;
    struct weight *weights; /* [0] is none */
    size_t weight_count, weight_capacity;
    cl_mem *buffers;
    size_t buffer_count;
    size_t bytes, parameters;
};

/* The checked description in a zeroed model; failures are reported on its context. */
clattn_status model_read(clattn_transformer *model, const clattn_transformer_desc *desc);

/* Declares the model's weights, finds them a place, and copies them there.  `source` has been checked. */
clattn_status model_load(clattn_transformer *model, const clattn_weight_source *source);

void model_retain(clattn_transformer *model);
void model_drop(clattn_transformer *model);

/* Where a weight is; of 0, nowhere.  And its (rows, columns) layout. */
clattn_binding model_weight(const clattn_transformer *model, weight_id id);

/* Positions that the stack's layers see of `length` frames, after `convolutions` of its convolutions. */
size_t stack_frames(const clattn_stack_desc *desc, size_t convolutions, size_t length);

#endif
