/* SwinIR's models, and restorers of tiles of one size, that are kept. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "engine_shared.h"
#include "restore/restore.h"

/* A model with its weights on the device, and what its last tile needed. */
typedef struct upscaler {
    char *path;
    clattn_context *context; /* NULL: there was none */
    swinir model;
    restorer restorer; /* closed, or for tiles of its params */
} upscaler;

static engine_shelf idle; /* of upscalers */

static bool fits(const void *item, const void *wanted)
{
    const upscaler *u = item, *w = wanted;
    return u->context == w->context && strcmp(u->path, w->path) == 0;
}

static void discard(upscaler *u)
{
    if (u == NULL)
        return;
    restorer_close(&u->restorer);
    swinir_close(&u->model);
    free(u->path);
    free(u);
}

/* Loads the model; its file is closed then, so that whoever changes it later does no harm. */
static clattn_status load(upscaler *u)
{
    clattn_status status;
    TRY(swinir_open(u->path, &u->model));
    TRY(swinir_load(&u->model, u->context, CLATTN_DTYPE_F32));
fail:
    clattn_safetensors_release(&u->model.file);
    return status;
}

/* Takes a model that is kept, or loads it; the caller keeps or discards *taken, which is NULL if there is no memory. */
static clattn_status take(const engine_opencl *opencl, const char *path, upscaler **taken)
{
    upscaler wanted = {.path = (char *)(uintptr_t)path}; /* only read */
    clattn_status status = engine_context(opencl, &wanted.context);
    *taken = status == CLATTN_SUCCESS ? engine_take(&idle, fits, &wanted) : NULL;
    if (status != CLATTN_SUCCESS || *taken != NULL)
        return status;
    upscaler *made = calloc(1, sizeof *made);
    char *copy = malloc(strlen(path) + 1);
    if (made == NULL || copy == NULL) {
        free(made);
        free(copy);
        return CLATTN_ERROR_OUT_OF_MEMORY;
    }
    memcpy(copy, path, strlen(path) + 1);
    made->path = copy;
    made->context = wanted.context;
    *taken = made;
    return load(made);
}

/* Writes why the last call failed: `u` is what take has given. */
static void write_message(const upscaler *u, clattn_status status, char *text, size_t bytes)
{
    text[0] = '\0';
    if (u != NULL && u->restorer.message[0] != '\0')
        snprintf(text, bytes, "%s%s%s", u->restorer.fault == RESTORE_FAULT_MODEL ? u->path : "",
                 u->restorer.fault == RESTORE_FAULT_MODEL ? ": " : "", u->restorer.message);
    else if (u != NULL && u->model.error.message[0] != '\0')
        snprintf(text, bytes, "%s", u->model.error.message);
    else
        clattn_context_message(u != NULL ? u->context : NULL, text, bytes);
    if (text[0] == '\0')
        snprintf(text, bytes, "%s", clattn_status_string(status));
    text[strcspn(text, "\n")] = '\0'; /* what a compiler says goes on */
}

bool engine_find_model(const engine_opencl *opencl, const char *path, engine_model *model, char *message, size_t bytes)
{
    upscaler *u = NULL;
    const clattn_status status = take(opencl, path, &u);
    if (status == CLATTN_SUCCESS) {
        *model = (engine_model){u->model.factor, u->model.window};
        discard(engine_keep(&idle, u));
        return true;
    }
    write_message(u, status, message, bytes);
    discard(u);
    return false;
}

/* ---- tiles ---- */

static float limited(float value)
{
    return isnan(value) ? 0.0f : fminf(fmaxf(value, 0.0f), 1.0f);
}

/* The functions of restore_work; `user` is the engine_tile. */
static void read_part(void *user, size_t y, size_t x, const size_t size[2], float *values)
{
    const engine_tile *t = user;
    const size_t width = size_min(t->width, t->all_width - t->x);
    for (size_t component = 0; component < t->components; component++)
        for (size_t row = 0; row < size[0]; row++) {
            const size_t begin = (tiling_mirrored(t->y + y + row, t->all_height) - t->y) * width;
            for (size_t column = 0; column < size[1]; column++) {
                const size_t at = begin + tiling_mirrored(t->x + x + column, t->all_width) - t->x;
                *values++ = limited(t->in[at * t->components + component]);
            }
        }
}

static void write_row(void *user, size_t y, const float *row, size_t step)
{
    const engine_tile *t = user;
    if (y < t->part_y || y >= t->part_y + t->part_height)
        return;
    float *to = t->out + (y - t->part_y) * t->part_width * t->components;
    for (size_t x = t->part_x; x < t->part_x + t->part_width; x++)
        for (size_t component = 0; component < t->components; component++)
            *to++ = limited(row[component * step + x]);
}

/* Makes the restorer one for such a tile, unless it is. */
static clattn_status fit(upscaler *u, const engine_tile *tile)
{
    clattn_device_info info = {.size = sizeof info};
    const restore_params *params = &u->restorer.params;
    const size_t colours = tile->components < 3 ? 1 : 3;
    const bool alpha = tile->components % 2 == 0;
    clattn_status status;
    if (params->height == tile->height && params->width == tile->width && params->colours == colours &&
        params->alpha == alpha && params->overlap == tile->overlap)
        return CLATTN_SUCCESS;
    restorer_close(&u->restorer);
    TRY(clattn_context_device_info(u->context, &info));
    const restore_params wanted = {.height = tile->height,
                                   .width = tile->width,
                                   .colours = colours,
                                   .alpha = alpha,
                                   .memory = restore_memory(&info, 0),
                                   .overlap = tile->overlap,
                                   .max_launch_ms = ENGINE_MAX_LAUNCH_MS};
    status = restorer_open(&u->restorer, &u->model, u->context, &wanted);
fail:
    return status;
}

/* Refuses a model that has another shape than the one that was found by this name. */
static clattn_status check_model(upscaler *u, const engine_tile *tile)
{
    if (u->model.factor == tile->model.factor && u->model.window == tile->model.window)
        return CLATTN_SUCCESS;
    return swinir_refuse(&u->model, "enlarges %zu times by windows of %zu, expected %zu and %zu as when it was chosen",
                         u->model.factor, u->model.window, tile->model.factor, tile->model.window);
}

bool engine_restore(const engine_opencl *opencl, const engine_tile *tile, char *message, size_t bytes)
{
    const restore_work work = {.read = read_part, .write = write_row, .user = (void *)(uintptr_t)tile}; /* only read */
    upscaler *u = NULL;
    clattn_status status;
    TRY(take(opencl, tile->path, &u));
    TRY(check_model(u, tile));
    TRY(fit(u, tile));
    TRY(restorer_run(&u->restorer, &work));
    discard(engine_keep(&idle, u));
    return true;
fail:
    write_message(u, status, message, bytes);
    discard(u);
    return false;
}
