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

typedef enum clattn_score {
    CLATTN_SCORE_DOT = 0,
    CLATTN_SCORE_ADDITIVE = 1,
    CLATTN_SCORE_FORCE_32BIT = 0x7fffffff
} clattn_score;

/* At which key position query 0 of a batch item stands; query i stands i further.  Frameworks disagree, so it
 * is one field.  Never clamped: leading rows may attend nothing. */
typedef enum clattn_alignment {
    CLATTN_ALIGNMENT_TOP_LEFT = 0,     /* 0 */
    CLATTN_ALIGNMENT_BOTTOM_RIGHT = 1, /* the item's key length - its query length; may be negative */
    CLATTN_ALIGNMENT_EXPLICIT = 2,     /* clattn_attention_args.position, plus positions[b] where there are some */
    CLATTN_ALIGNMENT_FORCE_32BIT = 0x7fffffff
} clattn_alignment;

/* What `scores` gets. */
typedef enum clattn_scores_mode {
    CLATTN_SCORES_MODE_RAW = 0,           /* the scaled score of every key within the item's lengths, attended or not;
                                      * beyond them +0 */
    CLATTN_SCORES_MODE_CAPPED = 1,        /* the same after softcap */
    CLATTN_SCORES_MODE_BIASED = 2,        /* after score_mod, bias, ALiBi and mask; -inf where a key is not attended */
    CLATTN_SCORES_MODE_PROBABILITIES = 3, /* P before dropout; +0 where a key is not attended */
    CLATTN_SCORES_MODE_FORCE_32BIT = 0x7fffffff
} clattn_scores_mode;

#define CLATTN_USER_BUFFERS 4
#define CLATTN_SNIPPET_LIMIT 8192

/* What to compute.  Set it up with CLATTN_ATTENTION_DESC_INIT; a group of fields that stays zeroed asks for nothing.
 * Extents are the largest ones that an enqueue may use.
 *
 * Storage: query, key, value and output are each float32, float16 or bfloat16, or all four float64 if the device has it;
 * key and value also int8 or int4 with cache.key_scale and cache.value_scale.  The state (scores, running maximum, sum,
 * accumulator) is float32, with float64 arrays float64.
 *
 * Integer arrays (lengths, positions, starts, block_table) are int32 or int64 on the device, each its own; values out of
 * range are clamped into it, never trusted with an address. */
