/* Generation: the sequences and steps that all methods share. */
#ifndef CLATTN_NN_GENERATE_GENERATE_H
#define CLATTN_NN_GENERATE_GENERATE_H

#include "clattn/generate.h"
#include "nn/stack/decoder.h"

/* A sequence while it grows, in host memory. */
struct sequence {
    int32_t *tokens;          /* the prompt, then the generated tokens */
    float *log_probabilities; /* of the generated tokens */
    size_t prompt, length;    /* tokens of the prompt; of all */
    double score;             /* the sum of the log-probabilities */
};

struct generation {
    clattn_decoder_state *state;
    cl_command_queue queue;
    clattn_generate_desc desc;
    clattn_generated *results;
    size_t items, vocabulary;
    size_t capacity;            /* tokens of a sequence that fit into the decoder's cache */
    size_t most;                /* tokens that a sequence may have in the end */
    size_t stride;              /* tokens from a result to the next */
    struct sequence *sequences; /* items * beams, and as many again to reorder into */
    cl_mem tokens, logits;      /* on the device */
    float *host;                /* logits of all sequences, on the host */
    int32_t *next, *fresh;      /* each sequence's next token, and whether it has one */
    size_t step, steps;         /* enqueues of the decoder so far, and the most that there may be */
};

static inline size_t generated(const struct sequence *sequence)
{
    return sequence->length - sequence->prompt;
}

static inline float *logits_of(const struct generation *g, size_t sequence)
{
    return g->host + sequence * g->vocabulary;
}

/* Appends next[s] to every sequence s of the state whose fresh[s] is 1, and reads the logits that follow. */
clattn_status generation_step(struct generation *g);

/* Calls the hook, if there is one, with a sequence and its logits. */
clattn_status generation_hook(const struct generation *g, const struct sequence *sequence, size_t item, size_t beam,
                              float *logits);

/* Whether the token ends a sequence. */
bool generation_stopped(const struct generation *g, int32_t token);

/* Whether the sequence may have one more token. */
bool generation_can_grow(const struct generation *g, const struct sequence *sequence);

/* Allocates sequences in one piece of memory, which the caller frees; NULL if there is none. */
struct sequence *sequences_create(const struct generation *g, size_t count);

void sequence_append(struct sequence *sequence, int32_t token, double log_probability);

/* Copies the contents of `from` into the memory of `to`. */
void sequence_copy(struct sequence *to, const struct sequence *from);

/* Writes result `rank` of an item; `sequence` NULL: an empty result. */
void generation_result(struct generation *g, size_t item, size_t rank, const struct sequence *sequence, double score);

/* Beam search, after the prompts have been read and their logits are in `host`. */
clattn_status generation_beams(struct generation *g);

/* ---- logits ---- */

/* log(sum(exp(logits / temperature))); -INFINITY if all logits are. */
double logits_log_sum(const float *logits, size_t count, double temperature);

/* The index of the first largest logit; SIZE_MAX if all are -INFINITY or NaN. */
size_t logits_largest(const float *logits, size_t count);

/* The index that a random number in [0, 1) draws from the logits that top_k (0: all) and then top_p leave; SIZE_MAX if
 * all are -INFINITY or NaN.  `order` is memory for `count` indices. */
size_t logits_sample(const float *logits, size_t count, double temperature, size_t top_k, double top_p, double number,
                     size_t *order);

#endif
