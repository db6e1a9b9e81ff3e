/** @file
 * Attention: every query is compared with the keys and takes the weighted mean of their values.
 *
 *     s   = scale * sum_d query[b,h,i,d] * key[b,h/g,j,d]              CLATTN_SCORE_DOT
 *           scale * sum_d vector[h,d] * tanh(query[...] + key[...])    CLATTN_SCORE_ADDITIVE
 *     s   = softcap * tanh(s / softcap)                                if there is a softcap
 *     s   = score_mod(s, b, h, i, j)                                   if there is a score_mod
 *     s  += bias[b,h,i,j] - slope[b,h] * |p - j| + mask[b,h,i,j]       if there are a bias, ALiBi, a float mask
 *     P   = softmax of s over the attended keys j (and the sink's logit), then dropout
 *     output[b,h,i,:] = sum_j P[b,h,i,j] * value[b,h/g,j,:]
 *
 * Here g = heads / kv_heads, and p = i + the item's position (clattn_alignment).
 *
 * A key is attended if all of these allow it: the item's lengths, the boolean mask, a float mask and a bias that are
 * not -inf there, causality, the window, and mask_mod. These rules compose without exception. Fields that do not go
 * together say so, and docs/attention.md lists them.
 *
 * - A row that attends nothing is exactly +0, and its log-sum-exp is -inf (with a sink: the sink's logit).
 * - A NaN, or a score of +inf, makes its whole row NaN.
 * - A key that is not attended cannot leak into the output, whatever `key` holds there. Nor can anything that `key`
 *   and `value` hold beyond the actual lengths.
 * - The value of a masked key within the lengths takes part with weight +0, and must therefore be finite.
 * - A finite large negative float mask (-1e4, -FLT_MAX) is an ordinary addend and excludes nothing.
 *
 * Scores are never written to memory unless `outputs.scores` asks for them.
 *
 * Sources: dot products, Vaswani et al. 2017, section 3.2.1; additive scores, Bahdanau et al. 2015 (query and key come
 * already projected); grouped heads, Ainslie et al. 2023; ALiBi, Press et al. 2022; softcap, Gemma 2, 2024; sinks,
 * Xiao et al. 2024, as one learned logit for each head.
 */
#ifndef CLATTN_ATTENTION_H
#define CLATTN_ATTENTION_H

#include "plan.h"

CLATTN_BEGIN_DECLS

/** How a query is compared with a key. */
typedef enum clattn_score {
    CLATTN_SCORE_DOT = 0,      /**< by their dot product */
    CLATTN_SCORE_ADDITIVE = 1, /**< by a vector times the tanh of their sum */
    CLATTN_SCORE_FORCE_32BIT = 0x7fffffff
} clattn_score;

/** The key position of a batch item's query 0; query i stands i further.
 *
 * Frameworks disagree about it, so it is one explicit field. The position is never clamped: leading rows may attend
 * nothing. */
typedef enum clattn_alignment {
    CLATTN_ALIGNMENT_TOP_LEFT = 0,     /**< 0 */
    CLATTN_ALIGNMENT_BOTTOM_RIGHT = 1, /**< the item's key length - its query length; may be negative */
    CLATTN_ALIGNMENT_EXPLICIT = 2, /**< clattn_attention_args.position, plus lengths.positions[b] if there are some */
    CLATTN_ALIGNMENT_FORCE_32BIT = 0x7fffffff
} clattn_alignment;

/** What `outputs.scores` gets. */
typedef enum clattn_scores_mode {
    /** The scaled score of every key within the item's lengths, attended or not; +0 beyond lengths.key. */
    CLATTN_SCORES_MODE_RAW = 0,
    CLATTN_SCORES_MODE_CAPPED = 1, /**< the raw score after softcap */
    CLATTN_SCORES_MODE_BIASED = 2, /**< after score_mod, bias, ALiBi and mask; -inf for keys that are not attended */
    CLATTN_SCORES_MODE_PROBABILITIES = 3, /**< P before dropout; +0 for keys that are not attended, in every row */
    CLATTN_SCORES_MODE_FORCE_32BIT = 0x7fffffff
} clattn_scores_mode;

/** How many buffers, and how many numbers, a caller's own functions can have. */
#define CLATTN_USER_BUFFERS 4

/** The bytes that the text of a caller's own function may have, its NUL included. */
#define CLATTN_SNIPPET_LIMIT 8192

