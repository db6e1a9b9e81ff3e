/* Images: makes an image, an array and a plan of a table row, and judges the result by code that the library does not
 * share. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/ops/image_case.h"

const char *const image_solvers[IMAGE_SOLVERS] = {"cpu", "generic"};

enum { ARRAY, NORM }; /* of job.output */

static size_t component_bytes(cl_channel_type type)
{
    return type == CL_UNORM_INT8 ? 1 : type == CL_FLOAT ? 4 : 2;
}

static double levels_of(cl_channel_type type)
{
    return type == CL_UNORM_INT8 ? 255 : type == CL_UNORM_INT16 ? 65535 : 0;
}

/* Returns the place of a component; a CL_BGRA pixel lies in memory as blue, green, red, alpha. */
static unsigned char *place(const test_image *image, size_t x, size_t y, int c)
{
    int slot = image->format.image_channel_order == CL_BGRA && c < 3 ? 2 - c : c;
    return image->host + ((y * image->width + x) * (size_t)image->components + (size_t)slot) * image->component;
}

double image_stored(const test_image *image, size_t x, size_t y, int c)
{
    const double levels = levels_of(image->format.image_channel_data_type);
    if (c >= image->components) {
        return c < 3 ? 0 : levels > 0 ? levels : 1;
    }
    const unsigned char *at = place(image, x, y, c);
    uint16_t sixteen;
    switch (image->format.image_channel_data_type) {
    case CL_UNORM_INT8: return *at;
    case CL_UNORM_INT16: memcpy(&sixteen, at, 2); return sixteen;
    case CL_HALF_FLOAT: return storage_get(CLATTN_DTYPE_F16, at);
    default: return storage_get(CLATTN_DTYPE_F32, at);
    }
}

static const double odd_values[] = {
    0,       -0.0,  1,   0.5,      -1,        2,     1e-6,    65504,        65519.5,       65520, -70000,    3e-8,
    2.98e-8, 1e-40, NAN, INFINITY, -INFINITY, 1e-20, FLT_MAX, 1.0009765625, 1.00048828125, 0.2,   1.5 / 255, 2.5 / 255};

static double filler(random_stream *stream, size_t i)
{
    return i % 3 == 0 ? odd_values[i / 3 % COUNT_OF(odd_values)] : random_float(stream, -0.25f, 1.25f);
}

static bool is_supported(const cl_image_format *format)
{
    cl_image_format formats[512];
    cl_uint count = 0;

    assert_cl(clGetSupportedImageFormats(clattn_context_opencl_context(device_context()), CL_MEM_READ_WRITE,
                                         CL_MEM_OBJECT_IMAGE2D, COUNT_OF(formats), formats, &count));
    assert_true(count <= COUNT_OF(formats));
    for (cl_uint i = 0; i < count; i++) {
        if (memcmp(&formats[i], format, sizeof *format) == 0) {
            return true;
        }
    }
    return false;
}

test_image image_create(cl_mem_flags flags, cl_image_format format, size_t width, size_t height, size_t layers,
                        uint64_t salt)
{
    const cl_channel_order order = format.image_channel_order;
    test_image made = {.format = format,
                       .width = width,
                       .height = height,
                       .layers = layers,
                       .component = component_bytes(format.image_channel_data_type),
                       .components = order == CL_R    ? 1
                                     : order == CL_RG ? 2
                                                      : 4};
    const cl_image_desc desc = {.image_type = layers ? CL_MEM_OBJECT_IMAGE2D_ARRAY : CL_MEM_OBJECT_IMAGE2D,
                                .image_width = width,
                                .image_height = height,
                                .image_array_size = layers};
    size_t count = width * height * (size_t)made.components;
    random_stream stream = random_start(salt);
    cl_int code = CL_SUCCESS;

    made.host = malloc(count * made.component);
    assert_non_null(made.host);
    for (size_t i = 0; i < count; i++) {
        unsigned char *at = made.host + i * made.component;
        uint16_t sixteen = (uint16_t)(i < 6 ? (i & 1) * 65535 : random_bits(&stream));

        switch (format.image_channel_data_type) {
        case CL_UNORM_INT8: *at = (unsigned char)i; break;
        case CL_UNORM_INT16: memcpy(at, &sixteen, 2); break;
        case CL_HALF_FLOAT: storage_set(CLATTN_DTYPE_F16, at, filler(&stream, i)); break;
        default: storage_set(CLATTN_DTYPE_F32, at, filler(&stream, i)); break;
        }
    }
    /* All images of an array begin alike. */
    const size_t bytes = count * made.component, images = layers ? layers : 1;
    unsigned char *all = malloc(images * bytes);
    assert_non_null(all);
    for (size_t i = 0; i < images; i++)
        memcpy(all + i * bytes, made.host, bytes);
    made.memory = clCreateImage(clattn_context_opencl_context(device_context()), flags | CL_MEM_COPY_HOST_PTR, &format,
                                &desc, all, &code);
    free(all);
    if (!made.memory && (order == CL_R || order == CL_RG)) {
        assert_false(is_supported(&format)); /* the code is not always CL_IMAGE_FORMAT_NOT_SUPPORTED */
    } else {
        assert_cl(code);
    }
    return made;
}

