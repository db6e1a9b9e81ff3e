/* Scaled dot-product attention.
 *
 *   S[b,h,i,j] = scale * sum_d query[b,h,i,d] * key[b,h/g,j,d]  (+ mask[b,h,i,j] where the mask is a float
 * one) O[b,h,i,:] = sum_j softmax_j(S[b,h,i,j] over the attended j) * value[b,h/g,j,:]
 *
 * with g = query heads / key-value heads (Vaswani et al. 2017, section 3.2.1; grouped heads: Ainslie et al.
 * 2023).  The scores are never written to memory.  A row that attends nothing is exactly +0 and its
 * log-sum-exp −inf.  A NaN, or a +inf score, makes its row NaN; a key that is not attended cannot
 * leak, whatever K holds there, nor can K and V beyond the actual lengths; V at such a key within the lengths
 * takes part with weight +0 and must be finite.  A finite large negative float mask (−1e4, −FLT_MAX) is an
 * ordinary addend and not a mask. */
#ifndef CLATTN_ATTENTION_H
#define CLATTN_ATTENTION_H

#include "plan.h"

CLATTN_BEGIN_DECLS

typedef enum clattn_direction {
    CLATTN_FORWARD = 0,
    CLATTN_DIRECTION_FORCE_32BIT = 0x7fffffff
} clattn_direction;

typedef enum clattn_scale_mode {
    CLATTN_SCALE_INVERSE_SQRT = 0, /* 1/sqrt(d_k) */
    CLATTN_SCALE_EXPLICIT = 1,     /* the field `scale`: any finite value, 0 and negative included */
    CLATTN_SCALE_FORCE_32BIT = 0x7fffffff
} clattn_scale_mode;

/* At which key position query 0 stands; query i stands i further.  Frameworks disagree, so it is one field.
 */
typedef enum clattn_alignment {
    CLATTN_ALIGN_TOP_LEFT = 0,     /* 0 */
    CLATTN_ALIGN_BOTTOM_RIGHT = 1, /* key length − query length, of the actual lengths; may be negative */
    CLATTN_ALIGN_EXPLICIT = 2,     /* clattn_attention_args.position */
    CLATTN_ALIGNMENT_FORCE_32BIT = 0x7fffffff
} clattn_alignment;

/* What to compute.  Set it up with CLATTN_ATTENTION_DESC_INIT.  Extents are the largest ones that an enqueue
 * may use. */
typedef struct clattn_attention_desc {
    size_t size;          /* sizeof(clattn_attention_desc) */
    int32_t direction;    /* clattn_direction */
    int32_t causal;       /* 1: query i attends keys up to its own position; 0 (default): all keys */
    int32_t alignment;    /* clattn_alignment; matters with `causal` */
    int32_t scale_mode;   /* clattn_scale_mode */
    float scale;          /* with CLATTN_SCALE_EXPLICIT */
    int32_t reserved;     /* 0 */
    clattn_layout query;  /* (batch, heads, S_q, d_k) */
    clattn_layout key;    /* (batch, kv_heads, S_k, d_k); heads is a multiple of kv_heads */
    clattn_layout value;  /* (batch, kv_heads, S_k, d_v) */
    clattn_layout output; /* (batch, heads, S_q, d_v) */
    clattn_layout mask; /* none, or rank <= 4, lower ranks get leading 1s: (batch or 1, heads or 1, S_q or 1,
                         * keys): CLATTN_BOOL (true = attend) or CLATTN_F32 (added).  Extent 1 broadcasts;
                         * 2 … S_k − 1 keys: those beyond are not attended.  A 1 where S_k is 1 is both. */
    clattn_layout lse;  /* none, or (batch, heads, S_q) CLATTN_F32: natural logarithm of the row's sum of
                         * exp(S) over the attended keys */
} clattn_attention_desc;

#define CLATTN_ATTENTION_DESC_INIT CLATTN_INIT(clattn_attention_desc)

/* What CLATTN_ATTENTION_DESC_INIT does.  NULL is accepted. */
CLATTN_API void clattn_attention_desc_init(clattn_attention_desc *desc);

