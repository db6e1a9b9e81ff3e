/* Text generation: choosing tokens by a decoder's logits until every sequence has stopped.
 *
 * All methods see log-probabilities: the logits as the hook leaves them, divided by `temperature` (sampling only), less
 * the logarithm of the sum of their exponentials.  They are computed in double precision on the host, of float32 logits. */
#ifndef CLATTN_GENERATE_H
#define CLATTN_GENERATE_H

#include "decoder.h"

CLATTN_BEGIN_DECLS

typedef enum clattn_generate_method {
    CLATTN_GENERATE_METHOD_GREEDY = 0, /* the most probable token; of equals the one with the lowest number */
    CLATTN_GENERATE_METHOD_SAMPLE = 1, /* a random token, of those that top_k and top_p leave */
    CLATTN_GENERATE_METHOD_BEAM = 2,   /* the `beams` most probable beginnings side by side */
    CLATTN_GENERATE_METHOD_FORCE_32BIT = 0x7fffffff
} clattn_generate_method;

/* How a finished sequence's sum of log-probabilities is made comparable with that of one of another length, n being its
 * generated tokens, the stop token included, and a length_penalty. */
typedef enum clattn_length_rule {
    CLATTN_LENGTH_RULE_GNMT = 0,  /* sum / ((5 + n) / 6)^a, Wu et al. 2016; the paper has a = 0.6 */
    CLATTN_LENGTH_RULE_POWER = 1, /* sum / n^a */
    CLATTN_LENGTH_RULE_FORCE_32BIT = 0x7fffffff
} clattn_length_rule;

/* What the hook is shown of one sequence before its next token is chosen. */
typedef struct clattn_logits_view {
    size_t size;           /* sizeof(clattn_logits_view) */
    size_t item;           /* which prompt, */
    size_t beam;           /* and which of its sequences */
    const int32_t *tokens; /* all so far, the prompt first */
    size_t prompt_length;
    size_t length; /* of tokens; length - prompt_length are generated */
    float *logits; /* `count` of them; the hook may write: -INFINITY forbids a token, +x makes it likelier */
    size_t count;
} clattn_logits_view;

/* Called for every sequence that has not stopped, before each of its tokens, on the thread that called clattn_generate, in
 * the order of items and beams.  What it returns other than SUCCESS ends the generation with that status.  A row that it
 * leaves with nothing but -INFINITY stops its sequence as if it had no room left, and the sequence is kept as it is: behind
 * the prompt already, it is a result of no tokens with a score of 0. */
typedef clattn_status (*clattn_logits_hook)(void *user, const clattn_logits_view *view);

/* How to generate.  Set it up with CLATTN_GENERATE_DESC_INIT. */
typedef struct clattn_generate_desc {
    size_t size; /* sizeof(clattn_generate_desc) */
    clattn_generate_method method;
    clattn_length_rule length_rule;
    size_t max_tokens; /* most tokens to generate of each sequence; it stops earlier where its cache or its table of
                           * positions ends */
    const int32_t *stop_tokens; /* a sequence that gets one of them has finished; the token is its last */
    size_t stop_count;
    size_t beams;         /* BEAM: sequences side by side, <= the plan's; GREEDY and SAMPLE: 0 or 1 */
    size_t results;       /* sequences to return of each item; 0: 1.  BEAM: <= beams; GREEDY and SAMPLE: 1 */
    float length_penalty; /* a; 0 (default): sums are compared as they are.  BEAM only */
    float patience;       /* BEAM: an item is done once beams * patience of its sequences have finished; 0: 1 */
    float temperature;    /* SAMPLE: > 0; 0 (default): 1 */
    float top_p;          /* SAMPLE: the most probable tokens whose probabilities add up to this; 0 (default): 1, all */
    size_t top_k;         /* SAMPLE: the so many most probable; 0 (default): all.  Both: top_k first, and top_p as a
                           * share of what that leaves */
    uint64_t seed;        /* SAMPLE: of Philox4x32-10 with the item, and how many tokens it has generated, as counter: a
                           * token depends on seed, item, place and logits alone, not on what else is in the batch;
                           * docs/transformer.md says which token it is */
    clattn_logits_hook hook; /* NULL: none */
    void *hook_user;
} clattn_generate_desc;

#define CLATTN_GENERATE_DESC_INIT CLATTN_INIT(clattn_generate_desc)

/* What CLATTN_GENERATE_DESC_INIT does.  NULL is accepted. */
CLATTN_API void clattn_generate_desc_init(clattn_generate_desc *desc);

/* Where results go: the caller's host memory.  R is the desc's results, T its max_tokens. */
typedef struct clattn_generated {
    size_t size; /* sizeof(clattn_generated) */
    int32_t *
        tokens; /* (items, R, T): what was generated, without the prompt; the stop token is the last if there was one */
    size_t *lengths; /* (items, R): how many; 0 also where BEAM has found fewer than R,
                           * whose scores then are -INFINITY */
    float *scores; /* NULL, or (items, R): the sum of the tokens' log-probabilities, by the length rule for BEAM, which
                       * returns the highest first */
    float *log_probabilities; /* NULL, or (items, R, T): each token's */
} clattn_generated;

#define CLATTN_GENERATED_INIT CLATTN_INIT(clattn_generated)

/* What CLATTN_GENERATED_INIT does.  NULL is accepted. */
CLATTN_API void clattn_generated_init(clattn_generated *generated);

/* Generates: empties the state's sequences, reads `prompts` (items of them, one behind the other; prompt i has
 * prompt_lengths[i] >= 1 tokens), and appends until all have stopped.  Items are those of the state's beginning, which a
 * decoder without cross-attention needs too; its memory stays, so that it may be generated again with another seed or
 * temperature.  Prompts are read in enqueues of the plan's `length`, whatever theirs.  The plan has logits, of
 * no more tokens than the embedding has.
 *
 * Blocks until it is done: logits come to the host for every token.  `queue` NULL: the context's.  After failure the state
 * wants a clattn_decoder_begin, and results mean nothing.  Statuses: those of clattn_decoder_enqueue, and the hook's. */
CLATTN_API clattn_status clattn_generate(clattn_decoder_state *state, cl_command_queue queue,
                                         const clattn_generate_desc *desc, const int32_t *prompts,
                                         const size_t *prompt_lengths, clattn_generated *generated);

CLATTN_END_DECLS

#endif
