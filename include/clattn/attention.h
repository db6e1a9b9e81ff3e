/* Attention.
 *
 *   s    = scale * sum_d query[b,h,i,d] * key[b,h/g,j,d]              CLATTN_SCORE_DOT
 *          scale * sum_d vector[h,d] * tanh(query[..] + key[..])     CLATTN_SCORE_ADDITIVE
 *   s    = softcap * tanh(s / softcap)                               with softcap
 *   s    = score_mod(s, b, h, i, j)                                  with score_mod
 *   s   += bias[b,h,i,j]  - slope[b,h] * |p - j|  + mask[b,h,i,j]    with a bias, ALiBi, a float mask
 *   P    = softmax over the attended keys j (and the sink's logit), dropped out with dropout
 *   output[b,h,i,:] = sum_j P[b,h,i,j] * value[b,h/g,j,:]
 *
 * with g = query heads / key-value heads and p = i + the item's position (clattn_alignment).  Sources: dot
 * products: Vaswani et al. 2017, section 3.2.1; additive: Bahdanau et al. 2015 (query and key already
 * projected); grouped heads: Ainslie et al. 2023; ALiBi: Press et al. 2022; softcap: Gemma 2, 2024; sinks:
 * Xiao et al. 2024, as a learned logit per head.
 *
 * A key is attended if it lies within the item's lengths and the boolean mask, a float mask or bias that is
 * not -inf there, causality, the window and mask_mod all let it.  These rules compose without exception; which
 * fields do not go together is said at the fields and listed at the end of docs/attention.md.  The scores are never
 * written to memory unless asked for.  A row that attends nothing is exactly +0 and its log-sum-exp -inf (with a
 * sink: the sink's logit).  A NaN, or a +inf score, makes its row NaN; a key that is not attended cannot
 * leak, whatever K holds there, nor can K and V beyond the actual lengths; V at such a key within the lengths
 * takes part with weight +0 and must be finite.  A finite large negative float mask (-1e4, -FLT_MAX) is an
 * ordinary addend and not a mask. */
#ifndef CLATTN_ATTENTION_H
#define CLATTN_ATTENTION_H

#include "plan.h"

CLATTN_BEGIN_DECLS

typedef enum clattn_direction { CLATTN_FORWARD = 0, CLATTN_DIRECTION_FORCE_32BIT = 0x7fffffff } clattn_direction;

typedef enum clattn_scale_mode {
    CLATTN_SCALE_DEFAULT = 0,  /* 1/sqrt(d_k) for dot products, 1 for additive attention */
    CLATTN_SCALE_EXPLICIT = 1, /* the field `scale`: any finite value, 0 and negative included */
    CLATTN_SCALE_FORCE_32BIT = 0x7fffffff
} clattn_scale_mode;

typedef enum clattn_score {
    CLATTN_SCORE_DOT = 0,
    CLATTN_SCORE_ADDITIVE = 1,
    CLATTN_SCORE_FORCE_32BIT = 0x7fffffff
} clattn_score;

/* At which key position query 0 of a batch item stands; query i stands i further.  Frameworks disagree, so it
 * is one field.  Never clamped: leading rows may attend nothing. */
typedef enum clattn_alignment {
    CLATTN_ALIGN_TOP_LEFT = 0,     /* 0 */
    CLATTN_ALIGN_BOTTOM_RIGHT = 1, /* the item's key length - its query length; may be negative */
    CLATTN_ALIGN_EXPLICIT = 2,     /* clattn_attention_args.position, plus positions[b] where there are some */
    CLATTN_ALIGNMENT_FORCE_32BIT = 0x7fffffff
} clattn_alignment;

/* What `scores` gets. */
typedef enum clattn_scores_mode {
    CLATTN_SCORES_RAW = 0,           /* the scaled score of every key within the item's lengths, attended or not;
                                      * beyond them +0 */
    CLATTN_SCORES_CAPPED = 1,        /* the same after softcap */
    CLATTN_SCORES_BIASED = 2,        /* after score_mod, bias, ALiBi and mask; -inf where a key is not attended */
    CLATTN_SCORES_PROBABILITIES = 3, /* P before dropout; +0 where a key is not attended */
    CLATTN_SCORES_FORCE_32BIT = 0x7fffffff
} clattn_scores_mode;

