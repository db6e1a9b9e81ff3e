/* What plans of whole models have in common: encoders, decoders, and blocks made as graphs. */
#ifndef CLATTN_NN_STACK_MODEL_PLAN_H
#define CLATTN_NN_STACK_MODEL_PLAN_H

#include "nn/graph/graph.h"
#include "nn/model/model.h"

#define WHOLE_BATCH_LIMIT ((size_t)65536)
#define WHOLE_LENGTH_LIMIT ((size_t)1 << 30)

/* What plan_create begins with: the model is one of this process, and there is a place for the result, which is nulled. */
clattn_status whole_create_check(const clattn_transformer *model, clattn_plan **result);

/* Takes finished graphs' workspace, launches and explain texts into their plan: of an enqueue that is one of them. */
clattn_status whole_plan_made(clattn_plan *plan, const struct graph *const *graphs, size_t count, const char *name);

/* A binding of an enqueue.  Buffers only: graphs fill and copy, too. */
struct whole_array {
    const clattn_binding *binding;
    const char *name;
    const clattn_layout *layout; /* NULL: of the workspace, which chain_begin checks */
    const size_t *extent;
    enum binding_access access;
    bool known; /* the plan has such an array; otherwise none may be bound */
    bool required;
};
clattn_status whole_check_arrays(clattn_context *context, const struct whole_array *arrays, size_t count);

/* Host memory for `count` integers, which are 0. */
clattn_status whole_integers(clattn_context *context, size_t count, int32_t **integers);
void whole_integers_free(int32_t **integers);

#endif
