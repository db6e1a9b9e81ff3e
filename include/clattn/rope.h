/* Rotary position embedding (Su et al. 2021; ONNX's RotaryEmbedding, opset 23).
 *
 * The first rotary_size = 2 n elements of each head form n pairs; pair i of an element at position p is
 * rotated by an angle, what lies behind them is copied:
 *
 *   Y1 = X1 cos(a) − X2 sin(a)          halves:       X1 = X[i],    X2 = X[i + n]
 *   Y2 = X1 sin(a) + X2 cos(a)          interleaved:  X1 = X[2 i],  X2 = X[2 i + 1]
 *
 * The cosines and sines are given, or computed of the angle a = p · base^(−i/n).  Computed angles are kept as
 * fractions of a turn in 64-bit integers, which lose whole turns and nothing else: cos(a) and sin(a) are
 * within 1.3e-7 of exact for |p| up to 2^20, and within 4e-7 up to 2^31.  State is float32 whatever is
 * stored, and Y is rounded once.  A NaN or infinity stays within its pair. */
#ifndef CLATTN_ROPE_H
#define CLATTN_ROPE_H

#include "plan.h"

CLATTN_BEGIN_DECLS

typedef enum clattn_rope_pairing {
    CLATTN_ROPE_PAIRING_HALVES = 0,      /* i and i + n: GPT-NeoX, Llama in Transformers, ONNX's interleaved = 0 */
    CLATTN_ROPE_PAIRING_INTERLEAVED = 1, /* 2 i and 2 i + 1: the paper, GPT-J, Llama's own code */
    CLATTN_ROPE_PAIRING_FORCE_32BIT = 0x7fffffff
} clattn_rope_pairing;

/* What to compute.  Set it up with CLATTN_ROPE_DESC_INIT.  x, y and the caches are each CLATTN_DTYPE_F32,
 * CLATTN_DTYPE_F16 or CLATTN_DTYPE_BF16; cos and sin have the same.  Extents of batch and length are the largest ones
 * that an enqueue may use.
 *
 * The position of element s of batch item b is clattn_rope_args.position plus positions[b,s] or, without
 * them, plus offsets[b] (or 0) plus s. */
typedef struct clattn_rope_desc {
    size_t size; /* sizeof(clattn_rope_desc) */
    clattn_direction direction;
    clattn_rope_pairing pairing;
    float base;              /* of computed angles: finite, > 1; 0 (default): 10000 */
    int32_t reserved;        /* 0 */
    size_t rotary_size;      /* even, <= the head size and 131072; 0 (default): the head size */
    clattn_layout x;         /* (batch, heads, length, size); of (batch, length, heads · size) see clattn_layout_bshd */
    clattn_layout y;         /* the same extents */
    clattn_layout cos;       /* none: angles are computed.  (table, n): row p for position p; an element whose
                              * position is not in the table becomes NaN.  Or (batch or 1, length, n): row (b, s)
                              * whatever the position; positions and offsets are then none */
    clattn_layout sin;       /* the same extents */
    clattn_layout positions; /* none, or (batch or 1, length), CLATTN_DTYPE_I32 or CLATTN_DTYPE_I64 */
    clattn_layout offsets;   /* none, or (batch), CLATTN_DTYPE_I32 or CLATTN_DTYPE_I64; not together with positions */
} clattn_rope_desc;

#define CLATTN_ROPE_DESC_INIT CLATTN_INIT(clattn_rope_desc)

/* What CLATTN_ROPE_DESC_INIT does.  NULL is accepted. */
CLATTN_API void clattn_rope_desc_init(clattn_rope_desc *desc);

/* Where the arrays are.  y may be the same memory as x with the same layout (in place), and may otherwise
 * overlap nothing. */
typedef struct clattn_rope_args {
    size_t size; /* sizeof(clattn_rope_args) */
    clattn_binding x, y, cos, sin, positions, offsets;
    int32_t explicit_lengths; /* 1: `batch` and `length` count; 0 (default): the desc's extents */
    int32_t reserved;         /* 0 */
    size_t batch, length;     /* <= the desc's; 0 is allowed and does nothing */
    int64_t position;         /* added to every position: where the first element stands */
} clattn_rope_args;

#define CLATTN_ROPE_ARGS_INIT CLATTN_INIT(clattn_rope_args)

/* What CLATTN_ROPE_ARGS_INIT does.  NULL is accepted. */
CLATTN_API void clattn_rope_args_init(clattn_rope_args *args);

/* The five calls below behave as their namesakes in attention.h: contracts, blocking and statuses.  enqueue
 * and run also return UNSUPPORTED, for a shared-virtual-memory binding on a device that has none. */
CLATTN_API clattn_status clattn_rope_supports(clattn_context *context, const clattn_rope_desc *desc,
                                              const char **reason);
CLATTN_API clattn_status clattn_rope_plan_create(clattn_context *context, const clattn_rope_desc *desc,
                                                 const clattn_plan_options *options, clattn_plan **plan);
CLATTN_API clattn_status clattn_rope_enqueue(clattn_plan *plan, cl_command_queue queue, const clattn_rope_args *args,
                                             cl_uint wait_count, const cl_event *wait_list, cl_event *event);
CLATTN_API clattn_status clattn_rope_prewarm(clattn_context *context, const clattn_rope_desc *desc);
CLATTN_API clattn_status clattn_rope_run(clattn_context *context, cl_command_queue queue, const clattn_rope_desc *desc,
                                         const clattn_rope_args *args, cl_uint wait_count, const cl_event *wait_list,
                                         cl_event *event);

CLATTN_END_DECLS

#endif