void image_release(test_image *image)
{
    if (image->memory) {
        device_release_buffer(image->memory);
    }
    free(image->host);
    *image = (test_image){0};
}

void image_download(test_image *image)
{
    const size_t region[3] = {image->width, image->height, 1}, last = image->layers ? image->layers - 1 : 0;
    const size_t bytes = image->width * image->height * (size_t)image->components * image->component;
    unsigned char *other = malloc(bytes);

    assert_non_null(other);
    for (size_t layer = 0; layer <= last; layer++) {
        const size_t origin[3] = {0, 0, layer};
        assert_cl(clEnqueueReadImage(clattn_context_queue(device_context()), image->memory, CL_TRUE, origin, region, 0,
                                     0, layer == last ? image->host : other, 0, NULL, NULL));
        assert_true(layer == last || !memcmp(other, image->host, bytes));
    }
    free(other);
}

/* The matrix is not symmetric and has a constant in each row. */
static const float colours[3][4] = {{0.5f, 0.25f, 0.125f, 0.0625f}, {-0.5f, 1, 0.3f, 0}, {0.7f, -0.1f, -0.6f, 0.25f}};

/* Returns component c of a colour multiplied by the matrix, in double or rounded to float as the header says. */
static double transformed(const double *rgba, int c)
{
    const float *m = colours[c];
    return c == 3 ? rgba[3] : (m[0] * rgba[0] + m[1] * rgba[1]) + m[2] * rgba[2] + m[3];
}

/* Returns the error that float arithmetic may make in that product. */
static double transform_slack(const double *rgba, int c)
{
    double sum = c == 3 ? 0 : fabs((double)colours[c][3]);
    for (int i = 0; i < 3 && c < 3; i++) {
        sum += fabs((double)colours[c][i] * rgba[i]);
    }
    return 4 * (double)FLT_EPSILON * sum;
}

/* Whether an array of `dtype` may hold `got` for a pixel that has `stored`. */
static bool packed_right(const test_image *image, clattn_dtype dtype, double stored, double got)
{
    double levels = levels_of(image->format.image_channel_data_type);

    if (levels > 0) {
        double exact = stored / levels;
        double slack = stored == 0 || stored == levels ? 0 : 1.5 * ldexp(1, ilogb(exact) - 23);
        return got >= storage_round(dtype, exact - slack) && got <= storage_round(dtype, exact + slack);
    }
    double held = storage_round(dtype, stored);
    if (isnan(stored)) {
        return isnan(got);
    }
    /* Subnormals of float32 and of float16 may be flushed, by the image or by the array. */
    return got == held || (fabs(stored) < 6.2e-5 && got == 0);
}

/* sRGB's transfer function by IEC 61966-2-1, mirrored below 0. */
static double linear_of(double v)
{
    return v < 0 ? -linear_of(-v) : v <= 0.04045 ? v / 12.92 : pow((v + 0.055) / 1.055, 2.4);
}

static double srgb_of(double v)
{
    return v < 0 ? -srgb_of(-v) : v <= 0.0031308 ? 12.92 * v : 1.055 * pow(v, 1 / 2.4) - 0.055;
}

