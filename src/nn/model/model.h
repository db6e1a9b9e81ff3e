/* A model: its checked description, and the places of its weights on the device. */
#ifndef CLATTN_NN_MODEL_MODEL_H
#define CLATTN_NN_MODEL_MODEL_H

#include "clattn/decoder.h"
#include "clattn/matmul.h"
#include "clattn/transformer.h"
#include "plan/context.h"
#include "ranks/ranks.h"

/* A size of a description is below this. */
#define MODEL_SIZE_LIMIT ((size_t)1 << 31)

/* An index of the model's weights; 0: no weight. */
typedef int weight_id;

/* What a rank of a group has of `whole` things: `count`, from `first` on. */
struct split {
    size_t first, count, whole;
};

/* A linear layer's weight, (rows, columns), and bias. */
struct linear {
    weight_id weight, bias;
    size_t rows, columns;
};

struct norm_weights {
    weight_id scale, bias;
};

/* Products that read the same rows are one product: `in` makes queries, keys and values of self-attention, in that
 * order, or the queries of cross-attention; `memory` makes keys and values of cross-attention. */
struct attention_weights {
    struct linear in, memory, out;
    struct norm_weights norm, query_norm, key_norm;
    weight_id position_bias; /* (heads, places of a query * places of a key in a window), float32 */
    /* The vectors of a decomposed bias, over the scale of the scores: one for each distance in rows, then for each in columns. */
    struct linear distances;
};

struct layer_weights {
    struct attention_weights self, cross;
    struct linear in, gate, out; /* of the feed-forward network */
    struct norm_weights norm;
};

/* A stack, in whose description zeros have been replaced by what they mean, and of a group's model heads and d_ff by the rank's own. */
struct stack {
    clattn_stack_desc desc;
    struct split kv_heads, hidden, vocabulary;
    size_t inner, inner_kv; /* columns of all queries; of all keys, or all values */
    weight_id tokens, positions, segments;
    struct norm_weights input_norm, final_norm;
    struct linear convolution[CLATTN_MAX_CONVOLUTIONS];
    struct linear patches, projection;
    weight_id class_token, registers;
    struct layer_weights *layers;
    struct norm_weights merge_norm; /* of the vectors that go to the next stage, */
    struct linear merge;            /* and their matrix */
    struct linear neck_in, neck_out;
    struct norm_weights neck_in_norm, neck_out_norm;
    struct linear residual[3]; /* if the second has no weight, there is one alone */
    struct restoration_weights {
        struct linear body[3], before, enlarge[3], detail, last;
    } restoration;
    struct stack *next; /* the next stage, or NULL */
};

struct weight {
    size_t rows, columns;
    clattn_dtype dtype;
    weight_id scale; /* int8: the scales, one float32 for each row */
    bool own;        /* other ranks of the group have other parts of it */
    size_t buffer;   /* index of the buffer */
    size_t at;       /* bytes from the start of the buffer */
};

struct clattn_transformer {
    atomic_int references;
    clattn_context *context; /* retained */
    clattn_dtype dtype, weight_dtype;
    int32_t output; /* clattn_model_output */
    bool output_bias;
    size_t output_size;
    struct split output_rows; /* of output_size */
    struct linear logits;
    bool has_encoder, has_decoder;
    struct stack encoder, decoder;
    struct weight *weights; /* weights[0] is no weight */
    size_t weight_count, weight_capacity;
    struct ranks *ranks; /* that have the model together; NULL: it is whole */
    cl_mem *buffers;
    size_t buffer_count;
    size_t own_buffers; /* the first so many have weights of which other ranks have other parts */
    size_t bytes, parameters;
    struct part *parts; /* the tensors that the weights are made of (load.h) */
    size_t part_count;
    char *names; /* of the tensors that have been read, as the source calls them, each ending with a NUL */
    size_t name_bytes;
};

/* Checks a description and copies it into a zeroed model; failures are reported on the context. */
clattn_status model_read(clattn_transformer *model, const clattn_transformer_desc *desc);

/* Decides what the rank has, once a description has been read, and makes the stacks' descriptions those of that. */
clattn_status model_divide(clattn_transformer *model);

/* Makes a model; `ranks` is NULL, or those that have it together, and is copied. */
clattn_status model_create(clattn_context *context, const struct ranks *ranks, const clattn_transformer_desc *desc,
                           const clattn_weight_source *source, clattn_transformer **transformer);

/* The rank that has this part of the model; 0 of a model that is whole. */
static inline int32_t model_rank(const clattn_transformer *model)
{
    return model->ranks ? model->ranks->group.rank : 0;
}

/* Declares the model's weights, allocates their buffers and uploads them.  `source` has been checked. */
clattn_status model_load(clattn_transformer *model, const clattn_weight_source *source);

/* Checks what a stack has for pictures; if it fails, *reason says why. */
clattn_status pictures_check(const clattn_stack_desc *desc, const char **reason);

/* Checks the stages of an encoder with each other. */
clattn_status stages_check(const struct stack *first, const char **reason);

void model_retain(clattn_transformer *model);
void model_drop(clattn_transformer *model);

/* The binding of a weight, (rows, columns); none if `id` is 0. */
clattn_binding model_weight(const clattn_transformer *model, weight_id id);

/* The patches that attend to each other in a layer, if the stack has windows: rows and columns of a window, or of the grid. */
struct grid {
    size_t rows, columns;
};
struct grid stack_window(const clattn_stack_desc *desc, size_t layer, struct grid grid);

/* The grid of patches of a picture in an encoder, filled up to whole windows if a picture is made of it. */
struct grid stack_grid(const struct stack *stack, size_t height, size_t width);

/* Whether the stack's positions are patches of pictures: of a first stage or a further one. */
static inline bool stack_has_patches(const clattn_stack_desc *desc)
{
    return desc->input == CLATTN_STACK_INPUT_PICTURES || desc->input == CLATTN_STACK_INPUT_MERGED ||
           desc->input == CLATTN_STACK_INPUT_CONTINUED;
}

/* The columns of the vectors that a stack makes. */
static inline size_t stack_columns(const clattn_stack_desc *desc)
{
    return desc->neck ? desc->neck : desc->d_model;
}

/* The last stage of an encoder. */
const struct stack *stack_last(const struct stack *stack);

/* The positions before a picture's patches: the class token's and the registers'. */
size_t stack_prefix(const clattn_stack_desc *desc);

/* The positions that are left of `length` frames after the first `convolutions` convolutions, or that `length` patches have. */
size_t stack_frames(const clattn_stack_desc *desc, size_t convolutions, size_t length);

#endif
