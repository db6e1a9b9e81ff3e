/** @file
 * Images: from an image2d_t into an array that the operators take, and back, on the application's queue.
 *
 *     pack     A[y,x,c]               = J[origin_y + y, origin_x + x].c
 *              A[y,x,(i*P + j)*C + c] = J[origin_y + y + i − P/2, origin_x + x + j − P/2].c    with a patch P
 *              N[y,x]                 = norm_factor * sum of A[y,x,·]^2                        norm (height, width)
 *              N[y,x,c]               = norm_factor * sum_ij A[y,x,(i*P + j)*C + c]^2          norm (height, width, C)
 *     unpack   J[origin_y + y, origin_x + x].c = A[y,x,c]
 *
 * Component c = 0 ... 3 is red, green, blue or alpha, whatever the order in memory. J is what the array sees: the
 * image's components, with colours converted as follows, each step if it is asked for. Unpack goes the other way: it
 * multiplies by its own matrix (give it the inverse of pack's, to undo that), encodes, multiplies by alpha. Alpha stays.
 * An image without alpha has alpha 1; unpack takes alpha from the array's fourth channel, or 1.
 *
 *     the image's colours       pack does                                              asked for by
 *     multiplied by alpha       1. divides them by alpha; 0 where alpha is 0           CLATTN_IMAGE_ALPHA_PREMULTIPLIED
 *     encoded as sRGB           2. decodes them, so that they are linear               CLATTN_IMAGE_TRANSFER_SRGB
 *     to be mixed               3. J.c = ((m[c][0] r + m[c][1] g) + m[c][2] b) + m[c][3] for c = 0 ... 2, in float32
 *                                  without contraction                                 explicit_matrix
 *
 * 1. Colours are taken for first encoded and then multiplied, as in Cairo, Skia, HTML's canvas and GEGL's R'aG'aB'aA; of an
 *    image that multiplies linear light and then encodes it (blending into an sRGB framebuffer), only opaque pixels
 *    come out right. Unpack multiplies by alpha, and a colour above 1 may so exceed alpha.
 *
 *    A mean of straight colours, attention's too, counts what transparent pixels hold, which pack has made black: dark
 *    fringes. Give such pixels no weight (a mask), or leave the colours multiplied (CLATTN_IMAGE_ALPHA_STRAIGHT
 *    changes nothing) and average alpha with them.
 * 2. IEC 61966-2-1 (1999): v / 12.92 for v <= 0.04045, otherwise ((v + 0.055) / 1.055)^2.4. Unpack encodes: 12.92 v for
 *    v <= 0.0031308, otherwise 1.055 v^(1/2.4) - 0.055. Below 0 both are mirrored, f(-v) = -f(v); above 1 they go on. For
 *    |v| <= 1 the float32 result is within 32 ulp decoded, and encoded within 40 ulp of 1 (a third of a step of
 *    CL_UNORM_INT16). This works for every format on every device; images of CL_sRGBA and its like, which few drivers
 *    read and fewer write, are refused.
 *
 * An image of CL_R has red alone, one of CL_RG red and green: a plane of NV12, P010 or planar YUV is packed into an array
 * of 1 or 2 channels. If the array has more, pack gives 0 for components that the image lacks, and 1 for alpha, as
 * read_imagef does; if it has fewer, the others are left out. So a colour matrix can make three equal channels of a grey
 * plane, and a plane of luma of three channels. A matrix sees one image only, and nothing here scales: to make colours of
 * luma and of chroma of half the size is the application's part. A driver without CL_RG (PoCL) reads such a plane as CL_R
 * of twice the width, as a contiguous array of (height, 2 width, 1) is one of (height, width, 2). Then origin_x and width
 * count components, beyond the edge a single one is repeated, and patches mix both.
 *
 * Pack clamps coordinates to the image: what lies outside has the value of the nearest edge pixel, so a tile may be
 * read with a margin. With a patch, each pixel becomes a row of its P x P neighbourhood, pixel by pixel and row by
 * row: what non-local means compares (Buades, Coll, Morel 2005), and a convolution's im2col. (Strides cannot express a
 * patch, because it needs two dimensions and the size of a query has one.) The pixel itself is the C elements from
 * (P*P/2)*C on: with that offset the same memory serves as values. Component c of a whole patch is every C-th element
 * from c on, a head of its own.
 *
 * The numbers:
 *
 * - Pack of CL_UNORM_INT8 gives v / 255 and of CL_UNORM_INT16 v / 65535, as read_imagef does: 0 and the largest are
 *   exact, others within 1.5 ulp of float32. Pack of CL_HALF_FLOAT and CL_FLOAT gives the value. The result is then
 *   rounded to nearest even to the array's type.
 * - A colour divided by alpha is within 6 ulp.
 * - Unpack to CL_UNORM_INT8 (INT16) stores the whole number nearest to the float32 product 255 v (65535 v), ties to
 *   even; v below 0 and NaN become 0, and v above 1 the largest. Unpack to CL_HALF_FLOAT stores the nearest value,
 *   ties to even, and an infinity beyond 65520; unpack to CL_FLOAT stores the value.
 * - NaN stays NaN if it can be stored. Subnormals may become 0. Components that the array lacks count as 0, alpha as
 *   1.
 */
