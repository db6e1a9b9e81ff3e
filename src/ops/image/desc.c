/* Reads and checks a description, and the arguments of an enqueue. */
#include <math.h>
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/image/image.h"

_Static_assert(sizeof(image_args) == 24 + 9 * 8 + 34 * 4, "image_args has padding");

/* Coordinates are ints in the kernels; a region, a patch and an origin add up below 2^31. */
#define ORIGIN_LIMIT (INT64_C(1) << 30)
#define REGION_LIMIT ((size_t)1 << 29)

static clattn_status check_options(clattn_image_desc *desc, const char **reason)
{
    if (desc->patch == 0)
        desc->patch = 1;
    REQUIRE(desc->operation == CLATTN_IMAGE_OPERATION_PACK || desc->operation == CLATTN_IMAGE_OPERATION_UNPACK,
            CLATTN_ERROR_INVALID_ARGUMENT, "unknown operation");
    REQUIRE(desc->patch >= 1 && desc->patch <= CLATTN_IMAGE_MAX_PATCH && desc->patch % 2 == 1,
            CLATTN_ERROR_INVALID_ARGUMENT, "patch is not odd, or not 1 to 31");
    REQUIRE(desc->operation == CLATTN_IMAGE_OPERATION_PACK || (desc->patch == 1 && layout_is_none(&desc->norm)),
            CLATTN_ERROR_INVALID_ARGUMENT, "unpack has neither a patch nor a norm");
    REQUIRE(desc->transfer == CLATTN_IMAGE_TRANSFER_LINEAR || desc->transfer == CLATTN_IMAGE_TRANSFER_SRGB,
            CLATTN_ERROR_INVALID_ARGUMENT, "unknown transfer function");
    REQUIRE(desc->alpha == CLATTN_IMAGE_ALPHA_STRAIGHT || desc->alpha == CLATTN_IMAGE_ALPHA_PREMULTIPLIED,
            CLATTN_ERROR_INVALID_ARGUMENT, "unknown kind of alpha");
    REQUIRE(desc->image_array == 0 || desc->image_array == 1, CLATTN_ERROR_INVALID_ARGUMENT,
            "image_array is neither 0 nor 1");
    REQUIRE(desc->reserved == 0, CLATTN_ERROR_INVALID_ARGUMENT, "reserved is not 0");
    return CLATTN_SUCCESS;
}

static clattn_status check_array(struct image_problem *problem, const char **reason)
{
    const clattn_layout *array = &problem->desc.array;
    const size_t pixels = (size_t)problem->desc.patch * (size_t)problem->desc.patch;
    REQUIRE(dtype_is_storage(array->dtype), CLATTN_ERROR_UNSUPPORTED,
            "the array is none of float32, float16, bfloat16");
    REQUIRE(array->rank == 3 && array->extent[2] && array->extent[2] % pixels == 0 && array->extent[2] / pixels <= 4,
            CLATTN_ERROR_INVALID_LAYOUT, "the array is not (height, width, channels * patch^2) with 1 to 4 channels");
    REQUIRE(array->extent[0] <= REGION_LIMIT && array->extent[1] <= REGION_LIMIT, CLATTN_ERROR_OVERFLOW,
            "height or width is above 2^29");
    problem->height = array->extent[0];
    problem->width = array->extent[1];
    problem->channels = array->extent[2] / pixels;
    return CLATTN_SUCCESS;
}

static clattn_status check_norm(struct image_problem *problem, const char **reason)
{
    clattn_status status = CLATTN_SUCCESS;
    clattn_layout *norm = &problem->desc.norm;
    problem->has_norm = !layout_is_none(norm);
    if (!problem->has_norm) {
        memset(norm, 0, sizeof *norm);
        return CLATTN_SUCCESS;
    }
    TRY(layout_check(norm, LAYOUT_OUTPUT, LAYOUT_OF("norm"), reason));
    layout_normalise(norm);
    REQUIRE(norm->dtype == CLATTN_DTYPE_F32, CLATTN_ERROR_UNSUPPORTED, "the norm is not float32");
    REQUIRE(norm->rank >= 2 && norm->rank <= 3 && norm->extent[0] == problem->height &&
                norm->extent[1] == problem->width && (norm->rank == 2 || norm->extent[2] == problem->channels),
            CLATTN_ERROR_INVALID_LAYOUT, "the norm is neither (height, width) nor (height, width, channels)");
fail:
    return status;
}

