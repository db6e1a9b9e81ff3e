/* Images are packed into arrays and unpacked again.
 *
 * Holds image.h's formulas and its rounding rules for every format, order, dtype and number of channels, clamping
 * beyond the edges, patches and norms, regions, what is refused and why, and that operators follow each other on one
 * queue without a host copy. */
#include <math.h>
#include <string.h>

#include "support/ops/image_case.h"
#include "support/core/inject.h"
#include "support/operator.h"

#define PACK(kind, c, ...) .operation = CLATTN_IMAGE_OPERATION_PACK, .type = (kind), .channels = (c), __VA_ARGS__
#define UNPACK(kind, c, ...) .operation = CLATTN_IMAGE_OPERATION_UNPACK, .type = (kind), .channels = (c), __VA_ARGS__
#define SIZE(w, h) .image = {w, h}, .region = {w, h}

static const image_case cases[] = {
    {"every byte", BIG, PACK(CL_UNORM_INT8, 4, SIZE(16, 16))},
    {"three channels", ALL, PACK(CL_UNORM_INT8, 3, SIZE(5, 3))},
    {"the last of three images", ALL, PACK(CL_UNORM_INT8, 3, SIZE(5, 3)), .layers = 3},
    {"the last of two images, patches", BIG, PACK(CL_FLOAT, 1, SIZE(9, 7)), .patch = 3, .layers = 2},
    {"the last of three images", ALL, UNPACK(CL_UNORM_INT8, 3, SIZE(5, 3)), .layers = 3},
    {"one channel", ALL, PACK(CL_UNORM_INT8, 1, SIZE(5, 3))},
    {"two channels", BIG, PACK(CL_FLOAT, 2, SIZE(7, 5))},
    {"one pixel", ALL, PACK(CL_FLOAT, 4, SIZE(1, 1))},
    {"a work-group - 1", BIG, PACK(CL_FLOAT, 3, SIZE(31, 2))},
    {"a work-group + 1", BIG, PACK(CL_FLOAT, 3, SIZE(33, 3))},
    {"blue first", ALL, PACK(CL_UNORM_INT8, 3, SIZE(5, 3)), .order = CL_BGRA},
    {"float", ALL, PACK(CL_FLOAT, 4, SIZE(6, 5))},
    {"half", ALL, PACK(CL_HALF_FLOAT, 4, SIZE(6, 5))},
    {"16 bits", BIG, PACK(CL_UNORM_INT16, 4, SIZE(64, 9))},
    {"float16", BIG, PACK(CL_UNORM_INT8, 4, SIZE(16, 16)), .dtype = CLATTN_DTYPE_F16},
    {"float16", ALL, PACK(CL_FLOAT, 3, SIZE(6, 5)), .dtype = CLATTN_DTYPE_F16},
    {"float16", BIG, PACK(CL_HALF_FLOAT, 3, SIZE(11, 5)), .dtype = CLATTN_DTYPE_F16},
    {"bfloat16", BIG, PACK(CL_UNORM_INT8, 4, SIZE(16, 16)), .dtype = CLATTN_DTYPE_BF16},
    {"bfloat16", ALL, PACK(CL_FLOAT, 3, SIZE(6, 5)), .dtype = CLATTN_DTYPE_BF16},
    {"a plane", ALL, PACK(CL_UNORM_INT8, 1, SIZE(5, 3)), .order = CL_R},
    {"a plane of 16 bits", ALL, PACK(CL_UNORM_INT16, 1, SIZE(37, 3)), .order = CL_R},
    {"a plane of half", BIG, PACK(CL_HALF_FLOAT, 1, SIZE(17, 3)), .order = CL_R},
    {"a plane of float", BIG, PACK(CL_FLOAT, 1, SIZE(17, 3)), .order = CL_R, .dtype = CLATTN_DTYPE_BF16},
    {"a plane's patches", BIG, PACK(CL_UNORM_INT8, 1, SIZE(21, 5)), .order = CL_R, .patch = 3, .norm = 1},
    {"two planes in one", ALL, PACK(CL_UNORM_INT8, 2, SIZE(5, 3)), .order = CL_RG},
    {"two planes in one, 16 bits", ALL, PACK(CL_UNORM_INT16, 2, SIZE(18, 2)), .order = CL_RG},
    {"two planes in one, half", ALL, PACK(CL_HALF_FLOAT, 2, SIZE(5, 3)), .order = CL_RG},
    {"two planes in one, float", ALL, PACK(CL_FLOAT, 2, SIZE(5, 3)), .order = CL_RG},
    {"the first of two planes", ALL, PACK(CL_UNORM_INT8, 1, SIZE(5, 3)), .order = CL_RG},
    {"components that a plane lacks", ALL, PACK(CL_UNORM_INT8, 4, SIZE(5, 3)), .order = CL_R},
    {"components that two planes lack", ALL, PACK(CL_FLOAT, 4, SIZE(5, 3)), .order = CL_RG},
    {"colours of a plane", ALL, PACK(CL_UNORM_INT8, 3, SIZE(5, 3)), .order = CL_R, .transform = true},
    {"the caller's workspace", ALL, PACK(CL_FLOAT, 3, SIZE(5, 3)), .own_workspace = true},
    {"several bands of rows", MORE, PACK(CL_FLOAT, 3, SIZE(611, 301)), .patch = 3},
    {"gaps", ALL, PACK(CL_UNORM_INT8, 3, SIZE(5, 3)), .form = FORM_PADDED},
    {"columns apart", BIG, PACK(CL_UNORM_INT8, 3, SIZE(5, 3)), .form = FORM_SPREAD},
    {"planes", BIG, PACK(CL_UNORM_INT8, 3, SIZE(5, 7)), .form = FORM_TRANSPOSED},
    {"backwards", BIG, PACK(CL_UNORM_INT8, 3, SIZE(5, 3)), .form = FORM_FLIPPED},
    {"a part", ALL, PACK(CL_UNORM_INT8, 3, .image = {9, 8}, .region = {4, 3}), .origin = {3, 2}},
    {"a smaller part than planned", ALL, PACK(CL_UNORM_INT8, 3, .image = {9, 8}, .region = {6, 5}), .origin = {3, 4},
     .explicit_region = true, .actual = {4, 3}},
    {"nothing", ALL, PACK(CL_UNORM_INT8, 3, .image = {9, 8}, .region = {6, 5}), .explicit_region = true,
     .actual = {0, 5}},
    {"beyond every edge", ALL, PACK(CL_UNORM_INT8, 3, .image = {3, 2}, .region = {7, 6}), .origin = {-2, -2}},
    {"wholly outside", BIG, PACK(CL_UNORM_INT8, 3, .image = {3, 2}, .region = {2, 2}), .origin = {1000000, -1000000}},
    {"patch of 3", ALL, PACK(CL_UNORM_INT8, 3, SIZE(5, 4)), .patch = 3},
    {"patch of 3 with norm", ALL, PACK(CL_UNORM_INT8, 3, SIZE(5, 4)), .patch = 3, .norm = 1},
    {"patch of 5 with norm, a part", BIG, PACK(CL_UNORM_INT8, 3, .image = {13, 9}, .region = {17, 11}), .patch = 5,
     .norm = 1, .origin = {-2, -1}},
    {"patch of 7, one channel", BIG, PACK(CL_UNORM_INT8, 1, SIZE(9, 11)), .patch = 7, .norm = 1},
    {"the largest patch", BIG, PACK(CL_UNORM_INT8, 4, SIZE(5, 3)), .patch = CLATTN_IMAGE_MAX_PATCH, .norm = 1},
    {"norms of each component", ALL, PACK(CL_UNORM_INT8, 3, SIZE(5, 4)), .patch = 3, .norm = 2},
    {"norms of each component, gaps", BIG, PACK(CL_UNORM_INT8, 2, SIZE(7, 4)), .patch = 5, .norm = 2,
     .form = FORM_PADDED},
    {"colours", ALL, PACK(CL_UNORM_INT8, 4, SIZE(5, 4)), .transform = true},
    {"colours of a patch", BIG, PACK(CL_UNORM_INT16, 3, SIZE(9, 4)), .patch = 3, .norm = 2, .transform = true},
    {"grey of colours", BIG, PACK(CL_UNORM_INT8, 1, SIZE(9, 4)), .transform = true, .dtype = CLATTN_DTYPE_BF16},
    {"sRGB", ALL, PACK(CL_UNORM_INT8, 4, SIZE(16, 4)), .srgb = true},
    {"sRGB of 16 bits", BIG, PACK(CL_UNORM_INT16, 3, SIZE(64, 9)), .srgb = true},
    {"sRGB of a plane's patches", BIG, PACK(CL_UNORM_INT8, 1, SIZE(19, 4)), .srgb = true, .order = CL_R, .patch = 3},
    {"sRGB to bfloat16", BIG, PACK(CL_UNORM_INT8, 3, SIZE(16, 16)), .srgb = true, .dtype = CLATTN_DTYPE_BF16},
    {"premultiplied", ALL, PACK(CL_UNORM_INT8, 4, SIZE(16, 4)), .premultiplied = true},
    {"premultiplied, alpha left out", BIG, PACK(CL_UNORM_INT16, 3, SIZE(37, 3)), .premultiplied = true},
    {"premultiplied without alpha", ALL, PACK(CL_UNORM_INT8, 2, SIZE(5, 3)), .order = CL_R, .premultiplied = true},
    {"sRGB, premultiplied", ALL, PACK(CL_UNORM_INT8, 4, SIZE(17, 4)), .srgb = true, .premultiplied = true},
    {"sRGB, premultiplied, colours", BIG, PACK(CL_UNORM_INT8, 4, SIZE(17, 4)), .srgb = true, .premultiplied = true,
     .transform = true, .order = CL_BGRA},
    {"norm of what is stored", BIG, PACK(CL_UNORM_INT8, 3, SIZE(5, 4)), .patch = 3, .norm = 1,
     .dtype = CLATTN_DTYPE_BF16, .form = FORM_PADDED},
    {"norm of a pixel, overflow and NaN", BIG, PACK(CL_FLOAT, 4, SIZE(16, 4)), .norm = 1},

    {"bytes", BIG, UNPACK(CL_UNORM_INT8, 4, SIZE(40, 20))},
    {"bytes", ALL, UNPACK(CL_UNORM_INT8, 3, SIZE(5, 6))},
    {"one channel", ALL, UNPACK(CL_UNORM_INT8, 1, SIZE(5, 3))},
    {"two channels", BIG, UNPACK(CL_FLOAT, 2, SIZE(7, 5))},
    {"blue first", ALL, UNPACK(CL_UNORM_INT8, 3, SIZE(5, 3)), .order = CL_BGRA},
    {"16 bits", BIG, UNPACK(CL_UNORM_INT16, 4, SIZE(33, 20))},
    {"half", ALL, UNPACK(CL_HALF_FLOAT, 4, SIZE(5, 5))},
    {"half", BIG, UNPACK(CL_HALF_FLOAT, 4, SIZE(33, 20))},
    {"float", ALL, UNPACK(CL_FLOAT, 4, SIZE(5, 5))},
    {"colours", ALL, UNPACK(CL_FLOAT, 4, SIZE(6, 5)), .transform = true, .finite = true},
    {"colours", BIG, UNPACK(CL_UNORM_INT8, 3, SIZE(16, 15)), .transform = true, .finite = true},
    {"colours of two channels", BIG, UNPACK(CL_UNORM_INT16, 2, SIZE(6, 5)), .transform = true, .finite = true},
    {"sRGB", ALL, UNPACK(CL_UNORM_INT8, 4, SIZE(17, 5)), .srgb = true, .finite = true},
    {"sRGB of 16 bits", BIG, UNPACK(CL_UNORM_INT16, 3, SIZE(33, 20)), .srgb = true, .finite = true},
    {"sRGB of float", BIG, UNPACK(CL_FLOAT, 3, SIZE(33, 5)), .srgb = true, .finite = true},
    {"premultiplied", ALL, UNPACK(CL_UNORM_INT8, 4, SIZE(17, 5)), .premultiplied = true, .finite = true},
    {"premultiplied, alpha left out", BIG, UNPACK(CL_UNORM_INT8, 3, SIZE(5, 3)), .premultiplied = true, .finite = true},
    {"sRGB, premultiplied, colours", BIG, UNPACK(CL_UNORM_INT8, 4, SIZE(17, 5)), .srgb = true, .premultiplied = true,
     .transform = true, .finite = true, .order = CL_BGRA},
    {"float16", ALL, UNPACK(CL_UNORM_INT8, 3, SIZE(6, 5)), .dtype = CLATTN_DTYPE_F16},
    {"bfloat16", ALL, UNPACK(CL_UNORM_INT8, 3, SIZE(6, 5)), .dtype = CLATTN_DTYPE_BF16},
    {"bfloat16 to half", BIG, UNPACK(CL_HALF_FLOAT, 3, SIZE(6, 5)), .dtype = CLATTN_DTYPE_BF16},
    {"a plane", ALL, UNPACK(CL_UNORM_INT8, 1, SIZE(5, 3)), .order = CL_R},
    {"a plane of 16 bits", ALL, UNPACK(CL_UNORM_INT16, 1, SIZE(37, 3)), .order = CL_R},
    {"a plane of half", BIG, UNPACK(CL_HALF_FLOAT, 1, SIZE(17, 3)), .order = CL_R},
    {"a plane of float", BIG, UNPACK(CL_FLOAT, 1, SIZE(17, 3)), .order = CL_R, .dtype = CLATTN_DTYPE_F16},
    {"two planes in one", ALL, UNPACK(CL_UNORM_INT8, 2, SIZE(5, 3)), .order = CL_RG},
    {"two planes in one, 16 bits", ALL, UNPACK(CL_UNORM_INT16, 2, SIZE(18, 2)), .order = CL_RG},
    {"two planes in one, half", ALL, UNPACK(CL_HALF_FLOAT, 2, SIZE(5, 3)), .order = CL_RG},
    {"two planes in one, float", ALL, UNPACK(CL_FLOAT, 2, SIZE(5, 3)), .order = CL_RG},
    {"the second of two planes from nothing", ALL, UNPACK(CL_UNORM_INT8, 1, SIZE(5, 3)), .order = CL_RG},
    {"luma of colours", ALL, UNPACK(CL_UNORM_INT8, 3, SIZE(17, 3)), .order = CL_R, .transform = true, .finite = true},
    {"a plane within another", ALL, UNPACK(CL_UNORM_INT8, 1, .image = {9, 8}, .region = {4, 3}), .order = CL_R,
     .origin = {3, 2}},
    {"the caller's workspace", ALL, UNPACK(CL_FLOAT, 3, SIZE(5, 3)), .own_workspace = true},
    {"several bands of rows", BIG, UNPACK(CL_FLOAT, 4, .image = {612, 303}, .region = {611, 301}), .origin = {1, 2}},
    {"gaps", BIG, UNPACK(CL_UNORM_INT8, 3, SIZE(5, 3)), .form = FORM_PADDED},
    {"planes", BIG, UNPACK(CL_UNORM_INT8, 3, SIZE(5, 7)), .form = FORM_TRANSPOSED},
    {"one row for all", BIG, UNPACK(CL_UNORM_INT8, 3, SIZE(5, 7)), .form = FORM_SHARED_FIRST},
    {"a part", ALL, UNPACK(CL_UNORM_INT8, 3, .image = {9, 8}, .region = {4, 3}), .origin = {3, 2}},
    {"up to the last corner", ALL, UNPACK(CL_FLOAT, 3, .image = {9, 8}, .region = {6, 5}), .origin = {5, 5},
     .explicit_region = true, .actual = {4, 3}},
    {"nothing", ALL, UNPACK(CL_UNORM_INT8, 3, .image = {9, 8}, .region = {6, 5}), .explicit_region = true,
     .actual = {3, 0}},
};

