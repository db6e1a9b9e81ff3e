/** @file
 * Attention over sequences that lie in parts on several devices: ranks of a group, each with its part of queries, keys and values. And
 * training of one model by ranks, each with its own items (clattn_group_trainer_create).
 *
 * A group is two functions that move bytes between ranks. clattn_group_local makes one of threads of a process, each perhaps with a
 * device of its own; libclattn-mpi (mpi.h) makes one of an MPI communicator; an application may bring its own.
 *
 *     every rank, with its own context, queue and group:
 *     clattn_group_attention_desc desc = CLATTN_GROUP_ATTENTION_DESC_INIT;
 *     desc.attention = &local;                              layouts of the rank's parts
 *     desc.order = CLATTN_GROUP_ORDER_ZIGZAG;
 *     clattn_group_attention_create(context, &group, &desc, &attention);
 *     clattn_group_attention_run(attention, queue, &args, 0, NULL, &event);
 *
 * The result is that of one attention of the whole sequences, but for roundings: partial results are merged by their log-sum-exps
 * (merge.h) in float32, in an order that depends on the ranks alone, so that the same group gives the same bits every time. A ring rounds
 * each part's log-sum-exp L to float32, so its merged weights have relative errors of up to |L| 2^-24, and backward, by outputs.partial,
 * so have its weights.
 *
 * Sources: ring, Liu, Zaharia, Abbeel 2023, "Ring Attention with Blockwise Transformers"; the balanced order, Zhu 2024,
 * "ring-flash-attention"; heads, Jacobs et al. 2023, "DeepSpeed Ulysses"; gathering by groups of heads, Dubey et al. 2024, "The Llama 3
 * Herd of Models", section 3.3.2.
 */
#ifndef CLATTN_GROUP_H
#define CLATTN_GROUP_H

#include "attention.h"
#include "training.h"

CLATTN_BEGIN_DECLS

/** The bytes of a group's message, its NUL included. */
#define CLATTN_GROUP_MESSAGE 256

/** An exchange: bytes for one rank, and bytes of one rank. Both are host memory, which the callee may read and write until the
 * exchange has been waited for. They may be of no bytes. */
typedef struct clattn_group_exchange {
    const void *send;     /**< what is sent */
    size_t send_bytes;    /**< how much that is */
    int32_t to;           /**< the rank that it is for, perhaps the caller's own */
    int32_t from;         /**< the rank that sends what is received */
    void *receive;        /**< where that is put */
    size_t receive_bytes; /**< how much that is: exactly what the other rank sends */
} clattn_group_exchange;

/** A rank's group. The struct is copied; what `user` names must live as long as what was made with it.
 *
 * A thread calls one group's functions one at a time. The exchanges between two ranks are matched in the order in which each of them
 * starts them. Both functions return SUCCESS or why they failed, and then write a line to `message`. After a failure the group is
 * given no new exchange, and those that were started are still waited for. */
typedef struct clattn_group {
    size_t size;   /**< sizeof(clattn_group) */
    int32_t rank;  /**< the caller's own, 0 ... ranks - 1 */
    int32_t ranks; /**< how many there are, 1 or more */
    void *user;    /**< the functions' first argument */

    /** Starts an exchange and does not wait for another rank. *request, which is not NULL, is given to `wait` once, if this
     * succeeds. */
    clattn_status (*exchange)(void *user, const clattn_group_exchange *exchange, void **request,
                              char message[CLATTN_GROUP_MESSAGE]);

    /** Waits until an exchange has ended, and frees its request, also if it fails. It fails after a time-out if a rank does not
     * answer. After a failure those that were started before it should cost no further time-out. */
    clattn_status (*wait)(void *user, void *request, char message[CLATTN_GROUP_MESSAGE]);
} clattn_group;

/** Initialises a clattn_group: its size, and zeros. */
#define CLATTN_GROUP_INIT CLATTN_INIT(clattn_group)

/** Sets *group as CLATTN_GROUP_INIT does (@ref calls_init). */
CLATTN_API void clattn_group_init(clattn_group *group);

