/** @file
 * Decoders: stacks that grow sequences, and keep the keys and values of what they have seen in a cache.
 *
 * A decoder's plan is immutable, as all plans are. It works on a state: the self-attention's cache of each sequence,
 * and the keys and values of each item's memory (the encoder's output), which are computed once. An enqueue appends
 * new tokens, one or many, to each sequence. Training appends a whole text in one enqueue (the outputs shifted right,
 * all at once); decoding appends one token at a time. Both give the same numbers up to rounding.
 *
 *     clattn_decoder_plan_create(model, ...)        the largest sizes
 *     clattn_decoder_state_create(plan, ...)        caches
 *     clattn_decoder_begin(state, queue, memory)    keys and values of the memory; sequences are empty
 *     clattn_decoder_enqueue(state, queue, tokens)  as often as wanted
 *
 * An item is one memory (without cross-attention: one prompt). It has `beams` sequences: sequence s belongs to item s
 * / beams. clattn_decoder_begin says how many items and beams there are this time.
 */
#ifndef CLATTN_DECODER_H
#define CLATTN_DECODER_H

#include "transformer.h"

CLATTN_BEGIN_DECLS

/** Which tokens get logits. */
typedef enum clattn_logits {
    CLATTN_LOGITS_NONE = 0, /**< none */
    CLATTN_LOGITS_LAST = 1, /**< each sequence's last new token, as (S, output size) */
    CLATTN_LOGITS_ALL = 2,  /**< every new token, as (S, L, output size) */
    CLATTN_LOGITS_FORCE_32BIT = 0x7fffffff
} clattn_logits;

/** What to compute. Set it up with CLATTN_DECODER_DESC_INIT. */
typedef struct clattn_decoder_desc {
    size_t size;   /**< sizeof(clattn_decoder_desc) */
    size_t items;  /**< the most items */
    size_t beams;  /**< the most sequences of an item; 0: 1 */
    size_t length; /**< the most new tokens of a sequence in one enqueue; enqueues of one have kernels of their own */
    size_t cache_length;          /**< the most tokens of a sequence in all */
    size_t memory_length;         /**< the most positions of a memory if there is cross-attention; otherwise 0 */
    clattn_logits logits;         /**< which tokens get logits; none (default) if the model has no output */
    clattn_dtype cache_dtype;     /**< the type of both caches: float32, float16 or bfloat16; 0: the model's dtype */
    uint64_t self_probabilities;  /**< layers whose self-attention's probabilities are an output: bit l is layer l's */
    uint64_t cross_probabilities; /**< layers whose cross-attention's probabilities are an output */

    /** None, or the mask of self-attention, besides causality: (items or 1, heads or 1, length or 1, cache_length), as
     * in clattn_encoder_desc. Not with beams. */
    clattn_layout mask;

    /** None, or the mask of cross-attention: (items or 1, heads or 1, length or 1, memory_length). An enqueue of one
     * token reads the first row of both masks. */
    clattn_layout memory_mask;

    /** As in clattn_encoder_desc. Enqueues of one token and of many share the matrices that their solvers pack alike, as they do
     * in float32 (but with cpu-amx). */
    int32_t prepack;
    int32_t reserved; /* 0 */
} clattn_decoder_desc;

/** Initialises a clattn_decoder_desc: its size, and zeros. */
#define CLATTN_DECODER_DESC_INIT CLATTN_INIT(clattn_decoder_desc)

/** Sets *desc as CLATTN_DECODER_DESC_INIT does (@ref calls_init). */
CLATTN_API void clattn_decoder_desc_init(clattn_decoder_desc *desc);

/** Compiles the decoder of `transformer` for the sizes of `desc` (@ref calls_plan). Blocks.
 *
 * `options` may be NULL; a solver that it asks for is the attention's. If it fails, *plan is NULL.
 *
 * @return what clattn_encoder_plan_create returns. */