/* A valid description and arguments with the objects that they need. */
typedef struct working {
    test_image image;
    test_job job;
    clattn_image_desc desc;
    clattn_image_args args;
} working;

static working make_working(clattn_image_operation operation, cl_image_format format, cl_mem_flags flags)
{
    working w = {.image = image_create(flags, format, 6, 5, 0, 8)};

    clattn_image_desc_init(&w.desc);
    clattn_image_args_init(&w.args);
    test_array array = job_array(&w.job, ROLE_IN_PLACE, CLATTN_DTYPE_F32, 3, (size_t[]){5, 6, 3}, FORM_PLAIN);
    w.desc.operation = operation;
    w.desc.array = array.layout;
    w.args.image = clattn_binding_image(w.image.memory);
    w.args.array = array_binding(&array);
    return w;
}

static void release_working(working *w)
{
    job_release(&w->job);
    image_release(&w->image);
}

static const cl_image_format bytes = {CL_RGBA, CL_UNORM_INT8};

#define REFUSED(status, change) OPERATOR_REFUSES_DESC(image, status, w.desc, change)

static void refused_descriptions(void **state)
{
    working w = make_working(CLATTN_IMAGE_OPERATION_PACK, bytes, CL_MEM_READ_ONLY);
    const clattn_layout norm = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (size_t[]){5, 6});

    (void)state;
    REFUSED(INVALID_STRUCT, size = 8);
    w.desc.size = offsetof(clattn_image_desc, transfer); /* of the first version */
    assert_status(device_context(), clattn_image_supports(device_context(), &w.desc, NULL), CLATTN_SUCCESS);
    w.desc.size = sizeof w.desc;
    REFUSED(INVALID_ARGUMENT, operation = 2);
    REFUSED(INVALID_ARGUMENT, patch = 2);
    REFUSED(INVALID_ARGUMENT, patch = -1);
    REFUSED(INVALID_ARGUMENT, patch = 33);
    REFUSED(INVALID_LAYOUT, patch = 3);
    REFUSED(INVALID_ARGUMENT, patch = (desc.operation = CLATTN_IMAGE_OPERATION_UNPACK, 3));
    REFUSED(INVALID_ARGUMENT, norm = (desc.operation = CLATTN_IMAGE_OPERATION_UNPACK, norm));
    REFUSED(INVALID_ARGUMENT, transfer = 2);
    REFUSED(INVALID_ARGUMENT, alpha = 2);
    REFUSED(INVALID_ARGUMENT, image_array = 2);
    REFUSED(INVALID_ARGUMENT, reserved = 1);
    REFUSED(UNSUPPORTED, array.dtype = CLATTN_DTYPE_U8);
    REFUSED(INVALID_LAYOUT, array.rank = 2);
    REFUSED(INVALID_LAYOUT, array.stride[0] = (desc.array.extent[2] = 5, desc.array.stride[1] = 5, 30));
    REFUSED(INVALID_LAYOUT, array.extent[2] = 0);
    REFUSED(INVALID_LAYOUT, array.stride[1] = 0);
    REFUSED(INVALID_LAYOUT, norm = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (size_t[]){5, 6, 2}));
    w.desc.norm = norm;
    REFUSED(UNSUPPORTED, norm.dtype = CLATTN_DTYPE_F16);
    REFUSED(INVALID_LAYOUT, norm.extent[0] = 4);
    REFUSED(INVALID_LAYOUT, norm.rank = 1);
    release_working(&w);
}

