/** @file
 * libclattn-pictures: what an application asks for with a picture in its memory, in one call each.
 *
 *     clattn_denoiser           cleans it, by non-local means
 *     clattn_upscaler           enlarges or restores it, by SwinIR
 *     clattn_picture_encoder    makes a vector of it, by DINOv2, CLIP, ViT or Swin; the more alike two pictures are, the
 *                               larger is the product of their vectors
 *
 * It is a third library, over the public calls of libclattn and libclattn-io, for programs that do not want to write the
 * pipeline; those that hold pictures on the device call the operators themselves (image.h, neighbourhood.h, vision.h).
 *
 *     clattn_denoiser_create(context, NULL, &denoiser, &error);
 *     args.from = clattn_picture_8bit(noisy, height, width, 4);       args: CLATTN_DENOISER_ARGS_INIT
 *     args.to = clattn_picture_8bit(clean, height, width, 4);
 *     args.strength = 20;                                             the noise's standard deviation, of 255
 *     args.control = control;
 *     status = clattn_denoiser_run(denoiser, NULL, &args, &error);
 *
 * These rules hold for the whole header:
 *
 * - A call blocks until its result is there, which may take seconds. A program with a window makes it on a thread of its own. A
 *   run takes a control (control.h), which shows its progress and cancels it: at once before it begins, otherwise between two
 *   launches. The first run of a kind of picture compiles, and is at 0 until the compiler has finished; a run of a picture of
 *   1 x 1 pixels does that early. Making an encoder or upscaler compiles, too, and cannot be cancelled. A run has a
 *   clattn_control_expect of its own, which ends the caller's. After a cancelled or failed call its outputs hold anything.
 * - `queue` is one of the context's device, in order; NULL is the context's own, which must be in order, too, if the application
 *   gave it.
 * - The context must live until the handle is released. One call at a time uses a handle; any number of threads may use
 *   different ones.
 * - A function that fails leaves its handle NULL and writes one line to *error, unless `error` is NULL.
 * - Beside the statuses that are named, all functions return OUT_OF_MEMORY, OPENCL, BUILD, FORKED, and what the plans that they
 *   make return: UNSUPPORTED, OVERFLOW, MISCOMPILED, BUSY, IO or INTERNAL. In the child of a fork a release frees memory alone.
 * - The library calls the linked OpenCL loader, so contexts with functions of the application's own (get_proc) are not for it.
 */
#ifndef CLATTN_PICTURES_H
#define CLATTN_PICTURES_H

#include <stddef.h>
#include <stdint.h>

#include "context.h"
#include "control.h"
#include "dtype.h"
#include "tensor.h"
#include "vision.h"

CLATTN_BEGIN_DECLS

/** The type of a pixel's components, and what stands for black and white. */
typedef enum clattn_component {
    CLATTN_COMPONENT_U8 = 0,  /**< uint8_t: 0 and 255 */
    CLATTN_COMPONENT_U16 = 1, /**< uint16_t of the machine's byte order: 0 and 65535 */
    CLATTN_COMPONENT_F32 = 2, /**< float: 0 and 1 */
    CLATTN_COMPONENT_FORCE_32BIT = 0x7fffffff
} clattn_component;

/** A picture in host memory: rows from the top, pixels from the left.
 *
 * A plain value that borrows its pixels. They may lie at any address that suits their type. Colours are taken as they are, so
 * the same for sRGB as for linear light; they are not multiplied by alpha. */
typedef struct clattn_picture {
    void *pixels;          /**< the first component of the top left pixel */
    size_t height;         /**< rows, at least 1 */
    size_t width;          /**< pixels of a row, at least 1 */
    size_t row_bytes;      /**< from one row to the next, a multiple of the type's size; 0: rows without gaps */
    int32_t components;    /**< 1: grey, 2: grey and alpha, 3: red, green and blue, 4: and alpha */
    clattn_component type; /**< their type */
} clattn_picture;

