/* Nodes that one call of clattn replaces. */
#ifndef CLATTN_ONNXRUNTIME_GROUP_H
#define CLATTN_ONNXRUNTIME_GROUP_H

#include "graph.h"

#define MOST_NODES 16

/* How an array in row-major order is attention's (batch, heads, length, size). */
typedef struct group_view {
    size_t value;   /* of the graph; NO_PLACE: there is none */
    size_t rank;    /* 4; or 3, without heads or with heads and size in one dimension */
    size_t split;   /* the heads of an array of rank 3 whose last dimension has heads * size elements; 0: it has not */
    size_t axis[4]; /* rank 4: which dimension is attention's */
} group_view;

/* Attention. */
typedef struct group {
    size_t node[MOST_NODES]; /* of the graph, ascending */
    size_t nodes;
    group_view query, key, value, output;
    size_t mask; /* a value, or NO_PLACE: none */
    bool causal, short_mask;
    bool has_scale;
    float scale, softcap;
} group;

/* Finds the group that begins at `node`: *found tells whether there is one that clattn takes, and otherwise *reason, a static
 * string, why not, or NULL if the node is none that it knows.  `taken` says which nodes are in another group. */
OrtStatus *group_match(const graph *g, size_t node, const bool *taken, group *made, bool *found, const char **reason);

#endif
