/* A graph is an enqueue of many operators: a list of steps over arrays, which a plan makes once and always runs in order.
 *
 * Arrays lie in the plan's workspace (the arena), in the weights, or in the caller's bindings.  An array of the arena lives
 * from the first step that names it to the last, and shares memory with arrays that live at other times, so that the arena
 * is as large as the peak.  An operator's own workspace is an array that lives for one step. */
#ifndef CLATTN_NN_GRAPH_GRAPH_H
#define CLATTN_NN_GRAPH_GRAPH_H

#include "clattn/activation.h"
#include "clattn/attention.h"
#include "clattn/conv2d.h"
#include "clattn/cross_entropy.h"
#include "clattn/dropout.h"
#include "clattn/embedding.h"
#include "clattn/kv_append.h"
#include "clattn/matmul.h"
#include "clattn/norm.h"
#include "clattn/resize.h"
#include "clattn/rope.h"
#include "clattn/transformer.h"
#include "plan/enqueue.h"
#include "ranks/ranks.h"
#include "ranks/staging.h"

/* An array, and how many of its elements to skip; array 0 is no array. */
struct graph_operand {
    int array;
    int64_t offset;
};

enum graph_op {
    GRAPH_MATMUL,
    GRAPH_ATTENTION,
    GRAPH_WEIGHTS, /* attention's probabilities, from the attention's inputs and its lse */
    GRAPH_NORM,
    GRAPH_EMBEDDING,
    GRAPH_ROPE,
    GRAPH_APPEND,
    GRAPH_CONV2D,
    GRAPH_RESIZE,
    GRAPH_CONVERT,    /* copies x to y, of another layout or type: the activation NONE; or another activation */
    GRAPH_LOSS,       /* cross-entropy */
    GRAPH_DROPOUT,    /* and a residual; nothing is dropped from a sum of two arrays */
    GRAPH_INTEGERS,   /* copies int32 values of the host to an array, asynchronously */
    GRAPH_PAD,        /* zeroes rows before and after each item */
    GRAPH_FILL,       /* fills `rows` rows with one of the enqueue's integers, or with zeros */
    GRAPH_COPY,       /* copies each item's rows */
    GRAPH_ALL_REDUCE, /* the sum of all ranks' arrays takes the place of the array */
    GRAPH_ALL_GATHER, /* each rank has made a share of the columns of an array, and gets those of all others */
};

/* The operands of a step, by operator.  Those of gradients are for plans that go backward. */
enum {
    MATMUL_A,
    MATMUL_B,
    MATMUL_BIAS,
    MATMUL_C,
    MATMUL_OPERAND,
    MATMUL_B_SCALE,
    MATMUL_C_GRADIENT,
    MATMUL_A_GRADIENT,
    MATMUL_B_GRADIENT,
    MATMUL_BIAS_GRADIENT,
    MATMUL_OPERAND_GRADIENT
};
enum {
    HEADS_QUERY,
    HEADS_KEY,
    HEADS_VALUE,
    HEADS_MASK,
    HEADS_BIAS,
    HEADS_OUTPUT,
    HEADS_LSE,
    HEADS_QUERY_LENGTHS,
    HEADS_KEY_LENGTHS,
    HEADS_POSITIONS,
    HEADS_WEIGHTS,
    HEADS_OUTPUT_GRADIENT,
    HEADS_QUERY_GRADIENT,
    HEADS_KEY_GRADIENT,
    HEADS_VALUE_GRADIENT
};
enum {
    NORM_X,
    NORM_Y,
    NORM_SCALE,
    NORM_BIAS,
    NORM_Y_GRADIENT,
    NORM_SUM_GRADIENT,
    NORM_X_GRADIENT,
    NORM_SCALE_GRADIENT,
    NORM_BIAS_GRADIENT
};
enum {
    EMBEDDING_IDS,
    EMBEDDING_TABLE,
    EMBEDDING_Y,
    EMBEDDING_POSITION_TABLE,
    EMBEDDING_OFFSETS,
    EMBEDDING_SEGMENTS,
    EMBEDDING_SEGMENT_TABLE,
    EMBEDDING_TABLE_GRADIENT,
    EMBEDDING_Y_GRADIENT
};
enum { ROPE_X, ROPE_Y, ROPE_OFFSETS, ROPE_COS, ROPE_SIN, ROPE_X_GRADIENT, ROPE_Y_GRADIENT };
enum { APPEND_KEY, APPEND_VALUE, APPEND_KEY_CACHE, APPEND_VALUE_CACHE, APPEND_PAST_LENGTHS, APPEND_NEW_LENGTHS };
enum { CONV2D_X, CONV2D_WEIGHT, CONV2D_BIAS, CONV2D_OPERAND, CONV2D_Y };
enum { MOVE_TO, MOVE_FROM, MOVE_TO_GRADIENT, MOVE_FROM_GRADIENT }; /* also of RESIZE and CONVERT */
enum { LOSS_LOGITS, LOSS_LABELS, LOSS_LOSSES, LOSS_LOGITS_GRADIENT };
enum { DROPOUT_X, DROPOUT_RESIDUAL, DROPOUT_Y, DROPOUT_X_GRADIENT, DROPOUT_Y_GRADIENT };
#define GRAPH_OPERANDS 15

