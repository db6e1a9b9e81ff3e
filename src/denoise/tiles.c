/* A part of a picture, tile by tile.
 *
 * A tile and its margin go up as an image, become patches there, are attended, and come back as an image.  The colour
 * matrix on the way in also divides by h, and the one on the way out multiplies by it.  Brightness is moved to about 0,
 * for digits' sake.
 *
 *     +------------------------------+  in the image: the tile, the radius and half a patch around
 *     |  +------------------------+  |
 *     |  |  keys: the radius      |  |  keys end at the edge of the picture
 *     |  |   +----------------+   |  |
 *     |  |   | tile: queries  |   |  |
 *     |  |   +----------------+   |  |
 *     |  +------------------------+  |
 *     +------------------------------+ */
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "denoise/denoise.h"

#define MOST_COLOUR 65504.0f
#define CALLS_OF_A_TILE 3 /* of operators */

static const float grey_in[3][4] = {{1, 0, 0, -0.5f}};
static const float grey_out[3][4] = {{1, 0, 0, 0.5f}};
static const float colours_in[3][4] = {{0.57735027f, 0.57735027f, 0.57735027f, -0.8660254f},
                                       {0.70710678f, 0, -0.70710678f, 0},
                                       {0.40824829f, -0.81649658f, 0.40824829f, 0}};
static const float colours_out[3][4] = {{0.57735027f, 0.70710678f, 0.40824829f, 0.5f},
                                        {0.57735027f, 0, -0.81649658f, 0.5f},
                                        {0.57735027f, -0.70710678f, 0.40824829f, 0.5f}};

/* A part of `in`: its first row and column, and its size. */
typedef struct tile_place {
    size_t y, x, height, width;
} tile_place;

/* Bytes of a pixel in the images. */
static size_t rgba_bytes(const denoiser *d)
{
    return d->params.type == CL_UNORM_INT8 ? 4 : d->params.type == CL_UNORM_INT16 ? 8 : 16;
}

static inline float tame(float value)
{
    return isnan(value) || isinf(value) ? 0 : fminf(fmaxf(value, -MOST_COLOUR), MOST_COLOUR);
}

static size_t clamped(size_t at, size_t margin, size_t length)
{
    return size_min(at < margin ? 0 : at - margin, length - 1);
}

/* Copies the colours of `count` pixels that lie `from_step` bytes apart to places that lie `to_step` apart. */
static void copy_colours(unsigned char *to, size_t to_step, const unsigned char *from, size_t from_step, size_t colours,
                         size_t count)
{
    for (size_t i = 0; i < count; i++)
        memcpy(to + i * to_step, from + i * from_step, colours);
}

/* Fills one row of the staging area: `width` pixels and the margin around, the edge's pixel repeated beyond the picture. */
static void stage_row(const denoiser *d, const denoise_work *work, const tile_place *tile, size_t y, unsigned char *to)
{
    const size_t width = tile->width + 2 * d->margin, rgba = rgba_bytes(d);
    const size_t colours = rgba / 4 * (size_t)d->params.colours;
    const unsigned char *row =
        (const unsigned char *)work->in.data + clamped(tile->y + y, d->margin, work->height) * work->in.row;
    for (size_t x = 0; x < width; x++)
        memcpy(to + x * rgba, row + clamped(tile->x + x, d->margin, work->width) * work->in.step, colours);
    if (d->params.type != CL_FLOAT)
        return;
    float *values = (float *)(void *)to;
    for (size_t i = 0; i < 4 * width; i++)
        values[i] = tame(values[i]);
}

static clattn_status upload(denoiser *d, const denoise_work *work, const tile_place *tile)
{
    const size_t height = tile->height + 2 * d->margin, width = tile->width + 2 * d->margin,
                 row = width * rgba_bytes(d);
    memset(d->staging, 0, height * row);
    for (size_t y = 0; y < height; y++)
        stage_row(d, work, tile, y, d->staging + y * row);
    const size_t origin[3] = {0, 0, 0}, region[3] = {width, height, 1};
    cl_int code = clEnqueueWriteImage(d->queue, d->in, CL_TRUE, origin, region, row, 0, d->staging, 0, NULL, NULL);
    return denoiser_opencl_check(d, "clEnqueueWriteImage", code);
}

static clattn_status download(denoiser *d, const denoise_work *work, const tile_place *tile)
{
    const size_t rgba = rgba_bytes(d), row = tile->width * rgba;
    const size_t origin[3] = {0, 0, 0}, region[3] = {tile->width, tile->height, 1};
    unsigned char *first =
        (unsigned char *)work->out.data + (tile->y - work->y) * work->out.row + (tile->x - work->x) * work->out.step;
    cl_int code = clEnqueueReadImage(d->queue, d->out, CL_TRUE, origin, region, row, 0, d->staging, 0, NULL, NULL);
    for (size_t y = 0; y < tile->height && code == CL_SUCCESS; y++)
        copy_colours(first + y * work->out.row, work->out.step, d->staging + y * row, rgba,
                     rgba / 4 * (size_t)d->params.colours, tile->width);
    return denoiser_opencl_check(d, "clEnqueueReadImage", code);
}