#define REFUSED_ARGS(status, change) OPERATOR_REFUSES_ARGS(image, w.job.plan, status, w.args, change)

static void refused_arguments(void **state)
{
    for (int operation = CLATTN_IMAGE_OPERATION_PACK; operation <= CLATTN_IMAGE_OPERATION_UNPACK; operation++) {
        bool pack = operation == CLATTN_IMAGE_OPERATION_PACK;
        working w = make_working((clattn_image_operation)operation, bytes, pack ? CL_MEM_READ_ONLY : CL_MEM_WRITE_ONLY);
        test_image closed = image_create(pack ? CL_MEM_WRITE_ONLY : CL_MEM_READ_ONLY, bytes, 6, 5, 0, 8);
        clattn_binding buffer = w.args.array;

        w.job.plan = operator_plan(&image_operator, &w.desc, NULL);
        REFUSED_ARGS(INVALID_STRUCT, size = 8);
        REFUSED_ARGS(INVALID_ARGUMENT, image = (clattn_binding){0});
        REFUSED_ARGS(INVALID_ARGUMENT, image = buffer);
        REFUSED_ARGS(INVALID_ARGUMENT, image = clattn_binding_image(buffer.buffer));
        REFUSED_ARGS(INVALID_ARGUMENT, image.offset = 1);
        REFUSED_ARGS(INVALID_ARGUMENT, array = w.args.image);
        REFUSED_ARGS(INVALID_ARGUMENT, array = clattn_binding_buffer(w.image.memory, 0));
        REFUSED_ARGS(INVALID_ARGUMENT, norm = buffer);
        if (clattn_plan_workspace_size(w.job.plan)) {
            REFUSED_ARGS(BUFFER_TOO_SMALL, workspace = clattn_binding_buffer(buffer.buffer, 128000));
            REFUSED_ARGS(INVALID_ARGUMENT, workspace = w.args.image);
        }
        REFUSED_ARGS(BUFFER_TOO_SMALL, array.offset = 100000);
        REFUSED_ARGS(BUFFER_ACCESS, image = clattn_binding_image(closed.memory));
        REFUSED_ARGS(INVALID_ARGUMENT, explicit_region = 2);
        REFUSED_ARGS(INVALID_ARGUMENT, height = (args.explicit_region = 1, args.width = 7, 1));
        REFUSED_ARGS(INVALID_ARGUMENT, height = (args.explicit_region = 1, args.width = 1, 6));
        REFUSED_ARGS(INVALID_ARGUMENT, origin_x = INT64_C(1) << 31);
        REFUSED_ARGS(INVALID_ARGUMENT, norm_factor = NAN);
        REFUSED_ARGS(INVALID_ARGUMENT, explicit_matrix = 2);
        REFUSED_ARGS(INVALID_ARGUMENT, reserved = 1);
        REFUSED_ARGS(INVALID_ARGUMENT, matrix[2][3] = (args.explicit_matrix = 1, INFINITY));
        REFUSED_ARGS(INVALID_ARGUMENT, origin_y = INT64_MIN);
        if (!pack) { /* pack takes these places */
            REFUSED_ARGS(INVALID_ARGUMENT, origin_x = 1);
            REFUSED_ARGS(INVALID_ARGUMENT, origin_y = -1);
        }
        assert_status(device_context(), clattn_image_enqueue(w.job.plan, NULL, NULL, 0, NULL, NULL),
                      CLATTN_ERROR_INVALID_ARGUMENT);
        image_release(&closed);
        release_working(&w);
    }
    (void)state;
}