/** A group of threads of one process. */
typedef struct clattn_group_local clattn_group_local;

/** Makes a group of `ranks` threads of this process.
 *
 * A wait for a rank that does not answer fails after `timeout_ms` milliseconds; 0: after 60,000. Thread-safe.
 *
 * @return INVALID_ARGUMENT or OUT_OF_MEMORY. */
CLATTN_API clattn_status clattn_group_local_create(int32_t ranks, uint32_t timeout_ms, clattn_group_local **local);

/** Sets *group to that of rank `rank`, which is valid until `local` is released. Thread-safe.
 *
 * @return INVALID_ARGUMENT. */
CLATTN_API clattn_status clattn_group_local_rank(clattn_group_local *local, int32_t rank, clattn_group *group);

/** Releases *local and makes it NULL, when nothing uses its groups any more. NULL is ignored. */
CLATTN_API void clattn_group_local_release(clattn_group_local **local);

/** Ranks of a group as a grid: rank r is in row r / columns and column r % columns. A row or a column is a group, too: one way of working
 * together goes along rows, another one along columns, as in clattn_group_transformer_create and clattn_group_trainer_create. Messages name
 * ranks by their numbers in the whole group. */
typedef struct clattn_group_grid clattn_group_grid;

/** Makes a rank's grid; `group` is copied. Thread-safe.
 *
 * @return INVALID_ARGUMENT (also if `columns` does not divide the ranks), INVALID_STRUCT or OUT_OF_MEMORY. */
CLATTN_API clattn_status clattn_group_grid_create(const clattn_group *group, int32_t columns, clattn_group_grid **grid);

/** Sets *row to the rank's row, `columns` ranks in the order of columns, which is valid until `grid` is released. A thread calls one
 * function of a row, a column and the whole group at a time.
 *
 * @return INVALID_ARGUMENT. */
CLATTN_API clattn_status clattn_group_grid_row(clattn_group_grid *grid, clattn_group *row);

/** Sets *column to the rank's column likewise.
 *
 * @return INVALID_ARGUMENT. */
CLATTN_API clattn_status clattn_group_grid_column(clattn_group_grid *grid, clattn_group *column);

/** Releases *grid and makes it NULL, when nothing uses its groups any more. NULL is ignored. */
CLATTN_API void clattn_group_grid_release(clattn_group_grid **grid);

/** How ranks work together. */
typedef enum clattn_group_mode {
    /** Keys and values go round; a rank attends to one rank's while it receives the next one's. Memory: two ranks' keys and
     * values and three partial outputs, or backward, in float32, the gradients of four ranks' keys and values and twice those of its
     * own queries. */
    CLATTN_GROUP_MODE_RING = 0,
    /** Keys and values of a part of the heads go to all ranks, while the part before is attended to: as many parts as there are
     * ranks. `ranks` divides kv_heads. Memory: all ranks' keys and values of three parts, and backward, in float32, their gradients of
     * three parts, in zigzag order four. */
    CLATTN_GROUP_MODE_GATHER = 1,
    /** Ranks exchange parts of sequences for parts of heads, and back: each attends to all keys with its own heads. `ranks` divides
     * kv_heads, and mask and bias are the same for all queries. Memory: three times what a rank sends and receives. */
    CLATTN_GROUP_MODE_HEADS = 2,
    CLATTN_GROUP_MODE_FORCE_32BIT = 0x7fffffff
} clattn_group_mode;

/** Which elements of the whole sequences a rank has, of S_q queries and S_k keys on each. */
typedef enum clattn_group_order {
    /** Rank r has queries r S_q ... (r + 1) S_q - 1, and keys likewise. */
    CLATTN_GROUP_ORDER_STRAIGHT = 0,
    /** The whole sequence is cut into 2 ranks pieces, and rank r has pieces r and 2 ranks - 1 - r, one behind the other. Then all
     * ranks have as much to do if attention is causal. S_q and S_k are even. */
    CLATTN_GROUP_ORDER_ZIGZAG = 1,
    CLATTN_GROUP_ORDER_FORCE_32BIT = 0x7fffffff
} clattn_group_order;