/* The numbers that an enqueue brings; a step says which of them is its batch, its length and so on. */
enum graph_number {
    NUMBER_ONE,          /* 1 */
    NUMBER_BATCH,        /* items of mha and of an encoder, a decoder's sequences */
    NUMBER_LENGTH,       /* rows of each */
    NUMBER_POSITION,     /* the position of the first row */
    NUMBER_INPUT_LENGTH, /* encoder: tokens, frames or patches of each item */
    NUMBER_FRAMES,       /* encoder: frames after convolution 0; the numbers after it: after the further convolutions */
    NUMBER_KEYS = NUMBER_FRAMES + CLATTN_MAX_CONVOLUTIONS, /* mha: keys; decoder: the longest sequence's */
    NUMBER_PAST,                                           /* decoder: keys that were there before */
    NUMBER_SHIFTED,                                        /* decoder: rows that are shifted right, all but the last */
    NUMBER_ITEMS,                                          /* decoder: items of cross-attention */
    NUMBER_ITEM_QUERIES,                                   /* decoder: queries of each item */
    NUMBER_MEMORY_LENGTH,                                  /* decoder: keys of cross-attention */
    GRAPH_NUMBERS
    /* graph_number adds the numbers from here on. */
};

struct graph_step {
    enum graph_op op;
    clattn_plan *plan; /* set by graph_add_operator; NULL for steps that are no operator */
    struct graph_operand operand[GRAPH_OPERANDS];
    enum graph_number batch, length, keys; /* which numbers are the operator's arguments of these names */
    enum graph_number position;            /* NUMBER_ONE: the position is 0 */
    int condition;  /* the slot of a binding that the step needs; negative: of one that must be absent; 0: none */
    int workspace;  /* an array, or 0 */
    bool prepacked; /* MATMUL: the workspace is the graph's own, and holds b */
    int integers;   /* GRAPH_INTEGERS, GRAPH_FILL: which of the enqueue's integers; 0: none */
    uint32_t mask;  /* GRAPH_DROPOUT: which of the masks of the enqueue's seed */
    size_t rows, row_bytes; /* PAD: rows to zero at each end.  FILL: rows.  ALL_...: the most rows.  Bytes of a row */
    size_t to_item, from_item; /* bytes from an item to the next */
};

enum graph_place { GRAPH_NOWHERE, GRAPH_ARENA, GRAPH_BOUND, GRAPH_FIXED };

struct graph_array {
    enum graph_place place;
    clattn_dtype dtype;
    int slot; /* BOUND: which of the enqueue's bindings; if that is none, array `fallback` */
    int fallback;
    clattn_binding fixed; /* FIXED */
    size_t bytes;         /* ARENA */
    size_t at;            /* ARENA: bytes from the workspace's start, once laid out */
    size_t first, last;   /* ARENA: the steps that it lives from and to; first > last: it is never named */
};

struct graph_plan {
    enum graph_op op;
    void *desc; /* the description that the plan was made for */
    clattn_plan *plan;
};

/* A number that is `factor` times another one. */
struct graph_multiple {
    size_t factor;
    enum graph_number of;
};

struct graph {
    clattn_context *context;
    struct graph_array *arrays;
    struct graph_step *steps;
    struct graph_plan *plans;
    struct graph_multiple *multiples;
    cl_mem *constants;   /* buffers of arrays that the graph owns */
    struct ranks *ranks; /* that exchange arrays; NULL: no step does so */
    struct staging host; /* memory for that */
    size_t host_bytes;
    size_t multiple_count, multiple_capacity, constant_count, constant_capacity;
    size_t array_count, array_capacity, step_count, step_capacity, plan_count, plan_capacity;
    size_t arena, unshared; /* bytes of the workspace, and of all arrays without sharing */
    size_t launches;
    bool prepack;                /* products keep fixed arrays as they pack them; set it after graph_begin, */
    const struct graph *earlier; /* as well as finished graphs, from which packed arrays are shared */
    size_t earlier_count;
    size_t prepacked; /* bytes of what this graph has packed itself */
    bool finished;    /* graph_finish has succeeded, so that nothing is packed any more */
    bool failed;      /* host memory ran out; graph_finish reports it */
};

