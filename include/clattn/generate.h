/** @file
 * Text generation: choosing tokens by a decoder's logits until every sequence has stopped.
 *
 * All methods choose by log-probabilities: the logits as the hook leaves them, divided by `temperature` (sampling
 * only), minus the logarithm of the sum of their exponentials. The host computes them in double precision from float32
 * logits.
 */
#ifndef CLATTN_GENERATE_H
#define CLATTN_GENERATE_H

#include "decoder.h"

CLATTN_BEGIN_DECLS

/** How the next token is chosen. */
typedef enum clattn_generate_method {
    CLATTN_GENERATE_METHOD_GREEDY = 0, /**< the most probable token; of equals the one with the lowest number */
    CLATTN_GENERATE_METHOD_SAMPLE = 1, /**< a random token of those that top_k and top_p leave */
    CLATTN_GENERATE_METHOD_BEAM = 2,   /**< the `beams` most probable beginnings are followed side by side */
    CLATTN_GENERATE_METHOD_FORCE_32BIT = 0x7fffffff
} clattn_generate_method;

/** How the log-probabilities of finished sequences are made comparable between lengths.
 *
 * n is the number of a sequence's generated tokens, the stop token included, and a the length_penalty. */
typedef enum clattn_length_rule {
    CLATTN_LENGTH_RULE_GNMT = 0,  /**< sum / ((5 + n) / 6)^a, Wu et al. 2016; the paper has a = 0.6 */
    CLATTN_LENGTH_RULE_POWER = 1, /**< sum / n^a */
    CLATTN_LENGTH_RULE_FORCE_32BIT = 0x7fffffff
} clattn_length_rule;

/** What the hook is shown of one sequence before its next token is chosen. */
typedef struct clattn_logits_view {
    size_t size;           /**< sizeof(clattn_logits_view) */
    size_t item;           /**< which prompt */
    size_t beam;           /**< which of the prompt's sequences */
    const int32_t *tokens; /**< all tokens so far, the prompt first */
    size_t prompt_length;  /**< how many of them are the prompt */
    size_t length;         /**< how many there are in all */
    float *logits; /**< the logits, which the hook may change: -INFINITY forbids a token, +x makes it likelier */
    size_t count;  /**< how many logits there are */
} clattn_logits_view;

/** Sees a sequence's logits in `view` before its next token is chosen, and may change them.
 *
 * The call is made for every sequence that has not stopped, before each of its tokens, on the thread that called
 * clattn_generate, in the order of items and beams. `user` is clattn_generate_desc.hook_user. If the hook returns
 * something other than SUCCESS, the generation ends with that status.
 *
 * A hook that leaves a sequence nothing but -INFINITY stops that sequence as if there were no room left, and the
 * sequence is kept as it is: directly after the prompt it is a result of no tokens with a score of 0. */
typedef clattn_status (*clattn_logits_hook)(void *user, const clattn_logits_view *view);

/** How to generate. Set it up with CLATTN_GENERATE_DESC_INIT. */
typedef struct clattn_generate_desc {
    size_t size;                    /**< sizeof(clattn_generate_desc) */
    clattn_generate_method method;  /**< how the next token is chosen */
    clattn_length_rule length_rule; /**< how beam search compares sequences of different lengths */

    /** The most tokens to generate of each sequence. A sequence stops earlier if its cache or its table of positions
     * ends. */
    size_t max_tokens;
    const int32_t *stop_tokens; /**< tokens that finish a sequence; the stop token is its last */
    size_t stop_count;          /**< how many there are */
    size_t beams;               /**< beam search: sequences side by side, at most the plan's; otherwise 0 or 1 */
    size_t results;       /**< sequences to return of each item; 0: 1. At most `beams`, and 1 without beam search */
    float length_penalty; /**< beam search: a of the length rule; 0 (default): sums are compared as they are */
    float patience;    /**< beam search: an item is done once beams * patience of its sequences have finished; 0: 1 */
    float temperature; /**< sampling: > 0; 0 (default): 1 */

    /** Sampling: only the most probable tokens, until their probabilities add up to this; 0 (default): 1, all
     * tokens. */
    float top_p;

    /** Sampling: only this many of the most probable tokens; 0 (default): all. If both are given, top_k comes first,
     * and top_p is a share of what it leaves. */
    size_t top_k;

    /** Sampling: the seed of Philox4x32-10, whose counter is the item and how many tokens it has generated.
     *
     * So a token depends on seed, item, place and logits only, and not on what else is in the batch.
     * docs/transformer.md says which token it is. */
    uint64_t seed;
    clattn_logits_hook hook; /**< sees the logits; NULL: there is none */
    void *hook_user;         /**< the first argument of `hook` */
    clattn_control *control; /**< what watches the generation (control.h), or NULL */
} clattn_generate_desc;

/** Initialises a clattn_generate_desc: its size, and zeros. */
#define CLATTN_GENERATE_DESC_INIT CLATTN_INIT(clattn_generate_desc)

/** Sets *desc as CLATTN_GENERATE_DESC_INIT does (@ref calls_init). */
CLATTN_API void clattn_generate_desc_init(clattn_generate_desc *desc);

/** Where results go: the caller's host memory. Set it up with CLATTN_GENERATED_INIT.
 *
 * R is the description's results, and T its max_tokens. */
typedef struct clattn_generated {
    size_t size; /**< sizeof(clattn_generated) */

    /** (items, R, T): the generated tokens, without the prompt; the stop token is the last if there was one. */
    int32_t *tokens;

    /** (items, R): how many tokens there are. 0 also if beam search has found fewer than R sequences; the score is
     * then -INFINITY. */
    size_t *lengths;

    /** NULL, or (items, R): the sum of the tokens' log-probabilities. Beam search applies the length rule to it and
     * returns the highest first. */
    float *scores;
    float *log_probabilities; /**< NULL, or (items, R, T): each token's log-probability */
} clattn_generated;

/** Initialises a clattn_generated: its size, and zeros. */
#define CLATTN_GENERATED_INIT CLATTN_INIT(clattn_generated)

/** Sets *generated as CLATTN_GENERATED_INIT does (@ref calls_init). */
CLATTN_API void clattn_generated_init(clattn_generated *generated);

/** Generates by `desc`: reads prompts, and appends to them until every sequence has stopped. Blocks until it is done.
 *
 * The sequences of `state` are emptied first. `prompts` has one prompt behind the other; prompt i has
 * prompt_lengths[i] >= 1 tokens. There are as many as items at the state's beginning; a decoder without
 * cross-attention needs a beginning, too. The memory stays, so another seed or temperature may follow. Prompts are
 * read in enqueues of the plan's `length`, whatever their own lengths. The plan has logits, no more than the embedding
 * has tokens.
 *
 * `queue` may be NULL, which means the context's. Logits come to the host for every token. *generated says where
 * results go. After a failure the state needs a clattn_decoder_begin, and results mean nothing.
 *
 * @return what clattn_decoder_enqueue returns, and what the hook returns. */
CLATTN_API clattn_status clattn_generate(clattn_decoder_state *state, cl_command_queue queue,
                                         const clattn_generate_desc *desc, const int32_t *prompts,
                                         const size_t *prompt_lengths, clattn_generated *generated);

CLATTN_END_DECLS

#endif