/* Formats that the device reads but this operator does not take are refused, and do not give a wrong answer. */
static void refused_formats(void **state)
{
    static const cl_image_format formats[] = {{CL_RGBA, CL_SNORM_INT8}, {CL_RGBA, CL_UNSIGNED_INT8}, {CL_A, CL_FLOAT}};
    working w = make_working(CLATTN_IMAGE_OPERATION_PACK, bytes, CL_MEM_READ_ONLY);
    cl_context context = clattn_context_opencl_context(device_context());
    int tried = 0;

    (void)state;
    w.job.plan = operator_plan(&image_operator, &w.desc, NULL);
    for (size_t i = 0; i < COUNT_OF(formats); i++) {
        const cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 6, .image_height = 5};
        cl_int code;
        cl_mem image = clCreateImage(context, CL_MEM_READ_WRITE, &formats[i], &desc, NULL, &code);

        if (image) {
            w.args.image = clattn_binding_image(image);
            assert_status(device_context(), clattn_image_enqueue(w.job.plan, NULL, &w.args, 0, NULL, NULL),
                          CLATTN_ERROR_UNSUPPORTED);
            device_release_buffer(image);
            tried++;
        }
    }
    const cl_image_desc line = {.image_type = CL_MEM_OBJECT_IMAGE1D, .image_width = 6};
    cl_int code;
    cl_mem image = clCreateImage(context, CL_MEM_READ_WRITE, &bytes, &line, NULL, &code);
    if (image) {
        w.args.image = clattn_binding_image(image);
        assert_status(device_context(), clattn_image_enqueue(w.job.plan, NULL, &w.args, 0, NULL, NULL),
                      CLATTN_ERROR_INVALID_ARGUMENT);
        device_release_buffer(image);
    }
    assert_true(tried > 0);
    release_working(&w);
}

