/* How large tiles are, and what they need on the device and in host memory. */
#include <stdio.h>
#include <stdlib.h>

#include "base/text/opencl_check.h"
#include "base/size.h"
#include "base/try.h"
#include "restore/restore.h"

#define MOST_DEFAULT_MEMORY ((uint64_t)1 << 30)

static size_t square(size_t n)
{
    return n * n;
}

/* Bytes of buffers for a pixel of a tile: planes and alpha, given and made. */
static size_t buffer_bytes(const restorer *r)
{
    const size_t made = square(r->model->factor);
    return (r->planes * (1 + made) + (r->params.alpha ? 1 + made : 0)) * sizeof(float);
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

size_t restore_memory(const clattn_device_info *info, size_t most)
{
    const uint64_t quarter = info->global_memory / 4, largest = info->max_allocation;
    const uint64_t standard = quarter != 0 && quarter < MOST_DEFAULT_MEMORY ? quarter : MOST_DEFAULT_MEMORY;
    const uint64_t memory = most != 0 ? most : standard;
    return (size_t)(largest != 0 && largest < memory ? largest : memory);
}

static clattn_status refuse_memory(restorer *r)
{
    snprintf(r->message, sizeof r->message,
             "%zu MiB are too little for tiles of %zu x %zu pixels, expected at least %zu", r->params.memory >> 20,
             r->tiles.tile[0], r->tiles.tile[1], divide_up(r->memory, (size_t)1 << 20));
    r->fault = RESTORE_FAULT_MEMORY;
    return CLATTN_ERROR_INVALID_ARGUMENT;
}

/* Makes tiles as large as the memory allows.  A plan's memory is about proportional to the pixels. */
static clattn_status fit_tiles(restorer *r, const char *solver)
{
    const size_t most = r->params.memory;
    size_t edge = tiling_edge(&r->tiles, most / least_bytes(r)), least = r->tiles.overlap + r->tiles.window;
    clattn_status status;
    least = size_min(least, size_max(r->tiles.filled[0], r->tiles.filled[1]));
    edge = size_max(edge, least);
    for (;;) {
        tiling_set(&r->tiles, edge); /* `edge` exceeds the overlap */
        TRY(make_plan(r, solver));
        if (r->memory <= most)
            return CLATTN_SUCCESS;
        if (edge <= least)
            return refuse_memory(r);
        const double fits = (double)given_pixels(r) * (double)most / (double)r->memory;
        edge = size_max(least, size_min(edge - r->tiles.window, tiling_edge(&r->tiles, (size_t)fits)));
    }
fail:
    return status;
}

/* Makes tiles of the size that the caller wants. */
static clattn_status set_tiles(restorer *r, const char *solver)
{
    if (tiling_set(&r->tiles, r->params.tile))
        return make_plan(r, solver);
    snprintf(r->message, sizeof r->message, "%zu pixels, in whole windows of %zu, are too many for tiles of %zu",
             r->tiles.overlap, r->tiles.window, r->params.tile);
    r->fault = RESTORE_FAULT_OVERLAP;
    return CLATTN_ERROR_INVALID_ARGUMENT;
}

/* ---- buffers ---- */

static clattn_status make_buffer(restorer *r, size_t bytes, cl_mem *buffer)
{
    cl_int code = CL_SUCCESS;
    *buffer = clCreateBuffer(clattn_context_opencl_context(r->context), CL_MEM_READ_WRITE, bytes, NULL, &code);
    return opencl_check("clCreateBuffer", code, r->message, sizeof r->message);
}

static clattn_status make_buffers(restorer *r)
{
    const size_t given = given_pixels(r) * sizeof(float), factor = r->model->factor, made = given * square(factor);
    const size_t *tile = r->tiles.tile;
    clattn_resize_desc desc = CLATTN_RESIZE_DESC_INIT;
    clattn_status status;
    TRY(make_buffer(r, r->planes * given, &r->from));
    TRY(make_buffer(r, r->planes * made, &r->to));
    TRY(make_buffer(r, clattn_plan_workspace_size(r->plan), &r->workspace));
    if (!r->params.alpha || factor == 1)
        return CLATTN_SUCCESS;
    desc.mode = CLATTN_RESIZE_MODE_BICUBIC;
    desc.x = clattn_layout_nchw(CLATTN_DTYPE_F32, 1, 1, tile[0], tile[1]);
    desc.y = clattn_layout_nchw(CLATTN_DTYPE_F32, 1, 1, tile[0] * factor, tile[1] * factor);
    TRY(clattn_resize_plan_create(r->context, &desc, NULL, &r->enlarge));
    TRY(make_buffer(r, given, &r->alpha_from));
    TRY(make_buffer(r, made, &r->alpha_to));
fail:
    return status;
}

static clattn_status allocate(restorer *r)
{
    const size_t planes = r->planes + r->params.alpha, pixels = given_pixels(r);
    const size_t made = pixels * square(r->model->factor);
    const size_t row = r->tiles.filled[1] * r->model->factor, rows = r->tiles.tile[0] * r->model->factor;
    r->given = malloc(planes * pixels * sizeof *r->given);
    r->made = malloc(planes * made * sizeof *r->made);
    for (size_t i = 0; i < 2; i++)
        r->band[i] = i < r->tiles.count[0] ? malloc(planes * rows * row * sizeof *r->band[i]) : NULL;
    if (r->given != NULL && r->made != NULL && r->band[0] != NULL && (r->tiles.count[0] == 1 || r->band[1] != NULL))
        return CLATTN_SUCCESS;
    snprintf(r->message, sizeof r->message, "out of memory for tiles of %zu x %zu pixels", r->tiles.tile[0],
             r->tiles.tile[1]);
    return CLATTN_ERROR_OUT_OF_MEMORY;
}

clattn_status restorer_open(restorer *r, const swinir *model, clattn_context *context, const restore_params *params)
{
    clattn_control_params control = CLATTN_CONTROL_PARAMS_INIT;
    clattn_status status;
    *r = (restorer){.model = model, .context = context, .queue = clattn_context_queue(context), .params = *params};
    r->params.solver = NULL;
    r->planes = size_max(params->colours, model->channels);
    r->tiles = tiling_of(params->height, params->width, model->window, params->overlap);
    control.max_launch_ms = params->max_launch_ms;
    if (params->max_launch_ms != 0)
        TRY(clattn_control_create(&control, &r->control));
    TRY(params->tile == 0 ? fit_tiles(r, params->solver) : set_tiles(r, params->solver));
    TRY(make_buffers(r));
    status = allocate(r);
fail:
    return status;
}

void restorer_close(restorer *r)
{
    cl_mem *const buffers[] = {&r->from, &r->to, &r->alpha_from, &r->alpha_to, &r->workspace};
    for (size_t i = 0; i < COUNT_OF(buffers); i++)
        if (*buffers[i] != NULL && !context_is_of_another_process(r->context))
            clReleaseMemObject(*buffers[i]);
    clattn_plan_release(&r->plan);
    clattn_plan_release(&r->enlarge);
    clattn_control_release(&r->control);
    free(r->given);
    free(r->made);
    free(r->band[0]);
    free(r->band[1]);
    *r = (restorer){0};
}
