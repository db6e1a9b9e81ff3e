#include "tool/image/restore.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "tool/cli/progress.h"
#include "tool/image/levels.h"

#define MOST_SIDE 1048575 /* of a PNG file that picture_load reads */

int restore_check(const char *path, const picture *in, const swinir *model)
{
    const size_t height = in->height * model->factor, width = in->width * model->factor;
    if (height <= MOST_SIDE && width <= MOST_SIDE && height <= PICTURE_PIXELS / width)
        return TOOL_DONE;
    return complain(TOOL_BAD_INPUT,
                    "%s: its %zu x %zu pixels would become %zu x %zu, expected at most 2^27 pixels and %d on an edge", path,
                    in->width, in->height, width, height, MOST_SIDE);
}

/* ---- plans ---- */

static size_t tile_pixels(const restorer *r)
{
    return r->tiles.tile[0] * r->tiles.tile[1];
}

static size_t square(size_t n)
{
    return n * n;
}

/* Bytes of buffers for a pixel of a tile: planes and alpha, given and made. */
static size_t buffer_bytes(const restorer *r)
{
    const size_t made = square(r->model->factor);
    return (r->planes * (1 + made) + (r->alpha ? 1 + made : 0)) * sizeof(float);
}

/* Makes the plan for the tiles. */
static clattn_status make_plan(restorer *r, const char *solver)
{
    const size_t batch = r->planes / r->model->channels, factor = r->model->factor, *tile = r->tiles.tile;
    clattn_encoder_desc desc = CLATTN_ENCODER_DESC_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    clattn_status status;
    clattn_plan_release(&r->plan);
    desc.batch = batch;
    desc.picture = clattn_layout_nchw(CLATTN_DTYPE_F32, batch, r->model->channels, tile[0], tile[1]);
    desc.restored =
        clattn_layout_nchw(CLATTN_DTYPE_F32, batch, r->model->channels, tile[0] * factor, tile[1] * factor);
    options.solver = solver;
    TRY(clattn_encoder_plan_create(r->model->transformer, &desc, &options, &r->plan));
    r->memory = clattn_plan_workspace_size(r->plan) + tile_pixels(r) * buffer_bytes(r);
fail:
    return status;
}

/* The memory that a pixel of a tile takes at least, so that the first plan that is tried is not far too large. */
static size_t least_bytes(const restorer *r)
{
    const clattn_stack_desc *last = swinir_last(r->model);
    const size_t factor = r->model->factor;
    return sizeof(uint16_t) * (4 * last->d_model + square(factor) * last->restoration.features) + buffer_bytes(r);
}

/* Makes tiles as large as the memory allows.  A plan's memory is about proportional to the pixels. */
static int fit_tiles(restorer *r, const restore_params *params)
{
    const size_t most = params->memory;
    size_t edge = tiling_edge(&r->tiles, most / least_bytes(r)), least = r->tiles.overlap + r->tiles.window;
    int status;
    least = size_min(least, size_max(r->tiles.filled[0], r->tiles.filled[1]));
    edge = size_max(edge, least);
    for (;;) {
        tiling_set(&r->tiles, edge); /* `edge` exceeds the overlap */
        TOOL_TRY(device_check(r->device, make_plan(r, params->solver), NULL));
        if (r->memory <= most)
            return TOOL_DONE;
        if (edge <= least)
            return complain(TOOL_BAD_INPUT,
                            "--memory: %zu MiB are too little for tiles of %zu x %zu pixels, expected at least %zu",
                            most >> 20, r->tiles.tile[0], r->tiles.tile[1], divide_up(r->memory, (size_t)1 << 20));
        const double fits = (double)tile_pixels(r) * (double)most / (double)r->memory;
        edge = size_max(least, size_min(edge - r->tiles.window, tiling_edge(&r->tiles, (size_t)fits)));
    }
fail:
    return status;
}

/* ---- buffers ---- */

static clattn_status make_buffers(restorer *r)
{
    const size_t given = tile_pixels(r) * sizeof(float), factor = r->model->factor, made = given * square(factor);
    const size_t *tile = r->tiles.tile;
    clattn_resize_desc desc = CLATTN_RESIZE_DESC_INIT;
    clattn_status status;
    TRY(device_output(r->device, r->planes * given, &r->from));
    TRY(device_output(r->device, r->planes * made, &r->to));
    if (!r->alpha || factor == 1)
        return CLATTN_SUCCESS;
    desc.mode = CLATTN_RESIZE_MODE_BICUBIC;
    desc.x = clattn_layout_nchw(CLATTN_DTYPE_F32, 1, 1, tile[0], tile[1]);
    desc.y = clattn_layout_nchw(CLATTN_DTYPE_F32, 1, 1, tile[0] * factor, tile[1] * factor);
    TRY(clattn_resize_plan_create(r->device->context, &desc, NULL, &r->enlarge));
    TRY(device_output(r->device, given, &r->alpha_from));
    TRY(device_output(r->device, made, &r->alpha_to));
fail:
    return status;
}

