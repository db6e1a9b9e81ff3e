/* Chains: steps that follow one another on the device, and which of a graph's nodes they replace. */
#ifndef CLATTN_ONNXRUNTIME_CHAIN_H
#define CLATTN_ONNXRUNTIME_CHAIN_H

#include "step.h"

/* The steps of a graph, in an order in which they can run, and the chain that each is part of. */
typedef struct partition {
    step *step;
    size_t *chain; /* of each step; NO_PLACE: it is left */
    size_t steps, chains;
} partition;

/* Learns why a node is left. */
typedef void (*partition_left)(void *user, size_t node, const char *reason);

/* Divides a graph: chains that have no attention are left if `all` is not set, and what processors compute as fast or faster without
 * clattn if `on_processor` is: convolutions, and chains whose products have one row.  Release with partition_release, also if it
 * fails. */
OrtStatus *partition_make(const graph *g, bool all, bool on_processor, partition_left left, void *user,
                          partition *made);
void partition_release(partition *made);

#endif
