/* Non-local means as attention: an application that has an OpenCL context and images of its own lets clattn clean one.
 *
 *   denoise NOISY.png OUT.png [CLEAN.png]
 *
 * Each pixel becomes the mean of the pixels around it, weighted by how much the 5 x 5 patches around both are alike
 * (Buades, Coll, Morel 2005). This mean is attention: patches are queries and keys, pixels are values, and
 *
 *   softmax_k(−|q − k|²/h²) = softmax_k((2 q·k − |k|²)/h²)
 *
 * is a scaled dot product with a bias for each key, over a window. A colour matrix turns red, green and blue into one
 * brightness and two colour differences, each of which is a head of its own. The data stays on the device from image to
 * image, and nothing waits. If CLEAN.png is given, the program prints the peak signal-to-noise ratio before and after,
 * and fails unless the second is better. `clattn denoise` does the same in tiles, for pictures of any size. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

#include <clattn/clattn.h>

enum { CHANNELS = 3, PATCH = 5, RADIUS = 7, SIZE = PATCH * PATCH };

static const float strength = 20; /* the noise's standard deviation, of 255 levels */

/* An orthonormal basis of colours, which leaves the noise as it is; brightness lies around 0. */
static const float to_planes[3][4] = {{0.57735027f, 0.57735027f, 0.57735027f, -0.8660254f},
                                      {0.70710678f, 0, -0.70710678f, 0},
                                      {0.40824829f, -0.81649658f, 0.40824829f, 0}};
static const float from_planes[3][4] = {{0.57735027f, 0.70710678f, 0.40824829f, 0.5f},
                                        {0.57735027f, 0, -0.81649658f, 0.5f},
                                        {0.57735027f, -0.70710678f, 0.40824829f, 0.5f}};

static void check(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "%s failed\n", what);
        exit(1);
    }
}

static void check_clattn(const clattn_context *context, clattn_status status)
{
    char message[512];
    clattn_context_message(context, message, sizeof message);
    check(status == CLATTN_SUCCESS, message);
}

/* Returns the picture as RGBA, 8 bits a component; the caller frees it. */
static unsigned char *read_png(const char *path, size_t *width, size_t *height)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    check(png_image_begin_read_from_file(&image, path), path);
    check(image.width <= 4096 && image.height <= 4096, "a picture of at most 4096 x 4096 pixels");
    image.format = PNG_FORMAT_RGBA;
    unsigned char *pixels = malloc(PNG_IMAGE_SIZE(image));
    check(pixels && png_image_finish_read(&image, NULL, pixels, 0, NULL), path);
    *width = image.width;
    *height = image.height;
    return pixels;
}

static void write_png(const char *path, size_t width, size_t height, const unsigned char *pixels)
{
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)width,
                       .height = (png_uint_32)height,
                       .format = PNG_FORMAT_RGBA};
    check(png_image_write_to_file(&image, path, 0, pixels, 0, NULL), path);
}

/* The application's own device, context and queue. */
static cl_device_id device;
static cl_context opencl;
static cl_command_queue queue;

static void start_opencl(void)
{
    cl_platform_id platforms[16];
    cl_uint count = 0;
    cl_int code;
    check(clGetPlatformIDs(16, platforms, &count) == CL_SUCCESS, "clGetPlatformIDs");
    for (cl_uint i = 0; i < count && i < 16 && !device; i++)
        if (clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 1, &device, NULL) != CL_SUCCESS)
            device = NULL;
    check(device != NULL, "clGetDeviceIDs");
    opencl = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    check(opencl != NULL, "clCreateContext");
    queue = clCreateCommandQueue(opencl, device, 0, &code);
    check(queue != NULL, "clCreateCommandQueue");
}

static cl_mem make_image(size_t width, size_t height, unsigned char *pixels)
{
    const cl_image_format format = {CL_RGBA, CL_UNORM_INT8};
    const cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = width, .image_height = height};
    cl_mem image = clCreateImage(opencl, pixels ? CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR : CL_MEM_WRITE_ONLY, &format,
                                 &desc, pixels, NULL);
    check(image != NULL, "clCreateImage");
    return image;
}

static cl_mem make_buffer(size_t floats)
{
    cl_mem buffer = clCreateBuffer(opencl, CL_MEM_READ_WRITE, floats * sizeof(float), NULL, NULL);
    check(buffer != NULL, "clCreateBuffer");
    return buffer;
}

static clattn_layout layout(size_t heads, size_t height, size_t width, size_t size, const int64_t *stride)
{
    clattn_layout made = {CLATTN_DTYPE_F32, 5, {1, heads, height, width, size}, {0}};
    memcpy(made.stride, stride, sizeof made.stride);
    return made;
}