CLATTN_API clattn_status clattn_decoder_plan_create(clattn_transformer *transformer, const clattn_decoder_desc *desc,
                                                    const clattn_plan_options *options, clattn_plan **plan);

/** Caches and lengths of the sequences that a plan works on.
 *
 * - Thread-safety: one thread at a time; different states are independent.
 * - Ownership: the caller releases it with clattn_decoder_state_release. It keeps its plan, and enqueued work keeps
 *   what it needs.
 *
 * What is enqueued on a state waits for what was enqueued on it before, also on an out-of-order queue and if the queue
 * changes. Nothing here flushes a queue. So the caller flushes the former queue (clFlush) when it changes queues, as
 * OpenCL demands whenever commands of one queue wait for those of another. */
typedef struct clattn_decoder_state clattn_decoder_state;

/** Allocates the caches for the sizes of `plan`. If it fails, *state is NULL.
 *
 * @return INVALID_ARGUMENT, OVERFLOW, OUT_OF_MEMORY, OPENCL or FORKED. */
CLATTN_API clattn_status clattn_decoder_state_create(clattn_plan *plan, clattn_decoder_state **state);

/** Releases the state and sets *state to NULL; accepts NULL and a pointer to NULL. Does not wait for enqueued work. */
CLATTN_API void clattn_decoder_state_release(clattn_decoder_state **state);

/** Returns the bytes of device memory that `state` holds; 0 for NULL. */
CLATTN_API size_t clattn_decoder_state_bytes(const clattn_decoder_state *state);

/** How to begin anew. Set it up with CLATTN_DECODER_BEGIN_ARGS_INIT. */
typedef struct clattn_decoder_begin_args {
    size_t size; /**< sizeof(clattn_decoder_begin_args) */

    /** The memory if there is cross-attention: (items, memory_length, d_memory) of the plan's largest sizes and the
     * model's dtype. None: the state keeps the memory that it has. */
    clattn_binding memory;
    size_t items;         /**< at most the plan's */
    size_t beams;         /**< 1 or the plan's; 0: 1 */
    size_t memory_length; /**< how many positions of every memory count */

    /** NULL, or each item's own number of positions, at most memory_length, in host memory that is read during the
     * call. */
    const int32_t *memory_lengths;
    clattn_binding workspace; /**< none (default), or a workspace in a buffer (@ref calls_workspace) */
    clattn_control *control;  /**< what watches the call (control.h), or NULL */
} clattn_decoder_begin_args;

/** Initialises a clattn_decoder_begin_args: its size, and zeros. */
#define CLATTN_DECODER_BEGIN_ARGS_INIT CLATTN_INIT(clattn_decoder_begin_args)

/** Sets *args as CLATTN_DECODER_BEGIN_ARGS_INIT does (@ref calls_init). */
CLATTN_API void clattn_decoder_begin_args_init(clattn_decoder_begin_args *args);

/** Empties all sequences of `state`, sets how many there are, and enqueues the memory's keys and values.
 *
 * Does not block; the rest is as in @ref calls_enqueue. After a failure with OUT_OF_MEMORY or OPENCL the state needs
 * another beginning; after any other failure it is as before.
 *
 * @return what clattn_encoder_enqueue returns. */
CLATTN_API clattn_status clattn_decoder_begin(clattn_decoder_state *state, cl_command_queue queue,
                                              const clattn_decoder_begin_args *args, cl_uint wait_count,
                                              const cl_event *wait_list, cl_event *event);

/** Where the arrays are this time, and how much of them counts. Set it up with CLATTN_DECODER_ARGS_INIT.
 *
 * All arrays are contiguous, row-major. S is the number of sequences that there are, C the plan's cache_length and M
 * its memory_length. L is the plan's length, but 1 in an enqueue of one token. */
