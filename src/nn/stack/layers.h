/* The layers of encoders, decoders and the feed-forward block, as steps of a graph. */
#ifndef CLATTN_NN_STACK_LAYERS_H
#define CLATTN_NN_STACK_LAYERS_H

#include "clattn/feed_forward.h"
#include "nn/graph/graph.h"
#include "nn/model/model.h"

/* The rows of all items, which lie at a distance of `length` rows: how many there can be, and which of an enqueue's
 * numbers say how many there are. */
struct rows {
    size_t batch, length;
    enum graph_number batch_number, length_number;
};

/* Joins rows into one item, if each item has one row, or if all enqueues have the same rows, for operators that treat all rows
 * alike. */
struct rows rows_flat(struct graph *graph, struct rows rows);

/* An array of such rows. */
struct matrix {
    struct graph_operand data;
    clattn_dtype dtype;
    size_t columns, stride; /* elements; from a row to the next */
    size_t item;            /* from an item to the next; 0: length * stride; MATRIX_BROADCAST: every item is the same */
};
#define MATRIX_BROADCAST SIZE_MAX

/* A new contiguous array of the arena. */
struct matrix matrix_new(struct graph *graph, struct rows rows, clattn_dtype dtype, size_t columns);

/* A contiguous array that the caller binds to `slot`. */
struct matrix matrix_bound(struct graph *graph, clattn_dtype dtype, size_t columns, int slot);

/* The layout of a matrix.  One item's has rank 2: a norm takes the extent of the first axis at enqueue time, which then is the rows. */
clattn_layout matrix_layout(struct rows rows, const struct matrix *matrix);

/* The operations of a product on its sums. */
struct epilogue {
    clattn_activation activation;
    int32_t explicit_alpha;
    float alpha;                  /* Swish's or LeakyReLU's */
    const struct matrix *operand; /* NULL: none */
    int32_t use;                  /* clattn_matmul_operand_use */
};

/* A linear layer's weights as arrays of the graph; 0: none. */
struct linear_operands {
    struct graph_operand weight, bias, scale;
    clattn_dtype weight_dtype, bias_dtype;
    size_t rows, columns;
};

/* The graph that steps are added to, the model that they are for, and the stream that its layers read and write. */
struct builder {
    struct graph *graph;
    const clattn_transformer *model; /* NULL for a block without one */
    const struct stack *stack;
    const clattn_plan_options *options, *product_options; /* of attention; of products */
    struct rows rows;                                     /* of the stream: positions or tokens */
    size_t items;          /* pictures: the plan's batch, of which rows.batch are windows */
    struct matrix x;       /* the residual stream */
    struct matrix shallow; /* pictures: what the patches' matrix made, if a restoration adds it again */
    bool own;              /* x is an array of the arena, which may be overwritten */
    bool keep;             /* training: what backward needs is kept, so that nothing is overwritten, and lse are made */
    float dropout;         /* training: the probability */
    uint32_t masks;        /* training: how many masks of dropout there are so far */
};

/* Reports that there is no memory for the plan. */
clattn_status no_memory(const struct builder *b);

struct linear_operands linear_of(const struct builder *b, const struct linear *linear);

/* The columns of a matrix of logits that the rank makes. */
struct matrix logits_columns(const struct builder *b, struct matrix logits);

/* Lets ranks that have the model together exchange a matrix, as GRAPH_ALL_REDUCE or GRAPH_ALL_GATHER says. */
void add_exchange(const struct builder *b, enum graph_op op, struct rows rows, const struct matrix *matrix);

/* c = epilogue(a Wᵀ + bias). */
clattn_status add_product(const struct builder *b, struct rows rows, struct matrix a, const struct linear_operands *w,
                          struct matrix c, const struct epilogue *epilogue);

/* h = act(x W1ᵀ + b1), gated or not; returned in *hidden. */
clattn_status add_hidden(const struct builder *b, struct matrix x, const struct linear_operands *in,
                         const struct linear_operands *gate, struct epilogue activated, struct matrix *hidden);

/* y = norm(x) of all rows of the stream; y may be x. */
clattn_status add_norm(const struct builder *b, const struct norm_weights *weights, struct matrix x, struct matrix y);

/* Copies `from` to `to`, of the same extents in other layouts or types; `items` is the number of the first extent. */
clattn_status add_convert(const struct builder *b, enum graph_number items, struct graph_operand from,
                          const clattn_layout *from_layout, struct graph_operand to, const clattn_layout *to_layout);