/** What to compute.
 *
 * Set it up with CLATTN_ATTENTION_DESC_INIT; a group of fields that stays zeroed asks for nothing. Extents are the
 * largest that an enqueue may use.
 *
 * Storage: query, key, value and output are each float32, float16 or bfloat16, or all four float64 if the device has
 * it. Key and value may also be int8 or int4, with cache.key_scale and cache.value_scale. Scores, running maximum, sum
 * and accumulator are float32, or float64 if the arrays are.
 *
 * Integer arrays (lengths, positions, starts, block_table) are each int32 or int64. The device reads them; a value
 * that is out of range is clamped into it and never trusted with an address. */
typedef struct clattn_attention_desc {
    size_t size;                /**< sizeof(clattn_attention_desc) */
    clattn_direction direction; /**< FORWARD, or BACKWARD: what `gradients` says is computed */
    int32_t causal;             /**< 1: query i attends keys j <= p; 0 (default): all keys */
    clattn_alignment alignment; /**< where queries stand, for `causal`, `window` and `scoring.alibi` */

    /** 1: `mask` and `bias` may have 2 ... S_k - 1 keys, and the keys beyond them are not attended, as in ONNX. 0
     * (default): such an array is refused. */
    int32_t short_mask;
    clattn_layout query;  /**< (batch, heads, S_q, d_k) */
    clattn_layout key;    /**< (batch, kv_heads, S_k, d_k); heads is a multiple of kv_heads */
    clattn_layout value;  /**< (batch, kv_heads, S_k, d_v) */
    clattn_layout output; /**< (batch, heads, S_q, d_v) */

    /** None, or (batch or 1, heads or 1, S_q or 1, S_k or 1); an extent of 1 broadcasts, and lower ranks get leading
     * 1s.
     *
     * It is bool (true = attend), or float32, float16 or bfloat16 (added to the score), or float64 if query, key,
     * value and output are. If there are lengths.query_starts, batch is their number of items, and S_q is
     * lengths.longest_query. */
    clattn_layout mask;
    clattn_layout bias; /**< none, or as a float `mask`: added besides the mask */

    /** Which keys a query attends by their distance: p - left <= j <= p + right. */
    struct {
        int32_t explicit_left;  /**< 1: `left` counts; 0 (default): no limit before the query */
        int32_t explicit_right; /**< 1: `right` counts; 0 (default): no limit behind the query */
        int64_t left;           /**< the keys before position p that are attended, >= 0 */
        int64_t right;          /**< the keys behind position p that are attended, >= 0 */
    } window;

    /** How a query and a key become a score. */
    struct {
        clattn_score kind;      /**< how they are compared */
        int32_t explicit_scale; /**< 1: `scale` counts; 0 (default): 1/sqrt(d_k), or 1 if the score is additive */
        float scale;            /**< any finite value, 0 and negative included */
        float softcap;          /**< 0 (default): none; otherwise positive and finite */
        clattn_layout vector;   /**< (heads or 1, d_k) float32 if the score is additive; otherwise none */
        clattn_layout alibi;    /**< none, or float32 slopes, (heads) or (batch or 1, heads) */
        clattn_layout sinks;    /**< none, or (heads) float32: one more logit in each row's softmax, without a value */
    } scoring;

    /** The caller's own functions in OpenCL C, which become part of the kernels.
     *
     * They are trusted: they run on the device with the kernel's rights, and can read and write whatever the kernel
     * can. Each text has at most CLATTN_SNIPPET_LIMIT - 1 characters and is copied. It may define helper functions. The
     * arguments `query` and `key` are the item's own indices.
     *
     * The texts stand last in a program, in the order of these fields, and no macro of the library's is defined there: a
     * text neither sees nor changes one. A function, type or constant at file scope that has the name of one of the
     * library's is an error. A text may use what those before it define, and call their functions.
     *
     * CLATTN_ERROR_BUILD refuses a text that does not build, or that does not define the function or has no `return`.
     * It also refuses by name:
     * - directives other than define, undef, if with its branches, error, warning, pragma OPENCL and pragma unroll;
     *   there is no include, because a program in the cache would not follow the file;
     * - macros named as a keyword of OpenCL C (`kernel`, `float4`) or as one of the functions;
     * - trigraphs, `__has_include`, `_Pragma`, assembly, and `overloadable`, by which a text could replace a built-in
     *   function for the kernel, too.
     *
     * The first line of the message says what is wrong, as "score_mod:LINE: ...", or as "score_mod: ..." if there is no
     * line to point at.
     *
     * Each time that a plan is made, the log gets what the compiler warns of in a text's own lines, such as a function
     * that may end without `return`, as a warning "score_mod:LINE:COLUMN: ..."; clattn_plan_explain repeats it.
     *
     * Their last argument, `user_data user`, is a struct:
     *
     *     const global T *buffer0 ... *buffer3    what buffer_dtype describes, at the binding's offset
     *     float scalar0 ... scalar3               clattn_attention_args.snippets.scalar
     *     long position                           the key position of the item's query 0
     *     int query_length, key_length            the item's own
     */
    struct {
        /** NULL, or text that defines a function that changes a score:
         *
         *     float score_mod(float score, int batch, int head, int query, int key, user_data user)
         */
        const char *score_mod;

        /** NULL, or text that defines a function that returns 0 for "do not attend":
         *
         *     int mask_mod(int batch, int head, int query, int key, user_data user)
         */
        const char *mask_mod;

        /** NULL, or text that defines the derivative of score_mod by its argument `score`, of the same arguments:
         *
         *     float score_mod_grad(float score, int batch, int head, int query, int key, user_data user)
         *
         * CLATTN_DIRECTION_BACKWARD needs it if there is a score_mod; forward neither compiles nor compares it, so both may
         * have the same snippets. It comes with score_mod only. It is called for pairs that are attended and whose score is
         * not -inf.
         */
        const char *score_mod_grad;

        /** The elements of user.buffer0 ... user.buffer3; CLATTN_DTYPE_NONE (default): there is no such buffer.
         *
         * float32 is float in OpenCL C, float16 half, bfloat16 ushort, bool and uint8 uchar, int8 char, int32 int,
         * int64 long. */
        clattn_dtype buffer_dtype[CLATTN_USER_BUFFERS];
    } snippets;

    /** Lengths and positions of each batch item. Without them all items have the lengths of clattn_attention_args. */
    struct {
        clattn_layout query; /**< none, or (batch); query rows beyond are written as rows that attend nothing */
        clattn_layout key;   /**< none, or (batch): at most args.key_length counts, except for a ring */

        /** None, or (batch): key positions that are added to clattn_attention_args.position. Only with
         * CLATTN_ALIGNMENT_EXPLICIT. */
        clattn_layout positions;

        /** None, or (batch + 1): the queries are packed sequences.
         *
         * Query, output, lse and entropy then have batch 1, and S_q rows in all. Item b owns rows query_starts[b] ...
         * query_starts[b+1] - 1, of which the first clattn_attention_args.query_length count. Rows that no item owns
         * keep what they held, in output, lse and entropy. */
        clattn_layout query_starts;
        clattn_layout key_starts; /**< none, or the same for key and value; not with a ring or pages */
        size_t longest_query;     /**< a limit to each item's rows if there are query_starts; 0 (default): S_q */
    } lengths;

    /** How keys and values are kept. */
    struct {
        clattn_cache_kind kind;    /**< plain, ring or paged */
        int32_t reserved;          /* 0 */
        clattn_layout block_table; /**< (batch, blocks) if the cache is paged; S_k is then blocks * page_size */

        /** (batch, kv_heads, S_k, groups) float32 or float16 if keys are int8 or int4; otherwise none.
         *
         * It is indexed as the keys are, pages included: key = integer * scale[..., d / (d_k / groups)]. The number of
         * groups divides d_k. A stride of 0 shares scales. */
        clattn_layout key_scale;
        clattn_layout value_scale; /**< the same for int8 or int4 values; the number of groups divides d_v */
    } cache;

    /** Results besides the output. */
    struct {
        /** None, or (batch, heads, S_q) float32: the natural logarithm of the row's sum of exp(s) over the attended
         * keys and the sink. If scores are probabilities, kernels also read it. */
        clattn_layout lse;

        /** None, or as `lse`: -sum_j P ln P in nats, with P before dropout; 0 if nothing is attended. */
        clattn_layout entropy;

        /** None, or (batch, heads, S_q, S_k) float32, float16 or bfloat16, by `scores_mode`. Not with packed sequences
         * or a ring.
         *
         * Scores are for looking at: a second kernel computes them. Cells beyond the batch, query_length and
         * key_length of clattn_attention_args keep what they held. */
        clattn_layout scores;
        clattn_scores_mode scores_mode; /**< which scores */

        /** 1, backward: `key` and `value` are some of the keys and values that `output` and `lse` are of, and the gradients are what
         * these pairs add. A pair's weight is exp(s - lse) then, with the error of `lse`. 0 (default): a row's weights are divided by
         * their sum. */
        int32_t partial;
    } outputs;

    /** Dropout: P becomes 0 with this probability, and P / (1 - probability) otherwise, as clattn_dropout_keep says. */
    struct {
        float probability; /**< 0 (default) ... below 1 */
        int32_t reserved;  /* 0 */
    } dropout;

    /** The derivatives of a number, such as a loss, by the elements of an array: each member is that of the array of its name, and
     * has that array's extents. All are none with CLATTN_DIRECTION_FORWARD.
     *
     * With CLATTN_DIRECTION_BACKWARD `output` is read, and `lse`, if it is there; at least one of the others is there, and those
     * that are get written. The description's `output` and outputs.lse are then what the same description has given forward, and
     * are read, and there is no outputs.entropy and no outputs.scores. A cache is plain, and keys and values are no integers; a
     * score_mod has its snippets.score_mod_grad. Sums have a fixed order, whatever the launch, so the same call gives the same bits.
     *
     * Each element that the enqueue's batch, query_length and key_length reach is written, +0 in rows beyond an item's lengths; the
     * others, and rows of packed sequences that no item owns, keep what they held. Items' starts must not descend: a row has one
     * item. The gradient of what broadcasts is the sum over what it is broadcast to. A mask has
     * one if it is added. */
    struct {
        clattn_layout output;            /**< float32, float16 or bfloat16, or float64 as `output` */
        clattn_layout lse;               /**< none, or float32: the loss depends on outputs.lse, too */
        clattn_layout query, key, value; /**< each none, or float32, float16 or bfloat16, or float64 as the array is */
        clattn_layout mask, bias;        /**< each none, or float32, or float64 as query is */
        clattn_layout vector, alibi, sinks; /**< each none, or float32 */
    } gradients;
} clattn_attention_desc;

