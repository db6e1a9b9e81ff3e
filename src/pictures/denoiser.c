#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "denoise/denoise.h"
#include "pictures/common.h"
#include "pictures/levels.h"

#define TILE 256 /* rows and columns at the most; pictures of any size are cut into such tiles */

struct clattn_denoiser {
    clattn_context *context;
    clattn_denoiser_params params;
    denoiser tiles; /* closed, or for colours and components of its params */
};

void clattn_denoiser_params_init(clattn_denoiser_params *params)
{
    *params = (clattn_denoiser_params)CLATTN_DENOISER_PARAMS_INIT;
}

void clattn_denoiser_args_init(clattn_denoiser_args *args)
{
    *args = (clattn_denoiser_args)CLATTN_DENOISER_ARGS_INIT;
}

static clattn_status check_params(const clattn_denoiser_params *params, clattn_io_error *error)
{
    if (params->patch % 2 == 0 || params->patch > DENOISE_MOST_PATCH)
        return call_fail(error, CLATTN_ERROR_INVALID_ARGUMENT, "params.patch is %zu, expected an odd number up to %d",
                         params->patch, DENOISE_MOST_PATCH);
    if (params->radius > DENOISE_MOST_RADIUS)
        return call_fail(error, CLATTN_ERROR_INVALID_ARGUMENT, "params.radius is %zu, expected 1 to %d", params->radius,
                         DENOISE_MOST_RADIUS);
    return CLATTN_SUCCESS;
}

clattn_status clattn_denoiser_create(clattn_context *context, const clattn_denoiser_params *given,
                                     clattn_denoiser **result, clattn_io_error *error)
{
    clattn_denoiser_params params = CLATTN_DENOISER_PARAMS_INIT;
    clattn_status status;
    if (result != NULL)
        *result = NULL;
    if (context == NULL || result == NULL)
        return call_fail(error, CLATTN_ERROR_INVALID_ARGUMENT, "context or denoiser is NULL");
    if (given != NULL) {
        TRY(call_check_struct(error, "params", given->size, sizeof *given));
        params = *given;
    }
    params.patch = params.patch != 0 ? params.patch : DENOISE_STANDARD_PATCH;
    params.radius = params.radius != 0 ? params.radius : DENOISE_STANDARD_RADIUS;
    params.memory = params.memory != 0 ? params.memory : DENOISE_STANDARD_MEMORY;
    TRY(check_params(&params, error));
    clattn_denoiser *made = calloc(1, sizeof *made);
    if (made == NULL)
        return call_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a denoiser");
    *made = (clattn_denoiser){.context = context, .params = params};
    *result = made;
fail:
    return status;
}

/* Makes plans and memory for such pictures, unless they are there. */
static clattn_status fit_to(clattn_denoiser *d, const clattn_picture *p, clattn_io_error *error)
{
    static const cl_channel_type types[] = {[CLATTN_COMPONENT_U8] = CL_UNORM_INT8,
                                            [CLATTN_COMPONENT_U16] = CL_UNORM_INT16,
                                            [CLATTN_COMPONENT_F32] = CL_FLOAT};
    const denoise_params params = {.height = TILE,
                                   .width = TILE,
                                   .colours = (int)picture_colours(p),
                                   .type = types[p->type],
                                   .patch = d->params.patch,
                                   .radius = d->params.radius,
                                   .memory = d->params.memory};
    if (d->tiles.context != NULL && d->tiles.params.colours == params.colours && d->tiles.params.type == params.type)
        return CLATTN_SUCCESS;
    denoiser_close(&d->tiles);
    if (params.memory < denoise_least_memory(&params))
        return call_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, "params.memory is %zu, the smallest tile needs %zu",
                         params.memory, denoise_least_memory(&params));
    const clattn_status opened = denoiser_open(&d->tiles, d->context, clattn_context_queue(d->context), &params);
    const clattn_status status = call_check(error, opened, d->tiles.message, d->context);
    if (status != CLATTN_SUCCESS)
        denoiser_close(&d->tiles);
    return status;
}

static void copy_alpha(const clattn_picture *from, const clattn_picture *to)
{
    const size_t bytes = component_bytes(from), step = pixel_bytes(from), alpha = step - bytes;
    for (size_t y = 0; y < from->height && picture_has_alpha(from); y++)
        for (size_t x = 0; x < from->width; x++)
            memcpy(picture_row_at(to, y) + x * step + alpha, picture_row_at(from, y) + x * step + alpha, bytes);
}

static denoise_pixels pixels_of(const clattn_picture *p)
{
    return (denoise_pixels){p->pixels, pixel_bytes(p), picture_step(p)};
}

clattn_status clattn_denoiser_run(clattn_denoiser *d, cl_command_queue queue, const clattn_denoiser_args *args,
                                  clattn_io_error *error)
{
    clattn_status status;
    if (d == NULL || args == NULL)
        return call_fail(error, CLATTN_ERROR_INVALID_ARGUMENT, "denoiser or args is NULL");
    TRY(call_check_struct(error, "args", args->size, sizeof *args));
    TRY(call_check_result(error, &args->from, 1, &args->to));
    if (!(args->strength >= 0.0f && args->strength <= DENOISE_MOST_STRENGTH))
        return call_fail(error, CLATTN_ERROR_INVALID_ARGUMENT, "args.strength is %g, expected 0 to 255",
                         (double)args->strength);
    TRY(call_begin(error, d->context, &queue, args->control, 1));
    TRY(fit_to(d, &args->from, error));
    const float strength = args->strength != 0.0f ? args->strength : DENOISE_STANDARD_STRENGTH;
    const denoise_work work = {.in = pixels_of(&args->from),
                               .out = pixels_of(&args->to),
                               .height = args->from.height,
                               .width = args->from.width,
                               .part_height = args->from.height,
                               .part_width = args->from.width,
                               .strength = strength < DENOISE_LEAST_STRENGTH ? DENOISE_LEAST_STRENGTH : strength,
                               .control = args->control};
    d->tiles.queue = queue;
    status = call_end(denoiser_run(&d->tiles, &work), args->control);
    TRY(call_check(error, status, d->tiles.message, d->context));
    copy_alpha(&args->from, &args->to);
fail:
    return status;
}

void clattn_denoiser_release(clattn_denoiser **handle)
{
    if (handle == NULL || *handle == NULL)
        return;
    denoiser_close(&(*handle)->tiles);
    free(*handle);
    *handle = NULL;
}