/** Returns a picture of components of 8 bits, in rows without gaps. */
static inline clattn_picture clattn_picture_8bit(void *pixels, size_t height, size_t width, int32_t components)
{
    clattn_picture picture = {pixels, height, width, 0, components, CLATTN_COMPONENT_U8};
    return picture;
}

/** Cleans pictures by non-local means: each pixel becomes the mean of those around it, weighted by how alike the patches around
 * them are (Buades, Coll, Morel 2005). Borrows the context; has plans and device memory for one kind of picture at a time. */
typedef struct clattn_denoiser clattn_denoiser;

/** How a denoiser works. Set it up with CLATTN_DENOISER_PARAMS_INIT. */
typedef struct clattn_denoiser_params {
    size_t size;   /**< sizeof(clattn_denoiser_params) */
    size_t patch;  /**< height and width of the patches that are compared: odd, up to 15; 0: 5 */
    size_t radius; /**< pixels that the window reaches around one: 1 ... 64; 0: 7 */
    size_t memory; /**< bytes on the device at the most; 0: 256 MiB */
} clattn_denoiser_params;

/** Initialises a clattn_denoiser_params: its size, and zeros. */
#define CLATTN_DENOISER_PARAMS_INIT CLATTN_INIT(clattn_denoiser_params)

/** Sets *params as CLATTN_DENOISER_PARAMS_INIT does (@ref calls_init). */
CLATTN_API void clattn_denoiser_params_init(clattn_denoiser_params *params);

/** What clattn_denoiser_run reads and writes. Set it up with CLATTN_DENOISER_ARGS_INIT. */
typedef struct clattn_denoiser_args {
    size_t size;         /**< sizeof(clattn_denoiser_args) */
    clattn_picture from; /**< the noisy picture, which is only read */

    /** The clean one, of the same size, components and type; alpha is copied. Has no memory in common with `from`, the gaps between
     * rows included. */
    clattn_picture to;

    /** Levels of 255, up to 255: patches whose root mean square difference is this weigh 1/e. The noise's standard deviation is a
     * good choice, half of it does little. 0: 10, not nothing. */
    float strength;
    clattn_control *control; /**< cancels, shows the progress, keeps kernels short; NULL: none */
} clattn_denoiser_args;

/** Initialises a clattn_denoiser_args: its size, and zeros. */
#define CLATTN_DENOISER_ARGS_INIT CLATTN_INIT(clattn_denoiser_args)

/** Sets *args as CLATTN_DENOISER_ARGS_INIT does (@ref calls_init). */
CLATTN_API void clattn_denoiser_args_init(clattn_denoiser_args *args);

/** Makes a denoiser; `params` may be NULL. Does not block.
 *
 * @return INVALID_ARGUMENT or INVALID_STRUCT. */
CLATTN_API clattn_status clattn_denoiser_create(clattn_context *context, const clattn_denoiser_params *params,
                                                clattn_denoiser **denoiser, clattn_io_error *error);

/** Cleans args->from into args->to, in tiles, so that a picture of any size fits.
 *
 * The first call for a kind of picture (grey or colours, type of components) compiles, or reads what was compiled. The control's
 * progress counts the whole picture. Grey has one plane. Colours have three, brightness and two differences, each of which is
 * cleaned by itself. Floats that are not finite count as 0, and others are limited to ±65504.
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, WRONG_CONTEXT, CANCELLED; OUT_OF_MEMORY also if params.memory is too little. */
CLATTN_API clattn_status clattn_denoiser_run(clattn_denoiser *denoiser, cl_command_queue queue,
                                             const clattn_denoiser_args *args, clattn_io_error *error);

/** Frees the denoiser and sets *denoiser to NULL; accepts NULL and a pointer to NULL. */
CLATTN_API void clattn_denoiser_release(clattn_denoiser **denoiser);

/** Enlarges pictures, or takes noise or JPEG's blocks out of them, by a SwinIR model (Liang et al. 2021). Has the weights on the
 * device, and borrows the context. */
typedef struct clattn_upscaler clattn_upscaler;