/** Initialises a clattn_attention_desc: its size, and zeros. */
#define CLATTN_ATTENTION_DESC_INIT CLATTN_INIT(clattn_attention_desc)

/** Sets *desc as CLATTN_ATTENTION_DESC_INIT does (@ref calls_init). */
CLATTN_API void clattn_attention_desc_init(clattn_attention_desc *desc);

/** Where the arrays are this time, and how much of them counts.
 *
 * Set it up with CLATTN_ATTENTION_ARGS_INIT. Each layout of the description has a binding here, under the same
 * name. */
typedef struct clattn_attention_args {
    size_t size;                                          /**< sizeof(clattn_attention_args) */
    clattn_binding query, key, value, output, mask, bias; /**< the array of that name */
    int32_t explicit_lengths; /**< 1: the next three fields count; 0 (default): the description's extents */
    int32_t reserved;         /* 0 */
    size_t batch;             /**< at most the description's; 0 is allowed and does nothing, or backward writes zeros */
    size_t query_length;      /**< at most the description's S_q or longest_query; 0 as for `batch` */

    /** At most the description's S_k; with 0 all rows attend nothing. A ring's counts all keys ever appended, at most
     * 2^31 - 65537, and does not count if there is a lengths.key. */
    size_t key_length;
    int64_t position;         /**< the key position of query 0, with CLATTN_ALIGNMENT_EXPLICIT */
    clattn_binding workspace; /**< none (default), or a workspace (@ref calls_workspace) */

    /** The arrays of the description's `scoring`. */
    struct {
        clattn_binding vector, alibi, sinks; /**< the array of that name */
    } scoring;

    /** The arrays of the description's `lengths`. */
    struct {
        clattn_binding query, key, positions, query_starts, key_starts; /**< the array of that name */
    } lengths;

    /** The arrays of the description's `cache`. */
    struct {
        clattn_binding block_table, key_scale, value_scale; /**< the array of that name */
    } cache;

    /** The arrays of the description's `outputs`. */
    struct {
        clattn_binding lse, entropy, scores; /**< the array of that name */
    } outputs;

    /** What the caller's own functions read. */
    struct {
        clattn_binding buffer[CLATTN_USER_BUFFERS]; /**< user.buffer0 ... user.buffer3; their sizes are not checked */
        float scalar[CLATTN_USER_BUFFERS];          /**< user.scalar0 ... user.scalar3 */
    } snippets;

    /** Which probabilities dropout drops: the arguments of clattn_dropout_keep. */
    struct {
        uint64_t seed;    /**< the generator's key */
        uint32_t offset;  /**< which of the seed's masks */
        int32_t reserved; /* 0 */
    } dropout;

    /** The arrays of the description's `gradients`. */
    struct {
        clattn_binding output, lse, query, key, value, mask, bias, vector, alibi, sinks; /**< the array of that name */
    } gradients;

    /** Where the arrays lie in larger ones, of which the call computes a part. All 0 (default): nowhere.
     *
     * `alignment`, `position`, `lengths` and dropout are about the larger ones then: their queries, keys and heads, their lengths, and
     * the positions of their queries; dropout also about their items. Masks and biases are the part's. Packed sequences have an item's rows that are in the part, of
     * which the first clattn_attention_args.query_length and key_length count; whole.query_length and whole.key_length are rows in
     * all. Not with snippets, a ring or pages. */
    struct {
        size_t query, key,
            head; /**< where the part begins; with dropout `key` is a multiple of 4, or 0 if keys are packed */
        size_t query_length; /**< how many queries there are; 0 (default): those of the part, and `query` is 0 */
        size_t key_length;   /**< keys, likewise */
        size_t heads;        /**< heads of queries, likewise */
        size_t batch;        /**< how many items come before the part's */
    } whole;
    clattn_control *control; /**< what watches the call (control.h), or NULL */
} clattn_attention_args;

