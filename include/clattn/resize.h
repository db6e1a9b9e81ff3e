/** @file
 * Resizing pictures and maps: nearest, bilinear and bicubic, with and without antialiasing.
 *
 *     Y[n,c,i,j] = Σ_k Σ_l v_i(k) · w_j(l) · X[n,c,k,l]
 *
 * The weights of rows, v, and of columns, w, are found alike. Let there be S elements along an axis of X and T along Y's,
 * and let r = S / T, with `explicit_scale` r = 1 / scale, and with `align_corners` r = (S − 1) / (T − 1), or 0 if T = 1.
 * Element i of Y then lies at
 *
 *     p(i) = (i + 1/2) · r − 1/2             the pixels' areas cover each other
 *     p(i) = i · r                           align_corners: the corner pixels' centres do
 *
 * and its weights are
 *
 *     nearest          1 for the element min(floor(i · r), S − 1)
 *     nearest exact    1 for the element min(floor((i + 1/2) · r), S − 1)
 *     bilinear         f(k − p(i))   with   f(d) = max(0, 1 − |d|)
 *     bicubic          f(k − p(i))   with   f(d) = (a + 2)|d|³ − (a + 3)|d|² + 1         for |d| <= 1
 *                                           f(d) = a|d|³ − 5a|d|² + 8a|d| − 4a           for 1 < |d| < 2, else 0
 *
 * (Keys 1981). Taps outside of X count as the element at its edge. These are PyTorch's interpolate (`mode`,
 * `align_corners`; `scale` is its scale_factor unless recompute_scale_factor is set) and ONNX's Resize: linear and cubic with
 * coordinate_transformation_mode half_pixel or align_corners; nearest with asymmetric and nearest_mode floor; nearest exact with
 * half_pixel and round_prefer_ceil.
 *
 * With `antialias`, the filter is stretched to cover what a smaller Y skips: if r > 1, f((k − p(i)) / r) takes f's place.
 * Taps outside of X do not count, and an element's weights are divided by their sum, as PyTorch's and Pillow's are.
 *
 * The numbers:
 *
 * - Nearest copies. Its r, sums and products are float32, each rounded, as in PyTorch, so that both find the same
 *   element. (PyTorch ignores `scale` of nearest, not of nearest exact, if Y is as large as X or twice as large.)
 * - Otherwise positions are rounded to 2^-24 of a pixel, with antialiasing of the filter's width, however large the picture is;
 *   PyTorch rounds whole coordinates to float32. The error of Y, before its rounding to the storage type, is at most
 *
 *       (8 + t) · 2^-23 · (1 + |a|)² · the largest |X| with a weight
 *
 *   where t is the number of taps along both axes together (4, 8; antialias up to 4(r + r') + 2), and a is 0 unless bicubic.
 * - A tap of weight 0 does not count, so that NaN and infinities spread no further than the filter. Subnormals may
 *   count as 0 and become 0.
 */
#ifndef CLATTN_RESIZE_H
#define CLATTN_RESIZE_H

#include "plan.h"

CLATTN_BEGIN_DECLS

/** How an element of Y is made. */
typedef enum clattn_resize_mode {
    CLATTN_RESIZE_MODE_NEAREST = 0,       /**< of one element: the one in which its upper left corner lies */
    CLATTN_RESIZE_MODE_NEAREST_EXACT = 1, /**< of one element: the one in which its centre lies */
    CLATTN_RESIZE_MODE_BILINEAR = 2,      /**< of two by two */
    CLATTN_RESIZE_MODE_BICUBIC = 3,       /**< of four by four */
    CLATTN_RESIZE_MODE_FORCE_32BIT = 0x7fffffff
} clattn_resize_mode;

/** What to compute. Set it up with CLATTN_RESIZE_DESC_INIT.
 *
 * x and y are each float32, float16 or bfloat16, independently of each other. Their extents are in the order given here
 * whatever the order in memory, which strides tell: clattn_layout_nchw and clattn_layout_nhwc make both. */