/** What to compute. Set it up with CLATTN_GROUP_ATTENTION_DESC_INIT. All ranks have equal descriptions, but for strides. */
typedef struct clattn_group_attention_desc {
    size_t size;              /**< sizeof(clattn_group_attention_desc) */
    clattn_group_mode mode;   /**< how ranks work together */
    clattn_group_order order; /**< what each of them has */

    /** The rank's own arrays, of which no extent is 0: query and output have S_q rows, key and value S_k, mask and bias the rank's S_q
     * or 1 rows and all ranks * S_k keys in their order. `causal`, `alignment`, `window` and ALiBi are about positions in the whole
     * sequences.
     *
     * float32, float16 and bfloat16. Forward, outputs.lse may be there, and no other output. Backward, output and outputs.lse are what
     * forward gave, sinks included, and each rank gets those gradients that all ask for: of query, key and value those of its own
     * rows; of a mask or bias of S_q rows those of its own rows and all keys; of one row, of the vector, slopes and sinks the sum
     * over all ranks, whose bits are the same on all of them. A mask or bias of one row counts as the same for all queries also if
     * S_q is 1.
     *
     * lengths.query, key, positions, query_starts and key_starts are those of the whole sequences, and all ranks have the same. Packed
     * sequences have both starts, no mask, no bias and no longest_query; a rank has rows of all that lie one behind the other, and
     * what rows hold that no item owns is not defined.
     *
     * Dropout drops what it drops of one attention with the same seed and offset, which all ranks have. In a RING 4 divides the keys
     * of a rank, or of a piece in zigzag order, and they are not packed.
     *
     * There are no snippets and no caches. It need not live longer than the call. */
    const clattn_attention_desc *attention;
} clattn_group_attention_desc;

/** Initialises a clattn_group_attention_desc: its size, and zeros. */
#define CLATTN_GROUP_ATTENTION_DESC_INIT CLATTN_INIT(clattn_group_attention_desc)

/** Sets *desc as CLATTN_GROUP_ATTENTION_DESC_INIT does (@ref calls_init). */
CLATTN_API void clattn_group_attention_desc_init(clattn_group_attention_desc *desc);

/** A rank's share of an attention, with its buffers. Its plans are in the context's cache (clattn_context_params.plan_capacity). */
typedef struct clattn_group_attention clattn_group_attention;

/** Makes a rank's share. All ranks call it, compare their descriptions and versions, and wait for each other. Blocks.
 *
 * `group` is copied. Several objects of a group are made, and run, in the same order on all ranks.
 *
 * Each rank compares with the one before it: if those two differ, its message names both values, and the others' name the ranks that
 * have no share.
 *
 * @return INVALID_ARGUMENT (also if the rank before has another description), INVALID_STRUCT, INVALID_LAYOUT, OVERFLOW, UNSUPPORTED,
 * OUT_OF_MEMORY, GROUP, or what clattn_attention_plan_create returns. */
CLATTN_API clattn_status clattn_group_attention_create(clattn_context *context, const clattn_group *group,
                                                       const clattn_group_attention_desc *desc,
                                                       clattn_group_attention **attention);

/** Computes on `queue` (NULL: the context's own), after the events of the wait list; `event`, if not NULL, is that of the last kernel.
 *
 * All ranks call it. Outputs may overlap nothing. It blocks while the group exchanges, and returns with the last kernels enqueued.
 * `args` binds the arrays of the description; its explicit_lengths, workspace and whole must be 0, and control NULL. One
 * thread at a time.
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, GROUP, or what clattn_attention_enqueue returns. After a failure the other ranks' calls fail by
 * their time-out; one that comes after an exchange of the call makes every further call fail, too. */
CLATTN_API clattn_status clattn_group_attention_run(clattn_group_attention *attention, cl_command_queue queue,
                                                    const clattn_attention_args *args, cl_uint wait_count,
                                                    const cl_event *wait_list, cl_event *event);

