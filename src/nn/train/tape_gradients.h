/* What the parts of the way back share: gradients of arrays and of weights, and the steps that several of them add. */
#ifndef CLATTN_NN_TRAIN_TAPE_GRADIENTS_H
#define CLATTN_NN_TRAIN_TAPE_GRADIENTS_H

#include "nn/train/tape.h"

clattn_status tape_no_memory(const struct tape *t);
clattn_status tape_unsupported(const struct tape *t, const char *what);

/* Lets the table of gradients grow with the graph's arrays. */
clattn_status tape_reserve(struct tape *t);

/* Only what the graph itself makes has a gradient: not what the caller binds, and no constants. */
bool tape_wants_gradient(const struct tape *t, struct graph_operand of);

bool tape_has_gradient(const struct tape *t, struct graph_operand of);
struct graph_operand tape_gradient(const struct tape *t, struct graph_operand of);

/* Gives the array a gradient, which has no value yet. */
clattn_status tape_give_gradient(struct tape *t, struct graph_operand of);

/* The weight's gradient; none if the array is no weight of the model. */
struct graph_operand tape_weight_gradient(const struct tape *t, struct graph_operand weight);

/* Notes that a gradient of a weight gets a value, and tells whether it has had one. */
clattn_status tape_note_written(struct tape *t, struct graph_operand gradient, bool *before);

/* The layout of a weight's gradient, which is float32. */
static inline clattn_layout as_float32(clattn_layout layout)
{
    layout.dtype = CLATTN_DTYPE_F32;
    return layout;
}

/* y += x, of arrays whose first extent is the same in every enqueue. */
clattn_status tape_add_sum(struct tape *t, const clattn_layout *x_layout, struct graph_operand x,
                           const clattn_layout *y_layout, struct graph_operand y);

/* Adds the gradient of a table whose rows have been taken by ids.  `desc` has the layouts of the ids and of the gradient of what
 * was taken, and the scale; `step` has these two arrays and their batch and length. */
clattn_status tape_add_table(struct tape *t, const clattn_embedding_desc *desc, const struct graph_step *step,
                             struct graph_operand table, const clattn_layout *table_layout);

/* Adds the gradient of a table of positions, whose rows from `first` on were added to each item's; `step` has no ids. */
clattn_status tape_add_positions(struct tape *t, const clattn_embedding_desc *desc, const struct graph_step *step,
                                 size_t first, struct graph_operand table, const clattn_layout *table_layout);

clattn_status tape_product(struct tape *t, const struct graph_step *s);
clattn_status tape_embedding(struct tape *t, const struct graph_step *s);

#endif
