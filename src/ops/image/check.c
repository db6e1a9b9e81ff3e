/* The self-check of images: a plan's own kernel on a small image of each format. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/common/check.h"
#include "ops/image/image.h"
#include "ref/attention.h"
#include "ref/ref.h"

#define WIDTH 7
#define HEIGHT 6
#define MARGIN 1 /* pixels that pack reads beyond each edge, and that unpack leaves out at each */
#define FACTOR 0.75f

static const struct format {
    cl_image_format format;
    clattn_dtype dtype; /* a type of as many bits, for check_array_fill; unorm takes any bits */
    double levels;      /* the levels of unorm; otherwise 0 */
    bool transform;
} formats[] = {
    {{CL_RGBA, CL_UNORM_INT8}, CLATTN_DTYPE_U8, 255, false},    {{CL_BGRA, CL_UNORM_INT8}, CLATTN_DTYPE_U8, 255, true},
    {{CL_RGBA, CL_UNORM_INT16}, CLATTN_DTYPE_F16, 65535, true}, {{CL_RGBA, CL_HALF_FLOAT}, CLATTN_DTYPE_F16, 0, true},
    {{CL_RGBA, CL_FLOAT}, CLATTN_DTYPE_F32, 0, false},          {{CL_R, CL_UNORM_INT8}, CLATTN_DTYPE_U8, 255, true},
    {{CL_RG, CL_UNORM_INT16}, CLATTN_DTYPE_F16, 65535, false},
};

static const float matrix[3][4] = {
    {0.75f, -0.5f, 0.25f, 0.125f}, {-0.375f, 1.25f, 0.5f, 0}, {0.5f, 0.25f, 1.5f, -0.25f}};

enum { ARRAY, NORM, WORKSPACE, IMAGE, ARRAYS }; /* IMAGE has the image's bytes as `host` and the image as `buffer` */

struct image_check {
    struct image_problem small;
    clattn_layout workspace; /* bytes; solver generic needs none */
    clattn_image_args args;
    struct check_array arrays[ARRAYS];
    const struct format *format;
    uint8_t before[WIDTH * HEIGHT * 4 * sizeof(float)]; /* the image's bytes before the run */
};

/* Describes a small image for which every -D of the kernel is the same: the array's type and the kind of norm. */
static clattn_image_desc describe(const struct image_problem *full)
{
    clattn_image_desc desc = full->desc;
    bool pack = desc.operation == CLATTN_IMAGE_OPERATION_PACK;
    desc.patch = desc.patch > 3 ? 3 : desc.patch;
    const size_t margin = pack ? MARGIN : (size_t)0 - MARGIN;
    const size_t extent[3] = {HEIGHT + 2 * margin, WIDTH + 2 * margin,
                              full->channels * (size_t)desc.patch * (size_t)desc.patch};
    const size_t norm[3] = {extent[0], extent[1], full->channels};
    desc.image_array = 0; /* which image is copied is no kernel's business */
    desc.array = clattn_layout_contiguous(desc.array.dtype, 3, extent);
    if (desc.norm.rank)
        desc.norm = clattn_layout_contiguous(CLATTN_DTYPE_F32, desc.norm.rank, norm);
    return desc;
}

/* Numbers that check_array_fill does not give, in each storage type; the small one is in the linear part of sRGB's curve. */
static const struct odd {
    size_t place;
    float f32;
    uint16_t f16, bf16;
} odd[] = {{3, NAN, 0x7e00, 0x7fc0}, {9, 2, 0x4000, 0x4000}, {13, 0x1p-9f, 0x1800, 0x3b00}};

static void put_odd(struct check_array *array, clattn_dtype dtype)
{
    for (size_t i = 0; i < COUNT_OF(odd); i++) {
        if (dtype == CLATTN_DTYPE_F32)
            ((float *)array->host)[odd[i].place] = odd[i].f32;
        else
            ((uint16_t *)array->host)[odd[i].place] = dtype == CLATTN_DTYPE_F16 ? odd[i].f16 : odd[i].bf16;
    }
}

/* Makes the arrays and the image; for unpack the array has negative numbers, a small one, one above 1 and a NaN. */
static clattn_status make(struct image_check *check, clattn_context *context)
{
    clattn_status status;
    const clattn_image_desc *desc = &check->small.desc;
    const struct check_place places[IMAGE] = {
        [ARRAY] = {"array", &desc->array, &check->args.array, CHECK_NUMBERS},
        [NORM] = {"norm", &desc->norm, &check->args.norm, CHECK_ZEROS},
        [WORKSPACE] = {"workspace", &check->workspace, &check->args.workspace, CHECK_ZEROS},
    };
    TRY(check_arrays_make(context, places, IMAGE, check->arrays));
    put_odd(&check->arrays[ARRAY], desc->array.dtype);
    TRY(check_arrays_upload(context, check->arrays, IMAGE));
    check->args.origin_x = check->args.origin_y = desc->operation == CLATTN_IMAGE_OPERATION_PACK ? -MARGIN : MARGIN;
    check->args.norm_factor = FACTOR;
    memcpy(check->args.matrix, matrix, sizeof matrix);
fail:
    return status;
}