#ifndef CLATTN_IMAGE_H
#define CLATTN_IMAGE_H

#include "plan.h"

CLATTN_BEGIN_DECLS

/** Which way data goes. */
typedef enum clattn_image_operation {
    CLATTN_IMAGE_OPERATION_PACK = 0,   /**< from an image to an array */
    CLATTN_IMAGE_OPERATION_UNPACK = 1, /**< from an array to an image */
    CLATTN_IMAGE_OPERATION_FORCE_32BIT = 0x7fffffff
} clattn_image_operation;

/** How the image's red, green and blue are encoded. */
typedef enum clattn_image_transfer {
    CLATTN_IMAGE_TRANSFER_LINEAR = 0, /**< not at all, or as the array is: numbers stay as they are */
    CLATTN_IMAGE_TRANSFER_SRGB = 1,   /**< by sRGB's transfer function; the array is linear */
    CLATTN_IMAGE_TRANSFER_FORCE_32BIT = 0x7fffffff
} clattn_image_transfer;

/** What the image's alpha has done to its colours. */
typedef enum clattn_image_alpha {
    CLATTN_IMAGE_ALPHA_STRAIGHT = 0,      /**< nothing */
    CLATTN_IMAGE_ALPHA_PREMULTIPLIED = 1, /**< they are multiplied by it; those of the array are not */
    CLATTN_IMAGE_ALPHA_FORCE_32BIT = 0x7fffffff
} clattn_image_alpha;

/** The largest patch. */
#define CLATTN_IMAGE_MAX_PATCH 31

/** What to do. Set it up with CLATTN_IMAGE_DESC_INIT. Extents are the largest that an enqueue may use. */
typedef struct clattn_image_desc {
    size_t size;                      /**< sizeof(clattn_image_desc) */
    clattn_image_operation operation; /**< which way data goes */
    int32_t patch;                    /**< P of pack, odd, up to CLATTN_IMAGE_MAX_PATCH; 0 (default): 1 */

    /** (height, width, C P²) with C = 1 ... 4: float32, float16 or bfloat16, any strides. A stride of 0 repeats what
     * unpack reads: (height, width, 3) over one channel writes grey. */
    clattn_layout array;

    /** None, or a float32 output of pack, (height, width) or (height, width, C). It sums what the array holds after
     * rounding to its type. */
    clattn_layout norm;

    clattn_image_transfer transfer; /**< how the image's colours are encoded; default: linear */
    clattn_image_alpha alpha;       /**< what alpha has done to them; default: straight */
    int32_t image_array; /**< 1: the image is an array of 2D images, one of which counts; 0 (default): one image */
    int32_t reserved;    /* 0 */
} clattn_image_desc;

/** Initialises a clattn_image_desc: its size, and zeros. */
#define CLATTN_IMAGE_DESC_INIT CLATTN_INIT(clattn_image_desc)

/** Sets *desc as CLATTN_IMAGE_DESC_INIT does (@ref calls_init). */
CLATTN_API void clattn_image_desc_init(clattn_image_desc *desc);

