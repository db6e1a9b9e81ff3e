/* A small case of each operator with as many arrays as it can have, for suites that look at calls and not at numbers. */
#ifndef TESTS_SUPPORT_OPS_EACH_H
#define TESTS_SUPPORT_OPS_EACH_H

/* Adds a case of softmax, norm, cross-entropy, convolution, pooling, resizing, rotary positions, activations, merging, appending,
 * steps of the optimizer and sums of squares, and neighbourhood attention by each of their solvers.  Attention, products, multi-head attention and images have several kinds of plans: each
 * suite chooses. */
void each_operator_add(void);

#endif