typedef struct clattn_attention_desc {
    size_t size; /* sizeof(clattn_attention_desc) */
    clattn_direction direction;
    int32_t causal;             /* 1: query i attends keys j <= p; 0 (default): all keys */
    clattn_alignment alignment; /* matters with `causal`, `window` and `scoring.alibi` */
    int32_t short_mask;         /* 1: `mask` and `bias` may have 2 ... S_k - 1 keys, and the keys beyond them are not
                                 * attended (ONNX); 0 (default): such an array is refused */
    clattn_layout query;        /* (batch, heads, S_q, d_k) */
    clattn_layout key;          /* (batch, kv_heads, S_k, d_k); heads is a multiple of kv_heads */
    clattn_layout value;        /* (batch, kv_heads, S_k, d_v) */
    clattn_layout output;       /* (batch, heads, S_q, d_v) */
    clattn_layout mask; /* none, or rank <= 4, lower ranks get leading 1s: (batch or 1, heads or 1, S_q or 1, S_k or 1):
                         * bool (true = attend) or float32, float16, bfloat16 (added), with float64 query, key, value and
                         * output also float64.  Extent 1 broadcasts.  With lengths.query_starts S_q is here
                         * lengths.longest_query */
    clattn_layout bias; /* none, or as a float mask, added besides the mask */

    /* Which keys a query attends by their distance: p - left <= j <= p + right. */
    struct {
        int32_t explicit_left,
            explicit_right;  /* 1: the field of that name counts; 0 (default): unbounded on that side */
        int64_t left, right; /* >= 0 */
    } window;

    /* From query and key to a score. */
    struct {
        clattn_score kind;
        int32_t explicit_scale; /* 1: `scale` counts; 0 (default): 1/sqrt(d_k), with additive attention 1 */
        float scale;            /* any finite value, 0 and negative included */
        float softcap;          /* 0 (default): none; otherwise positive and finite */
        clattn_layout vector;   /* with CLATTN_SCORE_ADDITIVE: (heads or 1, d_k) float32 */
        clattn_layout alibi;    /* none, or (heads) or (batch or 1, heads) float32 slopes */
        clattn_layout sinks;    /* none, or (heads) float32: one more logit in each row's softmax, without a value */
    } scoring;

    /* The caller's own functions in OpenCL C.  They are trusted: they run on the device with the kernel's rights and can
     * read and write whatever the kernel can.  Each is at most CLATTN_SNIPPET_LIMIT - 1 characters, copied.  They may use
     * helper functions; names in capitals are the library's.  `query` and `key` are the item's own indices.  The first line
     * of a build's message says what is wrong with the text as "score_mod:LINE: ...", or as "score_mod: ..." if it defines
     * no function of that name.
     *
     * `user_data user` is a struct with the members
     *   const global T *buffer0 ... *buffer3     those that buffer_dtype describes, at the offset of their binding
     *   float scalar0 ... scalar3                args.snippets.scalar
     *   long position                            the key position of the item's query 0
     *   int query_length, key_length             the item's own */
    struct {
        const char *score_mod; /* NULL, or text that defines
                                *   float score_mod(float score, int batch, int head, int query, int key, user_data user) */
        const char *mask_mod;  /* NULL, or text that defines
                                *   int mask_mod(int batch, int head, int query, int key, user_data user)
                                * which returns 0 for "do not attend" */
        clattn_dtype
            buffer_dtype[CLATTN_USER_BUFFERS]; /* what user.buffer0 ... user.buffer3 point to, as `const global T *`;
                                * CLATTN_DTYPE_NONE (default): there is no such buffer.  float32 is float, float16 half,
                                * bfloat16 ushort, bool and uint8 uchar, int8 char, int32 int, int64 long */
    } snippets;

    /* Lengths of each batch item; without them all items have the args' lengths. */
    struct {
        clattn_layout query;        /* none, or (batch): query rows beyond are written as rows that attend nothing */
        clattn_layout key;          /* none, or (batch); none counts for more than args.key_length, except a ring's */
        clattn_layout positions;    /* none, or (batch), with CLATTN_ALIGNMENT_EXPLICIT: added to args.position */
        clattn_layout query_starts; /* none, or (batch + 1): packed sequences.  Query, output and outputs.lse then have
                                     * batch 1 and S_q rows in all; item b owns rows query_starts[b] ...
                                     * query_starts[b+1] - 1, of which the first args.query_length count; rows that no item
                                     * owns keep what they held, in output, lse and entropy */
        clattn_layout key_starts;   /* the same for key and value; not with a ring or pages */
        size_t longest_query;       /* with query_starts: no item has more rows; 0 (default): S_q */
    } lengths;

    /* How keys and values are kept. */
    struct {
        clattn_cache_kind kind;
        int32_t reserved;          /* 0 */
        clattn_layout block_table; /* with CLATTN_CACHE_KIND_PAGED: (batch, blocks); S_k is blocks * page_size */
        clattn_layout
            key_scale; /* with int8 or int4 keys: (batch, kv_heads, S_k, groups) float32 or float16, indexed as
                                    * the keys are (pages included): key = integer * scale[.., d / (d_k / groups)], groups a
                                    * divisor of d_k.  A stride of 0 shares scales */
        clattn_layout value_scale; /* the same for the values, groups a divisor of d_v */
    } cache;

    /* Results besides the output. */
    struct {
        clattn_layout
            lse; /* none, or (batch, heads, S_q) float32: natural logarithm of the row's sum of exp(s) over the
                                * attended keys, and of its sink's.  With CLATTN_SCORES_MODE_PROBABILITIES kernels read it,
                                * too */
        clattn_layout entropy; /* none, or as lse: -sum_j P ln P in nats, P before dropout; 0 if nothing is attended */
        clattn_layout scores;  /* none, or (batch, heads, S_q, S_k) float32, float16 or bfloat16, by `scores_mode`; for
                                * looking at: a second kernel computes them.  Not with packed sequences or a ring */
        clattn_scores_mode scores_mode;
        int32_t reserved; /* 0 */
    } outputs;

    /* Dropout: P becomes 0 with this probability and P / (1 - probability) otherwise, by clattn_dropout_keep. */
    struct {
        float probability; /* 0 (default) <= probability < 1 */
        int32_t reserved;  /* 0 */
    } dropout;

    /* How the work is launched. */
    struct {
        uint32_t max_ms; /* long launches are cut along batch, heads and queries into pieces of about this many
                              * milliseconds, by an estimate from the device's capabilities that errs on the short side;
                              * 0 (default): one launch */
        int32_t
            cancellable; /* 1: args.cancel is bound: a buffer with one int32.  Each launch that finds it other than 0 when
                              * it starts does nothing; the outputs are then unspecified.  Write it through another queue
                              * than the attention's, whose in-order write would wait for the work to end, and set max_ms,
                              * or there is but one launch to skip */
    } launch;
} clattn_attention_desc;

#define CLATTN_ATTENTION_DESC_INIT CLATTN_INIT(clattn_attention_desc)

/* What CLATTN_ATTENTION_DESC_INIT does.  NULL is accepted. */
CLATTN_API void clattn_attention_desc_init(clattn_attention_desc *desc);

/* Where the arrays are this time, and how much of them counts: a binding for each layout of the description, under the same
 * name.  Set it up with CLATTN_ATTENTION_ARGS_INIT. */
typedef struct clattn_attention_args {
    size_t size; /* sizeof(clattn_attention_args) */
    clattn_binding query, key, value, output, mask, bias;
    int32_t explicit_lengths; /* 1: the three fields below count; 0 (default): the desc's extents */
    int32_t reserved;         /* 0 */
    size_t batch;             /* <= the desc's; 0 is allowed and does nothing */
    size_t query_length;      /* <= the desc's S_q (packed: longest_query); 0 is allowed and does nothing */
    size_t key_length;        /* <= the desc's S_k; 0 is allowed: all rows attend nothing.  With a ring all keys ever
                               * appended, at most 2^31 - 65537; with a ring and lengths.key it does not count */
    int64_t position;         /* with CLATTN_ALIGNMENT_EXPLICIT: the key position of query 0 */
    clattn_binding
        workspace; /* at least clattn_plan_workspace_size bytes that kernels may read and write, `offset` in bytes
                               * and a multiple of 128; none (default): leased from the context */
    struct {
        clattn_binding vector, alibi, sinks;
    } scoring;
    struct {
        clattn_binding query, key, positions, query_starts, key_starts;
    } lengths;
    struct {
        clattn_binding block_table, key_scale, value_scale;
    } cache;
    struct {
        clattn_binding lse, entropy, scores;
    } outputs;
    struct {
        clattn_binding buffer[CLATTN_USER_BUFFERS]; /* what the caller's functions read; sizes are not checked */
        float scalar[CLATTN_USER_BUFFERS];          /* user.scalar0 ... user.scalar3 */
    } snippets;
    struct {
        uint64_t seed;
        uint32_t offset;  /* which of the seed's masks */
        int32_t reserved; /* 0 */
    } dropout;
    clattn_binding cancel; /* with launch.cancellable */
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