/** Where the image and the arrays are this time, and which part of the image counts.
 *
 * Set it up with CLATTN_IMAGE_ARGS_INIT. The image is a 2D image (CL_MEM_OBJECT_IMAGE2D) or, if the description says so, an
 * array of 2D images (CL_MEM_OBJECT_IMAGE2D_ARRAY), of channel order CL_R, CL_RG,
 * CL_RGBA or CL_BGRA and of type CL_UNORM_INT8, CL_UNORM_INT16, CL_HALF_FLOAT or CL_FLOAT; other formats are refused
 * with UNSUPPORTED, even if the device can read them. If pack has a norm, kernels also read the array.
 *
 * The origin of pack is anywhere within ±2^30. Unpack's region has to lie within the image; INVALID_ARGUMENT
 * otherwise. */
typedef struct clattn_image_args {
    size_t size;                /**< sizeof(clattn_image_args) */
    clattn_binding image;       /**< the image, by clattn_binding_image */
    clattn_binding array, norm; /**< the array of that name */

    int64_t origin_x, origin_y; /**< the pixel of element (0, 0) */
    int32_t explicit_region;    /**< 1: `width` and `height` count; 0 (default): the description's extents */
    float norm_factor;          /**< what norms are multiplied by: any finite value; the default is 0 */
    size_t width, height;       /**< at most the description's; 0 is allowed and does nothing */
    int32_t explicit_matrix;    /**< 1: `matrix` counts; 0 (default): colours stay as they are */
    float matrix[3][4];         /**< finite values; to undo pack's matrix, give unpack the inverse */
    int32_t reserved;           /* 0 */
    clattn_binding workspace;   /**< none (default), or a workspace (@ref calls_workspace), which must be a buffer */
    size_t layer;               /**< which image of an array of images */
    clattn_control *control;    /**< what watches the call (control.h), or NULL */
} clattn_image_args;

/** Initialises a clattn_image_args: its size, and zeros. */
#define CLATTN_IMAGE_ARGS_INIT CLATTN_INIT(clattn_image_args)

/** Sets *args as CLATTN_IMAGE_ARGS_INIT does (@ref calls_init). */
CLATTN_API void clattn_image_args_init(clattn_image_args *args);

/** Tells whether some solver takes `desc`, and if not, why (@ref calls_supports).
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, INVALID_LAYOUT, OVERFLOW, UNSUPPORTED or OUT_OF_MEMORY. */
CLATTN_API clattn_status clattn_image_supports(clattn_context *context, const clattn_image_desc *desc,
                                               const char **reason);

/** Compiles a plan for `desc` (@ref calls_plan). Blocks.
 *
 * A device without images is refused with UNSUPPORTED.
 *
 * @return what clattn_image_supports returns, FORKED, OPENCL, BUILD, MISCOMPILED, IO or INTERNAL. */
CLATTN_API clattn_status clattn_image_plan_create(clattn_context *context, const clattn_image_desc *desc,
                                                  const clattn_plan_options *options, clattn_plan **plan);

/** Enqueues the plan's kernel (@ref calls_enqueue). Does not block.
 *
 * On a CPU the driver also copies the pixels from the image to a workspace of at most 2 MiB (or a few rows, if those are
 * larger), or back, a band of rows at a time; the kernel converts them there.
 *
 * Other operators on the same queue, or ordered by events, may use the array at once: no host copy lies between.
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, OVERFLOW, UNSUPPORTED (among others, an image of another format),
 * WRONG_CONTEXT, BUFFER_TOO_SMALL, BUFFER_ACCESS, BUSY, OUT_OF_MEMORY, OPENCL, CANCELLED or FORKED. */
CLATTN_API clattn_status clattn_image_enqueue(clattn_plan *plan, cl_command_queue queue, const clattn_image_args *args,
                                              cl_uint wait_count, const cl_event *wait_list, cl_event *event);

/** Makes the plan that clattn_image_run will want for `desc` (@ref calls_prewarm). Blocks.
 *
 * @return what clattn_image_plan_create returns. */
CLATTN_API clattn_status clattn_image_prewarm(clattn_context *context, const clattn_image_desc *desc);

/** Finds or makes the plan for `desc` and enqueues it (@ref calls_run). Blocks only while it compiles.
 *
 * @return what clattn_image_plan_create and clattn_image_enqueue return. */
CLATTN_API clattn_status clattn_image_run(clattn_context *context, cl_command_queue queue,
                                          const clattn_image_desc *desc, const clattn_image_args *args,
                                          cl_uint wait_count, const cl_event *wait_list, cl_event *event);

CLATTN_END_DECLS

#endif
