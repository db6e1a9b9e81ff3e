#include "pictures.h"

enum { PATCH = 5, RADIUS = 7, BAND = 64, KEYS = BAND + 2 * RADIUS, CHANNELS = 4, SIZE = PATCH * PATCH * CHANNELS };
enum { EDGE = 256, SIDE = 224, PIXELS = SIDE * SIDE }; /* what DINOv2's preprocessor_config.json has */
enum { NOISY, CLEANED, PATCHES, NORMS, ROWS, INPUT, VECTOR, MEMORIES };
enum { PACK, ATTEND, UNPACK, ENCODE, PLANS };

static const float h2 = 20.0f / 255 * 20 / 255 * SIZE; /* for noise with a standard deviation of 20 of 255 levels */

static gboolean fail(GError **error, const char *what, const char *why)
{
    g_set_error(error, G_IO_ERROR, G_IO_ERROR_FAILED, "%s: %s", what, why);
    return FALSE;
}

gboolean pictures_good(const clattn_context *context, clattn_status status, GError **error)
{
    char message[512];
    clattn_context_message(context, message, sizeof message);
    return status == CLATTN_SUCCESS || fail(error, clattn_status_string(status), message);
}

gboolean pictures_opencl_good(cl_int code, const char *call, GError **error)
{
    char number[32];
    g_snprintf(number, sizeof number, "OpenCL error %d", (int)code);
    return code == CL_SUCCESS || fail(error, call, number);
}

GdkPixbuf *pictures_load(const char *path, GError **error)
{
    GdkPixbuf *file = gdk_pixbuf_new_from_file(path, error);
    GdkPixbuf *turned = file ? gdk_pixbuf_apply_embedded_orientation(file) : NULL;
    GdkPixbuf *picture = turned ? gdk_pixbuf_add_alpha(turned, FALSE, 0, 0, 0) : NULL;
    g_clear_object(&file);
    g_clear_object(&turned);
    return picture;
}

static gboolean load_model(struct pictures *p, const char *weights, GError **error)
{
    clattn_transformer_desc desc = CLATTN_TRANSFORMER_DESC_INIT;
    clattn_stack_desc stages[CLATTN_VISION_STAGES];
    clattn_weight_source source = CLATTN_WEIGHT_SOURCE_INIT;
    clattn_io_error why;
    clattn_status status = clattn_safetensors_create(weights, &p->file, &why);
    if (status != CLATTN_SUCCESS)
        return fail(error, clattn_status_string(status), why.message);
    status = clattn_vision_preset(CLATTN_VISION_DINOV2_SMALL_14, &desc, stages, &source.format);
    source.lookup = clattn_safetensors_lookup;
    source.user = p->file;
    return pictures_good(NULL, status, error) &&
           pictures_good(p->context, clattn_transformer_create(p->context, &desc, &source, &p->model), error);
}

static clattn_layout floats(int32_t rank, size_t a, size_t b, size_t c, size_t d, size_t e)
{
    return clattn_layout_contiguous(CLATTN_DTYPE_F32, rank, (const size_t[]){a, b, c, d, e});
}

/* Has jobs make plans, for bands of a picture so wide and for a picture as the model wants it. */
static gboolean begin_plans(struct pictures *p, size_t width, GError **error)
{
    clattn_plan_options options[PLANS];
    clattn_image_desc pack = CLATTN_IMAGE_DESC_INIT, unpack = CLATTN_IMAGE_DESC_INIT;
    clattn_neighbourhood_desc attend = CLATTN_NEIGHBOURHOOD_DESC_INIT;
    clattn_encoder_desc encode = CLATTN_ENCODER_DESC_INIT;
    clattn_status status;
    for (int i = 0; i < PLANS; i++) {
        clattn_plan_options_init(&options[i]);
        options[i].background.job = &p->job[i];
    }
    pack.patch = PATCH;
    pack.array = floats(3, KEYS, width, SIZE, 0, 0);
    pack.norm = floats(2, KEYS, width, 0, 0, 0);
    attend.edge = CLATTN_EDGE_CLIP;
    attend.window[0] = attend.window[1] = 2 * RADIUS + 1;
    attend.explicit_scale = 1;
    attend.scale = 2 / h2;
    attend.query = floats(5, 1, 1, BAND, width, SIZE);
    attend.key = attend.value = floats(5, 1, 1, KEYS, width, SIZE);
    attend.value.extent[4] = CHANNELS; /* of a patch, the pixel itself */
    attend.bias = floats(4, 1, 1, KEYS, width, 0);
    attend.output = floats(5, 1, 1, BAND, width, CHANNELS);
    unpack.operation = CLATTN_IMAGE_OPERATION_UNPACK;
    unpack.array = floats(3, BAND, width, CHANNELS, 0, 0);
    encode.batch = 1;
    encode.picture = clattn_layout_nhwc(CLATTN_DTYPE_F32, 1, 3, SIDE, SIDE);
    encode.pooling = CLATTN_POOLING_FIRST;
    encode.pooled_unit = 1;
    if ((status = clattn_image_plan_create(p->context, &pack, &options[PACK], NULL)) ||
        (status = clattn_neighbourhood_plan_create(p->context, &attend, &options[ATTEND], NULL)) ||
        (status = clattn_image_plan_create(p->context, &unpack, &options[UNPACK], NULL)) ||
        (status = clattn_encoder_plan_create(p->model, &encode, &options[ENCODE], NULL)))
        return pictures_good(p->context, status, error);
    return TRUE;
}

