#include "tool/image/restore.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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
                    "%s: its %zu x %zu pixels would become %zu x %zu, expected at most 2^27 pixels and %d on an edge",
                    path, in->height, in->width, height, width, MOST_SIDE);
}

/* ---- tiles ---- */

/* Computes `made` of `given`, which stand for the numbers of the picture, not of the model. */
static clattn_status compute(restorer *r)
{
    const size_t given = given_pixels(r), made = made_pixels(r);
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
    const size_t count = r->planes * made_pixels(r);
    for (size_t i = 0; i < count; i++)
        if (!isfinite(r->made[i]))
            return complain(TOOL_BAD_INPUT,
                            "%s: its result is not finite, expected weights without NaN, or another --dtype",
                            r->model->path.text);
    return TOOL_DONE;
}

static int restore_tile(restorer *r, size_t row, size_t column)
{
    const size_t made = made_pixels(r);
    int status;
    levels_read(r->in, tiling_begin(&r->tiles, 0, row), tiling_begin(&r->tiles, 1, column), r->tiles.tile, r->planes,
                r->given);
    for (size_t plane = 0; plane < r->planes; plane++)
        for (size_t i = 0, at = plane * given_pixels(r); i < given_pixels(r); i++, at++)
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
