/* clattn:upscale, an operation of GEGL.  gegl-op.h includes this file again, for its properties.
 *
 * The result is made of cells.  A cell is the middle of a tile of the picture, which has the overlap around it unless the
 * picture ends there.  Cells and tiles are whole windows of the model, and all tiles are of one size, so that there is one
 * plan.  Where they lie depends on the picture alone, not on what GEGL asks for first. */
#ifdef GEGL_PROPERTIES

/* These macros are statements without a semicolon. */
/* clang-format off */
property_file_path(model, "Model", "")
    description("SwinIR's weights, a safetensors file; the model tells how much larger the picture becomes")

property_int(overlap, "Overlap", 32)
    description("Computes this many pixels more around each part of the picture: more hide where parts meet")
    value_range(1, 256)
    ui_range(8, 64)
/* clang-format on */

#else

#define GEGL_OP_FILTER
#define GEGL_OP_NAME clattn_upscale
#define GEGL_OP_C_SOURCE upscale.c
#define GEGL_OP_BUNDLE /* module.c registers it */

#include <gegl-op.h>

#include "operation.h"

/* About the pixels on a cell's edge: how often progress is told, and a program looks for what its user wants. */
#define CELL 256
#define MOST_SIDE (1 << 26) /* of the result */

/* What an operation remembers of its model. */
typedef struct state {
    gchar *path;        /* NULL: there is none, and the picture passes */
    engine_model model; /* of this path; of factor 1 without one */
    gchar *told;        /* the last warning, which is not repeated */
} state;

static state *state_of(GeglOperation *operation)
{
    GeglProperties *o = GEGL_PROPERTIES(operation);
    if (!o->user_data) {
        state *made = g_new0(state, 1);
        made->model = (engine_model){1, 1};
        o->user_data = made;
    }
    return o->user_data;
}

static void finalize(GObject *object)
{
    GeglProperties *o = GEGL_PROPERTIES(object);
    state *s = o->user_data;
    if (s) {
        g_free(s->path);
        g_free(s->told);
        g_free(s);
        o->user_data = NULL;
    }
    G_OBJECT_CLASS(gegl_op_parent_class)->finalize(object);
}

static void warn(state *s, const gchar *message, const gchar *end)
{
    if (g_strcmp0(s->told, message) == 0)
        return;
    g_warning("clattn:upscale: %s; %s", message, end);
    g_free(s->told);
    s->told = g_strdup(message);
}

/* Finds out about the model of that path, unless it is known. */
static void find_model(GeglOperation *operation, const GeglRectangle *bounds)
{
    const gchar *path = GEGL_PROPERTIES(operation)->model;
    state *s = state_of(operation);
    const engine_opencl opencl = opencl_of(operation);
    gchar message[1024] = "the picture is too large or has no end";
    engine_model found;
    if (s->path && g_strcmp0(s->path, path) == 0)
        return;
    g_free(s->path);
    s->path = NULL;
    s->model = (engine_model){1, 1};
    if (!path || !*path)
        return warn(s, "no model is chosen", "the picture stays as it is");
    if (bounds->width > MOST_SIDE / 8 || bounds->height > MOST_SIDE / 8 || ABS(bounds->x) > MOST_SIDE / 8 ||
        ABS(bounds->y) > MOST_SIDE / 8 || !engine_find_model(&opencl, path, &found, message, sizeof message))
        return warn(s, message, "the picture stays as it is");
    s->path = g_strdup(path);
    s->model = found;
}

static void prepare(GeglOperation *operation)
{
    const GeglRectangle bounds = bounds_of(operation);
    gegl_operation_set_format(operation, "input", format_of(operation));
    gegl_operation_set_format(operation, "output", format_of(operation));
    if (!gegl_rectangle_is_empty(&bounds))
        find_model(operation, &bounds);
}

/* ---- cells and tiles ---- */

/* One axis of the picture; all but `begin` and `factor` in its pixels. */
typedef struct axis {
    gint begin, length, cell, tile, margin, factor;
} axis;