/* How many rows or columns before `at` the window of a tile reaches, and how many keys that makes. */
static size_t before(const denoiser *d, size_t at)
{
    return size_min(at, d->params.radius);
}

static size_t keys_of(const denoiser *d, size_t at, size_t length, size_t whole)
{
    return before(d, at) + length + size_min(whole - at - length, d->params.radius);
}

/* Sets the matrices that lead from colours to planes divided by h, and back. */
static void set_matrices(const denoiser *d, float h, float to_planes[3][4], float to_colours[3][4])
{
    bool grey = d->params.colours == 1;
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 4; j++) {
            to_planes[i][j] = (grey ? grey_in : colours_in)[i][j] / h;
            to_colours[i][j] = (grey ? grey_out : colours_out)[i][j] * (j < 3 ? h : 1);
        }
}

static clattn_status enqueue_tile(denoiser *d, const denoise_work *work, const tile_place *tile)
{
    const size_t planes = (size_t)d->params.colours, size = d->params.patch * d->params.patch;
    const size_t back_y = before(d, tile->y), back_x = before(d, tile->x);
    const size_t col = size * planes, row = (d->tile[1] + 2 * d->params.radius) * col;
    clattn_image_args pack = CLATTN_IMAGE_ARGS_INIT, unpack = CLATTN_IMAGE_ARGS_INIT;
    clattn_neighbourhood_args attend = CLATTN_NEIGHBOURHOOD_ARGS_INIT;
    attend.explicit_sizes = pack.explicit_region = unpack.explicit_region = 1;
    attend.batch = 1;
    attend.query_height = unpack.height = tile->height;
    attend.query_width = unpack.width = tile->width;
    attend.key_height = pack.height = keys_of(d, tile->y, tile->height, work->height);
    attend.key_width = pack.width = keys_of(d, tile->x, tile->width, work->width);
    attend.query_y = back_y;
    attend.query_x = back_x;
    attend.query = clattn_binding_buffer(d->patches, (int64_t)(back_y * row + back_x * col));
    attend.key = clattn_binding_buffer(d->patches, 0);
    attend.value = clattn_binding_buffer(d->patches, (int64_t)(size / 2 * planes)); /* the pixel itself */
    attend.bias = clattn_binding_buffer(d->norms, 0);
    attend.output = clattn_binding_buffer(d->cleaned, 0);
    if (d->workspace != NULL)
        attend.workspace = clattn_binding_buffer(d->workspace, 0);
    pack.image = clattn_binding_image(d->in);
    pack.array = clattn_binding_buffer(d->patches, 0);
    pack.norm = clattn_binding_buffer(d->norms, 0);
    pack.norm_factor = -1;
    pack.origin_y = (int64_t)(d->margin - back_y);
    pack.origin_x = (int64_t)(d->margin - back_x);
    unpack.image = clattn_binding_image(d->out);
    unpack.array = clattn_binding_buffer(d->cleaned, 0);
    pack.explicit_matrix = unpack.explicit_matrix = 1;
    set_matrices(d, work->strength / 255 * (float)d->params.patch, pack.matrix, unpack.matrix);
    pack.control = attend.control = unpack.control = work->control != NULL ? work->control : d->control;
    clattn_status status;
    TRY(clattn_image_enqueue(d->pack, d->queue, &pack, 0, NULL, NULL));
    TRY(clattn_neighbourhood_enqueue(d->attend, d->queue, &attend, 0, NULL, NULL));
    TRY(clattn_image_enqueue(d->unpack, d->queue, &unpack, 0, NULL, NULL));
fail:
    return status;
}

size_t denoiser_tiles(const denoiser *d, size_t height, size_t width)
{
    return divide_up(height, d->tile[0]) * divide_up(width, d->tile[1]);
}

clattn_status denoiser_run(denoiser *d, const denoise_work *work)
{
    clattn_status status = CLATTN_SUCCESS;
    const size_t tiles = denoiser_tiles(d, work->part_height, work->part_width);
    if (tiles == 0)
        return CLATTN_SUCCESS;
    /* A part that is smaller than the largest is also divided into equal tiles. */
    const size_t height = divide_up(work->part_height, divide_up(work->part_height, d->tile[0]));
    const size_t width = divide_up(work->part_width, divide_up(work->part_width, d->tile[1]));
    size_t done = 0;
    d->message[0] = '\0';
    clattn_control_expect(work->control, CALLS_OF_A_TILE * tiles);
    for (size_t y = 0; y < work->part_height; y += height)
        for (size_t x = 0; x < work->part_width; x += width) {
            const tile_place tile = {work->y + y, work->x + x, size_min(work->part_height - y, height),
                                     size_min(work->part_width - x, width)};
            TRY(upload(d, work, &tile));
            TRY(enqueue_tile(d, work, &tile));
            TRY(download(d, work, &tile));
            if (work->progress != NULL)
                work->progress(work->user, (double)++done / (double)tiles);
        }
fail:
    return status;
}
