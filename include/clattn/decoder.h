/* Decoders: stacks that grow sequences, with keys and values of what they have seen kept in a cache.
 *
 * A decoder's plan is immutable, as all plans are; what it works on is a state: for each sequence the cache of
 * self-attention, and for each item the keys and values of the memory (the encoder's output), computed once.  An enqueue
 * appends new tokens, one or many, to each sequence.  Appending a whole text in one enqueue is what training does (the
 * outputs shifted right, all at once); one token at a time is decoding; both give the same numbers up to rounding.
 *
 *   clattn_decoder_plan_create(model, ...)        sizes
 *   clattn_decoder_state_create(plan, ...)        caches
 *   clattn_decoder_begin(state, queue, memory)    keys and values of the memory; sequences are empty
 *   clattn_decoder_enqueue(state, queue, tokens)  as often as wanted
 *
 * An item is one memory (of a decoder without cross-attention: one prompt), and has `beams` sequences, of which sequence s
 * belongs to item s / beams.  How many items and beams there are this time is said by clattn_decoder_begin. */
#ifndef CLATTN_DECODER_H
#define CLATTN_DECODER_H

#include "transformer.h"

CLATTN_BEGIN_DECLS

typedef enum clattn_logits {
    CLATTN_LOGITS_NONE = 0,
    CLATTN_LOGITS_LAST = 1, /* of each sequence's last new token: (S, output size) */
    CLATTN_LOGITS_ALL = 2,  /* of every one: (S, L, output size) */
    CLATTN_LOGITS_FORCE_32BIT = 0x7fffffff
} clattn_logits;

/* What to compute.  Set it up with CLATTN_DECODER_DESC_INIT. */
typedef struct clattn_decoder_desc {
    size_t size;          /* sizeof(clattn_decoder_desc) */
    size_t items;         /* most items */
    size_t beams;         /* most sequences of an item; 0: 1 */
    size_t length;        /* most new tokens of a sequence in one enqueue; enqueues of one have kernels of their own */
    size_t cache_length;  /* most tokens of a sequence in all */
    size_t memory_length; /* with cross-attention: most positions of a memory */
    clattn_logits logits; /* NONE (default) where the model has no output */
    clattn_dtype
        cache_dtype; /* CLATTN_DTYPE_F32, CLATTN_DTYPE_F16 or CLATTN_DTYPE_BF16 of both caches; 0: the model's dtype */
    uint64_t self_probabilities; /* layers whose attention probabilities are an output, bit l for layer l */
    uint64_t cross_probabilities;
    clattn_layout mask;        /* none, or of self-attention, besides causality: (items or 1, heads or 1, length or 1,
                                * cache_length); as in clattn_encoder_desc.  Not with beams */
    clattn_layout memory_mask; /* none, or of cross-attention: (items or 1, heads or 1, length or 1, memory_length).  An
                                * enqueue of one token reads both masks' first row */
} clattn_decoder_desc;

#define CLATTN_DECODER_DESC_INIT CLATTN_INIT(clattn_decoder_desc)

/* What CLATTN_DECODER_DESC_INIT does.  NULL is accepted. */
CLATTN_API void clattn_decoder_desc_init(clattn_decoder_desc *desc);

/* Compiles the model's decoder; as clattn_encoder_plan_create. */
CLATTN_API clattn_status clattn_decoder_plan_create(clattn_transformer *transformer, const clattn_decoder_desc *desc,
                                                    const clattn_plan_options *options, clattn_plan **plan);

/* Caches and lengths of the sequences that a plan works on.
 * Thread-safety: one thread at a time; different states are independent.
 * Ownership: the caller releases it with clattn_decoder_state_release; it keeps its plan, and enqueued work what it needs.
 * On an out-of-order queue, or when the queue changes, what is enqueued waits for what was enqueued on the state before.  As
 * nothing here flushes a queue, the caller flushes the former one (clFlush) when it changes, which OpenCL asks for wherever
 * commands of one queue wait for those of another. */
typedef struct clattn_decoder_state clattn_decoder_state;

/* Allocates the caches for the plan's sizes.  Statuses: INVALID_ARGUMENT, OUT_OF_MEMORY, OPENCL, FORKED. */
CLATTN_API clattn_status clattn_decoder_state_create(clattn_plan *plan, clattn_decoder_state **state);

/* Releases and nulls; NULL and a NULL handle are accepted.  Does not wait for enqueued work. */
CLATTN_API void clattn_decoder_state_release(clattn_decoder_state **state);

/* Bytes of device memory that the state holds. */
CLATTN_API size_t clattn_decoder_state_bytes(const clattn_decoder_state *state);