static gint whole(gint length, gint window)
{
    return (length + window - 1) / window * window;
}

static axis axis_of(GeglOperation *operation, gint begin, gint length)
{
    const engine_model *model = &state_of(operation)->model;
    const gint window = (gint)model->window, margin = whole(GEGL_PROPERTIES(operation)->overlap, window);
    axis a = {begin, length, whole(CELL, window), 0, margin, (gint)model->factor};
    a.tile = MIN(a.cell + 2 * margin, whole(length, window));
    if (a.tile == whole(length, window))
        a.cell = a.tile;
    return a;
}

/* Where the tile of a cell begins in the picture. */
static gint tile_of(const axis *a, gint index, gint window)
{
    return CLAMP(index * a->cell - a->margin, 0, whole(a->length, window) - a->tile);
}

/* The first cell and the one behind the last that a range of the result touches. */
static void range_of(const axis *a, gint begin, gint length, gint range[2])
{
    const gint from = begin - a->begin * a->factor, cell = a->cell * a->factor, most = a->length * a->factor;
    range[0] = CLAMP(from, 0, most) / cell;
    range[1] = (CLAMP(from + length, 0, most) + cell - 1) / cell;
}

/* All cells that a rectangle of the result touches, in the result or, with what lies around them, in the picture. */
static GeglRectangle cover(GeglOperation *operation, const GeglRectangle *roi, gboolean in_picture)
{
    const GeglRectangle bounds = bounds_of(operation);
    const gint window = (gint)state_of(operation)->model.window;
    const axis axes[2] = {axis_of(operation, bounds.y, bounds.height), axis_of(operation, bounds.x, bounds.width)};
    const gint begins[2] = {roi->y, roi->x}, lengths[2] = {roi->height, roi->width};
    gint from[2], to[2];
    for (gint i = 0; i < 2; i++) {
        const axis *a = &axes[i];
        gint range[2];
        range_of(a, begins[i], lengths[i], range);
        if (range[0] >= range[1])
            return *GEGL_RECTANGLE(0, 0, 0, 0);
        if (in_picture) {
            from[i] = a->begin + tile_of(a, range[0], window);
            to[i] = a->begin + MIN(tile_of(a, range[1] - 1, window) + a->tile, a->length);
        } else {
            from[i] = (a->begin + range[0] * a->cell) * a->factor;
            to[i] = (a->begin + MIN(range[1] * a->cell, a->length)) * a->factor;
        }
    }
    return *GEGL_RECTANGLE(from[1], from[0], to[1] - from[1], to[0] - from[0]);
}

/* ---- regions ---- */

static GeglRectangle get_bounding_box(GeglOperation *operation)
{
    const gint factor = (gint)state_of(operation)->model.factor;
    const GeglRectangle bounds = bounds_of(operation);
    return state_of(operation)->path
               ? *GEGL_RECTANGLE(bounds.x * factor, bounds.y * factor, bounds.width * factor, bounds.height * factor)
               : bounds;
}

static GeglRectangle get_required_for_output(GeglOperation *operation, const gchar *pad, const GeglRectangle *roi)
{
    (void)pad;
    return state_of(operation)->path ? cover(operation, roi, TRUE) : *roi;
}

/* Whole cells are computed and kept, so that none is computed twice. */
static GeglRectangle get_cached_region(GeglOperation *operation, const GeglRectangle *roi)
{
    return state_of(operation)->path ? cover(operation, roi, FALSE) : *roi;
}