/** Initialises a clattn_attention_args: its size, and zeros. */
#define CLATTN_ATTENTION_ARGS_INIT CLATTN_INIT(clattn_attention_args)

/** Sets *args as CLATTN_ATTENTION_ARGS_INIT does (@ref calls_init). */
CLATTN_API void clattn_attention_args_init(clattn_attention_args *args);

/** Tells whether some solver takes `desc`, and if not, why (@ref calls_supports).
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, INVALID_LAYOUT, OVERFLOW, UNSUPPORTED or OUT_OF_MEMORY. */
CLATTN_API clattn_status clattn_attention_supports(clattn_context *context, const clattn_attention_desc *desc,
                                                   const char **reason);

/** Compiles a plan for `desc` (@ref calls_plan). Blocks.
 *
 * Kernels with snippets are not compared with the reference.
 *
 * @return what clattn_attention_supports returns, FORKED, OPENCL, BUILD (also if a snippet is wrong), MISCOMPILED, IO
 * or INTERNAL. */
CLATTN_API clattn_status clattn_attention_plan_create(clattn_context *context, const clattn_attention_desc *desc,
                                                      const clattn_plan_options *options, clattn_plan **plan);

/** Enqueues the plan (@ref calls_enqueue). Does not block.
 *
 * It is one kernel, or two if few queries attend many keys; `outputs.scores` adds one, and a control may launch
 * the same ones several times. If batch, heads or S_q is 0, nothing is computed. Backward is two kernels, and one more for
 * each gradient of a mask, bias, vector, slope or sink; without query rows it writes zeros, and its inputs but `lengths`
 * may be unbound.
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, OVERFLOW, UNSUPPORTED, WRONG_CONTEXT, BUFFER_TOO_SMALL, BUFFER_ACCESS,
 * BUSY, OUT_OF_MEMORY, OPENCL, CANCELLED or FORKED. */