static void *without_image_functions(void *user, const char *name)
{
    return strstr(name, "Image") ? NULL : inject_get_proc(user, name);
}

/* An OpenCL without image functions stands in for a device without images. */
static void without_images(void **state)
{
    working w = make_working(CLATTN_IMAGE_OPERATION_PACK, bytes, CL_MEM_READ_ONLY);
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_context *context = NULL;
    clattn_plan *plan = NULL;
    const char *reason = NULL;

    (void)state;
    params.opencl_context = clattn_context_opencl_context(device_context());
    params.opencl_device = clattn_context_opencl_device(device_context());
    params.get_proc = without_image_functions;
    assert_status(device_context(), clattn_context_create(&params, &context), CLATTN_SUCCESS);
    assert_status(device_context(), clattn_image_supports(context, &w.desc, &reason), CLATTN_ERROR_UNSUPPORTED);
    assert_string_equal(reason, "the device has no images");
    assert_status(device_context(), clattn_image_plan_create(context, &w.desc, NULL, &plan), CLATTN_ERROR_UNSUPPORTED);
    assert_null(plan);
    clattn_context_release(&context);
    release_working(&w);
}

/* An image is packed, its components go through softmax, and the result is unpacked; the queue or, on an out-of-order
 * queue, events order the operators. */
