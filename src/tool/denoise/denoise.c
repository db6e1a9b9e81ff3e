/* Non-local means as attention (Buades, Coll, Morel 2005):
 *
 *   out(p) = sum_k w_pk in(k) / sum_k w_pk,   w_pk = exp(−|P(p) − P(k)|² / h²),   h² = patch² strength² /
 * 255²
 *
 * over the window of p, for each plane of colour alone.  The weights are a softmax of (2 P(p)·P(k) − |P(k)|²)
 * / h², since |P(p)|² is the same for all k: patches are queries and keys, −|P(k)|²/h² is a bias for each
 * key, pixels are values, planes heads, and the window is that of neighbourhood attention with clipped edges.
 *
 * A tile and its margin go up as an image, become patches there, are attended, and come back as an image. The
 * planes are an orthonormal basis of the colours (brightness, two differences), so that noise stays as strong
 * as it was in each; what is similar in brightness need not be so in colour.  Brightness is moved to about 0,
 * for digits' sake. */
#include "tool/denoise/denoise.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>

#include "base/size.h"
#include "base/try.h"
#include "tool/cli/progress.h"

/* The largest tile: a larger one saves little of the margins' cost, and progress would be shown less often. */
#define MOST_TILE 256

static const float grey_in[3][4] = {{1, 0, 0, -0.5f}};
static const float grey_out[3][4] = {{1, 0, 0, 0.5f}};
static const float colours_in[3][4] = {{0.57735027f, 0.57735027f, 0.57735027f, -0.8660254f},
                                       {0.70710678f, 0, -0.70710678f, 0},
                                       {0.40824829f, -0.81649658f, 0.40824829f, 0}};
static const float colours_out[3][4] = {{0.57735027f, 0.70710678f, 0.40824829f, 0.5f},
                                        {0.57735027f, 0, -0.81649658f, 0.5f},
                                        {0.57735027f, -0.70710678f, 0.40824829f, 0.5f}};

/* What all tiles share. */
typedef struct denoiser {
    tool_device *device;
    picture *picture;
    const denoise_rule *rule;
    size_t planes, size; /* heads, and elements of a patch */
    size_t margin;       /* around a tile in the image: radius and half a patch */
    size_t tile[2];      /* height and width of the largest tile */
    size_t map[2];       /* the same with the radius around */
    float h2;
    clattn_plan *pack, *attend, *unpack;
    cl_mem in, out, patches, norms, cleaned;
    unsigned char *staging; /* RGBA, as the images */
} denoiser;

/* A part of the picture: its first row and column, and its size. */
typedef struct part {
    size_t y, x, height, width;
} part;

/* Bytes on the device for tiles of that size, as a double, which no size of a picture overflows. */
static double memory_for(const denoiser *d, size_t height, size_t width)
{
    double map_height = (double)(height + 2 * d->rule->radius), map_width = (double)(width + 2 * d->rule->radius);
    double planes = (double)d->planes, size = (double)d->size;
    double patches = map_height * map_width * planes * (size + 1);
    double packed = map_height * (map_width + 64) * planes * (size + 2);
    double image =
        (double)(height + 2 * d->margin) * (double)(width + 2 * d->margin) * 2; /* floats' worth of 8 bytes */
    return 4 * (patches + packed + 2 * image + planes * (double)height * (double)width);
}

/* Divides the picture into equal tiles, as few as the budget and the device's limits allow. */
static int choose_tile(denoiser *d)
{
    const picture *p = d->picture;
    size_t most = (size_t)d->device->info.max_allocation, rows = 1, columns = 1;
    for (;;) {
        size_t height = divide_up(p->height, rows), width = divide_up(p->width, columns);
        double need = memory_for(d, height, width);
        d->tile[0] = height;
        d->tile[1] = width;
        if (height <= MOST_TILE && width <= MOST_TILE && need <= (double)d->rule->memory &&
            (most == 0 || need / 2 <= (double)most))
            return TOOL_DONE;
        if (height <= 8 && width <= 8)
            return complain(TOOL_BAD_INPUT,
                            "--memory: %zu MiB are too little for this patch and radius, expected at least %.0f",
                            d->rule->memory >> 20, ceil(need / 1048576));
        if (width > height)
            columns++;
        else
            rows++;
    }
}