/* The components of a pixel in memory. */
static int components(const struct image_check *check)
{
    const cl_channel_order order = check->format->format.image_channel_order;
    return order == CL_R ? 1 : order == CL_RG ? 2 : 4;
}

/* Makes an image of check->format, or none if the device has no such images. */
static clattn_status make_image(struct image_check *check, clattn_context *context)
{
    clattn_status status;
    const size_t extent[3] = {HEIGHT, WIDTH, (size_t)components(check)};
    const clattn_layout layout = clattn_layout_contiguous(check->format->dtype, 3, extent);
    const cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = WIDTH, .image_height = HEIGHT};
    struct check_array *image = &check->arrays[IMAGE];
    uint32_t random = 0x2545f491;
    cl_int code;
    check_array_clear(context, image);
    TRY(check_array_room(context, &layout, image));
    uint8_t *bytes = image->host;
    if (check->format->levels == 0)
        check_array_fill(image, check->format->dtype, false, &random);
    else
        for (size_t i = 0; i < image->bytes; i++)
            bytes[i] = (uint8_t)(i < 4 ? 0 : i < 12 ? 0xff : check_random(&random) >> 8);
    memcpy(check->before, image->host, image->bytes);
    image->buffer = context->device.cl.clCreateImage(context->device.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                                                     &check->format->format, &desc, image->host, &code);
    /* PoCL 3.1 calls a format that its device lacks, CL_RG, an invalid operation. */
    if (!image->buffer && code != CL_IMAGE_FORMAT_NOT_SUPPORTED && code != CL_INVALID_OPERATION)
        return report_opencl(&context->device.report, "clCreateImage", code);
    check->args.image = clattn_binding_image(image->buffer);
    check->args.explicit_matrix = check->format->transform;
fail:
    return status;
}

/* Component c of a pixel as it is stored, red first; for unorm the integer. A component that the image lacks is 0, and
 * alpha 1. */
static double stored(const struct image_check *check, const void *image, int x, int y, int c)
{
    const int slot = check->format->format.image_channel_order == CL_BGRA && c < 3 ? 2 - c : c;
    const int64_t at = (y * WIDTH + x) * components(check) + slot;
    if (slot >= components(check))
        return c < 3 ? 0 : check->format->levels != 0 ? check->format->levels : 1;
    if (check->format->levels == 255)
        return ((const uint8_t *)image)[at];
    if (check->format->levels != 0)
        return ((const uint16_t *)image)[at];
    return ref_element(image, check->format->dtype, at);
}

static int clamped(int value, int size)
{
    return value < 0 ? 0 : value >= size ? size - 1 : value;
}

static ref_image_colours rule_of(const struct image_check *check)
{
    const clattn_image_desc *desc = &check->small.desc;
    return (ref_image_colours){.matrix = check->format->transform ? matrix[0] : NULL,
                               .srgb = desc->transfer == CLATTN_IMAGE_TRANSFER_SRGB,
                               .premultiplied = desc->alpha == CLATTN_IMAGE_ALPHA_PREMULTIPLIED};
}

static clattn_status judge_norm(const struct image_check *check, struct report *report, const char *kernel,
                                int64_t pixel, const double *sums)
{
    clattn_status status = CLATTN_SUCCESS;
    const clattn_layout *norm = &check->small.desc.norm;
    int64_t count = norm->rank == 3 ? (int64_t)check->small.channels : norm->rank ? 1 : 0;
    for (int64_t c = 0; c < count; c++) {
        double exact = FACTOR * sums[c], value = check_read(&check->arrays[NORM], pixel * count + c);
        double slack = exact * FLT_EPSILON * (double)check->small.desc.array.extent[2];
        TRY(check_element(report, kernel, "norm", (const int64_t[4]){0, 0, pixel, c}, value, exact, slack));
    }
fail:
    return status;
}