/* How the keys lie in `key` and `value`. */
typedef enum clattn_cache_kind {
    CLATTN_CACHE_PLAIN = 0, /* key j in row j */
    CLATTN_CACHE_RING = 1,  /* key j in row j mod S_k, the last S_k keys being held.  Lengths count all keys
                             * ever appended and may exceed S_k; older keys are not attended.  No mask or bias with
                             * more than one key, no scores */
    CLATTN_CACHE_PAGED = 2, /* `key` is (pages, kv_heads, page_size, d_k), `value` alike; key j of item b in
                             * row j mod page_size of page block_table[b, j / page_size] */
    CLATTN_CACHE_KIND_FORCE_32BIT = 0x7fffffff
} clattn_cache_kind;

#define CLATTN_USER_BUFFERS 4
#define CLATTN_SNIPPET_LIMIT 8192

/* What to compute.  Set it up with CLATTN_ATTENTION_DESC_INIT.  Extents are the largest ones that an enqueue
 * may use.
 *
 * Storage: query, key, value and output are each float32, float16 or bfloat16, or all four float64 where the
 * device has it; key and value also int8 or int4 with key_scale and value_scale.  The state (scores, running
 * maximum, sum, accumulator) is float32, with float64 arrays float64.
 *
 * Integer arrays (lengths, positions, starts, block_table) are int32 or int64 on the device, each its own; values
 * out of range are clamped into it, never trusted with an address. */
