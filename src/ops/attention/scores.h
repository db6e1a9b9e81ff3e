/* The score matrix as an array: a second kernel of an attention's plan, and alone, with the log-sum-exp as an input, the
 * probabilities that multi-head attention offers. */
#ifndef CLATTN_OPS_ATTENTION_SCORES_H
#define CLATTN_OPS_ATTENTION_SCORES_H

#include "ops/attention/plan.h"

/* Adds the kernel of attention/cpu/scores.cl to the plan if `by_lanes` and it takes the problem, else attention/scores.cl's:
 * `weights` is what it writes, (batch, heads, S_q, S_k), heads 1 with `average`.  *tile is for attention_scores_groups. */
clattn_status attention_scores_add_kernel(clattn_plan *plan, const struct attention_problem *problem,
                                          const clattn_layout *weights, int32_t mode, bool average, bool by_lanes,
                                          struct scores_tile *tile);

/* The work-groups of a launch. */
void attention_scores_groups(const struct scores_tile *tile, const attention_args *kernel_args, bool average,
                             size_t groups[3]);

/* attention.lse is an input here, and must be there.  `average`: the mean over heads.
 * weights: (batch, heads, S_q, S_k) float32, heads 1 when averaged. */
clattn_status attention_weights_supports(clattn_context *context, const clattn_attention_desc *attention,
                                         const clattn_layout *weights, bool average, const char **reason);
clattn_status attention_weights_plan_create(clattn_context *context, const clattn_attention_desc *attention,
                                            const clattn_layout *weights, bool average, clattn_plan **plan);

/* `args` are those of the attention, whose query, key, mask and lse are read. */
clattn_status attention_weights_enqueue(const clattn_plan *plan, const struct enqueue_call *call,
                                        const clattn_attention_args *args, const clattn_binding *weights);

#endif