clattn_status image_problem_read(const void *given, void *result, const char **reason)
{
    clattn_status status;
    struct image_problem *problem = result;
    clattn_image_desc *desc = &problem->desc;
    memset(problem, 0, sizeof *problem);
    *reason = "desc is NULL, or its size is none that clattn_image_desc ever had";
    TRY(struct_read(desc, sizeof *desc, offsetof(clattn_image_desc, transfer), given));
    TRY(check_options(desc, reason));
    TRY(layout_check(&desc->array, desc->operation == CLATTN_IMAGE_OPERATION_PACK ? LAYOUT_OUTPUT : LAYOUT_INPUT,
                     LAYOUT_OF("array"), reason));
    layout_normalise(&desc->array);
    TRY(check_array(problem, reason));
    TRY(check_norm(problem, reason));
fail:
    return status;
}

static bool matrix_is_finite(const clattn_image_args *args)
{
    bool finite = true;
    for (int i = 0; i < 12; i++)
        finite = finite && isfinite(args->matrix[i / 4][i % 4]);
    return finite;
}

static clattn_status read_region(struct report *report, const struct image_problem *problem, clattn_image_args *args)
{
    clattn_status status = args_check(report, "explicit_region", args->explicit_region, args->reserved);
    if (status == CLATTN_SUCCESS)
        status = args_check(report, "transform", args->explicit_matrix, 0);
    if (status != CLATTN_SUCCESS)
        return status;
    if (!isfinite(args->norm_factor))
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "norm_factor is not finite");
    if (args->explicit_matrix && !matrix_is_finite(args))
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "matrix is not finite");
    if (!args->explicit_region) {
        args->width = problem->width;
        args->height = problem->height;
    }
    if (args->width > problem->width || args->height > problem->height)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "a region of %zu x %zu pixels is above the plan's %zu x %zu", args->width, args->height,
                            problem->width, problem->height);
    if (args->origin_x < -ORIGIN_LIMIT || args->origin_x > ORIGIN_LIMIT || args->origin_y < -ORIGIN_LIMIT ||
        args->origin_y > ORIGIN_LIMIT)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "the origin (%lld, %lld) is beyond 2^30",
                            (long long)args->origin_x, (long long)args->origin_y);
    return CLATTN_SUCCESS;
}

/* How unpack rounds for the image's format, or UNSUPPORTED. */
static clattn_status read_format(struct report *report, const cl_image_format *format, image_args *kernel_args)
{
    const cl_channel_order order = format->image_channel_order;
    bool known = order == CL_R || order == CL_RG || order == CL_RGBA || order == CL_BGRA;
    switch (format->image_channel_data_type) {
    case CL_FLOAT: kernel_args->store = IMAGE_STORE_FLOAT; break;
    case CL_HALF_FLOAT: kernel_args->store = IMAGE_STORE_HALF; break;
    case CL_UNORM_INT8:
    case CL_UNORM_INT16: kernel_args->store = IMAGE_STORE_UNORM; break;
    default: known = false;
    }
    kernel_args->levels = format->image_channel_data_type == CL_UNORM_INT8 ? 255 : 65535;
    kernel_args->component = format->image_channel_data_type == CL_FLOAT        ? 4
                             : format->image_channel_data_type == CL_UNORM_INT8 ? 1
                                                                                : 2;
    kernel_args->components = order == CL_R ? 1 : order == CL_RG ? 2 : 4;
    kernel_args->blue_first = order == CL_BGRA;
    if (known)
        return CLATTN_SUCCESS;
    if (order == CL_sRGBA || order == CL_sBGRA || order == CL_sRGB || order == CL_sRGBx)
        return report_error(report, CLATTN_ERROR_UNSUPPORTED,
                            "image: channel order 0x%x is one of sRGB; CL_RGBA or CL_BGRA with "
                            "CLATTN_IMAGE_TRANSFER_SRGB is expected",
                            (unsigned)order);
    return report_error(report, CLATTN_ERROR_UNSUPPORTED,
                        "image: channel order 0x%x of type 0x%x; CL_R, CL_RG, CL_RGBA or CL_BGRA of "
                        "CL_UNORM_INT8, CL_UNORM_INT16, CL_HALF_FLOAT or CL_FLOAT is expected",
                        (unsigned)order, (unsigned)format->image_channel_data_type);
}

