/* The way back through a graph: for each of its steps, last first, the steps that make the gradients of what it read. */
#ifndef CLATTN_NN_TRAIN_TAPE_H
#define CLATTN_NN_TRAIN_TAPE_H

#include "nn/graph/graph.h"
#include "nn/model/model.h"

/* Steps that are done once more before their gradients are computed, so that what they make need not be kept. */
struct tape_segment {
    size_t first, end; /* steps of the graph */
};

/* Each array of the arena that a step reads gets a gradient of the same layout.  The gradient of an element of a weight lies as
 * the weight does in buffers that an enqueue binds, one for each buffer of the model. */
struct tape {
    struct graph *graph;
    const clattn_transformer *model;
    int slot;         /* of the gradients of the model's first buffer; those of the others follow */
    size_t rows;      /* at least as many as any product has */
    int ones;         /* an array of as many ones, once it is needed */
    int position_ids; /* an array of ids first_position ... for items of `positions` rows; 0: there is none yet */
    size_t positions, first_position;
    int *gradient; /* by array: the array of its gradient, or 0 */
    size_t capacity;
    struct graph_operand *written; /* gradients of weights that have a value */
    size_t written_count, written_capacity;
};

/* Appends the way back through steps 0 ... `steps` - 1, which begins with array `gradient`, the gradient of array `begin`.
 * Segments, in ascending order, are done again. */
clattn_status tape_run(struct tape *tape, size_t steps, int begin, int gradient, const struct tape_segment *segments,
                       size_t count);

void tape_clear(struct tape *tape);

#endif