/* The weight as an array of the graph; none if `id` is 0. */
struct graph_operand weight_operand(const struct builder *b, weight_id id);

/* The stack's result: what the caller binds to `slot`, or an array of the arena. */
struct matrix stack_result(const struct builder *b, int slot);

/* Ends a sublayer: multiplies `made` by `w`, adds the residual and, with post-norm, applies the norm.  The product adds
 * the residual to its sums before it stores them, which spares the norm a pass over memory.  Ranks that have the model together sum
 * their products, and the first of them adds the residual.  `result` is the stack's result if this is the sublayer that makes it, and
 * otherwise NULL. */
clattn_status stream_write(struct builder *b, const struct norm_weights *norm, struct matrix made,
                           const struct linear_operands *w, const struct matrix *result);

/* Adds the feed-forward sublayer of a layer; after the last layer the final norm, if the stack has one.  They make the
 * stack's `result`; NULL: of a stage that another one follows. */
clattn_status end_layer(struct builder *b, size_t layer, const struct matrix *result);

/* (batch, heads, length, head size) within rows. */
clattn_layout heads_layout(const struct stack *stack, struct rows rows, const struct matrix *matrix, size_t heads);

/* heads_layout with heads of `size` numbers. */
clattn_layout heads_layout_of(struct rows rows, const struct matrix *matrix, size_t heads, size_t size);

/* The arrays of an attention sublayer. */
struct heads {
    struct matrix query, key, value; /* self-attention: columns of the same rows; cross-attention: queries alone */
    struct matrix attended;
};

/* Adds the rows that a sublayer reads, x or with pre-norm the norm of x. */
clattn_status stream_read(const struct builder *b, const struct norm_weights *norm, struct matrix *read);

/* Normalises each head of queries or keys, in place unless what was there is kept. */
clattn_status add_head_norm(const struct builder *b, const struct norm_weights *weights, struct matrix *matrix,
                            size_t heads);

/* Adds the product of rows x that makes queries, in self-attention (`self`) keys and values too, and allocates
 * `attended`. */
clattn_status add_heads(const struct builder *b, const struct attention_weights *weights, struct matrix x, bool self,
                        struct heads *heads);

/* Adds add_heads of the rows that the sublayer reads. */
clattn_status add_projections(const struct builder *b, const struct attention_weights *weights, bool self,
                              struct heads *heads);

/* The attention of a sublayer, as self-attention, self-attention over a cache and cross-attention differ in it. */
struct attention_sublayer {
    const struct attention_weights *weights;
    struct rows queries;             /* the rows as (items, queries of each) */
    struct graph_operand key, value; /* (items, kv_heads, keys, head size) ... */
    clattn_layout cache;             /* ... in this layout */
    clattn_layout values;            /* of values, if it is another; rank 0: it is not */
    enum graph_number keys, position;
    bool causal;
    size_t reach; /* positions before and behind that are attended; 0: all */
    clattn_alignment alignment;
    int query_lengths, key_lengths, positions; /* arrays of the items' lengths and positions; 0: none */
    clattn_layout mask, bias;
    int mask_slot, mask_array; /* where the mask is: bound by the caller, or an array */
    struct graph_operand bias_operand;
    size_t wide; /* the size of heads of queries and keys if it is another than that of values; otherwise 0 */
    bool output; /* the probabilities of this layer are an output */
    clattn_layout probabilities; /* of the layer */
    int probabilities_slot;
    size_t probabilities_offset; /* elements */
};

/* Adds the attention of `heads` alone. */
clattn_status attend(const struct builder *b, const struct attention_sublayer *sublayer, const struct heads *heads);

/* Ends an attention sublayer: its output projection, the residual and perhaps the norm. */
clattn_status end_attention(struct builder *b, const struct attention_weights *weights, struct matrix attended);

/* Adds the attention of `heads` and ends the sublayer. */
clattn_status add_attention(struct builder *b, const struct attention_sublayer *sublayer, const struct heads *heads);

/* Whether the layer's bit is set. */
bool is_among(uint64_t layers, size_t layer);

/* How far self-attention of the layer reaches; 0: everywhere. */
size_t layer_reach(const clattn_stack_desc *desc, size_t layer);

/* Adds a copy of `count` of the host's integers to a new array, which it returns. */
int add_integers(const struct builder *b, size_t count, enum graph_number batch, int which, int condition);

/* The segments of a stack that has them, or 0: what is bound to `slot`, or zeros. */
int add_segments(const struct builder *b, int slot);

