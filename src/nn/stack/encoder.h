/* Encoders' inside: the plan. */
#ifndef CLATTN_NN_STACK_ENCODER_H
#define CLATTN_NN_STACK_ENCODER_H

#include "clattn/transformer.h"
#include "nn/graph/graph.h"
#include "nn/model/model.h"

struct encoder_plan {
    clattn_plan base;
    clattn_transformer *model; /* retained */
    clattn_encoder_desc desc;
    size_t positions; /* that desc.length gives */
    bool has_lengths; /* items' lengths are an array */
    struct graph graph;
    clattn_layout input, probabilities, output, pooled; /* what the caller's arrays are */
};

/* The graph of a plan whose arguments are laid out. */
clattn_status encoder_make_graph(struct encoder_plan *plan, const clattn_plan_options *options);

/* What an enqueue binds, says and brings, by the numbers that the graph has for them. */
enum { SLOT_INPUT = 1, SLOT_SEGMENTS, SLOT_MASK, SLOT_OUTPUT, SLOT_POOLED, SLOT_PROBABILITIES, SLOTS };
enum {
    NUMBER_BATCH = 1,
    NUMBER_LENGTH,
    NUMBER_POSITIONS,
    NUMBER_FIRST,
    NUMBER_FRAMES /* behind each convolution but the last */
};
enum { INTEGERS_LENGTHS = 1, INTEGERS_UNIT, INTEGERS };

#endif