/** Which model an upscaler has. Set it up with CLATTN_UPSCALER_PARAMS_INIT. */
typedef struct clattn_upscaler_params {
    size_t size; /**< sizeof(clattn_upscaler_params) */

    /** The path of a safetensors file with SwinIR's tensors, which tell the model's shape. Not needed after create. */
    const char *weights;
    clattn_dtype dtype; /**< F32 (or NONE), F16 or BF16: of weights and activations */
    size_t memory;      /**< bytes on the device for tiles at the most; 0: a quarter of the device's, up to 1 GiB */
    size_t overlap;     /**< pixels that tiles have in common at least; 0: 32 */
} clattn_upscaler_params;

/** Initialises a clattn_upscaler_params: its size, and zeros. */
#define CLATTN_UPSCALER_PARAMS_INIT CLATTN_INIT(clattn_upscaler_params)

/** Sets *params as CLATTN_UPSCALER_PARAMS_INIT does (@ref calls_init). */
CLATTN_API void clattn_upscaler_params_init(clattn_upscaler_params *params);

/** What clattn_upscaler_run reads and writes. Set it up with CLATTN_UPSCALER_ARGS_INIT. */
typedef struct clattn_upscaler_args {
    size_t size;         /**< sizeof(clattn_upscaler_args) */
    clattn_picture from; /**< the given picture, which is only read */

    /** The result, clattn_upscaler_factor times as high and wide, of the same components and type. Alpha is resized bicubically
     * unless the factor is 1. Has no memory in common with `from`. */
    clattn_picture to;
    clattn_control *control; /**< cancels, shows the progress, keeps kernels short; NULL: none */
} clattn_upscaler_args;

/** Initialises a clattn_upscaler_args: its size, and zeros. */
#define CLATTN_UPSCALER_ARGS_INIT CLATTN_INIT(clattn_upscaler_args)

/** Sets *args as CLATTN_UPSCALER_ARGS_INIT does (@ref calls_init). */
CLATTN_API void clattn_upscaler_args_init(clattn_upscaler_args *args);

/** Reads a model's weights and uploads them. Blocks for that.
 *
 * @return
 * - INVALID_ARGUMENT or INVALID_STRUCT;
 * - IO: the file cannot be read;
 * - FORMAT: it is no safetensors file, or not of a SwinIR model alone. */
CLATTN_API clattn_status clattn_upscaler_create(clattn_context *context, const clattn_upscaler_params *params,
                                                clattn_upscaler **upscaler, clattn_io_error *error);

/** Returns rows of the result for one of the picture: 1 ... 8; 0 for NULL. */
CLATTN_API size_t clattn_upscaler_factor(const clattn_upscaler *upscaler);

/** Computes args->to of args->from, in tiles that overlap.
 *
 * A picture whose size, components or type differ from the last one's makes plans, which takes milliseconds, or seconds for the
 * first. The control's progress counts the whole picture. Floats that are no numbers count as 0, and components of either
 * picture beyond white or black are cut off, those of alpha, too.
 *
 * @return
 * - INVALID_ARGUMENT (also if params.memory or params.overlap does not do for tiles), INVALID_STRUCT, WRONG_CONTEXT;
 * - FORMAT: the result is not finite;
 * - CANCELLED. */
CLATTN_API clattn_status clattn_upscaler_run(clattn_upscaler *upscaler, cl_command_queue queue,
                                             const clattn_upscaler_args *args, clattn_io_error *error);

/** Frees the upscaler and sets *upscaler to NULL; accepts NULL and a pointer to NULL. */
CLATTN_API void clattn_upscaler_release(clattn_upscaler **upscaler);

/** Makes vectors of pictures by a published model. Has its weights and a plan on the device, and borrows the context. */
typedef struct clattn_picture_encoder clattn_picture_encoder;