static int allocate(restorer *r)
{
    const size_t planes = r->planes + r->alpha, pixels = tile_pixels(r), made = pixels * square(r->model->factor);
    const size_t row = r->tiles.filled[1] * r->model->factor, rows = r->tiles.tile[0] * r->model->factor;
    r->given = malloc(planes * pixels * sizeof *r->given);
    r->made = malloc(planes * made * sizeof *r->made);
    for (size_t i = 0; i < 2; i++)
        r->band[i] = i < r->tiles.count[0] ? malloc(planes * rows * row * sizeof *r->band[i]) : NULL;
    if (r->given == NULL || r->made == NULL || r->band[0] == NULL || (r->tiles.count[0] > 1 && r->band[1] == NULL))
        return complain(TOOL_FAILED, "out of memory for tiles of %zu x %zu pixels", r->tiles.tile[0],
                        r->tiles.tile[1]);
    return TOOL_DONE;
}

int restore_open(restorer *r, const swinir *model, tool_device *device, const picture *in, const restore_params *params)
{
    const size_t colours = in->channels < 3 ? 1 : 3;
    int status;
    *r = (restorer){.model = model, .device = device, .in = in, .planes = size_max(colours, model->channels)};
    r->alpha = in->channels % 2 == 0;
    r->tiles = tiling_of(in->height, in->width, model->window, params->overlap);
    if (params->tile == 0) {
        TOOL_TRY(fit_tiles(r, params));
    } else {
        if (!tiling_set(&r->tiles, params->tile))
            return complain(TOOL_BAD_INPUT,
                            "--overlap: %zu pixels, in whole windows of %zu, are too many for tiles of %zu",
                            r->tiles.overlap, r->tiles.window, params->tile);
        TOOL_TRY(device_check(device, make_plan(r, params->solver), NULL));
    }
    TOOL_TRY(device_check(device, make_buffers(r), NULL));
    status = allocate(r);
fail:
    return status;
}

void restore_close(restorer *r)
{
    cl_mem *const buffers[] = {&r->from, &r->to, &r->alpha_from, &r->alpha_to};
    for (size_t i = 0; i < COUNT_OF(buffers); i++)
        if (*buffers[i] != NULL)
            clReleaseMemObject(*buffers[i]);
    clattn_plan_release(&r->plan);
    clattn_plan_release(&r->enlarge);
    free(r->given);
    free(r->made);
    free(r->band[0]);
    free(r->band[1]);
    *r = (restorer){0};
}

/* ---- tiles ---- */

/* Computes `made` of `given`, which stand for the numbers of the picture, not of the model. */
static clattn_status compute(restorer *r)
{
    const size_t given = tile_pixels(r), made = given * square(r->model->factor);
    tool_device *device = r->device;
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    clattn_resize_args resize = CLATTN_RESIZE_ARGS_INIT;
    float *alpha = r->given + r->planes * given, *alpha_made = r->made + r->planes * made;
    clattn_status status;
    args.input = clattn_binding_buffer(r->from, 0);
    args.output = clattn_binding_buffer(r->to, 0);
    TRY(device_write(device, r->from, r->planes * given * sizeof(float), r->given));
    TRY(clattn_encoder_enqueue(r->plan, device->queue, &args, 0, NULL, NULL));
    TRY(device_download(device, r->to, r->planes * made * sizeof(float), r->made));
    if (r->enlarge != NULL) {
        resize.x = clattn_binding_buffer(r->alpha_from, 0);
        resize.y = clattn_binding_buffer(r->alpha_to, 0);
        TRY(device_write(device, r->alpha_from, given * sizeof(float), alpha));
        TRY(clattn_resize_enqueue(r->enlarge, device->queue, &resize, 0, NULL, NULL));
        TRY(device_download(device, r->alpha_to, made * sizeof(float), alpha_made));
    } else if (r->alpha) {
        memcpy(alpha_made, alpha, given * sizeof(float));
    }
fail:
    return status;
}

