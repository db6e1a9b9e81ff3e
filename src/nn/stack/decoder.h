/* Decoders' inside: the plan, and the state that it works on. */
#ifndef CLATTN_NN_STACK_DECODER_H
#define CLATTN_NN_STACK_DECODER_H

#include "clattn/decoder.h"
#include "nn/graph/graph.h"
#include "nn/model/model.h"

/* An enqueue is one of these.  Several tokens at once, of one sequence an item; one token of each; one token of each of all
 * beams; and the memory's keys and values. */
enum decoder_graph { DECODER_MANY, DECODER_ONE, DECODER_BEAMS, DECODER_MEMORY, DECODER_GRAPHS };

struct decoder_plan {
    clattn_plan base;
    clattn_transformer *model;             /* retained */
    clattn_decoder_desc desc;              /* zeros replaced by what they mean */
    size_t sequences;                      /* items * beams */
    struct graph graph[DECODER_GRAPHS];    /* without steps: there is no such enqueue */
    clattn_layout self_cache, cross_cache; /* of one layer's keys or values: (sequences or items, kv_heads, length, head
                                            * size); a cache has layers times keys and values of them, one behind the
                                            * other */
};

struct clattn_decoder_state {
    struct decoder_plan *plan; /* retained */
    cl_mem self[2];            /* caches of self-attention: the current one, and with beams another to reorder into */
    cl_mem cross;
    int current;
    size_t bytes;
    size_t items, beams; /* of the beginning */
    bool begun;
    size_t memory_length; /* the longest */
    int32_t *lengths;     /* of the sequences */
    int32_t *memory_lengths;
    int32_t *scratch; /* for an enqueue's arrays: STATE_SCRATCH times the sequences */
    cl_event *waits;  /* room for an enqueue's wait list and `last` */
    size_t waits_capacity;
    cl_event last;          /* the end of the work enqueued so far; NULL: none */
    cl_command_queue queue; /* where that is; not retained, only compared */
};
#define STATE_SCRATCH 4

/* plan_check, for a decoder's plan. */
clattn_status decoder_plan_check(const clattn_plan *plan);

/* SUCCESS, or INVALID_ARGUMENT for NULL, or FORKED. */
clattn_status decoder_state_check(const clattn_decoder_state *state);

/* Makes the queue and the wait list what an enqueue on the state is to use: with its earlier work, where the queue does not
 * keep the order by itself.  The list is good until the next call. */
clattn_status decoder_waits(clattn_decoder_state *state, struct enqueue_call *call);

/* Takes note of what has been enqueued on the state, or not: takes over `made`, and hands the caller's *event out. */
void decoder_enqueued(clattn_decoder_state *state, cl_command_queue queue, clattn_status status, cl_event made,
                      cl_event *event);

/* Empties the sequences, of which each item has so many now. */
void decoder_state_restart(clattn_decoder_state *state, size_t beams);

/* The graphs of a plan whose description has been read. */
clattn_status decoder_make_graphs(struct decoder_plan *plan, const clattn_plan_options *options);

/* A mask of the plan's as that graph reads it: of one query's row where an enqueue has but one. */
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