/* Which elements the stack's rotation pairs. */
clattn_rope_pairing rope_pairing(const clattn_stack_desc *desc);

/* Rotates queries or keys in place.  `offsets` is an array of each item's position, or 0. */
clattn_status add_rope(const struct builder *b, const struct matrix *matrix, size_t heads, enum graph_number position,
                       int offsets);

/* What the first position of a stack counts as, if it is the same in all enqueues. */
enum graph_number first_position(const struct builder *b);

/* Begins the stream with embedded tokens, positions and segments; `ids` and `segments` are (batch, length) int32
 * arrays, `offsets` as in add_rope. */
clattn_status add_embedding(struct builder *b, int ids, int segments, enum graph_number position, int offsets);

/* Begins the stream with what convolutions make of the features that the caller binds to `slot`, and positions. */
clattn_status add_convolutions(struct builder *b, struct rows input, int slot);

/* Drops elements of the stream, in training with dropout. */
clattn_status drop_stream(struct builder *b);

/* What layers need for their windows: arrays of the graph that they share, each made when it is first wanted. */
struct windows {
    struct grid grid;
    clattn_windows of;         /* a stage that continues with the same windows has the same arrays */
    int places[2], origins[2]; /* of rows in windows, and of rows in the grid, without and with the shift */
    int mask;                  /* of shifted windows */
    int ones[2];               /* of longer keys (decomposed.c), in windows and in whole layers */
};

/* Adds self-attention within windows, with the sublayer's end. */
clattn_status add_window_attention(struct builder *b, struct windows *windows, size_t layer);

/* Adds the attention of `heads` with a decomposed bias; the queries of an item are the places of a window.  *ones is an array
 * of the graph, or 0 until it is made. */
clattn_status attend_decomposed(const struct builder *b, const struct attention_sublayer *sublayer, struct grid window,
                                int *ones, const struct heads *heads);

/* A table of sinusoids for the patches of a grid, (patches, d_model) float32. */
clattn_status add_grid_sinusoids(const struct builder *b, struct grid grid, int *array);

/* The angles of each patch's pairs, (patches, rotary_size / 2) float32. */
struct angles {
    int cosines, sines; /* arrays */
    size_t patches;
};
clattn_status add_grid_angles(const struct builder *b, struct grid grid, struct angles *angles);

/* Rotates the patches' queries or keys in place. */
clattn_status add_grid_rope(const struct builder *b, const struct matrix *matrix, size_t heads,
                            const struct angles *angles);

/* A picture of the graph, (batch, channels, height, width). */
struct picture {
    struct graph_operand data;
    clattn_layout layout;
};

/* The rows of a matrix as the pixels of a grid. */
struct picture picture_of(const struct builder *b, struct grid grid, const struct matrix *matrix);

/* Adds a convolution of `taps` x `taps` with zeros around, and with LeakyReLU unless `slope` is 0; `added` may be NULL. */
clattn_status add_convolution(const struct builder *b, const struct linear *weights, size_t taps, float slope,
                              struct picture x, const struct picture *added, struct picture y);

/* Makes the result of a stack with a neck, bound to `slot`, of its stream. */
clattn_status add_neck(struct builder *b, struct grid grid, int slot);

/* Refuses pictures of so many places, if they are too many in all. */
clattn_status check_places(const struct builder *b, size_t places);

/* Row ids of one item, in which -1 is a row of zeros behind all, for all items of the batch: an array of the graph. */
clattn_status add_row_ids(const struct builder *b, const int32_t *ids, size_t count, size_t item_rows, int *array);

/* Gathers `count` rows for each item from `table_rows` rows of all items. */
clattn_status add_gather(const struct builder *b, const struct matrix *from, size_t table_rows, int ids, size_t count,
                         struct matrix *made);

/* Adds the residual convolutions of a stage; `before` is the stream that went into it, which its layers left alone. */
clattn_status add_residual(struct builder *b, struct grid grid, const struct matrix *before);

/* Fills *picture up to the grid by mirror images. */
clattn_status add_mirrored(const struct builder *b, struct grid grid, struct picture *picture);

/* Makes the picture `restored` of the stream and of the picture that was given. */
clattn_status add_restoration(struct builder *b, struct grid grid, struct picture given, struct picture restored);

/* Goes on to the next stage: merges patches, and sets the builder's stack, rows and stream, and *grid. */
clattn_status add_merge(struct builder *b, struct grid *grid);

/* Begins the stream with a picture's patches, and what stands before them. */
clattn_status add_pictures(struct builder *b, struct grid grid, struct picture picture);

#endif