static clattn_layout layout_of(size_t heads, size_t height, size_t width, size_t size, size_t row, size_t col,
                               size_t step)
{
    clattn_layout made = {.dtype = CLATTN_DTYPE_F32, .rank = 5, .extent = {1, heads, height, width, size}};
    made.stride[1] = 1;
    made.stride[2] = (int64_t)row;
    made.stride[3] = (int64_t)col;
    made.stride[4] = (int64_t)step;
    return made;
}

static clattn_status make_plans(denoiser *d)
{
    const size_t height = d->map[0], width = d->map[1], planes = d->planes, size = d->size;
    clattn_context *context = d->device->context;
    clattn_image_desc pack = CLATTN_IMAGE_DESC_INIT, unpack = CLATTN_IMAGE_DESC_INIT;
    clattn_neighbourhood_desc attend = CLATTN_NEIGHBOURHOOD_DESC_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    pack.patch = (int32_t)d->rule->patch;
    pack.array = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (const size_t[]){height, width, size * planes});
    pack.norm = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (const size_t[]){height, width, planes});
    unpack.operation = CLATTN_IMAGE_OPERATION_UNPACK;
    unpack.array = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (const size_t[]){d->tile[0], d->tile[1], planes});
    attend.edge = CLATTN_EDGE_CLIP;
    attend.window[0] = attend.window[1] = (int32_t)(2 * d->rule->radius + 1);
    attend.explicit_scale = 1;
    attend.scale = 2 / d->h2;
    attend.query = layout_of(planes, d->tile[0], d->tile[1], size, width * size * planes, size * planes, planes);
    attend.key = layout_of(planes, height, width, size, width * size * planes, size * planes, planes);
    attend.value = layout_of(planes, height, width, 1, width * size * planes, size * planes, 1);
    attend.bias = layout_of(planes, height, width, 1, width * planes, planes, 1);
    attend.bias.rank = 4;
    attend.output = layout_of(planes, d->tile[0], d->tile[1], 1, d->tile[1] * planes, planes, 1);
    options.solver = d->rule->solver;
    clattn_status status;
    TRY(clattn_image_plan_create(context, &pack, NULL, &d->pack));
    TRY(clattn_image_plan_create(context, &unpack, NULL, &d->unpack));
    TRY(clattn_neighbourhood_plan_create(context, &attend, &options, &d->attend));
fail:
    return status;
}

static clattn_status make_memory(denoiser *d)
{
    const size_t map = d->map[0] * d->map[1], tile = d->tile[0] * d->tile[1];
    const cl_image_format format = {CL_RGBA, d->picture->bits == 16 ? CL_UNORM_INT16 : CL_UNORM_INT8};
    const cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D,
                                .image_width = d->tile[1] + 2 * d->margin,
                                .image_height = d->tile[0] + 2 * d->margin};
    cl_context context = clattn_context_opencl_context(d->device->context);
    cl_int code = CL_SUCCESS;
    clattn_status status;
    d->staging = malloc(desc.image_width * desc.image_height * 4 * (size_t)(d->picture->bits / 8));
    if (d->staging == NULL)
        return CLATTN_ERROR_OUT_OF_MEMORY;
    d->in = clCreateImage(context, CL_MEM_READ_ONLY, &format, &desc, NULL, &code);
    if (code == CL_SUCCESS)
        d->out = clCreateImage(context, CL_MEM_WRITE_ONLY, &format, &desc, NULL, &code);
    TRY(device_opencl_check(d->device, "clCreateImage", code));
    TRY(device_output(d->device, map * d->size * d->planes * sizeof(float), &d->patches));
    TRY(device_output(d->device, map * d->planes * sizeof(float), &d->norms));
    TRY(device_output(d->device, tile * d->planes * sizeof(float), &d->cleaned));
fail:
    return status;
}

