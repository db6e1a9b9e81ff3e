/* What the provider reads of a model's graph: nodes and values by number, in place of ONNX Runtime's handles. */
#ifndef CLATTN_ONNXRUNTIME_GRAPH_H
#define CLATTN_ONNXRUNTIME_GRAPH_H

#include <onnxruntime/onnxruntime_c_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MOST_DIMENSIONS 8
#define NO_PLACE SIZE_MAX /* no such value or node */

/* What a node computes or reads. */
typedef struct graph_value {
    const char *name; /* the graph's */
    ONNXTensorElementDataType type;
    size_t rank;                  /* 0 also if it is not known; SIZE_MAX: more than MOST_DIMENSIONS */
    int64_t dim[MOST_DIMENSIONS]; /* -1: not known */
    size_t producer;              /* the node, or NO_PLACE */
    size_t consumers;             /* how often nodes of this graph read it */
    bool leaves;                  /* it is an output of the graph, or a graph inside a node reads it */
    const void *constant;         /* the elements of an initializer that cannot change, or NULL */
    size_t elements;              /* of the constant */
    size_t numbers; /* how many whole numbers follow from shapes and constants, at most; 0: it is something else */
} graph_value;

typedef struct graph_node {
    const OrtNode *handle;
    const char *op, *domain; /* the graph's */
    int version;             /* of the operator */
    size_t *input,
        *output; /* values; NO_PLACE: left out.  Behind the inputs come what the graphs inside the node read */
    size_t inputs, outputs;
    size_t reads; /* inputs and what the graphs inside read */
} graph_node;

/* A graph, in an order in which nodes can run.  Zeroed: none.  Release with graph_release; `ort` is borrowed. */
typedef struct graph {
    const OrtApi *ort;
    graph_value *value;
    graph_node *node;
    size_t values, nodes;
    size_t value_room;
    size_t *slot; /* by names: a table with open addresses, of `slots` places */
    size_t slots;
} graph;

/* A status with a message of the printf kind. */
OrtStatus *ort_failure(const OrtApi *ort, OrtErrorCode code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Evaluates a call of ONNX Runtime's; if it fails, stores its status in the local `failure` and jumps to `fail`. */
#define ORT_TRY(expression) \
    do { \
        failure = (expression); \
        if (failure) \
            goto fail; \
    } while (0)

OrtStatus *graph_read(const OrtApi *ort, const OrtGraph *from, graph *g);
void graph_release(graph *g);

/* Finds `numbers` of each value.  In a graph `inside` another, what comes from outside counts, too. */
void numbers_mark(graph *g, bool inside);

/* The value of that name, or NO_PLACE. */
size_t graph_find(const graph *g, const char *name);

/* Whether the node is of an operator of ONNX's own ("") or of another domain. */
bool graph_is(const graph *g, size_t node, const char *domain, const char *op);

/* An attribute of a node, or `otherwise` if it is not set. */
OrtStatus *graph_integer(const graph *g, size_t node, const char *name, int64_t otherwise, int64_t *number);
OrtStatus *graph_float(const graph *g, size_t node, const char *name, float otherwise, float *number);

/* The text of an attribute, with an end; empty if it is not set or does not fit. */
OrtStatus *graph_text(const graph *g, size_t node, const char *name, char *text, size_t room);

/* Whether an attribute, which is `otherwise` if it is not set, is the text `text`. */
OrtStatus *graph_is_text(const graph *g, size_t node, const char *name, const char *otherwise, const char *text,
                         bool *is);

/* Up to `room` whole numbers of an attribute; *count is 0 if it is not set or has more. */
OrtStatus *graph_integers(const graph *g, size_t node, const char *name, int64_t *numbers, size_t room, size_t *count);

/* The whole numbers that a constant of int64 has, up to `room`; false if the value is anything else. */
bool graph_numbers(const graph *g, size_t value, int64_t *numbers, size_t room, size_t *count);

/* The first node behind `after` (NO_PLACE: the first of all) that reads a value, or NO_PLACE; *input is which of its inputs. */
size_t graph_reader(const graph *g, size_t value, size_t after, size_t *input);

/* The number that a constant of one float is, of no dimension or one; false if the value is anything else. */
bool graph_scalar(const graph *g, size_t value, float *number);

#endif