/** Releases *attention and makes it NULL; waits for what still runs. NULL is ignored. */
CLATTN_API void clattn_group_attention_release(clattn_group_attention **attention);

/** Makes a rank's part of a model (transformer.h) that is too large, or too slow, for one device: its share of the heads of each attention,
 * of the hidden numbers of each feed-forward network (d_ff), of the rows of tables of tokens, and of the logits. All ranks call it with
 * equal descriptions, and each with the whole model's weights, of which it asks for its part; they compare descriptions and versions, and
 * wait for each other. Blocks.
 *
 * Rank r has heads of keys, hidden numbers, tokens or logits n r / ranks to n (r + 1) / ranks - 1 of n, so that none may be fewer than the
 * ranks. Norms, convolutions and tables of positions and segments are the same on all ranks; biases of output projections and of the
 * feed-forward network's second product are rank 0's alone.
 *
 * Encoders, decoders, generation and trainers work as without a group, but for this:
 *
 * - All ranks make the same calls in the same order, with the same inputs, and bind the same outputs, one thread at a time.
 * - An enqueue exchanges the vectors of tokens, and the sums of each sublayer, of the model's dtype, through the host: it blocks until the
 *   last but the final kernels have run, and returns with those enqueued. The host reads and writes outputs, logits and workspaces on the
 *   way: a buffer of CL_MEM_HOST_READ_ONLY, HOST_WRITE_ONLY or HOST_NO_ACCESS is refused with BUFFER_ACCESS, before
 *   anything is exchanged.
 * - clattn_trainer_update exchanges gradients of what all ranks have, and blocks as a group's does; clattn_parameter has no moments
 *   (clattn_trainer_moments_read).
 * - After a failure, or if one rank's control is cancelled, the other ranks' calls fail by their time-out. If that comes after an
 *   exchange, every further call of the model that exchanges fails, with GROUP.
 * - Outputs are the same bits on all ranks of equal devices, and so are parameters that all ranks have and train; logits are so
 *   on any devices. They are those of one device but for roundings. With weights of int8, those that a rank has columns of have scales of these
 *   columns alone.
 * - Masks with heads, and probabilities, are those of the rank's own heads.
 *
 * Source: Shoeybi et al. 2019, "Megatron-LM".
 *
 * @return INVALID_ARGUMENT (also if the rank before has another description), INVALID_STRUCT, GROUP, or what clattn_transformer_create
 * returns. */
CLATTN_API clattn_status clattn_group_transformer_create(clattn_context *context, const clattn_group *group,
                                                         const clattn_transformer_desc *desc,
                                                         const clattn_weight_source *source,
                                                         clattn_transformer **transformer);

/** Makes a trainer (training.h) whose updates are those of all ranks together: each computes gradients of its own items, and the update
 * moves the parameters by the sum of all ranks' gradients. All ranks call it, compare their models' parameters and versions, and wait for
 * each other. Blocks.
 *
 * A rank has the moments of 1/ranks of the parameters. clattn_trainer_update is called by all ranks with equal arguments. It blocks while
 * they exchange, about twice the bytes of the parameters for each rank, and returns with the last kernels enqueued; all ranks then have
 * the same bits of all parameters, and the gradients are no longer those of the rank. Sums are made in the order of ranks, in float32:
 * the same group gives the same bits every time. `group` is copied.
 *
 * With the gradients' scale 1 / (labels of all ranks' items), a step is that of one trainer that has added up (accumulate) the same items,
 * but for roundings.
 *
 * Numbers that clattn_update_args may not have are refused before anything is exchanged. After another failure the group is given no new
 * exchange, and every further update fails; the parameters may be those of some ranks' update.
 *
 * @return INVALID_ARGUMENT (also if the rank before has another model), INVALID_STRUCT, GROUP, or what clattn_trainer_create returns;
 * clattn_trainer_update returns GROUP, too. */
CLATTN_API clattn_status clattn_group_trainer_create(clattn_transformer *model, const clattn_group *group,
                                                     clattn_trainer **trainer);

CLATTN_END_DECLS

#endif
