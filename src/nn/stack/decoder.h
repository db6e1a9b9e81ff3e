/* A decoder's plan, and the state that its enqueues work on. */
#ifndef CLATTN_NN_STACK_DECODER_H
#define CLATTN_NN_STACK_DECODER_H

#include "clattn/decoder.h"
#include "nn/graph/graph.h"
#include "nn/model/model.h"

/* The graphs of a decoder, one of which an enqueue runs: several tokens of one sequence an item; one token of one
 * sequence an item; one token of every beam of an item; keys and values of the memory. */
enum decoder_graph { DECODER_MANY, DECODER_ONE, DECODER_BEAMS, DECODER_MEMORY, DECODER_GRAPHS };

struct decoder_plan {
    clattn_plan base;
    clattn_transformer *model;             /* retained */
    clattn_decoder_desc desc;              /* zeros replaced by what they mean */
    size_t sequences;                      /* items * beams */
    struct graph graph[DECODER_GRAPHS];    /* without steps if the plan has no such enqueue */
    clattn_layout self_cache, cross_cache; /* one layer's keys or values, (sequences or items, kv_heads, length, head
                                            * size); the cache is (layers, 2) of them */
};

struct clattn_decoder_state {
    struct decoder_plan *plan; /* retained */
    cl_mem self[2];            /* caches of self-attention: the current one, and with beams another to reorder into */
    cl_mem cross;
    int current;
    size_t bytes;
    size_t items, beams; /* that the sequences were begun with */
    bool begun;
    size_t memory_length; /* of the longest memory */
    int32_t *lengths;     /* of the sequences */
    int32_t *memory_lengths;
    int32_t *scratch; /* an enqueue's integers, (STATE_SCRATCH, sequences) */
    cl_event *waits;  /* an enqueue's wait list, with `last` */
    size_t waits_capacity;
    cl_event last;          /* the event of the last work on the state, or NULL */
    cl_command_queue queue; /* the queue of that work; not retained, since it is only compared */
};
#define STATE_SCRATCH 4

/* plan_check of a decoder's plan. */
clattn_status decoder_plan_check(const clattn_plan *plan);

/* SUCCESS, or INVALID_ARGUMENT for NULL, or FORKED. */
clattn_status decoder_state_check(const clattn_decoder_state *state);

/* Sets the call's queue, and adds the state's last work to its wait list unless the queue keeps that order by itself.
 * The list is valid until the next call. */
clattn_status decoder_waits(clattn_decoder_state *state, struct enqueue_call *call);

/* Records an enqueue on the state, which succeeded or not: takes over the event `made`, and sets the caller's *event.
 * Returns `status`, or the failure of retaining the event for the caller. */
clattn_status decoder_enqueued(clattn_decoder_state *state, cl_command_queue queue, clattn_status status, cl_event made,
                               cl_event *event);

/* Empties the sequences, of which each item now has `beams`. */
void decoder_state_restart(clattn_decoder_state *state, size_t beams);

/* Makes the graphs of a plan whose description has been checked. */
clattn_status decoder_make_graphs(struct decoder_plan *plan, const clattn_plan_options *options);

/* The mask as a graph reads it: with one row of queries unless the graph takes many tokens. */
clattn_layout decoder_mask(const clattn_layout *mask, enum decoder_graph which);

/* The slots of an enqueue's bindings. */
enum decoder_slot {
    DECODER_INPUT = 1,
    DECODER_IDS,
    DECODER_SEGMENTS,
    DECODER_MASK,
    DECODER_MEMORY_MASK,
    DECODER_OUTPUT,
    DECODER_LOGITS,
    DECODER_SELF_PROBABILITIES,
    DECODER_CROSS_PROBABILITIES,
    DECODER_SELF_CACHE,
    DECODER_CROSS_CACHE,
    DECODER_MEMORY_ARRAY,
    DECODER_SLOTS
};

/* The integers of an enqueue. */
enum decoder_integers {
    DECODER_PAST_LENGTHS = 1,
    DECODER_NEW_LENGTHS,
    DECODER_TOTAL_LENGTHS,
    DECODER_LAST_ROWS,
    DECODER_MEMORY_LENGTHS,
    DECODER_START_TOKEN,
    DECODER_INTEGERS
};

#endif