typedef struct clattn_decoder_args {
    size_t size;                /**< sizeof(clattn_decoder_args) */
    clattn_binding input;       /**< tokens (S, L) int32, or vectors (S, L, d_model) of the model's dtype */
    clattn_binding segments;    /**< (S, L) int32 if the stack has segments; none: all are 0 */
    clattn_binding mask;        /**< the mask of self-attention */
    clattn_binding memory_mask; /**< the mask of cross-attention */

    /** None, or the last layer's vectors, normed: (S, L, d_model) of the model's dtype. Kernels also read it. */
    clattn_binding output;

    /** None: logits are not wanted this time, and not computed. Otherwise those of the plan, float32. */
    clattn_binding logits;
    clattn_binding self_probabilities;  /**< none, or (chosen layers, S, heads, L, C) float32 */
    clattn_binding cross_probabilities; /**< none, or (chosen layers, S, heads, L, M) float32 */
    size_t length;                      /**< how many tokens are new, 1 ... the plan's length; 1 if there are beams */

    /** NULL, or how many tokens are new in each sequence, 0 ... length, in host memory that is read during the call.
     * The tokens behind these are not appended, and what outputs have there means nothing. */
    const int32_t *lengths;

    /** 1: the input is the outputs, and what is appended is the outputs shifted right by one, with `start_token` in
     * front: the paper's "outputs (shifted right)". Only for tokens, and while sequences are empty. */
    int32_t shift_right;
    int32_t start_token;      /**< the token in front if `shift_right` is 1 */
    clattn_binding workspace; /**< none (default), or a workspace in a buffer (@ref calls_workspace) */
    clattn_control *control;  /**< what watches the call (control.h), or NULL */
} clattn_decoder_args;

/** Initialises a clattn_decoder_args: its size, and zeros. */
#define CLATTN_DECODER_ARGS_INIT CLATTN_INIT(clattn_decoder_args)

/** Sets *args as CLATTN_DECODER_ARGS_INIT does (@ref calls_init). */
CLATTN_API void clattn_decoder_args_init(clattn_decoder_args *args);

/** Appends tokens to all sequences of `state`, and enqueues what they bring (@ref calls_enqueue). Does not block.
 *
 * After a failure with OUT_OF_MEMORY or OPENCL the state needs another beginning; after any other failure it is as
 * before.
 *
 * @return what clattn_encoder_enqueue returns. INVALID_ARGUMENT also before a beginning, and if a sequence would
 * become longer than its cache or the table of positions. */
CLATTN_API clattn_status clattn_decoder_enqueue(clattn_decoder_state *state, cl_command_queue queue,
                                                const clattn_decoder_args *args, cl_uint wait_count,
                                                const cl_event *wait_list, cl_event *event);

/** Returns how many tokens sequence `sequence` of `state` has; 0 if there is no such sequence. */
CLATTN_API size_t clattn_decoder_length(const clattn_decoder_state *state, size_t sequence);

/** Cuts every sequence of `state` that is longer than `length` tokens down to them: the tokens behind are forgotten.
 * No device work.
 *
 * @return INVALID_ARGUMENT (also before a beginning) or FORKED. */
CLATTN_API clattn_status clattn_decoder_truncate(clattn_decoder_state *state, size_t length);

/** Replaces the sequences of `state`: new sequence s, of items * `beams`, becomes a copy of sequence parents[s]. Does
 * not block.
 *
 * parents[s] belongs to the same item; `parents` is host memory that is read during the call. `beams` is 1 or the
 * plan's, so this is also how the one sequence of an item, having read a prompt, becomes many. Only what sequences
 * have is copied, and only of those that move. The rest is as in @ref calls_enqueue.
 *
 * After a failure with OUT_OF_MEMORY or OPENCL the state needs another beginning; after any other failure it is as
 * before.
 *
 * @return what clattn_encoder_enqueue returns. */
CLATTN_API clattn_status clattn_decoder_reorder(clattn_decoder_state *state, cl_command_queue queue, size_t beams,
                                                const size_t *parents, cl_uint wait_count, const cl_event *wait_list,
                                                cl_event *event);

CLATTN_END_DECLS

#endif