typedef struct clattn_resize_desc {
    size_t size;                /**< sizeof(clattn_resize_desc) */
    clattn_direction direction; /**< CLATTN_DIRECTION_FORWARD */
    clattn_resize_mode mode;    /**< how an element of y is made */
    int32_t align_corners;      /**< 1: the corners' centres lie on each other; bilinear and bicubic only */

    /** 1: a smaller y is made of all elements of x; bilinear and bicubic only, without align_corners (PyTorch takes both
     * and then aligns no corners). */
    int32_t antialias;
    int32_t explicit_scale; /**< 1: `scale` counts, but not with align_corners; 0 (default): y's extents over x's */

    /** 1: `cubic_a` counts; 0 (default): -0.75, with antialias -0.5, as in PyTorch. ONNX's cubic_coeff_a is -0.75. */
    int32_t explicit_cubic_a;

    /** How many elements of y one of x becomes along (height, width): finite, above 0, at least 2^-28, and such that no
     * element of y begins behind x. */
    double scale[2];
    float cubic_a;    /**< a of bicubic: -4 ... 4 */
    int32_t reserved; /* 0 */
    clattn_layout x;  /**< the input, (batch, channels, height, width) of at most 2^28 rows and columns */
    clattn_layout y;  /**< the output, with x's batch and channels and any height and width up to these limits */
} clattn_resize_desc;

/** Initialises a clattn_resize_desc: its size, and zeros. */
#define CLATTN_RESIZE_DESC_INIT CLATTN_INIT(clattn_resize_desc)

/** Sets *desc as CLATTN_RESIZE_DESC_INIT does (@ref calls_init). */
CLATTN_API void clattn_resize_desc_init(clattn_resize_desc *desc);

/** Where the arrays are this time. Set it up with CLATTN_RESIZE_ARGS_INIT. y may not overlap x. */
typedef struct clattn_resize_args {
    size_t size;             /**< sizeof(clattn_resize_args) */
    clattn_binding x, y;     /**< the array of that name */
    int32_t explicit_batch;  /**< 1: `batch` counts; 0 (default): the description's extent */
    int32_t reserved;        /* 0 */
    size_t batch;            /**< the extent of the first axis, at most the description's */
    clattn_control *control; /**< what watches the call (control.h), or NULL */
} clattn_resize_args;

/** Initialises a clattn_resize_args: its size, and zeros. */
#define CLATTN_RESIZE_ARGS_INIT CLATTN_INIT(clattn_resize_args)

/** Sets *args as CLATTN_RESIZE_ARGS_INIT does (@ref calls_init). */
CLATTN_API void clattn_resize_args_init(clattn_resize_args *args);

/** Tells whether some solver takes `desc`, and if not, why (@ref calls_supports).
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, INVALID_LAYOUT, OVERFLOW, UNSUPPORTED or OUT_OF_MEMORY. */
CLATTN_API clattn_status clattn_resize_supports(clattn_context *context, const clattn_resize_desc *desc,
                                                const char **reason);

/** Compiles a plan for `desc` (@ref calls_plan). Blocks.
 *
 * All modes, sizes and strides of the same two types share one program.
 *
 * @return what clattn_resize_supports returns, FORKED, OPENCL, BUILD, MISCOMPILED, IO or INTERNAL. */
CLATTN_API clattn_status clattn_resize_plan_create(clattn_context *context, const clattn_resize_desc *desc,
                                                   const clattn_plan_options *options, clattn_plan **plan);

/** Enqueues the plan's one kernel (@ref calls_enqueue). Does not block.
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, OVERFLOW, UNSUPPORTED (shared virtual memory on a device without it),
 * WRONG_CONTEXT, BUFFER_TOO_SMALL, BUFFER_ACCESS, OUT_OF_MEMORY, OPENCL, CANCELLED or FORKED. */
CLATTN_API clattn_status clattn_resize_enqueue(clattn_plan *plan, cl_command_queue queue,
                                               const clattn_resize_args *args, cl_uint wait_count,
                                               const cl_event *wait_list, cl_event *event);

/** Makes the plan that clattn_resize_run will want for `desc` (@ref calls_prewarm). Blocks.
 *
 * @return what clattn_resize_plan_create returns. */
CLATTN_API clattn_status clattn_resize_prewarm(clattn_context *context, const clattn_resize_desc *desc);

/** Finds or makes the plan for `desc` and enqueues it (@ref calls_run). Blocks only while it compiles.
 *
 * @return what clattn_resize_plan_create and clattn_resize_enqueue return. */
CLATTN_API clattn_status clattn_resize_run(clattn_context *context, cl_command_queue queue,
                                           const clattn_resize_desc *desc, const clattn_resize_args *args,
                                           cl_uint wait_count, const cl_event *wait_list, cl_event *event);

CLATTN_END_DECLS

#endif
