/* A group of nodes, computed. */
#ifndef CLATTN_ONNXRUNTIME_RUN_H
#define CLATTN_ONNXRUNTIME_RUN_H

#include <clattn/clattn.h>

#include "base/cl.h"
#include "group.h"

enum { RUN_QUERY, RUN_KEY, RUN_VALUE, RUN_MASK, RUN_INPUTS };

/* Which of the replacing node's inputs the arrays are; NO_PLACE: there is none. */
typedef struct run_places {
    size_t input[RUN_INPUTS];
} run_places;

/* Computes the group from the context's inputs to its only output, and waits for it.  `shares`: the device's memory is the
 * host's.  Any number of threads may call it. */
OrtStatus *run_group(const OrtApi *ort, const struct cl_table *cl, clattn_context *context, bool shares,
                     const group *what, const run_places *places, OrtKernelContext *arrays);

#endif
