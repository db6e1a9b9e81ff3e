/** @file
 * Embedding: rows of tables, chosen by ids, added up.
 *
 *     Y[b,s] = scale * table[ids[b,s]]  (+ position row p(b,s))  (+ segment_table[segments[b,s]])
 *
 * This is a Transformer's first layer: tokens by their ids, in the paper times the square root of the model's size;
 * positions by a learned table or the paper's sinusoids; segments as BERT has them (its token types).
 *
 * Position p(b,s) is clattn_embedding_args.position plus offsets[b] (0 without offsets) plus s. The sinusoids of a row
 * of d elements are sin(p / 10000^(2 i / d)) at 2 i and the cosine of the same at 2 i + 1, within 4e-7 of exact for
 * |p| up to 2^31.
 *
 * State is float32, whatever is stored, and Y is rounded once. A row whose id, position or segment is not in its table
 * is all NaN: a wrong id reads no memory outside the table, and does not pass unnoticed.
 *
 * Without positions and segments the operator gathers rows: with a permutation as ids it cuts an image into windows,
 * or shifts it.
 *
 * CLATTN_DIRECTION_BACKWARD makes the gradient of the table of the gradient of Y:
 *
 *     gradients.table[r] = scale * the sum of gradients.y[b,s] over all places (b,s) with ids[b,s] = r
 *
 * A row that no id names is +0, and an id that is not in the table adds to no row. The sum is float32, whatever is
 * stored, in the order of the places (all of item 0 first): 32 of them at a time, 32 such sums at a time, and these, so
 * that the error of a sum of n is at most (64 + n / 1024)·2^-24 of the sum of the sizes. It is then multiplied, and
 * rounded once. The result is the same in every bit from run to run. The work is to read gradients.y and to write
 * gradients.table once, and to make lists in a workspace (@ref calls_workspace) of 8 bytes for each row and 4 for each
 * place.
 *
 * A table may be some rows of a longer one (clattn_embedding_desc.part): an id of another row of that adds 0, and nothing to a gradient, so
 * that what ranks with all parts make adds up to what the whole table gives.
 *
 * The gradient of a position or segment table is that of a table with the positions or the segments as ids.
 */
#ifndef CLATTN_EMBEDDING_H
#define CLATTN_EMBEDDING_H

#include "plan.h"

CLATTN_BEGIN_DECLS

/** What is added to each row for its position. */
typedef enum clattn_positions {
    CLATTN_POSITIONS_NONE = 0,      /**< nothing */
    CLATTN_POSITIONS_SINUSOIDS = 1, /**< the paper's, section 3.5, computed; the size is even and at most 131072 */
    CLATTN_POSITIONS_TABLE = 2,     /**< a row of a table: learned positions, or sinusoids that a file brings */
    CLATTN_POSITIONS_FORCE_32BIT = 0x7fffffff
} clattn_positions;

/** What to compute. Set it up with CLATTN_EMBEDDING_DESC_INIT.
 *
 * The tables, y and the gradients are each float32, float16 or bfloat16, independently of each other. The extents of
 * batch and length are the largest that an enqueue may use. Backward has a scale, ids and gradients, nothing else. */
typedef struct clattn_embedding_desc {
    size_t size;                  /**< sizeof(clattn_embedding_desc) */
    clattn_direction direction;   /**< either */
    clattn_positions positions;   /**< what is added for the position */
    int32_t explicit_scale;       /**< 1: `scale` counts; 0 (default): 1 */
    float scale;                  /**< finite; multiplies the rows of `table` only */
    clattn_layout ids;            /**< (batch, length) int32 */
    clattn_layout table;          /**< (rows, size) */
    clattn_layout y;              /**< the output (batch, length, size) */
    clattn_layout position_table; /**< (rows, size) with CLATTN_POSITIONS_TABLE; otherwise none */
    clattn_layout offsets;        /**< none, or (batch) int32; only if there are positions */
    clattn_layout segments;       /**< none, or (batch or 1, length) int32 */
    clattn_layout segment_table;  /**< (rows, size) if there are segments; otherwise none */

    /** The table, or its gradient, has the rows of the ids from `first` on, of a table of `rows` rows. 0 rows (default): it is whole. */
    struct {
        size_t first, rows;
    } part;

    /** Only with CLATTN_DIRECTION_BACKWARD, which needs both. */
    struct {
        clattn_layout table; /**< the output: the gradient of the table (rows, size) */
        clattn_layout y;     /**< the input: the gradient of y (batch, length, size) */
    } gradients;
} clattn_embedding_desc;

