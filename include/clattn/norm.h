/* Normalisation over trailing axes: LayerNorm and RMSNorm.
 *
 *   layer:  Y = (X − mean) / sqrt(mean((X − mean)²) + epsilon) · scale + bias       (Ba et al. 2016)
 *   RMS:    Y = X / sqrt(mean(X²) + epsilon) · scale + bias                         (Zhang, Sennrich 2019)
 *
 * with the means over the normalised axes of each row.  These are ONNX's LayerNormalization (opset 17, with
 * its optional outputs Mean and InvStdDev) and RMSNormalization (opset 23), stash_type float32.
 *
 * With a residual X + residual, added and rounded in float32, takes X's place, and `sum` is that as an output: what a
 * Transformer's layer hands on, and its next norm, in one pass (SkipLayerNormalization).
 *
 * State is float32 whatever is stored.  The mean is subtracted before anything is squared (two passes), and
 * the deviations' own mean, which is what rounding has left in it, once more: an offset common to a row costs
 * nothing however large, and Y before its rounding to the storage type is within 8·2^-23 of
 * (|X − mean| + mean|X − mean|) · |scale| / sqrt(…) + |bias|, or of |X| · |scale| / sqrt(…) + |bias|. Squares
 * below 2^-126 may be lost, which an epsilon of that size would notice.
 *
 * A row that holds NaN or an infinity is NaN, and so is one whose sum or sum of squares is beyond float32's
 * range (elements of 1e19 and more), which 16-bit floats can reach as bfloat16 only.  A constant row is bias;
 * with epsilon 0 it has no value that could be relied on. */
#ifndef CLATTN_NORM_H
#define CLATTN_NORM_H

#include "plan.h"

CLATTN_BEGIN_DECLS

typedef enum clattn_norm_kind {
    CLATTN_NORM_KIND_LAYER = 0,
    CLATTN_NORM_KIND_RMS = 1,
    CLATTN_NORM_KIND_FORCE_32BIT = 0x7fffffff
} clattn_norm_kind;

/* What to compute.  Set it up with CLATTN_NORM_DESC_INIT.  x, y, scale, bias, residual and sum are each CLATTN_DTYPE_F32,
 * CLATTN_DTYPE_F16 or CLATTN_DTYPE_BF16, independently of each other. */
typedef struct clattn_norm_desc {
    size_t size; /* sizeof(clattn_norm_desc) */
    clattn_direction direction;
    clattn_norm_kind kind;
    int32_t axes;              /* how many trailing axes are normalised together, 1 … rank; 0 (default): 1.
                               * An `axis` as ONNX counts it is rank − axes, or −axes. */
    int32_t explicit_epsilon;  /* 1: `epsilon` counts; 0 (default): 1e-5 */
    float epsilon;             /* finite, >= 0 */
    int32_t reserved;          /* 0 */
    clattn_layout x;           /* rank 1 … 5; at most 2^31 − 65537 rows of as many elements */
    clattn_layout y;           /* the same extents */
    clattn_layout scale;       /* none: 1.  Rank up to x's, lower ranks get leading 1s; each extent 1 or x's: */
    clattn_layout bias;        /* none: 0.  also one for each row, as adaptive normalisation has it */
    clattn_layout mean;        /* none, or CLATTN_DTYPE_F32: x's extents, 1 for each normalised axis.  LAYER only */
    clattn_layout inv_std_dev; /* none, or the same: 1 / sqrt(mean((X − mean)²) + epsilon); RMS: of mean(X²) */
    clattn_layout residual;    /* none, or what is added to x: extents as scale's */
    clattn_layout sum;         /* none, or x's extents: an output, x + residual.  With a residual only */
} clattn_norm_desc;

#define CLATTN_NORM_DESC_INIT CLATTN_INIT(clattn_norm_desc)

/* What CLATTN_NORM_DESC_INIT does.  NULL is accepted. */
CLATTN_API void clattn_norm_desc_init(clattn_norm_desc *desc);

/* Where the arrays are.  y and sum may each be the same memory as x or as residual, if that has x's extents, with the same
 * layout (in place), and may otherwise overlap nothing; nor may mean and inv_std_dev. */
typedef struct clattn_norm_args {
    size_t size; /* sizeof(clattn_norm_args) */
    clattn_binding x, y, scale, bias, mean, inv_std_dev;
    int32_t explicit_batch; /* 1: `batch` counts; 0 (default): the desc's extent */
    int32_t reserved;       /* 0 */
    size_t batch;           /* of the first axis, <= the desc's; where that axis is not normalised */
    clattn_binding residual, sum;
} clattn_norm_args;

#define CLATTN_NORM_ARGS_INIT CLATTN_INIT(clattn_norm_args)

/* What CLATTN_NORM_ARGS_INIT does.  NULL is accepted. */
CLATTN_API void clattn_norm_args_init(clattn_norm_args *args);

/* The five calls below behave as their namesakes in attention.h: contracts, blocking and statuses.  enqueue
 * and run also return UNSUPPORTED, for a shared-virtual-memory binding on a device that has none.  Where x
 * has no elements nothing is written, mean and inv_std_dev included. */
CLATTN_API clattn_status clattn_norm_supports(clattn_context *context, const clattn_norm_desc *desc,
                                              const char **reason);
CLATTN_API clattn_status clattn_norm_plan_create(clattn_context *context, const clattn_norm_desc *desc,
                                                 const clattn_plan_options *options, clattn_plan **plan);
CLATTN_API clattn_status clattn_norm_enqueue(clattn_plan *plan, cl_command_queue queue, const clattn_norm_args *args,
                                             cl_uint wait_count, const cl_event *wait_list, cl_event *event);
CLATTN_API clattn_status clattn_norm_prewarm(clattn_context *context, const clattn_norm_desc *desc);
CLATTN_API clattn_status clattn_norm_run(clattn_context *context, cl_command_queue queue, const clattn_norm_desc *desc,
                                         const clattn_norm_args *args, cl_uint wait_count, const cl_event *wait_list,
                                         cl_event *event);

CLATTN_END_DECLS

#endif