/* Where the arrays are this time, and how much of them counts.  Set it up with CLATTN_ATTENTION_ARGS_INIT. */
typedef struct clattn_attention_args {
    size_t size; /* sizeof(clattn_attention_args) */
    clattn_binding query, key, value, mask, output, lse;
    int32_t explicit_lengths; /* 1: the three fields below count; 0 (default): the desc's extents */
    int32_t reserved;         /* 0 */
    size_t batch;             /* <= the desc's; 0 is allowed and does nothing */
    size_t query_length;      /* <= the desc's S_q; 0 is allowed and does nothing */
    size_t key_length;        /* <= the desc's S_k; 0 is allowed: all rows attend nothing */
    int64_t position;         /* with CLATTN_ALIGN_EXPLICIT: the key position of query 0 */
    clattn_binding workspace; /* at least clattn_plan_workspace_size bytes, `offset` in bytes and a multiple
                               * of 128; none (default): leased from the context */
} clattn_attention_args;

#define CLATTN_ATTENTION_ARGS_INIT CLATTN_INIT(clattn_attention_args)

/* What CLATTN_ATTENTION_ARGS_INIT does.  NULL is accepted. */
CLATTN_API void clattn_attention_args_init(clattn_attention_args *args);

/* Whether some solver on this context takes `desc`, from capabilities alone, in microseconds: nothing is
 * built and no message is written.  Returns SUCCESS, or why not: INVALID_ARGUMENT, INVALID_STRUCT,
 * INVALID_LAYOUT, OVERFLOW, UNSUPPORTED; *reason (may be NULL) is then a static string. */
CLATTN_API clattn_status clattn_attention_supports(clattn_context *context, const clattn_attention_desc *desc,
                                                   const char **reason);

/* Chooses a solver for `desc`, builds its kernels and runs each once with nothing to do.  Blocks: from a
 * millisecond (everything cached) to seconds (compiling).  `options` may be NULL.
 * After failure *plan is NULL.  Returns what supports does, and OUT_OF_MEMORY, OPENCL, BUILD, FORKED. */
CLATTN_API clattn_status clattn_attention_plan_create(clattn_context *context,
                                                      const clattn_attention_desc *desc,
                                                      const clattn_plan_options *options, clattn_plan **plan);

/* Enqueues the plan on `queue` (NULL: the context's), after `wait_count` events of `wait_list`; *event (may
 * be NULL) is an event that completes with the work and that the caller releases.  Asynchronous: never waits
 * and never finishes or flushes a queue.  In-order and out-of-order queues work alike.  Inputs may overlap
 * each other; an output may overlap nothing. With batch, heads or S_q 0 it succeeds, and the event is that of
 * a marker. After failure nothing that writes the caller's outputs has been enqueued, unless the status is
 * OPENCL. Returns INVALID_ARGUMENT, INVALID_STRUCT, OVERFLOW, WRONG_CONTEXT, BUFFER_TOO_SMALL, BUFFER_ACCESS,
 * BUSY, OUT_OF_MEMORY, OPENCL, FORKED. */
CLATTN_API clattn_status clattn_attention_enqueue(clattn_plan *plan, cl_command_queue queue,
                                                  const clattn_attention_args *args, cl_uint wait_count,
                                                  const cl_event *wait_list, cl_event *event);

/* Makes the plan that clattn_attention_run will want for `desc` and keeps it in the context's plan cache, so
 * that the run does not block.  Blocks and returns as plan_create does. */
CLATTN_API clattn_status clattn_attention_prewarm(clattn_context *context, const clattn_attention_desc *desc);

/* plan_create (through the context's plan cache) and enqueue in one call.  Blocks the first time a
 * description is seen, while it compiles, and is asynchronous from then on. */
CLATTN_API clattn_status clattn_attention_run(clattn_context *context, cl_command_queue queue,
                                              const clattn_attention_desc *desc,
                                              const clattn_attention_args *args, cl_uint wait_count,
                                              const cl_event *wait_list, cl_event *event);

CLATTN_END_DECLS

#endif