/* Copies a pixel from or to RGBA, with grey in red. Alpha stays on the host. */
static void move_pixel(const picture *p, size_t y, size_t x, unsigned char *rgba, bool out)
{
    size_t bytes = (size_t)(p->bits / 8), planes = p->channels < 3 ? 1 : 3;
    unsigned char *pixel = p->pixels + y * picture_row(p) + x * (size_t)p->channels * bytes;
    memcpy(out ? pixel : rgba, out ? rgba : pixel, planes * bytes);
}

static size_t clamped(size_t at, size_t margin, size_t length)
{
    return size_min(at < margin ? 0 : at - margin, length - 1);
}

/* Uploads the tile with its margin; beyond the picture the nearest pixel of its edge is repeated. */
static clattn_status upload(denoiser *d, const part *tile)
{
    const picture *p = d->picture;
    size_t height = tile->height + 2 * d->margin, width = tile->width + 2 * d->margin;
    size_t bytes = 4 * (size_t)(p->bits / 8);
    memset(d->staging, 0, height * width * bytes);
    for (size_t y = 0; y < height; y++)
        for (size_t x = 0; x < width; x++)
            move_pixel(p, clamped(tile->y + y, d->margin, p->height), clamped(tile->x + x, d->margin, p->width),
                       d->staging + (y * width + x) * bytes, false);
    const size_t origin[3] = {0, 0, 0}, region[3] = {width, height, 1};
    cl_int code = clEnqueueWriteImage(d->device->queue, d->in, CL_TRUE, origin, region, width * bytes, 0, d->staging, 0,
                                      NULL, NULL);
    return device_opencl_check(d->device, "clEnqueueWriteImage", code);
}

/* Writes the means into `clean`, since later tiles read the picture itself. */
static clattn_status download(denoiser *d, const part *tile, const picture *clean)
{
    size_t bytes = 4 * (size_t)(clean->bits / 8);
    const size_t origin[3] = {0, 0, 0}, region[3] = {tile->width, tile->height, 1};
    cl_int code = clEnqueueReadImage(d->device->queue, d->out, CL_TRUE, origin, region, tile->width * bytes, 0,
                                     d->staging, 0, NULL, NULL);
    for (size_t y = 0; y < tile->height && code == CL_SUCCESS; y++)
        for (size_t x = 0; x < tile->width; x++)
            move_pixel(clean, tile->y + y, tile->x + x, d->staging + (y * tile->width + x) * bytes, true);
    return device_opencl_check(d->device, "clEnqueueReadImage", code);
}

/* How many rows or columns before `at` the window of a tile reaches, and how many keys that makes. */
static size_t before(const denoiser *d, size_t at)
{
    return size_min(at, d->rule->radius);
}

static size_t keys_of(const denoiser *d, size_t at, size_t length, size_t whole)
{
    return before(d, at) + length + size_min(whole - at - length, d->rule->radius);
}

static clattn_status enqueue_tile(denoiser *d, const part *tile)
{
    const size_t back_y = before(d, tile->y), back_x = before(d, tile->x);
    const size_t row = d->map[1] * d->size * d->planes, col = d->size * d->planes;
    cl_command_queue queue = d->device->queue;
    bool grey = d->planes == 1;
    clattn_image_args pack = CLATTN_IMAGE_ARGS_INIT, unpack = CLATTN_IMAGE_ARGS_INIT;
    clattn_neighbourhood_args attend = CLATTN_NEIGHBOURHOOD_ARGS_INIT;
    attend.explicit_sizes = pack.explicit_region = unpack.explicit_region = 1;
    attend.batch = 1;
    attend.query_height = unpack.height = tile->height;
    attend.query_width = unpack.width = tile->width;
    attend.key_height = pack.height = keys_of(d, tile->y, tile->height, d->picture->height);
    attend.key_width = pack.width = keys_of(d, tile->x, tile->width, d->picture->width);
    attend.query_y = back_y;
    attend.query_x = back_x;
    attend.query = clattn_binding_buffer(d->patches, (int64_t)(back_y * row + back_x * col));
    attend.key = clattn_binding_buffer(d->patches, 0);
    attend.value = clattn_binding_buffer(d->patches, (int64_t)(d->size / 2 * d->planes)); /* the pixel itself */
    attend.bias = clattn_binding_buffer(d->norms, 0);
    attend.output = clattn_binding_buffer(d->cleaned, 0);
    pack.image = clattn_binding_image(d->in);
    pack.array = clattn_binding_buffer(d->patches, 0);
    pack.norm = clattn_binding_buffer(d->norms, 0);
    pack.norm_factor = -1 / d->h2;
    pack.origin_y = (int64_t)(d->margin - back_y);
    pack.origin_x = (int64_t)(d->margin - back_x);
    unpack.image = clattn_binding_image(d->out);
    unpack.array = clattn_binding_buffer(d->cleaned, 0);
    pack.explicit_matrix = unpack.explicit_matrix = 1;
    memcpy(pack.matrix, grey ? grey_in : colours_in, sizeof pack.matrix);
    memcpy(unpack.matrix, grey ? grey_out : colours_out, sizeof unpack.matrix);
    clattn_status status;
    TRY(clattn_image_enqueue(d->pack, queue, &pack, 0, NULL, NULL));
    TRY(clattn_neighbourhood_enqueue(d->attend, queue, &attend, 0, NULL, NULL));
    TRY(clattn_image_enqueue(d->unpack, queue, &unpack, 0, NULL, NULL));
fail:
    return status;
}

