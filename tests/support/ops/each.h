/* A small case of each operator with as many arrays as it can have, for suites that look at calls and not at numbers. */
#ifndef TESTS_SUPPORT_OPS_EACH_H
#define TESTS_SUPPORT_OPS_EACH_H

/* Adds a case of each operator by each of its solvers, and of the gradients of products.  Attention, forward products, multi-head
 * attention and images have several kinds of plans: each suite chooses. */
void each_operator_add(void);

#endif