static clattn_status judge_packed(const struct image_check *check, struct report *report, const char *kernel,
                                  int64_t pixel)
{
    clattn_status status;
    const clattn_layout *array = &check->small.desc.array;
    int patch = check->small.desc.patch, x = (int)(pixel % (int64_t)array->extent[1]) - MARGIN - patch / 2,
        y = (int)(pixel / (int64_t)array->extent[1]) - MARGIN - patch / 2;
    int64_t channels = (int64_t)check->small.channels, count = (int64_t)array->extent[2];
    double sums[4] = {0}, colour[4], error[4], levels = check->format->levels;
    const ref_image_colours rule = rule_of(check);
    for (int64_t e = 0; e < count; e++) {
        int at = (int)(e / channels), c = (int)(e % channels);
        for (int i = 0; i < 4; i++) {
            colour[i] =
                stored(check, check->before, clamped(x + at % patch, WIDTH), clamped(y + at / patch, HEIGHT), i) /
                (levels != 0 ? levels : 1);
            error[i] = levels != 0 ? 1.5 * FLT_EPSILON * colour[i] : 0;
        }
        ref_image_packed(&rule, colour, error);
        double value = check_read(&check->arrays[ARRAY], pixel * count + e);
        double slack = error[c];
        slack += storage_rounding(array->dtype, fabs(colour[c]) + slack);
        TRY(check_element(report, kernel, "array", (const int64_t[4]){0, 0, pixel, e}, value, colour[c], slack));
        sums[check->small.desc.norm.rank == 3 ? c : 0] += value * value;
    }
    status = judge_norm(check, report, kernel, pixel, sums);
fail:
    return status;
}

/* Judges a pixel of the image; pixels outside the region must have kept their bits. */
static clattn_status judge_unpacked(const struct image_check *check, struct report *report, const char *kernel, int x,
                                    int y)
{
    clattn_status status = CLATTN_SUCCESS;
    const clattn_layout *array = &check->small.desc.array;
    const int64_t channels = (int64_t)check->small.channels;
    bool inside = x >= MARGIN && x < WIDTH - MARGIN && y >= MARGIN && y < HEIGHT - MARGIN;
    double colour[4] = {0, 0, 0, 1}, error[4] = {0}, levels = check->format->levels;
    const ref_image_colours rule = rule_of(check);
    for (int64_t c = 0; c < channels && inside; c++)
        colour[c] =
            check_read(&check->arrays[ARRAY], ((y - MARGIN) * (int64_t)array->extent[1] + x - MARGIN) * channels + c);
    ref_image_unpacked(&rule, colour, error);
    for (int c = 0; c < components(check); c++) {
        double value = stored(check, check->arrays[IMAGE].host, x, y, c);
        double exact = stored(check, check->before, x, y, c), slack = 0;
        if (inside && levels != 0) {
            exact = isnan(colour[c]) ? 0 : levels * fmin(fmax(colour[c], 0), 1);
            slack = 0.5 + levels * (FLT_EPSILON + (isnan(error[c]) ? 0 : error[c]));
        } else if (inside) {
            exact = colour[c];
            slack = error[c];
            slack += storage_rounding(check->format->dtype, fabs(exact) + slack);
        }
        TRY(check_element(report, kernel, "image", (const int64_t[4]){0, y, x, c}, value, exact, slack));
    }
fail:
    return status;
}

static clattn_status judge(struct image_check *check, clattn_context *context, const char *kernel)
{
    clattn_status status = CLATTN_SUCCESS;
    struct report *report = &context->device.report;
    if (check->small.desc.operation == CLATTN_IMAGE_OPERATION_PACK) {
        TRY(check_arrays_read(context, check->arrays, IMAGE));
        for (int64_t pixel = 0; pixel < (int64_t)(check->small.width * check->small.height); pixel++)
            TRY(judge_packed(check, report, kernel, pixel));
        return CLATTN_SUCCESS;
    }
    const struct check_array *image = &check->arrays[IMAGE];
    TRY_CL(report, "clEnqueueReadImage",
           context->device.cl.clEnqueueReadImage(context->warm_queue, image->buffer, CL_TRUE, (const size_t[3]){0},
                                                 (const size_t[3]){WIDTH, HEIGHT, 1}, 0, 0, image->host, 0, NULL,
                                                 NULL));
    for (int i = 0; i < WIDTH * HEIGHT; i++)
        TRY(judge_unpacked(check, report, kernel, i % WIDTH, i / WIDTH));
fail:
    return status;
}

clattn_status image_self_check(struct self_check *self)
{
    clattn_status status;
    const clattn_plan *base = self->plan;
    clattn_context *context = base->context;
    const clattn_image_desc desc = describe(&((const struct image_plan *)base)->problem);
    struct image_check check = {.args = CLATTN_IMAGE_ARGS_INIT};
    TRY(check_begin(context));
    TRY(check_describe(base, &desc, &check.small));
    if (base->workspace)
        check.workspace =
            clattn_layout_contiguous(CLATTN_DTYPE_U8, 1, (const size_t[1]){image_cpu_workspace(&check.small)});
    TRY(make(&check, context));
    for (size_t i = 0; i < COUNT_OF(formats); i++) {
        check.format = &formats[i];
        TRY(make_image(&check, context));
        if (!check.arrays[IMAGE].buffer)
            continue;
        TRY(check_enqueue(base, &check.small, base->workspace ? check.workspace.extent[0] : 0, &check.args));
        TRY(judge(&check, context, base->kernels[0].name));
    }
fail:
    return check_end(base, check.arrays, ARRAYS, status);
}
