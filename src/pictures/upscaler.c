#include <stdlib.h>

#include "base/try.h"
#include "pictures/common.h"
#include "pictures/levels.h"
#include "restore/restore.h"

#define MOST_OVERLAP 65536

struct clattn_upscaler {
    clattn_context *context;
    clattn_upscaler_params params;
    swinir model;
    restorer tiles; /* closed, or for pictures of the size and components of its params */
};

void clattn_upscaler_params_init(clattn_upscaler_params *params)
{
    *params = (clattn_upscaler_params)CLATTN_UPSCALER_PARAMS_INIT;
}

void clattn_upscaler_args_init(clattn_upscaler_args *args)
{
    *args = (clattn_upscaler_args)CLATTN_UPSCALER_ARGS_INIT;
}

clattn_status clattn_upscaler_create(clattn_context *context, const clattn_upscaler_params *params,
                                     clattn_upscaler **result, clattn_io_error *error)
{
    clattn_upscaler *made = NULL;
    clattn_status status;
    if (result != NULL)
        *result = NULL;
    if (context == NULL || params == NULL || result == NULL)
        return call_fail(error, CLATTN_ERROR_INVALID_ARGUMENT, "context, params or upscaler is NULL");
    TRY(call_check_struct(error, "params", params->size, sizeof *params));
    TRY(call_check_weights(error, params->weights, params->dtype));
    if (params->overlap > MOST_OVERLAP)
        return call_fail(error, CLATTN_ERROR_INVALID_ARGUMENT, "params.overlap is %zu, expected at most %d",
                         params->overlap, MOST_OVERLAP);
    made = calloc(1, sizeof *made);
    if (made == NULL)
        return call_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for an upscaler");
    made->context = context;
    made->params = *params;
    made->params.overlap = params->overlap != 0 ? params->overlap : RESTORE_STANDARD_OVERLAP;
    status = swinir_open(params->weights, &made->model);
    if (status == CLATTN_SUCCESS)
        status = swinir_load(&made->model, context, call_dtype(params->dtype));
    TRY(call_check_file(error, status, made->model.error.message, context, params->weights));
    /* Nobody needs the file or its path any more. */
    clattn_safetensors_release(&made->model.file);
    made->model.path = NULL;
    made->params.weights = NULL;
    *result = made;
    return CLATTN_SUCCESS;
fail:
    clattn_upscaler_release(&made);
    return status;
}

size_t clattn_upscaler_factor(const clattn_upscaler *upscaler)
{
    return upscaler != NULL ? upscaler->model.factor : 0;
}

/* Writes why tiles have failed, if they have, and which of the caller's numbers that is due to. */
static clattn_status check_tiles(const clattn_upscaler *u, clattn_status status, clattn_io_error *error)
{
    static const char *const causes[] = {[RESTORE_FAULT_NONE] = "",
                                         [RESTORE_FAULT_MODEL] = "the model: ",
                                         [RESTORE_FAULT_MEMORY] = "params.memory: ",
                                         [RESTORE_FAULT_OVERLAP] = "params.overlap: "};
    if (status != CLATTN_SUCCESS && u->tiles.message[0] != '\0')
        return call_fail(error, status, "%s%s", causes[u->tiles.fault], u->tiles.message);
    return call_check(error, status, "", u->context);
}

/* Makes plans and memory for such pictures, unless they are there. */
static clattn_status fit_to(clattn_upscaler *u, const clattn_picture *p, clattn_io_error *error)
{
    clattn_device_info info = {.size = sizeof info};
    const restore_params *now = &u->tiles.params;
    restore_params params = {.height = p->height,
                             .width = p->width,
                             .colours = picture_colours(p),
                             .alpha = picture_has_alpha(p),
                             .overlap = u->params.overlap};
    clattn_status status;
    if (u->tiles.context != NULL && now->height == params.height && now->width == params.width &&
        now->colours == params.colours && now->alpha == params.alpha)
        return CLATTN_SUCCESS;
    restorer_close(&u->tiles);
    status = clattn_context_device_info(u->context, &info);
    params.memory = restore_memory(&info, u->params.memory);
    if (status == CLATTN_SUCCESS)
        status = restorer_open(&u->tiles, &u->model, u->context, &params);
    status = check_tiles(u, status, error);
    if (status != CLATTN_SUCCESS)
        restorer_close(&u->tiles);
    return status;
}

clattn_status clattn_upscaler_run(clattn_upscaler *u, cl_command_queue queue, const clattn_upscaler_args *args,
                                  clattn_io_error *error)
{
    clattn_status status;
    if (u == NULL || args == NULL)
        return call_fail(error, CLATTN_ERROR_INVALID_ARGUMENT, "upscaler or args is NULL");
    TRY(call_check_struct(error, "args", args->size, sizeof *args));
    TRY(call_check_result(error, &args->from, u->model.factor, &args->to));
    TRY(call_begin(error, u->context, &queue, args->control, 1));
    TRY(fit_to(u, &args->from, error));
    level_pair both = {&args->from, &args->to};
    const restore_work work = {.read = levels_read, .write = levels_write, .user = &both, .control = args->control};
    u->tiles.queue = queue;
    status = call_end(restorer_run(&u->tiles, &work), args->control);
    status = check_tiles(u, status, error);
fail:
    return status;
}

void clattn_upscaler_release(clattn_upscaler **upscaler)
{
    if (upscaler == NULL || *upscaler == NULL)
        return;
    restorer_close(&(*upscaler)->tiles);
    swinir_close(&(*upscaler)->model);
    free(*upscaler);
    *upscaler = NULL;
}
