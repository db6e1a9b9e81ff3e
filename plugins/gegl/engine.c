/* The process's clattn contexts, and the denoisers that wait for the next call.
 *
 * There is one context, on GEGL's OpenCL context and queue if GEGL uses OpenCL, or on the library's own; a process in which
 * OpenCL is turned on or off has both.  They are made when they are first needed, because programs make a list of all
 * operations when they start, and last until the process ends, because drivers have threads that no library can join. */
#include "engine.h"

#include <stdio.h>

#include "base/os/os_threads.h"
#include "base/size.h"
#include "denoise/denoise.h"

#define MEMORY ((size_t)256 << 20)
#define TILE 256
#define IDLE 2 /* denoisers that are kept; each has some ten MB on the device */
#define MAX_LAUNCH_MS 50

static struct {
    mtx_t lock; /* guards all members; no plan is made and nothing enqueued while it is held */
    clattn_context *own, *adopted;
    denoiser idle[IDLE]; /* most recent last; a closed one is free */
} shared = {.lock = MTX_INIT};

size_t engine_margin(size_t patch, size_t radius)
{
    return radius + patch / 2;
}

static void write_log(void *user, clattn_log_level level, const char *line)
{
    (void)user;
    if (level != CLATTN_LOG_LEVEL_ERROR) /* errors are returned */
        fprintf(stderr, "clattn-gegl: %s\n", line);
}

/* Caller holds the lock.  The context on GEGL's OpenCL, or the process's own, also if GEGL has changed its context since. */
static clattn_status find_context(const engine_opencl *opencl, clattn_context **found)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    params.log = write_log;
    params.opencl_context = opencl->context;
    params.opencl_device = opencl->device;
    params.queue = opencl->queue;
    bool adopt = params.opencl_context != NULL;
    if (adopt && shared.adopted != NULL && clattn_context_opencl_context(shared.adopted) != params.opencl_context) {
        adopt = false;
        params.opencl_context = NULL;
        params.opencl_device = NULL;
        params.queue = NULL;
    }
    clattn_context **place = adopt ? &shared.adopted : &shared.own;
    clattn_status status = *place != NULL ? CLATTN_SUCCESS : clattn_context_create(&params, place);
    *found = *place;
    return status;
}

/* Caller holds the lock.  Takes an idle denoiser of these numbers out, or gives a closed one. */
static denoiser take(const clattn_context *context, const denoise_params *params)
{
    denoiser taken = {0};
    for (size_t i = 0; i < IDLE; i++) {
        const denoiser *d = &shared.idle[i];
        if (d->context == context && d->params.colours == params->colours && d->params.patch == params->patch &&
            d->params.radius == params->radius) {
            taken = *d;
            shared.idle[i] = (denoiser){0};
            break;
        }
    }
    return taken;
}

/* Keeps the denoiser for the next call in place of the one that has waited longest. */
static void keep(denoiser *d)
{
    mtx_lock(&shared.lock);
    size_t place = 0;
    while (place < IDLE - 1 && shared.idle[place].context != NULL)
        place++;
    denoiser oldest = shared.idle[0];
    if (shared.idle[place].context == NULL)
        oldest = (denoiser){0};
    else
        for (place = 0; place < IDLE - 1; place++)
            shared.idle[place] = shared.idle[place + 1];
    shared.idle[place] = *d;
    mtx_unlock(&shared.lock);
    denoiser_close(&oldest);
}

bool engine_denoise(const engine_opencl *opencl, const engine_block *block, char *message, size_t bytes)
{
    const denoise_params params = {.height = TILE,
                                   .width = TILE,
                                   .colours = block->components < 3 ? 1 : 3,
                                   .type = CL_FLOAT,
                                   .patch = block->patch,
                                   .radius = block->radius,
                                   .memory = MEMORY,
                                   .max_launch_ms = MAX_LAUNCH_MS};
    const size_t step = block->components * sizeof(float);
    const denoise_work work = {.in = {(void *)(uintptr_t)block->in, step, block->width * step}, /* only read */
                               .out = {block->out, step, block->part_width * step},
                               .height = block->height,
                               .width = block->width,
                               .y = block->y,
                               .x = block->x,
                               .part_height = block->part_height,
                               .part_width = block->part_width,
                               .strength = (float)block->strength};
    clattn_context *context = NULL;
    denoiser d = {0};
    mtx_lock(&shared.lock);
    clattn_status status = find_context(opencl, &context);
    if (status == CLATTN_SUCCESS)
        d = take(context, &params);
    mtx_unlock(&shared.lock);
    if (status == CLATTN_SUCCESS && d.context == NULL)
        status = denoiser_open(&d, context, clattn_context_queue(context), &params);
    if (status == CLATTN_SUCCESS)
        status = denoiser_run(&d, &work);
    if (status == CLATTN_SUCCESS) {
        keep(&d);
        return true;
    }
    denoiser_message(&d, status, message, bytes);
    denoiser_close(&d);
    return false;
}