/* Enqueues three operators: image to patches and their norms, attention, pixels to image. */
static void denoise(clattn_context *context, cl_mem from, cl_mem to, size_t width, size_t height)
{
    const size_t pixels = width * height;
    const float h2 = strength / 255 * strength / 255 * SIZE;
    const int64_t row = (int64_t)width * SIZE * CHANNELS, col = SIZE * CHANNELS;
    cl_mem patches = make_buffer(pixels * SIZE * CHANNELS), norms = make_buffer(pixels * CHANNELS),
           cleaned = make_buffer(pixels * CHANNELS);

    clattn_image_desc pack = CLATTN_IMAGE_DESC_INIT;
    pack.patch = PATCH;
    pack.array = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (size_t[]){height, width, SIZE * CHANNELS});
    pack.norm = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (size_t[]){height, width, CHANNELS});
    clattn_image_args packed = CLATTN_IMAGE_ARGS_INIT;
    packed.image = clattn_binding_image(from);
    packed.array = clattn_binding_buffer(patches, 0);
    packed.norm = clattn_binding_buffer(norms, 0);
    packed.norm_factor = -1 / h2;
    packed.explicit_matrix = 1;
    memcpy(packed.matrix, to_planes, sizeof packed.matrix);
    check_clattn(context, clattn_image_run(context, queue, &pack, &packed, 0, NULL, NULL));

    /* A head is every third element, because the channels of a patch's pixels lie next to each other. */
    clattn_neighbourhood_desc attend = CLATTN_NEIGHBOURHOOD_DESC_INIT;
    attend.edge = CLATTN_EDGE_CLIP;
    attend.window[0] = attend.window[1] = 2 * RADIUS + 1;
    attend.explicit_scale = 1;
    attend.scale = 2 / h2;
    attend.query = attend.key = layout(CHANNELS, height, width, SIZE, (int64_t[]){0, 1, row, col, CHANNELS});
    attend.value = layout(CHANNELS, height, width, 1, (int64_t[]){0, 1, row, col, 1});
    attend.bias = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, (size_t[]){1, CHANNELS, height, width});
    attend.bias.stride[1] = 1;
    attend.bias.stride[2] = (int64_t)width * CHANNELS;
    attend.bias.stride[3] = CHANNELS;
    attend.output = layout(CHANNELS, height, width, 1, (int64_t[]){0, 1, (int64_t)width * CHANNELS, CHANNELS, 1});
    clattn_neighbourhood_args attended = CLATTN_NEIGHBOURHOOD_ARGS_INIT;
    attended.query = attended.key = clattn_binding_buffer(patches, 0);
    attended.value = clattn_binding_buffer(patches, SIZE / 2 * CHANNELS); /* the pixel itself */
    attended.bias = clattn_binding_buffer(norms, 0);
    attended.output = clattn_binding_buffer(cleaned, 0);
    check_clattn(context, clattn_neighbourhood_run(context, queue, &attend, &attended, 0, NULL, NULL));

    clattn_image_desc unpack = CLATTN_IMAGE_DESC_INIT;
    unpack.operation = CLATTN_IMAGE_OPERATION_UNPACK;
    unpack.array = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (size_t[]){height, width, CHANNELS});
    clattn_image_args unpacked = CLATTN_IMAGE_ARGS_INIT;
    unpacked.image = clattn_binding_image(to);
    unpacked.array = clattn_binding_buffer(cleaned, 0);
    unpacked.explicit_matrix = 1;
    memcpy(unpacked.matrix, from_planes, sizeof unpacked.matrix);
    check_clattn(context, clattn_image_run(context, queue, &unpack, &unpacked, 0, NULL, NULL));

    clReleaseMemObject(patches); /* OpenCL keeps the buffers until the work is done */
    clReleaseMemObject(norms);
    clReleaseMemObject(cleaned);
}

static double psnr(const unsigned char *a, const unsigned char *b, size_t pixels)
{
    double sum = 0;
    for (size_t i = 0; i < 4 * pixels; i++)
        sum += i % 4 < 3 ? ((double)a[i] - b[i]) * ((double)a[i] - b[i]) : 0;
    return 10 * log10(255 * 255 / (sum / (3 * (double)pixels)));
}

int main(int argc, char **argv)
{
    size_t width, height, clean_width, clean_height;
    clattn_context *context = NULL;
    if (argc != 3 && argc != 4) {
        fprintf(stderr, "usage: denoise NOISY.png OUT.png [CLEAN.png]\n");
        return 2;
    }
    unsigned char *noisy = read_png(argv[1], &width, &height), *cleaned = malloc(4 * width * height);
    check(cleaned != NULL, "malloc");
    start_opencl();
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    params.opencl_context = opencl;
    params.opencl_device = device;
    params.queue = queue;
    check_clattn(NULL, clattn_context_create(&params, &context));

    cl_mem from = make_image(width, height, noisy), to = make_image(width, height, NULL);
    denoise(context, from, to, width, height);
    const size_t origin[3] = {0, 0, 0}, region[3] = {width, height, 1};
    check(clEnqueueReadImage(queue, to, CL_TRUE, origin, region, 0, 0, cleaned, 0, NULL, NULL) == CL_SUCCESS,
          "clEnqueueReadImage");
    for (size_t i = 3; i < 4 * width * height; i += 4)
        cleaned[i] = noisy[i]; /* transparency has no noise */
    write_png(argv[2], width, height, cleaned);

    int good = 1;
    if (argc == 4) {
        unsigned char *clean = read_png(argv[3], &clean_width, &clean_height);
        check(clean_width == width && clean_height == height, "comparing pictures of one size");
        double before = psnr(noisy, clean, width * height), after = psnr(cleaned, clean, width * height);
        printf("PSNR %.2f dB before, %.2f dB after\n", before, after);
        good = after > before;
        free(clean);
    }
    clReleaseMemObject(from);
    clReleaseMemObject(to);
    clattn_context_release(&context);
    clReleaseCommandQueue(queue);
    clReleaseContext(opencl);
    free(noisy);
    free(cleaned);
    return !good;
}
