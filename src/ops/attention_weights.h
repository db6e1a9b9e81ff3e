/* The probabilities of an attention as an array, from its log-sum-exp: for the models and people who want to
 * look at them.  Inside only: multi-head attention offers it as an output. */
#ifndef CLATTN_OPS_ATTENTION_WEIGHTS_H
#define CLATTN_OPS_ATTENTION_WEIGHTS_H

#include "ops/attention.h"

/* attention.lse is an input here, and must be there.  `average`: the mean over heads.
 * weights: (batch, heads, S_q, S_k) float32, heads 1 when averaged. */
clattn_status attention_weights_supports(clattn_context *context, const clattn_attention_desc *attention,
                                         const clattn_layout *weights, bool average, const char **reason);
clattn_status attention_weights_plan_create(clattn_context *context, const clattn_attention_desc *attention,
                                            const clattn_layout *weights, bool average, clattn_plan **plan);

/* `args` are those of the attention, whose query, key, mask and lse are read. */
clattn_status attention_weights_enqueue(clattn_plan *plan, cl_command_queue queue,
                                        const clattn_attention_args *args, const clattn_binding *weights,
                                        cl_uint wait_count, const cl_event *wait_list, cl_event *event);

#endif