/* Lays the tile in `made` over what the band has of the tiles left of it. */
static void blend_across(restorer *r, size_t index)
{
    const size_t f = r->model->factor, rows = r->tiles.tile[0] * f, columns = r->tiles.tile[1] * f;
    const size_t width = r->tiles.filled[1] * f, common = tiling_common(&r->tiles, 1, index) * f;
    float *to = r->band[0] + tiling_begin(&r->tiles, 1, index) * f;
    const float *from = r->made;
    for (size_t row = 0; row < (r->planes + r->alpha) * rows; row++, to += width, from += columns) {
        for (size_t i = 0; i < common; i++)
            to[i] += tiling_share(i, common) * (from[i] - to[i]);
        memcpy(to + common, from + common, (columns - common) * sizeof *to);
    }
}

/* Lays the band over what the band before it, which begins so many rows higher, has of the same rows. */
static void blend_down(restorer *r, size_t index)
{
    const size_t f = r->model->factor, rows = r->tiles.tile[0] * f, width = r->tiles.filled[1] * f;
    const size_t common = tiling_common(&r->tiles, 0, index) * f;
    for (size_t plane = 0; plane < r->planes + r->alpha; plane++) {
        float *to = r->band[0] + plane * rows * width;
        const float *before = r->band[1] + (plane * rows + rows - common) * width;
        for (size_t i = 0; i < common; i++)
            for (size_t x = 0; x < width; x++)
                to[i * width + x] =
                    before[i * width + x] + tiling_share(i, common) * (to[i * width + x] - before[i * width + x]);
    }
}

/* Writes the rows of the band that the next band does not change. */
static void write_band(const restorer *r, size_t index, picture *out)
{
    const size_t f = r->model->factor, rows = r->tiles.tile[0] * f, width = r->tiles.filled[1] * f;
    const size_t begin = tiling_begin(&r->tiles, 0, index) * f;
    const size_t end = index + 1 < r->tiles.count[0] ? tiling_begin(&r->tiles, 0, index + 1) * f : out->height;
    for (size_t y = begin; y < end; y++)
        levels_write(out, y, r->band[0] + (y - begin) * width, rows * width, r->planes);
}

static int check_finite(const restorer *r)
{
    const size_t count = r->planes * tile_pixels(r) * square(r->model->factor);
    for (size_t i = 0; i < count; i++)
        if (!isfinite(r->made[i]))
            return complain(TOOL_BAD_INPUT,
                            "%s: its result is not finite, expected weights without NaN, or another --dtype",
                            r->model->path.text);
    return TOOL_DONE;
}

static int restore_tile(restorer *r, size_t row, size_t column)
{
    const size_t made = tile_pixels(r) * square(r->model->factor);
    int status;
    levels_read(r->in, tiling_begin(&r->tiles, 0, row), tiling_begin(&r->tiles, 1, column), r->tiles.tile, r->planes,
                r->given);
    for (size_t plane = 0; plane < r->planes; plane++)
        for (size_t i = 0, at = plane * tile_pixels(r); i < tile_pixels(r); i++, at++)
            r->given[at] = (r->given[at] - swinir_mean(r->model, plane)) * r->model->range;
    TOOL_TRY(device_check(r->device, compute(r), NULL));
    for (size_t plane = 0; plane < r->planes; plane++)
        for (size_t i = 0, at = plane * made; i < made; i++, at++)
            r->made[at] = r->made[at] / r->model->range + swinir_mean(r->model, plane);
    status = check_finite(r);
fail:
    return status;
}

int restore_run(restorer *r, picture *out)
{
    const size_t rows = r->tiles.count[0], columns = r->tiles.count[1], f = r->model->factor;
    int status = TOOL_DONE;
    *out = (picture){r->in->width * f, r->in->height * f, r->in->channels, r->in->bits, NULL, NULL};
    out->pixels = malloc(out->height * picture_row(out));
    if (out->pixels == NULL)
        return complain(TOOL_FAILED, "no memory for the result's %zu x %zu pixels", out->width, out->height);
    for (size_t row = 0; row < rows; row++) {
        for (size_t column = 0; column < columns; column++) {
            TOOL_TRY(restore_tile(r, row, column));
            blend_across(r, column);
            progress_show((double)(row * columns + column + 1) / (double)(rows * columns));
        }
        if (row > 0)
            blend_down(r, row);
        write_band(r, row, out);
        if (rows > 1) {
            float *before = r->band[1];
            r->band[1] = r->band[0];
            r->band[0] = before;
        }
    }
fail:
    return status;
}