/* A pixel changes the cells whose tiles it is in, which are no farther away than a tile is long. */
static GeglRectangle get_invalidated_by_change(GeglOperation *operation, const gchar *pad, const GeglRectangle *roi)
{
    const GeglRectangle bounds = bounds_of(operation);
    const gint factor = (gint)state_of(operation)->model.factor;
    GeglRectangle near;
    (void)pad;
    if (!state_of(operation)->path)
        return *roi;
    const gint up = axis_of(operation, bounds.y, bounds.height).tile;
    const gint left = axis_of(operation, bounds.x, bounds.width).tile;
    near = *GEGL_RECTANGLE(roi->x - left, roi->y - up, roi->width + 2 * left, roi->height + 2 * up);
    if (!gegl_rectangle_intersect(&near, &near, &bounds))
        return near;
    near = *GEGL_RECTANGLE(near.x * factor, near.y * factor, near.width * factor, near.height * factor);
    return cover(operation, &near, FALSE);
}

/* ---- pixels ---- */

/* Computes the part of one cell that lies in `wanted`; false, with a message, if that cannot be done. */
static gboolean process_cell(GeglOperation *operation, GeglBuffer *input, GeglBuffer *output, const axis axes[2],
                             const gint cell[2], const GeglRectangle *wanted, gchar *message, gsize bytes)
{
    const state *s = state_of(operation);
    const Babl *format = gegl_operation_get_format(operation, "output");
    const gsize components = (gsize)babl_format_get_n_components(format);
    const gint f = axes[0].factor, window = (gint)s->model.window;
    const gint y = tile_of(&axes[0], cell[0], window), x = tile_of(&axes[1], cell[1], window);
    const GeglRectangle needed = {axes[1].begin + x, axes[0].begin + y, MIN(axes[1].tile, axes[1].length - x),
                                  MIN(axes[0].tile, axes[0].length - y)};
    const engine_opencl opencl = opencl_of(operation);
    float *in = g_try_new(float, (gsize)needed.width *(gsize)needed.height *components);
    float *out = g_try_new(float, (gsize)wanted->width *(gsize)wanted->height *components);
    gboolean done = FALSE;
    g_snprintf(message, bytes, "there is no memory for its pixels");
    if (in && out) {
        const engine_tile work = {.path = s->path,
                                  .model = s->model,
                                  .in = in,
                                  .components = components,
                                  .height = (gsize)axes[0].tile,
                                  .width = (gsize)axes[1].tile,
                                  .y = (gsize)y,
                                  .x = (gsize)x,
                                  .all_height = (gsize)axes[0].length,
                                  .all_width = (gsize)axes[1].length,
                                  .overlap = (gsize)GEGL_PROPERTIES(operation)->overlap,
                                  .out = out,
                                  .part_y = (gsize)(wanted->y - needed.y * f),
                                  .part_x = (gsize)(wanted->x - needed.x * f),
                                  .part_height = (gsize)wanted->height,
                                  .part_width = (gsize)wanted->width};
        gegl_buffer_get(input, &needed, 1.0, format, in, GEGL_AUTO_ROWSTRIDE, GEGL_ABYSS_CLAMP);
        done = engine_restore(&opencl, &work, message, bytes);
    }
    if (done)
        gegl_buffer_set(output, wanted, 0, format, out, GEGL_AUTO_ROWSTRIDE);
    g_free(in);
    g_free(out);
    return done;
}

/* Computes the cells that lie in `result`. */
static gboolean process_cells(GeglOperation *operation, GeglBuffer *input, GeglBuffer *output,
                              const GeglRectangle *result, gchar *message, gsize bytes)
{
    const GeglRectangle bounds = bounds_of(operation);
    const axis axes[2] = {axis_of(operation, bounds.y, bounds.height), axis_of(operation, bounds.x, bounds.width)};
    gint rows[2], columns[2], cell[2];
    range_of(&axes[0], result->y, result->height, rows);
    range_of(&axes[1], result->x, result->width, columns);
    const gdouble all = (gdouble)(rows[1] - rows[0]) * (columns[1] - columns[0]);
    gdouble done = 0;
    for (cell[0] = rows[0]; cell[0] < rows[1]; cell[0]++)
        for (cell[1] = columns[0]; cell[1] < columns[1]; cell[1]++) {
            const gint height = axes[0].cell * axes[0].factor, width = axes[1].cell * axes[1].factor;
            GeglRectangle wanted = {bounds.x * axes[1].factor + cell[1] * width,
                                    bounds.y * axes[0].factor + cell[0] * height, width, height};
            gegl_rectangle_intersect(&wanted, &wanted, result);
            if (!process_cell(operation, input, output, axes, cell, &wanted, message, bytes))
                return FALSE;
            gegl_operation_progress(operation, ++done / all, (gchar *)"");
        }
    return TRUE;
}

