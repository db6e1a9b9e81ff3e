/* Softmax over the last dimension.
 *
 *   Y[r,c] = exp(scale * X[r,c] + mask[r,c] − m_r) / sum_c' exp(scale * X[r,c'] + mask[r,c'] − m_r)
 *
 * with m_r the row's maximum.  Without a mask a row of −inf alone is NaN, as everywhere else; with one, a row
 * that attends nothing is exactly +0.  NaN, or +inf in an attended place, makes its row NaN. */
#ifndef CLATTN_SOFTMAX_H
#define CLATTN_SOFTMAX_H

#include "plan.h"

CLATTN_BEGIN_DECLS

/* What to compute.  Set it up with CLATTN_SOFTMAX_DESC_INIT. */
typedef struct clattn_softmax_desc {
    size_t size; /* sizeof(clattn_softmax_desc) */
    clattn_direction direction;
    int32_t explicit_scale; /* 1: `scale` counts; 0 (default): scale 1 */
    float scale;            /* any finite value, 0 and negative included */
    int32_t
        short_mask;  /* 1: the mask may have 2 ... columns - 1 columns, and those beyond are not attended; 0 (default):
                         * such a mask is refused */
    clattn_layout x; /* rank 1 … 5; the last dimension holds a row, of 1 … 2^31 − 65537
                         * elements, and there are at most as many rows; CLATTN_DTYPE_F32, CLATTN_DTYPE_F16 or
                         * CLATTN_DTYPE_BF16.  All is computed in float32. */
    clattn_layout
        y; /* the same extents; CLATTN_DTYPE_F32, CLATTN_DTYPE_F16 or CLATTN_DTYPE_BF16, whatever x is: rounded
                         * to nearest even, so that small probabilities may become subnormal or 0 */
    clattn_layout mask; /* none, or each extent 1 or x's, lower ranks get leading 1s: CLATTN_DTYPE_BOOL (true =
                         * attend) or CLATTN_DTYPE_F32 (added) */
} clattn_softmax_desc;

#define CLATTN_SOFTMAX_DESC_INIT CLATTN_INIT(clattn_softmax_desc)

/* What CLATTN_SOFTMAX_DESC_INIT does.  NULL is accepted. */
CLATTN_API void clattn_softmax_desc_init(clattn_softmax_desc *desc);

/* Where the arrays are.  Kernels also read y: a CL_MEM_WRITE_ONLY buffer is refused with BUFFER_ACCESS.  y
 * may be the same memory as x with the same layout (in place), and may otherwise overlap nothing. */
typedef struct clattn_softmax_args {
    size_t size; /* sizeof(clattn_softmax_args) */
    clattn_binding x, mask, y;
    int32_t explicit_batch; /* 1: `batch` counts; 0 (default): the desc's extent */
    int32_t reserved;       /* 0 */
    size_t batch;           /* of the first dimension, <= the desc's; rank 2 and above */
} clattn_softmax_args;

#define CLATTN_SOFTMAX_ARGS_INIT CLATTN_INIT(clattn_softmax_args)

/* What CLATTN_SOFTMAX_ARGS_INIT does.  NULL is accepted. */
CLATTN_API void clattn_softmax_args_init(clattn_softmax_args *args);

/* The five calls below behave as their namesakes in attention.h: contracts, blocking and statuses.  enqueue
 * and run also return UNSUPPORTED, for a shared-virtual-memory binding on a device that has none. */
CLATTN_API clattn_status clattn_softmax_supports(clattn_context *context, const clattn_softmax_desc *desc,
                                                 const char **reason);
CLATTN_API clattn_status clattn_softmax_plan_create(clattn_context *context, const clattn_softmax_desc *desc,
                                                    const clattn_plan_options *options, clattn_plan **plan);
CLATTN_API clattn_status clattn_softmax_enqueue(clattn_plan *plan, cl_command_queue queue,
                                                const clattn_softmax_args *args, cl_uint wait_count,
                                                const cl_event *wait_list, cl_event *event);
CLATTN_API clattn_status clattn_softmax_prewarm(clattn_context *context, const clattn_softmax_desc *desc);
CLATTN_API clattn_status clattn_softmax_run(clattn_context *context, cl_command_queue queue,
                                            const clattn_softmax_desc *desc, const clattn_softmax_args *args,
                                            cl_uint wait_count, const cl_event *wait_list, cl_event *event);

CLATTN_END_DECLS

#endif