/* A new beginning.  Set it up with CLATTN_DECODER_BEGIN_ARGS_INIT. */
typedef struct clattn_decoder_begin_args {
    size_t size;           /* sizeof(clattn_decoder_begin_args) */
    clattn_binding memory; /* with cross-attention: (items, memory_length, d_memory) of the plan's largest sizes, the
                              * model's dtype; none: what the state has stays */
    size_t items;          /* <= the plan's */
    size_t beams;          /* 1 or the plan's; 0: 1 */
    size_t memory_length;  /* positions of every memory that count */
    const int32_t *memory_lengths; /* NULL, or in host memory each item's own, <= memory_length; read during the call */
    clattn_binding workspace;      /* as in clattn_encoder_args */
} clattn_decoder_begin_args;

#define CLATTN_DECODER_BEGIN_ARGS_INIT CLATTN_INIT(clattn_decoder_begin_args)

/* What CLATTN_DECODER_BEGIN_ARGS_INIT does.  NULL is accepted. */
CLATTN_API void clattn_decoder_begin_args_init(clattn_decoder_begin_args *args);

/* Empties all sequences, sets how many there are, and enqueues the products that make keys and values of the memory.
 * Contract, blocking and statuses of clattn_encoder_enqueue.  After a failure with OUT_OF_MEMORY or OPENCL the state wants
 * another beginning; after others it is as before. */
CLATTN_API clattn_status clattn_decoder_begin(clattn_decoder_state *state, cl_command_queue queue,
                                              const clattn_decoder_begin_args *args, cl_uint wait_count,
                                              const cl_event *wait_list, cl_event *event);

/* Where the arrays are; contiguous, row-major.  S is the number of sequences that there are, C the plan's cache_length, M
 * its memory_length, and L the plan's length, but 1 in an enqueue of one token. */
typedef struct clattn_decoder_args {
    size_t size;             /* sizeof(clattn_decoder_args) */
    clattn_binding input;    /* TOKENS (S, L) CLATTN_DTYPE_I32; VECTORS (S, L, d_model) */
    clattn_binding segments; /* (S, L) CLATTN_DTYPE_I32, if the stack has segments; none: all are 0 */
    clattn_binding mask, memory_mask;
    clattn_binding output; /* none, or (S, L, d_model) of the model's dtype: the last layer's, normed, vectors.  Kernels
                            * read it, too */
    clattn_binding
        logits; /* with the plan's; CLATTN_DTYPE_F32; none: not wanted this time, and not computed.  Where CLBlast
                            * computes them and there is a bias, kernels must be able to read them (BUFFER_ACCESS) */
    clattn_binding self_probabilities;  /* none, or (chosen layers, S, heads, L, C) CLATTN_DTYPE_F32 */
    clattn_binding cross_probabilities; /* none, or (chosen layers, S, heads, L, M) CLATTN_DTYPE_F32 */
    size_t length;                      /* new tokens, 1 ... the plan's length; 1 with more than one beam */
    const int32_t
        *lengths; /* NULL, or in host memory each sequence's own, 0 ... length; read during the call.  What lies behind
                             * is not appended, and outputs there mean nothing */
    int32_t
        shift_right; /* TOKENS: 1: the input is the outputs, and what is appended is these shifted right by one, with
                            * `start_token` in front: the paper's "outputs (shifted right)".  Empty sequences only */
    int32_t start_token;
    clattn_binding workspace; /* as in clattn_encoder_args */
} clattn_decoder_args;

#define CLATTN_DECODER_ARGS_INIT CLATTN_INIT(clattn_decoder_args)

/* What CLATTN_DECODER_ARGS_INIT does.  NULL is accepted. */
CLATTN_API void clattn_decoder_args_init(clattn_decoder_args *args);

/* Appends to all sequences.  Contract, blocking and statuses of clattn_encoder_enqueue; INVALID_ARGUMENT also before a
 * beginning, and where a sequence would become longer than the cache or the table of positions.  After a failure with
 * OUT_OF_MEMORY or OPENCL the state wants another beginning; after others it is as before. */
CLATTN_API clattn_status clattn_decoder_enqueue(clattn_decoder_state *state, cl_command_queue queue,
                                                const clattn_decoder_args *args, cl_uint wait_count,
                                                const cl_event *wait_list, cl_event *event);

/* Tokens that sequence `sequence` has; 0 outside. */
CLATTN_API size_t clattn_decoder_length(const clattn_decoder_state *state, size_t sequence);

/* Cuts every sequence that is longer down to `length` tokens: they are forgotten, the rest is kept.  No device work. */
CLATTN_API clattn_status clattn_decoder_truncate(clattn_decoder_state *state, size_t length);

/* Replaces the sequences: new sequence s, of items * `beams`, becomes a copy of sequence parents[s] (in host memory, read
 * during the call), which belongs to the same item; `beams` is 1 or the plan's.  Also how one sequence per item, having read a prompt, becomes many.
 * Copies only what sequences have, and only those that move.  Contract, blocking and statuses of clattn_encoder_enqueue. */
CLATTN_API clattn_status clattn_decoder_reorder(clattn_decoder_state *state, cl_command_queue queue, size_t beams,
                                                const size_t *parents, cl_uint wait_count, const cl_event *wait_list,
                                                cl_event *event);

CLATTN_END_DECLS

#endif
