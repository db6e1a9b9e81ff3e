/* An encoder's plan. */
#ifndef CLATTN_NN_STACK_ENCODER_H
#define CLATTN_NN_STACK_ENCODER_H

#include "clattn/transformer.h"
#include "nn/graph/graph.h"
#include "nn/model/model.h"

struct encoder_plan {
    clattn_plan base;
    clattn_transformer *model; /* retained */
    clattn_encoder_desc desc;
    size_t positions;        /* of an item with desc.length tokens or frames */
    size_t output_positions; /* of the last stage */
    bool whole;              /* items are whole pictures: there are windows, stages or a neck */
    bool has_lengths;        /* the items' lengths are an array on the device */
    struct graph graph;
    clattn_layout input, probabilities, output, pooled; /* of the caller's arrays */
};

/* Makes the graph of a plan whose layouts are set. */
clattn_status encoder_make_graph(struct encoder_plan *plan, const clattn_plan_options *options);

/* The slots of an enqueue's bindings. */
enum encoder_slot {
    ENCODER_INPUT = 1,
    ENCODER_SEGMENTS,
    ENCODER_MASK,
    ENCODER_OUTPUT,
    ENCODER_POOLED,
    ENCODER_PROBABILITIES,
    ENCODER_SLOTS
};

/* The integers of an enqueue: each item's length, and the bits of 1 / sqrt(d_model). */
enum encoder_integers { ENCODER_LENGTHS = 1, ENCODER_UNIT, ENCODER_INTEGERS };

#endif
