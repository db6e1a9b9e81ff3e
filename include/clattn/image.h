/* Images: from an image2d_t into an array that the operators take, and back, on the application's queue.
 *
 *   pack     A[y,x,c]               = J[origin_y + y, origin_x + x].c
 *            A[y,x,(i*P + j)*C + c] = J[origin_y + y + i − P/2, origin_x + x + j − P/2].c           (patch P)
 *            N[y,x]                 = norm_factor * sum of A[y,x,·]^2                        (if asked for)
 *            N[y,x,c]               = norm_factor * sum_ij A[y,x,(i*P + j)*C + c]^2       (or so)
 *   unpack   J[origin_y + y, origin_x + x].c = A[y,x,c]
 *
 * with component c = 0 … 3: red, green, blue, alpha, whatever the order in memory.  J is the image, or with a
 * colour matrix its colours multiplied by it: J.c = ((m[c][0] r + m[c][1] g) + m[c][2] b) + m[c][3] for c = 0
 * … 2 on the way in, in float32 without contraction, and the image's r, g, b are the same of J's on the way
 * out; alpha stays.
 *
 * Pack clamps coordinates to the image: what lies outside has the value of the nearest edge pixel, so that a
 * tile may be read with a margin.  With a patch, each pixel becomes a row of its P x P neighbourhood, pixel
 * by pixel and row by row: what non-local means compares (Buades, Coll, Morel 2005), and a convolution's
 * im2col. That is here and not a matter of strides because a patch needs two dimensions where the size of a
 * query has one.  The pixel itself is the C elements from (P*P/2)*C on: with that offset the same memory
 * serves as values; and component c of all of a patch is every C-th element from c on, a head of its own.
 *
 * The numbers.  Pack of CL_UNORM_INT8 gives v / 255, of CL_UNORM_INT16 v / 65535, as read_imagef does (0 and
 * the largest exact, others within 1.5 ulp of float32); of CL_HALF_FLOAT and CL_FLOAT the value.  It is then
 * rounded to nearest even to the array's dtype.  Unpack to CL_UNORM_INT8 (INT16) stores the whole number
 * nearest to the float32 product 255 v (65535 v), ties to even, v below 0 and NaN as 0, above 1 as the
 * largest; to CL_HALF_FLOAT the nearest, ties to even, beyond 65520 an infinity; to CL_FLOAT the value.  NaN
 * stays NaN where it can be stored; subnormals may become 0.  Components that the array lacks count as 0,
 * alpha as 1. */
#ifndef CLATTN_IMAGE_H
#define CLATTN_IMAGE_H

#include "plan.h"

CLATTN_BEGIN_DECLS

typedef enum clattn_image_operation {
    CLATTN_IMAGE_OPERATION_PACK = 0,   /* image to array */
    CLATTN_IMAGE_OPERATION_UNPACK = 1, /* array to image */
    CLATTN_IMAGE_OPERATION_FORCE_32BIT = 0x7fffffff
} clattn_image_operation;

#define CLATTN_IMAGE_MAX_PATCH 31

/* What to do.  Set it up with CLATTN_IMAGE_DESC_INIT.  Extents are the largest ones that an enqueue may use.
 */
typedef struct clattn_image_desc {
    size_t size; /* sizeof(clattn_image_desc) */
    clattn_image_operation operation;
    int32_t patch;       /* pack: P, odd, up to CLATTN_IMAGE_MAX_PATCH; 0 (default): 1 */
    clattn_layout array; /* (height, width, C P²), C 1 … 4: CLATTN_DTYPE_F32, F16 or BF16, any strides.  Unpack: a
                          * stride of 0 repeats, so that (height, width, 3) over one channel writes grey */
    clattn_layout norm;  /* pack: none, or (height, width) CLATTN_DTYPE_F32; sums what the array holds, after
                          * rounding to its dtype */
} clattn_image_desc;

#define CLATTN_IMAGE_DESC_INIT CLATTN_INIT(clattn_image_desc)

/* What CLATTN_IMAGE_DESC_INIT does.  NULL is accepted. */
CLATTN_API void clattn_image_desc_init(clattn_image_desc *desc);

/* Where the image and the arrays are this time, and which part of the image counts.  The image is a 2D image
 * (CL_MEM_OBJECT_IMAGE2D) of channel order CL_RGBA or CL_BGRA and of type CL_UNORM_INT8, CL_UNORM_INT16,
 * CL_HALF_FLOAT or CL_FLOAT; what else a device may read is refused with UNSUPPORTED. */
typedef struct clattn_image_args {
    size_t size;          /* sizeof(clattn_image_args) */
    clattn_binding image; /* clattn_binding_image */
    clattn_binding array, norm;
    int64_t origin_x, origin_y; /* the pixel of element (0, 0).  Pack: anywhere within ±2^30, see above;
                                 * unpack: the region lies within the image, else INVALID_ARGUMENT */
    int32_t explicit_region;    /* 1: the two fields below count; 0 (default): the desc's extents */
    float norm_factor;          /* with a norm; any finite value, default 0 */
    size_t width, height;       /* <= the desc's; 0 is allowed and does nothing */
    int32_t explicit_matrix;    /* 1: `matrix` counts; 0 (default): colours as they are */
    float matrix[3][4];         /* of finite values; pack's and unpack's are to be each other's inverse */
    int32_t reserved;           /* 0 */
} clattn_image_args;

#define CLATTN_IMAGE_ARGS_INIT CLATTN_INIT(clattn_image_args)

/* What CLATTN_IMAGE_ARGS_INIT does.  NULL is accepted. */
CLATTN_API void clattn_image_args_init(clattn_image_args *args);

/* The five calls below behave as their namesakes in attention.h: contracts, blocking and statuses.  A device
 * without images is refused with UNSUPPORTED, by supports as by all others; enqueue and run also return
 * UNSUPPORTED for an image of another format.  Other operators on the same queue, or ordered by events, may
 * use the array at once: no host copy lies between. */
CLATTN_API clattn_status clattn_image_supports(clattn_context *context, const clattn_image_desc *desc,
                                               const char **reason);
CLATTN_API clattn_status clattn_image_plan_create(clattn_context *context, const clattn_image_desc *desc,
                                                  const clattn_plan_options *options, clattn_plan **plan);
CLATTN_API clattn_status clattn_image_enqueue(clattn_plan *plan, cl_command_queue queue, const clattn_image_args *args,
                                              cl_uint wait_count, const cl_event *wait_list, cl_event *event);
CLATTN_API clattn_status clattn_image_prewarm(clattn_context *context, const clattn_image_desc *desc);
CLATTN_API clattn_status clattn_image_run(clattn_context *context, cl_command_queue queue,
                                          const clattn_image_desc *desc, const clattn_image_args *args,
                                          cl_uint wait_count, const cl_event *wait_list, cl_event *event);

CLATTN_END_DECLS

#endif
