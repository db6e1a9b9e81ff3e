/* Generation's inside: what all methods share. */
#ifndef CLATTN_NN_GENERATE_GENERATE_H
#define CLATTN_NN_GENERATE_GENERATE_H

#include "clattn/generate.h"
#include "nn/stack/decoder.h"

/* One sequence as it grows, in host memory. */
struct sequence {
    int32_t *tokens;          /* the prompt, then what was generated */
    float *log_probabilities; /* of what was generated */
    size_t prompt, length;    /* of tokens */
    double score;             /* the sum of the log-probabilities */
};

struct generation {
    clattn_decoder_state *state;
    cl_command_queue queue;
    clattn_generate_desc desc;
    clattn_generated *results;
    size_t items, vocabulary;
    size_t capacity;            /* tokens of a sequence that the decoder takes */
    size_t most;                /* tokens of a sequence, the generated ones included */
    size_t stride;              /* tokens from a result to the next */
    struct sequence *sequences; /* items * beams, and as many again to reorder into */
    cl_mem tokens, logits;      /* on the device */
    float *host;                /* logits of all sequences */
    int32_t *next, *fresh;      /* each sequence's next token, and whether it has one */
};

static inline size_t generated(const struct sequence *sequence)
{
    return sequence->length - sequence->prompt;
}

static inline float *logits_of(const struct generation *g, size_t sequence)
{
    return g->host + sequence * g->vocabulary;
}

/* Appends next[s] to every sequence s of the state that has fresh[s] 1, and reads the logits behind it. */
clattn_status generation_step(struct generation *g);

/* Shows the hook a sequence and its logits. */
clattn_status generation_hook(const struct generation *g, const struct sequence *sequence, size_t item, size_t beam,
                              float *logits);

/* Whether the token is one that ends a sequence, and whether a sequence can grow. */
bool generation_stopped(const struct generation *g, int32_t token);
bool generation_can_grow(const struct generation *g, const struct sequence *sequence);

void sequence_append(struct sequence *sequence, int32_t token, double log_probability);

/* `from` as `to`, whose memory it keeps. */
void sequence_copy(struct sequence *to, const struct sequence *from);

/* The result `rank` of an item. */
void generation_result(struct generation *g, size_t item, size_t rank, const struct sequence *sequence, double score);

/* Beam search, the prompts being read and their logits in `host`. */
clattn_status generation_beams(struct generation *g);

/* ---- logits ---- */

/* log(sum(exp(logits / temperature))), -INFINITY where all are. */
double logits_log_sum(const float *logits, size_t count, double temperature);

/* The largest, of equals the first; SIZE_MAX where all are -INFINITY or NaN. */
size_t logits_largest(const float *logits, size_t count);

/* A random one of those that top_k (0: all) and then top_p, a share of these, leave, by a number in [0, 1); SIZE_MAX as
 * above.  `order` is room for `count` indices. */
size_t logits_sample(const float *logits, size_t count, double temperature, size_t top_k, double top_p, double number,
                     size_t *order);

#endif
