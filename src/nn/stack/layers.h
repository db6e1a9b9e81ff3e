/* From a stack's layers to a graph's steps: what encoders, decoders and the feed-forward block are made of. */
#ifndef CLATTN_NN_STACK_LAYERS_H
#define CLATTN_NN_STACK_LAYERS_H

#include "clattn/feed_forward.h"
#include "nn/graph/graph.h"
#include "nn/model/model.h"

/* Items of rows, one behind the other at the largest length: how many there can be, and which of an enqueue's numbers say
 * how many there are. */
struct rows {
    size_t batch, length;
    int batch_number, length_number;
};

/* The same rows for operators that treat each alike: one item where that can be said. */
struct rows rows_flat(struct rows rows);

/* An array of such rows. */
struct matrix {
    struct graph_use use;
    clattn_dtype dtype;
    size_t columns, stride; /* elements; from a row to the next */
    size_t item;            /* from an item to the next; 0: length * stride */
};

/* A new array of the arena's for such rows, contiguous. */
struct matrix matrix_new(struct graph *graph, struct rows rows, clattn_dtype dtype, size_t columns);

/* What is done to a product's sums. */
struct epilogue {
    clattn_activation activation;
    const struct matrix *operand; /* NULL: none; with item -1 broadcast over the items */
    int32_t use;                  /* clattn_matmul_operand_use */
};

/* A linear layer's weights as arrays of the graph; 0: none. */
struct linear_use {
    struct graph_use weight, bias, scale;
    clattn_dtype weight_dtype, bias_dtype;
    size_t rows, columns;
};

/* Where a graph's steps are being added. */
struct builder {
    struct graph *graph;
    const clattn_transformer *model; /* NULL for a block without one */
    const struct stack *stack;
    const clattn_plan_options *options; /* of attention */
};

struct linear_use linear_of(const struct builder *b, const struct linear *linear);

/* c = epilogue(a Wᵀ + bias). */
clattn_status add_product(const struct builder *b, struct rows rows, struct matrix a, const struct linear_use *w,
                          struct matrix c, const struct epilogue *epilogue, const clattn_plan_options *options);

/* y = norm(x); y may be x. */
clattn_status add_norm(const struct builder *b, struct rows rows, const struct norm_weights *weights, struct matrix x,
                       struct matrix y);

/* h = act(x W1ᵀ + b1), gated or not; returned in *hidden. */
clattn_status add_hidden(const struct builder *b, struct rows rows, struct matrix x, const struct linear_use *in,
                         const struct linear_use *gate, clattn_activation activation,
                         const clattn_plan_options *options, struct matrix *hidden);

/* What flows through a stack. */
struct stream {
    struct matrix x;
    bool own; /* x is the arena's: it may be written */
};

/* The rows that a sublayer reads: x, or for pre-norm its norm. */
clattn_status stream_read(const struct builder *b, struct rows rows, const struct stream *stream,
                          const struct norm_weights *norm, struct matrix *read);

/* Ends a sublayer by the product `w` of `made`, with residual and, post-norm, norm: the one place for how these are fused.
 * The product adds the residual to its sums before they are stored, which spares a pass over memory that the norm would
 * make.  `result`, if not NULL, is the stack's own result, and this the sublayer that makes it. */
clattn_status stream_write(const struct builder *b, struct rows rows, struct stream *stream,
                           const struct norm_weights *norm, struct matrix made, const struct linear_use *w,
                           const struct matrix *result);

/* Where the stack's result goes: what the caller binds to `slot`, or the arena. */
struct matrix stack_result(const struct builder *b, struct rows rows, int slot);

/* The feed-forward sublayer of a layer; behind the last one the final norm, if the stack has one.  These make the stack's
 * `result`. */
clattn_status end_layer(const struct builder *b, struct rows rows, struct stream *stream, size_t layer,
                        const struct matrix *result);

/* (batch, heads, length, head size) within rows. */
clattn_layout heads_layout(const struct stack *stack, struct rows rows, const struct matrix *matrix, size_t heads);

/* An attention description with what the stack says about all of its own. */
clattn_attention_desc stack_attention(const struct stack *stack);

/* What an attention sublayer reads and makes. */
struct heads {
    struct matrix query, key, value; /* of self-attention: parts of the same rows; of cross-attention queries alone */
    struct matrix attended;
};

/* The product that makes queries, with `self` keys and values too, of the rows that the sublayer reads; and room for what is
 * attended. */
clattn_status add_projections(const struct builder *b, struct rows rows, const struct stream *stream,
                              const struct attention_weights *weights, bool self, struct heads *heads);

/* Adds an attention, `step` being all but its plan; with `probabilities` their layout, as an output of the graph's, at
 * `offset` of what is bound to `slot`, if anything is. */
clattn_status add_heads(const struct builder *b, clattn_attention_desc *desc, struct graph_step *step,
                        const clattn_layout *probabilities, int slot, size_t offset);

/* Whether the layer's bit is set. */
bool is_among(uint64_t layers, size_t layer);

/* Rotates queries or keys where they lie.  `step` has batch, length, position; offsets may be 0. */
clattn_status add_rope(const struct builder *b, struct rows rows, const struct matrix *matrix, size_t heads,
                       int position_number, int offsets);

/* Tokens, positions and segments to rows; `ids` and `segments` are (batch, length) int32 arrays. */
clattn_status add_embedding(const struct builder *b, struct rows rows, int ids, int segments, int position_number,
                            int offsets, struct stream *stream);

#endif