static clattn_status run_tiles(denoiser *d, const picture *clean, size_t tiles)
{
    const picture *p = d->picture;
    clattn_status status = CLATTN_SUCCESS;
    size_t done = 0;
    for (size_t y = 0; y < p->height; y += d->tile[0])
        for (size_t x = 0; x < p->width; x += d->tile[1]) {
            const part tile = {y, x, size_min(p->height - y, d->tile[0]), size_min(p->width - x, d->tile[1])};
            TRY(upload(d, &tile));
            TRY(enqueue_tile(d, &tile));
            TRY(download(d, &tile, clean));
            progress_show((double)++done / (double)tiles);
        }
fail:
    return status;
}

static void clear(denoiser *d)
{
    cl_mem *all[] = {&d->in, &d->out, &d->patches, &d->norms, &d->cleaned};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (*all[i] != NULL)
            clReleaseMemObject(*all[i]);
    clattn_plan_release(&d->pack);
    clattn_plan_release(&d->attend);
    clattn_plan_release(&d->unpack);
    free(d->staging);
}

int denoise_picture(tool_device *device, picture *p, const denoise_rule *rule, denoise_result *result)
{
    denoiser d = {.device = device,
                  .picture = p,
                  .rule = rule,
                  .planes = p->channels < 3 ? 1 : 3,
                  .size = rule->patch * rule->patch,
                  .margin = rule->radius + rule->patch / 2};
    picture clean = *p;
    size_t bytes = p->height * picture_row(p);
    d.h2 = rule->strength / 255 * rule->strength / 255 * (float)d.size;
    int code = choose_tile(&d);
    if (code != TOOL_DONE)
        return code;
    for (int i = 0; i < 2; i++)
        d.map[i] = d.tile[i] + 2 * rule->radius;
    result->tile_height = d.tile[0];
    result->tile_width = d.tile[1];
    result->tiles = divide_up(p->height, d.tile[0]) * divide_up(p->width, d.tile[1]);
    result->memory = (size_t)memory_for(&d, d.tile[0], d.tile[1]);
    clean.pixels = malloc(bytes);
    if (clean.pixels == NULL)
        return complain(TOOL_FAILED, "no memory for the result's %zu bytes", bytes);
    memcpy(clean.pixels, p->pixels, bytes); /* alpha */
    device->message[0] = '\0';
    progress_begin("denoise");
    clattn_status status;
    TRY(make_plans(&d));
    TRY(make_memory(&d));
    snprintf(result->solver, sizeof result->solver, "%s", clattn_plan_solver(d.attend));
    TRY(run_tiles(&d, &clean, result->tiles));
fail:
    progress_end();
    code = device_check(device, status, NULL);
    clear(&d);
    free(p->pixels);
    p->pixels = clean.pixels;
    return code;
}