/* Whether colours do not stay as they are. */
static bool converts(const image_case *t)
{
    return t->transform || t->srgb || t->premultiplied;
}

/* Whether an array may hold `got` for component c of a pixel whose colours are converted; only for images of whole
 * numbers.  An error of 1.5 ulp of a component becomes at most 6 by the division, and those are 2.4 times as large in linear
 * light, beside the function's own 32. */
static bool converted_right(const image_case *t, const test_image *image, size_t x, size_t y, int c, double got)
{
    double rgba[4], ulps = 1.5;
    for (int i = 0; i < 4; i++) {
        rgba[i] = image_stored(image, x, y, i) / levels_of(image->format.image_channel_data_type);
    }
    for (int i = 0; i < 3 && t->premultiplied; i++) {
        rgba[i] = rgba[3] == 0 ? 0 : rgba[i] / rgba[3];
    }
    ulps = t->premultiplied ? 6 : ulps;
    for (int i = 0; i < 3 && t->srgb; i++) {
        rgba[i] = linear_of(rgba[i]);
    }
    ulps = t->srgb ? 2.4 * ulps + 32 : ulps;
    double exact = rgba[c], slack = fabs(exact);
    if (t->transform && c < 3) {
        exact = transformed(rgba, c);
        slack = 0;
        for (int i = 0; i < 3; i++) {
            slack += fabs((double)colours[c][i] * rgba[i]);
        }
    }
    slack = slack * (c < 3 ? ulps : 1.5) * (double)FLT_EPSILON + (t->transform ? transform_slack(rgba, c) : 0);
    return got >= storage_round(t->dtype, exact - slack) && got <= storage_round(t->dtype, exact + slack);
}

static size_t clamped(int64_t x, size_t extent)
{
    return x < 0 ? 0 : (size_t)x >= extent ? extent - 1 : (size_t)x;
}

static void judge_pack(const image_case *t, const test_image *image, const test_array *array, const test_array *norm,
                       float factor, const size_t *actual)
{
    int patch = t->patch ? t->patch : 1;

    for (size_t y = 0; y < actual[1]; y++) {
        for (size_t x = 0; x < actual[0]; x++) {
            double sums[4] = {0};
            for (int n = 0; n < patch * patch * t->channels; n++) {
                int pixel = n / t->channels;
                int64_t px = t->origin[0] + (int64_t)x + pixel % patch - patch / 2;
                int64_t py = t->origin[1] + (int64_t)y + pixel / patch - patch / 2;
                size_t at_x = clamped(px, t->image[0]), at_y = clamped(py, t->image[1]);
                double stored = image_stored(image, at_x, at_y, n % t->channels);
                double got = array_get(array, (size_t[]){y, x, (size_t)n});

                if (converts(t) ? !converted_right(t, image, at_x, at_y, n % t->channels, got)
                                : !packed_right(image, array->layout.dtype, stored, got)) {
                    fail_msg("pixel (%zu, %zu), element %d: %.9g of stored %.9g", x, y, n, got, stored);
                }
                sums[t->norm == 2 ? n % t->channels : 0] += got * got;
            }
            for (int c = 0; norm->memory && c < (t->norm == 2 ? t->channels : 1); c++) {
                double got = array_get(norm, (size_t[]){y, x, (size_t)c}), expected = factor * sums[c];
                double allowed = fabs(expected) * patch * patch * t->channels * (double)FLT_EPSILON;
                if (isnan(expected) || fabs(expected) > (double)FLT_MAX ? isfinite(got)
                                                                        : !(fabs(got - expected) <= allowed)) {
                    fail_msg("norm %d of (%zu, %zu): %.9g, expected %.9g", c, x, y, got, expected);
                }
            }
        }
    }
}

/* Whether the image may hold `got` for a pixel that was given `value`. */
static bool unpacked_right(const test_image *image, double value, double got)
{
    double levels = levels_of(image->format.image_channel_data_type);

    if (levels > 0) {
        double product = (double)(float)(value * levels); /* exact in double for these sizes, then rounded once */
        return got == (isnan(value) || product <= 0 ? 0 : product >= levels ? levels : rint(product));
    }
    clattn_dtype held = image->format.image_channel_data_type == CL_HALF_FLOAT ? CLATTN_DTYPE_F16 : CLATTN_DTYPE_F32;
    double expected = storage_round(held, value);
    if (isnan(value)) {
        return isnan(got);
    }
    return got == expected || (fabs(value) < 6.2e-5 && got == 0);
}