static void operators_in_a_row(cl_command_queue queue)
{
    working from = make_working(CLATTN_IMAGE_OPERATION_PACK, bytes, CL_MEM_READ_ONLY);
    working to = make_working(CLATTN_IMAGE_OPERATION_UNPACK, bytes, CL_MEM_READ_WRITE);
    clattn_softmax_desc softmax = CLATTN_SOFTMAX_DESC_INIT;
    clattn_softmax_args args = CLATTN_SOFTMAX_ARGS_INIT;
    clattn_context *context = device_context();
    cl_event events[3];

    softmax.x = softmax.y = from.desc.array;
    args.x = args.y = to.args.array = from.args.array;
    assert_status(device_context(), clattn_image_prewarm(context, &from.desc), CLATTN_SUCCESS);
    assert_status(device_context(), clattn_image_run(context, queue, &from.desc, &from.args, 0, NULL, &events[0]),
                  CLATTN_SUCCESS);
    assert_status(device_context(), clattn_softmax_run(context, queue, &softmax, &args, 1, &events[0], &events[1]),
                  CLATTN_SUCCESS);
    assert_status(device_context(), clattn_image_run(context, queue, &to.desc, &to.args, 1, &events[1], &events[2]),
                  CLATTN_SUCCESS);
    assert_cl(clWaitForEvents(1, &events[2]));
    for (int i = 0; i < 3; i++) {
        assert_cl(clReleaseEvent(events[i]));
    }
    image_download(&to.image);
    for (size_t y = 0; y < 5; y++) {
        for (size_t x = 0; x < 6; x++) {
            double sum = 0;
            for (int c = 0; c < 3; c++) {
                sum += exp(image_stored(&from.image, x, y, c) / 255);
            }
            for (int c = 0; c < 3; c++) {
                double exact = 255 * exp(image_stored(&from.image, x, y, c) / 255) / sum;
                assert_true(fabs(image_stored(&to.image, x, y, c) - exact) <= 0.5001);
            }
            assert_true(image_stored(&to.image, x, y, 3) == 255);
        }
    }
    assert_cl(clReleaseCommandQueue(queue));
    release_working(&from);
    release_working(&to);
}