/* Waits for a plan. If the user cancels, its job ends when the driver has compiled the kernel at hand. */
static gboolean take_plan(struct pictures *p, clattn_job *job, clattn_plan **plan, GError **error)
{
    char message[512];
    clattn_status status;
    while ((status = clattn_job_result(job, plan)) == CLATTN_ERROR_BUSY) {
        if (clattn_control_is_cancelled(p->control))
            clattn_job_cancel(job);
        g_usleep(5000);
    }
    clattn_job_message(job, message, sizeof message);
    return status == CLATTN_SUCCESS || fail(error, clattn_status_string(status), message);
}

static gboolean make_memory(struct pictures *p, size_t width, size_t height, GError **error)
{
    const size_t count[MEMORIES] = {[PATCHES] = KEYS * width * SIZE,
                                    [NORMS] = KEYS * width,
                                    [ROWS] = BAND * width * CHANNELS,
                                    [INPUT] = PIXELS * 3,
                                    [VECTOR] = PICTURES_COLUMNS};
    const cl_image_format format = {CL_RGBA, CL_UNORM_INT8};
    const cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = width, .image_height = height};
    cl_context opencl = clattn_context_opencl_context(p->context);
    cl_int code = CL_SUCCESS;
    for (int i = 0; i < MEMORIES && code == CL_SUCCESS; i++)
        p->memory[i] = count[i] ? clCreateBuffer(opencl, CL_MEM_READ_WRITE, count[i] * sizeof(float), NULL, &code)
                                : clCreateImage(opencl, CL_MEM_READ_WRITE, &format, &desc, NULL, &code);
    return pictures_opencl_good(code, "memory for the picture", error);
}

gboolean pictures_open(struct pictures *p, const char *weights, size_t width, size_t height, GError **error)
{
    gboolean good =
        load_model(p, weights, error) && begin_plans(p, width, error) && make_memory(p, width, height, error);
    for (int i = 0; i < PLANS && good; i++)
        good = take_plan(p, p->job[i], &p->plan[i], error);
    return good;
}

/* Cleans the image band by band. This is non-local means as attention, which denoise.c explains; here all channels of a patch
 * count together. A band's keys reach RADIUS rows beyond it, so that the bands do not show. */
static gboolean clean_bands(struct pictures *p, size_t width, size_t height, GError **error)
{
    clattn_image_args pack = CLATTN_IMAGE_ARGS_INIT, unpack = CLATTN_IMAGE_ARGS_INIT;
    clattn_neighbourhood_args attend = CLATTN_NEIGHBOURHOOD_ARGS_INIT;
    clattn_status status;
    pack.image = clattn_binding_image(p->memory[NOISY]);
    pack.array = attend.key = clattn_binding_buffer(p->memory[PATCHES], 0);
    pack.norm = attend.bias = clattn_binding_buffer(p->memory[NORMS], 0);
    pack.norm_factor = -1 / h2;
    attend.value = clattn_binding_buffer(p->memory[PATCHES], PATCH * PATCH / 2 * CHANNELS);
    attend.output = unpack.array = clattn_binding_buffer(p->memory[ROWS], 0);
    unpack.image = clattn_binding_image(p->memory[CLEANED]);
    pack.explicit_region = unpack.explicit_region = attend.explicit_sizes = 1;
    pack.width = unpack.width = attend.query_width = attend.key_width = width;
    attend.batch = 1;
    pack.control = attend.control = unpack.control = p->control;
    clattn_control_expect(p->control, 3 * ((height + BAND - 1) / BAND));
    for (size_t y = 0; y < height; y += BAND) {
        const size_t above = MIN(y, RADIUS), rows = MIN(height - y, BAND), below = MIN(height - y - rows, RADIUS);
        pack.origin_y = (int64_t)(y - above);
        pack.height = attend.key_height = above + rows + below;
        attend.query = clattn_binding_buffer(p->memory[PATCHES], (int64_t)(above * width * SIZE));
        attend.query_y = above;
        attend.query_height = unpack.height = rows;
        unpack.origin_y = (int64_t)y;
        if ((status = clattn_image_enqueue(p->plan[PACK], p->queue, &pack, 0, NULL, NULL)) ||
            (status = clattn_neighbourhood_enqueue(p->plan[ATTEND], p->queue, &attend, 0, NULL, NULL)) ||
            (status = clattn_image_enqueue(p->plan[UNPACK], p->queue, &unpack, 0, NULL, NULL)))
            return pictures_good(p->context, status, error);
    }
    return TRUE;
}