/* ---- making one ---- */

/* Begins an empty graph, which graph_clear clears whatever happens. */
clattn_status graph_begin(struct graph *graph, clattn_context *context);
void graph_clear(struct graph *graph);

/* Each returns the number of a new array; 0 if memory runs out, which graph_finish reports. */
int graph_arena_array(struct graph *graph, clattn_dtype dtype, size_t elements);
int graph_bound_array(struct graph *graph, clattn_dtype dtype, int slot, int fallback);
int graph_fixed_array(struct graph *graph, clattn_binding binding);

/* A new array with a copy of `count` elements of the host. */
clattn_status graph_constant_array(struct graph *graph, clattn_dtype dtype, size_t count, const void *data, int *array);

/* A number that is `factor` times the number `of`, an enqueue's own; NUMBER_ONE makes it a constant. */
enum graph_number graph_number(struct graph *graph, size_t factor, enum graph_number of);

/* Whether the number is the same in all enqueues. */
bool graph_is_constant(const struct graph *graph, enum graph_number number);

/* The value of such a number. */
size_t graph_constant(const struct graph *graph, enum graph_number number);

/* An array as an operand, from its first element or from element `offset` on. */
static inline struct graph_operand operand_of(int array)
{
    return (struct graph_operand){array, 0};
}

static inline struct graph_operand operand_at(int array, size_t offset)
{
    return (struct graph_operand){array, (int64_t)offset};
}

/* Appends a step that is no operator. */
void graph_add(struct graph *graph, const struct graph_step *step);

/* Appends a step GRAPH_ALL_REDUCE or GRAPH_ALL_GATHER. */
void graph_add_exchange(struct graph *graph, struct ranks *ranks, const struct graph_step *step);

/* Appends an operator's step with a plan for `desc`, the operator's description.  The graph owns the plans, and has one
 * for all descriptions that are equal byte by byte, so that they must have been initialised by their init functions;
 * `options` are those of the first. */
clattn_status graph_add_operator(struct graph *graph, const struct graph_step *step, const void *desc,
                                 const clattn_plan_options *options);

/* The description of GRAPH_WEIGHTS: attention_weights_plan_create's arguments.  Set it up with struct_init. */
struct graph_weights_desc {
    size_t size;
    clattn_attention_desc attention;
    clattn_layout layout;
    bool average;
};

/* The description that an operator's plan was made for. */
const void *graph_desc(const struct graph *graph, const clattn_plan *plan);

/* Lays out the arena.  Nothing can be added afterwards. */
clattn_status graph_finish(struct graph *graph);

/* Appends each plan's explain text and a line about the memory. */
void graph_explain(const struct graph *graph, struct strbuf *text);

/* ---- running it ---- */

/* Asks for the event of a step. */
struct graph_mark {
    size_t step;
    cl_event *event;
};

struct graph_run {
    const clattn_binding *bound;  /* by slot; slot 0 is not used */
    size_t number[GRAPH_NUMBERS]; /* number[NUMBER_ONE] must be 1 */
    const int32_t *const
        *integers;     /* by step.integers, from 1; `batch` values each, which are read before the enqueue returns */
    float scale;       /* of the losses' gradients */
    uint64_t seed;     /* of dropout */
    size_t first, end; /* the steps to run; end 0: all */
    const struct graph_mark *marks; /* in the order of their steps, of those that are run */
    size_t mark_count;
};

/* Refuses an array of such a step in a buffer that the host may not read and write. */
clattn_status graph_exchange_check(const struct graph *graph, const clattn_binding *array);

/* Runs such a step over the first `bytes` of an array.  Blocks. */
clattn_status graph_exchange(const struct graph *graph, struct chain *chain, const struct graph_step *step,
                             const clattn_binding *array, size_t bytes);

/* Enqueues all steps whose condition is met, in a workspace of at least graph->arena bytes, from chain_begin to
 * chain_end. */
clattn_status graph_enqueue(const struct graph *graph, const struct enqueue_call *call, const struct graph_run *run,
                            const clattn_binding *workspace);

#endif