static void in_order(void **state)
{
    (void)state;
    operators_in_a_row(new_queue(device_context(), false));
}

static void out_of_order(void **state)
{
    cl_command_queue queue = new_queue(device_context(), true);

    (void)state;
    if (!queue) {
        skip();
    }
    operators_in_a_row(queue);
}

/* The workspace of solver cpu has 2 MiB, 16 bytes for a pixel: 128 rows of 1,024 pixels, 125 and a margin of two. */
static void bands_are_counted(void **state)
{
    static const struct {
        size_t height;
        int32_t patch;
        size_t launches;
    } bands[] = {{1, 1, 1}, {128, 1, 1}, {129, 1, 2}, {1024, 1, 8}, {125, 3, 1}, {1024, 3, 9}};
    const clattn_plan_options options = {.size = sizeof options, .solver = "cpu"};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(bands); i++) {
        clattn_image_desc desc = CLATTN_IMAGE_DESC_INIT;
        clattn_plan *plan = NULL;
        const size_t patch = (size_t)bands[i].patch;

        desc.operation = CLATTN_IMAGE_OPERATION_PACK;
        desc.patch = bands[i].patch;
        desc.array =
            clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (const size_t[3]){bands[i].height, 1024, patch * patch});
        const clattn_status status = clattn_image_plan_create(device_context(), &desc, &options, &plan);
        if (!device_is_cpu() || status == CLATTN_ERROR_UNSUPPORTED) {
            skip();
        }
        assert_status(device_context(), status, CLATTN_SUCCESS);
        assert_int_equal(clattn_plan_launch_count(plan), bands[i].launches);
        clattn_plan_release(&plan);
    }
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        if (cases[i].levels & level()) {
            for (size_t s = 0; s < IMAGE_SOLVERS; s++) {
                suite_add_case(image_check, &cases[i], image_solvers[s], "image %s: %s: %s, type %x, %d channels",
                               image_solvers[s], cases[i].operation == CLATTN_IMAGE_OPERATION_PACK ? "pack" : "unpack",
                               cases[i].rule, (unsigned)cases[i].type, cases[i].channels);
            }
        }
    }
    suite_add(refused_descriptions, "image: wrong descriptions are refused");
    suite_add(refused_arguments, "image: wrong arguments are refused");
    suite_add(refused_formats, "image: formats that are not taken are refused");
    suite_add(bands_are_counted, "image: how many launches a plan by cpu has at the most");
    suite_add(without_images, "image: a device without images is refused with that reason");
    suite_add(in_order, "image: operators follow each other on a queue in order");
    suite_add(out_of_order, "image: operators follow each other by events");
    return suite_run("image", argc, argv);
}
