/* Embedding: rows of tables for ids, added up.
 *
 *   Y[b,s] = scale * table[ids[b,s]]  (+ position row p(b,s))  (+ segment_table[segments[b,s]])
 *
 * A Transformer's first layer: tokens by their ids, times the square root of the model's size in the paper; positions by
 * a table that was learnt, or the paper's sinusoids; segments as BERT has them (its token types).
 *
 * Position p(b,s) is clattn_embedding_args.position plus offsets[b] (or 0) plus s.  The sinusoids of a row of d elements
 * are sin(p / 10000^(2 i / d)) at 2 i and cos of the same at 2 i + 1, within 4e-7 of exact for |p| up to 2^31.
 *
 * State is float32 whatever is stored, and Y is rounded once.  A row whose id, position or segment is not in its table
 * is all NaN: a wrong id reads nothing that it should not, and does not pass unnoticed. */
#ifndef CLATTN_EMBEDDING_H
#define CLATTN_EMBEDDING_H

#include "plan.h"

CLATTN_BEGIN_DECLS

/* What is added to each row for its position. */
typedef enum clattn_positions {
    CLATTN_POSITIONS_NONE = 0,      /* nothing */
    CLATTN_POSITIONS_SINUSOIDS = 1, /* the paper's, section 3.5, computed; the size is even, and at most 131072 */
    CLATTN_POSITIONS_TABLE = 2, /* a row of a table: learned positions, or Whisper's sinusoids as its files have them */
    CLATTN_POSITIONS_FORCE_32BIT = 0x7fffffff
} clattn_positions;

/* What to compute.  Set it up with CLATTN_EMBEDDING_DESC_INIT.  The tables and y are each CLATTN_DTYPE_F32, CLATTN_DTYPE_F16 or
 * CLATTN_DTYPE_BF16, independently of each other.  Extents of batch and length are the largest ones that an enqueue may use. */
typedef struct clattn_embedding_desc {
    size_t size; /* sizeof(clattn_embedding_desc) */
    clattn_direction direction;
    clattn_positions positions;
    int32_t explicit_scale;       /* 1: `scale` counts; 0 (default): 1 */
    float scale;                  /* of table's rows alone: finite */
    clattn_layout ids;            /* (batch, length), CLATTN_DTYPE_I32 */
    clattn_layout table;          /* (rows, size) */
    clattn_layout y;              /* (batch, length, size) */
    clattn_layout position_table; /* (rows, size) with CLATTN_POSITIONS_TABLE, else none */
    clattn_layout offsets;        /* none, or (batch), CLATTN_DTYPE_I32; with positions only */
    clattn_layout segments;       /* none, or (batch or 1, length), CLATTN_DTYPE_I32 */
    clattn_layout segment_table;  /* (rows, size) with segments, else none */
} clattn_embedding_desc;

#define CLATTN_EMBEDDING_DESC_INIT CLATTN_INIT(clattn_embedding_desc)

/* What CLATTN_EMBEDDING_DESC_INIT does.  NULL is accepted. */
CLATTN_API void clattn_embedding_desc_init(clattn_embedding_desc *desc);

/* Where the arrays are.  y may overlap nothing. */
typedef struct clattn_embedding_args {
    size_t size; /* sizeof(clattn_embedding_args) */
    clattn_binding ids, table, y, position_table, offsets, segments, segment_table;
    int32_t explicit_lengths; /* 1: `batch` and `length` count; 0 (default): the desc's extents */
    int32_t reserved;         /* 0 */
    size_t batch, length;     /* <= the desc's; 0 is allowed and does nothing */
    int64_t position;         /* of the first element of each item, before offsets; |position| <= 2^31 */
} clattn_embedding_args;

#define CLATTN_EMBEDDING_ARGS_INIT CLATTN_INIT(clattn_embedding_args)

/* What CLATTN_EMBEDDING_ARGS_INIT does.  NULL is accepted. */
CLATTN_API void clattn_embedding_args_init(clattn_embedding_args *args);

/* The five calls below behave as their namesakes in attention.h: contracts, blocking and statuses.  enqueue
 * and run also return UNSUPPORTED, for a shared-virtual-memory binding on a device that has none. */
CLATTN_API clattn_status clattn_embedding_supports(clattn_context *context, const clattn_embedding_desc *desc,
                                                   const char **reason);
CLATTN_API clattn_status clattn_embedding_plan_create(clattn_context *context, const clattn_embedding_desc *desc,
                                                      const clattn_plan_options *options, clattn_plan **plan);
CLATTN_API clattn_status clattn_embedding_enqueue(clattn_plan *plan, cl_command_queue queue,
                                                  const clattn_embedding_args *args, cl_uint wait_count,
                                                  const cl_event *wait_list, cl_event *event);
CLATTN_API clattn_status clattn_embedding_prewarm(clattn_context *context, const clattn_embedding_desc *desc);
CLATTN_API clattn_status clattn_embedding_run(clattn_context *context, cl_command_queue queue,
                                              const clattn_embedding_desc *desc, const clattn_embedding_args *args,
                                              cl_uint wait_count, const cl_event *wait_list, cl_event *event);

CLATTN_END_DECLS

#endif