/* Writes the picture's pixels, each as often as the result is larger, when the model cannot be used any more. */
static void repeat_pixels(GeglOperation *operation, GeglBuffer *input, GeglBuffer *output, const GeglRectangle *result)
{
    const Babl *format = gegl_operation_get_format(operation, "output");
    const gint f = (gint)state_of(operation)->model.factor;
    const gsize components = (gsize)babl_format_get_n_components(format);
    float *row = g_new(float, (gsize)result->width *components);
    for (gint y = result->y; y < result->y + result->height; y++) {
        const GeglRectangle line = {result->x, y, result->width, 1};
        for (gint i = 0; i < result->width; i++) {
            const gint x = result->x + i, at_x = x >= 0 ? x / f : (x - f + 1) / f,
                       at_y = y >= 0 ? y / f : (y - f + 1) / f;
            gegl_buffer_get(input, GEGL_RECTANGLE(at_x, at_y, 1, 1), 1.0, format, row + (gsize)i * components,
                            GEGL_AUTO_ROWSTRIDE, GEGL_ABYSS_CLAMP);
        }
        gegl_buffer_set(output, &line, 0, format, row, GEGL_AUTO_ROWSTRIDE);
    }
    g_free(row);
}

static gboolean process(GeglOperation *operation, GeglBuffer *input, GeglBuffer *output, const GeglRectangle *result,
                        gint level)
{
    state *s = state_of(operation);
    gchar message[1024];
    (void)level;
    gegl_operation_progress(operation, 0.0, (gchar *)"");
    if (!s->path) {
        gegl_buffer_copy(input, result, GEGL_ABYSS_CLAMP, output, result);
    } else if (!process_cells(operation, input, output, result, message, sizeof message)) {
        warn(s, message, s->model.factor > 1 ? "its pixels are repeated" : "the picture stays as it is");
        repeat_pixels(operation, input, output, result);
    }
    gegl_operation_progress(operation, 1.0, (gchar *)"");
    return TRUE;
}

static void gegl_op_class_init(GeglOpClass *klass)
{
    GeglOperationClass *operation_class = GEGL_OPERATION_CLASS(klass);
    GeglOperationFilterClass *filter_class = GEGL_OPERATION_FILTER_CLASS(klass);
    G_OBJECT_CLASS(klass)->finalize = finalize;
    operation_class->prepare = prepare;
    operation_class->get_bounding_box = get_bounding_box;
    operation_class->get_required_for_output = get_required_for_output;
    operation_class->get_cached_region = get_cached_region;
    operation_class->get_invalidated_by_change = get_invalidated_by_change;
    operation_class->cache_policy = GEGL_CACHE_POLICY_ALWAYS;
    operation_class->opencl_support = TRUE;
    operation_class->threaded = FALSE; /* the device has threads of its own */
    filter_class->process = process;
    /* GIMP hides what has the category "transform". */
    gegl_operation_class_set_keys(
        operation_class, "name", "clattn:upscale", "title", "Upscale or Clean by SwinIR", "categories",
        "enhance:sharpen", "description",
        "Makes a picture larger, or takes noise and JPEG's traces away, as a SwinIR model has "
        "learned it. Runs on any OpenCL device, by clattn",
        NULL);
    gegl_operation_class_set_keys(operation_class, "gimp:menu-path", "<Image>/Filters/Enhance", "gimp:menu-label",
                                  "_Upscale or Clean by SwinIR...", NULL); /* GIMP 3 */
}

#endif