typedef struct clattn_attention_desc {
    size_t size;          /* sizeof(clattn_attention_desc) */
    int32_t direction;    /* clattn_direction */
    int32_t causal;       /* 1: query i attends keys j <= p; 0 (default): all keys */
    int32_t alignment;    /* clattn_alignment; matters with `causal`, `windowed` and `alibi` */
    int32_t scale_mode;   /* clattn_scale_mode */
    float scale;          /* with CLATTN_SCALE_EXPLICIT */
    int32_t score;        /* clattn_score */
    clattn_layout query;  /* (batch, heads, S_q, d_k) */
    clattn_layout key;    /* (batch, kv_heads, S_k, d_k); heads is a multiple of kv_heads */
    clattn_layout value;  /* (batch, kv_heads, S_k, d_v) */
    clattn_layout output; /* (batch, heads, S_q, d_v) */
    clattn_layout mask;   /* none, or rank <= 4, lower ranks get leading 1s: (batch or 1, heads or 1, S_q or 1,
                             * keys): CLATTN_BOOL (true = attend) or float32, float16, bfloat16 (added), with float64
                             * query, key, value and output also float64.  Extent 1
                             * broadcasts; 2 ... S_k - 1 keys: those beyond are not attended.  A 1 where S_k is 1 is
                             * both. */
    clattn_layout lse;    /* none, or (batch, heads, S_q) CLATTN_F32: natural logarithm of the row's sum of
                             * exp(s) over the attended keys, and of its sink's.  With CLATTN_SCORES_PROBABILITIES
                             * kernels read it, too */
    /* Scores. */
    float softcap;         /* 0 (default): none; otherwise positive and finite */
    int32_t windowed;      /* 1: the two fields below count: p - window_left <= j <= p + window_right */
    int64_t window_left;   /* -1: unbounded */
    int64_t window_right;  /* -1: unbounded */
    clattn_layout bias;    /* none, or as a float mask, added besides the mask */
    clattn_layout alibi;   /* none, or (heads) or (batch or 1, heads) CLATTN_F32 slopes */
    clattn_layout sinks;   /* none, or (heads) CLATTN_F32: one more logit in each row's softmax, without a value */
    clattn_layout vector;  /* with CLATTN_SCORE_ADDITIVE: (heads or 1, d_k) CLATTN_F32 */
    const char *score_mod; /* NULL, or OpenCL C that defines
                             *   float score_mod(float score, int batch, int head, int query, int key,
                             *                   user_data user)
                             * Trusted code: it runs on the device with the kernel's rights and can read and write
                             * whatever the kernel can.  At most CLATTN_SNIPPET_LIMIT - 1 characters, copied.  May
                             * use helper functions; names in capitals are the library's.  `query` and `key` are the
                             * item's own indices.  The first line of a build's message says what is wrong with
                             * the text as "score_mod:LINE: ...", or as "score_mod: ..." where no function of that
                             * name is defined. */
    const char *mask_mod;  /* NULL, or the same for
                             *   int mask_mod(int batch, int head, int query, int key, user_data user)
                             * where 0 is "do not attend" */
    /* `user_data user`, which the two functions get, is a struct with the members
     *   const global T *buffer0 ... *buffer3     those that user_dtype describes, at the offset of their binding
     *   float scalar0 ... scalar3                args.user_scalar
     *   long position                            the key position of the item's query 0
     *   int query_length, key_length             the item's own */
    int32_t user_dtype[CLATTN_USER_BUFFERS]; /* what user.buffer0 ... user.buffer3 point to, as `const global T *`;
                             * CLATTN_DTYPE_NONE (default): there is no such buffer.  float32 is float, float16 half,
                             * bfloat16 ushort, bool and uint8 uchar, int8 char, int32 int, int64 long */
    /* Lengths of each batch item; without them all items have the args' lengths. */
    clattn_layout query_lengths; /* none, or (batch): query rows beyond are written as rows that attend nothing */
    clattn_layout key_lengths;   /* none, or (batch); none counts for more than args.key_length, but for a ring's */
    clattn_layout positions;     /* none, or (batch), with CLATTN_ALIGN_EXPLICIT: added to args.position */
    clattn_layout query_starts;  /* none, or (batch + 1): packed sequences.  Query, output and lse then have batch 1
                                  * and S_q rows in all; item b owns rows query_starts[b] ... query_starts[b+1] - 1, of which
                                  * the first query_length count; what no item owns keeps what it held, in output,
                                  * lse and entropy */
    clattn_layout key_starts;    /* the same for key and value; not with a ring or pages */
    size_t longest_query;        /* with query_starts: no item has more rows; 0 (default): S_q */
    /* The cache of keys and values. */
    int32_t cache;             /* clattn_cache_kind */
    int32_t scores_mode;       /* clattn_scores_mode */
    clattn_layout block_table; /* with CLATTN_CACHE_PAGED: (batch, blocks); S_k is blocks * page_size */
    clattn_layout key_scale;   /* with int8 or int4 keys: (batch, kv_heads, S_k, groups) float32 or float16, indexed
                                  * as the keys are (pages included): key = integer * scale[.., d / (d_k / groups)],
                                  * groups a divisor of d_k.  A stride of 0 shares scales */
    clattn_layout value_scale; /* the same for the values, groups a divisor of d_v */
    /* More outputs. */
    clattn_layout scores;  /* none, or (batch, heads, S_q, S_k) float32, float16 or bfloat16, by `scores_mode`;
                                  * for looking at: a second kernel computes them.  Not with packed sequences or a ring */
    clattn_layout entropy; /* none, or as lse: -sum_j P ln P in nats, P before dropout; 0 where nothing is
                                  * attended */
    /* Dropout: P becomes 0 with this probability and P / (1 - dropout) otherwise, by clattn_dropout_keep. */
    float dropout; /* 0 (default) <= dropout < 1 */
    /* Long launches are cut along batch, heads and queries into pieces of about this many milliseconds, by an
     * estimate from the device's capabilities that errs on the short side; 0 (default): one launch. */
    uint32_t max_launch_ms;
    int32_t cancellable; /* 1: args.cancel is bound: a buffer with one int32.  Each launch that finds it other
                                  * than 0 when it starts does nothing; the outputs are then unspecified.  Write it
                                  * through another queue than the attention's, whose in-order write would wait for
                                  * the work to end, and set max_launch_ms, or there is but one launch to skip */
    int32_t reserved;    /* 0 */
} clattn_attention_desc;

#define CLATTN_ATTENTION_DESC_INIT CLATTN_INIT(clattn_attention_desc)

/* What CLATTN_ATTENTION_DESC_INIT does.  NULL is accepted. */
CLATTN_API void clattn_attention_desc_init(clattn_attention_desc *desc);