/** Initialises a clattn_embedding_desc: its size, and zeros. */
#define CLATTN_EMBEDDING_DESC_INIT CLATTN_INIT(clattn_embedding_desc)

/** Sets *desc as CLATTN_EMBEDDING_DESC_INIT does (@ref calls_init). */
CLATTN_API void clattn_embedding_desc_init(clattn_embedding_desc *desc);

/** Where the arrays are this time. Set it up with CLATTN_EMBEDDING_ARGS_INIT. The output may
 * overlap nothing. */
typedef struct clattn_embedding_args {
    size_t size; /**< sizeof(clattn_embedding_args) */
    clattn_binding ids, table, y, position_table, offsets, segments, segment_table; /**< the array of that name */
    int32_t explicit_lengths; /**< 1: `batch` and `length` count; 0 (default): the description's extents */
    int32_t reserved;         /* 0 */
    size_t batch, length;     /**< at most the description's; 0 is allowed: forward does nothing, backward gives +0 */
    int64_t position;         /**< the position of each item's first element, before offsets; |position| <= 2^31 */
    struct {
        clattn_binding table, y;
    } gradients;              /**< the array of that name in the description's `gradients` */
    clattn_binding workspace; /**< backward: none (default), or a workspace (@ref calls_workspace) */
    clattn_control *control;  /**< what watches the call (control.h), or NULL */
} clattn_embedding_args;

/** Initialises a clattn_embedding_args: its size, and zeros. */
#define CLATTN_EMBEDDING_ARGS_INIT CLATTN_INIT(clattn_embedding_args)

/** Sets *args as CLATTN_EMBEDDING_ARGS_INIT does (@ref calls_init). */
CLATTN_API void clattn_embedding_args_init(clattn_embedding_args *args);

/** Tells whether some solver takes `desc`, and if not, why (@ref calls_supports).
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, INVALID_LAYOUT, OVERFLOW, UNSUPPORTED or OUT_OF_MEMORY. */
CLATTN_API clattn_status clattn_embedding_supports(clattn_context *context, const clattn_embedding_desc *desc,
                                                   const char **reason);

/** Compiles a plan for `desc` (@ref calls_plan). Blocks.
 *
 * @return what clattn_embedding_supports returns, FORKED, OPENCL, BUILD, MISCOMPILED, IO or INTERNAL. */
CLATTN_API clattn_status clattn_embedding_plan_create(clattn_context *context, const clattn_embedding_desc *desc,
                                                      const clattn_plan_options *options, clattn_plan **plan);

/** Enqueues the plan's one kernel, backward two (@ref calls_enqueue). Does not block.
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, OVERFLOW, UNSUPPORTED (shared virtual memory on a device without it),
 * WRONG_CONTEXT, BUFFER_TOO_SMALL, BUFFER_ACCESS, BUSY, OUT_OF_MEMORY, OPENCL, CANCELLED or FORKED. */
CLATTN_API clattn_status clattn_embedding_enqueue(clattn_plan *plan, cl_command_queue queue,
                                                  const clattn_embedding_args *args, cl_uint wait_count,
                                                  const cl_event *wait_list, cl_event *event);

/** Makes the plan that clattn_embedding_run will want for `desc` (@ref calls_prewarm). Blocks.
 *
 * @return what clattn_embedding_plan_create returns. */
CLATTN_API clattn_status clattn_embedding_prewarm(clattn_context *context, const clattn_embedding_desc *desc);

/** Finds or makes the plan for `desc` and enqueues it (@ref calls_run). Blocks only while it compiles.
 *
 * @return what clattn_embedding_plan_create and clattn_embedding_enqueue return. */
CLATTN_API clattn_status clattn_embedding_run(clattn_context *context, cl_command_queue queue,
                                              const clattn_embedding_desc *desc, const clattn_embedding_args *args,
                                              cl_uint wait_count, const cl_event *wait_list, cl_event *event);

CLATTN_END_DECLS

#endif
