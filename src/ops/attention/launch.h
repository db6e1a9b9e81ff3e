/* An attention's enqueue: its arguments checked, what kernels are told, and their launches. */
#ifndef CLATTN_OPS_ATTENTION_LAUNCH_H
#define CLATTN_OPS_ATTENTION_LAUNCH_H

#include "ops/attention/plan.h"

/* The pointers that a kernel takes.  Query, key, value; the optional inputs; output, lse, entropy. */
#define ATTENTION_INPUTS (ATTENTION_INPUT_ARRAYS + CLATTN_USER_BUFFERS)
#define ATTENTION_POINTERS (3 + ATTENTION_INPUTS + 3)
/* Those of the scores' kernel: query, key; the optional inputs; lse, scores. */
#define ATTENTION_SCORES_POINTERS (2 + ATTENTION_INPUTS + 2)

/* Whether an array says which rows are an item's. */
static inline bool attention_is_length(enum attention_array array)
{
    return array >= ATTENTION_QUERY_LENGTHS && array <= ATTENTION_KEY_STARTS;
}

/* Whether there are no query rows; backward then writes zeros, and reads no input but lengths. */
static inline bool attention_is_empty(const struct attention_problem *problem, const clattn_attention_args *args)
{
    return !args->batch || !problem->heads || !args->query_length;
}

/* A copy of the caller's args with lengths filled in, all bindings checked that are used. */
clattn_status attention_args_read(clattn_context *context, const struct attention_problem *problem,
                                  const clattn_attention_args *given, clattn_attention_args *args);

/* Checks `whole`, of args with lengths filled in, and fills that in. */
clattn_status attention_read_whole(struct report *report, const struct attention_problem *problem,
                                   clattn_attention_args *args);

/* Fills what the kernels are told; `args` has passed attention_args_read. */
void attention_fill_args(const struct attention_problem *problem, const clattn_attention_args *args,
                         attention_args *kernel_args);

/* The optional array's binding, or NULL if the description lacks the array. */
const clattn_binding *attention_binding_or_null(const struct attention_problem *problem,
                                                const clattn_attention_args *args, enum attention_array array);

/* Lists the optional inputs that every attention kernel takes, in the kernels' order; NULL: absent (chain_launch). */
void attention_input_bindings(const struct attention_problem *problem, const clattn_attention_args *args,
                              const clattn_binding *bindings[ATTENTION_INPUTS]);

/* All launches of one enqueue.  `args` has passed attention_args_read. */
clattn_status attention_launch(const struct attention_plan *plan, const struct attention_problem *problem,
                               struct chain *chain, clattn_attention_args *args);

/* Floating-point operations of an enqueue, scores and output apart from what features add. */
double attention_work(const struct attention_problem *problem, const clattn_attention_args *args);

#endif
