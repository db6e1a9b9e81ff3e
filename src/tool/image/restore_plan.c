#include <stdlib.h>

#include "base/size.h"
#include "base/try.h"
#include "tool/image/restore.h"

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
    desc.restored = clattn_layout_nchw(CLATTN_DTYPE_F32, batch, r->model->channels, tile[0] * factor, tile[1] * factor);
    options.solver = solver;
    TRY(clattn_encoder_plan_create(r->model->transformer, &desc, &options, &r->plan));
    r->memory = clattn_plan_workspace_size(r->plan) + given_pixels(r) * buffer_bytes(r);
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
        const double fits = (double)given_pixels(r) * (double)most / (double)r->memory;
        edge = size_max(least, size_min(edge - r->tiles.window, tiling_edge(&r->tiles, (size_t)fits)));
    }
fail:
    return status;
}

/* ---- buffers ---- */

static clattn_status make_buffers(restorer *r)
{
    const size_t given = given_pixels(r) * sizeof(float), factor = r->model->factor, made = given * square(factor);
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
    const size_t planes = r->planes + r->alpha, pixels = given_pixels(r), made = pixels * square(r->model->factor);
    const size_t row = r->tiles.filled[1] * r->model->factor, rows = r->tiles.tile[0] * r->model->factor;
    r->given = malloc(planes * pixels * sizeof *r->given);
    r->made = malloc(planes * made * sizeof *r->made);
    for (size_t i = 0; i < 2; i++)
        r->band[i] = i < r->tiles.count[0] ? malloc(planes * rows * row * sizeof *r->band[i]) : NULL;
    if (r->given == NULL || r->made == NULL || r->band[0] == NULL || (r->tiles.count[0] > 1 && r->band[1] == NULL))
        return complain(TOOL_FAILED, "out of memory for tiles of %zu x %zu pixels", r->tiles.tile[0], r->tiles.tile[1]);
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
