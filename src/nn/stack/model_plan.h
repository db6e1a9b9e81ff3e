/* Plans of models, and of blocks that are graphs. */
#ifndef CLATTN_NN_STACK_MODEL_PLAN_H
#define CLATTN_NN_STACK_MODEL_PLAN_H

#include "nn/graph/graph.h"
#include "nn/model/model.h"

#define MODEL_BATCH_LIMIT ((size_t)65536)
#define MODEL_LENGTH_LIMIT ((size_t)1 << 30)

/* What clattn_<name>_plan_create was given, and where its copies go. */
struct model_plan_call {
    const char *name; /* "encoder" or "decoder" */
    bool has_stack;   /* the model has it */
    const void *desc;
    void *desc_copy;
    size_t desc_bytes;
    const clattn_plan_options *options;
    clattn_plan_options *options_copy;
};

/* Begins a plan_create: sets *result and the job to NULL, checks the model and `result`, and copies description and options. */
clattn_status model_plan_read(const clattn_transformer *model, const struct model_plan_call *call,
                              clattn_plan **result);

/* Takes the workspace, launches and explain texts of the graphs into their plan; an enqueue runs one of the graphs. */
clattn_status model_plan_finish(clattn_plan *plan, const struct graph *const *graphs, size_t count, const char *name);

/* bindings_check; arrays and workspace must be buffers, since graphs also fill and copy arrays. */
clattn_status model_bindings_check(clattn_context *context, const struct bound_array *arrays, size_t count,
                                   const clattn_binding *workspace);

#endif
