/* Merging partial attentions over disjoint sets of keys: split keys, several devices, several machines.
 *
 * A partial is a normalised float32 output with its float32 log-sum-exp, as clattn_attention with `lse` gives it for
 * a part of the keys (without sinks: those enter once, here).  With L = log(sum_n exp(lse_n) + exp(sink)),
 *
 *   output[b,h,i,:] = sum_n exp(lse[n,b,h,i] - L) * partial[n,b,h,i,:]      n = 0, 1, ... in that order
 *
 * (Dao et al. 2023, "Flash-Decoding"; the identity is that of the blockwise softmax of Milakov and Gimelshein 2018.)
 * A partial whose lse is -inf has attended nothing and counts for nothing, whatever its output holds.  A row in which
 * all are so is +0 with lse -inf (with a sink: the sink's logit).  A NaN lse makes its row NaN. */
#ifndef CLATTN_MERGE_H
#define CLATTN_MERGE_H

#include "plan.h"

CLATTN_BEGIN_DECLS

/* What to compute.  Set it up with CLATTN_MERGE_DESC_INIT. */
typedef struct clattn_merge_desc {
    size_t size; /* sizeof(clattn_merge_desc) */
    clattn_direction direction;
    int32_t reserved;          /* 0 */
    clattn_layout partial;     /* (parts, batch, heads, S_q, d_v) CLATTN_DTYPE_F32 */
    clattn_layout partial_lse; /* (parts, batch, heads, S_q) CLATTN_DTYPE_F32 */
    clattn_layout sinks;       /* none, or (heads) CLATTN_DTYPE_F32 */
    clattn_layout output;      /* (batch, heads, S_q, d_v) float32, float16 or bfloat16 */
    clattn_layout lse;         /* none, or (batch, heads, S_q) CLATTN_DTYPE_F32: L */
} clattn_merge_desc;

#define CLATTN_MERGE_DESC_INIT CLATTN_INIT(clattn_merge_desc)

/* What CLATTN_MERGE_DESC_INIT does.  NULL is accepted. */
CLATTN_API void clattn_merge_desc_init(clattn_merge_desc *desc);

/* Where the arrays are.  Outputs overlap nothing. */
typedef struct clattn_merge_args {
    size_t size; /* sizeof(clattn_merge_args) */
    clattn_binding partial, partial_lse, sinks, output, lse;
    int32_t explicit_lengths; /* 1: the three fields below count; 0 (default): the desc's extents */
    int32_t reserved;         /* 0 */
    size_t parts;             /* <= the desc's; 0 is allowed: no row attends anything */
    size_t batch;             /* <= the desc's; 0 is allowed and does nothing */
    size_t query_length;      /* <= the desc's S_q; 0 is allowed and does nothing */
} clattn_merge_args;

#define CLATTN_MERGE_ARGS_INIT CLATTN_INIT(clattn_merge_args)

/* What CLATTN_MERGE_ARGS_INIT does.  NULL is accepted. */
CLATTN_API void clattn_merge_args_init(clattn_merge_args *args);

/* The five calls below behave as their namesakes in attention.h: contracts, blocking and statuses. */
CLATTN_API clattn_status clattn_merge_supports(clattn_context *context, const clattn_merge_desc *desc,
                                               const char **reason);
CLATTN_API clattn_status clattn_merge_plan_create(clattn_context *context, const clattn_merge_desc *desc,
                                                  const clattn_plan_options *options, clattn_plan **plan);
CLATTN_API clattn_status clattn_merge_enqueue(clattn_plan *plan, cl_command_queue queue, const clattn_merge_args *args,
                                              cl_uint wait_count, const cl_event *wait_list, cl_event *event);
CLATTN_API clattn_status clattn_merge_prewarm(clattn_context *context, const clattn_merge_desc *desc);
CLATTN_API clattn_status clattn_merge_run(clattn_context *context, cl_command_queue queue,
                                          const clattn_merge_desc *desc, const clattn_merge_args *args,
                                          cl_uint wait_count, const cl_event *wait_list, cl_event *event);

CLATTN_END_DECLS

#endif
