#include "restore/restore.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text/opencl_check.h"
#include "base/try.h"

static clattn_status upload(restorer *r, cl_mem buffer, size_t floats, const float *values)
{
    const cl_int code =
        clEnqueueWriteBuffer(r->queue, buffer, CL_TRUE, 0, floats * sizeof *values, values, 0, NULL, NULL);
    return opencl_check("clEnqueueWriteBuffer", code, r->message, sizeof r->message);
}

static clattn_status download(restorer *r, cl_mem buffer, size_t floats, float *values)
{
    const cl_int code =
        clEnqueueReadBuffer(r->queue, buffer, CL_TRUE, 0, floats * sizeof *values, values, 0, NULL, NULL);
    return opencl_check("clEnqueueReadBuffer", code, r->message, sizeof r->message);
}

/* Computes `made` of `given`, which stand for the numbers of the model, not of the picture. */
static clattn_status compute(restorer *r, clattn_control *control)
{
    const size_t given = given_pixels(r), made = made_pixels(r);
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    clattn_resize_args resize = CLATTN_RESIZE_ARGS_INIT;
    float *alpha = r->given + r->planes * given, *alpha_made = r->made + r->planes * made;
    clattn_status status;
    args.input = clattn_binding_buffer(r->from, 0);
    args.output = clattn_binding_buffer(r->to, 0);
    args.workspace = clattn_binding_buffer(r->workspace, 0);
    args.control = resize.control = control != NULL ? control : r->control;
    TRY(upload(r, r->from, r->planes * given, r->given));
    TRY(clattn_encoder_enqueue(r->plan, r->queue, &args, 0, NULL, NULL));
    TRY(download(r, r->to, r->planes * made, r->made));
    if (r->enlarge != NULL) {
        resize.x = clattn_binding_buffer(r->alpha_from, 0);
        resize.y = clattn_binding_buffer(r->alpha_to, 0);
        TRY(upload(r, r->alpha_from, given, alpha));
        TRY(clattn_resize_enqueue(r->enlarge, r->queue, &resize, 0, NULL, NULL));
        TRY(download(r, r->alpha_to, made, alpha_made));
    } else if (r->params.alpha) {
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
    for (size_t row = 0; row < (r->planes + r->params.alpha) * rows; row++, to += width, from += columns) {
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
    for (size_t plane = 0; plane < r->planes + r->params.alpha; plane++) {
        float *to = r->band[0] + plane * rows * width;
        const float *before = r->band[1] + (plane * rows + rows - common) * width;
        for (size_t i = 0; i < common; i++)
            for (size_t x = 0; x < width; x++)
                to[i * width + x] =
                    before[i * width + x] + tiling_share(i, common) * (to[i * width + x] - before[i * width + x]);
    }
}

/* Makes grey the mean of the planes that the model has made of it, followed by alpha. */
static void gather_grey(const restorer *r, float *row, size_t width, size_t step)
{
    for (size_t x = 0; x < width; x++)
        row[x] = (row[x] + row[step + x] + row[2 * step + x]) / 3.0f;
    if (r->params.alpha)
        memcpy(row + step, row + 3 * step, width * sizeof *row);
}

/* Writes the rows of the band that the next band does not change. */
static void write_band(const restorer *r, size_t index, const restore_work *work)
{
    const size_t f = r->model->factor, rows = r->tiles.tile[0] * f, width = r->tiles.filled[1] * f;
    const size_t begin = tiling_begin(&r->tiles, 0, index) * f;
    const size_t end = index + 1 < r->tiles.count[0] ? tiling_begin(&r->tiles, 0, index + 1) * f : r->params.height * f;
    for (size_t y = begin; y < end; y++) {
        float *row = r->band[0] + (y - begin) * width;
        if (r->planes > r->params.colours)
            gather_grey(r, row, r->params.width * f, rows * width);
        work->write(work->user, y, row, rows * width);
    }
}

static clattn_status check_finite(restorer *r)
{
    const size_t count = r->planes * made_pixels(r);
    for (size_t i = 0; i < count; i++)
        if (!isfinite(r->made[i])) {
            snprintf(r->message, sizeof r->message,
                     "its result is not finite, expected weights without NaN, or another type of them");
            r->fault = RESTORE_FAULT_MODEL;
            return CLATTN_ERROR_FORMAT;
        }
    return CLATTN_SUCCESS;
}

/* Reads a tile's numbers; a model of three channels gets grey three times. */
static void read_tile(restorer *r, const restore_work *work, size_t row, size_t column)
{
    const size_t given = given_pixels(r), bytes = given * sizeof *r->given;
    work->read(work->user, tiling_begin(&r->tiles, 0, row), tiling_begin(&r->tiles, 1, column), r->tiles.tile,
               r->given);
    if (r->planes == r->params.colours)
        return;
    if (r->params.alpha)
        memcpy(r->given + 3 * given, r->given + given, bytes);
    memcpy(r->given + given, r->given, bytes);
    memcpy(r->given + 2 * given, r->given, bytes);
}

static clattn_status restore_tile(restorer *r, const restore_work *work, size_t row, size_t column)
{
    const size_t made = made_pixels(r);
    clattn_status status;
    read_tile(r, work, row, column);
    for (size_t plane = 0; plane < r->planes; plane++)
        for (size_t i = 0, at = plane * given_pixels(r); i < given_pixels(r); i++, at++)
            r->given[at] = (r->given[at] - swinir_mean(r->model, plane)) * r->model->range;
    TRY(compute(r, work->control));
    for (size_t plane = 0; plane < r->planes; plane++)
        for (size_t i = 0, at = plane * made; i < made; i++, at++)
            r->made[at] = r->made[at] / r->model->range + swinir_mean(r->model, plane);
    status = check_finite(r);
fail:
    return status;
}

clattn_status restorer_run(restorer *r, const restore_work *work)
{
    const size_t rows = r->tiles.count[0], columns = r->tiles.count[1];
    clattn_status status = CLATTN_SUCCESS;
    r->message[0] = '\0';
    r->fault = RESTORE_FAULT_NONE;
    clattn_control_expect(work->control, rows * columns * (r->enlarge != NULL ? 2 : 1));
    for (size_t row = 0; row < rows; row++) {
        for (size_t column = 0; column < columns; column++) {
            TRY(restore_tile(r, work, row, column));
            blend_across(r, column);
            if (work->progress != NULL)
                work->progress(work->user, (double)(row * columns + column + 1) / (double)(rows * columns));
        }
        if (row > 0)
            blend_down(r, row);
        write_band(r, row, work);
        if (rows > 1) {
            float *before = r->band[1];
            r->band[1] = r->band[0];
            r->band[0] = before;
        }
    }
fail:
    return status;
}