gboolean pictures_clean(struct pictures *p, GdkPixbuf *picture, GError **error)
{
    const size_t width = (size_t)gdk_pixbuf_get_width(picture), height = (size_t)gdk_pixbuf_get_height(picture);
    const size_t origin[3] = {0}, region[3] = {width, height, 1}, pitch = (size_t)gdk_pixbuf_get_rowstride(picture);
    guchar *pixels = gdk_pixbuf_get_pixels(picture);
    cl_int code =
        clEnqueueWriteImage(p->queue, p->memory[NOISY], CL_TRUE, origin, region, pitch, 0, pixels, 0, NULL, NULL);
    if (!pictures_opencl_good(code, "clEnqueueWriteImage", error) || !clean_bands(p, width, height, error))
        return FALSE;
    code = clEnqueueReadImage(p->queue, p->memory[CLEANED], CL_TRUE, origin, region, pitch, 0, pixels, 0, NULL, NULL);
    return pictures_opencl_good(code, "clEnqueueReadImage", error);
}

/* Makes what DINOv2 expects: the shorter edge becomes EDGE pixels, the middle SIDE x SIDE are cut out, levels normalised. */
static void prepare(const GdkPixbuf *picture, float input[3 * PIXELS])
{
    static const double mean[3] = {0.485, 0.456, 0.406}, deviation[3] = {0.229, 0.224, 0.225};
    const int width = gdk_pixbuf_get_width(picture), height = gdk_pixbuf_get_height(picture);
    const double scale = (double)EDGE / MIN(width, height);
    guchar *bytes = g_malloc(PIXELS * CHANNELS);
    GdkPixbuf *cut =
        gdk_pixbuf_new_from_data(bytes, GDK_COLORSPACE_RGB, TRUE, 8, SIDE, SIDE, SIDE * CHANNELS, NULL, NULL);
    gdk_pixbuf_scale(picture, cut, 0, 0, SIDE, SIDE, (SIDE - width * scale) / 2, (SIDE - height * scale) / 2, scale,
                     scale, GDK_INTERP_BILINEAR);
    for (int i = 0; i < PIXELS; i++)
        for (int c = 0; c < 3; c++)
            input[3 * i + c] = (float)((bytes[CHANNELS * i + c] / 255.0 - mean[c]) / deviation[c]);
    g_object_unref(cut);
    g_free(bytes);
}

gboolean pictures_vector(struct pictures *p, const GdkPixbuf *picture, float vector[PICTURES_COLUMNS], GError **error)
{
    const size_t bytes = 3 * PIXELS * sizeof(float);
    float *input = g_malloc(bytes);
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    prepare(picture, input);
    cl_int code = clEnqueueWriteBuffer(p->queue, p->memory[INPUT], CL_TRUE, 0, bytes, input, 0, NULL, NULL);
    g_free(input);
    args.input = clattn_binding_buffer(p->memory[INPUT], 0);
    args.pooled = clattn_binding_buffer(p->memory[VECTOR], 0);
    args.control = p->control;
    if (!pictures_opencl_good(code, "clEnqueueWriteBuffer", error) ||
        !pictures_good(p->context, clattn_encoder_enqueue(p->plan[ENCODE], p->queue, &args, 0, NULL, NULL), error))
        return FALSE;
    code = clEnqueueReadBuffer(p->queue, p->memory[VECTOR], CL_TRUE, 0, PICTURES_COLUMNS * sizeof *vector, vector, 0,
                               NULL, NULL);
    return pictures_opencl_good(code, "clEnqueueReadBuffer", error);
}

void pictures_close(struct pictures *p)
{
    for (int i = 0; i < PLANS; i++) {
        clattn_job_cancel(p->job[i]);
        clattn_job_wait(p->job[i], NULL);
        clattn_job_release(&p->job[i]);
        clattn_plan_release(&p->plan[i]);
    }
    for (int i = 0; i < MEMORIES; i++)
        if (p->memory[i])
            clReleaseMemObject(p->memory[i]);
    clattn_transformer_release(&p->model);
    clattn_safetensors_release(&p->file);
}
