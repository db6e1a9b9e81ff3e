/* clattn:denoise, an operation of GEGL.  gegl-op.h includes this file again, for its properties. */
#ifdef GEGL_PROPERTIES

/* These macros are statements without a semicolon. */
/* clang-format off */
property_double(strength, "Strength", 10.0)
    description("How much patches may differ: about the noise's standard deviation, in levels of 255")
    value_range(0.0, 255.0)
    ui_range(0.0, 60.0)

property_int(patch, "Patch", 5)
    description("Compares squares of this many pixels a side; even numbers count as the next odd one")
    value_range(1, 15)

property_int(radius, "Radius", 7)
    description("Looks for similar pixels this far away; time grows with its square")
    value_range(1, 64)
    ui_range(1, 20)
/* clang-format on */

#else

#define GEGL_OP_AREA_FILTER
#define GEGL_OP_NAME clattn_denoise
#define GEGL_OP_C_SOURCE denoise.c
#define GEGL_OP_BUNDLE /* module.c registers it */

#include <gegl-op.h>

#include "operation.h"

/* Blocks of the area that GEGL asks for: what lies in host memory at a time, and how often progress is told. */
#define BLOCK 512
#define LEAST_STRENGTH 0.001

static gsize patch_of(const GeglProperties *o)
{
    return (gsize)(o->patch | 1);
}

static void prepare(GeglOperation *operation)
{
    GeglOperationAreaFilter *area = GEGL_OPERATION_AREA_FILTER(operation);
    const GeglProperties *o = GEGL_PROPERTIES(operation);
    area->left = area->right = area->top = area->bottom = (gint)engine_margin(patch_of(o), (gsize)o->radius);
    gegl_operation_set_format(operation, "input", format_of(operation));
    gegl_operation_set_format(operation, "output", format_of(operation));
}

/* A picture that is cleaned is as large as it was. */
static GeglRectangle get_bounding_box(GeglOperation *operation)
{
    return bounds_of(operation);
}

/* The pixels that the result in `roi` depends on.  Windows end at the picture's edge, and so does this. */
static GeglRectangle get_required_for_output(GeglOperation *operation, const gchar *pad, const GeglRectangle *roi)
{
    const GeglOperationAreaFilter *area = GEGL_OPERATION_AREA_FILTER(operation);
    const GeglRectangle bounds = bounds_of(operation);
    GeglRectangle needed = *roi;
    (void)pad;
    needed.x -= area->left;
    needed.y -= area->top;
    needed.width += area->left + area->right;
    needed.height += area->top + area->bottom;
    gegl_rectangle_intersect(&needed, &needed, &bounds);
    return needed;
}

/* Cleans one block from `input` to `output`; false, with a warning, if that cannot be done. */
static gboolean process_block(GeglOperation *operation, GeglBuffer *input, GeglBuffer *output,
                              const GeglRectangle *block)
{
    const GeglProperties *o = GEGL_PROPERTIES(operation);
    const Babl *format = gegl_operation_get_format(operation, "output");
    const gint components = babl_format_get_n_components(format);
    const GeglRectangle needed = get_required_for_output(operation, "input", block);
    const engine_opencl opencl = opencl_of(operation);
    char message[512] = "there is no memory for its pixels";
    float *in = g_try_new(float, (gsize)needed.width *(gsize)needed.height *(gsize)components);
    float *out = g_try_new(float, (gsize)block->width *(gsize)block->height *(gsize)components);
    gboolean done = FALSE;
    if (in && out) {
        const engine_block work = {.in = in,
                                   .out = out,
                                   .components = (gsize)components,
                                   .height = (gsize)needed.height,
                                   .width = (gsize)needed.width,
                                   .y = (gsize)(block->y - needed.y),
                                   .x = (gsize)(block->x - needed.x),
                                   .part_height = (gsize)block->height,
                                   .part_width = (gsize)block->width,
                                   .strength = o->strength,
                                   .patch = patch_of(o),
                                   .radius = (gsize)o->radius};
        gegl_buffer_get(input, &needed, 1.0, format, in, GEGL_AUTO_ROWSTRIDE, GEGL_ABYSS_CLAMP);
        gegl_buffer_get(input, block, 1.0, format, out, GEGL_AUTO_ROWSTRIDE, GEGL_ABYSS_CLAMP); /* alpha */
        done = engine_denoise(&opencl, &work, message, sizeof message);
    }
    if (done)
        gegl_buffer_set(output, block, 0, format, out, GEGL_AUTO_ROWSTRIDE);
    else
        g_warning("clattn:denoise: %s; the picture stays as it is", message);
    g_free(in);
    g_free(out);
    return done;
}

static gboolean process(GeglOperation *operation, GeglBuffer *input, GeglBuffer *output, const GeglRectangle *result,
                        gint level)
{
    const GeglProperties *o = GEGL_PROPERTIES(operation);
    const gdouble all = (gdouble)result->width * result->height;
    gdouble done = 0;
    gboolean works = o->strength >= LEAST_STRENGTH;
    (void)level;
    gegl_operation_progress(operation, 0.0, (gchar *)"");
    for (gint y = 0; works && y < result->height; y += BLOCK)
        for (gint x = 0; works && x < result->width; x += BLOCK) {
            const GeglRectangle block = {result->x + x, result->y + y, MIN(BLOCK, result->width - x),
                                         MIN(BLOCK, result->height - y)};
            works = process_block(operation, input, output, &block);
            done += (gdouble)block.width * block.height;
            gegl_operation_progress(operation, done / all, (gchar *)"");
        }
    if (!works)
        gegl_buffer_copy(input, result, GEGL_ABYSS_CLAMP, output, result);
    gegl_operation_progress(operation, 1.0, (gchar *)"");
    return TRUE;
}

static void gegl_op_class_init(GeglOpClass *klass)
{
    GeglOperationClass *operation_class = GEGL_OPERATION_CLASS(klass);
    GeglOperationFilterClass *filter_class = GEGL_OPERATION_FILTER_CLASS(klass);
    operation_class->prepare = prepare;
    operation_class->get_bounding_box = get_bounding_box;
    operation_class->get_required_for_output = get_required_for_output;
    operation_class->opencl_support = TRUE;
    operation_class->threaded = FALSE; /* the device has threads of its own */
    filter_class->process = process;
    gegl_operation_class_set_keys(
        operation_class, "name", "clattn:denoise", "title", "Denoise by Non-local Means", "categories",
        "enhance:noise-reduction", "description",
        "Takes noise away: every pixel becomes the mean of those around it whose surroundings are "
        "alike. Runs on any OpenCL device, by clattn",
        NULL);
    gegl_operation_class_set_keys(operation_class, "gimp:menu-path", "<Image>/Filters/Enhance", "gimp:menu-label",
                                  "Denoise by Non-local _Means...", NULL); /* GIMP 3 */
}

#endif
