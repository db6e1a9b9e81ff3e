/* Denoising, by denoisers that are kept. */
#include <stdlib.h>

#include "denoise/denoise.h"
#include "engine_shared.h"

#define TILE 256

static engine_shelf idle; /* of denoisers; each has some ten MB on the device */

size_t engine_margin(size_t patch, size_t radius)
{
    return radius + patch / 2;
}

static bool fits(const void *item, const void *wanted)
{
    const denoiser *d = item, *w = wanted;
    return d->context == w->context && d->params.colours == w->params.colours && d->params.patch == w->params.patch &&
           d->params.radius == w->params.radius;
}

static void discard(denoiser *d)
{
    if (d != NULL)
        denoiser_close(d);
    free(d);
}

/* Takes a denoiser of such a context and numbers, or makes one.  NULL: there is no memory for it. */
static denoiser *take(const denoiser *wanted, clattn_status *status)
{
    denoiser *d = engine_take(&idle, fits, wanted);
    if (d != NULL)
        return d;
    d = calloc(1, sizeof *d);
    *status = d != NULL ? denoiser_open(d, wanted->context, clattn_context_queue(wanted->context), &wanted->params)
                        : CLATTN_ERROR_OUT_OF_MEMORY;
    return d;
}

bool engine_denoise(const engine_opencl *opencl, const engine_block *block, char *message, size_t bytes)
{
    const denoise_params params = {.height = TILE,
                                   .width = TILE,
                                   .colours = block->components < 3 ? 1 : 3,
                                   .type = CL_FLOAT,
                                   .patch = block->patch,
                                   .radius = block->radius,
                                   .memory = DENOISE_STANDARD_MEMORY,
                                   .max_launch_ms = ENGINE_MAX_LAUNCH_MS};
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
    denoiser wanted = {.params = params}, *d = NULL;
    clattn_status status = engine_context(opencl, &wanted.context);
    if (status == CLATTN_SUCCESS)
        d = take(&wanted, &status);
    if (status == CLATTN_SUCCESS)
        status = denoiser_run(d, &work);
    if (status == CLATTN_SUCCESS) {
        discard(engine_keep(&idle, d));
        return true;
    }
    denoiser_message(d != NULL ? d : &wanted, status, message, bytes);
    discard(d);
    return false;
}
