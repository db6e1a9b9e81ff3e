/* An attention's enqueue: its arguments checked, what kernels are told, and their launches. */
#ifndef CLATTN_OPS_ATTENTION_LAUNCH_H
#define CLATTN_OPS_ATTENTION_LAUNCH_H

#include "ops/attention/plan.h"

/* The most pointers that a kernel takes: four arrays, the optional ones, the user's, `cancel`. */
#define ATTENTION_POINTERS (4 + ATTENTION_ARRAYS + CLATTN_USER_BUFFERS + 1)

/* A copy of the caller's args with lengths filled in, all bindings checked. */
clattn_status attention_args_read(clattn_context *context, const struct attention_problem *problem,
                                  const clattn_attention_args *given, clattn_attention_args *args);

/* Fills what the kernels are told, for one launch of everything; `args` has passed attention_args_read. */
void attention_fill_args(const struct attention_problem *problem, const clattn_attention_args *args,
                         attention_args *kernel_args);

/* Appends the optional inputs that every attention kernel takes, in the kernels' order; returns the new count. */
size_t attention_input_bindings(const struct attention_problem *problem, const clattn_attention_args *args,
                                const clattn_binding **bindings, size_t count);

/* How many pointers those are. */
size_t attention_input_count(const struct attention_problem *problem);

/* All launches of one enqueue; the plan's lock is held.  `args` has passed attention_args_read. */
clattn_status attention_launch(const struct attention_plan *plan, const struct attention_problem *problem,
                               struct chain *chain, clattn_attention_args *args);

/* ---- launches of at most desc.launch.max_ms ---- */

/* What one launch takes at the most. */
struct attention_slices {
    size_t batch, heads, queries;
};

/* Into what pieces a launch for the given lengths is cut. */
struct attention_slices attention_slice(const struct attention_plan *plan, const struct attention_problem *problem,
                                        size_t batch, size_t queries, size_t keys);

/* Makes `kernel_args` the next launch's range of `whole`, which attention_fill_args has filled; false if there is none.
 * *position starts at 0. */
bool attention_next_slice(const struct attention_slices *slices, const attention_args *whole, size_t *position,
                          attention_args *kernel_args);

/* How many launches there are. */
size_t attention_slice_count(const struct attention_slices *slices, const attention_args *whole);

#endif