/** Which model an encoder has. Set it up with CLATTN_PICTURE_ENCODER_PARAMS_INIT. */
typedef struct clattn_picture_encoder_params {
    size_t size;         /**< sizeof(clattn_picture_encoder_params) */
    clattn_vision model; /**< ViT, DINOv2, DINOv3, Swin, or CLIP's of pictures (vision.h) */

    /** The path of model.safetensors. Its tensors have the shapes of clattn_vision_preset's description and the names of its format
     * (clattn_weight_name; Hugging Face's), which may begin with a prefix such as "vit.". Not needed after create. */
    const char *weights;
    clattn_dtype dtype; /**< F32 (or NONE), F16 or BF16: of weights and activations */
} clattn_picture_encoder_params;

/** Initialises a clattn_picture_encoder_params: its size, and zeros. */
#define CLATTN_PICTURE_ENCODER_PARAMS_INIT CLATTN_INIT(clattn_picture_encoder_params)

/** Sets *params as CLATTN_PICTURE_ENCODER_PARAMS_INIT does (@ref calls_init). */
CLATTN_API void clattn_picture_encoder_params_init(clattn_picture_encoder_params *params);

/** What clattn_picture_encoder_run reads and writes. Set it up with CLATTN_PICTURE_ENCODER_ARGS_INIT. */
typedef struct clattn_picture_encoder_args {
    size_t size;             /**< sizeof(clattn_picture_encoder_args) */
    clattn_picture picture;  /**< only read; grey counts as three equal colours, and alpha does not count */
    float *vector;           /**< clattn_picture_encoder_size numbers, whose squares have the sum 1 */
    clattn_control *control; /**< cancels, shows the progress, keeps kernels short; NULL: none */
} clattn_picture_encoder_args;

/** Initialises a clattn_picture_encoder_args: its size, and zeros. */
#define CLATTN_PICTURE_ENCODER_ARGS_INIT CLATTN_INIT(clattn_picture_encoder_args)

/** Sets *args as CLATTN_PICTURE_ENCODER_ARGS_INIT does (@ref calls_init). */
CLATTN_API void clattn_picture_encoder_args_init(clattn_picture_encoder_args *args);

/** Reads a model's weights, uploads them, and makes the plan. Blocks for that.
 *
 * @return
 * - INVALID_ARGUMENT (also for a model that makes no vectors of pictures) or INVALID_STRUCT;
 * - IO: the file cannot be read;
 * - FORMAT: it is no safetensors file, or lacks a tensor, or has one of another shape. */
CLATTN_API clattn_status clattn_picture_encoder_create(clattn_context *context,
                                                       const clattn_picture_encoder_params *params,
                                                       clattn_picture_encoder **encoder, clattn_io_error *error);

/** Returns how many numbers a vector has; 0 for NULL. */
CLATTN_API size_t clattn_picture_encoder_size(const clattn_picture_encoder *encoder);

/** Makes a vector of args->picture.
 *
 * The picture becomes what the model's processor in Hugging Face's transformers makes of it unless its file says otherwise: it
 * is resized to 224 x 224 pixels (ViT, DINOv3, Swin); or its shorter edge to 224 (CLIP) or 256 (DINOv2) and the middle 224 x 224
 * are cut out. A level of 255 may differ by 1, because transformers round twice. Floats that are no
 * numbers count as 0, and others are limited to 0 ... 1. A pixel takes 6 bytes, in host memory and on the device.
 *
 * @return
 * - INVALID_ARGUMENT, INVALID_STRUCT, WRONG_CONTEXT, CANCELLED;
 * - UNSUPPORTED: the resized picture would have more than 2^24 pixels, because it is long and thin;
 * - FORMAT: the vector is not finite. */
CLATTN_API clattn_status clattn_picture_encoder_run(clattn_picture_encoder *encoder, cl_command_queue queue,
                                                    const clattn_picture_encoder_args *args, clattn_io_error *error);

/** Frees the encoder and sets *encoder to NULL; accepts NULL and a pointer to NULL. */
CLATTN_API void clattn_picture_encoder_release(clattn_picture_encoder **encoder);

CLATTN_END_DECLS

#endif