static clattn_status read_image(clattn_context *context, const struct image_problem *problem,
                                const clattn_image_args *args, image_args *kernel_args)
{
    clattn_status status;
    struct report *report = &context->device.report;
    const struct cl_table *cl = &context->device.cl;
    const clattn_binding *image = &args->image;
    bool pack = problem->desc.operation == CLATTN_IMAGE_OPERATION_PACK;
    const cl_mem_object_type type = problem->desc.image_array ? CL_MEM_OBJECT_IMAGE2D_ARRAY : CL_MEM_OBJECT_IMAGE2D;
    cl_image_format format;
    size_t bytes, width, height, layers = 1;
    if (image->kind != CLATTN_BINDING_KIND_IMAGE || !image->buffer || image->svm || image->offset || image->reserved)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "image: no image is bound; clattn_binding_image makes a binding");
    TRY(binding_check_memory(context, image->buffer, type, pack ? BINDING_READ : BINDING_WRITE, "image", &bytes));
    TRY_CL(report, "clGetImageInfo", cl->clGetImageInfo(image->buffer, CL_IMAGE_FORMAT, sizeof format, &format, NULL));
    TRY_CL(report, "clGetImageInfo", cl->clGetImageInfo(image->buffer, CL_IMAGE_WIDTH, sizeof width, &width, NULL));
    TRY_CL(report, "clGetImageInfo", cl->clGetImageInfo(image->buffer, CL_IMAGE_HEIGHT, sizeof height, &height, NULL));
    if (problem->desc.image_array)
        TRY_CL(report, "clGetImageInfo",
               cl->clGetImageInfo(image->buffer, CL_IMAGE_ARRAY_SIZE, sizeof layers, &layers, NULL));
    if (args->layer >= layers)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "layer %zu of %zu images", args->layer, layers);
    TRY(read_format(report, &format, kernel_args));
    if (!pack && (args->origin_x < 0 || args->origin_y < 0 || (size_t)args->origin_x + args->width > width ||
                  (size_t)args->origin_y + args->height > height))
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "%zu x %zu pixels from (%lld, %lld) are not all in the image of %zu x %zu", args->width,
                            args->height, (long long)args->origin_x, (long long)args->origin_y, width, height);
    kernel_args->layer = (int)args->layer;
    kernel_args->image_width = (int)size_min(width, INT32_MAX);
    kernel_args->image_height = (int)size_min(height, INT32_MAX);
fail:
    return status;
}

clattn_status image_args_read(clattn_context *context, const struct image_problem *problem,
                              const clattn_image_args *given, clattn_image_args *args, image_args *kernel_args)
{
    clattn_status status;
    const clattn_layout *array = &problem->desc.array, *norm = &problem->desc.norm;
    memset(kernel_args, 0, sizeof *kernel_args);
    TRY(args_read(&context->device.report, "clattn_image_args", args, sizeof *args,
                  offsetof(clattn_image_args, workspace), given));
    TRY(read_region(&context->device.report, problem, args));
    const size_t extent[3] = {args->height, args->width, array->extent[2]};
    const size_t norm_extent[3] = {args->height, args->width, problem->channels};
    const enum binding_access access = problem->desc.operation == CLATTN_IMAGE_OPERATION_UNPACK ? BINDING_READ
                                       : problem->has_norm                                      ? BINDING_READ_WRITE
                                                                                                : BINDING_WRITE;
    const struct bound_array arrays[] = {
        {&args->array, array, extent, access, "array", true},
        {&args->norm, norm, norm_extent, BINDING_WRITE, "norm", problem->has_norm},
    };
    if (!args->width || !args->height)
        return bindings_absent(context, arrays, COUNT_OF(arrays));
    TRY(read_image(context, problem, args, kernel_args));
    TRY(bindings_check(context, arrays, COUNT_OF(arrays)));
    kernel_args->array_offset = args->array.offset;
    kernel_args->array_row = array->stride[0];
    kernel_args->array_col = array->stride[1];
    kernel_args->array_channel = array->stride[2];
    kernel_args->norm_offset = args->norm.offset;
    kernel_args->norm_row = norm->stride[0];
    kernel_args->norm_col = norm->stride[1];
    kernel_args->norm_channel = norm->rank == 3 ? norm->stride[2] : 0;
    kernel_args->transform = args->explicit_matrix;
    memcpy(kernel_args->matrix, args->matrix, sizeof kernel_args->matrix);
    kernel_args->batch = 1;
    kernel_args->width = (int)args->width;
    kernel_args->height = (int)args->height;
    kernel_args->origin_x = (int)args->origin_x;
    kernel_args->origin_y = (int)args->origin_y;
    kernel_args->channels = (int)problem->channels;
    kernel_args->patch = problem->desc.patch;
    kernel_args->norm_factor = args->norm_factor;
fail:
    return status;
}