CLATTN_API clattn_status clattn_attention_enqueue(clattn_plan *plan, cl_command_queue queue,
                                                  const clattn_attention_args *args, cl_uint wait_count,
                                                  const cl_event *wait_list, cl_event *event);

/** Makes the plan that clattn_attention_run will want for `desc` (@ref calls_prewarm). Blocks.
 *
 * @return what clattn_attention_plan_create returns. */
CLATTN_API clattn_status clattn_attention_prewarm(clattn_context *context, const clattn_attention_desc *desc);

/** Finds or makes the plan for `desc` and enqueues it (@ref calls_run). Blocks only while it compiles.
 *
 * @return what clattn_attention_plan_create and clattn_attention_enqueue return. */
CLATTN_API clattn_status clattn_attention_run(clattn_context *context, cl_command_queue queue,
                                              const clattn_attention_desc *desc, const clattn_attention_args *args,
                                              cl_uint wait_count, const cl_event *wait_list, cl_event *event);

/** Returns 1 if dropout keeps a probability and 0 if it drops it, the same on every device and for every solver.
 *
 * The probability is that of batch item `batch`, head `head` of `heads`, query `query` and key `key`, which are the
 * item's own indices. Philox4x32-10 (Salmon et al. 2011) with `seed` as key and (key / 4, query, batch * heads + head,
 * offset) as counter gives four words; word key % 4, divided by 2^32, is compared with `dropout`, and below it the
 * probability is dropped. Thread-safe. */
CLATTN_API int clattn_dropout_keep(uint64_t seed, uint32_t offset, float dropout, uint32_t heads, uint32_t batch,
                                   uint32_t head, uint32_t query, uint32_t key);

CLATTN_END_DECLS

#endif