/* Where the arrays are this time, and how much of them counts.  Set it up with CLATTN_ATTENTION_ARGS_INIT. */
typedef struct clattn_attention_args {
    size_t size; /* sizeof(clattn_attention_args) */
    clattn_binding query, key, value, mask, output, lse;
    int32_t explicit_lengths; /* 1: the three fields below count; 0 (default): the desc's extents */
    uint32_t dropout_offset;  /* with dropout: which of the seed's masks */
    size_t batch;             /* <= the desc's; 0 is allowed and does nothing */
    size_t query_length;      /* <= the desc's S_q (packed: longest_query); 0 is allowed and does nothing */
    size_t key_length;        /* <= the desc's S_k; 0 is allowed: all rows attend nothing.  With a ring all keys ever
                               * appended, at most 2^31 - 65537; with a ring and key_lengths it does not count */
    int64_t position;         /* with CLATTN_ALIGN_EXPLICIT: the key position of query 0 */
    clattn_binding workspace; /* at least clattn_plan_workspace_size bytes that kernels may read and write,
                               * `offset` in bytes and a multiple of 128; none (default): leased from the context */
    clattn_binding bias, alibi, sinks, vector, query_lengths, key_lengths, positions, query_starts, key_starts,
        block_table, key_scale, value_scale, scores, entropy;
    clattn_binding cancel;                    /* with `cancellable` */
    clattn_binding user[CLATTN_USER_BUFFERS]; /* what the user's functions read; sizes are not checked */
    float user_scalar[CLATTN_USER_BUFFERS];   /* user.scalar0 ... user.scalar3 */
    uint64_t dropout_seed;                    /* with dropout */
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
CLATTN_API clattn_status clattn_attention_plan_create(clattn_context *context, const clattn_attention_desc *desc,
                                                      const clattn_plan_options *options, clattn_plan **plan);

/* Enqueues the plan on `queue` (NULL: the context's), after `wait_count` events of `wait_list`; *event (may
 * be NULL) is an event that completes with the work and that the caller releases.  Asynchronous: never waits
 * and never finishes or flushes a queue.  In-order and out-of-order queues work alike.  Inputs may overlap
 * each other; an output may overlap nothing. With batch, heads or S_q 0 it succeeds, and the event is that of
 * a marker. After failure nothing that writes the caller's outputs has been enqueued, unless the status is
 * OPENCL or OUT_OF_MEMORY. A need over the context's workspace_limit without a workspace of the caller's is
 * OUT_OF_MEMORY.  Returns INVALID_ARGUMENT, INVALID_STRUCT, OVERFLOW, UNSUPPORTED (an SVM binding on a device
 * without), WRONG_CONTEXT, BUFFER_TOO_SMALL, BUFFER_ACCESS, BUSY, OUT_OF_MEMORY, OPENCL, FORKED. */
CLATTN_API clattn_status clattn_attention_enqueue(clattn_plan *plan, cl_command_queue queue,
                                                  const clattn_attention_args *args, cl_uint wait_count,
                                                  const cl_event *wait_list, cl_event *event);

/* Makes the plan that clattn_attention_run will want for `desc` and keeps it in the context's plan cache, so
 * that the run does not block.  Blocks and returns as plan_create does. */
CLATTN_API clattn_status clattn_attention_prewarm(clattn_context *context, const clattn_attention_desc *desc);

/* plan_create (through the context's plan cache) and enqueue in one call.  Blocks the first time a
 * description is seen, while it compiles, and is asynchronous from then on. */
CLATTN_API clattn_status clattn_attention_run(clattn_context *context, cl_command_queue queue,
                                              const clattn_attention_desc *desc, const clattn_attention_args *args,
                                              cl_uint wait_count, const cl_event *wait_list, cl_event *event);

/* Whether dropout keeps the probability of batch item `batch`, head `head`, query `query` and key `key` (the item's
 * own indices): the same on every device and for every solver.  Philox4x32-10 (Salmon et al. 2011) with the
 * seed as key and (key / 4, query, batch * heads + head, offset) as counter; word key % 4 of the result, divided by 2^32, is
 * compared with `dropout`: below it the probability is dropped.  Thread-safe. */
CLATTN_API int clattn_dropout_keep(uint64_t seed, uint32_t offset, float dropout, uint32_t heads, uint32_t batch,
                                   uint32_t head, uint32_t query, uint32_t key);

CLATTN_END_DECLS

#endif