static void judge_unpack(const image_case *t, const test_image *before, const test_image *after,
                         const test_array *array, const size_t *actual)
{
    for (size_t y = 0; y < t->image[1]; y++) {
        for (size_t x = 0; x < t->image[0]; x++) {
            int64_t column = (int64_t)x - t->origin[0], row = (int64_t)y - t->origin[1];
            bool inside = column >= 0 && row >= 0 && column < (int64_t)actual[0] && row < (int64_t)actual[1];

            double given[4] = {0, 0, 0, 1};
            for (int c = 0; inside && c < t->channels; c++) {
                given[c] = array_get(array, (size_t[]){(size_t)row, (size_t)column, (size_t)c});
            }
            for (int c = 0; c < after->components; c++) {
                double got = image_stored(after, x, y, c), value = given[c];
                if (!inside) {
                    if (memcmp(place(before, x, y, c), place(after, x, y, c), before->component) != 0) {
                        fail_msg("pixel (%zu, %zu) outside of the region was changed", x, y);
                    }
                    continue;
                }
                /* A converted value may round to either neighbour, as far as rounding in float allows. */
                double slack = t->transform ? transform_slack(given, c) : 0;
                value = t->transform ? transformed(given, c) : value;
                if (t->srgb && c < 3) {
                    slack = 12.92 * slack + 40 * (double)FLT_EPSILON;
                    value = srgb_of(value);
                }
                if (t->premultiplied && c < 3) {
                    value *= given[3];
                    slack = slack * fabs(given[3]) + (double)FLT_EPSILON * fabs(value);
                }
                bool whole = levels_of(after->format.image_channel_data_type) > 0;
                bool near = whole
                                ? unpacked_right(after, value - slack, got) || unpacked_right(after, value + slack, got)
                                : fabs(got - value) <= slack;
                if (!unpacked_right(after, value, got) && !(converts(t) && near)) {
                    fail_msg("pixel (%zu, %zu), component %d: %.9g of %.9g", x, y, c, got, value);
                }
            }
        }
    }
}

typedef struct value_filler {
    random_stream stream;
    size_t count;
    bool finite;
} value_filler;

static double fill_value(void *context, const size_t *index)
{
    value_filler *f = context;
    (void)index;
    return f->finite ? random_float(&f->stream, -0.5f, 1.5f) : filler(&f->stream, f->count++);
}

#define BAND 128 /* bytes in front of the caller's workspace and behind it */

static cl_mem bring_workspace(test_job *job, unsigned char **bytes)
{
    const size_t needed = clattn_plan_workspace_size(job->plan), all = needed + 2 * BAND;
    cl_int code;

    *bytes = malloc(all);
    assert_non_null(*bytes);
    memset(*bytes, 0xa5, all);
    cl_mem buffer = clCreateBuffer(clattn_context_opencl_context(device_context()),
                                   CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, all, *bytes, &code);
    assert_cl(code);
    job->args.image.workspace = clattn_binding_buffer(buffer, BAND);
    return buffer;
}

static void judge_workspace(const test_job *job, cl_mem buffer, unsigned char *bytes)
{
    const size_t needed = clattn_plan_workspace_size(job->plan), all = needed + 2 * BAND;

    assert_cl(
        clEnqueueReadBuffer(clattn_context_queue(device_context()), buffer, CL_TRUE, 0, all, bytes, 0, NULL, NULL));
    for (size_t i = 0; i < BAND; i++) {
        assert_int_equal(bytes[i], 0xa5);
        assert_int_equal(bytes[BAND + needed + i], 0xa5);
    }
    free(bytes);
    device_release_buffer(buffer);
}

void image_check(const void *which, const char *solver)
{
    const image_case *t = which;
    bool pack = t->operation == CLATTN_IMAGE_OPERATION_PACK;
    cl_image_format format = {t->order ? t->order : CL_RGBA, t->type};
    size_t patch = t->patch ? (size_t)t->patch : 1;
    size_t extent[3] = {t->region[1], t->region[0], (size_t)t->channels * patch * patch};
    const size_t *actual = t->explicit_region ? t->actual : t->region;
    const size_t owned[3] = {actual[1], actual[0], extent[2]};
    clattn_image_desc desc = CLATTN_IMAGE_DESC_INIT;
    clattn_image_args args = CLATTN_IMAGE_ARGS_INIT;
    test_job job = {0};

    test_image image =
        image_create(pack ? CL_MEM_READ_ONLY : CL_MEM_WRITE_ONLY, format, t->image[0], t->image[1], t->layers, 5);
    /* There may be no images of CL_R or CL_RG: image_create says so.  PoCL 3.1's read_imagef and write_imagef take half floats of
     * CL_R for something else. */
    const bool mistaken = t->order == CL_R && t->type == CL_HALF_FLOAT && strcmp(solver, "cpu") != 0 &&
                          device_platform_contains("Portable Computing Language");
    if (!image.memory || mistaken) {
        image_release(&image);
        skip();
    }
    array_role role = !pack ? ROLE_INPUT : t->norm ? ROLE_READABLE_OUTPUT : ROLE_OUTPUT;
    test_array array = job_array(&job, role, t->dtype, 3, extent, t->form), *norm = &job.output[NORM];
    if (pack) {
        array_own(&array, owned);
        job.output[ARRAY] = array;
    } else {
        array_fill(&array, fill_value, &(value_filler){random_start(6), 0, t->finite});
        array_upload(&array);
    }
    if (t->norm) {
        const size_t norm_extent[3] = {extent[0], extent[1], (size_t)t->channels};
        const size_t norm_owned[3] = {owned[0], owned[1], (size_t)t->channels};
        *norm = job_array(&job, ROLE_OUTPUT, CLATTN_DTYPE_F32, t->norm + 1, norm_extent, t->form);
        array_own(norm, norm_owned);
    }
    desc.operation = t->operation;
    desc.patch = t->patch;
    desc.transfer = t->srgb ? CLATTN_IMAGE_TRANSFER_SRGB : CLATTN_IMAGE_TRANSFER_LINEAR;
    desc.alpha = t->premultiplied ? CLATTN_IMAGE_ALPHA_PREMULTIPLIED : CLATTN_IMAGE_ALPHA_STRAIGHT;
    desc.image_array = t->layers > 0;
    args.layer = t->layers ? t->layers - 1 : 0;
    args.image = clattn_binding_image(image.memory);
    array_bind(&array, &desc.array, &args.array);
    array_bind(norm, &desc.norm, &args.norm);
    args.origin_x = t->origin[0];
    args.origin_y = t->origin[1];
    args.explicit_region = t->explicit_region;
    args.width = t->actual[0];
    args.height = t->actual[1];
    args.norm_factor = t->norm ? -0.75f : 0;
    args.explicit_matrix = t->transform;
    memcpy(args.matrix, colours, sizeof args.matrix);
    job.args.image = args;
    assert_status(device_context(), clattn_image_supports(device_context(), &desc, NULL), CLATTN_SUCCESS);
    if (t->layers && strcmp(solver, "cpu") != 0) {
        operator_refuses_plan(&image_operator, &desc, solver, CLATTN_ERROR_UNSUPPORTED);
        assert_message_has(device_context(), "an array of images is copied, by cpu");
        job_release(&job);
        image_release(&image);
        return;
    }
    assert_true(job_plan(&job, &image_operator, &desc, solver, JOB_TAKEN));
    unsigned char *bytes_around = NULL;
    cl_mem workspace = t->own_workspace ? bring_workspace(&job, &bytes_around) : NULL;
    job_run(&job, NULL);
    if (workspace) {
        judge_workspace(&job, workspace, bytes_around);
    }
    if (pack) {
        judge_pack(t, &image, &array, norm, args.norm_factor, actual);
    } else {
        test_image before = image;
        size_t bytes = image.width * image.height * (size_t)image.components * image.component;

        before.host = malloc(bytes);
        assert_non_null(before.host);
        memcpy(before.host, image.host, bytes);
        image_download(&image);
        judge_unpack(t, &before, &image, &array, actual);
        free(before.host);
    }
    job_release(&job);
    image_release(&image);
}
